"""pyarrow without pandas, which takes a third of a second to import and which no command needs."""

import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType


class WithoutPandas:
    """Finds no pandas."""

    @staticmethod
    def find_spec(name: str, path: Sequence[str] | None = None, target: ModuleType | None = None) -> ModuleSpec | None:
        if name == "pandas":
            raise ModuleNotFoundError("pandas is not needed", name=name)
        return None


def import_pyarrow() -> None:
    """Convert a value, for which pyarrow looks for pandas once; `to_pandas` looks again, and works."""
    sys.meta_path.insert(0, WithoutPandas)
    try:
        import pyarrow

        pyarrow.scalar(0)
    finally:
        sys.meta_path.remove(WithoutPandas)
