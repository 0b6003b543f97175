"""Learning curves from the logs of runs: loss, accuracy and ECE per epoch, and the constraints of MaxEnt loss."""

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import altair as alt

from calibrant.experiments.folder import ExperimentFolder, RunKey
from calibrant.metrics.table import Quantity
from calibrant.report import charts
from calibrant.report.numbers import count, percent, shorten_list
from calibrant.report.scores import ChartRecord, by_panel, mean_band, panel_titles
from calibrant.report.style import (
    FONT_SIZE,
    PAGE_WIDTH,
    PANEL_GAP,
    PERCENT_FORMAT,
    TEXT_COLOUR,
    Style,
    line_style,
    loss_label,
    loss_sort_key,
)
from calibrant.runs import split_variant

MAX_CONSTRAINTS = 2  # of a loss whose moments are drawn: those that end farthest from their targets
CONSTRAINT_NAMES = {
    "maxent_mean": ("mean class index",),
    "maxent_variance": ("mean squared class index",),
    "maxent_mean_variance": ("mean class index", "variance of the class index"),
}
MAX_MARKED_EPOCHS = 20  # of a line
MAX_MOMENT_PANELS = 12

LEARNING = (
    Quantity("val_ece", "Validation ECE", "ECE on the validation split, which is not shifted."),
    Quantity("val_accuracy", "Validation accuracy", "Accuracy on the validation split."),
    Quantity(
        "train_loss",
        "Training loss",
        "Mean over the training samples of the epoch. Losses have different scales; do not compare their values.",
        in_percent=False,
    ),
)
CONSTRAINTS = (
    Quantity(
        "constraint_active_fraction",
        "Active constraints",
        "Share of (validation sample, constraint) pairs with a non-zero penalty. The penalty is zero between "
        "the global and the local moment.",
    ),
    Quantity(
        "constraint_gradient_share",
        "Share of the gradient",
        "Share of the gradient with respect to the logits that the constraints contribute; the rest comes from the "
        "focal term.",
    ),
    Quantity(
        "moments",
        "Moments and targets",
        "Moment of the predictions, mean over the validation split (colour of the loss), global target from the class "
        "prior (dashed) and local target from the labels (dotted).",
    ),
)
LOGGED = [quantity.key for quantity in (*LEARNING, *CONSTRAINTS) if quantity.key != "moments"]
MOMENT_LISTS = ("constraint_moments", "constraint_global_moments", "constraint_local_moments")

EpochLog = dict[int, dict[str, list[float | None]]]  # by epoch and quantity


def read_learning_curves(
    folder: ExperimentFolder, runs: Mapping[str, RunKey]
) -> tuple[list[ChartRecord], list[ChartRecord], list[str]]:
    """Read the logs of all runs without label smoothing, also of unfinished runs.

    Returns:
        Means over seeds per epoch by panel, line and quantity; the moments with their targets by panel, line and
        constraint; and notes on what was left out.
    """
    logs: dict[RunKey, list[EpochLog]] = defaultdict(list)  # of all seeds, under the key of seed 0
    broken: list[str] = []
    without: list[str] = []
    undefined: list[str] = []
    trained = [item for item in runs.items() if item[1].label_smoothing == 0 and not split_variant(item[1].variant)[1]]
    for name, run in sorted(trained, key=lambda item: run_sort_key(item[1])):
        records, n_broken = folder.run(name).read_log()
        epochs = [_epoch(record) for record in records]
        # of an epoch that was repeated after an interruption, the last record counts
        log = {epoch: _clean(record) for epoch, record in zip(epochs, records, strict=True) if epoch is not None}
        n_broken += epochs.count(None)
        if n_broken:
            broken.append(f"{count(n_broken, 'line')} of {name}")
        for quantity in (*LOGGED, *MOMENT_LISTS):
            n_undefined = sum(None in values.get(quantity, ()) for values in log.values())
            if n_undefined:
                undefined.append(f"{quantity} at {count(n_undefined, 'epoch')} of {name}")
        if log:
            logs[run._replace(seed=0)].append(log)
        else:
            without.append(name)
    panels = panel_titles([run[:2] for run in logs])
    points, moments = [], []
    for run, found in logs.items():
        line = loss_label(run.loss, run.variant)
        head = {"panel": panels[run[:2]], "loss": run.loss, "variant": run.variant, "line": line}
        points += [head | point for point in _points(found)]
        moments += [head | point for point in _moments(run.loss, found)]
    return points, moments, list(_notes(logs, broken, without if logs else [], undefined))


def run_sort_key(run: RunKey) -> tuple[object, ...]:
    """Sort key of runs: the order of tables, then label smoothing and variants."""
    return run.data, run.model, run.variant != "", run.label_smoothing, loss_sort_key(run.loss), run.variant, run.seed


def _notes(
    logs: Mapping[RunKey, Sequence[EpochLog]], broken: Sequence[str], without: Sequence[str], undefined: Sequence[str]
) -> Iterator[str]:
    if broken:
        yield f"Lines of log.jsonl that cannot be read are left out: {', '.join(shorten_list(broken))}."
    if undefined:
        yield f"Values that are not finite numbers are left out: {', '.join(shorten_list(undefined))}."
    if without:
        yield f"These runs have no per-epoch log: {', '.join(shorten_list(without))}."
    uneven = [loss_label(run.loss, run.variant) for run, found in logs.items() if len({max(log) for log in found}) > 1]
    if uneven:
        names = ", ".join(shorten_list(dict.fromkeys(uneven)))
        yield f"Runs of {names} have different numbers of epochs; each mean is over the seeds that reached the epoch."


def _clean(record: Mapping[str, Any]) -> dict[str, list[float | None]]:
    """The logged quantities as lists; a value that is not a finite number, such as that of a diverged run, is None."""
    found = {name: record[name] for name in (*LOGGED, *MOMENT_LISTS) if name in record}
    return {
        name: [_finite_value(item) for item in (value if name in MOMENT_LISTS and isinstance(value, list) else [value])]
        for name, value in found.items()
    }


def _finite_value(value: object) -> float | None:
    """A finite number, else None.

    >>> _finite_value(0.5), _finite_value("0.5"), _finite_value(float("nan")), _finite_value(True)
    (0.5, None, None, None)
    """
    if isinstance(value, bool) or not isinstance(value, int | float) or abs(value) > 1e300:
        return None
    return float(value) if math.isfinite(value) else None


def _epoch(record: Mapping[str, Any]) -> int | None:
    epoch = _finite_value(record.get("epoch"))
    return int(epoch) if epoch is not None and epoch >= 0 and epoch.is_integer() else None


def _points(logs: Sequence[EpochLog]) -> Iterator[ChartRecord]:
    for quantity in LOGGED:
        for epoch in sorted({epoch for log in logs for epoch in log}):
            values = [log[epoch].get(quantity, [None])[0] for log in logs if epoch in log]
            finite = [value for value in values if value is not None]
            if finite:
                yield {"quantity": quantity, "epoch": epoch, **mean_band(finite)}


def _moments(loss: str, logs: Sequence[EpochLog]) -> Iterator[ChartRecord]:
    """The moments of the predictions per epoch with their targets, means over seeds."""
    found: dict[int, list[list[list[float]]]] = defaultdict(list)  # by epoch: for each seed the three MOMENT_LISTS
    for log in logs:
        for epoch, values in log.items():
            lists = [values.get(name, [None]) for name in MOMENT_LISTS]
            if all(None not in moments for moments in lists) and len(set(map(len, lists))) == 1:
                found[epoch].append(lists)  # type: ignore[arg-type]
    sizes = {len(moments) for seeds in found.values() for moments, _, _ in seeds}
    if len(sizes) != 1:  # no moments, or logs of different losses
        return
    (size,) = sizes

    def final_distance(at: int) -> float:
        return abs(sum(moments[at] - targets[at] for moments, targets, _ in found[max(found)]))

    for at in sorted(sorted(range(size), key=final_distance, reverse=True)[:MAX_CONSTRAINTS]):
        for epoch, seeds in sorted(found.items()):
            own, to_global, to_local = ([values[at] for values in lists] for lists in zip(*seeds, strict=True))
            targets = {"global": mean_band(to_global)["mean"], "local": mean_band(to_local)["mean"]}
            yield {"constraint": _constraint_name(loss, at, size), "epoch": epoch, **mean_band(own), **targets}


def _constraint_name(loss: str, at: int, size: int) -> str:
    names = CONSTRAINT_NAMES.get(loss, ())
    if len(names) == size:
        return names[at]
    return f"probability of class {at}" if loss == "maxent_prior" else f"constraint {at + 1} of {size}"


def line_styles(records: Iterable[ChartRecord]) -> list[Style]:
    """The styles of the losses in these records, then of variants."""
    found = {(record["loss"], record["variant"]) for record in records}
    order = sorted(found, key=lambda item: (item[1] != "", loss_sort_key(item[0]), item[1]))
    return [line_style(loss, variant) for loss, variant in order]


def draw_learning_curves(
    folder: ExperimentFolder, runs: Mapping[str, RunKey]
) -> tuple[dict[str, charts.ChartSpec], list[str], list[str]]:
    """The charts by the key of their quantity, the labels of their lines, and notes on what was left out."""
    points, moments, notes = read_learning_curves(folder, runs)
    drawn = {}
    for quantity in (*LEARNING, *CONSTRAINTS):
        own = [point for point in points if point["quantity"] == quantity.key]
        if own:
            drawn[quantity.key] = draw_epochs(own, quantity)
    if moments:
        drawn["moments"] = draw_moments(moments)
        n_panels = len(set(_moment_panels(moments)))
        if n_panels > MAX_MOMENT_PANELS:
            notes.append(f"The first {MAX_MOMENT_PANELS} of {n_panels} moments are drawn.")
    return drawn, [line.label for line in line_styles([*points, *moments])], notes


def draw_epochs(records: Sequence[ChartRecord], quantity: Quantity) -> charts.ChartSpec:
    """A quantity against epochs, a panel per data set."""
    lines = line_styles(records)
    return charts.panel_figure(records, lines, partial(_epoch_panel, lines, quantity), single_width=PAGE_WIDTH)


def _epoch_panel(
    lines: Sequence[Style], quantity: Quantity, records: Sequence[ChartRecord], title: str, width: int
) -> alt.LayerChart:
    axis = alt.Axis(format=PERCENT_FORMAT if quantity.in_percent else "~r", tickCount=5)
    y = alt.Y("mean:Q", title=quantity.heading, axis=axis, scale=alt.Scale(zero=False))
    base = _epoch_base(lines)
    chart = charts.layer_charts(
        base.mark_area(opacity=0.15).encode(y=alt.Y("low:Q", title=quantity.heading), y2=alt.Y2("high:Q")),
        base.mark_line(strokeWidth=1.5).encode(y=y, strokeDash=charts.dash(lines)),
        _marked_points(base).encode(y=y, shape=charts.shape(lines)),
        rows=_mark_epochs(records, partial(_describe_point, quantity=quantity)),
    )
    return chart.properties(width=width, height=200, title=title)


def _describe_point(record: ChartRecord, quantity: Quantity) -> str:
    value = percent(record["mean"]) if quantity.in_percent else f"{record['mean']:.4g}"
    what = f"{quantity.heading.lower().replace('ece', 'ECE')} {value}"
    return charts.describe_mark(record["line"], f"epoch {record['epoch']}", what, charts.seeds_text(record["n_seeds"]))


def _mark_epochs(records: Sequence[ChartRecord], describe: Callable[[ChartRecord], str]) -> list[ChartRecord]:
    """The rows of a chart; the last epoch and others at equal distances get a point with a description.

    Only some epochs, because descriptions are most of the bytes of a chart.
    """
    epochs = sorted({record["epoch"] for record in records}, reverse=True)
    marked = set(epochs[:: -(-len(epochs) // MAX_MARKED_EPOCHS)])
    fields = ("line", "panel", "epoch", "mean", "low", "high", "global", "local")
    rows = []
    for record in records:
        row = {name: record[name] for name in fields if name in record}
        rows.append(row | {"marked": True, "description": describe(record)} if row["epoch"] in marked else row)
    return rows


def _marked_points(base: alt.Chart) -> alt.Chart:
    points = base.mark_point(filled=True, size=18, opacity=1).transform_filter("datum.marked")
    chart: alt.Chart = points.encode(description=alt.Description("description:N"))
    return chart


def _epoch_base(lines: Sequence[Style]) -> alt.Chart:
    axis = alt.Axis(tickMinStep=1, tickCount=6, format="d", grid=False)
    x = alt.X("epoch:Q", title="Epoch", axis=axis, scale=alt.Scale(nice=False, zero=False, padding=6))
    return alt.Chart().encode(x=x, color=charts.colour(lines), description=alt.Description("line:N"))


def _moment_panels(moments: Sequence[ChartRecord]) -> list[str]:
    """The title of the panel of each record; it names the data set where there are several."""
    several = len(by_panel(moments)) > 1
    return [f"{m['panel']}, {m['line']}: {m['constraint']}"[0 if several else len(m["panel"]) + 2 :] for m in moments]


def draw_moments(moments: Sequence[ChartRecord]) -> charts.ChartSpec:
    """A panel per loss and constraint: the moment in the colour of the loss, the targets dashed and dotted."""
    titled = [{**moment, "panel": panel} for moment, panel in zip(moments, _moment_panels(moments), strict=True)]
    panels = list(by_panel(titled))[:MAX_MOMENT_PANELS]
    records = [record for record in titled if record["panel"] in panels]
    columns = 2 if len(panels) in (2, 4) else min(3, len(panels))
    header = alt.Header(labelFontSize=FONT_SIZE, labelColor=TEXT_COLOUR, labelFontWeight="bold")
    facet = alt.Facet("panel:N", sort=panels, title=None, header=header)
    panel = _moment_panel(line_styles(records)).properties(
        width=charts.panel_width(columns, PAGE_WIDTH, axes=columns), height=110
    )
    rows = charts.inline_data(_mark_epochs(records, _describe_moment))
    chart = panel.facet(facet=facet, columns=columns, data=rows, spacing=PANEL_GAP)
    return charts.compose_figure(chart.resolve_scale(y="independent").resolve_axis(x="independent"))


def _moment_panel(lines: Sequence[Style]) -> alt.LayerChart:
    scale = alt.Scale(zero=False)
    base = _epoch_base(lines)
    y = alt.Y("mean:Q", title="Moment", axis=alt.Axis(tickCount=4, format="~r"), scale=scale)
    targets = [
        base.mark_line(strokeWidth=1, strokeDash=list(dashes)).encode(
            y=alt.Y(f"{target}:Q", title="Moment", scale=scale),
            color=alt.value(TEXT_COLOUR),
            detail=alt.Detail("line:N"),
        )
        for target, dashes in (("global", (5, 3)), ("local", (1.5, 2.5)))
    ]
    band = base.mark_area(opacity=0.15).encode(y=alt.Y("low:Q", title="Moment", scale=scale), y2=alt.Y2("high:Q"))
    return charts.layer_charts(
        band, base.mark_line(strokeWidth=1.5).encode(y=y), *targets, _marked_points(base).encode(y=y)
    )


def _describe_moment(moment: ChartRecord) -> str:
    targets = f"targets {moment['global']:.4g} (global) and {moment['local']:.4g} (local)"
    what = f"{moment['constraint']} {moment['mean']:.4g}"
    return charts.describe_mark(moment["line"], f"epoch {moment['epoch']}", what, targets)
