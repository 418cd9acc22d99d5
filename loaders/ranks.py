"""Which process this is among the processes that share an epoch, and whether their loaders agree.

Never imports torch.

Every launcher sets environment variables of its own (`LAUNCHERS`). A process group that torch,
Paddle or JAX has started takes precedence over them. Where a variable shows that there are several
processes, and nothing shows which one this is, `find_ranks` raises an error: with a guess, several
processes would train on the same batches.
"""

from __future__ import annotations

import importlib
import json
import operator
import os
import re
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from manifests.errors import CallError

#: `Ranks.origin` of ranks that the caller of `loaders.build` gave.
GIVEN = "the arguments rank and world_size"
NO_LAUNCHER = "no launcher, so one process"

#: Longest pause between two looks at the store, in seconds. A blocking wait of the store would
#: ignore Ctrl-C.
_PAUSE = 0.05

#: Environment variables; tests pass others than `os.environ`.
Environment: TypeAlias = Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Launcher:
    """The environment variables that a launcher sets in each process.

    Attributes:
        name: name of the launcher.
        rank: number of the process, from 0.
        world_size: number of processes.
        local_rank: number of the process on its machine.
        local_size: number of processes on this machine. Empty if the launcher sets no such number.

    """

    name: str
    rank: str
    world_size: str
    local_rank: str
    local_size: str = ""


#: In this order, because Slurm's variables also exist in processes that other launchers start
#: within a Slurm job. Slurm's describe a job step, which `srun` starts. A batch script without
#: `srun` is one process.
LAUNCHERS = (
    Launcher("torchrun", "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"),
    Launcher(
        "Paddle",
        "PADDLE_TRAINER_ID",
        "PADDLE_TRAINERS_NUM",
        "PADDLE_RANK_IN_NODE",
        "PADDLE_LOCAL_SIZE",
    ),
    Launcher(
        "Open MPI",
        "OMPI_COMM_WORLD_RANK",
        "OMPI_COMM_WORLD_SIZE",
        "OMPI_COMM_WORLD_LOCAL_RANK",
        "OMPI_COMM_WORLD_LOCAL_SIZE",
    ),
    Launcher("MPICH or Intel MPI", "PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS"),
    Launcher("Slurm", "SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_LOCALID"),
)


@dataclass(frozen=True, slots=True)
class Ranks:
    """One of the processes that share an epoch.

    Attributes:
        rank: number of this process, from 0.
        world_size: number of processes.
        origin: what the numbers come from, for messages. Equal ranks may have different origins.

    Raises:
        CallError: `rank` is not from 0 to ``world_size - 1``.

    """

    rank: int = 0
    world_size: int = 1
    origin: str = field(default=NO_LAUNCHER, compare=False)

    def __post_init__(self) -> None:
        for name in ("rank", "world_size"):
            value = getattr(self, name)
            # Integers of NumPy and torch have `__index__`, too.
            if isinstance(value, bool) or not hasattr(value, "__index__"):
                raise CallError(f"{name} must be an integer, got {value!r}")
            object.__setattr__(self, name, operator.index(value))
        if self.world_size < 1:
            raise CallError(f"world_size must be at least 1, got {self.world_size}")
        if not 0 <= self.rank < self.world_size:
            source = ""
            if self.origin not in (GIVEN, NO_LAUNCHER):
                source = f" ({self.origin})"
            raise CallError(
                f"rank must be from 0 to {self.world_size - 1} (world_size - 1), got"
                f" {self.rank}{source}"
            )

    def share(self, samples: int, epoch: int = 0) -> int:
        """Return how many samples this rank reads in an epoch.

        DALI cuts the split into one part per rank. With each epoch, a rank moves on to the next
        part.

        Args:
            samples: samples of the split.
            epoch: number of the epoch.

        """
        part = self.part(epoch)
        return (part + 1) * samples // self.world_size - part * samples // self.world_size

    def part(self, epoch: int) -> int:
        """Return which part this rank reads in an epoch, from 0 to ``world_size - 1``."""
        return (self.rank + epoch) % self.world_size

    def smallest_share(self, samples: int) -> int:
        """Return the smallest number of samples that any rank reads in an epoch."""
        return samples // self.world_size

    def largest_share(self, samples: int) -> int:
        """Return the largest number of samples that any rank reads in an epoch."""
        return -(-samples // self.world_size)


def find_ranks(
    rank: int | None, world_size: int | None, environment: Environment = os.environ
) -> Ranks:
    """Return rank and world size: as given, of the process group, of the launcher, or 0 of 1.

    Raises:
        CallError: only one of the two is given; an environment variable is not a number; or the
            variables show that there are several processes, but not which one this is.

    """
    if (rank is None) != (world_size is None):
        given = "rank"
        missing = "world_size"
        if rank is None:
            given, missing = missing, given
        raise CallError(f"{given} is given without {missing}", hint="pass both or neither")
    if rank is not None and world_size is not None:
        return Ranks(rank, world_size, GIVEN)
    return group_ranks() or _launched_ranks(environment)


def imported(library: str) -> Any:
    """Return a library if the program has imported it, else `None`.

    Waits while another thread imports it.
    """
    return importlib.import_module(library) if sys.modules.get(library) is not None else None


def group_ranks() -> Ranks | None:
    """Return the ranks of the process group that torch, Paddle or JAX has started.

    `None` if none has.
    """
    # A process group can exist only if the program has imported its library.
    torch, paddle, jax = map(imported, ("torch", "paddle", "jax"))
    if (
        torch is not None
        and torch.distributed.is_available()
        and torch.distributed.is_initialized()
    ):
        return Ranks(
            torch.distributed.get_rank(), torch.distributed.get_world_size(), "torch.distributed"
        )
    if paddle is not None and paddle.distributed.is_initialized():
        return Ranks(
            paddle.distributed.get_rank(), paddle.distributed.get_world_size(), "paddle.distributed"
        )
    if jax is not None and getattr(jax.distributed, "is_initialized", bool)():
        return Ranks(jax.process_index(), jax.process_count(), "jax.distributed")
    return None


def check_group(ranks: Ranks) -> None:
    """Check that a process group that was started since agrees with the ranks of a loader.

    Raises:
        CallError: it has another rank or world size, and the caller of `loaders.build` did not give
            `ranks`.

    """
    group = group_ranks()
    if group is None or ranks.origin == GIVEN or group == ranks:
        return
    raise CallError(
        f"this loader reads as rank {ranks.rank} of {ranks.world_size} ({ranks.origin}), but"
        f" {group.origin} says rank {group.rank} of {group.world_size}",
        hint=(
            "build the loader after the process group is initialized, or pass rank= and world_size="
        ),
    )


def local_rank(ranks: Ranks, environment: Environment = os.environ) -> int | None:
    """Return the number of this process on its machine. `None` if no launcher tells it."""
    for launcher in LAUNCHERS:
        if launcher.local_rank in environment and _has_started(launcher, ranks, environment):
            return _int_variable(launcher.local_rank, environment)
    return None


def _has_started(launcher: Launcher, ranks: Ranks, environment: Environment) -> bool:
    """Return whether a launcher has started each of the ranks, not only their parent.

    Ranks that a script starts itself, for example with `torch.multiprocessing`, all inherit the
    variables of the script: in Slurm, also of a batch script.
    """
    if launcher.world_size not in environment:
        # In a batch script, Slurm sets SLURM_PROCID and SLURM_LOCALID only.
        return launcher.name != "Slurm" or ranks.world_size == 1
    return _int_variable(launcher.world_size, environment) >= ranks.world_size


def usable_cores(ranks: Ranks, gpus: int, environment: Environment = os.environ) -> int:
    """Return how many cores this process can use without the cores of other ranks, at least 1.

    Args:
        ranks: rank and world size.
        gpus: GPUs of this machine; an upper bound for the ranks on it, where no launcher tells
            their number.
        environment: environment variables.

    """
    started = [each for each in LAUNCHERS if each.rank in environment]
    launcher = next((each for each in started if _has_started(each, ranks, environment)), None)
    if launcher is not None and launcher.local_size in environment:
        return _share_of_cores(_int_variable(launcher.local_size, environment))
    if launcher is not None and launcher.name == "Slurm":
        return max(1, _slurm_cores(len(os.sched_getaffinity(0)), environment))
    return _share_of_cores(min(ranks.world_size, gpus or ranks.world_size))


def _share_of_cores(local_size: int) -> int:
    """Return the cores of one of the ranks on this machine, at least 1.

    Launchers may bind each rank to some of the cores, as ``torchrun --numa-binding`` does. Fewer
    ranks share these cores, so the cores of the launcher are divided, and not the cores of the rank.
    """
    own = len(os.sched_getaffinity(0))
    try:
        whole = len(os.sched_getaffinity(os.getppid()))
    except OSError:  # the launcher has ended
        whole = own
    return max(1, min(own, max(own, whole) // max(1, local_size)))


def _slurm_cores(cores: int, environment: Environment) -> int:
    """Return the cores of this task, which Slurm may not have restricted to its own."""
    if "SLURM_CPUS_PER_TASK" in environment:
        return min(cores, _int_variable("SLURM_CPUS_PER_TASK", environment))
    if "SLURM_CPUS_ON_NODE" in environment and cores < _int_variable(
        "SLURM_CPUS_ON_NODE", environment
    ):
        return cores
    # For example "4(x2),3": four tasks on each of the first two nodes, three on the next.
    counts: list[int] = []
    for part in environment.get("SLURM_STEP_TASKS_PER_NODE", "1").split(","):
        match = re.fullmatch(r"(\d+)(?:\(x(\d+)\))?", part)
        if match is None:
            counts.append(1)
        else:
            counts += [int(match[1])] * int(match[2] or 1)
    node = _int_variable("SLURM_NODEID", environment, 0)
    return cores // max(1, counts[min(node, len(counts) - 1)])


def _launched_ranks(environment: Environment) -> Ranks:
    ranks = _complete_ranks(environment)
    # WORLD_SIZE without RANK: a script that starts its own processes, or one of Lightning's on
    # another machine.
    several = "RANK" not in environment and _int_variable("WORLD_SIZE", environment, 1) > 1
    if ranks is None:
        names = _signs_of_several(environment)
    elif several and ranks.world_size != int(environment["WORLD_SIZE"]):
        names = ["WORLD_SIZE"]
    else:
        names = []
    if names:
        values = " and ".join(f"{name}={environment[name]}" for name in names)
        raise CallError(
            f"the environment has {values}, so there are several processes, but it does not tell"
            " the rank of this one",
            hint=(
                "initialize the process group before loaders.build(), start with torchrun, or pass"
                " rank= and world_size="
            ),
        )
    return ranks or Ranks()


def _complete_ranks(environment: Environment) -> Ranks | None:
    """Return the ranks of the first launcher that tells both numbers."""
    for launcher in LAUNCHERS:
        if launcher.rank in environment and launcher.world_size in environment:
            rank, size = (
                _int_variable(name, environment) for name in (launcher.rank, launcher.world_size)
            )
            return Ranks(rank, size, launcher.name)
        # Lightning's own launcher sets no RANK. On the first machine, the local rank is the rank.
        lightning = ("LOCAL_RANK", "WORLD_SIZE", "NODE_RANK")
        if launcher.name == "torchrun" and all(name in environment for name in lightning):
            local, size, node = (_int_variable(name, environment) for name in lightning)
            if node == 0:
                return Ranks(local, size, "Lightning")
    return None


def _signs_of_several(environment: Environment) -> list[str]:
    """Return the variables that only processes of a group of several have."""
    sizes = []
    ranks = []
    for launcher in LAUNCHERS:
        if _int_variable(launcher.world_size, environment, 1) > 1:
            sizes.append(launcher.world_size)
        if _int_variable(launcher.rank, environment, 0) > 0:
            ranks.append(launcher.rank)
    if "LOCAL_RANK" in environment:
        ranks.append("LOCAL_RANK")
    return sizes + ranks


def _int_variable(name: str, environment: Environment, default: int | None = None) -> int:
    if default is not None and name not in environment:
        return default
    try:
        return int(environment[name])
    except ValueError:
        raise CallError(
            f"the environment variable {name} is {environment[name]!r}, which is not an integer",
            hint="set it to a number or unset it",
        ) from None


def require_agreement(ranks: Ranks, choices: Mapping[str, Any]) -> None:
    """Wait for all ranks, and check that their loaders agree on what an epoch is.

    Without this check, ranks whose loaders differ read samples twice or never, or hang at the
    end of an epoch. Does nothing without a process group of torch, or if the group has
    other ranks, for example because one rank reads a split alone.

    Args:
        ranks: ranks of the loader.
        choices: values that must be equal on all ranks, by name; plain values.

    Raises:
        CallError: the choices of two ranks differ, or a rank does not begin to iterate before the
            timeout of the process group. Raised on every rank.

    """
    torch = imported("torch")
    if ranks.world_size == 1 or torch is None or not torch.distributed.is_available():
        return
    if not torch.distributed.is_initialized() or group_ranks() != ranks:
        return
    store = torch.distributed.distributed_c10d._get_default_store()
    # The ranks begin their loaders in the same order, so the numbers agree. The store counts, because
    # a process may join ranks that were in another group before.
    number = store.add(f"loaders.agreement.of.{ranks.rank}", 1)
    prefix = f"loaders.agreement.{number}"
    deadline = time.monotonic() + store.timeout.total_seconds()
    own = json.dumps(choices)
    if ranks.rank == 0:
        store.set(f"{prefix}.first", own)
    _wait(store, f"{prefix}.first", deadline)
    first = store.get(f"{prefix}.first").decode()
    if own != first:
        theirs = json.loads(first)
        texts = [
            f"{name} is {theirs.get(name)!r} on rank 0, but {value!r} on rank {ranks.rank}"
            for name, value in json.loads(own).items()
            if value != theirs.get(name)
        ]
        store.set(f"{prefix}.difference", "; ".join(texts))
    # Every rank writes before it counts itself, so the last one knows that all have written.
    if store.add(f"{prefix}.count", 1) == ranks.world_size:
        store.set(f"{prefix}.all", "")
    _wait(store, f"{prefix}.all", deadline)
    if store.check([f"{prefix}.difference"]):
        raise CallError(
            f"the loaders of the ranks differ: {store.get(f'{prefix}.difference').decode()}",
            hint=(
                "build and begin the same loaders in the same order on every rank; to read a split"
                " on one rank alone, pass rank=0, world_size=1"
            ),
        )


def _wait(store: Any, key: str, deadline: float) -> None:
    # Short pauses at first: most ranks begin within milliseconds of each other.
    pause = 0.001
    while not store.check([key]):
        if time.monotonic() > deadline:
            raise CallError(
                "not all ranks have begun to iterate over this loader within"
                f" {store.timeout.total_seconds():.0f} s",
                hint=(
                    "iterate on every rank; to read a split on one rank alone, pass rank=0,"
                    " world_size=1"
                ),
            )
        time.sleep(pause)
        pause = min(2 * pause, _PAUSE)
