"""The tables of the paper with the scores of an experiment, and the numbers that the paper prints, to compare with.

The paper's numbers stand in its units, percent but for NLL and Brier, and not all of them can be taken at their word:

- The AvUC rows are doubtful: the published code compares every prediction with the label of the batch's first sample.
- Brier on errors is divided by the number of classes there, and is the sum over classes here.
- NLL on errors of Tiny ImageNet-C is 0.04 to 0.05, and no misclassified sample has less than log 2 = 0.69.
- Temperature scaling takes the best of four temperatures, which is `temperature_grid` here.
"""

import csv
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from itertools import chain, groupby
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from calibrant._names import check_choice
from calibrant.errors import InvalidInputError, NoDataError
from calibrant.experiments.folder import RAW
from calibrant.report.numbers import MISSING, error_text, format_range, mean_text
from calibrant.report.scores import Score, ScoreKey, mark_best, scores, shared_tests
from calibrant.report.style import loss_label, loss_sort_key, quantity_of
from calibrant.report.table import BEST, Cell, Column, Table

PUBLISHED = Path(__file__).with_name("published.csv")
TABLES = {  # title and metrics
    "1": ("Table 1: test scores (%) under shift", ("accuracy", "ece", "cece", "kse")),
    "2": ("Table 2: ECE (%) under shift, with calibrators and label smoothing (LS)", ("ece",)),
    "appendix": (
        "Appendix: more test scores under shift (MCE and AdaECE in %, NLL and Brier of the errors alone)",
        ("mce", "adaece", "nll_on_errors", "brier_on_errors"),
    ),
}
ALL_LOSSES = "Table 2 for every loss: ECE (%) under shift, with calibrators and label smoothing (LS)"
MAXENT_COLUMNS = {"maxent_mean": "Mean", "maxent_variance": "Var", "maxent_mean_variance": "Mult"}
WITHIN = "row within a data set"  # what is the best where a row has several
TEMPERATURES = ("temperature_grid", "temperature")  # the paper's, and the exact one
DATA_TITLES = {
    "cifar10": "CIFAR10-C",
    "cifar100": "CIFAR100-C",
    "tiny_imagenet": "Tiny ImageNet-C",
    "camelyon17": "Camelyon17-Wilds",
    "iwildcam": "iWildCam-Wilds",
    "fmow": "FMoW-Wilds",
}
PLAIN: dict[str, Any] = {"label_smoothing": 0.0, "calibrator": RAW}

NO_SCORE = Score(None, None, 0, 0, {})

Scores = Mapping[ScoreKey, Score]


class TableHeading(NamedTuple):
    """A row or a column of a table that is not filled in yet, and what the scores in it have in common."""

    label: str
    part: dict[str, Any]
    group: str = ""


@lru_cache(maxsize=1)
def _read_published() -> dict[tuple[str, ...], tuple[str, str]]:
    with PUBLISHED.open(encoding="utf-8", newline="") as file:
        found: dict[tuple[str, ...], tuple[str, str]] = {}
        for row in csv.DictReader(file):
            smoothing = f"{float(row['label_smoothing']):g}"
            place = (row["data"], row["loss"], row["metric"], smoothing, row["calibrator"])
            found[place] = (row["mean"], row["error"])
        return found


def published(
    data: str, loss: str, metric: str, *, label_smoothing: float = 0.0, calibrator: str = RAW
) -> tuple[str, str] | None:
    """The mean and the standard error over three seeds in the digits of the paper; None where it prints none.

    >>> published("cifar10", "maxent_mean", "ece"), published("digits", "focal", "ece")
    (('8.70', '0.2'), None)
    """
    calibrator = TEMPERATURES[0] if calibrator in TEMPERATURES else calibrator
    return _read_published().get((data, loss, metric, f"{label_smoothing:g}", calibrator))


def make_table(
    rows: pa.Table,
    name: str,
    *,
    against: str | None = None,
    data: Sequence[str] | None = None,
    all_losses: bool = False,
) -> Table:
    """A table of the paper, of an experiment's rows.

    Args:
        rows: As `ExperimentFolder.read_rows` gives them.
        name: One of TABLES.
        against: "paper" for its numbers beside ours.
        data: The data sets to show, by default all.
        all_losses: Table 2 with a row for every loss in place of a column for each form of MaxEnt.

    Raises:
        NoDataError: The rows have nothing to show.
        UnknownNameError: There is no such table or data set.
        InvalidInputError: all_losses is asked of another table.
    """
    check_choice("table", name, TABLES)
    if against is not None:
        check_choice("against", against, ("paper",))
    if all_losses and name != "2":
        raise InvalidInputError(f"all_losses belongs to table 2, got table {name}")
    for wanted in data or ():
        check_choice("data", wanted, sorted(pc.unique(rows["data"]).to_pylist()))
    if data:
        rows = rows.filter(pc.is_in(rows["data"], pa.array(data, pa.string())))
    title, metrics = TABLES[name]
    shared, notes = shared_tests(rows)
    found = table_scores(shared, metrics)
    if not found:
        raise NoDataError(" ".join([f"rows have no {', '.join(metrics)} on shifted tests that all runs have", *notes]))
    about: dict[str, Any] = {"table": name, "notes": notes, "with_paper": against == "paper"}
    if name != "2":
        return _build_table(title, "Loss", *by_data(found, metrics), found, **about)
    if all_losses:
        return _build_table(ALL_LOSSES, "Loss", *by_loss(found), found, best_of=WITHIN, **about)
    return _build_table(title, "Data", *by_form(found), found, best_of="row", **about)


def table_scores(
    rows: pa.Table, metrics: Sequence[str] | None = None, *, shifted: bool = True
) -> dict[ScoreKey, Score]:
    """The scores over the shifted tests, or over the others; rows: of the tests that all runs have."""
    rows = rows.filter(pc.equal(rows["shifted"], shifted))
    if metrics is not None:
        rows = rows.filter(pc.is_in(rows["metric"], pa.array(metrics, pa.string())))
    return {ScoreKey(*key): score for key, score in scores(rows, *ScoreKey._fields).items()}


def by_data(found: Scores, metrics: Sequence[str]) -> tuple[list[TableHeading], list[TableHeading]]:
    """A row per loss; a group of columns per data set, with a column per metric."""
    plain = [key for key in found if is_plain(key)]
    columns = [
        TableHeading(quantity_of(metric).heading, {**place.part, **PLAIN, "metric": metric}, place.label)
        for place in data_headings(plain)
        for metric in metrics
    ]
    return loss_headings(plain), columns


def by_form(found: Scores) -> tuple[list[TableHeading], list[TableHeading]]:
    """A row per data set; a group of columns per remedy, with a column per form of MaxEnt. Raises: NoDataError."""
    keys = [key for key in found if key.loss in MAXENT_COLUMNS and not key.variant]
    if not keys:
        raise NoDataError(
            "rows have no run of maxent_mean, maxent_variance or maxent_mean_variance; all_losses shows others"
        )
    columns = [
        TableHeading(
            form, {"loss": loss, "variant": "", **remedy.part, "metric": "ece"}, f"MaxEnt {remedy.label}".strip()
        )
        for remedy in calibrator_headings(keys)
        for loss, form in MAXENT_COLUMNS.items()
    ]
    return data_headings(keys), columns


def by_loss(found: Scores) -> tuple[list[TableHeading], list[TableHeading]]:
    """A row per loss; a group of columns per data set, with a column per remedy."""
    columns = [
        TableHeading(remedy.label or "raw", {**place.part, **remedy.part, "metric": "ece"}, place.label)
        for place in data_headings(found)
        for remedy in calibrator_headings(found)
    ]
    return loss_headings(found), columns


def is_plain(key: ScoreKey) -> bool:
    return key.calibrator == RAW and key.label_smoothing == 0


def loss_headings(keys: Iterable[ScoreKey]) -> list[TableHeading]:
    """Loss and variant, in the order of the paper, variants after all losses."""
    found = {(key.loss, key.variant) for key in keys}
    order = sorted(found, key=lambda item: (item[1] != "", loss_sort_key(item[0]), item[1]))
    return [TableHeading(loss_label(loss, variant), {"loss": loss, "variant": variant}) for loss, variant in order]


def calibrator_headings(keys: Iterable[ScoreKey]) -> list[TableHeading]:
    """What is done about a loss: nothing, temperature scaling, the other calibrators, label smoothing."""
    keys = list(keys)
    names = {key.calibrator for key in keys if key.calibrator != RAW and key.label_smoothing == 0}
    exact = "w/ TS exact" if names.issuperset(TEMPERATURES) else "w/ TS"
    titles = dict(zip(TEMPERATURES, (exact.replace("exact", "grid"), exact), strict=True))
    order = [name for name in TEMPERATURES if name in names] + sorted(names.difference(TEMPERATURES))
    smoothed = sorted({key.label_smoothing for key in keys if key.calibrator == RAW and key.label_smoothing > 0})
    found = [("", RAW, 0.0), *((titles.get(name, f"w/ {name}"), name, 0.0) for name in order)]
    found += [("w/ LS" if len(smoothed) == 1 else f"w/ LS {alpha:g}", RAW, alpha) for alpha in smoothed]
    return [TableHeading(label, {"label_smoothing": alpha, "calibrator": name}) for label, name, alpha in found]


def data_headings(keys: Iterable[ScoreKey], titles: Mapping[str, str] = DATA_TITLES) -> list[TableHeading]:
    """The data sets and models, those of the paper first in its order."""
    order = {data: place for place, data in enumerate(DATA_TITLES)}
    pairs = sorted({key[:2] for key in keys}, key=lambda pair: (order.get(pair[0], len(order)), pair))
    names = [data for data, _ in pairs]
    return [
        TableHeading(
            titles.get(data, data) + (f", {model}" if names.count(data) > 1 else ""), {"data": data, "model": model}
        )
        for data, model in pairs
    ]


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
) -> Table:
    """The table of the scores where rows and columns meet, with the best marked and the paper's numbers beside.

    Raises:
        NoDataError: There is none.
    """
    keys = [[ScoreKey(**row.part, **column.part) for column in columns] for row in rows]
    every = list(chain.from_iterable(keys))
    there = [found[key] for key in every if key in found]
    if not there:
        raise NoDataError(f"rows have no score on {tests} tests that table {table} could show")
    ranks = _ranks(keys, found, best_of)
    paper = {key: digits for key in every if with_paper and (digits := _published_of(key)) is not None}
    beside = [any(line[at] in paper for line in keys) for at in range(len(columns))]
    cells = []
    for row, line in zip(rows, keys, strict=True):
        cells.append([Cell(row.label)])
        for key, with_printed in zip(line, beside, strict=True):
            cells[-1].append(_cell(key, found, ranks[key], paper.get(key), table))
            cells[-1] += [_paper_cell(paper.get(key))] if with_printed else []
    return Table(
        caption,
        [Column(corner, numeric=False), *chain.from_iterable(map(_heads, columns, beside))],
        cells,
        [*_notes(list(chain.from_iterable(cells)), there, tests, notes), *_paper_notes(list(paper))],
        best=best_of if any(quantity_of(key.metric).better for key in every) else "",
    )


def _heads(column: TableHeading, with_printed: bool) -> list[Column]:
    own = Column(column.label, group=column.group)
    title = f"{column.group} {column.label} as the paper prints it".strip()
    return [own, Column("paper", title=title, group=column.group)] if with_printed else [own]


def _published_of(key: ScoreKey) -> tuple[str, str] | None:
    if key.variant:
        return None
    return published(key.data, key.loss, key.metric, label_smoothing=key.label_smoothing, calibrator=key.calibrator)


def _ranks(keys: Sequence[Sequence[ScoreKey]], found: Scores, best_of: str) -> dict[ScoreKey, tuple[bool, bool]]:
    """Whether each is the best of its column, or of its row and data set, and beyond chance."""
    lines = zip(*keys, strict=True) if best_of == "column" else keys
    ranks: dict[ScoreKey, tuple[bool, bool]] = {}
    for line in lines:
        for _, group in groupby(line, key=lambda key: key[:2]):
            rivals = list(group)
            quantity = quantity_of(rivals[0].metric)
            able = [found.get(key) if quantity.better else None for key in rivals]
            ranks |= dict(zip(rivals, mark_best(able, higher_is_better=quantity.higher_is_better), strict=True))
    return ranks


def _cell(key: ScoreKey, found: Scores, rank: tuple[bool, bool], paper: tuple[str, str] | None, table: str) -> Cell:
    best, significant = rank
    score = found.get(key, NO_SCORE)
    plain = found.get(key._replace(**PLAIN), NO_SCORE).mean
    improved = score.mean is not None and plain is not None and score.mean < plain
    scale = 100 if quantity_of(key.metric).in_percent else 1
    mean, error = (None if value is None else scale * value for value in (score.mean, score.error))
    facts = {"table": table, **key._asdict(), "mean": mean, "error": error}
    facts |= {"n_seeds": score.n_seeds, "n_tests": score.n_tests, "best": best, "significant": significant}
    facts |= {"published_mean": paper and float(paper[0]), "published_error": paper and float(paper[1])}
    value = None if score.mean is None else round(score.mean, 8)
    return Cell(score_text(score, key.metric), value, BEST if best else "", "↓" * improved + "†" * significant, facts)


def _paper_cell(digits: tuple[str, str] | None) -> Cell:
    return Cell("±".join(digits), float(digits[0]), "faint") if digits else Cell(MISSING)


def score_text(score: Score, metric: str) -> str:
    """As 4.16±0.03, in percent where the metric is."""
    if score.mean is None:
        return MISSING
    in_percent = quantity_of(metric).in_percent
    scale = 100 if in_percent else 1
    mean = mean_text(scale * score.mean, in_percent)
    return mean if score.error is None else f"{mean}±{error_text(scale * score.error)}"


def _notes(cells: Sequence[Cell], there: Sequence[Score], tests: str, shared: Sequence[str]) -> Iterator[str]:
    """What a reader must know about these cells, whatever the format."""
    n_seeds, n_tests = (
        format_range([score.n_seeds for score in there]),
        format_range([score.n_tests for score in there]),
    )
    yield (
        f"Mean ± standard error over seeds ({n_seeds}) of the mean over the {tests} tests that all runs of a data set "
        f"and model have ({n_tests})."
    )
    yield from shared
    marks = "".join(cell.marks for cell in cells)
    if "↓" in marks:
        yield "↓: lower than the same loss without it."
    if "†" in marks:
        yield "†: ahead of every other beyond the chance of seeds (paired t-test, 5 %)."
    if any(cell.text == MISSING and cell.facts for cell in cells):
        yield f"{MISSING}: no such run, or no such score."


def _paper_notes(keys: Sequence[ScoreKey]) -> Iterator[str]:
    """What is known of the paper's numbers, where these are among them."""
    if keys:
        yield "paper: as the paper prints it, of its own models and training, not of this experiment's."
    if any(key.loss == "avuc" for key in keys):
        yield "The paper's AvUC is doubtful: its code compares every prediction with one sample's label."
    if any(key.metric == "brier_on_errors" for key in keys):
        yield "The paper divides Brier on errors by the number of classes; here it is the sum over classes."
    if any(key.metric == "nll_on_errors" and key.data == "tiny_imagenet" for key in keys):
        yield "The paper's NLL on errors of Tiny ImageNet-C is on another scale: no error has less than 0.69."
    if any(key.calibrator == "temperature" for key in keys):
        yield "The paper's temperature scaling takes the best of four temperatures; temperature here is exact."


def metric_tables(found: Scores, metrics: Sequence[str], notes: Sequence[str], *, shifted: bool) -> list[Table]:
    """Table 1 for each of these metrics alone, loss by data set; of one without scores there is none.

    Without shift, data sets go by their own names: the paper's titles are of the shifted data.
    """
    tests, how, titles = ("shifted", "under", DATA_TITLES) if shifted else ("unshifted", "without", {})
    tables: list[Table] = []
    for metric in metrics:
        own = {key: score for key, score in found.items() if key.metric == metric and is_plain(key)}
        if own:
            quantity = quantity_of(metric)
            columns = [
                TableHeading(place.label, {**place.part, **PLAIN, "metric": metric})
                for place in data_headings(own, titles)
            ]
            caption = f"{quantity.heading}{' (%)' if quantity.in_percent else ''} {how} shift"
            table = _build_table(
                caption, "Loss", loss_headings(own), columns, own, notes=notes, with_paper=shifted, tests=tests
            )
            tables.append(replace(table, name=f"scores-{len(tables) + 1}", option=quantity.heading))
    return tables


def calibrator_tables(found: Scores, notes: Sequence[str]) -> list[Table]:
    """Table 2, by form of MaxEnt as the paper has it, then for every loss; those that the scores suffice for."""
    eces = {key: score for key, score in found.items() if key.metric == "ece"}
    about: dict[str, Any] = {"notes": notes, "with_paper": True}
    tables = []
    if any(key.loss in MAXENT_COLUMNS and not key.variant for key in eces):
        tables.append(_build_table(TABLES["2"][0], "Data", *by_form(eces), eces, best_of="row", **about))
    if eces:
        tables.append(_build_table(ALL_LOSSES, "Loss", *by_loss(eces), eces, best_of=WITHIN, **about))
    return [replace(table, name=f"remedies-{number}") for number, table in enumerate(tables, 1)]
