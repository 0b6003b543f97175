"""The published numbers of the paper, as printed, as ratios to cross-entropy, and the notes on them.

The paper: Neo, Winkler and Chen, "MaxEnt Loss: Constrained Maximum Entropy for Calibration under Out-of-Distribution
Shift", AAAI 2024, https://doi.org/10.1609/aaai.v38i19.30143.

The numbers are in the units of the paper: percent, except for NLL and Brier. Not all are comparable:

- The AvUC rows are unreliable: the authors' code compares every prediction with the label of the batch's first sample.
- The paper divides Brier on errors by the number of classes; here it is the sum over classes.
- NLL on errors of Tiny ImageNet-C is 0.04 to 0.05, but the NLL of a misclassified sample is at least log 2 ≈ 0.69.
- Temperature scaling takes the best of four temperatures, which is `temperature_grid` here; `temperature` is fitted
  by maximum likelihood.
"""

import csv
import math
from collections.abc import Iterator, Sequence
from functools import lru_cache
from pathlib import Path

from calibrant.report.scores import ScoreKey
from calibrant.report.style import ratio_decimals

PUBLISHED = Path(__file__).with_name("published.csv")
TEMPERATURES = ("temperature_grid", "temperature")  # the paper's, and the one fitted by maximum likelihood


@lru_cache(maxsize=1)
def _read_published() -> dict[tuple[str, ...], tuple[str, str]]:
    with PUBLISHED.open(encoding="utf-8", newline="") as file:
        found: dict[tuple[str, ...], tuple[str, str]] = {}
        for row in csv.DictReader(file):
            smoothing = f"{float(row['label_smoothing']):g}"
            key = (row["data"], row["loss"], row["metric"], smoothing, row["calibrator"])
            found[key] = (row["mean"], row["standard_error"])
        return found


def published(key: ScoreKey) -> tuple[str, str] | None:
    """The published mean and standard error over three seeds, in the digits of the paper; None where it has none.

    >>> published(ScoreKey("cifar10", "resnet18", "maxent_mean", "", 0.0, "none", "ece"))
    ('8.70', '0.2')
    """
    calibrator = TEMPERATURES[0] if key.calibrator in TEMPERATURES else key.calibrator
    row = (key.data, key.loss, key.metric, f"{key.label_smoothing:g}", calibrator)
    return None if key.variant or key.shift else _read_published().get(row)


def published_ratio(above: ScoreKey, below: ScoreKey) -> tuple[float, float] | None:
    """The ratio of two published means, and its standard error as if they were independent; None where one is absent.

    >>> focal, poly = (ScoreKey("cifar10", "", loss, "", 0.0, "none", "ece") for loss in ("focal", "poly"))
    >>> [round(number, 3) for number in published_ratio(focal, poly)]  # 9.30±0.1 / 15.6±0.4
    [0.596, 0.017]
    """
    pair = [tuple(map(float, digits)) for key in (above, below) if (digits := published(key)) is not None]
    if len(pair) < 2:
        return None
    (a, a_error), (b, b_error) = pair
    return a / b, a / b * math.hypot(a_error / a, b_error / b)


def published_text(ratio: tuple[float, float], metric: str) -> str:
    """For example "0.60±0.02"."""
    decimals = ratio_decimals(metric)
    return f"{ratio[0]:.{decimals}f}±{ratio[1]:.{decimals}f}"


def paper_notes(keys: Sequence[ScoreKey]) -> Iterator[str]:
    """The notes on the published numbers of a table."""
    if keys:
        yield (
            "paper: published values (Neo, Winkler and Chen, AAAI 2024); models and training may differ from this "
            "experiment."
        )
    if any(key.loss == "avuc" for key in keys):
        yield (
            "The published AvUC values are unreliable: the authors' code compares every prediction with the label of "
            "the first sample of the batch."
        )
    if any(key.metric == "brier_on_errors" for key in keys):
        yield "The paper divides Brier on errors by the number of classes; here it is the sum over classes."
    if any(key.metric == "nll_on_errors" and key.data == "tiny_imagenet" for key in keys):
        yield (
            "The published NLL on errors of Tiny ImageNet-C cannot be on this scale: the NLL of a misclassified sample "
            "is at least log 2 ≈ 0.69."
        )
    if any(key.calibrator == "temperature" for key in keys):
        yield (
            "The paper's temperature scaling takes the best of four temperatures; here it is fitted by maximum "
            "likelihood."
        )
