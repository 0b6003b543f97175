"""The manual page calibrant.1, from the same words as the help; `make man` writes it."""

import inspect
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import calibrant
from calibrant.cli import app
from calibrant.cli.examples import EXAMPLES, EXITS, exit_codes

if TYPE_CHECKING:
    from cyclopts import App
    from cyclopts.argument import Argument

ENVIRONMENT = {
    "CALIBRANT_DATA": "The folder of the data sets, where --root does not name it; by default data.",
    "COLUMNS": "The width of tables that go to no terminal.",
    "NO_COLOR": "Where it is set, nothing is coloured.",
}


def page() -> str:
    """The page in the man macros of roff."""
    lines = [
        '.\\" Written by make man from the help of the command line: change that.',
        f'.TH CALIBRANT 1 "" "calibrant {calibrant.__version__}" "User Commands"',
        ".SH NAME",
        f"calibrant \\- {_escaped(str(app.help)[0].lower() + str(app.help)[1:].rstrip('.'))}",
        ".SH SYNOPSIS",
        *_synopsis("calibrant", "VERB [ARGUMENTS] [OPTIONS]"),
        *_synopsis("calibrant", "VERB --help"),
        ".SH DESCRIPTION",
        *_paragraphs(_help(app)),
        ".SH VERBS",
    ]
    for name, verb in _verbs(app):
        lines += _verb(name, verb)
    lines += [".SH EXIT STATUS", *_codes(""), *_special_codes()]
    lines += [".SH ENVIRONMENT"]
    for name, text in ENVIRONMENT.items():
        lines += _item(name, text)
    return "\n".join([*lines, ".SH EXAMPLES", *_examples("")]) + "\n"


def _verbs(group: "App", before: str = "") -> Iterator[tuple[str, "App"]]:
    """The verbs, each followed by those under it, by name; those that begin with dashes last."""
    for name in sorted(group, key=lambda name: (name.startswith("-"), name)):
        if name not in (*group.help_flags, *group.version_flags):
            yield f"{before}{name}", group[name]
            yield from _verbs(group[name], f"{before}{name} ")


def _verb(name: str, verb: "App") -> Iterator[str]:
    arguments = [] if verb.default_command is None else _arguments(verb)
    words = [_metavar(argument) for argument in arguments if _is_positional(argument)]
    yield f".SS {_escaped(name)}"
    options = ["[OPTIONS]"] if any(not argument.is_positional_only() for argument in arguments) else []
    yield from _synopsis(f"calibrant {name}", " ".join([*words, *options]) if arguments else "VERB")
    yield from _paragraphs(_help(verb))
    for argument in arguments:
        yield from _item(_names(argument), _described(argument))
    if verb.default_command is not None:
        yield from (".PP", "Examples:", *_examples(name))


def _arguments(verb: "App") -> list["Argument"]:
    return [a for a in verb.assemble_argument_collection(parse_docstring=True) if a.show and a.parse]


def _help(verb: "App") -> str:
    """The help without its list of parameters."""
    return inspect.cleandoc(verb.help or "").partition("\n\nParameters\n---")[0]


def _is_positional(argument: "Argument") -> bool:
    return argument.index is not None


def _metavar(argument: "Argument") -> str:
    name = argument.field_info.names[0].upper().replace("_", "-") if argument.field_info.names else "ARGS"
    many = "..." if argument.is_var_positional() else ""
    return f"{name}{many}" if argument.required else f"[{name}{many}]"


def _names(argument: "Argument") -> str:
    if _is_positional(argument):
        return _metavar(argument).strip("[]")
    names = sorted(argument.names, key=lambda name: (not name.startswith("--"), name.startswith("--no-"), name))
    value = "" if argument.is_flag() or "bool" in str(argument.hint) else f" {_kind(argument)}"
    return f"{', '.join(names)}{value}"


def _kind(argument: "Argument") -> str:
    """What a value of the option is called; choices are listed behind its description."""
    if argument.get_choices(force=True):
        return "CHOICE"
    text = str(argument.hint)
    return next((word for kind, word in KINDS.items() if kind in text), "TEXT") + ("..." if "tuple" in text else "")


KINDS = {"Path": "PATH", "float": "NUMBER", "int": "NUMBER"}


def _described(argument: "Argument") -> str:
    text = (argument.parameter.help or "").strip()
    if choices := argument.get_choices(force=True):
        text += f" One of {', '.join(choices)}."
    default: Any = argument.field_info.default
    if isinstance(default, str | int | float | tuple) and default is not False and default not in ("", ()):
        shown = " ".join(map(str, default)) if isinstance(default, tuple) else "on" if default is True else default
        text += f" Default: {shown}."
    return text


def _examples(verb: str) -> Iterator[str]:
    yield ".EX"
    for command, what in EXAMPLES[verb].items():
        yield from (_escaped(f"  # {what}"), _escaped(f"  {command}", literal=True))
    yield ".EE"


def _codes(verb: str) -> Iterator[str]:
    for code, meaning in exit_codes(verb):
        yield from _item(str(code), f"{meaning[0].upper()}{meaning[1:]}.")


def _special_codes() -> Iterator[str]:
    yield from (".PP", "Of single verbs:")
    for verb, codes in EXITS.items():
        if verb:
            yield from _item(verb, "; ".join(f"{code}: {meaning}" for code, meaning in codes.items()) + ".")


def _synopsis(command: str, rest: str) -> Iterator[str]:
    yield from (".PP", f"\\fB{_escaped(command, literal=True)}\\fR {_escaped(rest, literal=True)}".rstrip())


def _item(name: str, text: str) -> Iterator[str]:
    yield from (".TP", f"\\fB{_escaped(name, literal=True)}\\fR", _escaped(" ".join(text.split()).replace("`", "")))


def _paragraphs(text: str) -> Iterator[str]:
    for paragraph in text.strip().split("\n\n"):
        yield from (".PP", _escaped(" ".join(paragraph.split()).replace("`", "")))


def _escaped(text: str, *, literal: bool = False) -> str:
    """Text that roff prints as it stands; what is typed gets the minus of ASCII, other letters go by their number."""
    text = text.replace("\\", "\\e")
    if literal or text.startswith("-"):
        text = text.replace("-", "\\-").replace("'", "\\(aq")
    else:
        text = " ".join(word.replace("-", "\\-") if word.startswith("-") else word for word in text.split(" "))
    text = "".join(letter if letter.isascii() else f"\\[u{ord(letter):04X}]" for letter in text)
    return f"\\&{text}" if text.startswith((".", "'")) else text


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(page(), encoding="ascii", newline="\n")
