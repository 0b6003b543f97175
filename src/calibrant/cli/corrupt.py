"""`calibrant corrupt`: shifted versions of a folder of pictures or of a data set."""

import os
import sys
from pathlib import Path
from typing import Annotated, Any, Literal

from cyclopts import Parameter

from calibrant.cli.options import Integer, Switch
from calibrant.cli.output import counting_bar, new_table, shown
from calibrant.errors import InvalidInputError, NoDataError, printable


def corrupt(
    source: Path | None = None,
    name: str | None = None,
    severity: Integer | None = None,
    *,
    output: Annotated[Path | None, Parameter(name=["--output", "-o"])] = None,
    all: Switch = False,
    layout: Literal["folder", "cifar-c"] = "folder",
    seed: Integer = 0,
    parameters: Literal["cifar", "tiny_imagenet", "imagenet"] | None = None,
    frost_dir: Path | None = None,
    save_quality: Integer | None = None,
    jobs: Integer | None = None,
    sheet: Path | None = None,
    verify: Literal["cifar10"] | None = None,
    root: Path | None = None,
) -> None:
    """Corrupt images: the nineteen common corruptions at severities 1 to 5, seeded.

    `calibrant corrupt photos fog 3 -o photos-fog-3` writes the tree of photos as PNG files; `--all` writes every
    corruption and severity into folders of their own. What is there already is kept, so that interrupted work goes on.
    An image's noise belongs to its path and the seed. `--layout cifar-c` writes the files of CIFAR-10-C from a data
    set, `--sheet photo.png` draws one image under everything, `--verify cifar10` holds our files against the
    published ones.

    Parameters
    ----------
    source
        A folder of pictures or one picture; for --layout cifar-c a folder with CIFAR's binary test batch, a .npy file
        of images, uint8 (n, h, w, 3), or a .npz file of images and labels.
    name
        The corruption: gaussian_noise, shot_noise, impulse_noise, defocus_blur, glass_blur, motion_blur, zoom_blur,
        snow, frost, fog, brightness, contrast, elastic_transform, pixelate, jpeg_compression, speckle_noise,
        gaussian_blur, spatter or saturate.
    severity
        From 1, mild, to 5; not for --layout cifar-c, whose files have all five.
    output
        The folder to write, or the picture for --sheet.
    all
        All nineteen corruptions at all severities.
    layout
        A tree of pictures, or one .npy file for each corruption.
    seed
        Another seed gives other noise.
    parameters
        The severities of CIFAR-10-C, Tiny-ImageNet-C or ImageNet-C as published; by default those of the nearest image
        size, with lengths in proportion.
    frost_dir
        A folder with the photographs of the published sets, frost1.png to frost5.jpg.
    save_quality
        Write JPEG files of this quality; Tiny-ImageNet-C and ImageNet-C have 85.
    jobs
        Threads; by default one for each processor.
    sheet
        A picture to draw the contact sheet of.
    verify
        The data set whose published corrupted files are to be made again and compared.
    root
        The folder with the data set to verify; by default the environment variable CALIBRANT_DATA.
    """
    import torch

    n_threads = jobs if jobs is not None else os.cpu_count() or 1
    if n_threads < 1:
        raise InvalidInputError(f"--jobs must be an integer of at least 1, got {jobs}")
    options: dict[str, Any] = {
        "seed": seed,
        "parameters": parameters,
        "frost_dir": None if frost_dir is None else str(frost_dir.resolve()),
        "save_quality": save_quality,
    }
    torch.set_num_threads(1)  # the work is shared by images
    if verify is not None:
        if sheet or source or output or all or any(options.values()):
            raise InvalidInputError("--verify stands alone, with --root and --jobs")
        _verify(root, n_threads)
        return
    if root is not None:
        raise InvalidInputError("--root says where the data set of --verify lies")
    if sheet is not None:
        if source or all or layout != "folder":
            raise InvalidInputError("--sheet draws one picture: give no source and no corruption with it")
        _draw_sheet(sheet, output, options)
    elif source is None or output is None:
        raise InvalidInputError("give a source, a corruption, a severity and the folder to write: -o FOLDER")
    elif layout == "cifar-c":
        _write_layout(source, _names(name, all), severity, output, n_threads, options)
    else:
        _write_folder(source, name, severity, output, n_threads, options, every=all)


def _names(name: str | None, every: bool) -> list[str]:
    from calibrant._checks import check_choice
    from calibrant.corruptions import CORRUPTIONS

    if every == (name is not None):
        raise InvalidInputError("give either the name of a corruption or --all")
    return list(CORRUPTIONS) if name is None else [check_choice("corruption", name, CORRUPTIONS)]


def _write_folder(
    source: Path,
    name: str | None,
    severity: int | None,
    target: Path,
    n_threads: int,
    options: dict[str, Any],
    *,
    every: bool,
) -> None:
    from calibrant.corruptions import Corrupt
    from calibrant.corruptions.folders import corrupt_folder, find_pictures
    from calibrant.corruptions.targets import claim

    names = _names(name, every)
    if every and severity is not None:
        raise InvalidInputError("--all makes every severity; give none")
    if not every and severity is None:
        raise InvalidInputError("give a severity from 1 to 5, or --all")
    if every:
        places = {target / n / str(s): Corrupt(n, s, **options) for n in names for s in range(1, 6)}
    else:
        places = {target: Corrupt(names[0], severity or 0, **options)}
    pictures = find_pictures(source)
    if target.resolve().is_relative_to(source.resolve()):
        raise InvalidInputError(f"{target} must not lie in {source}: the next run would corrupt it again")
    claim(target, {"corruption": name or "all", "severity": severity, "source": str(source.resolve()), **options})
    with counting_bar("corrupting", len(pictures) * len(places)) as report:
        outcome = corrupt_folder(pictures, places, n_threads=n_threads, report=report)
    print(f"{target}: {outcome.written:,} files written, {outcome.kept:,} kept")
    if outcome.left_out:
        for key, reason in outcome.left_out.items():
            print(printable(f"left out {key}: {reason}"), file=sys.stderr)
        raise InvalidInputError(f"{len(outcome.left_out):,} of {len(pictures):,} files left out; the rest is written")


def _write_layout(
    source: Path, names: list[str], severity: int | None, target: Path, n_threads: int, options: dict[str, Any]
) -> None:
    from calibrant.corruptions import Corrupt
    from calibrant.corruptions.layout import N_SEVERITIES, fingerprint, read_arrays, write_layout
    from calibrant.corruptions.targets import claim
    from calibrant.data import read_cifar

    if severity is not None:
        raise InvalidInputError("--layout cifar-c writes all severities into one file; give none")
    for name in names:
        Corrupt(name, 1, **options)  # what is wrong with the options is said before anything is written
    images, labels = read_arrays(source) if source.is_file() else read_cifar(source, "test")
    claim(target, {"layout": "cifar-c", "data": fingerprint(images, labels), **options})
    with counting_bar("corrupting", len(names) * N_SEVERITIES * len(images)) as report:
        written = write_layout(images, labels, target, names, n_threads=n_threads, report=report, **options)
    print(f"{target}: {len(written)} files written, {len(names) - len(written)} kept")


def _draw_sheet(path: Path, target: Path | None, options: dict[str, Any]) -> None:
    from calibrant._files import replacing
    from calibrant.cli.output import working
    from calibrant.corruptions.corrupting import to_picture
    from calibrant.corruptions.folders import read_picture
    from calibrant.corruptions.sheet import contact_sheet

    image = read_picture(path)
    if isinstance(image, str):
        raise NoDataError(f"{path} cannot be drawn: {image}")
    target = target or path.with_name(f"{path.stem}-corruptions.png")
    with working("drawing"):
        sheet = contact_sheet(to_picture(image), **options)
    with replacing(target) as file:
        sheet.save(file, "PNG")
    print(f"{target}: {sheet.width} x {sheet.height} pixels")


def _verify(root: Path | None, n_threads: int) -> None:
    from rich.console import Console

    from calibrant.corruptions.published import CIFAR10_C, verdicts
    from calibrant.data import read_cifar

    folder = root or os.environ.get("CALIBRANT_DATA")
    if folder is None:
        raise NoDataError("say with --root or CALIBRANT_DATA in which folder cifar-10-batches-bin/test_batch.bin lies")
    images, labels = read_cifar(folder, "test", "cifar10")
    with counting_bar("corrupting", 5 * len(images) * len(CIFAR10_C)) as report:
        found = list(verdicts(images, labels, n_threads=n_threads, report=report))
    table = new_table("CIFAR-10-C, made again", ["file", "MD5 of ours", "the published file"], n_left=3)
    for verdict in found:
        answer = (
            "identical" if verdict.equal else f"DIFFERS: {verdict.published}" if verdict.failed else "other encoder"
        )
        table.add_row(*map(shown, (f"{verdict.name}.npy", verdict.ours, answer)))
    Console().print(table)
    print("jpeg_compression: libjpeg 9 made the published file; ours is what this Pillow makes, byte for byte.")
    if any(verdict.failed for verdict in found):
        sys.exit(1)
