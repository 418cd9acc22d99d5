"""Run a recipe on images with masks and boxes, as a loader does: image, mask and frame of each sample."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import nvidia.dali as dali
from nvidia.dali import fn

from helpers.graphs import pipeline_options
from helpers.pictures import encode
from loaders.dali.graph import GraphContext, RandomStreams, apply_all
from loaders.dali.targets import frames, label_images
from loaders.transforms.base import ImageSpec, Operation
from loaders.transforms.decode_normalize import Decode
from loaders.transforms.fuse import fuse
from manifests.labels import LabelType


class Transformed(NamedTuple):
    """A sample after the transforms: uint8 [H, W, 3], uint8 or uint16 [H, W], and float32 [5, 2]."""

    image: np.ndarray
    mask: np.ndarray
    frame: np.ndarray = np.zeros((5, 2), np.float32)


def png(pixels: np.ndarray) -> np.ndarray:
    return np.frombuffer(encode(pixels, "PNG"), np.uint8)


def transform(
    chains: Sequence[Sequence[Operation]],
    images: Sequence[np.ndarray],
    masks: Sequence[np.ndarray],
    *,
    kind: LabelType = "mask",
    with_frames: bool = True,
    seed: int = 3,
    runs: int = 2,
    fused: bool = True,
    gpu: bool = False,
) -> list[list[Transformed]]:
    """Transform images with their masks by each of several chains of operations.

    `runs` batches of all images.
    """
    pipeline = dali.Pipeline(batch_size=len(images), seed=1, **pipeline_options(gpu))
    encoded, encoded_masks = [png(each) for each in images], [png(each) for each in masks]
    outputs = []
    with pipeline:
        image = fn.external_source(lambda: encoded, batch=True)
        mask = fn.external_source(lambda: encoded_masks, batch=True)
        for operations in chains:
            chain = (Decode(), *operations)
            context = GraphContext(gpu=gpu, batch_size=len(images), random=RandomStreams(seed))
            run: Any = fuse(chain).operations if fused else chain
            pixels, _ = apply_all(run, image, ImageSpec(), context)
            outputs += [pixels, *label_images(mask, kind, chain, context, seed)]
            outputs += frames(image, chain, context, seed) if with_frames else []
        pipeline.set_outputs(*outputs)
    pipeline.build()
    found: list[list[Transformed]] = [[] for _ in chains]
    each = 3 if with_frames else 2
    for _ in range(runs):
        arrays = [
            [np.array(out.as_cpu().at(number)) for number in range(len(images))]
            for out in pipeline.run()
        ]
        for at, results in enumerate(found):
            part = arrays[at * each : (at + 1) * each]
            results += [Transformed(*values) for values in zip(*part, strict=True)]
    return found
