"""WebDataset shards of other tools: tar archives with mutated headers, members, ends and labels."""

from __future__ import annotations

import io
import json
import subprocess
import tarfile
from contextlib import suppress
from pathlib import Path
from random import Random
from typing import Any

from fuzz import mutate
from fuzz.checks import Case, check_index, require
from fuzz.seeds import images

_SHARD = "train-00000.tar"
_FORMATS = (tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT)
_IMAGES = ("jpg", "png", "webp")


def make(rng: Random) -> Case:
    shard = _archive(rng)
    choice = rng.random()
    if choice < 0.3:
        shard = _odd_header(rng, shard)
    elif choice < 0.55:
        shard = _odd_end(rng, shard)
    elif choice < 0.65:
        shard = mutate.mutate_bytes(rng, shard)
    options = ["--validate", rng.choice(("none", "header", "decode", "decode"))]
    if rng.random() < 0.15:
        more = ("--label cls", "--image jpg", "--label-key label", "--label-offset -1")
        options += rng.choice(more).split()
    return {_SHARD: shard, "options": json.dumps(options).encode()}


_TYPES = (tarfile.DIRTYPE, tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.FIFOTYPE, b"7", b"S")


def _archive(rng: Random) -> bytes:
    out, kind = io.BytesIO(), rng.choice(_FORMATS)
    with tarfile.open(fileobj=out, mode="w", format=kind, errors="surrogateescape") as archive:
        for name, data in _members(rng):
            info = tarfile.TarInfo(name)
            if rng.random() < 0.03:
                info.type = rng.choice(_TYPES)
                info.linkname = "x"  # GNU tar refuses a link to nothing
            if rng.random() < 0.05 and kind == tarfile.PAX_FORMAT:
                info.pax_headers = {rng.choice(("comment", "path", "size")): mutate.odd_text(rng)}
            content = data if info.type in (tarfile.REGTYPE, b"7", b"S") else b""
            info.size = len(content)
            with suppress(ValueError):  # a name that this format cannot store
                archive.addfile(info, io.BytesIO(content))
    return out.getvalue()


def _members(rng: Random) -> list[tuple[str, bytes]]:
    members: list[tuple[str, bytes]] = []
    for number, (name, data) in enumerate(list(images().items())[: rng.randint(1, 4)]):
        key, extension = name.split(".")
        members += [(f"{key}.{extension}", data), (f"{key}.cls", b"%d" % (number % 3))]
        if rng.random() < 0.5:
            members.append((f"{key}.json", json.dumps({"label": number % 3, "name": "x"}).encode()))
    for _ in range(rng.choice((0, 0, 1, 2))):
        _change_members(rng, members)
    return members


def _change_members(rng: Random, members: list[tuple[str, bytes]]) -> None:
    at = rng.randrange(len(members))
    name, data = members[at]
    kind = rng.randrange(6)
    if kind == 0:
        members[at] = (_odd_name(rng, name), data)
    elif kind == 1 and not name.endswith(_IMAGES):
        members[at] = (name, _odd_content(rng, name, data))
    elif kind == 2:
        members.insert(rng.randrange(len(members)), members[at])
    elif kind == 3 and len(members) > 1:
        members.pop(at)
    elif kind == 4:
        rng.shuffle(members)
    else:
        names = ("README", "a.b.c.d", "x/y/z.txt", ".hidden", "no extension")
        members.insert(at, (rng.choice(names), b"text"))


def _odd_name(rng: Random, name: str) -> str:
    stem, _, extension = name.partition(".")
    names = [f"{folder}{name}" for folder in ("d/", "d/" * 60, "d/" * 200, "./", "../", "/")]
    names += [f"{'x' * length}.{extension}" for length in (90, 150, 300, 5000)]
    names += [f"{stem}.{extension.upper()}", f"{stem}.a.{extension}", f"{stem}.", f".{extension}"]
    text = mutate.odd_text(rng)[:50].replace("\udc80", "")
    return rng.choice((*names, f"{stem} {text}.{extension}", extension))


def _odd_content(rng: Random, name: str, data: bytes) -> bytes:
    if name.endswith(".json"):
        return mutate.dump_json(mutate.mutate_json(rng, {"label": 1, "name": "x"}))
    labels = (b"", b"1\n", b" 1", b"-1", b"+1", b"cat", b"99999999", b"9" * 30, b"9" * 5000, b"1.0")
    labels += (b"1 2", b"\xff", b"0x1")
    return rng.choice(labels)


def _headers(shard: bytes) -> list[int]:
    with tarfile.open(fileobj=io.BytesIO(shard)) as archive:
        return [member.offset for member in archive] or [0]


#: Bytes of a header that matter here: name, size, checksum, type, magic, prefix. GNU tar checks
#: others too.
_READ = (*range(100), *range(124, 136), *range(148, 157), *range(257, 265), *range(345, 500))


def _odd_header(rng: Random, shard: bytes) -> bytes:
    """Change a field of a header; correct its checksum most of the time."""
    result = bytearray(shard)
    at = rng.choice(_headers(shard))
    numbers = (b"00000000000\0", b"77777777777\0", b"-0000000001\0", b"\x80" + bytes(10) + b"\x20")
    numbers += (b"\xff" * 12, b" " * 12, b"00000001000 ", b"0x000000001\0", b"\x80" + b"\x7f" * 11)
    sizes = (*numbers, b"999" + bytes(9))
    start, values = rng.choice(
        (
            (124, sizes),
            (124, sizes),
            (156, (b"0", b"\0", b"2", b"5", b"7", b"x", b"g", b"L", b"K", b"S", b"V", b"\xff")),
            (257, (b"ustar  \0", b"ustar\x0000", bytes(8), b"USTAR\x0000")),
            (0, (bytes(100), b"x" * 100, b"\xff" * 100, b"a\n.jpg\0")),
            (345, (b"prefix\0", b"x" * 155)),
            (rng.choice(_READ), (bytes([rng.randrange(256)]),)),
        )
    )
    value = rng.choice(values)
    result[at + start : at + start + len(value)] = value
    # A prefix of the name, but only in a header of this kind; Python's tarfile reads it in others too.
    if start == 345:
        result[at + 257 : at + 265] = b"ustar\x0000"
    if rng.random() < 0.8:
        result[at + 148 : at + 156] = b" " * 8
        result[at + 148 : at + 156] = b"%06o\0 " % sum(result[at : at + 512])
    return bytes(result)


def _odd_end(rng: Random, shard: bytes) -> bytes:
    """Cut, fill or repeat the end, or put zeros in the middle."""
    body = shard.rstrip(b"\0")
    body += bytes(-len(body) % 512)
    at = rng.choice(_headers(shard))
    return rng.choice(
        (
            body,
            body + bytes(512),
            body + bytes(1024),
            body + bytes(1024) + b"x",
            body + bytes(1024) + bytes(10240) + b"x" + bytes(511),
            shard + shard,
            body + body,
            body + bytes(512) + body + bytes(1024),
            shard[:at] + bytes(512) + shard[at + 512 :],
            shard[:at] + bytes(512) + shard[at:],
            shard[:at] + bytes(1024) + shard[at:],
            shard[:at] + bytes(len(shard) - at),
            shard[: rng.randrange(len(shard))],
            body[: -rng.randrange(1, 512)],
        )
    )


# --- oracles ------------------------------------------------------------------------------------


def _samples(shard: bytes, image: tuple[str, ...]) -> list[tuple[bytes, bytes | None]]:
    """Return the image and the ``.cls`` of each sample with an image, as Python's `tarfile` reads them."""
    found: dict[str, dict[str, bytes]] = {}
    with tarfile.open(fileobj=io.BytesIO(shard), ignore_zeros=True) as archive:
        for member in archive:
            if member.isreg():
                folder, _, name = member.name.rpartition("/")
                stem, _, extension = name.partition(".")
                parts = found.setdefault(f"{folder}/{stem}", {})
                parts.setdefault(extension.lower(), shard[member.offset_data :][: member.size])
    samples = []
    for parts in found.values():
        pictures = [parts[extension] for extension in parts if extension in image]
        samples += [(picture, parts.get("cls")) for picture in pictures[:1]]
    return samples


def check(case: Case, folder: Path) -> None:
    def stored(components: Any) -> list[tuple[bytes, Any]]:
        (folder / _SHARD).write_bytes(case[_SHARD])
        command = ["tar", "--list", "--ignore-zeros", "--file", folder / _SHARD]
        listed = subprocess.run(command, capture_output=True, check=False)
        require(listed.returncode == 0, f"index says complete, but tar fails: {listed.stderr!r}")
        samples = _samples(case[_SHARD], tuple(components["image"]))
        if components["label"] != "cls":
            return [(image, None) for image, _ in samples]
        offset = components["label_offset"]
        return [(image, int(label or b"-1") + offset) for image, label in samples]

    check_index(_SHARD, case, folder, stored)
