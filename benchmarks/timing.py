"""Interleaved timing: time of functions relative to the first one, by default CPU time."""

import time
from collections.abc import Callable
from statistics import median

ROUND_SECONDS = 0.05


Clock = Callable[[Callable[[], object], int], float]  # of a function and repeats: the time of one call


def cpu_seconds(function: Callable[[], object], repeats: int) -> float:
    """CPU time of one call, averaged over the repeats."""
    start = time.process_time()
    for _ in range(repeats):
        function()
    return (time.process_time() - start) / repeats


def ratios(
    functions: dict[str, Callable[[], object]], n_rounds: int, n_warm_up: int = 3, seconds: Clock = cpu_seconds
) -> dict[str, tuple[float, float, float]]:
    """Median, minimum and maximum of each function's time divided by that of the first, over the rounds."""
    repeats = {}
    for name, function in functions.items():
        for _ in range(n_warm_up):
            function()
        repeats[name] = max(1, round(ROUND_SECONDS / max(seconds(function, n_warm_up), 1e-7)))
    rounds = [{name: seconds(f, repeats[name]) for name, f in functions.items()} for _ in range(n_rounds)]
    floor = next(iter(functions))
    found = {name: [times[name] / times[floor] for times in rounds] for name in functions}
    return {name: (median(values), min(values), max(values)) for name, values in found.items()}
