"""Masks and boxes compared with those of torchvision v2 at the same parameters, on photographs.

Each ``check_*`` function takes `gpu`, so that tests/gpu can run it on a GPU.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from helpers.parsing import operation_types
from helpers.pixels import photographs
from helpers.targets import transform
from helpers.torchvision_oracle import import_torchvision
from test_targets import FILL, class_masks, found_boxes

from loaders.transforms.base import Operation
from loaders.transforms.crop_resize import (
    Crop,
    CropAtRatio,
    KeepSize,
    RandomResizedCrop,
    Resize,
    ResizeWithin,
    ScaleJitter,
)
from loaders.transforms.geometry import Flip, Pad, PadTo

_, v2 = import_torchvision()
from torchvision import tv_tensors  # noqa: E402
from torchvision.transforms.v2 import functional as F  # noqa: E402, N812

NEAREST = v2.InterpolationMode.NEAREST_EXACT


def boxes_of(image: np.ndarray, seed: int) -> np.ndarray:
    rng = np.random.default_rng(seed)
    height, width = image.shape[:2]
    corners = np.sort(rng.uniform(0, 1, (12, 2, 2)), axis=1) * (width, height)
    return corners.reshape(-1, 4).astype(np.float32)


def padded_to(sample: Any, frame: np.ndarray) -> Any:
    top, left = frame[2].astype(int).tolist()
    height, width = (
        sample.canvas_size if isinstance(sample, tv_tensors.BoundingBoxes) else sample.shape[-2:]
    )
    bottom, right = int(frame[0, 0]) - height - top, int(frame[0, 1]) - width - left
    return F.pad(sample, [left, top, right, bottom], fill=255)


#: Chains that torchvision also has, with the parameters that a frame tells.
STRAIGHT: tuple[tuple[tuple[Operation, ...], Any], ...] = (
    ((Flip(1.0),), lambda s, _: F.horizontal_flip(s)),
    ((Flip(1.0, axis="vertical"),), lambda s, _: F.vertical_flip(s)),
    ((Crop((90, 80)),), lambda s, _: F.center_crop(s, [90, 80])),
    ((Pad(3, 4, 5, 6, fill=FILL),), lambda s, _: F.pad(s, [3, 4, 5, 6], fill=255)),
    ((Resize((64, 96)),), lambda s, _: resized(s, [64, 96])),
    ((Resize(shorter=60), Crop((50, 50))), lambda s, _: F.center_crop(resized(s, [60]), [50, 50])),
    (
        (ResizeWithin(shorter=150, longest=200), Crop((90, 90))),
        lambda s, _: F.center_crop(resized(s, [150], 200), [90, 90]),
    ),
    ((RandomResizedCrop((64, 96)),), lambda s, frame: cropped(s, frame, (64, 96))),
    (
        (RandomResizedCrop((64, 96), sampling="bounded"),),
        lambda s, frame: cropped(s, frame, (64, 96)),
    ),
    ((Crop((90, 80), at="random"),), lambda s, frame: cropped(s, frame, (90, 80))),
    ((Flip(1.0, axis="both"),), lambda s, _: F.vertical_flip(F.horizontal_flip(s))),
    ((CropAtRatio(50, 0.8),), lambda s, frame: cropped(s, frame, (50, 50), antialias=False)),
    ((ScaleJitter((80, 80)),), lambda s, frame: resized(s, frame[0].astype(int).tolist())),
    ((Resize((70, 133)), KeepSize((70, 133))), lambda s, _: resized(s, [70, 133])),
    ((PadTo((260, 250), at="center", fill=FILL),), padded_to),
    ((PadTo(divisor=64, at="end", fill=FILL),), padded_to),
    ((Pad(3, 4, 5, 6, mode="edge"),), lambda s, _: edge_padded(s)),
)


class ExactMask(tv_tensors.Image):
    """A mask for the filter "nearest-exact".

    torchvision resizes a `Mask` with the older "nearest", which takes the pixel at the top left
    corner of each target pixel, not the one at its center, as for images.
    """


def resized(sample: Any, size: list[int], max_size: int | None = None) -> Any:
    filter_ = NEAREST if isinstance(sample, ExactMask) else v2.InterpolationMode.BILINEAR
    return F.resize(sample, size, interpolation=filter_, max_size=max_size)


def cropped(
    sample: Any, frame: np.ndarray, size: tuple[int, int], *, antialias: bool = True
) -> Any:
    """Apply the crop and the resize that a frame describes."""
    _, scale, offset, *_ = frame.astype(float)
    top, left = np.rint(-offset / scale).astype(int)
    height, width = np.rint(np.array(size) / scale).astype(int)
    filter_ = NEAREST if isinstance(sample, ExactMask) else v2.InterpolationMode.BILINEAR
    place = map(int, (top, left, height, width))
    return F.resized_crop(sample, *place, list(size), interpolation=filter_, antialias=antialias)


def edge_padded(sample: Any) -> Any:
    # torchvision pads the edge of boxes with constants only, which puts them at the same place.
    mode = "constant" if isinstance(sample, tv_tensors.BoundingBoxes) else "edge"
    return F.pad(sample, [3, 4, 5, 6], padding_mode=mode)


def test_masks_and_boxes_are_those_of_torchvision() -> None:
    check_torchvision()


def check_torchvision(gpu: bool = False) -> None:
    images, masks = photographs(), class_masks()
    found = transform([chain for chain, _ in STRAIGHT], images, masks, gpu=gpu)
    for (chain, oracle), results in zip(STRAIGHT, found, strict=True):
        for number, (image, mask, frame) in enumerate(results):
            source = number % len(images)
            assert tuple(frame[0]) == image.shape[:2] == mask.shape
            compare_boxes(
                chain, oracle, boxes_of(images[source], number), images[source].shape[:2], frame
            )
            resizes = any(
                isinstance(each, (Resize, ScaleJitter, CropAtRatio, RandomResizedCrop))
                for each in chain
            )
            kind = ExactMask if resizes else tv_tensors.Mask
            expected = oracle(kind(torch.tensor(masks[source])[None]), frame)[0].numpy()
            clear = np.ix_(*(not_between(frame, axis) for axis in (0, 1)))
            assert (expected[clear] == mask[clear]).all(), chain
            picture = oracle(tv_tensors.Image(torch.tensor(images[source]).permute(2, 0, 1)), frame)
            difference = np.abs(picture.permute(1, 2, 0).numpy().astype(int) - image)
            assert difference.mean() < 1, (chain, difference.mean())


def compare_boxes(
    chain: Any, oracle: Any, boxes: np.ndarray, size: tuple[int, ...], frame: np.ndarray
) -> None:
    sample = tv_tensors.BoundingBoxes(torch.tensor(boxes), format="XYXY", canvas_size=size)
    expected = F.clamp_bounding_boxes(oracle(sample, frame))
    visible = v2.SanitizeBoundingBoxes(labels_getter=lambda inputs: inputs["labels"])
    kept = visible({"boxes": expected, "labels": torch.arange(len(boxes))})
    corners, labels = found_boxes(boxes, frame)
    assert labels.tolist() == kept["labels"].tolist(), chain
    np.testing.assert_allclose(corners, kept["boxes"].numpy(), atol=2e-3)


def not_between(frame: np.ndarray, axis: int) -> np.ndarray:
    """Return for which rows or columns the center is not exactly between two of the source: torchvision rounds there.

    The centers are also those before a crop, because the crop moves them by whole pixels.
    """
    size, scale, offset, *_ = frame[:, axis].astype(float)
    centers = (np.arange(int(size)) + 0.5 - offset) / scale
    return np.abs(centers - np.rint(centers)) > 1e-3


def test_every_operation_that_boxes_follow_is_compared() -> None:
    compared = tuple({type(each) for chain, _ in STRAIGHT for each in chain})
    moving = [each for each in operation_types() if each.moves == "straight"]
    assert not [each for each in moving if not issubclass(each, compared)]
