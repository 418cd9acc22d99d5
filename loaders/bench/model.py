"""What a loader is compared with: a model that it feeds, and torchvision's `DataLoader`.

The model is one of torchvision, or a step in a script of the user.
"""

from __future__ import annotations

import importlib
import importlib.util
import io
import multiprocessing
import os
import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import redirect_stdout
from typing import Any

import numpy as np

from loaders.bench.measure import Method, Rate, Source, measure
from loaders.dataset.images import StoredImages
from loaders.dataset.split import open_split
from loaders.dataset.tables import SampleTables
from loaders.devices import Device
from loaders.spec import LoaderSpec
from manifests.errors import CallError
from manifests.process.text import printable, suggest
from manifests.remote.url import refuse_url

#: Number of classes of the model if the dataset does not name its classes.
_CLASSES = 1000

#: Name of the user's script as a module. No installed module has it.
_MODULE = "loaders_bench_model"

_EXIT_HINT = (
    'the script is imported: put what it does when it is run under `if __name__ == "__main__":`'
)
_STEP_HINT = "a step takes images and labels, as the loader returns them"
_MODEL_HINT = "choose transforms that fit the model, or a smaller --batch-size"
_INSTALL = "install torchvision, or pass --model script.py:step with a function that takes a batch"


class Model:
    """Runs a training step on a batch.

    `script` is the user's script; empty for a model of torchvision.
    """

    def __init__(self, name: str, step: Callable[..., Any], script: str = "") -> None:
        self.name = name
        self._step = step
        self._script = script

    def __call__(self, batch: tuple[Any, ...]) -> int:
        """Train on a batch, images and labels, and return its number of images.

        Raises:
            CallError: the step raises an exception.

        """
        try:
            with redirect_stdout(sys.stderr):  # stdout is the result, perhaps as JSON
                self._step(*batch)
        except (Exception, SystemExit) as error:  # of the user's script
            hint = _STEP_HINT if self._script else _MODEL_HINT
            raise _error_of(self.name, self._script, error, hint) from error
        return len(batch[-1])


def load_model(text: str, spec: LoaderSpec) -> Model:
    """Return the model that ``--model`` names.

    Args:
        text: name of a model of torchvision, or a script and a function in it: ``script.py:step``.
        spec: the loader that feeds it.

    Raises:
        CallError: there is no such model or function, a library is not installed, or the dataset
            has no classes.

    """
    path, colon, function = text.rpartition(":")
    if colon or text.endswith(".py"):
        if not colon:
            path = text
            function = ""
        return Model(text, _function(path, function or "step"), path)
    label_type = spec.split.manifest.label_type
    if not spec.split.manifest.labels.is_class:
        raise CallError(
            f"--model {printable(text)} needs a class for each image, but the labels of this"
            f" dataset are of the type {label_type}",
            hint="pass --model script.py:step with a function that takes a batch",
        )
    # A config may name fewer classes than the labels have, which without mixing changes nothing.
    classes = max(spec.num_classes, len(spec.split.manifest.classes)) or _CLASSES
    return Model(text, _torchvision_step(text, classes, spec.options.device))


def _function(path: str, name: str) -> Callable[..., Any]:
    shown = printable(path)
    spec = None
    if os.path.isfile(path):
        spec = importlib.util.spec_from_file_location(_MODULE, path)
    if spec is None or spec.loader is None:
        raise CallError(
            f"--model: {shown} is not a Python script",
            hint="pass script.py:step, or a name like resnet50",
        )
    module = importlib.util.module_from_spec(spec)
    sys.modules[_MODULE] = module  # dataclasses and pickle look a module up by its name
    sys.path.insert(0, os.path.dirname(os.path.abspath(path)))
    try:
        with redirect_stdout(sys.stderr):
            spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:  # of the user's script
        hint = "run the script with python to see the whole error"
        if isinstance(error, SystemExit):
            hint = _EXIT_HINT
        raise _error_of(path, path, error, hint) from error
    found = getattr(module, name, None)
    if not callable(found):
        names = []
        for each, value in vars(module).items():
            if callable(value) and not each.startswith("_"):
                names.append(each)
        raise CallError(
            f"--model: {shown} has no function {printable(name)}", hint=suggest(name, names)
        )
    step: Callable[..., Any] = found
    return step


def _error_of(place: str, script: str, error: BaseException, hint: str) -> CallError:
    """Return an error that names the last line of the script, not of a library that it calls."""
    where = ""
    for frame in traceback.extract_tb(error.__traceback__):
        if script and frame.filename == os.path.abspath(script):
            where = f" in line {frame.lineno} of {printable(script)}"
    return CallError(
        f"--model {printable(place)} raised {type(error).__name__}: {error}{where}", hint=hint
    )


def _torchvision_step(name: str, classes: int, given: Device) -> Callable[..., Any]:
    """Return a training step as for ImageNet: bfloat16, channels last, SGD."""
    import torch

    models = _import("torchvision.models", f"--model {printable(name)}", _INSTALL)
    known = models.list_models(module=models)
    if name not in known:
        raise CallError(
            f"--model: torchvision has no model {printable(name)}",
            hint=suggest(name, known, quote=False),
        )
    device = torch.device("cpu")
    if given.is_gpu:
        device = torch.device("cuda", given.index)
        torch.backends.cudnn.benchmark = True
    net = models.get_model(name, weights=None, num_classes=classes)
    net = net.to(device=device, memory_format=torch.channels_last).train()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01, momentum=0.9)

    def step(images: Any, labels: Any) -> None:
        with torch.autocast(device.type, dtype=torch.bfloat16):
            results = net(images.to(dtype=torch.bfloat16, memory_format=torch.channels_last))
            loss: Any = torch.nn.functional.cross_entropy(results, labels)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()

    return step


#: Presets whose work this module repeats.
PRESETS = ("imagenet-train", "imagenet-eval")

_MEAN, _STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


def check_comparable(transforms: str, dataset: str) -> None:
    """Check that the comparison is possible, before the work begins.

    Raises:
        CallError: torchvision is not installed, or this module does not have the same transforms.

    """
    _torchvision()
    if transforms not in PRESETS:
        raise CallError(
            f"--torchvision compares {' and '.join(PRESETS)}, not {transforms}",
            hint="remove --torchvision",
        )
    refuse_url(
        dataset,
        "--torchvision reads a dataset on disk, not in an object store",
        hint="remove --torchvision",
    )


class Images:
    """The images of a split as a data set of torch: Pillow decodes, torchvision transforms."""

    def __init__(self, dataset: str, split: str, preset: str) -> None:
        self._arguments = (dataset, split, preset)
        opened = open_split(dataset, split)
        self._samples = opened.samples
        self._pixels = opened.manifest.pixels
        self._opened: tuple[StoredImages, Any] | None = None

    def __len__(self) -> int:
        return self._samples

    def __getitem__(self, row: int) -> tuple[Any, int]:
        """Return an image and a label; the label is always 0."""
        from PIL import Image

        if self._opened is None:  # each worker process opens the files itself
            dataset, split, preset = self._arguments
            opened = open_split(dataset, split)
            self._opened = StoredImages(opened, SampleTables(opened)), _transform(preset)
        images, transform = self._opened
        (stored,) = images.images(np.array([row]))
        if self._pixels is None:
            image = Image.open(io.BytesIO(stored.tobytes())).convert("RGB")
        else:
            image = Image.fromarray(stored.reshape(self._pixels))
        return transform(image), 0


def measure_torchvision(spec: LoaderSpec, preset: str, workers: int, method: Method) -> Rate:
    """Measure torchvision's loader.

    Args:
        spec: the loader to compare with: its split, batch size and device.
        preset: one of `PRESETS`.
        workers: number of worker processes; 0 loads in this process.
        method: how long and how often.

    """
    batches = _batches(spec, preset, workers)
    return measure(Source(lambda: len(next(batches)[1]), max(1, 2 * workers)), method)


def measure_decode_jpeg(spec: LoaderSpec, preset: str, method: Method) -> Rate | None:
    """Measure torchvision's `decode_jpeg` on the GPU, with the work of a preset written by hand.

    `None` without a GPU, and for images that it does not decode.
    """
    device = spec.options.device
    if not device.is_gpu:
        return None
    batches = decode_jpeg_batches(spec, preset, f"cuda:{device.index}")
    try:
        return measure(Source(lambda: len(next(batches)), 1), method)
    except RuntimeError:  # pixels, or another format
        return None


def decode_jpeg_batches(spec: LoaderSpec, preset: str, device: str) -> Iterator[Any]:
    """Yield batches of float16 images that `decode_jpeg` has decoded on a device: [B, 3, 224, 224]."""
    import torch

    decoding: Any = _import("torchvision.io", "--torchvision", "install it")
    transforms = _torchvision().transforms
    crop = transforms.Compose(_crops(preset))
    normalize = transforms.Normalize(_MEAN, _STD)
    opened = open_split(spec.split.folder, spec.split.name)
    images = StoredImages(opened, SampleTables(opened))
    rng = np.random.default_rng(0)
    while True:
        rows = rng.integers(opened.samples, size=spec.options.batch_size)
        encoded = [torch.tensor(each) for each in images.images(rows)]
        decoded = decoding.decode_jpeg(encoded, decoding.ImageReadMode.RGB, device=device)
        batch = torch.stack([crop(each) for each in decoded])
        yield normalize(batch.float() / 255).half()


def _batches(spec: LoaderSpec, preset: str, workers: int) -> Iterator[Any]:
    from torch.utils.data import DataLoader, RandomSampler

    images: Any = Images(spec.split.folder, spec.split.name, preset)
    # A process that runs DALI has threads and must not be forked. The fork server has only imported
    # torchvision.
    multiprocessing.set_forkserver_preload(["torchvision"])
    device = spec.options.device
    loader: Any = DataLoader(
        images,
        spec.options.batch_size,
        sampler=RandomSampler(images, num_samples=1 << 40),  # without an end
        num_workers=workers,
        pin_memory=device.is_gpu,
        multiprocessing_context="forkserver" if workers else None,
    )
    for pixels, labels in loader:
        if device.is_gpu:
            name = f"cuda:{device.index}"
            yield pixels.to(name, non_blocking=True), labels.to(name, non_blocking=True)
        else:
            yield pixels, labels


def _transform(preset: str) -> Any:
    transforms = _torchvision().transforms
    last = [transforms.ToTensor(), transforms.Normalize(_MEAN, _STD)]
    return transforms.Compose([*_crops(preset), *last])


def _crops(preset: str) -> list[Any]:
    transforms = _torchvision().transforms
    if preset == "imagenet-train":
        return [transforms.RandomResizedCrop(224), transforms.RandomHorizontalFlip()]
    return [transforms.Resize(256), transforms.CenterCrop(224)]


def _torchvision() -> Any:
    return _import("torchvision", "--torchvision", "install it")


def _import(name: str, option: str, hint: str) -> Any:
    try:
        return importlib.import_module(name)
    except (ImportError, RuntimeError) as error:  # RuntimeError: it was built for another torch
        raise CallError(f"{option} needs torchvision ({error})", hint=hint) from None
