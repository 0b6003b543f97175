"""Strings that try to run a script, in every page and figure: a parser and a browser find only the templates'."""

from pathlib import Path
from xml.etree import ElementTree

import pytest

from made.browser import open_page, start_browser
from made.hostile import N_SCRIPTS, PAYLOADS, WRITERS, script_problem, write_audit, write_sweep, write_unlabelled
from made.page import Page


@pytest.mark.slow
@pytest.mark.parametrize("kind", WRITERS)
def test_every_string_stays_text(kind: str, tmp_path: Path) -> None:
    for path in WRITERS[kind](tmp_path, "".join(PAYLOADS)):
        content = path.read_text(encoding="utf-8")
        assert script_problem(Page(content), N_SCRIPTS[kind]) is None, path.name
        assert "alert(1)" in content  # as text
        if path.suffix == ".svg":
            ElementTree.fromstring(content)


@pytest.mark.slow
def test_nothing_runs_in_a_browser(tmp_path: Path) -> None:
    with start_browser() as browser:
        for number, payload in enumerate(PAYLOADS):
            folder = tmp_path / str(number)
            folder.mkdir()
            [figure] = write_sweep(folder, payload, ".html", ["heat_map"])
            for path in (figure, *write_audit(folder, payload), *write_unlabelled(folder, payload)):
                with open_page(browser, path) as page:
                    page.locator("svg.marks").first.wait_for()
                    assert page.evaluate("[...document.scripts].length") == 1 + (path == figure)
        [whole] = write_sweep(tmp_path, "".join(PAYLOADS), "")
        with open_page(browser, whole) as page:
            assert page.evaluate("[...document.scripts].length") == 1


@pytest.mark.slow
def test_a_figure_offers_only_to_save_itself(tmp_path: Path) -> None:
    """The page of the source that vega-embed would open holds the strings of the figure unescaped."""
    [figure] = write_sweep(tmp_path, PAYLOADS[1], ".html", ["heat_map"])
    with start_browser() as browser, open_page(browser, figure) as page:
        page.locator("svg.marks").wait_for()
        assert page.locator(".vega-actions a").all_text_contents() == ["Save as SVG", "Save as PNG"]
