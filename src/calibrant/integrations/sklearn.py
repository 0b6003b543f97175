"""A scikit-learn classifier with a calibrator, which is fitted to cross-validated logits."""

from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassifierMixin, MetaEstimatorMixin, clone
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import check_cv
from sklearn.utils import Tags, get_tags, indexable
from sklearn.utils.metaestimators import _safe_split
from sklearn.utils.multiclass import check_classification_targets, type_of_target
from sklearn.utils.validation import check_is_fitted, column_or_1d

from calibrant._paths import first_line
from calibrant.calibrators.table import calibrator_class
from calibrant.errors import InvalidInputError
from calibrant.predictions import Predictions

__all__ = ["CalibratedClassifier"]

MIN_PROB = float(np.finfo(np.float64).eps)  # for probabilities of 0, such as those of a random forest


class CalibratedClassifier(ClassifierMixin, MetaEstimatorMixin, BaseEstimator):  # type: ignore[misc]
    """A classifier whose probabilities go through a calibrator, fitted to logits of rows that it had not seen.

    Parameters
    ----------
    estimator
        A classifier with `predict_proba` or `decision_function`; logistic regression by default.
    calibrator
        A name in `CALIBRATORS` that needs logits and labels only.
    cv
        A number of folds (fewer where the rarest class has fewer rows), a splitter, or splits.

    Fitted: ``estimator_`` (to all rows), ``calibrator_`` and ``classes_``. Where all cross-validated predictions are
    correct, no temperature is best, and the least one allowed is taken (``calibrator_.at_bound``).
    """

    def __init__(self, estimator: Any = None, calibrator: str = "temperature", cv: Any = 5) -> None:
        self.estimator = estimator
        self.calibrator = calibrator
        self.cv = cv

    def fit(self, X: Any, y: Any) -> Self:  # noqa: N803
        cls = calibrator_class(self.calibrator)
        X, y = indexable(X, column_or_1d(y, warn=True))  # noqa: N806
        check_classification_targets(y)
        if cls.two_classes_only and type_of_target(y) == "multiclass":
            raise InvalidInputError(
                f"Only binary classification is supported. The type of the target is multiclass, and "
                f"{self.calibrator} is for two classes"
            )
        self.classes_, labels = np.unique(y, return_inverse=True)
        if len(self.classes_) < 2:
            raise InvalidInputError(f"y must have at least two classes, got {len(self.classes_)} class")
        if not hasattr(self._estimator, "fit") or isinstance(self._estimator, type):
            raise InvalidInputError(f"estimator must be a classifier, got {type(self._estimator).__name__}")
        self.estimator_ = clone(self._estimator).fit(X, y)
        validation = Predictions.from_logits(*self._unseen(X, y, labels))
        options: dict[str, Any] = {"at_bound": "clip"} if "at_bound" in cls.options() else {}
        self.calibrator_ = cls.fit(validation, **options)
        for name in ("n_features_in_", "feature_names_in_"):
            if hasattr(self.estimator_, name):
                setattr(self, name, getattr(self.estimator_, name))
        return self

    def predict_proba(self, X: Any) -> NDArray[np.float64]:  # noqa: N803
        check_is_fitted(self)
        predictions = Predictions.from_logits(logits_of(self.estimator_, X))
        probs: NDArray[np.float64] = self.calibrator_.calibrate(predictions).probs.numpy()
        return probs

    def predict(self, X: Any) -> NDArray[Any]:  # noqa: N803
        found: NDArray[Any] = self.predict_proba(X).argmax(1)
        return self.classes_[found]  # type: ignore[no-any-return]

    @property
    def _estimator(self) -> Any:
        return LogisticRegression() if self.estimator is None else self.estimator

    def _unseen(self, X: Any, y: Any, labels: NDArray[np.int64]) -> tuple[NDArray[np.float64], NDArray[np.int64]]:  # noqa: N803
        """Logits of rows by models that were fitted without them, and their labels."""
        counts = np.bincount(labels)
        if counts.min() < 2:
            raise InvalidInputError(f"y must have two rows of every class, got 1 of {self.classes_[counts.argmin()]}")
        folds = min(self.cv, int(counts.min())) if isinstance(self.cv, int) else self.cv
        try:
            splits = [(i, j, labels[i], labels[j]) for i, j in check_cv(folds, y, classifier=True).split(X, y)]
        except (TypeError, ValueError, IndexError, RuntimeError) as error:
            rule = "cv must be a number of folds, a splitter, or splits"
            raise InvalidInputError(f"{rule}, got {type(self.cv).__name__}: {first_line(error)}") from error
        if not splits:
            raise InvalidInputError("cv must have at least one split")
        logits = []
        for train, test, seen, _ in splits:
            if len(np.unique(seen)) < len(self.classes_):
                raise InvalidInputError("cv must leave rows of every class to fit on")
            model = clone(self._estimator).fit(*_safe_split(self._estimator, X, y, train))
            logits.append(logits_of(model, _safe_split(self._estimator, X, y, test, train)[0]))
        return np.concatenate(logits), np.concatenate([unseen for *_, unseen in splits])

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = get_tags(self._estimator).input_tags.sparse
        tags.classifier_tags.multi_class = not calibrator_class(self.calibrator).two_classes_only
        return tags


def logits_of(model: Any, X: Any) -> NDArray[np.float64]:  # noqa: N803
    """(n, k) log-probabilities, or decision values where a model has no probabilities."""
    if hasattr(model, "predict_proba"):
        probs = np.asarray(model.predict_proba(X), dtype=np.float64)
        return np.log(np.maximum(probs, MIN_PROB))
    values = np.asarray(model.decision_function(X), dtype=np.float64)
    return np.stack([np.zeros_like(values), values], axis=1) if values.ndim == 1 else values
