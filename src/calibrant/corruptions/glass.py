"""Glass blur: pixels copied from near neighbours, one after the other, between two Gaussian blurs."""

import torch
from torch import Tensor

from calibrant.corruptions.blur import gaussian_blur


def glass_blur(images: Tensor, sigma: float, reach: int, sweeps: int, offsets: Tensor) -> Tensor:
    """Blurred, shuffled locally, blurred again.

    A sweep visits the pixels from the last to the first; each takes the value of a neighbour at most reach away. The
    published scripts intend a swap but copy: on views of an array the second assignment reads what the first has
    written. offsets (n, sweeps, 2, h - 2 reach, w - 2 reach): x and y of the neighbour of each pixel.
    """
    blurred = gaussian_blur(images, sigma)
    n, channels, height, width = images.shape
    planes = torch.arange(n * channels, dtype=torch.int32, device=images.device).mul_(height * width)
    for sweep in offsets.unbind(1):
        source = _sources(sweep.to(torch.int32), reach, height, width)
        index = source.view(n, 1, -1) + planes.view(n, channels, 1)
        blurred = blurred.flatten().index_select(0, index.flatten()).view_as(images)
    return gaussian_blur(blurred, sigma)


def _sources(offsets: Tensor, reach: int, height: int, width: int) -> Tensor:
    """For each pixel (n, h · w) the pixel whose value before the sweep it has after it.

    A neighbour that was visited before has the value that it took itself; one that was not has its own. Such chains
    exist only with reach > 1: they are resolved by doubling until nothing changes.
    """
    pixels = torch.arange(height * width, dtype=torch.int32, device=offsets.device).view(height, width)
    inner = slice(reach + 1, height - reach + 1), slice(reach + 1, width - reach + 1)
    source = pixels.repeat(len(offsets), 1, 1)
    source[:, *inner] += offsets[:, 0] + offsets[:, 1] * width
    if reach == 1:
        return source
    visited = torch.zeros_like(pixels, dtype=torch.bool)
    visited[inner] = True
    source, start = source.flatten(1), pixels.flatten()
    ends = (source <= start) | ~visited.flatten()[source]  # the value taken there is the old one
    following = torch.where(ends, start, source)  # the pixel that takes the same value; itself at an end
    while True:
        further = following.gather(1, following.long())
        if torch.equal(further, following):
            return source.gather(1, following.long())
        following = further
