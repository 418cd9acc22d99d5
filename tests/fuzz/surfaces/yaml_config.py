"""YAML files for the argument `transforms` of `loaders.build`: lists of transforms and PaddleClas configs."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import yaml

import loaders
from fuzz import mutate
from fuzz.checks import Case, guarded, require, write_case
from fuzz.seeds import dataset
from loaders.transforms.parse import Meaning, transform_table
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

#: Usual values of parameters without a default, and of some others.
_USUAL = {
    "size": (16, [16, 16], [8, 24]),
    "kernel_size": (3, [3, 5]),
    "degrees": (10, [-20, 30]),
    "scale": ("1.0/255.0", [0.08, 1.0], 1),
    "mean": ([0.5, 0.5, 0.5], 0.5),
    "std": ([0.2, 0.2, 0.2], 0.2),
    "padding": (2, [1, 2], [1, 2, 3, 4]),
    "fill": (0, 128, [1, 2, 3]),
    "pad": (2,),
    "prob": (0.5, 1, 0),
    "p": (0.5, 1, 0),
    "config_str": ("rand-m9-mstd0.5-inc1", "original", "v0", "augmix-m3-w3"),
    "interpolation": ("bilinear", "bicubic", "nearest"),
    "alpha": (0.2, 1.0),
    "num_layers": (1, 3),
    "magnitude": (1, 9, 30),
}

_DATASET = dataset("tfrecord")


def make(rng: Random) -> Case:
    kind = rng.random()
    if kind < 0.08:
        text = rng.choice(_BOMBS)
    elif kind < 0.35:
        text = mutate.mutate_text(rng, _CONFIG)
    elif kind < 0.5:
        text = yaml.safe_dump(
            mutate.mutate_json(rng, yaml.safe_load(_CONFIG)), allow_unicode=rng.random() < 0.5
        )
    else:
        text = yaml.safe_dump(
            [_transform(rng) for _ in range(rng.choice((1, 1, 2, 3)))]
            + [{"ResizeImage": {"size": 16}}]
        )
    data = text.encode("utf-8", "surrogatepass")
    data = mutate.mutate_bytes(rng, data) if rng.random() < 0.1 else data
    return {"config.yaml": data}


@cache
def _transforms() -> tuple[Meaning, ...]:
    return transform_table()


def _transform(rng: Random) -> Any:
    info = rng.choice(_transforms())
    arguments = {}
    odd = rng.choice([*info.arguments]) if info.arguments and rng.random() < 0.6 else ""
    for name, argument in info.arguments.items():
        if name == odd:
            arguments[name.lstrip("*")] = _value(rng)
        elif argument.is_required and rng.random() < 0.97:
            arguments[name.lstrip("*")] = rng.choice(_USUAL.get(name, (1,)))
        elif not argument.is_required and rng.random() < 0.3:
            default = argument.default
            arguments[name] = (
                list(default)
                if isinstance(default, tuple)
                else rng.choice(_USUAL.get(name, (default,)))
            )
    if rng.random() < 0.02:
        arguments[mutate.odd_text(rng)] = 1
    return {info.name: arguments} if arguments or rng.random() < 0.8 else info.name


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
