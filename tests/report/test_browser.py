"""Pages in a real browser: wide and narrow, light and dark, printed, without the script, and their controls."""

import re
from collections.abc import Iterator
from contextlib import ExitStack
from itertools import pairwise
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import pytest
import torch

from calibrant.audits import audit
from calibrant.predictions import Predictions
from calibrant.report.experiment import write_experiment
from made.browser import heading_levels, lowest_contrast, open_page, overflow, start_browser, without_name
from made.folder import write_folder
from made.hostile import write_unlabelled
from made.rows import Experiment

pytestmark = pytest.mark.slow

SCRIPT = "<script>alert(1)</script>"
IMAGE = '"><img src=x onerror=alert(2)>'
LOSSES = ("CE", "Focal", "MaxEnt M")
MAX_BYTES = 2_500_000
WHITE, BLACK = "rgb(255, 255, 255)", "rgb(22, 22, 22)"
N_CLASSES = 150


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with start_browser() as found:
        yield found


@pytest.fixture(scope="module")
def paths(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """An audit, a monitor and an estimate with hostile names, an audit of one row, and a running experiment."""
    folder = tmp_path_factory.mktemp("pages")
    generator = torch.Generator().manual_seed(0)
    logits = 2 * torch.randn(400, N_CLASSES, generator=generator)
    labels = logits.softmax(1).multinomial(1, generator=generator)[:, 0]
    columns = {IMAGE: [SCRIPT, IMAGE, "plain", "{{ 7 * 7 }}"] * 100, "id": [f"{SCRIPT}{i}" for i in range(400)]}
    names = [SCRIPT, IMAGE, *(f"class {at}" for at in range(2, N_CLASSES))]
    Predictions.from_logits(2 * logits, labels, class_names=names, columns=columns).save(folder / "a&b <i>.parquet")
    audit(folder / "a&b <i>.parquet", by=(IMAGE,)).save_html(folder / "audit.html")
    row = Predictions.from_probs([[0.9, 0.1]], [1], columns={"g": ["a"]})
    audit(row, by=("g",)).save_html(folder / "row.html")
    losses = ("cross_entropy", "focal", "maxent_mean")
    made = Experiment(losses=losses, severities=(1, 3), calibrators=("none", "temperature"))
    toml = f'title = "{SCRIPT} & others"\n[settings]\ndata = "digits"\n[[grid]]\nloss = "focal"\nseed = 7\n'
    page = write_experiment(write_folder(folder / "runs", made, toml=toml), refresh=3600)
    write_unlabelled(folder, SCRIPT)
    pages = {kind: folder / f"{kind}.html" for kind in ("audit", "monitor", "estimate")}
    return {**pages, "one row": folder / "row.html", "experiment": page}


@pytest.fixture(scope="module")
def tabs(paths: dict[str, Path], browser: Any) -> Iterator[dict[str, Any]]:
    """Every page in a tab; at the end none may have logged an error or requested anything."""
    with ExitStack() as stack:
        yield {kind: stack.enter_context(open_page(browser, path)) for kind, path in paths.items()}


def background(page: Any) -> str:
    colour: str = page.evaluate("getComputedStyle(document.body).backgroundColor")
    return colour


def filter_of_chart(page: Any) -> str:
    value: str = page.evaluate("getComputedStyle(document.querySelector('.drawing svg')).filter")
    return value


# Every page


@pytest.mark.parametrize("kind", ["audit", "one row", "monitor", "estimate", "experiment"])
def test_page_is_readable_on_every_medium(kind: str, tabs: dict[str, Any]) -> None:
    page = tabs[kind]
    assert Path(unquote(urlsplit(page.url).path)).stat().st_size <= MAX_BYTES
    assert page.locator("html").get_attribute("lang") == "en"
    levels = heading_levels(page)
    assert (levels[0], levels.count(1)) == (1, 1)
    assert all(after <= before + 1 for before, after in pairwise(levels))
    assert without_name(page) == []
    targets = page.evaluate(
        "[...document.querySelectorAll('nav a')].map((a) => document.querySelectorAll(a.hash).length)"
    )
    assert set(targets) == {1}
    for scheme, paper in (("light", WHITE), ("dark", BLACK)):
        page.emulate_media(color_scheme=scheme)
        assert background(page) == paper
        assert filter_of_chart(page).startswith("invert") == (scheme == "dark")
        ratio, text = lowest_contrast(page)
        assert ratio >= 4.5, (scheme, text)
    page.emulate_media(media="print", color_scheme="dark")
    assert background(page) == WHITE
    assert page.evaluate("getComputedStyle(document.body).color") == "rgb(0, 0, 0)"
    assert filter_of_chart(page) == "none"
    assert not page.get_by_role("navigation").is_visible()
    assert page.locator(".only-print:visible").count() == page.locator(".only-print").count()
    page.emulate_media(media="screen", color_scheme="light")
    assert not page.locator(".only-print:visible").count()
    page.set_viewport_size({"width": 390, "height": 844})
    assert overflow(page) <= 0
    page.set_viewport_size({"width": 1280, "height": 800})


def test_page_is_complete_without_its_script(paths: dict[str, Path], browser: Any) -> None:
    for kind in ("audit", "monitor", "experiment"):
        with open_page(browser, paths[kind], java_script_enabled=False) as page:
            assert page.locator("[data-panel]:visible").count() == page.locator("[data-panel]").count()
            assert not page.locator("select:visible, input:visible, button:visible").count()
            page.emulate_media(media="print")
            assert not page.locator(".only-print:visible").count()  # nothing is hidden


def test_page_is_printed_and_keeps_its_theme(tabs: dict[str, Any], tmp_path: Path) -> None:
    page = tabs["one row"]
    page.pdf(path=tmp_path / "page.pdf", format="A4")
    assert (tmp_path / "page.pdf").read_bytes().startswith(b"%PDF")
    page.get_by_role("button", name="Dark", exact=True).click()
    assert background(page) == BLACK
    page.reload()
    assert background(page) == BLACK
    page.get_by_role("button", name="Light", exact=True).click()
    assert background(page) == WHITE


# Audits


def test_hostile_names_are_text_and_marks_have_tooltips(tabs: dict[str, Any]) -> None:
    page = tabs["audit"]
    assert page.locator("script").count() == 1
    assert page.locator("img, iframe, object").count() == 0
    assert {SCRIPT, IMAGE} <= set(page.locator("#classes-table tbody th").all_inner_texts())
    assert {SCRIPT, IMAGE, "{{ 7 * 7 }}"} <= set(page.locator("#groups-1 tbody th").all_inner_texts())
    assert page.get_by_role("heading", name=f"By {IMAGE}").count() == 1
    assert "a&b <i>" in page.locator("h1").inner_text()
    mark = page.locator("#reliability-figure .mark-symbol [aria-label]").last
    mark.hover()
    assert page.get_by_role("tooltip").inner_text() == mark.get_attribute("aria-label")
    page.locator("h1").hover()
    assert not page.locator("#tooltip").is_visible()


def column(page: Any, heading: str) -> list[str]:
    heads = [text.strip() for text in page.locator("#classes-table thead th").all_inner_texts()]
    position = heads.index(heading) + 1
    return page.locator(f"#classes-table tbody tr > :nth-child({position})").all_inner_texts()  # type: ignore[no-any-return]


def test_tables_are_sorted_by_any_column(tabs: dict[str, Any]) -> None:
    page = tabs["audit"]
    head = page.locator("#classes-table thead").get_by_role("button", name="Predicted", exact=True)
    head.click()
    counts = [int(text.replace(",", "")) for text in column(page, "Predicted")]
    assert counts == sorted(counts, reverse=True)
    assert counts[0] > counts[-1]
    head.press("Enter")
    assert [int(text.replace(",", "")) for text in column(page, "Predicted")] == counts[::-1]
    assert page.locator("#classes-table th[aria-sort=ascending]").inner_text().strip() == "Predicted"
    for _ in range(2):  # a class that is never predicted has no precision and stays last in both directions
        page.locator("#classes-table thead").get_by_role("button", name="Precision", exact=True).click()
        shares = column(page, "Precision")
        assert "–" in shares
        assert set(shares[shares.index("–") :]) == {"–"}


def test_a_class_is_found_by_its_name(tabs: dict[str, Any]) -> None:
    page = tabs["audit"]
    box = page.locator("[data-filter-of=classes-table]")
    box.get_by_label("Find").fill("class 77")
    shown = page.locator("#classes-table tbody tr:visible")
    assert shown.count() == 1
    assert "class 77" in shown.inner_text()
    assert box.locator("output").inner_text() == f"1 of {N_CLASSES}"
    box.get_by_label("Find").fill("")
    assert shown.count() == N_CLASSES


# Experiments


def test_title_is_text_and_metrics_are_switched(tabs: dict[str, Any]) -> None:
    page = tabs["experiment"]
    assert page.locator("h1").inner_text() == page.title() == f"{SCRIPT} & others"
    assert page.locator("script").count() == 1
    for section in ("scores", "severity"):
        select = page.locator(f"#{section} select").first
        options = select.locator("option").all_inner_texts()
        assert len(options) == len(set(options)) > 1
        seen = []
        for option in options:
            select.select_option(label=option)
            visible = page.locator(f"#{section} [data-panel]:visible")
            assert visible.count() == 1
            seen.append(visible.inner_text())
        assert len(set(seen)) == len(options)


VISIBLE_LABELS = """(section) => [...section.querySelectorAll(".drawing .role-mark [aria-label]")]
    .filter((mark) => mark.checkVisibility()).map((mark) => mark.getAttribute("aria-label").split(":")[0])"""


@pytest.mark.parametrize("section", ["severity", "epochs"])
def test_losses_are_toggled(section: str, tabs: dict[str, Any]) -> None:
    page = tabs["experiment"]
    place = page.locator(f"#{section}")

    def visible() -> dict[str, int]:
        labels = place.evaluate(VISIBLE_LABELS)
        return {loss: labels.count(loss) for loss in LOSSES}

    before = visible()
    assert all(before.values())
    place.get_by_role("checkbox", name="Focal", exact=True).uncheck()
    assert visible() == {**before, "Focal": 0}
    page.reload()  # the choice is kept
    assert visible() == {**before, "Focal": 0}
    place.get_by_role("button", name="None", exact=True).click()
    assert not any(visible().values())
    place.get_by_role("button", name="All", exact=True).click()
    assert visible() == before


def test_scores_are_sorted(tabs: dict[str, Any]) -> None:
    table = tabs["experiment"].locator("#scores table:visible")
    for _ in range(2):
        table.locator("thead button").last.click()
        texts = table.locator("tbody tr > :last-child").all_inner_texts()
        means = [float(re.sub(r"[^\d.].*", "", text)) for text in texts]
        assert means == sorted(means, reverse=table.locator("th[aria-sort=descending]").count() == 1)


def test_a_running_page_reloads_and_keeps_the_choice(tmp_path: Path, browser: Any) -> None:
    options: dict[str, Any] = {"seeds": 1, "severities": (1,), "metrics": ("ece", "accuracy")}
    folder = write_folder(tmp_path / "runs", Experiment(losses=("focal",), **options))
    write_experiment(folder, figures=(), refresh=1)
    with open_page(browser, folder.page_file) as page:
        assert "reloads every 1 seconds" in page.locator("#live").inner_text()
        page.locator("#scores select").select_option(label="Accuracy")
        write_experiment(write_folder(tmp_path / "runs", Experiment(losses=("focal", "poly"), **options)), figures=())
        page.locator("#scores table:visible").get_by_text("Poly").wait_for()
        assert page.locator("#scores table:visible caption").inner_text() == "Accuracy (%) under shift"
        assert not page.locator("#live").count()
