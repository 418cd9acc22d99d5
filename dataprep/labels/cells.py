"""Cells of text with several labels: recognized by what all cells of a column have in common.

Lists are recognized by their brackets. For separated labels, a part is the text between two
separators, and the cells and parts are counted once each. The cells have several labels if no cell
has a part twice, and one of these holds:

- a comma or a semicolon: there are fewer parts than cells;
- a blank, ``/``, ``+`` or ``&``, which names also contain: there are fewer parts than cells, and of
  the parts in cells with several, three of four are also a cell of their own;
- the same, where parts do not stand alone: each cell occurs twice on average, there are at least four
  times as many cells as parts, and not all cells have as many parts;
- all cells have the same number of parts, and each part is 0 or 1: one number for each class.

Names of two words share few words with others, and captions repeat words and rarely occur twice.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import suppress

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dataprep.labels.columns import ZEROS
from manifests.files import IMAGE_SUFFIXES

#: Separators besides the default one, in the order in which they are tried.
SEPARATORS = (";", ",", " ", "/", "+", "&")

#: The separators that names of classes rarely contain.
_CLEAR = (";", ",")

#: Shares of the cells that may have a part twice, and of the parts that stand alone.
_REPEATED, _ALONE = 0.01, 0.75

#: Cells for each part, if parts do not stand alone.
_CELLS_PER_PART = 4

#: Different cells that are looked at.
_MOST_CELLS = 100_000


#: Cells that most rows repeat are names of classes, even if they contain blanks.
_DIFFERENT, _SEPARATED = 0.5, 0.3


def _different_cells(text: pa.Array) -> pa.Array:
    cells = pc.unique(pc.utf8_trim_whitespace(text.drop_null()))
    return cells.filter(pc.not_equal(cells, ""))


def find_unclear(text: pa.Array) -> str | None:
    """Return what may separate labels, if the cells neither show that it does nor that they are names.

    Names of classes recur, and few of them contain a comma or a semicolon.
    """
    cells = _different_cells(text)
    are_different = len(cells) > max(2, _DIFFERENT * len(text))
    for separator in SEPARATORS:
        found = pc.sum(pc.match_substring(cells, separator)).as_py() or 0
        if found and (separator == ";" or (are_different and found >= _SEPARATED * len(cells))):
            return separator
    return None


def find_separator(text: pa.Array) -> str | None:
    """Return what separates the labels in cells that have several; `None` if they have one each."""
    cells = _different_cells(text)
    rows = len(text) / max(len(cells), 1)
    for separator in SEPARATORS:
        if _are_separated(cells.slice(0, _MOST_CELLS), rows, separator):
            return separator
    return None


def _are_separated(cells: pa.Array, rows: float, separator: str) -> bool:
    """Return whether different cells have several labels; each occurs in so many rows on average."""
    if not pc.any(pc.match_substring(cells, separator)).as_py():
        return False
    lists = [[part.strip() for part in cell.split(separator)] for cell in cells.to_pylist()]
    lengths = {*map(len, lists)}
    parts = {part for own in lists for part in own}
    if parts <= {"0", "1"} and len(lengths) == 1:
        return True
    several = [own for own in lists if len(own) > 1]
    repeated = sum(len({*own}) < len(own) for own in several)
    if "" in parts or len(parts) >= len(lists) or repeated > _REPEATED * len(several):
        return False
    if separator in _CLEAR:
        return True
    # Parts that are labels also stand alone; parts of names rarely do.
    single = {own[0] for own in lists if len(own) == 1}
    alone = [part in single for own in several for part in own]
    if np.mean(alone) >= _ALONE:
        return True
    return rows >= 2 and len(lists) >= _CELLS_PER_PART * len(parts) and len(lengths) > 1


#: A label with a score: ``cat:0.9``, ``cat=90%``; or where all cells are so, ``cat (0.9)``.
_SCORE = r"(0?\.\d+|[01]\.\d+|\d{1,3}(\.\d+)?\s*%)"
SCORED = rf"[^\s:=\d.]\s*[:=;,|]\s*{_SCORE}\s*($|[\s,;|\])])"
_SCORES = "labels with scores"
_SCORES_HINT = "write each label without its score, which may have a column of its own"

_NUMBERS = "several numbers in a cell, or numbers with commas"
_DIGITS = "texts of 0 and 1, perhaps one for each class"

#: Text that is not the name of a class: what it is, what to do, the pattern, and whether all cells match.
_OTHER_TEXT = (
    (
        "paths of images in the place of labels",
        "for pairs, give the path of one image in each row, and its label; for masks and depth maps,"
        " put them into masks/ or depth/ beside images/",
        rf"(?i)^\S+({'|'.join(map(re.escape, IMAGE_SUFFIXES))})$",
        True,
    ),
    (
        "JSON in the place of labels",
        "write the labels into columns of their own",
        r"""^\s*\[?\s*\{\s*["'].*\}\s*\]?\s*$""",
        False,
    ),
    (
        "values as a program prints them",
        "write lists such as [1, 0] or ['cat', 'dog'], or a number alone",
        r"^\s*((np|numpy)\.\w+|frozenset|set|array|tensor)?[({\[].*[)}\]]\s*$",
        True,
    ),
    (
        "numbers with the sign of a currency or of percent",
        "write the numbers alone",
        r"^\s*([$€£¥]\s*-?\d[\d.,]*|-?\d[\d.,]*\s*[%$€£¥])\s*$",
        True,
    ),
    (_SCORES, _SCORES_HINT, SCORED, False),
    (_SCORES, _SCORES_HINT, rf"^\s*\pL.*[\s(\[]{_SCORE}\s*[)\]]?\s*$", True),
    (
        _DIGITS,
        "write lists such as [1, 0, 1], or a column for each class",
        r"^[01]{2,}$",
        True,
    ),
    (
        _NUMBERS,
        "set --label-separator for several labels; write decimals with a point, and thousands"
        " without a comma; write boxes into the columns xmin, ymin, xmax and ymax",
        r"^\s*-?\d[-+.\d\s]*(,[-+.\d\s]*\d\s*)*$",
        True,
    ),
)


def find_other_text(text: pa.Array) -> Iterator[tuple[str, str, int]]:
    """Find text that is not the names of classes: what it is, what to do, and the first such row."""
    cells = text.drop_null()
    for what, hint, pattern, all_match in _OTHER_TEXT:
        matches = pc.match_substring_regex(cells, pattern)
        if not pc.any(matches).as_py() or (all_match and not pc.all(matches).as_py()):
            continue
        # One number in each cell is a label; 10 and 11 are numbers, 01 is none.
        example = {_NUMBERS: r"\d[\s,]+[-+.]?\d", _DIGITS: "^0"}.get(what, pattern)
        row = pc.index(pc.match_substring_regex(text, example), True).as_py()
        if row >= 0:
            yield what, hint, row


# --- lists ----------------------------------------------------------------------------------------

#: A list as JSON, Python, NumPy and people write it. Parentheses and braces need quotation marks.
_LIST = r"""^\s*(\[.*\]|\(\s*['"].*\)|\{\s*['"].*\})\s*$"""
_ITEM = re.compile(
    r"""\s*(?:'((?:[^'\\]|\\.)*)'|"((?:[^"\\]|\\.)*)"|([^,'"\[\]]+))\s*(,|$|(?=['"]))"""
)
_EMPTY = ("", "[]", "()", "{}", "set()")


def lists_in_text(text: pa.Array) -> pa.Array | None:
    """Return the lists that all cells of text contain, as a column of lists; `None` if one has none.

    Items are numbers if all of them are; a cell without text is an empty list.
    """
    cells = pc.utf8_trim_whitespace(pc.fill_null(text, ""))
    is_list = pc.match_substring_regex(cells, _LIST)
    empty = pc.is_in(cells, pa.array(_EMPTY, cells.type))
    if not pc.any(is_list).as_py() or not pc.all(pc.or_(is_list, empty)).as_py():
        return None
    lists = []
    for cell in cells.to_pylist():
        items = _items(cell)
        if items is None:
            return None
        lists.append(items)
    texts = pa.array(lists, pa.list_(pa.large_string()))
    items = pc.list_flatten(texts)
    # Leading zeros are a part of names.
    if pc.any(pc.match_substring_regex(items, ZEROS)).as_py():
        return texts
    for item_type in (pa.int64(), pa.float64()):
        with suppress(pa.ArrowInvalid):
            return texts.cast(pa.list_(item_type))
    return texts


def _items(cell: str) -> list[str] | None:
    """Return the items of a list; `None` if the text is none."""
    if cell in _EMPTY:
        return []
    try:
        items = json.loads(cell)
    except ValueError:
        items = None
    if isinstance(items, list) and all(isinstance(item, str) for item in items):
        return items
    inner, at, found = cell[1:-1].rstrip(", "), 0, []
    quoted = 0
    while at < len(inner):
        match = _ITEM.match(inner, at)
        if match is None or match.end() == at:
            return None
        single, double, bare, _ = match.groups()
        text = single if single is not None else double
        if text is None:
            found.append(bare.strip())
        else:
            quoted += 1
            found.append(re.sub(r"\\(.)", r"\1", text))
        at = match.end()
    # NumPy separates numbers by blanks.
    if len(found) == 1 and not quoted and re.fullmatch(r"[-+.eE0-9\s]+", found[0]):
        return found[0].split()
    return found
