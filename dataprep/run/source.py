"""The source of a run: read it, choose its samples, and check that the output folder fits it."""

from __future__ import annotations

import os
import secrets
import time
from collections.abc import Iterable, Iterator, Sequence
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
from dataprep.ledger.state import Folder, State
from dataprep.options import Options, SourceOptions
from dataprep.plan.assign import ShardPlan
from dataprep.progress import Progress
from dataprep.shards.source_image import load_image
from dataprep.sources import Source
from dataprep.sources.base import NamedSource
from manifests.errors import CallError, SourceVanishedError, StorageError
from manifests.process.text import printable
from manifests.remote.url import is_url, parse_url

#: Longest path of an output folder, in bytes: Linux allows 4,096 for the path of a file in it.
MAX_PATH = 3800


def check_output(source: Source, out: str) -> None:
    """Check that `out` can be an output folder.

    Raises:
        CallError: `out` is a file, is inside a file or a folder that the scan of the source reads,
            or is too long.

    """
    existing, length = _nearest_existing(os.path.realpath(out)), len(os.fsencode(out))
    if is_url(out):
        if parse_url(out).is_read_only:
            hint = "use the s3://, gs:// or az:// URL of a bucket"
            raise CallError(f"--out {out} can only be read", hint=hint)
        is_inside = f"{out}/".startswith(f"{source.root}/")
    elif length > MAX_PATH:
        raise CallError(
            f"--out {printable(out[:80])}... is {length:,} bytes long, but the limit is {MAX_PATH:,}",
            hint="choose a folder with a shorter path",
        )
    else:
        is_inside = _is_scanned(existing, source)
    if source.folders and is_inside:
        raise CallError(
            f"--out {printable(out)} is inside the source {printable(source.root)}, so the next run"
            " would read it as images",
            hint="choose a folder outside the source",
        )
    if os.path.islink(out.rstrip("/")) and not os.path.exists(out):
        target = printable(os.path.realpath(out))
        raise CallError(
            f"--out {printable(out)} is a link to {target}, which does not exist",
            hint="make that folder, or remove the link",
        )
    if not os.path.isdir(existing):
        raise CallError(
            f"--out {printable(out)}: {printable(existing)} is a file, not a folder",
            hint="choose another folder with --out",
        )


def _is_scanned(path: str, source: Source) -> bool:
    """Return whether a path without links, or a folder above it, is one that the scan read, by whatever path."""
    while True:
        status = os.stat(path)
        if (status.st_dev, status.st_ino) in source.folders:
            return True
        path, below = os.path.dirname(path), path
        if path == below:
            return False


def check_writable(out: str) -> str:
    """Return the nearest existing folder, `out` or one of its parents, after checking that it can be written.

    Raises:
        CallError: this user has no permission to write.
        StorageError: another run is writing to `out`.

    """
    if not storage.has_locks(out):  # only a write would tell
        return out
    existing = _nearest_existing(os.path.abspath(out))
    if not os.access(existing, os.W_OK | os.X_OK):
        hint = "give this user permission to write there, or choose another folder with --out"
        raise CallError(
            f"--out {printable(out)}: this user cannot write to {printable(existing)}", hint=hint
        )
    if os.path.isdir(out):
        with storage.locked(out):
            pass
    return existing


def refuse_folders(out: str, names: Iterable[str]) -> None:
    """Check that no folder has the name of a file that the run writes or replaces.

    Raises:
        CallError: there is one. Running the same command again would not help, and folders are
            never removed.

    """
    # In an object store, no path is a folder: it can have a file and a folder of the same name.
    for name in names:
        if os.path.isdir(os.path.join(out, name)) and not os.path.islink(os.path.join(out, name)):
            raise CallError(
                f"--out {printable(out)} contains a folder {name!r}, but a file of this name is"
                " needed",
                hint="move it away, or choose another folder",
            )


def refuse_appended(folder: Folder) -> None:
    """Check that nothing was appended to a dataset since it was made, and that no append is in progress.

    Raises:
        CallError: it has more than one revision, so it is no longer what a conversion made; or an
            append, or the removal of one, was interrupted, or is running.

    """
    out = printable(folder.out)
    if folder.newest and folder.newest.revisions:
        raise CallError(
            f"--out {out} is at revision {folder.newest.revision}: images were appended to it",
            hint=(
                "set --append to add the images of another source, choose another folder, or"
                " replace everything with --overwrite"
            ),
        )
    if folder.state in (State.APPENDING, State.REVERTING):
        raise CallError(
            f"--out {out}: an append to it was interrupted, or is running",
            hint=(
                f"`dataprep verify {out}` says how to finish or to undo it; or choose another"
                " folder, or replace everything with --overwrite"
            ),
        )


def _nearest_existing(path: str) -> str:
    while not os.path.lexists(path):
        path = os.path.dirname(path)
    return path


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
