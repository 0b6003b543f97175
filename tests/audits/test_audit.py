"""The audit: the same for predictions and files, its record in the documented schema, recommendations, errors."""

import json
import math
import re
from pathlib import Path
from typing import Any

import pytest
import torch

import calibrant as cb
from calibrant.audits import Audit, Gate, audit
from calibrant.errors import InvalidInputError, UnknownNameError
from calibrant.predictions import Predictions
from calibrant.report.audit import verdict_css_class
from calibrant.report.audit_words import ADVICE_SENTENCES, advice_sentence, summary
from made.audits import make_groups, make_rows, save_parts

DOCS = Path(__file__).parents[2] / "docs" / "audit.md"
NAMED = ("ids", "metrics", "groups", "worst", "changes")  # maps whose keys are names of the user's or of a table


def keys_of(value: Any, path: str = "") -> dict[str, set[str]]:
    """The keys of every record inside a value, by its path; ``*`` stands for names, ``[]`` for items."""
    found: dict[str, set[str]] = {}
    if isinstance(value, list):
        inside = [(f"{path}[]", item) for item in value]
    elif isinstance(value, dict):
        named = path.rpartition(".")[2] in NAMED
        inside = [(f"{path}.*" if named else f"{path}.{key}".strip("."), item) for key, item in value.items()]
        found = {} if named else {path or "top": set(value)}
    else:
        inside = []
    for where, item in inside:
        for name, keys in keys_of(item, where).items():
            found[name] = found.get(name, set()) | keys
    return found


@pytest.fixture(scope="module")
def complete(tmp_path_factory: pytest.TempPathFactory) -> Audit:
    """An audit of files with groups, weights, another model and gates."""
    rows = make_rows(n=600, names=True, patient_id=[i // 2 for i in range(600)])
    scan = Predictions.scan(save_parts(rows, tmp_path_factory.mktemp("rows")))
    other = Predictions.from_logits(rows.logits / 2, rows.labels, class_names=rows.class_names)
    gates = [Gate("ece", ">", 0.05), "accuracy < 0.1"]
    return audit(
        scan, by="site", weights="w", other=other, compare_metrics=["nll", "ece"], gates=gates, level=0.9, seed=3
    )


@pytest.mark.slow
def test_the_record_has_the_documented_schema(complete: Audit) -> None:
    record = complete.to_dict()
    record["decision"] = audit(make_groups(("a", 300, 1.0), ("b", 10, 1.0)), by="site").to_dict()["decision"]
    assert json.loads(json.dumps(record, allow_nan=False)) == record
    section, _, actions = DOCS.read_text(encoding="utf-8").partition("## The JSON")[2].partition("The actions.")
    assert set(re.findall(r"^\| `(\w+)` \|", actions, re.MULTILINE)) == set(ADVICE_SENTENCES)
    table = re.findall(r"^\| (?:`([^`]+)`|top) \| (.*?) \|", section, re.MULTILINE)
    documented = {path or "top": set(re.findall("`([^`]+)`", keys)) for path, keys in table}
    found = keys_of(record)
    assert found.pop("groups.*.groups[].verdict") == documented["verdict"]
    assert found.pop("groups.*.groups[].metrics.*") == documented["metrics.*"]
    for advice in record["advice"]:
        assert set(advice) <= documented["advice[]"]
    found = {path: keys for path, keys in found.items() if not path.startswith("advice[]")}
    del documented["advice[]"]
    assert found == documented


def test_the_record_agrees_with_the_library(complete: Audit) -> None:
    record, card = complete.to_dict(["nll", "ece"]), complete.scorecard
    assert list(record["metrics"]) == ["ece", "nll"]
    assert record["metrics"]["ece"] == {
        "value": card.ece,
        "interval": list(card.interval("ece", level=0.9, seed=3)),
        "noise_floor": card.noise_floor("ece", seed=3),
        "error_bound": 0.0,
    }
    assert record["verdict"]["kind"] == complete.verdict.kind == "overconfident"
    assert record["verdict"]["gap"] == complete.verdict.confidence - complete.verdict.accuracy > 0
    assert [advice["action"] for advice in record["advice"]] == [advice.action for advice in complete.advice]
    site = record["groups"]["site"]
    assert [group["group"] for group in site["groups"]] == ["A", "B", "C"]
    assert site["worst"]["ece"] == max(site["groups"], key=lambda group: group["metrics"]["ece"]["value"])["group"]
    assert site["worst_first"] == [group.value for group in complete.groups["site"].worst_first]
    assert [row["metric"] for row in record["comparison"] if row["by"] is None] == ["ece", "nll"]
    assert {row["group"] for row in record["comparison"] if row["by"] == "site"} == {"A", "B", "C"}
    curve = card.reliability()
    for key in ("confidence", "accuracy", "count"):
        assert [row[key] for row in record["reliability"]] == getattr(curve, key).tolist()
    assert record["failed"] == [f"ece > 0.05 (ece = {card.ece:.6g})"]
    assert [gate["failed"] for gate in record["gates"]] == [True, False]
    assert complete.failed == (Gate("ece", ">", 0.05),)
    assert len(record["errors"]) == 25
    assert record["errors"][0]["ids"]["case_id"].startswith("case ")


@pytest.mark.slow
def test_predictions_and_files_give_one_audit(tmp_path: Path) -> None:
    rows = make_rows(n=900)
    paths = save_parts(rows, tmp_path)
    first, other = (audit(source, by=["site"]).to_dict(["ece"]) for source in (rows, paths))
    assert other["files"] == paths
    assert other["fingerprint"] == first["fingerprint"] == rows.fingerprint
    for name in ("ece", "ece_interval", "gap", "p_value"):
        assert other["verdict"][name] == pytest.approx(first["verdict"][name], abs=1e-6)
    assert [advice["action"] for advice in other["advice"]] == [advice["action"] for advice in first["advice"]]
    assert other["temperature"]["temperature"] == first["temperature"]["temperature"]  # of the same sample
    assert [row["name"] for row in other["classes"]] == [row["name"] for row in first["classes"]]


def test_infinity_is_text_and_undefined_is_null() -> None:
    record = audit(Predictions.from_logits([[0.0, -math.inf], [0.0, 1.0]], [1, 1])).to_dict()
    assert record["metrics"]["nll"] == {
        "value": "inf", "interval": ["inf", "inf"], "noise_floor": None, "error_bound": 0.0
    }  # fmt: skip
    record = audit(Predictions.from_logits([[3.0, 0.0]], [0], columns={"dose": [None]}), by=["dose"]).to_dict()
    assert record["metrics"]["nll_on_errors"]["value"] is record["metrics"]["nll_on_errors"]["interval"] is None
    assert record["groups"]["dose"]["groups"][0]["group"] is None
    assert "nll_on_errors" not in record["groups"]["dose"]["worst"]


def test_torch_has_one_thread_and_its_own_after() -> None:
    seen: list[int] = []
    torch.set_num_threads(3)
    try:
        with pytest.MonkeyPatch.context() as patch:
            for name in ("calibration_verdict", "group_findings", "temperature_effect"):
                real = getattr(cb.audits, name)
                patch.setattr(
                    cb.audits,
                    name,
                    lambda *a, _real=real, **o: (seen.append(torch.get_num_threads()), _real(*a, **o))[1],
                )
            audit(make_rows(n=60), by="site")
            patch.setattr(cb.audits, "calibration_verdict", lambda *_, **__: 1 // 0)
            with pytest.raises(ZeroDivisionError):
                audit(make_rows(n=60))
        assert (seen, torch.get_num_threads()) == ([1, 1, 1], 3)
    finally:
        torch.set_num_threads(1)


# Rows that are not independent


def copies(rows: Predictions, times: int) -> Predictions:
    """Each row so many times, with the column patient_id that tells which."""
    index = torch.arange(len(rows)).repeat_interleave(times)
    columns = {"patient_id": index, "site": rows.column("site").take(index.numpy())}
    return Predictions.from_logits(rows.logits[index], rows.labels[index], columns=columns)


@pytest.mark.slow
def test_clusters_of_equal_rows_count_once() -> None:
    """In all that an audit finds: the verdict, groups, classes, curves and the effect of a temperature."""
    rows = make_rows(n=60, n_classes=3, scale=2.0)
    once, clustered = audit(rows, by="site"), audit(copies(rows, 10), by="site", cluster="patient_id")
    independent = audit(copies(rows, 10), by="site")
    assert clustered.scorecard.values() == pytest.approx(independent.scorecard.values())
    assert clustered.verdict.n_effective == pytest.approx(60, rel=0.05)
    assert clustered.verdict.p_value > 0.5 * once.verdict.p_value > 100 * independent.verdict.p_value
    width, wanted, narrow = (
        found.verdict.gap_interval[1] - found.verdict.gap_interval[0] for found in (clustered, once, independent)
    )
    assert width == pytest.approx(wanted, rel=0.1)
    assert narrow < 0.5 * wanted
    pairs = zip(*({row.name: row.p_holm for row in found.classes}.items() for found in (clustered, once)), strict=False)
    assert all(mine[1] > 0.5 * wanted[1] for mine, wanted in sorted(pairs))
    assert min(row.p_holm for row in independent.classes) < 0.01
    groups, wanted_groups = clustered.groups["site"], once.groups["site"]
    assert groups.n_miscalibrated <= wanted_groups.n_miscalibrated
    for name in ("reliability", "risk"):
        for mine, single in zip(clustered.to_dict()[name], once.to_dict()[name], strict=True):
            (low, high), (expected_low, expected_high) = mine["interval"], single["interval"]
            assert high - low > 0.85 * (expected_high - expected_low)
    assert clustered.temperature.failure == "" or "folds" in clustered.temperature.failure


def test_one_cluster_gives_no_verdict() -> None:
    found = audit(make_rows(n=300, patient=["P"] * 300), cluster="patient")
    assert (found.verdict.kind, found.verdict.n_effective) == ("too_few_rows", pytest.approx(1.0))
    assert found.verdict.p_value == 1.0
    assert found.verdict.gap_interval == pytest.approx((found.verdict.confidence - 1, found.verdict.confidence))
    assert found.verdict.accuracy_interval[1] - found.verdict.accuracy_interval[0] > 0.9
    [advice] = found.advice
    assert "effective sample size 1.0: rows of one patient are not independent" in advice_sentence(advice)


@pytest.mark.slow
def test_a_repeating_id_is_warned_of_unless_it_is_named() -> None:
    patients = {"patient_id": [i // 6 for i in range(300)], "model_id": ["m"] * 300}
    rows = make_rows(**patients)
    found = audit(rows)
    assert found.repeated_ids == {"patient_id": 50}
    few_patients = audit(make_rows(**patients, scale=1.0), cluster="patient_id")
    wide = advice_sentence(next(advice for advice in few_patients.advice if advice.action == "wide_interval"))
    assert "rows of one patient_id are not independent) the 95 % CI" in wide
    assert "four times as many (1,200 rows, of four times as many values of patient_id)" in wide
    warning = summary(found, ["ece"])[2]
    assert warning.startswith("Rows may not be independent: patient_id has 50 values in 300 rows.")
    assert warning.endswith("audit with --cluster patient_id.")
    assert found.to_dict()["repeated_ids"] == [{"column": "patient_id", "n_values": 50}]
    for named in (audit(rows, cluster="patient_id"), audit(rows, by="patient_id")):
        assert named.repeated_ids == {}
    rows = make_rows(image=[i // 2 for i in range(300)], patient_id=[i // 6 for i in range(300)])
    assert audit(rows, cluster="patient_id").repeated_ids == {}  # images are parts of patients
    assert audit(rows, cluster="image").repeated_ids == {"patient_id": 50}


def test_shifted_tests_of_the_same_images_are_clustered_by_image(tmp_path: Path) -> None:
    for severity in (1, 2):
        make_rows(n=200, corruption=["fog"] * 200, image=range(200)).save(tmp_path / f"fog-{severity}.parquet")
    found, alone = audit(tmp_path), audit(tmp_path / "fog-1.parquet")
    assert (found.cluster, alone.cluster) == ("case_id", None)
    assert found.verdict.n_effective == pytest.approx(200, rel=0.4)
    assert (found.repeated_ids, alone.repeated_ids) == ({}, {})
    assert not found.pooled_shifts


# Recommendations


def test_advice() -> None:
    overconfident, groups = audit(make_rows(n=900)), audit(make_groups(("a", 900, 0.6), ("b", 900, 0.95)), by="site")
    actions = [[advice.action for advice in found.advice] for found in (overconfident, groups)]
    assert actions[0] == ["temperature_scaling", "avoid_threshold", "wide_interval"]
    assert actions[1] == ["retrain", "recalibrate_per_group"]  # all rows have one class and one confidence


@pytest.mark.parametrize("spread", [0.0, 0.5])
def test_constant_predictions_are_named(spread: float) -> None:
    """A dead network of ten classes: calibrated, and worth nothing; with other confidences it may be a weak one."""
    logits = torch.zeros(400, 10)
    logits[:, 3] = 0.01 + spread * torch.linspace(0, 1, 400)
    labels = torch.arange(400) % 10
    found = audit(Predictions.from_logits(logits, labels))
    assert found.to_dict()["constant_class"] == "3"
    assert verdict_css_class(found) == "bad"
    sentence = summary(found, ["ece"])[2]
    assert sentence.startswith("All 400 rows have the same predicted class, 3")
    assert ("and the same confidence, 10.1 %" in sentence) == (spread == 0)
    assert (found.advice[0].action == "retrain") == (spread == 0)
    assert spread or "400 rows have the same prediction" in advice_sentence(found.advice[0])
    for alive in (make_rows(n=60), Predictions.from_logits(logits, torch.full((400,), 3))):  # one class of images
        assert audit(alive).constant_class is None


# Errors


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"by": "sight"}, UnknownNameError, "unknown column 'sight'"),
        ({"weights": "site"}, InvalidInputError, "weights must be numbers"),
        ({"level": 2.0}, InvalidInputError, "level must lie between 0.001 and 0.999999, got 2.0"),
        ({"seed": -1}, InvalidInputError, "seed must be an integer of at least 0, got -1"),
        ({"n_bins": 0}, InvalidInputError, "n_bins must be an integer from 1 to 10000, got 0"),
        ({"cluster": "sight"}, UnknownNameError, "unknown column 'sight'; did you mean 'site'?"),
        ({"gates": ["ece"]}, InvalidInputError, "must be a condition such as"),
        ({"gates": ["ece_positive > 1"]}, InvalidInputError, "ece_positive is for two classes"),
        ({"other": make_rows(seed=1)}, InvalidInputError, "must be predictions of the same rows in the same order"),
        ({"other": make_rows(), "cluster": "sight"}, UnknownNameError, "unknown column 'sight'"),
        ({"other": make_rows(), "compare_metrics": ["ece_positive"]}, InvalidInputError, "of the top label only"),
        ({"other": make_rows(), "compare_metrics": ["ecee"]}, UnknownNameError, "unknown metric 'ecee'"),
    ],
)  # fmt: skip
def test_invalid_arguments(options: dict[str, Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=re.escape(message)):
        audit(make_rows(), **options)


def test_metrics_that_cannot_be_shown() -> None:
    found = audit(make_rows(n=60))
    for names, message in (["ecee"], "did you mean 'ece'"), (["ece_positive"], "is for two classes"), ([], "at least"):
        with pytest.raises((InvalidInputError, UnknownNameError), match=message):
            found.to_dict(names)
