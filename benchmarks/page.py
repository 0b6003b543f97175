"""Writes docs/speed.md, and the line of README.md on speed, from the JSON files of all machines.

Run: python benchmarks/page.py
A section for each benchmark: its text here, or else the first paragraph of the script's docstring; when it ran on which
machine, and a table with a column for each of them.
"""

import ast
import json
import math
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
RESULTS, PAGE, README = ROOT / "benchmarks" / "results", ROOT / "docs" / "speed.md", ROOT / "README.md"
LINE = "- [Speed against other libraries](docs/speed.md)"
AGREE = 1e-5  # results with a smaller relative difference are shown once

INTRODUCTION = """\
# Speed

Times relative to a floor or another library, measured in the same run: the median of interleaved rounds, and in
brackets the lowest and the highest. They are CPU times of one thread unless a row says otherwise. A goal is a ratio,
too; one that is missed is in bold. The machines were shared with other jobs, and ratios vary by a quarter between
runs. `make bench` measures them on your machine and writes this page from `benchmarks/results/`. "Kernels limited to
AVX2" is that processor with `ATEN_CPU_CAPABILITY=avx2`: PyTorch's own kernels, but not those of MKL, oneDNN and numpy.
"""

TEXTS = {
    "peers": """\
The time of calibrant divided by that of seven libraries, each in a process of its own: below 1, calibrant takes less.
The rows are the same float32 arrays; temperatures and sets are fitted to 5,000 of them. Each library computes the
metrics of a scorecard that it has; calibrant has 18 of these rows. Our time includes the checks and hashes of rows, and
our sets are lists of classes in a column; those of MAPIE and torch-uncertainty are masks. scikit-learn and MAPIE
compute in float64, as netcal does for a temperature. Results that agree to 1e-5 are shown once, others as ours /
theirs, with the reasons below the table. torch-uncertainty needs torchvision, whose compiled operators do not load
beside a CPU build of PyTorch: two of them are then declared by name so that it can be imported, and nothing that is
timed calls one.""",
    "losses": """\
Forward and backward from float32 logits of n rows and K classes. With few rows and classes, a step is the autograd
engine and the start of tensor operations, a dozen of them and in MaxEnt Loss about forty.""",
    "metrics": """\
Two of the three passes of our ECE over the matrix check that the rows are probabilities.""",
    "calibrators": """\
Our fit includes the hashes that detect leakage, and the NLL before and after. Labels are drawn from softmax(z / 2). A
fit to 5,000 rows of ten classes is many operations on small tensors.""",
    "decisions": """\
Our sets are lists of classes, from logits, in a table column, and their time includes the checks and hashes of rows;
MAPIE's and crepes' are masks. MAPIE is timed twice: from the same logits, with the softmax that it needs in float64,
and from probabilities that are there already. From these its LAC is one comparison of a matrix with a number.
pytorch-ood cannot be imported beside a CPU build of PyTorch ([what was tried](comparison.md#decisions)).""",
    "corruptions": """\
imagecorruptions has ImageNet's parameters only; at 32 pixels ours are measured with CIFAR's, the default at that size,
and with ImageNet's. Three of its functions (fog, glass_blur, gaussian_blur) fail with numpy 2. Both encode JPEG with
Pillow. The peak memory is that beyond the input, the result included.""",
    "training": """\
The plain loop has the same model, images in memory, crops, flips, optimizer and precision, but no log, accuracy or
seed. Most of the waiting is cropping and flipping, which run in the same thread.""",
    "experiments": """\
`calibrant run` with small training runs on the embedded data: wall-clock times, with the evaluation of each run and the
start of the processes, which is a larger part of few runs.""",
    "groups": """\
`cb.score(rows, by=…)`, a scorecard of each group, relative to one scorecard of all rows.""",
    "streams": """\
An audit with every metric of Parquet files of ten classes, in bounded memory.""",
    "reading": """\
A CSV file with the probabilities of three classes, a label and an id, which pyarrow parses with several threads. The
rest of an audit is its metrics, and the hashes of the ids.""",
}
ORDER = [*TEXTS, "solver", "augment"]  # others follow

HIGHLIGHTS = {  # of the benchmark "peers", in README
    ("temperature, (5,000, 10)", "scikit-learn"): "{} of what scikit-learn takes for a temperature",
    ("ECE alone, from probabilities, (50,000, 10)", "torchmetrics"): "{} of torchmetrics for the ECE",
    ("LAC sets, from logits, (50,000, 10)", "mapie"): "{} of MAPIE for LAC prediction sets",
}

Machine = dict[str, Any]


def read_machines() -> list[Machine]:
    """What was recorded, on processors with all of their kernels first."""
    found = [json.loads(path.read_text(encoding="utf-8")) for path in RESULTS.glob("*.json")]
    return sorted(found, key=lambda each: ("limited" in each["machine"]["name"], each["machine"]["name"]))


def title(machine: Machine) -> str:
    about = machine["machine"]
    return f"{about['processor']}, {about['capability']}"


def number(value: float) -> str:
    """Three significant digits, and all of those before the point."""
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def goal(ratio: dict[str, Any]) -> str:
    signs = {"at_most": "≤", "at_least": "≥"}
    return ", ".join(f"{sign} {number(ratio[key])}" for key, sign in signs.items() if key in ratio)


def cell(ratio: dict[str, Any] | None) -> str:
    if ratio is None:
        return "–"
    value, low, high = (number(ratio[key]) for key in ("ratio", "low", "high"))
    text = value if low == high else f"{value} ({low} to {high})"
    met = ratio.get("at_least", -math.inf) <= ratio["ratio"] <= ratio.get("at_most", math.inf)
    return text if met else f"**{text}, missed**"


def computed(ratio: dict[str, Any]) -> str:
    """The results of ours and of the other, once where they agree."""
    parts = []
    for name, (ours, theirs) in ratio.get("results", {}).items():
        both = f"{ours:.4g}" if math.isclose(ours, theirs, rel_tol=AGREE) else f"{ours:.6g} / {theirs:.6g}"
        parts.append(f"{name} {both}")
    return ", ".join(parts)


def row(cells: list[str]) -> str:
    return f"| {' | '.join(cells)} |"


def table(parts: list[dict[str, Any]], titles: list[str]) -> list[str]:
    """A row for each pair of what and relative to what, a column for each machine that has the benchmark."""
    columns = [{(ratio["what"], ratio["relative_to"]): ratio for ratio in part["ratios"]} for part in parts]
    keys = list(dict.fromkeys(key for column in columns for key in column))
    first = {key: next(column[key] for column in columns if key in column) for key in keys}
    extra = {
        "goal": {key: goal(first[key]) for key in keys},
        "computed": {key: computed(first[key]) for key in keys},
    }
    extra = {name: texts for name, texts in extra.items() if any(texts.values())}
    lines = [row(["", "relative to", *titles, *extra]), row(["---"] * (2 + len(titles) + len(extra)))]
    for key in keys:
        cells = [cell(column.get(key)) for column in columns]
        lines.append(row([*key, *cells, *(texts[key] for texts in extra.values())]))
    return lines


def summary(script: Path) -> str:
    """The first paragraph of its docstring."""
    return (ast.get_docstring(ast.parse(script.read_text(encoding="utf-8"))) or "").split("\n\n")[0]


def section(name: str, machines: list[Machine]) -> str:
    having = [machine for machine in machines if name in machine["benchmarks"]]
    parts, titles = [machine["benchmarks"][name] for machine in having], [title(machine) for machine in having]
    text = TEXTS.get(name) or summary(ROOT / parts[0]["command"].split()[1])
    where = [
        f"- {on}, {machine['machine']['cores']} cores: `{part['command']}`, {part['date']}, PyTorch {part['torch']}"
        for machine, part, on in zip(having, parts, titles, strict=True)
    ]
    notes = list(dict.fromkeys(note for part in parts for note in part["notes"]))
    lines = [f"## {name.capitalize()}", "", text, "", *where, "", *table(parts, titles)]
    return "\n".join([*lines, "", *(f"- {note}" for note in notes), *([""] if notes else [])])


def page(machines: list[Machine]) -> str:
    names = {name for machine in machines for name in machine["benchmarks"]}
    order = [name for name in ORDER if name in names] + sorted(names - set(ORDER))
    return "\n".join([INTRODUCTION, *(section(name, machines) for name in order)])


def line(machines: list[Machine]) -> str:
    """README's line, of the first machine that has met the peers."""
    first = next(machine for machine in machines if "peers" in machine["benchmarks"])
    found = {
        (ratio["what"], ratio["relative_to"].split()[0]): number(ratio["ratio"])
        for ratio in first["benchmarks"]["peers"]["ratios"]
    }
    phrases = ", ".join(phrase.format(found[key]) for key, phrase in HIGHLIGHTS.items() if key in found)
    return f"{LINE}: in CPU time, calibrant takes {phrases} ({title(first)}); `make bench` measures it on your machine."


def main() -> None:
    machines, readme = read_machines(), README.read_text(encoding="utf-8").split("\n")
    place = [text.startswith(LINE) for text in readme].index(True)
    readme[place] = line(machines)
    README.write_text("\n".join(readme), encoding="utf-8")
    PAGE.write_text(page(machines), encoding="utf-8")


if __name__ == "__main__":
    main()
