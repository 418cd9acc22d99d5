"""Make the HTML file from the facts and the thumbnails, and fit it into a number of bytes."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, cached_property, partial
from typing import NamedTuple

import jinja2
import numpy as np
from markupsafe import Markup
from numpy.typing import NDArray

from dataprep.images.base import REASONS
from dataprep.report import statistics as cost
from dataprep.report import svg
from dataprep.report.columns import Columns, SampleName
from dataprep.report.facts import EpochCost, Histogram, Report, SplitFacts
from dataprep.report.findings import ClassLists
from dataprep.report.pictures import QUALITIES, SIDE, RejectedImage, Sprite, Tile, make_sprite
from dataprep.report.svg import show_name
from manifests.errors import CallError
from manifests.process.options import make_page as make_html
from manifests.process.options import mark_code, page_mark
from manifests.process.text import format_bytes, format_duration, plural

#: Pictures of a class on its contact sheet, if they fit.
PER_CLASS = 12


def random_ranks(samples: int, seed: int) -> NDArray[np.uint64]:
    """Return a random number for each sample.

    NumPy guarantees the raw output of PCG64, so it never changes.
    """
    return np.asarray(np.random.PCG64(seed).random_raw(samples), np.uint64)


def sample_rows(ranks: NDArray[np.uint64], limit: int) -> NDArray[np.int64]:
    """Return the rows of a random sample without replacement, ascending.

    All rows if there are at most `limit`.
    """
    if len(ranks) <= limit:
        return np.arange(len(ranks))
    return np.sort(np.argpartition(ranks, limit)[:limit])


def rows_per_class(
    labels: NDArray[np.integer], ranks: NDArray[np.uint64], classes: NDArray[np.int64], most: int
) -> dict[int, NDArray[np.int64]]:
    """Choose up to `most` random rows of each of some classes.

    Fewer rows are the beginning of more.

    Args:
        labels: class of each sample.
        ranks: random number of each sample.
        classes: labels of the classes.
        most: rows per class.

    """
    chosen = np.flatnonzero(np.isin(labels, classes))
    order = chosen[np.lexsort((ranks[chosen], labels[chosen]))]
    bounds = np.searchsorted(labels[order], np.stack([classes, classes + 1]))
    return {
        int(label): order[low : min(high, low + most)]
        for label, low, high in zip(classes, *bounds, strict=True)
    }


def shown_classes(counts: NDArray[np.int64], most: int) -> NDArray[np.int64]:
    """Return the classes that get a contact sheet, ascending: all with samples, or the smallest and the largest.

    Args:
        counts: samples of each class.
        most: number of sheets.

    """
    present = np.flatnonzero(counts)
    if len(present) <= most:
        return present
    ordered = present[np.argsort(counts[present], kind="stable")]
    rarest = (most + 1) // 2
    return np.sort(np.concatenate([ordered[:rarest], ordered[len(ordered) - (most - rarest) :]]))


# --- the data of the template -----------------------------------------------------------------------


#: With at most this many contact sheets, all are open.
_OPEN_SHEETS = 8

#: Images that cannot be decoded that are listed.
_FAILED = 50


class SpriteTile(NamedTuple):
    """Where the picture of a sample is."""

    sprite: str
    tile: Tile


@dataclass(frozen=True)
class Material:
    """Everything that the page shows besides the facts.

    Attributes:
        columns: the samples.
        names: key and source of the rows that are shown.
        thumbnails: JPEGs by row.
        sheets: rows of the contact sheet of each class.
        rejected: images that were not written.
        has_source: whether the folder of the source is known.

    """

    columns: Columns
    names: Mapping[int, SampleName]
    thumbnails: Mapping[int, bytes]
    sheets: Mapping[int, NDArray[np.int64]]
    rejected: Sequence[RejectedImage]
    has_source: bool


@dataclass(frozen=True)
class Page:
    """The variables of ``report.html.j2``, besides the facts."""

    report: Report
    material: Material
    per_class: int
    max_size: int
    quality: int
    _places: dict[int, SpriteTile] = field(default_factory=dict)
    _made: dict[str, Sprite | None] = field(default_factory=dict)

    #: Sides of a picture in pixels.
    side = SIDE

    # --- sections -------------------------------------------------------------------------------

    @cached_property
    def sections(self) -> list[tuple[str, str]]:
        """Anchors and titles of the sections."""
        damage = [("damage", "Damaged files")] if self.report.problems else []
        return [
            ("findings", "What to look at"),
            *damage,
            ("splits", "Splits"),
            ("classes", "Classes"),
            ("sizes", "Sizes"),
            ("formats", "Formats and changes"),
            ("rejected", "Rejected images"),
            ("copies", "Duplicates and leaks"),
            ("odd", "Images that stand out"),
            ("cost", "What training costs"),
            ("sheets", "Contact sheets"),
        ]

    @cached_property
    def anchors(self) -> frozenset[str]:
        """Anchors that exist on the page."""
        copies = self.report.copies
        optional = {
            "leaks": copies.leaks,
            "conflicts": copies.conflicts,
            "undecodable": self.report.looks.failed,
        }
        names = {name for name, shown in optional.items() if shown} | {
            name for name, _ in self.sections
        }
        return frozenset(names | {"near"} | {f"class-{label}" for label in self.sheets})

    @property
    def median(self) -> str:
        """Median width and height of the largest split."""
        split = max(self.report.splits, key=lambda each: each.samples, default=None)
        return (
            f"{split.width['median']:,} \N{MULTIPLICATION SIGN} {split.height['median']:,}"
            if split and split.samples
            else "-"
        )

    @property
    def shrunk(self) -> str:
        """How many of the source's pixels are stored."""
        stored = sum(split.pixels for split in self.report.splits)
        return (
            f"The dataset stores {stored / max(1, self.report.source_pixels or 0):.1%} of the"
            " pixels of its source."
        )

    def split_share(self, split: SplitFacts) -> str:
        """Return the percentage of the images that a split has."""
        return f"{100 * split.samples / max(1, self.report.samples):.1f}"

    # --- charts ---------------------------------------------------------------------------------

    @property
    def class_chart(self) -> Markup:
        """The sizes of all classes."""
        return svg.class_chart(self.report.classes, [split.name for split in self.report.splits])

    @property
    def size_chart(self) -> Markup:
        """Width and height."""
        return svg.size_chart(self.report.size_grid)

    def histogram_chart(self, name: str) -> Markup:
        """Draw one histogram."""
        return svg.histogram_chart(self.report.histograms[name])

    def rows(self, histogram: Histogram) -> Iterator[tuple[str, tuple[int, ...]]]:
        """Yield the bins of a histogram that have images, with their counts, for its table."""
        for number, counts in enumerate(zip(*histogram.counts.values(), strict=True)):
            if any(counts):
                yield svg.bin_name(histogram, number), counts

    # --- pictures -------------------------------------------------------------------------------

    @cached_property
    def sheets(self) -> dict[int, list[int]]:
        """Rows of each contact sheet."""
        if not self.per_class:
            return {}
        found = {
            label: rows[: self.per_class].tolist() for label, rows in self.material.sheets.items()
        }
        return {label: rows for label, rows in found.items() if rows}

    @property
    def open_sheets(self) -> bool:
        """Whether the contact sheets are open at first."""
        return len(self.sheets) <= _OPEN_SHEETS

    def sprite(self, name: str) -> Sprite | None:
        """Make the sprite of a part of the page. The tiles that follow refer to it."""
        if name == "rejected":
            jpegs = {
                number: image.thumbnail
                for number, image in enumerate(self.rejected)
                if image.thumbnail
            }
            self._made[name] = make_sprite(jpegs, list(jpegs), self.quality)
            return self._made[name]
        made = make_sprite(self.material.thumbnails, self._rows_of(name), self.quality)
        self._made[name] = made
        if made:
            self._places.update({row: SpriteTile(name, tile) for row, tile in made.tiles.items()})
        return made

    def _rows_of(self, name: str) -> list[int]:
        if name == "copies":
            return [row for group in self.report.copies.shown for row in group.rows]
        if name == "odd":
            return [image.row for images in self.report.looks.odd.values() for image in images]
        return self.sheets[int(name.removeprefix("class-"))]

    def place(self, row: int) -> SpriteTile | None:
        """Return where the picture of a sample is: in the last sprite that has it."""
        return self._places.get(row)

    def rejected_place(self, number: int) -> SpriteTile | None:
        """Return where the picture of a rejected image is."""
        made = self._made.get("rejected")
        return SpriteTile("rejected", made.tiles[number]) if made and number in made.tiles else None

    @property
    def rejected(self) -> Sequence[RejectedImage]:
        """The rejected images that are shown."""
        return self.material.rejected

    @property
    def has_source(self) -> bool:
        """Whether rejected images were looked for."""
        return self.material.has_source

    def reason(self, reason: str) -> str:
        """Explain the reason of a rejection."""
        return REASONS.get(reason, "")

    @property
    def failed(self) -> list[tuple[int, str]]:
        """The first images that cannot be decoded."""
        return list(self.report.looks.failed.items())[:_FAILED]

    # --- texts ----------------------------------------------------------------------------------

    def key(self, row: int) -> str:
        """Return the key of a sample."""
        return show_name(self.material.names[row].key)

    def where(self, row: int) -> str:
        """Return the path of a sample in the source, or its key if the dataset has no paths."""
        name = self.material.names[row]
        return show_name(name.source or name.key)

    def class_name(self, row: int) -> str:
        """Return the class of a sample."""
        return self._names[int(self.material.columns.label[row])]

    @cached_property
    def _names(self) -> dict[int, str]:
        return {each.label: each.name for each in self.report.classes}

    @property
    def classes(self) -> int:
        """Number of classes."""
        return sum(each.total > 0 for each in self.report.classes) + self.report.unused

    def split_name(self, row: int) -> str:
        """Return the split of a sample."""
        return self.material.columns.splits[int(self.material.columns.split[row])]

    def describe(self, row: int) -> str:
        """Return split, size and bytes of a sample."""
        columns = self.material.columns
        size = f"{columns.width[row]}\N{MULTIPLICATION SIGN}{columns.height[row]}"
        return (
            f"{show_name(self.split_name(row), 40)} · {size} ·"
            f" {format_bytes(int(columns.size[row]))}"
        )

    def alt(self, row: int) -> str:
        """Return the alternative text of a picture."""
        return f"{show_name(self.class_name(row), 60)}, image {self.key(row)}"

    @property
    def all_decoded(self) -> bool:
        """Whether every image was decoded."""
        return self.report.looks.sampled == self.report.samples

    @property
    def odd_note(self) -> str:
        """Which images were looked at."""
        if self.all_decoded:
            return f"Of all {self.report.samples:,} images."
        return (
            f"Largest, smallest and oddest of all {self.report.samples:,} images; darkest,"
            f" brightest and flattest of the {self.report.looks.decoded:,} images that were"
            " decoded."
        )

    @property
    def method_note(self) -> str:
        """Which images were decoded."""
        if self.all_decoded:
            return "Every image was decoded."
        return (
            f"{self.report.looks.sampled:,} of the images, drawn at random with seed"
            f" {self.report.seed}, were decoded for what concerns pixels; further ones only for"
            " their pictures. --sample changes the number."
        )

    @property
    def sheets_note(self) -> str:
        """What the contact sheets show, and what was left out."""
        with_samples = sum(each.total > 0 for each in self.report.classes)
        if not self.sheets:
            return (
                "There is no room for pictures of the classes."
                if with_samples
                else "There are no images."
            )
        most = max(map(len, self.sheets.values()))
        text = f"Up to {plural(most, 'random image')} of each class."
        if len(self.sheets) < with_samples:
            text = (
                f"Up to {plural(most, 'random image')} of the {len(self.sheets):,} rarest and"
                " commonest classes."
            )
        return text

    @property
    def size_note(self) -> str:
        """Whether the limit on the size cut something."""
        wanted = min(PER_CLASS, max((each.total for each in self.report.classes), default=0))
        shown, classes = len(self.sheets), sum(each.total > 0 for each in self.report.classes)
        limit = f"The limit of {format_bytes(self.max_size)} (--max-size)"
        if self.per_class < wanted or shown < classes:
            which = (
                "each class"
                if shown == classes
                else f"each of {shown:,} of {plural(classes, 'class')}"
            )
            sheets = f"{plural(self.per_class, 'picture')} for {which}"
            return f"{limit} cut the contact sheets to {sheets}."
        return (
            f"{limit}"
            f" {'cut nothing' if self.quality == QUALITIES[0] else 'lowered the quality of the pictures'}."
        )

    def rate(self, each: EpochCost) -> float:
        """Return the bytes per second that the storage must deliver."""
        return each.bytes / max(1, each.images) * each.images_per_second


# --- the page ---------------------------------------------------------------------------------------


#: By this element, the command recognizes a page that it may replace.
MARK = page_mark("dataprep report")

#: Commands, options and Python in a sentence.
_CODE = re.compile(
    r"""(dataprep [a-z]+|loaders\.\w+(?:\([^)]{0,40}\))?|--[a-z][a-z-]+(?: drop| \d+)?)"""
)

#: Bytes of a picture on the page for each byte of its thumbnail, with the lower of `QUALITIES` and
#: in base64.
_SPRITE = 0.95


def make_page(report: Report, material: Material, max_size: int) -> str:
    """Return the page, with as many pictures per class as fit into `max_size` bytes.

    Raises:
        CallError: not even a page without contact sheets fits.

    """
    bare = len(_render(report, material, 0, max_size).encode())
    if bare > max_size:
        raise CallError(
            f"--max-size is {format_bytes(max_size)}, but the report takes {format_bytes(bare)}"
            " without contact sheets",
            hint=f"set --max-size {-(-bare // 2**20)}MiB",
        )
    most = max((len(rows) for rows in material.sheets.values()), default=0)
    for per_class in range(_first_guess(material, max_size - bare, most), 0, -1):
        for quality in QUALITIES:
            page = _render(report, material, per_class, max_size, quality)
            if len(page.encode()) <= max_size:
                return page
    return _render(report, material, 0, max_size)


def _first_guess(material: Material, room: int, most: int) -> int:
    """Return how many pictures per class may fit into `room` bytes, from the bytes of the thumbnails."""
    sizes = [
        [len(material.thumbnails.get(int(row), b"")) for row in rows.tolist()]
        for rows in material.sheets.values()
    ]
    for count in range(most, 1, -1):
        if sum(sum(each[:count]) for each in sizes) * _SPRITE <= room:
            return count
    return min(most, 1)


def _render(
    report: Report, material: Material, per_class: int, max_size: int, quality: int = QUALITIES[0]
) -> str:
    environment = _environment()
    css = Markup(environment.loader.get_source(environment, "report.css")[0])  # type: ignore[union-attr]  # noqa: S704
    page = Page(report, material, per_class, max_size, quality)
    body = environment.get_template("report.html.j2").render(
        report=report, page=page, lists=ClassLists(report.classes), machine=cost.MACHINE
    )
    title = f"{show_name(report.dataset)} · dataset report"
    return make_html(MARK, title, Markup(body), css)  # noqa: S704


@cache
def _environment() -> jinja2.Environment:
    """Return the environment of the templates. It keeps those that it has compiled."""
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("dataprep.report"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {
        "n": lambda number: f"{number:,.0f}" if number == int(number) else f"{number:,.1f}",
        "bytes": format_bytes,
        "duration": lambda seconds: format_duration(seconds) if seconds >= 1 else "under 1 s",
        "name": show_name,
        "breakable": lambda text: Markup("/<wbr>").join(str(text).split("/")),
    }
    environment.filters["code"] = partial(mark_code, code=_CODE)
    return environment
