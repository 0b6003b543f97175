"""`calibrant schema`: the JSON schema of experiment files, for editors that complete and check them."""

from calibrant._files import atomic_write
from calibrant.cli.options import Output
from calibrant.experiments.files import packaged


def schema(*, output: Output | None = None) -> None:
    """Print the JSON schema of experiment files.

    An editor with a TOML language server completes keys and marks errors in a file whose first line is
    #:schema schema.json.

    Parameters
    ----------
    output
        A file to write it to.
    """
    text = packaged("schema.json").read_text(encoding="utf-8")
    if output is None:
        print(text, end="")
        return
    with atomic_write(output, "a JSON schema") as file:
        file.write(text.encode())
