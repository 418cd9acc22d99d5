"""Several sources as one: classes, splits and columns are matched by name, and classes renamed."""

from __future__ import annotations

import csv
import os
import re
import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import combinations, pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from dataprep.containers import location_table
from dataprep.labels.class_file import read_names_file
from dataprep.labels.columns import HOT, count_numbers, named_classes, own_spelling
from dataprep.options import (
    CHANGE_COLUMNS,
    GEO_COLUMNS,
    HASH_COLUMN,
    STATISTICS_COLUMNS,
    SourceOptions,
)
from dataprep.sources.base import (
    CLIP,
    FRAME,
    Integers,
    NamedSource,
    Names,
    Source,
    Texts,
    first_names,
    join_sources,
    one_array,
    positions,
    text_array,
)
from dataprep.sources.columns import joined_columns
from dataprep.sources.scan import exact_split
from manifests.arrays import arrays_of, show_arrays
from manifests.errors import CallError, SourceError
from manifests.pixels import RGB8
from manifests.process.text import agree, plural, shown, suggest
from manifests.remote.url import absolute, is_url


def merge_sources(parts: Sequence[NamedSource]) -> Source:
    """Return one source with the samples of all parts, in order.

    Classes of the same name become one class; they are numbered in the order in which they first
    appear. Paths of local files are relative to the folder that contains all sources, so the column
    ``source`` tells where a sample came from; paths in object stores are URLs. A column that some
    parts do not have is null there.

    Raises:
        CallError: a source is given twice, or contains another one.
        SourceError: the sources have other kinds of labels or images, or classes or columns that do
            not fit.

    """
    if len(parts) == 1:
        return parts[0].source
    _check(parts)
    parts = _with_equal_types(parts)
    # Classes are matched by name, and numbered as they first appear.
    first_src, first = parts[0]
    classes = first.classes
    for src, source in parts[1:]:
        classes = extended_classes(classes, replace(source, root=src), first_src)
    sources = []
    for src, source in parts:
        notices = tuple(f"{src}: {notice}" for notice in source.notices)
        sources.append(replace(relabel(source, classes), notices=notices))
    # Local paths are relative to the folder that contains all sources.
    local = [os.path.abspath(each.root) for each in sources if not is_url(each.root)]
    root = os.path.commonpath(local) if local else first.root
    sources = _with_own_clips(sources)
    sources = _with_equal_columns([_with_root(source, root) for source in sources])
    merged = replace(
        join_sources(sources),
        root=root,
        layout=f"{len(parts)} sources",
        prepared=any(source.prepared for source in sources),
    )
    return merged.with_notices(*_notices(parts, merged))


# --- checks ---------------------------------------------------------------------------------------


def _check(parts: Sequence[NamedSource]) -> None:
    first_src, first = parts[0]
    # No image may be in two sources.
    for (other_src, other), (src, source) in combinations(parts, 2):
        if absolute(src) == absolute(other_src):
            raise CallError(f"--src {src} is given twice", hint="give each source once")
        if source.folders & other.folders:
            raise CallError(
                f"--src {src} and --src {other_src} contain the same folder",
                hint="give only the one that contains the other",
            )
    # Samples of one dataset have labels and images of one kind.
    for src, source in parts[1:]:
        if (source.pixels, source.pixels and source.kind) != (
            first.pixels,
            first.pixels and first.kind,
        ):
            raise SourceError(
                f"it stores {_stored(source)}, but {first_src} {_stored(first)}",
                file=src,
                hint="convert them from the original images, with the same --store and --raw-size",
            )
        if source.label_type != first.label_type:
            raise SourceError(
                f"it has the label type {source.label_type}, but {first_src} {first.label_type}",
                file=src,
                hint=(
                    "set --label-type, if both can have the same, or convert them into two datasets"
                ),
            )
        column = first.labels.number_column
        if column is not None:
            own, others = (count_numbers(each.extra[column]) for each in (source, first))
            if own != others:
                raise SourceError(
                    f"it has {plural(own, 'number')} for each image, but {first_src} has {others}",
                    file=src,
                    hint="convert them into two datasets, or set --label-column",
                )
        _check_images(src, source, first_src, first)


def _check_images(src: str, source: Source, first_src: str, first: Source) -> None:
    """Check that the samples of two sources have the same images."""
    if first.image_names != source.image_names:
        names = [first_names(each.image_names) or "one" for each in (source, first)]
        raise SourceError(
            f"it has the images {names[0]} in each sample, but {first_src} {names[1]}",
            file=src,
            hint="give sources with the same images, named in the same order",
        )
    # The other images of a prepared dataset are in its shards, and others are files.
    if first.labels.others and source.prepared != first.prepared:
        raise SourceError(
            f"it is a prepared dataset with {first.labels.shown_others}, and {first_src} is not, or"
            " the other way around",
            file=src,
            hint="convert both first, then merge the two datasets",
        )


def _stored(source: Source) -> str:
    if source.pixels is None:
        return "encoded images"
    kind = "" if source.kind == RGB8 else f" with {source.kind}"
    return f"raw pixels of {source.pixels[1]}x{source.pixels[0]}{kind}"


def _notices(parts: Sequence[NamedSource], merged: Source) -> Iterator[str]:
    """Report which classes the sources share, and images that more than one of them lists."""
    names = [{*used_names(part.source)} for part in parts]
    if any(names):
        counts = []
        for part, own in zip(parts, names, strict=True):
            counts.append(f"{part.src} {len(own):,}")
        shared = len(set.intersection(*names))
        total = plural(len(merged.classes), "class")
        yield f"{total}: {', '.join(counts)}; {shared:,} in all sources"
    for src, source in parts:
        # Folders, tables and archives of splits would become one training split.
        split = exact_split(os.path.splitext(os.path.basename(src.rstrip("/")))[0])
        if split not in (None, *source.splits):
            yield (
                f"{src} is called like the split {split}, but its images are in"
                f" {' and '.join(source.splits)}; if it is one, give the folder around the folders"
                " of all splits, or a table with a column split"
            )
    twice = len(merged) - pc.count_distinct(merged.path).as_py()
    if twice:
        are = agree(twice, "is", "are")
        notice = f"{plural(twice, 'image')} of the sources {are} listed more than once"
        columns = merged.table.select(["path", "label", "split"])
        counts = columns.group_by("path").aggregate(
            [("label", "count_distinct"), ("split", "count_distinct")]
        )
        for name, what in (("label", "class"), ("split", "split")):
            several = pc.sum(pc.greater(counts[f"{name}_count_distinct"], 1)).as_py()
            if several:
                notice += f"; {several:,} in more than one {what}"
        yield notice


# --- columns --------------------------------------------------------------------------------------


def _with_own_clips(sources: Sequence[Source]) -> list[Source]:
    """Return sources of which no two have a clip of the same name: frames of two clips are no clip."""
    seen: set[Any] = set()
    shared = False
    for source in sources:
        if CLIP in source.extra.column_names:
            own = set(pc.unique(source.extra[CLIP]).to_pylist()) - {None}
            shared = shared or not seen.isdisjoint(own)
            seen |= own
    if not shared:
        return [*sources]
    named = []
    for number, source in enumerate(sources):
        if CLIP not in source.extra.column_names:
            named.append(source)
            continue
        names = pc.cast(one_array(source.extra[CLIP]), pa.large_string())
        columns = {f"extra:{CLIP}": _prefixed(names, f"{number}/")}
        note = f"its clips are named {number}/..., because another source has clips of their names"
        named.append(source.with_columns(**columns).with_notices(f"{source.root}: {note}"))
    return named


def _with_root(source: Source, root: str) -> Source:
    """Return the source with paths that are relative to `root`, in all columns; its own root stays."""
    if is_url(source.root):
        # A folder of an object store contains no local output.
        source, prefix = replace(source, folders=frozenset()), f"{source.root}/"
    else:
        relative = os.path.relpath(source.root, root)
        prefix = "" if relative == "." else f"{relative}/"
    # All columns with paths: of images, of other images, and of containers.
    columns = {}
    others = [f"extra:{name}" for name in source.labels.other_sources]
    for name in ("path", *others, "location:container"):
        if name in source.table.column_names:
            columns[name] = _prefixed(one_array(source.table[name]), prefix)
    paths = _prefixed(text_array(row["source"] for row in source.rejected), prefix)
    rejected = []
    for row, path in zip(source.rejected, paths.to_pylist(), strict=True):
        rejected.append({**row, "source": path})
    return replace(source.with_columns(**columns), rejected=tuple(rejected))


def _prefixed(paths: pa.Array, prefix: str) -> pa.Array:
    """Return paths with a prefix, except absolute paths."""
    if pa.types.is_dictionary(paths.type):
        names = _prefixed(paths.dictionary, prefix)
        return pa.DictionaryArray.from_arrays(paths.indices, names)
    empty = pa.scalar("", paths.type)
    joined = pc.binary_join_element_wise(pa.scalar(prefix, paths.type), paths, empty)
    return pc.if_else(pc.match_substring_regex(paths, "^(/|[a-z0-9]+://)"), paths, joined)


def _with_equal_columns(sources: Sequence[Source]) -> list[Source]:
    """Return the sources with the columns that the merged source has, besides the extra columns."""
    parts = [{name.partition(":")[0] for name in each.table.column_names} for each in sources]
    known, common = set.union(*parts), set.intersection(*parts)
    equal = []
    first = 0
    for source in sources:
        # Stamps and sizes of images are of use only if all images have them.
        columns: dict[str, Any] = dict.fromkeys({"stamp", "measured", "copies"} - common)
        if "location" in known and source.location is None:
            none = pa.nulls(len(source), pa.large_string())
            columns["location"] = location_table(none, none)
        if "group" in known:
            # Groups have different numbers in each source. Without groups, each image is one.
            group = source.group
            group = np.arange(len(source)) if group is None else group - group.min()
            columns["group"] = group + first
            first += int(group.max()) + 1
        equal.append(source.with_columns(**columns))
    return equal


def _with_equal_types(parts: Sequence[NamedSource]) -> list[NamedSource]:
    """Return the sources with one type for each column, after checking the names of the columns."""
    has_prepared = any(part.source.prepared for part in parts)
    for src, source in parts:
        for name in source.extra.column_names:
            is_used = name in (*CHANGE_COLUMNS, HASH_COLUMN, *STATISTICS_COLUMNS, *GEO_COLUMNS)
            if is_used and has_prepared and not source.prepared:
                raise SourceError(
                    f"it has a column {name!r}, which prepared datasets use for another purpose",
                    file=src,
                    hint="rename the column of the source",
                )
    arrays = arrays_of(parts[0].source.extra)
    for src, source in parts:
        if arrays_of(source.extra) != arrays:
            raise SourceError(
                f"its arrays are {show_arrays(arrays_of(source.extra))}, but {show_arrays(arrays)} in"
                f" {parts[0].src}",
                file=src,
                hint="give every source the same arrays",
            )
    hint = "write the column with one type, or rename it in one of the sources"
    joined = joined_columns({part.src: part.source.extra for part in parts}, hint)
    made = []
    for (src, source), extra in zip(parts, joined, strict=True):
        made.append(NamedSource(src, source.with_columns(extra=extra)))
    return made


# --- class names ----------------------------------------------------------------------------------


_NUMBER = re.compile(r"[0-9]+")

#: What to do about classes that do not match.
RENAME_HINT = "rename one of them with --rename-classes FILE, lines of `old,new`"


def used_names(source: Source) -> list[str]:
    """Return the names of the classes that have samples, in label order; for masks, all names."""
    if source.labels.class_column is None:
        return [*source.classes]
    return [*map(source.classes.__getitem__, np.unique(source.class_pairs()[1]).tolist())]


def extended_classes(classes: Names, source: Source, first: str) -> Texts:
    """Return class names with the new ones of a source at the end.

    Args:
        classes: the classes that are there.
        source: the source. Classes of it without samples are left out, unless it begins
            with `classes`.
        first: where `classes` come from, for messages.

    Raises:
        SourceError: a class of the source does not fit.

    """
    names = used_names(source)
    _check_rules(classes, names, source, first)
    if source.classes[: len(classes)] == tuple(classes):
        return source.classes
    check_names(classes, names, first, source.root)
    return tuple(dict.fromkeys([*classes, *names]))


_ZEROS = re.compile("0[0-9]")

#: What the names of classes are joined by if several labels in a cell are read as one.
_JOINED = re.compile(r"\s*[;,|/+&]\s*|\s+")


def _check_rules(classes: Names, names: Names, source: Source, first: str) -> None:
    """Check that the cells of a source were read by the rule that made other classes.

    Raises:
        SourceError: lists of 0 and 1 have another length, only some numbers have leading zeros, or
            a class has the names of several others.

    """
    problem, shown = "", first
    if HOT in source.label_origin and classes and len(source.classes) != len(classes):
        count = plural(len(classes), "class")
        problem = f"has {len(source.classes)} numbers for each image, but {shown} has {count}"
    known, own = {*classes}, {*names}
    new = sorted(own - known)
    have_zeros = {*map(bool, map(_ZEROS.match, new))} - {*map(bool, map(_ZEROS.match, classes))}
    if classes and have_zeros and all(map(_NUMBER.fullmatch, [*classes, *names])):
        problem = f"has the class {new[0]}, and {shown} {classes[0]}: numbers and leading zeros mix"
    for name in (*new, *classes):
        others = own if name in known else known
        parts = _JOINED.split(name)
        if len(parts) > 1 and {*parts} <= others:
            problem = (
                f"was read by another rule than {shown}: {name} is one class in one of"
                f" them, and {' and '.join(parts[:3])} are classes in the other"
            )
    if problem:
        raise SourceError(
            f"it {problem}",
            file=source.root,
            hint=(
                "set --label-separator if a cell has several labels; else name all classes with"
                " --classes FILE, one name per line, or write the labels as in the other source"
            ),
        )


def check_names(before: Names, names: Names, first: str, second: str) -> None:
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
    are_numbers = all(map(_NUMBER.fullmatch, before))
    if names and are_numbers != all(map(_NUMBER.fullmatch, names)):
        numbers, number, named, name = second, names[0], first, before[0]
        if are_numbers:
            numbers, number, named, name = first, before[0], second, names[0]
        raise SourceError(
            f"the classes are numbers, such as {number}, but those of {named} have"
            f" names, such as {name}",
            file=numbers,
            hint=(
                "name them with --classes FILE, one name per line in label order, or with"
                " --rename-classes FILE, lines of `0,name`"
            ),
        )
    # A class that differs in case, spaces, _ or - only is most likely the same one.
    known = {_plain(name): name for name in before}
    for name in names:
        almost = known.get(_plain(name), name)
        if almost != name and name not in before:
            raise SourceError(
                f"class {name} is almost the class {almost} of {first}",
                file=second,
                hint=(
                    f"if both are one class, {RENAME_HINT}; else list all names with --classes FILE"
                ),
            )


#: What file managers add to the name of a copy.
_COPY = re.compile(r"( -)? \(?(copy|kopie|copie|copia)( \d+)?\)?$| \(\d{1,2}\)$", re.IGNORECASE)


def _plain(name: str) -> str:
    """Return a name without what people and programs write in different ways."""
    # NFKC has one form for full-width letters, too; marks of no width are invisible.
    name = _COPY.sub("", unicodedata.normalize("NFKC", name))
    return re.sub(r"[\s_\-\u200b-\u200f\u2060\ufeff]+", "", name).casefold()


def relabel(source: Source, classes: Texts) -> Source:
    """Return a source whose labels number `classes`, which contain the names of all its samples.

    Raises:
        SourceError: the pixels of its masks would have to be changed.

    """
    if source.classes == classes:
        return source
    numbers = positions(classes)
    # The new number of each label; -1 for classes without samples.
    mapping = np.array([numbers.get(name, -1) for name in source.classes], np.int32)
    kind, column = source.labels, source.labels.class_lists
    are_pixels = kind.names_classes and kind.class_column is None
    if are_pixels and not np.array_equal(mapping, np.arange(len(mapping))):
        raise SourceError(
            f"its masks have the classes {first_names(source.classes)}, and others would be"
            f" {first_names(classes)}: the pixels of masks are not changed",
            file=source.root,
            hint=(
                "begin --classes with these names, in this order; give sources whose masks number"
                " the same classes alike"
            ),
        )
    if column is not None:
        lists = kind.renumber(source.extra[column], mapping)
        source = source.with_columns(**{f"extra:{column}": lists})
    elif kind.is_class:
        source = source.with_columns(label=mapping[source.label])
    return replace(source, classes=classes)


# --- rename ---------------------------------------------------------------------------------------


def read_renames(file: str) -> dict[str, str]:
    """Read a table of class names to rename: lines of the old name, a comma or a tab, and the new name.

    Raises:
        CallError: the file cannot be read.
        SourceError: a line is malformed, or repeats a name.

    """
    hint = "give a UTF-8 text file with lines of `old,new`"
    text = read_names_file(file, "--rename-classes", hint)
    renames = {}
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip():
            continue
        # Names may contain commas if tabs separate them.
        delimiter = "\t" if "\t" in line else ","
        # In double quotes, blanks around a name count.
        row = next(csv.reader([line], delimiter=delimiter, skipinitialspace=True))
        row = [name if f'"{name}"' in line else name.strip() for name in row]
        if len(row) != 2 or not all(row):
            raise SourceError(
                f"the line must be two class names, not {line[:80]}",
                file=file,
                line=number,
                hint="write the old name, a comma, and the new name",
            )
        old, new = row
        if old in renames:
            raise SourceError(
                f"class {old} is renamed twice",
                file=file,
                line=number,
                hint="list each old name once",
            )
        renames[old] = new
    return renames


def rename_classes(
    parts: Sequence[NamedSource], renames: Mapping[str, str], options: SourceOptions
) -> list[NamedSource]:
    """Rename classes of some sources. Classes that get the same name become one class.

    Args:
        parts: the sources.
        renames: what `read_renames` returned.
        options: the classes are numbered by `classes`, if given.

    Raises:
        SourceError: no source has a class of an old name, or `classes` lacks a new name.

    """
    known = set().union(*(part.source.classes for part in parts))
    renames = {own_spelling(name, known): new for name, new in renames.items()}
    for name in renames:
        if name not in known:
            raise SourceError(
                f"no source has a class {name}",
                file=options.rename_classes,
                hint=suggest(name, sorted(known)),
            )
    renamed = []
    for src, source in parts:
        # Two names that become one get one label.
        names = tuple(renames.get(name, name) for name in source.classes)
        own = relabel(replace(source, classes=names), tuple(dict.fromkeys(names)))
        classes = own.classes
        if options.classes:
            classes = named_classes(options.classes, used_names(own))
        for name in used_names(own):
            if name not in classes:
                raise SourceError(
                    f"class {name} is not in --classes",
                    file=src,
                    hint="add it to the class names, or rename it",
                )
        renamed.append(NamedSource(src, relabel(own, classes)))
    return renamed


# --- notices --------------------------------------------------------------------------------------


#: A source of so many images, each with a class of its own, most likely has no classes.
_MANY_CLASSES = 10


def clip_notices(source: Source) -> Iterator[str]:
    """Report a clip with two frames of one number, which `loaders.ClipSampler` refuses."""
    clips = source.clips()
    if clips is None or not pa.types.is_integer(source.extra[FRAME].type):
        return
    frames = source.extra[FRAME].combine_chunks()
    filled = np.flatnonzero(frames.is_valid())
    clip, number = clips[filled], np.asarray(frames.drop_null()).astype(np.int64)
    order = np.lexsort((number, clip))
    is_same = (np.diff(clip[order]) == 0) & (np.diff(number[order]) == 0)
    twice = np.flatnonzero(is_same)
    if len(twice):
        first, second = filled[order[twice[0] : twice[0] + 2]].tolist()
        yield (
            f"clip {shown(source.extra[CLIP][first].as_py())} has the frame number"
            f" {frames[first]} twice, and {plural(len(twice), 'frame')} in all"
            f" {agree(len(twice), 'repeats', 'repeat')} a number, which loaders.ClipSampler"
            f" refuses: {first_names([source.path[row].as_py() for row in (first, second)])}"
        )


def class_notices(source: Source) -> Iterator[str]:
    """Report names that are almost equal, classes without samples, and classes in some splits only."""
    yield from _name_notices(source.classes)
    if not source.labels.is_class:
        return
    counts = np.zeros((len(source.splits), len(source.classes)), np.int64)
    np.add.at(counts, (source.split, source.label), 1)
    # The samples of each class in all splits.
    total = counts.sum(axis=0)
    used = int(np.count_nonzero(total))
    if used == len(source) >= _MANY_CLASSES:
        yield (
            f"each of the {plural(used, 'image')} has a class of its own; if the labels are not"
            " classes, set --label-type regression, caption or none"
        )
    if len(total) == 1:
        yield (
            f"there is one class, {source.classes[0]}; if the images have no labels, set"
            " --label-type none"
        )
    empty = np.flatnonzero(total == 0)
    if len(empty):
        have = agree(len(empty), "has", "have")
        of = f"{len(empty):,} of {plural(len(total), 'class')}"
        yield f"{of} {have} no images: {_first_names(source, empty)}"
    if {"query", "gallery"} & {*source.splits}:
        yield _identity_notice(source, counts > 0)
    elif len(counts) > 1:
        for split, own in zip(source.splits, counts, strict=True):
            only = np.flatnonzero((own > 0) & (own == total))
            if len(only):
                yield f"{plural(len(only), 'class')} only in {split}: {_first_names(source, only)}"


def _name_notices(names: Texts) -> Iterator[str]:
    """Report names that are almost equal, blanks around names, and the order of numbers.

    Almost equal names differ in case, spaces, ``_``, ``-`` or Unicode form only.
    """
    alike: dict[str, list[str]] = {}
    for name in names:
        alike.setdefault(_plain(name), []).append(name)
    twins = []
    for same in alike.values():
        if len(same) > 1:
            # Names in different Unicode forms look the same.
            forms = {unicodedata.normalize("NFC", name) for name in same}
            twins.append(" and ".join(map(repr if len(forms) == len(same) else ascii, same)))
    # A cell after a comma and a blank begins with the blank.
    padded = [name for name in names if name != name.strip()]
    if twins:
        yield (
            f"{plural(len(twins), 'group')} of classes with almost the same name:"
            f" {first_names(twins, 3)}; if they are one class, {RENAME_HINT}"
        )
    elif padded:
        begin = agree(len(padded), "begins or ends", "begin or end")
        line = f"{padded[0].strip()},{padded[0].strip()}"
        yield (
            f"{plural(len(padded), 'class name')} {begin} with a blank: {padded[0]!r}, for example;"
            f" --rename-classes FILE removes the blanks with lines such as `{line}`"
        )
    if all(map(_NUMBER.fullmatch, names)) and [*names] != sorted(names, key=int):
        first, second = next(pair for pair in pairwise(names) if int(pair[0]) > int(pair[1]))
        yield (
            f"the classes are numbers in the order of text: {first} is before {second}, as in"
            " torchvision; for another order or for names, set --classes FILE"
        )


def _identity_notice(source: Source, has_class: NDArray[np.bool_]) -> str:
    """Report the number of classes in each split; train shares no class with query and gallery.

    Args:
        source: the samples.
        has_class: bool [splits, classes], whether the split has samples of the class.

    """
    splits = source.splits
    counts = []
    for split, own in zip(splits, has_class, strict=True):
        counts.append(f"{split} {int(own.sum()):,}")
    notice = f"classes: {', '.join(counts)}"
    if "train" not in splits:
        return notice
    others = sorted({"query", "gallery"} & {*splits}, reverse=True)
    in_others = has_class[[*map(splits.index, others)]].any(axis=0)
    shared = np.flatnonzero(has_class[splits.index("train")] & in_others)
    names = " and ".join(others)
    if not len(shared):
        return f"{notice}; train shares no classes with {names}"
    number = plural(len(shared), "class")
    return f"{notice}; train shares {number} with {names}: {_first_names(source, shared)}"


def _first_names(source: Source, labels: Integers) -> str:
    return first_names([*map(source.classes.__getitem__, labels[:6].tolist())])
