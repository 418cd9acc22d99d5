"""Find all pairs of hashes that differ in at most some bits. The search is exact.

A hash of 256 bits is divided into 16 bands of 16 bits. If two hashes differ in at most 31 bits,
then at least one band differs in at most one (the pigeonhole principle). So for each band, the
hashes are sorted into buckets by the first bits of the band, and each bucket is compared with all
that differ from it in at most one bit: a few thousandths of all pairs. Hashes of other lengths are
divided in the same way.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from math import comb
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dataprep.arrays import (
    AnyArray,
    BoolArray,
    Int32Array,
    Int64Array,
    IntegerArray,
    UInt8Array,
    UInt64Array,
)
from dataprep.duplicates.pixels import INVERSES, select_bits
from manifests.errors import CallError

#: Bits of a band.
BAND_BITS = 16

#: Pairs in one result, at most.
MAX_PAIRS = 20_000_000

#: Cost of visiting a bucket, in comparisons of two hashes.
_BUCKET_COST = 8_000

#: Comparisons of hashes at a time.
_MAX_BLOCK = 1 << 20

#: Pairs that are found before the next step.
_BATCH = 1 << 18


class Pairs(NamedTuple):
    """Pairs of hashes that differ in few bits.

    Attributes:
        first: rows of the first hashes, int32 [N].
        second: rows of the second hashes, int32 [N].
        distance: number of different bits, uint8 [N]; int16 if -1 stands for the same bytes.
        symmetry: what turns the second image into the first: positions in `SYMMETRIES`, uint8 [N].

    """

    first: Int32Array
    second: Int32Array
    distance: AnyArray
    symmetry: UInt8Array

    def take(self, which: AnyArray | slice) -> Pairs:
        """Return some of the pairs."""
        return Pairs._make(column[which] for column in self)

    def among(self, rows: IntegerArray) -> Pairs:
        """Return the pairs as rows of a larger collection, from the rows there."""
        return make_pairs(rows[self.first], rows[self.second], self.distance, self.symmetry)

    def swapped(self) -> Pairs:
        """Return the pairs with the first and the second image exchanged."""
        return Pairs(self.second, self.first, self.distance, INVERSES[self.symmetry])


def make_pairs(
    first: IntegerArray,
    second: IntegerArray,
    distance: AnyArray,
    symmetry: UInt8Array | int = 0,
) -> Pairs:
    """Return pairs; a symmetry that is a number is the symmetry of all of them."""
    symmetries = np.full(len(first), symmetry, np.uint8)
    return Pairs(first.astype(np.int32), second.astype(np.int32), distance, symmetries)


def order_pairs(pairs: Pairs, first: IntegerArray, second: IntegerArray) -> Pairs:
    """Return pairs with the image of the lower rank first, without pairs of equal ranks.

    Args:
        pairs: the pairs.
        first: rank of the first image of each pair, [N].
        second: rank of the second image.

    """
    return join_pairs([pairs.take(first < second), pairs.take(first > second).swapped()])


def join_pairs(parts: list[Pairs]) -> Pairs:
    """Join pairs, in the given order."""
    empty = make_pairs(*[np.empty(0, np.uint8)] * 3)
    return Pairs._make(map(np.concatenate, zip(empty, *parts, strict=True)))


def starts_run(*columns: AnyArray) -> BoolArray:
    """Return which rows of some columns differ from the row before, bool [N]."""
    starts = np.ones(len(columns[0]), np.bool_)
    starts[1:] = False
    for column in columns:
        starts[1:] |= column[1:] != column[:-1]
    return starts


def count_bands(hashes: UInt64Array) -> int:
    """Return the number of bands of each hash, uint64 [N, W]."""
    return int(hashes.shape[1]) * 64 // BAND_BITS


class TooManyPairsError(CallError):
    """More pairs are near than can be used."""


def check_count(pairs: int, distance: int, most: int) -> None:
    """Refuse too many pairs.

    Raises:
        TooManyPairsError: there are more than `most`.

    """
    if pairs > most:
        raise TooManyPairsError(
            f"more than {most:,} pairs of images differ in at most {distance} bits",
            hint="set a smaller --distance; -1 finds only images with the same bytes",
        )


def band_order(hashes: UInt64Array) -> UInt64Array:
    """Return hashes, uint64 [N, 4], with their bits in the order of the bands.

    A band takes a frequency of every row and of every column, because low frequencies depend on
    each other.
    """
    band, bit = np.divmod(np.arange(256), BAND_BITS)
    return select_bits(hashes, bit * 16 + (band + bit) % 16)


def low_frequencies(hashes: UInt64Array) -> UInt64Array:
    """Return the 8x8 lowest frequencies of hashes, uint64 [N, 4], in 4 bands: uint64 [N, 1]."""
    band, bit = np.divmod(np.arange(64), BAND_BITS)
    row = bit % 8
    return select_bits(hashes, row * 16 + (row + 2 * band + bit // 8) % 8)


def find_pairs(
    a: UInt64Array,
    b: UInt64Array,
    distance: int,
    band: int,
    *,
    is_same: bool = False,
    most: int = MAX_PAIRS,
) -> Pairs:
    """Find the pairs of a band, at most `most`; see `iterate_pairs`.

    Raises:
        TooManyPairsError: there are too many pairs.

    """
    found, total = [], 0
    for part in iterate_pairs(a, b, distance, band, is_same=is_same):
        found.append(part)
        total += len(part.first)
        check_count(total, distance, most)
    return join_pairs(found)


def iterate_pairs(
    a: UInt64Array, b: UInt64Array, distance: int, band: int, *, is_same: bool = False
) -> Iterator[Pairs]:
    """Yield the pairs whose first band with few different bits is this one.

    All bands together find every pair once.

    Args:
        a: hashes whose bits are in the order of their bands, uint64 [N, W].
        b: others, uint64 [M, W].
        distance: number of different bits, at most.
        band: 0 to `count_bands` - 1.
        is_same: `a` and `b` are the same hashes. Then `first` is less than `second` in each pair.

    """
    radius = distance // count_bands(a)
    bits = _prefix_bits(len(a), len(b), radius)
    left, right = _sort_by_band(a, band, bits), _sort_by_band(b, band, bits)

    def finish(parts: list[Pairs]) -> Pairs:
        pairs = join_pairs(parts)
        first, second = left.order[pairs.first], right.order[pairs.second]
        # Another band finds the pairs in which an earlier band has few different bits.
        is_near = popcount((a[first] ^ b[second]).view(np.uint16)) <= radius
        keep = is_near.argmax(axis=1) == band
        if is_same:
            # As sorted: the same bucket is compared in both directions.
            keep &= pairs.first > pairs.second
            first, second = np.minimum(first, second), np.maximum(first, second)
        return make_pairs(first, second, pairs.distance).take(keep)

    found, count = [], 0
    for rows_a, rows_b in _blocks(left, right, bits, radius, is_same=is_same):
        part = _compare(left, right, rows_a, rows_b, distance)
        if part is None:
            continue
        found.append(part)
        count += len(part.first)
        if count >= _BATCH:
            yield finish(found)
            found, count = [], 0
    yield finish(found)


class _Buckets(NamedTuple):
    """Hashes sorted by the first bits of a band.

    Attributes:
        order: row of each sorted hash, int32 [N].
        words: the sorted hashes, uint64 [W, N].
        starts: first sorted hash of each bucket, and the number of hashes, int64 [2**bits + 1].

    """

    order: Int32Array
    words: UInt64Array
    starts: Int64Array


def _sort_by_band(hashes: UInt64Array, band: int, bits: int) -> _Buckets:
    """Sort hashes by the first bits of a band."""
    value = np.ascontiguousarray(hashes).view(np.uint16)[:, band] >> np.uint16(BAND_BITS - bits)
    order = np.argsort(value, kind="stable").astype(np.int32)
    ends = np.cumsum(np.bincount(value, minlength=1 << bits))
    return _Buckets(order, np.ascontiguousarray(hashes[order].T), np.append(0, ends))


def _prefix_bits(rows_a: int, rows_b: int, radius: int) -> int:
    """Return the number of bits that makes the search fastest."""

    def cost(bits: int) -> float:
        near = sum(comb(bits, count) for count in range(radius + 1))  # buckets to compare with each
        return (1 << bits) * _BUCKET_COST + near / (1 << bits) * rows_a * rows_b

    return min(range(BAND_BITS + 1), key=cost)


def _blocks(
    left: _Buckets, right: _Buckets, bits: int, radius: int, *, is_same: bool
) -> Iterator[tuple[Int64Array, slice]]:
    """Yield sorted rows of the left and of the right, all pairs of which are to be compared."""
    masks = np.flatnonzero(popcount(np.arange(1 << bits, dtype=np.uint64)) <= radius)
    for bucket in np.flatnonzero(np.diff(right.starts)).tolist():
        near = bucket ^ masks
        if is_same:
            near = near[near >= bucket]
        starts, ends = left.starts[near], left.starts[near + 1]
        count = ends - starts
        total = int(count.sum())
        if not total:
            continue
        shift = np.cumsum(count) - count
        rows = np.arange(total) + np.repeat(starts - shift, count)
        first, last = int(right.starts[bucket]), int(right.starts[bucket + 1])
        for at in range(first, last, _MAX_BLOCK):
            width = min(last - at, _MAX_BLOCK)
            step = max(1, _MAX_BLOCK // width)
            for part in range(0, total, step):
                yield rows[part : part + step], slice(at, at + width)


def _compare(
    left: _Buckets, right: _Buckets, rows_a: Int64Array, rows_b: slice, distance: int
) -> Pairs | None:
    """Return the pairs of sorted rows that differ in at most `distance` bits."""
    # Half of the words excludes almost all pairs.
    half = max(1, len(left.words) // 2)
    differing = popcount(left.words[0, rows_a, None] ^ right.words[0, rows_b])
    for word in range(1, half):
        differing += popcount(left.words[word, rows_a, None] ^ right.words[word, rows_b])
    near = np.flatnonzero(differing <= distance)
    if not len(near):
        return None
    at_a, at_b = np.divmod(near, rows_b.stop - rows_b.start)
    first, second = rows_a[at_a], at_b + rows_b.start
    rest = popcount(left.words[half:, first] ^ right.words[half:, second])
    total = differing.ravel()[near] + rest.sum(axis=0, dtype=np.uint16)
    keep = total <= distance
    return make_pairs(first[keep], second[keep], total[keep].astype(np.uint8))


def distances(a: UInt64Array, b: UInt64Array) -> NDArray[np.uint16]:
    """Return the numbers of different bits of pairs of hashes, uint64 [..., W] each."""
    different: NDArray[np.uint16] = popcount(a ^ b).sum(axis=-1, dtype=np.uint16)
    return different


def popcount(values: NDArray[np.unsignedinteger]) -> UInt8Array:
    """Return the number of ones in each value, uint8."""
    if hasattr(np, "bitwise_count"):
        ones: UInt8Array = np.bitwise_count(values)
        return ones
    return _popcount_of_numpy_1(values)


def _popcount_of_numpy_1(values: NDArray[np.unsignedinteger]) -> UInt8Array:
    parts = np.ascontiguousarray(values)[..., None].view(np.uint16)
    ones: UInt8Array = _ones()[parts].sum(axis=-1, dtype=np.uint8)
    return ones


@cache
def _ones() -> UInt8Array:
    """Return the number of ones in each number of 16 bits."""
    return np.array([value.bit_count() for value in range(1 << 16)], np.uint8)
