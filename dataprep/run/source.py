"""The source of a run: read it, choose its samples, try some images, and check other machines."""

from __future__ import annotations

import os
import secrets
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import NamedTuple

import numpy as np
from awscrt.checksums import crc32c

from dataprep import storage
from dataprep.canary import Canary, canary, check_canary
from dataprep.containers import Location, SourceImages
from dataprep.engines import Engine
from dataprep.formats import FORMATS, PendingSample
from dataprep.images.base import Rejected
from dataprep.labels.kinds import KINDS
from dataprep.ledger.finished import check_output
from dataprep.options import Options, SourceOptions
from dataprep.plan.assign import ShardPlan
from dataprep.progress import Progress
from dataprep.shards.source_image import load_image
from dataprep.sources import Source
from dataprep.sources.base import NamedSource
from manifests.errors import SourceVanishedError, StorageError

# --- read the source ------------------------------------------------------------------------------


def open_source(
    srcs: Sequence[str],
    reading: SourceOptions,
    options: Options,
    *,
    out: str,
    workers: int | None = None,
    progress: Progress | None = None,
    search_progress: Progress | None = None,
) -> tuple[Sequence[NamedSource], Source]:
    """Read one or more sources as one. No image is opened, unless the options look for duplicates.

    Args:
        srcs: folders, lists, tables, archives or datasets; see `read_source`.
        reading: how to read each of them.
        options: options of the conversion.
        out: the output folder.
        workers: see `select_samples`.
        progress: see `select_samples`.
        search_progress: see `select_samples`.

    Returns:
        Each source as it was given, and the samples to convert, of all sources.

    Raises:
        CallError: a source does not exist or is given twice, an option does not apply to it, or it
            contains `out`.
        SourceError: the layout is not known, or a line, a label or an image is not valid.

    """
    # Workers import this module, but read no source.
    from dataprep.sources.recognize import read_sources

    given = read_sources(srcs, reading)
    whole = given[0].source
    if len(given) > 1:
        from dataprep.sources.merge import merge_sources

        whole = merge_sources(given)
    samples = select_samples(
        whole, options, workers=workers, progress=progress, search_progress=search_progress
    )
    if len(given) > 1:  # the folder above all sources is not one of them
        for each in given:
            check_output(each.source, out)
    return given, samples


def select_samples(
    source: Source,
    options: Options,
    *,
    workers: int | None = None,
    progress: Progress | None = None,
    search_progress: Progress | None = None,
) -> Source:
    """Return the samples of a source that a conversion with these options plans.

    Args:
        source: all samples.
        options: `where`, `duplicates`, `split_by`, `distance` and `hash` apply.
        workers: number of processes that read images to find duplicates; `None` means one per CPU.
        progress: receives the images that are read.
        search_progress: receives the progress of the search for copies, in images.

    Raises:
        CallError: the filter does not fit the source, or there are too many pairs of copies.
        SourceVanishedError: an image is gone, or its size changed after the scan.

    """
    from dataprep.plan.splits import filter_source
    from dataprep.sources.prepared import without_hashes

    if options.where is not None:
        source = filter_source(source, options.where)
    if options.finds_duplicates:
        from dataprep.duplicates.results import resolve_duplicates

        source = resolve_duplicates(
            source, options, workers=workers, progress=progress, search_progress=search_progress
        )
    return source if options.hash else without_hashes(source)


# --- try some images ------------------------------------------------------------------------------


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


def run_trial(source: Source, shards: Sequence[ShardPlan], options: Options) -> Trial:
    """Read, check, convert and wrap images as a worker would, for about a second."""
    record_format, labels = FORMATS[options.fmt], KINDS["class"]
    start = time.perf_counter()
    measured = kept = stored = 0
    for path, size, location in _interleave(source, shards):
        try:
            data, info, *_ = load_image(source.root, path, size, options, location)
            record_format.envelope(
                PendingSample("0", 0, "", info, len(data), crc32c(data), path, {}, labels)
            )
            kept, stored = kept + 1, stored + len(data)
        except Rejected:
            pass
        measured += 1
        if time.perf_counter() - start > 1:
            break
    return Trial(measured / max(time.perf_counter() - start, 1e-9), measured, stored / max(kept, 1))


def _interleave(
    source: Source, shards: Sequence[ShardPlan]
) -> Iterator[tuple[str, int, Location | None]]:
    """Yield path, size and location of images, one from each shard in turn."""
    for position in range(_MAX_PER_SHARD):
        for shard in shards:
            _, *columns = source.images(shard.rows[position : position + 1])
            yield from zip(*columns, strict=True)


# --- check that other machines see the folders, and write the same bytes --------------------------


#: Prefix of the temporary file by which a machine recognizes the output folder.
_PROBE = "machine-check-"


class Expected(NamedTuple):
    """What a machine must find.

    Attributes:
        out: the output folder.
        probe: final name of a temporary file in it, which this run has written.
        images: some images of the source.
        canary: the canary of the machine that made the plan.

    """

    out: str
    probe: str
    images: SourceImages
    canary: Canary


def check_machines(engine: Engine, source: Source, out: str) -> None:
    """Check all machines of an engine.

    Call it while the folder for temporary files exists, which keeps the probe.

    Raises:
        StoppedError: a machine does not see the output folder or the source, or would write other
            bytes.

    """
    if engine.is_local:
        return
    probe = _PROBE + secrets.token_hex(8)
    storage.write_partial(os.path.join(out, probe), b"")
    # The first and the last image: a source may be spread over several file systems.
    images = source.images(np.arange(len(source))[:: max(1, len(source) - 1)])
    engine.check(check_machine, Expected(out, probe, images, canary()))


def check_machine(expected: Expected) -> None:
    """Check this machine.

    Raises:
        SourceVanishedError: it does not see the source.
        StorageError: it does not see the output folder, or cannot write to it.
        StoppedError: it would write other bytes.

    """
    check_canary(expected.canary)
    if not storage.has_locks(expected.out):
        storage.make_folder(expected.out)
    elif not storage.partials_named(expected.out, expected.probe):
        raise StorageError(
            (
                "it does not see the output folder"
                if not os.path.isdir(expected.out)
                else "it has another folder here"
            ),
            file=expected.out,
            hint=(
                "write to a folder that all machines share, and mount it at the same path on each"
                " of them"
            ),
        )
    own = os.path.join(expected.out, f"{_PROBE}write")
    storage.write_partial(own, b"")
    storage.discard([own])
    try:
        root, *columns = expected.images
        for path, size, location in zip(*columns, strict=True):
            with suppress(Rejected):
                load_image(root, path, size, Options(), location)
    except SourceVanishedError as error:
        raise SourceVanishedError(
            f"it does not see the source as it was scanned: {error.message}",
            file=error.file,
            hint="mount the source at the same path on each machine",
        ) from None
