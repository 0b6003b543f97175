import pytest

from calibrant.audits import sample


@pytest.fixture
def small_sample(monkeypatch: pytest.MonkeyPatch) -> None:
    """Samples of 50 rows."""
    monkeypatch.setattr(sample, "MIN_SAMPLE_ROWS", 50)
    monkeypatch.setattr(sample, "MAX_SAMPLE_LOGITS", 1)
