"""Frozen records of what a report states about images that occur more than once."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class CopyGroup:
    """Images with the same bytes, or two that look alike.

    Attributes:
        rows: their rows in `Columns`.
        splits: names of the splits that they are in.
        labels: their different labels.
        note: how they differ; empty if they have the same bytes.

    """

    rows: tuple[int, ...]
    splits: tuple[str, ...]
    labels: tuple[int, ...]
    note: str = ""


@dataclass(frozen=True, slots=True)
class NearCopies:
    """Images that look alike, but have other bytes: their perceptual hashes differ in few bits.

    Attributes:
        hashed: images with a hash.
        distance: bits in which the hashes differ at most.
        pairs: number of pairs.
        leaked: images of each split that look like one of an earlier split, by pair ``"val in
            train"``. Those with the same bytes as an image of that split are not counted again.
        conflicting: pairs with different labels.
        shown: the first pairs: with different labels, then in different splits, then the others, by
            distance.
        note: what was not compared, and why; empty if everything was.

    """

    hashed: int = 0
    distance: int = 0
    pairs: int = 0
    leaked: Mapping[str, int] = field(default_factory=dict)
    conflicting: int = 0
    shown: tuple[CopyGroup, ...] = ()
    note: str = ""


@dataclass(frozen=True, slots=True)
class Copies:
    """Images with the same bytes in a dataset: equal checksum and equal size.

    Attributes:
        compared: images with a checksum.
        groups: number of groups of equal images.
        surplus: images that repeat an earlier one.
        leaked: images of each split that also occur in an earlier split, by pair ``"val in
            train"``.
        conflicting: groups whose images have different labels.
        leaks: the first groups that are in several splits.
        conflicts: the first groups that have several labels.
        repeats: the largest groups within one split.
        near: images that look alike.

    """

    compared: int
    groups: int
    surplus: int
    leaked: Mapping[str, int]
    conflicting: int
    leaks: tuple[CopyGroup, ...]
    conflicts: tuple[CopyGroup, ...]
    repeats: tuple[CopyGroup, ...]
    near: NearCopies = NearCopies()

    @property
    def shown(self) -> tuple[CopyGroup, ...]:
        """The groups that are listed."""
        return (*self.leaks, *self.conflicts, *self.repeats, *self.near.shown)
