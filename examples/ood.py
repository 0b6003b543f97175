"""Real data from outside: what a model says of images of another data set, brought to the size of its own.

MODEL is the folder of a run of `calibrant train`, whose validation images are the reference; or published weights of a
CIFAR ResNet (see public_resnet.py), for which the first half of CIFAR-10's test images is. Inside are the (other) test
images of the model's own data set, outside the test images of another. Writes OUTPUT/reference.parquet, inside.parquet
and NAME.parquet, the predictions, for `calibrant detect`, and OUTPUT/tables.md.
"""

import argparse
import sys
from pathlib import Path

import torch
import torch.nn.functional as F
from public_resnet import load
from torch import Tensor

import calibrant as cb
from calibrant.data import Split, open_dataset
from calibrant.errors import CalibrantError
from calibrant.report.detections import detection_table
from calibrant.report.formats import as_markdown
from calibrant.training.engine import new_fabric
from calibrant.training.outputs import model_outputs
from calibrant.training.predicting import Predictor

N_REFERENCE = 5000  # of the 10,000 test images of CIFAR-10


def open_model(path: Path, root: str | None) -> tuple[Predictor, cb.Predictions, cb.Predictions]:
    """A model, and its predictions of the reference and of inside images."""
    if path.is_dir():
        predictor = Predictor.of_run(path, root=root, features=True, device="cpu")
        return predictor, predictor.predict("val"), predictor.predict("test")
    predictor = Predictor(load(path), open_dataset("cifar10", root), new_fabric("cpu"), features=True)
    test = predictor.predict("test")
    return predictor, test[:N_REFERENCE], test[N_REFERENCE:]


def predict_other(predictor: Predictor, name: str, root: str | None) -> cb.Predictions:
    """Predictions of the test images of another data set. Their labels are of its own classes, and are left out."""
    images = open_dataset(name, root).split("test").images
    sized = resized(images[torch.arange(len(images))], predictor.data.image_size, predictor.data.channels)
    split = Split(sized, torch.zeros(len(sized), dtype=torch.int64))
    model, data = predictor.model, predictor.data
    logits, _, features = model_outputs(predictor.fabric, model, split, data, workers=0, features=True)
    return cb.Predictions.from_logits(logits, features=features, class_names=data.class_names)


def resized(images: Tensor, side: int, channels: int) -> Tensor:
    """Images (n, channels, side, side), uint8, by bilinear interpolation; grey ones are repeated in every channel."""
    scaled = F.interpolate(images.float(), size=(side, side), mode="bilinear", antialias=True)
    return scaled.round().clamp(0, 255).to(torch.uint8).expand(-1, channels, -1, -1)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path, help="the folder of a run, or weights such as resnet20-12fca82f.th")
    parser.add_argument("outside", nargs="+", help="names of data sets: digits, fashion_mnist_mini, mnist, …")
    parser.add_argument("--root", help="the folder of the data sets; by default CALIBRANT_DATA, or data")
    parser.add_argument("--output", type=Path, default=Path("runs/ood"), help="by default %(default)s")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    arguments.output.mkdir(parents=True, exist_ok=True)
    predictor, reference, inside = open_model(arguments.model, arguments.root)
    reference.save(arguments.output / "reference.parquet")
    inside.save(arguments.output / "inside.parquet")
    written = []
    for name in arguments.outside:
        outside = predict_other(predictor, name, arguments.root)
        outside.save(arguments.output / f"{name}.parquet")
        found = cb.compare_ood_scores(inside, outside, reference=reference)
        written.append(as_markdown(detection_table(found, f"{predictor.data.name} against {name}")))
    (arguments.output / "tables.md").write_text("\n\n".join(written) + "\n")
    print(*written, sep="\n\n")


if __name__ == "__main__":
    try:
        main()
    except CalibrantError as error:
        sys.exit(str(error))
