"""Statistics of sets of rows: entropy, confidence, distances of features, and the mix of predicted classes."""

import math
from collections.abc import Sequence
from typing import TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from calibrant._arrays import blocks
from calibrant.calibrators.domains import sorted_groups
from calibrant.calibrators.maps import log_mahalanobis, prior_entropy, row_statistics
from calibrant.predictions import Predictions

# Of all rows and then of classes: means (c, f), axes (f, r) and variances (r + 1,); empty without features.
FeatureGaussians: TypeAlias = tuple[Tensor, ...]
MAX_AXES, MAX_CLASS_AXES = 16, 256
ROWS_PER_AXIS = 20  # of a class Gaussian, whose axes are of small variances too
FOLDS = 5
CLASS_DISTANCE = 3  # among the statistics


def set_numbers(predictions: Predictions, columns: Sequence[str]) -> NDArray[np.int64]:
    """The index of each row's set; the columns define them."""
    found = np.zeros(len(predictions), dtype=np.int64)
    for name in columns:
        number, values = sorted_groups(predictions, name)
        found = np.unique(found * max(1, len(values)) + number, return_inverse=True)[1]
    return found.astype(np.int64)


def set_means(
    predictions: Predictions, number: NDArray[np.int64], gaussians: FeatureGaussians
) -> tuple[Tensor, Tensor]:
    """The means of `row_values` of each set (n_sets, d − 1 + k), and its number of rows (n_sets,)."""
    of_row = torch.from_numpy(number)
    n_rows = torch.bincount(of_row).double()
    return _sums(predictions, of_row, len(n_rows), gaussians) / n_rows.unsqueeze(1), n_rows


def label_sums(one_set: Predictions, gaussians: FeatureGaussians) -> Tensor:
    """(c, d − 1 + k) the sums of `row_values` over the rows of each of the labels of a set, in their order."""
    labels, number = one_set.labels.unique(return_inverse=True)
    return _sums(one_set, number, len(labels), gaussians)


def _sums(predictions: Predictions, number: Tensor, n: int, gaussians: FeatureGaussians) -> Tensor:
    width = 2 + len(each_gaussian(gaussians)) + predictions.n_classes
    sums = torch.zeros(n, width, dtype=torch.float64)
    for rows in blocks(*predictions.logits.shape):
        sums.index_add_(0, number[rows], row_values(predictions, rows, gaussians))
    return sums


def row_values(predictions: Predictions, rows: slice, gaussians: FeatureGaussians) -> Tensor:
    """(n, d − 1 + k) of each row: entropy, confidence, log distances if there are Gaussians; then its probabilities."""
    logits = predictions.logits[rows].double()
    parts = [row_statistics(logits)]
    for gaussian in each_gaussian(gaussians):
        features: Tensor = predictions.features[rows]  # type: ignore[index]
        parts.append(log_mahalanobis(features, *gaussian).unsqueeze(1))
    return torch.cat([*parts, logits.softmax(1)], dim=1)


def set_statistics(means: Tensor, n_rows: Tensor, n_classes: int) -> Tensor:
    """(m, d) means of entropy, confidence and log distances, and entropy of the mean prediction, from `set_means`."""
    d = means.shape[1] - n_classes
    return torch.cat([means[:, :d], prior_entropy(means[:, d:], n_rows).unsqueeze(1)], dim=1)


def row_noise(base: Predictions, gaussians: FeatureGaussians, held_out: Tensor | None) -> tuple[Tensor, Tensor]:
    """The statistics of a set, and the covariance of what its rows add to them.

    A row of probabilities p adds −Σ p log q to the entropy of the mean prediction q. Its distance from the nearest
    class is that of a new row, ``held_out`` (n,), if the Gaussians were fitted to these rows.
    """
    k = base.n_classes
    means, n_rows = set_means(base, np.zeros(len(base), dtype=np.int64), gaussians)
    statistics = set_statistics(means, n_rows, k)
    if held_out is not None:
        statistics[0, CLASS_DISTANCE] = held_out.mean()
    d = statistics.shape[1] - 1
    sums, squares = torch.zeros(d + 1, dtype=torch.float64), torch.zeros(d + 1, d + 1, dtype=torch.float64)
    surprise = -means[0, d:].log().clamp(min=-1e4) / math.log(k)
    for rows in blocks(*base.logits.shape):
        values = row_values(base, rows, gaussians)
        if held_out is not None:
            values[:, CLASS_DISTANCE] = held_out[rows]
        added = torch.cat([values[:, :d], (values[:, d:] @ surprise).unsqueeze(1)], dim=1) - statistics
        sums += added.sum(0)
        squares += added.T @ added
    mean = sums / len(base)
    covariance = squares / len(base) - mean.outer(mean)
    least = 1e-6 * covariance.diagonal().mean().clamp(min=1e-9)  # keeps statistics that are all alike from dominating
    return statistics[0], covariance + least * torch.eye(d + 1, dtype=torch.float64)


def each_gaussian(gaussians: FeatureGaussians) -> list[tuple[Tensor, ...]]:
    """Means, axes and variances of each of the Gaussians."""
    return [gaussians[i : i + 3] for i in range(0, len(gaussians), 3)]


def fit_gaussians(rows: Predictions) -> FeatureGaussians:
    """Of the features of all rows, and with the mean of each predicted class; empty without features."""
    features = rows.features
    if features is None:
        return ()
    one_class = torch.zeros(len(features), dtype=torch.int64)
    n_axes = min(MAX_CLASS_AXES, len(features) // ROWS_PER_AXIS)
    return *fit_gaussian(features, one_class, MAX_AXES), *fit_gaussian(features, rows.logits.argmax(1), n_axes)


def fit_gaussian(features: Tensor, classes: Tensor, n_axes: int) -> tuple[Tensor, Tensor, Tensor]:
    """The mean of each class; principal axes and variances within classes, the last of them the mean of the others."""
    x = features.double()
    known, of_row = classes.unique(return_inverse=True)
    counts = torch.bincount(of_row).unsqueeze(1)
    means = torch.zeros(len(known), x.shape[1], dtype=torch.float64).index_add_(0, of_row, x) / counts
    residuals = x - means[of_row]
    values, vectors = torch.linalg.eigh(residuals.T @ residuals / len(x))
    r = min(n_axes, x.shape[1] - 1)
    rest = values[: len(values) - r].mean()
    least = 1e-3 * values.mean().clamp(min=1e-12)  # keeps a direction without variance from dominating
    variances = torch.cat([values[len(values) - r :], rest.unsqueeze(0)]).clamp(min=0) + least
    return means, vectors[:, len(values) - r :].contiguous(), variances


def held_out_distances(rows: Predictions) -> Tensor:
    """(n,) log distance from the nearest class, by a fit to the other folds; those of a fit to all are too short."""
    found = torch.empty(len(rows), dtype=torch.float64)
    order = torch.from_numpy(np.argsort(rows.row_hashes[0], kind="stable"))
    for own in order.tensor_split(FOLDS):
        others = torch.ones(len(rows), dtype=torch.bool)
        others[own] = False
        _, of_classes = each_gaussian(fit_gaussians(rows[others]))
        found[own] = log_mahalanobis(rows[own].features, *of_classes)  # type: ignore[arg-type]
    return found
