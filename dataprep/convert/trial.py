"""Measure speed and stored size on a sample of the images, for the estimates of a dry run.

Nothing is written.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from awscrt.checksums import crc32c

from dataprep.containers import Location, locations_of
from dataprep.formats import FORMATS, PendingSample
from dataprep.images.base import Rejected
from dataprep.options import Options
from dataprep.plan.assign import ShardPlan
from dataprep.shards.source_image import load_image
from dataprep.sources import Source

#: Maximum number of images to take from each shard.
_MAX_PER_SHARD = 2000


class Trial(NamedTuple):
    """What a trial measured.

    Attributes:
        rate: images per second of one worker, without writing.
        measured: number of images measured.
        stored: mean size of a stored image in bytes.

    """

    rate: float
    measured: int
    stored: float


def run_trial(
    source: Source, shards: Sequence[ShardPlan], options: Options, seconds: float = 1.0
) -> Trial:
    """Read, check, convert and frame images as a worker would, for about `seconds`."""
    record_format = FORMATS[options.fmt]
    start = time.perf_counter()
    measured = kept = stored = 0
    for path, size, location in _interleave(source, shards):
        try:
            data, info, *_ = load_image(source.root, path, size, options, location)
            record_format.frame(PendingSample("0", 0, "", info, len(data), crc32c(data), path, {}))
            kept, stored = kept + 1, stored + len(data)
        except Rejected:
            pass
        measured += 1
        if time.perf_counter() - start > seconds:
            break
    return Trial(measured / max(time.perf_counter() - start, 1e-9), measured, stored / max(kept, 1))


def _interleave(
    source: Source, shards: Sequence[ShardPlan]
) -> Iterator[tuple[str, int, Location | None]]:
    """Yield path, size and location of images, one from each shard in turn."""
    for position in range(_MAX_PER_SHARD):
        for row in (int(shard.rows[position]) for shard in shards if position < len(shard.rows)):
            locations = locations_of(source.location, [row])
            yield (
                source.path[row].as_py(),
                int(source.size[row]),
                locations[0] if locations else None,
            )
