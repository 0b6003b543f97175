"""The reference: every public name is on a page, with its parameters; formulas, doctests and commands are rendered."""

import inspect
import re
from importlib import import_module
from pathlib import Path
from types import ModuleType

import pytest
from pydantic import BaseModel

from calibrant.calibrators import Calibrator

ROOT = Path(__file__).parents[1]
PACKAGES = ["calibrant", *(f"calibrant.{path.parent.name}" for path in (ROOT / "src/calibrant").glob("*/__init__.py"))]
WITHOUT_NAMES = ("calibrant.cli", "calibrant.integrations")  # commands, and modules that are imported one by one
PUBLIC = {
    f"{package}.{name}": getattr(import_module(package), name)
    for package in sorted(set(PACKAGES) - set(WITHOUT_NAMES))
    for name in import_module(package).__all__
}
OBJECTS = {path: found for path, found in PUBLIC.items() if not isinstance(found, ModuleType)}


def test_every_public_name_is_on_a_page() -> None:
    text = "".join(page.read_text(encoding="utf-8") for page in sorted((ROOT / "docs/reference").glob("*.md")))
    listed = re.findall(r"^::: ([\w.]+)\.(\w+)$", text, re.MULTILINE)
    shown = [getattr(import_module(module), name) for module, name in listed if module not in WITHOUT_NAMES]
    missing = [path for path, found in OBJECTS.items() if not any(found is other for other in shown)]
    assert missing == []


def test_every_public_name_with_parameters_describes_them() -> None:
    callables = {path: found for path, found in OBJECTS.items() if inspect.isclass(found) or inspect.isfunction(found)}
    with_parameters = {path: found for path, found in callables.items() if inspect.signature(found).parameters}
    assert [path for path, found in with_parameters.items() if not describes_parameters(found)] == []


def describes_parameters(found: object) -> bool:
    """Whether its docstring has the section, or that of a base class; for a calibrator, that of `fit`."""
    if inspect.isclass(found) and issubclass(found, BaseModel):
        text = inspect.getsource(found)
        return all(re.search(rf'^    {name}: .*\n    """', text, re.MULTILINE) for name in found.__annotations__)
    places: list[object] = [*found.__mro__] if inspect.isclass(found) else [found]
    if inspect.isclass(found) and issubclass(found, Calibrator):
        places = [base.__dict__["fit"] for base in found.__mro__ if "fit" in base.__dict__]
    return any(re.search(r"^ *(Args|Attributes):$", place.__doc__ or "", re.MULTILINE) for place in places)


def test_formulas_doctests_and_commands_are_rendered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "docs"))
    from hooks import COMMANDS, fenced, on_page_content, on_page_markdown, readable

    sources = "".join(path.read_text(encoding="utf-8") for path in sorted((ROOT / "src").rglob("*.py")))
    formulas = [inline or shown for inline, shown in re.findall(r":math:`(.+?)`|\.\. math:: (.+?)\n\n", sources, re.S)]
    assert len(formulas) > 50
    for latex in formulas:
        assert not re.search(r"[\\{}_^]", readable(latex)), latex
    assert readable(r"\frac{n_b}{n} (r_i - 1)^2") == "n<sub>b</sub>/n (r<sub>i</sub> − 1)<sup>2</sup>"
    rendered = on_page_content("<p>.. math:: s^<em> = s^</em></p>")
    assert rendered == '<p class="formula">s<sup>*</sup> = s<sup>*</sup></p>'
    assert fenced("One.\n\n>>> 1\n1\n\nTwo.") == "One.\n\n```pycon\n>>> 1\n1\n```\n\nTwo."
    page = on_page_markdown(f"# Command line\n\n{COMMANDS}")
    assert "## calibrant audit" in page
    assert "`--fail-if STR...`" in page
