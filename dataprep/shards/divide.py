"""Divide the images of a shard into batches, one for each segment."""

from __future__ import annotations

from collections.abc import Iterator

#: Limits of a batch. A segment stays small in memory, and no process works long on it while the
#: others wait.
MAX_BATCH_BYTES = 2 << 20
MAX_BATCH_IMAGES = 64

#: Images of a batch in an object store are read at the same time, and a request takes as long as
#: some megabytes do.
REMOTE_BATCH_BYTES = 8 << 20


def divide(
    sizes: list[int], stored: int | None, max_bytes: int = MAX_BATCH_BYTES
) -> Iterator[tuple[int, int]]:
    """Yield the first image of each batch and the one after its last.

    Args:
        sizes: sizes of the source images in bytes; negative if unknown.
        stored: bytes of each image as stored, if they do not depend on the image.
        max_bytes: total size of the images of a batch, at most.

    """
    first = total = 0
    for number, size in enumerate(sizes):
        larger = max(size, stored or 0)
        if number > first and (total + larger > max_bytes or number - first == MAX_BATCH_IMAGES):
            yield first, number
            first, total = number, 0
        total += larger
    if first < len(sizes):
        yield first, len(sizes)
