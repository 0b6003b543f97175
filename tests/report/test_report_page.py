"""The page: self-contained, escaped, with contents, alternative texts and pictures that do not disturb each other."""

import re
from html.parser import HTMLParser
from pathlib import Path

import pytest
from test_summary import run_rows, table_of

from calibrant.errors import NoDataError
from calibrant.report.html import inline_svg, write_report
from calibrant.report.tables import Table, make_table

SVG = (
    '<?xml version="1.0"?>\n<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 9 9">'
    '<clipPath id="clip0"><rect/></clipPath><g clip-path="url(#clip0)"/></svg>'
)
HOSTILE = "<script>alert('1')</script> & \"x\""


class Page(HTMLParser):
    """What a page holds: tags with their attributes, and the text."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.open: list[str] = []
        self.feed(text)
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag != "meta":
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data

    def all(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.tags if name == tag]


def a_table(data: str = "cifar10") -> Table:
    metrics = ("accuracy", "ece", "cece", "kse")
    rows = [run_rows({"fog-1": 0.25}, metric=metric, loss=loss, data=data) for metric in metrics for loss in ("a", "b")]
    return make_table(table_of(*rows), "1")


@pytest.fixture
def page(tmp_path: Path) -> str:
    path = tmp_path / "report.html"
    write_report(
        path,
        title=f"Demo {HOSTILE}",
        tables=[a_table(), a_table(HOSTILE)],
        figures=[(f"Error {HOSTILE}", SVG), ("ECE against severity", SVG)],
        facts={"commit": "abc", HOSTILE: HOSTILE},
        notes=["one run failed", HOSTILE],
    )
    return path.read_text(encoding="utf-8")


def test_nothing_is_fetched_and_nothing_runs(page: str) -> None:
    parsed = Page(page)
    assert not {tag for tag, _ in parsed.tags} & {"script", "link", "iframe", "object", "embed", "img"}
    policy = next(a["content"] for a in parsed.all("meta") if a.get("http-equiv") == "Content-Security-Policy")
    assert policy is not None
    assert "default-src 'none'" in policy
    assert all((a["href"] or "").startswith("#") for a in parsed.all("a"))
    assert re.findall(r"url\((?!#)|@import|\ssrc=|\son\w+=", page) == []


def test_what_others_wrote_is_text(page: str) -> None:
    parsed = Page(page)
    assert parsed.text.count(HOSTILE) == 2 + 2 + 2 + 1 + 1  # title, facts, figure, data set, note


def test_contents_lead_to_every_part(page: str) -> None:
    parsed = Page(page)
    ids = [a["id"] for _, a in parsed.tags if "id" in a]
    assert len(ids) == len(set(ids))
    wanted = ["facts", "tables", "table-1", "table-2", "figures", "figure-1", "figure-2", "notes"]
    assert [a["href"] for a in parsed.all("a")] == [f"#{name}" for name in wanted]
    assert set(wanted) <= set(ids)


def test_pictures_have_a_text_and_a_clip_path_of_their_own(page: str) -> None:
    parsed = Page(page)
    pictures = [a for a in parsed.all("div") if a.get("role") == "img"]
    assert [a["aria-label"] for a in pictures] == [f"Error {HOSTILE}", "ECE against severity"]
    clips = [a["id"] for a in parsed.all("clippath")]
    assert [a["clip-path"] for a in parsed.all("g")] == [f"url(#{name})" for name in clips]
    assert len(set(clips)) == 2
    assert "<?xml" not in page


def test_tables_scroll_in_their_box_and_say_what_their_heads_are(page: str) -> None:
    parsed = Page(page)
    assert page.count('<div class="scroll"><table>') == 2
    assert {a.get("scope") for a in parsed.all("th")} == {"col", "colgroup", "row"}
    assert len(parsed.all("caption")) == 2


def test_light_dark_phone_and_print(page: str) -> None:
    for wanted in ("prefers-color-scheme: dark", "@media print", "width=device-width", 'lang="en"'):
        assert wanted in page


def test_parts_that_are_empty_are_not_there(tmp_path: Path) -> None:
    write_report(tmp_path / "a.html", title="bare")
    parsed = Page((tmp_path / "a.html").read_text(encoding="utf-8"))
    assert parsed.all("h2") == []
    assert parsed.all("a") == []


def test_the_same_report_is_the_same_file(tmp_path: Path) -> None:
    for name in ("a", "b"):
        write_report(tmp_path / name, title="Demo", tables=[a_table()], figures=[("x", SVG)])
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


def test_a_folder_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(NoDataError, match="cannot be written"):
        write_report(tmp_path / "none" / "report.html", title="Demo")


def test_words_that_only_look_like_ids_stay() -> None:
    svg = """<svg data-id="1" aria-label="a > b" id='k'><text>id="2" url(#3)</text><a xlink:href="#c"/></svg>"""
    assert inline_svg(svg, "f-") == svg.replace("'k'", "'f-k'").replace("#c", "#f-c")
