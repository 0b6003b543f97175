"""What is known of the published CIFAR-10-C: the MD5 of its files, against which ours are held."""

import hashlib
from collections.abc import Iterator
from typing import NamedTuple

from torch import Tensor

from calibrant.corruptions.layout import Report, file_parts, header, tiled

# The corruptions that draw nothing. The noise of the others was not seeded.
CIFAR10_C = {
    "brightness": "0a81ef75e0b523c3383219c330a85d48",
    "contrast": "3c8262171c51307f916c30a3308235a8",
    "defocus_blur": "7d1322666342a0702b1957e92f6254bc",
    "gaussian_blur": "c33370155bc9b055fb4a89113d3c559d",
    "jpeg_compression": "2b9cc4c864e0193bb64db8d7728f8187",
    "pixelate": "0f14f7e2db14288304e1de10df16832f",
    "saturate": "1cfae0964219c5102abbb883e538cc56",
    "zoom_blur": "6ea8e63f1c5cdee1517533840641641b",
}
CIFAR10_C_LABELS = "c439b113295ed5254878798ffe28fd54"
OTHER_ENCODER = {"jpeg_compression"}  # published files by libjpeg 9; today's Pillow has libjpeg-turbo


class Verdict(NamedTuple):
    """The MD5 of a published file and of ours."""

    name: str
    published: str
    ours: str

    @property
    def equal(self) -> bool:
        return self.published == self.ours

    @property
    def failed(self) -> bool:
        return not self.equal and self.name not in OTHER_ENCODER


def verdicts(images: Tensor, labels: Tensor, *, n_threads: int, report: Report) -> Iterator[Verdict]:
    """One for each file that can be made again, from the test images of CIFAR-10 in official order."""
    known = tiled(labels)
    yield Verdict("labels", CIFAR10_C_LABELS, hashlib.md5(header(known.shape) + known.tobytes()).hexdigest())
    for name, published in CIFAR10_C.items():
        ours = hashlib.md5()
        for part in file_parts(images, name, n_threads=n_threads, report=report, parameters="cifar"):
            ours.update(part)
        yield Verdict(name, published, ours.hexdigest())
