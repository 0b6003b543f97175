"""Photographs of Tiny-ImageNet as a natural shift of CIFAR-10, and public networks calibrated for it without labels.

Writes OUTPUT/photographs/CLASS/FILE.png: 400 photographs of each of seven classes, at 32 pixels. Given weights, also
their predictions and photographs.md: the scores of all photographs, of each class alone, and of small samples.
"""

import argparse
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from public_resnet import CifarResNet
from public_resnet_shift import add_options, load_all, predict, with_best_temperature, without_features
from rich.progress import track

import calibrant as cb
from calibrant.calibrators import SetTemperature
from calibrant.data import DataSet, Split, open_dataset
from calibrant.data.image_files import read_image
from calibrant.errors import CalibrantError, NoDataError
from calibrant.report.formats import as_markdown
from calibrant.report.table import Cell, Column, Table
from calibrant.training.engine import new_fabric
from calibrant.training.outputs import model_outputs

SYNSETS = {  # of WordNet, the classes of Tiny-ImageNet, that belong to a class of CIFAR-10
    "automobile": "n02814533 n03100240 n03670208 n04285008",
    "bird": "n01855672 n02002724 n02056570 n02058221",
    "cat": "n02123045 n02123394 n02124075",
    "dog": "n02085620 n02094433 n02099601 n02099712 n02106662 n02113799",
    "frog": "n01641577 n01644900",
    "ship": "n03662601",
    "truck": "n03796401",
}
N_PHOTOGRAPHS, SIZE = 400, 32  # of each class, and pixels
SAMPLES, N_DRAWS = (100, 200, 500), 50
METRICS = {"ece": "ECE", "nll": "NLL", "brier": "Brier", "confidence": "estimated accuracy", "accuracy": "accuracy"}
Method = Callable[[cb.Predictions], cb.Predictions]


def select(folder: Path, synsets: str) -> list[Path]:
    """The first photographs of the synsets of a class, in turn: an equal number of each, in the order of names."""
    turns = []
    for synset in synsets.split():
        images = folder / "train" / synset / "images"
        files = sorted(images.glob("*.JPEG"))
        if not files:
            raise NoDataError(f"{images} has no photographs: the folder must be tiny-imagenet-200, as it is published")
        turns += list(enumerate(files))
    return [file for _, file in sorted(turns)[:N_PHOTOGRAPHS]]


def convert(folder: Path, output: Path) -> None:
    """Write the photographs as OUTPUT/CLASS/FILE.png."""
    for name, synsets in SYNSETS.items():
        (output / name).mkdir(parents=True, exist_ok=True)
        for file in track(select(folder, synsets), description=name, transient=True):
            with Image.open(file) as photograph:
                small = photograph.convert("RGB").resize((SIZE, SIZE), Image.Resampling.BOX)
            small.save(output / name / f"{file.stem}.png")


def predict_photographs(model: CifarResNet, data: DataSet, folder: Path) -> cb.Predictions:
    files = sorted(folder.glob("*/*.png"))
    labels = torch.tensor([data.class_names.index(file.parent.name) for file in files])
    split = Split(torch.stack([read_image(file, SIZE) for file in files]), labels)
    logits, _, features = model_outputs(new_fabric(), model, split, data, workers=0, features=True)
    names = [file.stem for file in files]
    return cb.Predictions.from_logits(
        logits, labels, features=features, columns={"photograph": names}, class_names=data.class_names
    )


def methods(validation: cb.Predictions) -> dict[str, Method]:
    """Of fits to clean and corrupted images of CIFAR-10; all but the last see no label of a photograph."""
    no_features = without_features(validation)
    return {
        "as trained": lambda rows: rows,
        "temperature scaling": cb.TemperatureScaling.fit(validation.where(corruption="none")).calibrate,
        "set temperature": SetTemperature.fit(validation).calibrate,
        "set temperature, no features": SetTemperature.fit(no_features).calibrate,
        "best temperature, with labels": with_best_temperature,
    }


def tables(network: str, fitted: dict[str, Method], photographs: cb.Predictions) -> Iterator[Table]:
    """All photographs and each class alone, with 95 % intervals; samples, with the range of 95 % of the draws."""
    of_class = {
        f"{name} alone": photographs[photographs.labels == label]
        for label, name in enumerate(photographs.class_names or ())
        if (photographs.labels == label).any()
    }
    rows = [
        [Cell(name), Cell(method), *_cells(calibrate(part))]
        for name, part in {f"all {len(photographs):,}": photographs, **of_class}.items()
        for method, calibrate in fitted.items()
    ]
    columns = [Column("photographs", numeric=False), Column("", numeric=False), *map(Column, METRICS.values())]
    yield Table(f"{network}: photographs, with 95 % intervals", columns, rows)
    rows = [
        [Cell(f"{n} of them"), Cell(method), *_sample_cells(calibrate, photographs, n)]
        for n in SAMPLES
        if n < len(photographs)
        for method, calibrate in fitted.items()
    ]
    yield Table(f"{network}: samples of photographs, mean and 95 % range of {N_DRAWS} draws", columns, rows)


def _cells(rows: cb.Predictions) -> Iterator[Cell]:
    card = cb.score(rows, metrics=tuple(METRICS))
    for metric in METRICS:
        yield _cell(card[metric], *card.interval(metric))


def _sample_cells(calibrate: Method, photographs: cb.Predictions, n_rows: int) -> Iterator[Cell]:
    generator = torch.Generator().manual_seed(0)
    draws = [photographs[torch.randperm(len(photographs), generator=generator)[:n_rows]] for _ in range(N_DRAWS)]
    cards = [cb.score(calibrate(rows), metrics=tuple(METRICS)) for rows in draws]
    for metric in METRICS:
        values = [card[metric] for card in cards]
        yield _cell(float(np.mean(values)), *np.quantile(values, [0.025, 0.975]))


def _cell(value: float, low: float, high: float) -> Cell:
    return Cell(f"{value:.3f} ({low:.3f} to {high:.3f})")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="tiny-imagenet-200, as it is published")
    parser.add_argument("weights", type=Path, nargs="*", help="resnet20-12fca82f.th and others, or safetensors files")
    add_options(parser)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    photographs = arguments.output / "photographs"
    convert(arguments.folder, photographs)
    written = []
    for weights, model in load_all(arguments.weights).items():
        data = open_dataset("cifar10", arguments.root)
        folder = arguments.output / model.name
        validation, _ = predict(weights, model, data, folder, arguments.sample)
        rows = predict_photographs(model, data, photographs)
        rows.save(folder / "photographs.parquet")
        written += [as_markdown(table) for table in tables(model.name, methods(validation), rows)]
    if written:
        (arguments.output / "photographs.md").write_text("\n\n".join(written) + "\n")
        print(*written, sep="\n\n")
    print(f"Photographs: {photographs}")


if __name__ == "__main__":
    try:
        main()
    except CalibrantError as error:
        sys.exit(str(error))
