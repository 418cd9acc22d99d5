"""What a preview contains.

It displays itself in a notebook, and saves itself as a picture or as HTML.
"""

from __future__ import annotations

import io
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import chain
from typing import Any

import numpy as np
from markupsafe import Markup
from PIL import Image, ImageDraw, ImageFont, PngImagePlugin

from loaders.arrays import Bytes
from manifests.errors import CallError
from manifests.process.options import write_output_file
from manifests.process.pages import make_page, page_mark
from manifests.process.text import jpeg_uri

#: Pixels of a picture, uint8 [H, W, 3].
Pixels = Bytes


@dataclass(frozen=True, slots=True)
class Draw:
    """One result of the transforms.

    Attributes:
        pixels: uint8 [H, W, 3].
        caption: which view and which crop it is, what the random transforms drew, which labels are
            mixed. May be empty.

    """

    pixels: Pixels
    caption: str = ""


@dataclass(frozen=True, slots=True)
class Item:
    """One sample.

    Attributes:
        key: key of the sample.
        label: its class.
        size: width and height of the stored image in pixels.
        source: path of the image in the source.
        original: the stored image, upright and made smaller, uint8 [H, W, 3]. `None` if it cannot
            be decoded.
        draws: results of the transforms.

    """

    key: str
    label: str
    size: str
    source: str
    original: Pixels | None
    draws: tuple[Draw, ...]


@dataclass(frozen=True, slots=True)
class Group:
    """Samples that are shown together: of one identity, or all.

    Attributes:
        title: what they have in common. May be empty.
        items: the samples.

    """

    title: str
    items: tuple[Item, ...]


@dataclass(frozen=True, slots=True)
class Preview:
    """Samples before and after the transforms, which `Loader.preview` returns.

    In a notebook it displays itself. `save` writes a picture or HTML.

    Attributes:
        title: dataset and split.
        notes: how to read it: what the loader is, and how values were made visible.
        groups: the samples.

    """

    title: str
    notes: tuple[str, ...]
    groups: tuple[Group, ...]

    @property
    def items(self) -> tuple[Item, ...]:
        """All samples."""
        return tuple(item for group in self.groups for item in group.items)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the preview to a file, which appears complete or not at all.

        Args:
            path: ends in ``.png``, ``.jpg`` or ``.webp`` for a picture, or ``.html``. A file of
                this name is replaced.

        Raises:
            CallError: it has another ending.
            StorageError: it cannot be written.

        """
        name = os.fspath(path)
        write_output_file(name, encoder(name)(self), "preview")

    def _repr_html_(self) -> str:
        return str(fragment(self))

    def __repr__(self) -> str:
        items = self.items
        draws = sum(len(item.draws) for item in items)
        return (
            f"<Preview of {self.title}: {len(items)} samples, {draws} draws; save(path) writes it>"
        )


def encoder(path: str) -> Callable[[Preview], bytes]:
    """Return what encodes a preview for a file of this name.

    Raises:
        CallError: `Preview.save` documents no such ending.

    """
    ending = os.path.splitext(path)[1].lower()
    if ending in (".html", ".htm"):
        return page
    if ending in (".png", ".jpg", ".jpeg", ".webp"):
        return lambda preview: encoded_sheet(preview, ending)
    raise CallError(
        f"{path!r} does not end in .png, .jpg, .webp or .html",
        hint="name the kind of file by its extension",
    )


# --- HTML: a fragment for a notebook, or a whole page. All text passes through `Markup.format` ----

#: By this element, the command recognizes a file that it may replace.
GENERATOR = page_mark("loaders preview")

_STYLE = Markup("""<style>
.loaders-preview { font: 14px/1.45 system-ui, -apple-system, "Segoe UI", Roboto, sans-serif; overflow-wrap: anywhere; }
.loaders-preview h1 { font-size: 1.3rem; margin: 0 0 6px; }
.loaders-preview h2 { font-size: 1.05rem; margin: 18px 0 6px; }
.loaders-preview p { margin: 0 0 4px; max-width: 110ch; opacity: .8; }
.loaders-preview .item { display: flex; flex-wrap: wrap; gap: 8px; margin: 12px 0; padding-bottom: 10px; }
.loaders-preview .items { display: flex; flex-wrap: wrap; gap: 0 28px; }
.loaders-preview figure { margin: 0; width: 168px; } .loaders-preview figcaption { font-size: 12px; margin-top: 3px; }
.loaders-preview figcaption span { display: block; opacity: .75; }
.loaders-preview img { display: block; width: 168px; height: 168px; object-fit: contain; background: #8882; }
.loaders-preview .original img { outline: 2px solid #2f6fde; }
</style>""")

_FIGURE = Markup(
    "<figure{kind}>{picture}<figcaption><bdi>{title}</bdi>{detail}</figcaption></figure>"
)
_IMAGE = Markup('<img src="{uri}" alt="{alt}" loading="lazy">')


def page(preview: Preview) -> bytes:
    """Return a whole page. It loads nothing from the network and runs no script."""
    return make_page(GENERATOR, preview.title, fragment(preview))


def fragment(preview: Preview) -> Markup:
    """Return the preview as one element, for a notebook."""
    notes = Markup("").join(map(Markup("<p>{}</p>\n").format, preview.notes))
    groups = Markup("\n").join(map(_group, preview.groups))
    whole = Markup('<div class="loaders-preview">{}\n<h1>{}</h1>\n{}{}\n</div>')
    return whole.format(_STYLE, preview.title, notes, groups)


def _group(group: Group) -> Markup:
    title = Markup("<h2>{}</h2>\n").format(group.title) if group.title else ""
    items = Markup("\n").join(map(_item, group.items))
    return Markup('{}<div class="items">{}</div>').format(title, items)


def _item(item: Item) -> Markup:
    detail = Markup("<span><bdi>{}, {}</bdi></span><span><bdi>{}</bdi></span>").format(
        item.key, item.size, item.source
    )
    kind = Markup(' class="original"')
    figures = [_figure(item.original, f"{item.label}, as stored", item.label, detail, kind)]
    for number, draw in enumerate(item.draws, 1):
        alt = f"{item.label}, result {number} {draw.caption}".rstrip()
        figures.append(_figure(draw.pixels, alt, draw.caption))
    return Markup('<div class="item">{}</div>').format(Markup("").join(figures))


def _figure(
    pixels: Pixels | None, alt: str, title: str, detail: str = "", kind: str = ""
) -> Markup:
    # A damaged image is shown as text, in its place.
    picture: Markup | str = "cannot be decoded"
    if pixels is not None:
        out = io.BytesIO()
        Image.fromarray(np.ascontiguousarray(pixels)).save(out, "JPEG", quality=90)
        picture = _IMAGE.format(uri=jpeg_uri(out.getvalue()), alt=alt)
    return _FIGURE.format(kind=kind, picture=picture, title=title, detail=detail)


# --- one picture with captions --------------------------------------------------------------------

#: Sides of a picture on the sheet, and distances, in pixels.
_TILE, _GAP, _MARGIN = 168, 8, 20
_LINE, _SMALL_LINE, _CAPTION_LINES = 16, 13, 6

#: Pictures side by side on the sheet.
_COLUMNS = 8

_INK, _MUTED, _PAPER, _EMPTY = (24, 26, 30), (96, 102, 110), (255, 255, 255), (236, 238, 240)
#: A frame tells the stored image from the results.
_FRAME = (47, 111, 222)

#: Longest side of a sheet.
_MAX_SIDE = 30_000

#: By this text of a PNG, the command recognizes a file that it may replace.
SOFTWARE = "loaders preview"

_KINDS = {".png": "PNG", ".jpg": "JPEG", ".jpeg": "JPEG", ".webp": "WEBP"}


@dataclass(frozen=True, slots=True)
class _Cell:
    """A picture with lines below it: a title, and smaller ones."""

    pixels: Pixels | None
    title: str
    lines: tuple[str, ...]
    is_original: bool = False

    @property
    def caption_height(self) -> int:
        """The height of the lines in pixels."""
        return _LINE * bool(self.title) + _SMALL_LINE * len(self.lines)


def encoded_sheet(preview: Preview, ending: str) -> bytes:
    """Encode the sheet as the kind of file that an extension names.

    The same preview gives the same bytes.
    """
    sheet = draw_sheet(preview)
    out = io.BytesIO()
    # No time or version in the file: the same preview gives the same bytes.
    options: dict[str, Any] = {"quality": 88}
    if ending == ".png":
        text = PngImagePlugin.PngInfo()
        text.add_text("Software", SOFTWARE)
        options = {"pnginfo": text}
    sheet.save(out, _KINDS[ending], **options)
    return out.getvalue()


def draw_sheet(preview: Preview) -> Image.Image:
    """Draw the sheet: for each sample the stored image in a blue frame, then the results.

    Raises:
        CallError: the sheet would be too large for a picture.

    """
    # Many draws of a sample continue in the next row.
    block = min(1 + max(len(item.draws) for item in preview.items), _COLUMNS)
    across = max(1, _COLUMNS // block)
    width = across * block * (_TILE + _GAP) + 2 * _MARGIN
    notes = list(_wrapped(preview.notes, width - 2 * _MARGIN, _font(13)))
    height = 2 * _MARGIN + (len(notes) + 2) * _LINE
    rows = []
    for group in preview.groups:
        heading = group.title
        for row in _rows(group, across):
            row_height = _TILE + max(cell.caption_height for cell in row) + 2 * _GAP + 4
            rows.append((heading, row, row_height))
            height += row_height + 2 * _LINE * bool(heading)
            heading = ""  # only above the first row of the group
    if height > _MAX_SIDE or width > _MAX_SIDE:
        raise CallError(
            f"a picture of this preview would have {width} x {height} pixels",
            hint="show fewer samples, or save it as .html",
        )
    sheet = Image.new("RGB", (width, height), _PAPER)
    draw = ImageDraw.Draw(sheet)
    draw.text((_MARGIN, _MARGIN), preview.title, _INK, _font(17))
    y = _MARGIN + _LINE + 6
    for note in notes:
        draw.text((_MARGIN, y), note, _MUTED, _font(13))
        y += _LINE
    y += _LINE // 2
    for heading, row, row_height in rows:
        if heading:
            draw.text((_MARGIN, y + 6), heading, _INK, _font(15))
            y += 2 * _LINE
        for number, cell in enumerate(row):
            _draw_cell(sheet, draw, cell, _MARGIN + number * (_TILE + _GAP), y)
        y += row_height
    return sheet


def _rows(group: Group, across: int) -> Iterator[list[_Cell]]:
    """Yield rows of cells: several samples with few draws, or one sample in several rows."""
    for at in range(0, len(group.items), across):
        cells = list(chain.from_iterable(map(_cells, group.items[at : at + across])))
        for first in range(0, len(cells), _COLUMNS):
            yield cells[first : first + _COLUMNS]


def _cells(item: Item) -> Iterator[_Cell]:
    key = _fitted(f"{item.key}, {item.size}", _font(11), _TILE)
    yield _Cell(item.original, _fitted(item.label, _font(13), _TILE), (key,), is_original=True)
    for draw in item.draws:
        lines = list(_wrapped([draw.caption], _TILE, _font(11)))
        if len(lines) > _CAPTION_LINES:
            del lines[_CAPTION_LINES:]
            lines[-1] = _fitted(f"{lines[-1]} ...", _font(11), _TILE)
        yield _Cell(draw.pixels, "", tuple(lines))


def _draw_cell(sheet: Image.Image, draw: ImageDraw.ImageDraw, cell: _Cell, x: int, y: int) -> None:
    draw.rectangle((x, y, x + _TILE - 1, y + _TILE - 1), _EMPTY)
    if cell.pixels is None:
        draw.text((x + 10, y + _TILE // 2), "cannot be decoded", _MUTED, _font(12))
    else:
        # Small images are enlarged, so that their pixels can be seen.
        picture = Image.fromarray(np.ascontiguousarray(cell.pixels))
        scale = _TILE / max(picture.size)
        size = (max(1, round(picture.width * scale)), max(1, round(picture.height * scale)))
        smooth = Image.Resampling.BICUBIC if scale < 1 else Image.Resampling.BILINEAR
        picture = picture.resize(size, smooth)
        sheet.paste(picture, (x + (_TILE - picture.width) // 2, y + (_TILE - picture.height) // 2))
    if cell.is_original:
        draw.rectangle((x - 2, y - 2, x + _TILE + 1, y + _TILE + 1), outline=_FRAME, width=2)
    y += _TILE + 4
    if cell.title:
        draw.text((x, y), cell.title, _INK, _font(13))
        y += _LINE
    for number, line in enumerate(cell.lines):
        draw.text((x, y + number * _SMALL_LINE), line, _MUTED, _font(11))


def _fitted(text: str, font: Any, width: int) -> str:
    """Cut a text to a width in pixels."""
    if font.getlength(text) <= width:
        return text
    text = text[: width // 2]  # no letter is narrower
    while font.getlength(f"{text}...") > width:
        text = text[:-1]
    return f"{text}..."


def _wrapped(texts: Sequence[str], width: int, font: Any) -> Iterator[str]:
    """Divide texts into lines of a width in pixels."""
    for text in texts:
        line = ""
        for word in text.split():
            longer = f"{line} {word}".strip()
            if line and font.getlength(longer) > width:
                yield _fitted(line, font, width)
                line = word
            else:
                line = longer
        if line:
            yield _fitted(line, font, width)


@cache
def _font(size: int) -> Any:
    return ImageFont.load_default(size)
