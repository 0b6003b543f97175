"""Data sets, read from the files of their official layout."""

from calibrant.data.cifar import read_cifar_test
from calibrant.data.fashion import read_fashion_mnist, read_fashion_mnist_mini
from calibrant.data.idx import read_idx

__all__ = ["read_cifar_test", "read_fashion_mnist", "read_fashion_mnist_mini", "read_idx"]
