"""Open the source of a conversion: read what ``--src`` names, and choose the samples to convert."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from dataprep.options import Options
from dataprep.progress import Progress
from dataprep.resume.output import check_output
from dataprep.sources.base import NamedSource, Source, SourceOptions
from dataprep.sources.recognize import read_sources


@dataclass(frozen=True)
class OpenSource:
    """What a conversion reads.

    Attributes:
        given: each source as it was given.
        samples: the samples to convert, of all sources.

    """

    given: tuple[NamedSource, ...]
    samples: Source


def open_source(
    srcs: Sequence[str],
    reading: SourceOptions,
    options: Options,
    *,
    out: str,
    renames: str | None = None,
    workers: int | None = None,
    progress: Progress | None = None,
    search_progress: Progress | None = None,
) -> OpenSource:
    """Read one or more sources as one. No image is opened, unless the options look for duplicates.

    Args:
        srcs: folders, lists, tables, archives or datasets; see `read_source`.
        reading: how to read each of them.
        options: options of the conversion.
        out: the output folder.
        renames: file of class names to rename; see `read_sources`.
        workers: see `select_samples`.
        progress: see `select_samples`.
        search_progress: see `select_samples`.

    Raises:
        CallError: a source does not exist or is given twice, an option does not apply to it, or it
            contains `out`.
        SourceError: the layout is not known, or a line, a label or an image is not valid.

    """
    given = read_sources(srcs, reading, renames)
    whole = given[0].source
    if len(given) > 1:
        from dataprep.sources.merge import merge_sources

        whole = merge_sources(given)
    samples = select_samples(
        whole, options, workers=workers, progress=progress, search_progress=search_progress
    )
    if len(given) > 1:  # the folder above all sources is not one of them
        for each in given:
            check_output(each.source, out)
    return OpenSource(tuple(given), samples)


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
    from dataprep.plan.filter import filter_source
    from dataprep.sources.prepared import without_hashes

    if options.where is not None:
        source = filter_source(source, options.where)
    if options.finds_duplicates:
        from dataprep.duplicates.resolve import resolve_duplicates

        source = resolve_duplicates(
            source, options, workers=workers, progress=progress, search_progress=search_progress
        )
    return source if options.hash else without_hashes(source)
