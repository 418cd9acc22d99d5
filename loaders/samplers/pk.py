"""`PKSampler`: batches of P identities with K samples each.

An identity in a batch is a *turn*. `draw_turns` orders the turns of an epoch, `draw_samples` gives
each turn its K samples, and `draw_across` does so with samples of different cameras. With
`neighbors`, the turns of an epoch are only the anchors, and `_Neighbors` adds their nearest
identities to each batch.

Example: identities a, b, c with 4, 4 and 2 samples, ``PKSampler(2, 2, batches=6)``. Each identity
has one turn per round, and the second batch of a round has room for one more, so one identity has a
second turn in it:

    round   batches            second turn
    0       (b, a) (c, b)      b
    1       (c, a) (b, c)      c
    2       (a, b) (c, a)      a

From round to round, other identities have the second turns. Identity a has four samples, so its
shuffled samples are enough for two turns: [a3, a0, a2, a1] gives (a3, a0) and (a2, a1). Then they
are shuffled again. Identity c has two samples, and every turn takes both.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Literal

import numpy as np

from loaders.arrays import Array, Floats, Ints, bounds_of
from loaders.options import require_int_field
from loaders.samplers.base import (
    EpochPlan,
    Fit,
    Indices,
    OwnSampler,
    Plan,
    Rows,
    Traits,
    check_column_name,
    index_dtype,
)
from loaders.samplers.clips import ClipSampler
from loaders.samplers.draws import (
    Groups,
    count_within,
    group,
    group_within,
    permutation_within,
    random_words,
    read_codes,
    uniform,
    value_at,
)
from manifests.errors import CallError
from manifests.process.text import agree, plural, shown


@dataclass(frozen=True, slots=True)
class PKSampler(OwnSampler):
    """Batches of P identities with K samples each; over all ranks, P x world size identities.

    A batch lists the K samples of its first identity, then K of the second, and so on. They are
    different samples if the identity has K; see `few`. A turn of an identity is its place in a
    batch, with K samples. An epoch consists of rounds: each identity has one turn per round (with
    ``weight="sample"``, until it has had its number of turns), and some have a second if the last
    batch of the round is not full. Over an epoch, the numbers of turns differ by at most two. The
    identities of a global batch are all different. Within an epoch, the turns of an identity use
    all of its samples, except for at most K - 1 that are left over, before any sample repeats.

    Args:
        classes_per_batch: P, identities in a batch of one rank.
        samples_per_class: K, samples of each identity.
        by: column of the sample tables that names the identity.
        few: how to treat identities with fewer than K samples. ``"repeat"`` repeats their samples
            within a turn, all equally often to within one; ``"drop"`` leaves the identities out;
            ``"error"`` raises.
        across: a second column, for example ``"camera"``: the K samples of a turn come from as many
            of the identity's cameras as possible, evenly, and are drawn again for each turn (as in
            fast-reid's BalancedIdentitySampler). So a sample may repeat before all others were
            drawn.
        weight: ``"identity"`` gives all identities equally many turns, and an epoch about as many
            samples as the split. ``"sample"`` gives an identity with n samples n // K turns, at
            least one, as fast-reid and PaddleClas (``sample_avg_prob``) do; rounds with fewer
            identities than a global batch needs are left out.
        batches: batches in an epoch. ``None`` means the number that follows from `weight`.
        neighbors: a column with a list of identities for each sample, the nearest first, for hard
            negatives. Turns are then given to anchors only: a batch has an anchor, and then the
            first P - 1 identities in the list of its first sample. Random identities take the place
            of listed ones that the split does not have, that `few` leaves out, or that are in the
            batch already. The K samples of every identity are drawn again for each batch, so a
            sample may repeat before all others were drawn.
        anchors: with `neighbors`, anchors in a batch of one rank, each with P / anchors - 1
            neighbors.
        clip: the samples are clips, such as tracklets, and each is a window of this sampler. A batch
            has P x K clips of T frames, and a `batch_size` of P x K x T.

    Raises:
        CallError: an argument is wrong; the message names it.

    """

    classes_per_batch: int
    samples_per_class: int
    by: str = "label"
    few: Literal["repeat", "drop", "error"] = "repeat"
    across: str | None = None
    weight: Literal["identity", "sample"] = "identity"
    batches: int | None = None
    neighbors: str | None = None
    anchors: int = 1
    clip: ClipSampler | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        for name in ("classes_per_batch", "samples_per_class", "anchors"):
            require_int_field(self, name, 1)
        check_column_name("by", self.by)
        if self.few not in ("repeat", "drop", "error"):
            raise CallError(f"few must be 'repeat', 'drop' or 'error', got {self.few!r}")
        if self.weight not in ("identity", "sample"):
            raise CallError(f"weight must be 'identity' or 'sample', got {self.weight!r}")
        if self.across is not None:
            check_column_name("across", self.across)
        if self.across == self.by:
            raise CallError(
                f"across={self.across!r} is the column that already names the identity",
                hint="choose another column",
            )
        if self.batches is not None:
            require_int_field(self, "batches", 1)
        if self.neighbors is not None:
            check_column_name("neighbors", self.neighbors)
        elif self.anchors != 1:
            raise CallError(
                f"anchors={self.anchors} requires neighbors",
                hint="name the column with the nearest identities of each sample",
            )
        if self.classes_per_batch % self.anchors:
            raise CallError(
                f"anchors={self.anchors} does not divide classes_per_batch={self.classes_per_batch}",
                hint="give each anchor equally many identities",
            )
        _check_clip(self.clip)

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that name the identity, the camera, the nearest identities, and the frames."""
        others = [name for name in (self.across, self.neighbors) if name is not None]
        clip = () if self.clip is None else self.clip.columns
        return tuple(dict.fromkeys((self.by, *others, *clip)))

    def on_one_rank(self, world_size: int) -> PKSampler:
        """Return the sampler that gives the global batches of several ranks to one rank."""
        anchors = 1 if self.neighbors is None else self.anchors * world_size
        identities = self.classes_per_batch * world_size
        return replace(self, classes_per_batch=identities, anchors=anchors)

    @property
    def traits(self) -> Traits:
        """What a loader knows about the sampler."""
        # In a clip, a frame is replaced by another one of the same clip.
        by = self.by if self.clip is None else self.clip.by
        return Traits(by=by, fixed="P x K", lists=self.neighbors)

    @property
    def turn(self) -> int:
        """Rows of a turn: K, or the frames of K clips."""
        return self.samples_per_class * (1 if self.clip is None else self.clip.length)

    def _fitted(self, fit: Fit) -> Plan:
        # Before the columns are read, which may take long.
        _check_batch_size(self, fit.batch_size)
        if self.clip is None:
            return _PKPlan(self, fit)
        return self.clip.plan_of(_OfClips(self), fit)


@dataclass(frozen=True, slots=True)
class _OfClips(OwnSampler):
    """A `PKSampler` whose samples are clips, whatever they consist of."""

    sampler: PKSampler

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns of the sampler that clips have a value of."""
        return replace(self.sampler, clip=None).columns

    def _fitted(self, fit: Fit) -> Plan:
        return _PKPlan(self.sampler, fit)


def _check_clip(clip: object) -> None:
    if clip is None:
        return
    if not isinstance(clip, ClipSampler):
        raise CallError(
            f"clip must be a ClipSampler, got {shown(clip)}", hint="pass clip=ClipSampler(length=8)"
        )
    if clip.clips_per_batch is not None:
        raise CallError(
            f"clip has clips_per_batch={clip.clips_per_batch}, but PKSampler makes batches of"
            " classes_per_batch x samples_per_class clips",
            hint="remove clips_per_batch",
        )
    if not clip.jitter:
        raise CallError(
            "jitter=False of clip reads every frame once, which a PKSampler does not",
            hint="remove jitter=False, or pass the ClipSampler itself as sampler",
        )


def _check_batch_size(sampler: PKSampler, batch_size: int) -> None:
    p = sampler.classes_per_batch
    k = sampler.samples_per_class
    if batch_size != p * sampler.turn:
        clips = ""
        if sampler.clip is not None:
            clips = f" frames, in clips of {sampler.clip.length}"
        raise CallError(
            f"batch_size={batch_size}, but PKSampler({p}, {k}) makes batches of"
            f" {p * sampler.turn}{clips}",
            hint=f"set batch_size={p * sampler.turn}",
        )


def _check_none_small(sampler: PKSampler, identities: Groups, column: Array) -> None:
    small = np.flatnonzero(identities.sizes < sampler.samples_per_class)
    if small.size:
        label = value_at(column, int(identities.members[identities.starts[small[0]]]))
        raise CallError(
            f"{plural(len(small), 'identity')} of column {sampler.by!r}"
            f" {agree(len(small), 'has', 'have')} fewer than"
            f" samples_per_class={sampler.samples_per_class} samples, for example {label!r}, which"
            f" has {identities.sizes[small[0]]}",
            hint='set few="repeat" or few="drop"',
        )


def _check_enough_identities(sampler: PKSampler, world_size: int, kept: int, total: int) -> None:
    width = sampler.classes_per_batch * world_size
    if width <= kept:
        return
    each_rank = ""
    if world_size > 1:
        each_rank = f" on each of {world_size} ranks"
    available = f"column {sampler.by!r} has {kept:,}"
    # Identities that few="drop" leaves out are the reason.
    if kept < total:
        available = (
            f"only {kept:,} of the {total:,} in column {sampler.by!r} have at least"
            f" {sampler.samples_per_class} samples"
        )
    raise CallError(
        f"a batch needs {width} different identities"
        f" (classes_per_batch={sampler.classes_per_batch}{each_rank}), but {available}",
        hint=_identities_hint(sampler, kept, world_size),
    )


def _identities_hint(sampler: PKSampler, kept: int, world_size: int) -> str:
    if not kept:
        return f'set few="repeat", or a samples_per_class below {sampler.samples_per_class}'
    if kept < world_size:
        return f"use at most {kept} ranks"
    most = kept // world_size
    return f"set classes_per_batch={most} and batch_size={most * sampler.turn}"


def _turns(sampler: PKSampler, sizes: Rows, width: int) -> Rows:
    """Return the number of rounds that each identity takes part in."""
    if sampler.weight == "sample":
        return np.maximum(1, sizes // sampler.samples_per_class)
    # So many rounds that an epoch is about as long as the split.
    per_round = -(-len(sizes) // width) * width * sampler.samples_per_class
    return np.full(len(sizes), max(1, -(-int(sizes.sum()) // per_round)))


class _PKPlan(EpochPlan):
    """The plan of a `PKSampler`."""

    def __init__(self, sampler: PKSampler, fit: Fit) -> None:
        self._sampler = sampler
        codes = read_codes(fit.columns, sampler.by, fit.samples)
        if sampler.across is None:
            self._cameras = None
            self._identities = group(codes)
        else:
            # The rows of an identity are camera after camera.
            across = read_codes(fit.columns, sampler.across, fit.samples)
            self._identities, self._cameras = group_within(codes, across)
        sizes = self._identities.sizes
        if sampler.few == "error":
            _check_none_small(sampler, self._identities, fit.columns[sampler.by])
        #: The identities that are not left out.
        self._kept = np.arange(len(sizes))
        if sampler.few == "drop":
            self._kept = np.flatnonzero(sizes >= sampler.samples_per_class)
        #: Identities in a global batch.
        self._width = sampler.classes_per_batch * fit.world_size
        _check_enough_identities(sampler, fit.world_size, len(self._kept), len(sizes))
        self._turns = _turns(sampler, sizes[self._kept], self._width)
        self._batches = sampler.batches or self._default_batches(int(sizes[self._kept].sum()))
        #: Turns of a global batch that the epoch plans; `batch` adds the neighbors of anchors.
        self._planned = self._width
        self._neighbors = None
        if sampler.neighbors is not None:
            self._planned = sampler.anchors * fit.world_size
            self._neighbors = _Neighbors(sampler, fit, self._identities, self._kept, self._width)
        super().__init__(fit, self._batches * fit.global_batch)

    def _default_batches(self, samples: int) -> int:
        rounds = -(-round_sizes(self._turns, self._width) // self._width)  # batches of each round
        if self._sampler.weight == "sample":
            return int(rounds.sum())
        return max(int(rounds[0]), samples // (self._width * self._sampler.samples_per_class))

    def draw_epoch(self, epoch: int) -> Indices:
        """Return the rows of an epoch.

        With `across` or `neighbors`, return the identities of its turns or anchors, from which
        `batch` draws the rows.
        """
        # Numbers of identities that are kept become numbers of groups.
        turns = self._kept[draw_turns(self._turns, self._planned, self._batches, self.seed, epoch)]
        if self._draws_batches:
            return turns.astype(self._identities.members.dtype)
        return draw_samples(
            turns, self._identities, self._sampler.samples_per_class, self.seed, epoch
        )

    @property
    def _draws_batches(self) -> bool:
        """Whether the samples of a turn are drawn with its batch, not with its epoch."""
        return self._cameras is not None or self._neighbors is not None

    def batch(self, epoch: int, number: int) -> Rows:
        if not self._draws_batches:
            return super().batch(epoch, number)
        turns = self.part(epoch, number, self._planned, self._batches * self._planned)
        key = (self.seed, epoch, number)
        rows = self._draw(turns, *key, _ACROSS)
        if self._neighbors is None:
            return rows.ravel()
        # Each anchor is followed by the identities that its first sample lists.
        others = self._neighbors.around(turns, rows[:, 0], *key)
        added = self._draw(others.ravel(), *key, _ADDED)
        samples = rows.shape[1]
        groups = [rows.reshape(len(turns), 1, samples), added.reshape(len(turns), -1, samples)]
        return np.concatenate(groups, axis=1).ravel()

    def _draw(self, turns: Indices, *key: int) -> Rows:
        """Return K rows for each turn, int64 [turns, K]."""
        cameras = self._cameras
        if cameras is None:  # all samples of an identity are from one camera
            cameras = self._identities.starts
        wanted = self._sampler.samples_per_class
        rows = draw_across(turns, self._identities, cameras, wanted, *key)
        return rows.reshape(len(turns), wanted)

    @property
    def notes(self) -> tuple[str, ...]:
        """The line about identities with fewer than K samples, if the split has any."""
        if (self._identities.sizes >= self._sampler.samples_per_class).all():
            return ()
        return (self._small_identities_line(),)

    def _small_identities_line(self) -> str:
        sizes = self._identities.sizes
        wanted = self._sampler.samples_per_class
        small = sizes[sizes < wanted]
        if not len(small):
            return f"Every identity has at least {plural(wanted, 'sample')}."
        effect = "left out" if self._sampler.few == "drop" else "repeated"
        return (
            f"{len(small):,} of {plural(len(sizes), 'identity')} {agree(len(small), 'has', 'have')}"
            f" fewer than {plural(wanted, 'sample')}; {agree(len(small), 'its', 'their')}"
            f" {plural(small.sum(), 'sample')} {agree(small.sum(), 'is', 'are')} {effect}."
        )

    @property
    def lines(self) -> tuple[str, ...]:
        sampler = self._sampler
        sizes = self._identities.sizes
        wanted = sampler.samples_per_class
        turn = "turns" if self._neighbors is None else "turns as an anchor"
        lines = [
            (
                f"Column {sampler.by!r} has {plural(len(sizes), 'identity')} of {sizes.min():,} to"
                f" {sizes.max():,} samples, median {np.median(sizes):,.0f}."
            ),
            self._small_identities_line(),
            (
                f"An epoch has {plural(self._batches, 'batch')} of"
                f" {plural(self._width, 'identity')} x {wanted} samples over all ranks:"
                f" {self._batches * self._planned / len(self._kept):,.1f} {turn} per identity on"
                " average."
            ),
        ]
        if self._neighbors is None:
            lines.append(self._rounds_line())
        else:
            lines.append(self._neighbors.line)
        if sampler.across is not None:
            lines.append(
                f"The samples of a turn come from as many values of column {sampler.across!r} as"
                " possible."
            )
        return tuple(lines)

    def _rounds_line(self) -> str:
        rounds = round_sizes(self._turns, self._width)
        second_turns = int((-rounds % self._width).sum())
        size = f"{rounds[0]:,}"
        if rounds[-1] != rounds[0]:  # the rounds become smaller
            size = f"{rounds[-1]:,} to {rounds[0]:,}"
        line = f"{plural(len(rounds), 'round')} of {size} identities"
        if second_turns:
            line += (
                f", with {plural(second_turns, 'second turn')} to fill the last batches of rounds"
            )
        if self._sampler.weight == "identity":
            return f"{line}."
        unused = int(self._turns.sum() - rounds.sum())
        return (
            f"{line}; {plural(unused, 'turn')} left out, because too few identities remain for a"
            " batch."
        )


# What each draw is for: the last number of its key.
_IDENTITIES, _ROUNDS, _SAMPLES, _ACROSS, _ADDED, _RANDOM = 0, 1, 2, 3, 4, 5


class _Neighbors:
    """The identities that the samples list as their nearest."""

    def __init__(
        self, sampler: PKSampler, fit: Fit, identities: Groups, kept: Rows, width: int
    ) -> None:
        self._kept = kept
        self._size = sampler.classes_per_batch // sampler.anchors
        firsts = identities.members[identities.starts[:-1]]
        names = np.asarray(fit.columns[sampler.by])[firsts].tolist()
        # Identities that are left out are as unknown as those that the split does not have.
        numbers = {names[group]: group for group in kept.tolist()}
        lists = _lists_of(sampler, fit)
        counts = np.fromiter((len(each) for each in lists), np.int64, len(lists))
        self._starts = bounds_of(counts)
        found = (numbers.get(name, -1) for each in lists for name in each)
        #: The identity of each entry of the lists, or -1 if it is not known.
        self._listed = np.fromiter(found, np.int32, int(counts.sum()))
        known = int(np.count_nonzero(self._listed >= 0))
        if not known and width > sampler.anchors * fit.world_size:
            raise CallError(
                f"no list in column {sampler.neighbors!r} names an identity of column"
                f" {sampler.by!r} that is drawn",
                hint=f"list values of column {sampler.by!r}, such as {names[0]!r}",
            )
        #: The line about the lists for ``explain()``.
        self.line = (
            f"The samples of column {sampler.neighbors!r} list {counts.mean():,.1f} identities on"
            f" average, of which the split has {known / max(1, len(self._listed)):.0%};"
            f" {plural(self._size - 1, 'identity')} around each anchor."
        )

    def around(self, anchors: Indices, rows: Rows, *key: int) -> Ints:
        """Return the identities around each anchor of a batch, int64 [anchors, P / anchors - 1].

        Args:
            anchors: the anchors, int [anchors].
            rows: the row of each anchor whose list counts.
            key: seed, epoch, and index of the batch in the epoch.

        """
        taken = set(anchors.tolist())
        groups = []
        for row in rows.tolist():
            nearest: list[int] = []
            for identity in self._listed[self._starts[row] : self._starts[row + 1]].tolist():
                if len(nearest) == self._size - 1:
                    break
                if identity >= 0 and identity not in taken:
                    nearest.append(identity)
                    taken.add(identity)
            groups.append(nearest)
        missing = len(groups) * self._size - len(taken)
        fresh = self._random(missing, taken, *key)
        for nearest in groups:
            while len(nearest) < self._size - 1:
                nearest.append(next(fresh))
        return np.array(groups, np.int64).reshape(len(groups), self._size - 1)

    def _random(self, count: int, taken: set[int], *key: int) -> Iterator[int]:
        """Yield identities that are not taken, in a random order."""
        # There are enough: a batch has at most as many identities as are kept.
        block = 0
        while count:
            words = random_words(2 * count, *key, block, _RANDOM)
            for place in (words % np.uint64(len(self._kept))).tolist():
                identity = int(self._kept[place])
                if identity not in taken:
                    taken.add(identity)
                    yield identity
            block += 1


def _lists_of(sampler: PKSampler, fit: Fit) -> list[list[object]]:
    """Return the list of each row; a row without a value has an empty one."""
    name = sampler.neighbors
    column = fit.columns[str(name)]
    lists = []
    for row, value in enumerate(column.tolist()):
        if value is not None and not isinstance(value, (list, tuple)):
            raise CallError(
                f"neighbors={name!r} must name a column of lists, but row {row} has {value!r}",
                hint=f"join a column with a list of values of column {sampler.by!r}",
            )
        lists.append([] if value is None else [*value])
    return lists


def round_sizes(turns: Rows, width: int) -> Rows:
    """Return how many identities each round has, int64 [rounds], while they fill a batch.

    Args:
        turns: number of rounds that each identity takes part in, int64 [identities].
        width: identities in a global batch, at most ``len(turns)``.

    """
    ascending = np.sort(turns)
    return len(turns) - np.searchsorted(ascending, np.arange(ascending[-width]), side="right")


def draw_turns(turns: Rows, width: int, batches: int, *key: int) -> Rows:
    """Return the identities of all batches of an epoch, int64 [batches * width].

    The identities of a batch are all different. Round r has one turn of each identity with more than r turns, in a random order. A round that
    does not fill its last batch repeats the identities that it began with. After the last round,
    the rounds start again.

    Args:
        turns: number of rounds that each identity takes part in, int64 [identities].
        width: identities in a global batch, at most ``len(turns)``.
        batches: batches in the epoch.
        key: seed and epoch.

    """
    sizes = round_sizes(turns, width)
    # As many rounds as the batches need; the last one may be cut.
    repeats = -(-batches // int((-(-sizes // width)).sum()))
    sizes = np.tile(sizes, repeats)
    sizes = sizes[: 1 + np.searchsorted(np.cumsum(-(-sizes // width)), batches)]
    filled = -(-sizes // width) * width
    second_turns = filled - sizes

    # Identities with the most turns come first, so the first sizes[r] of them are in round r.
    by_turns = permutation_within(turns.max() - turns, *key, _IDENTITIES)
    rounds = np.repeat(np.arange(len(sizes)), sizes)
    places = count_within(sizes)
    # The identities with a second turn are a window of these places, which begins where the window
    # of the last round ended.
    begins = np.cumsum(second_turns) - second_turns
    once = (places - begins[rounds]) % sizes[rounds] >= second_turns[rounds]
    # The identities in the window open the round in a random order, and the others follow in a
    # random order.
    places = places[permutation_within(2 * rounds + once, *key, _ROUNDS)]
    # Fill the last batch of each round with the identities that opened it.
    starts = np.cumsum(sizes) - sizes
    slots = np.repeat(starts, filled) + count_within(filled) % np.repeat(sizes, filled)
    return by_turns[places[slots[: batches * width]]].astype(np.int64)


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

    # All shuffles of all identities are one array, which one sort puts in order.
    shuffle_sizes = np.repeat(sizes, shuffles)
    shuffle_starts = np.cumsum(shuffle_sizes) - shuffle_sizes
    numbers = np.arange(len(shuffle_sizes), dtype=index_dtype(len(shuffle_sizes)))
    order = permutation_within(np.repeat(numbers, shuffle_sizes), *key, _SAMPLES)
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
    """Return `wanted` rows for each turn of one batch, int64 [turns * wanted].

    They are from as many cameras as possible: a turn takes one sample of each camera in a random order, then a second of each, and so on.

    Args:
        turns: groups of `identities`, int [turns].
        identities: rows of each identity, camera after camera.
        cameras: where each camera of each identity starts among the members, int64 [cameras + 1].
        wanted: K, samples in a turn.
        key: seed, epoch, index of the batch in the epoch, and what the draw is for.

    """
    count = len(turns)
    each = np.arange(wanted)
    draws = uniform(random_words(count * wanted * (1 + wanted), *key))
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


def partly_shuffled(sizes: Rows, draws: Floats) -> Rows:
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
