"""`calibrant monitor`: its lines, JSON, metrics file, exit codes, and a process that is killed."""

import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
import torch

import calibrant as cb
from made.cli import MAX_SECONDS, Run


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Four days, the last two of an overconfident model, and a reference."""
    random = torch.Generator().manual_seed(0)
    for number, n in enumerate([1000, 400, 400, 400, 400]):
        logits = 2 * torch.randn(n, 3, generator=random)
        labels = ((0.2 if number > 2 else 1.0) * logits).softmax(1).multinomial(1, generator=random)[:, 0]
        when = np.full(n, np.datetime64("2026-05-01T08:00", "us") + np.timedelta64(number, "D"))
        rows = cb.Predictions.from_logits(logits, labels, columns={"when": pa.array(when)})
        rows.save(tmp_path / (f"day{number}.parquet" if number else "reference.parquet"))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_a_line_for_each_new_window_and_the_verdict(calibrant: Run, folder: Path) -> None:
    command = ["--reference", "reference.parquet", "--time", "when", "--every", "1d", "--state", "monitor.json"]
    lines = calibrant("monitor", "day1.parquet", "day2.parquet", *command).done().splitlines()
    assert [line.split("  ")[:2] for line in lines[:2]] == [["2026-05-02", "rows 400"], ["2026-05-03", "rows 400"]]
    assert re.match(r"No alarm in 800 rows: miscalibrated \(log e = -?\d+\.\d of 4\.1\), changed", lines[2])
    ran = calibrant("monitor", "day*.parquet", *command, "--fail-if", "alarms > 0", "--metrics-file", "m.prom")
    assert ran.code == 3
    first, second, verdict = ran.out.splitlines()
    for line, name in ((first, "2026-05-04"), (second, "2026-05-05")):
        assert line.startswith(name)
        assert line.endswith("ALARM miscalibrated changed")
    assert verdict.startswith("Alarm in window 2026-05-04: the accuracy is lower than the confidence")
    assert ran.err == "failed: alarms > 0 (2)\n"
    metrics = dict(line.split() for line in (folder / "m.prom").read_text().splitlines() if not line.startswith("#"))
    record = calibrant("monitor", "day*.parquet", *command, "--json").record
    assert float(metrics["calibrant_ece"]) == record["windows"][-1]["ece"]["value"]
    assert metrics["calibrant_alarms"] == "2"
    assert not any(window["updated"] for window in record["windows"])
    calibrant("monitor", "none.parquet", *command).refused("there is no file none.parquet")
    calibrant("monitor", "day1.parquet", *command, "--fail-if", "acuracy > 1").refused("accuracy")
    calibrant("monitor", "day1.parquet", *command, "--metrics-file", "day1.parquet").refused("is not a metrics file")


@pytest.mark.slow
def test_a_killed_process_loses_nothing(calibrant: Run, folder: Path) -> None:
    command = ["monitor", "day*.parquet", "--reference", "reference.parquet", "--every", "200", "--state", "m.json"]
    calibrant(*command[:1], "day1.parquet", *command[2:]).done()
    before = (folder / "m.json").read_bytes()
    code = f"""
import os, signal
os.replace = lambda *names: os.kill(os.getpid(), signal.SIGKILL)
from calibrant.cli import app
app({command!r})
"""
    ran = subprocess.run([sys.executable, "-c", code], timeout=MAX_SECONDS, capture_output=True, check=False)
    assert ran.returncode == -signal.SIGKILL, ran.stderr
    assert (folder / "m.json").read_bytes() == before
    resumed = calibrant(*command, "--json").record
    at_once = calibrant(*command[:-1], "other.json", "--json").record
    assert resumed["questions"] == at_once["questions"]
    assert [window["accuracy"] for window in resumed["windows"]] == [each["accuracy"] for each in at_once["windows"]]


@pytest.mark.slow
def test_watch_looks_again_until_a_condition_holds(calibrant: Run, folder: Path) -> None:
    command = ["--reference", "reference.parquet", "--every", "400", "--report", "monitor.html"]
    new, waits = folder / "new", []
    new.mkdir()
    shutil.copy(folder / "day1.parquet", new)

    def next_day(seconds: float) -> None:
        waits.append(seconds)
        if len(waits) == 1:
            assert 'http-equiv="refresh" content="7"' in (folder / "monitor.html").read_text(encoding="utf-8")
        if len(waits) != 2:  # nothing is new after the second look
            shutil.copy(folder / f"day{min(len(waits) + 1, 4)}.parquet", new)

    calibrant("monitor", "new", *command, "--watch", "7").refused("watch needs a state")
    calibrant("monitor", "new", *command, "--watch", "0", "--state", "m.json").refused(
        "watch must be an integer of at least 1, got 0"
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(time, "sleep", next_day)
        ran = calibrant("monitor", "new", *command, "--watch", "7", "--state", "m.json", "--fail-if", "alarms > 0")
    assert ran.code == 3, ran.err
    assert waits == [7, 7, 7]
    windows = [line.split("  ")[0] for line in ran.out.splitlines() if "  rows " in line]
    assert windows == ["row 0", "row 400", "row 800"]
    assert ran.out.count("No alarm") == 2
    assert ran.out.count("open monitor.html") == 1
    assert "refresh" not in (folder / "monitor.html").read_text(encoding="utf-8").split("</head>")[0]
