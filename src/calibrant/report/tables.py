"""The tables of the paper from the rows of an experiment, as values that any format can show."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from calibrant.errors import InvalidInputError, NoDataError
from calibrant.experiments.rows import RAW
from calibrant.report.palette import label_of, place_of
from calibrant.report.published import printed
from calibrant.report.summary import Cell, Key, cells, standings

MISSING = "–"
BESIDE = 3  # data sets side by side, as in the paper
FORMS = {"maxent_mean": "Mean", "maxent_variance": "Var", "maxent_mean_variance": "Mult"}
TEMPERATURES = ("temperature_grid", "temperature")  # the paper's, and the exact one
DATA_TITLES = {
    "cifar10": "CIFAR10-C",
    "cifar100": "CIFAR100-C",
    "tiny_imagenet": "Tiny ImageNet-C",
    "camelyon17": "Camelyon17-Wilds",
    "iwildcam": "iWildCam-Wilds",
    "fmow": "FMoW-Wilds",
}


class Measure(NamedTuple):
    """How a table shows a metric."""

    heading: str
    in_percent: bool = True
    higher_is_better: bool = False


MEASURES = {
    "accuracy": Measure("Accuracy", higher_is_better=True),
    "ece": Measure("ECE"),
    "cece": Measure("CECE"),
    "kse": Measure("KSE"),
    "mce": Measure("MCE"),
    "adaece": Measure("AdaECE"),
    "nll_on_errors": Measure("NLL (err.)", in_percent=False),
    "brier_on_errors": Measure("Brier (err.)", in_percent=False),
}


@dataclass(frozen=True)
class Entry:
    """A place of a table: what stands there, as text and as numbers."""

    key: Key
    cell: Cell | None  # None where there is no such run
    text: str
    is_best: bool = False
    is_significant: bool = False
    improved: bool = False  # over the same loss without a remedy
    published: tuple[float, float] | None = None
    published_text: str = ""

    @property
    def is_partial(self) -> bool:
        return self.cell is not None and not self.cell.complete

    @property
    def signs(self) -> str:
        return "†" * self.is_significant + "*" * self.is_partial


@dataclass(frozen=True)
class Group:
    """Columns under one title."""

    title: str
    headings: tuple[str, ...]


@dataclass(frozen=True)
class Line:
    label: str
    entries: tuple[Entry, ...]


@dataclass(frozen=True)
class Block:
    """Groups side by side, and the lines under them."""

    groups: tuple[Group, ...]
    lines: tuple[Line, ...]


@dataclass(frozen=True)
class Table:
    name: str
    title: str
    corner: str  # what the lines are
    best_of: str  # column or row
    blocks: tuple[Block, ...]
    footnotes: tuple[str, ...]
    against_paper: bool
    tests: str = "shifted"  # or unshifted

    @property
    def entries(self) -> list[Entry]:
        return [entry for block in self.blocks for line in block.lines for entry in line.entries]

    def legend(self, *, best: str, paper: str) -> list[str]:
        """The footnotes, with what a format calls its marks."""
        beside = [f"{paper}: as the paper prints it."] if self.against_paper else []
        return [f"{best}: best of its {self.best_of}.", *beside, *self.footnotes]


class Place(NamedTuple):
    """A data set and model of the experiment, and what the table calls them."""

    data: str
    model: str
    title: str


class Remedy(NamedTuple):
    """What is done about a loss: nothing, a calibrator, or smoothed labels."""

    label: str
    calibrator: str = RAW
    label_smoothing: float = 0.0


class Plan(NamedTuple):
    """A block whose entries are not filled in yet."""

    groups: list[Group]
    lines: list[tuple[str, list[Key]]]


Cells = Mapping[Key, Cell]
Places = list[list[Place]]  # in blocks


class Design(NamedTuple):
    """What a table is made of."""

    title: str
    metrics: tuple[str, ...]
    corner: str
    best_of: str
    plan: Callable[[Cells, Places, Sequence[str]], list[Plan]]


def plan_by_data(found: Cells, places: Places, metrics: Sequence[str]) -> list[Plan]:
    """A group per data set, a column per metric, a line per loss."""
    plans = []
    headings = tuple(MEASURES[metric].heading for metric in metrics)
    for block in places:
        lines = [
            (label_of(*loss), [Key(p.data, p.model, *loss, 0.0, RAW, metric) for p in block for metric in metrics])
            for loss in losses_of(key for key in found if is_plain(key) and is_of(key, block))
        ]
        if lines:
            plans.append(Plan([Group(place.title, headings) for place in block], lines))
    return plans


def plan_by_form(found: Cells, places: Places, metrics: Sequence[str]) -> list[Plan]:
    """A line per data set, a group per remedy, a column per form of MaxEnt."""
    keys = [key for key in found if key.loss in FORMS and not key.variant]
    if not keys:
        raise NoDataError(
            "rows have no run of maxent_mean, maxent_variance or maxent_mean_variance; all_losses shows others"
        )
    remedies = remedies_of(keys)
    (metric,) = metrics
    lines = [
        (
            p.title,
            [Key(p.data, p.model, f, "", r.label_smoothing, r.calibrator, metric) for r in remedies for f in FORMS],
        )
        for block in places
        for p in block
        if any(is_of(key, [p]) for key in keys)
    ]
    groups = [Group(f"MaxEnt {remedy.label}".strip(), tuple(FORMS.values())) for remedy in remedies]
    return [Plan(groups, lines)]


def plan_by_loss(found: Cells, places: Places, metrics: Sequence[str]) -> list[Plan]:
    """A block per data set, a column per remedy, a line per loss."""
    remedies = remedies_of(found)
    (metric,) = metrics
    headings = tuple(remedy.label or "raw" for remedy in remedies)
    return [
        Plan(
            [Group(place.title, headings)],
            [
                (label_of(*loss), [Key(*place[:2], *loss, r.label_smoothing, r.calibrator, metric) for r in remedies])
                for loss in losses_of(key for key in found if is_of(key, [place]))
            ],
        )
        for block in places
        for place in block
    ]


TABLES = {
    "1": Design(
        "Table 1: test scores (%) under shift", ("accuracy", "ece", "cece", "kse"), "Loss", "column", plan_by_data
    ),
    "2": Design(
        "Table 2: ECE (%) under shift, with calibrators and label smoothing (LS)", ("ece",), "Data", "row", plan_by_form
    ),
    "appendix": Design(
        "Appendix: more test scores under shift (MCE and AdaECE in %, NLL and Brier of the errors alone)",
        ("mce", "adaece", "nll_on_errors", "brier_on_errors"),
        "Loss",
        "column",
        plan_by_data,
    ),
}
ALL_LOSSES = TABLES["2"]._replace(
    title="Table 2 for every loss: ECE (%) under shift, with calibrators and label smoothing (LS)",
    corner="Loss",
    plan=plan_by_loss,
)


def make_table(
    rows: pa.Table,
    name: str,
    *,
    against: str | None = None,
    data: Sequence[str] | None = None,
    all_losses: bool = False,
) -> Table:
    """A table of the paper, of an experiment's rows.

    Parameters: against is "paper" for its numbers beside ours; data are the data sets to show, by default all;
    all_losses gives Table 2 a line for every loss in place of a column for each form of MaxEnt.
    Raises: NoDataError where the rows have nothing to show, UnknownNameError.
    """
    check_known("table", name, TABLES)
    check_known("against", against, (None, "paper"))
    if all_losses and name != "2":
        raise InvalidInputError(f"all_losses belongs to table 2, got table {name}")
    design = ALL_LOSSES if all_losses else TABLES[name]
    for wanted in data or ():
        check_known("data", wanted, sorted(pc.unique(rows["data"]).to_pylist()))
    if data:
        rows = rows.filter(pc.is_in(rows["data"], pa.array(data, pa.string())))
    found = cells(rows, design.metrics)
    plans = design.plan(found, places_of(found, rows), design.metrics)
    blocks = tuple(fill(plan, found, design.best_of, with_paper=against == "paper") for plan in plans)
    table = Table(name, design.title, design.corner, design.best_of, blocks, (), against == "paper")
    if all(entry.cell is None for entry in table.entries):
        raise NoDataError(f"rows have no {', '.join(design.metrics)} on shifted tests that table {name} could show")
    return replace(table, footnotes=tuple(footnotes(table)))


def check_known(argument: str, value: str | None, known: Iterable[str | None]) -> None:
    known = list(known)
    if value not in known:
        from calibrant._checks import check_choice  # it loads torch, here for the message alone

        check_choice(argument, str(value), [name for name in known if name is not None])


def is_plain(key: Key) -> bool:
    return key.calibrator == RAW and key.label_smoothing == 0


def is_of(key: Key, block: Sequence[Place]) -> bool:
    return any((key.data, key.model) == place[:2] for place in block)


def losses_of(keys: Iterable[Key]) -> list[tuple[str, str]]:
    """Loss and variant, in the order of the paper, variants after all losses."""
    found = {(key.loss, key.variant) for key in keys}
    return sorted(found, key=lambda item: (item[1] != "", place_of(item[0]), item[1]))


def remedies_of(keys: Iterable[Key]) -> list[Remedy]:
    """Nothing, temperature scaling, the other calibrators, label smoothing."""
    keys = list(keys)
    names = {key.calibrator for key in keys if key.calibrator != RAW and key.label_smoothing == 0}
    exact = "w/ TS exact" if names.issuperset(TEMPERATURES) else "w/ TS"
    titles = dict(zip(TEMPERATURES, (exact.replace("exact", "grid"), exact), strict=True))
    order = [name for name in TEMPERATURES if name in names] + sorted(names.difference(TEMPERATURES))
    smoothed = sorted({key.label_smoothing for key in keys if key.calibrator == RAW and key.label_smoothing > 0})
    return [
        Remedy(""),
        *(Remedy(titles.get(name, f"w/ {name}"), name) for name in order),
        *(Remedy("w/ LS" if len(smoothed) == 1 else f"w/ LS {alpha:g}", RAW, alpha) for alpha in smoothed),
    ]


def places_of(found: Cells, rows: pa.Table) -> Places:
    """The data sets, those of the paper first: corrupted images, then shifts in the wild, so many side by side."""
    pairs = sorted({key[:2] for key in found}, key=lambda pair: (rank(pair[0], list(DATA_TITLES)), pair))
    names = [data for data, _ in pairs]
    graded = set(rows.filter(pc.and_(rows["shifted"], pc.greater(rows["severity"], 0)))["data"].to_pylist())
    places = [
        Place(data, model, DATA_TITLES.get(data, data) + (f", {model}" if names.count(data) > 1 else ""))
        for data, model in pairs
    ]
    kinds = [[p for p in places if p.data in graded], [p for p in places if p.data not in graded]]
    return [kind[start : start + BESIDE] for kind in kinds for start in range(0, len(kind), BESIDE)]


def fill(plan: Plan, found: Cells, best_of: str, *, with_paper: bool) -> Block:
    lines = [[entry_of(key, found, with_paper=with_paper) for key in keys] for _, keys in plan.lines]
    by_rivals = [marked(rivals) for rivals in (lines if best_of == "row" else zip(*lines, strict=True))]
    lines = by_rivals if best_of == "row" else [list(line) for line in zip(*by_rivals, strict=True)]
    labels = [label for label, _ in plan.lines]
    return Block(tuple(plan.groups), tuple(Line(*line) for line in zip(labels, map(tuple, lines), strict=True)))


def marked(rivals: Sequence[Entry]) -> list[Entry]:
    """The entries with the best of them marked."""
    higher = MEASURES[rivals[0].key.metric].higher_is_better
    ranks = standings([entry.cell for entry in rivals], higher_is_better=higher)
    return [
        replace(entry, is_best=best, is_significant=leads) for entry, (best, leads) in zip(rivals, ranks, strict=True)
    ]


def entry_of(key: Key, found: Cells, *, with_paper: bool) -> Entry:
    cell = found.get(key)
    plain = found.get(key._replace(label_smoothing=0.0, calibrator=RAW))
    entry = Entry(key, cell, cell_text(cell, MEASURES[key.metric].in_percent), improved=is_lower(cell, plain))
    if not with_paper or key.variant:
        return entry
    calibrator = TEMPERATURES[0] if key.calibrator in TEMPERATURES else key.calibrator
    digits = printed(key.data, key.loss, key.metric, label_smoothing=key.label_smoothing, calibrator=calibrator)
    if digits is None:
        return entry
    return replace(entry, published=(float(digits.mean), float(digits.error)), published_text="±".join(digits))


def is_lower(cell: Cell | None, plain: Cell | None) -> bool:
    if cell is None or plain is None or not (cell.complete and plain.complete):
        return False
    return cell.mean is not None and plain.mean is not None and cell.mean < plain.mean


def cell_text(cell: Cell | None, in_percent: bool) -> str:
    if cell is None or cell.mean is None:
        return MISSING
    scale = 100 if in_percent else 1
    mean = mean_text(scale * cell.mean, in_percent)
    return mean if cell.error is None else f"{mean}±{error_text(scale * cell.error)}"


def mean_text(value: float, in_percent: bool) -> str:
    """Three digits of a percentage, never more than two decimals; three decimals of another number.

    >>> [mean_text(value, True) for value in (0.4, 8.7, 9.996, 14.46, 99.97)], mean_text(3.3294, False)
    (['0.40', '8.70', '10.0', '14.5', '100'], '3.329')
    """
    if not in_percent:
        return f"{value:.3f}"
    return next(text for text in (f"{value:.2f}", f"{value:.1f}", f"{value:.0f}") if len(text) <= 4 or "." not in text)


def error_text(value: float) -> str:
    """One decimal, or one digit where that would be zero and the value is not.

    >>> [error_text(value) for value in (0.0, 0.23, 0.0996, 0.04, 0.004, 1e-9, 12.8)]
    ['0.0', '0.2', '0.1', '0.04', '0.004', '<0.0001', '12.8']
    """
    if 0 < value < 1e-4:
        return "<0.0001"
    return f"{value:.1f}" if value >= 0.1 or value == 0 else f"{value:.1g}"


def footnotes(table: Table) -> Iterator[str]:
    """What a reader must know about this table, whatever the format."""
    there = [entry.cell for entry in table.entries if entry.cell is not None]
    seeds, tests = span([cell.n_seeds for cell in there]), span([cell.n_tests for cell in there])
    yield f"Mean ± standard error over seeds ({seeds}) of the mean over {table.tests} tests ({tests})."
    if any(entry.improved for entry in table.entries):
        yield "↓: lower than the same loss without it."
    if any(entry.is_significant for entry in table.entries):
        yield "†: ahead of every other beyond the chance of seeds (paired t-test, 5 %)."
    if any(entry.is_partial for entry in table.entries):
        yield f"*: some of its runs lack some of the {table.tests} tests; it does not compete for the best."
    if any(entry.text == MISSING for entry in table.entries):
        yield f"{MISSING}: no such run, or no such score."
    if beside := [entry.key for entry in table.entries if entry.published]:
        yield "The paper's numbers are of its own models and training, not of this experiment's."
        yield from doubts(beside)


def doubts(keys: Sequence[Key]) -> Iterator[str]:
    """What is known of the paper's numbers (see `calibrant.report.published`), where these are among them."""
    if any(key.loss == "avuc" for key in keys):
        yield "The paper's AvUC is doubtful: its code compares every prediction with one sample's label."
    if any(key.metric == "brier_on_errors" for key in keys):
        yield "The paper divides Brier on errors by the number of classes; here it is the sum over classes."
    if any(key.metric == "nll_on_errors" and key.data == "tiny_imagenet" for key in keys):
        yield "The paper's NLL on errors of Tiny ImageNet-C is on another scale: no error has less than 0.69."
    if any(key.calibrator == "temperature" for key in keys):
        yield "The paper's temperature scaling takes the best of four temperatures; temperature here is exact."


def span(counts: Sequence[int]) -> str:
    least, most = min(counts), max(counts)
    return f"{most}" if least == most else f"{least} to {most}"


def rank(name: str, order: Sequence[str]) -> int:
    return order.index(name) if name in order else len(order)
