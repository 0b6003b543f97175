"""What the page of an experiment says: words, tables, telemetry, progress, origin; against independent computations."""

import hashlib
import json
import math
import re
from collections import defaultdict
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from made_folder import EPOCHS, epoch_records, write_folder, write_lines
from made_rows import NINE, Experiment, rows_table
from scipy import stats
from test_summary import run_rows, table_of

from calibrant.report.experiment import PlannedRun, RunKind
from calibrant.report.experiment.alternatives import of_severity
from calibrant.report.experiment.drawings import MOST_METRICS, Drawings, at, draw_all, severities_of
from calibrant.report.experiment.learning import Learning, read_learning
from calibrant.report.experiment.measures import KNOWN, measure_of, metrics_of
from calibrant.report.experiment.origin import environment_of, origin_of
from calibrant.report.experiment.progress import plan_rows, progress_of, progress_words, runs_of
from calibrant.report.experiment.scores import PageTable, page_tables, remedy_tables, score_tables
from calibrant.report.experiment.words import findings
from calibrant.report.figures import severity
from calibrant.report.palette import label_of
from calibrant.report.tables import make_table

Row = dict[str, Any]

MADE = Experiment(
    losses=("cross_entropy", "focal", "maxent_mean"), seeds=3, calibrators=("none", "temperature"), severities=(1, 3, 5)
)
ROWS, CURVES = MADE.tables
NOTHING = Learning((), (), ())


def said(*runs: list[Row]) -> str:
    rows = table_of(*runs)
    return " ".join(findings(rows, score_tables(rows)))


def ece(loss: str, *values: float, first_seed: int = 0, **about: Any) -> list[Row]:
    """A run per value, with two shifted tests about it."""
    return [
        row
        for seed, value in enumerate(values, first_seed)
        for row in run_rows({"fog-1": value - 0.01, "fog-2": value + 0.01}, seed=seed, loss=loss, **about)
    ]


def slow_score(rows: list[Row], loss: str, metric: str) -> np.ndarray[Any, Any]:
    """The mean over shifted tests of each seed."""
    by_seed = defaultdict(list)
    for row in rows:
        if row["shifted"] and (row["loss"], row["metric"], row["calibrator"]) == (loss, metric, "none"):
            by_seed[row["seed"]].append(row["value"])
    return np.array([np.mean(by_seed[seed]) for seed in sorted(by_seed)])


def digits(share: float) -> str:
    """Three of them, of a percentage below 100."""
    return f"{100 * share:.2f}" if 100 * share < 9.995 else f"{100 * share:.1f}"


# Words


@pytest.mark.parametrize(("metric", "most"), [("ece", "lowest ECE"), ("accuracy", "highest accuracy")])
def test_the_leader_and_whether_by_chance(metric: str, most: str) -> None:
    sign = 1 if metric == "ece" else -1
    scores = {loss: slow_score(MADE.rows, loss, metric) for loss in ("cross_entropy", "focal", "maxent_mean")}
    first, second, third = sorted(scores, key=lambda loss: sign * scores[loss].mean())
    sentence = next(line for line in findings(ROWS, score_tables(ROWS)) if most in line)
    assert sentence.startswith(f"{label_of(first)} has the {most} over the 6 shifted tests, ")
    assert f", {digits(scores[first].mean())}±" in sentence
    assert f"; {label_of(second)} is next with {digits(scores[second].mean())}±" in sentence
    beyond = all(stats.ttest_rel(scores[first], scores[other]).pvalue < 0.05 for other in (second, third))
    lead = f"the lead over all others {'is' if beyond else 'is not'} beyond the chance of seeds"
    assert sentence.endswith(f", and {lead} (paired t-test over 3 seeds, 5 %).")


def test_leads_beyond_chance_and_within() -> None:
    assert "the lead is beyond the chance of seeds" in said(ece("focal", 0.1, 0.2), ece("poly", 0.3, 0.4))
    assert "the lead is not beyond the chance of seeds" in said(ece("focal", 0.1, 0.5), ece("poly", 0.3, 0.4))


def test_a_lead_over_the_second_alone_is_not_told_as_one_over_all() -> None:
    close, noisy = ece("poly", 0.3, 0.4), ece("avuc", 0.3, 0.9)
    assert "the lead is beyond the chance of seeds" in said(ece("focal", 0.1, 0.2), close)
    assert "the lead over all others is not beyond the chance of seeds" in said(ece("focal", 0.1, 0.2), close, noisy)
    even = ece("avuc", 0.5, 0.6)
    assert "the lead over all others is beyond the chance of seeds" in said(ece("focal", 0.1, 0.2), close, even)
    few = said(ece("focal", 0.1, 0.2), close, ece("avuc", 0.9))
    assert "With fewer than two seeds in common with AvUC, the lead over all others cannot be tested." in few
    assert "chance of seeds" not in few


def test_of_one_shifted_test_there_is_no_count() -> None:
    words = said(run_rows({"wild": 0.1}), run_rows({"wild": 0.2}, loss="poly"))
    assert "Focal has the lowest ECE over the shifted test, 10.0 %" in words


def test_of_one_seed_nothing_is_said_of_chance() -> None:
    words = said(ece("focal", 0.1), ece("poly", 0.3))
    assert "Focal has the lowest ECE over the 2 shifted tests, 10.0 %; Poly is next with 30.0 %." in words
    assert "With one seed, nothing can be said of chance." in words
    assert "chance of seeds" not in words
    apart = said(ece("focal", 0.1, 0.1), ece("poly", 0.3, 0.3, first_seed=2))
    assert "With no seed in common, nothing can be said of chance." in apart


def test_equals_share_the_lead() -> None:
    words = said(ece("focal", 0.1), ece("poly", 0.1), ece("avuc", 0.3))
    assert "Focal and Poly share the lowest ECE over the 2 shifted tests, 10.0 %." in words


def test_one_without_a_rival_is_not_the_best() -> None:
    words = said(ece("focal", 0.25))
    assert "Focal alone can be judged over the 2 shifted tests: its ECE is 25.0 %." in words
    assert "lowest" not in words


def test_one_that_lacks_tests_does_not_compete() -> None:
    words = said(ece("focal", 0.2), ece("poly", 0.3), run_rows({"fog-1": 0.01}, loss="avuc"))
    assert "Focal has the lowest ECE over the 2 shifted tests, 20.0 %; Poly is next with 30.0 %." in words
    assert "AvUC lacks some of the tests and cannot be compared." in words


def test_each_data_set_has_a_sentence_of_its_own() -> None:
    words = said(
        ece("focal", 0.2), ece("poly", 0.3), *(ece(*run, data="digits") for run in (("focal", 0.4), ("poly", 0.1)))
    )
    assert "CIFAR10-C: Focal has the lowest ECE" in words
    assert "digits: Poly has the lowest ECE" in words


def test_what_the_shift_does_to_cross_entropy() -> None:
    def mean(metric: str, level: int) -> str:
        own = [
            row["value"]
            for row in MADE.rows
            if (row["loss"], row["metric"], row["severity"], row["calibrator"])
            == ("cross_entropy", metric, level, "none")
        ]
        return f"{digits(float(np.mean(own)))} %"

    words = findings(ROWS, score_tables(ROWS))[-1]
    assert words == (
        f"From the unshifted test to severity 5, the accuracy of CE falls from {mean('accuracy', 0)} to "
        f"{mean('accuracy', 5)} and its ECE rises from {mean('ece', 0)} to {mean('ece', 5)}."
    )


def test_a_shift_in_the_wild_and_another_loss() -> None:
    rows, _ = Experiment(data=("camelyon17",), losses=("avuc", "focal"), wild=True).tables
    words = findings(rows, score_tables(rows))[-1]
    assert words.startswith("From the unshifted test to the shifted test, the accuracy of Focal falls from ")


def test_without_shifted_tests_nothing_is_said_of_shift() -> None:
    rows = rows_table(row for row in MADE.rows if not row["shifted"])
    first, *leaders, last = findings(rows, score_tables(rows))
    assert first == "9 runs of 3 losses on digits, seeds 0, 1 and 2; 1 test of 600 rows each, none of them shifted."
    assert last == "None of the tests is shifted, so that nothing can be said of shift."
    assert [" over the unshifted test, " in sentence for sentence in leaders] == [True, True]


def test_what_the_shift_does_is_said_to_be_of_fewer_tests() -> None:
    tests = {"test": 0.1, "fog-1": 0.2, "fog-2": 0.4}
    whole = said(run_rows(tests), run_rows(tests, loss="poly"))
    assert "to severity 2, the ECE of Focal rises" in whole
    assert "fewer tests" not in whole
    words = said(run_rows(tests), run_rows({"test": 0.1, "fog-1": 0.2}, loss="poly"))
    assert "to severity 1, the ECE of Focal rises" in words
    assert words.endswith("is told of fewer tests (cifar10: only the 2 of 3 tests that all runs have).")


def test_without_rows() -> None:
    assert findings(rows_table([]), {}) == ["No run is done yet, so that there is nothing to tell."]


def test_what_was_run_is_counted() -> None:
    first = findings(ROWS, score_tables(ROWS))[0]
    assert first == "9 runs of 3 losses on digits, seeds 0, 1 and 2; 7 tests of 600 rows each, 6 of them shifted."
    many, _ = Experiment(data=tuple("abcdef"), losses=("focal",), seeds=6, metrics=("ece",), severities=(1,)).tables
    assert findings(many, {})[0].startswith("36 runs of 1 loss on 6 data sets, 6 seeds; 18 tests of 600 rows each, 12 ")


# Tables


def column(table: PageTable, at: int) -> dict[str, str]:
    return {row[0].text: row[at].text for row in table.rows}


def test_the_tables_of_the_page_are_those_of_the_command() -> None:
    metrics = ("accuracy", "ece", "cece", "kse")
    losses = {"focal": (0.1, 0.2), "poly": (0.3, 0.45), "cross_entropy": (0.2, 0.1)}
    rows = table_of(*(ece(loss, *values, metric=metric) for loss, values in losses.items() for metric in metrics))
    tables = score_tables(rows)
    whole = make_table(rows, "1", against="paper")
    for place, metric in enumerate(metrics):
        own = [line.entries[0] for line in tables[metric].blocks[0].lines]
        assert own == [line.entries[place] for line in whole.blocks[0].lines], metric
    (shown, *_) = page_tables(tables)
    assert [heading.text for heading in shown.headings] == ["Loss", "CIFAR10-C", "paper"]
    assert column(shown, 2)["Focal"] == "9.30±0.1"
    assert {row[0].text: row[1].kind for row in shown.rows} == {"CE": "best", "Focal": "best", "Poly": ""}
    assert "paper: as the paper prints it." in shown.notes


def test_without_shifted_tests_the_scores_are_of_the_unshifted_one() -> None:
    rows = table_of(
        *(run_rows({"test": 0.1 * seed}, seed=seed, loss=loss) for seed in (1, 3) for loss in ("focal", "poly"))
    )
    (table,) = page_tables(score_tables(rows))
    assert table.caption == "ECE (%) without shift"
    assert [heading.text for heading in table.headings] == [
        "Loss",
        "cifar10",
    ]  # neither CIFAR10-C nor the paper's numbers
    assert column(table, 1) == {"Focal": "20.0±10.0", "Poly": "20.0±10.0"}
    assert "Mean ± standard error over seeds (2) of the mean over unshifted tests (1)." in table.notes
    assert remedy_tables(rows) == []
    (other,) = page_tables(score_tables(table_of(run_rows({"test": 0.1}, data="digits"))))
    assert other.headings[1].text == "digits"


def test_every_metric_has_its_table() -> None:
    tables = page_tables(score_tables(ROWS))
    assert [table.option for table in tables] == ["ECE", "Accuracy", "KSE", "Confidence", "Feature norm"]
    assert len({table.name for table in tables}) == len(tables)
    by_name = {table.option: table for table in tables}
    for metric, scale in (("ece", 100), ("feature_norm", 1)):
        table = by_name[measure_of(metric).heading]
        for row in table.rows:
            loss = next(loss for loss in NINE if label_of(loss) == row[0].text)
            scores = slow_score(MADE.rows, loss, metric)
            assert row[1].value == pytest.approx(scores.mean(), abs=1e-8)
            mean, error = map(float, re.findall(r"[\d.]+", row[1].text))
            assert mean == pytest.approx(scale * scores.mean(), rel=0.006)
            assert error == pytest.approx(scale * scores.std(ddof=1) / math.sqrt(3), rel=0.3, abs=0.05)
    assert {row[1].kind for row in by_name["Feature norm"].rows} == {""}  # of a norm, none is best
    assert not any(note.startswith("Bold") for note in by_name["Feature norm"].notes)
    assert "best" in {row[1].kind for row in by_name["ECE"].rows}


def test_scores_that_are_not_there() -> None:
    rows = table_of(ece("focal", 0.1), ece("poly", 0.2, data="digits"))
    (table,) = page_tables(score_tables(rows))
    assert [[cell.text for cell in row] for row in table.rows] == [
        ["Focal", "10.0", "9.30±0.1", "–"],
        ["Poly", "–", "15.6±0.4", "20.0"],
    ]
    assert table.rows[0][3].value is None


def test_calibrators_have_their_tables() -> None:
    forms, losses = remedy_tables(ROWS)
    assert [heading.text for heading in losses.headings] == ["Loss", "raw", "w/ TS"]
    whole = make_table(ROWS, "2", all_losses=True)
    for row, line in zip(losses.rows, whole.blocks[0].lines, strict=True):
        assert [cell.text.strip("↓†*") for cell in row[1:]] == [entry.text for entry in line.entries]
        assert [cell.kind == "best" for cell in row[1:]] == [entry.is_best for entry in line.entries]
    assert forms.headings[1].text == "MaxEnt Mean"
    assert not any("paper" in note for note in losses.notes)
    raw = [ece("focal", 0.1, data=data) for data in ("cifar10", "digits")]
    both = table_of(*raw, *([{**row, "calibrator": "temperature"} for row in run] for run in raw))
    assert [any("paper" in note for note in table.notes) for table in remedy_tables(both)] == [True, False]


def test_metrics_are_in_one_order_and_others_behind() -> None:
    rows = rows_table({"metric": name} for name in ("logit_norm", "zeta", "accuracy", "ece_positive", "ece", "nll"))
    assert metrics_of(rows) == ["ece", "accuracy", "nll", "logit_norm", "ece_positive", "zeta"]
    assert measure_of("ece_positive") == KNOWN["ece"]._replace(heading="ECE, P(y = 1)")


# Over epochs


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write_folder(tmp_path / "runs", MADE)
    return tmp_path / "runs"


def test_telemetry_against_slow_means(folder: Path) -> None:
    learning = read_learning(folder, runs_of(ROWS))
    assert learning.notes == ()
    assert learning.labels == ["CE", "Focal", "MaxEnt M"]
    found = {(point.kind.loss, point.quantity, point.epoch): point.mean for point in learning.points}
    quantities = ("val_ece", "val_accuracy", "train_loss", "constraint_active_fraction", "constraint_gradient_share")
    for loss in ("cross_entropy", "focal", "maxent_mean"):
        logs = [epoch_records(loss, seed) for seed in range(3)]
        for quantity in quantities:
            for epoch in range(1, EPOCHS + 1):
                values = [log[epoch - 1][quantity] for log in logs if quantity in log[epoch - 1]]
                assert ((loss, quantity, epoch) in found) == bool(values)
                if values:
                    mean = found[loss, quantity, epoch]
                    error = np.std(values, ddof=1) / math.sqrt(3)
                    assert (mean.mean, mean.high - mean.mean, mean.n_seeds) == pytest.approx(
                        (np.mean(values), error, 3)
                    )


def test_moments_stand_beside_their_targets(folder: Path) -> None:
    moments = read_learning(folder, runs_of(ROWS)).moments
    assert {(point.kind.loss, point.constraint) for point in moments} == {("maxent_mean", "mean of the classes")}
    last = next(point for point in moments if point.epoch == EPOCHS)
    values = [4.5 + 0.1 / EPOCHS + 0.2 * seed for seed in range(3)]
    assert (last.mean.mean, last.global_target, last.local_target) == pytest.approx((np.mean(values), 4.5, 4.25))


def one_run(loss: str = "maxent_mean", seed: int = 0, **about: Any) -> PlannedRun:
    kind = RunKind("digits", "mlp", loss, "", 0.0)._replace(**about)
    return PlannedRun(f"{kind.label}-{seed}", kind, seed)


def test_broken_lines_are_left_out_and_told(tmp_path: Path) -> None:
    run = one_run()
    good = {"epoch": 1, "val_ece": 0.25}
    broken = ['{"epoch": 2, "val_e', "[1]", "", '{"val_ece": 0.5}', '{"epoch": "3", "val_ece": 0.5}']
    odd = [{"epoch": 4, "val_ece": float("nan")}, {"epoch": 5, "val_ece": "0.5"}, {"epoch": 6, "val_ece": True}]
    write_lines(tmp_path / run.name / "log.jsonl", [good, *broken, *odd])
    learning = read_learning(tmp_path, [run])
    assert [(point.epoch, point.mean.mean) for point in learning.points] == [(1, 0.25)]
    assert learning.notes == (
        f"Lines of log.jsonl that cannot be read are left out: 4 lines of {run.name}.",
        f"There is no number of val_ece at 3 epochs of {run.name}.",
    )


def test_moments_that_are_no_number_are_told(tmp_path: Path) -> None:
    run = one_run()
    records = epoch_records(run.kind.loss, 0)
    records[1]["constraint_moments"] = [math.nan]
    write_lines(tmp_path / run.name / "log.jsonl", records)
    assert read_learning(tmp_path, [run]).notes == (
        f"There is no number of constraint_moments at 1 epoch of {run.name}.",
    )


def test_an_epoch_that_was_done_again_counts_once(tmp_path: Path) -> None:
    run = one_run("focal")
    write_lines(tmp_path / run.name / "log.jsonl", [{"epoch": 1, "val_ece": 0.5}, {"epoch": 1, "val_ece": 0.25}])
    (point,) = read_learning(tmp_path, [run]).points
    assert (point.mean.mean, point.mean.n_seeds) == (0.25, 1)


def test_runs_without_a_log_and_at_other_epochs_are_told(tmp_path: Path) -> None:
    runs = [one_run("focal", seed) for seed in range(3)]
    for run, n_epochs in zip(runs, (4, 2), strict=False):
        write_lines(tmp_path / run.name / "log.jsonl", epoch_records("focal", run.seed, n_epochs))
    learning = read_learning(tmp_path, runs)
    assert learning.notes == (
        "Without a log of epochs: Focal-2.",
        "Seeds of Focal are at different epochs; where one has no number, the mean is of the others.",
    )
    seeds = {point.epoch: point.mean.n_seeds for point in learning.points if point.quantity == "val_ece"}
    assert seeds == {1: 2, 2: 2, 3: 1, 4: 1}
    assert read_learning(tmp_path, [runs[2]]) == NOTHING


def test_smoothed_labels_are_left_out_over_epochs(tmp_path: Path) -> None:
    run = one_run("focal", label_smoothing=0.01)
    write_lines(tmp_path / run.name / "log.jsonl", epoch_records("focal", 0))
    assert read_learning(tmp_path, [run]) == NOTHING


def test_of_many_constraints_the_farthest_are_shown(tmp_path: Path) -> None:
    run = one_run("maxent_prior")
    moments = [0.1, 0.5, 0.15, 0.25]
    lists = {
        "constraint_moments": moments,
        "constraint_global_moments": [0.25] * 4,
        "constraint_local_moments": [0.25] * 4,
    }
    write_lines(
        tmp_path / run.name / "log.jsonl", [{"epoch": 1, **lists}, {"epoch": 2, **lists, "constraint_moments": [1]}]
    )
    assert read_learning(tmp_path, [run]).moments[0].constraint == "probability of class 0"
    assert [point.constraint for point in read_learning(tmp_path, [run]).moments] == [
        "probability of class 0",
        "probability of class 1",
    ]


def test_a_name_that_leads_elsewhere_is_not_followed(tmp_path: Path) -> None:
    write_lines(tmp_path / "elsewhere" / "log.jsonl", epoch_records("focal", 0))
    (tmp_path / "elsewhere" / "environment.json").write_text('{"secret": 1}')
    inside = tmp_path / "runs"
    inside.mkdir()
    for name in ("../elsewhere", str(tmp_path / "elsewhere"), "..", "a\0b"):
        assert read_learning(inside, [one_run("focal")._replace(name=name)]) == NOTHING
        assert environment_of(inside, [name])[0] == []


# Plan and progress


def outcome(run: str, failure: str | None = None, seconds: float = 1.0) -> Row:
    return {"run": run, "failure": failure, "seconds": seconds, "notes": []}


def test_what_is_done_missing_and_failed(tmp_path: Path) -> None:
    done = sorted({row["run"] for row in MADE.rows})
    planned = [*runs_of(ROWS), one_run("poly", 0), one_run("poly", 1), one_run("avuc")]
    log = [
        outcome(done[0], "disk full", 5.0),
        outcome(done[0], None, 30.0),
        outcome(done[0], None, 2.0),
        outcome(done[-1], None, 4.0),
        outcome(done[-1], "killed as it was measured again", 1.0),
        outcome("Poly-0", None, 3.0),
        outcome("Poly-0", "the loss is nan <b>", 60.0),
    ]
    write_lines(tmp_path / "log.jsonl", [*log, '{"run": "cut', {"run": 3}])
    write_lines(tmp_path / "Poly-1" / "config.json", ["{}"])
    progress = progress_of(tmp_path, ROWS, planned)
    assert progress.missing == ["Poly-0", "Poly-1", "AvUC-0"]
    assert progress.begun == {"Poly-1"}
    assert progress.failures == {"Poly-0": "the loss is nan <b>"}
    assert progress.seconds[done[0]] == 30.0  # measured again, it took less
    assert progress.n_broken == 2
    assert progress_words(progress) == (
        "9 of 12 runs are done, 3 left (1 begun). The runs took 2 min in all, added up where several ran at a time."
    )
    lines = [[cell.text for cell in row] for row in plan_rows(progress)]
    assert ["Poly", "digits", "mlp", "2", "0", "2", "3.0 s"] in lines
    assert ["CE", "digits", "mlp", "3", "3", "0", "30 s"] in lines
    assert [line[0] for line in lines] == ["CE", "Focal", "AvUC", "Poly", "MaxEnt M"]


def test_progress_of_one_run_and_of_none(tmp_path: Path) -> None:
    rows = table_of(ece("focal", 0.1))
    assert progress_words(progress_of(tmp_path, rows, [])) == "1 of 1 run is done."
    assert progress_words(progress_of(tmp_path, rows_table([]), [])) == "The experiment names no run."
    assert progress_words(progress_of(tmp_path, rows_table([]), [one_run()])) == "0 of 1 run is done, 1 left."


# Origin


def test_environments_that_differ_are_told(folder: Path) -> None:
    runs = [run.name for run in runs_of(ROWS)]
    (folder / runs[0] / "environment.json").write_text(json.dumps({"torch": "2.12.0", "calibrant": "0.1.0"}))
    (folder / runs[1] / "environment.json").write_text("{")
    pairs, notes = environment_of(folder, runs)
    assert ("calibrant", "0.1.0") in pairs
    assert ("torch", "2.13.0 (7 runs), 2.12.0 (1 run)") in pairs
    assert notes == [
        "The runs differ in torch: compare them with care.",
        "1 run of 9 has no environment.json that can be read.",
    ]


def test_how_it_was_made(folder: Path) -> None:
    place = folder.rename(folder.with_name("a b"))
    (place / "experiment.toml").write_text('title = "x"\r\n[[grid]]\r\n')
    made = datetime(2026, 11, 16, 15, tzinfo=timezone(timedelta(hours=2)))
    origin = origin_of(place, ROWS, [run.name for run in runs_of(ROWS)], made=made)
    facts = dict(origin.facts)
    digest = hashlib.sha256((place / "rows.parquet").read_bytes()).hexdigest()
    assert facts["fingerprint"] == f"sha256 {digest} of rows.parquet"
    assert facts["page made"].startswith("2026-11-16 13:00:00 UTC by calibrant ")
    assert facts["loss"] == "cross_entropy, focal, maxent_mean"
    assert "variant" not in facts
    assert origin.configuration == 'title = "x"\n[[grid]]\n'
    assert f"calibrant run '{place}/experiment.toml' -o '{place}-again'" in origin.commands
    assert origin.notes == []


def test_without_a_configuration(tmp_path: Path) -> None:
    origin = origin_of(tmp_path, ROWS, [], made=datetime(2026, 1, 1, tzinfo=UTC))
    assert origin.configuration == ""
    assert origin.notes == ["There is no experiment.toml in the folder, so that the plan is not known."]
    assert "calibrant run" not in origin.commands
    assert dict(origin.facts)["fingerprint"] == "none: there is no rows.parquet"


# Charts


def test_a_chart_says_its_ends_in_numbers() -> None:
    numbers = severity.prepare(ROWS, metrics=("ece",))
    hardest = {
        loss: np.mean(
            [
                row["value"]
                for row in MADE.rows
                if (row["loss"], row["metric"], row["severity"], row["calibrator"]) == (loss, "ece", 5, "none")
            ]
        )
        for loss in ("cross_entropy", "focal", "maxent_mean")
    }
    least, most = min(hardest, key=lambda loss: hardest[loss]), max(hardest, key=lambda loss: hardest[loss])
    ends = f"from {digits(hardest[least])} % ({label_of(least)}) to {digits(hardest[most])} % ({label_of(most)})."
    assert of_severity(numbers, "ece", "ECE") == f"ECE against the severity of the shift. digits, severity 5: {ends}"


def test_severities_that_a_switch_offers() -> None:
    assert severities_of(CURVES) == [0, 1, 3, 5]
    wild, _ = Experiment(wild=True).tables
    assert severities_of(wild) == [0]
    assert set(at(wild, 0)["split"].to_pylist()) == {"id_test"}
    assert set(at(ROWS, 0)["shifted"].to_pylist()) == {False}
    assert set(at(ROWS, 3)["split"].to_pylist()) == {"fog-3", "snow-3"}


def labels_in(svg: str) -> set[str]:
    return {label.partition(": ")[0] for label in re.findall(r' aria-label="([^"]*)"', svg)}


@pytest.fixture(scope="module")
def few() -> Drawings:
    """Two of the figures, and no charts over epochs."""
    rows, curves = Experiment(losses=("focal", "maxent_mean"), seeds=1, severities=(2, 4), shifts=("fog",)).tables
    return draw_all(rows, curves, NOTHING, names=("severity", "heat_map", "reliability", "local_constraints"))


def test_figures_that_are_named_are_drawn_once_for_page_and_files(few: Drawings) -> None:
    assert set(few.files) == {"severity", "heat_map", "reliability"}
    assert [panel.as_option for panel in few.severity] == [("ece", "ECE"), ("accuracy", "Error"), ("kse", "KSE")]
    assert [panel.value for panel in few.reliability] == ["all", "0", "2", "4"]
    assert [panel.value for panel in few.heat_map] == ["all", "2", "4"]
    assert few.heat_map[0].drawing.svg == few.files["heat_map"]
    assert few.reliability[0].drawing.svg == few.files["reliability"]
    assert (few.others, few.epochs, few.constraints) == ([], [], [])
    assert list(few.reasons) == ["local_constraints"]


def test_marks_say_which_line_they_are_of(few: Drawings) -> None:
    assert few.losses == ["Focal", "MaxEnt M"]
    marks = labels_in(few.severity[0].drawing.svg)
    assert set(few.losses) <= marks
    sentences = re.findall(r'aria-label="(Focal: [^"]*)"', few.severity[0].drawing.svg)
    assert len(sentences) == 3
    assert re.fullmatch(r"Focal: severity 2, ECE [\d.]+ %, one seed", sentences[1])
    bins = re.findall(r'aria-label="(Focal: confidence[^"]*)"', few.reliability[0].drawing.svg)
    assert len(bins) > 10
    assert re.fullmatch(r"Focal: confidence 90 to 100 %, (accuracy [\d.]+ %|no predictions), [\d.]+ % of all", bins[-1])
    assert re.search(r'aria-label="MaxEnt M: fog, ECE [\d.]+ %"', few.heat_map[0].drawing.svg)


def test_at_most_eight_metrics_against_severity(monkeypatch: pytest.MonkeyPatch) -> None:
    names = list(KNOWN)[: MOST_METRICS + 2]
    source = Experiment(losses=("focal",), seeds=1, severities=(2,), shifts=("fog",), metrics=("ece",)).rows
    rows = rows_table({**row, "metric": name} for row in source for name in names)
    monkeypatch.setattr("calibrant.report.experiment.drawings.to_svg", lambda chart: "<svg/>")
    drawn = draw_all(rows, None, NOTHING, names=("severity", "reliability"))
    assert [panel.value for panel in drawn.severity] == names[:MOST_METRICS]
    assert drawn.reasons == {"reliability": "the figure reliability needs curves.parquet, and the experiment has none"}


def test_where_there_are_many_columns_no_severity_is_drawn_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("calibrant.report.experiment.drawings.to_svg", lambda chart: "<svg/>")
    many = Experiment(data=("a", "b", "c"), losses=NINE, seeds=1, severities=(2, 4), shifts=("fog",), metrics=("ece",))
    drawn = draw_all(*many.tables, NOTHING, names=("heat_map", "reliability"))
    assert [[panel.value for panel in panels] for panels in (drawn.heat_map, drawn.reliability)] == [["all"], ["all"]]


def test_charts_over_epochs(folder: Path) -> None:
    learning = read_learning(folder, runs_of(ROWS))
    drawn = draw_all(rows_table([]), None, learning)  # no rows yet: the sweep is at its first runs
    assert [panel.value for panel in drawn.epochs] == ["val_ece", "val_accuracy", "train_loss"]
    assert [panel.value for panel in drawn.constraints] == [
        "constraint_active_fraction",
        "constraint_gradient_share",
        "moments",
    ]
    assert drawn.lines == ["CE", "Focal", "MaxEnt M"]
    assert {"CE", "Focal", "MaxEnt M"} <= labels_in(drawn.epochs[0].drawing.svg)
    assert "MaxEnt M: epoch 4, validation ECE " in drawn.epochs[0].drawing.svg
    assert labels_in(drawn.constraints[0].drawing.svg) & {"CE", "Focal", "MaxEnt M"} == {"MaxEnt M"}
    assert "mean of the classes 4.725, targets 4.5 (global) and 4.25 (local)" in drawn.constraints[2].drawing.svg
    assert all(panel.drawing.caption for panel in (*drawn.epochs, *drawn.constraints))
    assert drawn.reasons["severity"].startswith("the experiment has no rows")
