"""What can be wrong with the files of a split: shards of another length, and wrong DALI indexes."""

from __future__ import annotations

import itertools

import numpy as np
from awscrt.checksums import crc32c
from numpy.typing import NDArray

from loaders.dataset.split import RESTORE, OpenSplit, check_length
from manifests.dali_index import MAX_DIGITS, TAR_BLOCK, iter_index
from manifests.errors import DamagedError, IndexFileError
from manifests.files import INDEX, SHARD, read_file, reading
from manifests.schema import Format, Shard
from manifests.serialization import checksum_text

# --- shards ---------------------------------------------------------------------------------------


class ShardCheck:
    """Checks the lengths of the shards of a split, a few at each call, while DALI has them mapped into memory.

    Reading beyond the end of a mapped file that was shortened ends the process.
    """

    #: Shards that one call checks: approximately 30 us.
    PER_CALL = 16

    def __init__(self, split: OpenSplit) -> None:
        self._split = split
        self._shards = itertools.cycle(split.shards)
        self._count = min(self.PER_CALL, len(split.shards))

    def __call__(self) -> None:
        """Check the next shards.

        Raises:
            ShardError: a shard has another length than the manifest states.

        """
        for shard in itertools.islice(self._shards, self._count):
            check_length(self._split.path(shard.file), shard.file, SHARD)


def find_shard_error(split: OpenSplit) -> DamagedError | None:
    """Return an error for the first shard that is missing or has another length.

    `None` if there is none.
    """
    try:
        for shard in split.shards:
            check_length(split.path(shard.file), shard.file, SHARD)
    except DamagedError as error:
        return error
    return None


# --- DALI's indexes -------------------------------------------------------------------------------


def check_indexes(split: OpenSplit) -> None:
    """Compare every index of a split with its checksum, its shard's length and its number of samples.

    Raises:
        IndexFileError: an index is missing, damaged, or not the one that the manifest describes.

    """
    error = find_index_error(split)
    if error is not None:
        raise error


def find_index_error(split: OpenSplit) -> IndexFileError | None:
    """Return the first error in the split's indexes, with file and line; `None` if every index is intact.

    DALI reads past the end of a shard, or another sample, if an index is wrong.
    """
    for shard in split.shards:
        path = split.path(shard.index)
        try:
            with reading("the index", path, IndexFileError, RESTORE):
                _check_index(read_file(path, INDEX), shard, split.manifest.format)
        except IndexFileError as error:
            return IndexFileError(error.message, file=path, line=error.line, hint=RESTORE)
    return None


def _check_index(data: bytes, shard: Shard, fmt: Format) -> None:
    if not is_well_formed(data, fmt, shard.samples, shard.file.bytes):
        _check_lines(data, shard, fmt)
    if shard.index.checksum not in (None, checksum_text(crc32c(data))):
        raise IndexFileError(
            "the index is not the one that the manifest describes: its checksum differs"
        )


def _check_lines(data: bytes, shard: Shard, fmt: Format) -> None:
    samples = 0
    for entry in iter_index(fmt, data):
        samples += 1
        if entry.end > shard.file.bytes:
            message = (
                f"the line points past the end of its shard, which has {shard.file.bytes} bytes"
            )
            raise IndexFileError(message, line=entry.line)
    if samples != shard.samples:
        raise IndexFileError(
            f"the index has {samples} samples, but the manifest states {shard.samples}"
        )


# --- the same check with NumPy ------------------------------------------------------------------

_SPACE, _LINE_FEED, _ZERO = b" \n0"


def is_well_formed(data: bytes, fmt: Format, samples: int, shard_bytes: int) -> bool:
    """Return whether an index is as this project writes it, and every position is inside the shard.

    Much faster than parsing the lines, but says nothing about the error, and is false for some
    valid indexes of other tools.

    Args:
        data: content of the index.
        fmt: record format of the shard.
        samples: number of samples in the shard.
        shard_bytes: length of the shard.

    """
    header = b"v1.2 %d\n" % samples if fmt == "webdataset" else b""
    per_component = 4 if fmt == "webdataset" else 2
    text = np.frombuffer(data, np.uint8)[len(header) :]
    found = np.flatnonzero(text <= _SPACE)
    if (
        not data.startswith(header)
        or not len(found)
        or found[-1] != len(text) - 1
        or len(found) % per_component
    ):
        return False
    ends = found.reshape(-1, per_component)
    separators = text[ends]
    newlines = separators[:, -1] == _LINE_FEED
    if (separators[:, :-1] != _SPACE).any() or not (newlines | (separators[:, -1] == _SPACE)).all():
        return False
    if np.count_nonzero(newlines) != samples or (fmt == "tfrecord" and not newlines.all()):
        return False
    starts = np.concatenate([[0], found[:-1] + 1]).reshape(ends.shape)
    if (starts >= ends).any():
        return False
    first = 1 if fmt == "webdataset" else 0
    offsets, sizes = (
        _parse_numbers(text, starts[:, column], ends[:, column]) for column in (first, first + 1)
    )
    if offsets is None or sizes is None or (offsets + sizes > shard_bytes).any():
        return False
    return fmt == "tfrecord" or not (offsets % TAR_BLOCK).any()


def _parse_numbers(
    text: NDArray[np.uint8], starts: NDArray[np.int64], ends: NDArray[np.int64]
) -> NDArray[np.int64] | None:
    """Parse the decimal numbers in bytes `starts` to `ends` of the text.

    `None` if one of them is not a number.
    """
    lengths = ends - starts
    longest = int(lengths.max())
    if longest > MAX_DIGITS:
        return None
    numbers = np.zeros(len(starts), np.int64)
    for position in range(longest):
        is_digit = position < lengths
        digits = text[np.minimum(starts + position, ends)] - np.uint8(_ZERO)
        if (digits[is_digit] > 9).any():
            return None
        numbers = np.where(is_digit, numbers * 10 + digits, numbers)
    return numbers
