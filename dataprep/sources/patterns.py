"""Labels in file names: patterns such as ``{identity}_c{camera}s*``, and re-identification datasets.

A pattern is translated to a regular expression of RE2 (https://github.com/google/re2/wiki/Syntax),
which matches in time linear in the length of the name for every pattern.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dataprep import storage
from dataprep.labels.columns import number_labels, row_error
from dataprep.labels.kinds import REGRESSION
from dataprep.options import SourceOptions
from dataprep.sources.base import (
    CLIP,
    LABEL_COLUMN_NAMES,
    MAX_COLUMN_NAME,
    RESERVED_COLUMNS,
    Kind,
    Names,
    Source,
    Texts,
    joined_paths,
    one_array,
    text_array,
    with_classes,
)
from dataprep.sources.folders import read_image_folders, read_unlabelled
from dataprep.sources.listed import listed_source, normalize_paths
from dataprep.sources.scan import (
    has_folders,
    list_folders,
    list_images,
    map_splits,
    scan_splits,
    stray_notices,
    suffix_of,
)
from dataprep.sources.several import IMAGE, group_files
from dataprep.sources.tables import parse_lists, with_label_type
from manifests.errors import CallError, SourceError
from manifests.files import IMAGE_SUFFIXES
from manifests.json_members import is_unicode
from manifests.process.text import agree, plural, printable, suggest
from manifests.records import record
from manifests.schema import SPLIT_ALIASES, SPLIT_WORDS

#: What a ``{name}`` matches, as a regular expression: any text, or an integer.
ANY_TEXT = ".+"
INTEGER = "-?[0-9]{1,18}"

#: Parts that may be the label, the first that a pattern has.
_LABEL_PARTS = (*LABEL_COLUMN_NAMES, "identity")

#: Longest pattern in characters: the longest file name. It also bounds the time of a match.
MAX_PATTERN = 255

_PARTS = re.compile(r"\{[^{}]*\}|\*+|\?|[^*?{}]+|[{}]")
_NAME = re.compile(rf"\{{[A-Za-z_][A-Za-z0-9_]{{0,{MAX_COLUMN_NAME - 1}}}\}}")


@record
class Pattern:
    """A parsed pattern.

    Attributes:
        text: the pattern as written.
        names: the names of its ``{name}`` parts, from left to right.
        regex: the regular expression.
        longest: the same, where each part from the left matches as much as possible.
        last: one of which the last separator counts, and a number follows it. Empty if the pattern
            does not end with a separator and one part.
        separator: the text before the last part.
        before: the name of the part before that.
        folders: folders that the pattern also matches, from the folder of a file upwards.

    """

    text: str
    names: Texts
    regex: str
    longest: str
    last: str = ""
    separator: str = ""
    before: str = ""
    folders: int = 0


def parse_pattern(text: str, value: str = ANY_TEXT) -> Pattern:
    """Parse a pattern of file names without folder and extension.

    ``{name}`` matches one or more characters, ``*`` any number of characters, ``?`` one character.
    All other text matches itself. From left to right, each part matches as few characters as
    possible: ``{a}_{b}`` reads ``x_y_z`` as ``x`` and ``y_z``; but see `read_names`. Plain text or
    the end of the pattern must follow a ``{name}``, so its end is clear.

    With ``{image}``, which tells the files of a sample apart, the pattern may have folders, and
    the extension, of which it says nothing. At the end, ``{image}`` is as short as possible.

    Args:
        text: the pattern, 1 to 255 characters.
        value: what a ``{name}`` matches, `ANY_TEXT` or `INTEGER`.

    Raises:
        CallError: the pattern is not valid, or a name in it is not a valid column name.

    """
    is_grouped = f"{{{IMAGE}}}" in text
    written = text
    if is_grouped and suffix_of(text) in IMAGE_SUFFIXES:
        written = text[: -len(suffix_of(text))]
    parts = _PARTS.findall(written)
    names = tuple(part[1:-1] for part in parts if _NAME.fullmatch(part))
    if problem := _find_problem(text, parts, names):
        raise CallError(
            f"--pattern {text[:80]}: {problem}",
            hint="write it like '{identity}_c{camera}s*', without .jpg",
        )
    regex = [_regex(part, value) for part in parts]
    if is_grouped:
        # A part is within a folder or the name. The part before {image} takes all separators.
        regex = [each.replace(".", "[^/]", 1) if each[0] in "(." else each for each in regex]
        if parts[-1] == f"{{{IMAGE}}}" and len(parts) > 2:
            regex[-3] = f"(?-U:{regex[-3]})"
        longest = f"^(?s:{''.join(regex)})$"
        return Pattern(text, names, _whole(regex), longest, folders=text.count("/"))
    pattern = Pattern(text, names, _whole(regex), f"^(?s:{''.join(regex)})$")
    if len(parts) < 3 or parts[-2][0] in "{*?" or parts[-1][0] not in "{*" or value != ANY_TEXT:
        return pattern
    # Only the part before the last separator is as long as possible.
    before, separator, end = parts[-3:]
    regex[-3] = f"(?-U:{regex[-3]})"
    regex[-1] = INTEGER if end[0] == "*" else _regex(end, INTEGER)
    return replace(pattern, last=_whole(regex), separator=separator, before=before.strip("{}"))


def _regex(part: str, value: str) -> str:
    if part[0] == "{":
        return f"(?P<{part[1:-1]}>{value})"
    return {"*": ".*", "?": "."}.get(part[0], re.escape(part))


def _whole(regex: Names) -> str:
    """Return the expression of a whole name: each part matches as few characters as possible."""
    return f"^(?sU:{''.join(regex)})$"


def _find_problem(text: str, parts: Names, names: Names) -> str:
    if not 0 < len(text) <= MAX_PATTERN:
        return f"the pattern is not 1 to {MAX_PATTERN} characters long"
    has_folders = "/" in text and IMAGE not in names
    if has_folders or text[0] == "/" or "\0" in text or not is_unicode(text):
        return (
            "the pattern contains a character that file names cannot have; it matches the name"
            " without its folder"
        )
    for part in parts:
        if part[0] in "{}" and not _NAME.fullmatch(part):
            return f"{part} is not a {{name}} of at most {MAX_COLUMN_NAME} letters, digits and _"
    for name in names:
        if names.count(name) > 1:
            return f"{{{name}}} occurs twice"
    for part, after in pairwise(parts):
        if part[0] == "{" and after[0] in "{*?":
            return f"the end of {part} is ambiguous; put plain text after it"
    return ""


def find_label(pattern: Pattern, given: str | None, known: Names) -> str:
    """Return the name of the part with the label: `given`, or the first of `known` that the pattern has.

    Raises:
        CallError: there is no such part, or another part has a name that sample tables already use.

    """
    if given and given not in pattern.names:
        raise CallError(
            f"--label-column {given}: --pattern has no {{{given}}}",
            hint=suggest(given, pattern.names),
        )
    label = given or next(filter(pattern.names.__contains__, known), None)
    if label is None:
        raise CallError(
            "--pattern has no part for the label",
            hint="name one {identity} or {label}, or set --label-column",
        )
    refuse_reserved(pattern, label)
    return label


def has_label(pattern: Pattern) -> bool:
    """Return whether a part of the pattern has one of the names of labels."""
    return not {*_LABEL_PARTS}.isdisjoint(pattern.names)


def refuse_reserved(pattern: Pattern, label: str | None = None) -> None:
    """Check that no part other than the label has a name that sample tables already use.

    With ``{image}``, ``{key}`` tells the samples apart, and is no column.

    Raises:
        CallError: one has.

    """
    for name in pattern.names:
        if IMAGE in pattern.names and name == "key":
            continue
        if name != label and name in RESERVED_COLUMNS:
            raise CallError(
                f"--pattern: {{{name}}} is a name that sample tables already use",
                hint="choose another name",
            )


def match_names(path: pa.Array, pattern: Pattern) -> pa.StructArray:
    """Match file names against a pattern.

    Args:
        path: large_string [n], with extensions. Folder and extension are not part of the name.
        pattern: the pattern.

    Returns:
        A struct [n] with a field of text for each part; null if the name does not match.

    """
    return pc.extract_regex(_stems(path, pattern), pattern.regex)


def _stems(path: pa.Array, pattern: Pattern) -> pa.Array:
    """Return what a pattern matches of paths: the name without extension, perhaps with folders."""
    stem = "[^/]*/" * pattern.folders + "[^/]*"
    return pc.extract_regex(path, rf"^(?s:(?:.*/)?(?P<stem>{stem})\.[^./]*)$").field("stem")


def read_names(path: pa.Array, pattern: Pattern, root: str) -> pa.Table:
    """Return a column of text for each part of the pattern.

    The last separator counts if a number follows it in all names: ``{label}_{n}`` reads ``x_y_3`` as
    ``x_y`` and 3. Numbers in front stay what they are: ``{identity}_{rest}`` reads ``1_c2_3`` as 1
    and ``c2_3``.

    Args:
        path: large_string [n], with extensions.
        pattern: the pattern.
        root: the folder to name in errors.

    Raises:
        SourceError: a file name does not match.

    """
    parts = match_names(path, pattern)
    if parts.null_count:
        wrong = path.filter(pc.is_null(parts))
        shown = ", ".join(wrong.slice(0, 3).to_pylist())
        if len(wrong) > 3:
            shown += f" and {len(wrong) - 3:,} more"
        raise SourceError(
            f"{len(wrong):,} of {plural(len(path), 'file name')} {agree(len(wrong), 'does', 'do')}"
            f" not match {pattern.text!r}: {shown}",
            file=root,
            hint=(
                "set --pattern to a pattern that all names match (* is any text; leave out the"
                " extension), or move these images away"
            ),
        )
    columns = pa.Table.from_arrays(parts.flatten(), names=pattern.names)
    columns = _by_last_separator(path, pattern, columns, root)
    is_number = to_integers(one_array(columns[0])).type == pa.int64()
    if len(pattern.names) > 1 and pattern.names[0] in _LABEL_PARTS and not is_number:
        _refuse_unclear(path, pattern, columns, root)
    return _with_clips(path, pattern, columns)


def _with_clips(path: pa.Array, pattern: Pattern, columns: pa.Table) -> pa.Table:
    """Add the column `clip` to numbered frames: the path before the number at the end of a name."""
    *_, before, last = ("", *_PARTS.findall(pattern.text))
    if last != "{frame}" or CLIP in pattern.names:
        return columns
    if not pa.types.is_integer(to_integers(one_array(columns["frame"])).type):
        return columns
    # All names have the same text before the number, so clips stay apart without it.
    literal = "" if before[:1] in {*"{*?"} else re.escape(before)
    clip = pc.replace_substring_regex(path, rf"/?(?s:{literal}[0-9]+\.[^./]*)$", "")
    return columns.append_column(CLIP, clip)


def _unclear(
    pattern: Pattern, path: str, readings: tuple[str, str], root: str, hint: str
) -> SourceError:
    """Return the error for a name of which the label can be two texts."""
    message = f"{pattern.text!r} reads {path} as {' or as '.join(readings)}"
    return SourceError(message, file=root, hint=hint)


def _refuse_unclear(path: pa.Array, pattern: Pattern, columns: pa.Table, root: str) -> None:
    """Refuse names whose first part may be longer, because separators are in several parts.

    Raises:
        SourceError: there is one.

    """
    longest = pc.extract_regex(_stems(path, pattern), pattern.longest).field(pattern.names[0])
    row = pc.index(pc.equal(longest, one_array(columns[0])), False).as_py()
    if row >= 0:
        hint = (
            "write text that is in all names as it is, and ? for each character of a part that"
            " has always as many, as in {label}_x{n} and {label}_????-??-??_{n}"
        )
        readings = columns[0][row].as_py(), longest[row].as_py()
        raise _unclear(pattern, path[row].as_py(), readings, root, hint)


def _by_last_separator(path: pa.Array, pattern: Pattern, columns: pa.Table, root: str) -> pa.Table:
    """Return the columns of a pattern, read by its last separator if a number follows it.

    Raises:
        SourceError: all names end with several numbers, as with dates; or any text may follow, and
            names have different numbers of separators.

    """
    if not pattern.last or not len(path):
        return columns
    if pattern.before in pattern.names:
        before = to_integers(one_array(columns[pattern.before]))
        if pa.types.is_integer(before.type):
            return columns
    stems, separator = _stems(path, pattern), pattern.separator
    parts = pc.extract_regex(stems, pattern.last)
    if parts.null_count:
        return columns
    others = pa.Table.from_arrays(parts.flatten(), names=pattern.names)
    if others.equals(columns):
        return columns
    if pattern.text.endswith("*"):
        counts = pc.count_substring(stems, separator)
        if pc.count_distinct(counts).as_py() == 1:
            return columns
        row = pc.index(counts, pc.max(counts)).as_py()
        readings = columns[0][row].as_py(), others[0][row].as_py()
        hint = (
            f"name the number at the end, {pattern.text[:-1]}{{n}}, to divide names at the last"
            f" {separator!r}"
        )
        raise _unclear(pattern, path[row].as_py(), readings, root, hint)
    if pattern.before in pattern.names:
        long = one_array(others[pattern.before])
        numbers = pc.extract_regex(long, rf"(?P<rest>(?:{re.escape(separator)}[0-9]+)+)$")
        if not numbers.null_count:
            rest, whole = numbers[0]["rest"].as_py(), long[0].as_py()
            last = pattern.names[-1]
            names = [f"{{{last}{n}}}" for n in range(rest.count(separator) + 1)]
            hint = (
                "all names end with several numbers: name each,"
                f" {pattern.text.removesuffix(f'{{{last}}}')}{separator.join(names)}; or write ?"
                " for each character of a part that has always as many, as in {label}_????_??_??"
            )
            readings = whole.removesuffix(rest), whole
            raise _unclear(pattern, path[0].as_py(), readings, root, hint)
    return others


def _examples(path: pa.Array, columns: pa.Table) -> str:
    """Return a message with five names and their parts."""
    rows = sorted({*np.linspace(0, len(path) - 1, 5).astype(int).tolist()})
    shown = []
    for row in rows:
        parts = [f"{name} {columns[name][row].as_py()}" for name in columns.column_names]
        shown.append(f"{os.path.basename(path[row].as_py())} is {', '.join(parts)}")
    return f"file names are read like this: {'; '.join(shown)}"


def to_integers(column: pa.Array) -> pa.Array:
    """Convert a column of text to int64 if all of its values are integers of at most 18 digits, such as 0002 or -1.

    The column stays text if two different values would become the same number, such as 1 and 01.
    """
    if not pc.all(pc.match_substring_regex(column, f"^{INTEGER}$"), min_count=0).as_py():
        return column
    number = column.cast(pa.int64())
    if pc.count_distinct(number) != pc.count_distinct(column):
        return column
    return number


def _extra_table(columns: pa.Table) -> pa.Table:
    """Return columns of text as extra columns: numbers if all values are."""
    return pa.table([*map(to_integers, columns.columns)], names=columns.column_names)


def _with_parts(source: Source, columns: pa.Table) -> Source:
    """Return a source with the parts of its names as extra columns, before the paths of other images."""
    if source.image_names and "key" in columns.column_names:
        columns = columns.drop_columns("key")
    extra: dict[str, pa.ChunkedArray] = {}
    for part in (_extra_table(columns), source.extra):
        extra |= zip(part.column_names, part.columns, strict=True)
    return source.with_columns(extra=pa.table(extra))


def sorted_values(column: pa.Array) -> Texts:
    """Return the distinct values of a column of text, sorted as numbers if all are integers, else as text."""
    is_number = pa.types.is_integer(to_integers(column).type)
    return tuple(sorted(pc.unique(column).to_pylist(), key=int if is_number else None))


# --- folders of images whose file names give the labels -------------------------------------------


#: Folders that are splits, of ImageFolders and of re-identification datasets.
SPLIT_FOLDERS = {
    **SPLIT_WORDS,
    "query": "query",
    "gallery": "gallery",
    "bounding_box_train": "train",
    "bounding_box_test": "gallery",
    "image_train": "train",
    "image_query": "query",
    "image_test": "gallery",
    "bbox_train": "train",
    "bbox_test": "test",
}


def find_pattern(_: str, __: Names, options: SourceOptions) -> Pattern | None:
    """Return the pattern that the options give.

    Raises:
        CallError: the pattern is not valid.

    """
    return None if options.pattern is None else parse_pattern(options.pattern)


def read_file_names(src: str, pattern: Pattern, options: SourceOptions) -> Source:
    """Read a folder with ``--pattern``: labels from the file names, or only extra columns of class folders.

    Raises:
        CallError: the pattern has no part for the label.
        SourceError: a file name does not match the pattern, or the class folders are not valid.

    """
    folders = list_folders(src)
    if options.unlabelled:
        return add_columns(read_unlabelled(src, None, options), pattern, options)
    has_part = options.label_column or has_label(pattern) or pattern.folders
    if has_part or not has_class_folders(src, folders):
        return _read_labels(src, folders, pattern, options)
    return add_columns(read_image_folders(src, None, options), pattern, options)


def _read_labels(src: str, folders: Names, pattern: Pattern, options: SourceOptions) -> Source:
    """Read all images in `src` and its subfolders by a pattern of their file names.

    Folders with the name of a split are splits if there are at least two of them, or no other
    folders. Otherwise, all images are in ``train``.
    """
    named = [name for name in folders if name.lower() in SPLIT_FOLDERS]
    splits, notices = {"train": ""}, []
    # One folder called `test` beside others may be a class.
    if len(named) > 1 or (named and len(named) == len(folders)):
        splits = map_splits(src, named, lambda name: SPLIT_FOLDERS.get(name.lower()))
        notices = skipped_folders(folders, splits)
        notices += stray_notices(list_images(src), "outside of the splits")
    layout = f"file names like {printable(pattern.text)}"
    source = read_filenames(src, splits, pattern, options, layout=layout)
    return replace(source, notices=(*notices, *source.notices))


def has_class_folders(src: str, folders: Names) -> bool:
    """Return whether folders are classes, or splits that contain classes."""
    for name in folders:
        if name.lower() not in SPLIT_FOLDERS:
            return True
        if name.lower() in SPLIT_ALIASES and has_folders(f"{src}/{name}"):
            return True
    return False


def add_columns(source: Source, pattern: Pattern, options: SourceOptions) -> Source:
    """Add a column for each part of a pattern of the file names to a source with labels from its class folders.

    Raises:
        CallError: a part has a name that sample tables already use.
        SourceError: a file name does not match the pattern.

    """
    refuse_reserved(pattern)
    columns = read_names(source.path, pattern, source.root)
    if len(source):
        source = source.with_notices(_examples(source.path, columns))
    bare = source.with_columns(extra=pa.table({}))
    source, columns = group_files(bare, columns, options, pattern.folders)
    return _with_parts(source, columns)


def skipped_folders(folders: Names, splits: Mapping[str, str]) -> list[str]:
    """Return a message about folders that are not in `splits` (split -> folder)."""
    others = [f"{name}/" for name in folders if name not in splits.values()]
    return [f"skipped folders that are not splits: {', '.join(others)}"] if others else []


def read_filenames(
    src: str,
    splits: Mapping[str, str],
    pattern: Pattern,
    options: SourceOptions,
    *,
    layout: str,
    junk: str | None = None,
) -> Source:
    """Scan the folder of each split, and read the labels and extra columns from the file names.

    Args:
        src: the folder that paths are relative to.
        splits: the folder of each split (split -> folder).
        pattern: pattern of the file names.
        options: `label_column` and `classes` apply. By default, the classes are the labels of all
            splits in sorted order.
        layout: value of `Source.layout`.
        junk: label of the images to skip.

    Raises:
        CallError: the pattern has no part for the label.
        SourceError: a file name does not match the pattern, or a label is not in `options.classes`.

    """
    label_name = find_label(pattern, options.label_column, _LABEL_PARTS)
    source = scan_splits(src, splits, layout)
    columns = read_names(source.path, pattern, src)
    if junk is None and len(source):
        source = source.with_notices(_examples(source.path, columns))
    # Junk images are in no split.
    if junk is not None:
        keep = pc.not_equal(columns[label_name], junk)
        skipped = len(columns)
        columns = columns.filter(keep)
        source = replace(source, table=source.table.filter(keep))
        skipped -= len(columns)
        if skipped:
            source = source.with_notices(
                f"skipped {plural(skipped, 'junk image')} ({label_name} {junk})"
            )
    source, columns = group_files(source, columns, options, pattern.folders)
    text = one_array(columns[label_name])
    classes = options.classes or sorted_values(text)
    source = with_classes(source, text, replace(options, classes=classes))
    # As in tables, a label column with a specific name, such as `identity`, is also kept as an
    # extra column.
    if label_name in LABEL_COLUMN_NAMES:
        columns = columns.drop_columns(label_name)
    source = _with_parts(source, columns)
    # A part such as {age} has numbers to predict, not classes.
    if options.label_type is None and label_name.lower() in REGRESSION.column_names:
        return with_label_type(source, replace(options, label_type="regression"))
    return source


# --- Market-1501, DukeMTMC-reID, VeRi-776 ---------------------------------------------------------
# Identity and camera are the numbers in the file names (cameras count from 1). Labels number the
# identities of all splits.


@record
class ReidLayout:
    """The layout of a published dataset.

    Attributes:
        name: name of the dataset.
        splits: the folder of each split (split -> folder).
        pattern: pattern of the file names.
        junk: identity of detections that overlap a person only partly. The evaluation ignores them,
            so skipping them does not change any score.

    """

    name: str
    splits: Mapping[str, str]
    pattern: Pattern
    junk: str = "-1"


_PEOPLE = {"train": "bounding_box_train", "query": "query", "gallery": "bounding_box_test"}
_VEHICLES = {"train": "image_train", "query": "image_query", "gallery": "image_test"}

#: Market-1501: Zheng et al., ICCV 2015; DukeMTMC-reID: Zheng et al., ICCV 2017; VeRi-776: Liu et
#: al., ECCV 2016; MARS: Zheng et al., ECCV 2016.
LAYOUTS = (
    ReidLayout("Market-1501", _PEOPLE, parse_pattern("{identity}_c{camera}s*", INTEGER)),
    ReidLayout("DukeMTMC-reID", _PEOPLE, parse_pattern("{identity}_c{camera}_*", INTEGER)),
    ReidLayout("VeRi-776", _VEHICLES, parse_pattern("{identity}_c{camera}_*", INTEGER)),
    ReidLayout(
        "MARS",
        {"train": "bbox_train", "test": "bbox_test"},
        parse_pattern("{identity}C{camera}T{tracklet}F{frame}", f"(?:00-1|{INTEGER})"),
        junk="00-1",
    ),
)

#: Identity of Market-1501's distractors: detections that show no person. In the gallery, retrieving
#: one is an error.
DISTRACTORS = "0000"


def find_reid_layout(src: str, folders: Names, _: SourceOptions) -> ReidLayout | None:
    """Recognize a layout by at least two of its folders, and among layouts with the same folders by an image's name."""
    candidates = []
    for layout in LAYOUTS:
        known = [folder for folder in layout.splits.values() if folder in folders]
        if len(known) < 2:
            continue
        candidates.append(layout)
        # The first image of these folders.
        images = [image for folder in known for image in list_images(src, folder)[:1]][:1]
        if images and match_names(text_array(images), layout.pattern).null_count == 0:
            return layout
    return candidates[0] if candidates else None


def read_reid_folders(src: str, layout: ReidLayout, options: SourceOptions) -> Source:
    """Read the images of each split, with `identity` and `camera` from their file names.

    Raises:
        SourceError: a file name does not match the layout's pattern.

    """
    folders = list_folders(src)
    splits, notices = {}, []
    for split, folder in layout.splits.items():
        if folder in folders:
            splits[split] = folder
        else:
            notices.append(f"no split {split}: the folder {folder}/ does not exist")
    source = read_filenames(
        src, splits, layout.pattern, options, layout=layout.name, junk=layout.junk
    )
    notices += [*skipped_folders(folders, splits), *source.notices]
    if DISTRACTORS in source.classes:
        distractors = source.split[source.label == source.classes.index(DISTRACTORS)]
        if {source.splits[number] for number in np.unique(distractors)} == {"gallery"}:
            shown = plural(len(distractors), "distractor image")
            notices.append(f"kept {shown} (identity {DISTRACTORS}) in gallery")
    # c1 and c01 are the same camera, so these columns are always numbers.
    types = {**dict.fromkeys(source.extra.column_names, pa.int64()), CLIP: pa.large_string()}
    schema = pa.schema([(name, types[name]) for name in source.extra.column_names])
    source = source.with_columns(extra=source.extra.cast(schema))
    return replace(source, notices=tuple(notices))


# --- MSMT17 ---------------------------------------------------------------------------------------


#: The folder of the images of each split, as an index into a pair of `FOLDERS`: 0 is training, 1 is
#: test.
SPLITS = {"train": 0, "val": 0, "gallery": 1, "query": 1}
#: Names of the training and test folders: the first release, and the one with blurred faces.
FOLDERS = (("train", "test"), ("mask_train_v2", "mask_test_v2"))
#: ``0000_000_01_0303morning_0008_0``: identity, image number, camera, day and time of day.
FILE_NAMES = parse_pattern("*_*_{camera}_*", INTEGER)


def find_msmt17(src: str, folders: Names, _: SourceOptions) -> tuple[str, str] | None:
    """Return the names of the training and test folders, if all four lists are next to them."""
    pair = next((pair for pair in FOLDERS if {*pair} <= {*folders}), None)
    for split in SPLITS:
        if not storage.is_file(os.path.join(src, f"list_{split}.txt")):
            return None
    return pair


def read_msmt17(src: str, train_and_test: tuple[str, str], options: SourceOptions) -> Source:
    """Read the images of all four lists.

    The test lists contain other people than the training lists, and number them from 0 again. Their
    identities are renumbered to follow the identities of training.

    Raises:
        SourceError: a line, an identity or a file name is not valid, or an image is missing or
            listed twice.

    """
    table, locate = parse_lists([os.path.join(src, f"list_{split}.txt") for split in SPLITS])
    text, split = one_array(table["label"]), one_array(table["split"])
    wrong = pc.index(pc.match_substring_regex(text, r"^[0-9]{1,9}$"), False).as_py()
    if wrong >= 0:
        raise row_error(
            locate,
            wrong,
            f"identity {text[wrong].as_py()!r} is not a number of 1 to 9 digits",
            "write each line as `path identity`",
        )
    folders = text_array(train_and_test[number] for number in SPLITS.values())
    path = joined_paths(folders.take(split), normalize_paths(one_array(table["path"]), locate))
    # The test lists number their people from 0 again; here they follow the people of training.
    identity = np.array(text.cast(pa.int64()))
    in_test = np.array([*SPLITS.values()], bool)[split]
    first = int(identity[~in_test].max(initial=-1)) + 1
    identity[in_test] += first
    names = pc.utf8_lpad(pa.array(identity).cast(pa.large_string()), 4, "0")
    label, classes = number_labels(names, options.classes or sorted_values(names), locate)
    camera = read_names(path, FILE_NAMES, src)["camera"].cast(pa.int64())
    extra = pa.table({"identity": pa.array(identity), "camera": camera})
    train, test = train_and_test
    source = listed_source(
        src, "MSMT17", path, locate, tuple(SPLITS), label=label, split=split, extra=extra
    )
    notice = f"identities in {test}/ are renumbered from {first}, after {train}/"
    return replace(source, classes=classes).with_notices(notice)


#: Labels in file names, if `--pattern` is set.
PATTERN_KIND = Kind(
    "a folder with labels in file names (--pattern)",
    find_pattern,
    read_file_names,
    ("pattern", "label_column", "class_folders", "image_columns", "missing_images"),
    example="market/0002_c1s1.jpg",
)

#: Re-identification datasets.
KINDS = (
    Kind(
        "a folder of MSMT17",
        find_msmt17,
        read_msmt17,
        example="MSMT17_V1/train/0000/0000_000_01.jpg",
    ),
    Kind(
        "a folder of a re-identification dataset",
        find_reid_layout,
        read_reid_folders,
        example="market/bounding_box_train/0002_c1s1_000451_03.jpg",
    ),
)
