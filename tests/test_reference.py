"""The reference: every public name is on a page; formulas, doctests and commands are rendered."""

import re
from pathlib import Path

import pytest

import calibrant as cb

ROOT = Path(__file__).parents[1]


def test_every_public_name_is_on_a_page() -> None:
    text = "".join(page.read_text(encoding="utf-8") for page in sorted((ROOT / "docs/reference").glob("*.md")))
    shown = set(re.findall(r"^::: ([\w.]+)", text, re.MULTILINE))
    homes = {name: cb._HOMES.get(name) for name in cb.__all__}
    for name, home in homes.items():  # the function of a module that has its name is looked for there
        assert home is None or {f"{home}.{name}", f"{home}.{name}.{name}"} & shown, name
    for name in (name for name, home in homes.items() if home is None):
        assert any(path.startswith(f"calibrant.{name}") for path in shown), name


def test_formulas_doctests_and_commands_are_rendered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "docs"))
    from hooks import COMMANDS, fenced, on_page_content, on_page_markdown, readable

    sources = "".join(path.read_text(encoding="utf-8") for path in sorted((ROOT / "src").rglob("*.py")))
    formulas = [inline or shown for inline, shown in re.findall(r":math:`(.+?)`|\.\. math:: (.+?)\n\n", sources, re.S)]
    assert len(formulas) > 50
    for latex in formulas:
        assert not re.search(r"[\\{}_^]", readable(latex)), latex
    assert readable(r"\frac{n_b}{n} (r_i - 1)^2") == "n<sub>b</sub>/n (r<sub>i</sub> − 1)<sup>2</sup>"
    assert on_page_content("<p>.. math:: s^<em> = s^</em></p>").startswith('<p class="formula">s<sup>')
    assert fenced("One.\n\n>>> 1\n1\n\nTwo.") == "One.\n\n```pycon\n>>> 1\n1\n```\n\nTwo."
    page = on_page_markdown(f"# Command line\n\n{COMMANDS}")
    assert "## calibrant audit" in page
    assert "`--fail-if STR...`" in page
