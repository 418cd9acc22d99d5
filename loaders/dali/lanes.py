"""Several pipelines of one loader that compute its batches in turn.

DALI runs the operators of a pipeline one after the other. A policy such as RandAugment has more than
a hundred of them, whose work on the CPU then takes longer than decoding does.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any

from loaders.dali.graph import Pipeline

#: The length of the checkpoint of a lane, before it.
_LENGTH = struct.Struct("<Q")


class Lanes:
    """Pipelines that take turns; the first batch of all is one of the first lane."""

    def __init__(
        self, pipelines: Sequence[Pipeline], checkpoints: Sequence[bytes] = (b"",), read: int = 0
    ) -> None:
        """Use pipelines that are built.

        Args:
            pipelines: one of each lane.
            checkpoints: the checkpoint that each one begins with; empty for the first batch.
            read: batches before the next one, of all lanes.

        """
        self._pipelines = pipelines
        self._checkpoints = list(checkpoints)
        self._turn = read % len(pipelines)
        #: The lanes that have returned batches since their checkpoint was taken.
        self._changed: set[int] = set()

    def start(self) -> None:
        """Let each lane start its first batch, in the order of the batches."""
        count = len(self._pipelines)
        for number in range(count):
            self._pipelines[(self._turn + number) % count].schedule_run()

    def take(self) -> Any:
        """Return DALI's outputs for the next batch."""
        pipeline = self._pipelines[self._turn]
        self._changed.add(self._turn)
        outputs = pipeline.share_outputs()
        pipeline.release_outputs()
        return outputs

    def schedule(self) -> None:
        """Let the lane whose batch was taken start its next one. The next batch is one of the next lane."""
        turn = self._turn
        self._pipelines[turn].schedule_run()
        self._turn = (turn + 1) % len(self._pipelines)

    def checkpoint(self) -> bytes:
        """Return the checkpoint of all lanes after the batch that was taken last."""
        for index in self._changed:
            self._checkpoints[index] = self._pipelines[index].checkpoint()
        self._changed.clear()
        return join_checkpoints(self._checkpoints)

    @property
    def ready(self) -> int | None:
        """Batches whose images are ready for the next lane; `None` if DALI's own reader reads."""
        batches = getattr(self._pipelines[self._turn], "planned_batches", ())
        if not batches:
            return None
        ready: int = batches[0].ready
        return ready

    @property
    def planned_batches(self) -> list[Any]:
        """The readers of all lanes that follow a sampler, see `readers.PlannedBatches`."""
        batches: list[Any] = []
        for pipeline in self._pipelines:
            batches += getattr(pipeline, "planned_batches", ())
        return batches


def join_checkpoints(checkpoints: Sequence[bytes]) -> bytes:
    """Return the checkpoints of all lanes as one; of one lane as it is."""
    if len(checkpoints) == 1:
        return checkpoints[0]
    joined = b""
    for each in checkpoints:
        joined += _LENGTH.pack(len(each)) + each
    return joined


def split_checkpoint(checkpoint: bytes, count: int, read: int) -> list[bytes]:
    """Return the checkpoint of each lane.

    Args:
        checkpoint: what `join_checkpoints` returned.
        count: number of lanes.
        read: batches of all lanes before it. A lane has a checkpoint after its first batch.

    Raises:
        ValueError: `checkpoint` is not one of `count` lanes.

    """
    if count == 1:
        return [checkpoint]
    if not checkpoint:
        return [b""] * count
    checkpoints = []
    start = 0
    for index in range(count):
        if start + _LENGTH.size > len(checkpoint):
            break
        (length,) = _LENGTH.unpack_from(checkpoint, start)
        if bool(length) != (index < read):
            break
        start += _LENGTH.size + length
        checkpoints.append(checkpoint[start - length : start])
    if len(checkpoints) != count or start != len(checkpoint):
        raise ValueError(f"this is not a checkpoint of {count} pipelines")
    return checkpoints
