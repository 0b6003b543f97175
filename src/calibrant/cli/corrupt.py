"""`calibrant corrupt`: shifted versions of a folder of images or of a data set."""

import sys
from pathlib import Path
from typing import Any, Literal

from calibrant._names import check_choice, known_names
from calibrant._paths import check_source
from calibrant.cli.options import File, Integer, Output, Switch
from calibrant.cli.output import counting_bar, status
from calibrant.errors import InvalidInputError, printable


def corrupt(
    source: File | None = None,
    name: str | None = None,
    severity: Integer | None = None,
    *,
    output: Output | None = None,
    all: Switch = False,
    layout: Literal["folder", "cifar-c"] = "folder",
    seed: Integer = 0,
    parameters: Literal["cifar", "tiny_imagenet", "imagenet"] | None = None,
    frost_dir: File | None = None,
    save_quality: Integer | None = None,
    jobs: Integer | None = None,
    sheet: File | None = None,
) -> None:
    """Corrupt images: the nineteen common corruptions at severities 1 to 5, seeded.

    `calibrant corrupt photos fog 3 -o photos-fog-3` writes the tree of photos as PNG files; `--all` writes a folder for
    every corruption and severity. Existing files are kept: interrupted work resumes. The noise of an image depends on
    its path and the seed. `--layout cifar-c` writes the files of CIFAR-10-C from a data set, `--sheet photo.png` draws
    one image under every corruption.

    Parameters
    ----------
    source
        A folder of images or one image; for --layout cifar-c a folder with CIFAR's binary test batch, a .npy file
        of images, uint8 (n, h, w, 3), or a .npz file of images and labels.
    name
        The corruption: gaussian_noise, shot_noise, impulse_noise, defocus_blur, glass_blur, motion_blur, zoom_blur,
        snow, frost, fog, brightness, contrast, elastic_transform, pixelate, jpeg_compression, speckle_noise,
        gaussian_blur, spatter or saturate.
    severity
        From 1, mild, to 5; not for --layout cifar-c, whose files have all five.
    output
        The folder to write, or the image for --sheet.
    all
        All nineteen corruptions at all severities.
    layout
        A tree of images, or one .npy file for each corruption.
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
        An image to draw the contact sheet of.
    """
    if name is not None:
        check_choice("corruption", name, known_names("CORRUPTIONS"))
    if source is not None and layout == "folder":
        check_source(source)
    import torch

    torch.set_num_threads(1)  # the threads of --jobs divide the images
    options: dict[str, Any] = {"seed": seed, "parameters": parameters, "frost_dir": frost_dir}
    options["save_quality"] = save_quality
    if sheet is not None:
        if source or all or layout != "folder":
            raise InvalidInputError("--sheet draws one image: give no source and no corruption with it")
        from calibrant.corruptions.sheet import save_sheet

        image = Path(sheet)
        output = output or str(image.with_name(f"{image.stem}-corruptions.png"))
        with status("drawing"):
            drawn = save_sheet(sheet, output, **options)
        print(printable(f"{output}: {drawn.width} x {drawn.height} pixels"))
        return
    if source is None or output is None:
        raise InvalidInputError("give a source, a corruption, a severity and the folder to write: -o FOLDER")
    if all == (name is not None):
        raise InvalidInputError("give either the name of a corruption or --all")
    if layout == "cifar-c":
        from calibrant.corruptions.layout import write_cifar_c

        if severity is not None:
            raise InvalidInputError("--layout cifar-c writes all severities into one file; give none")
        files = write_cifar_c(source, output, name, jobs=jobs, bar=counting_bar, **options)
    else:
        from calibrant.corruptions.folders import corrupt_folder

        files = corrupt_folder(source, output, name, severity, jobs=jobs, bar=counting_bar, **options)
    print(printable(f"{output}: {files.written:,} files written, {files.kept:,} kept"))
    for key, reason in files.skipped.items():
        print(printable(f"skipped {key}: {reason}"), file=sys.stderr)
    if files.skipped:
        raise InvalidInputError(f"{len(files.skipped):,} files skipped; the rest is written")
