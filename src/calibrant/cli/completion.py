"""`calibrant --install-completion`: what the tab key offers, verbs, options and the names of our tables among it.

The names are written into the script, so that a shell need not wait for torch; a new release wants a new script.
"""

from collections.abc import Callable, Iterable
from functools import wraps
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any, Literal, TypedDict, get_args, get_type_hints

from cyclopts import App, Parameter

from calibrant.cli import app
from calibrant.errors import CalibrantError, InvalidInputError, NoDataError, printable

Shell = Literal["zsh", "bash", "fish", "powershell"]  # as cyclopts has it: typing keeps the first of equal unions
FILES = ""  # in place of a table: the names of files
TABLES = {  # where the names are
    "calibrators": "calibrant.calibrators:CALIBRATORS",
    "corruptions": "calibrant.corruptions:CORRUPTIONS",
    "data": "calibrant.data:DATASETS",
    "figures": "calibrant.report.figures:FIGURES",
    "formats": "calibrant.report.formats:FORMATS",
    "losses": "calibrant.losses:LOSSES",
    "metrics": "calibrant.metrics:METRICS",
    "models": "calibrant.models:MODELS",
    "sources": "calibrant.data.sources:SOURCES",
    "tables": "calibrant.report.paper:TABLES",
}
MORE = {"figures": ("all",)}  # what a verb knows beside its table
VALUES: dict[str, dict[str, str]] = {  # what stands behind the parameters whose type does not say it
    "apply": {"calibrator": FILES, "paths": FILES, "output": FILES, "features": FILES},
    "audit": {"paths": FILES, "compare": FILES, "metrics": "metrics", "report": FILES},
    "check": {"name": "sources"},
    "compare-calibrators": {"validation": FILES, "test": FILES, "methods": "calibrators", "metrics": "metrics"},
    "corrupt": {"name": "corruptions"},
    "fetch": {"name": "sources"},
    "figure": {"name": "figures", "calibrator": "calibrators", "data": "data", "losses": "losses"},
    "fit": {
        **{"paths": FILES, "output": FILES, "target": FILES, "reference": FILES, "features": FILES},
        "method": "calibrators",
    },
    "predict": {"source": FILES, "splits": "corruptions", "output": FILES, "data": "data", "root": FILES},
    "run": {"file": FILES, "output": FILES},
    "schema": {"output": FILES},
    "table": {"folder": FILES, "name": "tables", "format": "formats", "data": "data", "output": FILES},
    "train": {"file": FILES, "output": FILES},
}
SETTINGS = {"data": "data", "model": "models", "loss": "losses", "root": FILES}  # the flags of train


def install(
    *, shell: Shell | None = None, output: Annotated[Path | None, Parameter(name=["--output", "-o"])] = None
) -> None:
    """Let the shell complete verbs, options and names.

    Writes the script to where the shell looks for it, and a line to the start-up file of bash, zsh and PowerShell.

    Parameters
    ----------
    shell
        By default the one that runs this.
    output
        The file of the script, where not the usual one.
    """
    chosen = shell or _this_shell()
    try:
        path = _write(chosen, output)
    except OSError as error:
        raise NoDataError(f"the script cannot be written: {error.strerror}: {error.filename}") from None
    print(printable(f"wrote {path}; new {chosen} sessions complete calibrant"))


def show(shell: Shell | None = None, /) -> None:
    """Print the completion script of a shell.

    Parameters
    ----------
    shell
        By default the one that runs this.
    """
    print(script(shell or _this_shell()), end="")


def script(shell: Shell) -> str:
    """The completion script."""
    made = described().generate_completion(shell=shell)
    if shell == "bash":  # readline itself completes paths better than a list does: folders get their slash
        made = made.replace('$(compgen -f -- "${cur}")', "").replace("complete -F ", "complete -o default -F ")
    return made


def _write(shell: Shell, output: Path | None) -> Path:
    from cyclopts.completion.install import add_to_rc_file, get_default_completion_path

    path = (output or get_default_completion_path(shell, "calibrant")).absolute()
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(script(shell), encoding="utf-8", newline="\n")
    if shell != "fish":  # which looks there by itself
        add_to_rc_file(path, "calibrant", shell)
    return path


def _this_shell() -> Shell:
    from cyclopts.completion.detect import ShellDetectionError, detect_shell

    try:
        return detect_shell()
    except ShellDetectionError:
        raise InvalidInputError(f"the shell is not known: name one of {', '.join(get_args(Shell))}") from None


def described() -> App:
    """The command line once more, for its description alone: with the names of the tables as choices."""
    made = App(name="calibrant", version=app.version)
    _describe(app, made)
    return made


def _describe(known: App, made: App) -> None:
    for name in known:
        if name in (*known.help_flags, *known.version_flags):
            continue
        try:
            verb = known[name]
        except CalibrantError:  # its extra is not installed
            made.command(lambda: None, name=name)
            continue
        if verb.default_command is None:
            group = App(name=name, help=verb.help)
            _describe(verb, group)
            made.command(group)
        else:
            made.command(_with_choices(name, verb.default_command), name=name, help=verb.help)


def _with_choices(verb: str, function: Callable[..., Any]) -> Callable[..., Any]:
    """A function of the same parameters, of types that say which values they take."""

    @wraps(function)
    def stand_in(*arguments: Any, **options: Any) -> None: ...

    hints = get_type_hints(function, include_extras=True)
    values = VALUES.get(verb, {})
    stand_in.__annotations__ = {name: _typed(hint, values.get(name)) for name, hint in hints.items()}
    if verb == "train":
        flags, parameter = get_args(hints["settings"])
        typed = {name: _typed(hint, SETTINGS.get(name)) for name, hint in flags.__annotations__.items()}
        more = TypedDict("Flags", typed, total=False)  # type: ignore[misc]
        stand_in.__annotations__["settings"] = Annotated[more, parameter]
    return stand_in


def _typed(hint: Any, values: str | None) -> Any:
    if values is None:
        return hint
    if values == FILES:
        path = tuple[Path, ...] if "tuple" in str(hint) else Path
        return Annotated[path, Parameter(), *getattr(hint, "__metadata__", ())]
    names = tuple(_names(values))
    return Annotated[hint, Parameter(choices=names)] if names else hint


def _names(table: str) -> Iterable[str]:
    module, _, name = TABLES[table].partition(":")
    try:
        return (*getattr(import_module(module), name), *MORE.get(table, ()))
    except ImportError:  # what draws figures, say, is not installed
        return ()
