"""The tables of the page: Table 1 by metric, Table 2 by calibrator, in the cells that a page shows and sorts by."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import pyarrow as pa
import pyarrow.compute as pc

from calibrant.errors import NoDataError
from calibrant.experiments.rows import RAW
from calibrant.report.experiment.measures import has_best, measure_of, metrics_of
from calibrant.report.page import Cell, Heading
from calibrant.report.palette import label_of
from calibrant.report.published import printed
from calibrant.report.summary import Key, cells, standings
from calibrant.report.tables import (
    DATA_TITLES,
    Block,
    Cells,
    Entry,
    Group,
    Line,
    Place,
    Table,
    cell_text,
    footnotes,
    is_plain,
    losses_of,
    make_table,
    places_of,
)


@dataclass(frozen=True)
class PageTable:
    """A table of the page; name is that of its element, and option what a switch calls it."""

    name: str
    caption: str
    headings: list[Heading]
    rows: list[list[Cell]]
    notes: list[str]
    option: str = ""

    @property
    def as_option(self) -> tuple[str, str]:
        return self.name, self.option


def score_tables(rows: pa.Table) -> dict[str, Table]:
    """Table 1 for each metric of the experiment alone, loss by data set; of a metric without scores there is none.

    Of an experiment without shifted tests, the scores are those of the unshifted one.
    """
    metrics, shifted = metrics_of(rows), is_shifted(rows)
    found = cells(rows, metrics, shifted=shifted)  # one pass over the rows for all metrics
    places = [place for block in places_of(found, rows) for place in block]
    if not shifted:
        places = [_by_own_name(place) for place in places]
    tables = {metric: _score_table(metric, found, places, shifted=shifted) for metric in metrics}
    return {metric: table for metric, table in tables.items() if any(entry.cell for entry in table.entries)}


def _by_own_name(place: Place) -> Place:
    """Without the paper's title, which is that of the shifted data."""
    return place._replace(title=place.title.replace(DATA_TITLES.get(place.data, place.data), place.data, 1))


def is_shifted(rows: pa.Table) -> bool:
    """Whether any test is."""
    return bool(pc.any(rows["shifted"]).as_py())


def _score_table(metric: str, found: Cells, places: Sequence[Place], *, shifted: bool) -> Table:
    keys = [key for key in found if key.metric == metric and is_plain(key)]
    here = [place for place in places if any(key[:2] == place[:2] for key in keys)]
    losses = losses_of(keys)
    columns = [_column([Key(*place[:2], *loss, 0.0, RAW, metric) for loss in losses], found) for place in here]
    if shifted:  # as are the tests of the paper
        columns = [[_beside_paper(entry) for entry in column] for column in columns]
    lines = [Line(label_of(*loss), tuple(line)) for loss, *line in zip(losses, *columns, strict=True)]
    measure = measure_of(metric)
    unit = " (%)" if measure.in_percent else ""
    block = Block(tuple(Group(place.title, (measure.heading,)) for place in here), tuple(lines))
    with_paper = any(entry.published for column in columns for entry in column)
    title = f"{measure.heading}{unit} {'under shift' if shifted else 'without shift'}"
    tests = "shifted" if shifted else "unshifted"
    table = Table("1", title, "Loss", "column", (block,), (), with_paper, tests)
    return replace(table, footnotes=tuple(footnotes(table))) if lines else table


def _column(keys: Sequence[Key], found: Cells) -> list[Entry]:
    """The scores of all losses on one data set, with the best of them marked."""
    measure = measure_of(keys[0].metric)
    entries = [Entry(key, found.get(key), cell_text(found.get(key), measure.in_percent)) for key in keys]
    if has_best(keys[0].metric):
        ranks = standings([entry.cell for entry in entries], higher_is_better=measure.higher_is_better)
        pairs = zip(entries, ranks, strict=True)
        entries = [replace(entry, is_best=best, is_significant=leads) for entry, (best, leads) in pairs]
    return entries


def _beside_paper(entry: Entry) -> Entry:
    digits = None if entry.key.variant else printed(entry.key.data, entry.key.loss, entry.key.metric)
    if digits is None:
        return entry
    return replace(entry, published=(float(digits.mean), float(digits.error)), published_text="±".join(digits))


def page_tables(tables: dict[str, Table]) -> list[PageTable]:
    """Table 1 as the page shows it, a panel per metric."""
    return [
        _shown(table, table.blocks[0], f"scores-{number}", table.title, measure_of(metric).heading, has_best(metric))
        for number, (metric, table) in enumerate(tables.items(), 1)
    ]


def remedy_tables(rows: pa.Table) -> list[PageTable]:
    """Table 2: by form of MaxEnt as the paper has it, then for every loss; those that the rows suffice for."""
    found: list[PageTable] = []
    for all_losses in (False, True):
        try:
            table = make_table(rows, "2", against="paper", all_losses=all_losses)
        except NoDataError:
            continue
        for block in table.blocks:
            caption = f"{table.title}: {block.groups[0].title}" if len(table.blocks) > 1 else table.title
            found.append(_shown(_alone(table, block), block, f"remedies-{len(found) + 1}", caption))
    return found


def _alone(table: Table, block: Block) -> Table:
    """A table of one block, with the notes that belong to it."""
    own = replace(table, blocks=(block,))
    own = replace(own, against_paper=any(entry.published for entry in own.entries))
    return replace(own, footnotes=tuple(footnotes(own)))


def _shown(table: Table, block: Block, name: str, caption: str, option: str = "", best: bool = True) -> PageTable:
    columns = [(group.title, heading) for group in block.groups for heading in group.headings]
    printed_too = [any(line.entries[at].published for line in block.lines) for at in range(len(columns))]
    headings = [Heading(table.corner, numeric=False)]
    for (title, heading), beside in zip(columns, printed_too, strict=True):
        text = title if table.name == "1" else f"{title} {heading}" if len(block.groups) > 1 else heading
        headings += [Heading(text), Heading("paper", title=f"{text} as the paper prints it")][: 1 + beside]
    rows = [
        [Cell(line.label), *(cell for at, entry in enumerate(line.entries) for cell in _cells(entry, printed_too[at]))]
        for line in block.lines
    ]
    legend = table.legend(best="Bold", paper="paper") if best else list(table.footnotes)
    return PageTable(name, caption, headings, rows, legend, option)


def _cells(entry: Entry, beside: bool) -> list[Cell]:
    own = Cell(entry.text)
    if entry.cell is not None and entry.cell.mean is not None:
        kind = "best" if entry.is_best else "faint" if entry.is_partial else ""
        own = Cell("↓" * entry.improved + entry.text + entry.signs, round(entry.cell.mean, 8), kind)
    paper = Cell(entry.published_text, entry.published[0], "faint") if entry.published else Cell("–")
    return [own, paper] if beside else [own]
