"""The pages of a monitor and of an estimate: what they say, and what they say where little is known."""

import re
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import torch

import calibrant as cb
from calibrant import Predictions
from calibrant.errors import InvalidInputError
from calibrant.report import monitor as monitor_page
from calibrant.report import monitor_charts
from made.cli import Run
from made.page import Page

NAMES = ["cat", "dog", "frog"]
NOW = datetime(2026, 5, 1, tzinfo=UTC)


def rows(n: int, seed: int = 0, *, scale: float = 1.0, labels: bool = True, first: str = "2026-05-01") -> Predictions:
    """Rows of three days; the labels follow softmax(scale · logits)."""
    random = torch.Generator().manual_seed(seed)
    logits = 2 * torch.randn(n, 3, generator=random)
    known = (scale * logits).softmax(1).multinomial(1, generator=random)[:, 0]
    when = [f"{first[:-1]}{int(first[-1]) + 3 * at // n}T08:00" for at in range(n)]
    columns = {"when": when, "site": ["north", "south"] * (n // 2)}
    return Predictions.from_logits(logits, known if labels else None, class_names=NAMES, columns=columns)


def shifted_sets() -> Predictions:
    """A reference with three types of shift."""
    parts = []
    for seed, (kind, severity) in enumerate([("none", 0), *((k, s) for k in ("blur", "fog", "rain") for s in (1, 2))]):
        part = rows(300, seed + 10, scale=0.7**severity)
        columns = {"corruption": [kind] * 300, "severity": [severity] * 300}
        parts.append(Predictions.from_logits(part.logits, part.labels, class_names=NAMES, columns=columns))
    return Predictions.concat(parts)


def page_of(found: Any, path: Path) -> Page:
    found.save_html(path, command=["calibrant", "monitor", "a b"], now=NOW)
    return Page(path.read_text(encoding="utf-8"))


def charts(page: Page) -> list[str]:
    return [str(attributes["aria-label"]) for attributes in page.all("div", role="img")]


def marks(page: Page, start: str) -> list[str]:
    labels = [str(label) for label in page.values("aria-label")]
    return [label for label in labels if label.startswith(start)]


def test_page_of_a_monitor_with_an_alarm(tmp_path: Path) -> None:
    stream = Predictions.concat([rows(600), rows(600, 1, scale=0.1, first="2026-05-04")])
    found = cb.monitor(stream, rows(1000, 2), time="when", every="1d", gates=["alarms > 0", "rows > 9999"])
    record = found.to_dict()
    page = page_of(found, tmp_path / "monitor.html")
    raised = [alarm["question"] for alarm in record["alarms"]]
    assert set(raised) == {"miscalibrated", "changed"}
    assert f"2 alarms: {', then '.join(raised)}." in page.text
    assert record["verdict"] in page.text
    assert f"What changed first: {raised[0]}, in window 2026-05-04" in page.text
    assert "Failed: alarms > 0 (2)." in page.text
    assert "Passed: rows > 9999 (1200)." in page.text
    assert page.all("div", **{"class": "lead bad"})
    # one point for each window and line
    last = record["windows"][-1]
    measured, estimated = marks(page, "measured: 2026-05-06"), marks(page, "estimated without labels: 2026-05-06")
    assert (len(measured), len(estimated)) == (2, 2)  # accuracy, and confidence − accuracy
    assert f"{100 * last['accuracy']['value']:.1f} %" in measured[0]
    assert f"{100 * last['estimate']['accuracy']['value']:.1f} %" in estimated[0]
    assert f"+{100 * last['gap']['value']:.1f} percentage points" in measured[1]
    for question in record["questions"]:
        [text] = marks(page, f"{question}: 2026-05-06")
        assert text.endswith(f"log e = {last['log_e'][question]:.1f}")
    assert marks(page, "alarm line: log e = 4.09")
    assert "Evidence above 16.4 is drawn at the upper edge" in page.text
    assert [len(marks(page, f"{name}: 2026")) for name in NAMES] == [6, 6, 6]
    assert "the intervals hold only if nothing but the frequency of inputs changed" in page.text
    errors = [abs(window["estimate_error"]) for window in record["windows"]]
    assert f"off by {100 * sum(errors) / 6:.1f} percentage points (at most {100 * max(errors):.1f})" in page.text
    cells = [attributes["data-value"] for attributes in page.all("td") if "data-value" in attributes]
    assert f"{last['ece']['value']:.6g}" in cells
    assert record["reference"]["fingerprint"] in page.text
    assert "calibrant monitor 'a b'" in page.text
    assert "2026-05-01 00:00 UTC" in page.text


@pytest.mark.slow
def test_pages_where_little_is_known(tmp_path: Path) -> None:
    reference, bare, shifted = rows(300, 2), rows(300, 2, labels=False), shifted_sets()
    far = Predictions.from_logits(99 * rows(300).logits, class_names=NAMES)
    for name, stream, known, texts, n_charts in (
        ("empty", rows(300)[:0], reference, ("No alarm in 0 rows.", "The stream has no rows yet."), 0),
        (
            "one window",
            rows(300)[:30],
            reference,
            ("In 1 window with labels", "Labels are known for 30 of 30 rows."),
            4,
        ),
        ("no labels", rows(300, labels=False), reference, ("No label is known", "estimated accuracy"), 4),
        ("nothing", rows(300, labels=False), bare, ("No label is known",), 2),  # evidence and classes
        ("shifts", rows(300), shifted, ("includes the error on 3 types of shift",), 4),
        (
            "unlike",
            far,
            shifted,
            ("to: do not rely on these numbers.", "the estimates: row 0, row 100 and row 200."),
            4,
        ),
    ):
        found = cb.monitor(stream, known, every=100, gates=["accuracy < 0.01"])
        page = page_of(found, tmp_path / "monitor.html")
        for text in texts:
            assert text in page.text, (name, text)
        assert len(charts(page)) == n_charts, name
        decided = "Passed" if name in ("one window", "shifts") else "Undecided, since there is no value yet"
        assert f"{decided}: accuracy < 0.01" in page.text, name
        assert bool(page.all("div", **{"class": "lead bad"})) == (name == "unlike"), name  # it has shifted
        assert bool(marks(page, "measured: ")) == (name in ("one window", "shifts")), name
        targets = {attributes["href"] for attributes in page.all("a")} - {"#main"}
        assert targets == {f"#{attributes['id']}" for attributes in page.all("section")}
        assert ("do not rely on" in page.text) == (name == "unlike"), name
    with pytest.raises(InvalidInputError, match=r"report must be a file ending in \.html"):
        found.save_html(tmp_path / "monitor.txt")


def test_a_long_stream_shows_its_newest_windows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(monitor_page, "MAX_SHOWN", 4)
    page = page_of(cb.monitor(rows(600), rows(300, 2), every=100), tmp_path / "monitor.html")
    assert "the newest 4 of 6 windows" in page.text
    measured = [re.findall(r"row \d+", text)[0] for text in marks(page, "measured: row")]
    assert measured == ["row 200", "row 300", "row 400", "row 500"] * 2


@pytest.mark.slow
def test_points_are_where_the_record_says(monkeypatch: pytest.MonkeyPatch) -> None:
    drawn: list[dict[str, Any]] = []
    monkeypatch.setattr(monitor_charts, "to_svg", lambda chart: drawn.append(chart.to_dict(validate=True)) or "<svg/>")
    for options, starts in (
        ({"every": "100"}, [100 * at for at in range(1, 6)]),
        ({"every": "1d", "time": "when"}, [1000 * datetime(2026, 5, at, tzinfo=UTC).timestamp() for at in (2, 3)]),
    ):
        record = cb.monitor(rows(600), rows(300, 2), **options).to_dict()
        windows = record["windows"][1:]
        for name, draw in (
            ("accuracy", monitor_charts.accuracy_drawing),
            ("gap", monitor_charts.gap_drawing),
            ("shifted", monitor_charts.evidence_drawing),
            ("dog", monitor_charts.class_drawing),
        ):
            draw(record, windows)
            line = "measured" if name in ("accuracy", "gap") else name
            points = [point for data in drawn.pop()["datasets"].values() for point in data if "x" in point]
            own = [point for point in points if point["line"] == line and "value" in point]
            assert [point["x"] for point in own] == starts
            if line == "measured":
                ends = [(point["value"], point["low"], point["high"]) for point in own]
                assert ends == [tuple(window[name].values()) for window in windows]
            else:
                values = [window["log_e"].get(name, window["class_mix"][1]) for window in windows]
                assert [point["value"] for point in own] == values


def test_page_of_an_estimate(tmp_path: Path) -> None:
    found = cb.estimate(rows(600), rows(1000, 2), by="site")
    page = page_of(found, tmp_path / "estimate.html")
    assert f"The estimated accuracy is {100 * found.accuracy.value:.1f} %" in page.text
    assert "The labels of the target were not used." in page.text
    north = found.groups["north"]
    limits = f"({100 * north.accuracy.low:.1f} to {100 * north.accuracy.high:.1f} %)"
    [accuracy] = marks(page, "estimated accuracy: site = north")
    assert accuracy.endswith(f"{100 * north.accuracy.value:.1f} % {limits}")
    assert marks(page, f"mean confidence: all rows, {100 * found.confidence:.1f} %")
    assert {"groups", "shift", "recall"} <= {attributes["id"] for attributes in page.all("section")}
    alone = page_of(cb.estimate(rows(600), rows(1000, 2)), tmp_path / "estimate.html")
    assert not alone.all("section", id="groups")


@pytest.mark.slow
def test_the_verbs_write_pages(calibrant: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    rows(300).save("a.parquet")
    rows(300, 2).save("r.parquet")
    for verb, options in (("monitor", ["--every", "100"]), ("estimate", ["--by", "site"])):
        command = [verb, "a.parquet", "--reference", "r.parquet", *options, "--report", f"{verb}.html"]
        assert calibrant(*command).done().splitlines()[-1] == f"open {verb}.html"
        ran = calibrant(*command, "--json")
        assert (bool(ran.record), ran.err) == (True, f"open {verb}.html\n")
        assert charts(Page(Path(f"{verb}.html").read_text(encoding="utf-8")))
