"""Masks and boxes get exactly the geometric transforms of their image, on photographs.

Each ``check_*`` function takes `gpu`, so that tests/gpu can run it on a GPU.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from helpers.parsing import operation_types, valid_arguments
from helpers.pixels import photographs
from helpers.targets import transform
from helpers.torchvision_oracle import import_torchvision

from loaders.dataset.labels import Boxes, moved
from loaders.transforms.argument import require_followed
from loaders.transforms.base import BatchOperation, Operation
from loaders.transforms.color import ColorJitter
from loaders.transforms.combinators import Combinator, RandomApply, RandomChoice, RandomOrder
from loaders.transforms.crop_resize import (
    Crop,
    CropAtRatio,
    KeepSize,
    RandomResizedCrop,
    Resize,
    ResizeKeepRatio,
    ResizeWithin,
    ScaleJitter,
)
from loaders.transforms.decode_normalize import Normalize
from loaders.transforms.erasing import RandomErasing
from loaders.transforms.geometry import (
    Elastic,
    Flip,
    Pad,
    PadTo,
    RandomAffine,
    RandomAffineAround,
    RandomPerspective,
    RandomRightAngle,
    Rotate,
    RotateAround,
)
from loaders.transforms.parse import known_transforms, read_recipe
from manifests.errors import CallError

_, v2 = import_torchvision()
from torchvision import tv_tensors  # noqa: E402
from torchvision.transforms.v2 import functional as F  # noqa: E402, N812


def class_masks() -> list[np.ndarray]:
    """Return masks in which most pixels differ from their neighbors, so that every shift shows."""
    rng = np.random.default_rng(5)
    return [rng.integers(1, 255, each.shape[:2], np.uint8) for each in photographs()]


def nearest(operation: Operation) -> Operation:
    changes: dict[str, Any] = {"filter": "nearest"}
    if hasattr(operation, "antialias"):
        changes["antialias"] = False
    return replace(operation, **changes)  # type: ignore[type-var]


FILL = (255.0, 255.0, 255.0)

#: Operations that move pixels, with the filters and the fill colors of masks, so that an image
#: whose channels are the mask must become that mask.
MOVING: tuple[tuple[Operation, ...], ...] = (
    (Flip(), Flip(axis="vertical"), Flip(axis="both", probability=0.3)),
    (Flip(), Flip()),
    (Rotate((-40, 40), filter="nearest", fill=255),),
    (Rotate((-40, 40), probability=0.5, fill=255),),
    (RotateAround((-40, 40), fill=255),),
    (RotateAround((-40, 40), fill=255, center=(10, 30)),),
    (RandomRightAngle(),),
    (Pad(3, 4, 5, 6, fill=FILL),),
    (Pad(3, 4, 5, 6, mode="edge"),),
    (Pad(3, 4, 5, 6, mode="reflect"),),
    (Pad(3, 4, 5, 6, mode="symmetric"),),
    (PadTo((260, 250), at="center", fill=FILL),),
    (PadTo(divisor=64, at="end", fill=FILL),),
    (PadTo((150, 150), at=(7, 5), fill=FILL),),
    (Crop((90, 80)),),
    (Crop((90, 80), at="random"),),
    (nearest(RandomResizedCrop((64, 96))),),
    (nearest(RandomResizedCrop((64, 96), sampling="bounded")),),
    (nearest(CropAtRatio(50, 0.8)),),
    (nearest(Resize((70, 133))), KeepSize((70, 133))),
    (nearest(Resize(shorter=61)), Crop((50, 50), at="random")),
    (nearest(ResizeWithin(shorter=150, longest=200)), Flip()),
    (
        nearest(ResizeKeepRatio(target=(150, 200), fits=True)),
        PadTo((150, 200), at="center even", fill=FILL),
    ),
    (nearest(ScaleJitter((80, 80))),),
    (RandomAffine((-30, 30), (0.1, 0.2), (0.7, 1.4), (-10, 10, -5, 5), fill=FILL),),
    (RandomAffineAround((-30, 30), center=(10, 20), fill=FILL),),
    (RandomPerspective(probability=0.7, filter="nearest", fill=FILL),),
    (Elastic(alpha=(60, 60), filter="nearest", fill=FILL),),
    (RandomApply((Flip(), RandomRightAngle()), 0.5),),
    (RandomChoice(((Flip(1.0),), (nearest(Resize((50, 50))),), ())),),
    (RandomOrder(((Flip(),), (Rotate((-20, 20), fill=255),), (Flip(axis="vertical"),))),),
    (ColorJitter(), Flip(), RandomErasing(1.0), nearest(RandomResizedCrop((32, 32))), Flip()),
)


def test_a_mask_is_transformed_as_an_image_of_its_values() -> None:
    masks = class_masks()
    images = [np.repeat(mask[..., None], 3, axis=2) for mask in masks]
    # Chains that change no values.
    chains = [chain for chain in MOVING if all(each.moves_pixels for each in chain)]
    # Where the center of a pixel is exactly between two others, a fused operation may take the
    # other one.
    for fused, least in ((False, 1.0), (True, 0.97)):
        found = transform(chains, images, masks, with_frames=False, fused=fused)
        for chain, results in zip(chains, found, strict=True):
            for image, mask, _ in results:
                assert mask.shape == image.shape[:2], chain
                assert (mask == image[..., 0]).mean() >= least, chain


def check_masks_of_both_devices(gpu: bool = False) -> None:
    """Masks do not depend on the device of the images."""
    given = MOVING, photographs(), class_masks()
    here, there = (transform(*given, with_frames=False, runs=1, gpu=each) for each in (False, gpu))
    for chain, first, second in zip(MOVING, here, there, strict=True):
        for one, other in zip(first, second, strict=True):
            np.testing.assert_array_equal(one.mask, other.mask, str(chain))


def check_depths(gpu: bool = False) -> None:
    """Depth maps have 16 bits: the low and the high byte of each value must come from the same pixel."""
    masks = [np.where(mask == 255, 0, mask) for mask in class_masks()]
    depths = [mask.astype(np.uint16) * 257 for mask in masks]
    images = photographs()
    as_masks = transform(MOVING, images, masks, with_frames=False, runs=1, gpu=gpu)
    as_depths = transform(MOVING, images, depths, kind="depth", with_frames=False, runs=1, gpu=gpu)
    for chain, bytes_, words in zip(MOVING, as_masks, as_depths, strict=True):
        for first, second in zip(bytes_, words, strict=True):
            # Pixels from outside are 255 in a mask, and 0 in a depth map.
            expected = np.where(first.mask == 255, 0, first.mask).astype(np.uint16) * 257
            assert second.mask.dtype == np.uint16
            assert (second.mask == expected).all(), chain


# Boxes
# --------------------------------------------------------------------------------------------------


def found_boxes(boxes: np.ndarray, frame: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the boxes in the transformed image, and which of the given ones they are."""
    given = Boxes(boxes, np.arange(len(boxes)), np.array([len(boxes)]))
    result = moved(given, frame[None])
    return result.corners, result.labels


PADDED = Pad(2, 2, 2, 2, fill=FILL)
SEVERAL = (RandomResizedCrop((64, 64)), Flip(), PADDED, Crop((60, 60), at="random"))


def check_painted_boxes(gpu: bool = False) -> None:
    """Boxes end where their pixels end, for chains of several operations, containers included."""
    chains = [SEVERAL, *(chain for chain in MOVING if not reason_of(chain))]
    images, rng = photographs(), np.random.default_rng(1)
    masks, boxes = [], []
    for image in images:
        x, y = rng.integers(20, 60, 2)
        mask = np.zeros(image.shape[:2], np.uint8)
        mask[y : y + 30, x : x + 40] = 1
        masks.append(mask)
        boxes.append(np.array([[x, y, x + 40, y + 30]], np.float32))
    for chain, results in zip(chains, transform(chains, images, masks, gpu=gpu), strict=True):
        for number, (_, mask, frame) in enumerate(results):
            corners, _ = found_boxes(boxes[number % len(boxes)], frame)
            painted = np.argwhere(mask == 1)
            if not len(corners):
                assert min(np.ptp(painted, axis=0) if len(painted) else (0, 0)) <= 2, chain
                continue
            (low_y, low_x), (high_y, high_x) = painted.min(0), painted.max(0) + 1
            np.testing.assert_allclose(corners[0], (low_x, low_y, high_x, high_y), atol=1.01)


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


def resized(sample: Any, size: list[int], max_size: int | None = None) -> Any:
    return F.resize(sample, size, max_size=max_size)


def cropped(
    sample: Any, frame: np.ndarray, size: tuple[int, int], *, antialias: bool = True
) -> Any:
    """Apply the crop and the resize that a frame describes."""
    _, scale, offset, *_ = frame.astype(float)
    place = (*np.rint(-offset / scale).astype(int), *np.rint(np.array(size) / scale).astype(int))
    return F.resized_crop(sample, *map(int, place), list(size), antialias=antialias)


def edge_padded(sample: Any) -> Any:
    # torchvision pads the edge of boxes with constants only, which puts them at the same place.
    mode = "constant" if isinstance(sample, tv_tensors.BoundingBoxes) else "edge"
    return F.pad(sample, [3, 4, 5, 6], padding_mode=mode)


def check_torchvision(gpu: bool = False) -> None:
    """Boxes and images are those of torchvision; the filter of an image does not mix values of its mask."""
    images, visible = (
        photographs(),
        v2.SanitizeBoundingBoxes(labels_getter=lambda given: given["labels"]),
    )
    masks = [np.where(mask > 99, 254, 1).astype(np.uint8) for mask in class_masks()]
    found = transform([chain for chain, _ in STRAIGHT], images, masks, gpu=gpu)
    for (chain, oracle), results in zip(STRAIGHT, found, strict=True):
        for number, (image, mask, frame) in enumerate(results):
            given = images[number % len(images)]
            assert tuple(frame[0]) == image.shape[:2] == mask.shape
            assert {*np.unique(mask)} <= {1, 254, 255}, chain
            boxes = boxes_of(given, number)
            sample = tv_tensors.BoundingBoxes(
                torch.tensor(boxes), format="XYXY", canvas_size=given.shape[:2]
            )
            expected = F.clamp_bounding_boxes(oracle(sample, frame))
            kept = visible({"boxes": expected, "labels": torch.arange(len(boxes))})
            corners, labels = found_boxes(boxes, frame)
            assert labels.tolist() == kept["labels"].tolist(), chain
            np.testing.assert_allclose(corners, kept["boxes"].numpy(), atol=2e-3)
            picture = oracle(tv_tensors.Image(torch.tensor(given).permute(2, 0, 1)), frame)
            difference = np.abs(picture.permute(1, 2, 0).numpy().astype(int) - image)
            assert difference.mean() < 1, (chain, difference.mean())


@pytest.mark.parametrize("check", [check_depths, check_painted_boxes, check_torchvision])
def test_on_cpu(check: Any) -> None:
    check()


def reason_of(chain: tuple[Operation, ...]) -> str:
    try:
        require_followed(read_recipe([*chain, Resize((32, 32))]), "boxes")
    except CallError as error:
        return error.message
    return ""


# What cannot be followed
# ----------------------------------------------------------------------------------------------


#: The words that are refused, with some of the reason. All other words keep masks and boxes right.
MIXING = ("CutMix", "CutmixOperator", "FmixOperator", "MixUp", "MixupCutmixHybrid", "MixupOperator")
POLICIES = (
    "AugMix", "AutoAugment", "TimmAutoAugment", "TrivialAugmentWide",
    "RandAugment", "RandAugmentV2", "RandAugmentV3", "RandAugmentV4",
)  # fmt: skip
REFUSED_FOR_BOTH = {
    **dict.fromkeys(MIXING, "mixes"),
    **dict.fromkeys(POLICIES, "moves pixels"),
    **dict.fromkeys(("FiveCrop", "TenCrop"), "several crops"),
    "Patchify": "cuts images into patches",
}
TILTED = ("ElasticTransform", "RandomAffine", "RandomPerspective", "RandomRotation")
REFUSED_FOR_BOXES = {
    **dict.fromkeys(TILTED, "parallel"),
    "RandomRot90": "exchanges the width and the height",
}


@pytest.mark.parametrize("kind", ["masks", "boxes"])
def test_every_word_is_followed_or_refused_by_name(kind: Any) -> None:
    refused = {**REFUSED_FOR_BOTH, **(REFUSED_FOR_BOXES if kind == "boxes" else {})}
    for name in known_transforms():
        arguments = valid_arguments(name)
        crop = {"CropImage": {"size": 8}}
        needs_size = name in ("Lambda", *REFUSED_FOR_BOTH)
        before = [crop] if needs_size else ["ToTensor"] if name == "Normalize" else []
        recipe = read_recipe([*before, {name: arguments}, *([] if needs_size else [crop])])
        if name not in refused:
            require_followed(recipe, kind)
            continue
        with pytest.raises(CallError) as caught:
            require_followed(recipe, kind)
        place = f"transforms[{len(before)}]: {name}("
        assert caught.value.message.startswith(place)
        assert refused[name] in caught.value.message.partition(f") cannot keep {kind} right: ")[2]


#: Fusion makes them of operations that labels have followed.
FUSED = ("CropResize", "DecodeCrop", "FlipNormalize", "PadCrop", "ResizeCrop")


def test_every_operation_is_known() -> None:
    """An operation that is neither known to move pixels nor to keep them is refused, so a new one must be sorted in."""
    unknown = type("Unknown", (Operation,), {})()
    recipe = read_recipe([unknown, Resize((32, 32))])
    with pytest.raises(CallError, match="not known"):
        require_followed(recipe, "masks")
    samples = {type(each): each for chain in MOVING for each in chain}
    containers = Combinator | BatchOperation
    known = [each for each in operation_types() if not issubclass(each, containers)]
    unsorted = {each for each in known if not each.moves and each.loses is Operation.loses}
    assert {each.__name__ for each in unsorted} == {*FUSED}
    assert {each for each in known if each.moves in ("straight", "tilted")} <= {*samples}
    compared = tuple({type(each) for chain, _ in STRAIGHT for each in chain})
    assert all(issubclass(each, compared) for each in known if each.moves == "straight")
    assert not Normalize((0, 0, 0), (1, 1, 1)).moves_pixels
