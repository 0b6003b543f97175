"""Write the module map of docs/architecture.md from the first lines of the modules and the layers in pyproject.toml.

python scripts/module_map.py            # rewrite the page
python scripts/module_map.py --check    # exit 1 if it is out of date
"""

import ast
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "src" / "calibrant"
PAGE = ROOT / "docs" / "architecture.md"
BEGIN, END = "<!-- module map: python scripts/module_map.py -->\n", "<!-- end of the module map -->\n"


def first_line(path: Path) -> str:
    docstring = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
    return docstring.partition("\n\n")[0].replace("\n", " ").replace("|", "\\|")


def layers() -> list[list[str]]:
    """Packages and modules from the top layer to the bottom one; those of one layer do not import each other."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    contract = settings["tool"]["importlinter"]["contracts"][0]
    return [[name.strip().removeprefix("calibrant.") for name in layer.split(":")] for layer in contract["layers"]]


def sources(name: str) -> list[Path]:
    """The modules of a package, or the one module of that name."""
    folder = PACKAGE / name
    return sorted(folder.rglob("*.py")) if folder.is_dir() else [PACKAGE / f"{name}.py"]


def module_map() -> Iterator[str]:
    yield "| layer | package or module | its job |\n|---|---|---|\n"
    for number, names in enumerate(layers(), 1):
        for name in names:
            yield f"| {number} | `{name}` | {first_line(sources(name)[0])} |\n"
    for name in (name for names in layers() for name in names if (PACKAGE / name).is_dir()):
        modules = [path for path in sources(name) if path.name != "__init__.py" or path.parent != PACKAGE / name]
        yield f"\n<details markdown><summary><code>{name}/</code></summary>\n\n| module | its job |\n|---|---|\n"
        for path in modules:
            yield f"| `{path.relative_to(PACKAGE).as_posix()}` | {first_line(path)} |\n"
        yield "\n</details>\n"


def updated(page: str) -> str:
    before, _, rest = page.partition(BEGIN)
    return f"{before}{BEGIN}\n{''.join(module_map())}\n{END}{rest.partition(END)[2]}"


if __name__ == "__main__":
    page = PAGE.read_text(encoding="utf-8")
    if "--check" in sys.argv:
        sys.exit(page != updated(page) and f"{PAGE.relative_to(ROOT)} is out of date: python {sys.argv[0]}")
    PAGE.write_text(updated(page), encoding="utf-8")
