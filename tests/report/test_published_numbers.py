"""The paper's numbers as facts: how many there are, and some of each table."""

import csv
from collections import Counter

import pytest

from calibrant.losses import LOSSES
from calibrant.report.published import FILE, printed, published
from calibrant.report.tables import DATA_TITLES, MEASURES, TABLES

with FILE.open(encoding="utf-8", newline="") as file:
    ROWS = list(csv.DictReader(file))

PLAIN = [  # first of Table 1, then of the appendix, corners among them
    ("cifar10", "cross_entropy", "accuracy", (77.9, 0.3)),
    ("tiny_imagenet", "maxent_mean_variance", "kse", (10.5, 0.1)),
    ("camelyon17", "soft_avuc", "cece", (24.0, 1.5)),
    ("fmow", "maxent_variance", "kse", (4.7, 0.3)),
    ("cifar10", "cross_entropy", "mce", (34.9, 3.9)),
    ("cifar10", "soft_avuc", "nll_on_errors", (2.425, 0.1)),
    ("tiny_imagenet", "poly", "brier_on_errors", (0.006, 0.0)),
    ("iwildcam", "soft_avuc", "mce", (55.4, 22.1)),
    ("fmow", "maxent_mean_variance", "brier_on_errors", (0.01, 0.1)),
]
REMEDIED = [
    ("cifar10", "maxent_variance", 0.0, "temperature_grid", (6.7, 0.2)),
    ("fmow", "maxent_mean", 0.0, "temperature_grid", (3.5, 0.4)),
    ("tiny_imagenet", "maxent_mean", 0.01, "none", (9.0, 1.0)),
    ("fmow", "maxent_mean_variance", 0.01, "none", (7.6, 2.3)),
]


@pytest.mark.parametrize(("data", "loss", "metric", "expected"), PLAIN, ids=[" ".join(row[:3]) for row in PLAIN])
def test_plain_scores(data: str, loss: str, metric: str, expected: tuple[float, float]) -> None:
    assert published(data, loss, metric) == expected


@pytest.mark.parametrize(
    ("data", "loss", "smoothing", "calibrator", "expected"), REMEDIED, ids=[f"{r[0]} {r[1]} {r[3]}" for r in REMEDIED]
)
def test_scores_with_a_remedy(
    data: str, loss: str, smoothing: float, calibrator: str, expected: tuple[float, float]
) -> None:
    assert published(data, loss, "ece", label_smoothing=smoothing, calibrator=calibrator) == expected


def test_every_cell_of_every_table_is_there_once() -> None:
    assert Counter(row["table"] for row in ROWS) == {"1": 9 * 6 * 4, "2": 9 * 6, "appendix": 9 * 6 * 4}
    places = Counter(tuple(row.values())[:6] for row in ROWS)
    assert set(places.values()) == {1}
    for name, design in TABLES.items():
        assert {row["metric"] for row in ROWS if row["table"] == name} == set(design.metrics)


def test_names_are_those_of_the_package() -> None:
    assert {row["data"] for row in ROWS} == set(DATA_TITLES)
    assert {row["loss"] for row in ROWS} <= set(LOSSES)
    assert {row["metric"] for row in ROWS} == set(MEASURES)


def test_the_plain_columns_of_table_2_repeat_table_1() -> None:
    def plain_ece(table: str) -> dict[tuple[str, str], tuple[str, str]]:
        found = [
            row for row in ROWS if row["table"] == table and row["metric"] == "ece" and row["calibrator"] == "none"
        ]
        return {
            (row["data"], row["loss"]): (row["mean"], row["error"]) for row in found if row["label_smoothing"] == "0"
        }

    assert len(plain_ece("2")) == 18
    assert plain_ece("2").items() <= plain_ece("1").items()


def test_digits_stay_as_printed_and_the_rest_is_none() -> None:
    assert printed("cifar10", "maxent_mean", "ece") == ("8.70", "0.2")
    assert published("cifar10", "maxent_mean", "nll") is None
    assert published("cifar10", "cross_entropy", "ece", calibrator="temperature_grid") is None
