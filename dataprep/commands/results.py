"""Print what a conversion wrote, and decide on its exit status."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import click

from dataprep.commands.base import print_error, print_failed, print_line, print_note
from dataprep.commands.param_types import Fraction
from dataprep.humanize import format_bytes, format_totals
from dataprep.options import NORMALIZATIONS
from manifests.errors import ExitStatus
from manifests.process.text import plural

if TYPE_CHECKING:
    from dataprep.run.convert import ConvertResult

max_rejected_option = click.option(
    "--max-rejected",
    type=Fraction(0, 1),
    default=0.01,
    show_default=True,
    metavar="FRACTION",
    help="Exit with status 1 if more than this fraction of the images is rejected: 0.02 or 2%.",
)


def print_result(
    result: ConvertResult,
    out: str,
    max_rejected: float,
    *,
    appended: bool = False,
    rejected: str | None = None,
) -> ExitStatus:
    """Print the totals of a complete dataset; return status 1 if too many images were rejected.

    Args:
        result: what was converted.
        out: the output folder.
        max_rejected: largest fraction of the images that may be rejected.
        appended: the totals are those of new shards in a dataset.
        rejected: name of the list of rejected images in the folder; `None` means that of the
            manifest.

    """
    for notice in result.notices:
        print_note(notice)
    for split in result.manifest.splits:
        totals = format_totals(split.samples, split.bytes, len(split.shards))
        print_line(f"{split.name}: {totals}{' appended' if appended else ''}")
    if result.resumed:
        were = "was" if result.resumed == 1 else "were"
        print_line(f"{plural(result.resumed, 'shard')} {were} done by an earlier run")
    if result.changes:
        for line in _change_table(result):
            print_line(line)
    if result.duplicates:
        print_line(f"copies left out: {result.duplicates:,} of {plural(result.images, 'image')}")
    if result.rejected:
        fraction = result.rejected / result.images
        images = f"{result.rejected:,} of {plural(result.images, 'image')} ({fraction:.2%})"
        name = rejected or (
            result.manifest.rejected.name if result.manifest.rejected else "rejected.jsonl"
        )
        print_line(f"rejected: {images}, see {out}/{name}")
        print_failed(result.failed)
        if fraction > max_rejected:
            print_error(
                f"the fraction of rejected images is greater than --max-rejected {max_rejected:g}."
                " Hint: replace these images, or raise --max-rejected to accept the dataset"
                " without them."
            )
            return ExitStatus.DATA_PROBLEM
    if not appended:
        print_line(f"{out} is complete")
    return ExitStatus.SUCCESS


def _change_table(result: ConvertResult) -> Iterator[str]:
    """Yield the lines of a table: images and bytes before and after, kept, resized and rejected."""
    unchanged = result.changes.get("", (0, 0, 0))
    changed = [counts for change, counts in result.changes.items() if change]
    rows = {
        "kept": unchanged,
        "resized": [sum(column) for column in zip((0, 0, 0), *changed, strict=True)],
    }
    before, after = (sum(counts[column] for counts in rows.values()) for column in (1, 2))
    yield f"{'':10}{'images':>12}{'before':>12}{'after':>12}"
    for name, (images, source_bytes, stored_bytes) in rows.items():
        yield f"{name:10}{images:>12,}{format_bytes(source_bytes):>12}{format_bytes(stored_bytes):>12}"
    yield f"{'rejected':10}{result.rejected:>12,}{format_bytes(result.bytes - before):>12}{'-':>12}"
    yield f"{'all':10}{result.images:>12,}{format_bytes(result.bytes):>12}{format_bytes(after):>12}"
    normalized = {text: _count_changed(result, change) for change, text in NORMALIZATIONS.items()}
    if any(normalized.values()):
        counts = ", ".join(f"{text} {images:,}" for text, images in normalized.items() if images)
        yield f"normalized: {plural(_count_changed(result, *NORMALIZATIONS), 'image')} ({counts})"


def _count_changed(result: ConvertResult, *changes: str) -> int:
    """Count the images that had at least one of these changes."""
    return sum(
        counts[0]
        for made, counts in result.changes.items()
        if not set(changes).isdisjoint(made.split())
    )
