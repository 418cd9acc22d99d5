"""Compare the records of one shard with the rows of its sample table.

If the header of a record is damaged, the position of the next record is read from the DALI index,
so one damaged record does not hide another.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence

from dataprep import storage
from dataprep.formats import Record, ScanOptions, View
from dataprep.progress import REPORTED_IMAGES, report_images
from dataprep.verify.check import ShardCheck
from dataprep.verify.problems import Problem, ProblemList
from dataprep.verify.record import check_framing, check_record
from manifests.dali_index import record_starts
from manifests.errors import DatasetError, ShardError
from manifests.files import INDEX, read_file
from manifests.schema import Sample


def check_records(
    check: ShardCheck, view: View, size: int, rows: Sequence[Sample], problems: ProblemList
) -> list[str]:
    """Compare every record with its table row, and add what is wrong to `problems`.

    Args:
        check: the shard.
        view: the bytes of the shard.
        size: its length in bytes.
        rows: the rows of its table. Empty if the table is damaged.
        problems: receives the problems.

    Returns:
        The index lines of the records that have a table row.

    """
    index_lines: list[str] = []
    number = 0
    damaged: set[int] = set()
    row_of_offset = {row.offset: row_number for row_number, row in enumerate(rows)}

    def report(*new_problems: Problem) -> None:
        problems.add(new_problems)
        damaged.update(problem.record for problem in new_problems if problem.record is not None)

    for record in scan_past_damage(check, view, size):
        if isinstance(record, Problem):
            report(record)
            continue
        row_number = row_of_offset.pop(record.offset, None)
        if row_number is not None:
            report(*check_record(check, view, record, rows[row_number], row_number))
            index_lines.append(record.index_line)
        elif rows and check.manifest.rejected is None:
            report(
                check.shard_problem(
                    "the record has no row in the table", record=number, byte=record.start
                )
            )
        reported_number = number if row_number is None else row_number
        if reported_number not in damaged:
            report(*check_framing(check, view, record, reported_number))
        number += 1
        if number % REPORTED_IMAGES == 0:
            report_images(check.shard.name, REPORTED_IMAGES)
    for offset, row_number in row_of_offset.items():
        if row_number not in damaged:
            message = "the record is missing, but the table has a row for it"
            report(check.shard_problem(message, record=row_number, byte=min(offset, size)))
    return index_lines


def scan_past_damage(check: ShardCheck, view: View, size: int) -> Iterator[Record | Problem]:
    """Scan a shard. After a damaged record, yield a problem and continue at the next record in the index."""
    options = ScanOptions(check.manifest.components, check.label_key, texts=False)
    starts = _starts_in_index(check)
    start = 0
    while start < size:
        try:
            yield from check.format.scan(view, size, check.shard.name, options, start)
        except ShardError as error:
            byte = start if error.byte is None else error.byte
            next_index = bisect_right(starts, byte)
            number = max(next_index - 1, 0) if starts else error.record
            yield check.shard_problem(error.message, record=number, byte=byte)
            if next_index >= len(starts):
                return
            start = starts[next_index]
        else:
            return


def _starts_in_index(check: ShardCheck) -> Sequence[int]:
    try:
        return record_starts(check.manifest.format, read_index(check.path(check.shard.index.name)))
    except DatasetError:
        return []


def read_index(path: str) -> bytes:
    """Read a DALI index.

    Raises:
        IndexFileError: it is not a regular file, or is too long.
        StorageError: it cannot be read.

    """
    with storage.translate_errors(path, "the file cannot be read"):
        return read_file(path, INDEX)
