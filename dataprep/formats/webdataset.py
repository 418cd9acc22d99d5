"""WebDataset shards: samples in a tar archive, whose own bytes `tar` knows.

Files that follow each other and share their name up to the first dot are one sample: an image, ``.cls``
with the label in decimal ASCII, ``.json`` with what the sample table says.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator
from typing import Any, NamedTuple

from dataprep.formats import tar
from dataprep.formats.base import PendingSample, Record, RecordDamage, ScanOptions, View
from dataprep.images.base import EXTENSIONS
from manifests.errors import CallError, ShardError
from manifests.schema import Components

SUFFIX = ".tar"
SUFFIXES: tuple[str, ...] = (".tar",)
END = tar.END
COMPONENTS = Components(image=tuple(EXTENSIONS.values()), label="cls")
RAW = Components(image=("raw",), label="cls")

#: Last parts of the extensions that are taken for images where nothing else was said.
IMAGE_EXTENSIONS = frozenset({"jpg", "jpeg", "png", "webp", "bmp", "tif", "tiff", "img", "image"})


# --- writing ------------------------------------------------------------------------------------

_EXTENSIONS = {**EXTENSIONS, "raw": RAW.image[0]}
#: Neither blanks nor what stands for bytes that are not UTF-8.
_PLAIN = re.compile(r"[^\s\ud800-\udfff]+")
_quoted = json.encoder.encode_basestring
_json = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode


def frame(draft: PendingSample) -> tuple[bytes, bytes]:
    """Give the bytes before and after the image in a record."""
    label = b"%d" % draft.label
    text = _json_of(draft).encode()
    key = draft.key.encode()
    tail = b"".join(
        (
            tar.ZEROS[-draft.size % tar.BLOCK],
            tar.header(key + b".cls", len(label)),
            label,
            tar.ZEROS[-len(label) % tar.BLOCK],
            tar.header(key + b".json", len(text)),
            text,
            tar.ZEROS[-len(text) % tar.BLOCK],
        )
    )
    return tar.header(key + b"." + _EXTENSIONS[draft.info.format].encode(), draft.size), tail


def index_line(start: int, draft: PendingSample, frame: tuple[bytes, bytes]) -> str:
    """Give a sample's line in the DALI index."""
    key, kind, tail = draft.key, _EXTENSIONS[draft.info.format], frame[1]
    image, block = start + tar.BLOCK, tar.BLOCK
    label = image + draft.size + -draft.size % block + block
    text = label + 2 * block  # a label fits into one block
    length = tar.stated_size(tail, text - block - image - draft.size)
    return (
        f"{kind} {image} {draft.size} {key}.{kind} cls {label} {len(str(draft.label))} {key}.cls "
        f"json {text} {length} {key}.json"
    )


def _json_of(draft: PendingSample) -> str:
    """Write what the table says of a sample; further columns come first, so that none can hide what we say."""
    extra = _json({name: _finite(value) for name, value in draft.extra.items()})[1:-1] + "," if draft.extra else ""
    return (
        f'{{{extra}"key":"{draft.key}","label":{draft.label},"class":{_quoted(draft.class_name)},'
        f'"width":{draft.info.width},"height":{draft.info.height},"source":{_quoted(draft.source)},'
        f'"crc32c":{draft.crc32c}}}'
    )


def _finite(value: Any) -> Any:
    # JSON has no word for NaN and infinity.
    return None if isinstance(value, float) and not math.isfinite(value) else value


def index_bytes(lines: list[str]) -> bytes:
    """Give the DALI index v1.2: a count, then ``extension offset size name`` for each file of a sample."""
    return "".join((f"v1.2 {len(lines)}\n", *(line + "\n" for line in lines))).encode()


def index_starts(index: bytes) -> list[int]:
    """Read where each sample's first header begins out of a DALI index."""
    return [int(line.split()[1]) - tar.BLOCK for line in index.splitlines()[1:]]


# --- reading ------------------------------------------------------------------------------------

#: Decimal ASCII, and the line feed that others end it with; Python's own `int` takes much more for a number.
_LABEL = re.compile(r"-?[0-9]{1,19}(\r?\n)?")


class _Group(NamedTuple):
    """The files of one sample."""

    key: str
    members: list[tuple[str, tar.Member]]


def scan(view: View, size: int, file: str, want: ScanOptions) -> Iterator[Record]:
    """Walk a shard's samples by their headers; see `RecordFormat.scan`."""
    images = frozenset(want.components.image)
    for number, group in enumerate(_groups(view, size, file, want)):
        found = _by_kind(group, images, file, number)
        image = found["image"]
        label, class_name, source = _described(view, found, want, (file, number))
        yield Record(
            start=group.members[0][1].start,
            end=group.members[-1][1].end,
            line=" ".join([f"{extension} {m.data} {m.size} {m.name}" for extension, m in group.members]),
            key=group.key,
            image=image.data,
            size=image.size,
            component=image.name[len(group.key) + 1 :].lower(),
            label=label,
            class_name=class_name,
            source=source,
        )


def _by_kind(group: _Group, images: frozenset[str], file: str, number: int) -> dict[str, tar.Member]:
    """Give a sample's files by extension, the one that is an image as `image`."""
    found: dict[str, tar.Member] = {}
    for extension, member in group.members:
        lowered = extension.lower()
        kind = "image" if lowered in images else lowered
        if kind in found:
            raise ShardError(
                f"sample {group.key!r} has two files of the kind {extension!r}",
                file=file, record=number, byte=member.start, hint="name one with --image",
            )  # fmt: skip
        found[kind] = member
    if "image" not in found:
        known = ", ".join(extension for extension, _ in group.members)
        raise ShardError(
            f"sample {group.key!r} has no image under {', '.join(sorted(images))}; it has: {known}",
            file=file, record=number, byte=group.members[0][1].start,
        )  # fmt: skip
    return found


def _groups(view: View, size: int, file: str, want: ScanOptions) -> Iterator[_Group]:
    """Put files that share a key together; an error is given the number of the sample that it is in."""
    group: _Group | None = None
    number = most = 0
    try:
        for member in tar.members(view, size, file):
            key, extension = _split_name(member.name)
            if not key or key.endswith("/"):
                continue
            if group is not None and group.key != key:
                most = max(most, len(group.members))
                yield group
                group, number = None, number + 1
            _check_name(member, file)
            group = group or _Group(key, [])
            group.members.append((extension, member))
    except ShardError as error:
        if group is not None and _looks_whole(group, most, want):
            yield group
            number += 1
        if error.record is None:
            error.record = number
        raise
    if group is not None:
        yield group


def _split_name(name: str) -> tuple[str, str]:
    # As DALI's own index tool has it: what follows the first dot is the extension.
    dot = name.find(".", name.rfind("/") + 1)
    return (name[:dot], name[dot + 1 :]) if dot >= 0 else (name[:-1], name)


def _check_name(member: tar.Member, file: str) -> None:
    if not _PLAIN.fullmatch(member.name) or member.name.endswith("."):
        raise ShardError(
            f"has a file {member.name!r}; DALI's index holds no blank, no empty extension and nothing but UTF-8",
            file=file, byte=member.start, hint="make the shard again with other keys",
        )  # fmt: skip


def _looks_whole(group: _Group, most: int, want: ScanOptions) -> bool:
    """Tell whether what cannot be read after a group's last file is rather the next sample's."""
    extensions = {extension.lower() for extension, _ in group.members}
    has_both = bool(extensions & set(want.components.image)) and want.components.label in (None, *extensions)
    return has_both and len(group.members) >= most


def _described(
    view: View, found: dict[str, tar.Member], want: ScanOptions, where: tuple[str, int]
) -> tuple[int | None, str, str]:
    """Label, class name and source of a sample, from its ``.cls`` and ``.json``."""
    file, number = where
    label: int | None = None
    text: dict[str, Any] = {}
    if (want.texts or want.label_key) and (member := found.get("json")) is not None:
        try:
            text = _parse_json(view, member, where)
        except ShardError as error:
            error.record = number
            if want.label_key is not None:  # otherwise it is nobody's business what is in it
                raise
    if want.label_key is not None:
        label = _json_label(text, want.label_key, where)
    elif want.components.label and (member := found.get(want.components.label)) is not None:
        raw = tar.text(view, member.data, member.size, file)
        if not _LABEL.fullmatch(raw):
            raise ShardError(
                f"has the label {raw[:40]!r}, which is no integer", file=file, record=number, byte=member.data
            )
        label = int(raw)
    class_name, source = text.get("class"), text.get("source", text.get("url"))
    return (
        label,
        class_name if isinstance(class_name, str) else "",
        source if isinstance(source, str) else found["image"].name,
    )


def _parse_json(view: View, member: tar.Member, where: tuple[str, int]) -> dict[str, Any]:
    file, number = where
    try:
        text = json.loads(tar.text(view, member.data, member.size, file))
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
        file=where[0], record=where[1], hint="name another with --label-key",
    )  # fmt: skip


def fault(view: View, record: Record, file: str) -> RecordDamage | None:
    """Check that all padding in the sample is zeros; headers were checked by `scan`."""
    for member in tar.members(lambda at, n: view(at + record.start, n), record.end - record.start, file, part=True):
        at = record.start + member.data + member.size
        length = record.start + member.end - at
        data, i = view(at, length)
        if any(data[i : i + length]):
            return RecordDamage("the padding after a file is not zeros", at)
    return None


def find_end(view: View, at: int, size: int, file: str) -> int:
    """Walk over what follows the last sample (folders, links) to where the archive's end begins."""
    walk = tar.members(lambda start, n: view(start + at, n), size - at, file)
    while True:
        try:
            next(walk)
        except StopIteration as stop:
            return at + int(stop.value)


def find_components(view: View, size: int, file: str, image: str | None) -> Components:
    """Look into the first sample for where image and label lie."""
    group = next(_groups(view, size, file, ScanOptions(COMPONENTS)), None)
    if group is None:
        raise ShardError("holds no file", file=file, byte=0, hint="remove it")
    extensions = [extension.lower() for extension, _ in group.members]
    if image is not None:
        images: tuple[str, ...] = tuple(part.strip().lstrip(".") for part in image.lower().split(","))
    else:
        plain = [name for name in extensions if name in IMAGE_EXTENSIONS]
        images = tuple(plain or [name for name in extensions if name.rpartition(".")[2] in IMAGE_EXTENSIONS])
        if len(images) > 1:
            raise ShardError(
                f"sample {group.key!r} has more than one image: {', '.join(images)}",
                file=file, record=0, hint="name one with --image",
            )  # fmt: skip
        if images and images[0] in IMAGE_EXTENSIONS:
            images = tuple(sorted(IMAGE_EXTENSIONS))
    if image is not None and not set(images) & set(extensions):
        raise CallError(
            f"--image {image}: {file} has no such file in its first sample; its files are: {', '.join(extensions)}",
            hint="name the extension that holds the image",
        )
    if not set(images) & set(extensions):
        raise ShardError(
            f"sample {group.key!r} has no image; its files are: {', '.join(extensions)}",
            file=file, record=0, hint="name the extension with --image",
        )  # fmt: skip
    return Components(image=images, label="cls" if "cls" in extensions else None)
