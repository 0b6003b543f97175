"""Wrong calls: every public name has a valid call, and wrong ones are refused in one line."""

from faults.calls import missing_calls, public_names
from faults.valid_calls import RECORDS, valid_calls


def test_every_public_name_has_a_valid_call() -> None:
    assert missing_calls() == []
    assert sorted({*valid_calls(), *RECORDS} - set(public_names())) == []
