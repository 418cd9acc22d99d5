"""Notes of words that differ from their library; the records of batches say what each word does."""

from __future__ import annotations

from typing import Any

import pytest
from helpers.parsing import parse_notes

#: A word, its arguments, and a part of the notes; without notes it is empty.
NOTES = [
    ("OpSampler", {"MixupOperator": {"prob": 0.5}, "CutmixOperator": None}, "never run"),
    ("OpSampler", {}, "nothing is mixed"),
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
