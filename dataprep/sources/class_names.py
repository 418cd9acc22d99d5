"""Number the classes of a source as a dataset does, match the classes of several sources, and rename classes."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from dataprep.labels.columns import Lists
from dataprep.sources.base import Source
from manifests.errors import CallError, SourceError
from manifests.files import CLASS_NAMES, read_file
from manifests.labels import CLASS_COLUMNS, LabelType, arrow_type
from manifests.process.text import agree, plural, printable, suggest

_NUMBER = re.compile(r"[0-9]+")

#: What to do about classes that do not match.
RENAME_HINT = "rename one of them with --rename-classes FILE, lines of `old,new`"


def used_classes(source: Source) -> NDArray[np.int64]:
    """Return the labels of the classes that have samples, ascending, int64 [N].

    For masks, all labels.
    """
    column = CLASS_COLUMNS.get(source.label_type)
    if column is not None:
        return np.unique(np.asarray(pc.list_flatten(source.extra[column]))).astype(np.int64)
    if source.label_type != "class":
        return np.arange(len(source.classes))
    return np.unique(source.label).astype(np.int64)


def extended_classes(classes: Sequence[str], source: Source, first: str) -> tuple[str, ...]:
    """Return class names with the new ones of a source at the end.

    Args:
        classes: the classes that are there.
        source: the source. Of its classes, those without samples are left out, unless it begins
            with `classes`.
        first: where `classes` come from, for messages.

    Raises:
        SourceError: a class of the source does not fit.

    """
    if source.classes[: len(classes)] == tuple(classes):
        return source.classes
    names = [source.classes[label] for label in used_classes(source).tolist()]
    check_names(classes, names, first, source.root)
    return tuple(dict.fromkeys([*classes, *names]))


def check_names(before: Sequence[str], names: Sequence[str], first: str, second: str) -> None:
    """Check that the classes of two sources can be matched by name.

    Args:
        before: class names of the first source.
        names: class names of the second source.
        first: the first source, for messages.
        second: the second one.

    Raises:
        SourceError: only one of them has names, or two names differ only in case, spaces, ``_`` or
            ``-``.

    """
    numbered = [all(map(_NUMBER.fullmatch, each)) for each in (before, names)]
    if before and names and numbered[0] != numbered[1]:
        numbers, named = (first, second) if numbered[0] else (second, first)
        number, name = (before[0], names[0]) if numbered[0] else (names[0], before[0])
        raise SourceError(
            f"the classes are numbers, such as {number}, but those of {printable(named)} have"
            f" names, such as {printable(name)}",
            file=numbers,
            hint=(
                "name them with --classes FILE, one name per line in label order, or with"
                " --rename-classes FILE, lines of `0,name`"
            ),
        )
    known = {_plain(name): name for name in before}
    for name in names:
        other = known.get(_plain(name), name)
        if other != name and name not in before:
            raise SourceError(
                f"class {printable(name)} is almost the class {printable(other)} of"
                f" {printable(first)}",
                file=second,
                hint=(
                    f"if both are one class, {RENAME_HINT}; else list all names with --classes FILE"
                ),
            )


def _plain(name: str) -> str:
    return re.sub(r"[\s_-]+", "", name).casefold()


def relabel(source: Source, classes: tuple[str, ...]) -> Source:
    """Return a source whose labels number `classes`, which contain the names of all its samples.

    Raises:
        SourceError: the pixels of its masks would have to be changed.

    """
    if source.classes == classes:
        return source
    numbers = {name: number for number, name in enumerate(classes)}
    mapping = np.array([numbers.get(name, -1) for name in source.classes], np.int32)
    column = CLASS_COLUMNS.get(source.label_type)
    if source.label_type == "mask" and not np.array_equal(mapping, np.arange(len(mapping))):
        raise SourceError(
            "its classes have other numbers than those of the first source, and the pixels of masks"
            " are not changed",
            file=source.root,
            hint="give sources whose masks number the same classes alike",
        )
    if column is None:
        label = mapping[source.label] if source.label_type == "class" else source.label
        return replace(source, classes=classes, label=label)
    lists = relabel_lists(source.extra[column].combine_chunks(), mapping, source.label_type)
    place = source.extra.column_names.index(column)
    return replace(source, classes=classes, extra=source.extra.set_column(place, column, lists))


def relabel_lists(column: pa.Array, mapping: NDArray[np.int32], label_type: LabelType) -> pa.Array:
    """Return a column with the classes of samples in another numbering.

    Args:
        column: lists of labels, [n].
        mapping: the new label of each label, int32 [classes]. Several may become one.
        label_type: several classes are sorted, and each is there once; those of boxes keep their
            places.

    """
    new = Lists(
        pa.array(mapping[np.asarray(pc.list_flatten(column))], pa.int64()), _lengths(column)
    )
    if label_type == "multi-label":
        new = new.sorted_unique(np.asarray(new.values).astype(np.int32))
    return new.as_array(arrow_type("integers"))


def _lengths(column: pa.Array) -> NDArray[np.int64]:
    return np.asarray(pc.list_value_length(column)).astype(np.int64)


# --- rename ---------------------------------------------------------------------------------------


def read_renames(file: str) -> dict[str, str]:
    """Read a table of class names to rename: lines of the old name, a comma or a tab, and the new name.

    Raises:
        CallError: the file cannot be read.
        SourceError: a line is malformed, or repeats a name.

    """
    try:
        text = read_file(file, CLASS_NAMES).decode("utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or error
        raise CallError(
            f"--rename-classes {file} cannot be read: {reason}",
            hint="give a UTF-8 text file with lines of `old,new`",
        ) from None
    lines = text.splitlines()
    renames: dict[str, str] = {}
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        row = next(csv.reader([line], delimiter="\t" if "\t" in line else ","))
        old, new = [each.strip() for each in row] if len(row) == 2 else ("", "")
        if not old or not new:
            message = f"the line must be two class names, not {printable(line[:80])}"
            raise SourceError(
                message,
                file=file,
                line=number,
                hint="write the old name, a comma, and the new name",
            )
        if old in renames:
            message = f"class {printable(old)} is renamed twice"
            raise SourceError(message, file=file, line=number, hint="list each old name once")
        renames[old] = new
    return renames


def rename_classes(
    sources: Sequence[Source], renames: Mapping[str, str], file: str
) -> list[Source]:
    """Rename classes of some sources. Classes that get the same name become one class.

    Raises:
        SourceError: no source has a class of an old name.

    """
    known = {name for source in sources for name in source.classes}
    for name in renames:
        if name not in known:
            message = f"no source has a class {printable(name)}"
            raise SourceError(message, file=file, hint=suggest(name, sorted(known)))
    return [_rename(source, renames) for source in sources]


def _rename(source: Source, renames: Mapping[str, str]) -> Source:
    names = [renames.get(name, name) for name in source.classes]
    renamed = replace(source, classes=tuple(names))
    return relabel(renamed, tuple(dict.fromkeys(names)))


# --- notices ----------------------------------------------------------------------------------------


#: A source of so many images, each with a class of its own, most likely has no classes.
_MANY_CLASSES = 10


def class_notices(source: Source) -> Iterator[str]:
    """Report classes without samples, and classes that are only in some splits."""
    if source.label_type != "class":
        return
    used = len(np.unique(source.label))
    if used == len(source) >= _MANY_CLASSES:
        yield (
            f"each of the {plural(used, 'image')} has a class of its own; if the labels are not"
            " classes, set --label-type regression or caption, or --unlabelled"
        )
    counts = np.zeros((len(source.splits), len(source.classes)), np.int64)
    np.add.at(counts, (source.split, source.label), 1)
    empty = np.flatnonzero(counts.sum(0) == 0)
    if len(empty):
        have = agree(len(empty), "has", "have")
        of = f"{len(empty):,} of {plural(len(source.classes), 'class')}"
        yield f"{of} {have} no images: {_first_names(source, empty)}"
    if {"query", "gallery"} & {*source.splits}:
        yield _identity_notice(source, counts > 0)
        return
    for number, split in enumerate(source.splits):
        if len(source.splits) > 1:
            only = np.flatnonzero((counts[number] > 0) & (counts.sum(0) == counts[number]))
            if len(only):
                yield f"{plural(len(only), 'class')} only in {split}: {_first_names(source, only)}"


def _identity_notice(source: Source, has_class: NDArray[np.bool_]) -> str:
    """Report the number of classes in each split.

    For re-identification, train shares no class with the other splits.

    Args:
        source: the samples.
        has_class: bool [splits, classes], whether the split has samples of the class.

    """
    per_split = ", ".join(
        f"{split} {count:,}"
        for split, count in zip(source.splits, has_class.sum(1).tolist(), strict=True)
    )
    if "train" not in source.splits:
        return f"classes: {per_split}"
    others = [split for split in ("query", "gallery") if split in source.splits]
    in_others = has_class[[source.splits.index(split) for split in others]].any(0)
    shared = np.flatnonzero(has_class[source.splits.index("train")] & in_others)
    number = plural(len(shared), "class") if len(shared) else "no classes"
    names = f": {_first_names(source, shared)}" if len(shared) else ""
    return f"classes: {per_split}; train shares {number} with {' and '.join(others)}{names}"


def _first_names(source: Source, labels: Iterable[int]) -> str:
    shown = [printable(source.classes[label]) for label in list(labels)[:5]]
    return ", ".join(shown) + (", ..." if len(list(labels)) > 5 else "")
