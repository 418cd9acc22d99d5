"""In which batch which identity has its turn. NumPy only; it must never know a sample.

Identities stand in places 0, 1, ...; round r is shared by the first ``taking[r]`` of them. A round that does not fill
its last batch gives some a second turn in it, the *doubled*: a window of places that moves on from round to round, so
that second turns are spread evenly, and that how many a place has had is known without playing the rounds through.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from loaders.samplers.permutation import Rows, hashed, permute, stream


@dataclass(frozen=True, slots=True, eq=False)
class Rounds:
    """Rounds that are gone through once, and again from the first as often as asked for.

    Attributes:
        width: turns in a batch, at most the last of `taking`.
        taking: places that each round has, int64 [rounds], never rising.
        first: number of each round's first batch, int64 [rounds + 1]; the last is the number of all batches.
        moved: where each round's window begins, not yet wrapped, int64 [rounds].
        doubled: ``place * rounds + round`` of every second turn, sorted, int64.

    """

    width: int
    taking: Rows
    first: Rows
    moved: Rows
    doubled: Rows

    @property
    def batches(self) -> int:
        """How many batches all rounds have."""
        return int(self.first[-1])

    def turns(self, number: int, seed: tuple[int, ...]) -> tuple[Rows, Rows]:
        """Return the places whose turn it is in a batch, all different, and how many turns each has had before.

        Both int64 [width]. `number` may be beyond `batches`: then the rounds are gone through again.
        """
        passed, number = divmod(number, self.batches)
        this = int(np.searchsorted(self.first, number, side="right")) - 1
        taking = int(self.taking[this])
        window = int(self.first[this + 1] - self.first[this]) * self.width - taking
        order = (number - int(self.first[this])) * self.width + np.arange(self.width)
        second, order = order >= taking, order % taking
        # The window comes first in the round, in a random order, so that it is what the last batch is filled up with.
        inside = order < window
        shuffled = permute(
            np.where(inside, order, order - window),
            np.where(inside, window, taking - window),
            hashed(stream(*seed, passed * len(self.taking) + this), inside),
        )
        places = (int(self.moved[this]) + np.where(inside, shuffled, shuffled + window)) % taking
        before = self._turns_before(places, this) + second
        if passed:
            before += passed * self._turns_before(places, len(self.taking))
        return places, before

    def _turns_before(self, places: Rows, round_: int) -> Rows:
        rounds = len(self.taking)
        # A place has a turn in each round from the first to the last that reaches it.
        reached = rounds - np.searchsorted(self.taking[::-1], places, side="right")
        second = np.searchsorted(self.doubled, places * rounds + round_)
        return np.minimum(reached, round_) + second - np.searchsorted(self.doubled, places * rounds)


def make_rounds(taking: Rows, width: int) -> Rounds:
    """Return rounds of so many places each, never rising and never below the `width` of a batch."""
    batches = -(-taking // width)
    windows = batches * width - taking
    moved = np.cumsum(windows) - windows
    rounds = np.repeat(np.arange(len(taking)), windows)
    places = (np.arange(int(windows.sum())) % taking[rounds]) * len(taking)
    places += rounds
    places.sort()
    return Rounds(width, taking, np.concatenate([[0], np.cumsum(batches)]), moved, places)
