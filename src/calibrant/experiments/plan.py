"""What an experiment has to do: its runs, which of them are done, and how long the others will take."""

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any, Literal

from calibrant._checks import check_choice
from calibrant.errors import InvalidInputError
from calibrant.experiments.config import AXES, Experiment, Run, planned
from calibrant.experiments.evaluate import Measures, is_evaluated
from calibrant.experiments.work import Task
from calibrant.training.folder import RunFolder

State = Literal["done", "begun", "to do"]


@dataclass(frozen=True)
class Plan:
    """The runs of an experiment in its folder; those that are chosen are the ones to be done now."""

    experiment: Experiment
    folder: Path
    states: Mapping[Run, State]
    chosen: tuple[Run, ...]

    @property
    def measures(self) -> Measures:
        return Measures.of(self.experiment)

    @property
    def log(self) -> Path:
        """A line for every run that ended: its name, whether it failed, and the seconds that it took."""
        return self.folder / "log.jsonl"

    def tasks(self, *, redo: bool = False) -> list[Task]:
        """What is to be done: begun runs, then all of one seed before the next, so that half of a sweep says something.

        redo: also those that are done, where a file is damaged.
        """
        runs = [run for run in self.chosen if redo or self.states[run] != "done"]
        runs.sort(key=lambda run: (self.states[run] != "begun", run.settings.seed))
        return [
            Task(
                run.name,
                os.path.abspath(self.folder / run.name),
                run.settings.model_dump(mode="json"),
                run.variant,
                self.measures,
                redo,
            )
            for run in runs
        ]

    def seconds(self) -> dict[Run, float | None]:
        """How long each run that is not done will take, by the median of those of the same data set and model."""
        took: dict[tuple[str, str], list[float]] = {}
        by_name = {run.name: run for run in self.states}
        for record in self._records():
            run = by_name.get(record.get("run", ""))
            if run is not None and record.get("failure") is None:
                took.setdefault((run.settings.data, run.settings.model), []).append(record["seconds"])
        kinds = {kind: median(found) for kind, found in took.items()}
        left = [run for run in self.chosen if self.states[run] != "done"]
        return {run: kinds.get((run.settings.data, run.settings.model)) for run in left}

    def _records(self) -> list[dict[str, Any]]:
        if not self.log.is_file():
            return []
        lines = self.log.read_text(encoding="utf-8").splitlines()
        return [json.loads(line) for line in lines if line.endswith("}")]  # the last one may have been cut off


def make_plan(experiment: Experiment, folder: Path, only: Mapping[str, str] | None = None) -> Plan:
    """The runs of an experiment, and what is there of them already.

    only: of each axis the value that is wanted, as {"loss": "maxent_mean", "seed": "0"}.

    Raises: InvalidInputError where the folder of a run is that of another configuration; both hashes are told.
    """
    measures = Measures.of(experiment)
    states: dict[Run, State] = {}
    for run in planned(experiment):
        files = RunFolder(folder / run.name)
        files.check_same(run.settings)
        done = files.is_done and is_evaluated(files.path, measures)
        states[run] = "done" if done else "begun" if files.config.exists() else "to do"
    chosen = tuple(run for run in states if all(run.has(key, value) for key, value in (only or {}).items()))
    for key, value in (only or {}).items():
        check_choice("axis", key, (*AXES, "variant"))
        if not any(run.has(key, value) for run in states):
            there = ", ".join(sorted({str(run.described[key]) for run in states}))
            raise InvalidInputError(f"only must name a {key} of the experiment, got {value!r}; there are {there}")
    if states and not chosen:
        raise InvalidInputError(f"only leaves none of the {len(states)} runs")
    return Plan(experiment, folder, states, chosen)
