"""What can be wrong with the files of a split: shards of another length, and wrong DALI indexes."""

from __future__ import annotations

import itertools

import numpy as np
from awscrt.checksums import crc32c

from loaders.dataset.split import RESTORE, OpenSplit, check_length
from manifests.dali_index import iter_index
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
    same = shard.index.checksum == checksum_text(crc32c(data))
    # Parsing finds the line, and is much slower.
    if not same or not _fits(data, shard, fmt):
        _check_lines(data, shard, fmt)
    if shard.index.checksum is not None and not same:
        raise IndexFileError(
            "the index is not the one that the manifest describes: its checksum differs"
        )


def _fits(data: bytes, shard: Shard, fmt: Format) -> bool:
    """Return whether all positions of an index are inside of its shard, and no sample is missing.

    The index is the one that the manifest describes. False for some valid ones of other tools.
    """
    if fmt == "webdataset":
        header = b"v1.2 %d\n" % shard.samples
        tokens = data.removeprefix(header).split()
        places = [*tokens[1::4], *tokens[2::4]]
        if data.count(b"\n") != shard.samples + 1 or len(tokens) % 4:
            return False
        if not b"".join(places).isdigit():
            return False
        numbers = np.fromstring(b" ".join(places), np.int64, sep=" ").reshape(2, -1)
    else:
        # What is left without the digits tells that each line is two numbers.
        if data.translate(None, b"0123456789") != b" \n" * shard.samples:
            return False
        numbers = np.fromstring(data, np.int64, sep=" ")
        if len(numbers) != 2 * shard.samples:
            return False
        numbers = numbers.reshape(-1, 2).T
    # A number that is too large for int64 is read as the largest one. No sums: they could overflow.
    begins, sizes = numbers
    return bool(((begins <= shard.file.bytes) & (sizes <= shard.file.bytes - begins)).all())


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
