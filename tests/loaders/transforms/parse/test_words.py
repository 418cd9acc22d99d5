"""What words mean: the operations with their arguments, and the notes that state differences."""

from __future__ import annotations

from typing import Any

import pytest
from helpers.parsing import parse_notes, parse_operations

from loaders.transforms.base import Operation
from loaders.transforms.color import (
    ColorJitter,
    ConvertColor,
    GaussianBlur,
    PCALighting,
    RandomBlur,
    RandomGrayscale,
)
from loaders.transforms.crop_resize import (
    Crop,
    CropAtRatio,
    RandomDownscale,
    RandomResizedCrop,
    Resize,
)
from loaders.transforms.erasing import Cutout, GridMask, HideAndSeek, KeepPart, RandomErasing
from loaders.transforms.geometry import Flip, Pad, PadTo, RandomRightAngle, Rotate
from loaders.transforms.mixing import Cutmix, Fmix, MixOneOf, Mixup, MixupCutmix, single_mixing
from loaders.transforms.parse import read_recipe

BLACK = (0, 0, 0)

WORDS: list[tuple[str, dict[str, Any], list[Operation]]] = [
    ("ColorJitter", {}, [ColorJitter()]),
    ("ColorJitter", {"brightness": 0.4, "contrast": "1/2", "saturation": 2, "hue": 0.1},
     [ColorJitter((0.6, 1.4), (0.5, 1.5), (0.0, 3.0), (-0.1, 0.1))]),
    ("ColorJitter", {"prob": 0.2, "brightness": [0.5, 0.7]},
     [ColorJitter((0.5, 0.7), probability=0.2)]),
    ("RawColorJitter", {"hue": (0.0, 0.2)}, [ColorJitter(hue=(0.0, 0.2))]),
    ("RandomGrayscale", {}, [RandomGrayscale(0.1)]),
    ("Grayscale", {}, [ConvertColor("GRAY")]),
    ("PCALighting", {}, [PCALighting(0.1)]),
    ("ToRGB", {}, [ConvertColor("RGB")]),
    ("ToBGR", {}, [ConvertColor("BGR")]),
    ("ToGray", {}, [ConvertColor("GRAY")]),
    ("ToLab", {}, [ConvertColor("LAB")]),
    ("ToHSV", {}, [ConvertColor("HSV")]),
    ("ToYCbCr", {}, [ConvertColor("YCbCr")]),
    ("GaussianBlur", {"kernel_size": 23}, [GaussianBlur((23, 23), (0.1, 2.0))]),
    ("GaussianBlur", {"kernel_size": (5, 9), "sigma": 1.5}, [GaussianBlur((9, 5), (1.5, 1.5))]),
    ("BlurImage", {}, [RandomBlur(0.5, 12, 45, 12)]),
    ("RandomErasing", {},
     [RandomErasing(0.5, (0.02, 0.4), (0.3, 1 / 0.3), False, 100, "constant", BLACK)]),
    ("RandomErasing", {"EPSILON": 0.25, "sh": "1.0/3.0", "r1": "0.3", "attempt": 10, "use_log_aspect": True, "mode": "pixel"},
     [RandomErasing(0.25, (0.02, 1 / 3), (0.3, 1 / 0.3), True, 10, "pixels")]),
    ("RandomErasing", {"mode": "rand"}, [RandomErasing(ratio=(0.3, 1 / 0.3), mode="color")]),
    ("RandomErasing", {"mean": [1, 2, 3], "r1": 2},
     [RandomErasing(ratio=(0.5, 2.0), fill=(1, 2, 3))]),
    ("RandomErasing", {"p": 0.5}, [RandomErasing(0.5, (0.02, 0.33), (0.3, 3.3), True, 10)]),
    ("RandomErasing", {"p": 1, "scale": (0.1, 0.2), "ratio": (1, 2), "value": "random", "inplace": False},
     [RandomErasing(1, (0.1, 0.2), (1, 2), True, 10, "pixels")]),
    ("RandomErasing", {"value": (1, 2, 3)},
     [RandomErasing(0.5, (0.02, 0.33), (0.3, 3.3), True, 10, fill=(1, 2, 3))]),
    ("Cutout", {}, [Cutout(1, 112, BLACK)]),
    ("Cutout", {"n_holes": 2, "length": 20, "fill_value": 7}, [Cutout(2, 20, (7, 7, 7))]),
    ("Cutout", {"fill_value": "none"}, [Cutout(1, 112, None)]),
    ("Cutout", {"fill_value": None}, [Cutout(1, 112, None)]),
    ("GridMask", {}, [GridMask((96, 223), 1, 0.5, "lines", 1.0)]),
    ("GridMask", {"d1": 4, "d2": 9, "rotate": 9, "mode": 1, "prob": 0.7},
     [GridMask((4, 8), 9, 0.5, "squares", 0.7)]),
    ("HideAndSeek", {}, [HideAndSeek((0, 16, 32, 44, 56), 0.5)]),
    ("CropWithPadding", {}, [KeepPart((0.08, 1.0), (3 / 4, 4 / 3), 0, 1.0)]),
    ("CropWithPadding", {"prob": 0.2, "padding_num": 3, "size": [112, 112], "scale": [0.2, 1.0], "ratio": ["3/4", 1.25]},
     [KeepPart((0.2, 1.0), (0.75, 1.25), 3, 0.2)]),
    ("ResizeImage", {"size": [8, 9]}, [Resize((9, 8), antialias=False)]),
    ("ResizeImage", {"size": 8, "resize_short": -1}, [Resize((8, 8), antialias=False)]),
    ("ResizeImage", {"resize_short": 8, "interpolation": "bicubic", "backend": "PIL"},
     [Resize(shorter=8, filter="cubic", rounding="nearest")]),
    ("ResizeImage", {"size": 8, "interpolation": "area"}, [Resize((8, 8), filter="triangular")]),
    ("Resize", {"size": [8, 9]}, [Resize((8, 9))]),
    ("Resize", {"size": 8, "antialias": False, "interpolation": "lanczos"},
     [Resize(shorter=8, filter="lanczos", antialias=False)]),
    ("CropImage", {"size": [8, 9]}, [Crop((9, 8), rounding="down")]),
    ("CenterCrop", {"size": [8, 9]}, [Crop((8, 9))]),
    ("RandomCropImage", {"size": [8, 9]}, [Crop((9, 8), "random")]),
    ("RandCropImageV2", {"size": [8, 9]}, [Crop((9, 8), "random")]),
    ("RandomCrop", {"size": [8, 9], "padding": 4},
     [Pad(4, 4, 4, 4), Crop((8, 9), "random", fits=True)]),
    ("RandomCrop", {"size": 8, "padding": [1, 2], "fill": 3, "padding_mode": "edge"},
     [Pad(1, 2, 1, 2, (3.0,) * 3, "edge"), Crop((8, 8), "random", fits=True, fill=(3,) * 3)]),
    ("RandCropImage", {"size": [8, 9]},
     [RandomResizedCrop((9, 8), sampling="bounded", log_ratio=False, antialias=False)]),
    ("RandCropImage", {"size": 8, "scale": ["1/4", 1], "ratio": [1, 2], "use_log_aspect": True, "backend": "pil"},
     [RandomResizedCrop((8, 8), (0.25, 1.0), (1.0, 2.0), "bounded")]),
    ("RandomResizedCrop", {"size": [8, 9], "scale": [0.5, 1]},
     [RandomResizedCrop((8, 9), (0.5, 1.0))]),
    ("CropImageAtRatio", {"size": 224, "pad": 32}, [CropAtRatio(224, 0.875)]),
    ("RandFlipImage", {"flip_code": -1}, [Flip(0.5, "both")]),
    ("RandFlipImage", {"flip_code": 0}, [Flip(0.5, "vertical")]),
    ("RandomHorizontalFlip", {}, [Flip(0.5)]),
    ("RandomHorizontalFlip", {"p": 0.1}, [Flip(0.1)]),
    ("RandomVerticalFlip", {"prob": 0.1}, [Flip(0.1, "vertical")]),
    ("RandomCrop", {"size": 8, "pad_if_needed": True, "fill": 3},
     [Crop((8, 8), at="random", fill=(3, 3, 3))]),
    ("RandomRotation", {"degrees": 30}, [Rotate((-30.0, 30.0), 0.5)]),
    ("RandomRotation", {"degrees": [0, 9], "prob": 1, "interpolation": "bicubic", "fill": 5},
     [Rotate((0.0, 9.0), 1, "linear", 5)]),
    ("RandomRot90", {}, [RandomRightAngle()]),
    ("Pad", {"padding": [1, 2, 3, 4], "fill": [5, 6, 7]}, [Pad(1, 2, 3, 4, (5.0, 6.0, 7.0))]),
    ("Pad_paddle_vision", {"padding": [1, 2], "padding_mode": "reflect"},
     [Pad(1, 2, 1, 2, mode="reflect")]),
    ("Padv2", {"size": [8, 9]}, [PadTo((9, 8))]),
    ("Padv2", {"pad_mode": 1, "fill_value": 3}, [PadTo(at="center", fill=(3.0,) * 3)]),
    ("Padv2", {"size": 8, "pad_mode": 2}, [PadTo((8, 8), at="end")]),
    ("Padv2", {"size": 8, "pad_mode": -1, "offsets": [1, 2]}, [PadTo((8, 8), at=(2, 1))]),
    ("RandomInterpolationAugment", {"prob": 0.25}, [RandomDownscale(0.25)]),
]  # fmt: skip


@pytest.mark.parametrize(("name", "arguments", "operations"), WORDS)
def test_words_are_operations(
    name: str, arguments: dict[str, Any], operations: list[Operation]
) -> None:
    assert parse_operations(name, **arguments) == operations


#: A batch transform, what it is, and the notes.
MIXING: list[tuple[Any, Any, list[str]]] = [
    ({"MixupOperator": {"alpha": 0.2}}, Mixup(0.2), []),
    ({"MixupOperator": {"class_num": 10}}, Mixup(1.0, 10), []),
    ("CutmixOperator", Cutmix(0.2), []),
    ({"FmixOperator": {"alpha": 2, "decay_power": 4, "max_soft": 0.1, "reformulate": True}},
     Fmix(2.0, 4.0, 0.1, own_more=True), []),
    ({"OpSampler": {"MixupOperator": {"alpha": 0.8, "prob": 0.5}, "CutmixOperator": {"alpha": 1.0, "prob": 0.5}}},
     MixOneOf((Mixup(0.8), Cutmix(1.0)), (0.5, 0.5)), []),
    ({"OpSampler": {"class_num": 7, "FmixOperator": {"prob": 0.25}}},
     MixOneOf((Fmix(),), (0.25,), 7), []),
    ({"OpSampler": {"MixupOperator": {"class_num": 5, "prob": "1/2"}}},
     MixOneOf((Mixup(1.0, 5),), (0.5,), 5), []),
    ({"MixupCutmixHybrid": {"mixup_alpha": 0.8, "cutmix_alpha": 1.0, "switch_prob": 0.5, "num_classes": 1000}},
     MixupCutmix(0.8, 1.0, classes=1000), []),
    ({"MixupCutmixHybrid": {"mode": "elem", "cutmix_minmax": [0.2, 0.8], "label_smoothing": 0}},
     MixupCutmix(1.0, 0.0, (0.2, 0.8), each="image", smoothing=0.0), []),
    ({"MixUp": {"alpha": 0.5, "num_classes": 3}}, Mixup(0.5, 3, "previous"), []),
    ("CutMix", Cutmix(1.0, None, "previous"), []),
    ({"OpSampler": {"MixupOperator": {"prob": 0.5}, "CutmixOperator": None}},
     MixOneOf((Mixup(), Cutmix()), (0.5, 0.0)),
     ["CutmixOperator is never run, because its prob is not set and the default is 0"]),
    ("OpSampler", None, ["OpSampler has no operators, so nothing is mixed"]),
]  # fmt: skip


@pytest.mark.parametrize(("item", "operation", "notes"), MIXING)
def test_words_that_mix_a_batch(item: Any, operation: Any, notes: list[str]) -> None:
    recipe = read_recipe([{"ResizeImage": {"size": 8}}], batch=[item])
    assert single_mixing(recipe.mixing) == operation
    assert [note for each in recipe.items for note in each.notes] == notes


#: A word, its arguments, and a part of the notes; without notes it is empty.
NOTES = [
    ("BlurImage", {}, "blur_image"),
    ("PCALighting", {}, "255"),
    ("ColorJitter", {}, ""),
    ("Cutout", {}, "color"),
    ("Cutout", {"fill_value": "none"}, "one pixel"),
    ("GridMask", {}, "epoch"),
    ("HideAndSeek", {}, "square"),
    ("RandomErasing", {}, ""),
    ("ResizeImage", {"size": 8, "interpolation": "nearest"}, "top left"),
    ("ResizeImage", {"size": 8, "interpolation": "nearest", "backend": "pil"}, ""),
    ("ResizeImage", {"size": 8, "interpolation": "bicubic"}, "-0.75"),
    ("ResizeImage", {"size": 8}, ""),
    ("RandomRotation", {"degrees": 5, "prob": 1}, ""),
    ("RandomRotation", {"degrees": 5, "prob": 1, "interpolation": "bicubic"}, "bilinear"),
    ("RandomCrop", {"size": 8, "pad_if_needed": True}, ""),
    ("Resize", {"size": [9, 9], "interpolation": "bicubic", "antialias": False}, "28 of 255"),
    ("RandomResizedCrop", {"size": 9, "interpolation": "box"}, "the box filter is replaced"),
    ("Resize", {"size": [9, 9], "interpolation": "hamming"}, "the hamming filter is replaced"),
    ("RandomResizedCrop", {"size": 9, "interpolation": "bicubic"}, ""),
    ("Resize", {"size": [9, 9], "interpolation": "bilinear", "antialias": False}, ""),
    ("Resize", {"size": [9, 9], "interpolation": "nearest-exact"}, ""),
    ("AutoAugment", {}, "bilinear"),
    ("TimmAutoAugment", {"interpolation": "random"}, "bilinear"),
    ("TimmAutoAugment", {"interpolation": "bilinear"}, ""),
    ("TimmAutoAugment", {"config_str": "rand-m9-inc0"}, "inc1"),
    ("TimmAutoAugment", {"config_str": "augmix-b1"}, "rounding"),
    ("TimmAutoAugment", {"config_str": None}, "config_str=None"),
    ("RandAugmentV2", {}, ""),
    ("RandAugmentV2", {"progress_magnitude": [5, 10]}, "progress_magnitude"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "arguments", "part"), NOTES)
def test_notes_state_differences(name: str, arguments: dict[str, Any], part: str) -> None:
    notes = parse_notes(name, **arguments)
    assert part in notes
    assert bool(part) == bool(notes)
