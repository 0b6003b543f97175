"""What the prose promises: examples run, every file is on the map, every test named in the fidelity table exists."""

import re
import subprocess
import tomllib
from pathlib import Path

import pytest

from calibrant.training import Settings, read_settings

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
BLOCKS = [
    pytest.param(block, id=f"{page.name}-{i}")
    for page in PAGES
    for i, block in enumerate(re.findall(r"```python\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL))
]


@pytest.mark.parametrize("block", BLOCKS)
def test_python_blocks_run(block: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    exec(compile(block, "<documentation>", "exec"), {"__name__": "__documentation__"})


def test_readme_maps_every_source_file() -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    sources = [path for path in (ROOT / "src" / "calibrant").rglob("*.py") if path.read_text(encoding="utf-8").strip()]
    missing = [str(path.relative_to(ROOT / "src" / "calibrant")) for path in sources if f"`{path.name}`" not in readme]
    assert not missing


def test_fidelity_rows_name_tests_that_exist() -> None:
    table = (ROOT / "docs" / "fidelity.md").read_text(encoding="utf-8")
    named = set(re.findall(r"`(test_\w+)`", table))
    defined = {
        name for path in (ROOT / "tests").rglob("test_*.py") for name in re.findall(r"def (test_\w+)", path.read_text())
    }
    assert named
    assert named <= defined, sorted(named - defined)


def test_contributing_is_short() -> None:
    assert len((ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8").splitlines()) <= 60


def test_links_between_pages_resolve() -> None:
    for page in PAGES:
        prose = re.sub(r"```.*?```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
        for target in re.findall(r"\]\(([^)#]+?)(?:#[^)]*)?\)", prose):
            if not re.match(r"[a-z]+:", target):
                assert (page.parent / target).exists(), f"{page.name} links to {target}"


def test_files_of_settings_are_read() -> None:
    blocks = re.findall(r"```toml\n(.*?)```", (ROOT / "docs" / "training.md").read_text(encoding="utf-8"), re.DOTALL)
    assert blocks
    for block in blocks:
        Settings.model_validate(tomllib.loads(block))
    assert read_settings(ROOT / "examples" / "train.toml").loss == "maxent_mean"


def test_make_lists_its_targets() -> None:
    listed = subprocess.run(["make", "help"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    for target in ("demo", "test", "check", "bench", "docs", "clean"):
        assert f"make {target}" in listed
