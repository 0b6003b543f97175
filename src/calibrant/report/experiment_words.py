"""The findings and the progress of an experiment in sentences."""

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from calibrant.experiments.folder import RAW, run_keys
from calibrant.report.numbers import count, duration, format_range, join_words, percent, points, points_limits
from calibrant.report.paper import (
    BASELINE,
    NO_SCORE,
    Scores,
    data_headings,
    is_baseline,
    loss_headings,
    score_text,
    table_scores,
)
from calibrant.report.scores import (
    Score,
    ScoreKey,
    difference,
    mark_best,
    panel_titles,
    scores,
    select_rows,
    shared_tests,
    significantly_better,
    why_untested,
)
from calibrant.report.style import loss_label, loss_sort_key, quantity_of
from calibrant.runs import split_variant

SUMMARY_METRICS = ("ece", "accuracy")
REFERENCE = loss_label("cross_entropy")  # whose scores stand beside those of the best loss
MAX_NAMES = 5  # more seeds or data sets are only counted


def findings(rows: pa.Table, found: Scores, notes: Sequence[str] = ()) -> list[str]:
    """The effect of the shift, the best losses with their costs, what calibrators and ensembles do, and the runs.

    Args:
        rows: The rows of the test sets that all runs have.
        found: The scores over the shifted test sets, or over the unshifted test set where none is shifted.
        notes: Notes on the test sets.
    """
    if not rows.num_rows:
        return ["No run is done yet."]
    unshifted = _unshifted_scores(rows)
    sentences = [
        *_headlines(rows, found, unshifted),
        *describe_best("accuracy", found, unshifted),
        *describe_ensembles(found),
    ]
    if unshifted is None:
        sentences.append("No test set is shifted: the experiment does not measure the effect of shift.")
    return [*sentences, *describe_chance(found), *notes, describe_runs(rows)]


def headlines(rows: pa.Table) -> list[str]:
    """The first findings of each data set: the effect of the shift, the best loss with its costs, the best calibrator.

    Args:
        rows: The rows of an experiment.
    """
    shared, _ = shared_tests(rows)
    unshifted = _unshifted_scores(shared)
    return _headlines(shared, table_scores(shared, SUMMARY_METRICS, shifted=unshifted is not None), unshifted)


def _headlines(rows: pa.Table, found: Scores, unshifted: Scores | None) -> list[str]:
    best = describe_best("ece", found, unshifted)
    return [*describe_shift(rows, found), *best, *describe_calibrators(found, unshifted)]


def _unshifted_scores(rows: pa.Table) -> Scores | None:
    """The scores on the unshifted test set, to stand beside those under shift; None where no test set is shifted."""
    return table_scores(rows, SUMMARY_METRICS, shifted=False) if pc.any(rows["shifted"]).as_py() else None


def describe_runs(rows: pa.Table) -> str:
    """The numbers of runs, losses, seeds and test sets."""
    is_ensemble = pa.array([split_variant(variant)[1] > 0 for variant in rows["variant"].to_pylist()])
    n_ensembles, rows = len(pc.unique(rows.filter(is_ensemble)["run"])), rows.filter(pc.invert(is_ensemble))
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
    run_text = count(n_runs, "run") + (f" and {count(n_ensembles, 'ensemble')}" if n_ensembles else "")
    what = f"{run_text}: {count(n_losses, 'loss', 'losses')} on {data_text}, {seed_text}"
    errors = " ± is the standard error over seeds." if len(seeds) > 1 else ""
    if len(tests) == 1:
        return f"{what}. 1 test set{size_text}, {'shifted' if n_shifted else 'unshifted'}.{errors}"
    shifted = "all" if n_shifted == len(tests) else n_shifted or "none"
    each = " each" if size_text else ""
    return f"{what}. {count(len(tests), 'test set')}{size_text}{each}, {shifted} of them shifted.{errors}"


def describe_chance(found: Scores) -> list[str]:
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


def describe_best(metric: str, found: Scores, unshifted: Scores | None) -> list[str]:
    """A sentence per data set on its best loss, and what it costs. Ensembles, which cost more, are not compared.

    Args:
        metric: "ece" or "accuracy".
        found: The scores to compare.
        unshifted: The scores on the unshifted test set, where ``found`` has those on shifted ones; else None.
    """
    own = [key for key in found if key.metric == metric and _is_compared(key, found)]
    data_sets, losses = data_headings(own, {}), loss_headings(own)
    sentences = []
    for data in data_sets:
        keys = {loss.label: ScoreKey(**data.fields, **loss.fields, **BASELINE, metric=metric) for loss in losses}
        keys = {label: key for label, key in keys.items() if key in own}
        if keys:
            sentence = _describe_best_loss(metric, keys, found, unshifted)
            sentences.append(f"{data.label}: {sentence}" if len(data_sets) > 1 else sentence)
    return sentences


def _is_compared(key: ScoreKey, found: Scores) -> bool:
    """Whether it is the score of single networks, uncalibrated, that is defined and not at chance."""
    single = is_baseline(key) and not split_variant(key.variant)[1]
    return single and found[key].mean is not None and not found[key].at_chance


def _describe_best_loss(metric: str, keys: Mapping[str, ScoreKey], found: Scores, unshifted: Scores | None) -> str:
    """The sentence on one data set. keys: of the losses to compare, by label."""
    scored = {label: found[key] for label, key in keys.items()}
    higher = quantity_of(metric).higher_is_better
    marks = mark_best(list(scored.values()), higher_is_better=higher)
    best = [label for label, (is_best, _) in zip(scored, marks, strict=True) if is_best]
    first, *others = sorted(scored, key=lambda label: (-1 if higher else 1) * (scored[label].mean or 0.0))
    name, over = _mean_name(metric, scored[first]), _over_tests(scored[first], unshifted)
    extreme = f"{'highest' if higher else 'lowest'} {name}"
    if not best:
        return f"The {name} of {first} {over} is {_score(scored[first], metric)}."
    if len(best) > 1:
        return f"{join_words(best)} have the {extreme} {over} ({_score(scored[first], metric)})."
    reference = REFERENCE if REFERENCE in others else others[0]
    beside = f"; {reference}: {_score(scored[reference], metric)}" if reference != others[0] else ""
    second = f"{others[0]} is next ({_score(scored[others[0]], metric)})"
    significance = _describe_significance(scored[first], {label: scored[label] for label in others}, higher)
    costs = _describe_costs(metric, (keys[first], keys[reference]), found, unshifted, reference)
    result = f"{first} has the {extreme} {over} ({_score(scored[first], metric)}{beside}); {second}."
    return " ".join(filter(None, (result, significance, costs)))


def _describe_costs(
    metric: str, pair: tuple[ScoreKey, ScoreKey], found: Scores, unshifted: Scores | None, reference: str
) -> str:
    """Where else the best loss of a metric is worse than the reference, and where not."""
    (other,) = {*SUMMARY_METRICS} - {metric}
    elsewhere = [(found, other, "" if unshifted is None else " under shift")]
    if unshifted is not None:
        elsewhere += [(unshifted, name, " on the unshifted test set") for name in (metric, other)]
    worse: list[str] = []
    not_worse: list[str] = []
    for source, name, where in elsewhere:
        keys = [key._replace(metric=name, shift="" if source is unshifted else key.shift) for key in pair]
        first, second = (source.get(key, NO_SCORE) for key in keys)
        if first.mean is None or second.mean is None:
            continue
        higher = quantity_of(name).higher_is_better
        is_worse = first.mean < second.mean if higher else first.mean > second.mean
        result = ""
        if is_worse:
            is_significant = significantly_better(second, first, higher_is_better=higher)
            untested = bool(why_untested(first, second))
            result = ", not tested" if untested else ", significant" if is_significant else ", not significant"
        text = f"{_name(name)}{where} ({_score(first, name)} instead of {_score(second, name)}{result})"
        (worse if is_worse else not_worse).append(text)
    results = [f"worse in {join_words(worse)}"] if worse else []
    results += [f"not worse in {join_words(not_worse)}"] if not_worse else []
    return f"Compared with {reference} it is {', and '.join(results)}." if results else ""


def _mean_name(metric: str, score: Score) -> str:
    return f"mean {_name(metric)}" if score.n_tests > 1 else _name(metric)


def _over_tests(score: Score, unshifted: Scores | None) -> str:
    """unshifted: None where the scores are of the unshifted test set."""
    tests = "unshifted" if unshifted is None else "shifted"
    return f"over the {score.n_tests:,} {tests} test sets" if score.n_tests > 1 else f"on the {tests} test set"


def describe_calibrators(found: Scores, unshifted: Scores | None) -> list[str]:
    """A sentence per data set on the best calibrator of cross-entropy, or else of the first loss that is not at chance.

    Args:
        found: The scores over the shifted test sets.
        unshifted: The scores on the unshifted test set; None, no sentences, where no test set is shifted.
    """
    if unshifted is None:
        return []
    own = [key for key in found if key.metric == "ece" and _is_compared(key, found)]
    data_sets = data_headings(own, {})
    sentences = []
    for data in data_sets:
        there = [key for key in own if data.fields.items() <= key._asdict().items()]
        raw = min(there, key=lambda key: (key.variant, loss_sort_key(key.loss)))
        fitted = [key for key in found if key.calibrator != RAW and key._replace(calibrator=RAW) in there]
        fitted = [key for key in fitted if found[key].mean is not None]
        if any(key._replace(calibrator=RAW) == raw for key in fitted):
            sentence = _describe_best_calibrator(raw, fitted, found, unshifted)
            sentences.append(f"{data.label}: {sentence}" if len(data_sets) > 1 else sentence)
    return sentences


def _describe_best_calibrator(raw: ScoreKey, fitted: Sequence[ScoreKey], found: Scores, unshifted: Scores) -> str:
    """The sentence on one data set. fitted: the keys of all losses with calibrators."""
    own = sorted((key for key in fitted if key._replace(calibrator=RAW) == raw), key=lambda key: found[key].mean or 0.0)
    best, *others = own
    before, after = found[raw], found[best]
    label = loss_label(raw.loss, raw.variant)
    where = f"the {_mean_name('ece', before)} of {label} {_over_tests(before, unshifted)}"
    if (after.mean or 0.0) >= (before.mean or 0.0):
        texts = join_words(f"{_score(found[key], 'ece')} with {key.calibrator}" for key in own)
        return f"No calibrator lowers {where}: {_score(before, 'ece')} raw, {texts}."
    same = [key for key in fitted if key.calibrator == best.calibrator]
    n_lower = sum((found[key].mean or 0.0) < (found[key._replace(calibrator=RAW)].mean or 0.0) for key in same)
    text = (
        f"Without a label of the test sets, {best.calibrator} lowers {where} from {_score(before, 'ece')} to "
        f"{_score(after, 'ece')}, by {_difference_text(before, after)}"
    )
    text += f", and that of {n_lower} of {count(len(same), 'loss', 'losses')}" if len(same) > 1 else ""
    if others:
        second = found[others[0]]
        gap = _difference_text(second, after)
        text += f"; {others[0].calibrator} is next ({_score(second, 'ece')}, higher by {gap})"
    clean = [unshifted.get(key._replace(shift=""), NO_SCORE) for key in (raw, best)]
    if all(score.mean is not None for score in clean):
        text += f". On the unshifted test set: {_score(clean[0], 'ece')} raw, {_score(clean[1], 'ece')} calibrated"
    return f"{text}."


def _difference_text(first: Score, second: Score) -> str:
    """The first score minus the second, in percentage points with a 95 % CI."""
    if reason := why_untested(first, second):
        return f"{points((first.mean or 0.0) - (second.mean or 0.0))} percentage points (no interval: {reason})"
    mean, margin = difference(first, second)
    return f"{points(mean)} percentage points (95 % CI {points_limits((mean - margin, mean + margin))})"


def describe_ensembles(found: Scores) -> list[str]:
    """A sentence per data set on the ensemble with the lowest ECE, beside single networks of the same loss."""
    own = [key for key in found if key.metric == "ece" and is_baseline(key) and split_variant(key.variant)[1]]
    own = [key for key in own if found[key].mean is not None and not found[key].at_chance]
    data_sets = data_headings(own, {})
    sentences = []
    for data in data_sets:
        there = [key for key in own if data.fields.items() <= key._asdict().items()]
        best = min(there, key=lambda key: found[key].mean or 0.0)
        single = best._replace(variant=split_variant(best.variant)[0])
        texts = [
            f"{_name(metric)} {_score(found[key], metric)} ({_score(found[alone], metric)} of its networks alone)"
            for metric in SUMMARY_METRICS
            if (key := best._replace(metric=metric)) in found and (alone := single._replace(metric=metric)) in found
        ]
        if texts:
            label = loss_label(best.loss, best.variant)
            head = "Of the ensembles, which are one run each and not tested,"
            sentence = f"{head} {label} has the lowest ECE: {join_words(texts)}."
            sentences.append(f"{data.label}: {sentence}" if len(data_sets) > 1 else sentence)
    return sentences


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


def describe_shift(rows: pa.Table, found: Scores) -> list[str]:
    """ECE and accuracy of a loss on the unshifted and the most shifted test sets, a sentence per data set.

    The loss is cross-entropy, or else the first that is not at chance.
    """
    kept = select_rows(rows, metric=SUMMARY_METRICS)
    dead = {key[:3] for key, score in found.items() if is_baseline(key) and not key.variant and score.at_chance}
    runs = [run for run in run_keys(kept).values() if run[:3] not in dead]
    titles = panel_titles({run[:2] for run in runs})
    sentences = []
    for (data, model), panel in titles.items():
        loss = min((run.loss for run in runs if run[:2] == (data, model)), key=loss_sort_key)
        own = kept.filter((pc.field("data") == data) & (pc.field("model") == model) & (pc.field("loss") == loss))
        shifted = own.filter(pc.and_(own["shifted"], pc.equal(own["severity"], pc.max(own["severity"]))))
        sentence = _describe_change(loss_label(loss), own.filter(pc.invert(own["shifted"])), shifted)
        if sentence:
            sentences.append(f"{panel}: {sentence}" if len(titles) > 1 else sentence)
    return sentences


def _describe_change(label: str, unshifted: pa.Table, shifted: pa.Table) -> str:
    """The sentence on one data set, from the rows of one loss."""
    before, after = ({key[0]: score for key, score in scores(part, "metric").items()} for part in (unshifted, shifted))
    texts: list[str] = []
    for metric in SUMMARY_METRICS:
        first, second = before.get(metric, NO_SCORE), after.get(metric, NO_SCORE)
        if first.mean is not None and second.mean is not None:
            verb, pair = ("rises", (second, first)) if second.mean > first.mean else ("falls", (first, second))
            change = f"{verb} from {_score(first, metric)} to {_score(second, metric)}, by {_difference_text(*pair)}"
            texts.append(f"{'its' if texts else 'the'} {_name(metric)} {'' if texts else f'of {label} '}{change}")
    if not texts:
        return ""
    severity = shifted["severity"][0].as_py()
    corruptions = [name.replace("_", " ") for name in pc.unique(shifted["corruption"]).to_pylist()]
    names = join_words(corruptions) if len(corruptions) <= MAX_NAMES else count(len(corruptions), "corruption")
    tests = "the shifted test set" if len(corruptions) == 1 else count(len(corruptions), "shifted test set")
    where = f"{names} at severity {severity}" if severity else tests
    mean = " (on average)" if len(corruptions) > 1 else ""
    return f"From the unshifted test set to {where}{mean}, {'; '.join(texts)}."


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
