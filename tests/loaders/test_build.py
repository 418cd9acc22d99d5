"""`loaders.build`: public names, imports, batches and epochs, and what a script asks a loader."""

import importlib
import os
import pkgutil
import subprocess
import sys
import threading
import weakref

import pytest
import torch
from helpers.loading import build, column
from helpers.parsing import operation_types

import loaders
from loaders import transforms
from loaders.devices import VARIABLE, Device, load_framework
from manifests.errors import CallError
from manifests.process.program import release


def test_public_names():
    """The list is fixed, because removing or renaming a name breaks users' scripts.

    Importing a submodule, such as `loaders.build`, must not rebind one of the names.
    """
    for module in pkgutil.walk_packages(loaders.__path__, "loaders."):
        if module.name != "loaders.__main__":
            importlib.import_module(module.name)
    assert sorted(loaders.__all__) == [
        "Batch", "BucketSampler", "CallError", "ClassBalancedSampler", "ClipSampler", "DamagedError", "DatasetError", "Loader", "Metrics", "PKSampler",
        "RepeatedSampler", "SequentialSampler", "ShuffledSampler", "SubsetSampler", "WeightedSampler", "build",
    ]  # fmt: skip
    assert dir(loaders) == sorted(loaders.__all__)
    assert all(callable(getattr(loaders, name)) for name in {*loaders.__all__} - {"Batch"})
    assert loaders.__version__ == release()


@pytest.mark.parametrize(("given", "queues"), [(None, "16"), ("1", "1")])
def test_import_loads_no_heavy_package_and_sets_the_number_of_queues(given, queues):
    heavy = ("torch", "nvidia", "pyarrow", "yaml", "awscrt")
    code = (
        "import loaders, os, sys\n"
        f"print([m for m in sys.modules if m.split('.')[0] in {heavy}], os.environ[{VARIABLE!r}])"
    )
    environ = {name: value for name, value in os.environ.items() if name != VARIABLE}
    environ |= {VARIABLE: given} if given else {}
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, env=environ, capture_output=True, text=True, check=True)
    assert done.stdout == f"[] {queues}\n"


def test_every_operation_is_public():
    """`loaders.transforms` exports every operation that users may put into a list."""
    fused = {"DecodeCrop", "ResizeCrop", "FlipNormalize", "CropResize", "PadCrop", "Unpack"}
    assert {each.__name__ for each in operation_types()} - fused <= set(transforms.__all__)


@pytest.mark.parametrize("framework", ["torch", "numpy"])
def test_the_loader_does_not_keep_a_returned_batch(prepared, framework):
    """A training script may delete a batch to release its memory before it asks for the next one."""
    with build(prepared["mixed tfrecord"], framework=framework) as loader:
        for images, labels in loader:
            kept = [weakref.ref(images), weakref.ref(labels)]
            del images, labels
            assert [reference() for reference in kept] == [None, None]


def test_only_training_is_shuffled_by_default(prepared, make_dataset, mixed):
    folder = make_dataset("tfrecord", mixed, split="val")
    with (
        build(prepared["mixed tfrecord"], last_batch="partial", fields=("label",)) as train,
        build(folder, split="val", fields=("label",)) as val,
    ):
        assert column(train) != column(train)
        assert column(val) == column(val)
        assert (val.options.shuffle, val.options.last_batch) == (False, "partial")
        assert val.classes == tuple(f"class {label}" for label in range(23))


def test_attributes(prepared):
    folder = prepared["mixed tfrecord"]
    with build(folder, rank=1, world_size=2) as loader:
        found = (loader.samples, loader.batch_size, loader.rank, loader.world_size, loader.split)
        assert found == (23, 4, 1, 2, "train")
        assert loader.device == torch.device("cpu")
        assert loader.classes == loader.dataset.classes == tuple(loader.dataset.class_to_idx)
        # Scripts divide by `len(loader.dataset)`, which would be the length of a path.
        assert len(loader.dataset) == 23
        assert (loader.dataset.folder, loader.dataset.split) == (str(folder), "train")
        with pytest.raises(AttributeError):
            loader.batch_size = 8
    assert load_framework("torch").device(Device("gpu", 1)) == torch.device("cuda", 1)
    assert load_framework("numpy").device(Device("gpu", 1)) == "cpu"


def test_repr(prepared, tmp_path):
    """A notebook shows a table, without markup that comes from the dataset."""
    folder = tmp_path / "<script>&"
    folder.symlink_to(prepared["mixed tfrecord"])
    with build(folder, shuffle=False) as loader:
        text = (
            f"of {str(folder)!r}, split 'train': epoch 0, 5 batches of 4 (image, label), rank 0 of"
        )
        assert repr(loader) == f"<Loader {text} 1, cpu>"
        table = loader._repr_html_()
    assert repr(loader) == f"<Loader {text} 1, cpu, closed>"
    for cell in (
        "&lt;script&gt;&amp;",
        "train, 23 samples",
        "5 per epoch, of 4 samples",
        "epoch 0",
    ):
        assert cell in table
    assert "<script" not in table
    assert ">closed<" in loader._repr_html_()


def test_what_python_would_refuse_says_what_to_write(prepared):
    with build(prepared["mixed tfrecord"]) as loader:
        with pytest.raises(TypeError, match=r"not an iterator.*Hint: call next\(iter\(loader\)\)"):
            next(loader)
        with pytest.raises(TypeError, match="loop over the loader in place of a DataLoader"):
            next(iter(torch.utils.data.DataLoader(loader)))
        with pytest.raises(CallError, match="a loader has no samples by number"):
            loader[0]
        iteration = iter(loader)
        assert iteration is not loader
        next(iteration)
    for use in (lambda: iter(loader), lambda: next(iteration), loader.__enter__):
        with pytest.raises(CallError, match=r"this loader is closed\. Hint: build a new loader"):
            use()
    loader.close()


def test_a_second_iterator_invalidates_the_first(prepared):
    """Also if the newer one ends: the other one would end early, as if the epoch were complete."""
    with build(prepared["mixed tfrecord"]) as loader:
        for use in (lambda: next(iter(loader)), lambda: list(loader)):
            outer = iter(loader)
            next(outer)
            use()
            with pytest.raises(CallError, match="this iterator is invalid: the loader has a newer"):
                next(outer)
        # Dropping the older one does not leave the epoch of the newer one.
        outer, inner = iter(loader), iter(loader)
        next(outer), next(inner)
        del outer
        assert len(list(inner)) == len(loader) - 1 > 1


def test_two_threads_do_not_use_a_loader_at_once(prepared):
    entered, go = threading.Event(), threading.Event()

    def slow(images):
        entered.set()
        go.wait(60)
        return images

    with build(prepared["mixed tfrecord"], transforms=[{"CropImage": {"size": 8}}, slow]) as loader:
        thread = threading.Thread(target=list, args=(loader,))
        thread.start()
        assert entered.wait(60)
        with pytest.raises(CallError, match="two threads use this loader at the same time"):
            list(loader)
        go.set()
        thread.join(60)
        assert len(list(loader)) == len(loader)


def test_wrong_functions_are_explained(prepared):
    def wrong(image):
        raise TypeError("pic should be a PIL image")

    def batch(function):
        options = {"batch_size": 2, "dtype": "float32"}
        crop = {"CropImage": {"size": 8}}
        with build(prepared["mixed tfrecord"], transforms=[crop, function], **options) as loader:
            next(iter(loader))

    with pytest.raises(TypeError) as caught:
        batch(wrong)
    (note,) = caught.value.__notes__
    assert note.startswith("loaders called the function wrong with the finished batch, torch.float")
    assert "(2, 3, " in note
    message = r"the function .* in transforms must return a tensor of 2 images"
    with pytest.raises(CallError, match=message):
        batch(lambda images: images[:1])
