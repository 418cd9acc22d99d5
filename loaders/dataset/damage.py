"""What can be wrong with the files of a split: shards of another length, and wrong DALI indexes."""

from __future__ import annotations

import itertools

import numpy as np
from awscrt.checksums import crc32c

from loaders.arrays import Ints
from loaders.dataset.split import RESTORE, OpenSplit, check_length
from manifests.dali_index import TAR_BLOCK, iter_index
from manifests.errors import DamagedError, IndexFileError
from manifests.files import INDEX, SHARD, read_file, reading
from manifests.schema import Format, Shard
from manifests.serialization import checksum_text

# --- shards ---------------------------------------------------------------------------------------


class ShardCheck:
    """Checks the lengths of the shards of a split, a few at each call.

    DALI has them mapped into memory, and reading beyond the end of a mapped file that was shortened
    ends the process.
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
    """Compare every index with its checksum, its shard's length and its number of samples.

    Raises:
        IndexFileError: an index is missing, damaged, or not the one that the manifest describes.

    """
    error = find_index_error(split)
    if error is not None:
        raise error


def find_index_error(split: OpenSplit) -> IndexFileError | None:
    """Return the first error in a split's indexes, with file and line; `None` if there is none.

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


# --- the same check for a whole index at once -----------------------------------------------------

#: All bytes but separators, which are space and control characters.
_VISIBLE = bytes(range(0x21, 0x100))


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
    if fmt == "webdataset":
        header, _, lines = data.partition(b"\n")
        numbers = None
        if header == b"v1.2 %d" % samples:
            numbers = _member_numbers(lines, samples)
    else:
        numbers = _record_numbers(data, samples)
    if numbers is None:
        return False
    offsets, sizes = numbers[::2], numbers[1::2]
    # A number that is too large for int64 is read as the largest one. No sums: they could overflow.
    if (offsets > shard_bytes).any() or (sizes > shard_bytes - offsets).any():
        return False
    return fmt == "tfrecord" or not (offsets % TAR_BLOCK).any()


def _record_numbers(data: bytes, samples: int) -> Ints | None:
    """Return the offset and the size of each record in turn; `None` if a line has another form."""
    if data.translate(None, b"0123456789") != b" \n" * samples:
        return None
    numbers = np.fromstring(data, np.int64, sep=" ")
    return numbers if len(numbers) == 2 * samples else None


def _member_numbers(data: bytes, samples: int) -> Ints | None:
    """Do the same for a tar archive: a line has extension, offset, size and name of each file."""
    tokens, separators = data.split(), data.translate(None, _VISIBLE)
    lines = separators.split(b"\n")[:-1]
    # One separator after each token, and each line has whole groups of tokens.
    wrong = [line for line in set(lines) if line.strip(b" ") or len(line) % 4 != 3]
    is_whole = data.endswith(b"\n") and len(tokens) == len(separators) and len(lines) == samples
    if wrong or not is_whole:
        return None
    numbers = [*tokens[1::4], *tokens[2::4]]
    if not b"".join(numbers).isdigit():
        return None
    parsed = np.fromstring(b" ".join(numbers), np.int64, sep=" ")
    return parsed.reshape(2, -1).T.ravel()
