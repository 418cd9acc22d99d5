"""From the arguments of a call to options without a `None`: explicit arguments, then configs, then defaults."""

import math
import sys
from dataclasses import FrozenInstanceError, fields

import numpy as np
import pytest
import yaml

import loaders
import loaders.resolve as resolve_module
from loaders.options import BuildRequest, ResolvedOptions
from loaders.ranks import Device, Ranks
from loaders.resolve import MAX_THREADS_COMPUTING, default_threads
from loaders.transforms.fuse import fuse

DEFAULTS = {
    "split": "train",
    "batch_size": 4,
    "transforms": "imagenet-eval",
    "sampler": None,
    "shuffle": None,
    "device": "cpu",
    "device_id": None,
    "rank": None,
    "world_size": None,
    "seed": 0,
    "num_threads": None,
    "dtype": "float16",
    "layout": "NCHW",
    "last_batch": None,
    "fields": ("image", "label"),
    "framework": "torch",
    "prefetch": None,
    "hw_decoder_load": None,
    "memory_limit": None,
}


@pytest.fixture
def folder(make_dataset, mixed):
    return make_dataset("tfrecord", mixed)


def resolve(folder, **options):
    return resolve_module.resolve(BuildRequest(dataset=folder, **{**DEFAULTS, **options})).options


def test_resolved_options_contain_no_none(folder):
    options = resolve(folder)
    assert isinstance(options, ResolvedOptions)
    assert all(getattr(options, field.name) is not None for field in fields(options))


def test_the_loader_shows_its_options(folder):
    with loaders.build(folder, batch_size=np.int16(4), transforms="imagenet-eval", device="cpu", seed=5) as loader:
        assert loader.options == resolve(folder, seed=5)
        assert type(loader.options.batch_size) is int
        assert loader.samples == 23
        with pytest.raises(AttributeError):
            loader.options = None
        with pytest.raises(FrozenInstanceError):
            loader.options.batch_size = 5


def test_defaults_for_training(folder):
    options = resolve(folder)
    assert (options.shuffle, options.last_batch, options.prefetch, options.memory_limit) == (True, "drop", 2, math.inf)
    assert options.device == Device("cpu")
    assert options.ranks == Ranks(0, 1)


def test_defaults_for_evaluation(make_dataset, mixed):
    options = resolve(make_dataset("tfrecord", mixed, split="val"), split="val")
    assert (options.shuffle, options.last_batch) == (False, "partial")


def test_arguments_come_before_the_config_and_the_config_before_defaults(folder, tmp_path):
    config = tmp_path / "config.yaml"
    sampler = {"name": "BatchSampler", "batch_size": 6, "drop_last": False, "shuffle": False}
    section = {"dataset": {"transform_ops": [{"ResizeImage": {"size": [32, 32]}}]}, "sampler": sampler}
    config.write_text(yaml.safe_dump({"DataLoader": {"Train": section}}))
    options = resolve(folder, transforms=config, batch_size=None)
    assert (options.batch_size, options.last_batch, options.shuffle) == (6, "partial", False)
    options = resolve(folder, transforms=config, batch_size=5, last_batch="pad", shuffle=True)
    assert (options.batch_size, options.last_batch, options.shuffle) == (5, "pad", True)


@pytest.mark.parametrize(
    ("limit", "expected"), [("4GiB", 4 * 2**30), ("500 MB", 500_000_000), ("1.5GiB", 3 * 2**29), (10**9, 10**9)]
)
def test_memory_limits(folder, limit, expected):
    assert resolve(folder, memory_limit=limit).memory_limit == expected


@pytest.mark.parametrize(
    ("limit", "message"),
    [
        ("4 apples", r"memory_limit='4 apples' is not a size in bytes\. Hint: for example \"4GiB\""),
        ("0GiB", "memory_limit must be a whole number of at least 1, got 0"),
        (-1, "memory_limit must be a whole number of at least 1, got -1"),
        ("9999999TiB", "memory_limit must be at most 1152921504606846976, got "),
    ],
)
def test_wrong_memory_limits(folder, limit, message):
    with pytest.raises(loaders.CallError, match=message):
        resolve(folder, memory_limit=limit)


@pytest.mark.parametrize(
    ("processes", "gpu", "computing", "threads"),
    [
        (1, False, False, 32), (4, False, True, 8), (64, False, False, 1),
        (1, True, False, 12), (1, True, True, MAX_THREADS_COMPUTING), (16, True, False, 2),
    ],
)  # fmt: skip
def test_default_threads(monkeypatch, processes, gpu, computing, threads):
    monkeypatch.setattr("os.sched_getaffinity", lambda process: set(range(32)))
    assert default_threads(processes, 12, gpu=gpu, computing=computing) == threads


def test_transforms_are_fused_once_per_build(folder, monkeypatch):
    calls = []
    monkeypatch.setattr(resolve_module, "fuse", lambda operations: calls.append(operations) or fuse(operations))
    with loaders.build(folder, batch_size=4, transforms="imagenet-train", device="cpu") as loader:
        loader.explain()
        next(iter(loader))
    assert len(calls) == 1
    # No other module could call it.
    holders = [name for name, module in sys.modules.items() if name.startswith("loaders") and hasattr(module, "fuse")]
    assert set(holders) <= {"loaders.resolve", "loaders.transforms", "loaders.transforms.fuse"}
