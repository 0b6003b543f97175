"""Reports as readers meet them: real pages in a real browser, wide and narrow, light and dark, on paper."""

import re
from collections.abc import Iterator
from contextlib import ExitStack
from itertools import pairwise
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import pytest
import torch

from calibrant.cli.audit import audit
from calibrant.predictions import Predictions
from calibrant.report.experiment import write_experiment
from made.browser import heading_levels, least_contrast, opened, overflow, started_browser, unnamed
from made.folder import write_folder
from made.rows import Experiment

HOSTILE = "<script>alert(1)</script>"
NASTY = '"><img src=x onerror=alert(2)>'
LOSSES = ("CE", "Focal", "MaxEnt M")
PHONE = {"width": 390, "height": 844}
MAX_BYTES = 2_500_000
WHITE, BLACK = "rgb(255, 255, 255)", "rgb(22, 22, 22)"


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with started_browser() as found:
        yield found


def overconfident(n_rows: int, n_classes: int, **options: Any) -> Predictions:
    generator = torch.Generator().manual_seed(0)
    calibrated = 2 * torch.randn(n_rows, n_classes, generator=generator)
    labels = calibrated.softmax(1).multinomial(1, generator=generator)[:, 0]
    return Predictions.from_logits(2 * calibrated, labels, **options)


def audited(folder: Path, predictions: Predictions, name: str = "test", **options: Any) -> Path:
    predictions.save(folder / f"{name}.parquet")
    audit(str(folder / f"{name}.parquet"), report=folder / "audit.html", **options)
    return folder / "audit.html"


@pytest.fixture(scope="module")
def audit_page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A page in which everything that a user can name has a hostile name."""
    groups = [HOSTILE, NASTY, "plain", "{{ 7 * 7 }}"] * 300
    predictions = overconfident(
        1200,
        4,
        class_names=[HOSTILE, NASTY, "cat", "dog"],
        columns={NASTY: groups, "id": [f"{HOSTILE}{i}" for i in range(1200)]},
    )
    return audited(tmp_path_factory.mktemp("audit"), predictions, "a&b <i>", by=(NASTY,))


@pytest.fixture(scope="module")
def large_page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A thousand classes and two hundred groups."""
    groups = [f"camera {number % 200}" for number in range(4000)]
    predictions = overconfident(4000, 1000, columns={"camera": groups})
    return audited(tmp_path_factory.mktemp("large"), predictions, by=("camera",))


@pytest.fixture(scope="module")
def one_row_page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return audited(
        tmp_path_factory.mktemp("one"), Predictions.from_probs([[0.9, 0.1]], [1], columns={"g": ["a"]}), by=("g",)
    )


@pytest.fixture(scope="module")
def experiment_page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """With the log of every run; as a sweep writes it that still runs."""
    losses = ("cross_entropy", "focal", "maxent_mean")
    made = Experiment(losses=losses, severities=(1, 3), calibrators=("none", "temperature"))
    toml = f'title = "{HOSTILE} & others"\n[settings]\ndata = "digits"\n[[grid]]\nloss = "focal"\nseed = 7\n'
    folder = write_folder(tmp_path_factory.mktemp("sweep") / "runs", made, toml=toml)
    return write_experiment(folder, refresh=3600)


@pytest.fixture(scope="module")
def tabs(
    audit_page: Path, large_page: Path, one_row_page: Path, experiment_page: Path, browser: Any
) -> Iterator[dict[str, Any]]:
    """Every page, open; at the end nothing must have gone wrong in any of them."""
    paths = {"audit": audit_page, "large": large_page, "one row": one_row_page, "experiment": experiment_page}
    with ExitStack() as stack:
        yield {kind: stack.enter_context(opened(browser, path)) for kind, path in paths.items()}


@pytest.fixture(params=["audit", "large", "one row", "experiment"])
def tab(request: pytest.FixtureRequest, tabs: dict[str, Any]) -> Any:
    """One of them as it is on a screen in daylight."""
    page = tabs[request.param]
    page.emulate_media(media="screen", color_scheme="light")
    page.set_viewport_size({"width": 1280, "height": 800})
    return page


def paper_of(page: Any) -> str:
    colour: str = page.evaluate("getComputedStyle(document.body).backgroundColor")
    return colour


# Every page


def test_is_whole_and_small_enough_to_mail(tab: Any) -> None:
    assert Path(unquote(urlsplit(tab.url).path)).stat().st_size <= MAX_BYTES
    assert tab.locator("h1").count() == 1
    for link in tab.locator("nav a").all():
        assert tab.locator(link.get_attribute("href")).count() == 1


@pytest.mark.parametrize(("scheme", "paper"), [("light", WHITE), ("dark", BLACK)])
def test_can_be_read(scheme: str, paper: str, tab: Any) -> None:
    tab.emulate_media(color_scheme=scheme)
    assert paper_of(tab) == paper
    drawn = tab.evaluate("getComputedStyle(document.querySelector('.drawing svg')).filter")
    assert drawn.startswith("invert") == (scheme == "dark")
    ratio, text = least_contrast(tab)
    assert ratio >= 4.5, text


def test_fits_a_phone(tab: Any) -> None:
    tab.set_viewport_size(PHONE)
    assert overflow(tab) <= 0


def test_has_names_for_those_who_do_not_see_it(tab: Any) -> None:
    levels = heading_levels(tab)
    assert levels[0] == 1
    assert all(after <= before + 1 for before, after in pairwise(levels))
    assert unnamed(tab) == []
    assert tab.locator("html").get_attribute("lang") == "en"


def test_prints_on_white_paper(tab: Any, tmp_path: Path) -> None:
    tab.emulate_media(color_scheme="dark")
    tab.pdf(path=tmp_path / "page.pdf", format="A4")
    assert (tmp_path / "page.pdf").read_bytes().startswith(b"%PDF")
    tab.emulate_media(media="print", color_scheme="dark")
    assert paper_of(tab) == WHITE
    assert tab.evaluate("getComputedStyle(document.body).color") == "rgb(0, 0, 0)"
    assert not tab.get_by_role("navigation").is_visible()
    assert tab.evaluate("getComputedStyle(document.querySelector('.drawing svg')).filter") == "none"


def test_paper_says_that_a_switch_hides_others(experiment_page: Path, browser: Any) -> None:
    with opened(browser, experiment_page) as page:
        assert not page.locator(".only-print:visible").count()
        page.emulate_media(media="print")
        assert page.locator(".only-print:visible").count() == page.locator(".only-print").count() > 0
    with opened(browser, experiment_page, java_script_enabled=False) as page:
        page.emulate_media(media="print")
        assert not page.locator(".only-print:visible").count()  # for there all are seen


@pytest.mark.parametrize("kind", ["audit_page", "experiment_page"])
def test_is_whole_without_its_script(kind: str, request: pytest.FixtureRequest, browser: Any) -> None:
    with opened(browser, request.getfixturevalue(kind), java_script_enabled=False) as page:
        assert page.locator("[data-panel]:visible").count() == page.locator("[data-panel]").count()
        assert not page.locator("select:visible, input:visible, button:visible").count()


def test_theme_is_the_readers_choice(one_row_page: Path, browser: Any) -> None:
    with opened(browser, one_row_page) as page:
        page.get_by_role("button", name="Dark", exact=True).click()
        assert paper_of(page) == BLACK
        page.reload()
        assert paper_of(page) == BLACK
        page.get_by_role("button", name="Light", exact=True).click()
        assert paper_of(page) == WHITE


# Audits


def test_hostile_names_are_text_and_marks_tell_their_numbers(audit_page: Path, browser: Any) -> None:
    with opened(browser, audit_page) as page:
        assert page.locator("script").count() == 1
        assert page.locator("img, iframe, object").count() == 0
        classes = page.locator("#classes-table tbody th").all_inner_texts()
        assert {HOSTILE, NASTY} <= set(classes)
        assert {HOSTILE, NASTY, "{{ 7 * 7 }}"} <= set(page.locator("#groups-1 tbody th").all_inner_texts())
        assert page.get_by_role("heading", name=f"By {NASTY}").count() == 1
        assert "a&b <i>" in page.locator("h1").inner_text()
        mark = page.locator("#reliability-figure .mark-symbol [aria-label]").last
        mark.hover()
        assert page.get_by_role("tooltip").inner_text() == mark.get_attribute("aria-label")
        page.locator("h1").hover()
        assert not page.locator("#tooltip").is_visible()


def column(page: Any, table: str, heading: str) -> list[str]:
    heads = [head.inner_text().strip() for head in page.locator(f"#{table} thead th").all()]
    return page.locator(f"#{table} tbody tr > :nth-child({heads.index(heading) + 1})").all_inner_texts()  # type: ignore[no-any-return]


def test_tables_are_sorted_by_any_column(large_page: Path, browser: Any) -> None:
    with opened(browser, large_page) as page:
        head = page.locator("#classes-table thead").get_by_role("button", name="Predicted", exact=True)
        head.click()
        counts = [int(text.replace(",", "")) for text in column(page, "classes-table", "Predicted")]
        assert counts == sorted(counts, reverse=True)
        assert counts[0] > counts[-1]
        head.press("Enter")
        assert [int(text.replace(",", "")) for text in column(page, "classes-table", "Predicted")] == counts[::-1]
        assert page.locator("#classes-table th[aria-sort=ascending]").inner_text().strip() == "Predicted"
        # of a class that is never predicted there is no precision: it stays last, whichever way
        for _ in range(2):
            page.locator("#classes-table thead").get_by_role("button", name="Precision", exact=True).click()
            shares = column(page, "classes-table", "Precision")
            assert "–" in shares
            assert "–" not in shares[: shares.index("–")]
            assert set(shares[shares.index("–") :]) == {"–"}


def test_a_class_is_found_among_a_thousand(large_page: Path, browser: Any) -> None:
    with opened(browser, large_page) as page:
        box = page.locator("[data-filter-of=classes-table]")
        box.get_by_label("Find").fill("777")
        shown = page.locator("#classes-table tbody tr:visible")
        assert 1 <= shown.count() < 1000
        assert all("777" in text for text in shown.all_inner_texts())
        assert box.locator("output").inner_text() == f"{shown.count()} of 1000"
        box.get_by_label("Find").fill("")
        assert page.locator("#classes-table tbody tr:visible").count() == 1000
        assert page.locator("#groups-1 tbody tr").count() == 200


# Experiments


def test_title_is_text_and_metrics_are_switched(experiment_page: Path, browser: Any) -> None:
    with opened(browser, experiment_page) as page:
        assert page.locator("h1").inner_text() == page.title() == f"{HOSTILE} & others"
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


@pytest.mark.parametrize("section", ["severity", "epochs"])
def test_losses_are_toggled(section: str, experiment_page: Path, browser: Any) -> None:
    with opened(browser, experiment_page) as page:
        place = page.locator(f"#{section}")

        def visible(loss: str) -> int:
            marks = place.locator(".drawing:visible .role-mark [aria-label]:visible").all()
            labels = [mark.get_attribute("aria-label") for mark in marks]
            return sum(label == loss or label.startswith(f"{loss}: ") for label in labels)

        before = {loss: visible(loss) for loss in LOSSES}
        assert all(before.values())
        place.get_by_role("checkbox", name="Focal", exact=True).uncheck()
        assert {loss: visible(loss) for loss in LOSSES} == {**before, "Focal": 0}
        page.reload()  # what a reader has chosen stays
        assert {loss: visible(loss) for loss in LOSSES} == {**before, "Focal": 0}
        place.get_by_role("button", name="None", exact=True).click()
        assert not any(visible(loss) for loss in LOSSES)
        place.get_by_role("button", name="All", exact=True).click()
        assert {loss: visible(loss) for loss in LOSSES} == before


def test_scores_are_sorted(experiment_page: Path, browser: Any) -> None:
    with opened(browser, experiment_page) as page:
        table = page.locator("#scores table:visible")
        for _ in range(2):
            table.locator("thead button").last.click()
            texts = table.locator("tbody tr > :last-child").all_inner_texts()
            means = [float(re.sub(r"[^\d.].*", "", text.lstrip("↓"))) for text in texts]
            down = table.locator("th[aria-sort=descending]").count() == 1
            assert means == sorted(means, reverse=down)


def test_a_page_that_is_written_anew_is_shown_anew(tmp_path: Path, browser: Any) -> None:
    """What a reader has chosen stays."""
    made = Experiment(losses=("focal",), seeds=1, severities=(1,), metrics=("ece", "accuracy"))
    folder = write_folder(tmp_path / "runs", made)
    write_experiment(folder, figures=(), refresh=1)
    with opened(browser, folder.page_file) as page:
        assert "reloads every 1 seconds" in page.locator("#live").inner_text()
        page.locator("#scores select").select_option(label="Accuracy")
        made = Experiment(losses=("focal", "poly"), seeds=1, severities=(1,), metrics=("ece", "accuracy"))
        write_experiment(write_folder(tmp_path / "runs", made), figures=())
        page.locator("#scores table:visible").get_by_text("Poly").wait_for()
        assert page.locator("#scores table:visible caption").inner_text() == "Accuracy (%) under shift"
        assert not page.locator("#live").count()
