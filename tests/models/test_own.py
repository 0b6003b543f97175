"""Models of one's own, by module:name: modules, functions that return one, functions of images; what is refused."""

import sys
from pathlib import Path

import pytest
import torch
from torch import nn

from calibrant.errors import CalibrantError, InvalidInputError, NoDataError
from calibrant.models import import_model

OWN = """
from torch import nn
class Needy(nn.Module):
    def __init__(self, width): super().__init__()
def build(width=3): return nn.Flatten()
ready = nn.Flatten()
def logits(images): return images.flatten(1)
def of_all(*images): return images[0].flatten(1)
number = 3
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "own_models.py").write_text(OWN)
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
    assert isinstance(import_model("torch.nn:Flatten"), nn.Flatten)
    assert sys.path == before


REFUSED: dict[str, tuple[type[CalibrantError], str]] = {
    "own_models": (InvalidInputError, "must be module:name, got own_models"),
    "own models:build": (InvalidInputError, "must be module:name"),
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
