"""The page of an experiment as HTML: its parts, what others wrote in it, and experiments of which there is little."""

import re
from collections.abc import Sequence
from datetime import UTC, datetime
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from made_folder import epoch_records, write_folder, write_lines
from made_rows import Experiment, curves_table, rows_table

from calibrant.report.experiment import PlannedRun, RunKind, draw_experiment, experiment_page
from calibrant.report.experiment.drawings import Drawings

SCRIPT = "<script>alert('1')</script> & \"x\"\x1b"
PICTURE = '"><img src=x onerror=alert(2)>\x07'
TEMPLATE = "{{ 7 * 7 }}\x1b[31m"
MADE = datetime(2026, 11, 16, tzinfo=UTC)
VOID = {"meta", "input", "br", "img", "link"}


class Page(HTMLParser):
    """What a page holds: tags with their attributes, and the text."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.open: list[str] = []
        self.feed(text)
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] not in ("script", "style"):
            self.text += data

    def all(self, tag: str, **equal: str) -> list[dict[str, str | None]]:
        found = [attributes for name, attributes in self.tags if name == tag]
        return [attributes for attributes in found if equal.items() <= attributes.items()]

    def values(self, name: str) -> list[str | None]:
        return [attributes[name] for _, attributes in self.tags if name in attributes]


def paged(
    folder: Path, made: Experiment, *, drawings: Drawings | None = None, figures: Sequence[str] = (), **options: Any
) -> tuple[Page, str]:
    rows, curves = made.tables
    planned = options.get("planned", ())
    drawn = drawings or draw_experiment(folder, rows, curves, planned=planned, figures=figures)
    text = experiment_page(folder, rows, drawn, **{"made": MADE, **options})
    return Page(text), text


def hostile() -> Experiment:
    """An experiment in which a user has named everything with care."""
    made = Experiment(data=(SCRIPT,), losses=("focal", "maxent_mean"), variants=("", PICTURE), severities=(1, 3))
    for row in (*made.rows, *made.curves):
        row["run"] = f"{row['run']}{TEMPLATE}".replace("/", "")
        if row["shift"] == "snow":
            row["shift"] = SCRIPT
    return made


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("hostile") / "runs"
    outcomes = [{"run": f"{PICTURE}-0", "failure": SCRIPT, "seconds": 1.5}]
    write_folder(place, hostile(), toml=f"# {SCRIPT}\n# {PICTURE}\n", outcomes=outcomes)
    return place


@pytest.fixture(scope="module")
def drawings(folder: Path) -> Drawings:
    return draw_experiment(folder, *hostile().tables)


@pytest.fixture(scope="module")
def whole(folder: Path, drawings: Drawings) -> tuple[Page, str]:
    planned = [PlannedRun(f"{SCRIPT}-{seed}", RunKind(SCRIPT, PICTURE, "poly", TEMPLATE, 0.0), seed) for seed in (0, 1)]
    return paged(folder, hostile(), title=f"Demo {SCRIPT}", planned=planned, drawings=drawings)


# What others wrote


def test_what_others_wrote_is_text(whole: tuple[Page, str]) -> None:
    page, text = whole
    assert len(page.all("script")) == 1
    assert not page.all("img")
    assert not page.all("iframe")
    assert [name for _, attributes in page.tags for name in attributes if name.startswith("on")] == []
    every = [text, page.text, *(value or "" for _, attributes in page.tags for value in attributes.values())]
    assert not set("".join(every)) & {"\x1b", "\x07", "�"}
    assert page.text.count(seen(f"Demo {SCRIPT}")) == 2  # title and heading
    written = (f"{SCRIPT}-0", f"{PICTURE}-0: {SCRIPT}", f"MaxEnt M ({PICTURE})", TEMPLATE, f"# {PICTURE}")
    assert [name for name in written if seen(name) not in page.text] == []


def seen(text: str) -> str:
    return text.replace("\x1b", "\\x1b").replace("\x07", "\\x07")


def test_charts_of_hostile_names_can_be_toggled(whole: tuple[Page, str]) -> None:
    page, _ = whole
    labels = [label or "" for label in page.values("aria-label")]
    boxes = [attributes["value"] or "" for attributes in page.all("input", type="checkbox")]
    assert seen(f"MaxEnt M ({PICTURE})") in boxes
    for box in boxes:
        assert any(label == box or label.startswith(f"{box}: ") for label in labels), box
    assert any(label.startswith(seen(f"Focal: {SCRIPT}, ECE ")) for label in labels)


# The parts


def test_nothing_is_fetched(whole: tuple[Page, str]) -> None:
    page, text = whole
    policy = page.all("meta", **{"http-equiv": "Content-Security-Policy"})[0]["content"] or ""
    assert "default-src 'none'" in policy
    assert not page.all("link")
    assert all((link["href"] or "").startswith("#") for link in page.all("a"))
    assert re.findall(r"@import|<[^>]*\ssrc=(?!x)", text) == []


def test_contents_lead_to_every_part(whole: tuple[Page, str]) -> None:
    page, _ = whole
    ids = page.values("id")
    assert len(ids) == len(set(ids))
    wanted = ["plan", "scores", "remedies", "severity", "reliability", "heat-map", "figures", "epochs", "origin"]
    assert [link["href"] for link in page.all("a")][1:] == [f"#{name}" for name in wanted]
    assert [section["id"] for section in page.all("section")] == wanted


def test_each_switch_has_its_panels(whole: tuple[Page, str]) -> None:
    page, _ = whole
    panels: dict[str | None, list[str | None]] = {}
    for _, attributes in page.tags:
        if "data-panel-of" in attributes:
            panels.setdefault(attributes["data-panel-of"], []).append(attributes["data-panel"])
    assert page.values("data-switch") == list(panels)
    assert set(panels) == {"metric", "severity", "reliability", "heat-map", "learning", "constraints"}
    assert [option["value"] for option in page.all("option")] == [value for found in panels.values() for value in found]
    assert panels["reliability"] == ["all", "0", "1", "3"]
    for found in panels.values():
        assert f"One of {len(found)}; the page has the others." in page.text
    assert page.values("class").count("only-print") == len(panels)


def test_pictures_have_words(whole: tuple[Page, str], drawings: Drawings) -> None:
    page, _ = whole
    pictures = [attributes["aria-label"] or "" for attributes in page.all("div", role="img")]
    panels = ("severity", "reliability", "heat_map", "others", "epochs", "constraints")
    assert len(pictures) == sum(len(getattr(drawings, name)) for name in panels)
    assert [said for said in pictures if len(said) < 40] == []
    assert any(re.search(r"severity 3: from [\d.]+ % \(.*\) to [\d.]+ % \(", said) for said in pictures)


def test_figures_that_could_not_be_made_are_told(whole: tuple[Page, str]) -> None:
    page, _ = whole
    assert "Samples: the figure samples needs pictures of the data set" in page.text
    assert "Calibrators under shift: the figure calibrated needs calibrated rows" in page.text


def test_the_page_is_not_large(whole: tuple[Page, str]) -> None:
    """Of the demo, with nine losses and 95 tests, it is 1.7 MB."""
    assert len(whole[1].encode()) < 1_000_000


def test_the_same_experiment_is_the_same_page(folder: Path, drawings: Drawings) -> None:
    first, second = (paged(folder, hostile(), drawings=drawings)[1] for _ in range(2))
    assert first == second


# What is missing


def test_missing_runs_by_name(tmp_path: Path) -> None:
    planned = [PlannedRun(f"digits-{seed}", RunKind("digits", "mlp", "poly", "", 0.0), seed) for seed in range(50)]
    page, _ = paged(tmp_path, Experiment(), planned=planned)
    for name in ("digits-0", "digits-19", "and 30 more"):
        assert page.text.count(f"\n{name}\n") == 1
    assert "\ndigits-20\n" not in page.text
    assert "6 of 56 runs are done, 50 left." in page.text
    assert "and 30 more" not in paged(tmp_path, Experiment())[0].text


def test_failed_runs_with_their_reasons(tmp_path: Path) -> None:
    ends = [{"run": f"r{n}", "failure": f"reason {n}", "seconds": 1} for n in range(25)]
    write_lines(tmp_path / "log.jsonl", [*ends, {"run": "r0", "failure": None, "seconds": 2}, "{"])
    page, _ = paged(tmp_path, Experiment())
    assert "r1: reason 1" in page.text
    assert "reason 0" not in page.text
    assert "and 4 more" in page.text
    assert "1 line of log.jsonl cannot be read and is left out." in page.text


# Experiments of which there is little


def test_one_run_of_one_seed(tmp_path: Path) -> None:
    made = Experiment(losses=("focal",), seeds=1, metrics=("ece",))
    page, _ = paged(tmp_path, made)
    assert "1 of 1 run is done." in page.text
    assert "Focal alone can be judged" in page.text
    assert "data-switch" not in {name for _, attributes in page.tags for name in attributes}  # of one metric, none
    assert "best" not in page.values("class")


def test_without_shifted_tests(tmp_path: Path) -> None:
    made = Experiment()
    made.rows = [row for row in made.rows if not row["shifted"]]
    made.curves = [row for row in made.curves if not row["shifted"]]
    page, _ = paged(tmp_path, made, figures=("severity", "reliability", "heat_map", "feature_norm"))
    assert "None of the tests is shifted" in page.text
    assert [section["id"] for section in page.all("section")] == ["plan", "scores", "figures", "origin"]
    assert page.all("section", id="scores")[0]["data-title"] == "Scores without shift"
    assert "under shift" not in page.text.replace("Calibrators under shift", "")
    assert "Reliability: the figure reliability needs shifted tests" in page.text


def test_without_any_run(tmp_path: Path) -> None:
    text = experiment_page(
        tmp_path, rows_table([]), draw_experiment(tmp_path, rows_table([]), curves_table([]), figures=()), made=MADE
    )
    page = Page(text)
    assert "No run is done yet" in page.text
    assert "The experiment names no run." in page.text
    assert str(tmp_path) in page.text  # in place of a title


def test_logs_that_are_broken(tmp_path: Path) -> None:
    made = Experiment(losses=("focal",), seeds=1, metrics=("ece",))
    run = made.rows[0]["run"]
    write_lines(tmp_path / run / "log.jsonl", ['{"epoch": 1', *epoch_records("focal", 0)])
    rows, _ = made.tables
    page = Page(experiment_page(tmp_path, rows, draw_experiment(tmp_path, rows, None), made=MADE))
    assert f"left out: 1 line of {run}." in page.text
    assert "Validation ECE" in page.text
    assert "Risk against coverage: the figure risk_coverage needs curves.parquet" in page.text


def test_a_page_that_is_served_says_its_state(tmp_path: Path) -> None:
    page, _ = paged(tmp_path, Experiment(), state="abc")
    assert page.all("body")[0]["data-state"] == "abc"
    assert "data-state" not in paged(tmp_path, Experiment())[0].all("body")[0]
