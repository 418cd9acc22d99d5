"""`resolve` replaces each `None`: explicit arguments override configs, and configs override defaults."""

import gc
import math
from dataclasses import FrozenInstanceError, fields
from types import SimpleNamespace
from unittest.mock import Mock

import numpy as np
import pyarrow.parquet as pq
import pytest
from helpers.loading import build
from helpers.rows import evaluate, read_rows

import loaders
import loaders.resolve as resolve_module
from loaders.checkpoint import State, checkpoint_choices, read_state
from loaders.dataset.tables import SampleTables
from loaders.devices import Device
from loaders.explain import explain
from loaders.memory import (
    ImageSizes,
    MemoryEstimate,
    Reservations,
    estimate_memory,
    has_many_operators,
)
from loaders.options import BuildRequest, ResolvedOptions
from loaders.progress import Position
from loaders.ranks import Ranks
from loaders.resolve import default_tuning
from loaders.tuning import Tuning
from manifests.pixels import PixelKind

DEFAULTS = {"batch_size": 4, "transforms": "imagenet-eval", "device": "cpu"}


CROP = [{"RandomResizedCrop": {"size": 32}}]


@pytest.fixture
def folder(prepared):
    return prepared["mixed tfrecord"]


def spec_of(folder, **options):
    return resolve_module.resolve(BuildRequest(dataset=folder, **{**DEFAULTS, **options}))


def resolve(folder, **options):
    return spec_of(folder, **options).options


def test_defaults(folder):
    options = resolve(folder)
    assert isinstance(options, ResolvedOptions)
    assert all(getattr(options, field.name) is not None for field in fields(options))
    assert (options.shuffle, options.last_batch, options.prefetch) == (True, "drop", 2)
    assert (options.memory_limit, options.ranks) == (math.inf, Ranks(0, 1))
    assert options.device == Device("cpu")
    given = DEFAULTS | {"batch_size": np.int16(4), "num_threads": None, "seed": 5}
    with build(folder, **given) as loader:
        assert loader.options == resolve(folder, seed=5)
        assert type(loader.options.batch_size) is int
        with pytest.raises(AttributeError):
            loader.options = None
        with pytest.raises(FrozenInstanceError):
            loader.options.batch_size = 5


def test_arguments_override_the_config_and_the_config_overrides_defaults(folder, tmp_path):
    config = tmp_path / "config.yaml"
    sampler = "{name: BatchSampler, batch_size: 6, drop_last: False, shuffle: False}"
    transforms = "{transform_ops: [{ResizeImage: {size: [32, 32]}}]}"
    config.write_text(f"DataLoader: {{Train: {{dataset: {transforms}, sampler: {sampler}}}}}")
    options = resolve(folder, transforms=config, batch_size=None)
    assert (options.batch_size, options.last_batch, options.shuffle) == (6, "partial", False)
    options = resolve(folder, transforms=config, batch_size=5, last_batch="pad", shuffle=True)
    assert (options.batch_size, options.last_batch, options.shuffle) == (5, "pad", True)


@pytest.mark.parametrize(
    ("cores", "gpu", "raw", "fields", "threads"),
    [
        (32, False, None, ["image"], 32),
        (1, False, None, ["image"], 1),
        (32, True, None, ["image"], 12),
        (2, True, None, ["image"], 2),
        (32, True, (64, 64), ["image"], 4),
        (2, True, (64, 64), ["image"], 2),
        (32, True, (128, 128), ["image"], 4),
        (32, True, (128, 129), ["image"], 12),
        (32, True, (64, 64), ["image", "mask"], 12),
        (32, False, (64, 64), ["image"], 32),
    ],
)
def test_default_threads(cores, gpu, raw, fields, threads):
    request, recipe = SimpleNamespace(fields=fields), SimpleNamespace(raw_size=raw)
    fusion = SimpleNamespace(operations=[SimpleNamespace(decoded=None)])
    device = Device("gpu" if gpu else "cpu")
    found = default_tuning(request, recipe, fusion, device, cores=cores, sizes=None, smooth=True)
    assert found.num_threads == threads


@pytest.fixture
def two_gpus(monkeypatch):
    """Let torch report two GPUs. They are never used, because resolving does not run DALI."""
    monkeypatch.setattr("torch.cuda.is_available", lambda: True)
    monkeypatch.setattr("torch.cuda.device_count", lambda: 2)
    monkeypatch.setattr("torch.cuda.current_device", lambda: 1)
    monkeypatch.setattr("os.sched_getaffinity", lambda process: set(range(32)))


@pytest.mark.usefixtures("two_gpus")
def test_defaults_on_a_gpu(folder, monkeypatch):
    options = resolve(folder, device="auto")
    assert options.device == Device("gpu", 1)
    assert str(options.device) == "gpu:1"
    assert (options.num_threads, options.hw_decoder_load, options.prefetch) == (12, 0.8, 2)
    assert resolve(folder, device="gpu", device_id=0).device == Device("gpu", 0)
    assert resolve(folder, device="cpu").device == Device("cpu")
    monkeypatch.setenv("LOCAL_RANK", "2")
    assert resolve(folder, device="gpu", rank=2, world_size=4).device == Device("gpu", 0)
    assert resolve(folder, device="gpu", rank=0, world_size=1).device == Device("gpu", 1)


@pytest.mark.usefixtures("two_gpus")
@pytest.mark.parametrize(("row", "loads"), read_rows(__file__, "hardware decoder"))
def test_the_hardware_decodes_more_of_images_that_are_decoded_almost_whole(folder, row, loads):
    for shuffle, load in zip((True, False), evaluate(loads), strict=True):
        options = resolve(folder, device="auto", transforms=evaluate(row), shuffle=shuffle)
        assert options.hw_decoder_load == load


@pytest.mark.usefixtures("two_gpus")
@pytest.mark.parametrize(("row", "expected"), read_rows(__file__, "decoder"))
def test_the_cpu_decodes_small_images(folder, monkeypatch, row, expected):
    given, side = evaluate(row)
    sides = np.full(4, side, np.int32)
    monkeypatch.setattr(SampleTables, "image_sizes", lambda self, _: ImageSizes(sides, sides))
    monkeypatch.setattr(resolve_module, "use_tuning", lambda *_: (Tuning(hw_decoder_load=0.5), ()))
    spec = spec_of(folder, device="gpu", **given)
    decoder = spec.options.decoder
    assert (decoder, spec.options.num_threads) == evaluate(expected)
    choices = checkpoint_choices(spec)
    assert choices["decoder"] == decoder
    # A loader on a CPU has no choice of a decoder.
    of_cpu = State(checkpoint_choices(spec_of(folder)), Position(0, 0, 0, 0), b"").to_dict()
    with pytest.raises(loaders.CallError, match=r"with device='cpu', but .* device='gpu'"):
        read_state(of_cpu, choices, batches=3)
    assert spec.settings.gpu_decodes == (decoder == "gpu")
    text = explain(spec)
    assert f"\nDecoder: the {decoder.upper()}; by default, the CPU decodes" in text
    assert ("hardware decoder decodes" in text) == (decoder == "gpu")


def test_the_gpu_decodes_only_rgb_images(folder):
    recipe = SimpleNamespace(raw_size=(8, 8), kind=PixelKind(4, "uint16"))
    arguments = BuildRequest(dataset=folder, decoder="gpu"), recipe, Device("gpu"), None, Tuning()
    assert resolve_module._decoder(*arguments) == "cpu"
    recipe.raw_size = None
    with pytest.raises(loaders.CallError, match=r"uint16.*, which the CPU decodes\. Hint: remove"):
        resolve_module._decoder(*arguments)


@pytest.mark.usefixtures("two_gpus")
@pytest.mark.parametrize(
    ("options", "pipelines", "prefetch"),
    [
        ({"transforms": "modern-train"}, 2, 4),
        ({"transforms": [{"RandomApply": {"transforms": ["TrivialAugmentWide"]}}, *CROP]}, 2, 4),
        ({"transforms": [], "views": [CROP, ["TrivialAugmentWide", *CROP]]}, 2, 4),
        (
            {
                "transforms": [
                    {"ColorJitter": {"hue": 0.1, "contrast": 0.4, "brightness": 0.4}},
                    *CROP,
                ]
            },
            2,
            4,
        ),
        ({"transforms": [{"ColorJitter": {"contrast": 0.4, "brightness": 0.4}}, *CROP]}, 1, 2),
        ({"transforms": "modern-train", "pipelines": 1}, 1, 2),
        ({"transforms": "modern-train", "shuffle": "buffer"}, 1, 2),
        ({"transforms": "modern-train", "device": "cpu"}, 1, 2),
        ({"transforms": "imagenet-train"}, 1, 2),
    ],
)
def test_many_operators_run_in_two_pipelines_on_a_gpu(folder, options, pipelines, prefetch):
    spec = spec_of(folder, **{"device": "auto", "shuffle": True, **options})
    options = spec.options
    assert (options.pipelines, options.prefetch) == (pipelines, prefetch)
    assert spec.settings.threads == options.num_threads // pipelines


def test_of_large_images_only_policies_are_many_operators():
    side = np.full(4, 500, np.int32)
    assert [has_many_operators(ImageSizes(side, side), count) for count in (24, 60)] == [
        False,
        True,
    ]


@pytest.mark.usefixtures("two_gpus")
def test_memory_limits(folder):
    limits = {"4GiB": 4 << 30, "5000 MB": 5_000_000_000, "4.5GiB": 9 << 29, 10**10: 10**10}
    for limit, expected in limits.items():
        assert resolve(folder, device="gpu", memory_limit=limit).memory_limit == expected


@pytest.mark.usefixtures("two_gpus")
@pytest.mark.parametrize(("row", "message"), read_rows(__file__, "what a GPU does not have"))
def test_what_a_gpu_does_not_have(folder, row, message):
    with pytest.raises(loaders.CallError, match=message):
        resolve(folder, device="gpu", **evaluate(row))


@pytest.mark.usefixtures("two_gpus")
def test_the_open_loaders_of_a_process_share_the_limit(folder, monkeypatch):
    reservations = Reservations()
    monkeypatch.setattr("loaders.resolve.RESERVATIONS", reservations)
    loader, elsewhere = Mock(), Mock()
    taken = MemoryEstimate(context=2**30, decoder=2**31, images=0, finished_batches=2**30)
    reservations.add(loader, 1, taken)
    reservations.add(elsewhere, 0, MemoryEstimate(0, 2**40, 0, 0))
    message = (
        r"memory_limit is 3\.50 GiB, .* and the other open loaders of this process take 3\.00 GiB\."
        r" Hint: close"
    )
    with pytest.raises(loaders.CallError, match=message):
        resolve(folder, device="gpu", memory_limit="3.5GiB")
    assert resolve(folder, device="gpu", memory_limit="9GiB").memory_limit == 9 * 2**30
    del loader
    gc.collect()
    assert resolve(folder, device="gpu", memory_limit="3.5GiB").memory_limit == 7 * 2**29
    reservations.remove(elsewhere)
    assert reservations.total(0) == 0


@pytest.mark.usefixtures("two_gpus")
def test_bfloat16_counts_the_float32_batches_of_dali(folder):
    image = 3 * 224 * 224
    for dtype, expected in (("float32", 4 * 3), ("bfloat16", 4 * 3 + 2 * 2)):
        spec = spec_of(folder, device="gpu", dtype=dtype)
        assert estimate_memory(spec.sizes, spec.settings).finished_batches == 4 * image * expected


@pytest.mark.usefixtures("two_gpus")
def test_a_memory_limit_needs_the_image_sizes(make_dataset, mixed):
    folder = make_dataset("tfrecord", mixed)
    for path in folder.glob("*.parquet"):
        pq.write_table(pq.read_table(path).drop_columns(["width"]), path)
    assert resolve(folder, device="gpu").hw_decoder_load == 0.8
    with pytest.raises(loaders.CallError, match="memory_limit needs the sizes of all images"):
        resolve(folder, device="gpu", memory_limit="4GiB")
