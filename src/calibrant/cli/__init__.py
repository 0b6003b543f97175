"""The command line: one module per verb; heavy imports stay inside the verbs, so that help answers at once."""

import os
import sys

from cyclopts import App, CycloptsError
from rich.console import Console

import calibrant
from calibrant.cli.apply import apply
from calibrant.cli.audit import audit
from calibrant.cli.compare import compare_calibrators
from calibrant.cli.corrupt import corrupt
from calibrant.cli.data import data
from calibrant.cli.fit import fit
from calibrant.cli.solve import solve
from calibrant.errors import CalibrantError, FailedRunsError, InterruptedRunError, printable

app = App(
    name="calibrant",
    help="Train, measure and mend classifiers so that their probabilities stay honest when the data shift.",
    version=calibrant.__version__,
)
for verb in (apply, audit, compare_calibrators, corrupt, fit, solve):
    app.command(verb)
app.command(data)
# these need the extra train, and are loaded when they are asked for
TRAIN = """Train a classifier, and predict its tests and every shifted test.

The same command goes on with a run that was stopped. For many processes: torchrun -m calibrant train ...
"""
app.command("calibrant.cli.train:train", help=TRAIN)
RUN = """Train losses × seeds, measure them under shift, and show the tables: an experiment from one file.

Runs that are done are not done again; the same command goes on after Ctrl-C, a crash or a full disk.
"""
app.command("calibrant.cli.run:run", help=RUN)
app.command("calibrant.cli.rows:rows", help="Print the rows of an experiment: a score per run, test and metric.")
app.command("calibrant.cli.table:table", help="Print a table of the paper with the scores of an experiment.")
app.command("calibrant.cli.figure:figure", help="Draw a figure of an experiment, or all of them.")
app.command("calibrant.cli.report:report", help="Write the figures of an experiment, and a page of all that it found.")
app.command("calibrant.cli.schema:schema", help="Print the JSON schema of experiment files, for editors.")
app.command("calibrant.cli.predict:predict", help="Write the predictions of a trained run, or of your own model.")


def main() -> None:
    """Run the command line: exit with 0; with a line on standard error 2 (bad input), 1 (failed runs), 130 (stop)."""
    try:
        app(print_error=False, exit_on_error=False)
    except (CalibrantError, CycloptsError) as error:
        if os.environ.get("RANK", "0") == "0":  # of the processes that torchrun has started, one speaks
            line = printable(f"calibrant: {error}")
            Console(stderr=True, soft_wrap=True).print(line, style="red", markup=False, highlight=False)
        sys.exit(130 if isinstance(error, InterruptedRunError) else 1 if isinstance(error, FailedRunsError) else 2)
    except BrokenPipeError:  # the reader, head say, has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
