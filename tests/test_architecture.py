"""docs/architecture.md: the module map is current, and every file that the page names exists."""

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]


def test_the_module_map_is_current() -> None:
    check = [sys.executable, str(ROOT / "scripts" / "module_map.py"), "--check"]
    found = subprocess.run(check, capture_output=True, text=True, check=False)
    assert found.returncode == 0, found.stderr


def test_every_file_of_the_page_exists() -> None:
    page = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    named = set(re.findall(r"`([a-z_]+(?:/[a-z_]+)+\.py)`", page))
    missing = [name for name in sorted(named) if not (ROOT / "src" / "calibrant" / name).is_file()]
    assert len(named) > 20
    assert not missing
