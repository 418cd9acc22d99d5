"""Which of how many processes this one is. It must never know DALI, and imports torch only where it is loaded."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass

from manifests.errors import CallError

#: Variables that launchers set: this process' number, and how many there are. torchrun's, Slurm's, Open MPI's,
#: Paddle's. Slurm's are those of a step, which `srun` starts; a batch script by itself is one process.
_LAUNCHERS = (
    ("RANK", "WORLD_SIZE"),
    ("SLURM_PROCID", "SLURM_STEP_NUM_TASKS"),
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
    ("PADDLE_TRAINER_ID", "PADDLE_TRAINERS_NUM"),
)
_LOCAL = ("LOCAL_RANK", "SLURM_LOCALID", "OMPI_COMM_WORLD_LOCAL_RANK", "PADDLE_RANK_IN_NODE")


@dataclass(frozen=True, slots=True)
class Ranks:
    """A process among those that share an epoch.

    Attributes:
        rank: its number, from 0.
        world_size: how many there are.

    Raises:
        CallError: the numbers do not fit together.

    """

    rank: int = 0
    world_size: int = 1

    def __post_init__(self) -> None:
        for name in ("rank", "world_size"):
            value = getattr(self, name)
            if not isinstance(value, int) or isinstance(value, bool):
                raise CallError(f"{name} must be a whole number, got {value!r}")
        if self.world_size < 1:
            raise CallError(f"world_size must be at least 1, got {self.world_size}")
        if not 0 <= self.rank < self.world_size:
            raise CallError(f"rank must be from 0 to world_size - 1, which is {self.world_size - 1}, got {self.rank}")

    def share(self, samples: int, turns: int = 0) -> int:
        """Return how many samples this rank reads in an epoch, when parts have changed hands so often."""
        part = (self.rank + turns) % self.world_size
        return (part + 1) * samples // self.world_size - part * samples // self.world_size

    def least_share(self, samples: int) -> int:
        """Return how many samples the rank with the fewest reads."""
        return samples // self.world_size

    def greatest_share(self, samples: int) -> int:
        """Return how many samples the rank with the most reads."""
        return -(-samples // self.world_size)


def find_ranks(rank: int | None, world_size: int | None, environment: Mapping[str, str] = os.environ) -> Ranks:
    """Return the ranks as given, else torch.distributed's, else the launcher's, else those of a single process.

    Raises:
        CallError: one of the two is given without the other, or a launcher's variable is no number.

    """
    if (rank is None) != (world_size is None):
        raise CallError(f"rank={rank!r} and world_size={world_size!r}: one is missing", hint="say both, or neither")
    if rank is not None and world_size is not None:
        return Ranks(rank, world_size)
    # Only a program that has loaded torch can have begun a process group.
    torch = sys.modules.get("torch")
    if torch is not None and torch.distributed.is_available() and torch.distributed.is_initialized():
        return Ranks(torch.distributed.get_rank(), torch.distributed.get_world_size())
    for number, count in _LAUNCHERS:
        if number in environment and count in environment:
            return Ranks(_number(number, environment), _number(count, environment))
    return Ranks()


def local_rank(environment: Mapping[str, str] = os.environ) -> int | None:
    """Return this process' number on its machine, as launchers tell it; none where they do not."""
    return next((_number(name, environment) for name in _LOCAL if name in environment), None)


def local_processes(environment: Mapping[str, str] = os.environ) -> int:
    """Return how many processes share this machine, as torchrun and Open MPI tell; one where they do not."""
    names = ("LOCAL_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_SIZE")
    return max(1, next((_number(name, environment) for name in names if name in environment), 1))


def _number(name: str, environment: Mapping[str, str]) -> int:
    try:
        return int(environment[name])
    except ValueError:
        raise CallError(
            f"the environment's {name} is {environment[name]!r}, which is no whole number",
            hint="hint or unset it",
        ) from None
