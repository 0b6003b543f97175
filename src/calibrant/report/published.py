"""The numbers that the paper prints (Table 1, Table 2 and the two tables of its appendix), as facts to compare with.

They stand in the units of the paper, percent but for NLL and Brier, and not all of them can be taken at their word:

- The AvUC rows are doubtful: the published code compares every prediction with the label of the batch's first sample.
- Brier on errors is divided by the number of classes there, and is the sum over classes here.
- NLL on errors of Tiny ImageNet-C is 0.04 to 0.05, and no misclassified sample has less than log 2 = 0.69.
- Temperature scaling takes the best of four temperatures, which is `temperature_grid` here.
"""

import csv
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

from calibrant.experiments.rows import RAW

FILE = Path(__file__).with_name("published.csv")


class Score(NamedTuple):
    """What identifies a published number."""

    data: str
    loss: str
    metric: str
    label_smoothing: float
    calibrator: str


class Printed(NamedTuple):
    """A number and its standard error over three seeds, in the digits of the paper."""

    mean: str
    error: str


@lru_cache(maxsize=1)
def _scores() -> dict[Score, Printed]:
    with FILE.open(encoding="utf-8", newline="") as file:
        return {
            Score(row["data"], row["loss"], row["metric"], float(row["label_smoothing"]), row["calibrator"]): Printed(
                row["mean"], row["error"]
            )
            for row in csv.DictReader(file)
        }


def printed(
    data: str, loss: str, metric: str, *, label_smoothing: float = 0.0, calibrator: str = RAW
) -> Printed | None:
    """The digits of a number in the paper; None where it prints none."""
    return _scores().get(Score(data, loss, metric, label_smoothing, calibrator))


def published(
    data: str, loss: str, metric: str, *, label_smoothing: float = 0.0, calibrator: str = RAW
) -> tuple[float, float] | None:
    """The mean and standard error that the paper prints, in its units; None where it prints none.

    >>> published("cifar10", "maxent_mean", "ece"), published("digits", "focal", "ece")
    ((8.7, 0.2), None)
    """
    found = printed(data, loss, metric, label_smoothing=label_smoothing, calibrator=calibrator)
    return None if found is None else (float(found.mean), float(found.error))
