"""The findings and the progress of an experiment in sentences."""

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from calibrant.report.numbers import MISSING, count, duration, format_range, join_words, percent
from calibrant.report.paper import (
    BASELINE,
    NO_SCORE,
    data_headings,
    is_baseline,
    loss_headings,
    score_text,
    table_scores,
)
from calibrant.report.scores import (
    Score,
    ScoreKey,
    mark_best,
    scores,
    select_rows,
    significantly_better,
    why_untested,
)
from calibrant.report.style import loss_label, loss_sort_key, quantity_of

SUMMARY_METRICS = ("ece", "accuracy")
REFERENCE = loss_label("cross_entropy")  # whose scores stand beside those of the best loss
MAX_NAMES = 5  # more seeds or data sets are only counted


def findings(rows: pa.Table, found: Mapping[ScoreKey, Score], notes: Sequence[str] = ()) -> list[str]:
    """The runs, the best loss, what it costs and whether the difference is significant, and the effect of the shift.

    Args:
        rows: The rows of the test sets that all runs have.
        found: The scores over the shifted test sets, or over the unshifted test set where none is shifted.
        notes: Notes on the test sets.
    """
    if not rows.num_rows:
        return ["No run is done yet."]
    shifted = bool(pc.any(rows["shifted"]).as_py())
    unshifted = table_scores(rows, SUMMARY_METRICS, shifted=False) if shifted else {}
    sentences = [describe_runs(rows), *notes, *describe_chance(found)]
    for metric in SUMMARY_METRICS:
        sentences += describe_best(metric, found, unshifted, "shifted" if shifted else "unshifted")
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
    errors = " ± is the standard error over seeds." if len(seeds) > 1 else ""
    if len(tests) == 1:
        return f"{what}. 1 test set{size_text}, {'shifted' if n_shifted else 'unshifted'}.{errors}"
    shifted = "all" if n_shifted == len(tests) else n_shifted or "none"
    each = " each" if size_text else ""
    return f"{what}. {count(len(tests), 'test set')}{size_text}{each}, {shifted} of them shifted.{errors}"


def describe_chance(found: Mapping[ScoreKey, Score]) -> list[str]:
    """A sentence per data set on the losses whose ECE is not compared, because a constant prediction is as accurate."""
    own = [key for key, score in found.items() if key.metric == "ece" and is_baseline(key) and score.at_chance]
    sentences = []
    for data in data_headings(own, {}):
        accuracies = {
            loss.label: min(found[key._replace(metric="accuracy")].per_seed.values())
            for loss in loss_headings(own)
            if (key := ScoreKey(**data.fields, **loss.fields, **BASELINE, metric="ece")) in own
        }
        texts = join_words(f"{label} ({percent(accuracy)})" for label, accuracy in accuracies.items())
        sentences.append(
            f"{data.label}: the ECE of these losses is not compared, because the accuracy of a run is at chance, "
            "within three standard errors of that of always predicting the most frequent class, which can be well "
            f"calibrated: {texts}."
        )
    return sentences


def describe_best(
    metric: str, found: Mapping[ScoreKey, Score], unshifted: Mapping[ScoreKey, Score], tests: str
) -> list[str]:
    """A sentence per data set on its best loss, the one that Table 1 marks.

    Args:
        metric: "ece" or "accuracy".
        found: The scores to compare.
        unshifted: The scores on the unshifted test set, where ``found`` has those on shifted ones.
        tests: "shifted" or "unshifted".
    """
    own = [key for key in found if key.metric == metric and is_baseline(key) and not found[key].at_chance]
    data_sets, losses = data_headings(own, {}), loss_headings(own)
    sentences = []
    for data in data_sets:
        keys = {loss.label: ScoreKey(**data.fields, **loss.fields, **BASELINE, metric=metric) for loss in losses}
        keys = {label: key for label, key in keys.items() if key in own and found[key].mean is not None}
        if keys:
            sentence = _describe_best_loss(metric, keys, found, unshifted, tests)
            sentences.append(f"{data.label}: {sentence}" if len(data_sets) > 1 else sentence)
    return sentences


def _describe_best_loss(
    metric: str,
    keys: Mapping[str, ScoreKey],
    found: Mapping[ScoreKey, Score],
    unshifted: Mapping[ScoreKey, Score],
    tests: str,
) -> str:
    """The sentence on one data set. keys: of the losses to compare, by label."""
    scored = {label: found[key] for label, key in keys.items()}
    higher = quantity_of(metric).higher_is_better
    marks = mark_best(list(scored.values()), higher_is_better=higher)
    best = [label for label, (is_best, _) in zip(scored, marks, strict=True) if is_best]
    first, *others = sorted(scored, key=lambda label: (-1 if higher else 1) * (scored[label].mean or 0.0))
    n_tests = scored[first].n_tests
    over = f"over the {n_tests:,} {tests} test sets" if n_tests > 1 else f"on the {tests} test set"
    name = f"mean {_name(metric)}" if n_tests > 1 else _name(metric)
    extreme = f"{'highest' if higher else 'lowest'} {name}"
    if not best:
        return f"The {name} of {first} {over} is {_score(scored[first], metric)}."
    if len(best) > 1:
        return f"{join_words(best)} have the {extreme} {over} ({_score(scored[first], metric)})."
    reference = REFERENCE if REFERENCE in others else others[0]
    pair = keys[first], keys[reference]
    accuracy = "" if metric == "accuracy" else _pair_text(found, pair, "accuracy", reference)
    before = _pair_text(unshifted, pair, metric, reference)
    costs = [f"an accuracy of {accuracy}"] if accuracy else []
    costs += [f"an {_name(metric)} of {before} on the unshifted test set"] if before else []
    with_costs = f", with {join_words(costs)}" if costs else ""
    second = f"{others[0]} is next ({_score(scored[others[0]], metric)})"
    significance = _describe_significance(scored[first], {label: scored[label] for label in others}, higher)
    return f"{first} has the {extreme} {over} ({_score(scored[first], metric)}){with_costs}; {second}. {significance}"


def _pair_text(found: Mapping[ScoreKey, Score], pair: Sequence[ScoreKey], metric: str, reference: str) -> str:
    """Another score of the best loss and of the reference, as "82.3 % (CE: 82.5 %)"; empty where one has none."""
    texts = [_score(found.get(key._replace(metric=metric), NO_SCORE), metric) for key in pair]
    return "" if any(text.startswith(MISSING) for text in texts) else f"{texts[0]} ({reference}: {texts[1]})"


def _describe_significance(best: Score, others: Mapping[str, Score], higher_is_better: bool) -> str:
    """The result of the tests of the best score against the others."""
    reasons = {label: why_untested(best, other) for label, other in others.items()}
    tested = [label for label in others if not reasons[label]]
    untested = [label for label in others if reasons[label]]
    why = join_words(dict.fromkeys(filter(None, reasons.values()))) if untested else ""
    if not tested:
        return f"Whether the difference is significant cannot be tested: {why}."
    noise = [
        label for label in tested if not significantly_better(best, others[label], higher_is_better=higher_is_better)
    ]
    labels, result = (noise, "not significant") if noise else (tested, "significant")
    if len(labels) == len(others) > 1:
        subject = "The difference from every other loss is"
    else:
        subject = (
            f"The difference{'s' * (len(labels) > 1)} from {join_words(labels)} {'are' if len(labels) > 1 else 'is'}"
        )
    seeds = format_range([len(best.per_seed.keys() & others[label].per_seed.keys()) for label in tested])
    text = f"{subject} {result} (5 % level, noise of {seeds} seeds and of the test rows)."
    return text + (f" {join_words(untested)}: not tested, {why}." if untested else "")


def _name(metric: str) -> str:
    """The name of a metric in a sentence."""
    heading = quantity_of(metric).heading
    return heading.lower() if heading.istitle() else heading


def _score(score: Score, metric: str) -> str:
    """For example "4.16 ± 0.03 %"."""
    return score_text(score, metric).replace("±", " ± ") + (" %" if quantity_of(metric).in_percent else "")


def describe_shift(rows: pa.Table) -> list[str]:
    """Accuracy and ECE of cross-entropy, or else of the first loss, on the unshifted and the most shifted test sets."""
    kept = select_rows(rows, metric=SUMMARY_METRICS)
    panels = sorted(pc.unique(kept["panel"]).to_pylist())
    sentences = []
    for panel in panels:
        own = kept.filter(pc.equal(kept["panel"], panel))
        loss = min(pc.unique(own["loss"]).to_pylist(), key=loss_sort_key)
        own = own.filter(pc.equal(own["loss"], loss))
        shifted = own.filter(pc.and_(own["shifted"], pc.equal(own["severity"], pc.max(own["severity"]))))
        sentence = _describe_change(loss_label(loss), own.filter(pc.invert(own["shifted"])), shifted)
        if sentence:
            sentences.append(f"{panel}: {sentence}" if len(panels) > 1 else sentence)
    return sentences


def _describe_change(label: str, unshifted: pa.Table, shifted: pa.Table) -> str:
    """The sentence on one data set, from the rows of one loss."""
    before, after = ({key[0]: score for key, score in scores(part, "metric").items()} for part in (unshifted, shifted))
    texts = [
        f"{_name(metric)} {_score(before[metric], metric)} and {_score(after[metric], metric)}"
        for metric in ("accuracy", "ece")
        if metric in before and metric in after and None not in (before[metric].mean, after[metric].mean)
    ]
    if not texts:
        return ""
    severity = shifted["severity"][0].as_py()
    corruptions = [name.replace("_", " ") for name in pc.unique(shifted["corruption"]).to_pylist()]
    mean = "on average " if len(corruptions) > 1 else ""
    if severity:
        names = join_words(corruptions) if len(corruptions) <= MAX_NAMES else count(len(corruptions), "corruption")
        where = f"{mean}under {names} at severity {severity}"
    else:
        where = f"{mean}on the {count(len(corruptions), 'shifted test set')}" if mean else "on the shifted test set"
    return f"{label} on the unshifted test set and {where}: {', '.join(texts)}."


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
