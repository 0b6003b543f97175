"""The command line: one module per command. Heavy imports stay inside the commands, which keeps `--help` fast."""

import os
import sys
from pathlib import Path
from typing import Any

from cyclopts import App, CycloptsError, Parameter
from rich.console import Console

import calibrant
from calibrant._signals import exit_code
from calibrant.cli.apply import apply
from calibrant.cli.audit import audit
from calibrant.cli.average import average
from calibrant.cli.certify import certify
from calibrant.cli.compare import compare_calibrators
from calibrant.cli.convert import convert
from calibrant.cli.corrupt import corrupt
from calibrant.cli.data import data
from calibrant.cli.detect import detect
from calibrant.cli.estimate import estimate
from calibrant.cli.examples import epilogue
from calibrant.cli.export import export
from calibrant.cli.figure import figure
from calibrant.cli.fit import fit
from calibrant.cli.label import label
from calibrant.cli.monitor import monitor
from calibrant.cli.options import check_text
from calibrant.cli.output import prepare_streams
from calibrant.cli.predict import predict
from calibrant.cli.report import report
from calibrant.cli.run import run
from calibrant.cli.schema import schema
from calibrant.cli.sets import sets
from calibrant.cli.solve import solve
from calibrant.cli.table import table
from calibrant.errors import (
    CalibrantError,
    FailedRunsError,
    InterruptedRunError,
    InvalidInputError,
    MissingExtraError,
    ResourceError,
    printable,
)


class Program(App):
    """The app; where a user names the file of the completion, no file is replaced."""

    def install_completion(self, *, output: Path | None = None, **options: Any) -> Path:
        if output is not None and output.exists():
            raise InvalidInputError(f"{output} exists: choose another name, or remove it")
        return super().install_completion(output=output, **options)


app = Program(
    name="calibrant",
    help="Train, measure and calibrate classifiers, also under distribution shift.",
    help_epilogue=epilogue(""),
    version=calibrant.__version__,
    suppress_keyboard_interrupt=False,  # `__main__` prints the line
    default_parameter=Parameter(validator=check_text),
)
for verb in (
    apply,
    audit,
    average,
    certify,
    compare_calibrators,
    convert,
    corrupt,
    detect,
    estimate,
    export,
    figure,
    fit,
    label,
    monitor,
    predict,
    report,
    run,
    schema,
    solve,
    table,
):
    app.command(verb, help_epilogue=epilogue(verb.__name__.replace("_", "-")))
app.command(data)
data.help_epilogue = epilogue("data")
for name in ("check", "fetch", "list", "where"):
    data[name].help_epilogue = epilogue(f"data {name}")
app.command(sets)
sets.help_epilogue = epilogue("sets")
for name in ("apply", "check", "fit"):
    sets[name].help_epilogue = epilogue(f"sets {name}")
# `train` needs the extra train, which may be missing: it is imported on demand, and its help is repeated here.
TRAIN = """Train a classifier, and predict its validation split, its test and every shifted test.

The same command resumes a run that was stopped. Start it with torchrun for many processes.
"""
app.command("calibrant.cli.train:train", help=TRAIN, help_epilogue=epilogue("train"))
app.register_install_completion_command(
    help="Install tab completion for your shell.", help_epilogue=epilogue("--install-completion")
)


def main() -> None:
    """Run the command line. Exit codes: 0, 2 (bad input), 1 (failed runs), 128 + a signal; errors are one line."""
    prepare_streams()
    try:
        check_working_directory()
        try:
            app(print_error=False, exit_on_error=False)
        finally:
            sys.stdout.flush()  # raises here, not at the end of the interpreter
    except (CalibrantError, CycloptsError, ImportError, OSError) as error:
        if isinstance(error.__cause__, MissingExtraError):  # cyclopts wraps that of a command imported on demand
            error = error.__cause__
        elif not isinstance(error, CalibrantError | CycloptsError):
            if not isinstance(error, OSError) or error.filename is None:
                raise
            error = ResourceError(f"{error.filename} cannot be used: {error.strerror}")  # the system's, not a bug
        if os.environ.get("RANK", "0") == "0":  # under torchrun, one process prints
            line = printable(f"calibrant: {error}")
            Console(stderr=True, soft_wrap=True).print(line, style="red", markup=False, highlight=False)
        sys.exit(
            exit_code() if isinstance(error, InterruptedRunError) else 1 if isinstance(error, FailedRunsError) else 2
        )


def check_working_directory() -> None:
    """Raises: ResourceError where it was removed; libraries that torch loads would end the process."""
    try:
        os.getcwd()
    except OSError as error:
        raise ResourceError(f"the working directory cannot be used: {error.strerror}") from None
