"""Which process this is (rank and world size) and which device it uses. Imports torch only if it needs it."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass

from manifests.errors import CallError
from manifests.text import plural

#: Pairs of environment variables that launchers set, rank and world size: torchrun, Slurm, Open MPI, Paddle.
#: Slurm's are those of a job step, which `srun` starts. A batch script without `srun` is one process.
_LAUNCHERS = (
    ("RANK", "WORLD_SIZE"),
    ("SLURM_PROCID", "SLURM_STEP_NUM_TASKS"),
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
    ("PADDLE_TRAINER_ID", "PADDLE_TRAINERS_NUM"),
)
_LOCAL_RANKS = ("LOCAL_RANK", "SLURM_LOCALID", "OMPI_COMM_WORLD_LOCAL_RANK", "PADDLE_RANK_IN_NODE")


@dataclass(frozen=True, slots=True)
class Ranks:
    """One process among those that share an epoch.

    Attributes:
        rank: number of this process, from 0.
        world_size: number of processes.

    Raises:
        CallError: `rank` is not from 0 to ``world_size - 1``.

    """

    rank: int = 0
    world_size: int = 1

    def __post_init__(self) -> None:
        for name in ("rank", "world_size"):
            value = getattr(self, name)
            if not isinstance(value, int) or isinstance(value, bool):
                raise CallError(f"{name} must be an integer, got {value!r}")
        if self.world_size < 1:
            raise CallError(f"world_size must be at least 1, got {self.world_size}")
        if not 0 <= self.rank < self.world_size:
            raise CallError(f"rank must be from 0 to {self.world_size - 1} (world_size - 1), got {self.rank}")

    def share(self, samples: int, completed_epochs: int = 0) -> int:
        """Return how many samples this rank reads in an epoch.

        DALI cuts the split into one part per rank. After each epoch, a rank moves on to the next part.

        Args:
            samples: samples of the split.
            completed_epochs: epochs that the pipeline has completed since it started.

        """
        part = (self.rank + completed_epochs) % self.world_size
        return (part + 1) * samples // self.world_size - part * samples // self.world_size

    def smallest_share(self, samples: int) -> int:
        """Return the smallest number of samples that any rank reads in an epoch."""
        return samples // self.world_size

    def largest_share(self, samples: int) -> int:
        """Return the largest number of samples that any rank reads in an epoch."""
        return -(-samples // self.world_size)


@dataclass(frozen=True, slots=True)
class Device:
    """Where images are decoded and transformed.

    Attributes:
        kind: ``"cpu"`` or ``"gpu"``.
        index: number of the GPU. 0 for the CPU.

    """

    kind: str
    index: int = 0

    @property
    def is_gpu(self) -> bool:
        """Whether this is a GPU."""
        return self.kind == "gpu"

    def __str__(self) -> str:
        return f"gpu:{self.index}" if self.is_gpu else self.kind


CPU = Device("cpu")


def find_ranks(rank: int | None, world_size: int | None, environment: Mapping[str, str] = os.environ) -> Ranks:
    """Return rank and world size: as given, else from `torch.distributed`, else from the launcher, else 0 of 1.

    Raises:
        CallError: only one of the two is given, or an environment variable is not a number.

    """
    if (rank is None) != (world_size is None):
        given, missing = ("rank", "world_size") if world_size is None else ("world_size", "rank")
        raise CallError(f"{given} is given without {missing}", hint="pass both or neither")
    if rank is not None and world_size is not None:
        return Ranks(rank, world_size)
    # A process group can exist only if the program has imported torch.
    torch = sys.modules.get("torch")
    if torch is not None and torch.distributed.is_available() and torch.distributed.is_initialized():
        return Ranks(torch.distributed.get_rank(), torch.distributed.get_world_size())
    for rank_name, size_name in _LAUNCHERS:
        if rank_name in environment and size_name in environment:
            return Ranks(_int_variable(rank_name, environment), _int_variable(size_name, environment))
    return Ranks()


def local_rank(environment: Mapping[str, str] = os.environ) -> int | None:
    """Return the number of this process on its machine. `None` if no launcher sets it."""
    return next((_int_variable(name, environment) for name in _LOCAL_RANKS if name in environment), None)


def local_processes(environment: Mapping[str, str] = os.environ) -> int:
    """Return the number of processes on this machine, as torchrun or Open MPI reports it. 1 if unknown."""
    names = ("LOCAL_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_SIZE")
    return max(1, next((_int_variable(name, environment) for name in names if name in environment), 1))


def find_device(device: str, device_id: int | None, ranks: Ranks) -> Device:
    """Return the device to use: ``"auto"`` takes a GPU if there is one.

    Args:
        device: ``"auto"``, ``"gpu"`` or ``"cpu"``.
        device_id: number of the GPU. `None` means the local rank with several ranks, else torch's current GPU.
        ranks: rank and world size.

    Raises:
        CallError: the GPU does not exist on this machine.

    """
    if device == "cpu":
        return CPU
    count = _count_gpus()
    if not count:
        if device == "auto":
            return CPU
        raise CallError('device="gpu", but this machine has no GPU', hint='set device="cpu" or device="auto"')
    if device_id is None:
        local = local_rank() if ranks.world_size > 1 else None
        return Device("gpu", _current_gpu() if local is None else local % count)
    if device_id >= count:
        raise CallError(
            f"device_id={device_id}, but this machine has {plural(count, 'GPU')}, numbered from 0",
            hint=f"choose 0 to {count - 1}, or remove device_id" if count > 1 else "choose 0, or remove device_id",
        )
    return Device("gpu", device_id)


def _count_gpus() -> int:
    import torch

    return torch.cuda.device_count() if torch.cuda.is_available() else 0


def _current_gpu() -> int:
    import torch

    return torch.cuda.current_device()


def _int_variable(name: str, environment: Mapping[str, str]) -> int:
    try:
        return int(environment[name])
    except ValueError:
        raise CallError(
            f"the environment variable {name} is {environment[name]!r}, which is not an integer",
            hint="set it to a number or unset it",
        ) from None
