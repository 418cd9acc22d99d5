"""Notice source images that were replaced by others of the same size since an earlier run.

A plan's fingerprint contains sizes but no times, so a copy of the source gives the same dataset. Times and inodes
are recorded apart, in `STAMPS_NAME` in the output folder: one digest for each shard. Where a digest differs, the
checksums in the sample table tell whether the images differ.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from dataclasses import replace

import numpy as np
from awscrt.checksums import crc32c

from dataprep import storage
from dataprep.images.base import Rejected
from dataprep.options import Options
from dataprep.plan import ConversionPlan, ShardPlan
from dataprep.source_image import load_image
from dataprep.sources import Source
from manifests.errors import DamagedError, TableError
from manifests.files import MANIFEST, read_file
from manifests.schema import Conversion
from manifests.tables import read_table

#: Its content depends on the machine; that of no other file does. Without it, a rerun compares checksums.
STAMPS_NAME = "source-stamps.json"


def stamps_of(source: Source, plan: ConversionPlan) -> dict[str, str]:
    """Return a digest for each shard: of size, modification time and inode of its images. Empty if not known."""
    if source.stamp is None:
        return {}
    stats = np.column_stack([source.size, source.stamp]).astype("<i8")
    return {
        shard.name: hashlib.blake2b(stats[shard.rows].tobytes(), digest_size=16).hexdigest() for shard in plan.shards
    }


def read_stamps(out: str, plan: ConversionPlan) -> dict[str, str]:
    """Return the digests that an earlier run of this plan recorded; empty if there are none."""
    try:
        members = json.loads(read_file(os.path.join(out, STAMPS_NAME), MANIFEST))
        return dict(members["shards"]) if members["plan"] == plan.fingerprint else {}
    except (OSError, ValueError, TypeError, KeyError, RecursionError, DamagedError):
        return {}


def write_stamps(out: str, plan: ConversionPlan, stamps: Mapping[str, str]) -> None:
    """Record the digests of all shards, those to write and those that are kept."""
    note = (
        "Digests of the sizes, times and inodes of the source images. dataprep convert compares them when it resumes."
    )
    members = {"note": note, "plan": plan.fingerprint, "shards": dict(stamps)}
    storage.replace_file(os.path.join(out, STAMPS_NAME), (json.dumps(members, indent=1) + "\n").encode())


def find_replaced(source: Source, shard: ShardPlan, out: str, conversion: Conversion, options: Options) -> str | None:
    """Read all images of a finished shard again; return the path of the first that is not the one in the shard.

    Args:
        source: the source as it is now.
        shard: the shard in the plan.
        out: the output folder.
        conversion: the metadata in the shard's sample table.
        options: options of the conversion.

    Returns:
        A path, or `None` if the shard contains what the source contains now. If the options change images, the first
        path: the checksums in the table are then not those of the source.

    Raises:
        SourceVanishedError: an image is gone.

    """
    paths = source.path.take(shard.rows).to_pylist()
    if options.changes_images:
        return str(paths[0])
    try:
        table = read_table(os.path.join(out, f"{shard.name}.parquet"), ["source", "crc32c"])
    except TableError:
        return str(paths[0])
    stored = dict(zip(table["source"].to_pylist(), table["crc32c"].to_pylist(), strict=True))
    reasons = {row["source"]: row["reason"] for row in conversion.rejected}
    unchecked = replace(options, validate="none")  # only the bytes matter of an image that was valid
    for path, size in zip(paths, source.size[shard.rows].tolist(), strict=True):
        try:
            data = load_image(source.root, path, size, unchecked if path in stored else options).data
        except Rejected as error:
            is_same = path not in stored and error.reason == reasons.get(path)
        else:
            is_same = stored.get(path) == crc32c(data)
        if not is_same:
            return str(path)
    return None
