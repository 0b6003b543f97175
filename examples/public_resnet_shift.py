"""Public networks calibrated for shift: every calibrator on CIFAR-10 under 19 corruptions that its fit has not seen.

The first half of the test images is for calibration, the second for testing: the networks were trained on all training
images. Writes OUTPUT/NETWORK/*.parquet, the predictions, from which an interrupted run resumes; scores.parquet, with a
row for each network, method and test set; tables.md and severity.svg.
"""

import argparse
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import cache, partial
from hashlib import blake2b
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch
from public_resnet import CifarResNet, load
from rich.progress import track

import calibrant as cb
from calibrant.calibrators import Calibrator, DomainTemperature, LeaveOneShiftOut, SetTemperature
from calibrant.data import DataSet, open_dataset
from calibrant.errors import CalibrantError, InvalidInputError
from calibrant.metrics.jackknife import jackknife, jackknife_groups
from calibrant.report import charts
from calibrant.report.figures.severity import severity_panel
from calibrant.report.formats import as_markdown
from calibrant.report.render import save
from calibrant.report.style import PAGE_WIDTH, sequential_styles
from calibrant.report.table import Cell, Column, Table
from calibrant.training.engine import new_fabric
from calibrant.training.predicting import Predictor

N_CALIBRATION = 5000  # of the 10,000 test images
NO_FEATURES = "set_temperature, no features"
FAMILY, BEST = "set_temperature, family left out", "best temperature (uses labels)"
FAMILIES = (
    "gaussian_noise shot_noise impulse_noise speckle_noise",
    "defocus_blur glass_blur motion_blur zoom_blur gaussian_blur",
    "snow frost fog brightness spatter",
    "contrast elastic_transform pixelate jpeg_compression saturate",
)
MAIN = {  # the methods of the figure and of the detailed tables
    "identity": "as trained",
    "temperature": "temperature scaling",
    "set_temperature": "set temperature",
    NO_FEATURES: "set temperature, no features",
    BEST: "best temperature, with labels",
}
SEVERITIES = range(6)  # 0: clean
Score = dict[str, Any]


def load_all(files: list[Path]) -> dict[Path, CifarResNet]:
    """The networks of published weights, of which each has a name of its own."""
    models = {file: load(file) for file in files}
    names = [model.name for model in models.values()]
    if len(set(names)) < len(files):
        raise InvalidInputError(f"weights must be of networks of different depths, got {', '.join(names)}")
    return models


def predict(
    weights: Path, model: CifarResNet, data: DataSet, folder: Path, sample: int
) -> tuple[cb.Predictions, cb.Predictions]:
    """Predictions of the clean and corrupted test images: those for calibration, and those for testing.

    All clean images are predicted, and the same ``sample`` of every corrupted set.
    """
    record = {"weights": blake2b(weights.read_bytes(), digest_size=8).hexdigest(), "sample": sample}
    corrupted = Predictor(model, data, new_fabric(), features=True, metadata=record, sample=sample)
    clean = replace(corrupted, sample=None)
    names = ["test", *data.shifts]
    for name in track(names, description=f"{model.name}: predicting", transient=True):
        (clean if name == "test" else corrupted).write([name], folder, skip=True)
    parts = [cb.Predictions.load(folder / f"{name}.parquet") for name in names]
    if any(part.metadata.get(key) != value for part in parts for key, value in record.items()):
        raise InvalidInputError(f"--output must be another folder: {folder} is of other weights or another sample")
    predictions = cb.Predictions.concat(parts)
    first = torch.from_numpy(predictions.column("image").to_numpy() < N_CALIBRATION)
    return predictions[first], predictions[~first]


def methods(validation: cb.Predictions) -> dict[str, Callable[[cb.Predictions], cb.Predictions]]:
    """From the rows of a test set to calibrated ones, by fits that have not seen its type of corruption."""
    fits = LeaveOneShiftOut(validation)
    return {
        **{name: partial(fits.calibrate, name) for name in cb.CALIBRATORS},
        "domain_temperature": _leave_out(validation, partial(DomainTemperature.fit, domain="split")),
        NO_FEATURES: _leave_out(without_features(validation), SetTemperature.fit),
        FAMILY: _leave_out(validation, SetTemperature.fit, FAMILIES),
        BEST: with_best_temperature,
    }


def _leave_out(
    validation: cb.Predictions, fit: Callable[[cb.Predictions], Calibrator], families: Sequence[str] = ()
) -> Callable[[cb.Predictions], cb.Predictions]:
    """What `LeaveOneShiftOut` does, for fits with options, or without all types of the family."""
    types = np.array(validation.column("corruption").to_pylist())
    family_of = {kind: family.split() for family in families for kind in family.split()}

    @cache
    def fit_without(corruption: str) -> Calibrator:
        unseen = family_of.get(corruption, [corruption])
        return fit(validation[torch.from_numpy((types == "none") | ~np.isin(types, unseen))])

    return lambda rows: fit_without(rows.column("corruption")[0].as_py()).calibrate(rows)


def without_features(rows: cb.Predictions) -> cb.Predictions:
    return replace(rows, features=None)


def with_best_temperature(rows: cb.Predictions) -> cb.Predictions:
    """With the temperature of the least NLL on these rows: what no method without their labels can know."""
    return replace(rows, logits=rows.logits / cb.TemperatureScaling.fit(rows).temperature)


def measure(network: str, validation: cb.Predictions, test: cb.Predictions) -> Iterator[Score]:
    """A record for each method and test set; ``failure`` says why a method has none."""
    sets = {name: test.where(split=name) for name in test.column("split").unique().to_pylist()}
    for method, calibrate in track(methods(validation).items(), description=f"{network}: calibrating", transient=True):
        for rows in sets.values():
            where = {"corruption": rows.column("corruption")[0].as_py(), "severity": rows.column("severity")[0].as_py()}
            record = {"network": network, "method": method, **where, "n_rows": len(rows)}
            try:
                calibrated = calibrate(rows)
            except CalibrantError as error:
                yield {**record, "failure": str(error)}
                break  # its mean over the other sets would be of other sets than those of the other methods
            card = cb.score(calibrated, metrics=("accuracy", "ece", "nll", "brier"))
            without = jackknife(calibrated, card, jackknife_groups(calibrated))["ece"].tolist()
            yield {**record, **card.values(), "ece_floor": card.noise_floor("ece"), "ece_without": without}


def mean_ece(scores: list[Score]) -> tuple[float, float, float]:
    """The mean ECE of test sets of the same images, half of its 95 % interval, and its noise floor.

    The noise is that of the images: the delete-a-group jackknife leaves out the same images of every set.
    """
    without = np.mean([score["ece_without"] for score in scores], axis=0)
    error = np.sqrt((len(without) - 1) * without.var())
    half = 2.093 * error  # Student's t, 19 degrees of freedom
    return np.mean([s["ece"] for s in scores]), half, np.mean([s["ece_floor"] for s in scores])


def ece_cell(scores: list[Score]) -> Cell:
    mean, half, floor = mean_ece(scores)
    return Cell(f"{100 * mean:.1f} ± {100 * half:.1f} ({100 * floor:.1f})")


def tables(network: str, scores: list[Score]) -> Iterator[Table]:
    """All calibrators by severity; then the main methods by severity and by type, with intervals and noise floors."""
    failed = {score["method"]: score["failure"] for score in scores if "failure" in score}
    names = [name for name in dict.fromkeys(score["method"] for score in scores) if name not in failed]

    def of(method: str, **where: Any) -> list[Score]:
        wanted = {"method": method, **where}
        return [score for score in scores if all(score[key] == value for key, value in wanted.items())]

    def shifted(method: str, **where: Any) -> list[Score]:
        return [score for score in of(method, **where) if score["severity"]]

    rows = []
    for name in sorted(names, key=lambda name: mean_ece(shifted(name))[0], reverse=True):
        means = [mean_ece(part)[0] for part in (*(of(name, severity=s) for s in SEVERITIES), shifted(name))]
        nll = [np.mean([score["nll"] for score in part]) for part in (of(name, severity=0), shifted(name))]
        rows.append([Cell(name), *(Cell(f"{100 * mean:.1f}") for mean in means), *(Cell(f"{x:.3f}") for x in nll)])
    headings = ["clean", *map(str, SEVERITIES[1:]), "1-5", "NLL clean", "NLL 1-5"]
    columns = [Column("calibrator", numeric=False), *map(Column, headings)]
    reasons = [f"{name} has no row: {reason}" for name, reason in failed.items()]
    yield Table(f"{network}: ECE (%) of every calibrator by severity, mean over 19 types", columns, rows, reasons)

    main = {name: label for name, label in MAIN.items() if name in names}
    note = ["ECE ± half of the 95 % interval (noise floor: the ECE of a perfectly calibrated network on these rows)."]
    columns = [Column("", numeric=False), *map(Column, main.values())]
    rows = [[Cell(str(s) if s else "clean"), *(ece_cell(of(name, severity=s)) for name in main)] for s in SEVERITIES]
    rows.append([Cell("1-5"), *(ece_cell(shifted(name)) for name in main)])
    yield Table(f"{network}: ECE (%) by severity, mean over 19 types", columns, rows, note)
    types = sorted({score["corruption"] for score in scores if score["severity"]})
    rows = [[Cell(kind), *(ece_cell(of(name, corruption=kind)) for name in main)] for kind in types]
    yield Table(f"{network}: ECE (%) by type, mean over five severities", columns, rows, note)


def figure(scores: list[Score]) -> charts.ChartSpec:
    """ECE against severity: the mean over types, and a band from the first to the third quartile of the types."""
    failed = {score["method"] for score in scores if "failure" in score}
    shown = [name for name in MAIN if name not in (NO_FEATURES, *failed)]
    lines = sequential_styles([MAIN[name] for name in shown])
    records = []
    for network in dict.fromkeys(score["network"] for score in scores):
        for name in shown:
            for severity in SEVERITIES:
                where = {"network": network, "method": name, "severity": severity}
                values = [s["ece"] for s in scores if all(s[key] == value for key, value in where.items())]
                low, high = np.quantile(values, [0.25, 0.75])
                ends = {"mean": np.mean(values), "low": low, "high": high, "n_seeds": 1}
                records.append({"panel": network, "line": MAIN[name], "severity": severity, **ends})
    panel = partial(severity_panel, lines, label=lambda record: record["line"], y_title="ECE", height=200)
    return charts.panel_figure(records, lines, panel, single_width=PAGE_WIDTH, columns=2)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("weights", type=Path, nargs="+", help="resnet20-12fca82f.th and others, or safetensors files")
    add_options(parser)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    data = open_dataset("cifar10", arguments.root)
    scores, written = [], []
    for weights, model in load_all(arguments.weights).items():
        validation, test = predict(weights, model, data, arguments.output / model.name, arguments.sample)
        own = list(measure(model.name, validation, test))
        written += [as_markdown(table) for table in tables(model.name, own)]
        scores += own
    pq.write_table(pa.Table.from_pylist(scores), arguments.output / "scores.parquet")
    (arguments.output / "tables.md").write_text("\n\n".join(written) + "\n")
    save(figure(scores), arguments.output / "severity.svg")
    print(*written, f"Written to {arguments.output}: scores.parquet, tables.md, severity.svg", sep="\n\n")


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--root", help="the folder of the data sets; by default CALIBRANT_DATA, or data")
    parser.add_argument("--output", type=Path, default=Path("runs/public_resnet"), help="by default %(default)s")
    parser.add_argument("--sample", type=int, default=2000, help="images of each corrupted set; 10000 are all")


if __name__ == "__main__":
    try:
        main()
    except CalibrantError as error:
        sys.exit(str(error))
