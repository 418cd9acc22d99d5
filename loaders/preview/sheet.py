"""Draw a preview as one picture with captions."""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
from PIL import Image, ImageDraw, ImageFont, PngImagePlugin

from loaders.preview.preview import Group, Item, Pixels, Preview
from manifests.errors import CallError

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
        return (_LINE if self.title else 0) + _SMALL_LINE * len(self.lines)


def encoded_sheet(preview: Preview, ending: str) -> bytes:
    """Encode the sheet as the kind of file that an extension names.

    The same preview gives the same bytes.
    """
    sheet, out = draw_sheet(preview), io.BytesIO()
    options: dict[str, Any] = {"quality": 88}
    if ending == ".png":
        text = PngImagePlugin.PngInfo()
        text.add_text("Software", SOFTWARE)
        options = {"pnginfo": text}
    sheet.save(out, _KINDS[ending], **options)
    return out.getvalue()


def draw_sheet(preview: Preview) -> Image.Image:
    """Draw the sheet: for each sample the stored image in a blue frame, then the results of the transforms.

    Raises:
        CallError: the sheet would be too large for a picture.

    """
    across = _samples_per_row(preview)
    width = (
        across * max(_block_cells(item) for item in preview.items) * (_TILE + _GAP) + 2 * _MARGIN
    )
    title = [preview.title, *_wrapped(preview.notes, width - 2 * _MARGIN, _font(13))]
    rows = [
        (group.title if not number else "", row)
        for group in preview.groups
        for number, row in enumerate(_rows(group, across))
    ]
    heights = [_TILE + max(cell.caption_height for cell in row) + 2 * _GAP + 4 for _, row in rows]
    headings = sum(bool(heading) for heading, _ in rows)
    height = 2 * _MARGIN + (len(title) + 1) * _LINE + sum(heights) + headings * 2 * _LINE
    if height > _MAX_SIDE or width > _MAX_SIDE:
        raise CallError(
            f"a picture of this preview would have {width} x {height} pixels",
            hint="show fewer samples, or save it as .html",
        )
    sheet = Image.new("RGB", (width, height), _PAPER)
    draw = ImageDraw.Draw(sheet)
    y = _MARGIN
    for number, line in enumerate(title):
        draw.text((_MARGIN, y), line, _MUTED if number else _INK, _font(13 if number else 17))
        y += _LINE + (0 if number else 6)
    y += _LINE // 2
    for (heading, row), row_height in zip(rows, heights, strict=True):
        if heading:
            draw.text((_MARGIN, y + 6), heading, _INK, _font(15))
            y += 2 * _LINE
        for number, cell in enumerate(row):
            _draw_cell(sheet, draw, cell, _MARGIN + number * (_TILE + _GAP), y)
        y += row_height
    return sheet


def _samples_per_row(preview: Preview) -> int:
    return max(1, _COLUMNS // max(_block_cells(item) for item in preview.items))


def _block_cells(item: Item) -> int:
    """Return the cells of a sample in a row; many draws continue in the next row."""
    return min(1 + len(item.draws), _COLUMNS)


def _rows(group: Group, across: int) -> Iterator[list[_Cell]]:
    """Yield rows of cells: several samples with few draws, or one sample in several rows."""
    for at in range(0, len(group.items), across):
        cells = [cell for item in group.items[at : at + across] for cell in _cells(item)]
        for first in range(0, len(cells), _COLUMNS):
            yield cells[first : first + _COLUMNS]


def _cells(item: Item) -> Iterator[_Cell]:
    key = _fitted(f"{item.key}, {item.size}", _font(11), _TILE)
    yield _Cell(item.original, _fitted(item.label, _font(13), _TILE), (key,), is_original=True)
    for draw in item.draws:
        lines = [*_wrapped([draw.caption], _TILE, _font(11))] if draw.caption else []
        if len(lines) > _CAPTION_LINES:
            lines = [
                *lines[: _CAPTION_LINES - 1],
                _fitted(f"{lines[_CAPTION_LINES - 1]} ...", _font(11), _TILE),
            ]
        yield _Cell(draw.pixels, "", tuple(lines))


def _draw_cell(sheet: Image.Image, draw: ImageDraw.ImageDraw, cell: _Cell, x: int, y: int) -> None:
    draw.rectangle((x, y, x + _TILE - 1, y + _TILE - 1), _EMPTY)
    if cell.pixels is None:
        draw.text((x + 10, y + _TILE // 2), "cannot be decoded", _MUTED, _font(12))
    else:
        picture = Image.fromarray(np.ascontiguousarray(cell.pixels))
        scale = _TILE / max(picture.size)
        size = (max(1, round(picture.width * scale)), max(1, round(picture.height * scale)))
        picture = picture.resize(
            size, Image.Resampling.BICUBIC if scale < 1 else Image.Resampling.BILINEAR
        )
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
    low, high = 0, len(text)
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (
            (middle, high) if font.getlength(text[:middle] + "...") <= width else (low, middle - 1)
        )
    return text[:low] + "..."


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
        yield _fitted(line, font, width)


@cache
def _font(size: int) -> Any:
    return ImageFont.load_default(size)
