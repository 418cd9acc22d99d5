"""The progress of a loader (`Progress`) and its checkpoint (`State`). Pure: imports neither torch nor DALI."""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from enum import Enum
from typing import Any

from loaders.transforms.adjust import AS_WRITTEN, Adjustment
from loaders.transforms.limits import MAX_SIDE
from manifests.errors import CallError
from manifests.members import MAX_INTEGER, Member, MemberError, shorten

VERSION = 1


@dataclass(frozen=True, slots=True)
class Position:
    """A position in the sequence of batches that a loader returns.

    Attributes:
        epoch: number of the epoch, from 0.
        batch: batches of this epoch that the user has received.
        read: batches that the DALI pipeline has produced since it started.
        started: epoch in which the pipeline started. The seed of the pipeline depends on it.
        skipped: batches of the epoch `started` that come before the first batch of the pipeline. More than 0 after a
            resume at another world size.

    """

    epoch: int = 0
    batch: int = 0
    read: int = 0
    started: int = 0
    skipped: int = 0


class Phase(Enum):
    """Where a loader is in its epoch. `Progress` shows the transitions."""

    #: The pipeline starts at this epoch, or at a batch within it, and no batch has been taken from it.
    READY = "ready"
    #: A checkpoint within the epoch was loaded. The next iteration continues the epoch.
    RESUMED = "resumed"
    #: Between two batches of the epoch.
    READING = "reading"
    #: DALI is producing a batch. If an iteration begins in this phase, the previous one was interrupted.
    RUNNING = "running"
    #: The iterator was dropped before the last batch of the epoch, for example by ``break``.
    LEFT = "left"
    #: The user has received every batch of the epoch.
    FINISHED = "finished"


@dataclass(frozen=True, slots=True)
class Progress:
    """The state of a loader, except the pipeline itself. Each transition returns a new record.

    ::

        start -> READY        restore -> READY, RESUMED, READING or FINISHED, as the checkpoint says

        An iteration begins at its first `next`. An iterator that is never used changes nothing.

        READY     -- begin --------> READY      the same epoch
        RESUMED   -- begin --------> READING    the same epoch, from the checkpoint
        FINISHED  -- begin --------> READING    the next epoch, once the batches that "drop" discards are read
        LEFT      -- begin --------> READY      the pipeline restarts at the next epoch
        READING   -- begin --------> READY      another iterator was in use: the pipeline restarts at the next epoch
        RUNNING   -- begin --------> READY      a batch was interrupted: the pipeline restarts at the next epoch

        READY, READING, FINISHED -- run_started -> RUNNING -- run_finished -> READING
        READING   -- batch_given --> READING, after the last batch FINISHED
        READING   -- leave --------> LEFT

        any       -- set_epoch ----> unchanged if that epoch comes next, else READY: the pipeline restarts

    A closed loader has no pipeline, whatever its progress; nor has one whose pipeline could not be started, which the
    next iteration tries again. An exception within `next` does not change the progress: the phase is RUNNING if DALI
    was producing a batch, else READING.

    Attributes:
        batches: batches in an epoch of this rank.
        phase: where the loader is in the epoch.
        position: the current position.
        saved: position after the last batch that the user received.
        checkpoint: DALI's checkpoint at `saved`. Empty before the first batch.
        iteration: number of the newest iteration. Older iterators are invalid.

    """

    batches: int
    phase: Phase
    position: Position
    saved: Position
    checkpoint: bytes = b""
    iteration: int = 0

    @staticmethod
    def start(batches: int, epoch: int = 0, *, iteration: int = 0) -> Progress:
        """Return the progress of a loader whose pipeline starts with this epoch."""
        position = Position(epoch=epoch, started=epoch)
        return Progress(batches, Phase.READY, position, position, iteration=iteration)

    @staticmethod
    def restore(batches: int, position: Position, checkpoint: bytes, *, iteration: int = 0) -> Progress:
        """Return the progress of a loader whose pipeline starts from a checkpoint."""
        if position.read == 0:
            phase = Phase.READY
        elif position.batch == batches:
            phase = Phase.FINISHED
        else:
            phase = Phase.RESUMED if position.batch else Phase.READING
        return Progress(batches, phase, position, position, checkpoint, iteration)

    @property
    def next_epoch(self) -> int:
        """Number of the epoch that an iteration begins, or continues, now."""
        epoch = self.position.epoch
        return epoch if self.phase in (Phase.READY, Phase.RESUMED) else epoch + 1

    @property
    def needs_restart(self) -> bool:
        """Whether an iteration that begins now needs a new pipeline."""
        return self.phase in (Phase.READING, Phase.RUNNING, Phase.LEFT)

    @property
    def resumable(self) -> Progress:
        """The progress that `Loader.state_dict` saves: once an epoch is left, the beginning of the next one."""
        return Progress.start(self.batches, self.next_epoch) if self.phase is Phase.LEFT else self

    def begin(self) -> Progress:
        """Begin an iteration in READY or RESUMED, or in FINISHED once the discarded batches are read."""
        following = replace(self, iteration=self.iteration + 1)
        if self.phase is Phase.READY:
            return following
        if self.phase is Phase.RESUMED:
            return replace(following, phase=Phase.READING)
        position = replace(self.position, epoch=self.next_epoch, batch=0)
        return replace(following, phase=Phase.READING, position=position)

    def leave(self) -> Progress:
        """Record that the newest iterator was dropped."""
        return replace(self, phase=Phase.LEFT) if self.phase is Phase.READING else self

    # These three run for every batch. Calling the constructor takes half the time of `dataclasses.replace`.

    def run_started(self) -> Progress:
        """Count a batch that DALI begins to produce."""
        at = self.position
        position = Position(at.epoch, at.batch, at.read + 1, at.started, at.skipped)
        return Progress(self.batches, Phase.RUNNING, position, self.saved, self.checkpoint, self.iteration)

    def run_finished(self) -> Progress:
        """Record that DALI has produced the batch."""
        return Progress(self.batches, Phase.READING, self.position, self.saved, self.checkpoint, self.iteration)

    def batch_given(self, checkpoint: bytes) -> Progress:
        """Count a batch that the user receives; `checkpoint` is DALI's, taken after it."""
        at = self.position
        position = Position(at.epoch, at.batch + 1, at.read, at.started, at.skipped)
        phase = Phase.FINISHED if position.batch == self.batches else Phase.READING
        return Progress(self.batches, phase, position, position, checkpoint, self.iteration)


@dataclass(frozen=True, slots=True)
class State:
    """What `Loader.state_dict` returns.

    Attributes:
        built: the choices that another loader must share to resume from this checkpoint, by name.
        position: position after the last batch that the user received.
        checkpoint: DALI's checkpoint. Empty before the first batch.
        errors: why images could not be decoded, by their row in the split.
        adjustment: what `Loader.set` has changed.

    """

    built: dict[str, Any]
    position: Position
    checkpoint: bytes
    errors: Mapping[int, str] = field(default_factory=dict)
    adjustment: Adjustment = AS_WRITTEN

    def to_dict(self) -> dict[str, Any]:
        """Return plain values."""
        return {
            "version": VERSION,
            "built": self.built,
            "position": asdict(self.position),
            # `torch.load` refuses empty bytes by default.
            "checkpoint": self.checkpoint or None,
            "checksum": zlib.crc32(self.checkpoint),
            "errors": [[row, reason] for row, reason in sorted(self.errors.items())],
            "set": {"size": list(self.adjustment.size or ()), "magnitude": self.adjustment.magnitude},
        }


def read_state(state: Mapping[str, Any], built: Mapping[str, Any], *, batches: int) -> State:
    """Parse the result of `State.to_dict` for a loader that resumes from it.

    A state of a sampler's order is also valid at another rank, world size or batch size per rank, if the global batch
    is the same: the epoch continues with the next global batch. DALI's checkpoint belongs to one rank, so it is
    replaced by a new start at that batch.

    Args:
        state: what `Loader.state_dict` returned.
        built: choices of the loader that loads the state.
        batches: number of batches per epoch of that loader.

    Raises:
        CallError: `state` is not a loader's state, has another version, or belongs to a different loader.

    """
    try:
        whole = Member(state)
        version = whole["version"].integer(0, _MAX_COUNT)
        if version != VERSION:
            raise CallError(
                f"this state has version {version}, but this release reads version {VERSION}",
                hint="load it with the release that saved it",
            )
        saved = {name: _plain(member) for name, member in whole["built"].members().items()}
        position = _position(whole["position"], batches)
        checkpoint = b"" if whole["checkpoint"].value is None else whole["checkpoint"].value
        if not isinstance(checkpoint, bytes) or bool(checkpoint) != bool(position.read):
            whole["checkpoint"].fail("bytes, and empty before the first batch")
        if whole["checksum"].value != zlib.crc32(checkpoint):
            # DALI accepts some damaged checkpoints, and continues with other batches.
            whole["checkpoint"].fail("the bytes that were saved")
        errors = dict(_error(member) for member in whole["errors"].items())
        adjustment = _adjustment(whole["set"])
    except MemberError as error:
        raise CallError(f"this is not the state of a loader ({error})", hint=_LOAD_ANOTHER) from None
    if _same_global_batches(saved, built):
        return State(dict(built), _moved(position, batches), b"", errors, adjustment)
    for name, value in built.items():
        stored = saved.get(name)
        if name == "sample_order" and stored != value:
            raise CallError(
                f"this state was saved by a release whose samplers draw other samples (sample order "
                f"{stored or 1}; this release draws order {value})",
                hint="resume it with the release that saved it, or start a new epoch without load_state_dict()",
            )
        if stored != value:
            raise CallError(
                f"the state was saved by a loader with {name}={shorten(stored, 1000)}, but this loader has "
                f"{name}={shorten(value, 1000)}",
                hint="build the loader with the same arguments",
            )
    return State(saved, position, checkpoint, errors, adjustment)


#: Choices that say which part of a global batch a rank reads.
_PART = ("rank", "world_size", "batch_size")


def _same_global_batches(saved: Mapping[str, Any], built: Mapping[str, Any]) -> bool:
    """Return whether two loaders follow the same sampler, and read different parts of equal global batches."""
    differing = [name for name, value in built.items() if saved.get(name) != value]
    if not differing or built.get("sampler") is None or not set(differing) <= set(_PART):
        return False
    return _global_batch(saved) == _global_batch(built)


def _global_batch(choices: Mapping[str, Any]) -> int | None:
    size, world_size = choices.get("batch_size"), choices.get("world_size")
    return size * world_size if isinstance(size, int) and isinstance(world_size, int) else None


def _moved(position: Position, batches: int) -> Position:
    """Return the position of a pipeline that starts with the batch that comes next."""
    epoch, batch = (position.epoch + 1, 0) if position.batch == batches else (position.epoch, position.batch)
    return Position(epoch, batch, started=epoch, skipped=batch)


def _position(member: Member, batches: int) -> Position:
    epoch, read = member["epoch"].integer(0, _MAX_EPOCH), member["read"].integer(0, _MAX_COUNT)
    skipped = member["skipped"].integer(0, batches)
    return Position(
        epoch=epoch,
        batch=member["batch"].integer(0, min(batches, read + skipped)),
        read=read,
        started=member["started"].integer(0, epoch),
        skipped=skipped,
    )


def _error(member: Member) -> tuple[int, str]:
    row, reason = member.items() if len(member.items()) == 2 else member.fail("a row and a reason")
    return row.integer(), reason.text()


def _adjustment(member: Member) -> Adjustment:
    sides = [side.integer(1, MAX_SIDE) for side in member["size"].items()]
    magnitude = member["magnitude"].value
    if len(sides) not in (0, 2):
        member["size"].fail("a height and a width, or nothing")
    if magnitude is not None and (type(magnitude) not in (int, float) or not 0 <= magnitude <= MAX_SIDE):
        member["magnitude"].fail("a number of at least 0, or nothing")
    return Adjustment((sides[0], sides[1]) if sides else None, magnitude)


def _plain(member: Member) -> Any:
    """Return a choice of a loader: `None`, text, a number, or a list of text. Other values could be of any size."""
    if isinstance(member.value, (list, tuple)):
        return list(member.texts())
    if isinstance(member.value, str):
        return member.text()
    if member.value is None or isinstance(member.value, (bool, float)):
        return member.value
    return member.integer(-MAX_INTEGER)


#: Larger numbers of epochs, as `Loader.set_epoch` takes them, and of batches are a mistake.
_MAX_EPOCH = 2**31 - 1
_MAX_COUNT = 1 << 53
_LOAD_ANOTHER = "pass the unchanged result of Loader.state_dict()"
