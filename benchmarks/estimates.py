"""Accuracy without labels: the error of every estimator on types of corruption that it has not seen.

Reads the predictions that examples/public_resnet_shift.py and natural_shift.py write (runs/public_resnet): the first
half of the test images is the reference, the second the target. For each type of corruption, the estimators are fitted
to the clean images and the 18 other types.

    python benchmarks/estimates.py runs/public_resnet/ResNet-20 [--methods set_temperature doc]

With NannyML installed (pip install nannyml statsmodels; NML_DISABLE_USAGE_LOGGING=1 keeps it from reporting its use),
its CBPE is in the table, with the boundaries that it gives.
"""

import argparse
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import torch
from rich.progress import track

import calibrant as cb
from calibrant.calibrators import SetTemperature
from calibrant.estimates import ESTIMATORS, Quantity, fit_estimator
from calibrant.report.formats import as_text
from calibrant.report.table import Cell, Column, Table

N_REFERENCE = 5000  # of the 10,000 test images
MIX_SEED = 0


def load(folder: Path) -> tuple[cb.Predictions, cb.Predictions]:
    files = [file for file in sorted(folder.glob("*.parquet")) if file.stem != "photographs"]
    rows = cb.Predictions.concat([cb.Predictions.load(file) for file in files])
    first = torch.from_numpy(rows.column("image").to_numpy() < N_REFERENCE)
    return rows[first], rows[~first]


def without(reference: cb.Predictions, kind: str) -> cb.Predictions:
    return reference[np.flatnonzero(np.array(reference.column("corruption").to_pylist()) != kind)]


def other_mix(rows: cb.Predictions, random: np.random.Generator) -> cb.Predictions:
    """Some of the rows, without repetition, with class proportions from a Dirichlet distribution of concentration 1."""
    labels = rows.labels.numpy()
    counts = np.bincount(labels, minlength=rows.n_classes)
    shares = random.dirichlet(np.ones(rows.n_classes))
    n = max(int(len(rows) / 4), int((counts / np.maximum(shares, 1e-3)).min()))
    picked = [random.permutation(np.flatnonzero(labels == k))[: round(n * share)] for k, share in enumerate(shares)]
    return rows[np.concatenate(picked)]


def accuracy(rows: cb.Predictions) -> float:
    return float((rows.logits.argmax(1) == rows.labels).double().mean())


def ece(rows: cb.Predictions) -> float:
    return cb.score(rows, metrics=("accuracy", "ece")).ece


def nannyml_estimates(reference: cb.Predictions, sets: list[cb.Predictions]) -> list[tuple[Quantity, float]]:
    """The accuracy of each set by NannyML's CBPE, fitted to the clean rows: it has no use for corrupted ones."""
    import nannyml
    import pandas as pd

    def table(rows: cb.Predictions) -> pd.DataFrame:
        frame = pd.DataFrame(rows.logits.double().softmax(1).numpy(), columns=[f"p{k}" for k in range(rows.n_classes)])
        return frame.assign(y_pred=rows.logits.argmax(1).numpy().astype(str), y_true=rows.labels.numpy().astype(str))

    cbpe = nannyml.CBPE(
        problem_type="classification_multiclass",
        y_pred="y_pred",
        y_true="y_true",
        y_pred_proba={str(k): f"p{k}" for k in range(reference.n_classes)},
        metrics=["accuracy"],
        chunk_size=len(sets[0]),
    ).fit(table(reference.where(corruption="none")))
    found = []
    for rows in sets:
        result = cbpe.estimate(table(rows)).filter(period="analysis").to_df()["accuracy"].iloc[0]
        ends = ("value", "lower_confidence_boundary", "upper_confidence_boundary")
        found.append((Quantity(*(float(result[name]) for name in ends)), accuracy(rows)))
    return found


def line(name: str, found: list[tuple[Quantity, float]]) -> list[Cell]:
    errors = np.array([estimate.value - truth for estimate, truth in found])
    covered = np.mean([estimate.low <= truth <= estimate.high for estimate, truth in found])
    width = np.mean([estimate.high - estimate.low for estimate, _ in found])
    values = (np.abs(errors).mean(), np.abs(errors).max(), errors.mean(), covered, width)
    return [Cell(name), *(Cell(f"{value:.3f}") for value in values)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="predictions of one network")
    parser.add_argument(
        "--methods", nargs="+", default=[name for name in ESTIMATORS if name != "cot"], help="cot is slow"
    )
    options = parser.parse_args()
    torch.set_num_threads(1)
    reference, target = load(options.folder)
    kinds = sorted(set(target.column("corruption").to_pylist()) - {"none"})
    severities = range(1, 6)
    found: dict[str, list[tuple[Quantity, float]]] = {name: [] for name in options.methods}
    ratios: dict[str, list[tuple[float, float, float, float]]] = {"own class mix": [], "Dirichlet class mix": []}
    random = np.random.default_rng(MIX_SEED)
    clean = cb.TemperatureScaling.fit(reference.where(corruption="none"))
    for kind in track(kinds, description="types", transient=True):
        known = without(reference, kind)
        sets = [target.where(corruption=kind, severity=severity) for severity in severities]
        for name in options.methods:
            estimator = fit_estimator(known, name)
            found[name] += [(estimator(rows).accuracy, accuracy(rows)) for rows in sets]
        adapt = SetTemperature.fit(known)
        for rows in sets:
            for label, part in {"own class mix": rows, "Dirichlet class mix": other_mix(rows, random)}.items():
                best = replace(part, logits=part.logits / cb.TemperatureScaling.fit(part).temperature)
                ratios[label].append(tuple(map(ece, (part, clean.calibrate(part), adapt.calibrate(part), best))))
    if find_spec("nannyml"):
        every = [target.where(corruption=kind, severity=severity) for kind in kinds for severity in severities]
        found["NannyML's CBPE"] = nannyml_estimates(reference, every)
    columns = ["mean |error|", "worst", "bias", "in 90 % interval", "its width"]
    rows = [line(name, values) for name, values in found.items()]
    print(
        as_text(
            Table(f"accuracy, {len(kinds)} types × 5, unseen", [Column("", numeric=False), *map(Column, columns)], rows)
        )
    )
    rows = []
    for label, values in ratios.items():
        raw, temperature, adapted, best = np.mean(values, axis=0)
        rows.append(
            [Cell(label), Cell(f"{raw:.3f}"), *(Cell(f"{value / raw:.3f}") for value in (temperature, adapted, best))]
        )
    headings = ["ECE as trained", "temperature", "set temperature", "best, with labels"]
    print(
        as_text(
            Table("mean ECE relative to that as trained", [Column("", numeric=False), *map(Column, headings)], rows)
        )
    )
    photographs = options.folder / "photographs.parquet"
    if photographs.exists():
        shown = cb.Predictions.load(photographs)
        parts = {"all": shown} | {
            str((shown.class_names or range(shown.n_classes))[k]): shown[shown.labels == k]
            for k in shown.labels.unique().tolist()
        }
        estimator = fit_estimator(reference)
        rows = []
        for name, part in parts.items():
            estimate = estimator(part)
            values = (accuracy(part), *estimate.accuracy)
            rows.append([Cell(name), *(Cell(f"{value:.3f}") for value in values)])
        headings = ["accuracy", "estimated", "low", "high"]
        print(as_text(Table("photographs", [Column("", numeric=False), *map(Column, headings)], rows)))


if __name__ == "__main__":
    main()
