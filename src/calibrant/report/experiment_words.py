"""The findings and the progress of an experiment in sentences."""

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from calibrant.report.numbers import change_text, count, duration, format_range, join_words
from calibrant.report.paper import (
    BASELINE,
    data_headings,
    is_baseline,
    loss_headings,
    score_text,
)
from calibrant.report.scores import (
    ChartRecord,
    Score,
    ScoreKey,
    add_shift_levels,
    by_panel,
    mark_best,
    mean_records,
    select_rows,
    significantly_better,
)
from calibrant.report.style import loss_label, loss_sort_key, quantity_of

SUMMARY_METRICS = ("ece", "accuracy")
MAX_NAMES = 5  # more seeds or data sets are only counted


def findings(rows: pa.Table, found: Mapping[ScoreKey, Score], notes: Sequence[str] = ()) -> list[str]:
    """The runs, the best loss and whether the difference is significant, and the effect of the shift.

    Args:
        rows: The rows of the test sets that all runs have.
        found: The scores over the shifted test sets, or over the unshifted test set where none is shifted.
        notes: Notes on the test sets.
    """
    if not rows.num_rows:
        return ["No run is done yet."]
    sentences = [describe_runs(rows), *notes]
    shifted = bool(pc.any(rows["shifted"]).as_py())
    for metric in SUMMARY_METRICS:
        sentences += describe_best(metric, found, "shifted" if shifted else "unshifted")
    if not shifted:
        sentences.append("No test set is shifted: the experiment does not measure the effect of shift.")
    return [*sentences, *describe_shift(rows)]


def describe_runs(rows: pa.Table) -> str:
    """The numbers of runs, losses, seeds and test sets."""
    seeds = sorted(pc.unique(rows["seed"]).to_pylist())
    data = sorted(pc.unique(rows["data"]).to_pylist())
    tests = rows.group_by(["data", "split", "shifted"]).aggregate([])
    n_shifted = sum(tests["shifted"].to_pylist())
    data_text = join_words(data) if len(data) <= MAX_NAMES else count(len(data), "data set")
    seed_text = ("seed " if len(seeds) == 1 else "seeds ") + join_words(map(str, seeds))
    seed_text = seed_text if len(seeds) <= MAX_NAMES else count(len(seeds), "seed")
    n_runs, n_losses = (len(pc.unique(rows[name])) for name in ("run", "loss"))
    sizes = pc.unique(rows["n_rows"].drop_null()).to_pylist()
    size_text = f" of {' to '.join(f'{n:,}' for n in sorted({min(sizes), max(sizes)}))} rows" if sizes else ""
    what = f"{count(n_runs, 'run')}: {count(n_losses, 'loss', 'losses')} on {data_text}, {seed_text}"
    if len(tests) == 1:
        return f"{what}. 1 test set{size_text}, {'shifted' if n_shifted else 'unshifted'}."
    shifted = "all" if n_shifted == len(tests) else n_shifted or "none"
    each = " each" if size_text else ""
    return f"{what}. {count(len(tests), 'test set')}{size_text}{each}, {shifted} of them shifted."


def describe_best(metric: str, found: Mapping[ScoreKey, Score], tests: str) -> list[str]:
    """A sentence per data set on its best loss, the one that Table 1 marks."""
    own = [key for key in found if key.metric == metric and is_baseline(key)]
    data_sets, losses = data_headings(own, {}), loss_headings(own)
    sentences = []
    for data in data_sets:
        keys = {loss.label: ScoreKey(**data.fields, **loss.fields, **BASELINE, metric=metric) for loss in losses}
        scored = {label: found[key] for label, key in keys.items() if key in found and found[key].mean is not None}
        if scored:
            sentence = _describe_best_loss(metric, scored, tests)
            sentences.append(f"{data.label}: {sentence}" if len(data_sets) > 1 else sentence)
    return sentences


def _describe_best_loss(metric: str, scored: Mapping[str, Score], tests: str) -> str:
    """The sentence on one data set. scored: by the label of the loss."""
    higher = quantity_of(metric).higher_is_better
    marks = mark_best(list(scored.values()), higher_is_better=higher)
    best = [label for label, (is_best, _) in zip(scored, marks, strict=True) if is_best]
    first, *others = sorted(scored, key=lambda label: (-1 if higher else 1) * (scored[label].mean or 0.0))
    n_tests = scored[first].n_tests
    over = f"over the {n_tests:,} {tests} test sets" if n_tests > 1 else f"on the {tests} test set"
    name = f"mean {_name(metric)}" if n_tests > 1 else _name(metric)
    extreme = f"{'highest' if higher else 'lowest'} {name}"
    if not best:
        return f"{first} is the only loss with a score: its {name} {over} is {_score(scored[first], metric)}."
    if len(best) > 1:
        return f"{join_words(best)} have the {extreme} {over} ({_score(scored[first], metric)})."
    second = f"{others[0]} is next ({_score(scored[others[0]], metric)})"
    significance = _describe_significance(scored[first], {label: scored[label] for label in others}, higher)
    return f"{first} has the {extreme} {over} ({_score(scored[first], metric)}); {second}. {significance}"


def _describe_significance(best: Score, others: Mapping[str, Score], higher_is_better: bool) -> str:
    """The result of the paired t-tests of the best score against the others."""
    common = {label: len(best.per_seed.keys() & other.per_seed.keys()) for label, other in others.items()}
    tested = [label for label in others if common[label] >= 2]
    untested = [label for label in others if common[label] < 2]
    if not tested:
        seeds = "only one" if any(common.values()) else "no"
        return f"With {seeds} common seed, the difference cannot be tested for significance."
    noise = [
        label for label in tested if not significantly_better(best, others[label], higher_is_better=higher_is_better)
    ]
    labels, result = (noise, "not significant, within seed noise") if noise else (tested, "significant")
    if len(labels) == len(others) > 1:
        subject = "The difference from every other loss is"
    else:
        subject = (
            f"The difference{'s' * (len(labels) > 1)} from {join_words(labels)} {'are' if len(labels) > 1 else 'is'}"
        )
    seeds = format_range([common[label] for label in tested])
    text = f"{subject} {result} (paired t-test over {seeds} seeds, 5 % level)."
    return text + (f" {join_words(untested)}: not tested, fewer than two common seeds." if untested else "")


def _name(metric: str) -> str:
    """The name of a metric in a sentence."""
    heading = quantity_of(metric).heading
    return heading.lower() if heading.istitle() else heading


def _score(score: Score, metric: str) -> str:
    """For example "4.16 ± 0.03 %"."""
    return score_text(score, metric).replace("±", " ± ") + (" %" if quantity_of(metric).in_percent else "")


def describe_shift(rows: pa.Table) -> list[str]:
    """Accuracy and ECE of cross-entropy, or else of the first loss, on the unshifted and the most shifted test sets."""
    kept = add_shift_levels(select_rows(rows, metric=("accuracy", "ece")))
    with_severities = pc.unique(kept.filter(pc.greater(kept["severity"], 0))["panel"]).to_pylist()
    means = mean_records(kept, "panel", "loss", "shift_level", "metric")
    panels = by_panel(means)
    sentences = []
    for panel, own in panels.items():
        loss = min((record["loss"] for record in own), key=loss_sort_key)
        values = {(record["shift_level"], record["metric"]): record for record in own if record["loss"] == loss}
        sentence = _describe_change(loss_label(loss), values, has_severities=panel in with_severities)
        if sentence:
            sentences.append(f"{panel}: {sentence}" if len(panels) > 1 else sentence)
    return sentences


def _describe_change(label: str, means: Mapping[tuple[int, str], ChartRecord], *, has_severities: bool) -> str:
    """The sentence on one data set. means: by shift level and metric."""
    last = max(level for level, _ in means)
    metrics = [metric for metric in ("accuracy", "ece") if (0, metric) in means and (last, metric) in means]
    if last == 0 or not metrics:
        return ""
    subjects = [f"the {_name(metrics[0])} of {label}", *(f"its {_name(metric)}" for metric in metrics[1:])]
    changes = [change_text(means[0, metric]["mean"], means[last, metric]["mean"]) for metric in metrics]
    end = f"severity {last}" if has_severities else "the shifted test set"
    n_seeds = format_range([means[level, metric]["n_seeds"] for level in (0, last) for metric in metrics])
    seeds = "one seed" if n_seeds == "1" else f"mean over {n_seeds} seeds"
    effect = join_words(map(" ".join, zip(subjects, changes, strict=True)))
    return f"From the unshifted test set to {end}, {effect} ({seeds})."


def describe_progress(n_runs: int, n_done: int, n_started: int, seconds: float) -> str:
    """The number of runs that are done, remaining and started, and the total run time.

    >>> describe_progress(12, 9, 1, 0.0)
    '9 of 12 runs are done, 3 remaining (1 started).'
    """
    if not n_runs:
        return "The experiment has no runs."
    verb = "is" if 1 in (n_runs, n_done) else "are"
    done = f"{n_done} of {count(n_runs, 'run')} {verb} done"
    started = f" ({n_started} started)" if n_started else ""
    text = f"{done}, {n_runs - n_done} remaining{started}." if n_done < n_runs else f"{done}."
    if seconds:
        text += f" Total run time: {duration(seconds)}, summed over runs."
    return text


def describe_environments(environments: Mapping[str, Mapping[str, Any] | None], differing: Sequence[str]) -> list[str]:
    """Notes on environments that differ between runs or cannot be read."""
    notes = [f"The environments of the runs differ in {', '.join(differing)}."] if differing else []
    n_without = sum(found is None for found in environments.values())
    if n_without:
        verb = "has" if n_without == 1 else "have"
        notes.append(f"{n_without} of {count(len(environments), 'run')} {verb} no readable environment.json.")
    return notes
