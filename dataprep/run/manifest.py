"""Files of a dataset that are replaced by a command that changes no shard: `dataprep index` and `dataprep repair`.

Nothing here imports Arrow: `dataprep index` starts quickly.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial

from dataprep import storage
from dataprep.ledger.fence import check_manifest
from manifests.schema import Manifest
from manifests.serialization import file_of, manifest_digest
from manifests.store import MANIFEST_NAME, REJECTED_NAME, manifest_files, rejected_bytes
from manifests.tables import SHARD_LIST_NAME


def replace_files(out: str, files: Iterable[tuple[str, bytes]]) -> None:
    """Write files of a dataset, one after the other: a reader sees the old content or all of the new."""
    for name, content in files:
        storage.replace_file(os.path.join(out, name), content)


def replace_dataset(
    out: str,
    manifest: Manifest,
    pending: Iterable[tuple[str, str]],
    rejected: Sequence[Mapping[str, str]],
    seen: str,
) -> Manifest:
    """Replace the manifest of shards that are not changed, with their indexes and tables.

    The old manifest is removed first: it must never describe the indexes of another run. In an
    object store, a run that then finds the manifest of another dataset changes nothing more.

    Args:
        out: the folder of the shards.
        manifest: the new manifest, without the list of rejected images.
        pending: temporary and final paths of the indexes and tables.
        rejected: rows for ``rejected.jsonl``.
        seen: digest of the manifest that the run has seen.

    Returns:
        The manifest that was written: an equal run on another machine may have removed it since.

    Raises:
        LostFolderError: another run has written a manifest since.

    """
    files = {}
    if rejected:
        data = files[REJECTED_NAME] = rejected_bytes(rejected)
        manifest = replace(manifest, rejected=file_of(REJECTED_NAME, data))
    # Raises an error if the manifest is too long, while nothing is changed yet.
    files |= manifest_files(manifest)
    own = (manifest_digest(b""), manifest_digest(files[MANIFEST_NAME]))
    with storage.guarded(out, partial(check_manifest, out, (seen,))):
        storage.remove(os.path.join(out, MANIFEST_NAME))
    with storage.guarded(out, partial(check_manifest, out, own)):
        for name in (SHARD_LIST_NAME, REJECTED_NAME):
            storage.remove(os.path.join(out, name))
        storage.publish_all(pending)
        replace_files(out, files.items())
    return manifest
