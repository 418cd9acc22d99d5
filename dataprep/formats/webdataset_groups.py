"""Group the files of a tar archive into samples: consecutive files with the same name up to the first dot."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from dataprep.formats import tar
from dataprep.formats.base import ScanOptions, View
from manifests.errors import ShardError
from manifests.process.text import one_line, shown

#: A file name without whitespace and without surrogates, which stand for bytes that are not UTF-8.
_VALID_NAME = re.compile(r"[^\s\ud800-\udfff]+")


class Group(NamedTuple):
    """The files of one sample, with their extensions."""

    key: str
    members: list[tuple[str, tar.Member]]


def groups(
    view: View, size: int, file: str, options: ScanOptions, start: int = 0
) -> Iterator[Group]:
    """Group files by key. Errors get the number of the sample in which they occur."""
    group: Group | None = None
    number = largest = 0
    try:
        for member in tar.members(view, size, file, start=start):
            key, extension = split_name(member.name)
            if not key or key.endswith("/"):
                continue
            if group is not None and group.key != key:
                largest = max(largest, len(group.members))
                yield group
                group, number = None, number + 1
            _check_name(member, file)
            group = group or Group(key, [])
            group.members.append((extension, member))
    except ShardError as error:
        if group is not None and _looks_complete(group, largest, options):
            yield group
            number += 1
        if error.record is None:
            error.record = number
        raise
    if group is not None:
        yield group


def split_name(name: str) -> tuple[str, str]:
    """Return key and extension of a file, as DALI's own index tool does: the extension follows the first dot."""
    dot = name.find(".", name.rfind("/") + 1)
    return (name[:dot], name[dot + 1 :]) if dot >= 0 else (name[:-1], name)


def _check_name(member: tar.Member, file: str) -> None:
    if not _VALID_NAME.fullmatch(member.name) or member.name.endswith("."):
        message = (
            f"the name of the file {shown(member.name)} has whitespace, an empty extension or bytes"
            " that are not UTF-8, which DALI's index cannot store"
        )
        raise ShardError(
            message, file=file, byte=member.start, hint="make the shard again with other keys"
        )


def _looks_complete(group: Group, largest: int, options: ScanOptions) -> bool:
    """Return whether the last group before damage is probably complete, so the damage is in the next sample.

    A complete group has an image, a label (if there are any), and at least as many files as every
    group before it.
    """
    extensions = {extension.lower() for extension, _ in group.members}
    has_both = bool(extensions & set(options.components.image)) and options.components.label in (
        None,
        *extensions,
    )
    return has_both and len(group.members) >= largest


def by_kind_of(
    group: Group, images: frozenset[str], file: str, number: int
) -> dict[str, tar.Member]:
    """Return a sample's files by lower-case extension, except the image, whose key is ``"image"``."""
    by_kind: dict[str, tar.Member] = {}
    for extension, member in group.members:
        lowered = extension.lower()
        kind = "image" if lowered in images else lowered
        if kind in by_kind:
            what = (
                "two images" if kind == "image" else f"two files with the extension {extension!r}"
            )
            message = f"sample {shown(group.key)} has {what}"
            raise ShardError(
                message,
                file=file,
                record=number,
                byte=member.start,
                hint="set --image to the extension of one of them",
            )
        by_kind[kind] = member
    if "image" not in by_kind:
        listed = one_line(", ".join(extension for extension, _ in group.members), 1000)
        extensions = ", ".join(sorted(images))
        message = (
            f"sample {shown(group.key)} has no file with an image extension ({extensions}); its"
            f" files are: {listed}"
        )
        raise ShardError(message, file=file, record=number, byte=group.members[0][1].start)
    return by_kind
