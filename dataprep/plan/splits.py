"""Which samples of a source a dataset has, and in which split: pure functions, which open no image.

A filter keeps samples. Val and test are taken out of train: stratified by label, or in whole
groups. Random orders stay the same with every release of NumPy: all random numbers come from the raw
64-bit output of PCG64, which NumPy guarantees not to change.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from dataprep.arrays import BoolArray, Int32Array, Int64Array
from dataprep.options import BY_DUPLICATES, Options
from dataprep.sources.base import (
    CLIP,
    LABEL_COLUMN_NAMES,
    Source,
    first_names,
    take_rows,
    text_array,
)
from manifests.errors import CallError
from manifests.filters import EXAMPLE, filter_columns, matching_rows
from manifests.process.text import plural, shown, suggest
from manifests.records import record
from manifests.schema import COLUMN_PREFIX, SPLIT_NAMES

Result = TypeVar("Result")

#: Here, labels are names.
_HINT = "write a condition over columns, for example \"size >= 1000 and label != 'cat'\""

#: Columns that only a prepared dataset has before its images are opened.
_MEASURED = ("width", "height")


def matching_samples(source: Source, where: str) -> BoolArray:
    """Return which samples match a filter, bool [n]; see `filter_source`."""
    columns = _columns(source)
    names = _of_option(filter_columns, where)
    used = {}
    # A table needs a column for its number of rows.
    for name in names or ["size"]:
        column = _column_of(name, columns)
        used[column] = _column(source, column)
    return _of_option(matching_rows, where, pa.table(used))


def filter_source(source: Source, where: str) -> Source:
    """Return a source with the samples that match a filter.

    Classes keep their labels, also classes without samples.

    Args:
        source: the samples.
        where: the condition of a SQL ``WHERE`` clause over the columns ``path``, ``label`` (the
            name of the class, if the labels are classes), ``split`` and ``size``, the extra
            columns, and ``width`` and ``height`` of a prepared dataset.

    Raises:
        CallError: the filter cannot be used, names a column that the source does not have, or
            matches no sample.

    """
    rows = np.flatnonzero(matching_samples(source, where))
    if not len(rows):
        raise CallError(
            f"--where {shown(where)} matches none of {plural(len(source), 'image')}",
            hint="check the filter",
        )
    left = len(np.unique(source.label[rows]))
    notices = [f"--where: {len(rows):,} of {plural(len(source), 'image')} match"]
    if lost := len(np.unique(source.label)) - left:
        notices.append(f"--where: no image of {plural(lost, 'class')} matches")
    return replace(take_rows(source, rows), notices=(*source.notices, *notices))


def _of_option(apply: Callable[..., Result], *arguments: object) -> Result:
    """Apply a filter; errors name the option."""
    try:
        return apply(*arguments)
    except CallError as error:
        message, hint = f"--where: {error.message}", error.hint
        if error.message.startswith("where "):
            message = f"--{error.message}"
        if hint == EXAMPLE:
            hint = _HINT
        raise CallError(message, hint=hint) from None


def _columns(source: Source) -> list[str]:
    """Return the names of the columns of a filter."""
    names = ["path", "label", "split", "size"]
    if not source.labels.is_class:
        names.remove("label")
    if source.measured is not None:
        names += source.measured.column_names
    return [*dict.fromkeys([*names, *source.extra.column_names])]


def _column(source: Source, name: str) -> pa.Array | pa.ChunkedArray:
    if name == "label" and source.labels.is_class:
        return text_array(source.classes).take(pa.array(source.label))
    if name == "split":
        return text_array(source.splits).take(pa.array(source.split))
    if name in ("path", "size"):
        return source.table[name]
    if source.measured is not None and name in source.measured.column_names:
        return source.measured[name]
    return source.extra[name]


def _column_of(name: str, columns: Sequence[str]) -> str:
    """Return the column that a name stands for.

    As in SQL, case does not matter, unless only it tells columns apart.
    """
    if name in columns:
        return name
    alike = _alike(name, columns)
    if not alike:
        raise _unknown(name, columns)
    if len(alike) > 1:
        raise CallError(
            f"--where: {shown(name)} may be the column {' or '.join(map(shown, alike))}",
            hint="write the name as the column has it",
        )
    return alike[0]


def _alike(name: str, columns: Sequence[str]) -> list[str]:
    """Return the columns that differ from a name only by case."""
    return [each for each in columns if each.lower() == name.lower()]


def _unknown(name: str, columns: Sequence[str]) -> CallError:
    message = f"--where: the source has no column {shown(name)}"
    hint = suggest(name, columns)
    own = _alike(f"{COLUMN_PREFIX}{name}", columns)
    if own:
        message = (
            f"--where: the column {shown(name)} of the source is called {shown(own[0])} in shards"
            " and filters"
        )
        hint = f'write "{own[0]}", in double quotes'
    elif name.lower() in _MEASURED:
        message = f"--where: the {name} of images is not known before they are opened"
        hint = "convert the source without --where first, then convert that dataset with it"
    return CallError(message, hint=hint)


# --- random numbers -------------------------------------------------------------------------------


# Second number of the seed of each kind of order, so they use separate random streams.
SPLIT_STREAM, ORDER_STREAM = 1, 2


def permutation(count: int, *stream: int) -> Int64Array:
    """Return a random order of `count` elements, int64 [count].

    The seed and the stream determine it.
    """
    draws = np.random.PCG64(np.random.SeedSequence(stream)).random_raw(count)
    return np.argsort(np.asarray(draws, np.uint64).reshape(-1), kind="stable")


# --- val and test ---------------------------------------------------------------------------------


#: Third number of the seed of the order of the classes. The order of the samples has no third
#: number.
_CLASSES = 1_000


@record
class Splits:
    """The split of every sample.

    Attributes:
        names: names of the splits, in order.
        index: index of the split of each sample, int8 [N].
        notices: messages for the user, one line each.

    """

    names: tuple[str, ...]
    index: NDArray[np.int8]
    notices: tuple[str, ...] = ()


class EmptySplitError(CallError):
    """There are too few images, or groups of them, for a new split."""


def assign_splits(source: Source, options: Options) -> Splits:
    """Move the fractions `val_fraction` and `test_fraction` of train to new splits.

    Raises:
        CallError: the source already has such a split or has no train, a split would be empty, or
            `split_by` does not fit the source.

    """
    fractions = {"val": options.val_fraction, "test": options.test_fraction}
    new = {name: fraction for name, fraction in fractions.items() if fraction}
    if not new:
        if options.split_by and options.duplicates != "same-split":
            raise CallError(
                "--split-by requires --val-fraction or --test-fraction",
                hint="set the fraction of train that goes to val",
            )
        return Splits(source.splits, source.split)
    for name in new:
        hint = f"leave out --{name}-fraction"
        if name in source.splits:
            raise CallError(
                f"--{name}-fraction: the source already has a {name} split",
                hint=f"{hint}, or convert train alone with --where \"split = 'train'\"",
            )
        if "train" not in source.splits:
            raise CallError(
                f"--{name}-fraction: the source has no train split to take images from", hint=hint
            )
    train = np.flatnonzero(source.split == source.splits.index("train"))
    counts = {name: round(fraction * len(train)) for name, fraction in new.items()}
    chosen, split_by = _choose(source, train, options, counts, new)
    # Splits are listed as train, val, test, then the others.
    others = [*new, *(name for name in source.splits if name != "train")]
    ranks = dict(zip(SPLIT_NAMES, range(len(SPLIT_NAMES)), strict=True))
    names = ("train", *sorted(others, key=lambda name: ranks.get(name, len(ranks))))
    index = np.array([*map(names.index, source.splits)], np.int8)[source.split]
    for name, positions in chosen.items():
        index[train[positions]] = names.index(name)
    _check_clips(source, index)
    counts_of = {}
    for name in ("train", *new):
        counts_of[name] = _count_labels(source, index == names.index(name))
    return Splits(names, index, tuple(_notices(source, counts_of, split_by)))


def _choose(
    source: Source,
    train: Int64Array,
    options: Options,
    counts: Mapping[str, int],
    fractions: Mapping[str, float],
) -> tuple[dict[str, Int64Array], str | None]:
    """Return the chosen positions of each new split, and the column whose groups stay together, if any."""
    if options.duplicates == "same-split" or options.split_by == BY_DUPLICATES:
        return _choose_copies(source, train, options, counts), None
    if options.split_by:
        column = _split_column(source, options.split_by)
        return _choose_groups(column, train, options, counts), options.split_by
    clips = source.clips()
    if clips is not None:
        return _choose_stratified_groups(source, clips, train, options, counts), None
    _check_counts(len(train), fractions, counts)
    return _choose_stratified(_strata(source)[train], options.seed, counts), None


def _count_labels(source: Source, chosen: BoolArray) -> Int64Array:
    """Return the number of labels of each class that some samples have, int64 [classes]."""
    labels = source.label[chosen]
    if source.labels.class_lists:
        of_row, every = source.class_pairs()
        labels = every[chosen[of_row]].astype(np.int32)
    return np.bincount(labels, minlength=len(source.classes))


def _check_counts(images: int, fractions: Mapping[str, float], counts: Mapping[str, int]) -> None:
    if min(counts.values()) < 1 or sum(counts.values()) >= images:
        given = " and ".join(
            f"--{name}-fraction {fraction:g}" for name, fraction in fractions.items()
        )
        raise EmptySplitError(
            f"{given} of {plural(images, 'image')} leaves a split empty",
            hint="choose a fraction that gives every split at least one image",
        )


# --- stratified by label ------------------------------------------------------------------------


def _choose_stratified(
    label: Int32Array, seed: int, counts: Mapping[str, int]
) -> dict[str, Int64Array]:
    """Choose samples at random so that each class gives every split its share, rounded up or down.

    Args:
        label: labels of the samples, int32 [N].
        seed: seed of the random order.
        counts: number of samples of each new split.

    Returns:
        The chosen positions of each split.

    """
    per_class = np.bincount(label).astype(np.int64)
    order = permutation(len(label), seed, SPLIT_STREAM)
    by_class = order[np.argsort(label[order], kind="stable")]  # each class in random order
    # The position of each sample among the samples of its class.
    first = np.cumsum(per_class) - per_class
    rank = np.arange(len(label)) - first[label[by_class]]
    taken = np.zeros_like(per_class)
    chosen = {}
    for number, (name, count) in enumerate(counts.items()):
        ties = permutation(len(per_class), seed, SPLIT_STREAM, _CLASSES + number)
        share = _share(per_class, per_class - taken, count, ties)[label[by_class]]
        before = taken[label[by_class]]
        chosen[name] = by_class[(before <= rank) & (rank < before + share)]
        taken = taken + np.bincount(label[chosen[name]], minlength=len(per_class))
    return chosen


def _share(per_class: Int64Array, left: Int64Array, count: int, ties: Int64Array) -> Int64Array:
    """Divide `count` samples among the classes in proportion to their size, by largest remainders; int64 [classes].

    A class without any comes first, and a class keeps its last sample for train as long as others
    have more.

    Args:
        per_class: number of samples of each class.
        left: number of them that are not in another split.
        count: number of samples to take, less than the sum of `left`.
        ties: random order of the classes, which decides between equal ones.

    """
    exact = per_class * count
    share: Int64Array = np.minimum(exact // per_class.sum(), (left - 1).clip(min=0))
    remainder = exact % per_class.sum()
    for kept in (1, 0):
        while (missing := count - int(share.sum())) and (left - share > kept).any():
            candidates = ties[(left - share > kept)[ties]]
            best_first = np.lexsort((-remainder[candidates], share[candidates] > 0))
            share[candidates[best_first[:missing]]] += 1
    return share


# --- copies stay together -------------------------------------------------------------------------


def _choose_copies(
    source: Source, train: Int64Array, options: Options, counts: Mapping[str, int]
) -> dict[str, Int64Array]:
    """Choose groups of copies; most groups have one image."""
    if source.copies is None:
        raise CallError("the images were not compared", hint="call `resolve_duplicates` first")
    return _choose_stratified_groups(source, source.copies, train, options, counts)


def _check_clips(source: Source, index: NDArray[np.int8]) -> None:
    """Check that the frames of each clip are in one split.

    Raises:
        CallError: they are not.

    """
    clips = source.clips()
    if clips is None:
        return
    torn = np.flatnonzero(index != index[clips])
    if len(torn):
        raise CallError(
            f"frames of the clip {shown(source.extra[CLIP][int(torn[0])].as_py())} would be in two"
            " splits",
            hint="leave out --split-by, or set --split-by clip",
        )


def _choose_stratified_groups(
    source: Source,
    groups: Int64Array,
    train: Int64Array,
    options: Options,
    counts: Mapping[str, int],
) -> dict[str, Int64Array]:
    """Choose whole groups of samples, stratified by the label of their first one."""
    # A group counts as one sample.
    _, first, group = np.unique(groups[train], return_index=True, return_inverse=True)
    sizes = {}
    for name, count in counts.items():
        sizes[name] = max(1, round(count * len(first) / len(train)))
    if sum(sizes.values()) >= len(first):
        what, hint = f"{plural(len(first), 'group')} of copies", "or a smaller --distance"
        if options.duplicates != "same-split" and options.split_by != BY_DUPLICATES:
            what, hint = plural(len(first), "clip"), "or add clips"
        raise EmptySplitError(
            f"the images of train are {what}, too few to divide",
            hint=f"choose a smaller fraction, {hint}",
        )
    chosen = _choose_stratified(_strata(source)[train][first], options.seed, sizes)
    for name, numbers in chosen.items():
        chosen[name] = np.flatnonzero(np.isin(group, numbers))
    return chosen


def _strata(source: Source) -> Int32Array:
    return source.labels.strata(source.label, source.extra, len(source.classes))


# --- whole groups -------------------------------------------------------------------------------


def _split_column(source: Source, name: str) -> pa.Array:
    """Return the column that ``--split-by`` names.

    Every source has the column ``label``, the name of the class. ``column:`` before the name of a
    column tells it from a word that means something else.
    """
    if name not in source.extra.column_names:
        name = name.removeprefix(COLUMN_PREFIX)
    if name in source.extra.column_names:
        return source.extra[name].combine_chunks()
    if name in LABEL_COLUMN_NAMES and source.labels.is_class:
        return pa.array(source.classes, pa.large_string()).take(pa.array(source.label))
    known = [*source.extra.column_names]
    if source.labels.is_class:
        known.append("label")
    hint = "leave out --split-by, or set it to duplicates"
    if known:
        hint = f"choose one of: {', '.join(known)}"
    raise CallError(f"--split-by {name}: the source has no column of that name", hint=hint)


def _choose_groups(
    column: pa.Array, train: Int64Array, options: Options, counts: Mapping[str, int]
) -> dict[str, Int64Array]:
    """Choose samples in whole groups: visit the groups in random order and take each that still fits."""
    values = column.take(pa.array(train)).dictionary_encode(null_encoding="encode")
    # Number groups by value, not by first occurrence. Rows without a value form a group of their
    # own.
    texts = values.dictionary.cast(pa.large_string())
    rank = np.asarray(pc.rank(texts, tiebreaker="first")).astype(np.int64) - 1
    group = rank[np.asarray(values.indices)]
    sizes = np.bincount(group)
    waiting = permutation(len(sizes), options.seed, SPLIT_STREAM).tolist()
    parts = {}
    for name, count in counts.items():
        room, chosen, left = count, [], []
        for number in waiting:
            if sizes[number] <= room:
                chosen.append(number)
                room -= int(sizes[number])
            else:
                left.append(number)
        if not chosen or not left:
            fraction = getattr(options, f"{name}_fraction")
            splits = "two" if len(counts) == 1 else "three"
            raise EmptySplitError(
                f"--split-by {options.split_by} makes {plural(len(sizes), 'group')}, which"
                f" --{name}-fraction {fraction:g} cannot divide into {splits} splits",
                hint=_other_fraction(name, count, sizes),
            )
        waiting = left
        parts[name] = np.flatnonzero(np.isin(group, chosen))
    return parts


def _other_fraction(name: str, count: int, sizes: Int64Array) -> str:
    """Return the hint for a split into which the groups do not fit."""
    total, smallest = int(sizes.sum()), int(sizes.min())
    if smallest <= count or len(sizes) == 1:
        return "choose another fraction, or a column with more values"
    share = -(-smallest * 100 // total)
    return (
        f"the smallest group has {plural(smallest, 'image')} of {total:,}: set --{name}-fraction to"
        f" {share / 100:g} or more, or choose a column with more values"
    )


# --- what the user should know ------------------------------------------------------------------


def _notices(
    source: Source, counts: Mapping[str, Int64Array], split_by: str | None
) -> Iterator[str]:
    """Report what could not be stratified, and the classes that a split has no image of.

    Args:
        source: the samples.
        counts: number of labels of each class, for each split.
        split_by: the column whose groups were kept together, if any.

    """
    if source.labels.stratification and not split_by:
        yield f"the new splits are {source.labels.stratification}"
    if not split_by and source.clips() is not None:
        yield "the new splits have whole clips"
    if source.labels.class_column is None:
        return
    splits_with = np.count_nonzero([*counts.values()], axis=0)
    present = splits_with > 0
    if split_by:
        if splits_with.max(initial=0) <= 1:
            return  # no class is in two splits, as it should be for identities
        yield (
            f"the new splits consist of whole groups of {split_by}, so they are not stratified by"
            " label"
        )
    number = int(present.sum())
    for name, count in counts.items():
        without, images = np.flatnonzero(present & (count == 0)), int(count.sum())
        reason = ""
        if source.labels.is_class and images < number:
            reason = f", because it has only {plural(images, 'image')}"
        if len(without):
            shown = first_names([source.classes[label] for label in without[:6].tolist()])
            yield (
                f"{name} has no images of {len(without):,} of {plural(number, 'class')}{reason}:"
                f" {shown}"
            )
