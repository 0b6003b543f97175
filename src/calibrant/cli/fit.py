"""`calibrant fit`: a calibrator from a validation file, as JSON."""

import inspect
import json
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from calibrant.cli.options import File, Files, Json, Output, Words
from calibrant.cli.output import finite, new_table, working
from calibrant.errors import InvalidInputError
from calibrant.report.numbers import number

if TYPE_CHECKING:
    from calibrant.calibrators import Calibrator
    from calibrant.predictions import Predictions

FLAGS = {"n_bins": "bins", "n_knots": "knots"}  # of options whose flag has another name


def fit(
    *paths: File,
    method: str = "temperature",
    output: Output,
    grid: Annotated[tuple[float, ...] | None, Parameter(consume_multiple=True, negative=())] = None,
    bins: int | None = None,
    knots: int | None = None,
    strength: float | None = None,
    domain: str | None = None,
    shift: str | None = None,
    sets: Words | None = None,
    same_mix: Annotated[bool | None, Parameter(negative=())] = None,
    score: str | None = None,
    target: Files | None = None,
    reference: Files | None = None,
    k: Annotated[int | None, Parameter(name="--k")] = None,
    weights: str | None = None,
    features: File | None = None,
    as_json: Json = False,
) -> None:
    """Fit a calibrator to labelled predictions that the model was not trained on, and write it as JSON.

    Methods: temperature, ensemble_temperature, vector, matrix, dirichlet, platt and beta (two classes), histogram, bbq,
    isotonic, isotonic_multiclass, spline, conditional_temperature; for shifted data perturbed_temperature,
    domain_temperature, set_temperature, transcal, density_aware; and identity.

    Parameters
    ----------
    paths
        Parquet files, folders, globs or fsspec URLs of predictions.
    method
        The calibrator.
    output
        The JSON file to write.
    grid
        temperature: these values, of which the likeliest is taken, instead of the exact optimum (the paper's: 1.25 1.5
        1.75 2).
    bins
        histogram: how many bins.
    knots
        spline, conditional_temperature: how many knots.
    strength
        vector, matrix, dirichlet, platt, beta: how much the prior around temperature scaling counts (1).
    domain
        domain_temperature: the column that names each row's domain.
    shift
        perturbed_temperature: the column that names each row's type of corruption.
    sets
        set_temperature: columns that tell the sets apart, the type of corruption first.
    same_mix
        set_temperature: the sets to come have classes in the same proportions.
    score
        conditional_temperature: entropy, logit_norm, or a column of numbers.
    target
        transcal: predictions of the data to come; labels are not needed.
    reference
        set_temperature, density_aware: predictions with features to measure distances from (the training set).
    k
        density_aware: how many neighbours.
    weights
        temperature: a column of row weights.
    features
        A .npy file, or a Parquet file with the column features, with one row for each of the predictions.
    as_json
        Print JSON instead of a table.
    """
    if not paths:
        raise InvalidInputError("give at least one file, folder or glob of predictions")
    from calibrant.calibrators.table import calibrator_class

    cls = calibrator_class(method)
    given: dict[str, Any] = {
        "grid": grid,
        "n_bins": bins,
        "n_knots": knots,
        "strength": strength,
        "domain": domain,
        "shift": shift,
        "sets": sets,
        "same_mix": same_mix,
        "score": score,
        "target": target,
        "reference": reference,
        "k": k,
        "weights": weights,
    }
    options = {name: value for name, value in given.items() if value is not None}
    check_options(cls, options)
    with working(f"fitting {method}"):
        for name in options.keys() & {"target", "reference"}:
            options[name] = load(options[name], None)
        calibrator = cls.fit(load(paths, features), **options)
        calibrator.save(output)
    show(calibrator, output, as_json=as_json)


def check_options(cls: "type[Calibrator]", options: dict[str, Any]) -> None:
    """Only options that the method's fit has."""
    known = [name for name in inspect.signature(cls.fit).parameters if name not in ("validation", "bounds", "at_bound")]
    for name in options:
        if name not in known:
            others = ", ".join(f"--{FLAGS.get(other, other.replace('_', '-'))}" for other in known)
            hint = f"it takes {others}" if others else "it takes no options"
            flag = FLAGS.get(name, name.replace("_", "-"))
            raise InvalidInputError(f"--{flag} is no option of {cls.name}: {hint}")


def load(paths: tuple[str, ...], features: str | None) -> "Predictions":
    from calibrant.features import read_features
    from calibrant.predictions import Predictions

    rows = Predictions.load(paths)
    return rows if features is None else rows.with_features(read_features(features))


def show(calibrator: "Calibrator", output: str, *, as_json: bool) -> None:
    """What was fitted, with its numbers, and what it did to the rows it was fitted to."""
    from dataclasses import fields

    from rich.console import Console

    fitted = calibrator.fitted
    parameters = {f.name: value for f in fields(calibrator) if isinstance(value := getattr(calibrator, f.name), float)}
    if as_json:
        record = {
            "method": calibrator.name,
            "output": output,
            "n_rows": fitted.n_rows,
            "n_classes": calibrator.n_classes,
            "keeps_argmax": calibrator.keeps_argmax,
            "nll_before": fitted.nll_before,
            "nll_after": fitted.nll_after,
            "shifts": list(fitted.shifts),
            "fingerprint": fitted.fingerprint,
            "parameters": parameters,
        }
        print(json.dumps(finite(record), indent=2, allow_nan=False))
        return
    title = f"{calibrator.name}, fitted to {fitted.n_rows:,} rows of {calibrator.n_classes} classes: {output}"
    table = new_table(title, ("", "", "value"), n_left=2)
    table.add_row("NLL before", "", number(fitted.nll_before))
    table.add_row("NLL after", "[dim]on the same rows; measure on others[/dim]", number(fitted.nll_after))
    for name, value in parameters.items():
        table.add_row(name, "", f"{value:.6g}")
    if fitted.shifts:
        table.add_row("shifts", f"[dim]types it has seen: {len(fitted.shifts)}[/dim]", "")
    Console().print(table)
