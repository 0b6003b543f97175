"""ONNX files: what the battery `onnx_file` does not ask of every calibrator."""

import sys
from pathlib import Path

import onnx
import onnxruntime
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import calibrant as cb
from calibrant.calibrators.maps import bisect
from calibrant.errors import InvalidInputError, MissingExtraError
from made.calibrator_check import fitted
from made.calibrator_data import bare, scored_rows, shifted_rows

COARSE = st.integers(-3, 3).map(float) | st.sampled_from([-torch.inf, torch.inf])


@given(st.lists(COARSE, max_size=9), st.lists(COARSE, max_size=20), st.booleans())
def test_binary_search_is_searchsorted(knots: list[float], points: list[float], equal: bool) -> None:
    sorted_knots, x = torch.tensor(sorted(knots)), torch.tensor(points)
    assert torch.equal(bisect(sorted_knots, x, equal), torch.searchsorted(sorted_knots, x, right=equal))
    if knots:
        both = bisect(sorted_knots.expand(2, -1), x.expand(2, -1), equal)
        assert torch.equal(both, torch.searchsorted(sorted_knots, x, right=equal).expand(2, -1))


@pytest.mark.slow
def test_a_file_has_the_same_bytes_again_and_names_no_folder(tmp_path: Path) -> None:
    calibrator, path = fitted("histogram"), tmp_path / "h.onnx"
    calibrator.to_onnx(path)
    content = path.read_bytes()
    calibrator.to_onnx(path)  # it replaces its own kind
    assert path.read_bytes() == content
    assert b"calibrators" not in content  # of a path or a module
    model = onnx.load(path)
    assert (model.producer_name, model.producer_version) == ("calibrant", cb.__version__)
    found = {entry.key: entry.value for entry in model.metadata_props}
    assert found == {"calibrator": "histogram", "fitted_on": calibrator.fitted.fingerprint}


@pytest.mark.slow
def test_a_score_from_a_column_is_an_input(tmp_path: Path) -> None:
    rows = scored_rows(300, seed=0, rising=True).predictions
    calibrator, path = cb.CALIBRATORS["conditional_temperature"].fit(rows, score="noise"), tmp_path / "c.onnx"
    calibrator.to_onnx(path)
    noise = torch.tensor(rows.columns["noise"].to_pylist())
    (found,) = onnxruntime.InferenceSession(path).run(
        None, {"logits": rows.logits.float().numpy(), "score": noise.numpy()}
    )
    wanted = calibrator.module()(rows.logits.float(), noise)
    torch.testing.assert_close(torch.from_numpy(found), wanted, rtol=1e-6, atol=1e-6)


def test_what_has_no_file_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    notes = tmp_path / "notes.onnx"
    notes.write_text("mine")
    with pytest.raises(InvalidInputError, match=r"notes\.onnx exists and is not an ONNX file of calibrant"):
        fitted("temperature").to_onnx(notes)
    assert notes.read_text() == "mine"
    rows = shifted_rows(300, 4, seed=1).predictions
    known_alone = cb.CALIBRATORS["domain_temperature"].fit(
        cb.Predictions.from_logits(rows.logits, rows.labels, columns={"domain": rows.columns["domain"]})
    )
    with pytest.raises(InvalidInputError, match="domain_temperature was fitted without features"):
        known_alone.to_onnx(tmp_path / "d.onnx")
    for package in ("onnx", "onnxscript"):
        with monkeypatch.context() as patched:
            patched.setitem(sys.modules, package, None)
            with pytest.raises(MissingExtraError, match=r"^exporting to ONNX needs .*pip install 'calibrant\[onnx\]'"):
                fitted("temperature").to_onnx(tmp_path / "t.onnx")
    assert list(tmp_path.iterdir()) == [notes]


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::FutureWarning")  # what torch says of its own parts
def test_a_model_and_its_calibrator_export_as_one_graph(tmp_path: Path) -> None:
    """By torch alone, with a step function, which needs searchsorted; dense logits too."""
    calibrator = fitted("histogram")
    logits = bare(shifted_rows(24, 4, seed=3).predictions).logits.float().reshape(2, 3, 4, 4)
    deployed = torch.nn.Sequential(torch.nn.Conv2d(3, 4, 1), calibrator.module()).eval()
    path = tmp_path / "deployed.onnx"
    torch.onnx.export(
        deployed,
        (logits,),
        path,
        input_names=["images"],
        dynamic_shapes=({0: torch.export.Dim("batch")},),
        dynamo=True,
        verbose=False,
    )
    (found,) = onnxruntime.InferenceSession(path).run(None, {"images": logits[:1].numpy()})
    torch.testing.assert_close(torch.from_numpy(found), deployed(logits[:1]), rtol=1e-5, atol=1e-5)
