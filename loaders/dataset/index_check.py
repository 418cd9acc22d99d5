"""Find the damaged index file of a split. DALI rejects it without naming it."""

from __future__ import annotations

from awscrt.checksums import crc32c

from loaders.dataset.split import RESTORE, OpenSplit
from manifests.dali_index import parse_index
from manifests.errors import IndexFileError
from manifests.faults import raise_machine_fault
from manifests.files import INDEX, read_file
from manifests.schema import Format, Shard
from manifests.store import checksum_text


def find_index_error(split: OpenSplit) -> IndexFileError | None:
    """Return the first error in the split's indexes, with file and line. `None` if every index is intact."""
    for shard in split.shards:
        path = split.path(shard.index)
        try:
            _check_index(read_file(path, INDEX), shard, split.manifest.format)
        except OSError as error:
            raise_machine_fault(error)
            return IndexFileError(f"the index cannot be read ({error.strerror})", file=path, hint=RESTORE)
        except IndexFileError as error:
            return IndexFileError(error.message, file=path, line=error.line, hint=RESTORE)
    return None


def _check_index(data: bytes, shard: Shard, fmt: Format) -> None:
    entries = parse_index(fmt, data)
    for entry in entries:
        if entry.end > shard.file.bytes:
            message = f"the line points past the end of its shard, which has {shard.file.bytes} bytes"
            raise IndexFileError(message, line=entry.line)
    if len(entries) != shard.samples:
        raise IndexFileError(f"the index has {len(entries)} samples, but the manifest states {shard.samples}")
    if shard.index.checksum not in (None, checksum_text(crc32c(data))):
        raise IndexFileError("the index is not the one that the manifest describes: its checksum differs")
