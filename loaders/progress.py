"""Where a loader is in its epochs: `Position`, `Phase`, `Progress`; what was and what comes: `Seen`, `Upcoming`.

Pure: imports neither torch nor DALI.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import Enum

from loaders.arrays import Float32s, Ints


@dataclass(frozen=True, slots=True)
class Position:
    """A position in the sequence of batches that a loader returns.

    Attributes:
        epoch: number of the epoch, from 0.
        batch: batches of this epoch that the user has received.
        read: batches that DALI's pipelines have produced since they started.
        started: epoch in which the pipeline started. The seed of the pipeline depends on it.
        skipped: batches of the epoch `started` that come before the first batch of the pipeline.
            More than 0 after a resume at another world size.

    """

    epoch: int = 0
    batch: int = 0
    read: int = 0
    started: int = 0
    skipped: int = 0


@dataclass(frozen=True, slots=True)
class Seen:
    """The batches that the user has received, also before a checkpoint was loaded.

    Attributes:
        runs: epoch, first batch and the batch after the last one, of batches in a row.
        samples: samples of these batches, over all ranks.

    """

    runs: tuple[tuple[int, int, int], ...] = ()
    samples: int = 0

    def with_batch(self, epoch: int, batch: int, samples: int) -> Seen:
        """Add a batch by its number in the epoch."""
        runs = self.runs
        first = batch
        if runs and (runs[-1][0], runs[-1][2]) == (epoch, batch):
            first = runs[-1][1]
            runs = runs[:-1]
        return Seen((*runs, (epoch, first, batch + 1)), self.samples + samples)


class Phase(Enum):
    """Where a loader is in its epoch. `Progress` shows the transitions."""

    #: The pipeline starts at this epoch, or at a batch within it, and no batch has been taken from
    #: it.
    READY = "ready"
    #: A checkpoint within the epoch was loaded. The next iteration continues the epoch.
    RESUMED = "resumed"
    #: Between two batches of the epoch.
    READING = "reading"
    #: DALI is producing a batch. If an iteration begins in this phase, the previous one was
    #: interrupted.
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
        FINISHED  -- begin --------> READING    the next epoch, once discarded batches are read
        LEFT      -- begin --------> READY      the pipeline restarts at the next epoch
        READING   -- begin --------> READY      another iterator is in use: restarts at the next epoch
        RUNNING   -- begin --------> READY      a batch was interrupted: restarts at the next epoch

        READY, READING, FINISHED -- run_started -> RUNNING -- run_finished -> READING
        READING   -- batch_given --> READING, after the last batch FINISHED
        READING   -- leave --------> LEFT

        any       -- set_epoch ----> unchanged if that epoch comes next, else READY: restarts

    A closed loader has no pipeline, whatever its progress; nor has one whose pipeline could not be
    started, which the next iteration tries again. An exception within `next` does not change the
    progress: the phase is RUNNING if DALI was producing a batch, else READING.

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
    def restore(batches: int, position: Position, checkpoint: bytes) -> Progress:
        """Return the progress of a loader whose pipeline starts from a checkpoint."""
        phase = Phase.READING
        if position.read == 0:
            phase = Phase.READY
        elif position.batch == batches:
            phase = Phase.FINISHED
        elif position.batch:
            phase = Phase.RESUMED
        return Progress(batches, phase, position, position, checkpoint)

    @property
    def next_epoch(self) -> int:
        """Number of the epoch that an iteration begins, or continues, now."""
        begins_again = self.phase in (Phase.READY, Phase.RESUMED)
        return self.position.epoch + (not begins_again)

    @property
    def needs_restart(self) -> bool:
        """Whether an iteration that begins now needs a new pipeline."""
        return self.phase in (Phase.READING, Phase.RUNNING, Phase.LEFT)

    @property
    def resumable(self) -> Progress:
        """What `Loader.state_dict` saves: once an epoch is left, the beginning of the next one."""
        if self.phase is Phase.LEFT:
            return Progress.start(self.batches, self.next_epoch)
        return self

    def begin(self) -> Progress:
        """Begin an iteration in READY, RESUMED, or FINISHED once discarded batches are read."""
        following = replace(self, iteration=self.iteration + 1)
        if self.phase is Phase.READY:
            return following
        if self.phase is Phase.RESUMED:
            return replace(following, phase=Phase.READING)
        position = replace(self.position, epoch=self.next_epoch, batch=0)
        return replace(following, phase=Phase.READING, position=position)

    def leave(self) -> Progress:
        """Record that the newest iterator was dropped."""
        if self.phase is Phase.READING:
            return replace(self, phase=Phase.LEFT)
        return self

    def run_started(self) -> Progress:
        """Count a batch that DALI begins to produce."""
        position = replace(self.position, read=self.position.read + 1)
        return replace(self, phase=Phase.RUNNING, position=position)

    def run_finished(self) -> Progress:
        """Record that DALI has produced the batch."""
        return replace(self, phase=Phase.READING)

    def batch_given(self, checkpoint: bytes) -> Progress:
        """Count a batch that the user receives; `checkpoint` is DALI's, taken after it."""
        at = replace(self.position, batch=self.position.batch + 1)
        phase = Phase.FINISHED if at.batch == self.batches else Phase.READING
        return replace(self, phase=phase, position=at, saved=at, checkpoint=checkpoint)


@dataclass(frozen=True, slots=True)
class Lane:
    """Which batches a pipeline computes, if several take turns: every `count`-th one, from `index` on."""

    index: int = 0
    count: int = 1

    def number(self, run: int) -> int:
        """Return the number of the batch that the pipeline computes in a run."""
        return self.index + self.count * run

    def runs(self, read: int) -> int:
        """Return how many of the first `read` batches of all lanes the pipeline computes."""
        return max(0, -(-(read - self.index) // self.count))


#: One pipeline computes all batches.
ONE_LANE = Lane()


@dataclass(frozen=True, slots=True)
class BatchShape:
    """Samples of a rank's batch, and the height and the width that its images get, in pixels."""

    samples: int
    height: int
    width: int


@dataclass(frozen=True, slots=True, eq=False)
class Shapes:
    """The sizes that a sampler gives the images of batches.

    Attributes:
        of_batch: returns the shape of this rank's batch by its number, counted as in `Upcoming`.
        sides: height and width of the image of each row as decoding returns it, [rows, 2].

    """

    of_batch: Callable[[int], BatchShape]
    sides: Float32s


@dataclass(frozen=True)
class Upcoming:
    """The batches of a loader from now on.

    Attributes:
        rank_rows: returns the rows of this rank's batch by its number, counted from the start of
            the pipelines, over all lanes.
        global_rows: the same for the batch of all ranks together.
        batches: batches in an epoch.
        batch_size: samples in a batch of this rank; in the largest one, if they differ.
        shapes: the sizes of the images; `None` if the sampler does not give them one.
        within: if given, only rows from the first number to before the second one are read, and
            they are counted from the first one.

    """

    rank_rows: Callable[[int], Ints]
    global_rows: Callable[[int], Ints]
    batches: int
    batch_size: int
    shapes: Shapes | None = None
    within: tuple[int, int] | None = None

    def of_rank(self, number: int) -> Ints:
        """Return the rows of this rank's batch."""
        return self._own(self.rank_rows(number))

    def of_all(self, number: int) -> Ints:
        """Return the rows of the batch of all ranks."""
        return self._own(self.global_rows(number))

    def _own(self, rows: Ints) -> Ints:
        if self.within is None:
            return rows
        first, end = self.within
        return rows[(rows >= first) & (rows < end)] - first
