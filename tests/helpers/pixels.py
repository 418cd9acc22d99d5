"""Operations at fixed parameters compared with functions of libraries, on photographs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from helpers.graphs import run_each
from helpers.photographs import photograph
from loaders.transforms.base import ImageSpec, Operation


class Row(NamedTuple):
    """What is compared: an operation, or a chain of them, and a function that gives the same image.

    A pixel may differ by `most`, and by `floats` in a normalized image; `None` compares no
    normalized images. A `share` of the pixels may differ more, where two pixels are equally near or
    an edge is treated in another way. `gpu` are other limits for a GPU.
    """

    operations: Operation | Sequence[Operation]
    oracle: Callable[[np.ndarray], Any]
    most: float = 0
    floats: float | None = None
    share: float = 0
    mean: float = 2
    gpu: dict[str, float] = {}  # noqa: RUF012


def photographs() -> list[np.ndarray]:
    """Return photographs of three sizes."""
    real = (
        photograph("astronaut")[40:240, 100:301],
        photograph("chelsea")[50:171, 60:300],
        photograph("coffee")[100:200, 200:350],
    )
    return [*map(np.ascontiguousarray, real)]


def normalized(image: np.ndarray) -> np.ndarray:
    return ((image - 127.7) / 60).astype(np.float32)


def assert_images(
    rows: Sequence[Row], images: Sequence[np.ndarray], *, gpu: bool = False, **options: Any
) -> None:
    """Run all rows on uint8 images, and on normalized ones."""
    rows = [row._replace(**row.gpu) if gpu else row for row in rows]
    floats = [row._replace(most=row.floats) for row in rows if row.floats is not None]
    for chosen, given in ((rows, images), (floats, [normalized(image) for image in images])):
        if not chosen:
            continue
        found = run_each([row.operations for row in chosen], given, gpu=gpu, **options)
        for row, results in zip(chosen, found, strict=True):
            for image, result in zip(given, results, strict=True):
                assert_image(row, image, result)


def assert_image(row: Row, image: np.ndarray, found: np.ndarray) -> None:
    """Compare one result, and the size that the operations state."""
    expected = np.asarray(row.oracle(image))
    assert (found.dtype, found.shape) == (image.dtype, expected.shape), row
    difference = np.abs(found.astype(float) - expected)
    beyond = (difference.max(-1) > row.most).mean()
    assert beyond <= row.share, (row, image.shape, beyond, difference.max())
    assert difference.mean() <= row.mean, (row, image.shape, difference.mean())
    spec = ImageSpec(image.shape[:2], is_uint8=image.dtype == np.uint8)
    for each in (row.operations,) if isinstance(row.operations, Operation) else row.operations:
        spec = each.output(spec)
    assert spec.size in (None, found.shape[:2]), row
