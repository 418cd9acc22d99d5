"""Tar and zip archives of images, read in place: class folders, or images without labels.

Of each file, only the header is read. A tar may contain tars, as ImageNet's does.
"""

from __future__ import annotations

import os
import zipfile
from array import array
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import IO, NamedTuple, cast

import numpy as np
import pyarrow as pa

from dataprep.containers import ReaderName, location_table
from dataprep.containers.files import ContainerFile, open_container_file, open_listed_file
from dataprep.containers.members import DEFLATED, MIN_HEADER_BYTES, STORED, max_deflated_bytes
from dataprep.formats import tar
from dataprep.images.base import MAX_BYTES
from dataprep.labels.columns import number_labels
from dataprep.sources.base import Source, SourceOptions, sample_table
from dataprep.sources.folders import label_folders, refuse_other_archives
from dataprep.sources.scan import (
    IMAGE_SUFFIXES,
    is_utf8,
    map_splits,
    skipped_notices,
    stats_of,
    stray_notices,
    suffix_of,
)
from manifests.errors import ShardError, SourceError, StorageError
from manifests.json_members import shorten
from manifests.process.text import printable
from manifests.schema import SPLIT_ALIASES, split_order

#: A zip archive with a longer directory is refused, before it is read into memory. An entry takes
#: at least 46 bytes.
MAX_DIRECTORY_BYTES = 1 << 30

SUFFIXES = (".tar", ".zip")

_ENCRYPTED = 0x1
_METHODS = {9: "Deflate64", 12: "bzip2", 14: "LZMA", 93: "Zstandard", 95: "XZ", 98: "PPMd"}


class Member(NamedTuple):
    """A file in an archive.

    Attributes:
        name: its path in the archive.
        position: as in `Location`.
        length: number of bytes stored.
        size: number of bytes of the file.
        crc: CRC-32 of a member of a zip archive, 4 bytes.
        reason: why the member cannot be read, one of `dataprep.images.base.REASONS`, or empty.
        detail: the same in words.
        link: the name in the archive of the file that a hard link leads to. `None` for a file.

    """

    name: str
    position: int
    length: int
    size: int
    crc: bytes = b""
    reason: str = ""
    detail: str = ""
    link: str | None = None


@dataclass
class Listing:
    """The images in an archive, in sorted order.

    Attributes:
        path: the archive.
        reader: how its members are read.
        images: the images.
        others: names of some other files.
        rejected: rows for ``rejected.jsonl``: names that cannot be stored, and members that cannot
            be read.
        notices: messages about files that were skipped.
        stamp: modification time and inode of the archive.

    """

    path: str
    reader: ReaderName
    names: list[str] = field(default_factory=list)
    position: array[int] = field(default_factory=lambda: array("q"))
    length: array[int] = field(default_factory=lambda: array("q"))
    size: array[int] = field(default_factory=lambda: array("q"))
    crc: list[bytes] = field(default_factory=list)
    others: list[str] = field(default_factory=list)
    rejected: list[dict[str, str]] = field(default_factory=list)
    notices: list[str] = field(default_factory=list)
    stamp: tuple[int, int] = (-1, -1)

    def add(self, members: Iterable[Member]) -> None:
        """Add the images, in sorted order."""
        for member in sorted(members):
            self.names.append(member.name)
            self.position.append(member.position)
            self.length.append(member.length)
            self.size.append(member.size)
            self.crc.append(member.crc)

    def reject(self, member: str, reason: str, detail: str) -> None:
        """Add a row for ``rejected.jsonl``."""
        name = f"{os.path.basename(self.path)}/{member}".encode("utf-8", "surrogateescape")
        self.rejected.append(
            {"source": name.decode("utf-8", "backslashreplace"), "reason": reason, "detail": detail}
        )


#: Names of other files to keep, to recognize what the archive is.
_MAX_OTHERS = 1000


def is_archive(path: str) -> bool:
    """Return whether a file is a tar or zip archive, by its extension, or by its content if it has none."""
    suffix = suffix_of(os.path.basename(path))
    if suffix:
        return suffix in SUFFIXES
    try:
        start, _ = open_container_file(path)(0, 512)
    except StorageError:
        if not path.startswith(("http://", "https://")):
            raise
        return False  # a web server that sends no ranges can still send a list
    return _is_zip(start) or start[257:262] == b"ustar"


def _is_zip(start: bytes) -> bool:
    return start.startswith((b"PK\x03\x04", b"PK\x05\x06"))


def list_archive(path: str) -> Listing:
    """List the images in an archive. Of each file, only the header is read.

    Raises:
        SourceError: the archive is damaged, encrypted, or compressed in a way that cannot be read
            in place.

    """
    file = open_listed_file(path)
    start = bytes(file(0, 512)[0][:512])
    if _is_zip(start) or suffix_of(os.path.basename(path)) == ".zip":
        listing, members = Listing(path, "zip"), _zip_members(file)
    else:
        listing, members = Listing(path, "range"), _tar_members(file)
    skipped: Counter[str] = Counter()
    seen: set[str] = set()
    found = []
    links = []
    for member in members:
        if member.name in seen:
            message = f"the archive contains {shorten(member.name)} twice"
            raise SourceError(
                message, file=path, hint="make the archive again, from unpacked files"
            )
        seen.add(member.name)
        problem = _problem(member.name)
        if problem == "hidden":
            skipped["hidden files"] += 1
        elif (suffix := suffix_of(os.path.basename(member.name))) not in IMAGE_SUFFIXES:
            skipped[suffix or "no extension"] += 1
            if len(listing.others) < _MAX_OTHERS:
                listing.others.append(member.name)
        elif problem or member.reason:
            listing.reject(
                member.name, *(("bad-name", problem) if problem else (member.reason, member.detail))
            )
        elif member.link is not None:
            links.append(member)
        else:
            found.append(member)
    listing.add([*found, *_linked(links, found, listing)])
    if skipped:
        counts = ", ".join(f"{suffix} {count:,}" for suffix, count in skipped.most_common(8))
        listing.notices.append(f"skipped files that are not images by name: {counts}")
    _, *stamp = stats_of(file.status)
    listing.stamp = (stamp[0], stamp[1])
    return listing


def _linked(
    links: Sequence[Member], images: Sequence[Member], listing: Listing
) -> Iterator[Member]:
    """Yield the images that hard links lead to, under the names of the links.

    Other links are rejected.
    """
    targets = {member.name: member for member in images} if links else {}
    for member in links:
        target = member.link or ""
        if target in targets:
            yield targets[target]._replace(name=member.name)
        else:
            listing.reject(
                member.name, "unreadable", f"a link to {shorten(target)}, no image in the archive"
            )


def _problem(name: str) -> str:
    parts = name.split("/")
    if any(
        part == "__MACOSX" or (part.startswith(".") and part not in {".", ".."}) for part in parts
    ):
        return "hidden"
    if not is_utf8(name):
        return "the name in the archive is not valid UTF-8; rename the file"
    if name.startswith("/") or ".." in parts or "\\" in name or "\0" in name:
        return (
            "the name in the archive leads out of its folder or contains a backslash; make the"
            " archive again"
        )
    return ""


def _normal(name: str) -> str:
    return name.removeprefix("./") if not name.startswith("/") else name


# --- tar ------------------------------------------------------------------------------------------


def _tar_members(file: ContainerFile) -> Iterator[Member]:
    for member in _walk(file, 0, file.size, file.path):
        if suffix_of(member.name) == ".tar" and member.link is None:
            folder = f"{_normal(member.name)[: -len('.tar')]}/"
            place = f"{file.path}/{printable(member.name)}"
            for inner in _walk(file, member.data, member.size, place):
                yield _tar_member(inner, folder, member.data)
        else:
            yield _tar_member(member, "", 0)


def _tar_member(member: tar.Member, folder: str, start: int) -> Member:
    """Return a member of a tar archive that begins at byte `start`.

    A symbolic link may lead anywhere: no image.
    """
    found = Member(folder + _normal(member.name), start + member.data, member.size, member.size)
    if member.link is None:
        return found
    if member.symbolic:
        detail = (
            f"a symbolic link to {shorten(member.link)}; pack the archive with tar --dereference"
        )
        return found._replace(reason="unreadable", detail=detail)
    return found._replace(link=folder + _normal(member.link))


def _walk(file: ContainerFile, start: int, size: int, place: str) -> Iterator[tar.Member]:
    """Walk a tar archive that begins at byte `start` of a file; positions are relative to it."""

    def view(at: int, n: int) -> tuple[bytes, int]:
        return file(start + at, max(0, min(n, size - at)))

    try:
        yield from tar.members(view, size, place, links=True)
    except ShardError as error:
        raise SourceError(error.message, file=place, byte=error.byte, hint=error.hint) from None


# --- zip ------------------------------------------------------------------------------------------


def _zip_members(file: ContainerFile) -> Iterator[Member]:
    try:
        infos = _directory(file)
    except (zipfile.BadZipFile, NotImplementedError, ValueError, OverflowError) as error:
        hint = (
            "copy it again, or make it again; parts of an archive in several files must be joined"
        )
        raise SourceError(
            f"the file is not a complete zip archive ({error})", file=file.path, hint=hint
        ) from None
    stored = 0
    for info in infos:
        if info.is_dir():
            continue
        stored += info.compress_size
        problem = ""
        if info.flag_bits & _ENCRYPTED:
            problem = "is encrypted"
        elif info.compress_type not in (STORED, DEFLATED):
            method = _METHODS.get(info.compress_type, f"method {info.compress_type}")
            problem = f"is compressed with {method}, which is not read in place"
        if problem:
            hint = "unpack the archive and give the folder, or pack it again with `zip -0`"
            raise SourceError(
                f"member {shorten(info.filename)} {problem}", file=file.path, hint=hint
            )
        if stored > file.size or info.header_offset < 0:
            message = (
                f"the members overlap: {shorten(info.filename)} does not fit into the {file.size:,}"
                " bytes of the file"
            )
            raise SourceError(message, file=file.path, hint="make the archive again")
        crc = info.CRC.to_bytes(4, "big")
        yield Member(
            *(_normal(info.filename), info.header_offset, info.compress_size, info.file_size, crc),
            *_damage(info, file.size),
        )


def _damage(info: zipfile.ZipInfo, size: int) -> tuple[str, str]:
    """Return why a member of an archive of `size` bytes is not read, as a reason and in words, or two empty texts."""
    stored, end = info.compress_size, info.header_offset + MIN_HEADER_BYTES + info.compress_size
    if stored > MAX_BYTES:
        return "too-large", f"{stored} bytes in the zip archive, but the limit is {MAX_BYTES}"
    if stored > max_deflated_bytes(info.file_size):
        return (
            "corrupt",
            f"the zip archive states {stored} compressed bytes for {info.file_size} bytes",
        )
    if end > size:
        return (
            "truncated",
            f"the zip archive has {size} bytes, and the member would end at byte {end} or later",
        )
    return "", ""


def _directory(file: ContainerFile) -> list[zipfile.ZipInfo]:
    with zipfile.ZipFile(cast("IO[bytes]", _BoundedReads(file))) as archive:
        return archive.infolist()


class _BoundedReads:
    """A file with a position, from which the directory of a zip archive is read at once, if it is not too long."""

    def __init__(self, file: ContainerFile) -> None:
        self._file = file
        self._at = 0

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        self._at = (
            offset + {os.SEEK_SET: 0, os.SEEK_CUR: self._at, os.SEEK_END: self._file.size}[whence]
        )
        if self._at < 0:
            raise ValueError("it begins before the file")
        return self._at

    def tell(self) -> int:
        return self._at

    def seekable(self) -> bool:
        return True

    def read(self, length: int = -1) -> bytes:
        left = max(0, self._file.size - self._at)
        if length > MAX_DIRECTORY_BYTES:
            raise ValueError(f"its directory is longer than {MAX_DIRECTORY_BYTES:,} bytes")
        data = self._file.read(self._at, min(left, length if length >= 0 else MAX_DIRECTORY_BYTES))
        self._at += len(data)
        return data


# --- class folders --------------------------------------------------------------------------------


#: Files beside an image that make it a sample of a WebDataset shard.
_SHARD_SUFFIXES = (".cls", ".json", ".txt")


def read_archive(path: str, options: SourceOptions) -> Source:
    """Read an archive of class folders. Nothing is unpacked; of each file, only the header is read.

    Raises:
        SourceError: the archive is damaged, or does not contain class folders.

    """
    listing = list_images_of(path)
    top = top_folder(listing.names)
    parts = [name[len(top) :].split("/") for name in listing.names]
    refuse_other_archives(path, sorted({each[0] for each in parts if len(each) > 1}))
    depth = np.array([len(each) for each in parts], np.int64)
    splits = _split_folders(path, parts)
    notices = list(listing.notices)
    if splits:
        skipped = sorted({each[0] for each in parts if len(each) > 1} - {*splits.values()})
        notices += [f"skipped {printable(name)}/: it is not train, val or test" for name in skipped]
        keep = (depth > 2) & np.array([each[0] not in skipped for each in parts], bool)
        layout = f"archive of class folders with {' and '.join(split_order(set(splits)))}"
    else:
        keep, layout = depth > 1, "archive of class folders"
    rows = np.flatnonzero(keep)
    stray = [
        listing.names[row]
        for row in np.flatnonzero(~keep & (depth <= (2 if splits else 1))).tolist()
    ]
    notices += stray_notices(stray, "outside of class folders")
    if not len(rows):
        raise SourceError(
            "the archive has no class folders",
            file=path,
            hint=(
                "pack the images as CLASS/IMAGE, or set --unlabelled; to use the shards of another"
                " tool as they are, run `dataprep index`"
            ),
        )
    order = split_order(set(splits)) if splits else ("train",)
    split_of = {folder: order.index(split) for split, folder in splits.items()}
    names = pa.array([parts[row][1 if splits else 0] for row in rows.tolist()], pa.large_string())
    classes = options.classes or tuple(sorted(set(names.to_pylist())))
    label, _ = number_labels(
        names, classes, lambda row: (f"{path}/{listing.names[int(rows[row])]}", None)
    )
    split = np.array([split_of[parts[row][0]] if splits else 0 for row in rows.tolist()], np.int8)
    in_order = np.lexsort((np.arange(len(rows)), label, split))
    return archive_source(
        listing, rows[in_order], layout=layout, classes=classes, splits=order, label=label[in_order],
        split=split[in_order], notices=notices,
    )  # fmt: skip


def list_images_of(path: str) -> Listing:
    """List the images in an archive.

    Raises:
        SourceError: it is damaged, is a shard of a WebDataset, or no image of it can be read.

    """
    listing = list_archive(path)
    _refuse_shard(listing)
    if listing.rejected and not listing.names:
        first = listing.rejected[0]
        message = (
            f"no image of the archive can be read; the first is {printable(first['source'])}:"
            f" {first['detail']}"
        )
        raise SourceError(message, file=path, hint="copy the archive again, or make it again")
    return listing


def archive_source(
    listing: Listing,
    rows: np.ndarray,
    *,
    layout: str,
    classes: tuple[str, ...],
    splits: tuple[str, ...],
    label: np.ndarray,
    split: np.ndarray,
    notices: Sequence[str],
) -> Source:
    """Return a source of some images of an archive.

    Args:
        listing: the archive.
        rows: the images, int64 [n].
        layout: as in `Source`.
        classes: as in `Source`.
        splits: as in `Source`.
        label: int32 [n].
        split: int8 [n].
        notices: as in `Source`.

    """
    root, name = os.path.split(listing.path)
    take = pa.array(rows)
    names = pa.array([f"{name}/{member}" for member in listing.names], pa.large_string())
    location = location_table(
        pa.repeat(pa.scalar(name, pa.large_string()), len(rows)),
        listing.reader,
        position=np.array(listing.position, np.int64)[rows],
        length=np.array(listing.length, np.int64)[rows],
        key=pa.array(listing.crc, pa.binary()).take(take),
    )
    table = sample_table(
        names.take(take),
        label=label,
        split=split,
        size=np.array(listing.size, np.int64)[rows],
        stamp=np.tile(np.array(listing.stamp, np.int64), (len(rows), 1)),
        location=location,
    )
    return Source(
        root=root or ".",
        layout=layout,
        table=table,
        classes=classes,
        splits=splits,
        notices=tuple(notices),
        rejected=tuple(listing.rejected),
    )


def top_folder(names: Sequence[str]) -> str:
    """Return the folders that contain everything and are neither a class nor a split, with a slash at the end."""
    top = ""
    while True:
        parts = [name[len(top) :].split("/", 2) for name in names]
        first = {each[0] for each in parts}
        if len(first) != 1 or min(map(len, parts)) < 3 or parts[0][0].lower() in SPLIT_ALIASES:
            return top
        top += f"{parts[0][0]}/"


def _split_folders(path: str, parts: Sequence[Sequence[str]]) -> dict[str, str]:
    """Return the folder of each split, by the rules for folders on disk."""
    folders = sorted({each[0] for each in parts if len(each) > 1})
    named = [name for name in folders if name.lower() in SPLIT_ALIASES]
    deep = {each[0] for each in parts if len(each) > 2}
    if not any(name in deep for name in named):
        return {}
    return map_splits(path, [name for name in named if name in deep], SPLIT_ALIASES)


def _refuse_shard(listing: Listing) -> None:
    stems = {
        os.path.splitext(name)[0]
        for name in listing.others
        if name.lower().endswith(_SHARD_SUFFIXES)
    }
    if listing.names and any(os.path.splitext(name)[0] in stems for name in listing.names[:1000]):
        raise SourceError(
            "the archive is a shard of a WebDataset: files with labels or captions are beside the"
            " images",
            file=listing.path,
            hint="run `dataprep index` on the folder of the shards, and give that folder",
        )


def read_unlabelled_archive(path: str) -> Source:
    """Read all images in an archive, by the rules for a folder.

    Raises:
        SourceError: the archive is damaged, or two folders are the same split.

    """
    listing = list_images_of(path)
    left_out = _label_folders_of(listing.names)
    kept = [
        number
        for number, name in enumerate(listing.names)
        if not any(map(left_out.get, _folders_above(name)))
    ]
    names = [listing.names[number] for number in kept]
    top = top_folder(names)
    first = [
        folder if inside else ""
        for folder, inside, _ in (name[len(top) :].partition("/") for name in names)
    ]
    splits = {}
    if names and all(folder.lower() in SPLIT_ALIASES for folder in first):
        splits = map_splits(path, sorted({*first}), SPLIT_ALIASES)
    order = split_order(set(splits)) if splits else ("train",)
    number_of = {folder: order.index(split) for split, folder in splits.items()}
    split = np.array([number_of.get(folder, 0) for folder in first], np.int8)
    in_order = np.argsort(split, kind="stable")
    source = archive_source(
        listing,
        np.array(kept, np.int64)[in_order],
        layout="archive of images",
        classes=(),
        splits=order,
        label=np.zeros(len(kept), np.int32),
        split=split[in_order],
        notices=(*listing.notices, *skipped_notices(left_out)),
    )
    return replace(source, label_type="none")


def _label_folders_of(names: Sequence[str]) -> dict[str, str]:
    """Return the folders of masks, depth maps or annotations among those of images, and why each is left out."""
    folders = {
        folder
        for place in {os.path.dirname(name) for name in names}
        for folder in _folders_above(f"{place}/")
    }
    inside: defaultdict[str, list[str]] = defaultdict(list)
    for folder in sorted(folders):
        above, _, name = folder.rpartition("/")
        inside[above].append(name)
    return {
        os.path.join(above, name): why
        for above, beside in inside.items()
        for name, why in label_folders(beside).items()
    }


def _folders_above(name: str) -> list[str]:
    """Return the folders that contain a file of an archive: of ``a/b/1.jpg``, ``a`` and ``a/b``."""
    parts = name.split("/")[:-1]
    return ["/".join(parts[: count + 1]) for count in range(len(parts))]
