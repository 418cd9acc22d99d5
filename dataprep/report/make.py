"""Make the report of a dataset: read the tables, decode images, draw conclusions, and write the two files."""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dataprep import engines, storage
from dataprep.options import ReportOptions
from dataprep.progress import Progress
from dataprep.report import page as choose
from dataprep.report import statistics
from dataprep.report import statistics as odd
from dataprep.report.columns import Columns, read_columns, read_names
from dataprep.report.copies import find_copies, find_near
from dataprep.report.facts import MADE_BY, Copies, Histogram, OddImage, Report
from dataprep.report.findings import find
from dataprep.report.page import MARK, Material, make_page
from dataprep.report.pictures import (
    Pictures,
    RejectedList,
    RejectedTask,
    decode_pictures,
    join_pictures,
    picture_tasks,
    read_rejected,
    show_rejected,
)
from dataprep.report.statistics import MemoryEstimate, make_cost
from dataprep.verify.check import Problem
from manifests.errors import CallError
from manifests.process.options import check_output_file
from manifests.process.text import printable
from manifests.schema import Manifest
from manifests.store import read_manifest

_log = logging.getLogger(__name__)

#: Splits of a dataset.
MAX_SPLITS = 100

#: Bytes of one picture on the page, and of everything else, to choose which classes get pictures.
_PICTURE_BYTES, _OTHER_BYTES = 4_500, 1_000_000


@dataclass(frozen=True, slots=True)
class MadeReport:
    """A finished report.

    Attributes:
        report: its facts.
        html: the page.
        data: the content of ``report.json``.

    """

    report: Report
    html: str
    data: Mapping[str, Any]

    @property
    def json(self) -> str:
        """The text of ``report.json``."""
        return json.dumps(self.data, indent=1, ensure_ascii=False, allow_nan=False) + "\n"


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
        gathered = _gather(folder, manifest, options, progress)
        grouped = replace(manifest, classes=gathered.columns.classes)
        report = _conclude(gathered, grouped, options, memory.result())
    report = replace(report, dataset=os.path.basename(os.path.abspath(folder)))
    names = read_names(folder, gathered.columns, report.named_rows() | gathered.keep)
    material = Material(
        columns=gathered.columns,
        names=names,
        thumbnails=gathered.pictures.thumbnails,
        sheets=gathered.sheets,
        rejected=gathered.rejected.shown,
        has_source=options.source is not None,
    )
    return MadeReport(report, make_page(report, material, options.max_size), report.as_json(names))


@dataclass(frozen=True, slots=True)
class _Gathered:
    """What was read from the files of a dataset.

    Attributes:
        columns: the samples.
        problems: files that are missing or damaged.
        copies: groups of equal images.
        copied: rows of equal images, by what is wrong with them; see `find_copies`.
        rejected: images that were not written.
        sizes: images of extreme size.
        sampled: rows of the random sample.
        sheets: rows of each contact sheet.
        keep: rows whose pictures are shown in any case.
        pictures: the decoded images.

    """

    columns: Columns
    problems: tuple[Problem, ...]
    copies: Copies
    copied: Mapping[str, NDArray[np.int64]]
    rejected: RejectedList
    sizes: Mapping[str, tuple[OddImage, ...]]
    sampled: NDArray[np.int64]
    sheets: Mapping[int, NDArray[np.int64]]
    keep: frozenset[int]
    pictures: Pictures


def _gather(
    folder: str, manifest: Manifest, options: ReportOptions, progress: Progress | None
) -> _Gathered:
    """Read the tables, choose images, and decode them."""
    columns, problems = read_columns(folder, manifest)
    copies, copied = find_copies(columns)
    copies = replace(copies, near=find_near(folder, manifest, columns, options.workers))
    rejected = read_rejected(folder, manifest)
    sizes = odd.odd_sizes(columns)
    ranks = choose.random_ranks(len(columns), options.seed)
    sampled = choose.sample_rows(ranks, options.sample)
    sheets = _choose_sheets(columns, ranks, options.max_size)
    keep = odd.odd_rows(sizes).union(
        *(group.rows for group in copies.shown), *(rows.tolist() for rows in sheets.values())
    )
    rows = np.union1d(sampled, np.fromiter(keep, np.int64, len(keep)))
    tasks = list(picture_tasks(folder, columns, rows, keep, manifest.pixels))
    _log.info(
        "%s: the tables of %d samples are read; %d images are decoded",
        folder,
        len(columns),
        len(rows),
    )
    if progress:
        progress.start(len(rows), len(tasks))
    with closing(engines.LocalEngine(options.workers)) as engine:
        parts = []
        for number, part in enumerate(engine.run(decode_pictures, tasks, len(tasks))):
            parts.append(part)
            if progress:
                progress.advance(str(number), len(part.rows))
        shown = next(engine.run(show_rejected, [RejectedTask(rejected.shown, options.source)], 1))
    return _Gathered(
        columns=columns,
        problems=(*problems, *rejected.problems),
        copies=copies,
        copied=copied,
        rejected=rejected._replace(shown=tuple(shown)),
        sizes=sizes,
        sampled=sampled,
        sheets=sheets,
        keep=keep,
        pictures=join_pictures(parts),
    )


def _conclude(
    gathered: _Gathered, manifest: Manifest, options: ReportOptions, memory: Mapping[str, Any] | str
) -> Report:
    """Compute everything that the report states."""
    columns = gathered.columns
    classes = statistics.class_facts(columns, manifest.classes, _flagged(gathered, manifest))
    counts = statistics.class_counts(columns, statistics.class_labels(columns, manifest.classes))
    named = len(manifest.classes)
    report = Report(
        dataset="",
        format=manifest.format,
        store=manifest.store,
        pixels=manifest.pixels,
        samples=len(columns),
        bytes=sum(split.bytes for split in manifest.splits),
        seed=options.seed,
        problems=tuple(str(problem) for problem in gathered.problems),
        findings=(),
        splits=statistics.split_facts(columns, manifest),
        classes=classes,
        unused=columns.unused,
        balance=tuple(
            statistics.balance(name, counts[:, at], named) for at, name in enumerate(columns.splits)
        ),
        histograms=statistics.histograms(columns) | _brightness(gathered),
        size_grid=statistics.size_grid(columns),
        changes=statistics.count_names(columns.change, statistics.change_names),
        source_pixels=(
            None
            if columns.original_pixels is None
            else int(columns.original_pixels.astype(np.float64).sum())
        ),
        original_formats=statistics.count_names(columns.original_format),
        rejected=gathered.rejected.facts,
        copies=gathered.copies,
        looks=odd.describe_looks(gathered.pictures, gathered.sampled, gathered.sizes),
        cost=make_cost(columns, manifest, options.batch_size, memory),
    )
    return replace(report, findings=find(report))


def _choose_sheets(
    columns: Columns, ranks: NDArray[np.uint64], max_size: int
) -> dict[int, NDArray[np.int64]]:
    """Choose the classes that get a contact sheet, and the images on it."""
    labels, counts = np.unique(columns.label, return_counts=True)
    room = max(max_size // 2, max_size - _OTHER_BYTES) // _PICTURE_BYTES
    classes = labels[choose.shown_classes(counts, max(1, room))].astype(np.int64)
    most = min(choose.PER_CLASS, max(1, 2 * room // max(1, len(classes))))
    return choose.rows_per_class(columns.label, ranks, classes, most)


def _flagged(gathered: _Gathered, manifest: Manifest) -> dict[str, NDArray[np.int64]]:
    """Return the labels of the images with problems, by problem.

    An image counts once, for its worst problem.
    """
    columns = gathered.columns
    kinds = {
        "cannot be decoded": np.fromiter(gathered.pictures.failed, np.int64),
        "with several labels": gathered.copied["label conflict"],
        "also in an earlier split": gathered.copied["leak"],
        "copied": gathered.copied["copy"],
        "of one color": odd.flat_rows(gathered.pictures),
    }
    seen = np.zeros(len(columns), np.bool_)
    labels: dict[str, NDArray[np.int64]] = {}
    for what, rows in kinds.items():
        fresh = rows[~seen[rows]]
        seen[fresh] = True
        labels[what] = columns.label[fresh].astype(np.int64)
    numbers = {name: label for label, name in enumerate(manifest.classes)}
    counted = [
        (numbers[name], count)
        for name, count in sorted(gathered.rejected.names.items())
        if name in numbers
    ]
    labels["rejected"] = np.repeat(*np.array(counted, np.int64).reshape(-1, 2).T)
    return labels


def _brightness(gathered: _Gathered) -> dict[str, Histogram]:
    columns, pictures = gathered.columns, gathered.pictures
    rows = odd.readable(pictures) & np.isin(pictures.rows, gathered.sampled)
    if not rows.any():
        return {}
    return {
        "brightness": statistics.histogram(
            "Mean brightness",
            "of 255",
            statistics.LEVEL_EDGES,
            pictures.brightness[rows],
            split=columns.split[pictures.rows[rows]],
            splits=columns.splits,
        )
    }


# --- the two files ----------------------------------------------------------------------------------


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
    if os.path.splitext(out)[1].lower() not in (".html", ".htm"):
        raise CallError(
            f"--out {printable(out)} does not end in .html",
            hint="name the HTML file, such as report.html",
        )
    for path in (out, json_path(out)):
        check_output_file(path, "report", _MARKS, overwrite=overwrite)
    storage.check_partials([os.path.dirname(os.path.abspath(out))])


def write_report(made: MadeReport, out: str) -> None:
    """Write both files: each appears complete under its name, or not at all.

    Raises:
        StorageError: they cannot be written.

    """
    out = os.path.abspath(out)
    paths = [json_path(out), out]
    with storage.partials([os.path.dirname(out)], is_locked=False):
        for path, text in zip(paths, (made.json, made.html), strict=True):
            storage.write_partial(path, text.encode())
        storage.publish(paths)
