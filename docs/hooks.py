"""Hooks of the documentation build: formulas and doctests of docstrings, and commands from their help."""

import re
from typing import Any

from griffe import Extension, Object
from mkdocs.utils import get_relative_url

COMMANDS = "<!-- every command, from its help -->"
FOREIGN, SEARCH = "https://unpkg.com/iframe-worker/shim", "js/search_from_folder.js"
LETTERS = {
    "alpha": "α",
    "epsilon": "ε",
    "gamma": "γ",
    "kappa": "κ",
    "lambda": "λ",
    "mu": "μ",
    "pi": "π",
    "sigma": "σ",
    "sum": "Σ",
    "int": "∫",
    "cdot": "·",
    "le": "≤",
    "ge": "≥",
    "qquad": "    ",
    **dict.fromkeys(("bigl", "bigr", "Bigl", "Bigr"), ""),
}


class Doctests(Extension):
    """Make doctests blocks of code, since Markdown does not."""

    def on_object(self, *, obj: Object, **_: Any) -> None:
        if obj.docstring is not None:
            obj.docstring.value = fenced(obj.docstring.value)


def fenced(docstring: str) -> str:
    """A docstring with a fence around each doctest, which ends at the next empty line."""
    return re.sub(r"(?:^>>> .*(?:\n(?=\S).*)*)", r"```pycon\n\g<0>\n```", docstring, flags=re.MULTILINE)


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Insert every command and its options where a page has the marker."""
    if COMMANDS not in markdown:
        return markdown
    from calibrant.cli import app

    for name in app:
        app[name]  # imports the command, which is then described
    written = app.generate_docs(output_format="markdown")
    _, heading, commands = written.partition("**Commands**:")
    return markdown.replace(COMMANDS, heading + commands)


def on_post_page(output: str, page: Any, **_: Any) -> str:
    """Replace the script for searching without a server, which the theme loads from another machine, by ours."""
    return output.replace(FOREIGN, get_relative_url(SEARCH, page.url))


def on_post_template(output_content: str, **_: Any) -> str:
    """The same for the page 404.html."""
    return output_content.replace(FOREIGN, f"/{SEARCH}")


def on_page_content(html: str, **_: Any) -> str:
    """Render the roles `:math:` and `.. math::` as HTML, and drop `:func:`, `:class:` and `:meth:`."""
    html = re.sub(r":math:<code>(.*?)</code>", _inline, html, flags=re.DOTALL)
    html = re.sub(r":(?:func|class|meth):<code>", "<code>", html)
    return re.sub(r"<p>\.\. math:: ?(.*?)</p>", _displayed, html, flags=re.DOTALL)


def _inline(found: re.Match[str]) -> str:
    return f'<span class="formula">{readable(found[1])}</span>'


def _displayed(found: re.Match[str]) -> str:
    latex = re.sub(r"</?em>", "*", found[1])  # Markdown has replaced the stars
    return f'<p class="formula">{readable(latex)}</p>'


def readable(latex: str) -> str:
    r"""The LaTeX subset of the docstrings as HTML, without scripts and fonts.

    >>> readable(r"\frac1n \sum_{i : r_i \le t} (c_i - r_i)")
    '1/n Σ<sub>i : r<sub>i</sub> ≤ t</sub> (c<sub>i</sub> − r<sub>i</sub>)'
    """
    text = re.sub(r"\\,", " ", latex).replace(r"\|", "‖").replace("-", "−")
    text = re.sub(r"\\frac1(\w)", r"1/\1", text)
    text = re.sub(r"\\frac1\{", r"\\frac{1}{", text)
    text = re.sub(r"\\([A-Za-z]+)", lambda word: LETTERS.get(word[1], word[0]), text)
    text = re.sub(r"\\bar (\w)", r"\\overline{\1}", text)
    text = re.sub(r"_([^\s{}\\])", r"_{\1}", text)
    text = re.sub(r"\^([^\s{}\\])", r"^{\1}", text)
    while (simpler := _without_inner_braces(text)) != text:
        text = simpler
    return re.sub(r"\\(log|max|ln|tanh)", r"\1", text)


def _without_inner_braces(text: str) -> str:
    inner = r"\{([^{}]*)\}"
    text = re.sub(f"_{inner}", r"<sub>\1</sub>", text)
    text = re.sub(rf"\^{inner}", r"<sup>\1</sup>", text)
    text = re.sub(rf"\\mathrm{inner}", r"\1", text)
    text = re.sub(rf"\\overline{inner}", r'<span class="mean">\1</span>', text)
    text = re.sub(rf"\\sqrt{inner}", r"√(\1)", text)
    return re.sub(rf"\\t?frac{inner}{inner}", _quotient, text)


def _quotient(found: re.Match[str]) -> str:
    def side(text: str) -> str:
        return f"({text})" if re.search(r"[ +−(]", re.sub(r"<sub>.*?</sub>", "", text)) else text

    return f"{side(found[1])}/{side(found[2])}"
