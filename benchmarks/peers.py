"""Seven libraries on the same rows: CPU time of calibrant divided by that of each, and what both compute.

Run: python benchmarks/peers.py [--rounds 9]
Each library has a process of its own (peer_calls.py), one thread, and the same float32 arrays, which those that need
float64 get so, for a temperature beforehand; rounds are interleaved. A library that does not start, or a call that it
refuses, is reported with its error. Results must agree to 1e-5, or the benchmark fails in the end; where definitions
differ, DIFFERENT says why. torch-uncertainty has a venv of its own: it needs torchvision, and where that cannot be
imported, neither can torchmetrics beside it.
"""

import argparse
import contextlib
import json
import math
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from peer_calls import LIBRARIES, Rows
from recording import Ratio, record
from rich.console import Console
from rich.progress import track
from rich.table import Table
from scipy.special import softmax
from timing import ROUND_SECONDS

SHAPES = [(50_000, 10), (10_000, 1000)]
N_VALIDATION = 5_000
TASKS = {
    "ece": "ECE alone, from probabilities",
    "smece": "smooth ECE alone, from probabilities",
    "scorecard": "scorecard, from logits",
    "temperature": "temperature",
    "lac": "LAC sets, from logits",
    "aps": "APS sets, from logits",
}
OURS = "calibrant"
AGREE = 1e-5
GRID = "is taken on a grid of confidences, with a bandwidth found in ten steps"
CLAMPED = "leaves out classes without a label and clamps probabilities to 1e-7"
QUANTILE = "takes the 0.9-quantile of the n scores, not the (n + 1)-th part that the promise needs"
DIFFERENT = {  # what a library computes in another way than we do
    "torch-uncertainty": {
        "smece": "smooths the logit of the confidence, not the confidence",
        "adaece": "sorts the rows, where ours takes them from a fine histogram",
        "aurc": "integrates by the trapezoidal rule, where ours is the mean over the rows",
        "temperature": "takes at most 100 steps of L-BFGS at a fixed learning rate",
        "coverage of LAC": QUANTILE,
        "mean size of LAC": QUANTILE,
        "coverage of APS": f"{QUANTILE}, and scores that include the class's own probability",
        "mean size of APS": f"{QUANTILE}, and scores that include the class's own probability",
    },
    "probmetrics": {"smece": GRID, "ece": CLAMPED, "mce": CLAMPED, "rmsce": CLAMPED},
    "torchmetrics": {"rmsce": "puts a confidence of exactly 1 into a bin of its own"},
    "relplot": {"smece": GRID},
    "mapie": {
        "coverage of LAC": "widens the threshold by 1e-8",
        "mean size of LAC": "widens the threshold by 1e-8",
        "coverage of APS": "draws random numbers for the scores",
        "mean size of APS": "draws random numbers for the scores",
    },
}
OWN_VENV = {"torch-uncertainty": Path(__file__).parents[1] / ".venv-peers" / "bin" / "python"}


class PeerError(Exception):
    """A library did not start, or refused a call."""


class Library:
    """A library in its own process."""

    def __init__(self, name: str, folder: Path) -> None:
        python = OWN_VENV.get(name, Path(sys.executable))
        if not python.exists():
            raise PeerError(f"there is no {python.parents[1].name}, which make bench sets up")
        command = [python, Path(__file__).with_name("peer_calls.py"), name, folder]
        self.name, self.errors = name, folder / f"{name}.txt"
        with self.errors.open("w") as file:
            self.process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=file, text=True
            )
        self.version = self._reply()["version"]

    def ask(self, shape: tuple[int, int], task: str, repeats: int = 1) -> dict[str, Any]:
        """The CPU seconds of a call and its results; nothing if the library has no such call."""
        assert self.process.stdin is not None
        question = json.dumps({"rows": file_name(shape), "task": task, "repeats": repeats})
        with contextlib.suppress(BrokenPipeError):  # then there is no reply
            print(question, file=self.process.stdin, flush=True)
        found = self._reply()
        if "error" in found:
            raise PeerError(found["error"])
        return found

    def _reply(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            raise PeerError(self.errors.read_text().strip().split("\n")[-1] or "it ended without a message")
        found: dict[str, Any] = json.loads(line)
        return found

    def end(self) -> None:
        assert self.process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.close()
        self.process.wait()


def file_name(shape: tuple[int, int]) -> str:
    return "{}x{}.npz".format(*shape)


def write_rows(path: Path, n: int, k: int) -> None:
    """Underconfident and overconfident rows: 1 to 4 times a normal variable, of which the labels have 2.5 times."""
    random, arrays = np.random.default_rng(0), []
    for size in (N_VALIDATION, n):
        normal = random.standard_normal((size, k), dtype=np.float32)
        logits = random.uniform(1, 4, (size, 1)).astype(np.float32) * normal
        labels = (2.5 * normal + random.gumbel(size=(size, k))).argmax(1)
        arrays += [logits, labels, softmax(logits, axis=1)]
    np.savez(path, **dict(zip(Rows._fields, arrays, strict=True)))


Failures = dict[str, str]  # where each error was met first


def start(folder: Path, failures: Failures) -> list[Library]:
    """The libraries that start, calibrant first."""
    found = []
    for name in LIBRARIES:
        try:
            found.append(Library(name, folder))
        except PeerError as error:
            if name == OURS:
                raise
            failures[f"{name}: {error}"] = "at its start"
    return found


def compare(
    libraries: list[Library], shape: tuple[int, int], task: str, n_rounds: int, failures: Failures
) -> list[Ratio]:
    """The time of calibrant, the first library, divided by that of each other one that has the task."""
    n, k = (N_VALIDATION, shape[1]) if task == "temperature" else shape
    what, found = f"{TASKS[task]}, ({n:,}, {k:,})", dict[Library, dict[str, float]]()
    for library in libraries:
        try:
            if reply := library.ask(shape, task):
                found[library] = reply["results"]
        except PeerError as error:
            if library.name == OURS:
                raise
            failures.setdefault(f"{library.name} {library.version}: {error}", what)
    repeats = {each: max(1, round(ROUND_SECONDS / each.ask(shape, task)["seconds"])) for each in found}
    rounds = [{each: each.ask(shape, task, repeats[each])["seconds"] for each in found} for _ in range(n_rounds)]
    ours, *peers = found
    return [
        Ratio.of(
            what,
            f"{peer.name} {peer.version}" + (f", {len(found[peer])} metrics" if task == "scorecard" else ""),
            [seconds[ours] / seconds[peer] for seconds in rounds],
            results={name: (found[ours][name], value) for name, value in found[peer].items() if name in found[ours]},
        )
        for peer in peers
    ]


def disagreements(ratio: Ratio) -> list[str]:
    """The results of a comparison that differ without a reason."""
    known = DIFFERENT.get(ratio.relative_to.split()[0], {})
    return [
        f"{ratio.what}: {name} is {ours}, with {ratio.relative_to} {theirs}"
        for name, (ours, theirs) in (ratio.results or {}).items()
        if name not in known and not math.isclose(ours, theirs, rel_tol=AGREE)
    ]


def reasons(names: set[str]) -> list[str]:
    """A line for each reason why the results of these libraries differ from ours."""
    found: dict[tuple[str, str], list[str]] = {}
    for library in sorted(names & DIFFERENT.keys()):
        for name, reason in DIFFERENT[library].items():
            found.setdefault((library, reason), []).append(name)
    return [f"{library} ({', '.join(names)}) {reason}" for (library, reason), names in found.items()]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=9)
    n_rounds = parser.parse_args().rounds
    console, failures, ratios = Console(width=140), Failures(), list[Ratio]()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        libraries = start(folder, failures)
        for shape in SHAPES:
            write_rows(folder / file_name(shape), *shape)
            for task in track(TASKS, str(shape), console=console, transient=True):
                ratios += compare(libraries, shape, task, n_rounds, failures)
        for library in libraries:
            library.end()
    table = Table(title="CPU time of calibrant / that of a peer")
    for heading in ("", "peer", "ratio", "computed by calibrant, by the peer"):
        table.add_column(heading)
    for ratio in ratios:
        values = "; ".join(f"{name} {ours:.6g}, {theirs:.6g}" for name, (ours, theirs) in ratio.results.items())
        table.add_row(ratio.what, ratio.relative_to, f"{ratio.ratio:.2f} ({ratio.low:.2f}-{ratio.high:.2f})", values)
    console.print(table)
    notes = [f"not measured: {error} ({what})" for error, what in failures.items()]
    record("peers", ratios, [*notes, *reasons({library.name for library in libraries})])
    console.print(*notes, sep="\n")
    failed = [line for ratio in ratios for line in disagreements(ratio)]
    sys.exit("\n".join(failed))


if __name__ == "__main__":
    main()
