"""JSON documents whose last member is a checksum of everything before it, so that no change stays unnoticed."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from awscrt.checksums import crc32c

from manifests.json_members import Member, MemberError, parse_json
from manifests.serialization import checksum_text

_END = re.compile(rb',\n "checksum": "(crc32c:[0-9a-f]{8})"\n\}\n\Z')
_END_BYTES = 64


def seal(body: Mapping[str, Any]) -> bytes:
    """Serialize an object as UTF-8 JSON, and add the member ``checksum``: a CRC-32C of the document without it."""
    return _dump({**body, "checksum": checksum_text(crc32c(_dump(body)))})


def unseal(data: bytes) -> Member:
    """Parse what `seal` returned. Every byte must be as `seal` writes it.

    Raises:
        ValueError: the document was changed or truncated, or is not one of this project.

    """
    if not is_sealed(data):
        raise MemberError("it is truncated or was written by another tool: the checksum is missing")
    if not matches_seal(data):  # compared first: it takes no memory, unlike parsing
        raise MemberError("it does not match its own checksum")
    return parse_sealed(data)


def is_sealed(data: bytes) -> bool:
    """Return whether a document ends with a checksum."""
    return _seal_of(data) is not None


def matches_seal(data: bytes) -> bool:
    """Return whether a document ends with the checksum of everything before it."""
    end = _seal_of(data)
    return end is not None and end[1].decode() == checksum_text(
        crc32c(b"\n}\n", crc32c(memoryview(data)[: end.start()]))
    )


def parse_sealed(data: bytes) -> Member:
    """Parse a document whose checksum was compared before.

    Raises:
        MemberError: it is not JSON, or not as `seal` writes it.

    """
    body = parse_json(data)
    if _dump(body.mapping()) != data:  # for example, a repeated name, or another layout
        raise MemberError("it is not written as this project writes it")
    return body


def _seal_of(data: bytes) -> re.Match[bytes] | None:
    return _END.search(data, max(0, len(data) - _END_BYTES))


def _dump(body: Mapping[str, Any]) -> bytes:
    return (json.dumps(body, indent=1, ensure_ascii=False) + "\n").encode("utf-8", "surrogatepass")
