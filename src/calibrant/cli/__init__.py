"""The command line: one module per verb; heavy imports stay inside the verbs, so that help answers at once."""

import os
import sys
from io import TextIOWrapper

from cyclopts import App, CycloptsError
from rich.console import Console

import calibrant
from calibrant.cli.apply import apply
from calibrant.cli.audit import audit
from calibrant.cli.compare import compare_calibrators
from calibrant.cli.corrupt import corrupt
from calibrant.cli.data import data
from calibrant.cli.examples import epilogue
from calibrant.cli.figure import figure
from calibrant.cli.fit import fit
from calibrant.cli.predict import predict
from calibrant.cli.report import report
from calibrant.cli.run import run
from calibrant.cli.schema import schema
from calibrant.cli.solve import solve
from calibrant.cli.table import table
from calibrant.errors import CalibrantError, FailedRunsError, InterruptedRunError, printable

app = App(
    name="calibrant",
    help="Train, measure and calibrate classifiers so that their probabilities stay honest when the data shift.",
    help_epilogue=epilogue(""),
    version=calibrant.__version__,
)
for verb in (apply, audit, compare_calibrators, corrupt, figure, fit, predict, report, run, schema, solve, table):
    app.command(verb, help_epilogue=epilogue(verb.__name__.replace("_", "-")))
app.command(data)
data.help_epilogue = epilogue("data")
for name in ("check", "fetch", "list", "where"):
    data[name].help_epilogue = epilogue(f"data {name}")
# Its flags are the settings of the extra train: it is loaded when it is asked for, and its help is said here as well.
TRAIN = """Train a classifier, and predict its validation split, its test and every shifted test.

The same command resumes a run that was stopped. Start it with torchrun for many processes.
"""
app.command("calibrant.cli.train:train", help=TRAIN, help_epilogue=epilogue("train"))
app.register_install_completion_command(
    help="Let the shell complete verbs, options and files.", help_epilogue=epilogue("--install-completion")
)


def main() -> None:
    """Run the command line: exit with 0; with a line on standard error 2 (bad input), 1 (failed runs), 130 (stop)."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):  # not all have our characters: Windows' code pages, the locale C
            stream.reconfigure(errors="replace")
    try:
        app(print_error=False, exit_on_error=False)
    except (CalibrantError, CycloptsError) as error:
        if os.environ.get("RANK", "0") == "0":  # of the processes that torchrun has started, one speaks
            line = printable(f"calibrant: {error}")
            Console(stderr=True, soft_wrap=True).print(line, style="red", markup=False, highlight=False)
        sys.exit(130 if isinstance(error, InterruptedRunError) else 1 if isinstance(error, FailedRunsError) else 2)
    except BrokenPipeError:  # the reader, head say, has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
