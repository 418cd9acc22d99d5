"""What an interrupted conversion keeps."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import contextmanager

from dataprep import storage
from manifests.errors import DatasetError
from manifests.process.text import agree, plural


@contextmanager
def says_what_is_kept(out: str, shards: Collection[str]) -> Iterator[None]:
    """Give a `KeyboardInterrupt` a message: how many of these shards are finished.

    All processes that write shards must have ended when the exception leaves the block.

    Args:
        out: the output folder.
        shards: names of the shards that the command writes, without extension.

    """
    try:
        yield
    except KeyboardInterrupt:
        raise KeyboardInterrupt(_describe(out, shards)) from None


def _describe(out: str, shards: Collection[str]) -> str:
    try:
        # A shard is finished when its table has its final name.
        there = {entry.name for entry in storage.list_folder(out)}
    except (OSError, DatasetError):
        return "finished shards are kept"
    kept = sum(f"{shard}.parquet" in there for shard in shards)
    if not kept:
        return f"none of {plural(len(shards), 'shard')} is finished"
    return (
        f"{kept:,} of {plural(len(shards), 'shard')} {agree(kept, 'is', 'are')} finished and kept"
    )
