"""P identities a batch with K samples each. NumPy only."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from loaders.options import keep_whole
from loaders.samplers.base import Plan, named_column, needs_batch, needs_samples
from loaders.samplers.groups import Groups, codes_of, group, group_within, value_at
from loaders.samplers.permutation import Keys, Rows, hashed, permute, stream
from loaders.samplers.rounds import Rounds, make_rounds
from manifests.errors import CallError

# What each draw is for: with seed and epoch, it names a stream of its own.
_PLACE, _ROUND, _IMAGE = 0, 1, 2


@dataclass(frozen=True, slots=True)
class PKSampler:
    """Batches of P identities with K different samples each, identity after identity; over all ranks P x world size.

    An epoch goes in rounds: each identity that takes part has one turn, and if the last batch is not full some have a
    second. The identities of a global batch are all different, and over its turns in an epoch no sample of an identity
    comes twice before all have come, but for at most K - 1 left over, others each time.

    Args:
        classes_per_batch: P, identities in a batch of one rank.
        samples_per_class: K.
        by: column of the sample tables that tells the identity.
        few: what becomes of an identity of fewer than K samples: ``repeat`` takes them as often as K needs, each as
            often as the others to within one; ``drop`` leaves it out; ``error`` refuses.
        across: a column, ``"camera"`` say: the K samples of a turn come from as many of the identity's cameras as
            can be, evenly, drawn anew each turn (as in fast-reid's BalancedIdentitySampler). Then samples may come
            again before all have come.
        weight: ``identity`` lets all take part in every round, and an epoch has about as many samples as the split;
            ``sample`` lets an identity of n samples take part in n // K rounds, at least one, as in fast-reid and
            PaddleClas (``sample_avg_prob``), and rounds of fewer identities than a batch takes are left out.
        batches: how many an epoch has; none means as `weight` says.

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

    def __post_init__(self) -> None:
        for name in ("classes_per_batch", "samples_per_class"):
            keep_whole(self, name, 1)
        named_column("by", self.by)
        if self.few not in ("repeat", "drop", "error"):
            raise CallError(f"few must be 'repeat', 'drop' or 'error', got {self.few!r}")
        if self.weight not in ("identity", "sample"):
            raise CallError(f"weight must be 'identity' or 'sample', got {self.weight!r}")
        if self.across is not None:
            named_column("across", self.across)
        if self.across == self.by:
            raise CallError(f"across={self.across!r} is the column that tells the identity", hint="name another")
        if self.batches is not None:
            keep_whole(self, "batches", 1)

    @property
    def columns(self) -> tuple[str, ...]:
        """The one that tells the identity, and that of `across`."""
        return (self.by,) if self.across is None else (self.by, self.across)

    def plan(
        self, columns: Mapping[str, NDArray[Any]], *, samples: int, batch_size: int, world_size: int, seed: int
    ) -> Plan:
        """Fit to a split; see `Sampler`.

        Raises:
            CallError: the batch size is not P x K, there are too few identities, or `few` refuses one; the split has
                no sample, or a column is missing or lacks values.

        """
        self._check_batch_size(batch_size)
        needs_samples(samples)
        identities, cameras = self._grouped(columns, samples)
        sizes = identities.sizes
        if self.few == "error":
            self._refuse_few(identities, columns[self.by])
        kept = np.flatnonzero(sizes >= self.samples_per_class) if self.few == "drop" else np.arange(len(sizes))
        width = self.classes_per_batch * world_size
        self._check_width(width, world_size, len(kept), len(sizes))
        turns = self._turns(sizes[kept], width)
        order = np.argsort(-turns, kind="stable")
        rounds = make_rounds(_taking(turns, width), width)
        batches = self.batches or self._batches(int(sizes[kept].sum()), rounds)
        return _PKPlan(self, identities, cameras, kept[order], _blocks(turns[order]), rounds, batches, seed)

    def _grouped(self, columns: Mapping[str, NDArray[Any]], samples: int) -> tuple[Groups, Rows | None]:
        codes = codes_of(columns, self.by, samples)
        if self.across is None:
            return group(codes), None
        return group_within(codes, codes_of(columns, self.across, samples))

    def _check_batch_size(self, batch_size: int) -> None:
        asked = self.classes_per_batch * self.samples_per_class
        if batch_size != asked:
            raise CallError(
                f"batch_size={batch_size}, and the sampler makes batches of {self.classes_per_batch} identities x "
                f"{self.samples_per_class} samples",
                hint=f"say batch_size={asked}, or other classes_per_batch and samples_per_class",
            )

    def _refuse_few(self, identities: Groups, column: NDArray[Any]) -> None:
        few = np.flatnonzero(identities.sizes < self.samples_per_class)
        if few.size:
            label = value_at(column, int(identities.members[identities.starts[few[0]]]))
            raise CallError(
                f"{len(few):,} identities of column {self.by!r} have fewer than samples_per_class="
                f"{self.samples_per_class} samples, {label!r} the first with {identities.sizes[few[0]]}",
                hint='say few="repeat" or few="drop"',
            )

    def _check_width(self, width: int, world_size: int, kept: int, found: int) -> None:
        if width <= kept:
            return
        dropped = f" ({found - kept:,} more have fewer than {self.samples_per_class} samples)" if kept < found else ""
        raise CallError(
            f"a batch takes {width} different identities (classes_per_batch={self.classes_per_batch} on each of "
            f"{world_size} ranks), and column {self.by!r} has {kept:,}{dropped}",
            hint=self._width_hint(kept, world_size),
        )

    def _width_hint(self, kept: int, world_size: int) -> str:
        if not kept:
            return f"say few='repeat', or fewer samples_per_class than {self.samples_per_class}"
        if kept < world_size:
            return "use fewer ranks"
        most = kept // world_size
        return f"say classes_per_batch={most}, and batch_size={most * self.samples_per_class}"

    def _turns(self, sizes: Rows, width: int) -> Rows:
        """Return in how many rounds each identity takes part."""
        if self.weight == "sample":
            return np.maximum(1, sizes // self.samples_per_class)
        per_round = -(-len(sizes) // width) * width * self.samples_per_class
        return np.full(len(sizes), max(1, -(-int(sizes.sum()) // per_round)))

    def _batches(self, samples: int, rounds: Rounds) -> int:
        if self.weight == "sample":
            return rounds.batches
        one_round = int(rounds.first[1])
        return max(one_round, samples // (rounds.width * self.samples_per_class))


def _taking(turns: Rows, width: int) -> Rows:
    """Return how many identities each round has, as long as they fill a batch."""
    rising = np.sort(turns)
    return len(turns) - np.searchsorted(rising, np.arange(rising[-width]), side="right")


def _blocks(turns: Rows) -> Rows:
    """Return for each identity, most turns first, where those of as many turns begin and how many: int64 [2, n]."""
    _, starts, sizes = np.unique(-turns, return_index=True, return_counts=True)
    return np.stack([np.repeat(starts, sizes), np.repeat(sizes, sizes)])


@dataclass(frozen=True, slots=True, eq=False)
class _PKPlan:
    """The choices fitted to a split.

    Attributes:
        cameras: where the samples of each camera of each identity start, among the identities' members; none
            without `across`.
        order: identities that take part, as numbers of groups, those of most turns first.
        blocks: those of as many turns as each; among them the epoch's shuffle gives places.
        batches: how many an epoch has.

    """

    sampler: PKSampler
    identities: Groups
    cameras: Rows | None
    order: Rows
    blocks: Rows
    rounds: Rounds
    batches: int
    seed: int

    @property
    def samples(self) -> int:
        return self.batches * self._global_batch

    @property
    def _global_batch(self) -> int:
        return self.rounds.width * self.sampler.samples_per_class

    def batch(self, epoch: int, number: int) -> Rows:
        needs_batch(number, self.batches)
        places, turn = self.rounds.turns(number, (self.seed, epoch, _ROUND))
        starts, sizes = self.blocks[:, places]
        places = starts + permute(places - starts, sizes, hashed(stream(self.seed, epoch, _PLACE, 0), starts))
        chosen = self.order[places]
        keys = hashed(stream(self.seed, epoch, _IMAGE, 0), chosen)
        if self.cameras is None:
            return self._from_all(chosen, turn, keys)
        return self._across(self.cameras, chosen, turn, keys)

    def _from_all(self, chosen: Rows, turn: Rows, keys: Keys) -> Rows:
        """Return K rows of each identity: the next K of a random order of its samples, another after each cycle."""
        wanted = self.sampler.samples_per_class
        sizes = self.identities.sizes_of(chosen)
        cycle, part = np.divmod(turn, np.maximum(1, sizes // wanted))
        places = (part[:, None] * wanted + np.arange(wanted)) % sizes[:, None]
        found = permute(places, sizes[:, None], hashed(keys, cycle)[:, None])
        return self.identities.rows(chosen[:, None], found).ravel()

    def _across(self, starts: Rows, chosen: Rows, turn: Rows, keys: Keys) -> Rows:
        """Return K rows of each identity: one of each camera in a random order, then a second of each, and so on."""
        wanted = np.arange(self.sampler.samples_per_class)
        keys = hashed(keys, turn)[:, None]
        first, end = np.searchsorted(starts, self.identities.starts[np.stack([chosen, chosen + 1])])
        count = (end - first)[:, None]
        cameras = first[:, None] + permute(wanted % count, count, keys)
        sizes = np.where(wanted < count, starts[cameras + 1] - starts[cameras], 0)
        # Every (how manieth of its camera, camera) that there is, in that order; the first K are taken.
        there = (wanted[:, None] < sizes[:, None, :]).reshape(len(chosen), -1)
        listed = np.argsort(~there, axis=1, kind="stable")[:, : len(wanted)]
        taken = np.take_along_axis(listed, wanted % np.count_nonzero(there, axis=1)[:, None], 1)
        nth, camera = np.divmod(taken, len(wanted))
        camera = np.take_along_axis(cameras, camera, 1)
        found = permute(nth, starts[camera + 1] - starts[camera], hashed(keys, camera))
        rows: Rows = self.identities.members[starts[camera] + found].astype(np.int64)
        return rows.ravel()

    @property
    def notes(self) -> tuple[str, ...]:
        """What is said at once: how many identities have too few samples, and what becomes of them."""
        few = int((self.identities.sizes < self.sampler.samples_per_class).sum())
        return (self._line_of_few(),) if few else ()

    def _line_of_few(self) -> str:
        sizes, wanted = self.identities.sizes, self.sampler.samples_per_class
        few = sizes[sizes < wanted]
        fate = "are left out" if self.sampler.few == "drop" else "are taken repeatedly"
        return f"The {few.sum():,} samples of {len(few):,} identities with fewer than {wanted} {fate}."

    @property
    def lines(self) -> tuple[str, ...]:
        said, sizes, wanted = self.sampler, self.identities.sizes, self.sampler.samples_per_class
        lines = [
            f"Column {said.by!r} has {len(sizes):,} identities of {sizes.min():,} to {sizes.max():,} samples, "
            f"{np.median(sizes):,.0f} in the middle.",
            self._line_of_few(),
            f"An epoch has {self.batches:,} batches of {self.rounds.width:,} identities x {wanted} samples over all "
            f"ranks: {self.batches * self.rounds.width / len(self.order):,.1f} turns an identity on average.",
            self._line_of_rounds(),
        ]
        if said.across is not None:
            lines.append(f"The samples of a turn come from as many values of column {said.across!r} as can be.")
        return tuple(lines)

    def _line_of_rounds(self) -> str:
        rounds, wanted = self.rounds, self.sampler.samples_per_class
        line = (
            f"In {len(rounds.taking):,} rounds of {rounds.taking[-1]:,} to {rounds.taking[0]:,} identities "
            f"{len(rounds.doubled):,} turns are second ones, which fill up last batches"
        )
        if self.sampler.weight == "identity":
            return f"{line}."
        offered = np.maximum(1, self.identities.sizes_of(self.order) // wanted).sum()
        return f"{line}; {offered - rounds.taking.sum():,} turns are left out, of which too few are left for a batch."
