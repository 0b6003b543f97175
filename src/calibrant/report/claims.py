"""The claims of the paper, each tested on the runs of an experiment: a ratio with an interval, and a verdict."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from calibrant._signatures import checked
from calibrant.errors import NoDataError
from calibrant.report.contrasts import (
    SEEDS,
    Contrast,
    ScoresByType,
    contrast,
    interval_notes,
    ratio_text,
    scores_by_type,
)
from calibrant.report.numbers import MISSING, count, points, points_limits
from calibrant.report.paper import (
    BASELINE,
    CHANCE_NOTE,
    MAXENT_COLUMNS,
    comparable_rows,
    data_headings,
    shift_notes,
    table_scores,
)
from calibrant.report.published import paper_notes, published, published_ratio, published_text
from calibrant.report.scores import ScoreKey
from calibrant.report.style import loss_label
from calibrant.report.table import Cell, Column, Table

MAX_ACCURACY_LOSS = 0.01  # of cross-entropy's accuracy
CE = {"loss": "cross_entropy"}
SMOOTHED = {"label_smoothing": 0.01}  # as in Table 2
HOLDS, FAILS, OPEN, AT_CHANCE = "holds", "does not hold", "cannot be told", "at chance"
KINDS = {HOLDS: "good", FAILS: "bad"}


class Term(NamedTuple):
    """A mean score of a contrast: the test sets, and the fields of ScoreKey in which it differs from the loss."""

    tests: str  # a key of the result of _parts
    changes: Mapping[str, Any] = {}


class Claim(NamedTuple):
    """A statement about a contrast of mean scores."""

    text: str
    source: str  # in the paper; "" of a question that it leaves open
    above: Sequence[Term]
    below: Sequence[Term]
    metric: str = "ece"
    lower: bool = True  # whether the contrast is said to be below the limit, else above
    ratio: bool = True
    limit: float = 1.0
    losses: Sequence[str] = tuple(MAXENT_COLUMNS)


def _versus(text: str, source: str, above: Mapping[str, Any], below: Mapping[str, Any], **other: Any) -> Claim:
    tests = other.pop("tests", "shifted")
    return Claim(text, source, [Term(tests, above)], [Term(tests, below)], **other)


BASELINES = ("cross_entropy", "focal", "inverse_focal", "avuc", "soft_avuc", "poly")
NO_LOSS: dict[str, Any] = {"metric": "accuracy", "lower": False, "limit": 1 - MAX_ACCURACY_LOSS}
CLAIMS = (
    *(_versus(f"lower ECE than {loss_label(loss)}", "Table 1", {}, {"loss": loss}) for loss in BASELINES),
    _versus(f"accuracy at most {MAX_ACCURACY_LOSS:.0%} lower", "Table 1", {}, CE, **NO_LOSS),
    _versus(f"accuracy at most {MAX_ACCURACY_LOSS:.0%} lower, unshifted", "text", {}, CE, tests="unshifted", **NO_LOSS),
    _versus("lower ECE than CE, unshifted", "", {}, CE, tests="unshifted"),
    Claim(
        "lead over CE grows with severity",
        "Fig. 3",
        [Term("severity 5", CE), Term("severity 1")],
        [Term("severity 5"), Term("severity 1", CE)],
        lower=False,
        ratio=False,
        limit=0.0,
    ),
    _versus("lower ECE with temperature (grid)", "Table 2", {"calibrator": "temperature_grid"}, {}),
    _versus("lower ECE with temperature (exact)", "Table 2", {"calibrator": "temperature"}, {}),
    _versus("temperature (grid) beats smoothing", "Table 2", {"calibrator": "temperature_grid"}, SMOOTHED),
    Claim(
        "temperature helps less under shift",
        "text",
        [Term("shifted", {"calibrator": "temperature"}), Term("unshifted")],
        [Term("shifted"), Term("unshifted", {"calibrator": "temperature"})],
        lower=False,
        losses=("cross_entropy", *MAXENT_COLUMNS),
    ),
    _versus("lower ECE with local constraints", "Fig. 6", {}, {"variant": "global"}),
    _versus("local constraints at severities 1, 2", "Fig. 6", {}, {"variant": "global"}, tests="mild"),
    _versus("smaller feature norm than CE", "Fig. 7", {}, CE, metric="feature_norm"),
)


@checked
def make_claims(rows: pa.Table, *, data: Sequence[str] | None = None) -> Table:
    """The claims of the paper, tested on the runs of an experiment.

    Args:
        rows: The rows of the experiment, as `ExperimentFolder.read_rows` returns them.
        data: The data sets to show, by default all.

    Returns:
        A row per claim and loss that the runs can test, and for each data set the ratio or difference here with its
        95 % interval, the ratio in the paper, and the verdict; `render` formats it.

    Raises:
        NoDataError: The runs can test no claim.
        UnknownNameError: A data set is unknown.
    """
    shared, notes = comparable_rows(rows, data)
    metrics = sorted({claim.metric for claim in CLAIMS})
    found = {name: scores_by_type(part, metrics) for name, part in _parts(shared).items()}
    chance = {key for key, score in table_scores(shared, metrics).items() if score.at_chance}
    panels = data_headings(found["shifted"])
    lines: list[list[Cell]] = []
    compared: list[ScoreKey] = []
    contrasts: list[Contrast] = []
    for claim, loss in [(one, loss) for one in CLAIMS for loss in one.losses]:
        cells = []
        for panel in panels:
            key = ScoreKey(**panel.fields, loss=loss, variant="", **BASELINE, metric=claim.metric)
            keys = [key._replace(**term.changes) for term in (*claim.above, *claim.below)]
            tested = _test(claim, keys, found)
            if tested is not None:
                compared += keys
                contrasts.append(tested)
            cells += _cells(claim, key, keys, tested, at_chance=not chance.isdisjoint(keys))
        if any(cell.facts for cell in cells):
            lines.append([Cell(f"{loss_label(loss)}: {claim.text}"), *cells])
    if not lines:
        raise NoDataError("no claim can be tested: rows need runs of MaxEnt and of another loss on shifted test sets")
    headings = [Column("Claim", numeric=False)]
    for panel in panels:
        headings += [Column(name, group=panel.label) for name in ("here", "paper", "verdict")]
    tests = [cell for line in lines for cell in line if cell.facts]
    rules = _rules([cell.text for cell in tests], any(cell.marks for cell in tests))
    notes = [
        *rules,
        *interval_notes(contrasts),
        *notes,
        *shift_notes(compared),
        *paper_notes([key for key in compared if published(key) is not None]),
    ]
    return Table("Claims of the paper under shift, tested here", headings, lines, notes)


def _parts(rows: pa.Table) -> dict[str, pa.Table]:
    severity = rows["severity"]
    return {
        "shifted": rows.filter(rows["shifted"]),
        "unshifted": rows.filter(pc.invert(rows["shifted"])),
        "severity 1": rows.filter(pc.equal(severity, 1)),
        "severity 5": rows.filter(pc.equal(severity, 5)),
        "mild": rows.filter(pc.is_in(severity, pa.array([1, 2]))),
    }


def _test(
    claim: Claim, keys: Sequence[ScoreKey], found: Mapping[str, Mapping[ScoreKey, ScoresByType]]
) -> Contrast | None:
    """The contrast of a claim, over the types of shift that all its terms have. None where a run is absent."""
    terms = [found[term.tests].get(key, {}) for term, key in zip((*claim.above, *claim.below), keys, strict=True)]
    if not claim.ratio:  # severities are compared over the same types
        types = set.intersection(*map(set, terms))
        terms = [{name: score for name, score in term.items() if name in types} for term in terms]
    n = len(claim.above)
    return contrast(terms[:n], terms[n:], ratio=claim.ratio)


def _verdict(claim: Claim, tested: Contrast) -> str:
    if tested.low is None or tested.high is None:
        return OPEN
    is_lower, is_higher = tested.high < claim.limit, tested.low > claim.limit
    if not (is_lower or is_higher):
        return OPEN
    return HOLDS if is_lower == claim.lower else FAILS


def _cells(
    claim: Claim, key: ScoreKey, keys: Sequence[ScoreKey], tested: Contrast | None, *, at_chance: bool
) -> list[Cell]:
    """Here, in the paper and the verdict, which has the facts."""
    paper = published_ratio(*keys) if len(keys) == 2 and claim.above[0].tests == "shifted" else None
    published = Cell(MISSING) if paper is None else Cell(published_text(paper, claim.metric), paper[0], "faint")
    if tested is None:
        return [Cell(MISSING), published, Cell(MISSING)]
    text = ratio_text(tested, claim.metric) if claim.ratio else _points_text(tested)
    verdict = AT_CHANCE if at_chance else _verdict(claim, tested)
    facts: dict[str, object] = {name: getattr(key, name) for name in ("data", "model", "shift", "loss", "metric")}
    facts |= {"claim": claim.text, "source": claim.source, "is_ratio": claim.ratio, "limit": claim.limit}
    n_seeds = tested.levels.get(SEEDS, 1)
    facts |= {"value": tested.value, "low": tested.low, "high": tested.high, "n_seeds": n_seeds}
    facts |= {"published": None if paper is None else paper[0], "verdict": verdict}
    kind = KINDS.get(verdict, "")
    return [Cell(text, tested.value), published, Cell(verdict, kind=kind, marks="*" * (n_seeds == 1), facts=facts)]


def _points_text(difference: Contrast) -> str:
    """For example "3.4 (1.4 to 5.4) pp"."""
    _, low, high, _ = difference
    limits = "" if low is None or high is None else f" ({points_limits((low, high))})"
    return f"{points(difference.value)}{limits} pp"


def _rules(verdicts: Sequence[str], one_seed: bool) -> Iterator[str]:
    found = ", ".join(f"{word} {verdicts.count(word)}" for word in (HOLDS, FAILS, OPEN, AT_CHANCE) if word in verdicts)
    yield f"{count(len(verdicts), 'test')}, not adjusted for their number: {found}."
    yield (
        "The verdict: the whole 95 % interval lies on the claimed side of the limit (holds), on the other side (does "
        f"not hold), or on both (cannot be told). The limit is a ratio of 1, of accuracies {1 - MAX_ACCURACY_LOSS:g}; "
        "for the lead at severity 5 minus that at severity 1, 0 percentage points (pp)."
    )
    if one_seed:
        yield "*: of one seed. Another seed may have another verdict: its noise is not in the interval."
    if AT_CHANCE in verdicts:
        yield CHANCE_NOTE.replace("§", AT_CHANCE)
