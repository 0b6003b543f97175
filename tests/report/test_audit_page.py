"""The page of an audit: whole at every edge, escaped, small, the same bytes again."""

import re
import sys
from dataclasses import replace
from datetime import UTC, datetime
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from calibrant._files import without_secrets
from calibrant.audits import audit
from calibrant.errors import InvalidInputError, MissingExtraError, ResourceError
from calibrant.metrics import METRICS, compare, score
from calibrant.predictions import Predictions
from calibrant.report.audit import check_report
from made.audits import made, saved

SECTIONS = ["scorecard", "reliability", "confidences", "risk", "classes", "temperature", "todo", "errors", "provenance"]
HOSTILE = "<script>alert(1)</script>"
FEW = ("accuracy", "confidence", "ece", "cece", "nll", "aurc")
VOID = ("meta", "input", "br")


class Page(HTMLParser):
    """Tags with their attributes, and the text inside the elements of each id."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.raw = path.read_text(encoding="utf-8")
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.open: list[tuple[str, str | None]] = []
        self.texts: dict[str, str] = {}
        self.feed(self.raw)
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append((tag, dict(attrs).get("id") or ("lead" if ("class", "lead bad") in attrs else None)))

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop()[0] == tag

    def handle_data(self, data: str) -> None:
        for _, name in self.open:
            if name is not None:
                self.texts[name] = self.texts.get(name, "") + data

    @property
    def ids(self) -> list[str]:
        return [attributes["id"] or "" for _, attributes in self.tags if "id" in attributes]

    def text(self, name: str) -> str:
        return " ".join(self.texts[name].split())

    def rows(self, table: str) -> list[list[str]]:
        body = self.raw[self.raw.index(f'<table id="{table}"') :].split("</table>")[0]
        rows = re.findall(r"<tr>(.*?)</tr>", body, re.DOTALL)
        return [re.findall(r"<t[hd][^>]*>(.*?)</t[hd]>", row, re.DOTALL) for row in rows]


def page_of(tmp_path: Path, rows: Any, *, metrics: Any = FEW, command: tuple[str, ...] = (), **options: Any) -> Page:
    path = tmp_path / "audit.html"
    audit(rows, **options).save_html(path, metrics=metrics, command=command)
    return Page(path)


def test_all_sections_of_files_with_groups_and_another_model(tmp_path: Path) -> None:
    rows = made(names=True)
    other = Predictions.from_logits(rows.logits / 2, rows.labels, class_names=rows.class_names)
    scan = Predictions.scan(saved(rows, tmp_path))
    page = page_of(
        tmp_path, scan, by=["site"], other=other, weights="w", compared=["nll"], gates=["ece > 0", "nll > 9"]
    )
    assert [name for name in page.ids if name in (*SECTIONS, "groups", "comparison")] == [
        *SECTIONS[:4], "groups", *SECTIONS[4:8], "comparison", "provenance"
    ]  # fmt: skip
    assert len(page.ids) == len(set(page.ids))
    links = [attributes["href"] for tag, attributes in page.tags if tag == "a"]
    assert links == ["#main", *(f"#{name}" for name in page.ids if name in (*SECTIONS, "groups", "comparison"))]
    assert page.raw.count("<svg") == 3
    card = score(rows, weights="w", metrics=FEW)
    assert [row[0] for row in page.rows("scorecard-table")[1:]] == list(card.names)
    by_name = {row[0]: row for row in page.rows("scorecard-table")[1:]}
    low, high = card.interval("ece")
    assert by_name["ece"][2:5] == [f"{card.ece:.4f}", f"{low:.4f} to {high:.4f}", f"{card.noise_floor('ece'):.4f}"]
    assert by_name["nll"][1] == METRICS["nll"].title
    assert sorted(row[0] for row in page.rows("groups-1")[1:]) == ["A", "B", "C"]
    assert {row[0] for row in page.rows("classes-table")[1:]} == set(rows.class_names or ())
    assert len(page.rows("errors-table")) == 26
    [nll] = compare(rows, other, metrics=["nll"], weights="w")
    assert f"{nll.difference:+.4f}" in page.text("comparison")
    lead = page.text("lead")
    for sentence in (
        "Overconfident by",
        "In NLL the other model is better beyond",
        "1 of 2 conditions of --fail-if hold",
    ):
        assert sentence in lead
    assert f"Failed: fails if ece > 0 (it is {card.ece:.6g})" in page.text("scorecard")
    assert f"Passed: fails if nll > 9 (it is {card.nll:.6g})" in page.text("scorecard")
    facts = page.text("provenance")
    assert rows.fingerprint in facts
    assert "column w; 43 rows of weight 0 left out" in facts
    assert "calibrant fit val.parquet --calibrator temperature -o t.json" in page.text("temperature")


@pytest.mark.parametrize(
    ("rows", "options"),
    [
        pytest.param(Predictions.from_logits([[9.0, 0.0]], [1]), {}, id="one error"),
        pytest.param(Predictions.from_logits([[9.0, 0.0]], [0]), {}, id="one correct row"),
        pytest.param(Predictions.from_logits([[1.0, 0.0]] * 40, [0] * 40), {}, id="all correct"),
        pytest.param(Predictions.from_logits([[1.0, 0.0]] * 40, [1] * 40), {}, id="all incorrect"),
        pytest.param(Predictions.from_logits([[0.0, -float("inf")]] * 40, [0] * 39 + [1]), {}, id="certain"),
        pytest.param(made(n=40, n_classes=2), {"weights": "w", "by": ["case_id"]}, id="groups of one row"),
        pytest.param(made(n=60), {"level": 0.999, "n_bins": 1}, id="one bin"),
        pytest.param(made(n=60), {"metrics": ["nll"], "by": ["site"]}, id="one metric"),
    ],
)
def test_the_page_is_whole_at_every_edge(tmp_path: Path, rows: Predictions, options: dict[str, Any]) -> None:
    page = page_of(tmp_path, rows, **{"metrics": None, **options})
    assert set(SECTIONS) < set(page.ids)
    links = {attributes["href"] for tag, attributes in page.tags if tag == "a"}
    assert links == {"#main", *(f"#{name}" for name in [*SECTIONS, *(["groups"] if "by" in options else [])])}
    assert page.raw.count("<svg") == 3
    prose = re.sub(r"<(svg|style|script).*?</\1>", "", page.raw, flags=re.DOTALL)
    assert re.findall(r"\bnan\b|\bNone\b(?! of)|\{\{|Infinity", prose) == []


def test_few_errors_have_no_interval_that_is_too_narrow(tmp_path: Path) -> None:
    rows = Predictions.from_logits([[500.0, 0.0]] * 50, [1, *[0] * 49])
    table = {row[0]: row for row in page_of(tmp_path, rows, metrics=["ece", "kse", "cece"]).rows("scorecard-table")}
    assert table["ece"][3] == "5.06e-04 to 0.1065"  # Clopper and Pearson's of 1 in 50
    assert table["cece"][3] == table["ece"][3]
    assert table["kse"][3] == "0.0000 to 0.1065"


def test_what_a_user_wrote_is_text(tmp_path: Path) -> None:
    rows = made(n=80)
    columns = {HOSTILE: [HOSTILE, "b"] * 40, "name": [f"{HOSTILE}\x1b[31m"] * 80, "id": ["\u202egpj.exe"] * 80}
    hostile = Predictions.from_logits(
        rows.logits, rows.labels, columns=columns, class_names=[HOSTILE, "</style>", "&amp;", "'\""]
    )
    folder = tmp_path / "<script>alert(1)<" / "script>"
    folder.mkdir(parents=True)
    hostile.save(folder / "x.parquet")
    page = page_of(tmp_path, folder, by=[HOSTILE], other=folder, compared=["nll"], command=("calibrant", HOSTILE))
    assert "<script>alert" not in page.raw
    assert [tag for tag, _ in page.tags].count("script") == 1
    assert "\x1b" not in page.raw
    assert "\u202e" not in page.raw
    for section in ("classes", "groups", "errors", "comparison"):
        assert HOSTILE in page.text(section)
    assert page.text("provenance").count(HOSTILE) >= 3


def test_a_thousand_classes_and_two_hundred_groups_stay_small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("calibrant.audits.sample.MIN_ROWS", 100)
    monkeypatch.setattr("calibrant.audits.sample.MAX_ELEMENTS", 1)
    columns = {"hospital": [f"hospital {i % 200}" for i in range(1000)]}
    rows = made(n=1000, n_classes=1000, scale=4.0, names=True, **columns)
    page = page_of(tmp_path, rows, by=["hospital"])
    assert len(page.raw.encode()) < 2_500_000
    assert len(page.rows("classes-table")) == 1001
    assert len(page.rows("groups-1")) == 201
    filters = [attributes["data-filter-of"] for _, attributes in page.tags if "data-filter-of" in attributes]
    assert filters == ["groups-1", "classes-table"]


def test_the_same_rows_give_the_same_bytes(tmp_path: Path) -> None:
    paths = saved(made(), tmp_path)
    pages = []
    for _ in range(2):
        path = tmp_path / "audit.html"
        audit(paths).save_html(
            path, metrics=FEW, command=["calibrant", "x"], now=datetime(2026, 1, 2, 3, 4, tzinfo=UTC)
        )
        pages.append(path.read_bytes())
    assert pages[0] == pages[1]
    assert b"2026-01-02 03:04 UTC" in pages[0]


def test_files_are_named_up_to_twenty(tmp_path: Path) -> None:
    paths = saved(made(n=230), tmp_path, n_files=23)
    page = page_of(tmp_path, Predictions.scan(paths))
    assert f"{paths[19]}, and 3 more" in page.text("provenance")
    assert "Audit of 23 files" in page.raw


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("s3://key:secret@bucket/a", "s3://…@bucket/a"),
        ("s3://KEY:ab/cd@bucket/a", "s3://…@bucket/a"),
        ("s3://KEY:a?b#c@bucket/a", "s3://…@bucket/a"),
        ("https://token@x.org/a", "https://…@x.org/a"),
        ("--compare=s3://key:secret@bucket/a", "--compare=s3://…@bucket/a"),
        ("simplecache::s3://key:secret@bucket/a", "simplecache::s3://…@bucket/a"),
        ("zip://a.parquet::https://u:p@x.org/a.zip?sig=1", "zip://a.parquet::https://…@x.org/a.zip?…"),
        ("https://x.org/a?X-Amz-Signature=a'b&b=1", "https://x.org/a?…"),
        ("https://x.org/a#access_token=1", "https://x.org/a#…"),
        ("hf://datasets/me/rows@main/a.parquet", "hf://datasets/me/rows@main/a.parquet"),
        ("data/year=202?/month=01/*.parquet", "data/year=202?/month=01/*.parquet"),
        ("me@home.org/file?", "me@home.org/file?"),
    ],
)
def test_secrets_of_urls_are_not_shown(text: str, shown: str) -> None:
    assert without_secrets(text) == shown


def test_no_secret_of_a_file_is_anywhere_in_the_page(tmp_path: Path) -> None:
    made().save(tmp_path / "a.parquet")
    url = "s3://KEY:sec/ret@bucket/a.parquet?sig=it's"
    scan = Predictions.scan(tmp_path / "a.parquet")
    footer = replace(scan.footers[0], url=url, parts=tuple(replace(part, url=url) for part in scan.parts))
    secret = replace(scan, footers=(footer,))
    page = page_of(tmp_path, secret, other=secret, compared=["nll"], command=("calibrant", "audit", url, "202?/a=1/*"))
    for text in ("KEY", "sec/ret", "sig=", "it's", "it&#39;s"):
        assert text not in page.raw
        assert text not in str(audit(secret).to_dict(["ece"]))
    assert page.raw.count("s3://…@bucket/a.parquet?…") >= 4 + 25  # title, files, command; each error
    assert "'202?/a=1/*'" in page.text("provenance")


def test_where_a_page_cannot_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("audit.parquet", "audit"):
        with pytest.raises(InvalidInputError, match=r"report must be a file of \.html, \.htm, got"):
            check_report(tmp_path / name)
    with pytest.raises(ResourceError, match="cannot be written: No such file or directory"):
        check_report(tmp_path / "none" / "audit.html")
    (tmp_path / "folder.html").mkdir()
    with pytest.raises(InvalidInputError, match="it is a folder"):
        check_report(tmp_path / "folder.html")
    old = tmp_path / "old.html"
    old.write_text("as it was")
    check_report(old)
    assert old.read_text() == "as it was"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["folder.html", "old.html"]
    monkeypatch.setitem(sys.modules, "vl_convert", None)
    with pytest.raises(MissingExtraError, match=r"pip install 'calibrant\[report\]'"):
        check_report(old)


def test_marks_say_what_they_are(tmp_path: Path) -> None:
    rows = made(n=1000)
    page = page_of(tmp_path, rows)
    labels = [attributes.get("aria-label") or "" for _, attributes in page.tags]
    bins = [label for label in labels if re.match(r"confidence 0\.93 to 1\.00: \d+ rows, accuracy [\d.]+ % \(", label)]
    assert len(bins) == 4  # band, interval, point and share of the last bin
    curve = score(rows).reliability()
    assert f"{int(curve.count[-1])} rows, accuracy {100 * float(curve.accuracy[-1]):.1f} %" in bins[0]
    assert [
        label for label in labels if re.match(r"confidence 0\.98 to 1\.00: \d+ rows, \d+ correct, \d+ incorrect", label)
    ]
    assert [label for label in labels if label.startswith("the most confident 80.0 % of rows: error ")]


def test_metrics_that_a_stream_reads_from_a_histogram_say_how_far_off_they_may_be(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("calibrant.audits.gather.MAX_HISTOGRAM_BINS", 16)
    found = audit(saved(made(), tmp_path, n_files=1))
    bound = found.scorecard.error_bound("kse")
    assert bound > 0.001
    found.save_html(tmp_path / "audit.html", metrics=["ece", "kse"])
    table = {row[0]: row for row in Page(tmp_path / "audit.html").rows("scorecard-table")}
    assert table["Metric"][5] == "Off by at most"
    assert (table["kse"][5], table["ece"][5]) == (f"{bound:.4f}", "0.0000")


def test_files_of_several_shifts_may_show_the_same_images(tmp_path: Path) -> None:
    for number in range(2):
        made(n=60, corruption=["fog"] * 60).save(tmp_path / f"fog-{number}.parquet")
    assert "not independent" in page_of(tmp_path, tmp_path).raw
