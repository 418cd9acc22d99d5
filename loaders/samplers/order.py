"""How an epoch's samples fall to one rank's batches. Pure; it must never know files or DALI."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from loaders.checkpoint import Position
from loaders.ranks import Ranks
from loaders.samplers import Plan
from manifests.errors import CallError


@dataclass(frozen=True, slots=True)
class Stored:
    """The order of DALI's native readers: each rank reads a part of what is stored.

    Attributes:
        samples: of the split.
        ranks: that share them.
        batch_size: of one rank.
        last_batch: what becomes of the samples that do not fill the last one.
        shuffle: whether each epoch has an order of its own.
        text: of the sampler; there is none.

    """

    samples: int
    ranks: Ranks
    batch_size: int
    last_batch: str
    shuffle: bool
    text: None = None

    @property
    def batches(self) -> int:
        """How many an epoch has; every rank has as many."""
        return self.ranks.least_share(self.samples) // self.batch_size if self.last_batch == "drop" else self.runs

    @property
    def runs(self) -> int:
        """How many the reader makes in an epoch, those included that are dropped."""
        return -(-self.ranks.greatest_share(self.samples) // self.batch_size)

    def size(self, position: Position) -> int:
        """Return how many samples the batch has that comes next."""
        if self.last_batch != "partial":
            return self.batch_size
        # DALI's parts change hands every epoch, but not where it shuffles the shards instead.
        part = self.ranks.share(self.samples, 0 if self.shuffle else position.turns)
        return max(0, min(self.batch_size, part - position.batch * self.batch_size))


@dataclass(frozen=True, slots=True)
class Planned:
    """The order of a sampler: each rank takes its part of each global batch.

    Attributes:
        plan: of the global batches.
        rows: of the split.
        ranks: that share an epoch.
        batch_size: of one rank.
        last_batch: what becomes of the samples that do not fill the last one.
        text: the sampler's, that tells it from others.
        spread: whether it spreads large images over the batches.

    """

    plan: Plan
    rows: int
    ranks: Ranks
    batch_size: int
    last_batch: str
    text: str
    spread: bool = False

    @property
    def batches(self) -> int:
        """How many an epoch has; every rank has as many."""
        whole, rest = divmod(self.plan.samples, self.batch_size * self.ranks.world_size)
        return whole + bool(rest and self.last_batch != "drop")

    @property
    def runs(self) -> int:
        """As many: what is dropped is not read."""
        return self.batches

    def size(self, position: Position) -> int:
        """Return how many samples the batch has that comes next."""
        if self.last_batch != "partial":
            return self.batch_size
        rest = self.plan.samples - position.batch * self.batch_size * self.ranks.world_size
        return max(0, min(self.batch_size, rest - self.ranks.rank * self.batch_size))

    def filled(self, run: int, started: int) -> NDArray[np.int64]:
        """Return the rows of a batch as it is made, int64 [batch_size]: what lacks is the last sample, again.

        Args:
            run: number of the batch since the beginning of epoch `started`.
            started: that epoch.

        Raises:
            CallError: the sampler gives no such rows.

        """
        epochs, number = divmod(run, self.batches)
        whole = self._checked(started + epochs, number)
        first = self.ranks.rank * self.batch_size
        rows = whole[first : first + self.batch_size]
        if len(rows) == self.batch_size:
            return rows
        return np.concatenate([rows, np.repeat(whole[-1:], self.batch_size - len(rows))])

    def _checked(self, epoch: int, number: int) -> NDArray[np.int64]:
        rows = np.asarray(self.plan.batch(epoch, number))
        most = self.batch_size * self.ranks.world_size
        expected = min(most, self.plan.samples - number * most)
        if rows.shape != (expected,) or rows.dtype.kind != "i" or rows.min() < 0 or rows.max() >= self.rows:
            raise CallError(
                f"the sampler's batch {number} of epoch {epoch} must be {expected} whole numbers from 0 to "
                f"{self.rows - 1}, got {rows.dtype} {list(rows.shape)}",
                hint="try the sampler with `loaders.samplers.check_sampler`",
            )
        # A copy: what a plan gave may be its own, to be used again.
        return np.array(rows, np.int64)
