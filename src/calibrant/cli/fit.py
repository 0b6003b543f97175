"""`calibrant fit`: a calibrator from a validation file, as JSON."""

from typing import TYPE_CHECKING, Annotated, Any, Literal, TypedDict, Unpack

from cyclopts import Parameter

from calibrant._names import check_choice, known_names
from calibrant._paths import check_exists
from calibrant.cli.options import AS_NAMED, ColumnFlags, File, Files, Integer, Json, Output, Switch, Words
from calibrant.cli.output import print_json, print_tables, status
from calibrant.errors import InvalidInputError
from calibrant.report.numbers import metric_text
from calibrant.report.table import Cell, Column, Table

if TYPE_CHECKING:
    from calibrant.calibrators import Calibrator

Numbers = Annotated[tuple[float, ...], Parameter(consume_multiple=True, negative=())]


class FitOptions(TypedDict, total=False):
    """The options of all calibrators; the help of each names those that have it."""

    grid: Annotated[Numbers, Parameter(help="temperature_grid: the values to try (1.25 1.5 1.75 2, as the paper).")]
    bounds: Annotated[tuple[float, float], Parameter(negative=(), help="temperature: its least and greatest value.")]
    at_bound: Annotated[
        Literal["raise", "clip"], Parameter(help="temperature: what to do if the best lies beyond the bounds.")
    ]
    weights: Annotated[str, Parameter(help="temperature, temperature_grid: a column of row weights.")]
    strength: Annotated[
        float, Parameter(help="platt, beta, svs, vector, sms, matrix, dirichlet: strength of the prior (1).")
    ]
    clip: Annotated[
        float,
        Parameter(
            help="temperature, temperature_grid, ensemble_temperature, platt, beta, conditional_temperature, svs, "
            "vector, sms, matrix, dirichlet, perturbed_temperature, domain_temperature, set_temperature, transcal, "
            "label_shift, density_aware: raise smaller probabilities, such as 0, to it (1e-6)."
        ),
    ]
    n_bins: Annotated[Integer, Parameter(help="histogram: number of bins.")]
    equal_width: Annotated[Switch, Parameter(help="histogram: bins of equal width instead of equal mass.")]
    n_knots: Annotated[Integer, Parameter(help="spline, conditional_temperature: number of knots.")]
    score: Annotated[str, Parameter(help="conditional_temperature: entropy, logit_norm, or a column of numbers.")]
    shift: Annotated[str, Parameter(help="perturbed_temperature: the column of corruption types.")]
    domain: Annotated[str, Parameter(help="domain_temperature: the column of domains.")]
    sets: Annotated[Words, Parameter(help="set_temperature: columns that define the sets, the corruption first.")]
    target: Annotated[Files, Parameter(help="transcal, label_shift: predictions of the target; labels are not needed.")]
    reference: Annotated[
        Files, Parameter(help="set_temperature, density_aware: predictions with features to measure distances from.")
    ]
    k: Annotated[Integer, Parameter(name="--k", help="density_aware: number of neighbors.")]


def fit(
    *paths: File,
    calibrator: str = "temperature",
    output: Output,
    features: File | None = None,
    match_names: Switch = False,
    as_json: Json = False,
    columns: ColumnFlags = AS_NAMED,
    **options: Unpack[FitOptions],
) -> None:
    """Fit a calibrator to labelled predictions that the model was not trained on, and write it as JSON.

    Calibrators: identity, temperature, temperature_grid, ensemble_temperature, platt, beta and venn_abers (two
    classes), spline, conditional_temperature, isotonic_multiclass, svs, vector, sms, matrix, dirichlet, histogram, bbq,
    isotonic; for shifted data perturbed_temperature, domain_temperature, set_temperature, transcal, label_shift,
    density_aware. Those of the confidence, for files without other probabilities: identity, platt, beta, spline,
    histogram, bbq, venn_abers, isotonic.

    Parameters
    ----------
    paths
        Files, folders, globs or fsspec URLs of predictions.
    calibrator
        The calibrator, one of those above.
    output
        The JSON file to write.
    features
        A .npy file, or a Parquet file with the column features, with one row for each of the predictions.
    match_names
        Reorder the classes of files that have the same class names in another order.
    as_json
        Print JSON instead of a table.
    """
    if not paths:
        raise InvalidInputError("give at least one file, folder or glob of predictions")
    check_choice("calibrator", calibrator, known_names("CALIBRATORS"))
    check_exists(*paths, *options.get("target", ()), *options.get("reference", ()), features, columns.columns)
    from calibrant._files import check_output
    from calibrant.calibrators.table import calibrator_class
    from calibrant.features import read_features

    cls = calibrator_class(calibrator, options)
    check_output(output, "a calibrator")
    given = {name: options[name] for name in ("target", "reference") if name in options}
    scan, *scans = columns.scans(paths, *given.values(), match_names=match_names)
    with status(f"fitting {calibrator}") as progress:
        validation = scan.check_labels().read()
        names = validation.class_names if match_names else None
        others = {name: other.match_names(names).read() for name, other in zip(given, scans, strict=True)}
        if features is not None:
            validation = validation.with_features(read_features(features))
        steps = {"progress": progress} if cls.shows_progress else {}
        fitted = cls.fit(validation, **(dict[str, Any](options) | others | steps))
        fitted.save(output)
    if as_json:
        print_json(fitted.summary() | {"output": output})
    else:
        print_tables(calibrator_table(fitted, output), *domain_tables(fitted))


def domain_tables(calibrator: "Calibrator") -> list[Table]:
    """The temperature of each domain, the highest first, if the calibrator has one."""
    from calibrant.calibrators.domains import DomainTemperature

    if not isinstance(calibrator, DomainTemperature):
        return []
    highest_first = sorted(calibrator.temperatures.items(), key=lambda item: -item[1])
    rows = [[Cell(name.removeprefix("\0")), Cell(f"{temperature:.6g}")] for name, temperature in highest_first]
    return [Table("", [Column(calibrator.domain, numeric=False), Column("temperature")], rows)]


def calibrator_table(calibrator: "Calibrator", output: str) -> Table:
    """The NLL before and after, and the scalar parameters."""
    from calibrant.calibrators.label_shift import LabelShift
    from calibrant.calibrators.temperature import TemperatureScaling

    fitted = calibrator.fitted
    nll = "weighted NLL" if fitted.weighted else "NLL"
    kind = f"{calibrator.n_classes} classes"
    if calibrator.top_label:
        kind, nll = "the confidence of the predicted class", f"{nll} of correctness"
    rows = [(f"{nll} before", metric_text(fitted.nll_before)), (f"{nll} after", metric_text(fitted.nll_after))]
    rows += list(calibrator.shown_parameters.items())
    rows += [("types of shift", str(len(fitted.shifts)))] if fitted.shifts else []
    notes = [f"{nll} after is measured on the rows of the fit; score other rows."]
    if isinstance(calibrator, TemperatureScaling) and calibrator.rests_on_few_rows:
        few = f"About {calibrator.influential_rows:.0f} rows decide the temperature"
        notes.append(f"{few}: errors, or rows of far larger logits than the others. Fit it on more rows.")
    if isinstance(calibrator, LabelShift) and calibrator.warning:
        notes.append(f"Warning: {calibrator.warning}.")
    return Table(
        f"{calibrator.name}, fitted to {fitted.n_rows:,} rows of {kind}: {output}",
        [Column("", numeric=False), Column("value")],
        [[Cell(name), Cell(value)] for name, value in rows],
        notes,
    )
