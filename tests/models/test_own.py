"""Models of one's own, by file.py:name or module:name: to predict with and to train; what is refused."""

import sys
from pathlib import Path

import pytest
import torch
from torch import nn

from calibrant.errors import CalibrantError, InvalidInputError, NoDataError
from calibrant.models import build_model, check_model, import_model

OWN = """
from __future__ import annotations
from dataclasses import dataclass
from torch import nn
@dataclass
class Sizes:
    width: int
class Needy(nn.Module):
    def __init__(self, width): super().__init__()
def build(width=3): return nn.Flatten()
ready = nn.Flatten()
def logits(images): return images.flatten(1)
def of_all(*images): return images[0].flatten(1)
number = 3
class Ours(nn.Linear):
    def __init__(self, n_classes, image_size, channels): super().__init__(channels * image_size**2, n_classes)
def no_module(n_classes, **sizes): return n_classes
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "own_models.py").write_text(OWN)
    (tmp_path / "beside.py").write_text("from own_models import Ours")
    (tmp_path / "broken.py").write_text("def def")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.delitem(sys.modules, "own_models", raising=False)
    return tmp_path


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize("name", ["own_models:build", "own_models:ready", "own_models:logits", "own_models:of_all"])
def test_what_a_name_may_be(name: str) -> None:
    before = list(sys.path)
    images = torch.rand(2, 1, 8, 8)
    assert torch.equal(import_model(name)(images), images.flatten(1))
    assert torch.equal(import_model(name.replace(":", ".py:"))(images), images.flatten(1))
    assert isinstance(import_model("torch.nn:Flatten"), nn.Flatten)
    assert sys.path == before


REFUSED: dict[str, tuple[type[CalibrantError], str]] = {
    "own_models": (InvalidInputError, "must be file.py:name or module:name, got own_models"),
    "own models:build": (InvalidInputError, "must be file.py:name or module:name"),
    "nowhere_at_all:build": (NoDataError, "nowhere_at_all cannot be imported"),
    "own_models:biuld": (NoDataError, "own_models has no biuld"),
    "own_models:number": (InvalidInputError, "must be a model or a function, got int"),
    "own_models:Needy": (InvalidInputError, "is a class that needs arguments"),
}


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize("source", REFUSED)
def test_names_that_are_refused(source: str) -> None:
    error, message = REFUSED[source]
    with pytest.raises(error, match=message):
        import_model(source)


@pytest.mark.parametrize("name", ["own_models:Ours", "{folder}/own_models.py:Ours", "{folder}/beside.py:Ours"])
def test_a_model_to_train_is_built_for_the_data(folder: Path, name: str) -> None:
    source = check_model(name.format(folder=folder))
    model = build_model(source, 5, image_size=8, channels=1)
    assert model(torch.rand(2, 64)).shape == (2, 5)


NOT_BUILT: dict[str, tuple[type[CalibrantError], str]] = {
    "own_models.py:number": (InvalidInputError, r"to call with \(n_classes, image_size=..., channels=...\)"),
    "own_models.py:ready": (InvalidInputError, "to call with"),
    "own_models.py:build": (InvalidInputError, "to call with"),
    "own_models.py:no_module": (InvalidInputError, "must return a torch module, got int"),
    "nowhere.py:build": (NoDataError, "nowhere.py is not there"),
    "broken.py:build": (NoDataError, "broken.py cannot be imported: invalid syntax"),
}


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize("source", NOT_BUILT)
def test_models_to_train_that_are_refused(source: str) -> None:
    error, message = NOT_BUILT[source]
    with pytest.raises(error, match=message):
        build_model(source, 5, image_size=8)
