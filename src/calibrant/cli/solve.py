"""`calibrant solve`: the Lagrange multipliers of MaxEnt Loss for a class prior, as tables or as JSON."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from cyclopts import Parameter

from calibrant.cli.options import Json
from calibrant.errors import CorruptFileError, InvalidInputError, NoDataError

if TYPE_CHECKING:
    from rich.table import Table

    from calibrant.maxent import Solution

Form = Literal["mean", "variance", "mean_variance", "prior"]


def solve(
    *,
    prior: Path | None = None,
    counts: Path | None = None,
    form: Annotated[tuple[Form, ...], Parameter(consume_multiple=True, negative=())] = ("mean",),
    gibbs: Literal["paper", "normalized"] = "paper",
    local: bool = True,
    label_smoothing: float = 0.0,
    as_json: Json = False,
) -> None:
    """Solve the Lagrange multipliers of MaxEnt Loss from a class prior.

    Parameters
    ----------
    prior
        JSON file with the probability of each class: a list of numbers, or an object from class name to number.
    counts
        The same with the number of training samples of each class; give one of the two.
    form
        Which moments are constrained; several forms give several tables.
    gibbs
        The Gibbs distribution: as in the paper's appendix A.3, or normalized to sum to 1.
    local
        Whether the local moments (of the label) count beside the global ones (of the prior).
    label_smoothing
        Smoothing of the label vectors, in [0, 1).
    as_json
        Print JSON, with full precision, instead of tables.
    """
    if not form:
        raise InvalidInputError("--form needs at least one form")
    if (prior is None) == (counts is None):
        raise InvalidInputError("give either --prior or --counts, a JSON file with one number per class")
    names, numbers = read_classes(prior or counts)  # type: ignore[arg-type]
    import calibrant
    from calibrant._checks import check_counts, check_prior

    probabilities = check_prior(numbers) if counts is None else check_counts(numbers)
    solutions = {
        name: calibrant.solve(probabilities, name, gibbs=gibbs, local=local, label_smoothing=label_smoothing)
        for name in form
    }
    if as_json:
        print(json.dumps({name: _record(names, solution) for name, solution in solutions.items()}, indent=2))
        return
    from rich.console import Console

    console = Console()
    for name, solution in solutions.items():
        console.print(_table(name, gibbs, names, probabilities.tolist(), solution))


def read_classes(path: Path) -> tuple[list[str], list[float]]:
    """Class names and one number for each, from a JSON list or object.

    Raises: NoDataError or CorruptFileError.
    """
    if not path.is_file():
        raise NoDataError(f"there is no file {path}")
    try:
        content = json.loads(path.read_text(encoding="utf-8-sig"), object_pairs_hook=tuple)
    except (OSError, ValueError, RecursionError) as error:
        raise CorruptFileError(f"{path} is not a JSON file: {error}") from None
    if not isinstance(content, list | tuple):
        raise CorruptFileError(f"{path} must hold a list or an object of numbers, got {content!r}")
    pairs = list(content if isinstance(content, tuple) else enumerate(content))
    for name, number in pairs:
        if isinstance(number, bool) or not isinstance(number, int | float):
            raise CorruptFileError(f"{path} must give each class a number, got {number!r} for class {name}")
    names = [str(name) for name, _ in pairs]
    if len(set(names)) < len(names):
        raise CorruptFileError(f"{path} gives the class {max(names, key=names.count)} twice")
    return names, [number for _, number in pairs]


def _record(names: list[str], solution: "Solution") -> dict[str, object]:
    return {
        "classes": names,
        "multipliers": solution.multipliers.tolist(),
        "residual": solution.residual,
        "n_steps": solution.n_steps,
    }


def _table(form: str, gibbs: str, names: list[str], prior: list[float], solution: "Solution") -> "Table":
    from rich.table import Table
    from rich.text import Text

    rows = solution.multipliers.tolist()
    wide = form == "prior"  # one multiplier per class: too many to show side by side
    evidence = "closed form" if wide else f"relative residual {solution.residual:.0e}, {solution.n_steps} steps"
    headings = ["λ own", "λ others, least", "greatest"] if wide else [f"λ{n + 1}" for n in range(len(rows[0]))]
    table = Table(title=f"form {form}, gibbs {gibbs}", caption=evidence, min_width=40)
    table.add_column("class")
    for heading in ("prior", *headings):
        table.add_column(heading, justify="right")
    for index, (name, probability, row) in enumerate(zip(names, prior, rows, strict=True)):
        if wide:
            others = row[:index] + row[index + 1 :]
            row = [row[index], min(others), max(others)]
        table.add_row(Text(name), f"{probability:.4g}", *(f"{value:.6g}" for value in row))
    return table
