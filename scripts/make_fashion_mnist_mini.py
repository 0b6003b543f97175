"""Make the data set that comes with the package: the first 800 training and 200 test images of each class.

Run: python scripts/make_fashion_mnist_mini.py FOLDER     with the four IDX files of Fashion-MNIST in it, as Debian's
package dataset-fashion-mnist puts them into /usr/share/datasets/fashion-mnist. The same files give the same bytes.
"""

import sys

import numpy as np
import torch
from calibrant.data.fashion import EMBEDDED

from calibrant.data import read_mnist_files

PER_CLASS = {"train": 800, "test": 200}


def main() -> None:
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    arrays = {}
    for part, n_images in PER_CLASS.items():
        images, labels = read_mnist_files(sys.argv[1], part)
        firsts = [(labels == label).nonzero()[:n_images, 0] for label in range(10)]
        rows = torch.cat(firsts).sort().values
        arrays[f"{part}_images"] = images[rows, 0].numpy()
        arrays[f"{part}_labels"] = labels[rows].byte().numpy()
    np.savez_compressed(EMBEDDED, **arrays)
    print(f"{EMBEDDED}: {EMBEDDED.stat().st_size / 1e6:.2f} MB")


if __name__ == "__main__":
    main()
