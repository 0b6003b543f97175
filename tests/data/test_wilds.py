"""The readers of WILDS: official layouts in small, the rules of the splits, damaged and missing files."""

from pathlib import Path

import pytest
import torch

import calibrant as cb
from calibrant.data import ImageFiles, Split, open_dataset
from calibrant.data.layouts import FMOW_CLASSES
from calibrant.errors import UnknownNameError
from calibrant.training import Settings, train
from made.datasets import (
    CAMELYON_ROWS,
    FMOW_FOUND,
    FMOW_ROWS,
    IWILDCAM_SPLITS,
    WRITERS,
    write_camelyon17,
    write_fmow,
    write_iwildcam,
)
from made.image_files import colours


def columns(split: Split) -> dict[str, list[object]]:
    """As they are in predictions made of the split."""
    logits = torch.zeros(len(split), int(split.labels.max()) + 2)
    table = cb.Predictions.from_logits(logits, split.labels, columns=split.columns).columns
    return {name: table.column(name).to_pylist() for name in table.column_names}


@pytest.mark.parametrize("name", WRITERS)
def test_the_splits_have_the_names_of_wilds(tmp_path: Path, name: str) -> None:
    data = open_dataset(name, tmp_path)  # which reads nothing
    WRITERS[name](tmp_path)
    assert data.splits == (("train", "id_val") if name == "camelyon17" else ("train", "id_val", "id_test"))
    assert data.shifts == ("val", "test")
    assert data.validation == "val"
    assert data.image_size == {"camelyon17": 96, "iwildcam": 224, "fmow": 224}[name]
    for split in (*data.splits, *data.shifts):
        found = data.split(split)
        assert isinstance(found.images, ImageFiles)
        assert found.labels.dtype == torch.int64
        assert found.images[torch.tensor([0])].shape == (1, 3, data.image_size, data.image_size)
    assert data.prior.shape == (data.n_classes,)
    with pytest.raises(UnknownNameError, match="unknown split 'fog-3'"):
        data.split("fog-3")


def test_hospitals_decide_the_splits_of_camelyon17(tmp_path: Path) -> None:
    write_camelyon17(tmp_path)
    data = open_dataset("camelyon17", tmp_path)
    assert data.class_names == ("normal", "tumor")
    found = {name: data.split(name) for name in (*data.splits, *data.shifts)}
    rows = {"train": [0, 4], "id_val": [1], "val": [2, 5], "test": [3]}
    for name, numbers in rows.items():
        assert colours(found[name]) == [[10 * i, 20, 30] for i in numbers]
        assert found[name].labels.tolist() == [CAMELYON_ROWS[i][2] for i in numbers]
        assert columns(found[name]) == {
            "hospital": [CAMELYON_ROWS[i][0] for i in numbers],
            "slide": [10 + i for i in numbers],
            "patient": [CAMELYON_ROWS[i][3] for i in numbers],
        }


def test_iwildcam_is_read(tmp_path: Path) -> None:
    write_iwildcam(tmp_path)
    data = open_dataset("iwildcam", tmp_path, image_size=40)
    assert data.class_names == ("empty", "lion", "zebra")
    for name in (*data.splits, *data.shifts):
        numbers = [i for i, split in enumerate(IWILDCAM_SPLITS) if split == name]
        found = data.split(name)
        assert colours(found) == [[10 * i] * 3 for i in numbers]
        assert found.labels.tolist() == [i % 3 for i in numbers]
        assert columns(found) == {
            "location": [30 + i for i in numbers],
            "sequence": [40 + i for i in numbers],
            "datetime": [f"2013-06-05 05:44:{i:02d}.000" for i in numbers],
        }


def test_years_decide_the_splits_of_fmow(tmp_path: Path) -> None:
    write_fmow(tmp_path)
    data = open_dataset("fmow", tmp_path, image_size=16)
    regions = {"DEU": "Europe", "KEN": "Africa", "XKX": "Other", "ATA": "Other"}
    for name, numbers in FMOW_FOUND.items():
        found = data.split(name)
        assert colours(found) == [[i, 100, 200] for i in numbers]  # numbered before sequestered rows are dropped
        assert [data.class_names[label] for label in found.labels] == [FMOW_ROWS[i][1] for i in numbers]
        assert columns(found) == {
            "region": [regions[FMOW_ROWS[i][2]] for i in numbers],
            "year": [int(FMOW_ROWS[i][3][:4]) for i in numbers],
            "country_code": [FMOW_ROWS[i][2] for i in numbers],
        }


def test_values_with_line_ends_may_span_blocks_and_are_read_once(tmp_path: Path) -> None:
    """A file is read in blocks of 1 MB, which must not begin in the midst of a value."""
    write_fmow(tmp_path)
    path = tmp_path / "fmow_v1.1/rgb_metadata.csv"
    path.write_bytes(path.read_bytes().replace(b"WGS_1984", b"WGS\n" * 50_000))
    data = open_dataset("fmow", tmp_path)
    data.split("train")
    path.unlink()
    assert len(data.split("test")) == 2


def test_the_classes_of_fmow_are_all_there() -> None:
    assert len(set(FMOW_CLASSES)) == len(FMOW_CLASSES) == 62
    assert list(FMOW_CLASSES) == sorted(FMOW_CLASSES)
    assert open_dataset("fmow", "nowhere").class_names == FMOW_CLASSES


@pytest.mark.parametrize(("name", "domain"), [("camelyon17", "hospital"), ("iwildcam", "location"), ("fmow", "region")])
def test_a_model_is_trained_and_its_domains_stand_beside_its_predictions(
    tmp_path: Path, name: str, domain: str
) -> None:
    WRITERS[name](tmp_path)
    settings = Settings(data=name, root=str(tmp_path), image_size=8, model="mlp", epochs=1, batch_size=1, workers=0)
    run = train(settings, tmp_path / "run")
    data = open_dataset(name, tmp_path)
    written = {path.stem for path in (run / "predictions").iterdir()}
    assert written == {*data.splits[1:], *data.shifts}
    for split in written:
        predictions = cb.Predictions.load(run / "predictions" / f"{split}.parquet")
        assert predictions.column(domain).to_pylist() == list(columns(data.split(split))[domain])
        assert predictions.labels.tolist() == data.split(split).labels.tolist()
    assert cb.score(cb.Predictions.load(run / "predictions" / "test.parquet"), by=domain).worst("accuracy")
