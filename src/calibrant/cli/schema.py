"""`calibrant schema`: what may stand in an experiment file, for editors that complete and check it."""

import json

from calibrant.cli.options import Output
from calibrant.errors import NoDataError


def schema(*, output: Output | None = None) -> None:
    """Print the JSON schema of experiment files.

    An editor with a TOML language server completes keys and marks errors in a file whose first line is
    #:schema schema.json.

    Parameters
    ----------
    output
        A file to write it to.
    """
    try:
        from calibrant.experiments.config import Experiment
    except ImportError:
        raise NoDataError("experiments need the extra train: pip install 'calibrant[train]'") from None

    text = json.dumps(Experiment.model_json_schema(), indent=2) + "\n"
    if output is None:
        print(text, end="")
        return
    from calibrant._files import atomic_write

    with atomic_write(output) as file:
        file.write(text.encode())
