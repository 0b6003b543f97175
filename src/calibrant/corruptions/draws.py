"""Random numbers of an image: functions of its key, not of the batch, the process or the order of calls."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from hashlib import blake2b
from math import prod

import numpy as np
import torch
from scipy.special import ndtri
from torch import Tensor

from calibrant._arrays import to_device

GOLDEN = -0x61C88647  # 2^32 / golden ratio, odd: neighbouring counters fall far apart
MIXERS = (0x21F0AAAD, -0x2CA5D269)  # multipliers of a 32-bit finaliser with full avalanche
MAX_CACHED_SIZE = 2**20  # numbers of an image; larger counters are not cached
N_NORMALS = 2**16


@dataclass(frozen=True)
class Draws:
    """Independent streams of random numbers, one for each image and purpose.

    A number is a hash of its image's key, its purpose and its position. No generator is advanced: an image gets the
    same numbers alone and in a batch.

    Args:
        states: A 64-bit state for each image, uint64 (n,).
        device: The device of the numbers.
    """

    states: np.ndarray
    device: torch.device

    @classmethod
    def of(cls, keys: Sequence[int | str], *context: int | str, device: torch.device) -> "Draws":
        """The draws of images with these keys.

        Args:
            keys: An integer or a word for each image.
            context: The seed, the corruption and its severity.
            device: The device of the numbers.

        Returns:
            The streams, one for each image.
        """
        numbers = np.array([_number(key) for key in keys], dtype=np.uint64)
        return cls(_mix(numbers ^ np.uint64(_digest(*context))), device)

    def __getitem__(self, rows: slice) -> "Draws":
        return Draws(self.states[rows], self.device)

    def on_cpu(self) -> "Draws":
        """The streams of these images, for numbers that the host needs.

        Returns:
            The same numbers, on the CPU.
        """
        return Draws(self.states, torch.device("cpu"))

    def words(self, purpose: str, *shape: int) -> Tensor:
        """Random words, int32 (n, *shape): w encodes the uniform number (w + 2³¹ + ½) / 2³².

        Args:
            purpose: The name of the stream.
            shape: The shape of the numbers of an image.

        Returns:
            The words.
        """
        seeds = _mix(self.states + np.uint64(_digest(purpose)))
        pairs = torch.from_numpy(seeds.view(np.int32).reshape(-1, 2).copy())
        first, second = to_device(pairs, self.device).unbind(1)
        size = prod(shape)
        counters = _counters if size < MAX_CACHED_SIZE else _counters.__wrapped__
        words = first[:, None] + counters(size, self.device)
        scratch = torch.empty_like(words)
        _fold(words, 16, scratch).mul_(MIXERS[0]).bitwise_xor_(second[:, None])
        _fold(words, 15, scratch).mul_(MIXERS[1])
        return _fold(words, 15, scratch).view(len(words), *shape)

    def uniforms(self, purpose: str, *shape: int) -> Tensor:
        """Uniform numbers in (0, 1), float64 (n, *shape).

        Args:
            purpose: The name of the stream.
            shape: The shape of the numbers of an image.

        Returns:
            The numbers.
        """
        return uniforms_of(self.words(purpose, *shape))

    def normals(self, purpose: str, *shape: int) -> Tensor:
        """Standard normal numbers, float32 (n, *shape), each one of 65,536 quantiles; two from a word.

        Args:
            purpose: The name of the stream.
            shape: The shape of the numbers of an image.

        Returns:
            The numbers.
        """
        size = prod(shape)
        halves = self.words(purpose, (size + 1) // 2).view(torch.int16)[:, :size]
        index = halves.to(torch.int32).add_(N_NORMALS // 2)
        return _quantiles(self.device).index_select(0, index.flatten()).view(len(halves), *shape)

    def integers(self, purpose: str, low: int, high: int, *shape: int) -> Tensor:
        """Uniform integers from low to high - 1, int64 (n, *shape).

        Args:
            purpose: The name of the stream.
            low: The smallest integer.
            high: The largest integer plus 1.
            shape: The shape of the numbers of an image.

        Returns:
            The numbers.
        """
        return self.uniforms(purpose, *shape).mul_(high - low).long().add_(low)


def uniforms_of(words: Tensor) -> Tensor:
    """The uniform numbers in (0, 1) that words encode, float64."""
    return words.double().add_(2.0**31 + 0.5).mul_(2.0**-32)


def _digest(*context: int | str) -> int:
    """A 64-bit hash of a context, the same in every process and for equal values of any type."""
    digest = blake2b(digest_size=8)
    for part in context:
        spelled = b"word " + part.encode("utf-8", "surrogatepass") if isinstance(part, str) else b"%d" % int(part)
        digest.update(b"%d " % len(spelled) + spelled)
    return int.from_bytes(digest.digest(), "little")


def _number(key: int | str) -> int:
    return _digest(key) if isinstance(key, str) else int(key) % 2**64


def _mix(numbers: np.ndarray) -> np.ndarray:
    """The finaliser of SplitMix64: a bijection of 64-bit numbers."""
    numbers = (numbers ^ (numbers >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    numbers = (numbers ^ (numbers >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    mixed: np.ndarray = numbers ^ (numbers >> np.uint64(31))
    return mixed


def _fold(words: Tensor, n_bits: int, scratch: Tensor) -> Tensor:
    """W ^= w >> n_bits in place, with a logical shift where torch's is arithmetic."""
    torch.bitwise_right_shift(words, n_bits, out=scratch)
    return words.bitwise_xor_(scratch.bitwise_and_(2 ** (32 - n_bits) - 1))


@lru_cache(maxsize=8)
def _counters(size: int, device: torch.device) -> Tensor:
    return torch.arange(size, dtype=torch.int32, device=device).mul_(GOLDEN)


@lru_cache(maxsize=8)
def _quantiles(device: torch.device) -> Tensor:
    """The normal quantiles at the middle of 65,536 cells of equal probability, scaled to unit variance."""
    quantiles = ndtri((np.arange(N_NORMALS) + 0.5) / N_NORMALS)
    return torch.from_numpy(quantiles / quantiles.std()).to(device, torch.float32)
