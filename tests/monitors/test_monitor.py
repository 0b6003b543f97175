"""Monitors: windows against scores of the same rows, states, late labels, clusters, features, refusals."""

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch

import calibrant as cb
from calibrant import Predictions, monitor, monitors
from calibrant.errors import CalibrantError
from calibrant.estimates import fit_estimator, shift_tests

N = 300  # rows of a day


def day(number: int, *, n: int = N, scale: float = 1.0, **columns: Any) -> Predictions:
    """Rows of one day; the labels follow softmax(scale · logits)."""
    random = torch.Generator().manual_seed(number)
    logits = 2 * torch.randn(n, 4, generator=random)
    labels = (scale * logits).softmax(1).multinomial(1, generator=random)[:, 0]
    when = np.datetime64("2026-03-01", "us") + np.timedelta64(number, "D") + np.arange(n).astype("timedelta64[s]")
    names = {"when": pa.array(when), "row": [f"{number}-{row}" for row in range(n)]}
    return Predictions.from_logits(logits, labels, columns=names | columns)


def unlabelled(rows: Predictions) -> Predictions:
    return replace(rows, labels=torch.full_like(rows.labels, -1))


def write_labels(path: Path, *days: Predictions, rows: slice = slice(None), change: int = 0) -> Path:
    ids = [each for rows_ in days for each in rows_.column("row").to_pylist()][rows]
    labels = (torch.cat([rows_.labels for rows_ in days]).numpy()[rows] + change) % 4
    pq.write_table(pa.table({"row": ids, "label": labels}), path)
    return path


def known(record: dict[str, Any]) -> dict[str, Any]:
    """The record but for what depends on how many calls made it."""
    windows = [{key: value for key, value in each.items() if key != "updated"} for each in record["windows"]]
    return record | {"windows": windows, "n_files": None}


@pytest.fixture
def days(tmp_path: Path) -> list[Predictions]:
    found = [day(number, scale=1.0 if number < 4 else 0.3) for number in range(6)]
    for number, rows in enumerate(found):
        rows.save(tmp_path / f"day{number}.parquet")
        unlabelled(rows).save(tmp_path / f"bare{number}.parquet")
    day(99, n=1500).save(tmp_path / "reference.parquet")
    return found


@pytest.fixture
def follow(tmp_path: Path, days: list[Predictions]) -> Any:
    """A call of monitor in the folder of the days."""

    def call(*files: str, **options: Any) -> dict[str, Any]:
        options = {"every": "1d", "time": "when"} | options
        return monitor([tmp_path / file for file in files], tmp_path / "reference.parquet", **options).to_dict()

    return call


@pytest.mark.slow
def test_windows_hold_what_scores_of_their_rows_say(follow: Any, days: list[Predictions]) -> None:
    record = follow("day*.parquet", gates=["alarms > 1", "accuracy < 0.1"])
    assert [window["window"] for window in record["windows"]] == [f"2026-03-0{number + 1}" for number in range(6)]
    for window, rows in zip(record["windows"], days, strict=True):
        card = cb.score(rows, metrics=["accuracy", "ece"])
        assert window["accuracy"]["value"] == card.accuracy
        assert window["ece"]["value"] == pytest.approx(card.ece, rel=1e-12)
        assert (window["ece"]["low"], window["ece"]["high"]) == pytest.approx(card.interval("ece"), rel=1e-9)
        assert window["ece"]["noise_floor"] == pytest.approx(card.noise_floor("ece"), rel=1e-9)
        assert window["confidence"] == pytest.approx(float(rows.probs.amax(1).double().mean()), rel=1e-6)
        assert window["class_mix"] == (rows.logits.argmax(1).bincount(minlength=4).double() / N).tolist()
        assert window["last_time"] == f"{window['window']}T00:04:59Z"
        estimate = fit_estimator(day(99, n=1500))(rows)
        assert window["estimate"]["accuracy"]["value"] == pytest.approx(estimate.accuracy.value, rel=1e-6)
        error = estimate.accuracy.value - window["accuracy"]["value"]
        assert window["estimate_error"] == pytest.approx(error, abs=1e-6)
        tests = shift_tests(rows, day(99, n=1500))
        assert [test["name"] for test in window["shift"]] == [test.name for test in tests]
        assert [test["effect"] for test in window["shift"]] == pytest.approx([test.effect for test in tests], rel=1e-6)
    alarm = {alarm["question"]: alarm for alarm in record["alarms"]}
    assert alarm.keys() == {"miscalibrated", "changed"}
    assert {(each["window"], each["higher"]) for each in alarm.values()} == {("2026-03-05", False)}
    assert "the accuracy is lower than the confidence" in record["verdict"]
    assert [gate["failed"] for gate in record["gates"]] == [True, False]
    json.dumps(record, allow_nan=False)
    in_memory = monitor(Predictions.concat(days), day(99, n=1500), every="1d", time="when").to_dict()
    assert in_memory["alarms"] == record["alarms"]
    kinds = ["none"] * 1500 + ["fog"] * N
    both = Predictions.concat([day(99, n=1500), day(5, scale=0.3)])
    mixed = replace(both, columns=both.columns.append_column("corruption", pa.array(kinds)))
    assert monitor(Predictions.concat(days), mixed, every="1d", time="when").to_dict()["alarms"] == record["alarms"]
    by_rows = follow("day*.parquet", every=600)
    assert [(each["window"], each["n_rows"]) for each in by_rows["windows"]] == [
        (f"row {n:,}", 600) for n in (0, 600, 1200)
    ]
    assert {name: each["log_e"] for name, each in by_rows["questions"].items()} == pytest.approx(
        {name: each["log_e"] for name, each in record["questions"].items()}, rel=1e-12
    )


@pytest.mark.slow
def test_a_state_makes_many_runs_one(follow: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    at_once, state = known(follow("day*.parquet")), tmp_path / "monitor.json"
    follow("day0.parquet", state=state)
    before = state.read_bytes()
    with monkeypatch.context() as patch:  # a process that dies before it has replaced the state
        patch.setattr(monitors, "write_state", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            follow("day*.parquet", state=state)
    assert state.read_bytes() == before
    follow("day0.parquet", "day1.parquet", "day2.parquet", state=state)
    shutil.copy(tmp_path / "day2.parquet", tmp_path / "day2-copy.parquet")
    record = follow("day*.parquet", state=state)
    assert known(record) == at_once
    assert [each["window"][-1] for each in record["windows"] if each["updated"]] == list("456")
    day(7).save(tmp_path / "day1.parquet")
    with pytest.raises(CalibrantError, match=r"day1.parquet has changed since it was counted"):
        follow("day*.parquet", state=state)
    with pytest.raises(CalibrantError, match=r"monitor.json is the state of a monitor with alpha = 0.05, not of 0.1"):
        follow("day0.parquet", state=state, alpha=0.1)
    (tmp_path / "other.json").write_text('{"a": 1}')
    with pytest.raises(CalibrantError, match=r"other.json exists and is not a monitor"):
        follow("day0.parquet", state=tmp_path / "other.json")
    state.write_bytes(state.read_bytes().replace(b"miscalibrated", b"misaccounted", 1))
    with pytest.raises(CalibrantError, match=r"monitor.json was changed since it was written"):
        follow("day0.parquet", state=state)


def test_rows_of_an_open_window_come_in_several_runs(follow: Any, tmp_path: Path) -> None:
    rows, state = day(0), tmp_path / "monitor.json"
    rows[:100].save(tmp_path / "morning.parquet")
    rows[100:].save(tmp_path / "noon.parquet")
    follow("morning.parquet", state=state)
    assert known(follow("noon.parquet", state=state)) == known(follow("day0.parquet"))


@pytest.mark.slow
def test_late_labels_count_each_row_once(follow: Any, tmp_path: Path, days: list[Predictions]) -> None:
    labelled, state = follow("day*.parquet"), tmp_path / "monitor.json"
    late = {"id": "row", "state": state}
    first = follow("bare*.parquet", **late)
    assert (first["n_waiting"], first["windows"][0]["accuracy"], first["gates"]) == (6 * N, None, [])
    assert first["questions"]["shifted"] == labelled["questions"]["shifted"]
    write_labels(tmp_path / "labels.parquet", *days[3:])  # out of order, and a file that grows
    second = follow("bare*.parquet", labels=tmp_path / "labels.parquet", **late)
    assert [each["n_labelled"] for each in second["windows"]] == [0, 0, 0, N, N, N]
    write_labels(tmp_path / "labels.parquet", *days, day(50))
    for _ in range(2):
        record = follow("bare*.parquet", labels=[tmp_path / "labels.parquet"], **late)
    assert (record["n_labelled"], record["n_waiting"], record["n_unmatched"]) == (6 * N, 0, N)
    figures = ("accuracy", "gap", "ece")
    assert [[w[name] for name in figures] for w in record["windows"]] == [
        [w[name] for name in figures] for w in labelled["windows"]
    ]
    at_once = follow("bare*.parquet", id="row", labels=tmp_path / "labels.parquet")
    assert at_once["questions"] == labelled["questions"]  # in the order of the rows, not of the labels
    few = follow("bare*.parquet", id="row", labels=tmp_path / "labels.parquet", max_waiting=N)
    assert (few["n_dropped"], few["n_labelled"], few["windows"][-1]["accuracy"]) == (
        5 * N,
        N,
        record["windows"][-1]["accuracy"],
    )


@pytest.mark.slow
def test_rows_of_a_cluster_count_as_one(tmp_path: Path) -> None:
    """Rows that stand five times in a file are evidence once, and their intervals are those of one."""
    five = np.repeat(np.arange(N), 5)
    for number in range(6):
        rows = day(number, scale=0.3, patient=np.arange(N))
        rows.save(tmp_path / f"one{number}.parquet")
        rows[five].save(tmp_path / f"five{number}.parquet")
    reference = day(99, n=1500, patient=np.arange(1500))
    one, many = (
        monitor(str(tmp_path / f"{name}*.parquet"), reference, every="1d", time="when", cluster="patient").to_dict()
        for name in ("one", "five")
    )
    for name, question in one["questions"].items():
        assert many["questions"][name]["log_e"] == pytest.approx(question["log_e"], rel=1e-9)
    for window, other in zip(one["windows"], many["windows"], strict=True):
        assert other["accuracy"] == pytest.approx(window["accuracy"], rel=1e-9)
        assert other["ece"]["high"] == pytest.approx(window["ece"]["high"], rel=0.05)
    labels = write_labels(tmp_path / "labels.parquet", *(day(number, scale=0.3) for number in range(6)))
    for number in range(6):
        unlabelled(day(number, scale=0.3, patient=np.arange(N))).save(tmp_path / f"bare{number}.parquet")
    options: dict[str, Any] = {"every": "1d", "time": "when", "cluster": "patient", "id": "row", "labels": labels}
    late = monitor(str(tmp_path / "bare*.parquet"), reference, **options).to_dict()
    assert late["questions"] == one["questions"]


def test_features_that_move_are_found_without_labels(tmp_path: Path) -> None:
    random = torch.Generator().manual_seed(0)
    reference = day(99, n=1500).with_features(torch.randn(1500, 3, generator=random))
    for number in range(4):
        features = torch.randn(N, 3, generator=random) * (1.0 if number < 2 else 1.5)
        unlabelled(day(number)).with_features(features).save(tmp_path / f"{number}.parquet")
    record = monitor(
        str(tmp_path / "*.parquet"), reference, every="1d", time="when", state=tmp_path / "s.json"
    ).to_dict()
    [alarm] = record["alarms"]
    assert (alarm["question"], alarm["window"], alarm["higher"]) == ("shifted", "2026-03-03", True)
    assert "distance" in alarm["where"]
    unlabelled(day(5)).save(tmp_path / "5.parquet")
    with pytest.raises(CalibrantError, match="predictions must have the 3 features of the reference, got none"):
        monitor(str(tmp_path / "*.parquet"), reference, every="1d", time="when", state=tmp_path / "s.json")


def test_a_calibrator_calibrates_rows_and_reference(follow: Any, tmp_path: Path) -> None:
    calibrator = cb.TemperatureScaling.fit(day(98, n=1500, scale=0.3))
    calibrator.save(tmp_path / "t.json")
    record = follow("day4.parquet", "day5.parquet", calibrator=tmp_path / "t.json")
    assert abs(record["windows"][0]["gap"]["value"]) < 0.1
    with pytest.raises(CalibrantError, match="predictions hold the rows that it was fitted on"):
        follow("day0.parquet", calibrator=cb.TemperatureScaling.fit(Predictions.load(tmp_path / "reference.parquet")))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"every": "1 month"},
            "every must be a number of rows, or of w, d, h, min, s such as 1d or 12h, got '1 month'",
        ),
        ({"every": 0}, "every must be a number of rows"),
        ({"time": None}, "time must name a column for windows of 1d"),
        ({"time": "row"}, "time must be a column of times, got 'row'"),
        ({"time": "hour"}, "hour"),
        ({"alpha": 0.0}, "alpha must be a finite number in"),
        ({"gates": "recall > 1"}, "recall"),
        ({"gates": "accuracy over 1"}, "a gate .--fail-if. must be a condition"),
        ({"labels": "labels.parquet"}, "id must name a column that labels are joined on"),
        ({"id": "hospital"}, "hospital"),
        ({"labels": "twice.parquet", "id": "row"}, "twice.parquet must have every id once, got '0-0' twice in 'row'"),
        ({"labels": "other.parquet", "id": "row"}, "other.parquet contradicts the label of '0-0' in 'row': . after ."),
        ({"labels": "beyond.parquet", "id": "row"}, r"beyond.parquet: label must lie in \[0, 3\], got 4 at row 0"),
        ({"labels": "reference.parquet", "id": "patient"}, "patient"),
    ],
)
def test_refusals_are_one_line(
    follow: Any, tmp_path: Path, days: list[Predictions], options: dict[str, Any], message: str
) -> None:
    write_labels(tmp_path / "labels.parquet", days[0])
    write_labels(tmp_path / "twice.parquet", days[0], days[0])
    write_labels(tmp_path / "other.parquet", days[0], change=1)
    pq.write_table(pa.table({"row": ["0-0"], "label": [4]}), tmp_path / "beyond.parquet")
    if "labels" in options:
        options = options | {"labels": tmp_path / options["labels"]}
    with pytest.raises(CalibrantError, match=message) as error:
        follow("day0.parquet", **options)
    assert "\n" not in str(error.value)


def test_an_id_of_an_earlier_file_is_refused(follow: Any, tmp_path: Path) -> None:
    day(0, scale=0.5).save(tmp_path / "again.parquet")
    with pytest.raises(CalibrantError, match=r"again.parquet repeats an id of an earlier file: '0-0'"):
        follow("day0.parquet", "again.parquet", id="row")
