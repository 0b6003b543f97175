"""`calibrant solve`: the Lagrange multipliers of MaxEnt Loss for a class prior, as tables or as JSON."""

from typing import TYPE_CHECKING, Annotated, Literal

from cyclopts import Parameter

from calibrant._paths import check_exists
from calibrant.cli.options import Json, SmallFile
from calibrant.cli.output import print_json, print_tables
from calibrant.errors import InvalidInputError
from calibrant.report.table import Cell, Column, Table

if TYPE_CHECKING:
    from calibrant.maxent import Solution

Form = Literal["mean", "variance", "mean_variance", "prior"]


def solve(
    *,
    prior: SmallFile | None = None,
    counts: SmallFile | None = None,
    form: Annotated[tuple[Form, ...], Parameter(consume_multiple=True, negative=())] = ("mean",),
    gibbs: Literal["paper", "normalized"] | None = None,
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
        The Gibbs distribution: as in the paper's appendix A.3, or normalized to sum to 1; by default as the loss has
        it, normalized for the form prior and as in the paper for the others.
    local
        Whether the local moments (of the label) count beside the global ones (of the prior).
    label_smoothing
        Smoothing of the label vectors, in [0, 1).
    as_json
        Print JSON, with full precision, instead of tables.
    """
    if not form:
        raise InvalidInputError("--form needs at least one form")
    path = prior or counts
    if path is None or None not in (prior, counts):
        raise InvalidInputError("give either --prior or --counts, a JSON file with one number per class")
    check_exists(path)
    from calibrant.maxent import read_prior
    from calibrant.maxent import solve as solved
    from calibrant.maxent.solver import choose_gibbs

    names, probabilities = read_prior(path, counts=prior is None)
    solutions = {
        name: solved(probabilities, name, gibbs=gibbs, local=local, label_smoothing=label_smoothing) for name in form
    }
    if as_json:
        print_json({name: _record(names, solution) for name, solution in solutions.items()})
        return
    prior_of_class = probabilities.tolist()
    print_tables(
        *(
            _table(name, choose_gibbs(gibbs, name, None), names, prior_of_class, found)
            for name, found in solutions.items()
        )
    )


def _record(names: list[str], solution: "Solution") -> dict[str, object]:
    return {
        "classes": names,
        "multipliers": solution.multipliers.tolist(),
        "residual": solution.residual,
        "n_steps": solution.n_steps,
    }


def _table(form: str, gibbs: str, names: list[str], prior: list[float], solution: "Solution") -> Table:
    """A line for each class; of one multiplier per class, too many to show side by side, the own and the ends."""
    rows = solution.multipliers.tolist()
    evidence = f"relative residual {solution.residual:.0e}, {solution.n_steps} steps"
    headings = [f"λ{n + 1}" for n in range(len(rows[0]))]
    if form == "prior":
        others = [row[:index] + row[index + 1 :] for index, row in enumerate(rows)]
        rows = [[row[index], min(rest), max(rest)] for index, (row, rest) in enumerate(zip(rows, others, strict=True))]
        evidence, headings = "closed form", ["λ own", "λ others, least", "greatest"]
    lines = [
        [Cell(name), Cell(f"{probability:.4g}"), *(Cell(f"{value:.6g}") for value in row)]
        for name, probability, row in zip(names, prior, rows, strict=True)
    ]
    columns = [Column("class", numeric=False), *map(Column, ("prior", *headings))]
    return Table(f"form {form}, gibbs {gibbs}", columns, lines, [evidence])
