"""A process finds its rank, and all ranks together read every sample once per epoch."""

import json
import subprocess
import sys
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
import torch
from helpers import HELPERS, small
from helpers.pictures import encode
from helpers.trainings import output_of_forks
from hypothesis import given
from hypothesis import strategies as st

import loaders
from loaders.ranks import Ranks, find_ranks, local_rank, usable_cores
from manifests.errors import CallError

ROOT = Path(__file__).parents[2]
FORMATS = pytest.mark.parametrize("fmt", ["tfrecord", "webdataset"])


def build(folder, **options):
    defaults = {"batch_size": 4, "transforms": small.EVAL, "device": "cpu", "num_threads": 1}
    return loaders.build(folder, **{**defaults, **options})


def test_explicit_ranks_override_the_environment():
    assert find_ranks(1, 3, {"RANK": "0", "WORLD_SIZE": "2"}) == Ranks(1, 3)


#: What each launcher sets in a process, as its documentation or source says, with the ranks. One
#: row of the table in docs/distributed.md for each.
LAUNCHED = {
    "none": ({}, Ranks(0, 1)),
    "torchrun": (
        {"RANK": "2", "WORLD_SIZE": "4", "LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "2"},
        Ranks(2, 4),
    ),
    "accelerate": (
        {"RANK": "1", "WORLD_SIZE": "2", "LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "2"},
        Ranks(1, 2),
    ),
    "Lightning": (
        {"LOCAL_RANK": "3", "WORLD_SIZE": "8", "NODE_RANK": "0", "MASTER_PORT": "1"},
        Ranks(3, 8),
    ),
    "Slurm": (
        {
            "SLURM_PROCID": "5",
            "SLURM_STEP_NUM_TASKS": "8",
            "SLURM_NTASKS": "8",
            "SLURM_LOCALID": "1",
        },
        Ranks(5, 8),
    ),
    "Open MPI": (
        {
            "OMPI_COMM_WORLD_RANK": "1",
            "OMPI_COMM_WORLD_SIZE": "2",
            "OMPI_COMM_WORLD_LOCAL_RANK": "1",
        },
        Ranks(1, 2),
    ),
    "MPICH, Intel MPI": ({"PMI_RANK": "6", "PMI_SIZE": "8", "MPI_LOCALRANKID": "2"}, Ranks(6, 8)),
    "Paddle": (
        {"PADDLE_TRAINER_ID": "3", "PADDLE_TRAINERS_NUM": "4", "PADDLE_RANK_IN_NODE": "3"},
        Ranks(3, 4),
    ),
}


@pytest.mark.parametrize(("environment", "expected"), LAUNCHED.values(), ids=LAUNCHED)
def test_ranks_from_launchers(environment, expected):
    assert find_ranks(None, None, environment) == expected


def test_the_guide_lists_every_launcher():
    guide = (ROOT / "docs" / "distributed.md").read_text()
    names = {
        line.split("|")[1].strip().strip("`") for line in guide.splitlines() if line.startswith("|")
    }
    # Two are known by their process group: torch.multiprocessing and JAX.
    assert names >= {*LAUNCHED, "torch.multiprocessing", "JAX"}


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        # A batch script without srun is one process.
        ({"SLURM_PROCID": "0", "SLURM_NTASKS": "8"}, Ranks(0, 1)),
        # mpirun starts its daemons with srun, so their processes also have the daemon's Slurm
        # variables.
        (
            {
                "SLURM_PROCID": "1",
                "SLURM_STEP_NUM_TASKS": "2",
                "OMPI_COMM_WORLD_RANK": "9",
                "OMPI_COMM_WORLD_SIZE": "16",
            },
            Ranks(9, 16),
        ),
        # torchrun in each task of a Slurm job.
        (
            {
                "SLURM_PROCID": "1",
                "SLURM_STEP_NUM_TASKS": "2",
                "RANK": "9",
                "WORLD_SIZE": "16",
                "LOCAL_RANK": "1",
            },
            Ranks(9, 16),
        ),
        ({"WORLD_SIZE": "8", "SLURM_PROCID": "5", "SLURM_STEP_NUM_TASKS": "8"}, Ranks(5, 8)),
        ({"WORLD_SIZE": "1"}, Ranks(0, 1)),
        ({"RANK": "0"}, Ranks(0, 1)),
        ({"MASTER_ADDR": "localhost", "MASTER_PORT": "29500", "NODE_RANK": "0"}, Ranks(0, 1)),
    ],
)
def test_ranks_of_nested_and_partial_environments(environment, expected):
    assert find_ranks(None, None, environment) == expected


@pytest.mark.parametrize(
    ("environment", "values"),
    [
        ({"WORLD_SIZE": "8"}, "WORLD_SIZE=8"),
        ({"WORLD_SIZE": "8", "LOCAL_RANK": "3"}, "WORLD_SIZE=8 and LOCAL_RANK=3"),
        ({"WORLD_SIZE": "8", "LOCAL_RANK": "3", "NODE_RANK": "1"}, "WORLD_SIZE=8 and LOCAL_RANK=3"),
        ({"LOCAL_RANK": "0"}, "LOCAL_RANK=0"),
        ({"RANK": "1"}, "RANK=1"),
        ({"PMI_SIZE": "4"}, "PMI_SIZE=4"),
        ({"SLURM_PROCID": "3", "SLURM_NTASKS": "4"}, "SLURM_PROCID=3"),
        ({"WORLD_SIZE": "8", "SLURM_PROCID": "0", "SLURM_STEP_NUM_TASKS": "1"}, "WORLD_SIZE=8"),
    ],
)
def test_a_rank_that_cannot_be_told(environment, values):
    message = (
        f"the environment has {values}, so there are several processes, but it does not tell the"
        " rank of this one. Hint: initialize the process group before loaders.build(), start with"
        " torchrun, or pass rank= and world_size="
    )
    with pytest.raises(CallError) as caught:
        find_ranks(None, None, environment)
    assert str(caught.value) == f"{message}."
    assert find_ranks(0, 1, environment) == Ranks(0, 1)


def test_local_rank_from_launchers():
    assert local_rank({}) is None
    assert local_rank({"LOCAL_RANK": "1"}) == 1
    assert local_rank({"MPI_LOCALRANKID": "2", "SLURM_LOCALID": "0"}) == 2


@pytest.mark.parametrize(
    ("ranks", "gpus", "environment", "cores"),
    [
        (Ranks(), 0, {}, 32),
        (Ranks(0, 8), 0, {"RANK": "0", "LOCAL_WORLD_SIZE": "4"}, 8),
        (Ranks(0, 8), 0, {"PADDLE_TRAINER_ID": "0", "PADDLE_LOCAL_SIZE": "8"}, 4),
        (Ranks(0, 8), 0, {"PMI_RANK": "0", "MPI_LOCALNRANKS": "64"}, 1),
        # torch.multiprocessing: all ranks are on this machine. With GPUs, no more than there are.
        (Ranks(0, 8, "torch.distributed"), 0, {}, 4),
        (Ranks(0, 64, "torch.distributed"), 8, {}, 4),
        # Slurm, by the cores of a task, by a restriction of this task, and by the tasks of this
        # machine.
        (Ranks(0, 8), 0, {"SLURM_PROCID": "0", "SLURM_CPUS_PER_TASK": "6"}, 6),
        (Ranks(0, 8), 0, {"SLURM_PROCID": "0", "SLURM_CPUS_ON_NODE": "64"}, 32),
        (Ranks(0, 8), 0,
         {"SLURM_PROCID": "0", "SLURM_STEP_TASKS_PER_NODE": "4(x2),2", "SLURM_NODEID": "1"}, 8),
        (Ranks(8, 10), 0,
         {"SLURM_PROCID": "8", "SLURM_STEP_TASKS_PER_NODE": "4(x2),2", "SLURM_NODEID": "2"}, 16),
        # torchrun in a Slurm task.
        (Ranks(0, 8), 0,
         {"RANK": "0", "LOCAL_WORLD_SIZE": "8", "SLURM_PROCID": "0", "SLURM_CPUS_PER_TASK": "32"},
         4),
    ],
)  # fmt: skip
def test_cores_of_a_process(monkeypatch, ranks, gpus, environment, cores):
    monkeypatch.setattr("os.sched_getaffinity", lambda process: set(range(32)))
    assert usable_cores(ranks, gpus, environment) == cores


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: find_ranks(0, None),
         "rank is given without world_size. Hint: pass both or neither"),
        (lambda: find_ranks(2, 2), "rank must be from 0 to 1 \\(world_size - 1\\), got 2"),
        (lambda: find_ranks("0", "2"), "rank must be an integer, got '0'"),
        (lambda: find_ranks(0, 0), "world_size must be at least 1"),
        (lambda: find_ranks(None, None, {"RANK": "x", "WORLD_SIZE": "2"}),
         "RANK is 'x', which is not an integer"),
    ],
)  # fmt: skip
def test_wrong_ranks(call, message):
    with pytest.raises(CallError, match=message):
        call()


@given(st.integers(0, 1000), st.integers(1, 40), st.integers(0, 100))
def test_the_shares_of_all_ranks_add_up_to_all_samples(samples, world, completed_epochs):
    shares = [Ranks(rank, world).share(samples, completed_epochs) for rank in range(world)]
    assert sum(shares) == samples
    assert min(shares) >= Ranks(0, world).smallest_share(samples)
    assert max(shares) <= Ranks(0, world).largest_share(samples)


@pytest.mark.parametrize(
    ("fmt", "world"), [("tfrecord", 1), ("webdataset", 2), ("tfrecord", 5), ("webdataset", 23)]
)
@pytest.mark.parametrize("shuffle", [False, True])
def test_evaluation_on_several_ranks_returns_each_sample_once(
    make_dataset, mixed, fmt, world, shuffle
):
    folder = make_dataset(fmt, mixed)
    ranks = [
        build(
            folder, rank=rank, world_size=world, last_batch="partial", shuffle=shuffle, batch_size=3
        )
        for rank in range(world)
    ]
    for _ in range(3):
        epoch = [[labels.tolist() for _, labels in loader] for loader in ranks]
        assert len({len(batches) for batches in epoch}) == 1
        assert sorted(label for batches in epoch for labels in batches for label in labels) == list(
            range(23)
        )


def test_no_rank_ends_with_an_empty_batch(make_dataset, mixed):
    # The parts of two ranks are 11 and 12 of the 23 samples, in batches of 11.
    folder = make_dataset("tfrecord", mixed)
    sizes = []
    for rank in range(2):
        loader = build(
            folder, rank=rank, world_size=2, last_batch="partial", shuffle=False, batch_size=11
        )
        sizes.append([(tuple(images.shape), len(labels)) for images, labels in loader])
    assert sizes == [[((11, 3, 32, 32), 11)]] * 2


@FORMATS
@pytest.mark.parametrize("world", [2, 3])
def test_training_returns_the_same_number_of_full_batches_on_every_rank(
    make_dataset, mixed, fmt, world
):
    folder = make_dataset(fmt, mixed)
    ranks = [build(folder, rank=rank, world_size=world, batch_size=3) for rank in range(world)]
    seen: Counter[int] = Counter()
    for _ in range(4):
        epoch = [[labels.tolist() for _, labels in loader] for loader in ranks]
        assert (
            {len(batches) for batches in epoch}
            == {23 // world // 3}
            == {len(loader) for loader in ranks}
        )
        assert all(len(labels) == 3 for batches in epoch for labels in batches)
        read = [label for batches in epoch for labels in batches for label in labels]
        assert len(set(read)) == len(read)
        seen.update(read)
    assert set(seen) == set(range(23))


def test_ranks_draw_different_augmentations(make_dataset):
    noise = np.random.default_rng(0).integers(0, 255, (80, 80, 3), np.uint8)
    folder = make_dataset("tfrecord", [("png", encode(noise, "png"), 0)] * 8, shards=1)
    first, second = (
        next(iter(build(folder, rank=rank, world_size=2, transforms=small.TRAIN)))[0]
        for rank in range(2)
    )
    assert not torch.equal(first, second)


def test_more_ranks_than_samples(make_dataset, mixed):
    folder = make_dataset("tfrecord", mixed[:2], shards=1)
    with pytest.raises(CallError, match="split 'train' has 2 samples, but there are 3 ranks"):
        build(folder, rank=0, world_size=3, last_batch="partial", shuffle=False)


def test_a_batch_larger_than_the_share_of_a_rank(make_dataset, mixed):
    with pytest.raises(
        CallError, match=r"batch_size=4, but a rank reads only 3 of the 7 samples of split 'train'"
    ):
        build(make_dataset("tfrecord", mixed[:7], shards=1), rank=0, world_size=2)


@pytest.mark.slow
def test_a_process_group_of_two(make_dataset, mixed, tmp_path):
    """Two processes find their ranks through torch.distributed and gather the labels that they read."""
    folder = make_dataset("webdataset", mixed)
    found = json.loads(
        output_of_forks([HELPERS / "gather_labels.py", folder], 2).strip().splitlines()[-1]
    )
    assert found["world"] == 2
    assert sorted(found["labels"]) == list(range(23))
    assert len(set(found["batches"])) == 1


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
