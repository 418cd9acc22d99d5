"""What a run begins with: its source, the machines that work on it, and the dataset that it appends to."""

from __future__ import annotations

import json
import os
import secrets
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from awscrt.checksums import crc32c

from dataprep import storage
from dataprep.canary import Canary, canary, check_canary
from dataprep.containers import Location, SourceImages
from dataprep.engines import Engine
from dataprep.formats import FORMATS, PendingSample
from dataprep.images.base import Rejected
from dataprep.labels.columns import count_numbers, is_text
from dataprep.labels.kinds import KINDS
from dataprep.ledger.finished import check_output
from dataprep.ledger.state import INCOMPLETE, Folder, inspect
from dataprep.options import (
    CHANGE_COLUMNS,
    CHANGING_OPTIONS,
    GEO_COLUMNS,
    HASH_COLUMN,
    RESCALE_COLUMNS,
    STATISTICS_COLUMNS,
    Options,
    SourceOptions,
    options_from_json,
)
from dataprep.plan.assign import ShardPlan
from dataprep.progress import Progress
from dataprep.shards.source_image import find_kind, load_image
from dataprep.sources import Source
from dataprep.sources.base import NamedSource
from dataprep.sources.columns import column_error, joined_type, value_type
from manifests.arrays import arrays_of, show_arrays
from manifests.errors import CallError, SourceVanishedError, StorageError
from manifests.json_members import MemberError, parse_json
from manifests.pixels import RGB8, PixelKind
from manifests.process.text import plural, printable
from manifests.serialization import parts
from manifests.tables import read_table

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
    scan_progress: Progress | None = None,
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
        scan_progress: receives the videos whose frames are counted.

    Returns:
        Each source as it was given, and the samples to convert, of all sources.

    Raises:
        CallError: a source does not exist or is given twice, an option does not apply to it, or it
            contains `out`.
        SourceError: the layout is not known, or a line, a label or an image is not valid.

    """
    # Workers import this module, but read no source.
    from dataprep.sources.recognize import read_sources

    given = read_sources(srcs, reading, scan_progress)
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
    from dataprep.sources.prepared import without_added

    if options.where is not None:
        source = filter_source(source, options.where)
    if options.finds_duplicates:
        from dataprep.duplicates.results import resolve_duplicates

        source = resolve_duplicates(
            source, options, workers=workers, progress=progress, search_progress=search_progress
        )
        if source.image_names:
            first = source.image_names[0]
            source = source.with_notices(f"copies are samples with the same image {first}")
    return without_added(source, options)


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


# --- what a pixel is ------------------------------------------------------------------------------

#: Images whose headers are read, evenly over the source.
_MEASURED = 32
#: Formats with pixels of several kinds, by the ends of names.
_SEVERAL_KINDS = (".png", ".tif", ".tiff", ".jp2", ".j2k")


def resolve_pixels(source: Source, options: Options) -> Options:
    """Return the options with the channels and the type of the pixels that the images have.

    Images in formats that only have RGB of 8 bits are not read. An image that is not read, and has
    other pixels than the others, is rejected when it is converted.

    Raises:
        CallError: the images that are read have pixels of several kinds, and the options do not say
            which to take; or the other options are not for such pixels.

    """
    if source.pixels is not None or options.to_rgb8 or (options.channels and options.dtype):
        # Raw pixels have no headers.
        kind = options.pixels
        if source.pixels is not None:
            kind = source.kind
        return _with_pixels(options, kind)
    found = find_kinds(source, options)
    if len(found) > 1:
        most = max(found, key=lambda kind: len(found[kind]))
        hint = f"set --channels {most.channels} --dtype {most.dtype}, which rejects the others"
        if all(kind.dtype != "float32" and kind.channels in (1, 3) for kind in found):
            hint += ", or --to-rgb8, which converts them to 8 bits"
        raise CallError(
            f"a dataset has pixels of one kind, but of {sum(map(len, found.values()))} images of"
            f" {printable(source.root)} that were looked at, there are {describe_kinds(found)}",
            hint=hint,
        )
    return _with_pixels(options, next(iter(found), options.pixels))


def find_kinds(source: Source, options: Options) -> dict[PixelKind, list[str]]:
    """Return some images of a source by the kind of their pixels."""
    rows = np.unique(np.linspace(0, len(source) - 1, _MEASURED).astype(np.int64))
    found: dict[PixelKind, list[str]] = {}
    root, *columns = source.images(rows)
    for path, size, location in zip(*columns, strict=True):
        kind = RGB8
        if location is not None and location.reader == "video":
            pass  # frames are always converted to it
        elif options.transcode or path.lower().endswith(_SEVERAL_KINDS):
            try:
                kind = find_kind(root, path, size, location, options)
            except Rejected:
                continue  # the run says why
        if options.channels in (None, kind.channels) and options.dtype in (None, kind.dtype):
            found.setdefault(kind, []).append(path)
    return found


def describe_kinds(found: Mapping[PixelKind, Sequence[str]]) -> str:
    """Return how many images have which kind of pixels, with an example."""
    counts = []
    for kind, paths in found.items():
        counts.append(f"{len(paths)} with {kind}, such as {printable(paths[0])}")
    return "; ".join(counts)


def _with_pixels(options: Options, kind: PixelKind) -> Options:
    # RGB of 8 bits is the default, and not stored.
    channels, dtype = (None, None) if kind == RGB8 else kind
    options = replace(options, channels=channels, dtype=dtype)
    options.check()
    return options


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
    # The other images of a sample are about as large as its first one.
    images = max(1, len(source.image_names))
    rate = measured / max(time.perf_counter() - start, 1e-9)
    return Trial(rate / images, measured, stored / max(kept, 1) * images)


def _interleave(
    source: Source, shards: Sequence[ShardPlan]
) -> Iterator[tuple[str, int, Location | None]]:
    """Yield path, size and location of images, one from each shard in turn."""
    if source.has_videos:  # the next frame takes less time than a frame of another video
        for shard in shards:
            _, *columns = source.images(shard.rows[:_MAX_PER_SHARD])
            yield from zip(*columns, strict=True)
        return
    longest = max((len(shard.rows) for shard in shards), default=0)
    for position in range(min(longest, _MAX_PER_SHARD)):
        for shard in shards:
            if position < len(shard.rows):
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


def check_machines(engine: Engine, source: Source, out: str, *, transcodes: bool) -> None:
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
    engine.check(check_machine, Expected(out, probe, images, canary(transcodes=transcodes)))


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


# --- the dataset that a run appends to ------------------------------------------------------------


def read_base(out: str, option: str = "--append: ") -> Folder:
    """Read the dataset to append to.

    Args:
        out: its folder or URL.
        option: how messages begin.

    Raises:
        CallError: there is none, or ``dataprep convert`` did not make it.
        ManifestError: the manifest is damaged.

    """
    folder, name = inspect(out), f"{option}{printable(out)}"
    if folder.state in INCOMPLETE and folder.error is not None:
        hint = "finish it with the command that made it"
        if isinstance(folder.error, CallError):
            hint = "check the path"
        if option:
            hint += ", or leave out --append to make a new dataset"
        raise CallError(f"{name} is not a complete dataset ({folder.error.message})", hint=hint)
    if folder.manifest.creator != "convert":
        hint = "only a dataset of `dataprep convert` has revisions"
        if option:
            hint = "give it as one of several --src, with the new source, and choose another --out"
        raise CallError(
            f"{option}the shards of {printable(out)} were made by another tool", hint=hint
        )
    return folder


def options_of(members: Mapping[str, Any]) -> Options:
    """Return the options of a conversion or of a revision.

    Raises:
        MemberError: they are not options of this release.

    """
    return options_from_json(parse_json(json.dumps(options_members(members)).encode()))


def options_members(members: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options of a manifest without the fingerprint of the plan."""
    return {name: value for name, value in members.items() if name != "plan"}


def inherited_options(base: Folder, given: Options, names: Collection[str]) -> Options:
    """Return the options of an append: what the user gave, and for the others the options of the newest revision.

    Args:
        base: the dataset.
        given: the options, with defaults where the user gave nothing.
        names: names of the fields of `Options` that the user gave.

    Raises:
        CallError: an option contradicts the dataset.

    """
    try:
        # A join has no options of a conversion, and no shards.
        options = options_of([part for part in parts(base.manifest) if part.shards][-1].options)
    except MemberError as error:
        raise CallError(
            f"--append: the options of {printable(base.out)} are not options of this release"
            f" ({error})",
            hint="use the release that made it, or convert it into a new dataset first",
        ) from None
    return check_options(base, given.inherit(options, names))


def check_options(base: Folder, options: Options) -> Options:
    """Return the options, if shards that are written with them fit the shards of the dataset.

    Raises:
        CallError: they do not.

    """
    manifest, out = base.manifest, f"--append: {printable(base.out)}"
    if options.fmt != manifest.format:
        raise CallError(
            f"{out} has the format {manifest.format}, not {options.fmt}", hint="leave out --fmt"
        )
    stored = "encoded images"
    if manifest.pixels:
        stored = f"raw pixels of {manifest.pixels[1]}x{manifest.pixels[0]}"
    if options.raw_pixels != manifest.pixels:
        raise CallError(f"{out} stores {stored}", hint="leave out --store and --raw-size")
    if options.pixels != manifest.kind:
        raise CallError(f"{out} has {manifest.kind}", hint="leave out --channels and --dtype")
    if options.raw and options.downscale:
        raise CallError(
            f"{out} stores {stored}, which are not resized",
            hint="leave out --resize-shorter, --max-side, --resize-pixels and their options",
        )
    return options


def check_label_type(base: Folder, source: Source) -> None:
    """Check that the dataset has labels and arrays like a source: of one type, and with as many numbers.

    Raises:
        CallError: it has others.

    """
    label_type, out = base.manifest.label_type, f"--append: {printable(base.out)}"
    if source.label_type != label_type:
        raise CallError(
            f"{out} has the label type {label_type}, but the source has {source.label_type}",
            hint=f"set --label-type {label_type} if the source has such labels",
        )
    if source.image_names != base.manifest.images:
        before, now = (
            " and ".join(names) or "one image"
            for names in (base.manifest.images, source.image_names)
        )
        raise CallError(
            f"{out} has {before} in each sample, but the source has {now}",
            hint="give a source with the same images, named in the same order",
        )
    arrays = arrays_of(source.extra)
    if arrays != base.manifest.arrays:
        raise CallError(
            f"{out} has the arrays {show_arrays(base.manifest.arrays)}, but the source has"
            f" {show_arrays(arrays)}",
            hint="give the new images the same arrays, with --array or as columns of the source",
        )
    shard = next((shard for shard in base.manifest.shards if shard.samples), None)
    column = source.labels.number_column
    if column is None or shard is None:
        return
    path = os.path.join(base.out, shard.table.name)
    table = read_table(path, columns=[column], label_type=label_type)
    stored, own = count_numbers(table[column]), count_numbers(source.extra[column])
    if own != stored:
        raise CallError(
            f"{out} has {plural(stored, 'number')} for each image, but the source has {own}",
            hint="convert it into a dataset of its own, or set --label-column",
        )


def check_columns(base: Folder, source: Source, options: Options) -> None:
    """Check the columns of the new sample tables against the tables of each revision.

    Args:
        base: the dataset.
        source: the samples to append.
        options: the options of the append.

    Raises:
        SourceError: no type has the values of a column in all tables.
        CallError: the options add a column, and the dataset has one of this name with other
            content.

    """
    _check_types(base, source)
    for part in parts(base.manifest):
        if not part.shards:
            continue
        path = os.path.join(base.out, part.shards[0].table.name)
        schema = read_table(path, label_type=base.manifest.label_type).schema
        added: set[str] = set()
        if part.options.keys() & CHANGING_OPTIONS:
            added.update(CHANGE_COLUMNS, RESCALE_COLUMNS)
        if part.options.get("hash"):
            added.add(HASH_COLUMN)
        if part.options.get("statistics"):
            added.update(STATISTICS_COLUMNS)
        if part.options.get("georeference"):
            added.update(GEO_COLUMNS)
        for column in options.added_columns:
            if column in schema.names and column not in added:
                raise CallError(
                    f"--append: {printable(base.out)} has a column {column!r} that came with a"
                    " source, and the options add a column of this name",
                    hint=(
                        "leave out --hash, --statistics, --georeference or the options that resize, or make a new dataset without"
                        " this column"
                    ),
                )


def _check_types(base: Folder, source: Source) -> None:
    """Check that each column has a type with all values of the dataset and of the source."""
    label_type, labels = base.manifest.label_type, source.labels.columns
    # The columns of the dataset with another type than in the source, by the tables with them.
    others: dict[str, dict[str, Any]] = {}
    for part in parts(base.manifest):
        paths = [os.path.join(base.out, shard.table.name) for shard in part.shards]
        # The tables of one revision have the same types.
        schema = read_table(paths[0], label_type=label_type).schema if paths else ()
        names = []
        for stored in schema:
            # The label type decides on the types of its columns.
            if stored.name in source.extra.column_names and stored.name not in labels:
                own = value_type(source.extra.schema.field(stored.name).type)
                if own != stored.type and not (is_text(own) and is_text(stored.type)):
                    names.append(stored.name)
        for path in paths if names else ():
            table = read_table(path, names, label_type)
            for name in names:
                others.setdefault(name, {})[path] = table[name]
    for name, columns in others.items():
        columns[source.root] = source.extra[name]
        if joined_type([*columns.values()]) is None:
            hint = "write the column with the type that the dataset has, or rename it in the source"
            raise column_error(name, columns, hint)
