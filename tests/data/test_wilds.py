"""The readers of WILDS: official layouts in small, the rules of the splits, damaged and missing files."""

import csv
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
import torch
from painted import colours, paint

import calibrant as cb
from calibrant.data import Pictures, Split, open_dataset
from calibrant.data.fmow import CLASSES
from calibrant.errors import CorruptFileError, NoDataError, UnknownNameError
from calibrant.training import Settings, train

CAMELYON_HEAD = ("", "patient", "node", "x_coord", "y_coord", "tumor", "slide", "center", "split")
# center, split, tumor, patient; the comment is the split that the rules give
CAMELYON_ROWS = [
    (0, 0, 1, "004"),  # train
    (3, 1, 0, "060"),  # id_val
    (1, 0, 1, "020"),  # val, whatever is written
    (2, 1, 0, "044"),  # test
    (4, 0, 0, "081"),  # train
    (1, 1, 0, "021"),  # val
]
IWILDCAM_HEAD = (
    *("split", "location_remapped", "location", "sequence_remapped", "seq_id", "y", "category_id", "datetime"),
    *("filename", "image_id"),
)
IWILDCAM_SPLITS = ["id_test", "train", "val", "test", "id_val", "train"]
FMOW_HEAD = (
    *("split", "img_filename", "img_path", "spatial_reference", "epsg", "category", "visible", "img_width"),
    *("img_height", "country_code", "cloud_cover", "timestamp", "lat", "lon"),
)
# split, category, country, time
FMOW_ROWS = [
    ("seq", "zoo", "DEU", "2005-01-01T00:00:00Z"),
    ("train", "airport", "DEU", "2012-12-31T23:59:59Z"),
    ("train", "barn", "KEN", "2002-06-09T09:40:12.123Z"),
    ("seq", "nothing known", "", ""),
    ("val", "zoo", "XKX", "2010-05-05T10:00:00Z"),  # id_val, of a country that the mapping has not
    ("test", "zoo", "ATA", "2011-05-05T10:00:00.5Z"),  # id_test, of a country without a region
    ("val", "dam", "DEU", "2013-01-01T00:00:00Z"),
    ("val", "dam", "DEU", "2015-12-31T23:59:59.999Z"),
    ("test", "port", "KEN", "2016-01-01T00:00:00Z"),
    ("test", "port", "KEN", "2017-07-07T07:07:07.070Z"),
    ("train", "port", "KEN", "2014-01-01T00:00:00Z"),  # the last four are in no split
    ("train", "port", "KEN", "2016-01-01T00:00:00Z"),
    ("val", "port", "KEN", "2016-01-01T00:00:00Z"),
    ("test", "port", "KEN", "2014-01-01T00:00:00Z"),
]
FMOW_FOUND = {"train": [1, 2], "id_val": [4], "id_test": [5], "val": [6, 7], "test": [8, 9]}


def write_csv(path: Path, head: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([head, *rows])


def write_camelyon17(root: Path) -> None:
    folder = root / "camelyon17_v1.0"
    rows = []
    for i, (center, split, tumor, patient) in enumerate(CAMELYON_ROWS):
        rows.append((i, patient, i % 2, 3328 + i, 21792 + i, tumor, 10 + i, center, split))
        node = f"patient_{patient}_node_{i % 2}"
        transparent = (10 * i, 20, 30, 128)
        paint(folder / f"patches/{node}/patch_{node}_x_{3328 + i}_y_{21792 + i}.png", transparent, "RGBA", side=96)
    write_csv(folder / "metadata.csv", CAMELYON_HEAD, rows)


def write_iwildcam(root: Path) -> None:
    folder = root / "iwildcam_v2.0"
    rows = []
    for i, split in enumerate(IWILDCAM_SPLITS):
        time = f"2013-06-05 05:44:{i:02d}.000"
        rows.append((split, 30 + i, 3, f"{40 + i}.0", "a-b", i % 3, 7, time, f"picture_{i}.jpg", f"picture_{i}"))
        paint(folder / f"train/picture_{i}.jpg", 10 * i, "L", side=40)
    write_csv(folder / "metadata.csv", IWILDCAM_HEAD, rows)
    categories = [(2, 372, "zebra"), (99999, 9, "never seen"), (0, 1, "empty"), (1, 5, "lion"), (99999, 8, "nor this")]
    write_csv(folder / "categories.csv", ("y", "category_id", "name"), categories)


def write_fmow(root: Path) -> None:
    folder = root / "fmow_v1.1"
    reference = 'GEOGCS["WGS 84",\nDATUM["WGS_1984"]]'  # commas, quotes and a line's end within a value
    rows = []
    for i, (split, category, country, time) in enumerate(FMOW_ROWS):
        rows.append((split, "a.jpg", "a/b.jpg", reference, 4326, category, 1, 9, 9, country, 0, time, 1.5, 2.5))
        paint(folder / f"images/rgb_img_{i}.png", (i, 100, 200))
    write_csv(folder / "rgb_metadata.csv", FMOW_HEAD, rows)
    mapping = [("Germany", "DE", "DEU", "Europe"), ("Kenya", "KE", "KEN", "Africa"), ("Antarctica", "AQ", "ATA", "")]
    write_csv(folder / "country_code_mapping.csv", ("name", "alpha-2", "alpha-3", "region"), mapping)


WRITERS: dict[str, Callable[[Path], None]] = {
    "camelyon17": write_camelyon17,
    "iwildcam": write_iwildcam,
    "fmow": write_fmow,
}


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
        assert isinstance(found.images, Pictures)
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


def test_pictures_are_brought_to_the_size_asked_for(tmp_path: Path) -> None:
    write_camelyon17(tmp_path)
    split = open_dataset("camelyon17", tmp_path, image_size=32).split("train")
    assert split.images[torch.tensor([1, 0])].shape == (2, 3, 32, 32)


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


def test_values_with_line_ends_may_span_blocks(tmp_path: Path) -> None:
    """A file is read in blocks of 1 MB, which must not begin in the midst of a value."""
    write_fmow(tmp_path)
    path = tmp_path / "fmow_v1.1/rgb_metadata.csv"
    path.write_bytes(path.read_bytes().replace(b"WGS_1984", b"WGS\n" * 50_000))
    assert len(open_dataset("fmow", tmp_path).split("test")) == 2


def test_the_classes_of_fmow_are_all_there() -> None:
    assert len(set(CLASSES)) == len(CLASSES) == 62
    assert list(CLASSES) == sorted(CLASSES)
    assert open_dataset("fmow", "nowhere").class_names == CLASSES


def test_metadata_are_read_once(tmp_path: Path) -> None:
    write_fmow(tmp_path)
    data = open_dataset("fmow", tmp_path)
    data.split("train")
    for file in (tmp_path / "fmow_v1.1").glob("*.csv"):
        file.unlink()
    assert len(data.split("test")) == 2


@pytest.mark.parametrize(
    ("name", "file"),
    [
        ("camelyon17", "camelyon17_v1.0/metadata.csv"),
        ("iwildcam", "iwildcam_v2.0/metadata.csv"),
        ("iwildcam", "iwildcam_v2.0/categories.csv"),
        ("fmow", "fmow_v1.1/rgb_metadata.csv"),
        ("fmow", "fmow_v1.1/country_code_mapping.csv"),
    ],
)
def test_missing_metadata_are_named(tmp_path: Path, name: str, file: str) -> None:
    WRITERS[name](tmp_path)
    (tmp_path / file).unlink()
    folder, last = file.split("/")
    message = f"no {last} of {name} in {tmp_path / folder}: unpack WILDS' archive {folder} there"
    message += f"; calibrant data fetch {name} does it"
    with pytest.raises(NoDataError) as refused:
        open_dataset(name, tmp_path).split("train")
    assert str(refused.value) == message


def test_missing_and_damaged_pictures_are_named(tmp_path: Path) -> None:
    write_fmow(tmp_path)
    train = open_dataset("fmow", tmp_path).split("train")
    (tmp_path / "fmow_v1.1/images/rgb_img_2.png").write_bytes(b"no picture")
    with pytest.raises(CorruptFileError, match=r"rgb_img_2\.png cannot be read as a picture"):
        train.images[torch.tensor([1])]
    (tmp_path / "fmow_v1.1/images/rgb_img_2.png").unlink()
    with pytest.raises(NoDataError, match=r"rgb_img_2\.png is not there"):
        train.images[torch.tensor([0, 1])]


# data set, file, what is replaced in it by what, the message
DAMAGES = [
    ("camelyon17", "metadata.csv", "tumor", "tumour", "metadata.csv has no column 'tumor'"),
    ("camelyon17", "metadata.csv", "3,044,1,3331,21795,0", "3,044,1,3331,21795,2", "0 or 1, got '2' at row 3"),
    ("camelyon17", "metadata.csv", "14,4,0", "14,4,2", "split must be 0 or 1, got '2' at row 4"),
    ("camelyon17", "metadata.csv", "14,4,0", "14,north,0", "center must be a whole number, got 'north' at row 4"),
    ("camelyon17", "metadata.csv", "14,4,0", "1.5,4,0", "slide must be a whole number, got '1.5' at row 4"),
    ("camelyon17", "metadata.csv", ",14,4,0", ",14,4", "metadata.csv cannot be read as CSV"),
    ("camelyon17", "metadata.csv", "060,1,3329,21793,0,11,3,1", "060,1,3329,21793,0,11,3,0", "split 'id_val'"),
    ("iwildcam", "metadata.csv", "filename", "file_name", "has no column 'filename'"),
    ("iwildcam", "metadata.csv", "a-b,2,7", "a-b,3,7", r"y must be in \[0, 2\], got '3' at row 2"),
    ("iwildcam", "metadata.csv", "id_val", "extra", "split must be one of .*, got 'extra' at row 4"),
    ("iwildcam", "categories.csv", "1,5,lion", "99999,5,lion", "without a gap, got 2 in the place of 1"),
    ("iwildcam", "categories.csv", "2,372,zebra", "1,372,zebra", "without a gap, got 1 in the place of 2"),
    ("iwildcam", "categories.csv", "name", "species", "categories.csv has no column 'name'"),
    ("fmow", "rgb_metadata.csv", "timestamp", "time", "has no column 'timestamp'"),
    ("fmow", "rgb_metadata.csv", "barn", "bern", "category must be one of the 62 classes, got 'bern' at row 2"),
    ("fmow", "rgb_metadata.csv", "2012-12-31T", "31.12.2012 ", "timestamp must be a time as .* at row 1"),
    ("fmow", "rgb_metadata.csv", "\r\nval,", "\r\nvalid,", "split must be .*, got 'valid' at row 4"),
    ("fmow", "country_code_mapping.csv", "alpha-3", "alpha3", "has no column 'alpha-3'"),
]


@pytest.mark.parametrize(
    ("name", "file", "old", "new", "message"), DAMAGES, ids=[f"{damage[0]} {damage[3].strip()}" for damage in DAMAGES]
)
def test_damaged_metadata_are_refused(tmp_path: Path, name: str, file: str, old: str, new: str, message: str) -> None:
    WRITERS[name](tmp_path)
    (path,) = tmp_path.glob(f"*/{file}")
    text = path.read_bytes().decode()
    assert old in text
    path.write_bytes(text.replace(old, new, 1).encode())
    with pytest.raises(CorruptFileError, match=message) as refused:
        open_dataset(name, tmp_path).split("id_val")
    assert str(path) in str(refused.value)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("data", [b"", b"y,name\n", b"\xff\xfe\0\0"], ids=["empty", "head alone", "no text"])
def test_files_without_rows_are_refused(tmp_path: Path, data: bytes) -> None:
    write_iwildcam(tmp_path)
    (tmp_path / "iwildcam_v2.0/categories.csv").write_bytes(data)
    with pytest.raises(CorruptFileError, match=r"categories\.csv has no"):
        open_dataset("iwildcam", tmp_path).class_names  # noqa: B018


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
