"""The page of an experiment: what was found in words, what is missing, tables, charts, and how it was made."""

from calibrant.report.experiment.page import draw_experiment, experiment_page
from calibrant.report.experiment.progress import PlannedRun, RunKind

__all__ = ["PlannedRun", "RunKind", "draw_experiment", "experiment_page"]
