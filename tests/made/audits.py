"""Predictions of models of known calibration, in memory and in files; their rows for loops; verdicts."""

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import torch

from calibrant.audits.verdict import Verdict, VerdictKind
from calibrant.predictions import Predictions


def make_rows(
    n: int = 300, n_classes: int = 4, *, seed: int = 0, scale: float = 2.0, names: bool = False, **columns: Any
) -> Predictions:
    """Rows of an overconfident model (scale 1 is calibrated), with weights of which some are 0."""
    draw = torch.Generator().manual_seed(seed)
    logits = 1.5 * torch.randn(n, n_classes, generator=draw)
    labels = torch.multinomial(logits.softmax(1), 1, generator=draw).squeeze(1)
    weight = torch.rand(n, generator=draw, dtype=torch.float64)
    weight[::7] = 0
    table = {"w": weight, "site": ["ABC"[i % 3] for i in range(n)], "case_id": [f"case {i}" for i in range(n)]}
    class_names = [f"class {k}" for k in range(n_classes)] if names else None
    return Predictions.from_logits(scale * logits, labels, columns={**table, **columns}, class_names=class_names)


def save_parts(rows: Predictions, folder: Path, *, n_files: int = 3, row_group: int = 40) -> list[str]:
    """The rows in files of small row groups, as another writer may cut them."""
    whole = folder / "whole.parquet"
    rows.save(whole)
    table, paths = pq.read_table(whole), []
    whole.unlink()
    for i, start in enumerate(range(0, len(rows), -(-len(rows) // n_files))):
        paths.append(str(folder / f"{i}.parquet"))
        pq.write_table(table.slice(start, -(-len(rows) // n_files)), paths[-1], row_group_size=row_group)
    return paths


def plain_rows(rows: Predictions, weights: str | None = None) -> list[tuple[int, int, int, float, float]]:
    """Row number, label, predicted class, confidence, weight; from a softmax in float64, without rows of weight 0."""
    probs = np.exp(rows.logits.double().numpy() - rows.logits.double().numpy().max(1, keepdims=True))
    probs /= probs.sum(1, keepdims=True)
    weight = [1.0] * len(rows) if weights is None else rows.column(weights).to_pylist()
    found = []
    for i, (row, label, w) in enumerate(zip(probs, rows.labels.tolist(), weight, strict=True)):
        if w > 0:
            found.append((i, label, int(row.argmax()), float(row.max()), w))
    return found


def make_groups(*parts: tuple[str, int, float], confidence: float = 0.8) -> Predictions:
    """Groups of so many rows of two classes, with one confidence and this accuracy."""
    names = [name for name, n, _ in parts for _ in range(n)]
    correct = [i < round(n * accuracy) for _, n, accuracy in parts for i in range(n)]
    probs = torch.full((len(names),), confidence, dtype=torch.float64)
    return Predictions.from_positive_probs(probs, torch.tensor(correct).long(), columns={"site": names})


def make_verdict(kind: VerdictKind = "overconfident", **changes: Any) -> Verdict:
    """A verdict of 5,000 rows with an ECE of 4.1 percentage points, and these fields changed."""
    p_value = 0.2 if kind in ("no_evidence", "too_few_rows") else 1e-9
    fields: dict[str, Any] = {
        "n_rows": 5000,
        "n_effective": 5000.0,
        "accuracy": 0.88,
        "accuracy_interval": (0.87, 0.93),
        "confidence": 0.92,
        "gap_interval": (-0.01, 0.05),
        "ece": 0.041,
        "ece_interval": (0.032, 0.05),
        "noise_floor": 0.009,
        "overconfidence": 0.04,
        "underconfidence": 0.001,
        "p_ece": p_value,
        "p_gap": p_value,
        "crossing": None,
        "overconfident_above": False,
        "level": 0.95,
        **changes,
    }
    return Verdict(kind=kind, decision_interval=fields["ece_interval"], **fields)
