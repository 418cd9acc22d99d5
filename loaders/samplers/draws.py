"""What epochs are made of: random permutations, groups of rows by a column, and shares of an epoch.

All of it is equal on every machine and with every NumPy release. NumPy guarantees the raw output of
its bit generators and of `SeedSequence`, but not of `Generator.permutation` or `Generator.random`
(NEP 19, https://numpy.org/neps/nep-0019-rng-policy.html). So only the raw 64-bit words are used.
Sorting 10 million of them takes 0.4 s, about as long as `Generator.permutation`. Shares are
integers, so sums and rounding are exact.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from loaders.arrays import Array, Bools, Columns, Floats, Words, bounds_of
from loaders.samplers.base import Indices, Rows, index_dtype
from manifests.errors import CallError
from manifests.process.text import agree, plural


def random_words(count: int, *key: int) -> Words:
    """Return `count` random 64-bit words, uint64 [count].

    Args:
        count: number of words.
        key: seed, epoch and purpose: integers from 0 to 2**64 - 1. Keys of the same length that
            differ in any number give independent words.

    """
    # Two words for each number, so that different keys of the same length always differ in a word.
    entropy = [part for number in key for part in (number & 0xFFFFFFFF, number >> 32)]
    return np.random.PCG64(np.random.SeedSequence(entropy)).random_raw(count)


def uniform(words: Words) -> Floats:
    """Return uniform numbers in [0, 1) with 53 bits each, from random words."""
    return (words >> np.uint64(11)) * np.float64(2.0**-53)


def permutation(count: int, *key: int) -> Indices:
    """Return 0 .. count - 1 in a random order, int32 or int64 [count].

    See `random_words` for the key.
    """
    # Sort random words whose lowest bits number them: all are different, so every sort gives the
    # same order. At least 33 bits stay random up to 2**31 samples; of 10 million, about 45 pairs
    # draw equal bits and keep their order.
    bits = max(1, (count - 1).bit_length())
    words = random_words(count, *key)
    words >>= np.uint64(bits)
    words <<= np.uint64(bits)
    number_words(words)
    words.sort()
    words &= np.uint64((1 << bits) - 1)
    return _narrowed(words, index_dtype(count))


def _narrowed(words: Words, dtype: np.dtype[np.integer[Any]]) -> Indices:
    """Return words as a narrower type, in their own memory: of 10^8, a copy would take 400 MB more."""
    count = len(words)
    narrow = words.view(dtype)
    for part in _parts(count):
        narrow[part] = words[part].astype(dtype)  # ends before the next words that are read
    del narrow
    words.resize(-(-count * dtype.itemsize // words.itemsize), refcheck=False)
    return words.view(dtype)[:count]


def permutation_within(groups: Indices, *key: int) -> Indices:
    """Return the positions of group numbers: group after group ascending, each in random order."""
    order = permutation(len(groups), *key)
    return order[group(groups[order]).members]


@dataclass(frozen=True, slots=True, eq=False)
class Groups:
    """Rows by value: the rows of group g are ``members[starts[g] : starts[g + 1]]``.

    Attributes:
        starts: int64 [groups + 1], from 0 to the number of rows.
        members: each row once, int32 or int64 [rows]; ascending within a group, unless
            `group_within` made it.

    """

    starts: Rows
    members: Indices

    @property
    def sizes(self) -> Rows:
        """Number of rows in each group, int64 [groups], each at least 1."""
        return np.diff(self.starts)


def read_codes(columns: Columns, name: str, samples: int) -> Words:
    """Return an integer below 2**32 for each row, uint64 [samples]: equal for equal values.

    Raises:
        CallError: the column is missing, has a wrong length, or a row has no value (``None``, NaN
            or NaT).

    """
    if name not in columns:
        known = ", ".join(map(repr, columns)) or "none"
        raise CallError(
            f"the sample tables have no column {name!r}", hint=f"available columns: {known}"
        )
    column = np.asarray(columns[name])
    if column.shape != (samples,):
        raise CallError(
            f"column {name!r} has shape {column.shape}, but the split has {samples} samples"
        )
    if column.dtype.kind in "biu":
        return _code_integers(column)
    if column.dtype.kind in "fmM":
        # NaN would be a class of its own, with every row that lacks a value.
        _check_no_missing(name, int(np.count_nonzero(np.isnan(column))), samples)
        return np.unique(column, return_inverse=True)[1].astype(np.uint64)
    return _code_objects(name, column.tolist())


def value_at(column: Array, row: int) -> object:
    """Return the value of a row as a Python object, for messages."""
    return np.asarray(column)[row : row + 1].tolist()[0]


def group(codes: NDArray[np.integer[Any]]) -> Groups:
    """Group the rows by code, an integer from 0 to 2**32 - 1, in ascending order of the codes."""
    # Pack code and row into one word: all words are different, so the fastest sort gives the same
    # order everywhere.
    words = codes.astype(np.uint64)
    words <<= np.uint64(32)
    number_words(words)
    words.sort()
    members = np.empty(len(words), index_dtype(len(words)))
    for part in _parts(len(words)):
        members[part] = words[part] & np.uint64(0xFFFFFFFF)
    words >>= np.uint64(32)
    return Groups(_starts(words[1:] != words[:-1]), members)


def number_words(words: Words) -> None:
    """Write the position of each word into its lowest bits, which are 0."""
    for part in _parts(len(words)):
        words[part] |= np.arange(part.start, part.stop, dtype=np.uint64)


#: Words that are handled in one step, so that a hundred million of them do not take another
#: gigabyte for the step.
_PART = 1 << 20


def _parts(count: int) -> Iterator[slice]:
    for start in range(0, count, _PART):
        yield slice(start, min(start + _PART, count))


def group_within(outer: Words, inner: Words) -> tuple[Groups, Rows]:
    """Group the rows by outer code, and the rows of each group by inner code.

    Returns:
        The groups, and where each inner group starts among the members: int64 [inner groups + 1].

    """
    # Both sorts are stable, so the second one keeps the order of the first within a group.
    by_inner = group(inner).members
    groups = group(outer[by_inner])
    members = by_inner[groups.members]
    ordered = inner[members]
    changes = ordered[1:] != ordered[:-1]
    # Two groups that follow each other may end and begin with the same inner code.
    changes[groups.starts[1:-1] - 1] = True
    return Groups(groups.starts, members), _starts(changes)


def count_within(sizes: Rows) -> Rows:
    """Return 0 .. size - 1 for each size, one after the other: [2, 3] gives [0, 1, 0, 1, 2]."""
    ends = np.cumsum(sizes)
    places = np.arange(int(sizes.sum()))
    places -= np.repeat(ends - sizes, sizes)
    return places


def _starts(changes: Bools) -> Rows:
    return np.concatenate([[0], np.flatnonzero(changes) + 1, [len(changes) + 1]])


def _code_integers(column: Array) -> Words:
    least = int(column.min())
    most = int(column.max())
    # Labels need no sort, which takes seconds for a hundred million rows.
    if most - least < 2**32:
        # Subtract modulo 2**64, which is right for negative values and for every integer type.
        codes: Words = column.astype(np.uint64)
        codes -= np.uint64(least % 2**64)
        return codes
    return np.unique(column, return_inverse=True)[1].astype(np.uint64)


def _code_objects(name: str, values: list[Any]) -> Words:
    try:
        codes = {value: code for code, value in enumerate(dict.fromkeys(values))}
    except TypeError:
        raise CallError(
            f"column {name!r} has values that cannot name a class, such as lists",
            hint="choose another column",
        ) from None
    # NaN of any type is the only value that differs from itself.
    missing = {value for value in codes if value is None or value != value}  # noqa: PLR0124
    if missing:
        _check_no_missing(name, sum(value in missing for value in values), len(values))
    return np.fromiter(map(codes.__getitem__, values), np.uint64, len(values))


def _check_no_missing(name: str, missing: int, samples: int) -> None:
    if missing:
        raise CallError(
            f"{missing:,} of {plural(samples, 'sample')} {agree(missing, 'has', 'have')} no value"
            f" in column {name!r}",
            hint=(
                "fill in the missing values in the source table and convert it again, or choose"
                " another column"
            ),
        )


#: A quota counts units of 2**-24 sample.
QUOTA_BITS = 24


def quota_ends(weights: Floats, length: int) -> Rows:
    """Return the boundaries of the shares of an epoch, int64 [weights + 1].

    They count units of 2**-24 sample. Share i is from ``ends[i]`` to ``ends[i + 1]``; all shares together are `length` samples.

    Args:
        weights: at least 0, with a positive sum, [weights].
        length: samples in an epoch.

    """
    quotas = np.rint(weights * (length / weights.sum()) * 2**QUOTA_BITS).astype(np.int64)
    # What rounding leaves over goes to the largest share, where it matters least.
    quotas[quotas.argmax()] += (length << QUOTA_BITS) - quotas.sum()
    return bounds_of(quotas)


def round_quotas(ends: Rows, *key: int) -> Rows:
    """Round each share up or down to whole samples, at random: int64 [shares].

    The shares add up to the epoch. Systematic sampling: shift all boundaries by one random fraction of a sample, then round down.
    So each share gets its quota on average.

    Args:
        ends: what `quota_ends` returned.
        key: key of the draw; see `random_words`.

    """
    shift = int(random_words(1, *key)[0]) >> (64 - QUOTA_BITS)
    return np.diff((ends + shift) >> QUOTA_BITS)


def draw_by_quota(ends: Rows, draws: Floats) -> Rows:
    """Return the share that each draw falls into, int64 [draws].

    Args:
        ends: what `quota_ends` returned.
        draws: uniform numbers in [0, 1), [draws].

    """
    shares: Rows = np.searchsorted(ends[1:], (draws * ends[-1]).astype(np.int64), side="right")
    return shares
