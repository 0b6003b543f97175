"""The battery that every calibrator must pass: `ASPECTS`, each a function of the name."""

import dataclasses
import json
import math
import tempfile
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any, NoReturn

import onnxruntime
import pyarrow as pa
import pytest
import torch
from torch import Tensor, nn

import calibrant as cb
from calibrant import Predictions
from calibrant.calibrators import Calibrator
from calibrant.calibrators.temperature import OneTemperature
from calibrant.errors import CalibrantError, InvalidInputError
from made.calibrator_data import (
    TYPES,
    bare,
    like,
    near_ties,
    nll_per_row,
    permuted,
    rounded_rows,
    shifted_rows,
)

Aspect = Callable[[str], None]

CALIBRATORS = cb.CALIBRATORS
TWO_CLASSES = {name for name, cls in CALIBRATORS.items() if cls.two_classes_only}
PLAIN = {
    name
    for name, cls in CALIBRATORS.items()
    if not (cls.fits_shifts or cls.needs_columns or cls.needs_features or cls.needs_target)
}  # these need logits and labels alone
ALWAYS_FITS = {name for name, cls in CALIBRATORS.items() if cls.idempotent or "strength" in cls.options()}
ONE_TEMPERATURE = {
    name for name, cls in CALIBRATORS.items() if issubclass(cls, OneTemperature) and not cls.needs_target
}
NO_CERTAINTIES = PLAIN - {name for name, m in CALIBRATORS.items() if m.keeps_argmax or m.likelihood_fitted}
DOUBLING_CHANGES_NOTHING = {"identity", "ensemble_temperature", *ONE_TEMPERATURE}
TOP_LEVEL = {"calibrant_calibrator", "calibrator", "n_classes", "fitted", "parameters"}
N_VALIDATION, N_TEST = 900, 360
PART = 200
FLOAT32 = "tensor(float)"  # in the words of ONNX Runtime


# What a calibrator is fitted on


def class_count(name: str) -> int:
    return 2 if name in TWO_CLASSES else 4


@cache
def target_of(n_classes: int) -> Predictions:
    """Unlabelled rows of the greatest severity."""
    target = shifted_rows(300, n_classes, seed=90, severities=(3.0,)).predictions
    return like(target, labels=None)


def options_of(name: str, n_classes: int) -> dict[str, Any]:
    return {"target": target_of(n_classes)} if CALIBRATORS[name].needs_target else {}


@cache
def validation_of(name: str, dtype: torch.dtype = torch.float64, n_classes: int | None = None) -> Predictions:
    return shifted_rows(N_VALIDATION, n_classes or class_count(name), seed=1, dtype=dtype).predictions


@cache
def fresh_rows(name: str, dtype: torch.dtype = torch.float64, n: int = N_TEST) -> Predictions:
    return shifted_rows(n, class_count(name), seed=2, dtype=dtype).predictions


def fit(name: str, validation: Predictions, **options: Any) -> Calibrator:
    return CALIBRATORS[name].fit(validation, **(options_of(name, validation.n_classes) | options))


@cache
def fitted(name: str, dtype: torch.dtype = torch.float64) -> Calibrator:
    """The calibrator of the shared validation rows; it is frozen, so every aspect may share it."""
    return fit(name, validation_of(name, dtype))


def assert_one_line(error: BaseException) -> None:
    assert str(error)
    assert "\n" not in str(error)


def or_refused(call: Callable[..., Any], *arguments: Any) -> Any:
    """What the call returns; None where it is refused, in one line."""
    try:
        return call(*arguments)
    except CalibrantError as error:
        assert_one_line(error)
        return None


# What is asked of the outcome


def assert_distributions(found: Predictions, given: Predictions) -> None:
    """As many rows as given, each a distribution over the same classes, in the same precision."""
    assert found.logits.shape == given.logits.shape
    assert found.logits.dtype == given.logits.dtype
    assert not found.logits.isnan().any()
    assert not (found.logits == math.inf).any()
    probs = found.logits.double().softmax(1)
    assert torch.isfinite(probs).all()
    torch.testing.assert_close(probs.sum(1), torch.ones(len(found), dtype=torch.float64), rtol=0, atol=1e-9)


def assert_same_probs(found: Predictions, wanted: Predictions, atol: float) -> None:
    torch.testing.assert_close(found.logits.double().softmax(1), wanted.logits.double().softmax(1), rtol=0, atol=atol)


@contextmanager
def torch_may_deprecate() -> Iterator[None]:
    """What torch says of its own parts is no warning of ours."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        warnings.simplefilter("ignore", FutureWarning)
        yield


def module_inputs(calibrator: Calibrator, predictions: Predictions) -> tuple[Tensor, ...]:
    """What the module takes, features as exactly as they are stored."""
    assert calibrator.inputs[0] == "logits"
    assert predictions.features is not None
    logits = predictions.logits
    return tuple({"logits": logits, "features": predictions.features.to(logits.dtype)}[i] for i in calibrator.inputs)


def assert_module_agrees(
    module: Callable[..., Tensor], calibrator: Calibrator, predictions: Predictions, atol: float = 1e-6
) -> None:
    with torch.no_grad():
        logits = module(*module_inputs(calibrator, predictions))
    assert logits.shape == predictions.logits.shape
    found = logits.detach().double().softmax(1)
    wanted = calibrator(predictions).logits.double().softmax(1)
    torch.testing.assert_close(found, wanted, rtol=0, atol=atol)


# Aspects of fitting


def order_of_rows(name: str) -> None:
    """The order of rows changes neither the fit nor the call."""
    validation, test = validation_of(name), fresh_rows(name)
    options = options_of(name, validation.n_classes)
    wanted = fitted(name)(test)
    again = fit(name, permuted(validation, 0), **{option: permuted(value, 7) for option, value in options.items()})
    assert again.fitted.fingerprint == fitted(name).fitted.fingerprint
    assert again.fitted.nll_after == pytest.approx(fitted(name).fitted.nll_after, abs=1e-7)
    assert_same_probs(again(test), wanted, 3e-7)
    rows = torch.randperm(len(test), generator=torch.Generator().manual_seed(3))
    assert_same_probs(fitted(name)(test[rows]), wanted[rows], 1e-7)


def precisions(name: str) -> None:
    """Single and double precision of the same numbers give the same calibrator, and the same answer."""
    validation, test = validation_of(name, torch.float32), fresh_rows(name, torch.float32)
    single, double = fitted(name, torch.float32), fit(name, like(validation, logits=validation.logits.double()))
    assert single.fitted.fingerprint == double.fitted.fingerprint
    test_double = like(test, logits=test.logits.double())
    assert_same_probs(single(test_double), double(test_double), 1e-6)
    assert_same_probs(single(test), single(test_double), 1e-6)


def half_precision(name: str) -> None:
    """Half logits are the same numbers in single precision."""
    for dtype in (torch.float16, torch.bfloat16):
        validation = validation_of(name)[:360]
        logits = validation.logits.to(dtype)
        half, single = (fit(name, like(validation, logits=given)) for given in (logits, logits.float()))
        test = fresh_rows(name)
        given = like(test, logits=test.logits.to(dtype))
        found, wanted = half(given), single(like(test, logits=test.logits.to(dtype).float()))
        assert_distributions(found, given)
        assert found.logits.dtype == torch.float32
        assert torch.equal(found.logits, wanted.logits)


def what_was_fitted(name: str) -> None:
    """The record of the fit: rows, classes and the NLL before and after."""
    validation, calibrator = validation_of(name), fitted(name)
    assert type(calibrator) is CALIBRATORS[name]
    assert isinstance(calibrator, Calibrator)
    assert calibrator.name == name
    assert calibrator.n_classes == validation.n_classes
    record = calibrator.fitted
    assert record.fingerprint == validation.fingerprint
    assert record.n_rows == len(validation)
    assert math.isfinite(record.nll_after)
    assert record.weighted == calibrator.needs_target  # weights for the target
    if not calibrator.needs_target:
        assert record.nll_before == pytest.approx(nll_per_row(validation).mean().item(), abs=1e-9)
    if not (calibrator.needs_target or calibrator.needs_features):  # in a call, a row is its own neighbour
        found = calibrator(validation, allow_same_rows=True)
        assert record.nll_after == pytest.approx(nll_per_row(found).mean().item(), abs=1e-6)
    assert record.shifts == (tuple(sorted(TYPES)) if calibrator.fits_shifts else ())
    assert json.loads(json.dumps(calibrator.summary()))["nll_after"] == record.nll_after


def likelihood(name: str) -> None:
    """A fit of the likelihood is never worse than the identity, on rows of any kind."""
    if not CALIBRATORS[name].likelihood_fitted:
        return
    for n, truth in ((60, "shift"), (60, "calibrated"), (200, "hidden")):
        record = fit(name, shifted_rows(n, class_count(name), seed=n, truth=truth).predictions).fitted
        assert record.nll_after <= record.nll_before, (n, truth)


def labels_of_one_kind(name: str) -> None:
    """Labels of one class alone, or predictions that are all correct: a calibrator, or one line why not."""
    validation = validation_of(name)
    for labels in (torch.full_like(validation.labels, 1), validation.logits.argmax(1)):
        calibrator = or_refused(fit, name, like(validation, labels=labels))
        assert calibrator is not None or name not in ALWAYS_FITS
        if calibrator is not None:
            assert_distributions(calibrator(fresh_rows(name)), fresh_rows(name))


def fewer_rows_than_classes(name: str) -> None:
    n_classes = 2 if CALIBRATORS[name].two_classes_only else 10
    test = shifted_rows(50, n_classes, seed=5).predictions
    for n in (1, n_classes - 1):
        calibrator = or_refused(fit, name, shifted_rows(n, n_classes, seed=4).predictions)
        found = None if calibrator is None else or_refused(calibrator, test)
        assert found is not None or name not in ALWAYS_FITS
        if found is not None:
            assert_distributions(found, test)


def each_row_twice(name: str) -> None:
    """The same calibrator, but where a prior is weighed against the number of rows."""
    validation, test = validation_of(name), fresh_rows(name)
    calibrator = fit(name, Predictions.concat([validation, validation]))
    found = calibrator(test)
    assert_distributions(found, test)
    if name in DOUBLING_CHANGES_NOTHING:
        assert_same_probs(found, fitted(name)(test), 1e-6)


def extreme_validation(name: str) -> None:
    """Logits of tens of thousands, and −inf where the label is not."""
    test = fresh_rows(name)
    validation = validation_of(name)
    for dtype in (torch.float32, torch.float64):
        huge = like(validation, logits=(1e4 * validation.logits).to(dtype))
        calibrator = or_refused(fit, name, huge)
        assert calibrator is not None or name not in ALWAYS_FITS
        if calibrator is not None:
            assert not math.isnan(calibrator.fitted.nll_after)
            if calibrator.likelihood_fitted:
                assert calibrator.fitted.nll_after <= calibrator.fitted.nll_before
            assert_distributions(calibrator(test), test)
            larger = like(test, logits=(1e4 * test.logits).to(dtype))
            assert_distributions(calibrator(larger), larger)
    calibrator = or_refused(fit, name, with_impossible_classes(validation))
    assert calibrator is not None or name not in {"identity", "ensemble_temperature", *ONE_TEMPERATURE}
    if calibrator is not None:
        assert not math.isnan(calibrator.fitted.nll_after)
        assert_distributions(calibrator(test), test)


def with_impossible_classes(predictions: Predictions) -> Predictions:
    """Every third row has a class of probability 0: the one after its label."""
    logits = predictions.logits.clone()
    rows = torch.arange(0, len(predictions), 3)
    logits[rows, (predictions.labels[rows] + 1) % predictions.n_classes] = -math.inf
    return like(predictions, logits=logits)


def validation_without_labels_or_rows(name: str) -> None:
    """One label that is missing is enough."""
    validation = validation_of(name)
    known = validation.labels.tolist()
    one_missing = like(validation, labels=pa.array([*known[:17], None, *known[18:]]))
    for rows, message in ((like(validation, labels=None), "label"), (one_missing, "label"), (validation[:0], "row")):
        with pytest.raises(InvalidInputError, match=message) as caught:
            fit(name, rows)
        assert_one_line(caught.value)


# Aspects of the call


def predicted_class(name: str) -> None:
    """Where it is promised, the predicted class of every row is kept, at the nearest of ties too."""
    if not CALIBRATORS[name].keeps_argmax:
        return
    for dtype in (torch.float32, torch.float64):
        calibrator = fitted(name, dtype)
        plain = fresh_rows(name, dtype, 4000)
        for given in (plain, near_ties(plain, seed=6), bare(near_ties(plain, seed=7))):
            changed = calibrator(given).logits.argmax(1) != given.logits.argmax(1)
            assert not changed.any(), (dtype, int(changed.sum()), given.logits[changed][0].tolist())


def only_logits_change(name: str) -> None:
    """And labels are not needed."""
    for dtype in (torch.float32, torch.float64):
        given = fresh_rows(name, dtype)
        before = given.logits.clone(), given.labels.clone(), dict(given.metadata), given.fingerprint
        calibrator = fitted(name)
        found = calibrator(given)
        assert_distributions(found, given)
        assert torch.equal(found.labels, before[1])
        assert found.columns.equals(given.columns)
        assert found.class_names == given.class_names
        assert found.features is not None
        assert torch.equal(found.features, torch.as_tensor(given.features))
        record = found.metadata["calibrator"]
        assert {"name": name, "fitted_on": validation_of(name).fingerprint}.items() <= record.items()
        assert found.metadata == {"model": "synthetic", "calibrator": record}
        assert torch.equal(given.logits, before[0])
        assert torch.equal(given.labels, before[1])
        assert (given.metadata, given.fingerprint) == before[2:]
        if not calibrator.idempotent:
            assert not torch.equal(found.logits.softmax(1), given.logits.softmax(1))
        unlabelled = calibrator(like(given, labels=None))
        assert (unlabelled.labels == -1).all()
        assert torch.equal(unlabelled.logits, found.logits)


def extreme_rows(name: str) -> None:
    """Rows unlike any of the validation's: certain, of no opinion, of impossible classes."""
    for dtype in (torch.float32, torch.float64):
        test = fresh_rows(name, dtype)
        calibrator = fitted(name, dtype)
        for logits in (1e4 * test.logits, 1e-4 * test.logits, torch.zeros_like(test.logits), test.logits + 1e3):
            given = like(test, logits=logits)
            found = calibrator(given)
            assert_distributions(found, given)
            if name in NO_CERTAINTIES and dtype == torch.float64:
                probs = found.logits.softmax(1)
                assert ((probs > 0) & (probs < 1)).all()
        weak = fit(name, like(validation_of(name, dtype), logits=0.1 * validation_of(name, dtype).logits))
        certain = test.logits.clone()
        certain[:, 0], certain[:, 1] = 3e38, -math.inf
        for logits in (certain, -certain, 1e30 * test.logits.clamp(-1, 1)):
            given = like(test, logits=logits.clamp(max=3e38))
            assert_distributions(weak(given), given)  # it multiplies logits, beyond what float32 can hold
        given = with_impossible_classes(test)
        found = or_refused(calibrator, given)
        if found is not None:
            assert_distributions(found, given)
        if name in {"identity", *ONE_TEMPERATURE}:
            assert found is not None
            assert torch.equal(found.logits == -math.inf, given.logits == -math.inf)


def batches(name: str) -> None:
    """A call for the whole is a call for its parts; the parts of a set are sets of their own."""
    test, calibrator = fresh_rows(name), fitted(name)
    whole = calibrator(test)
    if calibrator.row_by_row:
        for rows in (slice(0, 1), slice(1, 100), slice(100, None)):
            assert_same_probs(calibrator(test[rows]), whole[rows], 1e-7)
    else:
        for kind, severity in product(TYPES, (1.0, 2.0, 3.0)):
            part = calibrator(test.where(corruption=kind, severity=severity))
            assert_same_probs(part, whole.where(corruption=kind, severity=severity), 1e-7)
    for dtype in (torch.float32, torch.float64):
        for rows in (fresh_rows(name, dtype), bare(fresh_rows(name, dtype))):
            found = calibrator(rows[:0])
            assert found.logits.shape == (0, test.n_classes)
            assert found.logits.dtype == dtype


def other_class_counts(name: str) -> None:
    n_classes = class_count(name)
    for other in (n_classes + 1, n_classes + 5):
        with pytest.raises(InvalidInputError, match=rf"{n_classes}.*{other}|{other}.*{n_classes}") as caught:
            fitted(name)(shifted_rows(20, other, seed=8).predictions)
        assert_one_line(caught.value)


# Aspects of leakage


def same_rows_are_refused(name: str) -> None:
    """Every kind of leak is in `test_leakage`."""
    validation, calibrator, test = validation_of(name), fitted(name), fresh_rows(name)
    for leaked in (validation, like(permuted(validation, 9)[:PART], labels=None)):
        with pytest.raises(InvalidInputError, match="allow_same_rows=True") as caught:
            calibrator(leaked)
        assert_one_line(caught.value)
        assert_distributions(calibrator(leaked, allow_same_rows=True), leaked)
    assert torch.equal(calibrator(test).logits, calibrator(test, allow_same_rows=True).logits)


def repeated_rows_are_no_leak(name: str) -> None:
    """Of rounded probabilities every row has been seen before; only the very same set is refused."""
    validation, test = (rounded_rows(n, class_count(name), seed=n) for n in (N_VALIDATION, N_TEST))
    calibrator = fit(name, validation)
    assert_distributions(calibrator(test), test)
    with pytest.raises(InvalidInputError, match="allow_same_rows=True"):
        calibrator(permuted(validation, 11))


# Aspects of files and modules


def files(name: str) -> None:
    """JSON that any reader takes, and a calibrator that gives the same bits."""

    def no_constant(text: str) -> NoReturn:
        raise AssertionError(f"{text} is not JSON")

    calibrator = fitted(name)
    with tempfile.TemporaryDirectory() as folder:
        path, second = Path(folder) / "calibrator.json", Path(folder) / "again.json"
        calibrator.save(path)
        assert [entry.name for entry in Path(folder).iterdir()] == [path.name]
        content = json.loads(path.read_text(encoding="utf-8"), parse_constant=no_constant)
        assert set(content) >= TOP_LEVEL
        assert content["calibrant_calibrator"] == 1
        assert content["calibrator"] == name
        assert content["n_classes"] == calibrator.n_classes
        for again in (cb.load_calibrator(path), CALIBRATORS[name].load(path), cb.load_calibrator(str(path))):
            assert type(again) is type(calibrator)
            assert again.n_classes == calibrator.n_classes
            for entry in ("fingerprint", "n_rows", "nll_before", "nll_after", "shifts"):
                assert getattr(again.fitted, entry) == getattr(calibrator.fitted, entry)
            for dtype in (torch.float32, torch.float64):
                for given in (fresh_rows(name, dtype), bare(fresh_rows(name, dtype))):
                    assert torch.equal(again(given).logits, calibrator(given).logits)
            for leaked in (validation_of(name), validation_of(name)[:PART]):
                with pytest.raises(InvalidInputError, match="allow_same_rows=True"):
                    again(leaked)
            again.save(second)
            assert second.read_bytes() == path.read_bytes()
        calibrator.save(path)
        assert path.read_bytes() == second.read_bytes()


def eager_and_scripted_module(name: str) -> None:
    calibrator = fitted(name)
    module = calibrator.module()
    assert isinstance(module, nn.Module)
    with torch_may_deprecate():
        scripted = torch.jit.script(module)
        for dtype in (torch.float32, torch.float64):
            test = bare(fresh_rows(name, dtype))
            for given in (test, test[:7], test[:1]):
                assert_module_agrees(module, calibrator, given)
                assert_module_agrees(scripted, calibrator, given)


def half_module(name: str) -> None:
    """Half logits and features go in as they come; what comes out is as near as half precision lets it."""
    calibrator, test = fitted(name), fresh_rows(name)
    assert test.features is not None
    for dtype, atol in ((torch.float16, 1e-2), (torch.bfloat16, 5e-2)):
        half = {"logits": test.logits.to(dtype), "features": test.features.to(dtype)}
        with torch.no_grad():
            found = calibrator.module()(*(half[i] for i in calibrator.inputs))
        given = Predictions.from_logits(half["logits"], test.labels, features=half["features"].float())
        wanted = calibrator(given).logits.double().softmax(1)
        torch.testing.assert_close(found.double().softmax(1), wanted, rtol=0, atol=atol)


def exported_module(name: str) -> None:
    calibrator = fitted(name)
    test = bare(fresh_rows(name, torch.float32))
    batch = torch.export.Dim("batch")
    with torch_may_deprecate():
        program = torch.export.export(
            calibrator.module().eval(),
            module_inputs(calibrator, test[:16]),
            dynamic_shapes=tuple({0: batch} for _ in calibrator.inputs),
        )
        module = program.module()
    for given in (test, test[:7], test[:16]):
        assert_module_agrees(module, calibrator, given)


def dense_module(name: str) -> None:
    """Images of 2 × k pixels with the classes along dim 1, if logits alone are needed; other shapes in one line."""
    calibrator, k = fitted(name), class_count(name)
    module = calibrator.module().eval()
    with torch_may_deprecate():
        scripted = torch.jit.script(module)
    rows = fresh_rows(name).logits[: 6 * k]
    dense = rows.reshape(3, 2, k, k).movedim(-1, 1)
    refused = [rows[0], rows[:, 1:], rows[:, :1], dense[:, :, 0, 1:].mT]
    if len(calibrator.inputs) == 1 and calibrator.row_by_row:
        wanted = module(rows).reshape(3, 2, k, k).movedim(-1, 1)
        with torch_may_deprecate():
            exported = torch.export.export(module, (dense,)).module()
        for run in (module, scripted, exported):
            torch.testing.assert_close(run(dense), wanted, rtol=1e-12, atol=1e-12)
    else:
        refused.append(dense)
    for logits, run in product(refused, (module, scripted)):
        second = [torch.ones(len(logits), 6, dtype=torch.float64)] * (len(calibrator.inputs) - 1)
        with pytest.raises((InvalidInputError, torch.jit.Error), match=rf"logits must be of shape \(n, {k}"):
            run(logits, *second)


def onnx_file(name: str) -> None:
    """ONNX Runtime gives the logits of the calibrator to 1e-6 of their size, for any number of rows of any kind."""
    calibrator = fitted(name, torch.float32)
    test = bare(fresh_rows(name, torch.float32, 1000))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "calibrator.onnx"
        if not calibrator.row_by_row:
            with pytest.raises(InvalidInputError, match=rf"^{name} .* export calibrator\.adapt\(target\)") as caught:
                calibrator.to_onnx(path)
            assert_one_line(caught.value)
            return
        calibrator.to_onnx(path)
        assert [entry.name for entry in Path(folder).iterdir()] == [path.name]
        session = onnxruntime.InferenceSession(path.read_bytes(), providers=["CPUExecutionProvider"])
    assert [(value.name, value.type) for value in session.get_inputs()] == [(i, FLOAT32) for i in calibrator.inputs]
    assert [(value.name, value.type) for value in session.get_outputs()] == [("calibrated_logits", FLOAT32)]
    zeros = like(test, logits=torch.zeros_like(test.logits))
    huge, tiny = (like(test, logits=factor * test.logits) for factor in (1e4, 1e-4))
    for given in (test, huge, tiny, zeros, near_ties(test, seed=6), with_impossible_classes(test)):
        found = or_refused(calibrator.calibrate, given)  # vector scaling of log 0, for example
        inputs = {i: v.numpy() for i, v in zip(calibrator.inputs, module_inputs(calibrator, given), strict=True)}
        for n in (1, 2, 1000) if found is not None else ():
            (logits,) = session.run(None, {i: value[:n] for i, value in inputs.items()})
            wanted = found.logits[:n]
            allowed = 1e-6 * wanted.nan_to_num(neginf=0.0).abs().clamp(min=1.0)
            given_back = torch.from_numpy(logits)
            assert given_back.shape == wanted.shape
            assert bool(((given_back == wanted) | ((given_back - wanted).abs() <= allowed)).all())


# Aspects of the value itself


def frozen(name: str) -> None:
    calibrator = fitted(name)
    fields = [field.name for field in dataclasses.fields(calibrator)]
    assert {"n_classes", "fitted"} <= set(fields)
    for field in fields:
        with pytest.raises(dataclasses.FrozenInstanceError):
            setattr(calibrator, field, getattr(calibrator, field))
    with pytest.raises(dataclasses.FrozenInstanceError):
        calibrator.fitted.nll_after = 0.0  # type: ignore[misc]
    with pytest.raises(dataclasses.FrozenInstanceError):
        del calibrator.n_classes
    with pytest.raises(TypeError):
        type(calibrator)(*(getattr(calibrator, field) for field in fields))


ASPECTS: dict[str, Aspect] = {
    aspect.__name__: aspect
    for aspect in (
        order_of_rows,
        precisions,
        half_precision,
        what_was_fitted,
        likelihood,
        labels_of_one_kind,
        fewer_rows_than_classes,
        each_row_twice,
        extreme_validation,
        validation_without_labels_or_rows,
        predicted_class,
        only_logits_change,
        extreme_rows,
        batches,
        other_class_counts,
        same_rows_are_refused,
        repeated_rows_are_no_leak,
        files,
        eager_and_scripted_module,
        half_module,
        exported_module,
        dense_module,
        onnx_file,
        frozen,
    )
}
