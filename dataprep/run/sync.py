"""Make a dataset what its source is now: remove what is gone or has changed, then append the rest.

Each of the two is a revision. After a kill between them, the samples that moved or were replaced are
not in the dataset; the next run finds that they are new and appends them.
"""

from __future__ import annotations

import hashlib
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from dataprep import storage
from dataprep.arrays import AnyArray, BoolArray, Int64Array
from dataprep.engines import Engine
from dataprep.ledger.finished import check_output
from dataprep.ledger.state import Folder
from dataprep.options import CHANGING_OPTIONS, Options, SyncOptions
from dataprep.progress import Progress, divide
from dataprep.run.commit import AppendResult, changed_error, end_conversion
from dataprep.run.convert import append_dataset, plan_append
from dataprep.run.inputs import options_of, read_base
from dataprep.run.known import REJECTED, Known, comparable, own_texts, read_contents
from dataprep.run.remove import Choice, write_removal
from dataprep.run.removed import find_removed
from dataprep.run.work import opened
from dataprep.sources import Source
from dataprep.sources.base import CLIP
from dataprep.summary.diff import SampleRows, hash_texts, hash_values, match, read_rows, unified
from manifests.errors import CallError, SourceError
from manifests.json_members import MemberError
from manifests.serialization import parts

_HINT = "convert the source into another folder"


class Changes(NamedTuple):
    """How a source differs from a dataset.

    Attributes:
        known: which samples of the source are not to append, bool [n].
        gone: which samples of the dataset are to remove, bool [samples].
        found: the number of samples of each kind, and the paths of the first five.

    """

    known: BoolArray
    gone: BoolArray
    found: dict[str, tuple[int, list[str]]]


def recorded_options(base: Folder) -> Options:
    """Return the options that a dataset was made with.

    Raises:
        CallError: they do not decide what its source gives now.

    """
    try:
        made = [options_of(part.options) for part in parts(base.manifest) if part.shards]
    except MemberError as error:
        raise CallError(
            f"its options are of another release: {error}",
            file=base.out,
            hint="use that release, or convert the source into another folder",
        ) from None
    refused = {
        "no samples": not made,
        "joined columns": base.manifest.joins,
        "arrays": base.manifest.arrays,
        "several images, masks or depth maps in a sample": base.manifest.labels.others,
    }
    _refuse(base, refused)
    for own in made:
        refused["--split-by or --duplicates same-split"] = (
            own.split_by or own.duplicates == "same-split"
        )
        for name in (*sorted(CHANGING_OPTIONS), "window", "page", "where", "duplicates"):
            refused[f"revisions with another {name}"] = getattr(own, name) != getattr(made[0], name)
        _refuse(base, refused)
    return made[0].inherit(made[-1], ())


def sync_dataset(
    source: Source, out: str, sync: SyncOptions, *, name: str, progress: Progress | None = None
) -> tuple[Changes, AppendResult]:
    """Make a dataset what a source is now, with its `recorded_options`; see `append_dataset`.

    After an interruption, the same call completes it.
    """
    found: list[Changes] = []

    def find(now: Folder, labelled: Source, engine: Engine, bar: Progress | None) -> Known:
        if not found:
            found.append(_compare(now, labelled, options, engine, bar))
        elif now.digest != digest:
            raise changed_error(out)
        return Known(found[0].known, {})

    how: dict[str, Any] = {"name": name, "edits": "ignore", "find": find}
    check_output(source, out)
    with opened(None, sync.workers) as (_, reader), storage.locked(out) as is_locked:
        base = read_base(out, option="")
        if not sync.dry_run:
            base = end_conversion(base)
        digest, options = base.digest, recorded_options(base)
        # What an append refuses is refused before anything is removed.
        plan_append(source, base, options, reader=reader, progress=progress, **how)
        changes = found[0]
        total, limited = len(changes.gone), 0
        for kind in ("vanished", "relabelled"):
            limited += changes.found[kind][0]
        if changes.gone.all() or limited > sync.max_removed * total:
            counts = ", ".join(f"{count:,} {kind}" for kind, (count, _) in changes.found.items())
            message = f"too few of the {total:,} samples of {base.out} would stay: {counts}"
            hint = (
                "check the source, and that the options that say how to read it are those of the"
                " conversion, or raise --max-removed; no value permits to remove every sample"
            )
            if changes.gone.all() and changes.found["moved"][0]:
                # Several --src have their own names in front of the paths, one alone has not.
                hint = (
                    "if the sources were appended one by one, or a folder in them was renamed, the"
                    " paths of all images are others now: convert the sources into another folder;"
                    " no value permits to remove every sample"
                )
            raise SourceError(message, file=source.root, hint=hint)
        if sync.dry_run:
            return changes, AppendResult(base.manifest, 0, None, None)
        if changes.gone.any():
            rows, reason = changes.gone, "vanished, moved, relabelled or replaced in the source"
            chosen = hashlib.blake2b(rows.tobytes(), digest_size=16).hexdigest()
            choice = Choice(rows=rows, source=name, digest=chosen, reason=reason, keeps_out=False)
            with storage.partials(out, is_alone=is_locked):
                write_removal(base, choice)
            digest = read_base(out).digest
    return changes, append_dataset(source, out, options, workers=sync.workers, **how)


def _refuse(base: Folder, refused: dict[str, Any]) -> None:
    for what, is_there in refused.items():
        if is_there:
            raise CallError(f"a dataset with {what} cannot be synced", file=base.out, hint=_HINT)


def _compare(
    base: Folder, source: Source, options: Options, engine: Engine, progress: Progress | None
) -> Changes:
    """Match the samples of a source and of a dataset, and find which others an append leaves out."""
    for part in parts(base.manifest):
        if part.shards:
            stored_as = comparable(base, part.options, pa.table({"source": source.path}))
    stored = read_rows(base.out, columns=True)
    if stored.manifest != base.manifest:
        raise changed_error(base.out)
    # Images in new places are checked at once; others only if they turn out to be new, too.
    is_placed = np.isin(hash_texts(pa.chunked_array([source.path])), stored.source_hash)
    reads = [(stored_as, is_placed), (options, ~is_placed)]
    checksums, labels = _read(source, reads, engine, progress)
    pairs = _pairs(base, source, stored, checksums, labels)
    old, new = match(pairs, *map(len, pairs["digest"]))
    is_same = np.logical_and.reduce([before[old] == now[new] for before, now in pairs.values()])
    is_new = ~np.isin(np.arange(len(source)), new[is_same])
    removed, _ = find_removed(base, source, is_new, engine, progress)
    is_new &= ~removed
    unchecked = is_new & is_placed & (stored_as != options)
    checked, _ = _read(source, [(options, unchecked)], engine, progress)
    rejected = is_new & (np.where(unchecked, checked, checksums) < 0)
    is_new &= ~rejected
    gone = ~np.isin(np.arange(len(stored.source)), old[is_same])
    # Another label, split or column makes another sample, as another place does.
    old, new = old[is_new[new]], new[is_new[new]]
    differs = {name: before[old] != now[new] for name, (before, now) in pairs.items()}
    is_moved = ~differs["digest"]
    is_relabelled = is_moved & ~differs["source"] & (differs["label"] | differs["split"])
    found = {
        "new": _listed(source.path, np.setdiff1d(np.flatnonzero(is_new), new)),
        "moved": _listed(source.path, new[is_moved & ~is_relabelled]),
        "relabelled": _listed(source.path, new[is_relabelled]),
        "replaced": _listed(source.path, new[~is_moved]),
        "vanished": _listed(stored.source, np.setdiff1d(np.flatnonzero(gone), old)),
        "removed before": _listed(source.path, np.flatnonzero(removed)),
        "rejected": _listed(source.path, np.flatnonzero(rejected)),
    }
    # An append lists rejected images beside new ones, as any append does.
    return Changes(~(is_new | (rejected & is_new.any())), gone, found)


def _listed(paths: pa.Array | pa.ChunkedArray, rows: Int64Array) -> tuple[int, list[str]]:
    return len(rows), paths.take(pa.array(rows[:5])).to_pylist()


def _read(
    source: Source,
    reads: list[tuple[Options, BoolArray]],
    engine: Engine,
    progress: Progress | None,
) -> tuple[Int64Array, pa.Array]:
    """Return the CRC-32C of each image, or -1 if it was not read, int64 [n], and the labels as text.

    Args:
        source: the samples.
        reads: options, and which images are read with them, bool [n].
        engine: reads images.
        progress: receives the number of images that are read.

    """
    checksums, texts = np.full(len(source), -1, np.int64), [""] * len(source)
    with divide(progress, [int(chosen.sum()) for _, chosen in reads]) as shares:
        for (options, chosen), share in zip(reads, shares, strict=True):
            rows = pa.table({"row": np.flatnonzero(chosen)})
            for row, found in read_contents(source, options, rows, engine, share):
                if not isinstance(found, str) and not found.label.startswith(REJECTED):
                    checksums[row], texts[row] = found.crc32c, found.label
    if source.labels.is_placed:
        return checksums, pa.array(texts, pa.large_string())
    return checksums, own_texts(source, np.arange(len(source)))


def _pairs(
    base: Folder, source: Source, stored: SampleRows, checksums: Int64Array, labels: pa.Array
) -> dict[str, tuple[AnyArray, AnyArray]]:
    """Return what is compared, of the dataset and of the source."""
    # Splits that the options made of train.
    made = [name for part in parts(base.manifest) for name in part.options if part.options[name]]
    splits = []
    for split in base.manifest.splits:
        splits.append("train" if f"{split.name}_fraction" in made else split.name)
    coded, source_hash = labels.dictionary_encode(), hash_texts(pa.chunked_array([source.path]))
    own, codes = coded.dictionary.to_pylist(), np.asarray(coded.indices)
    pairs = {
        "source": (stored.source_hash, source_hash),
        "digest": ((stored.digest >> np.uint64(32)).astype(np.int64), checksums),
        "label": unified(stored.labels, own, stored.label, codes),
        "split": unified(splits, source.splits, stored.split, source.split),
    }
    nothing, columns = np.ones_like(stored.digest), stored.columns or {}
    _refuse(base, {"clips or frames of videos": CLIP in {*columns, *source.extra.column_names}})
    for name in {*source.extra.column_names}.difference(source.labels.columns):
        pairs[name] = (columns.get(name, nothing), hash_values(source.extra[name]))
    return pairs
