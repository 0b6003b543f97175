"""Lines, modules and value types of each package, and the modules that a piece of work passes through.

    python scripts/code_size.py                       # the table of packages
    python scripts/code_size.py -- audit a.parquet    # the modules whose functions a command calls

A value type is a dataclass, a named tuple, a typed dict or a pydantic model.
"""

import ast
import sys
from collections import Counter
from pathlib import Path
from types import FrameType
from typing import Any

PACKAGE = Path(__file__).parents[1] / "src" / "calibrant"
BASES = {"NamedTuple", "TypedDict", "BaseModel"}


def is_value_type(node: ast.AST) -> bool:
    if not isinstance(node, ast.ClassDef):
        return False
    words = {
        word for part in (*node.decorator_list, *node.bases) for word in ast.unparse(part).split("(")[0].split(".")
    }
    return bool(words & (BASES | {"dataclass"}))


def measure() -> None:
    lines, modules, types = Counter[str](), Counter[str](), Counter[str]()
    for path in sorted(PACKAGE.rglob("*.py")):
        name = path.relative_to(PACKAGE).parts[0] if path.parent != PACKAGE else "(top)"
        text = path.read_text(encoding="utf-8")
        lines[name] += text.count("\n")
        modules[name] += 1
        types[name] += sum(map(is_value_type, ast.walk(ast.parse(text))))
    print(f"{'package':14}{'lines':>8}{'modules':>9}{'value types':>13}")
    for name in sorted(lines):
        print(f"{name:14}{lines[name]:>8,}{modules[name]:>9}{types[name]:>13}")
    print(f"{'all':14}{lines.total():>8,}{modules.total():>9}{types.total():>13}")
    tests = sum(path.read_text(encoding="utf-8").count("\n") for path in (PACKAGE.parents[1] / "tests").rglob("*.py"))
    print(f"{'tests':14}{tests:>8,}")


def trace(command: list[str]) -> None:
    """Run a command, and list the modules of the package whose functions were called in this process."""
    called: dict[str, None] = {}

    def note(frame: FrameType, event: str, _: Any) -> None:
        file = frame.f_code.co_filename
        if event == "call" and file.startswith(str(PACKAGE)) and file not in called and not while_importing(frame):
            called[file] = None

    from calibrant.cli import app

    sys.setprofile(note)
    try:
        app(command)
    except SystemExit:
        pass
    finally:
        sys.setprofile(None)
    names = [str(Path(file).relative_to(PACKAGE)) for file in called]
    print(*names, f"{len(names)} modules", sep="\n", file=sys.stderr)


def while_importing(frame: FrameType | None) -> bool:
    while frame is not None:
        if frame.f_code.co_name == "<module>" and frame.f_globals.get("__name__") != "__main__":
            return True
        frame = frame.f_back
    return False


if __name__ == "__main__":
    trace(sys.argv[2:]) if sys.argv[1:2] == ["--"] else measure()
