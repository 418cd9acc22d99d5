"""Notice source images that were replaced by others of the same size since an earlier run.

A plan's fingerprint contains sizes but no times, so a copy of the source gives the same dataset.
Times and inodes are recorded apart, in `STAMPS_NAME` in the output folder: one digest for each
shard. Where a digest differs, the checksums in the sample table tell whether the images differ.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping

import numpy as np

from dataprep import storage
from dataprep.plan.assign import ConversionPlan
from dataprep.sources import Source
from manifests.errors import DamagedError
from manifests.files import MANIFEST, read_file

#: Its content depends on the machine; that of no other file does. Without it, a rerun compares
#: checksums.
STAMPS_NAME = "source-stamps.json"


def stamps_of(source: Source, plan: ConversionPlan) -> dict[str, str]:
    """Return a digest for each shard: of size, modification time and inode of its images.

    Empty if not known.
    """
    if source.stamp is None:
        return {}
    stats = np.column_stack([source.size, source.stamp]).astype("<i8")
    return {
        shard.name: hashlib.blake2b(stats[shard.rows].tobytes(), digest_size=16).hexdigest()
        for shard in plan.shards
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
        "Digests of the sizes, times and inodes of the source images. dataprep convert compares"
        " them when it resumes."
    )
    members = {"note": note, "plan": plan.fingerprint, "shards": dict(stamps)}
    storage.replace_file(
        os.path.join(out, STAMPS_NAME), (json.dumps(members, indent=1) + "\n").encode()
    )
