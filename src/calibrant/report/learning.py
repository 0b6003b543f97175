"""What the logs of runs say of each epoch: how they learned, and what the constraints of MaxEnt Loss did meanwhile."""

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import altair as alt

from calibrant.errors import printable
from calibrant.experiments.folder import ExperimentFolder, RunKey
from calibrant.metrics.table import Quantity
from calibrant.report.charts import (
    ChartSpec,
    colour,
    compose_figure,
    dash,
    describe_mark,
    inline_data,
    layer_charts,
    panel_figure,
    panel_width,
    seeds_text,
    shape,
)
from calibrant.report.numbers import count, percent, shorten_list
from calibrant.report.scores import ChartRecord, mean_band, panel_names, panel_titles
from calibrant.report.style import FONT_SIZE, GAP, INK, PAGE, PERCENT, Style, line_style, loss_label, loss_sort_key

MAX_CONSTRAINTS = 2  # of a loss whose moments are shown: those that end farthest from their targets
NAMED = {  # the constraints of the forms, in their order
    "maxent_mean": ("mean of the classes",),
    "maxent_variance": ("mean of their squares",),
    "maxent_mean_variance": ("mean of the classes", "their spread"),
}
HEIGHT, LOW = 200, 110  # pixels of a panel, and of one of many
BESIDE = 3  # panels of moments in a row
MAX_POINTS = 20  # of a line: so many epochs can be pointed at
MAX_PANELS = 12  # of moments


# a heading and a sentence of each
LEARNING = (
    Quantity("val_ece", "Validation ECE", "The ECE on validation rows, which are not shifted."),
    Quantity("val_accuracy", "Validation accuracy", "The share of validation rows that is predicted correctly."),
    Quantity(
        "train_loss",
        "Training loss",
        "The mean over the training rows of the epoch. Each loss is on a scale of its own: compare seeds, not losses.",
        in_percent=False,
    ),
)
CONSTRAINTS = (
    Quantity(
        "constraint_active_fraction",
        "Active constraints",
        "The share of pairs of a validation row and a constraint on which the constraint pulls at all; between the "
        "global and the local moment it does not.",
    ),
    Quantity(
        "constraint_gradient_share",
        "Share of the gradient",
        "How much of the gradient in the logits comes from the constraints, the rest being focal loss: at 0 % they "
        "have no say, at 50 % as much as focal loss.",
    ),
)
MOMENTS = Quantity(
    "moments",
    "Moments and targets",
    "What the constraints compare: the moment of the predictions, mean over the validation rows, in the colour of the "
    "loss, beside the global target (dashed, of the class prior) and the local one (dotted, of the labels). Where both "
    "targets are one line, only one is seen.",
)
LOGGED = [quantity.key for quantity in (*LEARNING, *CONSTRAINTS)]
LISTS = ("constraint_moments", "constraint_global_moments", "constraint_local_moments")

Log = dict[int, dict[str, Any]]  # the last record of each epoch


def read_learning_curves(
    folder: ExperimentFolder, runs: Mapping[str, RunKey]
) -> tuple[list[ChartRecord], list[ChartRecord], list[str]]:
    """From the log of every run without smoothed labels; of one that is not done, as far as it is.

    Returns:
        Means over seeds after each epoch by panel, line and quantity; the moments beside their targets by panel, line
        and constraint; and what was left out, in sentences.
    """
    plain = {name: run for name, run in runs.items() if run.label_smoothing == 0}
    logs: dict[RunKey, list[Log]] = defaultdict(list)  # of the seeds that have one, under the key of seed 0
    broken: list[str] = []
    without: list[str] = []
    odd: list[str] = []
    for name, run in sorted(plain.items(), key=lambda item: (_place(item[1]), item[1].seed)):
        records, n_broken = folder.run(name).read_log()
        # an epoch that was done again, after a kill, counts as it was done last
        log = {epoch: record for record in records if (epoch := _epoch(record)) is not None}
        n_broken += sum(_epoch(record) is None for record in records)
        if n_broken:
            broken.append(f"{count(n_broken, 'line')} of {name}")
        odd += _odd(log, name)
        if log:
            logs[run._replace(seed=0)].append(log)
        else:
            without.append(name)
    panels = panel_titles([run[:2] for run in logs])
    heads = {run: _head(run, panels[run[:2]]) for run in logs}
    points = [heads[run] | point for run, found in logs.items() for point in _points(found)]
    moments = [heads[run] | point for run, found in logs.items() for point in _moments(run.loss, found)]
    return points, moments, list(_notes(logs, broken, without if logs else [], odd))


def _place(run: RunKey) -> tuple[object, ...]:
    """In the order of tables, variants behind."""
    return run.data, run.model, run.variant != "", loss_sort_key(run.loss), run.variant


def _head(run: RunKey, panel: str) -> ChartRecord:
    line = printable(loss_label(run.loss, run.variant))
    return {"panel": panel, "loss": run.loss, "variant": run.variant, "line": line}


def _notes(
    logs: Mapping[RunKey, Sequence[Log]], broken: Sequence[str], without: Sequence[str], odd: Sequence[str]
) -> Iterator[str]:
    if broken:
        yield f"Lines of log.jsonl that cannot be read are left out: {', '.join(shorten_list(broken))}."
    if odd:
        yield f"There is no number of {', '.join(shorten_list(odd))}."
    if without:
        yield f"Without a log of epochs: {', '.join(shorten_list(without))}."
    uneven = [loss_label(run.loss, run.variant) for run, found in logs.items() if len({max(log) for log in found}) > 1]
    if uneven:
        names = ", ".join(shorten_list(dict.fromkeys(uneven)))
        yield f"Seeds of {names} are at different epochs; where one has no number, the mean is of the others."


def _odd(log: Log, run: str) -> Iterator[str]:
    """What is named in a log, but is no number, as where a run has diverged."""
    for name in (*LOGGED, *LISTS):
        n_odd = sum(name in record and None in _numbers(record[name]) for record in log.values())
        if n_odd:
            yield f"{name} at {count(n_odd, 'epoch')} of {run}"


def _numbers(value: object) -> list[float | None]:
    return [_number(part) for part in (value if isinstance(value, list) else [value])]


def _number(value: object) -> float | None:
    """A finite number, or nothing.

    >>> _number(0.5), _number("0.5"), _number(float("nan")), _number(True)
    (0.5, None, None, None)
    """
    if isinstance(value, bool) or not isinstance(value, int | float) or abs(value) > 1e300:
        return None
    return float(value) if math.isfinite(value) else None


def _epoch(record: Mapping[str, Any]) -> int | None:
    epoch = _number(record.get("epoch"))
    return int(epoch) if epoch is not None and epoch >= 0 and epoch.is_integer() else None


def _points(logs: Sequence[Log]) -> Iterator[ChartRecord]:
    for quantity in LOGGED:
        for epoch in sorted({epoch for log in logs for epoch in log}):
            found = [_number(log[epoch].get(quantity)) for log in logs if epoch in log]
            known = [value for value in found if value is not None]
            if known:
                yield {"quantity": quantity, "epoch": epoch, **mean_band(known)}


def _moments(loss: str, logs: Sequence[Log]) -> Iterator[ChartRecord]:
    """A moment of the predictions after each epoch beside its targets, means over seeds."""
    found: dict[int, list[list[list[float]]]] = defaultdict(list)
    for log in logs:
        for epoch, record in log.items():
            lists = [_numbers(record.get(name)) for name in LISTS]
            if all(None not in numbers for numbers in lists) and len(set(map(len, lists))) == 1:
                found[epoch].append(lists)  # type: ignore[arg-type]
    sizes = {len(moments) for triples in found.values() for moments, _, _ in triples}
    if len(sizes) != 1:  # none, or logs of different losses
        return
    (size,) = sizes
    for at in _farthest(found[max(found)], size):
        for epoch, triples in sorted(found.items()):
            own, to_global, to_local = ([numbers[at] for numbers in lists] for lists in zip(*triples, strict=True))
            targets = {"global": mean_band(to_global)["mean"], "local": mean_band(to_local)["mean"]}
            yield {"constraint": _constraint(loss, at, size), "epoch": epoch, **mean_band(own), **targets}


def _farthest(last: Sequence[Sequence[Sequence[float]]], size: int) -> list[int]:
    """The constraints to show, by their distance to the global target at the end."""

    def distance(at: int) -> float:
        return abs(sum(moments[at] - targets[at] for moments, targets, _ in last))

    return sorted(sorted(range(size), key=distance, reverse=True)[:MAX_CONSTRAINTS])


def _constraint(loss: str, at: int, size: int) -> str:
    names = NAMED.get(loss, ())
    if len(names) == size:
        return names[at]
    return f"probability of class {at}" if loss == "maxent_prior" else f"constraint {at + 1} of {size}"


def lines_of(records: Iterable[ChartRecord]) -> list[Style]:
    """The looks of losses; variants of them are dotted and stand behind."""
    found = {(record["loss"], record["variant"]) for record in records}
    order = sorted(found, key=lambda item: (item[1] != "", loss_sort_key(item[0]), item[1]))
    styles = [line_style(loss, variant) for loss, variant in order]
    return [style._replace(label=printable(style.label)) for style in styles]


def draw_epochs(records: Sequence[ChartRecord], quantity: Quantity) -> ChartSpec:
    """One quantity against epochs, a panel per data set."""
    lines = lines_of(records)
    return panel_figure(records, lines, partial(_epoch_panel, lines, quantity), single=PAGE)


def _epoch_panel(
    lines: Sequence[Style], quantity: Quantity, records: Sequence[ChartRecord], title: str, width: int
) -> alt.LayerChart:
    axis = alt.Axis(format=PERCENT if quantity.in_percent else "~r", tickCount=5)
    up = alt.Y("mean:Q", title=quantity.heading, axis=axis, scale=alt.Scale(zero=False))
    base = alt.Chart().encode(x=_epochs(), color=colour(lines), description="line:N")
    chart = layer_charts(
        base.mark_area(opacity=0.15).encode(y=alt.Y("low:Q", title=quantity.heading), y2=alt.Y2("high:Q")),
        base.mark_line(strokeWidth=1.5).encode(y=up, strokeDash=dash(lines)),
        _marks(base).encode(y=up, shape=shape(lines)),
        rows=_marked(records, lambda record: _words(record, quantity)),
    )
    return chart.properties(width=width, height=HEIGHT, title=title)


def _words(record: ChartRecord, quantity: Quantity) -> str:
    value = percent(record["mean"]) if quantity.in_percent else f"{record['mean']:.4g}"
    what = f"{quantity.heading.lower().replace('ece', 'ECE')} {value}"
    return describe_mark(record["line"], f"epoch {record['epoch']}", what, seeds_text(record["n_seeds"]))


def _marked(records: Sequence[ChartRecord], words: Any) -> list[ChartRecord]:
    """The last epoch, and others at equal distances before it, are marked by a point and say something.

    Not all of them: the sentences are most of the bytes of a chart.
    """
    epochs = sorted({record["epoch"] for record in records}, reverse=True)
    marked = set(epochs[:: -(-len(epochs) // MAX_POINTS)])
    shown = ("line", "panel", "epoch", "mean", "low", "high", "global", "local")
    rows = [{name: record[name] for name in shown if name in record} for record in records]
    return [
        {**row, "marked": True, "description": words(record)} if row["epoch"] in marked else row
        for row, record in zip(rows, records, strict=True)
    ]


def _marks(base: alt.Chart) -> alt.Chart:
    points = base.mark_point(filled=True, size=18, opacity=1).transform_filter("datum.marked")
    chart: alt.Chart = points.encode(description="description:N")
    return chart


def _epochs() -> alt.X:
    axis = alt.Axis(tickMinStep=1, tickCount=6, format="d", grid=False)
    return alt.X("epoch:Q", title="Epoch", axis=axis, scale=alt.Scale(nice=False, zero=False, padding=6))


def moment_panels(moments: Sequence[ChartRecord]) -> list[str]:
    """What the panels are called: the data set is named where there are several."""
    several = len(panel_names(moments)) > 1
    return [f"{m['panel']}, {m['line']}: {m['constraint']}"[0 if several else len(m["panel"]) + 2 :] for m in moments]


def draw_moments(moments: Sequence[ChartRecord]) -> ChartSpec:
    """A panel per loss and constraint: the moment in the loss's colour, the global target dashed, the local dotted."""
    named = [{**moment, "panel": panel} for moment, panel in zip(moments, moment_panels(moments), strict=True)]
    panels = panel_names(named)[:MAX_PANELS]
    records = [record for record in named if record["panel"] in panels]
    columns = 2 if len(panels) in (2, 4) else min(BESIDE, len(panels))
    width = panel_width(columns, PAGE, axes=columns)
    header = alt.Header(labelFontSize=FONT_SIZE, labelColor=INK, labelFontWeight="bold")
    apart = alt.Facet("panel:N", sort=panels, title=None, header=header)
    charts = _moment_panel(lines_of(records)).properties(width=width, height=LOW)
    rows = _marked(records, _moment_words)
    facets = charts.facet(facet=apart, columns=columns, data=inline_data(rows), spacing=GAP)
    return compose_figure(facets.resolve_scale(y="independent").resolve_axis(x="independent"))


def _moment_panel(lines: Sequence[Style]) -> alt.LayerChart:
    scale = alt.Scale(zero=False)
    base = alt.Chart().encode(x=_epochs(), color=colour(lines), description="line:N")
    up = alt.Y("mean:Q", title="Moment", axis=alt.Axis(tickCount=4, format="~r"), scale=scale)
    targets = [
        base.mark_line(strokeWidth=1, strokeDash=list(dashes)).encode(
            y=alt.Y(f"{target}:Q", title="Moment", scale=scale), color=alt.value(INK), detail=alt.Detail("line:N")
        )
        for target, dashes in (("global", (5, 3)), ("local", (1.5, 2.5)))
    ]
    band_of = base.mark_area(opacity=0.15).encode(y=alt.Y("low:Q", title="Moment", scale=scale), y2=alt.Y2("high:Q"))
    return layer_charts(band_of, base.mark_line(strokeWidth=1.5).encode(y=up), *targets, _marks(base).encode(y=up))


def _moment_words(moment: ChartRecord) -> str:
    targets = f"targets {moment['global']:.4g} (global) and {moment['local']:.4g} (local)"
    what = f"{moment['constraint']} {moment['mean']:.4g}"
    return describe_mark(moment["line"], f"epoch {moment['epoch']}", what, targets)
