"""Certified thresholds, and checks of them, in words and tables."""

import math

from calibrant.decisions import AcceptedRows, Threshold, ThresholdCheck
from calibrant.report.estimates import TESTS, differs
from calibrant.report.numbers import (
    MISSING,
    count,
    interval_text,
    join_words,
    level_text,
    metric_text,
    percent,
    percent_limits,
    shorten_list,
)
from calibrant.report.table import Cell, Column, Table, number_cell

ASSUMPTION = "The promise is for new rows like those of validation; under shift it is void."
NOT_CERTIFIED = "This is an estimate by adapted probabilities: nothing is certified."


def summary(found: Threshold) -> list[str]:
    """What is promised, of how many rows, and under which condition: a sentence each."""
    accepting = [group for group in found.groups.values() if group.n_accepted]
    if not accepting:
        if not found.certified:
            return ["No rows should be accepted.", NOT_CERTIFIED]
        return ["No threshold can be certified: no row is accepted.", *_needed(found)]
    sentences = [promise(found)]
    if found.by is None:
        (group,) = accepting
        limits = percent_limits(group.share_interval())
        sentences.append(f"{_rule(found, group)} These are {percent(group.share)} of {_rows(found)} ({limits}).")
    else:
        empty = [name for name, group in found.groups.items() if not group.n_accepted]
        sentences += [f"No row is accepted of {join_words(shorten_list(empty))}."] if empty else []
        sentences += _needed(found)
    return [*sentences, ASSUMPTION if found.certified else NOT_CERTIFIED]


def promise(found: Threshold) -> str:
    """What holds of accepted rows, and with which confidence."""
    groups = found.groups.values()
    each = " in each group" if found.by is not None else ""
    if found.costs is not None:
        bound = metric_text(max(group.bound for group in groups))
        what = f"The expected cost per row is at most {bound}{each} (handing over every row costs {found.costs[1]:g})"
    else:
        what = f"Accepted rows are wrong at most {percent(found.max_error or 0.0)} of the time{each}"
    if not found.certified:
        return f"{what}, if the adapted probabilities are right."
    together = ", for all groups together" if found.by is not None else ""
    return f"{what}, with {level_text(found.confidence)} confidence{together}."


def _rows(found: Threshold) -> str:
    if found.target_class is None:
        return "all rows"
    name = found.class_names[found.target_class] if found.class_names else found.target_class
    return f"the rows that are predicted as class {name}"


def _rule(found: Threshold, group: AcceptedRows) -> str:
    if group.value == -math.inf:
        return f"Accept {_rows(found)}."
    which = "rows" if found.target_class is None else _rows(found)
    return f"Accept {which} with {found.score} above {group.value:.6g}."


def _needed(found: Threshold) -> list[str]:
    """How many rows it would take, if that is known."""
    lacking = {name: group for name, group in found.groups.items() if not group.n_accepted and group.n_rows}
    if not found.certified or found.costs is not None or not lacking:
        return []
    least = max(group.least_rows for group in found.groups.values())
    sentences = [f"It takes at least {count(least, 'row')}{' of a group' if found.by else ''}, none of them wrong."]
    if found.by is None:
        (group,) = lacking.values()
        needed = group.rows_needed
        sentences.append(
            "The surest rows are wrong so often that more rows are not expected to help."
            if needed is None
            else f"At the error of the surest of these {group.n_rows:,} rows it takes about {needed:,}."
        )
    return sentences


def threshold_table(found: Threshold) -> Table:
    """The threshold of each group; with costs its bound, and where it accepts nothing the rows that it would take."""
    columns = [
        Column(found.by or "rows", numeric=False),
        Column(f"{found.score} above"),
        Column("rows"),
        Column("accepted"),
        Column("95 % interval"),
        Column("errors"),
    ]
    needed = any(group.rows_needed is not None for group in found.groups.values())
    columns += [Column("cost at most")] if found.costs is not None else []
    columns += [Column("rows needed")] if needed else []
    rows = []
    for name, group in found.groups.items():
        text = {math.inf: "none accepted", -math.inf: "all accepted"}.get(group.value, f"{group.value:.6g}")
        errors, lacking = (MISSING if n is None else f"{n:,}" for n in (group.n_errors, group.rows_needed))
        rows.append(
            [
                Cell(name),
                number_cell(group.value, text),
                number_cell(group.n_rows, f"{group.n_rows:,}"),
                number_cell(group.share, percent(group.share)),
                Cell(percent_limits(group.share_interval())),
                number_cell(group.n_errors, errors),
                *([number_cell(group.bound, metric_text(group.bound))] if found.costs is not None else []),
                *([number_cell(group.rows_needed, lacking)] if needed else []),
            ]
        )
    kind = f"certified by {found.method}" if found.certified else "not certified"
    return Table(f"threshold of {found.score}, {kind}", columns, rows)


def check_summary(found: ThresholdCheck, threshold: Threshold) -> list[str]:
    """Whether the promise held, and whether the rows are such as it is for: a sentence each."""
    kinds = [row.verdict for row in found.rows]
    sentences = [] if threshold.certified else [NOT_CERTIFIED]
    if found.broken:
        names = join_words(shorten_list([_name(row.name, row.group) for row in found.broken]))
        why = "the adapted probabilities are not right for these rows."
        if threshold.certified:
            why = "these rows are not like those of validation, or this is one of the few draws for which it fails."
        sentences.append(f"The promise is broken for {names}: {why}")
    elif "undecided" in kinds:
        n_held = kinds.count("held")
        some = f"The promise held for {n_held} of {len(kinds)}; for the others there" if n_held else "There"
        sentences.append(f"{some} are too few rows to tell whether it held.")
    else:
        sentences.append("The promise held.")
    return [*sentences, *_shift_sentences(found)]


def _name(name: str, group: str | None) -> str:
    return name if group is None else f"{name} · {group}"


def _shift_sentences(found: ThresholdCheck) -> list[str]:
    shifted = {name: [TESTS[t.name] for t in tests if differs(t)] for name, tests in found.tests.items()}
    sentences = [
        f"{name} differs from validation in {join_words(what)}: nothing is promised for it."
        for name, what in shifted.items()
        if what
    ]
    if found.tests and not sentences:
        sentences.append("The shift tests find no difference from validation.")
    return sentences


def check_table(found: ThresholdCheck, threshold: Threshold) -> Table:
    """The error, or the cost, of each file and group, with the verdict."""
    what = "error of accepted" if threshold.costs is None else "cost per row"
    columns = [
        Column("predictions", numeric=False),
        *([Column(found.by, numeric=False)] if found.by is not None else []),
        Column("rows"),
        Column("accepted"),
        Column(what),
        Column("interval"),
        *([Column("promised")] if threshold.costs is not None else []),
        Column("promise", numeric=False),
    ]
    colours = {"held": "good", "broken": "bad", "undecided": "faint"}
    rows = [
        [
            Cell(row.name),
            *([Cell(row.group or "overall")] if found.by is not None else []),
            number_cell(row.n_rows, f"{row.n_rows:,}"),
            number_cell(row.n_accepted / max(1, row.n_rows), percent(row.n_accepted / max(1, row.n_rows))),
            number_cell(row.value, metric_text(row.value)),
            Cell(interval_text((row.low, row.high))),
            *([number_cell(row.bound, metric_text(row.bound))] if threshold.costs is not None else []),
            Cell(row.verdict, kind=colours[row.verdict]),
        ]
        for row in found.rows
    ]
    notes = [f"All intervals hold together with {level_text(found.confidence)} confidence."]
    if threshold.max_error is not None:
        notes.insert(0, f"Promised: an error of at most {percent(threshold.max_error)}.")
    return Table("did the promise hold?", columns, rows, notes)
