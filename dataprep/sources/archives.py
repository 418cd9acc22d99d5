"""Tar and zip archives of images, read in place: class folders, or images without labels.

Of each file, only the header is read. A tar may contain tars, as ImageNet's does.
"""

from __future__ import annotations

import os
import zipfile
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import islice
from operator import attrgetter
from typing import IO, Any, NamedTuple, cast

import numpy as np
import pyarrow as pa

from dataprep.containers import ReaderName
from dataprep.containers.files import (
    DEFLATED,
    MIN_HEADER_BYTES,
    STORED,
    ContainerFile,
    max_deflated_bytes,
    open_container_file,
    open_listed_file,
)
from dataprep.formats import tar
from dataprep.images.base import MAX_BYTES
from dataprep.labels.columns import number_labels
from dataprep.options import SourceOptions
from dataprep.sources.base import (
    Classes,
    Container,
    Names,
    RejectedRow,
    Source,
    image_table,
    stored_source,
    text_array,
)
from dataprep.sources.folders import label_folders, refuse_other_archives
from dataprep.sources.scan import (
    folders_above,
    map_splits,
    skipped_files,
    skipped_notices,
    stats_of,
    stray_notices,
    suffix_of,
)
from manifests.errors import ShardError, SourceError, StorageError
from manifests.files import IMAGE_SUFFIXES
from manifests.json_members import is_unicode, shorten
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


#: Files beside an image that make it a sample of a WebDataset shard.
_SHARD_SUFFIXES = (".cls", ".json", ".txt")

#: Images and other files whose names are compared, to recognize such a shard.
_MAX_COMPARED = 1000


def is_archive(path: str, *_: Any) -> bool:
    """Return whether a file is a tar or zip archive, by its extension, or by its content if it has none."""
    suffix = suffix_of(os.path.basename(path))
    if suffix:
        return suffix in SUFFIXES
    try:
        start = open_container_file(path)(0, 512)[0]
    except StorageError:
        if not path.startswith(("http://", "https://")):
            raise
        return False  # a web server that sends no ranges can still send a list
    return _is_zip(start) or start[257:262] == b"ustar"


def _is_zip(start: bytes) -> bool:
    return start.startswith((b"PK\x03\x04", b"PK\x05\x06"))


def list_archive(path: str) -> Source:
    """List the images in an archive, sorted by name. Of each file, only the header is read.

    Raises:
        SourceError: the archive is damaged, encrypted, or compressed in a way that cannot be read
            in place, is a shard of a WebDataset, or no image of it can be read.

    """
    file = open_listed_file(path)
    start = bytes(file(0, 512)[0][:512])
    root, archive = os.path.split(path)
    reader: ReaderName = "range"
    members = _tar_members(file)
    if _is_zip(start) or suffix_of(archive) == ".zip":
        reader, members = "zip", _zip_members(file)
    images, rejected, notices = _find_images(path, members)
    if rejected and not images:
        first = rejected[0]
        raise SourceError(
            f"no image of the archive can be read; the first is {printable(first['source'])}:"
            f" {first['detail']}",
            file=path,
            hint="copy the archive again, or make it again",
        )
    # The order of an archive is the order in which it was packed.
    images.sort()
    table = image_table(
        map(attrgetter("name"), images),
        [*map(attrgetter("position", "length", "size"), images)],
        key=pa.array(map(attrgetter("crc"), images), pa.binary()),
    )
    container = Container(archive, "train", stats_of(file.status)[1:], table)
    source = stored_source(root or ".", "archive of images", reader, [container])
    return replace(source, notices=tuple(notices), rejected=tuple(rejected))


def _find_images(
    path: str, members: Iterator[Member]
) -> tuple[list[Member], list[RejectedRow], list[str]]:
    """Return the images of an archive, the rows for ``rejected.jsonl``, and notices about other files."""
    skipped: Counter[str] = Counter()
    images = {}
    links = []
    others = []
    rejected = []
    seen = set()
    for member in members:
        name = member.name
        if name in seen:
            raise SourceError(
                f"the archive contains {shorten(name)} twice",
                file=path,
                hint="make the archive again, from unpacked files",
            )
        seen.add(name)
        reason, detail = _problem(name) or (member.reason, member.detail)
        suffix = suffix_of(os.path.basename(name))
        if reason == "hidden":
            skipped["hidden files"] += 1
        elif suffix not in IMAGE_SUFFIXES:
            skipped[suffix or "no extension"] += 1
            others.append(name)
        elif reason:
            rejected.append(_rejected(path, name, reason, detail))
        elif member.link is not None:
            links.append(member)
        else:
            images[name] = member
    _refuse_shard(path, images, others)
    # A hard link leads to an image, which may come after it. Other links are rejected.
    found = [*images.values()]
    for link in links:
        target = link.link or ""
        if target in images:
            found.append(images[target]._replace(name=link.name))
        else:
            detail = f"a link to {shorten(target)}, no image in the archive"
            rejected.append(_rejected(path, link.name, "unreadable", detail))
    return found, rejected, skipped_files(skipped)


def _rejected(path: str, member: str, reason: str, detail: str) -> RejectedRow:
    name = f"{os.path.basename(path)}/{member}".encode("utf-8", "surrogateescape")
    source = name.decode("utf-8", "backslashreplace")
    return {"source": source, "reason": reason, "detail": detail}


def _refuse_shard(path: str, images: Iterable[str], others: Names) -> None:
    stems = set()
    for name in others[:_MAX_COMPARED]:
        stem, suffix = os.path.splitext(name)
        if suffix.lower() in _SHARD_SUFFIXES:
            stems.add(stem)
    for name in islice(images, _MAX_COMPARED):
        if os.path.splitext(name)[0] in stems:
            raise SourceError(
                "the archive is a shard of a WebDataset: files with labels or captions are beside"
                " the images",
                file=path,
                hint="run `dataprep index` on the folder of the shards, and give that folder",
            )


def member_names(source: Source) -> list[str]:
    """Return the name of each image in the archive that a source is."""
    return [path.partition("/")[2] for path in source.path.to_pylist()]


def _problem(name: str) -> tuple[str, str] | None:
    """Return why a file is skipped or rejected because of its name, as a reason and in words."""
    parts = name.split("/")
    for part in parts:
        if part == "__MACOSX" or (part.startswith(".") and part not in {".", ".."}):
            return "hidden", ""
    if not is_unicode(name):
        return "bad-name", "the name in the archive is not valid UTF-8; rename the file"
    if name.startswith("/") or ".." in parts or "\\" in name or "\0" in name:
        return "bad-name", (
            "the name in the archive leads out of its folder or contains a backslash; make the"
            " archive again"
        )
    return None


# --- tar ------------------------------------------------------------------------------------------


def _tar_members(file: ContainerFile) -> Iterator[Member]:
    for member in _walk(file, "", 0, file.size, file.path):
        is_link = bool(member.reason) or member.link is not None
        if suffix_of(member.name) == ".tar" and not is_link:
            folder, place = f"{member.name[:-4]}/", f"{file.path}/{printable(member.name)}"
            yield from _walk(file, folder, member.position, member.length, place)
        else:
            yield member


def _walk(file: ContainerFile, folder: str, start: int, size: int, place: str) -> Iterator[Member]:
    """Yield the members of a tar archive.

    Args:
        file: the file.
        folder: what the names of the members begin with.
        start: byte of the file at which the archive begins.
        size: length of the archive.
        place: what errors name.

    """

    def view(at: int, n: int) -> tuple[bytes, int]:
        return file(start + at, max(0, min(n, size - at)))

    try:
        for member in tar.members(view, size, place, links=True):
            name = folder + member.name.removeprefix("./")
            found = Member(name, start + member.data, member.size, member.size)
            if member.link is None:
                yield found
            elif member.symbolic:
                # It may lead anywhere: no image.
                detail = (
                    f"a symbolic link to {shorten(member.link)}; pack the archive with tar"
                    " --dereference"
                )
                yield found._replace(reason="unreadable", detail=detail)
            else:
                yield found._replace(link=folder + member.link.removeprefix("./"))
    except ShardError as error:
        raise SourceError(error.message, file=place, byte=error.byte, hint=error.hint) from None


# --- zip ------------------------------------------------------------------------------------------


def _zip_members(file: ContainerFile) -> Iterator[Member]:
    try:
        with zipfile.ZipFile(cast("IO[bytes]", _BoundedReads(file))) as archive:
            infos = archive.infolist()
    except (zipfile.BadZipFile, NotImplementedError, ValueError, OverflowError) as error:
        raise SourceError(
            f"the file is not a complete zip archive ({error})",
            file=file.path,
            hint=(
                "copy it again, or make it again; parts of an archive in several files must be"
                " joined"
            ),
        ) from None
    # Members that overlap would unpack to more than the file can contain.
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
            raise SourceError(
                f"member {shorten(info.filename)} {problem}",
                file=file.path,
                hint="unpack the archive and give the folder, or pack it again with `zip -0`",
            )
        if stored > file.size or info.header_offset < 0:
            raise SourceError(
                f"the members overlap: {shorten(info.filename)} does not fit into the"
                f" {file.size:,} bytes of the file",
                file=file.path,
                hint="make the archive again",
            )
        reason, detail = _damage(info, file.size)
        yield Member(
            name=info.filename.removeprefix("./"),
            position=info.header_offset,
            length=info.compress_size,
            size=info.file_size,
            crc=info.CRC.to_bytes(4, "big"),
            reason=reason,
            detail=detail,
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


class _BoundedReads:
    """A file with a position, from which the directory of a zip archive is read at once, if it is not too long."""

    def __init__(self, file: ContainerFile) -> None:
        self._file = file
        self._at = 0

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        # From the start, the position or the end of the file.
        self._at = offset + (0, self._at, self._file.size)[whence]
        if self._at < 0:
            raise ValueError("it begins before the file")
        return self._at

    def tell(self) -> int:
        return self._at

    def seekable(self) -> bool:
        return True

    def read(self, length: int = -1) -> bytes:
        if length > MAX_DIRECTORY_BYTES:
            raise ValueError(f"its directory is longer than {MAX_DIRECTORY_BYTES:,} bytes")
        if length < 0:
            length = MAX_DIRECTORY_BYTES
        data = self._file.read(self._at, max(0, min(self._file.size - self._at, length)))
        self._at += len(data)
        return data


# --- class folders --------------------------------------------------------------------------------


def read_archive(path: str, _: Any, options: SourceOptions) -> Source:
    """Read an archive of class folders, or of images without labels, in place.

    Raises:
        SourceError: the archive is damaged, or does not contain class folders.

    """
    source = list_archive(path)
    names = member_names(source)
    if options.unlabelled:
        return _without_labels(path, source, names)
    # Most archives have one folder that contains all others.
    top = len(top_folder(names))
    parts = [name[top:].split("/") for name in names]
    first = {each[0] for each in parts if len(each) > 1}
    refuse_other_archives(path, sorted(first))
    # Folders with the name of a split are splits if they contain folders, as on a disk.
    order, number_of = _splits(path, {each[0] for each in parts if len(each) > 2})
    layout, notices = "archive of class folders", [*source.notices]
    if number_of:
        layout += f" with {' and '.join(order)}"
        for name in sorted(first - number_of.keys()):
            notices.append(f"skipped {printable(name)}/: it is not train, val or test")
    level = 1 if number_of else 0
    # Images outside of class folders, or beside the splits, have no label.
    rows, stray, splits, labels = [], [], [], []
    for row, each in enumerate(parts):
        if len(each) <= level + 1:
            stray.append(names[row])
        elif not number_of or each[0] in number_of:
            rows.append(row)
            splits.append(number_of.get(each[0], 0))
            labels.append(each[level])
    notices += stray_notices(stray, "outside of class folders")
    if not rows:
        raise SourceError(
            "the archive has no class folders",
            file=path,
            hint=(
                "pack the images as CLASS/IMAGE, or set --label-type none; to use the shards of"
                " another tool as they are, run `dataprep index`"
            ),
        )
    label, classes = number_labels(
        text_array(labels),
        options.classes or tuple(sorted({*labels})),
        lambda row: (f"{path}/{names[rows[row]]}", None),
    )
    return replace(
        _chosen(source, rows, label=label, split=np.array(splits, np.int8)),
        layout=layout,
        classes=classes,
        splits=order,
        notices=tuple(notices),
    )


def _chosen(source: Source, rows: Sequence[int], **columns: Any) -> Source:
    """Return some images with new columns, by split and label."""
    source = replace(source, table=source.table.take(rows)).with_columns(**columns)
    return replace(source, table=source.table.take(np.lexsort((source.label, source.split))))


def _splits(path: str, folders: set[str]) -> tuple[Classes, dict[str, int]]:
    """Return the names of the splits, and the number of the split of each folder that is one."""
    splits = map_splits(path, sorted(folders))
    order = split_order({*splits}) or ("train",)
    return order, {folder: order.index(split) for split, folder in splits.items()}


def top_folder(names: Names) -> str:
    """Return the folders that contain everything and are neither a class nor a split, with a slash at the end."""
    top = ""
    # The last two parts of a name are its class folder and the file.
    for level in zip(*(name.split("/")[:-2] for name in names), strict=False):
        if len({*level}) > 1 or level[0].lower() in SPLIT_ALIASES:
            break
        top += f"{level[0]}/"
    return top


# --- images without labels ------------------------------------------------------------------------


def _without_labels(path: str, source: Source, names: Names) -> Source:
    """Return all images in an archive, by the rules for a folder."""
    left_out = _label_folders_of(names)
    rows, kept = [], []
    for row, name in enumerate(names):
        if left_out.keys().isdisjoint(folders_above(name)):
            rows.append(row)
            kept.append(name)
    # Folders are splits if all images are in folders with the names of splits.
    top = len(top_folder(kept))
    first = [name[top:].rpartition("/")[0].partition("/")[0] for name in kept]
    are_splits = {*map(str.lower, first)} <= SPLIT_ALIASES.keys()
    order, number_of = _splits(path, {*first} if are_splits else set())
    split = np.array([number_of.get(folder, 0) for folder in first], np.int8)
    source = _chosen(source, rows, split=split).with_notices(*skipped_notices(left_out))
    return replace(source, splits=order, label_type="none")


def _label_folders_of(names: Names) -> dict[str, str]:
    """Return the folders of masks, depth maps or annotations beside folders of images, and why each is left out."""
    inside: defaultdict[str, set[str]] = defaultdict(set)
    for folder in {*map(os.path.dirname, names)}:
        for each in folders_above(f"{folder}/"):
            above, _, name = each.rpartition("/")
            inside[above].add(name)
    # Of the folders that are beside each other.
    left_out = {}
    for above in sorted(inside):
        for name, why in label_folders(sorted(inside[above])).items():
            left_out[os.path.join(above, name)] = why
    return left_out
