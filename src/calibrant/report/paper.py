"""The tables of the paper with the scores of an experiment, or with their ratios to cross-entropy."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain, groupby
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from calibrant._names import check_choice
from calibrant._signatures import checked
from calibrant.errors import InvalidInputError, NoDataError
from calibrant.experiments.folder import RAW
from calibrant.report.contrasts import Contrast, interval_notes, ratio_text, ratios_to_cross_entropy, reference_of
from calibrant.report.numbers import MISSING, format_range, mean_text, standard_error_text
from calibrant.report.published import TEMPERATURES, paper_notes, published, published_ratio, published_text
from calibrant.report.scores import (
    ON_ERRORS,
    Score,
    ScoreKey,
    add_shifts,
    chance_limits,
    favours_constants,
    mark_best,
    scores,
    shared_tests,
)
from calibrant.report.style import loss_label, loss_sort_key, quantity_of
from calibrant.report.table import BEST, Cell, Column, Table
from calibrant.run_tables import check_rows
from calibrant.runs import split_variant

TABLES = {  # title and metrics
    "1": ("Table 1: test scores (%) under shift", ("accuracy", "ece", "cece", "kse")),
    "2": ("Table 2: ECE (%) under shift, with calibrators and label smoothing (LS)", ("ece",)),
    "appendix": (
        "Appendix: more test scores under shift (MCE and AdaECE in %, NLL and Brier score on errors only)",
        ("mce", "adaece", "nll_on_errors", "brier_on_errors"),
    ),
}
ALL_LOSSES = "Table 2 for every loss: ECE (%) under shift, with calibrators and label smoothing (LS)"
MAXENT_COLUMNS = {"maxent_mean": "Mean", "maxent_variance": "Var", "maxent_mean_variance": "Mult"}
DATA_TITLES = {
    "cifar10": "CIFAR10-C",
    "cifar100": "CIFAR100-C",
    "tiny_imagenet": "Tiny ImageNet-C",
    "camelyon17": "Camelyon17-Wilds",
    "iwildcam": "iWildCam-Wilds",
    "fmow": "FMoW-Wilds",
}
BASELINE: dict[str, Any] = {"label_smoothing": 0.0, "calibrator": RAW}
CHANCE_NOTE = (
    "§: not compared, because the accuracy of a run is at chance, within three standard errors of that of always "
    "predicting the most frequent class: such a prediction can be well calibrated."
)
NO_SCORE = Score(None, None, 0, 0, {})

Scores = Mapping[ScoreKey, Score]


class TableHeading(NamedTuple):
    """The heading of a row or column, with the fields of ScoreKey that its scores share.

    The fields of a row and those of a column are a complete ScoreKey.
    """

    label: str
    fields: dict[str, Any]
    group: str = ""


@checked
def make_table(
    rows: pa.Table,
    name: str,
    *,
    with_paper: bool = False,
    data: Sequence[str] | None = None,
    all_losses: bool = False,
    relative: bool = False,
) -> Table:
    """A table of the paper with the scores of an experiment.

    Args:
        rows: The rows of the experiment, as `ExperimentFolder.read_rows` returns them.
        name: A key of TABLES: "1", "2" or "appendix".
        with_paper: Whether to add the published numbers.
        data: The data sets to show, by default all.
        all_losses: Whether Table 2 has a row for every loss instead of a column for each MaxEnt loss.
        relative: Whether the scores are ratios to that of cross-entropy on the same data set and model, without a
            calibrator, with 95 % intervals.

    Returns:
        The table; `render` formats it.

    Raises:
        NoDataError: The rows have no score to show, or no run of cross-entropy to compare with.
        UnknownNameError: The table or a data set is unknown.
        InvalidInputError: all_losses is set for a table other than 2.
    """
    check_choice("table", name, TABLES)
    if all_losses and name != "2":
        raise InvalidInputError(f"all_losses belongs to table 2, got table {name}")
    shared, notes = comparable_rows(rows, data)
    title, metrics = TABLES[name]
    found = table_scores(shared, metrics)
    if not found:
        raise NoDataError(
            "; ".join(
                [
                    f"no results for table {name} ({', '.join(metrics)}) on shifted test sets",
                    *(note.rstrip(".") for note in notes),
                ]
            )
        )
    ratios = ratios_to_cross_entropy(shared, metrics) if relative else None
    options: dict[str, Any] = {"table": name, "notes": notes, "with_paper": with_paper, "ratios": ratios}
    if name != "2":
        return _table_by_data(found, title, metrics, **options)
    return _table_by_loss(found, **options) if all_losses else _table_by_maxent(found, **options)


def comparable_rows(rows: pa.Table, data: Sequence[str] | None = None) -> tuple[pa.Table, list[str]]:
    """The rows of these data sets, by default all, on the test sets that all runs have; and notes on these.

    Raises:
        InvalidInputError: The rows lack a column of an experiment.
        UnknownNameError: A data set is unknown.
    """
    check_rows(rows)
    data = [] if data is None else list(data)
    for wanted in data:
        check_choice("data", wanted, sorted(pc.unique(rows["data"]).to_pylist()))
    return shared_tests(rows.filter(pc.is_in(rows["data"], pa.array(data, pa.string()))) if data else rows)


def table_scores(
    rows: pa.Table, metrics: Sequence[str] | None = None, *, shifted: bool = True
) -> dict[ScoreKey, Score]:
    """The scores over the shifted test sets, or over the unshifted ones. rows: of the test sets that all runs have."""
    rows = add_shifts(rows.filter(pc.equal(rows["shifted"], shifted)))
    limits = chance_limits(rows)
    if metrics is not None:
        rows = rows.filter(pc.is_in(rows["metric"], pa.array([*metrics, "accuracy"], pa.string())))
    found = {ScoreKey(*key): score for key, score in scores(rows, *ScoreKey._fields).items()}

    def at_chance(key: ScoreKey) -> bool:
        accuracies = found.get(key._replace(metric="accuracy"), NO_SCORE).per_seed.values()
        return favours_constants(key.metric) and any(value <= limits.get(panel_of(key), 0.0) for value in accuracies)

    return {
        key: replace(score, at_chance=at_chance(key))
        for key, score in found.items()
        if metrics is None or key.metric in metrics
    }


def _table_by_data(
    found: Scores, title: str, metrics: Sequence[str], titles: Mapping[str, str] = DATA_TITLES, **options: Any
) -> Table:
    """A row per loss; a group of columns per data set with a column per metric, a plain column for one metric."""
    keys = [key for key in found if is_baseline(key)]
    columns = []
    for data in data_headings(keys, titles):
        for metric in metrics:
            label = (quantity_of(metric).heading, data.label) if len(metrics) > 1 else (data.label, "")
            columns.append(TableHeading(label[0], {**data.fields, **BASELINE, "metric": metric}, label[1]))
    return _build_table(title, "Loss", loss_headings(keys), columns, found, **options)


def _table_by_maxent(found: Scores, **options: Any) -> Table:
    """A row per data set; a group of columns per calibrator, with a column per MaxEnt loss. Raises: NoDataError."""
    keys = [key for key in found if key.loss in MAXENT_COLUMNS and not key.variant]
    if not keys:
        raise NoDataError(
            "rows have no run of maxent_mean, maxent_variance or maxent_mean_variance; all_losses shows others"
        )
    columns = [
        TableHeading(
            heading,
            {"loss": loss, "variant": "", **calibrator.fields, "metric": "ece"},
            f"MaxEnt {calibrator.label}".strip(),
        )
        for calibrator in calibrator_headings(keys)
        for loss, heading in MAXENT_COLUMNS.items()
    ]
    return _build_table(TABLES["2"][0], "Data", data_headings(keys), columns, found, best_of="row", **options)


def _table_by_loss(found: Scores, **options: Any) -> Table:
    """A row per loss; a group of columns per data set, with a column per calibrator."""
    columns = [
        TableHeading(calibrator.label or "raw", {**data.fields, **calibrator.fields, "metric": "ece"}, data.label)
        for data in data_headings(found)
        for calibrator in calibrator_headings(found)
    ]
    rows = loss_headings(found)
    return _build_table(ALL_LOSSES, "Loss", rows, columns, found, best_of="row within a data set", **options)


def panel_of(key: ScoreKey) -> tuple[str, str, str]:
    """The data set, model and shift: only scores of the same are compared."""
    return key.data, key.model, key.shift


def is_baseline(key: ScoreKey) -> bool:
    """Whether the score is of a run without label smoothing, before any calibrator."""
    return key.calibrator == RAW and key.label_smoothing == 0


def loss_headings(keys: Iterable[ScoreKey]) -> list[TableHeading]:
    """Losses in the order of the paper, then variants of losses."""
    found = {(key.loss, key.variant) for key in keys}
    order = sorted(found, key=lambda item: (item[1] != "", loss_sort_key(item[0]), item[1]))
    return [TableHeading(loss_label(loss, variant), {"loss": loss, "variant": variant}) for loss, variant in order]


def calibrator_headings(keys: Iterable[ScoreKey]) -> list[TableHeading]:
    """No calibrator, temperature scaling, the other calibrators, then label smoothing."""
    keys = list(keys)
    names = {key.calibrator for key in keys if key.calibrator != RAW and key.label_smoothing == 0}
    both = names.issuperset(TEMPERATURES)
    titles = dict(zip(TEMPERATURES, ("w/ TS grid", "w/ TS exact") if both else ("w/ TS", "w/ TS"), strict=True))
    order = [name for name in TEMPERATURES if name in names] + sorted(names.difference(TEMPERATURES))
    smoothed = sorted({key.label_smoothing for key in keys if key.calibrator == RAW and key.label_smoothing > 0})
    found = [("", RAW, 0.0), *((titles.get(name, f"w/ {name}"), name, 0.0) for name in order)]
    found += [("w/ LS" if len(smoothed) == 1 else f"w/ LS {alpha:g}", RAW, alpha) for alpha in smoothed]
    return [TableHeading(label, {"label_smoothing": alpha, "calibrator": name}) for label, name, alpha in found]


def data_headings(keys: Iterable[ScoreKey], titles: Mapping[str, str] = DATA_TITLES) -> list[TableHeading]:
    """Data sets, models and natural shifts, data sets of the paper first. Titles of the paper are of corruptions."""
    order = {data: position for position, data in enumerate(DATA_TITLES)}
    panels = sorted(set(map(panel_of, keys)), key=lambda panel: (order.get(panel[0], len(order)), panel))
    names = [data for data, _ in {panel[:2] for panel in panels}]

    def label(data: str, model: str, shift: str) -> str:
        title = data if shift else titles.get(data, data)
        return ", ".join(filter(None, (title, model * (names.count(data) > 1), shift)))

    return [TableHeading(label(*panel), dict(zip(("data", "model", "shift"), panel, strict=True))) for panel in panels]


def _build_table(
    caption: str,
    corner: str,
    rows: Sequence[TableHeading],
    columns: Sequence[TableHeading],
    found: Scores,
    *,
    table: str = "",
    notes: Sequence[str] = (),
    with_paper: bool = False,
    best_of: str = "column",
    tests: str = "shifted",
    ratios: Mapping[ScoreKey, Contrast] | None = None,
) -> Table:
    """The table of these rows and columns, with the best scores marked. Raises: NoDataError where it is empty."""
    keys = [[ScoreKey(**row.fields, **column.fields) for column in columns] for row in rows]
    every = list(chain.from_iterable(keys))
    there = [key for key in every if key in found and not key.shift]
    if not there:
        raise NoDataError(f"no results for table {table} on {tests} test sets")
    marks = _mark_keys(keys, found, best_of)
    paper = {key: cell for key in every if with_paper and (cell := _paper_cell(key, ratios is not None)) is not None}
    has_paper = [any(line[at] in paper for line in keys) for at in range(len(columns))]
    cells = []
    for row, line in zip(rows, keys, strict=True):
        cells.append([Cell(row.label)])
        for key, add_paper in zip(line, has_paper, strict=True):
            own = _cell(key, found, marks[key], published(key) if with_paper else None, table)
            cells[-1].append(own if ratios is None else _ratio_cell(key, own, ratios.get(key), paper.get(key)))
            if add_paper:
                cells[-1].append(paper.get(key, Cell(MISSING)))
    every_cell = list(chain.from_iterable(cells))
    first = (
        _mean_note([found[key] for key in there if not split_variant(key.variant)[1]] or [found[there[0]]], tests)
        if ratios is None
        else interval_notes([ratios[key] for key in every if key in ratios], every)
    )
    return Table(
        caption if ratios is None else f"{caption.replace(' (%)', '')}, relative to cross-entropy",
        [Column(corner, numeric=False), *chain.from_iterable(map(_columns, columns, has_paper))],
        cells,
        [*first, *notes, *shift_notes(every), *_cell_notes(every_cell), *paper_notes(list(paper))],
        best=best_of if any(quantity_of(key.metric).better for key in every) else "",
    )


def _columns(heading: TableHeading, add_paper: bool) -> list[Column]:
    own = Column(heading.label, group=heading.group)
    tooltip = f"{heading.group} {heading.label} in the paper".strip()
    return [own, Column("paper", tooltip=tooltip, group=heading.group)] if add_paper else [own]


def _mark_keys(keys: Sequence[Sequence[ScoreKey]], found: Scores, best_of: str) -> dict[ScoreKey, tuple[bool, bool]]:
    """Whether each score is the best of its column, or of its row and data set, and whether significantly."""
    lines = zip(*keys, strict=True) if best_of == "column" else keys
    marks: dict[ScoreKey, tuple[bool, bool]] = {}
    for line in lines:
        for _, group in groupby(line, key=panel_of):
            compared = list(group)
            quantity = quantity_of(compared[0].metric)
            candidates = [found.get(key) if quantity.better else None for key in compared]
            best = mark_best(candidates, higher_is_better=quantity.higher_is_better)
            marks |= dict(zip(compared, best, strict=True))
    return marks


def _paper_cell(key: ScoreKey, relative: bool) -> Cell | None:
    """The published number; None where the paper has none."""
    if not relative:
        digits = published(key)
        return None if digits is None else Cell("±".join(digits), float(digits[0]), "faint")
    ratio = published_ratio(key, reference_of(key))
    if key == reference_of(key):
        return ratio and Cell("1", 1.0, "faint")
    return ratio and Cell(published_text(ratio, key.metric), ratio[0], "faint")


def _ratio_cell(key: ScoreKey, absolute: Cell, ratio: Contrast | None, paper: Cell | None) -> Cell:
    """The cell of a score as its ratio to that of cross-entropy."""
    value, low, high = (None, None, None) if ratio is None else ratio[:3]
    facts = {**absolute.facts, "ratio": value, "ratio_low": low, "ratio_high": high}
    facts |= {"published_ratio": paper and paper.value}
    marks = absolute.marks.replace("†", "")  # of the test of the scores themselves
    text = MISSING if ratio is None else ratio_text(ratio, key.metric)
    return replace(absolute, text=text, value=value, marks=marks, facts=facts)


def _cell(key: ScoreKey, found: Scores, marks: tuple[bool, bool], paper: tuple[str, str] | None, table: str) -> Cell:
    best, significant = marks
    score = found.get(key, NO_SCORE)
    uncalibrated = found.get(key._replace(**BASELINE), NO_SCORE).mean
    improved = score.mean is not None and uncalibrated is not None and score.mean < uncalibrated
    scale = 100 if quantity_of(key.metric).in_percent else 1
    mean, error = (None if value is None else scale * value for value in (score.mean, score.standard_error))
    facts = {"table": table, **key._asdict(), "mean": mean, "standard_error": error}
    facts |= {"n_seeds": score.n_seeds, "n_tests": score.n_tests, "best": best, "significant": significant}
    facts |= {"at_chance": score.at_chance}
    facts |= {"published_mean": paper and float(paper[0]), "published_standard_error": paper and float(paper[1])}
    value = None if score.mean is None else round(score.mean, 8)
    signs = "‡" * improved + "†" * significant + "§" * score.at_chance
    return Cell(score_text(score, key.metric), value, BEST if best else "", signs, facts)


def score_text(score: Score, metric: str) -> str:
    """For example "4.16±0.03", in percent where the metric is."""
    if score.mean is None:
        return MISSING
    in_percent = quantity_of(metric).in_percent
    scale = 100 if in_percent else 1
    mean = mean_text(scale * score.mean, in_percent)
    return mean if score.standard_error is None else f"{mean}±{standard_error_text(scale * score.standard_error)}"


def _mean_note(there: Sequence[Score], tests: str) -> Iterator[str]:
    n_seeds, n_tests = (format_range([getattr(s, name) for s in there]) for name in ("n_seeds", "n_tests"))
    over_seeds = "One seed" if n_seeds == "1" else f"Mean ± standard error over {n_seeds} seeds"
    over_tests = f"mean over the {n_tests} {tests} test sets that all runs of the data set and model have"
    if n_tests == "1":
        yield f"{over_seeds}, on the {tests} test set."
    else:
        yield (
            f"{over_seeds}: {over_tests}."
            if n_seeds == "1"
            else f"{over_seeds}; the value of a seed is its {over_tests}."
        )


def _cell_notes(cells: Sequence[Cell]) -> Iterator[str]:
    """The meaning of the marks."""
    marks = "".join(cell.marks for cell in cells)
    if "‡" in marks:
        yield "‡: lower than for the same loss without a calibrator or label smoothing."
    if "†" in marks:
        yield (
            "†: significantly better than every other score it is compared with, beyond the noise of seeds and test "
            "rows (5 % level for each comparison, unadjusted; training and validation images are taken as given)."
        )
    if "§" in marks:
        yield CHANCE_NOTE
    if any(str(cell.facts.get("metric", "")).endswith(ON_ERRORS) for cell in cells):
        yield "(err.): over the errors of each run; runs of different accuracy are scored on different images."
    if any(cell.text == MISSING and cell.facts for cell in cells):
        yield f"{MISSING}: no such run, or the score is undefined."


def shift_notes(keys: Iterable[ScoreKey]) -> Iterator[str]:
    """A note on each natural shift of a data set that has corruptions."""
    for shift in sorted({key.shift for key in keys if key.shift}):
        yield f"{shift}: a natural shift by itself, which is not in the mean over corruptions."


def metric_tables(found: Scores, metrics: Sequence[str], notes: Sequence[str], *, shifted: bool) -> list[Table]:
    """A table per metric, loss by data set; metrics without scores are left out.

    Without shift, data sets keep their names: the titles of the paper are those of shifted data.
    """
    tests, condition, titles = ("shifted", "under", DATA_TITLES) if shifted else ("unshifted", "without", {})
    tables: list[Table] = []
    for metric in metrics:
        own = {key: score for key, score in found.items() if key.metric == metric and is_baseline(key)}
        if own:
            quantity = quantity_of(metric)
            caption = f"{quantity.heading}{' (%)' if quantity.in_percent else ''} {condition} shift"
            table = _table_by_data(own, caption, [metric], titles, notes=notes, with_paper=shifted, tests=tests)
            tables.append(replace(table, html_id=f"scores-{len(tables) + 1}", menu_label=quantity.heading))
    return tables


def calibrator_tables(found: Scores, notes: Sequence[str]) -> list[Table]:
    """Table 2 by MaxEnt loss as in the paper, then for every loss; each only where there are scores for it."""
    eces = {key: score for key, score in found.items() if key.metric == "ece"}
    layouts = [_table_by_maxent] if any(key.loss in MAXENT_COLUMNS and not key.variant for key in eces) else []
    layouts += [_table_by_loss] if eces else []
    return [
        replace(layout(eces, notes=notes, with_paper=True), html_id=f"calibrators-{number}")
        for number, layout in enumerate(layouts, 1)
    ]
