"""`loaders.build`: public names, batches, epochs, imports."""

import gc
import subprocess
import sys
import weakref

import numpy as np
import pytest
import torch
from helpers import small
from helpers.pictures import encode
from helpers.warm_python import WarmPython

import loaders
from loaders import transforms
from loaders.transforms.base import Operation
from manifests.errors import CallError
from manifests.process.program import release

FORMATS = pytest.mark.parametrize("fmt", ["tfrecord", "webdataset"])


def build(folder, **options):
    defaults = {"batch_size": 4, "transforms": small.EVAL, "device": "cpu", "num_threads": 2}
    return loaders.build(folder, **{**defaults, **options})


def labels_of(loader):
    return [labels.tolist() for _, labels in loader]


def test_public_names():
    """The list is fixed, because removing or renaming a name breaks users' scripts."""
    assert sorted(loaders.__all__) == [
        "Batch", "CallError", "ClassBalancedSampler", "DamagedError", "DatasetError", "Loader", "PKSampler",
        "RepeatedSampler", "SequentialSampler", "ShuffledSampler", "SubsetSampler", "WeightedSampler", "build",
    ]  # fmt: skip
    assert dir(loaders) == sorted(loaders.__all__)
    assert all(getattr(loaders, name) for name in loaders.__all__)


def test_wrong_arguments_are_value_errors():
    assert issubclass(loaders.CallError, ValueError)
    assert issubclass(loaders.CallError, loaders.DatasetError)
    assert issubclass(loaders.DamagedError, loaders.DatasetError)


@pytest.fixture(scope="module")
def without_loaders():
    """Runs programs in processes that have imported what `loaders` imports and is heavy, but not `loaders`."""
    program = WarmPython("nvidia.dali.fn", "pyarrow.parquet")
    yield program
    program.close()


@pytest.mark.parametrize(
    "first", ["loaders", "loaders.build", "loaders.resolve", "loaders.loader", "loaders.cli"]
)
def test_build_stays_a_function_whatever_is_imported(first, without_loaders):
    """Importing the submodule `loaders.build` must not rebind the function `loaders.build`.

    Nor must another one.
    """
    code = (
        f"import importlib, pkgutil; importlib.import_module({first!r}); import loaders\n"
        "assert callable(loaders.build)\n"
        "names = [module.name for module in pkgutil.walk_packages(loaders.__path__, 'loaders.')]\n"
        "assert 'loaders.build' in names\n"
        f"for name in names if {first == 'loaders'} else ['loaders.build']:\n"
        "    if name != 'loaders.__main__': importlib.import_module(name)\n"
        "assert callable(loaders.build), loaders.build"
    )
    done = without_loaders.run("-c", code)
    assert done.returncode == 0, done.stderr


def test_every_operation_is_public():
    """`loaders.transforms` exports every operation that users may put into a list."""
    concrete = {
        cls.__name__
        for cls in subclasses(Operation)
        if "__slots__" in vars(cls) and cls.__slots__ != ()
    }
    fused = {"DecodeCrop", "ResizeCrop", "FlipNormalize", "CropResize", "Unpack"}
    assert concrete - fused <= set(transforms.__all__)


def subclasses(cls):
    for each in cls.__subclasses__():
        yield each
        yield from subclasses(each)


def test_import_loads_no_heavy_package():
    heavy = ("torch", "nvidia", "pyarrow", "yaml", "awscrt")
    code = f"import sys, loaders; print([m for m in sys.modules if m.split('.')[0] in {heavy}])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


@FORMATS
@pytest.mark.parametrize("transforms", ["imagenet-train", "imagenet-eval"])
@pytest.mark.parametrize("dtype", ["float16", "float32"])
@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
def test_shapes_types_and_values_of_batches(make_dataset, mixed, fmt, transforms, dtype, layout):
    with build(
        make_dataset(fmt, mixed), transforms=transforms, dtype=dtype, layout=layout
    ) as loader:
        images, labels = next(iter(loader))
    assert images.shape == ((4, 3, 224, 224) if layout == "NCHW" else (4, 224, 224, 3))
    assert images.dtype == getattr(torch, dtype)
    assert images.device.type == labels.device.type == "cpu"
    assert images.is_contiguous()
    assert labels.shape == (4,)
    assert labels.dtype == torch.int64
    # The mean color of each image is ten times its label.
    red = images[:, 0].float() if layout == "NCHW" else images[..., 0].float()
    values = (red.mean((1, 2)) * 0.229 + 0.485) * 255
    assert torch.allclose(values, 10.0 * labels, atol=3)


@pytest.mark.parametrize("framework", ["torch", "numpy"])
def test_the_loader_does_not_keep_a_returned_batch(make_dataset, mixed, framework):
    """A training script may delete a batch to release its memory before it asks for the next one."""
    with build(make_dataset("tfrecord", mixed), framework=framework) as loader:
        for images, labels in loader:
            kept = [weakref.ref(images), weakref.ref(labels)]
            del images, labels
            assert [reference() for reference in kept] == [None, None]


@FORMATS
@pytest.mark.parametrize(
    ("last_batch", "sizes"), [("drop", [4] * 5), ("partial", [4] * 5 + [3]), ("pad", [4] * 6)]
)
def test_last_batch_of_each_epoch(make_dataset, mixed, fmt, last_batch, sizes):
    loader = build(make_dataset(fmt, mixed), last_batch=last_batch, shuffle=False)
    order = [label for start in range(3) for label in range(start, 23, 3)]
    expected = {"drop": order[:20], "partial": order, "pad": [*order, order[-1]]}[last_batch]
    for _ in range(3):
        batches = list(loader)
        assert [len(images) for images, _ in batches] == sizes
        assert [len(labels) for _, labels in batches] == sizes
        assert torch.cat([labels for _, labels in batches]).tolist() == expected
    assert len(loader) == len(sizes)


def test_an_epoch_of_full_batches_has_no_partial_batch(make_dataset, mixed):
    for last_batch in ("drop", "partial", "pad"):
        folder = make_dataset("tfrecord", mixed[:8], shards=1, name=last_batch)
        loader = build(folder, last_batch=last_batch, shuffle=False)
        assert [labels_of(loader) for _ in range(3)] == [[[0, 1, 2, 3], [4, 5, 6, 7]]] * 3


def test_the_loader_names_the_classes(make_dataset, mixed):
    assert build(make_dataset("tfrecord", mixed)).classes == tuple(
        f"class {label}" for label in range(23)
    )


def test_only_training_is_shuffled_by_default(make_dataset, mixed):
    train = build(make_dataset("tfrecord", mixed, name="a"), last_batch="partial")
    val = build(
        make_dataset("tfrecord", mixed, name="b", split="val"), split="val", last_batch="partial"
    )
    assert labels_of(train) != labels_of(train)
    assert labels_of(val) == labels_of(val)


def test_the_same_seed_returns_the_same_batches(make_dataset, mixed):
    folder = make_dataset("webdataset", mixed)
    first, again, other = (
        build(folder, transforms="imagenet-train", seed=seed) for seed in (5, 5, 6)
    )
    labels = {0: [], 1: []}
    for epoch in range(2):
        for (images, numbers), (images_again, numbers_again) in zip(first, again, strict=True):
            assert torch.equal(images, images_again)
            assert torch.equal(numbers, numbers_again)
            labels[epoch].append(numbers.tolist())
    assert labels_of(other) != labels[0] != labels[1]


def test_leaving_a_loop_ends_the_epoch(make_dataset, mixed):
    loader = build(make_dataset("tfrecord", mixed), shuffle=False, last_batch="partial")
    whole = labels_of(loader)
    for taken in range(1, 7):
        iteration = iter(loader)
        assert [next(iteration)[1].tolist() for _ in range(taken)] == whole[:taken]
        assert labels_of(loader) == whole


def test_an_epoch_whose_batches_were_all_taken_needs_no_restart(make_dataset, mixed):
    loader = build(make_dataset("tfrecord", mixed), shuffle=False)
    for epoch in range(3):
        iteration = iter(loader)
        for _ in range(len(loader)):
            next(iteration)
        # A restarted pipeline would have started with this epoch.
        position = {"epoch": epoch, "batch": 5, "read": 6 * epoch + 5, "started": 0, "skipped": 0}
        assert loader.state_dict()["position"] == position


def test_batches_stay_valid_after_the_loader_is_closed(make_dataset, mixed):
    loader = build(make_dataset("webdataset", mixed), transforms="imagenet-train")
    batches, copies = [], []
    for _ in range(3):
        for images, labels in loader:
            batches.append((images, labels))
            copies.append((images.clone(), labels.clone()))
    loader.close()
    del loader
    gc.collect()
    for (images, labels), (images_then, labels_then) in zip(batches, copies, strict=True):
        assert torch.equal(images, images_then)
        assert torch.equal(labels, labels_then)


def test_crops_and_flips_differ_between_samples(make_dataset):
    rng = np.random.default_rng(0)
    sample = ("png", encode(rng.integers(0, 255, (80, 80, 3), np.uint8), "png"), 0)
    loader = build(make_dataset("tfrecord", [sample] * 8, shards=1), transforms="imagenet-train")
    (first, _), (second, _) = loader
    assert len({image.numpy().tobytes() for image in torch.cat([first, second])}) == 8


def test_pad_fills_a_batch_from_a_single_sample(make_dataset, mixed):
    loader = build(make_dataset("webdataset", mixed[:1], shards=1), last_batch="pad", batch_size=3)
    assert labels_of(loader) == labels_of(loader) == [[0, 0, 0]]


def test_the_log_says_what_is_read_and_when_epochs_begin(make_dataset, mixed, caplog):
    folder = make_dataset("tfrecord", mixed)
    with caplog.at_level("INFO", "loaders"), build(folder, split="train") as loader:
        for _ in range(2):
            for _ in loader:
                pass
    messages = [record.getMessage() for record in caplog.records]
    assert (
        f"{folder}, split train: 23 samples in 3 shards; 5 batches of 4 for rank 0 of 1"
        in messages[0]
    )
    assert [text for text in messages if text.startswith("epoch")] == [
        f"epoch {n} begins at batch 0 of 5" for n in (0, 1)
    ]


def test_calls_that_python_would_refuse_say_what_to_write(make_dataset, mixed):
    folder = make_dataset("tfrecord", mixed)
    given = {"batch_size": 4, "transforms": small.EVAL, "device": "cpu", "num_threads": 1}
    with pytest.raises(TypeError, match=r"no argument transform\. Hint: did you mean 'transforms'"):
        loaders.build(folder, transform=small.EVAL, **given)
    with pytest.raises(TypeError, match=r"one argument by position, the dataset, but got 3"):
        loaders.build(folder, 4, small.EVAL)
    with loaders.build(folder, **given) as loader:
        batches = torch.utils.data.DataLoader(loader)
        with pytest.raises(TypeError, match="loop over the loader in place of a DataLoader"):
            next(iter(batches))
        with pytest.raises(CallError, match="a loader has no samples by number"):
            loader[0]


def test_the_version():
    assert loaders.__version__ == release()
