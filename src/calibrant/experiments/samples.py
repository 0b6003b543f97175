"""Images of the data sets of an experiment, clean and shifted, for the figure samples."""

from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import torch

from calibrant._checks import check_integer
from calibrant._names import check_choice
from calibrant._signatures import checked
from calibrant.data import Split, open_dataset
from calibrant.errors import NoDataError
from calibrant.run_tables import check_rows
from calibrant.shifts import Shift

SampleImages = dict[str, dict[str, npt.NDArray[np.uint8]]]

SHOWN_FIRST = (
    "gaussian_noise",
    "motion_blur",
    "fog",
    "contrast",
    "pixelate",
)  # corruptions to show before others
SHOWN_SEVERITY = 3


@checked
def sample_images(
    rows: pa.Table,
    root: str | Path | None = None,
    *,
    data: Collection[str] = (),
    severity: int | None = None,
) -> SampleImages:
    """An image of every data set of an experiment (two where there is one set), clean and under some of its shifts.

    Args:
        rows: The rows of the experiment.
        root: The folder of the data sets; by default the environment variable CALIBRANT_DATA, or data.
        data: The data sets, by default all of the experiment.
        severity: Of the corruptions, by default 3.

    Returns:
        The images, uint8 of shape (h, w) or (h, w, 3), by the name of the row and of the shift.

    Raises:
        NoDataError: A data set is missing, or the experiment has no such tests of it.
        UnknownNameError: The experiment has no such data set.
    """
    check_rows(rows)
    known = sorted(pc.unique(rows["data"]).to_pylist())
    names = [check_choice("data of the experiment", name, known) for name in data] or known
    if severity is not None:
        check_integer("severity", severity, 1, 5)
    images: SampleImages = {}
    for name in names:
        tests = _select_tests(rows, name, severity or SHOWN_SEVERITY)
        images |= _read_images(name, root, tests, n_images=2 if len(names) == 1 else 1)
    return images


def _select_tests(rows: pa.Table, data: str, severity: int) -> list[dict[str, Any]]:
    """The unshifted test, and at most five shifted ones: SHOWN_FIRST before others, or the shift in the wild."""
    columns = ["split", "corruption", "shifted", "origin", "severity"]
    tests = rows.filter(pc.equal(rows["data"], data)).group_by(columns, use_threads=False).aggregate([]).to_pylist()
    found = [test for test in tests if test["severity"] in (0, severity)]
    clean = [test for test in found if not test["shifted"]]
    shifted = [test for test in found if test["shifted"]]
    if not clean or not shifted:
        have = "no unshifted test" if not clean else f"no shifted test of severity {severity}"
        raise NoDataError(f"the figure samples needs a test and its shifts, and the experiment has {have} of {data}")
    order = sorted(shifted, key=lambda test: (test["corruption"] not in SHOWN_FIRST, test["corruption"]))
    return [*clean[:1], *order[: len(SHOWN_FIRST)]]


def _read_images(data: str, root: str | Path | None, tests: Sequence[dict[str, Any]], n_images: int) -> SampleImages:
    dataset, rows = open_dataset(data, root), torch.arange(n_images)
    clean = dataset.split(tests[0]["split"])
    first = Split(clean.images[rows], clean.labels[rows])
    found: SampleImages = {f"{data} {row + 1}" if n_images > 1 else data: {} for row in range(n_images)}
    for test in tests:
        # corrupts these rows alone: the draws of an image depend on its row only
        is_generated = test["shifted"] and test["origin"] == "generated" and isinstance(clean.images, torch.Tensor)
        images = (
            first.under(Shift.parse(test["split"])).images
            if is_generated
            else dataset.split(test["split"]).images[rows]
        )
        heading = test["split"].replace("_", " ").replace("-", " ") if test["shifted"] else "clean"
        for columns, image in zip(found.values(), images[rows], strict=True):
            columns[heading] = image.permute(1, 2, 0).squeeze(2).numpy()
    return found
