"""The certified threshold of an audit: against certify and loops over the rows; who is handed over; what voids it."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from scipy import stats

from calibrant.audits import DecisionFindings, HandedOver, audit
from calibrant.audits.deciding import decision_findings
from calibrant.audits.statistics import collect_statistics
from calibrant.decisions import certify
from calibrant.metrics import histogram
from calibrant.predictions import Predictions
from made.audits import make_groups, make_rows, plain_rows, save_parts


def separable_rows(n: int = 3000, seed: int = 1) -> Predictions:
    """A model whose confident rows are almost always right."""
    rows = make_rows(n=n, seed=seed, scale=1.0)
    logits = 5 * rows.logits
    labels = (0.8 * logits).softmax(1).multinomial(1, generator=torch.Generator().manual_seed(seed))[:, 0]
    return Predictions.from_logits(logits, labels, columns=rows.columns)


def findings(rows: Predictions, level: float = 0.95, by: tuple[str, ...] = ()) -> DecisionFindings:
    return decision_findings(collect_statistics(rows, by=by), level)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("level", [0.8, 0.95, 0.99])
def test_the_threshold_is_close_to_that_of_certify(seed: int, level: float) -> None:
    rows = separable_rows(seed=seed)
    found = findings(rows, level)
    exact = certify(rows, 0.05, max(level, 0.95)).groups["overall"]
    kept = [row for row in plain_rows(rows) if row[3] >= (found.threshold or 2.0)]
    assert found.threshold == pytest.approx(exact.value, abs=5e-4)
    assert abs(found.overall.n_accepted - exact.n_accepted) <= 3
    assert found.overall.n_accepted == len(kept)
    assert found.overall.n_errors == sum(row[1] != row[2] for row in kept)
    assert stats.binom.cdf(found.overall.n_errors, found.overall.n_accepted, 0.05) <= 1 - max(level, 0.95) + 1e-9
    assert (found.confidence, found.max_error) == (max(level, 0.95), 0.05)


def test_groups_have_the_rows_below_the_threshold() -> None:
    rows = separable_rows()
    found = findings(rows, by=("site",))
    assert found.threshold is not None
    sites = dict(zip(range(len(rows)), rows.column("site").to_pylist(), strict=True))
    for group in found.groups["site"]:
        inside = [row for row in plain_rows(rows) if sites[row[0]] == group.value]
        kept = [row for row in inside if row[3] >= found.threshold]
        wrong = sum(row[1] != row[2] for row in kept)
        assert (group.n_rows, group.n_accepted, group.n_errors) == (len(inside), len(kept), wrong)
        assert (group.share, group.error) == pytest.approx((1 - len(kept) / len(inside), wrong / len(kept)))
        ci = stats.binomtest(wrong, len(kept)).proportion_ci(0.9)
        assert group.interval(0.9) == pytest.approx((ci.low, ci.high))
    shares = [group.share for group in found.groups["site"]]
    assert shares == sorted(shares, reverse=True)
    assert sum(group.n_accepted for group in found.groups["site"]) == found.overall.n_accepted


def test_a_group_without_accepted_rows_has_no_error() -> None:
    assert HandedOver("a", 3, 0, 0).error is None
    assert HandedOver("a", 3, 0, 0).interval() == (0.0, 1.0)


@pytest.mark.parametrize(("jobs", "batch_rows"), [(1, None), (1, 70), pytest.param(2, None, marks=pytest.mark.slow)])
def test_files_batches_and_processes_give_the_same_findings(tmp_path: Path, jobs: int, batch_rows: int | None) -> None:
    rows = separable_rows(n=900)
    scan = Predictions.scan(save_parts(rows, tmp_path, row_group=100), batch_rows=batch_rows)
    found = decision_findings(collect_statistics(scan, by=("site",), jobs=jobs), 0.95)
    assert found == findings(rows, by=("site",))
    assert found.threshold is not None


@pytest.mark.parametrize("dropped", [1, 30, histogram.FIXED_DROPPED])
def test_a_histogram_that_was_full_gives_the_same_findings(dropped: int) -> None:
    """Rows whose confidences lie close together: a bin of the test holds many."""
    draw = np.random.default_rng(0)
    confidence = 0.9 + 0.002 * draw.random(3000)
    correct = (confidence > 0.901) | (draw.random(3000) < 0.8)
    statistics = collect_statistics(Predictions.from_positive_probs(confidence, correct.astype(int)))
    wanted, card = decision_findings(statistics, 0.95), statistics.card
    statistics.scores = (replace(card, sums={**card.sums, "histogram": card.sums["histogram"].coarsen(dropped)}),)
    assert decision_findings(statistics, 0.95) == wanted
    assert 0 < wanted.overall.n_accepted < 3000


def test_no_histogram_of_a_group_is_coarser_than_the_bins_of_the_test() -> None:
    confidence = torch.linspace(0, 1, 10**6, dtype=torch.float64)
    found = histogram.fine_histogram(confidence, 1 - confidence, confidence > 0.5, None)
    fixed = found.coarsen(histogram.FIXED_DROPPED)
    assert len(fixed.key) <= histogram.MAX_GROUP_HISTOGRAM_BINS
    assert float(fixed.width().max()) < 3e-4


@pytest.mark.parametrize("confidence", [1e-9, 0.01, 0.3, 0.5, 0.75, 0.9, 0.99999, 1 - 1e-9])
def test_the_edge_of_a_bin_is_where_the_next_begins(confidence: float) -> None:
    def bin_of(value: float) -> int:
        pair = torch.tensor([[value, 1 - value]], dtype=torch.float64)
        found = histogram.fine_histogram(pair[:, 0], pair[:, 1], torch.tensor([True]), None)
        return int(found.coarsen(histogram.FIXED_DROPPED).key)

    edge = histogram.upper_edge(bin_of(confidence), histogram.FIXED_DROPPED)
    below, above = (edge + sign * 1e-6 * min(edge, 1 - edge) for sign in (-1, 1))
    assert bin_of(below) == bin_of(confidence) < bin_of(above)
    assert bin_of(above) - bin_of(confidence) == 1 << histogram.FIXED_DROPPED


def test_all_correct() -> None:
    found = findings(make_groups(("a", 100, 1.0)), by=("site",))
    assert (found.threshold, found.overall.share, found.rows_needed) == (0.0, 0.0, None)
    assert found.groups["site"][0] == HandedOver("a", 100, 100, 0)


def test_all_wrong() -> None:
    found = findings(make_groups(("a", 100, 0.0)), by=("site",))
    assert (found.threshold, found.overall.n_accepted, found.rows_needed, found.groups) == (None, 0, None, {})


def test_too_few_rows() -> None:
    for n, certified in ((1, False), (58, False), (59, True)):
        found = findings(make_groups(("a", n, 1.0)))
        assert (found.threshold is not None) == certified
    assert findings(make_groups(("a", 58, 1.0))).rows_needed == 84  # as if half an error were found


@pytest.mark.parametrize(("options", "void"), [({"weights": "w"}, "weights"), ({"cluster": "case_id"}, "cluster")])
def test_weights_and_clusters_certify_nothing(options: dict[str, str], void: str) -> None:
    found = audit(separable_rows(), by="site", weights=options.get("weights"), cluster=options.get("cluster")).decision
    assert (found.void, found.threshold, found.rows_needed, found.sets) == (void, None, None, ())
    assert (found.groups, found.overall.n_accepted) == ({}, 0)


@pytest.mark.slow
def test_the_promise_holds() -> None:
    """Of 300 draws at most 5 %, plus chance, accept rows of which more than 5 % are wrong."""
    draw, broken = np.random.default_rng(0), 0
    for _ in range(300):
        confidence = 0.5 + 0.5 * draw.random(500) ** 0.5
        correct = draw.random(500) < confidence
        rows = Predictions.from_positive_probs(confidence, correct.astype(int))
        found = findings(rows)
        # above t, 1 − c has the mean that its density 8 (c − ½) gives
        t = 1.0 if found.threshold is None else max(found.threshold, 0.5)
        grid = np.linspace(t, 1.0, 2000)
        broken += found.threshold is not None and np.average(1 - grid, weights=grid - 0.5 + 1e-12) > 0.05
    assert broken <= stats.binom.ppf(0.999, 300, 0.05)
