"""A browser for tests: it collects errors of pages and measures what readers see."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

FLAGS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
TIMEOUT = 600_000  # milliseconds
NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")


@contextmanager
def start_browser() -> Iterator[Any]:
    """Chromium, driven by Playwright; the test is skipped where either is absent."""
    driver = pytest.importorskip("playwright.sync_api", reason="Playwright is not installed")
    program = next(filter(None, map(shutil.which, NAMES)), None)
    if program is None:
        pytest.skip("there is no Chromium on this machine")
    with driver.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=list(FLAGS), timeout=TIMEOUT)
        try:
            yield browser
        finally:
            browser.close()


@contextmanager
def open_page(browser: Any, where: Path | str, **options: Any) -> Iterator[Any]:
    """The page of a file or address in a new context. At the end it may not have logged, raised, asked or requested."""
    url = where.absolute().as_uri() if isinstance(where, Path) else where
    problems: list[str] = []
    context = browser.new_context(**options)
    page = context.new_page()
    page.set_default_timeout(TIMEOUT)
    page.on("console", lambda message: problems.append(f"console: {message.text}"))
    page.on("pageerror", lambda error: problems.append(f"error: {error}"))
    page.on("dialog", lambda dialog: (problems.append(f"dialog: {dialog.message}"), dialog.dismiss()))
    page.on(
        "request", lambda request: None if request.url.startswith(url) else problems.append(f"asked for {request.url}")
    )
    try:
        page.goto(url)
        yield page
        assert not problems, problems
    finally:
        context.close()


# Every element that shows text, with the contrast of its colour to the background.
CONTRASTS = """() => {
  const parse = (colour) => (colour.match(/[\\d.]+/g) || []).map(Number);
  const channel = (c) => (c / 255 <= 0.03928 ? c / 255 / 12.92 : ((c / 255 + 0.055) / 1.055) ** 2.4);
  const light = ([r, g, b]) => 0.2126 * channel(r) + 0.7152 * channel(g) + 0.0722 * channel(b);
  const behind = (element) => {
    for (let at = element; at; at = at.parentElement) {
      const found = parse(getComputedStyle(at).backgroundColor);
      if (found.length === 3 || found[3] === 1) return found;
    }
    return [255, 255, 255];
  };
  const shows = (element) => element.checkVisibility({ opacityProperty: true })
    && [...element.childNodes].some((node) => node.nodeType === 3 && node.textContent.trim());
  return [...document.querySelectorAll("body *:not(svg *):not(script):not(style)")].filter(shows).map((element) => {
    const [a, b] = [light(parse(getComputedStyle(element).color)), light(behind(element))].sort((x, y) => y - x);
    return [(a + 0.05) / (b + 0.05), element.textContent.trim().slice(0, 40)];
  });
}"""


def lowest_contrast(page: Any) -> tuple[float, str]:
    """The lowest contrast of a text on the page, and that text; WCAG requires 4.5."""
    ratio, text = min(page.evaluate(CONTRASTS))
    return ratio, text


def overflow(page: Any) -> int:
    """Pixels by which the page is wider than its window."""
    width: int = page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
    return width


def heading_levels(page: Any) -> list[int]:
    levels: list[int] = page.evaluate(
        "[...document.querySelectorAll('h1, h2, h3, h4, h5, h6')].map((heading) => Number(heading.tagName[1]))"
    )
    return levels


def without_name(page: Any) -> list[str]:
    """Images without alternative text, controls without a label, tables without a caption."""
    return page.evaluate(  # type: ignore[no-any-return]
        """() => [
          ...[...document.querySelectorAll("svg")].filter((svg) => !svg.closest("[role=img]")?.ariaLabel?.trim()),
          ...[...document.querySelectorAll("input, select")].filter((control) => !control.labels.length),
          ...[...document.querySelectorAll("table")].filter((table) => !table.caption?.textContent.trim()),
          ...[...document.querySelectorAll("button, a")].filter((control) => !control.textContent.trim()),
        ].map((element) => element.outerHTML.slice(0, 120))"""
    )
