"""YAML files for the argument `transforms` of `loaders.build`: lists of transforms and PaddleClas configs."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import yaml
from helpers.parsing import INFO, named_parameters, valid_arguments

import loaders
from fuzz import mutate
from fuzz.checks import Case, guarded, require, write_case
from fuzz.seeds import dataset
from manifests.errors import DatasetError

_CONFIG = """
Global: {class_num: 3, epochs: 2}
DataLoader:
  Train:
    dataset:
      name: ImageNetDataset
      transform_ops:
        - DecodeImage: {to_rgb: True, channel_first: False}
        - RandCropImage: {size: 16, interpolation: bicubic, backend: pil}
        - RandFlipImage: {flip_code: 1}
        - RandAugment: {num_layers: 2, magnitude: 5}
        - TimmAutoAugment: {config_str: rand-m9-mstd0.5-inc1, interpolation: bicubic, img_size: 16}
        - NormalizeImage: {scale: 1.0/255.0, mean: [0.485, 0.456, 0.406], std: [0.229, 0.224, 0.225], order: ''}
        - RandomErasing: {EPSILON: 0.25, sl: 0.02, sh: 1.0/3.0, r1: 0.3, attempt: 10, mode: pixel}
      batch_transform_ops:
        - OpSampler: {MixupOperator: {alpha: 0.8, prob: 0.5}, CutmixOperator: {alpha: 1.0, prob: 0.5}}
    sampler: {name: DistributedBatchSampler, batch_size: 3, drop_last: False, shuffle: True}
    loader: {num_workers: 1, use_shared_memory: True}
  Eval:
    dataset:
      transform_ops: [{ResizeImage: {resize_short: 20}}, {CropImage: {size: 16}}]
    sampler: {name: PKSampler, batch_size: 4, sample_per_id: 2, drop_last: True}
"""

_BOMBS = (
    "[" * 5000,
    "{" * 5000,
    "- " * 5000 + "x",
    "&a [*a]",
    "a: &a [x, x, x]\n"
    + "".join(
        f"{chr(98 + n)}: &{chr(98 + n)} [{', '.join(['*' + chr(97 + n)] * 9)}]\n" for n in range(9)
    ),
    "- !!python/object/apply:os.system ['id']",
    "- !!binary x",
    "- !!timestamp 9999-99-99",
    "- !!set {a, b}",
    "? [a, b]\n: c",
    "- RandFlipImage\n" * 5000,
    "- ResizeImage: {size: 16}\n" * 300,
    "%YAML 9.9\n---\n[]",
    "- NormalizeImage: {scale: 1.0" + " " * 10_000 + "/255.0}",
    "- NormalizeImage: {scale: " + "1" * 5000 + "}",
    "- ResizeImage: {size: " + "1:" * 5000 + "1}",
    "- ResizeImage: {size: 1" + "_" * 5000 + "}",
    "- TimmAutoAugment: {config_str: rand-m9-n1000000, img_size: 16}",
    "- TimmAutoAugment: {config_str: " + "rand-" * 5000 + ", img_size: 16}",
)

#: Values of parameters, besides those that parsers trip over.
_VALUES = (
    *(0, 1, 2, 3, 5, 16, 20, 255, 256, 1000, 10**6, 10**9, -1, 0.5, 0.02, 1.5, 1e-9, 1e300),
    *[
        "1.0/255.0", "1/0", "0.5", "bilinear", "bicubic", "nearest", "random", "lanczos", "pil",
        "cv2", "reflect", "constant",
    ],
    *[
        "edge", "pixel", "original", "v0", "augmix-m3-w3", "rand-m9-n3", "rand-m9-mstd0.5-inc1",
        "rand-m1e9",
    ],
    *([16, 16], [0.08, 1.0], [1, 0], [3], [0, 0, 0], [1, 2, 3, 4], [[1]], True, False, None),
    *("hwc", "chw", "HWC"),
)  # fmt: skip

_DATASET = dataset("tfrecord")


def make(rng: Random) -> Case:
    kind, config = rng.random(), yaml.safe_load(_CONFIG)
    if kind < 0.08:
        text = rng.choice(_BOMBS)
    elif kind < 0.35:
        text = mutate.mutate_text(rng, _CONFIG)
    elif kind < 0.5:
        text = yaml.safe_dump(mutate.mutate_json(rng, config), allow_unicode=rng.random() < 0.5)
    else:
        items = [_transform(rng) for _ in range(rng.choice((1, 1, 2, 3)))]
        text = yaml.safe_dump([*items, {"ResizeImage": {"size": 16}}])
    data = text.encode("utf-8", "surrogatepass")
    data = mutate.mutate_bytes(rng, data) if rng.random() < 0.1 else data
    return {"config.yaml": data}


def _transform(rng: Random) -> Any:
    name = rng.choice([name for name in INFO if name != "Lambda"])  # YAML has no functions
    names, arguments = named_parameters(name), {}
    odd = rng.choice(names) if names and rng.random() < 0.6 else ""
    valid = {}
    with suppress(KeyError):  # a parameter that YAML has no value for
        valid = valid_arguments(name)
    for parameter in names:
        if parameter == odd:
            arguments[parameter] = _value(rng)
        elif parameter in valid and rng.random() < 0.97:
            arguments[parameter] = valid[parameter]
        elif parameter not in valid and rng.random() < 0.3:
            default = INFO[name].arguments[parameter].default
            usual = list(default) if isinstance(default, tuple) else default
            arguments[parameter] = usual
    if rng.random() < 0.02:
        arguments[mutate.odd_text(rng)] = 1
    return {name: arguments} if arguments or rng.random() < 0.8 else name


def _value(rng: Random) -> Any:
    return rng.choice(_VALUES) if rng.random() < 0.85 else mutate.odd_value(rng)


def check(case: Case, folder: Path) -> None:
    path = write_case({"config.yaml": case["config.yaml"]}, folder / "config") / "config.yaml"
    data = write_case(_DATASET, folder / "data")
    shapes = guarded(lambda: _first_batch(data, path), writable=[])
    if not isinstance(shapes, DatasetError):
        images, finite = shapes
        require(len(images) == 4 and images[:2] == (3, 3), f"a batch of the shape {images}")
        require(finite, "a batch with values that are not finite")


def _first_batch(data: Path, path: Path) -> tuple[tuple[int, ...], bool]:
    options: dict[str, Any] = {
        "split": "train", "device": "cpu", "num_threads": 1, "framework": "numpy",
    }  # fmt: skip
    with loaders.build(
        data, transforms=path, batch_size=3, dtype="float32", last_batch="pad", **options
    ) as loader:
        images, _ = next(iter(loader))
        return images.shape, bool(np.isfinite(images).all())
