"""Calibrate for shift: predictions of a small classifier on scikit-learn's digits, clean and with six corruptions.

Writes runs/shift/val.parquet and test.parquet for `calibrant fit`, `apply` and `compare-calibrators`: each image clean
(corruption "none", severity 0) and with six corruptions at three severities, with penultimate features.
"""

from pathlib import Path

import torch
from rich.progress import track
from sklearn.datasets import load_digits
from torch import Tensor, nn

import calibrant as cb

FOLDER = Path("runs/shift")
N_TRAIN, N_VALIDATION = 600, 400
N_EPOCHS, BATCH = 100, 64
CORRUPTIONS = ("gaussian_noise", "impulse_noise", "motion_blur", "fog", "contrast", "pixelate")
SEVERITIES = (1, 3, 5)


class Classifier(nn.Module):
    """A network that returns its logits and the features of its penultimate layer."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Flatten(), nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 64), nn.ReLU())
        self.head = nn.Linear(64, 10)

    def forward(self, images: Tensor) -> tuple[Tensor, Tensor]:
        features = self.body(images)
        return self.head(features), features


def train(images: Tensor, labels: Tensor) -> Classifier:
    torch.manual_seed(0)
    model = Classifier()
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    for _ in track(range(N_EPOCHS), description="training", transient=True):
        for rows in torch.randperm(len(images)).split(BATCH):
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(images[rows])[0], labels[rows]).backward()
            optimizer.step()
    return model.eval()


@torch.no_grad()
def predict(model: Classifier, images: Tensor, labels: Tensor, corruption: str, severity: int) -> cb.Predictions:
    logits, features = model(images)
    columns = {"corruption": [corruption] * len(images), "severity": [severity] * len(images)}
    return cb.Predictions.from_logits(logits, labels, features=features, columns=columns)


def main() -> None:
    torch.set_num_threads(1)
    FOLDER.mkdir(parents=True, exist_ok=True)
    data = load_digits()
    images = torch.tensor(data.images, dtype=torch.float32)[:, None] / 16  # (n, 1, 8, 8)
    labels = torch.tensor(data.target)
    rows = torch.randperm(len(images), generator=torch.Generator().manual_seed(0))
    model = train(images[rows[:N_TRAIN]], labels[rows[:N_TRAIN]])
    splits = {"val": rows[N_TRAIN : N_TRAIN + N_VALIDATION], "test": rows[N_TRAIN + N_VALIDATION :]}
    for seed, (split, chosen) in enumerate(splits.items()):
        parts = [predict(model, images[chosen], labels[chosen], "none", 0)]
        for name in CORRUPTIONS:
            for severity in SEVERITIES:
                corrupted = cb.corrupt(images[chosen], name, severity, seed=seed, parameters="imagenet")
                parts.append(predict(model, corrupted, labels[chosen], name, severity))
        predictions = cb.Predictions.concat(parts)
        predictions.save(FOLDER / f"{split}.parquet")
        print(f"{FOLDER / split}.parquet: {predictions}")


if __name__ == "__main__":
    main()
