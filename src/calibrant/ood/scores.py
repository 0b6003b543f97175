"""Out-of-distribution scores of rows, from logits, stored features or a column; higher means more likely out."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias, TypedDict, Unpack

import torch
from sklearn.covariance import ledoit_wolf
from torch import Tensor, nn

from calibrant._arrays import as_float32, blocks
from calibrant._checks import check_all_classes, check_all_labelled, check_integer, check_same_class_names
from calibrant._names import check_choice
from calibrant.calibrators.checks import check_feature_count, check_has_features
from calibrant.calibrators.conditional import score_values
from calibrant.errors import InvalidInputError
from calibrant.metrics.sample_scores import sample_scores
from calibrant.predictions import Predictions

Scorer: TypeAlias = Callable[[Predictions], Tensor]  # (n,) float64 scores of n rows
MAX_NEIGHBORS = 50  # k by default, as Sun et al. (2022) for CIFAR-10,
NEIGHBOR_SHARE = 0.01  # but no more than this share of the reference
SIMILARITY_BLOCK = 2**22  # numbers at a time
MIN_VARIANCE = 1e-9  # of a direction, relative to the mean: rounding may leave less than 0
NORMALISED = 2e-3  # log of the sum of probabilities that were stored with few digits, at most


class OodOptions(TypedDict, total=False):
    """The options of all scores."""

    k: int


@dataclass(frozen=True)
class OodScore:
    """An entry of `OOD_SCORES`: how it is made, and what it needs.

    Args:
        fit: From the reference, or None, and options to a function of predictions.
        needs_reference: Whether it is fitted to rows of known, inside data.
        needs_features: Whether the reference and the rows must have features.
        needs_labels: Whether the reference must have labels.
        needs_logits: Whether it depends on the constant of a row's logits, which no probability shows.
        needs_column: The column that it reads, if it does.
        options: The keyword arguments of ``fit``.
    """

    fit: Callable[..., Scorer]
    needs_reference: bool = False
    needs_features: bool = False
    needs_labels: bool = False
    needs_logits: bool = False
    needs_column: str = ""
    options: tuple[str, ...] = ()


def _of_logits(score: Callable[[Tensor], Tensor]) -> Callable[[None], Scorer]:
    """The score of each row's logits, in float64; logits as a file has them, so that equal rows have equal scores."""

    def scorer(predictions: Predictions) -> Tensor:
        logits = predictions.logits
        return torch.cat([score(as_float32(logits[rows]).double()) for rows in blocks(*logits.shape)])

    return lambda reference: scorer


def max_probability(logits: Tensor) -> Tensor:
    """1 − the largest probability (Hendrycks & Gimpel 2017); it keeps its digits where the probability rounds to 1."""
    return sample_scores(logits, torch.zeros(len(logits), dtype=torch.int64))[0].complement


def max_logit(logits: Tensor) -> Tensor:
    """− the largest logit (Hendrycks et al. 2022)."""
    return -logits.amax(1)


def energy(logits: Tensor) -> Tensor:
    r"""The free energy :math:`-\log \sum_k e^{z_k}` (Liu et al. 2020), at temperature 1."""
    return -logits.logsumexp(1)


def entropy(logits: Tensor) -> Tensor:
    """The entropy of the probabilities, in nats."""
    return sample_scores(logits, torch.zeros(len(logits), dtype=torch.int64))[0].entropy


def fit_neighbors(reference: Predictions, k: int | None = None) -> Scorer:
    """The distance to the k-th nearest row of the reference; features are normalised to length 1 (Sun et al. 2022)."""
    bank = nn.functional.normalize(_features(reference).double(), dim=1)
    default = min(MAX_NEIGHBORS, max(1, int(NEIGHBOR_SHARE * len(bank))))
    k = default if k is None else check_integer("k", k, 1, len(bank))
    half = -bank.square().sum(1) / 2  # the nearest b have the largest x·b − b²/2: one pass over one matrix

    def scorer(predictions: Predictions) -> Tensor:
        features, found = _features(predictions), []
        for rows in blocks(len(features), len(bank), size=SIMILARITY_BLOCK):
            x = nn.functional.normalize(features[rows].double(), dim=1)
            nearest = torch.addmm(half, x, bank.T).topk(k, dim=1).values[:, -1]
            found.append((x.square().sum(1) - 2 * nearest).clamp(min=0).sqrt())
        return torch.cat(found)

    return scorer


def fit_mahalanobis(reference: Predictions) -> Scorer:
    """The Mahalanobis distance to the nearest class mean, with one covariance for all classes (Lee et al. 2018).

    The covariance is shrunk towards a multiple of the identity as Ledoit and Wolf (2004) do.
    """
    features, labels = _features(reference).double(), reference.labels
    known = labels.unique()
    means = torch.stack([features[labels == label].mean(0) for label in known])
    residuals = features - means[torch.searchsorted(known, labels)]
    if not bool(residuals.any()):
        raise InvalidInputError("reference must have features that differ within a class for mahalanobis")
    shrunk, _ = ledoit_wolf(residuals.numpy(), assume_centered=True)
    variances, axes = torch.linalg.eigh(torch.from_numpy(shrunk))
    whiten = axes / variances.clamp(min=MIN_VARIANCE * variances.mean()).sqrt()
    centres = means @ whiten

    def scorer(predictions: Predictions) -> Tensor:
        found = _features(predictions)
        parts = blocks(len(found), max(found.shape[1], len(centres)), size=SIMILARITY_BLOCK)
        exact = "donot_use_mm_for_euclid_dist"
        distances = (torch.cdist(found[rows].double() @ whiten, centres, compute_mode=exact) for rows in parts)
        return torch.cat([distance.amin(1) for distance in distances])

    return scorer


def _of_column(name: str) -> Callable[[None], Scorer]:
    return lambda reference: lambda predictions: score_values(predictions, name)


def _features(predictions: Predictions) -> Tensor:
    assert predictions.features is not None  # checked before
    return predictions.features


OOD_SCORES: dict[str, OodScore] = {
    "max_probability": OodScore(_of_logits(max_probability)),
    "entropy": OodScore(_of_logits(entropy)),
    "max_logit": OodScore(_of_logits(max_logit), needs_logits=True),
    "energy": OodScore(_of_logits(energy), needs_logits=True),
    "nearest_neighbors": OodScore(fit_neighbors, needs_reference=True, needs_features=True, options=("k",)),
    "mahalanobis": OodScore(fit_mahalanobis, needs_reference=True, needs_features=True, needs_labels=True),
    "mutual_information": OodScore(_of_column("mutual_information"), needs_column="mutual_information"),
}


def check_method(method: str, options: Sequence[str] = ()) -> OodScore:
    """The entry of a name. Raises: UnknownNameError, and InvalidInputError if it lacks one of the options."""
    score = OOD_SCORES[check_choice("OOD score", method, OOD_SCORES)]
    for option in options:
        if option not in score.options:
            raise InvalidInputError(f"{option} is no option of {method}, whose options are: {_listed(score.options)}")
    return score


def fit_scorer(method: str, reference: Predictions | None, **options: Unpack[OodOptions]) -> Scorer:
    """A function of the rows that `check_rows` accepts, fitted to the reference if the method needs one."""
    score = check_method(method, tuple(options))
    if not score.needs_reference:
        return score.fit(None)
    if reference is None:
        what = " and labels" if score.needs_labels else ""
        rows = f"predictions on inside data with features{what} (--reference)"
        raise InvalidInputError(f"reference must be given for {method}: {rows}")
    check_not_empty("reference", reference)
    features = check_has_features(method, reference.features, "reference")
    if score.needs_labels:
        check_all_labelled(reference.labels < 0, "reference", f"fit {method}")
    if not bool((features != features[0]).any()) and len(features) > 1:
        raise InvalidInputError(f"reference must have features that differ for {method}, all rows have the same")
    return score.fit(reference, **options)


def check_rows(method: str, argument: str, predictions: Predictions, reference: Predictions | None) -> None:
    """Raise unless the rows have what the method needs, and are comparable with its reference."""
    score = OOD_SCORES[method]
    if score.needs_logits:
        check_true_logits(method, argument, predictions)
    if score.needs_features:
        features = check_has_features(method, predictions.features, argument)
        if reference is not None and reference.features is not None:
            check_feature_count(method, reference.features.shape[1], features.shape[1])
    if score.needs_column and score.needs_column not in predictions.columns.column_names:
        hint = "calibrant average writes it with the mean of an ensemble"
        raise InvalidInputError(f"{argument} must have the column {score.needs_column} for {method}; {hint}")


def check_true_logits(method: str, argument: str, predictions: Predictions) -> None:
    """Raise where the constant that softmax ignores has been lost.

    Probabilities and log-probabilities have a log-sum-exp of 0, logits divided by a temperature a largest one of 0.
    """
    logits = predictions.logits

    def everywhere(rule: Callable[[Tensor], Tensor]) -> bool:
        return all(bool(rule(logits[rows].double()).all()) for rows in blocks(*logits.shape))

    lost = everywhere(lambda z: z.logsumexp(1).abs() <= NORMALISED) or everywhere(lambda z: z.amax(1) == 0)
    if lost or "calibrator" in predictions.metadata:
        what = "are calibrated" if "calibrator" in predictions.metadata else "are normalised"
        others = _listed([name for name, entry in OOD_SCORES.items() if not entry.needs_logits])
        raise InvalidInputError(
            f"{argument} must have the logits of the model for {method}, these {what}; without them: {others}"
        )


def check_comparable(argument: str, predictions: Predictions, first: str, other: Predictions) -> None:
    """Raise where two predictions are of other classes."""
    if predictions.n_classes != other.n_classes:
        rule = f"have the {other.n_classes} classes of {first}"
        raise InvalidInputError(f"{argument} must {rule}, got {predictions.n_classes}")
    check_same_class_names(first, other.class_names, argument, predictions.class_names)


def check_not_empty(argument: str, predictions: Predictions) -> None:
    """At least one row, of all classes."""
    check_all_classes(argument, predictions, "be scored for out-of-distribution rows")
    if len(predictions) == 0:
        raise InvalidInputError(f"{argument} must have at least one row")


def _listed(names: Sequence[str]) -> str:
    return ", ".join(names) or "none"
