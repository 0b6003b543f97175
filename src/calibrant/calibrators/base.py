"""The contract of every calibrator: fitted by its constructor `fit`, frozen, JSON on disk, a module for deployment."""

import inspect
import os
from abc import ABC, abstractmethod
from dataclasses import dataclass, fields, replace
from typing import Any, ClassVar, Self

import torch
from torch import Tensor, nn

from calibrant._arrays import UNKNOWN, blocks, sum_of
from calibrant._checks import (
    check_all_classes,
    check_all_labelled,
    check_class_names,
    check_has_mass,
    check_instance,
    check_integer,
    check_same_kind,
)
from calibrant._paths import first_line
from calibrant._signatures import checked
from calibrant.calibrators.checks import (
    check_feature_count,
    check_has_features,
    check_same_classes,
)
from calibrant.calibrators.fitting import check_clip, clip_probs
from calibrant.calibrators.leakage import RowSketch
from calibrant.calibrators.maps import scale_logits
from calibrant.calibrators.modules import LogitsModule, PairModule
from calibrant.calibrators.onnx import write_onnx
from calibrant.calibrators.store import decode_fields, encode, read_record, write_record
from calibrant.errors import CalibrantError, CorruptFileError, InvalidInputError
from calibrant.predictions import LABEL_PROBS, Predictions


@dataclass(frozen=True, slots=True)
class FitRecord:
    """The rows that a calibrator was fitted on, and their mean NLL.

    Args:
        rows: Hashes that recognize the rows.
        n_rows: Number of rows.
        nll_before: Mean NLL before calibration.
        nll_after: Mean NLL after it; None if unknown, as for a temperature adapted to rows without labels.
        shifts: The types of corruption among the rows.
        weighted: Whether both NLLs are weighted means: a fit with row weights minimizes the weighted NLL.
    """

    rows: RowSketch
    n_rows: int
    nll_before: float
    nll_after: float | None
    shifts: tuple[str, ...] = ()
    weighted: bool = False

    @property
    def fingerprint(self) -> str:
        return self.rows.fingerprint


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class Calibrator(ABC):
    """Calibrates predictions: ``calibrator = TemperatureScaling.fit(validation)``, then ``calibrator(test)``.

    Class variables say what a calibrator promises and needs. All other code reads them, never the name.

    Args:
        n_classes: Number of classes.
        fitted: What the calibrator was fitted on.
        class_names: Their names, if validation had them.
        clip: Smaller probabilities are raised to it before calibration; None where they are taken as they are.
        top_label: Whether it calibrates the confidence of the predicted class alone.
    """

    name: ClassVar[str]  # in the table CALIBRATORS, on the command line and in files
    keeps_argmax: ClassVar[bool]  # whether the predicted class of every row stays
    likelihood_fitted: ClassVar[bool] = False  # whether the default fit never increases the NLL of its own rows
    row_by_row: ClassVar[bool] = True  # whether a row is calibrated independently of the others in the call
    idempotent: ClassVar[bool] = False  # whether a second call changes nothing
    default_candidate: ClassVar[bool] = False  # whether `choose` tries it by default

    two_classes_only: ClassVar[bool] = False
    needs_features: ClassVar[bool] = False
    needs_target: ClassVar[bool] = False  # unlabelled rows of the target, as the option ``target``
    needs_columns: ClassVar[tuple[str, ...]] = ()
    of_confidence: ClassVar[bool] = False  # also calibrates the confidence alone, of rows with ``top_label``
    shows_progress: ClassVar[bool] = False  # whether `fit` also takes ``progress``, a function of each step's name
    fits_shifts: ClassVar[bool] = False  # is fitted to corrupted rows, so their types must not be tested on

    n_classes: int
    fitted: FitRecord
    class_names: tuple[str, ...] | None = None
    clip: float | None = None
    top_label: bool = False

    @classmethod
    @abstractmethod
    def fit(cls, validation: Predictions) -> Self:
        """Fit to labelled predictions.

        Args:
            validation: Labelled rows that the model was not trained on.

        Returns:
            The fitted calibrator.

        Raises:
            InvalidInputError: There are no rows, labels are missing, or the calibrator's requirements are not met.
            NotConvergedError: There is no best calibrator of this kind for these rows.
        """

    @classmethod
    def options(cls) -> tuple[str, ...]:
        """The keyword arguments of `fit`, which are also the options of `calibrant fit`.

        Returns:
            Their names.
        """
        return tuple(name for name in inspect.signature(cls.fit).parameters if name not in ("validation", "progress"))

    @abstractmethod
    def row_module(self) -> nn.Module:
        """The map of rows, which `module` wraps.

        Returns:
            A module of the arguments that `inputs` names, for logits (n, k), that scripts and exports.
        """

    def module(self) -> nn.Module:
        """The calibrator as a module of the arguments that `inputs` names, to run after the model.

        Logits are (n, k); or (n, k, …), such as those of a segmentation, if the calibrator needs the logits of a row
        alone. Logits of any other shape raise an error. The module scripts and exports. It computes in float64; use
        ``.float()`` on a device without float64.

        Returns:
            A module that returns calibrated logits.
        """
        return self._module(self.clip)

    def _module(self, clip: float | None) -> nn.Module:
        if len(self.inputs) > 1:
            return PairModule(self.row_module(), self.n_classes, clip=clip)
        return LogitsModule(self.row_module(), self.n_classes, dense=self.row_by_row, clip=clip)

    @checked
    def __call__(self, predictions: Predictions, *, allow_same_rows: bool = False) -> Predictions:
        """Calibrate predictions.

        Args:
            predictions: Rows of the same classes. Labels are not needed.
            allow_same_rows: Whether to calibrate rows that the calibrator was fitted on.

        Returns:
            The same rows with calibrated logits.

        Raises:
            InvalidInputError: The rows are those of the fit, were already calibrated by this calibrator, or do not
                match its classes or features.
        """
        if not allow_same_rows:
            self.fitted.rows.check_disjoint(predictions)
        return self.calibrate(predictions)

    @checked
    def calibrate(self, predictions: Predictions, *, first_row: int = 0) -> Predictions:
        """Calibrate predictions without checking for rows of the fit.

        Args:
            predictions: Rows of the same classes. Labels are not needed.
            first_row: The number of the first row in error messages.

        Returns:
            The same rows with calibrated logits.

        Raises:
            InvalidInputError: The rows were already calibrated by this calibrator, or do not match its classes; or a
                calibrated row is no distribution.
        """
        check_same_kind(f"what {self.name} was fitted on", self, "predictions", predictions)
        check_same_classes(self.name, self.n_classes, predictions.n_classes, self.class_names, predictions.class_names)
        before = predictions.metadata.get("calibrator")
        record: dict[str, Any] = {"name": self.name, "fitted_on": self.fitted.fingerprint}
        if isinstance(before, dict) and record.items() <= before.items() and not self.idempotent:
            raise InvalidInputError("predictions were already calibrated by this calibrator")
        record |= {"after": before} if before else {}
        logits, details = self._calibrated(self._clipped(predictions))
        check_has_mass(f"logits calibrated by {self.name}", logits, first_row)
        return replace(predictions, logits=logits, metadata={**predictions.metadata, "calibrator": record | details})

    @checked
    def to_onnx(self, path: str | os.PathLike[str]) -> None:
        """Write `module` as an ONNX file, atomically: one graph for any number of rows.

        Its inputs are float32 and have the names that `inputs` lists: ``logits`` (n, k), for some calibrators also
        ``features`` (n, f) or ``score`` (n,). Its output ``calibrated_logits`` (n, k) is float32; the graph computes
        in float64.

        Args:
            path: The file to write.

        Raises:
            InvalidInputError: The calibrator is one of whole sets, not of rows, or the path names another kind of file.
            MissingExtraError: The extra onnx is not installed.
        """
        if not self.row_by_row:
            raise InvalidInputError(
                f"{self.name} treats the rows of a call as one set, and has no ONNX file: export "
                "calibrator.adapt(target), the temperature scaling for one set"
            )
        inputs = dict(zip(self.inputs, self._example_inputs(torch.float32), strict=True))
        metadata = {"calibrator": self.name, "fitted_on": self.fitted.fingerprint}
        write_onnx(path, self.module(), inputs, "calibrated_logits", metadata)

    def _example_inputs(self, dtype: torch.dtype) -> tuple[Tensor, ...]:
        """The arguments of the module for two rows of equal logits."""
        logits, features = torch.zeros(2, self.n_classes, dtype=dtype), torch.ones(2, self.n_features)
        inputs = {"logits": logits, "features": features, "score": torch.zeros(2)}
        return tuple(inputs[name] for name in self.inputs)

    def _clipped(self, predictions: Predictions) -> Predictions:
        return predictions if self.clip is None else clip_probs(predictions, self.clip)

    def _calibrated(self, predictions: Predictions) -> tuple[Tensor, dict[str, Any]]:
        """The calibrated logits of clipped predictions, and what else the metadata of the result say."""
        return self._calibrated_logits(predictions), {}

    def _calibrated_logits(self, predictions: Predictions) -> Tensor:
        """The calibrated logits of clipped predictions, block by block."""
        module, inputs = self._module(None), self._inputs(predictions)
        calibrated = torch.empty_like(predictions.logits)
        for rows in blocks(len(predictions), sum(values[:1].numel() for values in inputs)):
            calibrated[rows] = module(*(values[rows] for values in inputs))
        return calibrated

    @property
    def n_features(self) -> int:
        """The number of features of a row that the calibrator uses."""
        return 0

    @property
    def inputs(self) -> tuple[str, ...]:
        """The arguments of `module()`, in order."""
        return ("logits", "features") if self.n_features else ("logits",)

    def _inputs(self, predictions: Predictions) -> tuple[Tensor, ...]:
        """The arguments of the module for these rows."""
        if not self.n_features:
            return (predictions.logits,)
        features = check_has_features(self.name, predictions.features)
        check_feature_count(self.name, self.n_features, features.shape[1])
        return predictions.logits, features

    @classmethod
    def from_parameters(
        cls,
        validation: Predictions,
        *,
        shifts: tuple[str, ...] = (),
        row_weights: Tensor | None = None,
        nll_after: float | None = None,
        **parameters: Any,
    ) -> Self:
        """The calibrator of these parameters, fitted to these rows.

        Args:
            validation: The rows it was fitted to.
            shifts: The types of corruption among them.
            row_weights: (n,) the weights of the rows in the fit, and in the mean NLL.
            nll_after: Their mean NLL after calibration; computed if None.
            parameters: The fields of the class.

        Returns:
            The calibrator with its `FitRecord`.
        """
        before, weighted = mean_nll(validation, row_weights), row_weights is not None
        fitted = FitRecord(RowSketch.of(validation), len(validation), before, None, shifts, weighted)
        names = validation.class_names
        shared: dict[str, Any] = {"n_classes": validation.n_classes, "class_names": names}
        calibrator = cls(top_label=validation.top_label, fitted=fitted, **shared, **parameters)
        after = mean_nll(calibrator.calibrate(validation), row_weights) if nll_after is None else nll_after
        return replace(calibrator, fitted=replace(fitted, nll_after=after))

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write a JSON file, atomically.

        Args:
            path: The file to write.
        """
        parameters = {field.name: getattr(self, field.name) for field in fields(self)}
        shared = {name: parameters.pop(name) for name in ("n_classes", "class_names", "fitted")}
        if self.clip is None:
            del parameters["clip"]
        if parameters.pop("top_label"):
            shared["top_label"] = True
        write_record(path, encode({"calibrator": self.name, **shared, "parameters": parameters}))

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Self:
        """Read a file that `save` wrote.

        Args:
            path: The file.

        Returns:
            The calibrator.

        Raises:
            NoDataError: There is no such file.
            CorruptFileError: The file is not one of this calibrator.
        """
        record = read_record(path)
        if record["calibrator"] != cls.name:
            raise CorruptFileError(f"{os.fspath(path)} holds the calibrator {record['calibrator']!r}, not {cls.name!r}")
        return cls.from_record(record, path)

    @classmethod
    def from_record(cls, record: dict[str, Any], path: str | os.PathLike[str]) -> Self:
        """The calibrator of a file's content; ``path`` is for the error message."""
        try:
            names = check_class_names(record["class_names"], record["n_classes"])
            shared = {
                "n_classes": record["n_classes"],
                "class_names": names and list(names),
                "fitted": record["fitted"],
                "top_label": record.get("top_label", False),
            }
            calibrator = decode_fields(cls, {**record["parameters"], **shared})
            calibrator.check_parameters()
        except (CalibrantError, KeyError, TypeError, ValueError, RuntimeError, IndexError, ArithmeticError) as error:
            raise CorruptFileError(f"{os.fspath(path)} is damaged: {first_line(error)}") from None
        return calibrator

    def check_parameters(self) -> None:
        """Raise an error if the parameters do not map these classes to finite logits."""
        check_integer("n_classes", self.n_classes, 2)
        if self.clip is not None:
            check_clip(self.clip, self.n_classes)
        inputs = self._example_inputs(torch.float64)
        calibrated = self.module()(*inputs)
        if calibrated.shape != inputs[0].shape or not bool(calibrated.isfinite().all()):
            raise InvalidInputError(f"its parameters do not fit {self.n_classes} classes")

    @property
    def scalar_parameters(self) -> dict[str, float]:
        """The scalar parameters, by name."""
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        return {name: value for name, value in values.items() if isinstance(value, float)}

    @property
    def shown_parameters(self) -> dict[str, str]:
        """What `calibrant fit` and the representation show of the parameters, by name."""
        return {name: f"{value:.6g}" for name, value in self.scalar_parameters.items()}

    def summary(self) -> dict[str, Any]:
        """The fit as a dictionary of JSON values: calibrator, rows, NLL before and after, scalar parameters.

        Returns:
            The dictionary.
        """
        fitted = self.fitted
        return {
            "calibrator": self.name,
            "n_rows": fitted.n_rows,
            "n_classes": self.n_classes,
            "top_label": self.top_label,
            "keeps_argmax": self.keeps_argmax,
            "nll_before": fitted.nll_before,
            "nll_after": fitted.nll_after,
            "weighted": fitted.weighted,
            "shifts": list(fitted.shifts),
            "fingerprint": fitted.fingerprint,
            "parameters": self.scalar_parameters,
        }

    def __repr__(self) -> str:
        fitted = self.fitted
        shown = [f"{name}={text}" for name, text in self.shown_parameters.items()]
        after = "?" if fitted.nll_after is None else f"{fitted.nll_after:.4f}"
        nll = f"{'weighted ' * fitted.weighted}NLL {fitted.nll_before:.4f} → {after} on {fitted.n_rows:,} rows"
        return f"{type(self).__name__}({', '.join([*shown, nll])})"


FIT = "fit a calibrator"
OF_CONFIDENCE = ("identity", "platt", "beta", "spline", "histogram", "bbq", "venn_abers", "isotonic")


def check_validation(
    validation: Predictions,
    argument: str = "validation",
    purpose: str = FIT,
    *,
    of_confidence: bool = False,
) -> None:
    """At least one row, all labelled; of all classes, or also ``of_confidence`` alone."""
    check_instance(argument, validation, Predictions)
    if not of_confidence:
        others = f" other than {', '.join(OF_CONFIDENCE)}" if purpose == FIT else ""
        check_all_classes(argument, validation, f"{purpose}{others}")
    if len(validation) == 0:
        raise InvalidInputError(f"{argument} must have at least one row")
    if validation.has_soft_labels:
        raise InvalidInputError(
            f"{argument} must have one label for each row to {purpose}, got {LABEL_PROBS}: only temperature and "
            "temperature_grid take soft labels"
        )
    check_all_labelled(validation.labels == UNKNOWN, argument, purpose)


def scale_rows(logits: Tensor, temperature: Tensor) -> Tensor:
    """Logits (n, k) divided by the temperature (n,) of each row, block by block."""
    found = torch.empty_like(logits)
    for rows in blocks(*logits.shape):
        found[rows] = scale_logits(logits[rows], temperature[rows].unsqueeze(1))
    return found


def mean_nll(predictions: Predictions, weights: Tensor | None = None) -> float:
    """Mean of −log p_y, summed in float64; a row of weight 0 does not count, whatever its NLL."""
    total = 0.0
    for rows in blocks(*predictions.logits.shape):
        logits, labels = predictions.logits[rows], predictions.labels[rows]
        nll = nn.functional.cross_entropy(logits, labels, reduction="none").double()
        if weights is not None:
            nll = torch.where(weights[rows] > 0, nll * weights[rows], 0.0)
        total += sum_of(nll)
    return total / (len(predictions) if weights is None else sum_of(weights))
