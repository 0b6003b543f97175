"""The torchmetrics metric: the scorecard of a stream, whatever the batches, the shapes and the number of processes."""

import copy
import math
import multiprocessing
import pickle
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any, Literal

import pytest
import torch
from torch import Tensor

import calibrant
from calibrant.errors import InvalidInputError, UnknownNameError
from calibrant.predictions import Predictions

torchmetrics = pytest.importorskip("torchmetrics", reason="torchmetrics comes with the extra integrations")

from calibrant.integrations.torchmetrics import CalibrationMetric, CalibrationScore  # noqa: E402

Inputs = Literal["logits", "log_probs", "probs"]
Batch = tuple[Tensor, Tensor]


def batches(n_classes: int, sizes: tuple[int, ...] = (40, 1, 59), seed: int = 0) -> list[Batch]:
    """Logits and labels, some of which are −100."""
    draw = torch.Generator().manual_seed(seed)
    found = []
    for size in sizes:
        labels = torch.randint(n_classes, (size,), generator=draw)
        logits = 2 * torch.randn(size, n_classes, generator=draw) + torch.nn.functional.one_hot(labels, n_classes)
        ignored = (torch.rand(size, generator=draw) < 0.1) & (size > 1)
        found.append((logits, torch.where(ignored, -100, labels)))
    return found


def as_inputs(logits: Tensor, inputs: Inputs) -> Tensor:
    return {"logits": logits, "log_probs": logits.log_softmax(1), "probs": logits.softmax(1)}[inputs]


def streamed(parts: list[Batch], inputs: Inputs = "logits", **options: Any) -> dict[str, float | None]:
    """The scorecard of the library, of the same batches."""
    build = getattr(Predictions, f"from_{inputs}")
    values: dict[str, float | None] = calibrant.score([build(*part) for part in parts], **options).values()
    return values


def states(metric: CalibrationScore) -> dict[str, Tensor]:
    return {name: getattr(metric, name) for name in metric._defaults}


def assert_same(found: dict[str, Tensor], expected: dict[str, float | None]) -> None:
    assert list(found) == list(expected)
    for name, value in expected.items():
        assert found[name].dtype == torch.float64
        assert found[name].shape == ()
        if value is None:
            assert found[name].isnan()
        else:
            assert found[name].item() == pytest.approx(value, rel=1e-12, abs=1e-15), name


def scored(parts: list[Batch], n_classes: int = 3, **options: Any) -> CalibrationScore:
    metric = CalibrationScore(n_classes, **options)
    for part in parts:
        metric.update(*part)
    return metric


@pytest.fixture
def score() -> CalibrationScore:
    return scored(batches(3))


# The same as the library


@pytest.mark.parametrize("inputs", ["logits", "log_probs", "probs"])
@pytest.mark.parametrize("n_classes", [2, 5])
def test_the_score_is_that_of_the_stream(n_classes: int, inputs: Inputs) -> None:
    parts = [(as_inputs(logits, inputs), labels) for logits, labels in 2 * batches(n_classes)]  # equal rows
    metric = scored(parts, n_classes, inputs=inputs)
    assert_same(metric.compute(), streamed(parts, inputs))
    assert ("ece_positive" in metric.compute()) == (n_classes == 2)


def test_how_rows_are_split_into_batches_does_not_matter() -> None:
    logits, labels = batches(5, sizes=(300,))[0]
    first, *others = [scored(list(zip(logits.split(n), labels.split(n), strict=True)), 5) for n in (300, 7, 64)]
    expected = {name: value.item() for name, value in first.compute().items()}
    for other in others:
        for name, state in states(first).items():
            assert state.is_floating_point() or torch.equal(state, getattr(other, name)), name
        found = {name: value.item() for name, value in other.compute().items()}
        assert found == pytest.approx(expected, abs=1e-7)  # cece adds float32 within a batch


def test_the_scorecard_has_intervals_and_the_bounds_of_a_stream(score: CalibrationScore) -> None:
    expected = calibrant.score([Predictions.from_logits(*part) for part in batches(3)])
    card = score.scorecard()
    assert card.n_rows == expected.n_rows
    assert card.interval("nll") == pytest.approx(expected.interval("nll"), rel=1e-12)
    assert card.interval("ece") == pytest.approx(expected.interval("ece"), rel=1e-9)
    assert card.noise_floor("kse") == pytest.approx(expected.noise_floor("kse"), rel=1e-9)
    assert card.error_bound("kse") == pytest.approx(expected.error_bound("kse"), rel=1e-9)
    assert (card + card).n_rows == 2 * card.n_rows


@pytest.mark.parametrize("ignore_index", [-100, 0, 255])
def test_dense_predictions_leave_out_what_is_to_be_ignored(ignore_index: int) -> None:
    draw = torch.Generator().manual_seed(3)
    logits = torch.randn(2, 5, 4, 3, generator=draw)
    labels = torch.randint(5, (2, 4, 3), generator=draw)
    labels[0, 0] = labels[1, :, 2] = ignore_index
    metric = CalibrationScore(5, ignore_index=ignore_index)
    metric.update(logits, labels)
    rows = [(n, i, j) for n in range(2) for i in range(4) for j in range(3) if labels[n, i, j] != ignore_index]
    flat = torch.stack([logits[n, :, i, j] for n, i, j in rows]), torch.tensor([int(labels[row]) for row in rows])
    assert int(metric.n_rows) == len(rows) < 24
    assert_same(metric.compute(), streamed([flat]))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_the_type_of_the_inputs_the_bins_and_the_metrics(dtype: torch.dtype) -> None:
    parts = [(logits.to(dtype).requires_grad_(), labels) for logits, labels in batches(3)]
    names = ["ece", "nll", "kse"]  # in half precision many rows have equal confidences
    assert_same(scored(parts, metrics=names).compute(), streamed(parts, metrics=names))
    metric = scored(parts, metrics=["nll", "ece", "cece"], n_bins=4)
    assert_same(metric.compute(), streamed(parts, metrics=["nll", "ece", "cece"], n_bins=4))
    assert metric.bins_count.shape == (4, 2)
    assert not hasattr(metric, "histogram_count")  # the fine histogram, where nothing asks for it
    assert not any(state.requires_grad for state in states(metric).values())


# The interface of torchmetrics


def test_forward_gives_the_value_of_the_batch_and_keeps_all_rows() -> None:
    metric = CalibrationScore(3)
    parts = batches(3)
    for part in parts:
        assert_same(metric(*part), streamed([part]))
    assert_same(metric.compute(), streamed(parts))


def test_reset(score: CalibrationScore) -> None:
    score.compute()
    score.reset()
    assert all(not state.any() for state in states(score).values())
    part = batches(3, seed=1)[0]
    score.update(*part)
    assert_same(score.compute(), streamed([part]))
    assert all(not default.any() for default in score._defaults.values())


def test_the_state_is_sums_of_fixed_size_and_type(score: CalibrationScore) -> None:
    for name, fresh in states(CalibrationScore(3)).items():
        assert score._reductions[name] is torchmetrics.utilities.dim_zero_sum
        dtype = torch.int64 if name == "n_rows" or name.endswith("_count") else torch.float64
        for state in (fresh, getattr(score, name)):
            assert (state.shape, state.dtype) == (fresh.shape, dtype), name
    torch.nn.Sequential(score).half()
    assert {state.dtype for state in states(score).values()} == {torch.int64, torch.float64}
    assert_same(score.compute(), streamed(batches(3)))


def test_copies_pickles_and_checkpoints(score: CalibrationScore) -> None:
    more = batches(3, seed=1)[0]
    for other in (copy.deepcopy(score), pickle.loads(pickle.dumps(score)), score.clone()):
        assert_same(other.compute(), streamed(batches(3)))
        other.update(*more)
        assert_same(other.compute(), streamed([*batches(3), more]))
    assert_same(score.compute(), streamed(batches(3)))
    other = CalibrationScore(3)
    for metric in (score, other):
        metric.persistent(True)
    other.load_state_dict(score.state_dict())
    assert other.scorecard().values() == pytest.approx(streamed(batches(3)), rel=1e-12)


def test_a_collection_of_metrics() -> None:
    single = {
        name: CalibrationMetric(name, n_classes=3)
        for name in ("ece", "mce", "kse", "adaece", "nll", "accuracy", "cece", "aurc")
    }
    coarse = CalibrationMetric("ece", n_classes=3, n_bins=5)
    collection = torchmetrics.MetricCollection({**single, "coarse": coarse, "card": CalibrationScore(3)})
    parts = batches(3)
    collection.update(*parts[0])
    collection.compute()  # from here on metrics of equal states share them
    for part in parts[1:]:
        collection.update(*part)
    found, expected = collection.compute(), streamed(parts)
    for name in single:
        assert (found[name].dtype, found[name].shape) == (torch.float64, ())
        assert found[name].item() == pytest.approx(expected[name], rel=1e-12), name
    assert found["coarse"].item() == pytest.approx(streamed(parts, n_bins=5)["ece"], rel=1e-12)
    collection.reset()
    batch_values = collection(*parts[2])
    assert batch_values["ece"].item() == pytest.approx(streamed([parts[2]])["ece"], rel=1e-12)


# Processes


def rank_batches(rank: int) -> list[Batch]:
    """The rows of a process; the second has fewer, and a batch to be ignored."""
    logits, labels = batches(3, sizes=(150,), seed=5)[0]
    if rank == 0:
        return [(logits[:64], labels[:64]), (logits[64:110], labels[64:110])]
    return [(logits[110:], labels[110:]), (logits[:9], torch.full((9,), -100))]


def scored_by(rank: int, meeting: Path) -> tuple[dict[str, Tensor], dict[str, Tensor], int]:
    """The states after the exchange, the values, and this process's own rows after it."""
    torch.distributed.init_process_group(
        "gloo", init_method=f"file://{meeting}", rank=rank, world_size=2, timeout=timedelta(minutes=10)
    )
    try:
        metric = scored(rank_batches(rank))
        values = metric.compute()
        with metric.sync_context():
            exchanged = {name: state.clone() for name, state in states(metric).items()}
        return exchanged, values, int(metric.n_rows)
    finally:
        torch.distributed.destroy_process_group()


def second_process(meeting: Path, target: Path) -> None:
    torch.set_num_threads(1)
    torch.save(scored_by(1, meeting), target)


@pytest.fixture
def two_processes(tmp_path: Path) -> Iterator[list[tuple[dict[str, Tensor], dict[str, Tensor], int]]]:
    """What this process, of rank 0, and a new one, of rank 1, found."""
    meeting, target = tmp_path / "meeting", tmp_path / "second.pt"
    other = multiprocessing.get_context("fork").Process(target=second_process, args=(meeting, target))
    other.start()
    try:
        first = scored_by(0, meeting)
        other.join(600)
        assert other.exitcode == 0
        yield [first, torch.load(target)]
    finally:
        if other.is_alive():
            other.kill()
        other.join()
        other.close()


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
@pytest.mark.skipif(not torch.distributed.is_available(), reason="this torch is built without torch.distributed")
def test_two_processes_are_one(two_processes: list[tuple[dict[str, Tensor], dict[str, Tensor], int]]) -> None:
    one = scored([part for rank in range(2) for part in rank_batches(rank)])
    own_rows = [sum(int((labels != -100).sum()) for _, labels in rank_batches(rank)) for rank in range(2)]
    expected = {name: value.item() for name, value in one.compute().items()}
    for rank, (exchanged, values, n_rows) in enumerate(two_processes):
        assert n_rows == own_rows[rank]  # the exchange leaves a process its own rows
        assert exchanged.keys() == states(one).keys()
        for name, state in states(one).items():
            if state.is_floating_point():
                torch.testing.assert_close(exchanged[name], state, rtol=1e-12, atol=1e-12)
            else:
                assert torch.equal(exchanged[name], state), name
        assert {name: value.item() for name, value in values.items()} == pytest.approx(expected, abs=1e-12)
    first, second = two_processes
    assert all(torch.equal(first[1][name], second[1][name]) for name in expected)


# Refusals


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"n_classes": 1}, "n_classes must be an integer from 2 to 1000000, got 1"),
        ({"inputs": "logit"}, "unknown inputs 'logit'; did you mean 'logits'"),
        ({"metrics": ["ecee"]}, "unknown metric 'ecee'; did you mean 'ece'"),
        ({"metrics": ["ece_positive"]}, "ece_positive is for two classes"),
        ({"metrics": []}, "metrics must name at least one metric"),
        ({"n_bins": 0}, "n_bins must be an integer from 1 to 10000, got 0"),
    ],
)
def test_invalid_options(options: dict[str, Any], message: str) -> None:
    with pytest.raises((InvalidInputError, UnknownNameError), match=message):
        CalibrationScore(**{"n_classes": 3, **options})


@pytest.mark.parametrize(
    ("inputs", "predictions", "label", "message"),
    [
        ("logits", [0.0, math.nan], 0, "logits must not be NaN, got nan at row 0, class 1"),
        ("logits", [0.0, 1.0, 2.0], 0, "predictions must have 2 classes, got 3"),
        ("probs", [0.5, 0.6], 0, "probs must sum to 1, got 1.1 at row 0"),
        ("log_probs", [0.5, 0.6], 0, r"exp\(log_probs\) must"),
        ("logits", [0.0, 1.0], -1, "labels must lie in"),
        ("logits", [0.0, 1.0], 0.5, "labels must be integers"),
    ],
)
def test_invalid_batches_do_not_change_the_state(
    inputs: Inputs, predictions: list[float], label: float, message: str
) -> None:
    metric = CalibrationScore(2, inputs=inputs, metrics=["ece", "nll"])
    with pytest.raises(InvalidInputError, match=message):
        metric.update(torch.tensor([predictions]), torch.tensor([label]))
    assert all(not state.any() for state in states(metric).values())


def test_compute_without_rows_is_refused() -> None:
    metric = CalibrationScore(3)
    with (
        pytest.warns(UserWarning, match="before the ``update`` method"),  # torchmetrics says so first
        pytest.raises(InvalidInputError, match="update must be called with at least one row first"),
    ):
        metric.compute()
    metric.update(torch.zeros(2, 3), torch.full((2,), -100))
    with pytest.raises(InvalidInputError, match="at least one row"):
        metric.compute()


def test_an_undefined_metric_is_nan_and_an_infinite_nll_stays_infinite() -> None:
    logits, labels = torch.tensor([[3.0, 0.0], [0.0, 1.0]]), torch.tensor([0, 1])
    found = CalibrationScore(2, metrics=["accuracy", "nll_on_errors", "brier_on_errors"])(logits, labels)
    assert found["accuracy"] == 1
    assert found["nll_on_errors"].isnan()
    assert found["brier_on_errors"].isnan()
    assert CalibrationMetric("nll_on_errors", 2)(logits, labels).isnan()
    metric = CalibrationMetric("nll", 2, inputs="probs")
    assert metric(torch.tensor([[1.0, 0.0], [0.5, 0.5]]), torch.tensor([1, 1])) == math.inf
    assert metric.compute() == math.inf
