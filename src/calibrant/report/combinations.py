"""Every combination of loss, variant, label smoothing and calibrator, relative to cross-entropy, best first."""

import math
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence

import pyarrow as pa

from calibrant._signatures import checked
from calibrant.errors import NoDataError
from calibrant.report.contrasts import Contrast, interval_notes, ratio_text, ratios_to_cross_entropy
from calibrant.report.numbers import MISSING, count
from calibrant.report.paper import CHANCE_NOTE, comparable_rows, data_headings, panel_of, shift_notes, table_scores
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
    best = _best(ratios, chance)
    found = sorted({key._replace(data="", model="", shift="", metric="") for key in ratios})
    if len(found) == 1:
        raise NoDataError("rows have no combination to compare with cross_entropy")

    def first_ece(one: ScoreKey) -> float:
        ratio = ratios.get(one._replace(**panels[0].fields, metric="ece"))
        return math.inf if ratio is None else ratio.value

    found.sort(key=first_ece)
    lines = []
    for one in found:
        calibrator = f" + {one.calibrator}" if one.calibrator != RAW else ""
        keys = [one._replace(**panel.fields, metric=metric) for panel in panels for metric in METRICS]
        cells = (_cell(key, ratios.get(key), best=key in best, at_chance=key in chance) for key in keys)
        lines.append([Cell(loss_label(one.loss, one.variant, one.label_smoothing) + calibrator), *cells])
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


def _best(ratios: Mapping[ScoreKey, Contrast], chance: Collection[ScoreKey]) -> set[ScoreKey]:
    """The lowest ECE on each data set, model and shift among those at least as accurate as cross-entropy."""
    eligible: dict[tuple[str, str, str], list[ScoreKey]] = defaultdict(list)
    for key in ratios:
        accuracy = ratios.get(key._replace(metric="accuracy"))
        if key.metric == "ece" and key not in chance and accuracy is not None and accuracy.value >= 1:
            eligible[panel_of(key)].append(key)
    return {min(keys, key=lambda key: ratios[key].value) for keys in eligible.values()}


def _cell(key: ScoreKey, ratio: Contrast | None, *, best: bool, at_chance: bool) -> Cell:
    text, values = (MISSING, (None,) * 3) if ratio is None else (ratio_text(ratio, key.metric), ratio[:3])
    facts = key._asdict() | dict(zip(("ratio", "ratio_low", "ratio_high"), values, strict=True))
    facts |= {"best": best, "at_chance": at_chance}
    return Cell(text, values[0], BEST if best else "", "§" * at_chance, facts)
