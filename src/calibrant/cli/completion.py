"""`calibrant --install-completion`: tab completion for the user's shell, by cyclopts."""

from pathlib import Path
from typing import Any

from cyclopts.completion.install import create_install_completion_command

from calibrant.cli import app
from calibrant.errors import InvalidInputError


def _install(*, output: Path | None, **options: Any) -> Path:
    """Where a user names the file of the completion, no file is replaced."""
    if output is not None and output.exists():
        raise InvalidInputError(f"{output} exists: choose another name, or remove it")
    return app.install_completion(output=output, **options)


install_completion = create_install_completion_command(_install, add_to_startup=True)
