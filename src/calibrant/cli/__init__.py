"""The command line: one module per command. Heavy imports stay inside the commands, which keeps `--help` fast."""

import os
import sys

from cyclopts import App, CycloptsError, Parameter, UnknownCommandError

import calibrant
from calibrant._signals import exit_code
from calibrant.cli.examples import epilogue
from calibrant.cli.options import check_text
from calibrant.cli.output import prepare_streams
from calibrant.errors import (
    CalibrantError,
    FailedRunsError,
    InterruptedRunError,
    MissingExtraError,
    ResourceError,
    printable,
)

# Each is the function of its name in the module of its name, and is imported when it is called.
COMMANDS = (
    "apply",
    "audit",
    "average",
    "certify",
    "compare-calibrators",
    "convert",
    "corrupt",
    "detect",
    "estimate",
    "export",
    "figure",
    "fit",
    "label",
    "monitor",
    "predict",
    "report",
    "run",
    "schema",
    "solve",
    "table",
)
GROUPS = ("data", "sets")  # of commands; each states its own epilogues
# `train` needs the extra train, which may be missing: it is not imported for the list of commands.
TRAIN = """Train a classifier, and predict its validation split, its test and every shifted test.

The same command resumes a run that was stopped. Start it with torchrun for many processes.
"""


app = App(
    name="calibrant",
    help="Train, measure and calibrate classifiers, also under distribution shift.",
    help_epilogue=epilogue(""),
    version=calibrant.__version__,
    suppress_keyboard_interrupt=False,  # `__main__` prints the line
    default_parameter=Parameter(validator=check_text),
)
for name in COMMANDS:
    place = name.replace("-", "_")
    app.command(f"calibrant.cli.{place}:{place}", help_epilogue=epilogue(name))
for name in GROUPS:
    app.command(f"calibrant.cli.{name}:{name}")
app.command("calibrant.cli.train:train", help=TRAIN, help_epilogue=epilogue("train"))
app.command(
    "calibrant.cli.completion:install_completion",
    name="--install-completion",
    help="Install tab completion for your shell.",
    help_epilogue=epilogue("--install-completion"),
)
LISTING = ([], *([flag] for flag in app.help_flags))  # the first argument of a call that lists the commands


def main() -> None:
    """Run the command line. Exit codes: 0, 2 (bad input), 1 (failed runs), 128 + a signal; errors are one line."""
    prepare_streams()
    try:
        check_working_directory()
        if sys.argv[1:2] in LISTING:
            import_commands()
        try:
            app(print_error=False, exit_on_error=False)
        finally:
            sys.stdout.flush()  # raises here, not at the end of the interpreter
    except (CalibrantError, CycloptsError, ImportError, OSError) as error:
        if isinstance(error, UnknownCommandError) and error.app is not None:
            error.app = names_of(error.app)
        if isinstance(error.__cause__, MissingExtraError):  # cyclopts wraps that of a command imported on demand
            error = error.__cause__
        elif not isinstance(error, CalibrantError | CycloptsError):
            if not isinstance(error, OSError) or error.filename is None:
                raise
            error = ResourceError(f"{error.filename} cannot be used: {error.strerror}")  # the system's, not a bug
        if os.environ.get("RANK", "0") == "0":  # under torchrun, one process prints
            from rich.console import Console

            line = printable(f"calibrant: {error}")
            Console(stderr=True, soft_wrap=True).print(line, style="red", markup=False, highlight=False)
        sys.exit(
            exit_code() if isinstance(error, InterruptedRunError) else 1 if isinstance(error, FailedRunsError) else 2
        )


def import_commands(of: App = app) -> None:
    """Import every command but `train`: the list of them shows the first line of each."""
    for name in (*COMMANDS, *GROUPS):
        of[name]


def check_working_directory() -> None:
    """Raises: ResourceError where it was removed; libraries that torch loads would end the process."""
    try:
        os.getcwd()
    except OSError as error:
        raise ResourceError(f"the working directory cannot be used: {error.strerror}") from None


def names_of(of: App) -> App:
    """An app with commands of the same names, for an error that suggests one: cyclopts would import all of them."""
    names = App(name=of.name)
    for name in of:
        if name not in (*of.help_flags, *of.version_flags):
            names.command(App(name=name))
    return names
