"""What an experiment has found and how far it is, in sentences that say what its numbers say and no more."""

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from calibrant.report.numbers import change, count, duration, format_range, join_words
from calibrant.report.paper import DATA_TITLES, PLAIN, data_headings, is_plain, loss_headings, score_text
from calibrant.report.scores import Score, ScoreKey, add_shift_levels, mark_best, mean_records, panel_names, select_rows
from calibrant.report.style import loss_label, loss_sort_key, quantity_of

SUMMARY_METRICS = ("ece", "accuracy")  # the metrics whose best is told
MAX_NAMES = 5  # seeds and data sets are counted where there are more


def findings(rows: pa.Table, found: Mapping[ScoreKey, Score], notes: Sequence[str] = ()) -> list[str]:
    """What was run, what is best and whether beyond chance, and what the shift does.

    Args:
        rows: Of the tests that all runs have.
        found: The scores over the shifted tests, or over the unshifted one where none is shifted.
        notes: What the reader must know of the tests.
    """
    if not rows.num_rows:
        return ["No run is done yet, so that there is nothing to tell."]
    said = [describe_runs(rows), *notes]
    shifted = bool(pc.any(rows["shifted"]).as_py())
    for metric in SUMMARY_METRICS:
        said += describe_best(metric, found, "shifted" if shifted else "unshifted")
    if not shifted:
        said.append("None of the tests is shifted, so that nothing can be said of shift.")
    return [*said, *describe_shift(rows)]


def describe_runs(rows: pa.Table) -> str:
    seeds = sorted(pc.unique(rows["seed"]).to_pylist())
    data = sorted(pc.unique(rows["data"]).to_pylist())
    tests = rows.group_by(["data", "split", "shifted"]).aggregate([])
    n_shifted = sum(tests["shifted"].to_pylist())
    named = join_words(data) if len(data) <= MAX_NAMES else count(len(data), "data set")
    which = ("seed " if len(seeds) == 1 else "seeds ") + join_words(map(str, seeds))
    which = which if len(seeds) <= MAX_NAMES else count(len(seeds), "seed")
    n_runs, n_losses = (len(pc.unique(rows[name])) for name in ("run", "loss"))
    shifted = "all of them shifted" if n_shifted == len(tests) else f"{n_shifted or 'none'} of them shifted"
    what = f"{count(n_runs, 'run')} of {count(n_losses, 'loss', 'losses')} on {named}, {which}"
    return f"{what}; {count(len(tests), 'test')}{_sizes(rows)}, {shifted}."


def _sizes(rows: pa.Table) -> str:
    sizes = sorted(pc.unique(rows["n_rows"].drop_null()).to_pylist())
    if not sizes:
        return ""
    return f" of {sizes[0]:,}" + (f" to {sizes[-1]:,}" if len(sizes) > 1 else "") + " rows each"


def describe_best(metric: str, found: Mapping[ScoreKey, Score], tests: str) -> list[str]:
    """For each data set the best loss, as Table 1 marks it."""
    plain = [key for key in found if key.metric == metric and is_plain(key)]
    places, losses = data_headings(plain), loss_headings(plain)
    sentences = []
    for place in places:
        keys = {loss.label: ScoreKey(**place.part, **loss.part, **PLAIN, metric=metric) for loss in losses}
        scored = {label: found[key] for label, key in keys.items() if key in found and found[key].mean is not None}
        said = _leader(metric, scored, tests)
        sentences += [f"{place.label}: {said}" if len(places) > 1 else said] if said else []
    return sentences


def _leader(metric: str, scored: Mapping[str, Score], tests: str) -> str:
    """The sentence on one data set. scored: by the label of the loss, those that have a score."""
    if not scored:
        return ""
    higher = quantity_of(metric).higher_is_better
    ranks = dict(zip(scored, mark_best(list(scored.values()), higher_is_better=higher), strict=True))
    order = sorted(scored, key=lambda label: (-1 if higher else 1) * (scored[label].mean or 0.0))
    best = [label for label in scored if ranks[label][0]]
    n_tests = scored[order[0]].n_tests
    over = f"over the {n_tests:,} {tests} tests" if n_tests > 1 else f"over the {tests} test"
    most = f"{'highest' if higher else 'lowest'} {noun(metric)}"
    first = _score(scored[order[0]], metric)
    if not best:
        return f"{order[0]} alone can be judged {over}: its {noun(metric)} is {first}."
    if len(best) > 1:
        return f"{join_words(best)} share the {most} {over}, {first}."
    next_best = f"{order[1]} is next with {_score(scored[order[1]], metric)}"
    margin = _margin({label: scored[label] for label in order}, significant=ranks[order[0]][1])
    return f"{order[0]} has the {most} {over}, {first}; {next_best}{margin}"


def noun(metric: str) -> str:
    """What a sentence calls a metric."""
    heading = quantity_of(metric).heading
    return heading.lower() if heading.istitle() else heading


def _score(score: Score, metric: str) -> str:
    """As 4.16±0.03 %."""
    return f"{score_text(score, metric)}{' %' if quantity_of(metric).in_percent else ''}"


def _margin(ranked: Mapping[str, Score], *, significant: bool) -> str:
    """Whether the lead of the first over all others is beyond chance, where that can be said."""
    (_, best), *others = ranked.items()
    n_seeds = [len(best.per_seed.keys() & other.per_seed.keys()) for _, other in others]
    if max(n_seeds) < 2:
        known = "one seed" if max(n_seeds) else "no seed in common"
        return f". With {known}, nothing can be said of chance."
    if min(n_seeds) < 2:
        few = join_words(label for (label, _), n in zip(others, n_seeds, strict=True) if n < 2)
        return f". With fewer than two seeds in common with {few}, the lead over all others cannot be tested."
    lead = "the lead over all others" if len(others) > 1 else "the lead"
    verb = "is" if significant else "is not"
    return f", and {lead} {verb} beyond the chance of seeds (paired t-test over {format_range(n_seeds)} seeds, 5 %)."


def describe_shift(rows: pa.Table) -> list[str]:
    """Accuracy and ECE of cross-entropy, or else of the first loss, from the unshifted to the hardest test."""
    kept = add_shift_levels(select_rows(rows, metric=("accuracy", "ece")))
    graded = pc.unique(kept.filter(pc.greater(kept["severity"], 0))["panel"]).to_pylist()
    means = mean_records(kept, "panel", "loss", "step", "metric")
    panels = panel_names(means)
    found = []
    for panel in panels:
        own = [record for record in means if record["panel"] == panel]
        loss = min((record["loss"] for record in own), key=loss_sort_key)
        values = {(record["step"], record["metric"]): record["mean"] for record in own if record["loss"] == loss}
        said = _change(loss_label(loss), values, graded=panel in graded)
        found += [f"{DATA_TITLES.get(panel, panel)}: {said}" if len(panels) > 1 else said] if said else []
    return found


def _change(label: str, means: Mapping[tuple[int, str], float], *, graded: bool) -> str:
    steps = sorted({step for step, _ in means})
    if len(steps) < 2:
        return ""
    last = steps[-1]
    found = [metric for metric in ("accuracy", "ece") if (0, metric) in means and (last, metric) in means]
    owners = [f"the {noun(metric)} of {label}" if metric == found[0] else f"its {noun(metric)}" for metric in found]
    parts = [
        f"{owner} {change(means[0, metric], means[last, metric])}" for owner, metric in zip(owners, found, strict=True)
    ]
    where = f"severity {last}" if graded else "the shifted test"
    return f"From the unshifted test to {where}, {join_words(parts)}." if parts else ""


def describe_progress(n_runs: int, n_done: int, n_begun: int, seconds: float) -> str:
    """How far the experiment is, in a sentence or two.

    >>> describe_progress(12, 9, 1, 0.0)
    '9 of 12 runs are done, 3 left (1 begun).'
    """
    if not n_runs:
        return "The experiment names no run."
    verb = "is" if 1 in (n_runs, n_done) else "are"
    done = f"{n_done} of {count(n_runs, 'run')} {verb} done"
    begun = f" ({n_begun} begun)" if n_begun else ""
    said = f"{done}, {n_runs - n_done} left{begun}." if n_done < n_runs else f"{done}."
    if seconds:
        said += f" The runs took {duration(seconds)} in all, added up where several ran at a time."
    return said


def describe_environments(environments: Mapping[str, Mapping[str, Any] | None], differing: Sequence[str]) -> list[str]:
    """What the reader must know of what the runs were made with."""
    notes = [f"The runs differ in {', '.join(differing)}: compare them with care."] if differing else []
    n_without = sum(found is None for found in environments.values())
    if n_without:
        verb = "has" if n_without == 1 else "have"
        notes.append(f"{count(n_without, 'run')} of {len(environments)} {verb} no environment.json that can be read.")
    return notes
