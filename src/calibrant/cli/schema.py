"""`calibrant schema`: the JSON schema of experiment files, for editors that complete and check them."""

import json

from calibrant.cli.extras import needs_extras
from calibrant.cli.options import Output


def schema(*, output: Output | None = None) -> None:
    """Print the JSON schema of experiment files.

    An editor with a TOML language server completes keys and marks errors in a file whose first line is
    #:schema schema.json.

    Parameters
    ----------
    output
        A file to write it to.
    """
    with needs_extras("reading experiment files", "train"):
        from calibrant.experiments.config import Experiment

    text = json.dumps(Experiment.model_json_schema(), indent=2) + "\n"
    if output is None:
        print(text, end="")
        return
    from calibrant._files import atomic_write

    with atomic_write(output, "a JSON schema") as file:
        file.write(text.encode())
