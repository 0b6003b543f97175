"""The folder that corrupted images go to: it remembers its settings, so that work resumes with the same ones only."""

import json
import os
from pathlib import Path
from typing import Any

from calibrant._checks import check_integer
from calibrant._files import atomic_write, make_folder
from calibrant.corruptions.corrupting import Corrupt, CorruptOptions
from calibrant.errors import CorruptFileError, InvalidInputError

SETTINGS_FILE = "corruption.json"


def claim_folder(target: Path, made_of: dict[str, Any], options: Corrupt) -> None:
    """Make the folder, and record there what it is made of and the options; a folder with others is refused."""
    settings = made_of | {name: getattr(options, name) for name in CorruptOptions.__annotations__}
    if options.frost_dir is not None:
        settings["frost_dir"] = str(Path(options.frost_dir).resolve())
    make_folder(target)
    record = target / SETTINGS_FILE
    if not record.exists():
        with atomic_write(record) as file:
            file.write(json.dumps(settings, indent=2).encode() + b"\n")
        return
    try:
        known = json.loads(record.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        known = None
    if not isinstance(known, dict):
        raise CorruptFileError(f"{record} cannot be read; remove it if {target} may be filled anew")
    for setting, value in settings.items():
        if known.get(setting) != value:
            was = known.get(setting)
            raise InvalidInputError(f"{target} was made with {setting} {was!r}, not {value!r}: choose another folder")


def thread_count(jobs: int | None) -> int:
    """As many threads as are asked for; by default one for each processor."""
    return os.cpu_count() or 1 if jobs is None else check_integer("jobs", jobs, 1)
