"""Wrong calls: every public name has a valid call, and wrong ones are refused in one line."""

from pathlib import Path

from faults.calls import missing_calls, public_names, trials
from faults.valid_calls import RECORDS, valid_calls

N_TRIALS = 500


def test_every_public_name_has_a_valid_call() -> None:
    assert missing_calls() == []
    assert sorted({*valid_calls(), *RECORDS} - set(public_names())) == []


def test_a_sample_of_wrong_calls_is_refused_in_one_line(tmp_path: Path) -> None:
    found = {}
    for number, each in enumerate(trials(N_TRIALS, seed=0)):
        folder = tmp_path / str(number)
        folder.mkdir()
        found[each.name] = each.attempt(folder)
    assert {name: fault for name, fault in found.items() if fault is not None} == {}
