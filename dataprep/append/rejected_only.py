"""The list ``OUT/plan/rejected.jsonl`` of an append that rejected every new image, so it made no revision to list them.

The next append to the dataset removes it, and so does a conversion that replaces the dataset.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence

from dataprep import storage
from dataprep.convert.complete import ConvertResult, count_duplicates
from dataprep.images.base import FAILED
from dataprep.plan.files import ENDED_NAME, has_append_plan, plan_folder, read_plan, remove_plan
from dataprep.plan.stored import StoredPlan
from dataprep.resume.finished import read_rejected
from manifests.schema import Manifest
from manifests.store import rejected_bytes


def write_ended(out: str, fingerprint: str, rows: Sequence[Mapping[str, str]]) -> None:
    """Write the list of an append that rejected every new image.

    Remove the plan of another append, if there is one.

    Args:
        out: folder or URL of the dataset.
        fingerprint: that of the plan of the append.
        rows: the rows of the list.

    """
    if has_append_plan(out) and read_plan(out).fingerprint != fingerprint:
        remove_plan(out)
    folder = plan_folder(out)
    with storage.translate_errors(folder, "the folder cannot be made"):
        storage.make_folder(folder)
    temporary = os.path.join(out, ENDED_NAME)
    storage.write_partial(temporary, rejected_bytes(sorted(rows, key=lambda row: row["source"])))
    storage.publish_all([(storage.partial_path(temporary), os.path.join(folder, ENDED_NAME))])


def has_ended(out: str) -> bool:
    """Return whether the append that is planned ended without a new image."""
    return storage.is_file(os.path.join(plan_folder(out), ENDED_NAME))


def remove_ended(out: str) -> None:
    """Remove the list, because another append begins."""
    storage.remove(os.path.join(plan_folder(out), ENDED_NAME))


def describe_ended(plan: StoredPlan, out: str, manifest: Manifest) -> ConvertResult:
    """Describe an append that ended without a new image, from its list."""
    rows = [*read_rejected(plan_folder(out), ENDED_NAME)]
    return ConvertResult(
        manifest,
        images=sum(split.images for split in plan.splits) + len(plan.rejected),
        bytes=sum(split.bytes for split in plan.splits),
        resumed=0,
        rejected=len(rows) - count_duplicates(rows),
        duplicates=count_duplicates(rows),
        changes={},
        failed=tuple(row for row in rows if row["reason"] == FAILED),
    )
