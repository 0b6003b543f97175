"""Averages of files and of predictions in memory: matched rows, columns, labels, calibrators, and every refusal."""

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch

import calibrant as cb
from calibrant import Predictions, TemperatureScaling, average
from calibrant.calibrators import DensityAwareScaling, LabelShift, SetTemperature
from calibrant.ensembles import save_average
from calibrant.errors import CorruptFileError, InvalidInputError, UnknownNameError
from made.calibrator_data import draw, shifted_rows

N = 60
NAMES = ["x", "y", "z"]


def member(seed: int, n: int = N, **options: Any) -> Predictions:
    """Rows with the labels and the columns of all members, but for one column of its own."""
    generator = torch.Generator().manual_seed(seed)
    logits = 2 * torch.randn(n, 3, generator=generator)
    columns = {
        "order_id": [f"o{i:03d}" for i in range(n)],
        "site": pa.array([("A", "B", None)[i % 3] for i in range(n)]).dictionary_encode(),
        "speed": [math.nan if i % 7 == 0 else float(i) for i in range(n)],
        "logit_norm": logits.norm(dim=1),
    }
    labels = pa.array([None if i % 10 == 9 else i % 3 for i in range(n)])
    options = {"columns": columns, "class_names": NAMES, "metadata": {"loss": "ce", "seed": seed}} | options
    return Predictions.from_logits(logits, labels, **options)


def plain(members: list[Predictions]) -> np.ndarray[Any, Any]:
    return np.mean([each.logits.double().softmax(1).numpy() for each in members], axis=0)


@pytest.fixture
def three(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[Predictions]:
    """Three members, also as the files a, b and c, whose row groups have other sizes."""
    monkeypatch.chdir(tmp_path)
    members = [member(seed) for seed in range(3)]
    for each, name, size in zip(members, "abc", (7, 60, 11), strict=True):
        each.save(f"{name}.parquet")
        pq.write_table(pq.read_table(f"{name}.parquet"), f"{name}.parquet", row_group_size=size)
    return members


FILES = ["a.parquet", "b.parquet", "c.parquet"]


# What the average is


def test_the_mean_of_probabilities_with_labels_columns_and_metadata(three: list[Predictions]) -> None:
    found = average(three)
    assert found.probs.double().numpy() == pytest.approx(plain(three), abs=1e-6)
    assert torch.equal(found.labels, three[0].labels)
    assert found.class_names == tuple(NAMES)
    assert found.columns.column_names == ["order_id", "site", "speed", "member_disagreement", "mutual_information"]
    assert found.select(["order_id", "site"]).columns == three[0].select(["order_id", "site"]).columns
    assert found.metadata == {
        "loss": "ce",
        "ensemble": [{"fingerprint": each.fingerprint, "loss": "ce", "seed": i} for i, each in enumerate(three)],
    }
    assert found.column("member_disagreement").to_numpy().max() == pytest.approx(2 / 3)


def test_the_nll_of_an_ensemble(three: list[Predictions]) -> None:
    known = three[0].labels >= 0
    found = cb.score(average(three)[known], metrics=["nll"]).nll
    assert found <= np.mean([cb.score(each[known], metrics=["nll"]).nll for each in three]) + 1e-6


@pytest.mark.parametrize("batch_rows", [1, 7, 13, None])
def test_files_in_batches_are_the_average_in_memory(batch_rows: int | None, three: list[Predictions]) -> None:
    whole = average(three)
    scans = [Predictions.scan(path, batch_rows=batch_rows) for path in FILES]
    for members in (scans, [three[0], scans[1], Path("c.parquet")]):
        found = average(members)
        torch.testing.assert_close(found.logits, whole.logits, rtol=1e-6, atol=1e-6)
        assert torch.equal(found.labels, whole.labels)
        assert found.columns.column_names == whole.columns.column_names
        torch.testing.assert_close(
            found.numbers("x", "mutual_information"), whole.numbers("x", "mutual_information"), rtol=1e-9, atol=1e-12
        )


def test_the_written_file_is_the_average(three: list[Predictions]) -> None:
    rows: list[float] = []
    assert save_average(FILES, "ensemble.parquet", progress=rows.append) == N
    assert sum(rows) == N
    read, wanted = Predictions.load("ensemble.parquet"), average(FILES)
    assert read.fingerprint == wanted.fingerprint
    assert read.columns.to_pydict().keys() == wanted.columns.to_pydict().keys()
    assert read.metadata["ensemble"][1] == {"files": ["b.parquet"], "loss": "ce", "seed": 1}
    save_average(FILES[:2], "ensemble.parquet")  # what average wrote is replaced
    assert len(Predictions.load("ensemble.parquet").metadata["ensemble"]) == 2


def test_an_ensemble_of_an_ensemble_has_its_own_columns(three: list[Predictions]) -> None:
    save_average(FILES, "ensemble.parquet")
    again = average(["ensemble.parquet", "ensemble.parquet"])
    assert again.numbers("x", "mutual_information").numpy() == pytest.approx(np.zeros(N), abs=1e-12)


def test_many_members_are_read_in_smaller_batches(three: list[Predictions], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("calibrant.ensembles.members.BATCH_ELEMENTS", 120)
    sizes: list[float] = []
    save_average([FILES[1]] * 20, "ensemble.parquet", progress=sizes.append)
    assert set(sizes) == {2}  # of 20 members with 3 classes


def test_members_without_labels_and_without_rows(three: list[Predictions], tmp_path: Path) -> None:
    bare = [replace(each, labels=torch.full((N,), -1)) for each in three]
    assert torch.equal(average([bare[0], three[1]]).labels, three[1].labels)
    for number, each in enumerate(bare):
        each.save(f"bare{number}.parquet")
    save_average(["bare0.parquet", "bare1.parquet"], "out.parquet")
    assert "label" not in pq.read_schema("out.parquet").names
    three[0][:0].save("none.parquet")
    assert save_average(["none.parquet", "none.parquet"], "empty.parquet", id="order_id") == 0
    assert Predictions.load("empty.parquet").columns.column_names[-1] == "mutual_information"


# Columns


def test_columns_that_differ_are_left_out() -> None:
    first, other = member(0), member(1)
    columns = {
        "same": list(range(N)),
        "one": [*range(N - 1), -1],
        "kind": [f"{i}" for i in range(N)],
        "mine": [0] * N,
        "vectors": [[1.0, float(i)] for i in range(N)],
    }
    others = {"same": columns["same"], "one": list(range(N)), "kind": list(range(N)), "vectors": columns["vectors"]}
    found = average([with_columns(first, columns), with_columns(other, others)])
    assert found.columns.column_names[:-2] == ["same", "vectors"]


def with_columns(rows: Predictions, columns: dict[str, Any]) -> Predictions:
    labels = pa.array(rows.labels.numpy(), mask=rows.labels.numpy() < 0)
    return Predictions.from_logits(rows.logits, labels, columns=columns)


def test_dictionaries_of_other_numbers_are_equal() -> None:
    one = pa.DictionaryArray.from_arrays([0, 1, 0], ["a", "b"])
    other = pa.DictionaryArray.from_arrays([1, 0, 1], ["b", "a"])
    members = [with_columns(member(seed, n=3), {"site": site}) for seed, site in enumerate((one, other))]
    assert "site" in average(members).columns.column_names


# Rows by id


def test_permuted_rows_with_ids(three: list[Predictions]) -> None:
    whole, order = average(three), torch.randperm(N, generator=torch.Generator().manual_seed(5))
    permuted = three[1][order]
    permuted.save("b.parquet")
    for members in ([three[0], permuted, three[2]], FILES, [Path(FILES[0]), permuted, FILES[2]]):
        found = average(members, id="order_id")
        torch.testing.assert_close(found.logits, whole.logits)
        assert torch.equal(found.labels, whole.labels)
        assert found.columns.column_names == whole.columns.column_names
        assert found.column("order_id") == whole.column("order_id")
    with pytest.raises(
        InvalidInputError, match=r"b\.parquet must have the labels of a\.parquet, got \d, not \d, at row"
    ):
        average(FILES)


def test_ids_as_numbers_and_their_texts() -> None:
    one = with_columns(member(0), {"id": list(range(N))})
    other = with_columns(member(1), {"id": [str(i) for i in range(N)]})[list(range(N))[::-1]]
    in_order = average([with_columns(member(0), {}), with_columns(member(1), {})])
    torch.testing.assert_close(average([one, other], id="id").logits, in_order.logits)


def test_refused_ids(three: list[Predictions]) -> None:
    three[1][list(range(N - 1))].save("b.parquet")
    with pytest.raises(InvalidInputError, match=r"b\.parquet must have every id of a\.parquet, and has no 'o059'"):
        average(FILES[:2], id="order_id")
    with pytest.raises(InvalidInputError, match=r"b\.parquet must have every id of members\[1\], and has no 'o059'"):
        average(["b.parquet", three[0]], id="order_id")
    three[1][[*range(N), 3]].save("b.parquet")
    with pytest.raises(InvalidInputError, match=r"b\.parquet must have every id once, got 'o003' twice in 'order_id'"):
        average(FILES[:2], id="order_id")
    with pytest.raises(InvalidInputError, match=r"a\.parquet must have an id in every row, got 20 nulls in 'site'"):
        average(FILES[:2], id="site")
    with pytest.raises(UnknownNameError, match=r"a\.parquet: unknown column 'order'; did you mean 'order_id'"):
        average(FILES[:2], id="order")


def test_an_id_of_two_types_in_one_member(three: list[Predictions]) -> None:
    Path("parts").mkdir()
    for number, ids in enumerate(([1, 2], ["3", "4"])):
        with_columns(three[0][:2], {"id": ids}).save(f"parts/{number}.parquet")
    with pytest.raises(CorruptFileError, match=r"parts/0.* has files of other columns"):
        average(["parts", "parts"], id="id")


# Other rows and classes


def test_refused_rows(three: list[Predictions]) -> None:
    with pytest.raises(InvalidInputError, match="members must not be empty"):
        average([])
    with pytest.raises(InvalidInputError, match=r"members\[1\] must have the 60 rows of a\.parquet, got 59"):
        average([FILES[0], three[1][:59]])
    labels = three[1].labels.clone()
    labels[37] = (labels[37] + 1) % 3
    replace(three[1], labels=labels).save("b.parquet")
    with pytest.raises(
        InvalidInputError, match=r"b\.parquet must have the labels of a\.parquet, got 2, not 1, at row 37"
    ):
        average(FILES)
    four = Predictions.from_logits(torch.zeros(N, 4))
    with pytest.raises(InvalidInputError, match=r"members\[1\] must have the 3 classes of a\.parquet, got 4"):
        average([FILES[0], four])


def test_an_error_leaves_no_file(three: list[Predictions], tmp_path: Path) -> None:
    replace(three[2], labels=three[2].labels.flip(0)).save("c.parquet")
    with pytest.raises(InvalidInputError, match=r"c\.parquet must have the labels"):
        save_average(FILES, "ensemble.parquet")
    assert sorted(path.name for path in tmp_path.iterdir()) == FILES


def test_class_names(three: list[Predictions]) -> None:
    turned = three[1].match_names(["z", "x", "y"])
    turned.save("b.parquet")
    with pytest.raises(InvalidInputError, match=r"b\.parquet must have the class names of a\.parquet: .*match_names"):
        average(FILES)
    for members in (FILES, [FILES[0], turned, FILES[2]]):
        torch.testing.assert_close(average(members, match_names=True).logits, average(three).logits)
    with pytest.raises(InvalidInputError, match=r"b\.parquet must have the class names of a\.parquet: class 0 is 'u'"):
        average([FILES[0], renamed(three[1], ["u", "v", "w"], "b.parquet")], match_names=True)
    unnamed = replace(three[0], class_names=None)
    assert average([unnamed, three[2]]).class_names == tuple(NAMES)


def renamed(rows: Predictions, names: list[str], path: str) -> str:
    replace(rows, class_names=tuple(names)).save(path)
    return path


def test_files_whose_schema_does_not_say_the_classes(three: list[Predictions]) -> None:
    pq.write_table(pa.table({"logits": [[0.0, 1.0]] * N}), "b.parquet")
    with pytest.raises(InvalidInputError, match=r"b\.parquet must have the 3 classes of a\.parquet, got 2"):
        average(FILES)


# Calibrators


def fits(n: int = 3) -> list[TemperatureScaling]:
    return [
        TemperatureScaling.fit(draw(300, temperature, seed=40 + i)) for i, temperature in enumerate((1.5, 2, 3)[:n])
    ]


def test_members_are_calibrated_before(three: list[Predictions]) -> None:
    calibrators = fits()
    members = [fit(replace(each, class_names=None)) for fit, each in zip(calibrators, three, strict=True)]
    for source in (three, FILES):
        found = average(source, calibrators=calibrators)
        assert found.probs.double().numpy() == pytest.approx(plain(members), abs=1e-6)
    assert "calibrator" not in found.metadata
    assert [each["calibrator"]["name"] for each in found.metadata["ensemble"]] == ["temperature"] * 3
    assert [each["calibrator"]["fitted_on"] for each in found.metadata["ensemble"]] == [
        fit.fitted.fingerprint for fit in calibrators
    ]
    after = TemperatureScaling.fit(draw(300, seed=9))
    assert after(average([members[0]] * 2)).metadata["calibrator"]["name"] == "temperature"


def test_one_calibrator_of_all_members_is_not_that_of_the_average(three: list[Predictions]) -> None:
    [calibrator] = fits(1)
    found = average([calibrator(each) for each in (draw(N, seed=5), draw(N, seed=5))])
    assert "calibrator" not in found.metadata
    assert calibrator(found).metadata["calibrator"]["name"] == "temperature"


def test_refused_calibrators(three: list[Predictions]) -> None:
    with pytest.raises(InvalidInputError, match="calibrators must be one for each of 3 members, got 2"):
        average(FILES, calibrators=fits(2))
    four = TemperatureScaling.fit(draw(300, n_classes=4))
    with pytest.raises(InvalidInputError, match=r"b\.parquet: predictions must have the 4 classes"):
        average(FILES, calibrators=[fits()[0], four, fits()[2]])
    rows = draw(N, seed=2)
    rows.save("b.parquet")
    own = TemperatureScaling.fit(rows)
    with pytest.raises(InvalidInputError, match=r"b\.parquet: predictions hold the rows that it was fitted on"):
        save_average(["b.parquet", "b.parquet"], "out.parquet", calibrators=[own, own])
    assert not Path("out.parquet").exists()
    assert len(average([rows, rows], calibrators=[own, own], allow_same_rows=True)) == N


def test_calibrators_of_features_columns_and_whole_sets(tmp_path: Path) -> None:
    """They get what they need, in whatever order the rows are; the ensemble has no features."""
    validation, test = (shifted_rows(400, 3, seed=seed).predictions for seed in (1, 2))
    assert validation.features is not None
    test = replace(test, columns=test.columns.append_column("id", pa.array(range(400))))
    permuted = test[torch.randperm(400, generator=torch.Generator().manual_seed(0))]
    permuted.save(tmp_path / "b.parquet")
    test.save(tmp_path / "a.parquet")
    for fit in (
        DensityAwareScaling.fit(validation),
        SetTemperature.fit(validation),
        LabelShift.fit(validation, target=test),
    ):
        wanted = fit(test).probs.double().numpy()
        in_batches = Predictions.scan(tmp_path / "a.parquet", batch_rows=70)
        for members in ([test, tmp_path / "b.parquet"], [in_batches, in_batches]):
            found = average(members, calibrators=[fit, fit], id="id")
            assert found.probs.double().numpy() == pytest.approx(wanted, abs=2e-3)  # features are rounded to float16
            assert found.features is None


# Outputs


def test_refused_outputs(three: list[Predictions]) -> None:
    with pytest.raises(InvalidInputError, match=r"b\.parquet must not be written: it is an input"):
        save_average(FILES, "b.parquet")
    three[0].save("other.parquet")
    with pytest.raises(InvalidInputError, match=r"other\.parquet exists, and is of another kind"):
        save_average(FILES, "other.parquet")


def test_one_member_is_itself(three: list[Predictions]) -> None:
    found = average(FILES[:1])
    torch.testing.assert_close(found.logits, three[0].log_probs, rtol=1e-6, atol=1e-6)
    assert found.columns.column_names[:4] == three[0].columns.column_names
