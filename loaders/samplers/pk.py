"""`PKSampler`: batches of P identities with K samples each. `pk_epoch` draws the batches."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from loaders.integers import require_int_field
from loaders.samplers.base import Indices, Plan, Rows, check_column_name, check_not_empty
from loaders.samplers.groups import Groups, group, group_within, read_codes, value_at
from loaders.samplers.order import EpochPlan
from loaders.samplers.pk_epoch import draw_across, draw_samples, draw_turns, round_sizes
from manifests.errors import CallError
from manifests.process.text import agree, plural


@dataclass(frozen=True, slots=True)
class PKSampler:
    """Batches of P identities with K samples each; over all ranks, P x world size identities.

    A batch lists the K samples of its first identity, then those of the second, and so on. They are
    different samples if the identity has K; see `few`. A turn of an identity is its place in a
    batch, with K samples. An epoch consists of rounds: each identity has one turn per round (with
    ``weight="sample"``, until it has had its number of turns), and some have a second if the last
    batch of the round is not full. Over an epoch, the numbers of turns differ by at most two. The identities of a global batch are all different. Within an
    epoch, the turns of an identity use all of its samples, except for at most K - 1 that are left
    over, before any sample repeats.

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

    @property
    def columns(self) -> tuple[str, ...]:
        """The column that names the identity, and the column of `across`."""
        return (self.by,) if self.across is None else (self.by, self.across)

    def on_one_rank(self, world_size: int) -> PKSampler:
        """Return the sampler that gives the global batches of several ranks to one rank."""
        return replace(self, classes_per_batch=self.classes_per_batch * world_size)

    def plan(
        self,
        columns: Mapping[str, NDArray[Any]],
        *,
        samples: int,
        batch_size: int,
        world_size: int,
        seed: int,
    ) -> Plan:
        """Fit the sampler to a split; see `Sampler`.

        Raises:
            CallError: the batch size is not P x K, the split has too few identities or no samples,
                ``few="error"`` found an identity with fewer than K samples, or a column is missing
                or has missing values.

        """
        self._check_batch_size(batch_size)
        check_not_empty(samples)
        identities, cameras = self._grouped(columns, samples)
        sizes = identities.sizes
        if self.few == "error":
            self._check_none_small(identities, columns[self.by])
        kept = (
            np.flatnonzero(sizes >= self.samples_per_class)
            if self.few == "drop"
            else np.arange(len(sizes))
        )
        width = self.classes_per_batch * world_size
        self._check_enough_identities(width, world_size, len(kept), len(sizes))
        turns = self._turns(sizes[kept], width)
        batches = self.batches or self._batches(int(sizes[kept].sum()), turns, width)
        return _PKPlan(
            self,
            identities=identities,
            cameras=cameras,
            kept=kept,
            turns=turns,
            width=width,
            batches=batches,
            seed=seed,
        )

    def _grouped(
        self, columns: Mapping[str, NDArray[Any]], samples: int
    ) -> tuple[Groups, Rows | None]:
        codes = read_codes(columns, self.by, samples)
        if self.across is None:
            return group(codes), None
        return group_within(codes, read_codes(columns, self.across, samples))

    def _check_batch_size(self, batch_size: int) -> None:
        p, k = self.classes_per_batch, self.samples_per_class
        if batch_size != p * k:
            raise CallError(
                f"batch_size={batch_size}, but PKSampler({p}, {k}) makes batches of {p * k}",
                hint=f"set batch_size={p * k}",
            )

    def _check_none_small(self, identities: Groups, column: NDArray[Any]) -> None:
        small = np.flatnonzero(identities.sizes < self.samples_per_class)
        if small.size:
            label = value_at(column, int(identities.members[identities.starts[small[0]]]))
            raise CallError(
                f"{plural(len(small), 'identity')} of column {self.by!r}"
                f" {agree(len(small), 'has', 'have')} fewer than"
                f" samples_per_class={self.samples_per_class} samples, for example {label!r}, which"
                f" has {identities.sizes[small[0]]}",
                hint='set few="repeat" or few="drop"',
            )

    def _check_enough_identities(self, width: int, world_size: int, kept: int, total: int) -> None:
        if width <= kept:
            return
        each_rank = f" on each of {world_size} ranks" if world_size > 1 else ""
        available = f"column {self.by!r} has {kept:,}"
        if kept < total:
            available = (
                f"only {kept:,} of the {total:,} in column {self.by!r} have at least"
                f" {self.samples_per_class} samples"
            )
        raise CallError(
            f"a batch needs {width} different identities"
            f" (classes_per_batch={self.classes_per_batch}{each_rank}), but {available}",
            hint=self._identities_hint(kept, world_size),
        )

    def _identities_hint(self, kept: int, world_size: int) -> str:
        if not kept:
            return f'set few="repeat", or a samples_per_class below {self.samples_per_class}'
        if kept < world_size:
            return f"use at most {kept} ranks"
        most = kept // world_size
        return f"set classes_per_batch={most} and batch_size={most * self.samples_per_class}"

    def _turns(self, sizes: Rows, width: int) -> Rows:
        """Return the number of rounds that each identity takes part in."""
        if self.weight == "sample":
            return np.maximum(1, sizes // self.samples_per_class)
        per_round = -(-len(sizes) // width) * width * self.samples_per_class
        return np.full(len(sizes), max(1, -(-int(sizes.sum()) // per_round)))

    def _batches(self, samples: int, turns: Rows, width: int) -> int:
        rounds = -(-round_sizes(turns, width) // width)  # batches of each round
        if self.weight == "sample":
            return int(rounds.sum())
        return max(int(rounds[0]), samples // (width * self.samples_per_class))


class _PKPlan(EpochPlan):
    """The plan of a `PKSampler`.

    Args:
        sampler: the options.
        identities: rows of each identity; with `cameras`, camera after camera.
        cameras: where each camera of each identity starts among the members; ``None`` without
            `across`.
        kept: the groups of `identities` that are not left out.
        turns: number of rounds that each of them takes part in.
        width: identities in a global batch.
        batches: batches in an epoch.
        seed: from 0 to 2**63.

    """

    def __init__(
        self,
        sampler: PKSampler,
        *,
        identities: Groups,
        cameras: Rows | None,
        kept: Rows,
        turns: Rows,
        width: int,
        batches: int,
        seed: int,
    ) -> None:
        global_batch = width * sampler.samples_per_class
        super().__init__(batches * global_batch, global_batch, seed)
        self._sampler = sampler
        self._identities = identities
        self._cameras = cameras
        self._kept = kept
        self._turns = turns
        self._width = width
        self._batches = batches

    def draw_epoch(self, epoch: int) -> Indices:
        """Return the rows of an epoch.

        With `across` the identities of its turns, from which `batch` draws the rows.
        """
        turns = self._kept[draw_turns(self._turns, self._width, self._batches, self.seed, epoch)]
        if self._cameras is not None:
            return turns.astype(self._identities.members.dtype)
        return draw_samples(
            turns, self._identities, self._sampler.samples_per_class, self.seed, epoch
        )

    def batch(self, epoch: int, number: int) -> Rows:
        if self._cameras is None:
            return super().batch(epoch, number)
        turns = self.part(epoch, number, self._width, self._batches * self._width)
        k = self._sampler.samples_per_class
        return draw_across(turns, self._identities, self._cameras, k, self.seed, epoch, number)

    @property
    def notes(self) -> tuple[str, ...]:
        """The line about identities with fewer than K samples, if the split has any."""
        few = int((self._identities.sizes < self._sampler.samples_per_class).sum())
        return (self._small_identities_line(),) if few else ()

    def _small_identities_line(self) -> str:
        sizes, wanted = self._identities.sizes, self._sampler.samples_per_class
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
        sampler, sizes, wanted = (
            self._sampler,
            self._identities.sizes,
            self._sampler.samples_per_class,
        )
        lines = [
            (
                f"Column {sampler.by!r} has {plural(len(sizes), 'identity')} of {sizes.min():,} to"
                f" {sizes.max():,} samples, median {np.median(sizes):,.0f}."
            ),
            self._small_identities_line(),
            (
                f"An epoch has {plural(self._batches, 'batch')} of"
                f" {plural(self._width, 'identity')} x {wanted} samples over all ranks:"
                f" {self._batches * self._width / len(self._kept):,.1f} turns per identity on"
                " average."
            ),
            self._rounds_line(),
        ]
        if sampler.across is not None:
            lines.append(
                f"The samples of a turn come from as many values of column {sampler.across!r} as"
                " possible."
            )
        return tuple(lines)

    def _rounds_line(self) -> str:
        rounds = round_sizes(self._turns, self._width)
        second_turns = int((-rounds % self._width).sum())
        size = f"{rounds[0]:,}" if rounds[-1] == rounds[0] else f"{rounds[-1]:,} to {rounds[0]:,}"
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
