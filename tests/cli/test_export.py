"""`calibrant export`: the file, the line that is printed, and refusals."""

from pathlib import Path

import onnxruntime
import pytest
import torch

from made.calibrator_check import fitted
from made.cli import Run


@pytest.mark.slow
def test_a_calibrator_is_exported(calibrant: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    fitted("isotonic").save("i.json")
    assert calibrant("export", "i.json", "-o", "i.onnx").done() == (
        "i.onnx: isotonic of 4 classes, from logits to calibrated_logits\n"
    )
    logits = torch.randn(3, 4, generator=torch.Generator().manual_seed(0))
    (found,) = onnxruntime.InferenceSession("i.onnx").run(None, {"logits": logits.numpy()})
    torch.testing.assert_close(torch.from_numpy(found), fitted("isotonic").module()(logits), rtol=1e-6, atol=1e-6)


def test_what_cannot_be_exported(calibrant: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    fitted("set_temperature").save("s.json")
    calibrant("export", "s.json", "-o", "s.onnx").refused("export calibrator.adapt(target)")
    calibrant("export", "s.json", "-o", "s.json").refused("set_temperature treats the rows of a call as one set")
    Path("notes.txt").write_text("mine")
    calibrant("export", "notes.txt", "-o", "s.onnx").refused("notes.txt is not JSON")
    assert not Path("s.onnx").exists()
