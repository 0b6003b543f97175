"""Thresholds: certified, applied, checked, adapted, saved; the promise by group in simulation; refusals."""

import json
import math
from dataclasses import replace
from math import sqrt
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
import torch
from scipy.stats import binomtest

import calibrant as cb
from calibrant.calibrators import SetTemperature
from calibrant.calibrators.store import read_record, write_record
from calibrant.decisions import SCORES, adapt_threshold, apply_threshold, check_threshold
from calibrant.errors import CorruptFileError, InvalidInputError, NoDataError, UnknownNameError


def sample(n: int = 2000, seed: int = 0, *, scale: float = 3.0, names: list[str] | None = None) -> cb.Predictions:
    """Calibrated predictions of three classes at two sites; a scale above 3 is overconfident."""
    random = torch.Generator().manual_seed(seed)
    true_logits = 3 * torch.randn(n, 3, generator=random)
    labels = true_logits.softmax(1).multinomial(1, generator=random)[:, 0]
    columns = {"site": ["north", "south"] * (n // 2), "quality": np.random.default_rng(seed).random(n)}
    return cb.Predictions.from_logits(scale / 3 * true_logits, labels, columns=columns, class_names=names)


def observed(rows: cb.Predictions) -> tuple[int, int]:
    """The numbers of accepted rows and of errors among them."""
    accepted = torch.from_numpy(rows.column("accepted").to_numpy())
    wrong = rows.logits.argmax(1) != rows.labels
    return int(accepted.sum()), int((accepted & wrong).sum())


@pytest.fixture(scope="module")
def validation() -> cb.Predictions:
    return sample()


def test_accepted_rows_are_those_above_the_threshold(validation: cb.Predictions) -> None:
    threshold = cb.certify(validation, max_error=0.05)
    (group,) = threshold.groups.values()
    again = threshold(validation, allow_same_rows=True)
    assert observed(again) == (group.n_accepted, group.n_errors)
    assert binomtest(group.n_errors or 0, group.n_accepted, 0.05, alternative="less").pvalue <= 0.05
    confidence = validation.probs.amax(1)
    accepted = torch.from_numpy(again.column("accepted").to_numpy())
    assert float(confidence[accepted].min()) > group.value == pytest.approx(float(confidence[~accepted].max()))
    low, high = group.share_interval()
    assert low < group.share == group.n_accepted / 2000 < high
    test = sample(20_000, 1)
    n_accepted, n_errors = observed(threshold(test))
    assert n_errors / n_accepted < 0.05
    parts = [threshold(test[rows]) for rows in (slice(0, 7), slice(7, 20_000))]
    assert cb.Predictions.concat(parts).column("accepted") == threshold(test).column("accepted")


@pytest.mark.parametrize("score", [*SCORES, "quality"])
def test_every_score(score: str, validation: cb.Predictions) -> None:
    """A column that says nothing accepts all rows or none; the others about the same rows."""
    threshold = cb.certify(validation, max_error=0.05, score=score)
    (group,) = threshold.groups.values()
    assert (group.n_accepted > 1000) == (score != "quality")
    n_accepted, n_errors = observed(threshold(sample(4000, 2)))
    assert n_errors <= 0.06 * n_accepted
    everything = cb.certify(validation, max_error=0.5, score=score)
    assert everything.groups["overall"].value == -math.inf
    assert observed(everything(sample(100, 3)))[0] == 100


def test_one_class_alone(validation: cb.Predictions) -> None:
    named = sample(names=["cat", "dog", "eel"])
    threshold = cb.certify(named, max_error=0.1, target_class="dog")
    assert threshold.groups == cb.certify(validation, 0.1, target_class=1).groups
    test = threshold(sample(4000, 1, names=["cat", "dog", "eel"]))
    accepted = torch.from_numpy(test.column("accepted").to_numpy())
    assert set(test.logits.argmax(1)[accepted].tolist()) == {1}
    assert float((test.labels[accepted] == 1).double().mean()) > 0.9
    (row,) = check_threshold(threshold, sample(4000, 1, names=["cat", "dog", "eel"])).rows
    assert row.n_rows == int((test.logits.argmax(1) == 1).sum())


def test_costs(validation: cb.Predictions) -> None:
    threshold = cb.certify(validation, costs=(8, 1))
    (group,) = threshold.groups.values()
    n_accepted, n_errors = observed(threshold(sample(20_000, 1)))
    cost = (8 * n_errors + 20_000 - n_accepted) / 20_000
    assert cost < group.bound < 1
    (row,) = check_threshold(threshold, sample(20_000, 1)).rows
    assert row.value == pytest.approx(cost)
    assert (row.low < cost < row.high, row.verdict, row.bound) == (True, "held", group.bound)
    hopeless = cb.certify(sample(40), costs=(1000, 1))
    assert (hopeless.groups["overall"].value, hopeless.groups["overall"].bound) == (math.inf, 1)


def test_too_few_rows_is_an_answer() -> None:
    (group,) = cb.certify(sample(50)).groups.values()
    assert (group.value, group.n_accepted, group.least_rows) == (math.inf, 0, 59)
    assert group.rows_needed is not None
    assert group.rows_needed > 59
    assert observed(cb.certify(sample(50))(sample(100, 1))) == (0, 0)
    wrong = replace(sample(50), labels=(sample(50).logits.argmax(1) + 1) % 3)
    assert cb.certify(wrong).groups["overall"].rows_needed is None
    (empty,) = cb.certify(sample(20)[:1], target_class=int(sample(20).logits[0].argmin())).groups.values()
    assert (empty.n_rows, empty.value, empty.share) == (0, math.inf, 0)


def test_groups_share_the_confidence_by_their_sizes_alone(validation: cb.Predictions) -> None:
    numbers = np.arange(2000)
    sites = np.where(numbers < 30, "tiny", np.where(numbers % 2, "a", "b"))
    rows = replace(validation, columns=pa.table({"site": pa.array(sites)}))
    threshold = cb.certify(rows, by="site")
    assert list(threshold.groups) == ["tiny", "b", "a"]
    assert threshold.groups["tiny"].value == math.inf
    alone = {name: cb.certify(rows.where(site=name), confidence=0.975).groups["overall"] for name in ("a", "b")}
    assert {name: threshold.groups[name] for name in alone} == alone  # "tiny" takes no part of the chance
    test = threshold(replace(sample(90, 1), columns=pa.table({"site": ["a", "tiny", "new"] * 30})))
    accepted = test.column("accepted").to_numpy().reshape(30, 3)
    assert accepted[:, 0].any()
    assert not accepted[:, 1:].any()


@pytest.mark.slow
def test_the_promise_holds_for_all_groups_at_once() -> None:
    """2,000 draws of three groups, in each of which the error is just above what is allowed, and scores are tied."""
    draws, n = 2000, 450
    random = np.random.default_rng(0)
    n_broken = n_each = 0
    for _ in range(draws):
        probs = random.choice([0.6, 0.7, 0.8, 0.9], n)
        labels = (random.random(n) > 0.101).astype(np.int64)
        columns = {"site": np.repeat(["a", "b", "c"], n // 3)}
        found = cb.certify(cb.Predictions.from_positive_probs(probs, labels, columns=columns), 0.1, by="site")
        promised = [group.n_accepted > 0 for group in found.groups.values()]
        n_broken += any(promised)
        each = cb.certify(cb.Predictions.from_positive_probs(probs[:150], labels[:150]), 0.1)
        n_each += each.groups["overall"].n_accepted > 0
    noise = 3 * sqrt(0.05 * 0.95 / draws)
    assert n_broken / draws <= 0.05 + noise
    assert 1 - (1 - n_each / draws) ** 3 > 0.05 + noise  # without the correction it would not hold


def test_files(validation: cb.Predictions, tmp_path: Path) -> None:
    for options in ({"by": "site"}, {"costs": (8, 1)}, {"max_error": 0.9}, {"max_error": 0.001}):
        threshold = cb.certify(validation, **options)  # type: ignore[arg-type]
        threshold.save(tmp_path / "t.json")
        loaded = cb.load_threshold(tmp_path / "t.json")
        assert loaded.to_dict() == threshold.to_dict()
        test = sample(500, 1)
        assert loaded(test).column("accepted") == threshold(test).column("accepted")
    parameters = read_record(tmp_path / "t.json", "threshold")["parameters"]
    for damage in ({"scores": 1}, {"max_error": None}, {"costs": [2.0, 1.0]}, {"n_classes": 1}, {"groups": {"a": 1}}):
        write_record(tmp_path / "d.json", {"threshold": "", "parameters": parameters | damage}, "threshold")
        with pytest.raises(CorruptFileError, match=r"d.json is damaged"):
            cb.load_threshold(tmp_path / "d.json")
    cb.TemperatureScaling.fit(validation).save(tmp_path / "c.json")
    with pytest.raises(CorruptFileError, match=r"c.json is not a threshold"):
        cb.load_threshold(tmp_path / "c.json")
    with pytest.raises(NoDataError):
        cb.load_threshold(tmp_path / "none.json")


def test_applied_to_files_in_batches(validation: cb.Predictions, tmp_path: Path) -> None:
    threshold, test = cb.certify(validation, by="site"), sample(500, 1)
    test[:300].save(tmp_path / "a.parquet")
    test[300:].save(tmp_path / "b.parquet")
    scan = cb.Predictions.scan([tmp_path / "a.parquet", tmp_path / "b.parquet"], batch_rows=64)
    for _ in range(2):  # the second replaces the first
        counts = apply_threshold(threshold, scan, tmp_path / "out.parquet")
    written = cb.Predictions.load(tmp_path / "out.parquet")
    assert counts == (500, observed(written)[0])
    assert written.column("accepted").to_pylist() == threshold(test).column("accepted").to_pylist()
    assert written.metadata["threshold"]["certified"]
    validation.save(tmp_path / "val.parquet")
    with pytest.raises(InvalidInputError, match=r"rows that it was fitted on"):
        apply_threshold(threshold, cb.Predictions.scan(tmp_path / "val.parquet"), tmp_path / "no.parquet")
    with pytest.raises(InvalidInputError, match=r"val.parquet exists, and is of another kind"):
        apply_threshold(threshold, scan, tmp_path / "val.parquet")
    assert not (tmp_path / "no.parquet").exists()


def test_checks_say_whether_the_promise_held(validation: cb.Predictions) -> None:
    threshold = cb.certify(validation)
    shifted = replace(sample(4000, 2, scale=12.0), labels=sample(4000, 7).labels)
    tests = {"same": sample(20_000, 1), "few": sample(20, 3), "shifted": shifted}
    found = check_threshold(threshold, tests, reference=validation)
    assert [(row.name, row.group, row.verdict) for row in found.rows] == [
        ("same", None, "held"),
        ("few", None, "undecided"),
        ("shifted", None, "broken"),
    ]
    for row in found.rows:
        exact = binomtest(row.n_errors, row.n_accepted).proportion_ci(1 - 0.05 / 3, "exact")
        assert (row.low, row.high) == pytest.approx((exact.low, exact.high), abs=1e-9)
    assert [row.name for row in found.broken] == ["shifted"]
    smallest = {name: min(test.p_value for test in tests) for name, tests in found.tests.items()}
    assert smallest["shifted"] < 0.001
    assert smallest["few"] > 0.05
    assert json.loads(json.dumps(found.to_dict()))["rows"][2]["verdict"] == "broken"
    by_site = check_threshold(threshold, sample(20_000, 1), by="site")
    assert [row.group for row in by_site.rows] == [None, "north", "south"]
    assert by_site.rows[0].n_rows == sum(row.n_rows for row in by_site.rows[1:])
    nothing = check_threshold(cb.certify(sample(50)), sample(100, 1)).rows[0]
    assert (nothing.value, nothing.low, nothing.high, nothing.verdict) == (None, 0, 1, "undecided")


def test_adapted_thresholds_are_marked_and_better_under_shift() -> None:
    """Under a shift that makes the model overconfident, the certified threshold breaks; the adapted one does not."""

    def one_set(kind: str, severity: float, seed: int, n: int = 1500) -> cb.Predictions:
        random = torch.Generator().manual_seed(seed)
        labels = torch.randint(0, 4, (n,), generator=random)
        logits = torch.randn(n, 4, generator=random)
        logits[torch.arange(n), labels] += 3 * 0.7**severity
        columns = {"corruption": [kind] * n, "severity": [severity] * n}
        return cb.Predictions.from_logits(2 * logits, labels, columns=columns)

    kinds = ("blur", "fog", "noise", "rain")
    sets = [
        one_set(kind, severity, 10 * i + int(severity)) for i, kind in enumerate(kinds) for severity in (1.0, 2.0, 3.0)
    ]
    calibrator = SetTemperature.fit(cb.Predictions.concat([one_set("none", 0.0, 99), *sets]))
    threshold, target = cb.certify(one_set("none", 0.0, 7, 4000)), one_set("snow", 2.0, 8, 4000)
    assert check_threshold(threshold, target).broken
    found = adapt_threshold(threshold, replace(target, labels=torch.full_like(target.labels, -1)), calibrator)
    assert not found.certified
    adapted = calibrator(target)
    n_accepted, n_errors = observed(found(adapted))
    assert n_errors / n_accepted < 0.08
    (group,) = found.groups.values()
    mean = float((1 - adapted.probs.amax(1))[torch.from_numpy(found(adapted).column("accepted").to_numpy())].mean())
    assert (group.bound, group.n_accepted) == (pytest.approx(mean, abs=1e-6), n_accepted)
    assert group.bound <= 0.05
    with pytest.raises(InvalidInputError, match=r"by set_temperature, got no calibrator"):
        found(target)
    by_cost = adapt_threshold(cb.certify(one_set("none", 0.0, 7), costs=(10, 1)), target, calibrator)
    assert by_cost.groups["overall"].value == pytest.approx(0.9, abs=0.01)  # Chow's rule
    assert by_cost.groups["overall"].bound < 1


def test_the_calibration_must_be_that_of_validation(validation: cb.Predictions) -> None:
    calibrator = cb.TemperatureScaling.fit(sample(1000, 4))
    threshold = cb.certify(calibrator(validation))
    assert observed(threshold(calibrator(sample(100, 1))))[0] > 0
    with pytest.raises(InvalidInputError, match=r"by temperature, got no calibrator"):
        threshold(sample(100, 1))
    other = cb.TemperatureScaling.fit(sample(1000, 5))
    with pytest.raises(InvalidInputError, match=r"by temperature, got temperature that was fitted to other rows"):
        threshold(other(sample(100, 1)))
    with pytest.raises(InvalidInputError, match=r"by no calibrator, got temperature"):
        cb.certify(validation)(calibrator(sample(100, 1)))


def test_refusals(validation: cb.Predictions) -> None:
    threshold = cb.certify(validation)
    with pytest.raises(InvalidInputError, match=r"hold the rows that it was fitted on"):
        threshold(validation)
    with pytest.raises(InvalidInputError, match=r"hold the rows"):
        check_threshold(threshold, validation)
    with pytest.raises(InvalidInputError, match=r"must have the 3 classes .* got 2"):
        threshold(cb.Predictions.from_positive_probs([0.5]))
    with pytest.raises(InvalidInputError, match=r"must not have a column 'accepted' already"):
        threshold(threshold(sample(10, 1)))
    with pytest.raises(InvalidInputError, match=r"others must have labels to check a threshold, got none at row 0"):
        check_threshold(threshold, {"others": cb.Predictions.from_logits(torch.zeros(4, 3))})
    with pytest.raises(InvalidInputError, match=r"tests must not be empty"):
        check_threshold(threshold, {})
    with pytest.raises(InvalidInputError, match=r"target must have at least one row"):
        adapt_threshold(threshold, sample(2)[:0], cb.TemperatureScaling.fit(validation))
    unlabelled = cb.Predictions.from_logits(torch.zeros(4, 3))
    for rows, message in ((unlabelled, "labels"), (validation[:0], "at least one row")):
        with pytest.raises(InvalidInputError, match=message):
            cb.certify(rows)
    nan = replace(validation, columns=pa.table({"s": [math.nan] * 2000}))
    twice = replace(validation, columns=pa.table({"s": ["None", None] * 1000}))
    wrong = {
        r"max_error must be a finite number in \[1e-06, 0.999999\], got 0": {"max_error": 0},
        r"confidence must be .* got 1": {"confidence": 1},
        r"give either max_error or costs": {"max_error": 0.1, "costs": (2, 1)},
        r"costs must be two numbers.* got 3": {"costs": (3, 2, 1)},
        r"the lower one of handing over, got 1 and 2": {"costs": (1, 2)},
        r"costs must be a positive number, got -1": {"costs": (2, -1)},
        r"target_class must be an integer from 0 to 2, got 3": {"target_class": 3},
    }
    for message, options in wrong.items():
        with pytest.raises(InvalidInputError, match=message):
            cb.certify(validation, **options)  # type: ignore[arg-type]
    for name, options in {
        "score 'confidense'; did you mean 'confidence'": {"score": "confidense"},
        "method 'ltt'": {"method": "ltt"},
        "column 'cite'; did you mean 'site'": {"by": "cite"},
        "class 'dog'": {"target_class": "dog"},
    }.items():
        with pytest.raises(UnknownNameError, match=name):
            cb.certify(validation, **options)  # type: ignore[arg-type]
    with pytest.raises(InvalidInputError, match=r"score must be finite, got nan at row 0"):
        cb.certify(nan, score="s")
    with pytest.raises(InvalidInputError, match=r"score must be numbers, got string"):
        cb.certify(validation, score="site")
    with pytest.raises(InvalidInputError, match=r"by must have values of different text, got 'None' twice"):
        cb.certify(twice, by="s")
