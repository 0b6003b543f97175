"""Styles: every loss has one, and losses differ under colour blindness and in greyscale."""

from itertools import combinations, pairwise

import numpy as np
import pytest

from calibrant.losses import LOSSES
from calibrant.report.style import (
    DOTTED,
    LOSS_ORDER,
    STYLES,
    line_style,
    loss_label,
    loss_sort_key,
    quantity_of,
    sequential_styles,
    sort_metrics,
)

# Machado, Oliveira and Fernandes (2009), severity 1, on linear RGB
CONES = {
    "all": np.eye(3),
    "no green": np.array(
        [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.011820, 0.042940, 0.968881]]
    ),
    "no red": np.array(
        [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]]
    ),
}
TO_XYZ = np.array([[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]])
PAIRS = list(combinations(LOSS_ORDER, 2))


def seen(colour: str, cones: np.ndarray) -> np.ndarray:
    """CIE L*a*b* of a colour as these eyes see it."""
    parts = np.array([int(colour[at : at + 2], 16) for at in (1, 3, 5)]) / 255
    linear = np.where(parts <= 0.04045, parts / 12.92, ((parts + 0.055) / 1.055) ** 2.4)
    ratio = TO_XYZ @ np.clip(cones @ linear, 0, 1) / TO_XYZ.sum(1)
    x, y, z = np.where(ratio > 216 / 24389, np.cbrt(ratio), 841 / 108 * ratio + 4 / 29)
    return np.array([116 * y - 16, 500 * (x - y), 200 * (y - z)])


def lightness(loss: str) -> float:
    return float(seen(line_style(loss).colour, CONES["all"])[0])


def test_every_loss_has_a_style_in_the_order_of_the_paper() -> None:
    assert set(LOSS_ORDER) == set(LOSSES)
    labels = [loss_label(loss) for loss in LOSS_ORDER]
    paper = ["CE", "Focal", "Inv Focal", "AvUC", "Soft AvUC", "Poly", "MaxEnt M", "MaxEnt V", "MaxEnt M+V"]
    assert labels[:9] == paper
    assert len(set(labels)) == len(labels)


@pytest.mark.parametrize("cones", CONES)
def test_colours_differ_under_colour_blindness(cones: str) -> None:
    found = {loss: seen(line_style(loss).colour, CONES[cones]) for loss in LOSS_ORDER}
    distances = {(a, b): float(np.linalg.norm(found[a] - found[b])) for a, b in PAIRS}
    assert min(distances.values()) > 17, min(distances, key=lambda pair: distances[pair])


def test_lines_and_points_differ_in_greyscale_and_on_white() -> None:
    near = [(line_style(a), line_style(b)) for a, b in PAIRS if abs(lightness(a) - lightness(b)) < 10]
    assert near
    assert [(a.label, b.label) for a, b in near if a.dash == b.dash or a.shape == b.shape] == []
    assert len({line_style(loss).shape for loss in LOSS_ORDER[:9]}) == 9
    assert max(lightness(loss) for loss in LOSS_ORDER) < 80


def test_only_variants_are_dotted() -> None:
    assert line_style("maxent_mean", "global").dash == DOTTED
    assert DOTTED not in {style.dash for style in STYLES.values()}
    assert {line_style(loss).dash for loss in ("maxent_mean", "maxent_variance", "maxent_mean_variance")} == {(1, 0)}


def test_unknown_losses_are_grey_and_last() -> None:
    assert loss_label("maxent_mean", "global", 0.01) == "MaxEnt M (global) + LS 0.01"
    assert loss_label("my_loss") == line_style("my_loss").label == "my_loss"
    order = ["label_relaxation", "another", "my_loss"]
    assert sorted(["my_loss", "label_relaxation", "another"], key=loss_sort_key) == order
    assert (
        line_style("my_loss").colour == line_style("another").colour not in {style.colour for style in STYLES.values()}
    )
    looks = {line_style(f"loss_{number}")[2:] for number in range(40)}
    assert len(looks) > 15  # two of them seldom look alike
    assert DOTTED not in {dash for dash, _ in looks}


def test_sequential_styles_go_from_dark_to_light() -> None:
    lines = sequential_styles([str(n) for n in range(7)])
    assert (lines[0].colour, lines[-1].colour) == ("#0D0887", "#F89540")
    lights = [float(seen(line.colour, CONES["all"])[0]) for line in lines]
    assert all(b - a > 4 for a, b in pairwise(lights))
    assert len({(line.dash, line.shape) for line in lines}) == 7
    assert [line.colour for line in sequential_styles(["alone"])] == ["#0D0887"]


def test_unknown_metrics_are_last() -> None:
    names = ("logit_norm", "zeta", "accuracy", "ece_positive", "confidence", "ece", "nll")
    assert sort_metrics(names) == ["ece", "accuracy", "nll", "ece_positive", "confidence", "logit_norm", "zeta"]
    assert quantity_of("logit_norm").heading == "Logit norm"
    assert quantity_of("zeta").better is None
