"""The number of threads changes no bit of an audit, a comparison, a fit or a calibrated row."""

from dataclasses import asdict
from pathlib import Path

import pytest
import torch
from threadpoolctl import threadpool_limits

import calibrant as cb
from calibrant import Predictions
from made.calibrator_data import like, shifted_rows

N_ROWS = 36_000  # torch divides sums of more than 2^15 numbers among threads
N_NEIGHBORS = 2_000  # rows whose distances to each other are computed
METRICS = ("ece", "cece", "aurc", "smece", "nll", "brier_on_errors")


@pytest.mark.slow
def test_threads_change_no_bit(tmp_path: Path) -> None:
    validation, test = (shifted_rows(N_ROWS, 2, seed=seed).predictions for seed in (1, 2))
    weights = 0.5 + torch.rand(N_ROWS, generator=torch.Generator().manual_seed(3))
    columns = {name: test.columns[name] for name in ("corruption", "severity", "domain")}
    test = like(test, columns={**columns, "weight": weights, "patient": torch.arange(N_ROWS) // 5})
    alone, several = (_results(validation, test, n_threads, tmp_path) for n_threads in (1, 3))
    assert [name for name, found in alone.items() if several[name] != found] == []


def _results(validation: Predictions, test: Predictions, n_threads: int, folder: Path) -> dict[str, object]:
    """What is computed with so many threads, as text or bytes."""
    torch.set_num_threads(n_threads)
    results: dict[str, object] = {}
    with threadpool_limits(n_threads):
        for name, cls in cb.CALIBRATORS.items():
            n = N_NEIGHBORS if cls.needs_features else N_ROWS
            calibrator = cls.fit(validation[:n], **({"target": test} if cls.needs_target else {}))
            calibrator.save(folder / "calibrator.json")
            results[f"fit of {name}"] = (folder / "calibrator.json").read_text(encoding="utf-8")
            results[f"rows of {name}"] = calibrator.calibrate(test[:n]).logits.numpy().tobytes()
        audit = cb.audit(test, weights="weight", cluster="patient")
        results["audit"] = str(audit.to_dict(METRICS))
        differences = cb.compare(test, like(test, logits=test.logits / 2), weights="weight", metrics=METRICS)
        results["comparison"] = str([asdict(row) for row in differences])
    torch.set_num_threads(1)
    return results
