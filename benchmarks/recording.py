"""What a benchmark measured, in one JSON file for each machine: results/PROCESSOR-CAPABILITY.json."""

import json
import platform
import re
import sys
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from importlib.metadata import version
from os import cpu_count
from pathlib import Path
from typing import Any

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


def record(benchmark: str, ratios: Iterable[Ratio]) -> None:
    """Replace the benchmark's part of this machine's file; the part says what was typed and when."""
    path = RESULTS / f"{machine()['name']}.json"
    found: dict[str, Any] = json.loads(path.read_text()) if path.exists() else {"machine": machine(), "benchmarks": {}}
    found["benchmarks"][benchmark] = {
        "command": " ".join(["python", f"benchmarks/{Path(sys.argv[0]).name}", *sys.argv[1:]]),
        "date": f"{datetime.now(UTC):%Y-%m-%d}",
        "ratios": [{key: value for key, value in asdict(ratio).items() if value is not None} for ratio in ratios],
    }
    RESULTS.mkdir(exist_ok=True)
    path.write_text(json.dumps(found, indent=1) + "\n")


def machine() -> dict[str, Any]:
    """The processor, the vector instructions that torch uses, its cores, and the versions."""
    capability = torch.backends.cpu.get_cpu_capability()
    name = processor()
    return {
        "name": re.sub(r"[^a-z0-9]+", "-", f"{name} {capability}".lower()),
        "processor": name,
        "capability": capability,
        "cores": cpu_count(),
        "python": platform.python_version(),
        "torch": version("torch"),
    }


def processor() -> str:
    """The processor's name as Linux has it, else as the platform does."""
    cpuinfo = Path("/proc/cpuinfo")
    names = re.findall(r"^model name\s*: (.+)$", cpuinfo.read_text(), re.MULTILINE) if cpuinfo.exists() else []
    return names[0] if names else platform.processor() or platform.machine()
