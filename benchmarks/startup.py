"""What a person waits for at the command line, relative to the import of the libraries that the command needs.

Run: python benchmarks/startup.py [--rounds 5] [--experiment runs/demo]
CPU time of processes, one after the other in each round. Without an experiment, its commands are left out.
"""

import argparse
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import median
from typing import NamedTuple

import torch
from recording import Ratio, record
from rich.console import Console
from rich.table import Table

import calibrant as cb

N_ROWS, N_CLASSES = 1000, 10
ENVIRONMENT = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
CALIBRANT = (sys.executable, "-m", "calibrant")
SECOND = "a second of CPU"


class Floor(NamedTuple):
    """Libraries that a command cannot do without, the goal, and the commands."""

    imports: str
    at_most: float
    calls: tuple[str, ...]


FLOORS = (
    Floor(
        "cyclopts, rich",
        2.0,
        (
            "slove",
            "audit --foo",
            "audit missing.parquet",
            "audit val.parquet --metrics ecee",
            "fit val.parquet --calibrator spine -o x.json",
            "run missing.toml",
            "run bad.toml",
            "data check cifar11",
            "train --foo",
        ),
    ),
    Floor("pyarrow", 2.0, ("data list", "solve --help", "schema", "table EXPERIMENT --format csv")),
    Floor(
        "torch, pyarrow.parquet",
        1.35,
        ("audit test.parquet", "fit val.parquet -o t.json", "apply t.json test.parquet -o calibrated.parquet"),
    ),
)
SECONDS = {"audit test.parquet --report audit.html": 1.5, "report EXPERIMENT": 4.0}  # of the first, beyond audit


def cpu_seconds(command: tuple[str, ...], folder: Path) -> float:
    """User and system time of a process."""
    silent = subprocess.DEVNULL
    started = subprocess.Popen(command, cwd=folder, env=ENVIRONMENT, stdout=silent, stderr=silent)
    _, status, usage = os.wait4(started.pid, 0)
    started.returncode = os.waitstatus_to_exitcode(status)
    assert started.returncode in (0, 2), command
    return usage.ru_utime + usage.ru_stime


def write_files(folder: Path) -> None:
    draws = torch.Generator().manual_seed(0)
    for name in ("val", "test"):
        logits = 2 * torch.randn(N_ROWS, N_CLASSES, generator=draws)
        labels = (logits / 1.5).softmax(1).multinomial(1, generator=draws).squeeze(1)
        cb.Predictions.from_logits(logits, labels).save(folder / f"{name}.parquet")
    (folder / "bad.toml").write_text("[")


def measure(folder: Path, experiment: Path | None, n_rounds: int) -> dict[str, list[float]]:
    """The seconds of each import and each call, by round; a first round, which writes bytecode, is not counted."""
    calls = [call for floor in FLOORS for call in floor.calls] + list(SECONDS)
    commands = {floor.imports: (sys.executable, "-c", f"import {floor.imports}") for floor in FLOORS}
    for call in calls:
        if "EXPERIMENT" not in call:
            commands[call] = (*CALIBRANT, *call.split())
        elif experiment is not None:
            commands[call] = (*CALIBRANT, *call.replace("EXPERIMENT", str(experiment.absolute())).split())
    rounds = [{name: cpu_seconds(command, folder) for name, command in commands.items()} for _ in range(n_rounds + 1)]
    return {name: [times[name] for times in rounds[1:]] for name in commands}


def compare(seconds: dict[str, list[float]]) -> list[Ratio]:
    found = []

    def add(call: str, relative_to: str, values: list[float], at_most: float) -> None:
        found.append(
            Ratio(
                what=f"calibrant {call}",
                relative_to=relative_to,
                ratio=round(median(values), 3),
                low=round(min(values), 3),
                high=round(max(values), 3),
                at_most=at_most,
            )
        )

    for floor in FLOORS:
        for call in filter(seconds.__contains__, floor.calls):
            values = [time / least for time, least in zip(seconds[call], seconds[floor.imports], strict=True)]
            add(call, f'python -c "import {floor.imports}"', values, floor.at_most)
    for call, at_most in SECONDS.items():
        if call in seconds:
            without, _, option = call.partition(" --report")
            before = seconds[without] if option else [0.0] * len(seconds[call])
            values = [time - least for time, least in zip(seconds[call], before, strict=True)]
            add(call, f"{SECOND}, beyond calibrant {without}" if option else SECOND, values, at_most)
    return found


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--experiment", type=Path, help="the folder of an experiment that has been run, as runs/demo")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        write_files(Path(folder))
        found = compare(measure(Path(folder), arguments.experiment, arguments.rounds))
    table = Table("command", "relative to", "ratio", "from", "to", "goal")
    for each in found:
        table.add_row(
            each.what, each.relative_to, *(f"{x:.2f}" for x in (each.ratio, each.low, each.high)), f"{each.at_most}"
        )
    Console(width=150).print(table)
    record("startup", found)


if __name__ == "__main__":
    main()
