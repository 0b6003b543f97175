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
from calibrant.cli.fit import fit
from calibrant.cli.solve import solve
from calibrant.errors import CalibrantError, FailedRunsError, InterruptedRunError, printable

app = App(
    name="calibrant",
    help="Train, measure and mend classifiers so that their probabilities stay honest when the data shift.",
    help_epilogue=epilogue(""),
    version=calibrant.__version__,
)
for verb in (apply, audit, compare_calibrators, corrupt, fit, solve):
    app.command(verb, help_epilogue=epilogue(verb.__name__.replace("_", "-")))
app.command(data)
data.help_epilogue = epilogue("data")
for name in ("check", "fetch", "list", "where"):
    data[name].help_epilogue = epilogue(f"data {name}")
# these are loaded when they are asked for, which for most needs the extra train; no help of theirs is read before
LATER = {
    "train": """Train a classifier, and predict its tests and every shifted test.

The same command goes on with a run that was stopped. For many processes: torchrun -m calibrant train ...
""",
    "run": """Train losses × seeds, measure them under shift, and show the tables: an experiment from one file.

Runs that are done are not done again; the same command goes on after Ctrl-C, a crash or a full disk.
""",
    "table": "Print a table of the paper with the scores of an experiment.",
    "figure": "Draw a figure of an experiment, or all of them.",
    "report": "Write the figures of an experiment, and a page of all that it found.",
    "schema": "Print the JSON schema of experiment files, for editors.",
    "predict": "Write the predictions of a trained run, or of your own model.",
}
for name, text in LATER.items():
    app.command(f"calibrant.cli.{name}:{name}", help=text, help_epilogue=epilogue(name))
COMPLETION = {
    "--install-completion": ("install", "Let the shell complete verbs, options and names."),
    "--show-completion": ("show", "Print the completion script of a shell."),
}
for name, (function, text) in COMPLETION.items():
    app.command(f"calibrant.cli.completion:{function}", name=name, help=text, help_epilogue=epilogue(name))


def main() -> None:
    """Run the command line: exit with 0; with a line on standard error 2 (bad input), 1 (failed runs), 130 (stop)."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):  # not all have our letters: Windows' code pages, the locale C
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
