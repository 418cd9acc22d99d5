"""Calls that `loaders.build` refuses before it reads an image: what is wrong, and what to write instead."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch
from click.testing import CliRunner
from helpers.loading import build

import loaders
from loaders.cli import main
from loaders.samplers import ClassBalancedSampler, PKSampler, ShuffledSampler, SubsetSampler
from manifests.errors import CallError, ManifestError

CROP = [{"RandomResizedCrop": {"size": 32}}]
ROTATION = {"RandomRotation": {"degrees": 10, "prob": 1}}
MIXED, PEOPLE = "mixed tfrecord", "people tfrecord"
ONE_NUMBER = "one positive number for each of 2 datasets"


def sampler(columns=(), plan=None):
    return SimpleNamespace(columns=columns, plan=lambda columns, **_: plan)


def plan_of(rows, samples=24):
    return SimpleNamespace(samples=samples, lines=(), batch=lambda epoch, number: rows)


#: The dataset, or several, and for each row the arguments and a part of the message.
REFUSED = {
    MIXED: [
        ({"batch_size": 2.5}, "batch_size must be an integer of at least 1, got 2.5"),
        ({"batch_size": True}, "batch_size must be an integer of at least 1, got True"),
        ({"batch_size": 2**31}, "batch_size must be at most 2147483647, got 2147483648"),
        ({"batch_size": 24}, "batch_size=24 is more than the 23 samples of split 'train'"),
        (
            {"batch_size": 24, "shuffle": False},
            "batch_size=24 is more than the 23 samples of split 'train'",
        ),
        ({"fields": None}, "fields must be a list of names, got None"),
        ({"fields": ["label", 3]}, "fields must be a list of names"),
        ({"fields": ("nothing",)}, "'nothing', which is not a column of the sample tables of"),
        ({"split": 3}, "split must be the name of a split, got 3"),
        ({"split": None}, 'Hint: pass a name, for example split="train"'),
        # The largest integer of a checkpoint.
        ({"seed": 2**63}, "seed must be at most 9223372036854775807, got 9223372036854775808"),
        ({"device": "mps"}, "device must be one of 'auto', 'gpu', 'cpu', got 'mps'"),
        ({"device": np.array([0, 1])}, "device must be one of 'auto', 'gpu', 'cpu', got array"),
        ({"device": "cuda:1", "device_id": 0}, "device='cuda:1' and device_id=0 name different GP"),
        ({"device_id": 0}, 'device_id=0 selects a GPU, but device is "cpu"'),
        ({"hw_decoder_load": True}, "hw_decoder_load must be a number from 0 to 1, got True"),
        ({"last_batch": "drop", "drop_last": False}, "drop_last=False contradict each other"),
        ({"shuffle": "yes"}, "shuffle must be True, False, \"buffer\" or None, got 'yes'"),
        ({"on_error": "skip", "shuffle": "buffer"}, "cannot leave out an image"),
        ({"memory_limit": "4 apples"}, "memory_limit='4 apples' is not a size in bytes. Hint: pas"),
        ({"memory_limit": "0GiB"}, "memory_limit must be an integer of at least 1, got 0"),
        ({"memory_limit": -1}, "memory_limit must be an integer of at least 1, got -1"),
        ({"memory_limit": "9999999TiB"}, "memory_limit must be at most 1152921504606846976, got "),
        (
            {"memory_limit": "4GiB"},
            'memory_limit limits GPU memory, but the device is "cpu". Hint: remove memory_limit, or'
            ' set device="gpu"',
        ),
        # What torch's DataLoader has.
        ({"num_workers": 8}, "Hint: remove it: num_threads"),
        ({"pin_memory": True}, "Hint: remove it: batches are made on the GPU"),
        ({"collate_fn": list}, "Hint: remove it"),
        ({"prefetch_factor": 2}, "Hint: set prefetch"),
        ({"batchsize": 3}, "did you mean 'batch_size'"),
        (
            {"transforms": {"CropImage": {"size": 8}}},
            'for example "imagenet-train" or [{"CropImage": {"size": 224}}]',
        ),
        ({"transforms": ["imagenet-eval", "ToTensor"]}, "write transforms='imagenet-eval'"),
        (
            {"transforms": "zzz"},
            "valid names are 'imagenet-train', 'imagenet-eval', 'bucket-train', 'bucket-eval', 'reid-",
        ),
        ({"transforms": [{"ResizeImage": {"size": 10**9}}]}, "size must be (height, width), each"),
        ({"transforms": []}, "images have different sizes, but a batch needs one size"),
        ({"transforms": ["MixUp"], "batch_size": 1}, "MixUp() needs one size"),
        ({"views": [["ToTensor"]] * 33}, "views must be a list of 1 to 32 lists"),
        ({"views": ["ToTensor"]}, "views[0] must be a list of transforms, got 'ToTensor'"),
        ({"views": [CROP, ["quux"]]}, "views[1][0]: 'quux' is not a known transform"),
        ({"views": [[*CROP, "MixUp"]]}, "transforms that mix images cannot be combined with views"),
        ({"views": [CROP], "transforms": [len]}, "transforms[0]: len(images) is a function"),
        (
            {"views": [CROP], "transforms": "imagenet-train"},
            "views needs a list as transforms, got 'imagenet-train'",
        ),
        ({"revision": -1}, "revision must be an integer of at least 0, got -1"),
        ({"revision": [0, 0]}, "revision must be one number for each of 1 dataset, got [0, 0]"),
        (
            {"rank": 0, "world_size": 24, "last_batch": "partial", "shuffle": False},
            "split 'train' has 23 samples, but there are 24 ranks",
        ),
        (
            {"rank": 0, "world_size": 6},
            "batch_size=4, but a rank reads only 3 of the 23 samples of split 'train'",
        ),
    ],
    PEOPLE: [
        (
            {"sampler": PKSampler(11, 1), "batch_size": 11},
            "a batch needs 11 different identities (classes_per_batch=11), but column",
        ),
        ({"sampler": PKSampler(2, 2, by="identitty")}, "did you mean 'identity'"),
        ({"sampler": PKSampler(2, 2, across="kamera")}, "did you mean 'camera'"),
        (
            {"sampler": PKSampler(1, 12, few="drop"), "batch_size": 12},
            'Hint: set few="repeat", or a samples_per_class below 12',
        ),
        ({"sampler": PKSampler(2, 2), "on_error": "skip"}, "are not P x K"),
        (
            {"sampler": SubsetSampler(range(20), sampler=PKSampler(2, 2)), "on_error": "skip"},
            "are not P x K",
        ),
        ({"sampler": PKSampler}, "sampler must follow the protocol loaders.samplers.Sampler"),
        ({"sampler": "PKSampler"}, "sampler must follow the protocol loaders.samplers.Sampler"),
        (
            {"sampler": ShuffledSampler(), "shuffle": True},
            "shuffle=True cannot be combined with a sampler, which decides the order",
        ),
        (
            {"sampler": ShuffledSampler(), "batch_size": 41},
            "batch_size=41 is more than the 40 samples of split 'train'",
        ),
        (
            {"sampler": ClassBalancedSampler(samples=30), "batch_size": 31},
            "batch_size=31 is more than the 30 samples in an epoch of ClassBalancedSampler",
        ),
        ({"sampler": sampler("label")}, "columns must be a tuple of column names, got 'label'"),
        ({"sampler": sampler(None)}, "columns must be a tuple of column names, got None"),
        ({"sampler": sampler()}, "return a plan whose samples is an int of at least 1, got None"),
        ({"sampler": sampler(plan=plan_of([], 2.0))}, "is an int of at least 1, got 2.0"),
        (
            {"sampler": sampler(plan=SimpleNamespace(samples=24, lines="hello", batch=len))},
            "plan that has lines (a tuple of strings) and the method batch",
        ),
        (
            {"sampler": sampler(plan=SimpleNamespace(samples=24, lines=()))},
            "plan that has lines (a tuple of strings) and the method batch",
        ),
        *(
            (
                {"sampler": sampler(plan=plan_of(np.array(rows)))},
                "batch 0 of epoch 0 must be 4 integers from 0 to 39, got",
            )
            for rows in ([0, 1, 2], [0.5, 1.5, 2.5, 3.5], [37, 38, 39, 40], [-1, 0, 1, 2])
        ),
    ],
    "mask tfrecord": [
        ({"fields": ("image", "boxes")}, "'boxes', which is not a column"),
        (
            {"fields": ("image", "mask"), "transforms": [*CROP, "RandAugmentV2"], "batch_size": 2},
            "transforms[1]: RandAugmentV2() cannot keep masks right",
        ),
    ],
    "boxes tfrecord": [
        ({"fields": ("image", "mask")}, "'mask', which is not a column"),
        (
            {"fields": ("image", "boxes"), "transforms": [*CROP, ROTATION], "batch_size": 2},
            "transforms[1]: RandomRotation(degrees=10, prob=1) cannot keep boxes right",
        ),
        (
            {"fields": ("image", "boxes"), "transforms": CROP, "views": [[], [ROTATION]]},
            "views[1][0]: RandomRotation(degrees=10, prob=1) cannot keep boxes right",
        ),
    ],
    (MIXED, "gray webdataset"): [
        ({"mix": [1]}, ONE_NUMBER),
        ({"mix": [1, -1]}, ONE_NUMBER),
        ({"mix": [1, float("nan")]}, ONE_NUMBER),
        ({"mix": "ab"}, ONE_NUMBER),
        ({"mix": [1, 1], "shuffle": True}, "cannot be combined with sampler or shuffle"),
        ({"mix": [1, 1], "sampler": ShuffledSampler()}, "cannot be combined with sampler or shuff"),
    ],
    (MIXED, MIXED): [({}, "twice")],
}


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize(
    ("names", "options", "message"),
    [(names, *row) for names, rows in REFUSED.items() for row in rows],
)
def test_refused(prepared, names, options, message):
    dataset = prepared[names] if isinstance(names, str) else [prepared[name] for name in names]
    with pytest.raises(CallError) as caught:
        build(dataset, **options)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_errors_are_those_of_python_too(prepared):
    assert issubclass(loaders.CallError, ValueError)
    assert issubclass(loaders.CallError, loaders.DatasetError)
    assert issubclass(loaders.DamagedError, loaders.DatasetError)
    with pytest.raises(TypeError, match="no argument transform"):
        build(prepared[MIXED], transform=[])
    with pytest.raises(TypeError, match="one argument by position, the dataset, but got 3"):
        loaders.build(prepared[MIXED], 4, [])


@pytest.mark.parametrize(
    ("dataset", "message"),
    [
        *((each, "dataset must be a path, got ") for each in (None, 3, "", b"data", [3])),
        ("a\0b", "cannot be the name of a folder"),
        ("\ud800", "cannot be the name of a folder"),
    ],
)
def test_a_dataset_must_be_a_path(dataset, message):
    with pytest.raises(CallError, match=message):
        build(dataset)


def test_folders_that_are_no_datasets(tmp_path):
    with pytest.raises(ManifestError, match="the dataset is incomplete"):
        build(tmp_path)
    (tmp_path / "cat").mkdir()
    (tmp_path / "cat/1.jpg").write_bytes(b"")
    message = f"this is a folder of images. Hint: run `dataprep convert --src {tmp_path}` first"
    with pytest.raises(CallError) as caught:
        build(tmp_path)
    assert message in str(caught.value)
    transforms = ["--transforms", "imagenet-eval"]
    for command in (
        ["preview", str(tmp_path), *transforms],
        ["bench", str(tmp_path), *transforms],
        ["memory", str(tmp_path), "--batch-size", "2"],
    ):
        done = CliRunner().invoke(main, command)
        assert (done.exit_code, message in done.stderr) == (2, True)


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_a_machine_without_gpu(prepared):
    message = r'device="gpu", but this machine has no GPU\. Hint: set device="cpu"'
    with pytest.raises(CallError, match=message):
        build(prepared[MIXED], device="gpu")
    with build(prepared[MIXED], device="auto") as loader:
        assert next(iter(loader))[0].device.type == "cpu"
