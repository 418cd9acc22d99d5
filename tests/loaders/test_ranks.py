"""A process finds its rank, and all ranks together read every sample once per epoch."""

import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from helpers import small
from helpers.damaged import make
from helpers.loading import build, equal
from helpers.pictures import encode
from hypothesis import given
from hypothesis import strategies as st

from loaders.ranks import GIVEN, Ranks, find_ranks, local_rank, usable_cores
from manifests.errors import CallError

ROOT = Path(__file__).parents[2]

#: What each launcher sets in a process, as its documentation or source says, with the ranks. One
#: row of the table in docs/distributed.md for each.
LAUNCHED = {
    "none": ("", Ranks(0, 1)),
    "torchrun": ("RANK=2 WORLD_SIZE=4 LOCAL_RANK=0 LOCAL_WORLD_SIZE=2", Ranks(2, 4)),
    "accelerate": ("RANK=1 WORLD_SIZE=2 LOCAL_RANK=1 LOCAL_WORLD_SIZE=2", Ranks(1, 2)),
    "Lightning": ("LOCAL_RANK=3 WORLD_SIZE=8 NODE_RANK=0 MASTER_PORT=1", Ranks(3, 8)),
    "Slurm": ("SLURM_PROCID=5 SLURM_STEP_NUM_TASKS=8 SLURM_NTASKS=8 SLURM_LOCALID=1", Ranks(5, 8)),
    "Open MPI": (
        "OMPI_COMM_WORLD_RANK=1 OMPI_COMM_WORLD_SIZE=2 OMPI_COMM_WORLD_LOCAL_RANK=1",
        Ranks(1, 2),
    ),
    "MPICH, Intel MPI": ("PMI_RANK=6 PMI_SIZE=8 MPI_LOCALRANKID=2", Ranks(6, 8)),
    "Paddle": ("PADDLE_TRAINER_ID=3 PADDLE_TRAINERS_NUM=4 PADDLE_RANK_IN_NODE=3", Ranks(3, 4)),
}
#: Nested and partial environments.
NESTED = {
    "a batch script without srun is one process": ("SLURM_PROCID=0 SLURM_NTASKS=8", Ranks(0, 1)),
    # Its daemons are started with srun, so their processes also have the daemon's variables.
    "mpirun in Slurm": (
        "SLURM_PROCID=1 SLURM_STEP_NUM_TASKS=2 OMPI_COMM_WORLD_RANK=9 OMPI_COMM_WORLD_SIZE=16",
        Ranks(9, 16),
    ),
    "torchrun in Slurm": (
        "SLURM_PROCID=1 SLURM_STEP_NUM_TASKS=2 RANK=9 WORLD_SIZE=16 LOCAL_RANK=1",
        Ranks(9, 16),
    ),
    "a size and Slurm": ("WORLD_SIZE=8 SLURM_PROCID=5 SLURM_STEP_NUM_TASKS=8", Ranks(5, 8)),
    "one process": ("WORLD_SIZE=1", Ranks(0, 1)),
    "rank 0": ("RANK=0", Ranks(0, 1)),
    "no rank": ("MASTER_ADDR=localhost MASTER_PORT=29500 NODE_RANK=0", Ranks(0, 1)),
}


def environment(text):
    return dict(each.split("=") for each in text.split())


@pytest.mark.parametrize(
    ("text", "expected"), [*LAUNCHED.values(), *NESTED.values()], ids=[*LAUNCHED, *NESTED]
)
def test_ranks_from_launchers(text, expected):
    assert find_ranks(None, None, environment(text)) == expected


def test_the_guide_lists_every_launcher():
    lines = (ROOT / "docs" / "distributed.md").read_text().splitlines()
    names = {line.split("|")[1].strip().strip("`") for line in lines if line.startswith("|")}
    # Two are known by their process group: torch.multiprocessing and JAX.
    assert names >= {*LAUNCHED, "torch.multiprocessing", "JAX"}


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("WORLD_SIZE=8", "WORLD_SIZE=8"),
        ("WORLD_SIZE=8 LOCAL_RANK=3", "WORLD_SIZE=8 and LOCAL_RANK=3"),
        ("WORLD_SIZE=8 LOCAL_RANK=3 NODE_RANK=1", "WORLD_SIZE=8 and LOCAL_RANK=3"),
        ("LOCAL_RANK=0", "LOCAL_RANK=0"),
        ("RANK=1", "RANK=1"),
        ("PMI_SIZE=4", "PMI_SIZE=4"),
        ("SLURM_PROCID=3 SLURM_NTASKS=4", "SLURM_PROCID=3"),
        ("WORLD_SIZE=8 SLURM_PROCID=0 SLURM_STEP_NUM_TASKS=1", "WORLD_SIZE=8"),
    ],
)
def test_a_rank_that_cannot_be_told(text, values):
    with pytest.raises(CallError) as caught:
        find_ranks(None, None, environment(text))
    assert str(caught.value) == (
        f"the environment has {values}, so there are several processes, but it does not tell the"
        " rank of this one. Hint: initialize the process group before loaders.build(), start with"
        " torchrun, or pass rank= and world_size=."
    )
    given = find_ranks(np.int64(0), np.int64(1), environment(text))
    assert given == Ranks(0, 1)
    assert type(given.rank) is int


SLURM = "SLURM_PROCID=0 SLURM_STEP_NUM_TASKS=10"
#: The variables of a Slurm task that starts eight processes itself: all of them inherit these.
ONE_TASK = "SLURM_PROCID=0 SLURM_STEP_NUM_TASKS=1 SLURM_LOCALID=0 SLURM_CPUS_PER_TASK=32"
SPAWNED = Ranks(3, 8, "torch.distributed")


@pytest.mark.parametrize(
    ("ranks", "text", "expected"),
    [
        (Ranks(), "", None),
        (Ranks(1, 2), "LOCAL_RANK=1", 1),
        (Ranks(6, 8), "MPI_LOCALRANKID=2 PMI_SIZE=8 SLURM_LOCALID=0 SLURM_STEP_NUM_TASKS=8", 2),
        # Not one of the variables that a script and all of its processes share.
        (SPAWNED, ONE_TASK, None),
        (SPAWNED, "SLURM_PROCID=0 SLURM_LOCALID=0", None),
        (Ranks(9, 16, "torch.distributed"), f"{ONE_TASK} RANK=1 WORLD_SIZE=2 LOCAL_RANK=0", None),
        # One of several dimensions of parallelism has fewer ranks than torchrun.
        (Ranks(1, 2, GIVEN), "RANK=5 WORLD_SIZE=8 LOCAL_RANK=5", 5),
    ],
)
def test_local_rank_from_launchers(ranks, text, expected):
    assert local_rank(ranks, environment(text)) == expected


@pytest.mark.parametrize(
    ("ranks", "gpus", "text", "cores"),
    [
        (Ranks(), 0, "", 32),
        (Ranks(0, 8), 0, "RANK=0 WORLD_SIZE=8 LOCAL_WORLD_SIZE=4", 8),
        (Ranks(0, 8), 0, "PADDLE_TRAINER_ID=0 PADDLE_TRAINERS_NUM=8 PADDLE_LOCAL_SIZE=8", 4),
        (Ranks(0, 64), 0, "PMI_RANK=0 PMI_SIZE=64 MPI_LOCALNRANKS=64", 1),
        # torch.multiprocessing: all ranks are on this machine. With GPUs, no more than there are.
        (Ranks(0, 8, "torch.distributed"), 0, "", 4),
        (Ranks(0, 64, "torch.distributed"), 8, "", 4),
        (SPAWNED, 8, ONE_TASK, 4),
        # Slurm, by the cores of a task, by a restriction of this task, and by the tasks of this
        # machine.
        (Ranks(0, 8), 0, f"{SLURM} SLURM_CPUS_PER_TASK=6", 6),
        (Ranks(0, 8), 0, f"{SLURM} SLURM_CPUS_ON_NODE=64", 32),
        (Ranks(0, 8), 0, f"{SLURM} SLURM_STEP_TASKS_PER_NODE=4(x2),2 SLURM_NODEID=1", 8),
        (Ranks(8, 10), 0, f"{SLURM} SLURM_STEP_TASKS_PER_NODE=4(x2),2 SLURM_NODEID=2", 16),
        # torchrun in a Slurm task.
        (Ranks(0, 8), 0, f"RANK=0 WORLD_SIZE=8 LOCAL_WORLD_SIZE=8 {ONE_TASK}", 4),
    ],
)
def test_cores_of_a_process(monkeypatch, ranks, gpus, text, cores):
    monkeypatch.setattr("os.sched_getaffinity", lambda process: set(range(32)))
    assert usable_cores(ranks, gpus, environment(text)) == cores


@pytest.mark.parametrize(
    ("bound", "whole", "cores"),
    [(16, 128, 16), (64, 128, 16), (8, 128, 8), (32, 32, 4), (16, None, 2)],
    ids=["exclusive", "to a socket", "to a cache", "a container", "no launcher any more"],
)
def test_ranks_that_are_bound_to_cores_divide_all_cores(monkeypatch, bound, whole, cores):
    """`whole` are the cores of the launcher, which starts eight ranks."""

    def affinity(process):
        if process and whole is None:
            raise ProcessLookupError
        return set(range(whole if process else bound))

    monkeypatch.setattr("os.sched_getaffinity", affinity)
    text = "RANK=0 WORLD_SIZE=8 LOCAL_WORLD_SIZE=8"
    assert usable_cores(Ranks(0, 8), 8, environment(text)) == cores


@pytest.mark.parametrize(
    ("rank", "world_size", "text", "message"),
    [
        (0, None, "", "rank is given without world_size. Hint: pass both or neither"),
        (2, 2, "", "rank must be from 0 to 1 \\(world_size - 1\\), got 2"),
        ("0", "2", "", "rank must be an integer, got '0'"),
        (0, 0, "", "world_size must be at least 1"),
        (None, None, "RANK=4 WORLD_SIZE=4", r"from 0 to 3 \(world_size - 1\), got 4 \(torchrun\)"),
        (None, None, "RANK=x WORLD_SIZE=2", "RANK is 'x', which is not an integer"),
    ],
)
def test_wrong_ranks(rank, world_size, text, message):
    with pytest.raises(CallError, match=message):
        find_ranks(rank, world_size, environment(text))
    # What is given overrides the environment.
    assert find_ranks(1, 3, {"RANK": "0", "WORLD_SIZE": "2"}) == Ranks(1, 3)


@given(st.integers(0, 1000), st.integers(1, 40), st.integers(0, 100))
def test_the_shares_of_all_ranks_add_up_to_all_samples(samples, world, completed_epochs):
    shares = [Ranks(rank, world).share(samples, completed_epochs) for rank in range(world)]
    assert sum(shares) == samples
    assert min(shares) >= Ranks(0, world).smallest_share(samples)
    assert max(shares) <= Ranks(0, world).largest_share(samples)


def test_ranks_draw_different_augmentations(make_dataset):
    noise = np.random.default_rng(0).integers(0, 255, (80, 80, 3), np.uint8)
    folder = make_dataset("tfrecord", [("png", encode(noise, "png"), 0)] * 8, shards=1)
    options = {"transforms": small.TRAIN, "fields": ("image",), "world_size": 2}
    first, second = (list(build(folder, rank=rank, **options)) for rank in range(2))
    assert not equal(first, second)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"shuffle": False}, 'get an empty batch. Hint: with fields=("image", "label", "valid")'),
        ({"shuffle": True}, "1 sample at the end of each epoch of split 'val' is left out"),
        ({"shuffle": "buffer"}, "1 sample at the end of each epoch of split 'val' is left out"),
    ],
)
def test_samples_that_are_fewer_than_the_ranks_are_announced(tmp_path, options, message):
    folder = make(tmp_path / "data set", "tfrecord", rows=40, shards=2, split="val")
    options = {"split": "val", "fields": ("index",), "batch_size": 13, **options}
    options["transforms"] = [{"Resize": {"size": [16, 16]}}]
    with pytest.warns(UserWarning, match=re.escape(message)):
        build(folder, rank=1, world_size=3, last_batch="partial", **options).close()


def test_a_library_that_another_thread_is_importing_is_waited_for(tmp_path):
    (tmp_path / "slow.py").write_text("import time\ntime.sleep(0.5)\nready = True\n")
    code = (
        "import sys, threading, time; sys.path.insert(0, sys.argv[1])\n"
        "from loaders.ranks import imported\n"
        "thread = threading.Thread(target=__import__, args=('slow',)); thread.start()\n"
        "while 'slow' not in sys.modules: time.sleep(0.001)\n"
        "print(imported('slow').ready, imported('another'))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path)], check=True, capture_output=True, text=True
    )
    assert done.stdout == "True None\n"
