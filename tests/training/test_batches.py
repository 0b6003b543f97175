"""Which rows and images make up a step: an oracle in loops, and the same rows however many processes there are."""

from pathlib import Path

import pytest
import torch
from PIL import Image
from torch import Tensor

from calibrant.data import ImageFiles
from calibrant.errors import CorruptFileError
from calibrant.training.batches import Epoch, normalise, read_batches

N_ROWS = 50


def drawn(epoch: int = 0, seed: int = 0, padding: int = 2, flip: bool = True) -> Epoch:
    return Epoch.draw(N_ROWS, seed=seed, epoch=epoch, padding=padding, flip=flip)


def one_by_one(image: Tensor, offset: list[int], flipped: bool, padding: int) -> Tensor:
    """A crop of an image with a black border, pixel by pixel."""
    _, height, width = image.shape
    found = torch.zeros_like(image)
    for y in range(height):
        for x in range(width):
            down = y + offset[0] - padding
            across = (width - 1 - x if flipped else x) + offset[1] - padding
            if 0 <= down < height and 0 <= across < width:
                found[:, y, x] = image[:, down, across]
    return found


@pytest.mark.parametrize("padding", [0, 2])
@pytest.mark.parametrize("channels", [1, 3])
def test_images_are_moved_and_mirrored(channels: int, padding: int) -> None:
    generator = torch.Generator().manual_seed(0)
    images = torch.randint(1, 256, (N_ROWS, channels, 6, 5), dtype=torch.uint8, generator=generator)
    plan = drawn(padding=padding)
    rows = plan.order[:20]
    moved = plan.augment(images[rows], rows, padding)
    for row, image in zip(rows.tolist(), moved, strict=True):
        expected = one_by_one(images[row], plan.offsets[row].tolist(), bool(plan.flipped[row]), padding)
        assert torch.equal(image, expected)
    assert 0 < int(plan.flipped.sum()) < N_ROWS
    assert plan.offsets.unique().tolist() == list(range(2 * padding + 1))


def test_without_padding_and_mirrors_images_stay() -> None:
    images = torch.randint(0, 256, (N_ROWS, 3, 4, 4), dtype=torch.uint8)
    plan = drawn(padding=0, flip=False)
    assert torch.equal(plan.augment(images, torch.arange(N_ROWS), 0), images)


def test_epochs_and_seeds_differ_and_repeat() -> None:
    assert torch.equal(drawn().order, drawn().order)
    assert torch.equal(drawn(epoch=3).offsets, drawn(epoch=3).offsets)
    orders = [drawn(epoch, seed).order.tolist() for epoch in range(3) for seed in range(3)]
    assert len({tuple(order) for order in orders}) == 9
    assert all(sorted(order) == list(range(N_ROWS)) for order in orders)


@pytest.mark.parametrize(("world", "accumulate"), [(1, 1), (2, 1), (1, 4), (2, 2), (4, 1)])
def test_processes_and_parts_share_the_rows_of_a_step(world: int, accumulate: int) -> None:
    plan = drawn()
    shares = [plan.micro_batches(16, accumulate, rank, world) for rank in range(world)]
    assert {len(share) for share in shares} == {3 * accumulate}  # 50 rows are 3 steps of 16
    for step in range(3):
        seen = torch.cat([part for share in shares for part in share[step * accumulate : (step + 1) * accumulate]])
        assert sorted(seen.tolist()) == sorted(plan.order[16 * step : 16 * (step + 1)].tolist())
        assert {len(part) for share in shares for part in share} == {16 // world // accumulate}


def test_bytes_become_numbers_around_zero() -> None:
    found = normalise(torch.tensor([0, 51, 255], dtype=torch.uint8).view(1, 1, 1, 3), 0.5, 0.25)
    assert found.flatten().tolist() == pytest.approx([-2.0, -1.2, 2.0])


def written(folder: Path, n_images: int) -> ImageFiles:
    for number in range(n_images):
        Image.new("RGB", (8, 8), (10 * number, 0, 0)).save(folder / f"{number}.png")
    return ImageFiles.of(folder, [f"{number}.png" for number in range(n_images)], 8)


@pytest.mark.parametrize("workers", [0, 2])
def test_image_files_come_in_the_order_of_the_rows(tmp_path: Path, workers: int) -> None:
    images = written(tmp_path, 6)
    rows = torch.tensor([5, 0, 3, 1, 4, 2]).split(2)
    found = list(read_batches(images, rows, workers))
    assert [batch[:, 0, 0, 0].tolist() for batch in found] == [[50, 0], [30, 10], [40, 20]]


@pytest.mark.parametrize("workers", [0, 1])
def test_a_damaged_image_is_named_in_one_line(tmp_path: Path, workers: int) -> None:
    images = written(tmp_path, 4)
    (tmp_path / "2.png").write_bytes(b"no image")
    with pytest.raises(CorruptFileError, match=r"2\.png cannot be read as an image") as caught:
        list(read_batches(images, torch.arange(4).split(2), workers))
    assert "\n" not in str(caught.value)
