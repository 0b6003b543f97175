"""Models with one logit for two classes, as `torch.nn.BCEWithLogitsLoss` trains them."""

import torch
from torch import Tensor

from calibrant.errors import InvalidInputError


def is_one_logit(logits: Tensor) -> bool:
    """Whether there is one number where the classes would be: shape (n,), (n, 1) or (n, 1, d1, …)."""
    return logits.ndim == 1 or (logits.ndim > 1 and logits.shape[1] == 1)


def two_logits(logits: Tensor) -> Tensor:
    """(n, 2, …) logits 0 and z, whose softmax is 1 − sigmoid(z) and sigmoid(z)."""
    positive = logits if logits.ndim == 1 else logits.squeeze(1)
    return torch.stack([torch.zeros_like(positive), positive], dim=1)


def class_labels(labels: Tensor, logits: Tensor, ignored: int) -> Tensor:
    """Integers 0 and 1, or ``ignored``, of the labels of one logit, which BCE takes as floats of the same shape.

    Raises: InvalidInputError where a label is another number, or they have another shape.
    """
    if logits.ndim > 1 and labels.shape == logits.shape:
        labels = labels.squeeze(1)
    rows = logits.shape if logits.ndim == 1 else (len(logits), *logits.shape[2:])
    if tuple(labels.shape) != tuple(rows):
        got = f"{tuple(labels.shape)} for logits {tuple(logits.shape)}"
        raise InvalidInputError(f"labels must have a number for each row of a model with one logit, got shape {got}")
    good = (labels == 0) | (labels == 1) | (labels == ignored)
    if not bool(good.all()):
        raise InvalidInputError(f"labels must be 0 or 1 for a model with one logit, got {labels[~good][0].item():g}")
    return labels.long()
