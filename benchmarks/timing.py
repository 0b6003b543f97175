"""Interleaved timing: CPU time of each function as a multiple of the first one's, from rounds of one run."""

import time
from collections.abc import Callable
from statistics import median

ROUND_SECONDS = 0.05


def ratios(functions: dict[str, Callable[[], object]], n_rounds: int) -> dict[str, tuple[float, float, float]]:
    """Median, least and greatest ratio of each function's time to that of the first, round by round."""
    repeats = {}
    for name, function in functions.items():
        for _ in range(3):
            function()
        repeats[name] = max(1, round(ROUND_SECONDS / max(cpu_seconds(function, 3), 1e-7)))
    rounds = [{name: cpu_seconds(f, repeats[name]) for name, f in functions.items()} for _ in range(n_rounds)]
    floor = next(iter(functions))
    found = {name: [times[name] / times[floor] for times in rounds] for name in functions}
    return {name: (median(values), min(values), max(values)) for name, values in found.items()}


def cpu_seconds(function: Callable[[], object], repeats: int) -> float:
    """CPU time of one call, averaged over the repeats."""
    start = time.process_time()
    for _ in range(repeats):
        function()
    return (time.process_time() - start) / repeats
