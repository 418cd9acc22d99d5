"""The contents of PK batches: which identities each batch has, and which samples each of them contributes.

An identity in a batch is a *turn*. `draw_turns` orders the turns of an epoch, `draw_samples` gives
each turn its K samples, and `draw_across` does so with samples of different cameras.

Example: identities a, b, c with 4, 4 and 2 samples, ``PKSampler(2, 2, batches=6)``. Each identity
has one turn per round, and the second batch of a round has room for one more, so one identity has a
second turn in it:

    round   batches            second turn
    0       (b, a) (c, b)      b
    1       (c, a) (b, c)      c
    2       (a, b) (c, a)      a

From round to round, other identities have the second turns, so all identities have equally many, to
within one. Identity a has four samples, so its shuffled samples are enough for two turns: [a3, a0,
a2, a1] gives (a3, a0) and (a2, a1). Then they are shuffled again. Identity c has two samples, and
every turn takes both.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from loaders.samplers.base import Indices, Rows, index_dtype
from loaders.samplers.groups import Groups, count_within, group
from loaders.samplers.shuffle import random_words, shuffled_within, uniform

# What each draw is for: the last number of its key.
_IDENTITIES, _ROUNDS, _SAMPLES, _ACROSS = 0, 1, 2, 3


def round_sizes(turns: Rows, width: int) -> Rows:
    """Return how many identities each round has, int64 [rounds], as long as they fill a batch of `width` identities.

    Args:
        turns: number of rounds that each identity takes part in, int64 [identities].
        width: identities in a global batch, at most ``len(turns)``.

    """
    ascending = np.sort(turns)
    return len(turns) - np.searchsorted(ascending, np.arange(ascending[-width]), side="right")


def draw_turns(turns: Rows, width: int, batches: int, *key: int) -> Rows:
    """Return the identities of all batches of an epoch, int64 [batches * width], all different within a batch.

    Round r has one turn of each identity with more than r turns, in a random order. A round that
    does not fill its last batch repeats the identities that it began with. After the last round,
    the rounds start again.

    Args:
        turns: number of rounds that each identity takes part in, int64 [identities].
        width: identities in a global batch, at most ``len(turns)``.
        batches: batches in the epoch.
        key: seed and epoch.

    """
    sizes = round_sizes(turns, width)
    repeats = -(-batches // int((-(-sizes // width)).sum()))
    sizes = np.tile(sizes, repeats)
    sizes = sizes[: 1 + np.searchsorted(np.cumsum(-(-sizes // width)), batches)]
    filled = -(-sizes // width) * width
    second_turns = filled - sizes

    # Identities with the most turns come first, so that the first sizes[r] of them are those of
    # round r.
    by_turns = shuffled_within(turns.max() - turns, *key, _IDENTITIES)
    rounds, places = np.repeat(np.arange(len(sizes)), sizes), count_within(sizes)
    # The identities with a second turn are a window of these places, which begins where that of the
    # last round ended.
    begins = np.cumsum(second_turns) - second_turns
    once = (places - begins[rounds]) % sizes[rounds] >= second_turns[rounds]
    # The identities in the window open the round in a random order, and the others follow in a
    # random order.
    places = places[shuffled_within(2 * rounds + once, *key, _ROUNDS)]
    # Fill the last batch of each round with the identities that opened it.
    starts = np.cumsum(sizes) - sizes
    slots = np.repeat(starts, filled) + count_within(filled) % np.repeat(sizes, filled)
    identities: Rows = by_turns[places[slots[: batches * width]]].astype(np.int64)
    return identities


def draw_samples(turns: Indices, identities: Groups, wanted: int, *key: int) -> Indices:
    """Return `wanted` rows for each turn of an epoch, int32 or int64 [turns * wanted].

    The turns of an identity divide its samples in a random order, so no sample repeats before all
    were drawn, except for at most ``wanted - 1`` that are left over; then the samples are shuffled
    again. An identity with fewer than `wanted` samples repeats them within each turn.

    Args:
        turns: groups of `identities`, int [turns].
        identities: rows of each identity.
        wanted: K, samples in a turn.
        key: seed and epoch.

    """
    by_identity = group(turns)
    present = turns[by_identity.members[by_identity.starts[:-1]]]
    sizes = identities.sizes[present]
    per_shuffle = np.maximum(1, sizes // wanted)  # turns that one shuffle of the samples serves
    shuffles = -(-by_identity.sizes // per_shuffle)

    shuffle_sizes = np.repeat(sizes, shuffles)
    shuffle_starts = np.cumsum(shuffle_sizes) - shuffle_sizes
    numbers = np.arange(len(shuffle_sizes), dtype=index_dtype(len(shuffle_sizes)))
    order = shuffled_within(np.repeat(numbers, shuffle_sizes), *key, _SAMPLES)
    firsts = np.repeat(identities.starts[present], shuffles) - shuffle_starts
    places = np.repeat(firsts, shuffle_sizes)
    places += order
    del order  # In place: an epoch can have a hundred million samples.
    rows = identities.members[places]
    del places

    # From here on, turns are in the order of `by_identity`.
    nth = count_within(by_identity.sizes)
    shuffle, part = np.divmod(nth, np.repeat(per_shuffle, by_identity.sizes))
    shuffle += np.repeat(np.cumsum(shuffles) - shuffles, by_identity.sizes)
    drawn = np.empty((len(turns), wanted), rows.dtype)
    for k in range(wanted):  # one column at a time, which bounds the memory
        places = (part * wanted + k) % shuffle_sizes[shuffle]
        drawn[by_identity.members, k] = rows[shuffle_starts[shuffle] + places]
    return drawn.ravel()


def draw_across(turns: Indices, identities: Groups, cameras: Rows, wanted: int, *key: int) -> Rows:
    """Return `wanted` rows for each turn of one batch, from as many cameras as possible, int64 [turns * wanted].

    A turn takes one sample of each camera in a random order, then a second of each, and so on.

    Args:
        turns: groups of `identities`, int [turns].
        identities: rows of each identity, camera after camera.
        cameras: where each camera of each identity starts among the members, int64 [cameras + 1].
        wanted: K, samples in a turn.
        key: seed, epoch, and index of the batch in the epoch.

    """
    count, each = len(turns), np.arange(wanted)
    draws = uniform(random_words(count * wanted * (1 + wanted), *key, _ACROSS))
    draws = draws.reshape(count, 1 + wanted, wanted)
    first, end = np.searchsorted(cameras, identities.starts[np.stack([turns, turns + 1])])
    # Choose up to K cameras for each turn, then put up to K samples of each chosen camera in a
    # random order.
    chosen = first[:, None] + partly_shuffled(end - first, draws[:, 0])
    sizes = np.where(each < (end - first)[:, None], cameras[chosen + 1] - cameras[chosen], 0)
    orders = partly_shuffled(sizes, draws[:, 1:])
    # exists[turn, n, c]: the chosen camera c has an n-th sample. Take the first K in this order;
    # repeat if too few.
    exists = (each[:, None] < sizes[:, None, :]).reshape(count, -1)
    listed = np.argsort(~exists, axis=1, kind="stable")[:, :wanted]
    taken = np.take_along_axis(listed, each % np.count_nonzero(exists, axis=1)[:, None], 1)
    nth, camera = np.divmod(taken, wanted)
    turn = np.arange(count)[:, None]
    rows: Rows = identities.members[
        cameras[chosen[turn, camera]] + orders[turn, camera, nth]
    ].astype(np.int64)
    return rows.ravel()


def partly_shuffled(sizes: Rows, draws: NDArray[np.float64]) -> Rows:
    """Return the first places of a random order of 0 .. size - 1 for each size, int64 [..., K].

    A Fisher-Yates shuffle that stops after K swaps and stores nothing but the swaps. An order
    shorter than K ends in zeros.

    Args:
        sizes: int64 [...].
        draws: uniform numbers in [0, 1), float64 [..., K].

    """
    steps = np.arange(draws.shape[-1])
    left = sizes[..., None] - steps
    swapped: Rows = np.where(left > 0, steps + (draws * left).astype(np.int64), 0)
    order: Rows = swapped.copy()
    # Step n takes the value at place swapped[n]. If an earlier step m swapped the same place, that
    # value came from place m.
    for n in steps:
        for m in range(n - 1, -1, -1):
            order[..., n] = np.where(swapped[..., m] == order[..., n], m, order[..., n])
    return np.where(left > 0, order, 0)
