"""What an experiment has found, in sentences that say what its numbers say and no more."""

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import pyarrow as pa

from calibrant.errors import CalibrantError
from calibrant.report.experiment.measures import measure_of
from calibrant.report.experiment.progress import count
from calibrant.report.experiment.scores import is_shifted
from calibrant.report.figures.averages import Mean, chosen, run_means, shared_tests, step_of, unsmoothed
from calibrant.report.figures.look import percent
from calibrant.report.page import joined
from calibrant.report.palette import label_of, place_of
from calibrant.report.summary import Cell
from calibrant.report.tables import DATA_TITLES, Block, Entry, Table, span

TOLD = ("ece", "accuracy")  # the metrics whose best is told
MOST_NAMES = 5  # seeds and data sets are counted where there are more


def findings(rows: pa.Table, tables: Mapping[str, Table]) -> list[str]:
    """What was run, what is best and whether beyond chance, and what the shift does."""
    if not rows.num_rows:
        return ["No run is done yet, so that there is nothing to tell."]
    said = [what_was_run(rows)]
    for metric in TOLD:
        if metric in tables:
            said += who_leads(metric, tables[metric])
    if not is_shifted(rows):
        said.append("None of the tests is shifted, so that nothing can be said of shift.")
    return [*said, *what_shift_does(rows)]


def what_was_run(rows: pa.Table) -> str:
    seeds = sorted(rows["seed"].unique().to_pylist())
    data = sorted(rows["data"].unique().to_pylist())
    losses = rows["loss"].unique().to_pylist()
    tests = rows.select(["data", "split", "shifted"]).group_by(["data", "split", "shifted"]).aggregate([])
    n_shifted = sum(tests["shifted"].to_pylist())
    named = joined(data) if len(data) <= MOST_NAMES else count(len(data), "data set")
    which = ("seed " if len(seeds) == 1 else "seeds ") + joined(map(str, seeds))
    which = which if len(seeds) <= MOST_NAMES else count(len(seeds), "seed")
    what = f"{count(len(rows['run'].unique()), 'run')} of {count(len(losses), 'loss', 'losses')}"
    shifted = "all of them shifted" if n_shifted == len(tests) else f"{n_shifted or 'none'} of them shifted"
    return f"{what} on {named}, {which}; {count(len(tests), 'test')}{_sizes(rows)}, {shifted}."


def _sizes(rows: pa.Table) -> str:
    sizes = sorted(rows["n_rows"].drop_null().unique().to_pylist())
    if not sizes:
        return ""
    return f" of {sizes[0]:,}" + (f" to {sizes[-1]:,}" if len(sizes) > 1 else "") + " rows each"


class Rival(NamedTuple):
    """A loss and its score, as the table has them."""

    label: str
    entry: Entry
    cell: Cell
    mean: float


def who_leads(metric: str, table: Table) -> list[str]:
    """For each data set the best loss over the tests of the table, as it marks it."""
    (block,) = table.blocks
    found = []
    for at, group in enumerate(block.groups):
        said = _leader(metric, list(_rivals(block, at)), table.tests)
        found += [f"{group.title}: {said}" if len(block.groups) > 1 else said] if said else []
    return found


def _rivals(block: Block, at: int) -> Iterator[Rival]:
    """The losses of a column that have a score."""
    for line in block.lines:
        entry = line.entries[at]
        if entry.cell is not None and entry.cell.mean is not None:
            yield Rival(line.label, entry, entry.cell, entry.cell.mean)


def _leader(metric: str, scored: Sequence[Rival], tests: str) -> str:
    measure = measure_of(metric)
    sign = -1 if measure.higher_is_better else 1
    able = sorted((rival for rival in scored if rival.cell.complete), key=lambda rival: sign * rival.mean)
    best = [rival for rival in able if rival.entry.is_best]
    most = f"{'highest' if measure.higher_is_better else 'lowest'} {noun(metric)}"
    said = [_incomparable([rival.label for rival in scored if not rival.cell.complete])]
    if able:
        n_tests = able[0].cell.n_tests
        over = f"over the {n_tests:,} {tests} tests" if n_tests > 1 else f"over the {tests} test"
        if not best:
            said.insert(0, f"{able[0].label} alone can be judged {over}: its {noun(metric)} is {_score(able[0])}.")
        elif len(best) > 1:
            said.insert(0, f"{joined(r.label for r in best)} share the {most} {over}, {_score(best[0])}.")
        else:
            said.insert(0, f"{best[0].label} has the {most} {over}, {_score(best[0])}; {_margin(*able)}")
    return " ".join(filter(None, said))


def _incomparable(labels: Sequence[str]) -> str:
    if not labels:
        return ""
    return f"{joined(labels)} lack{'s' if len(labels) == 1 else ''} some of the tests and cannot be compared."


def noun(metric: str) -> str:
    """What a sentence calls a metric."""
    heading = measure_of(metric).heading
    return heading.lower() if heading.istitle() else heading


def _score(rival: Rival) -> str:
    """As 4.16±0.03 %."""
    unit = " %" if measure_of(rival.entry.key.metric).in_percent else ""
    return f"{rival.entry.text}{unit}"


def _margin(best: Rival, *others: Rival) -> str:
    next_best = f"{others[0].label} is next with {_score(others[0])}"
    n_seeds = [len(best.cell.per_seed.keys() & other.cell.per_seed.keys()) for other in others]
    if max(n_seeds) < 2:
        known = "one seed" if max(n_seeds) else "no seed in common"
        return f"{next_best}. With {known}, nothing can be said of chance."
    if min(n_seeds) < 2:
        few = joined(other.label for other, n in zip(others, n_seeds, strict=True) if n < 2)
        return (
            f"{next_best}. With fewer than two seeds in common with {few}, the lead over all others cannot be tested."
        )
    lead = "the lead over all others" if len(others) > 1 else "the lead"
    verb = "is" if best.entry.is_significant else "is not"
    return f"{next_best}, and {lead} {verb} beyond the chance of seeds (paired t-test over {span(n_seeds)} seeds, 5 %)."


def what_shift_does(rows: pa.Table) -> list[str]:
    """Accuracy and ECE of cross-entropy, or else of the first loss, from the unshifted to the hardest test."""
    try:
        kept = unsmoothed(chosen(rows, metric=("accuracy", "ece")))
    except CalibrantError:
        return []
    tests, note = shared_tests({**row, "step": step_of(row)} for row in kept)
    graded = {row["panel"] for row in tests if row["severity"] > 0}
    means = run_means(tests, "panel", "loss", "step", "metric")
    found = []
    for panel in dict.fromkeys(key[0] for key in means):
        loss = min((key[1] for key in means if key[0] == panel), key=place_of)
        own = {key[2:]: mean for key, mean in means.items() if key[:2] == (panel, loss)}
        said = _change(label_of(loss), own, graded=panel in graded)
        several = len({key[0] for key in means}) > 1
        found += [f"{DATA_TITLES.get(panel, panel)}: {said}" if several else said] if said else []
    return [*found, f"What the shift does is told of fewer tests ({note})."] if found and note else found


def _change(label: str, means: Mapping[tuple[int, str], Mean], *, graded: bool) -> str:
    steps = sorted({step for step, _ in means})
    if len(steps) < 2 or steps[0] != 0:
        return ""
    last = steps[-1]
    found = [metric for metric in ("accuracy", "ece") if (0, metric) in means and (last, metric) in means]
    owners = [f"the {noun(metric)} of {label}" if metric == found[0] else f"its {noun(metric)}" for metric in found]
    parts = [
        f"{owner} {_moved(means[0, metric].mean, means[last, metric].mean)}"
        for owner, metric in zip(owners, found, strict=True)
    ]
    where = f"severity {last}" if graded else "the shifted test"
    return f"From the unshifted test to {where}, {joined(parts)}." if parts else ""


def _moved(before: float, after: float) -> str:
    """As falls from 85.2 % to 79.0 %.

    >>> _moved(0.852, 0.79), _moved(0.05, 0.05000001)
    ('falls from 85.2 % to 79.0 %', 'stays at 5.00 %')
    """
    if percent(before) == percent(after):
        return f"stays at {percent(after)}"
    return f"{'rises' if after > before else 'falls'} from {percent(before)} to {percent(after)}"
