"""Strings that try to run a script, every kind of page and figure with them, and what a parser finds there."""

import json
from collections.abc import Callable, Collection
from functools import partial
from pathlib import Path

import numpy as np

from calibrant.audits import audit
from calibrant.estimates import estimate
from calibrant.monitors import monitor
from calibrant.predictions import Predictions
from calibrant.report.experiment import write_experiment
from calibrant.report.figures import make_figures
from calibrant.report.render import save
from made.folder import write_folder
from made.page import Page
from made.rows import Experiment

PAYLOADS = (
    "</script><script>alert(1)</script>",
    "<img src=x onerror=alert(2)>",
    '"><svg onload=alert(3)>',
    "'><iframe src=javascript:alert(4)></iframe>",
    "<!--<script>alert(5)",
    "]]><script>alert(6)</script>",
    '"};alert(7)\u2028alert(7)\u2029//',
    "javascript:alert(8)",
    '" autofocus onfocus="alert(9)" onmouseover="alert(9)',
    "</style><style>@import 'http://127.0.0.1:9/x'</style>",
    "</title></textarea></noscript></text></svg><script>alert(11)</script>",
    "{{ 7 * 7 }}{% include 'x' %}${alert(12)}",
    '<a href="data:text/html,<script>alert(13)</script>">x</a>',
    "&lt;script&gt;alert(14)&lt;/script&gt;&#x3c;b&#x3e;",
    "<base href=//127.0.0.1:9><meta http-equiv=refresh content=0;url=//127.0.0.1:9/><object data=x>",
)
FIGURES = ("heat_map", "samples", "calibrated")  # which show every kind of string
FORBIDDEN_TAGS = {"img", "iframe", "object", "embed", "base", "link", "foreignobject", "form", "math"}


def write_audit(folder: Path, payload: str) -> list[Path]:
    """The page of an audit whose columns, groups, ids, classes, metadata, file and command are the payload."""
    random = np.random.default_rng(0)
    columns = {payload: [payload, "b"] * 20, "id": [payload] * 40, "patient": [f"{payload}{i % 9}" for i in range(40)]}
    rows = Predictions.from_logits(
        3 * random.normal(size=(40, 3)),
        random.integers(0, 3, 40),
        class_names=[payload, f"{payload} ", "c"],
        columns=columns,
        metadata={payload: payload},
    )
    path = folder / f"{payload.replace('/', '')[:80]}.parquet"
    rows.save(path)
    found = audit(path, by=(payload,), cluster="patient", other=path, compare_metrics=["nll"], gates=["ece > 0.9"])
    found.save_html(folder / "audit.html", command=["calibrant", "audit", payload])
    return [folder / "audit.html"]


def write_unlabelled(folder: Path, payload: str) -> list[Path]:
    """The pages of a monitor and an estimate whose columns, groups, classes and commands are the payload."""
    random = np.random.default_rng(0)
    times = [f"2026-01-0{1 + i % 3}T00:00" for i in range(90)]
    columns = {f"{payload} when": times, f"{payload} id": [f"{payload}{i}" for i in range(90)]}
    columns[payload] = [payload, "b", f"{payload} "] * 30
    names = [payload, f"{payload} ", "c"]
    parts = []
    for _ in range(2):
        logits = 3 * random.normal(size=(90, 3))
        labels = (logits + random.gumbel(size=(90, 3))).argmax(1)
        parts.append(Predictions.from_logits(logits, labels, class_names=names, columns=columns))
    target, reference = parts
    options = {"time": f"{payload} when", "id": f"{payload} id", "cluster": payload}
    found = monitor(target, reference, every="1d", gates=["alarms > 0"], **options)
    found.save_html(folder / "monitor.html", command=["calibrant", "monitor", payload])
    estimated = estimate(target, reference, by=payload)
    estimated.save_html(folder / "estimate.html", command=["calibrant", "estimate", payload])
    return [folder / "monitor.html", folder / "estimate.html"]


def write_sweep(folder: Path, payload: str, suffix: str, names: Collection[str] = FIGURES) -> list[Path]:
    """The page of an experiment in which every name is the payload; or its figures, with this suffix."""
    options = {"variants": ("", "global"), "smoothing": (0.0, 0.01), "calibrators": ("none", "temperature")}
    made = Experiment(
        losses=("focal", "maxent_mean"), seeds=1, severities=(1, 3), metrics=("accuracy", "ece"), **options
    )
    for row in (*made.rows, *made.curves):
        row |= {"run": f"{row['run']}{payload}".replace("/", "")[:80], "model": payload, "data": payload}
        row["loss"] = payload if row["loss"] == "focal" else row["loss"]
        row["corruption"] = payload if row["corruption"] == "snow" else row["corruption"]
        row["calibrator"] = payload if row["calibrator"] == "temperature" else row["calibrator"]
    grid = '[settings]\ndata = "digits"\nmodel = "mlp"\n[[grid]]\nloss = ["focal"]\nseed = [0]\n'
    toml = f"# {payload}\ntitle = {json.dumps(payload, ensure_ascii=False)}\n{grid}"
    outcomes = [{"run": payload, "failure": payload, "seconds": 1.5}]
    sweep = write_folder(folder / "runs", made, toml=toml, outcomes=outcomes)
    for environment in sweep.path.rglob("environment.json"):
        environment.write_text(json.dumps({payload: payload, "gpu": payload}), encoding="utf-8")
    images = {payload: {payload: np.zeros((8, 8), np.uint8)}}
    if not suffix:
        return [write_experiment(sweep, images=lambda *_, **__: images)]
    charts, _ = make_figures(sweep, names, images=lambda *_, **__: images)
    paths = {folder / f"{name}{suffix}": chart for name, chart in charts.items()}
    for path, chart in paths.items():
        save(chart, path)
    return list(paths)


WRITERS: dict[str, Callable[[Path, str], list[Path]]] = {
    "audit page": write_audit,
    "monitor and estimate pages": write_unlabelled,
    "experiment page": partial(write_sweep, suffix=""),
    "HTML figures": partial(write_sweep, suffix=".html"),
    "SVG figures": partial(write_sweep, suffix=".svg"),
}
N_SCRIPTS = dict.fromkeys(WRITERS, 1) | {"HTML figures": 2, "SVG figures": 0}


def script_problem(page: Page, n_scripts: int) -> str | None:
    """An element, attribute or address that a page of the templates does not have."""
    if len(page.all("script")) != n_scripts:
        return f"{len(page.all('script'))} script elements, not {n_scripts}"
    for tag, attributes in page.tags:
        if tag in FORBIDDEN_TAGS or (tag == "meta" and attributes.get("http-equiv") == "refresh"):
            return f"an element {tag}"
        for name, value in attributes.items():
            address = name in ("href", "xlink:href", "src", "action", "formaction", "data", "srcset")
            if name.startswith("on") or (address and not (value or "").startswith(("#", "data:image/png;base64,"))):
                return f"an attribute {name}={value!r}"
    return None
