"""Small predictions, the same on every call, and what makes two of them the same."""

from typing import Any

import torch

from calibrant import Predictions

N_ROWS, N_CLASSES = 10, 3
HOSPITALS = ["A", "B", "A", "C", "B", "A", "C", "A", "B", "A"]
SEVERITIES = [1, 2, 3, 1, 2, 3, 1, 2, 3, 1]


def rows_of(n: int = N_ROWS, k: int = N_CLASSES, seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    """Logits (n, k) and labels (n,)."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(n, k, generator=generator), torch.randint(k, (n,), generator=generator)


def example(seed: int = 0, **options: Any) -> Predictions:
    """Ten rows of three classes with the columns hospital and severity."""
    options.setdefault("columns", {"hospital": HOSPITALS, "severity": SEVERITIES})
    return Predictions.from_logits(*rows_of(seed=seed), **options)


def assert_same(found: Predictions, wanted: Predictions) -> None:
    """The same rows in the same order, to the bit."""
    assert len(found) == len(wanted)
    assert found.n_classes == wanted.n_classes
    assert torch.equal(found.logits, wanted.logits.float())
    assert torch.equal(found.labels, wanted.labels)
    assert found.columns.column_names == wanted.columns.column_names
    assert found.columns.to_pydict() == wanted.columns.to_pydict()
    assert found.class_names == wanted.class_names
    assert found.fingerprint == wanted.fingerprint
    assert (found.features is None) == (wanted.features is None)
    if found.features is not None and wanted.features is not None:
        assert found.features.dtype == torch.float16
        assert torch.equal(found.features, wanted.features)
