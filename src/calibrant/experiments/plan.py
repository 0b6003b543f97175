"""What an experiment has to do: its runs, which of them are done, and how long the others will take."""

import json
import os
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any, Literal

from calibrant._checks import check_choice
from calibrant.data import open_dataset
from calibrant.errors import InvalidInputError, NoDataError
from calibrant.experiments.config import AXES, Experiment, Run, planned
from calibrant.experiments.evaluate import Measures, is_evaluated
from calibrant.experiments.work import Task
from calibrant.metrics.table import check_metrics
from calibrant.training.folder import RunFolder
from calibrant.training.predicting import chosen_names

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
        took: dict[str, float] = {}  # of a run that was measured again, the time that its training took
        for record in self._records():
            if record.get("failure") is None:
                took[record["run"]] = max(record["seconds"], took.get(record["run"], 0.0))
        kinds: dict[tuple[str, str], list[float]] = {}
        for run in self.states:
            if run.name in took:
                kinds.setdefault((run.settings.data, run.settings.model), []).append(took[run.name])
        left = [run for run in self.chosen if self.states[run] != "done"]
        of = {run: kinds.get((run.settings.data, run.settings.model)) for run in left}
        return {run: median(found) if found else None for run, found in of.items()}

    def _records(self) -> list[dict[str, Any]]:
        if not self.log.is_file():
            return []
        found = []
        for line in self.log.read_text(encoding="utf-8", errors="replace").splitlines():
            with suppress(ValueError):  # it was cut off where the sweep was killed
                found.append(json.loads(line))
        return found


def _check_data(run: Run, experiment: Experiment) -> None:
    """That the data set has what is asked for, as far as can be told where its files may not be there."""
    settings = run.settings
    with suppress(NoDataError):
        data = open_dataset(settings.data, settings.root, image_size=settings.image_size)
        chosen_names(data, settings.shifts or ("none",), f"shift of {run.name}")
        check_metrics(experiment.metrics, data.n_classes)


def make_plan(experiment: Experiment, folder: Path, only: Mapping[str, str] | None = None) -> Plan:
    """The runs of an experiment, and what is there of them already.

    only: of each axis the value that is wanted, as {"loss": "maxent_mean", "seed": "0"}.

    Raises: InvalidInputError where the folder of a run is that of another configuration; both hashes are told.
    """
    measures = Measures.of(experiment)
    states: dict[Run, State] = {}
    for run in planned(experiment):
        _check_data(run, experiment)
        files = RunFolder(folder / run.name)
        files.check_same(run.settings)
        done = files.is_done and is_evaluated(run, files.path, measures)
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
