"""Every combination of loss, variant, label smoothing and calibrator, relative to cross-entropy, best first."""

import math
from collections.abc import Sequence

import pyarrow as pa

from calibrant._signatures import checked
from calibrant.errors import NoDataError
from calibrant.report.contrasts import interval_notes, ratio_text, ratios_to_cross_entropy
from calibrant.report.numbers import MISSING, count
from calibrant.report.paper import CHANCE_NOTE, TableHeading, comparable_rows, data_headings, shift_notes, table_scores
from calibrant.report.scores import ScoreKey
from calibrant.report.style import loss_label, quantity_of
from calibrant.report.table import BEST, Cell, Column, Table
from calibrant.runs import RAW

METRICS = ("ece", "accuracy")


@checked
def make_combinations(rows: pa.Table, *, data: Sequence[str] | None = None) -> Table:
    """Every combination of the runs and calibrators of an experiment, by its ECE relative to cross-entropy.

    Args:
        rows: The rows of the experiment, as `ExperimentFolder.read_rows` returns them.
        data: The data sets to show, by default all.

    Returns:
        A row per combination, with the ratios of ECE and accuracy under shift to those of cross-entropy without a
        calibrator, sorted by ECE on the first data set; `render` formats it.

    Raises:
        NoDataError: There is no run of cross-entropy, or nothing to compare with it.
        UnknownNameError: A data set is unknown.
    """
    shared, notes = comparable_rows(rows, data)
    ratios = ratios_to_cross_entropy(shared, METRICS)
    chance = {key for key, score in table_scores(shared, METRICS).items() if score.at_chance}
    panels = data_headings(ratios)

    def ece(panel: TableHeading, combination: ScoreKey) -> float:
        ratio = ratios.get(combination._replace(**panel.fields, metric="ece"))
        return math.inf if ratio is None else ratio.value

    def is_eligible(panel: TableHeading, combination: ScoreKey) -> bool:
        accuracy = ratios.get(combination._replace(**panel.fields, metric="accuracy"))
        keeps = accuracy is not None and accuracy.value >= 1
        return keeps and combination._replace(**panel.fields, metric="ece") not in chance

    found = sorted({key._replace(data="", model="", shift="", metric="") for key in ratios})
    if len(found) == 1:
        raise NoDataError("rows have no combination to compare with cross_entropy")
    found.sort(key=lambda combination: ece(panels[0], combination))
    best = set()
    for panel in panels:
        eligible = [one for one in found if is_eligible(panel, one)]
        if eligible:
            lowest = min(eligible, key=lambda one: ece(panel, one))
            best.add(lowest._replace(**panel.fields, metric="ece"))
    lines = []
    for one in found:
        calibrator = f" + {one.calibrator}" if one.calibrator != RAW else ""
        lines.append([Cell(loss_label(one.loss, one.variant, one.label_smoothing) + calibrator)])
        for key in (one._replace(**panel.fields, metric=metric) for panel in panels for metric in METRICS):
            ratio = ratios.get(key)
            text, values = (MISSING, (None,) * 3) if ratio is None else (ratio_text(ratio, key.metric), ratio[:3])
            facts = key._asdict() | dict(zip(("ratio", "ratio_low", "ratio_high"), values, strict=True))
            facts |= {"best": key in best, "at_chance": key in chance}
            lines[-1].append(Cell(text, values[0], BEST if key in best else "", "§" * (key in chance), facts))
    columns = [Column(quantity_of(metric).heading, group=panel.label) for panel in panels for metric in METRICS]
    first = (
        f"{count(len(found), 'combination')}, sorted by ECE on {panels[0].label}. The best of many is also the "
        "luckiest: expect its ratio to be nearer to 1 elsewhere."
    )
    return Table(
        "Combinations under shift, relative to cross-entropy",
        [Column("Combination", numeric=False), *columns],
        lines,
        [
            first,
            *interval_notes(list(ratios.values()), ratios),
            *notes,
            *shift_notes(ratios),
            *[CHANCE_NOTE] * bool(chance),
        ],
        best="column, of those that are at least as accurate as cross-entropy",
    )
