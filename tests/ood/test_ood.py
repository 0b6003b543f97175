"""Detection and its comparison: every score finds rows that are out, files of scores, and what is refused."""

import json
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch

import calibrant as cb
from calibrant.errors import InvalidInputError, UnknownNameError
from calibrant.ood import OOD_SCORES


def rows_of(n: int, seed: int, *, out: bool = False, n_classes: int = 4) -> cb.Predictions:
    """Features around class means, or around the origin on another axis, and their logits."""
    generator = torch.Generator().manual_seed(seed)
    labels = torch.randint(n_classes, (n,), generator=generator)
    means = torch.tensor([[0.3] * n_classes + [2.0]]) if out else 3.0 * torch.eye(n_classes, n_classes + 1)[labels]
    features = means + 0.7 * torch.randn(n, n_classes + 1, generator=generator)
    information = torch.rand(n, generator=generator) + (0.5 if out else 0.0)
    return cb.Predictions.from_logits(
        2.0 * features[:, :n_classes], labels, features=features, columns={"mutual_information": information.tolist()}
    )


@pytest.fixture(scope="module")
def inside() -> cb.Predictions:
    return rows_of(120, 1)


@pytest.fixture(scope="module")
def outside() -> cb.Predictions:
    return rows_of(80, 2, out=True)


@pytest.fixture(scope="module")
def known() -> cb.Predictions:
    return rows_of(200, 3)


@pytest.mark.parametrize("method", OOD_SCORES)
def test_every_score_is_higher_outside(
    method: str, inside: cb.Predictions, outside: cb.Predictions, known: cb.Predictions
) -> None:
    found = cb.detection(inside, outside, method, reference=known)
    low, high = found.intervals["auroc"]
    assert 0.7 < low < found.auroc < high
    assert (found.n_inside, found.n_outside, found.method, found.level) == (120, 80, method, 0.95)
    scores = [cb.ood_score(rows, method, reference=known) for rows in (inside, outside)]
    assert cb.Detection.of(*scores, method=method) == found
    assert int((scores[0] <= found.threshold).sum()) == 114
    assert found.fpr_at_95_tpr == int((scores[1] <= found.threshold).sum()) / 80
    unlabelled = [replace(rows, labels=torch.full_like(rows.labels, -1)) for rows in (inside, outside)]
    assert cb.detection(*unlabelled, method, reference=known) == found
    assert json.loads(json.dumps(found.to_dict()))["intervals"]["auroc"] == [low, high]


def test_comparison_is_sorted_and_says_what_is_left_out(
    inside: cb.Predictions, outside: cb.Predictions, known: cb.Predictions, tmp_path: Path
) -> None:
    seen: list[str] = []
    found = cb.compare_ood_scores(inside, outside, reference=known, progress=seen.append)
    assert seen == list(OOD_SCORES)
    assert sorted(one.method for one in found.detections) == sorted(OOD_SCORES)
    values = [one.auroc for one in found.detections]
    assert values == sorted(values, reverse=True)
    assert found.detections[0] == cb.detection(inside, outside, found.detections[0].method, reference=known)
    assert found.left_out == {}
    found.save_scores(tmp_path / "scores.parquet")
    found.save_scores(tmp_path / "scores.parquet")  # replaces its own
    table = pq.read_table(tmp_path / "scores.parquet")
    assert table.column_names == ["outside", "row", *OOD_SCORES]
    assert table["outside"].to_pylist() == [False] * 120 + [True] * 80
    assert table["row"].to_pylist() == [*range(120), *range(80)]
    energy = torch.cat([cb.ood_score(rows, "energy") for rows in (inside, outside)])
    assert table["energy"].to_pylist() == energy.tolist()
    plain = [cb.Predictions.from_probs(rows.probs) for rows in (inside, outside)]
    less = cb.compare_ood_scores(*plain)
    assert sorted(one.method for one in less.detections) == ["entropy", "max_probability"]
    assert sorted(less.left_out) == sorted(set(OOD_SCORES) - {"entropy", "max_probability"})
    assert "--reference" in less.left_out["mahalanobis"]
    assert json.loads(json.dumps(less.to_dict()))["left_out"] == less.left_out


def test_constant_scores_and_single_rows() -> None:
    same = cb.Predictions.from_logits([[1.0, 0.0]] * 3)
    found = cb.detection(same, cb.Predictions.from_logits([[1.0, 0.0]] * 2))
    assert (found.auroc, found.aupr, found.fpr_at_95_tpr) == (0.5, 2 / 5, 1.0)
    found = cb.detection(same[:1], cb.Predictions.from_logits([[3.0, 0.0]]), "energy")
    assert (found.auroc, found.fpr_at_95_tpr, found.intervals["fpr_at_95_tpr"]) == (0.0, 1.0, (0.0, 1.0))


def test_refusals(inside: cb.Predictions, outside: cb.Predictions, known: cb.Predictions, tmp_path: Path) -> None:
    names = [replace(rows, class_names=tuple("abcd")) for rows in (inside, known)]
    backwards = replace(outside, class_names=tuple("dcba"))
    for match, arguments, options in [
        ("outside must have the 4 classes of inside, got 3", (inside, rows_of(9, 4, n_classes=3)), {}),
        ("outside must have the class names of inside", (names[0], backwards), {}),
        ("outside must have at least one row", (inside, outside[:0]), {}),
        ("inside must have at least one row", (inside[:0], outside), {}),
        ("outside must hold other rows than inside, it holds the rows of it", (inside, inside), {}),
        ("outside must hold other rows than inside, it holds rows of it", (inside, inside[:60]), {}),
        ("inside must hold other rows than reference", (known, outside, "mahalanobis"), {"reference": known}),
        ("level must lie between", (inside, outside), {"level": 95}),
        ("unknown OOD score 'msp'", (inside, outside, "msp"), {}),
    ]:
        with pytest.raises((InvalidInputError, UnknownNameError), match=match):
            cb.detection(*arguments, **options)
    assert cb.detection(inside, inside, allow_same_rows=True).auroc == 0.5
    assert cb.detection(known, outside, "entropy", reference=known).auroc > 0.7  # which does not use the reference
    with pytest.raises(InvalidInputError, match="reference must be given for mahalanobis"):
        cb.compare_ood_scores(inside, outside, ["entropy", "mahalanobis"])
    with pytest.raises(InvalidInputError, match="methods must name at least one score"):
        cb.compare_ood_scores(inside, outside, [])
    with pytest.raises(UnknownNameError, match="did you mean 'entropy'"):
        cb.compare_ood_scores(inside, outside, ["entrpy"])
    assert len(cb.compare_ood_scores(inside, outside, ["energy", "energy"]).detections) == 1
    for match, scores in [
        ("inside must be finite, got nan at row 1", ([0.1, float("nan")], [0.2])),
        ("outside must be finite, got inf at row 0", ([0.1], [float("inf")])),
        (r"outside must have shape \(n,\) with n > 0, got \(0,\)", ([0.1], torch.zeros(0))),
        ("inside must have shape", ([[0.1]], [0.2])),
    ]:
        with pytest.raises(InvalidInputError, match=match):
            cb.Detection.of(*scores)
    for table, name in ((pa.table({"mine": [1]}), "mine.parquet"), (None, "predictions.parquet")):
        inside.save(tmp_path / name) if table is None else pq.write_table(table, tmp_path / name)
        with pytest.raises(InvalidInputError, match=f"{name} exists, and is of another kind"):
            cb.compare_ood_scores(inside, outside, ["energy"]).save_scores(tmp_path / name)
