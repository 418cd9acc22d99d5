"""What is wrong with a split's index files, asked once DALI has refused one: it does not say which.

It must never know torch or DALI. The formats: of a TFRecord shard a line ``<offset> <size>`` for each record; of a
WebDataset shard ``v1.2 <count>``, then a line for each sample, ``<extension> <offset> <size> <name>`` for each of its
components (``v1.1`` without the names).
"""

from __future__ import annotations

from collections.abc import Sequence

from awscrt.checksums import crc32c

from loaders.dataset.split import RESTORE, OpenSplit
from manifests.errors import IndexFileError
from manifests.schema import Shard
from manifests.store import checksum_text

#: Values that a component takes on a line of an index, by its version.
_WIDTHS = {b"v1.1": 3, b"v1.2": 4}

#: Values on a line of a TFRecord index.
_TFRECORD = 2


def index_fault(split: OpenSplit) -> IndexFileError | None:
    """Return the first fault in the split's indexes, with file and line; none where each is as it should be."""
    for shard in split.shards:
        path = split.path(shard.index)
        try:
            with open(path, "rb") as file:
                data = file.read()
            _check(data, shard, webdataset=split.manifest.format == "webdataset")
        except OSError as error:
            return IndexFileError(f"cannot be read ({error.strerror})", file=path, hint=RESTORE)
        except IndexFileError as error:
            return IndexFileError(error.message, file=path, line=error.line, hint=RESTORE)
    return None


def _check(data: bytes, shard: Shard, *, webdataset: bool) -> None:
    lines = data.split(b"\n")
    if lines[-1]:
        raise IndexFileError("ends in the middle of a line", line=len(lines))
    del lines[-1]
    width, first = _TFRECORD, 1
    if webdataset:
        words = lines[0].split() if lines else []
        if len(words) != 2 or words[0] not in _WIDTHS or not _is_number(words[1]):
            raise IndexFileError("does not begin with v1.2 and a count", line=1)
        width, first = _WIDTHS[words[0]], 2
        if int(words[1]) != shard.samples:
            raise IndexFileError(f"states {int(words[1])} samples, and the manifest {shard.samples}", line=1)
    for number, line in enumerate(lines[first - 1 :], first):
        _check_line(line.split(), width, shard, number)
    if len(lines) - first + 1 != shard.samples:
        raise IndexFileError(f"has {len(lines) - first + 1} samples, and the manifest states {shard.samples}")
    if shard.index.checksum not in (None, checksum_text(crc32c(data))):
        raise IndexFileError("is not the file that the manifest states: its checksum differs")


def _check_line(words: Sequence[bytes], width: int, shard: Shard, number: int) -> None:
    # A record of TFRecord is one component without an extension.
    if not words or len(words) % width or (width == _TFRECORD and len(words) > width):
        raise IndexFileError("has not the form of a line of this index", line=number)
    # Of a component in a WebDataset index, offset and size follow its extension.
    for at in range(0 if width == _TFRECORD else 1, len(words), width):
        place, size = words[at : at + 2]
        if not (_is_number(place) and _is_number(size)):
            raise IndexFileError("holds no offset and size where there should be", line=number)
        if int(place) + int(size) > shard.file.bytes:
            raise IndexFileError(f"points beyond its shard, which has {shard.file.bytes} bytes", line=number)


def _is_number(word: bytes) -> bool:
    return word.isdigit() and len(word) < 20
