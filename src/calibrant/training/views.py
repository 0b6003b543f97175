"""Views of test images: mirror images and crops, whose predictions are averaged as those of several models."""

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import product

import torch
from torch import Tensor

from calibrant._checks import in_order
from calibrant._names import check_choice
from calibrant.training.batches import crop_and_flip

VIEWS = ("flip", "crop5")
CROP_PADDING = 4  # of crops, where the model was trained without
CENTRE = (0, 0)
FIVE = (CENTRE, (-1, -1), (-1, 1), (1, -1), (1, 1))


@dataclass(frozen=True, slots=True)
class View:
    """A crop of the zero-padded image, mirrored or not; without either the image itself."""

    padding: int
    shift: tuple[int, int] = CENTRE  # down and across, in units of the padding
    flipped: bool = False

    def __call__(self, images: Tensor) -> Tensor:
        """Of uint8 images (n, c, h, w)."""
        if self.shift == CENTRE and not self.flipped:
            return images
        offsets = torch.tensor([self.padding * (1 + step) for step in self.shift]).expand(len(images), 2)
        return crop_and_flip(images, offsets, torch.full((len(images),), self.flipped), self.padding)


def make_views(names: Iterable[str], padding: int = CROP_PADDING) -> list[View]:
    """The views that are averaged, the image itself first; none without names.

    ``flip`` adds the mirror image of each, ``crop5`` the four corners of the padded image: both make ten views.

    Raises:
        UnknownNameError: There is no such view.

    >>> [len(make_views(names)) for names in ((), ["flip"], ["crop5"], ["flip", "crop5"])]
    [0, 2, 5, 10]
    """
    known = {check_choice("view", name, VIEWS) for name in in_order("views", "names", names)}
    shifts = FIVE if "crop5" in known else (CENTRE,)
    flips = (False, True) if "flip" in known else (False,)
    return [View(padding, shift, flipped) for flipped, shift in product(flips, shifts)] if known else []
