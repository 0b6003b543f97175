"""Coverage of prediction sets under corruption: what becomes of a promise that was made on clean images.

Reads the predictions that examples/public_resnet_shift.py writes (runs/public_resnet): sets are fitted to the clean
images among the first half of the test images, and scored on the second half, for each type of corruption and severity.
"adapted": both sides after `set_temperature`, fitted to the 18 other types. "weighted": fitted with the unlabelled rows
of the tested set as the target.

    python benchmarks/prediction_sets.py runs/public_resnet/ResNet-20 [--coverage 0.95]
"""

import argparse
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from statistics import fmean

import torch
from rich.progress import track

import calibrant as cb
from calibrant.calibrators import SetTemperature
from calibrant.decisions import SET_METHODS, ConformalSets
from calibrant.errors import NotConvergedError
from calibrant.report.formats import as_text
from calibrant.report.table import Cell, Column, Table
from estimates import load, without

Found = dict[tuple[str, int], list[tuple[float, float] | None]]  # coverage and mean size by method and severity


def scores(sets: ConformalSets, rows: cb.Predictions) -> tuple[float, float]:
    found = cb.score_sets(sets(rows))
    return found.coverage.value, found.mean_size


def table(caption: str, found: Found, value: int, combine: Callable[[list[float]], float]) -> Table:
    """A row for each method, a column for each severity: combined over types, and how many were refused."""
    severities = sorted({severity for _, severity in found})
    rows = []
    for name in dict.fromkeys(name for name, _ in found):
        cells = [Cell(name)]
        for severity in severities:
            values = [pair[value] for pair in found[name, severity] if pair is not None]
            refused = len(found[name, severity]) - len(values)
            text = f"{combine(values):.3f}" if values else "–"
            cells.append(Cell(f"{text} ({refused} refused)" if refused else text))
        rows.append(cells)
    return Table(caption, [Column("", numeric=False), *(Column(f"severity {s}") for s in severities)], rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="predictions of one network")
    parser.add_argument("--coverage", type=float, default=0.95)
    options = parser.parse_args()
    torch.set_num_threads(1)
    reference, test = load(options.folder)
    clean, clean_test = (rows.where(corruption="none") for rows in (reference, test))
    plans = {name: {"method": name} for name in SET_METHODS} | {
        "aps, randomized": {"method": "aps", "randomized": True}
    }
    plain = {name: ConformalSets.fit(clean, coverage=options.coverage, **plan) for name, plan in plans.items()}
    found: Found = defaultdict(list)
    for name, sets in plain.items():
        found[name, 0].append(scores(sets, clean_test))
    for kind in track(sorted(set(test.column("corruption").to_pylist()) - {"none"}), transient=True):
        adapt = SetTemperature.fit(without(reference, kind))
        adapted = {
            name: ConformalSets.fit(adapt.calibrate(clean), coverage=options.coverage, **plan)
            for name, plan in plans.items()
        }
        for name, sets in adapted.items():
            found[f"{name}, adapted", 0].append(scores(sets, adapt.calibrate(clean_test)))
        for severity in range(1, 6):
            rows = test.where(corruption=kind, severity=severity)
            for name, plan in plans.items():
                found[name, severity].append(scores(plain[name], rows))
                found[f"{name}, adapted", severity].append(scores(adapted[name], adapt.calibrate(rows)))
                try:
                    weighted = ConformalSets.fit(clean, coverage=options.coverage, target=rows, **plan)
                    found[f"{name}, weighted", severity].append(scores(weighted, rows))
                except NotConvergedError:
                    found[f"{name}, weighted", severity].append(None)
    for name in plans:
        found[f"{name}, weighted", 0] = [
            scores(ConformalSets.fit(clean, coverage=options.coverage, target=clean_test, **plans[name]), clean_test)
        ]
    print(f"accuracy on clean images {cb.score(clean_test).accuracy:.4f}; the sets promise {options.coverage:g}")
    print(as_text(table("coverage, mean over types", found, 0, fmean)))
    print(as_text(table("coverage, least of the types", found, 0, min)))
    print(as_text(table("mean size, mean over types", found, 1, fmean)))


if __name__ == "__main__":
    main()
