"""How each loss looks in every table and figure: its label, colour, dash and shape, and the order of the losses."""

from typing import NamedTuple
from zlib import crc32

Dash = tuple[float, ...]  # lengths of line and gap in pixels, in turn

SOLID: Dash = (1, 0)
LONG: Dash = (9, 3)
SHORT: Dash = (4, 3)
DASH_DOT: Dash = (8, 3, 2, 3)
DASH_DOT_DOT: Dash = (8, 3, 2, 3, 2, 3)
DOTTED: Dash = (1.5, 2.5)  # of no loss: it marks a variant, as Fig. 6 of the paper marks global constraints

DASHES: tuple[Dash, ...] = (SOLID, LONG, SHORT, DASH_DOT, DASH_DOT_DOT)
SHAPES = ("circle", "square", "triangle-up", "diamond", "triangle-down", "cross")
GREY = "#767676"
STAR = "M0,-1L0.26,-0.36L0.95,-0.31L0.42,0.14L0.59,0.81L0,0.44L-0.59,0.81L-0.42,0.14L-0.95,-0.31L-0.26,-0.36Z"


class Style(NamedTuple):
    """How a loss looks. Losses of one dash differ in lightness, so that lines are told apart in grey too."""

    label: str
    colour: str
    dash: Dash
    shape: str  # a symbol of Vega, or an SVG path


# The nine of the paper in its order, then the others. Colours are those of Okabe and Ito but for their yellow, which
# white paper swallows; those added are as far from all the others, also for eyes without red or green cones.
STYLES: dict[str, Style] = {
    "cross_entropy": Style("CE", "#000000", SOLID, "diamond"),
    "focal": Style("Focal", "#E69F00", LONG, "triangle-down"),
    "inverse_focal": Style("Inv Focal", "#D55E00", SHORT, "cross"),
    "avuc": Style("AvUC", "#CC79A7", DASH_DOT, "triangle-right"),
    "soft_avuc": Style("Soft AvUC", "#882255", DASH_DOT, "triangle-left"),
    "poly": Style("Poly", "#6B4F00", LONG, STAR),
    "maxent_mean": Style("MaxEnt M", "#0072B2", SOLID, "circle"),
    "maxent_variance": Style("MaxEnt V", "#56B4E9", SOLID, "square"),
    "maxent_mean_variance": Style("MaxEnt M+V", "#009E73", SOLID, "triangle-up"),
    "maxent_prior": Style("MaxEnt prior", "#000088", SOLID, "cross"),
    "flsd": Style("FLSD", "#99CC77", SHORT, "circle"),
    "dual_focal": Style("Dual Focal", "#223311", SHORT, "square"),
    "mmce": Style("MMCE", "#7766FF", DASH_DOT_DOT, "triangle-down"),
    "mdca": Style("MDCA", "#FF99AA", DASH_DOT_DOT, "diamond"),
    "mbls": Style("MbLS", "#0000FF", DASH_DOT_DOT, "square"),
    "label_relaxation": Style("Label relaxation", "#772277", SHORT, "triangle-up"),
}

LOSS_ORDER: tuple[str, ...] = tuple(STYLES)


def label_of(loss: str, variant: str = "", label_smoothing: float = 0.0) -> str:
    """What tables and legends call a loss; one we do not know goes by its own name.

    >>> label_of("maxent_mean", "global"), label_of("focal", label_smoothing=0.01)
    ('MaxEnt M (global)', 'Focal + LS 0.01')
    """
    name = STYLES[loss].label if loss in STYLES else loss
    smoothed = f" + LS {label_smoothing:g}" if label_smoothing else ""
    return f"{name} ({variant}){smoothed}" if variant else f"{name}{smoothed}"


def colour_of(loss: str) -> str:
    return _style(loss).colour


def dash_of(loss: str, variant: str = "") -> Dash:
    """The dash of a loss; any variant of it is dotted."""
    return DOTTED if variant else _style(loss).dash


def shape_of(loss: str) -> str:
    return _style(loss).shape


def place_of(loss: str) -> tuple[int, str]:
    """Where a loss stands in tables and keys; those that are not ours stand behind, by name."""
    return (LOSS_ORDER.index(loss) if loss in LOSS_ORDER else len(LOSS_ORDER)), loss


def _style(loss: str) -> Style:
    """Of a loss that is not ours, grey, with the dash and the shape that its name falls on."""
    if loss in STYLES:
        return STYLES[loss]
    number = crc32(loss.encode(errors="replace"))
    return Style(loss, GREY, DASHES[number % len(DASHES)], SHAPES[number // len(DASHES) % len(SHAPES)])
