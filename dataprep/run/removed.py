"""Which new samples of a source were removed from a dataset before, so that an append leaves them out."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from awscrt.checksums import crc32c

from dataprep.arrays import BoolArray
from dataprep.engines import Engine
from dataprep.ledger.removed import digests, read_removed
from dataprep.ledger.state import Folder
from dataprep.options import CHANGING_OPTIONS
from dataprep.progress import Progress, divide
from dataprep.run.known import comparable
from dataprep.shards.source_image import LoadedImage, read_images
from dataprep.sources import Source
from dataprep.sources.base import first_names
from manifests.process.text import agree, plural, printable
from manifests.schema import UNREADABLE
from manifests.serialization import parts


def find_removed(
    base: Folder, source: Source, new: BoolArray, engine: Engine, progress: Progress | None
) -> tuple[BoolArray, tuple[str, ...]]:
    """Return which new samples have the stored image of a removed sample, bool [n], and messages.

    If the dataset stores images as they are, only images of the length of a removed one are read.

    Args:
        base: the dataset.
        source: the samples.
        new: which samples are not in the dataset, bool [n].
        engine: reads images.
        progress: receives the number of images that are read.

    Raises:
        CallError: the images cannot be compared, because other libraries resized the images of the
            dataset.

    """
    removed = np.zeros(len(source), np.bool_)
    listed = read_removed(base.out, base.manifest)
    if not (len(listed) and new.any()):
        return removed, ()
    known, sizes = {*digests(listed)}, np.asarray(listed["size"])
    # Revisions that changed images in different ways stored different bytes.
    ways = {}
    for part in parts(base.manifest):
        if not part.shards:
            continue
        way = {name: part.options.get(name) for name in sorted(CHANGING_OPTIONS)}
        ways[repr(way)] = part.options
    with divide(progress, [int(new.sum())] * len(ways)) as shares:
        for members, share in zip(ways.values(), shares, strict=True):
            rows = np.flatnonzero(new & ~removed)
            pairs = pa.table({"source": source.path.take(pa.array(rows))})
            options = comparable(base, members, pairs) if len(rows) else None
            if options is None:
                continue
            if not options.changes_images:
                own = source.size[rows]
                rows = rows[np.isin(own, sizes) | (own == UNREADABLE)]
            found = read_images(
                source.images, rows, _digest_of, options=options, engine=engine, progress=share
            )
            for row, digest in found:
                if digest in known:
                    removed[row] = True
    count = int(removed.sum())
    if not count:
        return removed, ()
    names = source.path.take(pa.array(np.flatnonzero(removed)[:10])).to_pylist()
    was = agree(count, "was", "were")
    return removed, (
        f"{plural(count, 'image')} of the source {was} removed from {printable(base.out)} before,"
        f" and {agree(count, 'is', 'are')} left out: {first_names(names)}",
    )


def _digest_of(image: LoadedImage) -> tuple[int, ...]:
    """Return the digest of an image, as `dataprep.ledger.removed.digests` does."""
    return (crc32c(image.data), len(image.data), image.info.width, image.info.height)
