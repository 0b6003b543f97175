"""Prediction sets in words and tables: how they were fitted, and whether they hold what they promise."""

from collections.abc import Mapping

from calibrant.decisions import ConformalSets, PartScores, SetScores
from calibrant.estimates import Quantity
from calibrant.report.numbers import (
    count,
    interval_text,
    level_text,
    metric_text,
    p_value_phrase,
    percent,
    percent_limits,
)
from calibrant.report.table import Cell, Column, Table, number_cell

MAX_PARTS = 20  # classes in a table, those of the least coverage


def summary(found: SetScores) -> list[str]:
    """Whether the sets hold what they promise, and how large they are: a sentence each."""
    limits = percent_limits(found.coverage[1:])
    sentences = [
        f"{percent(found.coverage.value)} of the sets hold the label ({level_text(found.level)} interval {limits}).",
        promise(found),
        f"A set has {found.mean_size:.2f} classes on average; {percent(found.single)} have one class, "
        f"{percent(found.empty)} have none.",
    ]
    if found.worst_group is not None:
        name, coverage = found.worst_group
        limits = percent_limits(coverage[1:])
        sentences.append(f"The least coverage by {found.by} is {percent(coverage.value)}, in {name} ({limits}).")
    return [sentence for sentence in sentences if sentence]


def promise(found: SetScores) -> str:
    """Whether the coverage is that for which the sets were made, within chance."""
    if found.promise is None:
        return ""
    chance = found.promise.p_value(found)
    made = f"They were made for {percent(found.promise.coverage)}"
    if chance < 1 - found.level:
        why = "the rows are not like those of the fit, or depend on each other"
        return f"{made}: the promise is broken ({p_value_phrase(chance)}); {why}."
    if chance > found.level:
        return f"{made}: they hold it more often."
    return f"{made}: the difference may be chance."


def tables(found: SetScores) -> list[Table]:
    """All tables that have rows."""
    groups = {name: PartScores(group.n_rows, group.coverage, group.mean_size) for name, group in found.groups.items()}
    sizes = {count(size, "class", "classes"): part for size, part in found.by_size.items()}
    level = level_text(found.level)
    parts = [
        parts_table("coverage by size", "size of the set", sizes, level),
        parts_table("coverage by class, the least first", "class", _worst_first(found.by_class), level),
        parts_table(f"coverage by {found.by}, the least first", found.by or "", _worst_first(groups), level),
    ]
    return [table for table in parts if table.rows]


def _worst_first(parts: Mapping[str, PartScores]) -> dict[str, PartScores]:
    return dict(sorted(parts.items(), key=lambda item: item[1].coverage.value))


def parts_table(caption: str, heading: str, parts: Mapping[str, PartScores], level: str) -> Table:
    """A row for each part."""
    columns = [
        Column(heading, numeric=False),
        Column("rows"),
        Column("coverage"),
        Column(f"{level} interval"),
        Column("mean size"),
    ]
    rows = [
        [
            Cell(name),
            number_cell(part.n_rows, f"{part.n_rows:,}"),
            *_cells(part.coverage),
            number_cell(part.mean_size, f"{part.mean_size:.2f}"),
        ]
        for name, part in list(parts.items())[:MAX_PARTS]
    ]
    rest = len(parts) - len(rows)
    notes = [f"The intervals of all {len(parts)} hold together."] if len(parts) > 1 else []
    return Table(caption, columns, rows, notes + ([f"And {rest:,} more."] if rest > 0 else []))


def fit_table(sets: ConformalSets, output: str) -> Table:
    """The thresholds of fitted sets."""
    record = sets.summary()
    values = record.get("thresholds", {})
    by = sets.by or "threshold"
    named = values if isinstance(values, dict) else {"all rows": values}
    rows = [[Cell(name), number_cell(value, metric_text(value))] for name, value in list(named.items())[:MAX_PARTS]]
    if sets.weighted is not None:
        rows = [[Cell("effective rows"), Cell(f"{sets.weighted.effective_rows:,.0f}")]]
    rest = len(named) - MAX_PARTS
    return Table(
        f"{sets.score.method}, coverage {percent(sets.coverage)}, fitted to {count(sets.n_rows, 'row')}: {output}",
        [Column("" if sets.by is None else by, numeric=False), Column("value" if sets.weighted else "threshold")],
        rows,
        notes_of(sets) + ([f"And {rest:,} more."] if rest > 0 else []),
    )


def notes_of(sets: ConformalSets) -> list[str]:
    """Under which condition the coverage holds."""
    if sets.weighted is not None:
        return ["The coverage holds for the target, as far as its inputs alone differ and the weights are right."]
    where = {None: "over all rows", "class": "in each class"}.get(sets.by, f"in each group of {sets.by}")
    return [f"The coverage holds {where}, for rows like those of the fit."]


def _cells(quantity: Quantity) -> tuple[Cell, Cell]:
    value, low, high = quantity
    return number_cell(value, metric_text(value)), Cell(interval_text((low, high)))
