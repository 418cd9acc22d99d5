"""Which names splits may have: shards are named after them."""

from __future__ import annotations

from manifests.json_members import is_unicode

#: Longest name of a split, in bytes. File systems allow 255 for the temporary name of a shard,
#: which contains it.
MAX_SPLIT_NAME = 100


def is_split_name(name: str) -> bool:
    """Return whether shards can be named after a split of this name, and stay in the folder of the dataset."""
    length = len(name.encode("utf-8", "surrogateescape"))
    return (
        0 < length <= MAX_SPLIT_NAME
        and is_unicode(name)
        and not {"/", "\0"} & {*name}
        and not name.startswith(".")
    )
