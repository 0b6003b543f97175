"""What a benchmark measured, in one JSON file for each machine: results/PROCESSOR-CAPABILITY.json."""

import json
import os
import platform
import re
import sys
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from statistics import median
from typing import Any, Self

import torch

RESULTS = Path(__file__).parent / "results"


@dataclass(frozen=True, kw_only=True)
class Ratio:
    """The median, minimum and maximum over rounds of one time (or memory) divided by that of a floor or a peer."""

    what: str
    relative_to: str
    ratio: float
    low: float
    high: float
    at_most: float | None = None  # the goal
    at_least: float | None = None
    results: dict[str, tuple[float, float]] | None = None  # what the two computed, by name

    @classmethod
    def of(cls, what: str, relative_to: str, values: Sequence[float], **options: Any) -> Self:
        """From the ratio of each round; options are the goal and the results."""
        ratio, low, high = median(values), min(values), max(values)
        return cls(what=what, relative_to=relative_to, ratio=ratio, low=low, high=high, **options)


def record(benchmark: str, ratios: Iterable[Ratio], notes: Iterable[str] = ()) -> None:
    """Replace the benchmark's part of this machine's file; the part says what was typed, when and with which versions.

    Notes are lines about this run alone, such as the error of a peer that did not start.
    """
    path = RESULTS / f"{machine()['name']}.json"
    found: dict[str, Any] = json.loads(path.read_text()) if path.exists() else {"machine": machine(), "benchmarks": {}}
    found["benchmarks"][benchmark] = {
        "command": " ".join(["python", f"benchmarks/{Path(sys.argv[0]).name}", *sys.argv[1:]]),
        "date": f"{datetime.now(UTC):%Y-%m-%d}",
        "python": platform.python_version(),
        "torch": version("torch"),
        "ratios": [{key: value for key, value in asdict(ratio).items() if value is not None} for ratio in ratios],
        "notes": list(notes),
    }
    RESULTS.mkdir(exist_ok=True)
    path.write_text(json.dumps(found, indent=1) + "\n")


def machine() -> dict[str, Any]:
    """The processor, the vector instructions that torch uses, and the cores.

    ATEN_CPU_CAPABILITY limits the kernels of torch: that is another machine here, but not one without the instructions.
    """
    capability = torch.backends.cpu.get_cpu_capability()
    if "ATEN_CPU_CAPABILITY" in os.environ:
        capability = f"kernels limited to {capability}"
    name = processor()
    return {
        "name": re.sub(r"[^a-z0-9]+", "-", f"{name} {capability}".lower()),
        "processor": name,
        "capability": capability,
        "cores": os.cpu_count(),
    }


def processor() -> str:
    """The processor's name as Linux has it, else as the platform does."""
    cpuinfo = Path("/proc/cpuinfo")
    names = re.findall(r"^model name\s*: (.+)$", cpuinfo.read_text(), re.MULTILINE) if cpuinfo.exists() else []
    return names[0] if names else platform.processor() or platform.machine()
