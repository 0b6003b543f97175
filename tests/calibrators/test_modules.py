"""Modules against the formulas of docs/deploy.md, in numpy from the JSON files."""

import json
import re
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from scipy.special import log_softmax, softmax

from made.calibrator_check import CALIBRATORS, fitted, fresh_rows

Array = NDArray[np.float64]
Formula = Callable[[Array, Any], Array]
PAGE = Path(__file__).parents[2] / "docs" / "deploy.md"


def temperature(z: Array, given: Any) -> Array:
    return z / given["temperature"]


def ensemble(z: Array, given: Any) -> Array:
    parts = [softmax(z / given["temperature"], 1), softmax(z, 1), np.full_like(z, 1 / z.shape[1])]
    return np.log(np.tensordot(given["weights"], parts, 1))


def affine(x: Array, given: Any) -> Array:
    weight = given["weight"]
    return (x * weight if weight.ndim == 1 else x @ weight.T) + given["bias"]


def structured(z: Array, given: Any) -> Array:
    return affine(log_softmax(z / given["temperature"], 1), given)


def label_shift(z: Array, given: Any) -> Array:
    return temperature(z, given) + given["bias"] + np.log(given["proportions"] / given["validation_proportions"])


def odds(z: Array, a: float, b: float, c: float) -> Array:
    log_p = log_softmax(z, 1)
    return np.stack([np.zeros(len(z)), a * log_p[:, 1] - b * log_p[:, 0] + c], 1)


def interpolated(z: Array, given: Any) -> Array:
    knots, values = (np.broadcast_to(given[key], (z.shape[1], given[key].shape[1])) for key in ("knots", "values"))
    return np.log(np.stack([np.interp(*function) for function in zip(softmax(z, 1).T, knots, values, strict=True)], 1))


def steps(z: Array, given: Any) -> Array:
    below = (softmax(z, 1)[:, :, None] > given["knots"]).sum(2)
    return np.log(np.take_along_axis(given["values"], below.T, 1).T)


def venn_abers(z: Array, given: Any) -> Array:
    x = (z[:, 1] - z[:, 0])[:, None]
    lower = given["lower"][(given["lower_knots"] <= x).sum(1)]
    return np.log(np.stack([1 - lower, given["upper"][(given["upper_knots"] < x).sum(1)]], 1))


def by_entropy(z: Array, given: Any) -> Array:
    entropy = -(softmax(z, 1) * log_softmax(z, 1)).sum(1)
    return z * np.interp(entropy, given["knots"], given["scales"])[:, None]


FORMULAS: dict[str, Formula] = {
    "identity": lambda z, given: z,
    "temperature": temperature,
    "temperature_grid": temperature,
    "perturbed_temperature": temperature,
    "transcal": temperature,
    "ensemble_temperature": ensemble,
    "vector": affine,
    "matrix": affine,
    "dirichlet": lambda z, given: affine(log_softmax(z, 1), given),
    "svs": structured,
    "sms": structured,
    "label_shift": label_shift,
    "platt": lambda z, given: odds(z, given["a"], given["a"], given["b"]),
    "beta": lambda z, given: odds(z, given["a"], given["b"], given["c"]),
    "isotonic": interpolated,
    "isotonic_multiclass": interpolated,
    "histogram": steps,
    "bbq": steps,
    "venn_abers": venn_abers,
    "conditional_temperature": by_entropy,
}


def read(value: Any) -> Any:
    return np.array(value["values"]).reshape(value["shape"]) if isinstance(value, dict) and "shape" in value else value


@pytest.mark.parametrize("name", FORMULAS)
def test_a_module_is_the_formula_of_its_file(name: str, tmp_path: Path) -> None:
    calibrator, logits = fitted(name), fresh_rows(name).logits
    calibrator.save(tmp_path / "c.json")
    record = json.loads((tmp_path / "c.json").read_text(encoding="utf-8"))
    given = {key: read(value) for key, value in record["parameters"].items()}
    wanted = softmax(FORMULAS[record["calibrator"]](logits.numpy(), given), 1)
    found = calibrator.module()(logits).softmax(1)
    torch.testing.assert_close(found, torch.from_numpy(wanted), rtol=1e-9, atol=1e-9)


def test_the_page_lists_these_calibrators_and_their_parameters() -> None:
    text = PAGE.read_text(encoding="utf-8")
    rows = [line.split("|")[1:4] for line in text.partition("| `parameters` | result |")[2].splitlines() if "|" in line]
    listed = {name: re.findall(r"`(\w+)`", given) for names, given, _ in rows for name in re.findall(r"`(\w+)`", names)}
    assert set(listed) == set(FORMULAS)
    for name, given in listed.items():
        assert set(given) <= {field.name for field in fields(CALIBRATORS[name])}, name
    assert set(CALIBRATORS) - set(listed) == {"spline", "domain_temperature", "density_aware", "set_temperature"}
