"""Re-read everything in a prepared dataset and say what is wrong, where, and what mends it.

It never changes a file.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass

from dataprep import engines, storage
from dataprep.progress import Progress
from dataprep.verify_shard import Checked, CheckTask, Fault, check_file, check_shard, manifest_of
from manifests.errors import DamagedError
from manifests.schema import Manifest
from manifests.store import MANIFEST_NAME, read_manifest


@dataclass(frozen=True)
class VerifyReport:
    """All faults, and how much of the dataset has no checksum to compare with."""

    faults: tuple[Fault, ...]
    shards: int
    samples: int
    without_checksum: int


def verify_dataset(
    folder: str,
    *,
    decode: bool = False,
    workers: int | None = None,
    progress: Progress[Checked] | None = None,
) -> VerifyReport:
    """Check a dataset: manifest, shards, indexes and tables, each against the others and its checksum.

    Args:
        folder: the dataset.
        decode: decode every image too.
        workers: processes; as many as there are processors where none is given.
        progress: receives the number of shards, then each checked shard.

    Raises:
        StoppedError: the machine stopped the work.

    """
    try:
        manifest = read_manifest(folder)
    except DamagedError as error:
        return VerifyReport((Fault(MANIFEST_NAME, error.message, hint=error.hint),), 0, 0, 0)
    manifest_of.cache_clear()  # of an earlier call in this process
    tasks = [CheckTask(folder, shard, decode) for split in manifest.splits for shard in split.shards]
    if progress:
        progress.start(len(tasks))
    checked: dict[str, Checked] = {}
    count = min(workers or engines.default_workers(), len(tasks))
    with closing(engines.run(check_shard, tasks, count)) as results:
        for result in results:
            checked[result.name] = result
            if progress:
                progress.advance(result)
    faults = [fault for task in tasks for fault in checked[task.shard.name].faults]
    return VerifyReport(
        (*_faults_of_folder(folder, manifest), *faults),
        len(tasks),
        sum(shard.samples for shard in checked.values()),
        sum(shard.unread for shard in checked.values()),
    )


_OURS = (".tfrecord", ".tar", ".idx", ".parquet")


def _faults_of_folder(folder: str, manifest: Manifest) -> Iterator[Fault]:
    named = {MANIFEST_NAME}
    for split in manifest.splits:
        for shard in split.shards:
            for file in (shard.file, shard.index, shard.table):
                if file.name in named:
                    yield Fault(MANIFEST_NAME, f"names {file.name!r} twice")
                named.add(file.name)
    for name in sorted(os.listdir(folder)):
        if name.startswith(storage.PARTIAL_PREFIX):
            yield Fault(name, "was left by an interrupted run", hint="run that again, or remove the file")
        elif name.endswith(_OURS) and name not in named and manifest.creator == "convert":
            yield Fault(name, "is not in the manifest", hint="remove it, or make the manifest anew")
    if manifest.rejected is not None:
        yield from check_file(folder, manifest.rejected, "make the dataset anew to have the list again")
