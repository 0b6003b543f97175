"""The page of an experiment as HTML: sections, hostile names, progress, provenance and refusals."""

import hashlib
import json
import re
from collections.abc import Collection
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest

from calibrant import report
from calibrant.errors import CorruptFileError, InvalidInputError, NoDataError, UnknownNameError
from calibrant.experiments.folder import ExperimentFolder
from calibrant.report import experiment
from calibrant.report.experiment import MAX_METRICS, live_page, write_experiment
from calibrant.report.style import MAIN_METRICS
from made.folder import epoch_records, write_folder, write_lines
from made.page import Page
from made.rows import Experiment

SCRIPT = "<script>alert('1')</script> & \"x\"\x1b"
IMAGE = '"><img src=x onerror=alert(2)>\x07'
TEMPLATE = "{{ 7 * 7 }}\x1b[31m"
NOW = datetime(2026, 11, 16, 15, tzinfo=timezone(timedelta(hours=2)))
TOML = """
title = "A <small> sweep"
figures = []
[settings]
data = "digits"
model = "mlp"
[[grid]]
loss = ["focal", "poly"]
seed = [0, 1]
"""


def write_page(folder: ExperimentFolder, figures: Collection[str] | None = (), **options: Any) -> Page:
    path = write_experiment(folder, figures=figures, now=NOW, **options)
    return Page(path.read_text(encoding="utf-8"))


def small(path: Path, **options: Any) -> ExperimentFolder:
    """One of the four runs of TOML."""
    made = Experiment(losses=("focal",), seeds=1, severities=(1,), shifts=("fog",), metrics=("ece",))
    return write_folder(path / "runs", made, **options)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> tuple[Page, str]:
    """The page of an experiment with hostile names."""
    made = Experiment(data=(SCRIPT,), losses=("focal", "maxent_mean"), variants=("", IMAGE), severities=(1, 3))
    for row in (*made.rows, *made.curves):
        row["run"] = f"{row['run']}{TEMPLATE}".replace("/", "")
        row["model"] = TEMPLATE
        if row["corruption"] == "snow":
            row["corruption"] = SCRIPT
    rest = TOML.partition("figures = []\n")[2]  # all figures
    toml = f"# {IMAGE[:-1]}\ntitle = {json.dumps(f'Demo {SCRIPT}')}\n{rest}"
    outcomes = [{"run": f"{IMAGE}-0", "failure": SCRIPT, "seconds": 1.5}]
    folder = write_folder(tmp_path_factory.mktemp("hostile") / "runs", made, toml=toml, outcomes=outcomes)
    text = write_experiment(folder, now=NOW).read_text(encoding="utf-8")
    return Page(text), text


# Hostile names


def seen(text: str) -> str:
    return text.replace("\x1b", "\\x1b").replace("\x07", "\\x07")


@pytest.mark.slow
def test_hostile_names_are_text(whole: tuple[Page, str]) -> None:
    page, text = whole
    assert len(page.all("script")) == 1
    assert not page.all("img")
    assert not page.all("iframe")
    assert [name for _, attributes in page.tags for name in attributes if name.startswith("on")] == []
    every = [text, page.text, *(value or "" for _, attributes in page.tags for value in attributes.values())]
    assert not set("".join(every)) & {"\x1b", "\x07", "�"}
    assert page.text.count(seen(f"Demo {SCRIPT}")) == 2  # title and heading
    written = (f"{IMAGE}-0: {SCRIPT}", f"MaxEnt M ({IMAGE})", TEMPLATE, f"# {IMAGE[:-1]}")
    assert [name for name in written if seen(name) not in page.text] == []


def test_charts_of_hostile_names_can_be_toggled(whole: tuple[Page, str]) -> None:
    page, _ = whole
    labels = [label or "" for label in page.values("aria-label")]
    boxes = [attributes["value"] or "" for attributes in page.all("input", type="checkbox")]
    assert seen(f"MaxEnt M ({IMAGE})") in boxes
    for box in boxes:
        assert any(label == box or label.startswith(f"{box}: ") for label in labels), box
    assert any(label.startswith(seen(f"Focal: {SCRIPT}, ECE ")) for label in labels)


# Sections


def test_page_requests_nothing_and_is_small(whole: tuple[Page, str]) -> None:
    page, text = whole
    policy = page.all("meta", **{"http-equiv": "Content-Security-Policy"})[0]["content"] or ""
    assert "default-src 'none'" in policy
    assert "connect-src" not in policy
    assert not page.all("link")
    assert all((link["href"] or "").startswith("#") for link in page.all("a"))
    assert re.findall(r"@import|<[^>]*\ssrc=(?!x)", text) == []
    assert len(text.encode()) < 600_000  # of the demo, with nine losses and 95 tests, 0.9 MB


def test_contents_link_to_every_section_and_charts_have_names(whole: tuple[Page, str]) -> None:
    page, _ = whole
    ids = page.values("id")
    assert len(ids) == len(set(ids))
    results = ["scores", "calibrators", "severity", "reliability", "heat_map", "claims", "figures", "epochs"]
    wanted = [*results, "plan", "provenance"]
    assert [link["href"] for link in page.all("a")][1:] == [f"#{name}" for name in wanted]
    assert [section["id"] for section in page.all("section")] == wanted
    names = [attributes["aria-label"] for attributes in page.all("div", role="img")]
    assert len(names) == len(set(names)) > 10
    assert {
        "Line chart of ECE against severity, one line per loss.",
        "Line chart of Validation ECE over epochs.",
    } <= set(names)


def test_each_list_has_its_panels(whole: tuple[Page, str]) -> None:
    page, _ = whole
    panels: dict[str | None, list[str | None]] = {}
    for _, attributes in page.tags:
        if "data-panel-of" in attributes:
            panels.setdefault(attributes["data-panel-of"], []).append(attributes["data-panel"])
    assert page.values("data-switch") == list(panels)
    assert set(panels) == {"metric", "severity", "learning", "constraints"}
    assert panels["severity"] == ["ece", "accuracy", "kse"]
    assert [option["value"] for option in page.all("option")] == [value for found in panels.values() for value in found]
    for found in panels.values():
        assert f"This print shows 1 of {len(found)}; open the HTML page for the others." in page.text


def test_figures_that_cannot_be_drawn_are_listed(whole: tuple[Page, str], tmp_path: Path) -> None:
    page, _ = whole
    assert "Sample images: cannot draw samples: no images given" in page.text
    assert "Calibrated: cannot draw calibrated: the experiment has no calibrated rows" in page.text
    folder = small(tmp_path)
    folder.curves_file.unlink()
    page = write_page(folder, ["risk_coverage"])
    assert re.search(r"Risk-coverage curves: \S+ has no curves.parquet", page.text)


def test_files_are_deterministic(tmp_path: Path) -> None:
    folder = small(tmp_path)
    seen: list[str] = []
    write_page(folder, ["risk_coverage", "gibbs"], progress=seen.append)
    assert seen == ["gibbs", "risk_coverage"]
    assert sorted(path.name for path in folder.figures_folder.iterdir()) == ["gibbs.svg", "risk_coverage.svg"]
    first = folder.page_file.read_bytes()
    write_page(folder, ["risk_coverage", "gibbs"])
    assert folder.page_file.read_bytes() == first
    assert not list(folder.path.rglob(".*.tmp"))


@pytest.mark.slow
def test_a_running_page_reloads_and_notes_broken_logs(tmp_path: Path) -> None:
    folder = small(tmp_path)
    write_lines(folder.run("digits-mlp-focal-0").log, ['{"epoch": 1', *epoch_records("focal", 0)])
    page = write_page(folder, ["all"], refresh=30)
    assert "left out: 1 line of digits-mlp-focal-0." in page.text
    assert "Validation ECE" in page.text
    assert [tag["content"] for tag in page.all("meta", **{"http-equiv": "refresh"})] == ["30"]
    assert "the page reloads every 30 seconds" in page.text
    assert not write_page(folder).all("meta", **{"http-equiv": "refresh"})


# Progress


def test_done_missing_and_failed_runs(tmp_path: Path) -> None:
    done, first, second = "digits-mlp-focal-0", "digits-mlp-poly-0", "digits-mlp-poly-1"
    ends = [(done, "disk full", 5.0), (done, None, 30.0), (done, None, 2.0)]
    ends += [(first, None, 3.0), (first, "the loss is nan <b>", 60.0), (done, "killed as it was measured again", 1.0)]
    outcomes = [{"run": run, "failure": failure, "seconds": seconds} for run, failure, seconds in ends]
    folder = small(tmp_path, toml=TOML, outcomes=[*outcomes, '{"run": "cut', {"run": 3}])
    write_lines(folder.run(second).config, ["{}"])
    page = write_page(folder, None)  # the figures of the experiment file: none
    assert not folder.figures_folder.exists() or not list(folder.figures_folder.iterdir())
    assert page.text.count("A <small> sweep") == 3  # title, heading, configuration
    assert "1 of 4 runs is done, 3 remaining (1 started). Total run time: 2 min, summed over runs." in page.text
    assert [page.text.count(f"\n{name}\n") for name in (done, first, second, "digits-mlp-focal-1")] == [0, 1, 1, 1]
    assert f"{first}: the loss is nan <b>" in page.text
    assert "disk full" not in page.text  # for it is done
    assert "killed" not in page.text
    assert "log.jsonl: 2 unreadable lines left out." in page.text
    assert "no readable line of" not in page.text
    folder.log_file.unlink()
    assert "log.jsonl: no readable line of 1 finished run, whose time is unknown." in write_page(folder, None).text
    rows = re.findall(r"(Focal|Poly)digitsmlp(\d)(\d)(\d)([\d.]+ s)", page.text)
    assert rows == [("Focal", "2", "1", "1", "30 s"), ("Poly", "2", "0", "2", "3.0 s")]  # measured again, it took less


def test_long_lists_are_shortened(tmp_path: Path) -> None:
    outcomes = [{"run": f"r{n}", "failure": f"reason {n}", "seconds": 1} for n in range(25)]
    toml = TOML.replace("seed = [0, 1]", f"seed = {list(range(25))}")
    page = write_page(small(tmp_path, toml=toml, outcomes=[*outcomes, {"run": "r0", "failure": None, "seconds": 2}]))
    assert "r1: reason 1" in page.text
    assert "reason 0" not in page.text
    assert page.text.count("and 4 more") == 1
    assert page.text.count("and 29 more") == 1  # of 49 runs that are left


# Provenance


def test_provenance(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = small(tmp_path / "a b", toml=TOML.replace("\n", "\r\n"))
    text = folder.experiment_file.read_bytes().decode()
    page = write_page(folder)
    digest = hashlib.sha256(folder.rows_file.read_bytes()).hexdigest()
    assert f"sha256 {digest} of rows.parquet" in page.text
    assert "2026-11-16 13:00:00 UTC by calibrant " in page.text
    assert text.replace("\r\n", "\n").strip() in page.text
    assert f"calibrant run '{folder.experiment_file}' -o '{folder.path}-again'" in page.text
    assert "planned runs are unknown" not in page.text
    monkeypatch.setattr(experiment, "MAX_BYTES", 20)
    assert "The configuration is truncated to 20 bytes." in write_page(folder).text
    folder.experiment_file.unlink()
    page = write_page(folder)
    assert "The planned runs are unknown: the folder has no experiment.toml." in page.text
    assert "1 of 1 run is done." in page.text
    assert "calibrant run" not in page.text


def test_different_environments_are_noted(tmp_path: Path) -> None:
    folder = write_folder(tmp_path, Experiment(losses=("focal", "poly"), severities=(1,), metrics=("ece",)))
    runs = sorted(path for path in tmp_path.iterdir() if path.is_dir())
    (runs[0] / "environment.json").write_text(json.dumps({"torch": "2.12.0", "calibrant": "0.1.0"}))
    (runs[1] / "environment.json").write_text("{")
    page = write_page(folder)
    assert "2.13.0 (2 runs), 2.12.0 (1 run)" in page.text
    assert "The environments of the runs differ in torch." in page.text  # a gpu of None is none
    assert "1 of 4 runs has no readable environment.json." in page.text


# Small experiments


def test_one_run_of_one_seed(tmp_path: Path) -> None:
    page = write_page(small(tmp_path))
    assert "The ECE of Focal on the shifted test set is " in page.text
    assert "data-switch" not in {name for _, attributes in page.tags for name in attributes}  # of one metric, none
    assert "number best" not in page.values("class")
    assert str(tmp_path / "runs") in page.text  # in place of a title


def test_without_shifted_tests_and_without_runs(tmp_path: Path) -> None:
    made = Experiment()
    made.rows = [row for row in made.rows if not row["shifted"]]
    made.curves = [row for row in made.curves if not row["shifted"]]
    page = write_page(write_folder(tmp_path, made), ["severity", "reliability", "heat_map", "feature_norm"])
    assert "No test set is shifted" in page.text
    assert [section["id"] for section in page.all("section")] == ["scores", "figures", "plan", "provenance"]
    assert "Scores without shift" in page.text
    assert "Reliability: cannot draw reliability: the experiment has no shifted test sets" in page.text
    made.rows = made.curves = []
    page = write_page(write_folder(tmp_path, made))
    assert "No run is done yet" in page.text
    assert "The experiment has no runs." in page.text


def test_the_page_begins_with_results(tmp_path: Path) -> None:
    made = Experiment(
        losses=("focal",), seeds=1, severities=(1,), calibrators=("none", "temperature"), metrics=("ece",)
    )
    toml = '[settings]\ndata = "digits"\nmodel = "mlp"\n[[grid]]\nloss = "focal"\nseed = [0, 1]\n'
    page = write_page(write_folder(tmp_path, made, toml=toml), ["calibrated"])
    assert [section["id"] for section in page.all("section")][:2] == ["calibrated", "scores"]
    places = [page.text.index(text) for text in ("the ECE of Focal rises", "1 of 2 runs is done", "Scores under shift")]
    assert places == sorted(places)


def test_claims_and_combinations_are_shown_where_runs_allow_them(tmp_path: Path) -> None:
    for losses, expected in (
        (("cross_entropy", "maxent_mean"), ["claims", "combinations"]),
        (("cross_entropy", "focal"), ["combinations"]),
        (("cross_entropy",), []),
    ):
        page = write_page(write_folder(tmp_path / "-".join(losses), Experiment(losses=losses, seeds=2)))
        assert [table for table in ("claims", "combinations") if page.all("table", id=f"{table}-table")] == expected
        assert ("MaxEnt M: lower ECE than CE" in page.text) == ("claims" in expected)
        assert ("sorted by ECE on digits" in page.text) == ("combinations" in expected)


def test_at_most_eight_metrics_against_severity(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    names = [*MAIN_METRICS, "mce", "rmsce", "adaece", "smece"]
    made = Experiment(losses=("focal",), seeds=1, severities=(2,), shifts=("fog",), metrics=("ece",))
    made.rows = [{**row, "metric": name} for row in made.rows for name in names]
    monkeypatch.setattr(experiment, "to_svg", lambda chart: '<svg width="1" height="1"/>')
    page = write_page(write_folder(tmp_path, made), ["severity"])
    found = [option["value"] for option in page.all("option")]
    assert found[-MAX_METRICS:] == names[:MAX_METRICS]


def test_refusals(tmp_path: Path) -> None:
    folder = small(tmp_path)
    refusals: list[tuple[str, type[Exception], str]] = [
        ("title = ", CorruptFileError, "is not TOML"),
        (TOML.replace("[]", '["severty"]', 1), UnknownNameError, "unknown figure 'severty'; did you mean 'severity'"),
        (TOML.replace("loss", "los"), UnknownNameError, r"unknown setting 'grid\[0\].los'; did you mean 'loss'"),
        ("title = 3", InvalidInputError, "title must be a string, got 3"),
    ]
    for toml, error, message in refusals:
        folder.experiment_file.write_text(toml)
        with pytest.raises(error, match=message):
            write_experiment(folder)
    folder.rows_file.write_bytes(b"no parquet")
    with pytest.raises(CorruptFileError, match="is not a Parquet file"):
        write_experiment(str(folder.path))
    with pytest.raises(NoDataError, match=r"has no rows\.parquet"):
        write_experiment(tmp_path / "none")
    assert not folder.page_file.exists()
    assert report.write_experiment is write_experiment
    with pytest.raises(AttributeError, match="has no attribute 'write'"):
        report.write  # noqa: B018


def test_live_page_limits_its_time_and_never_raises(tmp_path: Path) -> None:
    folder = small(tmp_path)
    folder.experiment_file.write_text(TOML)
    write_always, write_once = live_page(folder, share=1e9, refresh=7), live_page(folder, share=1e-9)
    for _ in range(2):
        write_always()
        assert '<meta http-equiv="refresh" content="7">' in folder.page_file.read_text(encoding="utf-8")
        folder.page_file.unlink()
    write_once()
    folder.page_file.unlink()
    write_once()
    assert not folder.page_file.exists()
    folder.rows_file.unlink()
    write_always()
    assert not folder.page_file.exists()
