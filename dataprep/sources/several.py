"""Several images in a sample: columns of a table, or files that ``--pattern`` groups by ``{image}``.

A source is about the first image of each sample. A column for each other one has its path, which is
null for a sample without it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dataprep.options import SourceOptions
from dataprep.sources.base import Integers, Source, Texts, one_array, take_rows
from manifests.errors import CallError, SourceError
from manifests.json_members import shorten
from manifests.labels import IMAGE_SUFFIX, find_wrong_name
from manifests.process.text import agree, plural

#: The part of a pattern that names the image of a sample.
IMAGE = "image"

#: What to do about a sample without an image.
MISSING_HINT = "add the image, remove the sample, or keep such samples with --missing-images valid"

#: What takes the place of a part of a file name in a key: no file name has it.
_SEPARATOR = "\0"

#: Odd, so that numbers that differ still differ when they are multiplied by it, modulo 2**64.
_FACTOR = 0x2545F4914F6CDD1D


def image_names(options: SourceOptions) -> Texts:
    """Return the columns that ``--image-columns`` names; none without it.

    Raises:
        CallError: a name cannot be the name of an image.

    """
    if options.image_columns is None:
        return ()
    names = tuple(map(str.strip, options.image_columns.split(",")))
    if wrong := find_wrong_name(names):
        raise CallError(
            f"--image-columns {options.image_columns}: {wrong}",
            hint="rename the columns of the source, for example to left and right",
        )
    if options.path_column not in (None, names[0]):
        raise CallError(
            f"--path-column {options.path_column} and --image-columns name different columns",
            hint="leave out --path-column: the first column of --image-columns is the first image",
        )
    return names


def with_images(
    source: Source, names: Texts, paths: Mapping[str, pa.Array], stats: Mapping[str, Integers]
) -> Source:
    """Return a source whose samples have more images than the first one.

    Args:
        source: the first images.
        names: names of the images, the first image first.
        paths: the paths of each other image, text [n]; null for a sample without it.
        stats: numbers that change with the file of each other image, int64 [n, 3], if they are
            known.

    Raises:
        SourceError: the source has a column that sample tables use for an image.

    """
    columns, stamp, notices = {}, source.stamp, []
    for name in names[1:]:
        columns[f"{name}{IMAGE_SUFFIX}"] = paths[name].cast(pa.string())
        if name in stats and stamp is not None:
            # A stamp changes with each file of a sample.
            own = stats[name]
            stamp = stamp + _FACTOR * (own[:, 1:] + _FACTOR * own[:, :1])
        if missing := paths[name].null_count:
            notices.append(
                f"{plural(missing, 'sample')} {agree(missing, 'has', 'have')} no image {name}"
            )
    used = {*columns, *replace(source, image_names=names).labels.image_columns}
    for name in source.extra.column_names:
        if name in used:
            raise SourceError(
                f"it has a column {name!r}, which sample tables use for an image",
                file=source.root,
                hint="rename the column of the source",
            )
    extra = dict(zip(source.extra.column_names, source.extra.columns, strict=True))
    notices.insert(0, f"the images of each sample, in this order: {', '.join(names)}")
    source = source.with_columns(extra=pa.table({**extra, **columns}), stamp=stamp)
    return replace(source, image_names=names).with_notices(*notices)


def group_files(
    source: Source, columns: pa.Table, options: SourceOptions, folders: int
) -> tuple[Source, pa.Table]:
    """Return a sample for the files whose names differ only in ``{image}``, and the other parts.

    Args:
        source: all files.
        folders: folders that the pattern matches; files of a sample have the same ones above them.
        columns: the parts of their names, text [n].
        options: `image_columns` names the images in order; by default, names are sorted.

    Raises:
        CallError: a name cannot be the name of an image.
        SourceError: two files are one image of a sample, or a sample lacks an image.

    """
    if IMAGE not in columns.column_names:
        return source, columns
    image = one_array(columns[IMAGE])
    found = tuple(sorted(pc.unique(image).to_pylist()))
    names = image_names(options) or found
    if wrong := find_wrong_name(found):
        raise CallError(
            f"--pattern {options.pattern}: {{image}} is the name of an image in a sample, but {wrong}",
            hint="call the part {number} if each file is a sample",
        )
    if {*names} != {*found}:
        raise CallError(
            f"--image-columns {options.image_columns}: {{image}} of --pattern is {', '.join(found)}",
            hint="name all of them, the first image first",
        )
    columns = columns.drop_columns(IMAGE)
    folder = pc.replace_substring_regex(source.path, "[^/]*/" * folders + "[^/]*$", "")
    parts = [folder, *map(one_array, columns.columns)]
    key = pc.binary_join_element_wise(*parts, pa.scalar(_SEPARATOR, pa.large_string()))
    group = np.asarray(key.dictionary_encode().indices).astype(np.int64)
    rows = {}
    for name in names:
        own = np.flatnonzero(np.asarray(pc.equal(image, name)))
        rows[name] = np.full(int(group.max()) + 1, -1, np.int64)
        rows[name][group[own]] = own
        twice = own[rows[name][group[own]] != own]
        if len(twice):
            one, other = (
                source.path[row] for row in (int(twice[0]), int(rows[name][group[twice[0]]]))
            )
            raise SourceError(
                f"{one} and {other} are both the image {name} of a sample",
                file=source.root,
                hint="give --pattern a part for what tells the samples apart, such as {key}",
            )
    for name in names:
        missing = np.flatnonzero(rows[name] < 0)
        if len(missing) and (name == names[0] or options.missing_images is None):
            other = next(rows[each][missing[0]] for each in names if rows[each][missing[0]] >= 0)
            hint = MISSING_HINT
            if name == names[0]:
                hint = "add the image, or name another image first in --image-columns"
            raise SourceError(
                f"{plural(len(missing), 'sample')} {agree(len(missing), 'has', 'have')} no image"
                f" {name}: {shorten(source.path[int(other)].as_py(), 300)} has none beside it",
                file=source.root,
                hint=hint,
            )
    first, paths, stats = rows[names[0]], {}, {}
    every = np.column_stack(
        [
            source.size,
            np.zeros((len(source), 2), np.int64) if source.stamp is None else source.stamp,
        ]
    )
    for name in names[1:]:
        has = rows[name] >= 0
        paths[name] = source.path.take(pa.array(rows[name], mask=~has))
        stats[name] = every[rows[name]] * has[:, None]
    taken = take_rows(source, first)
    return with_images(taken, names, paths, stats), columns.take(pa.array(first))
