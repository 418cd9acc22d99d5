"""Tar and zip archives, read in place as folders: class folders, lists, annotations, images without labels.

Of each file, only the header is read. A tar may contain tars, as ImageNet's does.
"""

from __future__ import annotations

import codecs
import os
import struct
import zipfile
import zlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import IO, Any, NamedTuple, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dataprep.containers import Location, ReaderName, location_table, read_location
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
from dataprep.images.base import MAX_BYTES, Rejected
from dataprep.options import SourceOptions
from dataprep.sources.base import RejectedRow, Source, Texts, joined_paths, text_array
from dataprep.sources.scan import is_junk, suffix_of
from dataprep.storage.local import ArchivedFiles
from manifests.errors import CallError, ShardError, SourceError, StorageError
from manifests.files import IMAGE_SUFFIXES, mounted, mounted_at
from manifests.json_members import is_unicode, shorten

#: A zip archive with a longer directory is refused, before it is read into memory. An entry takes
#: at least 46 bytes.
MAX_DIRECTORY_BYTES = 1 << 30

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


def is_zip(path: str, *_: Any) -> str:
    """Return the path if it is a zip archive, by its extension, or by its content if it has none."""
    suffix = suffix_of(os.path.basename(path))
    found = suffix == ".zip" or (not suffix and _starts_as_zip(_first_bytes(path)))
    return path if found else ""


def is_tar(path: str, *_: Any) -> str:
    """Return the path if it is a tar archive, by its extension, or by its content if it has none."""
    suffix = suffix_of(os.path.basename(path))
    found = suffix == ".tar" or (not suffix and _first_bytes(path)[257:262] == b"ustar")
    return path if found else ""


def _first_bytes(path: str) -> bytes:
    try:
        return bytes(open_container_file(path)(0, 512)[0])
    except StorageError:
        if not path.startswith(("http://", "https://")):
            raise
        return b""  # a web server that sends no ranges can still send a list


def _starts_as_zip(start: bytes) -> bool:
    return start.startswith((b"PK\x03\x04", b"PK\x05\x06"))


class Archive(ArchivedFiles):
    """An archive, read as a folder of its files.

    Attributes:
        rejected: rows for ``rejected.jsonl``: images that cannot be read, whatever the layout is.
        notices: messages for the user.
        names: the names of the files, sorted.

    """

    def __init__(self, path: str, options: SourceOptions) -> None:
        """List the files of an archive.

        Raises:
            SourceError: the archive is damaged, encrypted, or compressed in a way that cannot be
                read in place, or no image of it can be read.

        """
        file = open_listed_file(path)
        start = bytes(file(0, 512)[0][:512])
        self._reader: ReaderName = "range"
        found: Iterable[Member] = _tar_members(file)
        self.notices: Texts = ()
        if _starts_as_zip(start) or suffix_of(os.path.basename(path)) == ".zip":
            infos = _zip_infos(file)
            names, is_guess = _decoded_names(path, infos, options.zip_encoding)
            if is_guess:
                self.notices = (
                    "names of the archive are read as UTF-8, which it does not state; for another"
                    " encoding, set --zip-encoding",
                )
            # A standard archive has slashes; programs of Windows wrote backslashes until 2017.
            has_slash = any("/" in name.rstrip("/") for name in names)
            if not has_slash and any("\\" in name for name in names):
                names = [name.replace("\\", "/") for name in names]
                self.notices += ("backslashes in the names of the archive are read as slashes",)
            self._reader, found = "zip", _zip_members(file, infos, names)
        # The order of an archive is the order in which it was packed.
        self._found, self.rejected = _find_files(path, found)
        self._found.sort()
        self.names = [member.name for member in self._found]
        sizes = [member.size for member in self._found]
        super().__init__(path, self.names, sizes, file.status, self._read_member)

    def _read_member(self, row: int) -> bytes:
        member = self._found[row]
        place = Location(
            os.path.basename(self.path), self._reader, member.position, member.length, member.crc
        )
        try:
            return read_location(os.path.dirname(self.path), place, member.size)
        except Rejected as error:
            raise SourceError(
                f"{member.name} cannot be read: {error.detail}",
                file=self.path,
                hint="copy the archive again, or make it again",
            ) from None

    def locate(self, source: Source) -> Source:
        """Return a source that was read from the mounted archive, with the place of each image in it."""
        if not f"{source.root}/".startswith(f"{self.path}/"):
            return source  # a list in the archive, of images that are not
        root, archive = os.path.split(self.path)
        inside = source.root[len(self.path) + 1 :]
        name = source.path
        if inside:
            name = joined_paths(pa.repeat(inside, len(name)), name)
        # A list in the archive may name files that are outside of it.
        row = pc.index_in(name, text_array(self.names))
        is_inside = row.is_valid()
        path = joined_paths(pa.repeat(archive, len(name)), name)
        places = np.array([member[1:3] for member in self._found], np.int64).reshape(-1, 2)
        container = pc.if_else(is_inside, archive, None)
        location = location_table(
            container,
            self._reader,
            position=pa.array(places[:, 0]).take(row),
            length=pa.array(places[:, 1]).take(row),
            key=pa.array([member.crc for member in self._found], pa.binary()).take(row),
        )
        rejected = [*self.rejected]
        for each in source.rejected:
            rejected.append({**each, "source": os.path.join(archive, inside, each["source"])})
        located = source.with_columns(path=pc.if_else(is_inside, path, source.path))
        return replace(
            located.with_columns(location=location),
            root=root or ".",
            rejected=tuple(rejected),
            notices=(*self.notices, *source.notices),
            folders=frozenset(),
        )


@contextmanager
def opened_archive(path: str, options: SourceOptions) -> Iterator[Archive]:
    """In this block, the files of an archive can be read and listed as files in a folder.

    Raises:
        SourceError: see `Archive`.

    """
    archive = Archive(path, options)
    with mounted(archive):
        yield archive


def _find_files(path: str, members: Iterable[Member]) -> tuple[list[Member], list[RejectedRow]]:
    """Return the files of an archive, and the rows for ``rejected.jsonl``."""
    files: dict[str, Member] = {}
    links, rejected = [], []
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
        if reason:
            if _is_image(name):
                rejected.append(_rejected(path, name, reason, detail))
        elif member.link is not None:
            links.append(member)
        else:
            files[name] = member
    # A hard link leads to a file, which may come after it. Other links are rejected.
    found = [*files.values()]
    for link in links:
        target = link.link or ""
        if target in files:
            found.append(files[target]._replace(name=link.name))
        elif _is_image(link.name):
            detail = f"a link to {shorten(target)}, no file in the archive"
            rejected.append(_rejected(path, link.name, "unreadable", detail))
    if rejected and not any(map(_is_image, files)):
        first = rejected[0]
        raise SourceError(
            f"no image of the archive can be read; the first is {first['source']}:"
            f" {first['detail']}",
            file=path,
            hint="copy the archive again, or make it again",
        )
    return found, rejected


def _is_image(name: str) -> bool:
    """Return whether a file is an image by its name, and not one that another program added."""
    is_image = suffix_of(os.path.basename(name)) in IMAGE_SUFFIXES
    parts = [part for part in name.split("/") if part not in {".", ".."}]
    return is_image and not any(map(is_junk, parts))


def _rejected(path: str, member: str, reason: str, detail: str) -> RejectedRow:
    name = f"{os.path.basename(path)}/{member}".encode("utf-8", "surrogateescape")
    source = name.decode("utf-8", "backslashreplace")
    return {"source": source, "reason": reason, "detail": detail}


def refuse_shard(path: str, _: object, options: SourceOptions) -> bool:
    """Refuse a mounted tar archive whose files with labels or captions are beside the images.

    Raises:
        SourceError: it is a shard of a WebDataset.

    """
    archive = mounted_at(path)
    if not isinstance(archive, Archive) or is_zip(archive.path) or options.class_folders:
        return False
    stems, images = set(), []
    for name in archive.names[: 2 * _MAX_COMPARED]:
        stem, suffix = os.path.splitext(name)
        if suffix.lower() in _SHARD_SUFFIXES:
            stems.add(stem)
        elif suffix.lower() in IMAGE_SUFFIXES:
            images.append(stem)
    if not stems.isdisjoint(images):
        raise SourceError(
            "the archive is a shard of a WebDataset: files with labels or captions are beside"
            " the images",
            file=archive.path,
            hint=(
                "run `dataprep index` on the folder of the shards, and give that folder; or set"
                " --class-folders outer if the folders in the archive are the classes"
            ),
        )
    return False


def _problem(name: str) -> tuple[str, str] | None:
    """Return why a file is rejected because of its name, as a reason and in words."""
    if not is_unicode(name):
        return "bad-name", "the name in the archive is not valid UTF-8; rename the file"
    if name.startswith("/") or ".." in name.split("/") or "\\" in name or "\0" in name:
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
            folder, place = f"{member.name[:-4]}/", f"{file.path}/{member.name}"
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


def _zip_infos(file: ContainerFile) -> list[zipfile.ZipInfo]:
    try:
        with zipfile.ZipFile(cast("IO[bytes]", _BoundedReads(file))) as archive:
            return archive.infolist()
    except (zipfile.BadZipFile, NotImplementedError, ValueError, OverflowError) as error:
        raise SourceError(
            f"the file is not a complete zip archive ({error})",
            file=file.path,
            hint=(
                "copy it again, or make it again; parts of an archive in several files must be"
                " joined"
            ),
        ) from None


def _zip_members(
    file: ContainerFile, infos: Iterable[zipfile.ZipInfo], names: Iterable[str]
) -> Iterator[Member]:
    # Members that overlap would unpack to more than the file can contain.
    stored = 0
    for info, name in zip(infos, names, strict=True):
        if name.endswith("/"):
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
                f"member {shorten(name)} {problem}",
                file=file.path,
                hint="unpack the archive and give the folder, or pack it again with `zip -0`",
            )
        if stored > file.size or info.header_offset < 0:
            raise SourceError(
                f"the members overlap: {shorten(name)} does not fit into the"
                f" {file.size:,} bytes of the file",
                file=file.path,
                hint="make the archive again",
            )
        reason, detail = _damage(info, file.size)
        yield Member(
            name=name.removeprefix("./"),
            position=info.header_offset,
            length=info.compress_size,
            size=info.file_size,
            crc=info.CRC.to_bytes(4, "big"),
            reason=reason,
            detail=detail,
        )


#: Flag of a member whose name is in UTF-8, and the extra field with a name in UTF-8 that Info-ZIP
#: writes: version, CRC-32 of the other name, name (APPNOTE.TXT 4.4.4 and 4.6.9).
_UTF8 = 0x800
_UNICODE_PATH, _UNICODE_HEADER = 0x7075, 5

#: Encodings to show when the encoding of names is not known.
_LIKELY_ENCODINGS = ("gbk", "shift_jis", "euc_kr", "big5", "cp1252", "cp866")


def _decoded_names(
    path: str, infos: Iterable[zipfile.ZipInfo], encoding: str | None
) -> tuple[list[str], bool]:
    """Return the names of the members, and whether nothing states that they are in UTF-8.

    Raises:
        CallError: `encoding` is not an encoding.
        SourceError: names are neither ASCII nor UTF-8, and `encoding` is not set or does not fit.

    """
    names, is_guess, stated = [], False, encoding or "utf-8"
    try:
        codecs.lookup(stated)
    except LookupError:
        raise CallError(
            f"--zip-encoding {stated} is not an encoding",
            hint=f"set one of {', '.join(_LIKELY_ENCODINGS)}, or another encoding of Python",
        ) from None
    for info in infos:
        name = info.filename
        if not name.isascii() and not info.flag_bits & _UTF8:
            # Where the archive does not state UTF-8, `zipfile` decodes names as code page 437.
            raw = info.orig_filename.encode("cp437")
            try:
                name = _unicode_path(info.extra, raw)
                if not name:
                    name, is_guess = raw.decode(stated), encoding is None
            except UnicodeDecodeError:
                raise _unknown_encoding(path, raw, encoding) from None
        names.append(name)
    return names, is_guess


def _unicode_path(extra: bytes, raw: bytes) -> str:
    """Return the name in the extra field of a member; empty if there is none, or for another name."""
    while len(extra) >= _EXTRA.size:
        kind, length = _EXTRA.unpack_from(extra)
        field = extra[_EXTRA.size : _EXTRA.size + length]
        if kind == _UNICODE_PATH and field[1:5] == zlib.crc32(raw).to_bytes(4, "little"):
            return field[_UNICODE_HEADER:].decode()
        extra = extra[_EXTRA.size + length :]
    return ""


#: Header of an extra field: kind and length.
_EXTRA = struct.Struct("<HH")


def _unknown_encoding(path: str, raw: bytes, encoding: str | None) -> SourceError:
    """Return the error for a name that cannot be decoded, with what it would be in some encodings."""
    readings = []
    for likely in _LIKELY_ENCODINGS:
        with suppress(UnicodeDecodeError):
            readings.append(f"{raw.decode(likely)} in {likely}")
    return SourceError(
        f"the archive does not state the encoding of its names, and a name is not valid in"
        f" {encoding or 'UTF-8'}: {readings[0] if readings else raw!r}",
        file=path,
        hint=f"set --zip-encoding: the name would be {', '.join(readings)}",
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

    def read(self, length: int = -1) -> bytes:
        if length > MAX_DIRECTORY_BYTES:
            raise ValueError(f"its directory is longer than {MAX_DIRECTORY_BYTES:,} bytes")
        if length < 0:
            length = MAX_DIRECTORY_BYTES
        data = self._file.read(self._at, max(0, min(self._file.size - self._at, length)))
        self._at += len(data)
        return data
