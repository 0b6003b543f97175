"""Swap the loss: a small classifier on scikit-learn's digits, trained with cross-entropy and with MaxEnt Loss.

The data are 1,797 images of 8 x 8 pixels: enough to show the swap of one line, too few to rank losses. Writes
runs/digits/LOSS.parquet, the predictions of each loss, for `calibrant audit`.
"""

from pathlib import Path

import torch
from rich.console import Console
from rich.progress import track
from rich.table import Table
from sklearn.datasets import load_digits
from torch import Tensor, nn

import calibrant as cb

FOLDER = Path("runs/digits")
SEEDS = range(3)
N_TRAIN, N_EPOCHS, BATCH = 600, 60, 64
NOISE = 5.0  # standard deviation of the shifted test set; pixels run from 0 to 16


def train(images: Tensor, labels: Tensor, criterion: nn.Module, seed: int) -> nn.Module:
    torch.manual_seed(seed)
    model = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 128), nn.ReLU(), nn.Linear(128, 10))
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    for _ in range(N_EPOCHS):
        for rows in torch.randperm(len(images)).split(BATCH):
            optimizer.zero_grad()
            criterion(model(images[rows]), labels[rows]).backward()
            optimizer.step()
    return model


@torch.no_grad()
def predict(model: nn.Module, tests: dict[str, Tensor], labels: Tensor, seed: int) -> cb.Predictions:
    """The predictions of every test set, named by the column `test`."""
    logits = torch.cat([model(images / 16) for images in tests.values()])
    names = [name for name in tests for _ in labels]
    columns = {"test": names, "seed": [seed] * len(names), "image": list(range(len(labels))) * len(tests)}
    return cb.Predictions.from_logits(logits, labels.repeat(len(tests)), columns=columns)


def main() -> None:
    torch.set_num_threads(1)
    FOLDER.mkdir(parents=True, exist_ok=True)
    data = load_digits()
    images, labels = torch.tensor(data.data, dtype=torch.float32), torch.tensor(data.target)
    shuffled = torch.randperm(len(images), generator=torch.Generator().manual_seed(0))
    train_rows, test_rows = shuffled[:N_TRAIN], shuffled[N_TRAIN:]
    noise = NOISE * torch.randn(len(test_rows), 64, generator=torch.Generator().manual_seed(1))
    tests = {"clean": images[test_rows], "noisy": images[test_rows] + noise}

    criteria: dict[str, nn.Module] = {"cross_entropy": nn.CrossEntropyLoss(), "focal": cb.LOSSES["focal"]()}
    for form in ("mean", "variance", "mean_variance"):
        criteria[f"maxent_{form}"] = cb.MaxEntLoss.from_labels(labels[train_rows], n_classes=10, form=form)

    table = Table(title=f"digits: {N_TRAIN} training and {len(test_rows)} test images, accuracy and ECE in %")
    for heading in ("loss", "acc. clean", "ECE clean", "acc. noisy", "ECE noisy"):
        table.add_column(heading, justify="left" if heading == "loss" else "right", overflow="fold")
    for name, criterion in track(criteria.items(), description="training", transient=True):
        models = [train(images[train_rows] / 16, labels[train_rows], criterion, seed) for seed in SEEDS]
        predictions = [predict(model, tests, labels[test_rows], seed) for seed, model in enumerate(models)]
        cb.Predictions.concat(predictions).save(FOLDER / f"{name}.parquet")
        cells = []
        for test in tests:
            cards = [cb.score(p.where(test=test), metrics=["accuracy", "ece"]) for p in predictions]
            scores = torch.tensor([[card.accuracy, card.ece] for card in cards])
            means, errors = 100 * scores.mean(0), 100 * scores.std(0) / len(SEEDS) ** 0.5
            cells += [f"{mean:.1f} ± {error:.1f}" for mean, error in zip(means, errors, strict=True)]
        table.add_row(name, *cells)
    console = Console()
    console.print(table)
    console.print(
        f"Mean ± standard error over {len(SEEDS)} seeds, one split. Noisy: Gaussian noise on the test images (standard "
        f"deviation {NOISE:g} of 16). Focal loss is MaxEnt Loss without its constraints. The data are too few to rank "
        f"losses. Predictions: {FOLDER}/*.parquet"
    )


if __name__ == "__main__":
    main()
