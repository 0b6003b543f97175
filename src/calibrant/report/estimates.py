"""Estimates without labels in words and tables."""

from calibrant.calibrators.maps import MIN_SET_ROWS
from calibrant.estimates import Estimate, Quantity, ShiftTest
from calibrant.report.numbers import (
    MISSING,
    count,
    interval_text,
    join_words,
    level_text,
    metric_text,
    p_value_text,
    percent,
    percent_limits,
    points,
    shorten_list,
)
from calibrant.report.table import Cell, Column, Table, number_cell

SMALL_EFFECT = 0.1
UNLIKE = "It is unlike everything the estimator was fitted to: do not rely on these numbers."
UNSHIFTED = "The reference has no shifted sets: the intervals hold only if nothing but the frequency of inputs changed."
QUANTITIES = {
    "accuracy": "accuracy",
    "gap": "confidence − accuracy",
    "ece": "calibration error",
    "ece_after": "calibration error after adaptation",
    "temperature": "temperature of the adaptation",
}
TESTS = {
    "confidence": "confidence",
    "entropy": "entropy",
    "class_mix": "predicted classes",
    "features": "features",
}


def summary(found: Estimate) -> list[str]:
    """What was found, and how far it is to be believed: a sentence each."""
    limits = percent_limits((found.accuracy.low, found.accuracy.high))
    direction = "overconfident" if found.gap.value > 0 else "underconfident"
    certain = found.gap.low > 0 or found.gap.high < 0
    sentences = [
        f"The estimated accuracy is {percent(found.accuracy.value)} ({level_text(found.level)} interval {limits}).",
        f"The mean confidence is {percent(found.confidence)}: the predictions are {'' if certain else 'perhaps '}"
        f"{direction} by {points(abs(found.gap.value))} percentage points.",
        resemblance(found),
        reservation(found),
    ]
    if found.labels_ignored:
        sentences.append("The labels of the target were not used.")
    return [sentence for sentence in sentences if sentence]


def resemblance(found: Estimate) -> str:
    """Whether the target looks like the reference."""
    if not found.tests:
        return ""
    clear = [TESTS[test.name] for test in found.tests if differs(test)]
    if not clear:
        return "The target looks like the reference."
    strong = max(test.effect for test in found.tests if differs(test)) >= SMALL_EFFECT
    return f"The target differs from the reference in {join_words(clear)}{'' if strong else ', but little'}."


def differs(test: ShiftTest) -> bool:
    return test.p_value < 0.05


def reservation(found: Estimate) -> str:
    """Under which condition the interval holds."""
    if found.unlike:
        return UNLIKE
    if not found.shifts:
        return UNSHIFTED
    return (
        f"The intervals include the error on {count(len(found.shifts), 'type')} of shift, each left out of the fit. "
        "They take the target for one kind of shift (a mixture looks more accurate than it is: divide it with --by) "
        "and cannot include a change of what the labels mean."
    )


def tables(found: Estimate) -> list[Table]:
    """All tables that have rows."""
    parts = [estimate_table(found), tests_table(found), recall_table(found), groups_table(found)]
    return [table for table in parts if table.rows]


def estimate_table(found: Estimate) -> Table:
    """The quantities with intervals."""
    rows = [[Cell("confidence"), Cell(metric_text(found.confidence)), Cell(MISSING)]]
    for name, title in QUANTITIES.items():
        quantity = getattr(found, name)
        if quantity is not None:
            rows.append([Cell(title), *_cells(quantity)])
    columns = [Column("quantity", numeric=False), Column("estimate"), Column(f"{level_text(found.level)} interval")]
    return Table(f"{found.method}: {count(found.n_rows, 'row')} without labels", columns, rows)


def tests_table(found: Estimate) -> Table:
    """The shift tests; the effect first."""
    columns = [Column("difference in", numeric=False), Column("effect"), Column("of chance"), Column("p-value")]
    rows = [
        [
            Cell(TESTS[test.name]),
            number_cell(test.effect, metric_text(test.effect)),
            number_cell(test.noise_floor, metric_text(test.noise_floor)),
            number_cell(test.p_value, p_value_text(test.p_value)),
        ]
        for test in found.tests
    ]
    notes = ["Effect: from 0 (the same) to 1 (nothing in common). Of chance: the mean effect if nothing differs."]
    return Table("target and reference", columns, rows, notes)


def recall_table(found: Estimate) -> Table:
    """The estimated recall of each class."""
    names = found.class_names or tuple(map(str, range(len(found.recall))))
    columns = [Column("class", numeric=False), Column("recall"), Column(f"{level_text(found.level)} interval")]
    rows = [
        [Cell(name), *(_cells(quantity) if quantity else (Cell(MISSING), Cell(MISSING)))]
        for name, quantity in zip(names, found.recall, strict=True)
    ]
    return Table("estimated recall", columns, rows)


def groups_table(found: Estimate) -> Table:
    """The accuracy of each group, the least first."""
    columns = [
        Column(found.by or "", numeric=False),
        Column("rows"),
        Column("accuracy"),
        Column(f"{level_text(found.level)} interval"),
        Column("confidence − accuracy"),
    ]
    rows = [
        [
            Cell(name),
            number_cell(group.n_rows, f"{group.n_rows:,}"),
            *_cells(group.accuracy),
            number_cell(group.gap.value, metric_text(group.gap.value, "+"), "bad" if group.unlike else ""),
        ]
        for name, group in sorted(found.groups.items(), key=lambda item: item[1].accuracy.value)
    ]
    unlike = [name for name, group in found.groups.items() if group.unlike]
    notes = [f"Unlike everything the estimator was fitted to: {join_words(unlike)}."] if unlike else []
    if found.small_groups:
        notes.append(f"Fewer than {MIN_SET_ROWS} rows: {join_words(shorten_list(found.small_groups))}.")
    return Table(f"by {found.by}", columns, rows, notes)


def _cells(quantity: Quantity) -> tuple[Cell, Cell]:
    value, low, high = quantity
    return number_cell(value, metric_text(value)), Cell(interval_text((low, high)))
