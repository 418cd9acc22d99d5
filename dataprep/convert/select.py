"""Apply the options that choose samples to a source, before a plan is made of it."""

from __future__ import annotations

from dataprep.options import Options
from dataprep.progress import Progress
from dataprep.sources import Source


def select_samples(
    source: Source,
    options: Options,
    *,
    workers: int | None = None,
    progress: Progress | None = None,
    search_progress: Progress | None = None,
) -> Source:
    """Return the samples of a source that a conversion with these options plans.

    Args:
        source: all samples.
        options: `where`, `duplicates`, `split_by`, `distance` and `hash` apply.
        workers: number of processes that read images to find duplicates; `None` means one per CPU.
        progress: receives the images that are read.
        search_progress: receives the progress of the search for copies, in images.

    Raises:
        CallError: the filter does not fit the source, or there are too many pairs of copies.
        SourceVanishedError: an image is gone, or its size changed after the scan.

    """
    from dataprep.plan.where import filter_source
    from dataprep.sources.hash_column import without_hashes

    if options.where is not None:
        source = filter_source(source, options.where)
    if options.finds_duplicates:
        from dataprep.duplicates.resolve import resolve_duplicates

        source = resolve_duplicates(
            source, options, workers=workers, progress=progress, search_progress=search_progress
        )
    return source if options.hash else without_hashes(source)
