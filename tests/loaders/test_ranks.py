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
from helpers.rows import evaluate, read_named, read_rows
from hypothesis import given
from hypothesis import strategies as st

from loaders import ranks
from loaders.ranks import Ranks, find_ranks, local_rank, usable_cores
from manifests.errors import CallError

ROOT = Path(__file__).parents[2]

SLURM = "SLURM_PROCID=0 SLURM_STEP_NUM_TASKS=10"
#: The variables of a Slurm task that starts eight processes itself: all of them inherit these.
ONE_TASK = "SLURM_PROCID=0 SLURM_STEP_NUM_TASKS=1 SLURM_LOCALID=0 SLURM_CPUS_PER_TASK=32"
SPAWNED = Ranks(3, 8, "torch.distributed")

LAUNCHED = read_named(__file__, "launchers", globals())
NESTED = read_named(__file__, "nested and partial environments", globals())


def environment(text):
    return dict(each.split("=") for each in text.split())


@pytest.mark.parametrize("name", LAUNCHED | NESTED)
def test_ranks_from_launchers(name):
    text, expected = (LAUNCHED | NESTED)[name]
    assert find_ranks(None, None, environment(text)) == expected


def test_the_guide_lists_every_launcher():
    lines = (ROOT / "docs" / "distributed.md").read_text().splitlines()
    names = {line.split("|")[1].strip().strip("`") for line in lines if line.startswith("|")}
    # Two are known by their process group: torch.multiprocessing and JAX.
    assert names >= {*LAUNCHED, "torch.multiprocessing", "JAX"}


@pytest.mark.parametrize(("text", "values"), read_rows(__file__, "a rank that cannot be told"))
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


@pytest.mark.parametrize(("row", "expected"), read_rows(__file__, "local ranks"))
def test_local_rank_from_launchers(row, expected):
    own, text = evaluate(row, globals(), vars(ranks))
    assert local_rank(own, environment(text)) == evaluate(expected)


@pytest.mark.parametrize(("row", "cores"), read_rows(__file__, "cores"))
def test_cores_of_a_process(monkeypatch, row, cores):
    own, gpus, text = evaluate(row, globals())
    monkeypatch.setattr("os.sched_getaffinity", lambda process: set(range(32)))
    assert usable_cores(own, gpus, environment(text)) == int(cores)


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


@pytest.mark.parametrize(("row", "message"), read_rows(__file__, "wrong ranks"))
def test_wrong_ranks(row, message):
    rank, world_size, text = evaluate(row)
    with pytest.raises(CallError, match=re.escape(message)):
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
