"""A hook of the documentation build: formulas in docstrings show as code."""

import re


def on_page_content(html: str, **_: object) -> str:
    """Drop the marks `:math:` and `.. math::`, which are for other documentation tools."""
    html = re.sub(r":(?:math|func|class|meth):<code>", "<code>", html)
    return re.sub(r"<p>\.\. math:: ?(.*?)</p>", r"<p><code>\1</code></p>", html, flags=re.DOTALL)
