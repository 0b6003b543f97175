"""The folder of an experiment from made-up rows: logs, environments, outcomes."""

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from calibrant.experiments.folder import ExperimentFolder
from made.rows import Experiment

ENVIRONMENT = {"calibrant": "0.1.0", "torch": "2.13.0", "gpu": None}
EPOCHS = 4


def epoch_records(loss: str, seed: int, n_epochs: int = EPOCHS) -> list[dict[str, Any]]:
    """The log of a run; that of a MaxEnt loss has the constraints."""
    records = []
    for epoch in range(1, n_epochs + 1):
        record: dict[str, Any] = {
            "epoch": epoch,
            "train_loss": 2.0 / epoch + 0.1 * seed,
            "val_accuracy": 0.5 + 0.1 * math.log(epoch) + 0.01 * seed,
            "val_ece": 0.1 / epoch + 0.01 * seed + 0.001 * len(loss),
        }
        if loss.startswith("maxent"):
            record |= {
                "constraint_active_fraction": 0.4 / epoch + 0.02 * seed,
                "constraint_gradient_share": 0.3,
                "constraint_moments": [4.5 + 0.1 / epoch + 0.2 * seed],
                "constraint_global_moments": [4.5],
                "constraint_local_moments": [4.25],
            }
        records.append(record)
    return records


def write_lines(path: Path, records: Iterable[Mapping[str, Any] | str]) -> None:
    """Records as JSON, and lines as they are."""
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = [record if isinstance(record, str) else json.dumps(record) for record in records]
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")


def write_folder(
    path: Path, made: Experiment, *, toml: str = "", outcomes: Sequence[Mapping[str, Any] | str] = ()
) -> ExperimentFolder:
    """The tables, and the files of every run in them."""
    path.mkdir(parents=True, exist_ok=True)
    folder = ExperimentFolder(path)
    folder.write_tables(*made.tables)
    for run, loss, seed in {(row["run"], row["loss"], row["seed"]) for row in made.rows}:
        write_lines(folder.run(run).log, epoch_records(loss, seed))
        folder.run(run).environment.write_text(json.dumps(ENVIRONMENT), encoding="utf-8")
    if toml:
        folder.experiment_file.write_text(toml, encoding="utf-8")
    if outcomes:
        write_lines(folder.log_file, outcomes)
    return folder
