"""The training rows that are held out for validation; the share of each class."""

from functools import lru_cache
from hashlib import blake2b

import torch
from torch import Tensor

from calibrant._checks import MAX_CLASSES, check_distributions, check_integer, check_integer_labels, check_label_range
from calibrant._signatures import checked
from calibrant.errors import InvalidInputError


@checked
def validation_rows(labels: Tensor, n_validation: int) -> Tensor:
    """The rows that are held out for validation: each class in proportion, chosen by a hash of the row number.

    No random generator is used: the rows do not depend on the version of a library.

    Args:
        labels: int64 (n,).
        n_validation: The number of rows to hold out.

    Returns:
        A mask, bool (n,).

    Raises:
        InvalidInputError: A label is no class, or there are none, or fewer rows than are to be held out.

    >>> validation_rows(torch.tensor([0, 0, 0, 0, 1, 1]), 3).sum()
    tensor(3)
    """
    labels = _check_labels(labels, MAX_CLASSES)
    check_integer("n_validation", n_validation, 0, len(labels))
    ranks = _ranks(len(labels))
    counts = torch.bincount(labels)
    quotas = counts * n_validation // len(labels)
    left = n_validation - int(quotas.sum())
    # the remainder goes to the classes that lost most by rounding down
    shortfall = counts * n_validation - quotas * len(labels)
    quotas[shortfall.argsort(descending=True, stable=True)[:left]] += 1
    held_out = torch.zeros(len(labels), dtype=torch.bool)
    for label, quota in enumerate(quotas.tolist()):
        rows = (labels == label).nonzero()[:, 0]
        held_out[rows[ranks[rows].argsort()[:quota]]] = True
    return held_out


@lru_cache(maxsize=4)  # shifted tests have the same rows
def _ranks(n_rows: int) -> Tensor:
    """The rank of each row in the order of the hashes."""
    order = sorted(range(n_rows), key=lambda row: blake2b(b"%d" % row, digest_size=8).digest())
    ranks = torch.empty(n_rows, dtype=torch.int64)
    ranks[order] = torch.arange(n_rows)
    return ranks


@checked
def class_prior(labels: Tensor, n_classes: int) -> Tensor:
    """The share of each class.

    Args:
        labels: int64 (n,), or soft labels (n, n_classes).
        n_classes: The number of classes.

    Returns:
        The shares, float64 (n_classes,).

    Raises:
        InvalidInputError: A label is no class, or there are none.

    >>> class_prior(torch.tensor([0, 0, 0, 2]), 3)
    tensor([0.7500, 0.0000, 0.2500], dtype=torch.float64)
    """
    check_integer("n_classes", n_classes, 1, MAX_CLASSES)
    if labels.is_floating_point() and labels.ndim == 2 and labels.shape[1] == n_classes and len(labels):
        return check_distributions("labels", labels).mean(0)
    labels = _check_labels(labels, n_classes)
    return torch.bincount(labels, minlength=n_classes).double() / len(labels)


def _check_labels(labels: Tensor, n_classes: int) -> Tensor:
    if labels.numel() == 0:
        raise InvalidInputError("labels must not be empty")
    labels = check_integer_labels("labels", labels, (labels.numel(),))
    check_label_range(labels, n_classes, None)
    return labels
