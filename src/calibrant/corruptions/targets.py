"""The folder that corrupted images go to: it remembers its settings, so that work goes on with the same ones only."""

import json
from pathlib import Path
from typing import Any

from calibrant._files import make_folder, replacing
from calibrant.errors import CorruptFileError, InvalidInputError

RECORD = "corruption.json"


def claim(target: Path, settings: dict[str, Any]) -> None:
    """Make the folder, and record its settings there; a folder with others is refused."""
    make_folder(target)
    record = target / RECORD
    if not record.exists():
        with replacing(record) as file:
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
