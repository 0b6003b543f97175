"""Labels, colours, dashes and point shapes of losses; headings of metrics; sizes and fonts of charts."""

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple
from zlib import crc32

from calibrant.metrics.table import METRICS, Quantity
from calibrant.runs import split_variant

Dash = tuple[float, ...]  # lengths of line and gap in pixels, in turn

SOLID: Dash = (1, 0)
LONG_DASH: Dash = (9, 3)
SHORT_DASH: Dash = (4, 3)
DASH_DOT: Dash = (8, 3, 2, 3)
DASH_DOT_DOT: Dash = (8, 3, 2, 3, 2, 3)
DOTTED: Dash = (1.5, 2.5)  # variants only, as Fig. 6 of the paper draws global constraints

DASHES: tuple[Dash, ...] = (SOLID, LONG_DASH, SHORT_DASH, DASH_DOT, DASH_DOT_DOT)
SHAPES = ("circle", "square", "triangle-up", "diamond", "triangle-down", "cross")
GREY = "#767676"
STAR = "M0,-1L0.26,-0.36L0.95,-0.31L0.42,0.14L0.59,0.81L0,0.44L-0.59,0.81L-0.42,0.14L-0.95,-0.31L-0.26,-0.36Z"


class Style(NamedTuple):
    """The style of a line and its label in legends. Losses of the same dash differ in lightness, also in greyscale."""

    label: str
    colour: str
    dash: Dash
    shape: str  # a symbol of Vega, or an SVG path


# The nine losses of the paper in its order, then the others. The colours are those of Okabe and Ito without yellow,
# which is invisible on white; added colours also differ from all others under protanopia and deuteranopia.
STYLES: dict[str, Style] = {
    "cross_entropy": Style("CE", "#000000", SOLID, "diamond"),
    "focal": Style("Focal", "#E69F00", LONG_DASH, "triangle-down"),
    "inverse_focal": Style("Inv Focal", "#D55E00", SHORT_DASH, "cross"),
    "avuc": Style("AvUC", "#CC79A7", DASH_DOT, "triangle-right"),
    "soft_avuc": Style("Soft AvUC", "#882255", DASH_DOT, "triangle-left"),
    "poly": Style("Poly", "#6B4F00", LONG_DASH, STAR),
    "maxent_mean": Style("MaxEnt M", "#0072B2", SOLID, "circle"),
    "maxent_variance": Style("MaxEnt V", "#56B4E9", SOLID, "square"),
    "maxent_mean_variance": Style("MaxEnt M+V", "#009E73", SOLID, "triangle-up"),
    "maxent_prior": Style("MaxEnt prior", "#000088", SOLID, "cross"),
    "flsd": Style("FLSD", "#99CC77", SHORT_DASH, "circle"),
    "dual_focal": Style("Dual Focal", "#223311", SHORT_DASH, "square"),
    "mmce": Style("MMCE", "#7766FF", DASH_DOT_DOT, "triangle-down"),
    "mdca": Style("MDCA", "#FF99AA", DASH_DOT_DOT, "diamond"),
    "mbls": Style("MbLS", "#0000FF", DASH_DOT_DOT, "square"),
    "label_relaxation": Style("Label relaxation", "#772277", SHORT_DASH, "triangle-up"),
}

LOSS_ORDER: tuple[str, ...] = tuple(STYLES)


def loss_label(loss: str, variant: str = "", label_smoothing: float = 0.0) -> str:
    """The label of a loss in tables and legends; an unknown loss keeps its name.

    >>> loss_label("maxent_mean", "global"), loss_label("focal", label_smoothing=0.01), loss_label("focal", "ensemble3")
    ('MaxEnt M (global)', 'Focal + LS 0.01', 'Focal × 3')
    """
    name = STYLES[loss].label if loss in STYLES else loss
    own, n_members = split_variant(variant)
    smoothed = f" + LS {label_smoothing:g}" if label_smoothing else ""
    return f"{name}{f' ({own})' if own else ''}{smoothed}{f' × {n_members}' if n_members else ''}"


def line_style(loss: str, variant: str = "") -> Style:
    """The style of a loss; variants are dotted. An unknown loss is grey, its dash and shape depend on its name."""
    number = crc32(loss.encode(errors="replace"))
    other = Style(loss, GREY, DASHES[number % len(DASHES)], SHAPES[number // len(DASHES) % len(SHAPES)])
    style = STYLES.get(loss, other)
    return style._replace(label=loss_label(loss, variant), dash=DOTTED if variant else style.dash)


def loss_sort_key(loss: str) -> tuple[int, str]:
    """Sort key of a loss in tables and legends: the order of STYLES, then unknown losses by name."""
    return (LOSS_ORDER.index(loss) if loss in LOSS_ORDER else len(LOSS_ORDER)), loss


# RGB, dark to light; no loss has these colours
SEQUENTIAL_COLOURS = ((13, 8, 135), (126, 3, 168), (204, 71, 120), (248, 149, 64))


def sequential_styles(labels: Sequence[str]) -> list[Style]:
    """Styles of lines that are not losses, from dark to light in the order of the labels."""
    last = max(1, len(labels) - 1)
    return [
        Style(label, _between(at / last), DASHES[at % len(DASHES)], SHAPES[at % len(SHAPES)])
        for at, label in enumerate(labels)
    ]


def _between(share: float) -> str:
    """A colour of the sequence: 0 is its dark end, 1 its light end."""
    position = share * (len(SEQUENTIAL_COLOURS) - 1)
    low = min(int(position), len(SEQUENTIAL_COLOURS) - 2)
    pairs = zip(SEQUENTIAL_COLOURS[low], SEQUENTIAL_COLOURS[low + 1], strict=True)
    return "#" + "".join(f"{round(a + (position - low) * (b - a)):02X}" for a, b in pairs)


MAIN_METRICS = ("ece", "accuracy", "cece", "kse", "nll", "brier")  # listed first
NORMS = {  # columns of an experiment that are not in METRICS
    name: Quantity(name, f"{of.capitalize()} norm", f"mean norm of the {of}s", in_percent=False, better=None)
    for name, of in (("feature_norm", "feature"), ("logit_norm", "logit"))
}


def quantity_of(metric: str) -> Quantity:
    """Heading and unit of a metric; an unknown metric is shown under its name, without a unit.

    >>> quantity_of("ece").heading, quantity_of("other").in_percent
    ('ECE', False)
    """
    unknown = Quantity(metric, metric, metric, in_percent=False, better=None)
    return METRICS.get(metric) or NORMS.get(metric, unknown)


def ratio_decimals(metric: str) -> int:
    """Of a ratio of means of this metric: accuracies are near each other, so that their ratios need three."""
    return 3 if quantity_of(metric).higher_is_better else 2


def sort_metrics(metrics: Iterable[str]) -> list[str]:
    """MAIN_METRICS first, then the others; metrics without a better direction behind these, unknown names last."""
    order = [*MAIN_METRICS, *METRICS, *NORMS]

    def position(name: str) -> tuple[bool, bool, int, str]:
        known = name in order
        return not known, quantity_of(name).better is None, order.index(name) if known else 0, name

    return sorted(metrics, key=position)


COLUMN_WIDTH, PAGE_WIDTH = 320, 670  # pixels: 8.5 cm for one column of text, 17.7 cm for two
AXIS_WIDTH, PANEL_GAP = 46, 14  # pixels of an axis with its title, and between panels
FONT_SIZE = 10  # pixels: 7.5 points
LEGEND_ROW_HEIGHT = 15  # pixels of a row of the legend
TEXT_COLOUR = "#222222"
FONT = "Helvetica, Arial, Liberation Sans, sans-serif"
PERCENT_FORMAT = "~%"

CONFIG: dict[str, Any] = {
    "background": "white",
    "font": FONT,
    "padding": 4,
    "view": {"stroke": "#888888", "strokeWidth": 0.5},
    "axis": {
        "labelFontSize": FONT_SIZE,
        "titleFontSize": FONT_SIZE + 1,
        "titleFontWeight": "normal",
        "labelColor": TEXT_COLOUR,
        "titleColor": TEXT_COLOUR,
        "gridColor": "#EBEBEB",
        "gridWidth": 0.6,
        "domainColor": "#888888",
        "tickColor": "#888888",
        "tickSize": 3,
        "titlePadding": 4,
        "labelPadding": 2,
    },
    "title": {
        "fontSize": FONT_SIZE + 1,
        "fontWeight": "bold",
        "color": TEXT_COLOUR,
        "offset": 5,
        "anchor": "middle",
    },
}
