"""WebDataset shards, which are tar archives: the only file that knows their bytes.

Written are USTAR headers (POSIX.1-1988) with fixed times and owners. Read are those of USTAR, GNU tar
and PAX, so that any archive that the ``webdataset`` library reads can be indexed. Files that follow each
other and share their name up to the first dot are one sample.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, NamedTuple

from dataprep.formats import Draft, Fault, Record, View, Want
from dataprep.images import EXTENSIONS
from manifests.errors import ShardError
from manifests.schema import Components

SUFFIX = ".tar"
SUFFIXES = (".tar",)
BLOCK = 512
END = bytes(2 * BLOCK)
COMPONENTS = Components(image=tuple(EXTENSIONS.values()), label="cls")

#: Last parts of the extensions that are taken for images where nothing else was said.
IMAGE_EXTENSIONS = frozenset({"jpg", "jpeg", "png", "webp", "bmp", "tif", "tiff", "img", "image"})
#: A longer ``.cls`` or ``.json`` is not read.
MAX_TEXT = 1 << 20

_TRUNCATED = "the file was cut short: copy or make it again"
_DAMAGED = "the file is damaged: copy or make it again"
_ZEROS = tuple(bytes(n) for n in range(BLOCK))

# --- writing ------------------------------------------------------------------------------------

# name 100 | mode 8, uid 8, gid 8 | size 12 | mtime 12 | checksum 8 | type 1, linkname 100, magic 8, ... 255
_OWNER = b"0000644\0" + b"0000000\0" * 2
_MTIME = b"00000000000\0"
_REST = (b"0" + bytes(100) + b"ustar\x0000").ljust(BLOCK - 156, b"\0")
#: Sum of all bytes of a header but those of the name and the size; its own field counts as blanks.
_CONSTANT_SUM = sum(_OWNER) + sum(_MTIME) + sum(_REST) + 8 * ord(" ")

_json = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode


def frame(draft: Draft) -> tuple[bytes, bytes]:
    """Give the bytes before and after the image in a record."""
    label = b"%d" % draft.label
    text = _json(
        {
            "key": draft.key,
            "label": draft.label,
            "class": draft.class_name,
            "width": draft.info.width,
            "height": draft.info.height,
            "source": draft.source,
            "crc32c": draft.crc32c,
            **draft.extra,
        }
    ).encode()
    key = draft.key.encode()
    tail = b"".join(
        (
            _ZEROS[-draft.size % BLOCK],
            _header(key + b".cls", len(label)),
            label,
            _ZEROS[-len(label) % BLOCK],
            _header(key + b".json", len(text)),
            text,
            _ZEROS[-len(text) % BLOCK],
        )
    )
    return _header(key + b"." + EXTENSIONS[draft.info.format].encode(), draft.size), tail


def index_bytes(lines: list[str]) -> bytes:
    """Give the DALI index v1.2: a count, then ``extension offset size name`` for each file of a sample."""
    return "".join((f"v1.2 {len(lines)}\n", *(line + "\n" for line in lines))).encode()


def _header(name: bytes, size: int) -> bytes:
    length = b"%011o\0" % size
    checksum = b"%06o\0 " % (_CONSTANT_SUM + sum(name) + sum(length))
    return b"".join((name.ljust(100, b"\0"), _OWNER, length, _MTIME, checksum, _REST))


# --- reading ------------------------------------------------------------------------------------


class _Member(NamedTuple):
    """A regular file in the archive: its name, where its headers, its data and the next header begin."""

    name: str
    start: int
    data: int
    size: int
    end: int


class _Group(NamedTuple):
    """The files of one sample."""

    key: str
    members: list[tuple[str, _Member]]


def scan(view: View, size: int, file: str, want: Want) -> Iterator[Record]:
    """Walk a shard's samples by their headers; see `RecordFormat.scan`."""
    images = frozenset(want.components.image)
    for number, group in enumerate(_groups(view, size, file)):
        start, end = group.members[0][1].start, group.members[-1][1].end
        found: dict[str, _Member] = {}
        line = []
        for extension, member in group.members:
            lowered = extension.lower()
            kind = "image" if lowered in images else lowered
            if kind in found:
                raise ShardError(
                    f"sample {group.key!r} has two files of the kind {extension!r}",
                    file=file, record=number, byte=member.start, mend="name one with --image",
                )  # fmt: skip
            found[kind] = member
            line.append(f"{extension} {member.data} {member.size} {member.name}")
        image = found.get("image")
        if image is None:
            known = ", ".join(extension for extension, _ in group.members)
            raise ShardError(
                f"sample {group.key!r} has no image under {', '.join(sorted(images))}; it has: {known}",
                file=file, record=number, byte=start,
            )  # fmt: skip
        label, class_name, source = _described(view, found, want, (file, number))
        extension = image.name[len(group.key) + 1 :].lower()
        yield Record(
            start,
            end,
            " ".join(line),
            group.key,
            image.data,
            image.size,
            extension,
            label,
            class_name,
            source,
        )


def _groups(view: View, size: int, file: str) -> Iterator[_Group]:
    group = None
    for member in _members(view, size, file):
        dot = member.name.find(".", member.name.rfind("/") + 1)
        # As DALI's own index tool has it: what follows the first dot is the extension.
        key, extension = (member.name[:dot], member.name[dot + 1 :]) if dot >= 0 else (member.name[:-1], member.name)
        if not key or key.endswith("/"):
            continue
        if " " in member.name or "\n" in member.name or "\t" in member.name:
            raise ShardError(
                f"has a file {member.name!r}, and DALI's index cannot hold a name with a blank",
                file=file, byte=member.start, mend="make the shard again with other keys",
            )  # fmt: skip
        if group is not None and group.key == key:
            group.members.append((extension, member))
            continue
        if group is not None:
            yield group
        group = _Group(key, [(extension, member)])
    if group is not None:
        yield group


def _members(view: View, size: int, file: str) -> Iterator[_Member]:
    """Walk an archive's regular files; long names (GNU ``L``, PAX ``x``) are put on the file they belong to."""
    at = start = 0
    long_name: str | None = None
    long_size: int | None = None
    while at < size:
        if size - at < BLOCK:
            raise ShardError(f"ends within a header ({size - at} bytes)", file=file, byte=at, mend=_TRUNCATED)
        data, i = view(at, BLOCK)
        header = data[i : i + BLOCK]
        if not header[0]:
            if at == 0 and header.count(0) < BLOCK:
                raise ShardError("is no tar archive", file=file, byte=0)
            if header.count(0) == BLOCK:
                break
        _check_sum(header, at, file)
        length = _number(header, at, file)
        kind = header[156:157]
        if kind in b"0\0" and long_size is not None:
            length = long_size
        content, end = at + BLOCK, at + BLOCK + (length + BLOCK - 1) // BLOCK * BLOCK
        if content + length > size:
            raise ShardError(
                f"ends at byte {size}, and the file {_name(header)!r} in it would end at {content + length}",
                file=file, byte=at, mend=_TRUNCATED,
            )  # fmt: skip
        if kind == b"L":
            long_name = _text(view, content, length, at, file).rstrip("\0")
        elif kind == b"x":
            pax = _pax(_text(view, content, length, at, file))
            long_name = pax.get("path", long_name)
            long_size = int(pax["size"]) if pax.get("size", "").isdecimal() else None
        elif kind in (b"g", b"K"):
            pass
        else:
            if kind in (b"0", b"\0", b"7"):
                yield _Member(long_name or _name(header), start, content, length, min(end, size))
            long_name = long_size = None
            start = end
        at = end


def _check_sum(header: bytes, at: int, file: str) -> None:
    try:
        stated = int(header[148:156].strip(b" \0") or b"0", 8)
    except ValueError:
        stated = -1
    if sum(header) - sum(header[148:156]) + 8 * ord(" ") != stated:
        raise ShardError(
            "has a header whose checksum is wrong", file=file, byte=at,
            mend="the file is damaged, or no tar archive (a compressed one must be unpacked first)",
        )  # fmt: skip


def _number(header: bytes, at: int, file: str) -> int:
    field = header[124:136]
    if field[0] & 0x80:  # GNU's base 256, for sizes over 8 GiB
        return int.from_bytes(field, "big") & ~(0x80 << 88)
    try:
        return int(field.strip(b" \0") or b"0", 8)
    except ValueError:
        raise ShardError("has a header whose size is no number", file=file, byte=at, mend=_DAMAGED) from None


def _name(header: bytes) -> str:
    name = header[:100].split(b"\0", 1)[0]
    if header[257:263] == b"ustar\0" and header[345]:
        name = header[345:500].split(b"\0", 1)[0] + b"/" + name
    return name.decode("utf-8", "surrogateescape")


def _text(view: View, at: int, length: int, header: int, file: str) -> str:
    if length > MAX_TEXT:
        raise ShardError(f"has a text of {length} bytes, the limit is {MAX_TEXT}", file=file, byte=header)
    data, i = view(at, length)
    return data[i : i + length].decode("utf-8", "surrogateescape")


def _pax(text: str) -> dict[str, str]:
    """Records ``length key=value`` of a PAX header, one a line (POSIX.1-2001)."""
    pairs = (line.partition(" ")[2].partition("=") for line in text.split("\n") if line)
    return {key: value for key, _, value in pairs}


def _described(
    view: View, found: dict[str, _Member], want: Want, where: tuple[str, int]
) -> tuple[int | None, str, str]:
    """Label, class name and source of a sample, from its ``.cls`` and ``.json``."""
    file, number = where
    label: int | None = None
    text: dict[str, Any] = {}
    if (member := found.get("json")) is not None:
        text = _parse_json(view, member, where)
    if want.label_key is not None:
        label = _json_label(text, want.label_key, where)
    elif want.components.label and (member := found.get(want.components.label)) is not None:
        raw = _text(view, member.data, member.size, member.start, file).strip()
        try:
            label = int(raw)
        except ValueError:
            raise ShardError(
                f"has the label {raw[:40]!r}, which is no integer", file=file, record=number, byte=member.data
            ) from None
    class_name, source = text.get("class"), text.get("source", text.get("url"))
    return (
        label,
        class_name if isinstance(class_name, str) else "",
        source if isinstance(source, str) else found["image"].name,
    )


def _parse_json(view: View, member: _Member, where: tuple[str, int]) -> dict[str, Any]:
    file, number = where
    try:
        text = json.loads(_text(view, member.data, member.size, member.start, file))
    except (ValueError, RecursionError) as error:
        raise ShardError(
            f"has a .json that does not parse ({error})", file=file, record=number, byte=member.data
        ) from None
    if not isinstance(text, dict):
        raise ShardError("has a .json that is no object", file=file, record=number, byte=member.data)
    return text


def _json_label(text: dict[str, Any], key: str, where: tuple[str, int]) -> int:
    value = text.get(key)
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    whole = ", ".join(sorted(name for name, item in text.items() if type(item) is int)) or "none"
    raise ShardError(
        f"has no integer under {key!r} in its .json ({value!r}); members that are integers: {whole}",
        file=where[0], record=where[1], mend="name another with --label-key",
    )  # fmt: skip


def fault(view: View, record: Record, file: str) -> Fault | None:
    """Check that all padding in the sample is zeros; headers were checked by `scan`."""
    for member in _members(lambda at, n: view(at + record.start, n), record.end - record.start, file):
        at = record.start + member.data + member.size
        length = record.start + member.end - at
        data, i = view(at, length)
        if any(data[i : i + length]):
            return Fault("the padding after a file is not zeros", at)
    return None


def find_components(view: View, size: int, file: str, image: str | None) -> Components:
    """Look into the first sample for where image and label lie."""
    group = next(_groups(view, size, file), None)
    if group is None:
        raise ShardError("holds no file", file=file, byte=0, mend="remove it")
    extensions = [extension.lower() for extension, _ in group.members]
    if image is not None:
        images: tuple[str, ...] = tuple(image.lower().lstrip(".").split(","))
    else:
        plain = [name for name in extensions if name in IMAGE_EXTENSIONS]
        images = tuple(plain or [name for name in extensions if name.rpartition(".")[2] in IMAGE_EXTENSIONS])
        if len(images) > 1:
            raise ShardError(
                f"sample {group.key!r} has more than one image: {', '.join(images)}",
                file=file, record=0, mend="name one with --image",
            )  # fmt: skip
        if images and images[0] in IMAGE_EXTENSIONS:
            images = tuple(sorted(IMAGE_EXTENSIONS))
    if not set(images) & set(extensions):
        raise ShardError(
            f"sample {group.key!r} has no image; its files are: {', '.join(extensions)}",
            file=file, record=0, mend="name the extension with --image",
        )  # fmt: skip
    return Components(image=images, label="cls" if "cls" in extensions else None)
