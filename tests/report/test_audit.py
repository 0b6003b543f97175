"""The page of an audit: complete in edge cases, escaped, small, reproducible."""

import re
import sys
from dataclasses import replace
from datetime import UTC, datetime
from html import unescape
from pathlib import Path
from typing import Any

import pytest
import torch

from calibrant.audits import GroupFindings, audit
from calibrant.audits.verdict import VerdictKind
from calibrant.errors import InvalidInputError, MissingExtraError, ResourceError
from calibrant.metrics import METRICS, compare, score
from calibrant.predictions import Predictions
from calibrant.report.audit import provenance, verdict_css_class
from calibrant.report.numbers import metric_text, percent
from calibrant.report.page import check_report
from made.audits import make_groups, make_rows, make_verdict, save_parts
from made.page import Page

SECTIONS = (
    "scorecard", "reliability", "confidences", "decision", "classes", "temperature", "recommendations", "errors",
    "provenance",
)  # fmt: skip
HOSTILE = "<script>alert(1)</script>"
METRIC_NAMES = ("accuracy", "confidence", "ece", "cece", "nll", "aurc")


class AuditPage(Page):
    def __init__(self, path: Path) -> None:
        self.raw = path.read_text(encoding="utf-8")
        super().__init__(self.raw)

    @property
    def ids(self) -> list[str | None]:
        return self.values("id")

    def section(self, start: str) -> str:
        """The text from a tag to the end of its section."""
        html = self.raw[self.raw.index(start) :].partition("</section>")[0]
        return " ".join(unescape(re.sub(r"<[^>]*>", "", html.partition(">")[2])).split())

    def table(self, name: str) -> list[list[str]]:
        body = self.raw[self.raw.index(f'<table id="{name}"') :].split("</table>")[0]
        rows = re.findall(r"<tr>(.*?)</tr>", body, re.DOTALL)
        return [re.findall(r"<t[hd][^>]*>(.*?)</t[hd]>", row, re.DOTALL) for row in rows]


def page_of(folder: Path, rows: Any, *, metrics: Any = METRIC_NAMES, command: Any = (), **options: Any) -> AuditPage:
    path = folder / "audit.html"
    audit(rows, **options).save_html(path, metrics=metrics, command=command)
    return AuditPage(path)


def test_all_sections(tmp_path: Path) -> None:
    rows = make_rows(names=True)
    other = Predictions.from_logits(rows.logits / 2, rows.labels, class_names=rows.class_names)
    scan = Predictions.scan(save_parts(rows, tmp_path))
    options = {"by": ["site"], "weights": "w", "compare_metrics": ["nll"], "gates": ["ece > 0", "nll > 9"]}
    page = page_of(tmp_path, scan, other=other, **options)
    sections = [*SECTIONS[:4], "groups", *SECTIONS[4:8], "comparison", "provenance"]
    assert [name for name in page.ids if name in sections] == sections
    assert len(page.ids) == len(set(page.ids))
    assert page.values("href") == ["#main", *(f"#{name}" for name in sections)]
    assert page.raw.count("<svg") == 3
    card = score(rows, weights="w", metrics=METRIC_NAMES)
    table = {row[0]: row for row in page.table("scorecard-table")[1:]}
    low, high = card.interval("ece")
    assert list(table) == list(card.names)
    assert table["ece"][2:5] == [f"{card.ece:.4f}", f"{low:.4f} to {high:.4f}", f"{card.noise_floor('ece'):.4f}"]
    assert table["nll"][1] == METRICS["nll"].title
    assert sorted(row[0] for row in page.table("groups-1")[1:]) == ["A", "B", "C"]
    assert {row[0] for row in page.table("classes-table")[1:]} == set(rows.class_names or ())
    assert len(page.table("errors-table")) == 26
    [nll] = compare(rows, other, metrics=["nll"], weights="w")
    lead = page.section('<div class="lead bad"')
    for text, start in {
        metric_text(nll.difference, "+"): "comparison",
        f"Failed: ece > 0 (ece = {card.ece:.6g})": "scorecard",
        f"Passed: nll > 9 does not hold (nll = {card.nll:.6g})": "scorecard",
        rows.fingerprint: "provenance",
        "column w; 43 rows of weight 0 are left out": "provenance",
        "calibrant fit val.parquet --calibrator temperature -o t.json": "temperature",
    }.items():
        assert text in page.section(f'<section id="{start}"')
    for text in (
        "Overconfident: mean confidence exceeds",
        "NLL: the other model is significantly better",
        "The audit fails 1 of 2 gates",
    ):
        assert text in lead


@pytest.mark.slow
@pytest.mark.parametrize(
    ("rows", "options"),
    [
        pytest.param(Predictions.from_logits([[9.0, 0.0]], [1]), {}, id="one error"),
        pytest.param(Predictions.from_logits([[9.0, 0.0]], [0]), {}, id="one correct row"),
        pytest.param(Predictions.from_logits([[1.0, 0.0]] * 40, [0] * 40), {}, id="all correct"),
        pytest.param(Predictions.from_logits([[1.0, 0.0]] * 40, [1] * 40), {}, id="all incorrect"),
        pytest.param(Predictions.from_logits([[0.0, -float("inf")]] * 40, [0] * 39 + [1]), {}, id="certain"),
        pytest.param(make_rows(n=40, n_classes=2), {"weights": "w", "by": ["case_id"]}, id="groups of one row"),
        pytest.param(make_rows(n=60), {"level": 0.999, "n_bins": 1}, id="one bin"),
        pytest.param(make_rows(n=60), {"metrics": ["nll"], "by": ["site"]}, id="one metric"),
    ],
)
def test_edge_cases(tmp_path: Path, rows: Predictions, options: dict[str, Any]) -> None:
    page = page_of(tmp_path, rows, **{"metrics": None, **options})
    assert set(SECTIONS) < set(page.ids)
    links = {attributes["href"] for tag, attributes in page.tags if tag == "a"}
    assert links == {"#main", *(f"#{name}" for name in [*SECTIONS, *(["groups"] if "by" in options else [])])}
    assert page.raw.count("<svg") == 3
    prose = re.sub(r"<(svg|style|script).*?</\1>", "", page.raw, flags=re.DOTALL)
    assert re.findall(r"\bnan\b|\bNone\b(?! of)|\{\{|Infinity", prose) == []


@pytest.mark.slow
def test_what_can_be_decided(tmp_path: Path) -> None:
    rows = make_rows(n=2000, n_classes=3, scale=1.0)
    logits = 6 * rows.logits
    labels = logits.softmax(1).multinomial(1, generator=torch.Generator().manual_seed(0))[:, 0]
    sure = Predictions.from_logits(logits, labels, columns=rows.columns)
    found, page = audit(sure, by="site").decision, page_of(tmp_path, sure, by="site")
    assert found.threshold is not None
    handed_over = [[row[0], row[1], row[2]] for row in page.table("handed-over-1")[1:]]
    assert handed_over == [[g.value, f"{g.n_rows:,}", percent(g.share)] for g in found.groups["site"]]
    sets = page.table("sets-table")[1:]
    assert [row[:2] for row in sets] == [[f"{100 * s.coverage:.0f} %", f"{s.mean_size:.2f}"] for s in found.sets]
    [chart] = re.findall(r'aria-label="(Risk-coverage curve[^"]*)"', page.raw)
    assert chart.endswith(
        f"certified: the {percent(1 - found.overall.share)} most confident rows, observed error rate "
        f"{percent(found.overall.error or 0)}."
    )
    text = page.section('<section id="decision"')
    assert "can be accepted: at most 5 % of them are wrong (95 % confidence)" in text
    assert "calibrant certify val.parquet --max-error 0.05 -o threshold.json" in text
    void = page_of(tmp_path, sure, by="site", weights="w")
    assert "because rows have weights" in void.section('<section id="decision"')
    assert "calibrant certify" not in void.section('<section id="decision"')
    assert {"sets-table", "handed-over-1"}.isdisjoint(void.ids)


def test_few_errors_give_the_limits_of_their_count(tmp_path: Path) -> None:
    """Of 1 error in 50 at confidence 1: Clopper and Pearson's are 0.0005 to 0.1065."""
    rows = Predictions.from_logits([[500.0, 0.0]] * 50, [1, *[0] * 49])
    table = {row[0]: row for row in page_of(tmp_path, rows, metrics=["ece", "kse", "cece"]).table("scorecard-table")}
    for name in ("ece", "kse", "cece"):
        low, high = map(float, table[name][3].split(" to "))
        assert 0 <= low < 0.004, name
        assert high == pytest.approx(0.1065, rel=0.15), name


def test_user_text_is_escaped(tmp_path: Path) -> None:
    rows = make_rows(n=80)
    columns = {HOSTILE: [HOSTILE, "b"] * 40, "name": [f"{HOSTILE}\x1b[31m"] * 80, "id": ["\u202egpj.exe"] * 80}
    class_names = [HOSTILE, "</style>", "&amp;", "'\""]
    folder = tmp_path / "<script>alert(1)<" / "script>"
    folder.mkdir(parents=True)
    Predictions.from_logits(rows.logits, rows.labels, columns=columns, class_names=class_names).save(
        folder / "x.parquet"
    )
    options = {"other": folder, "compare_metrics": ["nll"], "command": ("calibrant", HOSTILE)}
    page = page_of(tmp_path, folder, by=[HOSTILE], **options)
    for text in ("<script>alert", "\x1b", "\u202e"):
        assert text not in page.raw
    assert len(page.all("script")) == 1
    for section in ("classes", "groups", "errors", "comparison"):
        assert HOSTILE in page.section(f'<section id="{section}"')
    assert page.section('<section id="provenance"').count(HOSTILE) >= 3


@pytest.mark.slow
def test_a_thousand_classes_and_two_hundred_groups_stay_small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("calibrant.audits.sample.MIN_SAMPLE_ROWS", 100)
    monkeypatch.setattr("calibrant.audits.sample.MAX_SAMPLE_LOGITS", 1)
    columns = {"hospital": [f"hospital {i % 200}" for i in range(400)]}
    rows = make_rows(n=400, n_classes=1000, scale=4.0, names=True, **columns)
    page = page_of(tmp_path, rows, by=["hospital"])
    assert len(page.raw.encode()) < 2_500_000
    assert len(page.table("classes-table")) == 1001
    assert len(page.table("groups-1")) == 201
    assert page.values("data-filter-of") == ["groups-1", "classes-table"]


@pytest.mark.slow
def test_the_same_rows_give_the_same_bytes(tmp_path: Path) -> None:
    paths = save_parts(make_rows(n=230), tmp_path, n_files=23)
    pages = []
    for name in ("a.html", "b.html"):
        now = datetime(2026, 1, 2, 3, 4, tzinfo=UTC)
        audit(paths).save_html(tmp_path / name, metrics=METRIC_NAMES, command=["calibrant", "x"], now=now)
        pages.append((tmp_path / name).read_text(encoding="utf-8"))
    assert pages[0] == pages[1]
    for text in ("2026-01-02 03:04 UTC", f"{paths[19]}, and 3 more", "Audit of 23 files"):
        assert text in pages[0]


@pytest.mark.slow
def test_no_secret_of_a_url_is_in_the_page(tmp_path: Path) -> None:
    make_rows(n=150).save(tmp_path / "a.parquet")
    url = "s3://KEY:sec/ret@bucket/a.parquet?sig=it's"
    scan = Predictions.scan(tmp_path / "a.parquet")
    (source,) = scan.sources
    table = replace(source.table, name=url, parts=tuple(replace(part, url=url) for part in scan.parts))
    secret = replace(scan, sources=(replace(source, table=table),))
    command = ("calibrant", "audit", url, "202?/a=1/*")
    page = page_of(tmp_path, secret, other=secret, compare_metrics=["nll"], command=command)
    for text in ("KEY", "sec/ret", "sig=", "it's", "it&#39;s"):
        assert text not in page.raw
        assert text not in str(audit(secret).to_dict(["ece"]))
    assert page.raw.count("s3://…@bucket/a.parquet?…") >= 4 + 25  # title, files, command; each error
    assert "'202?/a=1/*'" in page.section('<section id="provenance"')


BEFORE = '<!DOCTYPE html><meta name="generator" content="calibrant"> before'


def test_check_report(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "folder.html").mkdir()
    old = tmp_path / "old.html"
    old.write_text(BEFORE)
    for name, error, message in (
        ("audit.parquet", InvalidInputError, "report must be a file ending in .html or .htm, got"),
        ("audit", InvalidInputError, "report must be a file ending in"),
        ("none/audit.html", ResourceError, "cannot be written: No such file or directory"),
        ("folder.html", ResourceError, "cannot be written: Is a directory"),
    ):
        with pytest.raises(error, match=message):
            check_report(tmp_path / name)
    check_report(old)
    assert old.read_text() == BEFORE
    assert sorted(path.name for path in tmp_path.iterdir()) == ["folder.html", "old.html"]
    monkeypatch.setitem(sys.modules, "vl_convert", None)
    with pytest.raises(MissingExtraError, match=r"pip install 'calibrant\[report\]'"):
        check_report(old)


def test_marks_have_descriptions(tmp_path: Path) -> None:
    rows = make_rows(n=1000)
    labels = [label or "" for label in page_of(tmp_path, rows).values("aria-label")]
    bins = [label for label in labels if re.match(r"confidence 0\.93 to 1\.00: \d+ rows, accuracy [\d.]+ % \(", label)]
    assert len(bins) == 4  # band, interval, point and share of the last bin
    curve = score(rows).reliability()
    assert f"{int(curve.count[-1])} rows, accuracy {100 * float(curve.accuracy[-1]):.1f} %" in bins[0]
    for pattern in (
        r"confidence 0\.98 to 1\.00: \d+ rows, \d+ correct, \d+ incorrect",
        r"the 80\.0 % most confident rows: error rate ",
    ):
        assert any(re.match(pattern, label) for label in labels)


def test_metrics_from_a_histogram_have_an_error_bound(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("calibrant.audits.statistics.MAX_HISTOGRAM_BINS", 16)
    found = audit(save_parts(make_rows(), tmp_path, n_files=1))
    bound = found.scorecard.error_bound("kse")
    assert bound > 0.001
    found.save_html(tmp_path / "audit.html", metrics=["ece", "kse"])
    table = {row[0]: row for row in AuditPage(tmp_path / "audit.html").table("scorecard-table")}
    assert table["Metric"][5] == "Approximation error"
    assert (table["kse"][5], table["ece"][5]) == (f"{bound:.4f}", "0.0000")


def test_several_shifts_may_contain_the_same_images(tmp_path: Path) -> None:
    for i in range(2):
        make_rows(n=60, corruption=["fog"] * 60).save(tmp_path / f"fog-{i}.parquet")
    assert "not independent" in page_of(tmp_path, tmp_path).raw
    assert "not independent" not in page_of(tmp_path, tmp_path / "fog-0.parquet").raw


@pytest.mark.parametrize(
    ("kind", "upper", "wanted"),
    [("no_evidence", 0.008, "good"), ("no_evidence", 0.012, ""), ("too_few_rows", 0.008, ""),
     ("overconfident", 0.008, "bad")],
)  # fmt: skip
def test_the_lead_is_green_only_where_any_miscalibration_is_negligible(
    kind: VerdictKind, upper: float, wanted: str
) -> None:
    found = replace(audit(make_rows(n=20)), verdict=make_verdict(kind, ece_interval=(0.0, upper)))
    assert verdict_css_class(found) == wanted
    groups = GroupFindings("site", (), 1, None, score(make_groups(("a", 1, 1.0)), by="site"))
    assert verdict_css_class(replace(found, groups={"site": groups})) == "bad"


@pytest.mark.parametrize(
    ("first", "wanted"), [(1.0, "column u"), (0.0, "column u; 1 row of weight 0 is left out")], ids=["none", "one"]
)
def test_rows_of_weight_0_are_counted(first: float, wanted: str) -> None:
    found = audit(make_rows(n=40, u=[first] + [1.0] * 39), weights="u")
    assert dict(provenance(found, datetime.now(UTC)))["weights"] == wanted
