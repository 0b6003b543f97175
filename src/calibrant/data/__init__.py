"""Data sets, read from the files of their official layout."""

from calibrant.data.cifar import read_cifar_test

__all__ = ["read_cifar_test"]
