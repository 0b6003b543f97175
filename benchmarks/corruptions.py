"""Corruptions compared with imagecorruptions: CPU time on the same images, one thread; memory.

Run: python benchmarks/corruptions.py [--rounds 5] [--severity 3] [--no-cifar-c]      (pip install 'calibrant[bench]')
A ratio of 8 means that the peer takes eight times as long. The peer has the parameters of ImageNet only; at 32 pixels
ours are measured with those of CIFAR, the default at that size, and with those of ImageNet. Images are crops of
scikit-learn's two photographs. The whole CIFAR-10-C, 19 x 5 x 10,000 random images, is timed on all processors.
"""

import os

os.environ["OMP_NUM_THREADS"] = "1"  # numpy and torch read it when they are imported

import argparse
import subprocess
import sys
import time
import warnings
from collections.abc import Callable
from statistics import geometric_mean, median

import numpy as np
import torch
from recording import Ratio, record
from rich.console import Console
from rich.progress import track
from rich.table import Table
from sklearn.datasets import load_sample_images
from timing import cpu_seconds
from torch import Tensor

import calibrant as cb

SIZES = {32: 1000, 224: 32}  # pixels: images in a batch
BROKEN = {"fog", "glass_blur", "gaussian_blur"}  # in the peer, with numpy 2 and scikit-image 0.19
GOALS = {32: 8.0, 224: 2.0}
LOWEST = {32: 1.0, 224: 0.7}
MIN_SMALL = {"jpeg_compression": 0.8, "pixelate": 0.8}
GLASS_GOAL = 0.3  # ms for an image of 32 pixels
MEMORY_IMAGES = (5_000, 50_000)
MEMORY = """
import torch, calibrant as cb
torch.set_num_threads(1)
def kilobytes(entry):
    return next(int(line.split()[1]) for line in open("/proc/self/status") if line.startswith(entry))
images = torch.randint(0, 256, ({n}, 3, 32, 32), dtype=torch.uint8)
cb.corrupt(images[:200], "{name}", 3)
open("/proc/self/clear_refs", "w").write("5")  # reset the peak
before = kilobytes("VmRSS")
corrupted = cb.corrupt(images, "{name}", 3)
print((kilobytes("VmHWM") - before) / 1024, images.numel() / 2**20)
"""


def crops(side: int, n_images: int) -> Tensor:
    """Random crops of photographs."""
    rng = np.random.default_rng(0)
    photos = [torch.from_numpy(photo.copy()).permute(2, 0, 1) for photo in load_sample_images().images]
    found = []
    for number in range(n_images):
        photo = photos[number % 2]
        top, left = (int(rng.integers(0, size - side)) for size in photo.shape[1:])
        found.append(photo[:, top : top + side, left : left + side])
    return torch.stack(found)


def peer_of(name: str, severity: int, images: Tensor) -> Callable[[], object] | None:
    """The peer's loop over images, or None where it fails."""
    if name in BROKEN:
        return None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # from the peer
        import imagecorruptions
    pixels = list(images.permute(0, 2, 3, 1).contiguous().numpy())

    def loop() -> object:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return [imagecorruptions.corrupt(image, severity=severity, corruption_name=name) for image in pixels]

    return loop


def rounds_of(functions: dict[str, Callable[[], object]], n_rounds: int) -> dict[str, list[float]]:
    """CPU seconds of each function in interleaved rounds."""
    for function in functions.values():
        function()
    times = [{name: cpu_seconds(function, 1) for name, function in functions.items()} for _ in range(n_rounds)]
    return {name: [found[name] for found in times] for name in functions}


def compare(side: int, severity: int, n_rounds: int, console: Console) -> list[Ratio]:
    images = crops(side, SIZES[side])
    sets = [None, "imagenet"] if side == 32 else ["imagenet"]
    table = Table(title=f"{side} x {side}, batches of {len(images)}, severity {severity}", title_justify="left")
    for heading in ("corruption", "ours, ms", *(["ImageNet's, ms"] if side == 32 else []), "peer, ms", "ratio", "goal"):
        table.add_column(heading, justify="left" if heading == "corruption" else "right")
    ratios, size = [], f"{side} x {side}"
    for name in track(cb.CORRUPTIONS, f"{side} pixels", console=console, transient=True):
        functions: dict[str, Callable[[], object]] = {
            str(chosen): lambda name=name, chosen=chosen: cb.corrupt(images, name, severity, parameters=chosen)  # type: ignore[misc]
            for chosen in sets
        }
        peer = peer_of(name, severity, images)
        if peer is not None:
            functions["peer"] = peer
        seconds = rounds_of(functions, n_rounds)
        milliseconds = {key: 1e3 * median(found) / len(images) for key, found in seconds.items()}
        cells = [f"{milliseconds[str(chosen)]:.3f}" for chosen in sets]
        if peer is None:
            table.add_row(name, *cells, "fails", "", "")
            if name == "glass_blur" and side == 32:
                times = [1e3 * found / len(images) for found in seconds["None"]]
                ratios.append(Ratio.of(f"calibrant, {name}, an image of {size}", "1 ms", times, at_most=GLASS_GOAL))
            continue
        least = MIN_SMALL.get(name, LOWEST[side]) if side == 32 else LOWEST[side]
        found = []
        for chosen in sets:
            theirs = [a / b for a, b in zip(seconds["peer"], seconds[str(chosen)], strict=True)]
            ours = "calibrant, with ImageNet's parameters" if found else "calibrant"
            found.append(Ratio.of(f"imagecorruptions, {name}, {size}", ours, theirs, at_least=None if found else least))
        mark = "" if found[0].ratio >= least else " missed"
        shown = " ".join(f"{each.ratio:.1f}" for each in found)
        table.add_row(name, *cells, f"{milliseconds['peer']:.3f}", shown, f"{least}{mark}")
        ratios += found
    default = [ratio for ratio in ratios if ratio.relative_to == "calibrant"]
    mean, low, high = (geometric_mean(getattr(each, key) for each in default) for key in ("ratio", "low", "high"))
    table.add_row("geometric mean", *[""] * (len(sets) + 1), f"{mean:.1f}", f"{GOALS[side]}")
    console.print(table)
    what, ours = f"imagecorruptions, geometric mean, {size}", "calibrant"
    return [*ratios, Ratio(what=what, relative_to=ours, ratio=mean, low=low, high=high, at_least=GOALS[side])]


def memory(console: Console) -> list[Ratio]:
    table = Table(title="peak memory beyond the input, in MiB (in copies of it)", title_justify="left")
    for heading in ("corruption", *(f"{n:,} images" for n in MEMORY_IMAGES)):
        table.add_column(heading, justify="left" if heading == "corruption" else "right")
    ratios = []
    for name in ("gaussian_noise", "zoom_blur", "motion_blur", "jpeg_compression"):
        cells = []
        for n_images in MEMORY_IMAGES:
            script = MEMORY.format(n=n_images, name=name)
            run = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
            peak, images = map(float, run.stdout.split())
            cells.append(f"{peak:.0f} ({peak / images:.2f})")
            ratios.append(Ratio.of(f"peak memory beyond {n_images:,} images, {name}", "the images", [peak / images]))
        table.add_row(name, *cells)
    console.print(table)
    return ratios


def whole_set(console: Console) -> Ratio:
    """The nineteen corruptions of CIFAR-10-C, in memory, on all processors."""
    from calibrant.corruptions.layout import file_parts

    images = torch.randint(0, 256, (10_000, 3, 32, 32), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    n_threads = os.cpu_count() or 1
    start, cpu = time.perf_counter(), time.process_time()
    for name in track(cb.CORRUPTIONS, "CIFAR-10-C", console=console, transient=True):
        for _ in file_parts(images, name, n_threads=n_threads):
            pass
    taken, cpu = time.perf_counter() - start, time.process_time() - cpu
    console.print(
        f"CIFAR-10-C, 950,000 images: {taken:.0f} s on {n_threads} processors, {cpu:.0f} s of CPU (goal 240 s)"
    )
    return Ratio.of("wall-clock time of CIFAR-10-C, 950,000 images, on all processors", "1 s", [taken], at_most=240)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--severity", type=int, default=3)
    parser.add_argument("--no-cifar-c", action="store_true")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    console = Console(width=120)
    recorded = [ratio for side in SIZES for ratio in compare(side, arguments.severity, arguments.rounds, console)]
    recorded += memory(console)
    if not arguments.no_cifar_c:
        recorded.append(whole_set(console))
    record("corruptions", recorded)


if __name__ == "__main__":
    main()
