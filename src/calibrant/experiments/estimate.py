"""How long runs will take: by those that are done, or else by a few steps of each model on this machine."""

import time
from collections.abc import Callable
from statistics import median

import torch
import torch.nn.functional as F
from torch import Tensor

from calibrant.data import open_dataset
from calibrant.experiments.evaluate import tests_of
from calibrant.experiments.plan import Plan
from calibrant.models import build_model
from calibrant.training.loop import n_steps, new_optimizer
from calibrant.training.outputs import BATCH
from calibrant.training.settings import Settings

ROUNDS = 3
AROUND = 1.2  # reading, cropping, scoring and writing, beside the arithmetic of the model


def seconds_left(plan: Plan) -> float:
    """The seconds of all runs that are left, one after the other on one core or device.

    Raises: NoDataError where a data set is not there.
    """
    known, total = plan.seconds(), 0.0
    measured: dict[tuple[str, str, int], float] = {}
    for run, seconds in known.items():
        if seconds is None:
            kind = (run.settings.data, run.settings.model, run.settings.epochs)
            if kind not in measured:
                measured[kind] = seconds_of(run.settings)
            seconds = measured[kind]
        total += seconds
    return total


def seconds_of(settings: Settings) -> float:
    """What a run would take, from some steps on images of noise with one thread."""
    data = open_dataset(settings.data, settings.root, image_size=settings.image_size)
    model = build_model(settings.model, data.n_classes, image_size=data.image_size, channels=data.channels)
    optimizer = new_optimizer(model, settings)
    device = "cuda" if torch.cuda.is_available() and settings.device in ("auto", "cuda") else "cpu"
    model.to(device)
    side = (data.channels, data.image_size, data.image_size)

    part = max(2, settings.batch_size // settings.accumulate)

    def step() -> None:
        images, labels = _noise(part, side, device)
        optimizer.zero_grad()
        F.cross_entropy(model(images), labels).backward()
        optimizer.step()

    def look() -> None:
        model.eval()
        with torch.inference_mode():
            model(_noise(BATCH, side, device)[0])

    tests = tests_of(data, settings)
    n_rows = min(len(data.split(tests[0])), settings.test_sample or 2**62) if tests else 0  # of each, as of the first
    n_looks = len(tests) * n_rows / BATCH
    n_parts = settings.epochs * n_steps(len(data.split("train")), settings, 1) * settings.accumulate
    return AROUND * (n_parts * _timed(step) + n_looks * _timed(look))


def _noise(n: int, side: tuple[int, ...], device: str) -> tuple[Tensor, Tensor]:
    return torch.randn(n, *side, device=device), torch.zeros(n, dtype=torch.int64, device=device)


def _timed(act: Callable[[], None]) -> float:
    act()  # the first is slower
    found, threads = [], torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        for _ in range(ROUNDS):
            began = time.perf_counter()
            act()
            if torch.cuda.is_available():
                torch.cuda.synchronize()
            found.append(time.perf_counter() - began)
    finally:
        torch.set_num_threads(threads)
    return median(found)
