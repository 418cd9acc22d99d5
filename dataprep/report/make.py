"""Make the report of a dataset: read the tables, decode images, draw conclusions, and write the two files."""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from functools import partial
from itertools import chain
from operator import attrgetter
from typing import NamedTuple

import numpy as np

from dataprep import engines, storage
from dataprep.options import ReportOptions
from dataprep.progress import Progress
from dataprep.report import page as choose
from dataprep.report import statistics
from dataprep.report.columns import Columns, read_columns, read_names
from dataprep.report.copies import find_copies, find_near
from dataprep.report.facts import MADE_BY, Report, Rows, ranked
from dataprep.report.findings import find
from dataprep.report.page import MARK, Material, Ranks, make_page
from dataprep.report.pictures import (
    Pictures,
    PictureTask,
    decode_pictures,
    join_pictures,
    picture_tasks,
    read_rejected,
    show_rejected,
)
from dataprep.report.statistics import MemoryEstimate
from dataprep.summary.bands import normalize_line, read_bands
from dataprep.summary.provenance import count_provenance
from manifests.errors import CallError
from manifests.pixels import RGB8
from manifests.process.options import check_output_file
from manifests.process.text import printable
from manifests.store import read_manifest

_log = logging.getLogger(__name__)

#: Splits of a dataset.
MAX_SPLITS = 100

#: Bytes of one picture on the page, and of everything else, to choose which classes get pictures.
_PICTURE_BYTES, _OTHER_BYTES = 4_500, 1_000_000


class MadeReport(NamedTuple):
    """A finished report: its facts, and the bytes of the page and of ``report.json``."""

    report: Report
    html: bytes
    json: bytes


def make_report(
    folder: str, options: ReportOptions, progress: Progress | None = None
) -> MadeReport:
    """Make the report of a dataset. The same dataset and options give the same bytes.

    Args:
        folder: the dataset.
        options: how to make it.
        progress: receives the parts of shards whose images are decoded.

    Raises:
        CallError: the folder does not exist, has too many splits, or the page does not fit into
            `max_size`.
        ManifestError: the manifest is missing or damaged.
        StoppedError: memory ran out, or a worker process died.

    """
    manifest = read_manifest(folder)
    if len(manifest.splits) > MAX_SPLITS:
        raise CallError(
            f"{folder} has {len(manifest.splits):,} splits, but a report shows at most"
            f" {MAX_SPLITS}",
            hint="join splits with `dataprep convert`",
        )
    with closing(MemoryEstimate(folder, options.batch_size)) as memory:
        # Everything that the tables say, of all images.
        columns, problems = read_columns(folder, manifest)
        copies, copied = find_copies(columns)
        copies = replace(copies, near=find_near(folder, manifest, columns, options.workers))
        rejected = read_rejected(folder, manifest)
        odd = statistics.odd_sizes(columns)

        # A random sample of the images is decoded, and the images that the page shows.
        ranks = choose.random_ranks(len(columns), options.seed)
        sampled = choose.sample_rows(ranks, options.sample)
        sheets = _choose_sheets(columns, ranks, options.max_size)
        listed = list(map(attrgetter("row"), chain(*odd.values())))
        listed += chain(*map(attrgetter("rows"), copies.shown))
        keep = np.unique(np.concatenate([np.array(listed, np.int64), *sheets.values()]))
        rows = np.union1d(sampled, keep)
        tasks = list(picture_tasks(folder, columns, rows, keep, manifest))
        _log.info(
            "%s: the tables of %d samples are read; %d images are decoded",
            folder,
            len(columns),
            len(rows),
        )
        with closing(engines.LocalEngine(options.workers)) as engine:
            pictures = _decode(engine, tasks, len(rows), progress)
            show = partial(show_rejected, options.source)
            (shown,) = engine.run(show, [rejected.shown], 1)

        # What follows from the tables and the pixels.
        splits = statistics.split_facts(columns, manifest)
        # Damaged tables are named above.
        bands = () if problems else read_bands(folder, manifest)
        flagged = _flagged(columns, pictures, copied, rejected.names)
        classes = statistics.class_facts(columns, flagged)
        report = Report(
            dataset=os.path.basename(os.path.abspath(folder)),
            format=manifest.format,
            store=manifest.store,
            pixels=manifest.pixels,
            samples=len(columns),
            bytes=sum(map(attrgetter("bytes"), splits)),
            seed=options.seed,
            problems=tuple(map(str, [*problems, *rejected.problems])),
            findings=(),
            splits=splits,
            classes=classes,
            unused=columns.unused,
            balance=statistics.balances(columns, classes),
            histograms={
                **statistics.histograms(columns),
                **statistics.brightness_histogram(columns, pictures, sampled),
            },
            size_grid=statistics.size_grid(columns),
            shapes=statistics.shape_facts(columns),
            changes=ranked(statistics.count_changes(columns)),
            source_pixels=statistics.source_pixels(columns),
            original_formats=ranked(statistics.count_texts(columns, "original_format")),
            rejected=rejected.facts,
            copies=copies,
            looks=statistics.describe_looks(pictures, sampled, odd),
            cost=statistics.make_cost(
                columns,
                splits,
                memory.result(),
                batch_size=options.batch_size,
                encoded=manifest.store == "encoded",
            ),
            bands=bands,
            normalize=normalize_line(bands, manifest),
            provenance=count_provenance(folder, manifest, lambda *_: None),
            shown_bands=() if manifest.kind == RGB8 else manifest.kind.shown,
            arrays=manifest.arrays,
        )

    # The findings are conclusions from all other facts. Names are read only of what is shown.
    report = replace(report, findings=find(report))
    names = read_names(folder, columns, report.named_rows().union(keep.tolist()))
    material = Material(
        columns=columns,
        names=names,
        thumbnails=pictures.thumbnails,
        sheets=sheets,
        rejected=shown,
        has_source=options.source is not None,
    )
    return MadeReport(
        report, make_page(report, material, options.max_size), report.as_json(names).encode()
    )


def _choose_sheets(columns: Columns, ranks: Ranks, max_size: int) -> dict[int, Rows]:
    """Choose the classes that get a contact sheet, and the images on it."""
    # A part of the page is for pictures; few classes get more pictures each.
    labels, counts = np.unique(columns.label, return_counts=True)
    room = max(max_size // 2, max_size - _OTHER_BYTES) // _PICTURE_BYTES
    classes = labels[choose.shown_classes(counts, max(1, room))]
    most = min(choose.PER_CLASS, max(1, 2 * room // max(1, len(classes))))
    return choose.rows_per_class(columns.label, ranks, classes, most)


def _decode(
    engine: engines.LocalEngine,
    tasks: Sequence[PictureTask],
    images: int,
    progress: Progress | None,
) -> Pictures:
    """Decode the images of all tasks; `images` is their number."""
    if progress:
        progress.start(images, len(tasks))
    parts = []
    for number, part in enumerate(engine.run(decode_pictures, tasks, len(tasks))):
        parts.append(part)
        if progress:
            progress.advance(str(number), len(part.rows))
    return join_pictures(parts)


def _flagged(
    columns: Columns, pictures: Pictures, copied: Mapping[str, Rows], rejected: Mapping[str, int]
) -> dict[str, Rows]:
    """Return the labels of the images with problems, by problem.

    An image counts once, for its worst problem. `rejected` is the number of rejected images by the
    name of their folder.
    """
    kinds = {
        "cannot be decoded": pictures.rows[~pictures.readable],
        "with several labels": copied["label conflict"],
        "also in an earlier split": copied["leak"],
        "copied": copied["copy"],
        "of one color": pictures.rows[pictures.readable & (pictures.luma[1] < statistics.FLAT)],
    }
    # The worst problems are first.
    seen = np.zeros(len(columns), np.bool_)
    labels = {}
    for what, rows in kinds.items():
        fresh = rows[~seen[rows]]
        seen[fresh] = True
        labels[what] = columns.label[fresh].astype(np.int64)
    counts = np.array([rejected.get(name, 0) for name in columns.classes], np.int64)
    labels["rejected"] = np.repeat(np.arange(len(counts)), counts)
    return labels


# --- the two files --------------------------------------------------------------------------------


#: What a page, and its JSON file, have at their beginning.
_MARKS = (MARK.encode(), f'"made_by": "{MADE_BY}"'.encode())


def json_path(out: str) -> str:
    """Return the path of ``report.json`` beside a page: the same name with another extension."""
    return os.path.splitext(out)[0] + ".json"


def check_out(out: str, *, overwrite: bool) -> None:
    """Check that both files can be written, before the work begins.

    Raises:
        CallError: the name does not end in .html, the folder does not exist or cannot be written,
            or a file of this name is not a report.

    """
    if not out.lower().endswith((".html", ".htm")):
        raise CallError(
            f"--out {printable(out)} does not end in .html",
            hint="name the HTML file, such as report.html",
        )
    for path in (out, json_path(out)):
        check_output_file(path, "report", _MARKS, overwrite=overwrite)
    storage.check_partials(os.path.dirname(os.path.abspath(out)))


def write_report(made: MadeReport, out: str) -> None:
    """Write both files: each appears complete under its name, or not at all.

    Raises:
        StorageError: they cannot be written.

    """
    out = os.path.abspath(out)
    # The page is last: whoever sees it finds its facts.
    paths = [json_path(out), out]
    with storage.partials(os.path.dirname(out), is_alone=False):
        for path, data in zip(paths, (made.json, made.html), strict=True):
            storage.write_partial(path, data)
        storage.publish(paths)
