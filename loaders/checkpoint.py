"""Where a loader stands, and how that is saved. Pure; it must never know torch or DALI."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

from manifests.errors import CallError

VERSION = 1


@dataclass(frozen=True, slots=True)
class Position:
    """How far a loader has come.

    Attributes:
        epoch: the current one, from 0.
        batch: batches of it that were given.
        read: batches that its pipeline has made since it started.
        started: the epoch that its pipeline started with, which seeds it.
        resumed: whether the epoch is to be gone on with, not begun.

    """

    epoch: int = 0
    batch: int = 0
    read: int = 0
    started: int = 0
    resumed: bool = False

    def next_epoch(self) -> int:
        """Return the number of the epoch that an iteration begins now."""
        if self.resumed:
            return self.epoch
        return self.epoch if self.read == 0 and self.batch == 0 else self.epoch + 1

    @property
    def turns(self) -> int:
        """How many epochs the pipeline has ended since it started."""
        return self.epoch - self.started

    def after_run(self) -> Position:
        """Return the position once the pipeline has made another batch."""
        return replace(self, read=self.read + 1)

    def after_batch(self) -> Position:
        """Return the position once a batch of the epoch was given."""
        return replace(self, batch=self.batch + 1)

    def restored(self, batches: int) -> Position:
        """Return the position of a loader that goes on here; an epoch has that many batches."""
        return replace(self, resumed=0 < self.batch < batches)

    def going_on(self) -> Position:
        """Return the position when a resumed epoch is gone on with."""
        return replace(self, resumed=False)


@dataclass(frozen=True, slots=True)
class State:
    """What `Loader.state_dict` gives.

    Attributes:
        built: what the loader was built with, by name.
        position: where it stands.
        checkpoint: DALI's own state; empty before the first batch.

    """

    built: dict[str, Any]
    position: Position
    checkpoint: bytes

    def to_dict(self) -> dict[str, Any]:
        """Return plain values."""
        position = asdict(self.position)
        del position["resumed"]
        return {"version": VERSION, "built": self.built, "position": position, "checkpoint": self.checkpoint}


def read_state(state: Mapping[str, Any], built: Mapping[str, Any], *, batches: int) -> State:
    """Read what `State.to_dict` gave, for a loader that was built as `built` says, with so many `batches` an epoch.

    Raises:
        CallError: it is no state, of another version, or of a loader that was built otherwise.

    """
    try:
        version, found, stood, checkpoint = (
            state["version"],
            dict(state["built"]),
            state["position"],
            state["checkpoint"],
        )
        position = Position(*(stood[name] for name in ("epoch", "batch", "read", "started")))
    except (KeyError, TypeError, AttributeError) as error:
        raise CallError(
            f"this is no state of a loader ({type(error).__name__}: {error})", hint="load what state_dict() gave"
        ) from None
    if version != VERSION:
        raise CallError(
            f"this state has version {version!r}, and this release reads {VERSION}",
            hint="load it with the release that saved it",
        )
    whole = isinstance(checkpoint, bytes) and bool(checkpoint) == bool(position.read)
    if not (whole and _possible(position, batches)):
        raise CallError("this is no state of a loader: its parts do not fit together", hint="load another")
    for name, value in built.items():
        if name == "sample_order" and found.get(name) != value:
            raise CallError(
                f"this state was saved by a release whose samplers draw other samples (sample order "
                f"{found.get(name) or 1}; this release draws order {value})",
                hint="resume it with the release that saved it, or start a new epoch without load_state_dict()",
            )
        if found.get(name) != value:
            raise CallError(
                f"this state is of a loader with {name} {found.get(name)!r}, and this one has {value!r}",
                hint="build the loader as it was when the state was saved",
            )
    return State(found, position, checkpoint)


def _possible(position: Position, batches: int) -> bool:
    numbers = (position.epoch, position.batch, position.read, position.started)
    counted = all(isinstance(number, int) and not isinstance(number, bool) and number >= 0 for number in numbers)
    return counted and position.batch <= min(batches, position.read) and position.started <= position.epoch
