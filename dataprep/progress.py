"""How `convert_dataset`, `index_shards` and `verify_dataset` report progress to their caller."""

from __future__ import annotations

from typing import Protocol, TypeVar

Result_contra = TypeVar("Result_contra", contravariant=True)


class Progress(Protocol[Result_contra]):
    """Receives the progress of one command. Both methods run in the thread that called the command."""

    def start(self, total: int) -> None:
        """Receive the amount of work before it begins.

        `convert_dataset` counts images, and shards while it reads finished ones again. The other two count shards.
        """

    def advance(self, result: Result_contra) -> None:
        """Receive the result of each shard as soon as the shard is finished."""
