"""The page on speed and the line of README.md say what benchmarks/results has."""

import runpy
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def page() -> dict[str, Any]:
    return runpy.run_path(str(ROOT / "benchmarks" / "page.py"))


def test_page_and_readme_have_the_figures_that_were_recorded(page: dict[str, Any]) -> None:
    """After a change of either: python benchmarks/page.py."""
    machines = page["read_machines"]()
    assert (ROOT / "docs" / "speed.md").read_text(encoding="utf-8") == page["page"](machines)
    assert page["line"](machines) in (ROOT / "README.md").read_text(encoding="utf-8").split("\n")


def test_machines_stand_side_by_side(page: dict[str, Any]) -> None:
    fast = {"what": "a", "relative_to": "b", "ratio": 0.5, "low": 0.4, "high": 1234.5, "at_most": 0.6}
    other = {
        "what": "c",
        "relative_to": "d",
        "ratio": 8,
        "low": 8,
        "high": 8,
        "results": {"x": [1, 1.000001], "y": [1, 2]},
    }
    parts = [{"ratios": [fast, other]}, {"ratios": [{**fast, "ratio": 0.7}]}]
    assert page["table"](parts, ["one", "two"])[2:] == [
        "| a | b | 0.5 (0.4 to 1,234) | **0.7 (0.4 to 1,234), missed** | ≤ 0.6 |  |",
        "| c | d | 8 | – |  | x 1, y 1 / 2 |",
    ]


def test_limited_kernels_are_not_recorded_as_a_processor(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ATEN_CPU_CAPABILITY", raising=False)
    machine = runpy.run_path(str(ROOT / "benchmarks" / "recording.py"))["machine"]
    own = machine()
    monkeypatch.setenv("ATEN_CPU_CAPABILITY", own["capability"].lower())
    assert machine()["capability"] == f"kernels limited to {own['capability']}"
    assert machine()["name"] != own["name"]
