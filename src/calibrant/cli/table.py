"""`calibrant table`: the tables of the paper with the scores of an experiment."""

from pathlib import Path, PurePath

from calibrant._names import TABLES, check_choice
from calibrant.cli.options import File, Output, Switch, Words
from calibrant.errors import InvalidInputError, printable
from calibrant.experiments.files import check_has_run

TABLE_SUFFIXES = {".csv": "csv", ".json": "json", ".md": "markdown", ".tex": "latex"}
OTHER_TABLES = ("claims", "combinations")
WIDTH = 100  # characters of text that is not printed to a terminal


def table(
    folder: File,
    *,
    name: str = "1",
    format: str | None = None,
    with_paper: bool = False,
    data: Words = (),
    all_losses: Switch = False,
    relative: Switch = False,
    output: Output | None = None,
) -> None:
    """Print a table of the paper with the scores of an experiment.

    Scores are means over the corruptions, then over seeds, with the standard error; a natural shift is apart. A missing
    score is –.

    Parameters
    ----------
    folder
        The folder of an experiment that has been run.
    name
        1 (accuracy, ECE, CECE, KSE), 2 (ECE with calibrators and label smoothing), appendix (MCE, AdaECE, NLL and
        Brier on errors), claims (those of the paper, tested on the runs) or combinations (every loss and calibrator
        relative to cross-entropy, best first).
    format
        text, markdown, latex, csv or json (a record per score, in full precision and the units of the table); by
        default from the suffix of the output, else text.
    with_paper
        Add the published numbers.
    data
        Data sets to show, by default all.
    all_losses
        Table 2 with a row for every loss, not only the three MaxEnt losses.
    relative
        Show ratios to cross-entropy without a calibrator, ours with 95 % intervals over seeds, corruptions and images.
    output
        The file to write instead of standard output.
    """
    if format is None:
        format = TABLE_SUFFIXES.get(PurePath(output or "").suffix.lower(), "text")
    check_choice("table", name, [*TABLES, *OTHER_TABLES])
    if name in OTHER_TABLES and (with_paper or all_losses or relative):
        raise InvalidInputError(
            f"with_paper, all_losses and relative belong to tables {', '.join(TABLES)}, got table {name}"
        )
    check_has_run(Path(folder))
    from rich.console import Console

    from calibrant.experiments.folder import ExperimentFolder
    from calibrant.report.formats import render

    rows = ExperimentFolder(Path(folder)).read_rows()
    if name == "claims":
        from calibrant.report.claims import make_claims

        made = make_claims(rows, data=data)
    elif name == "combinations":
        from calibrant.report.combinations import make_combinations

        made = make_combinations(rows, data=data)
    else:
        from calibrant.report.paper import make_table

        made = make_table(rows, name, with_paper=with_paper, data=data, all_losses=all_losses, relative=relative)
    console = Console()
    text = render(made, format, width=WIDTH if output or not console.is_terminal else console.width)
    if output is None:
        print(text, end="")
        return
    from calibrant._files import atomic_write

    with atomic_write(output, "a table") as file:
        file.write(text.encode())
    print(printable(f"wrote {output}"))
