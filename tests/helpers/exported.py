"""Lists of transforms that are exported for Triton, with options of the loader."""

from __future__ import annotations

from typing import Any

NORMALIZE = {"NormalizeImage": {"mean": [0.485, 0.456, 0.406], "std": [0.229, 0.224, 0.225]}}
RECIPES: dict[str, tuple[Any, dict[str, Any]]] = {
    "preset": ("imagenet-eval", {}),
    "half": ([{"Resize": {"size": 40}}, {"CenterCrop": {"size": 32}}, NORMALIZE], {"dtype": "float16"}),
    "bytes": ([{"Resize": {"size": [30, 40]}}], {"dtype": "uint8", "layout": "NHWC"}),
    "paddle": ([{"ResizeImage": {"resize_short": 40}}, {"CropImage": {"size": 32}}, NORMALIZE, "ToCHWImage"], {}),
    "padding": ([{"Resize": {"size": 30}}, {"Pad": {"padding": 3}}, {"CenterCrop": {"size": 64}}, "ToTensor"], {}),
    "crops": ([{"Resize": {"size": 40}}, {"FiveCrop": {"size": 32}}, NORMALIZE], {}),
    "gray": ([{"Resize": {"size": 40}}, {"CenterCrop": {"size": 32}}, "Grayscale", "ToTensor"], {}),
    "colors": ([{"Resize": {"size": [32, 32]}}, "ToHSV"], {"dtype": "uint8"}),
    "bgr": ([{"DecodeImage": {"to_rgb": False}}, {"Resize": {"size": [32, 32]}}, NORMALIZE], {}),
    "ratio": ([{"CropImageAtRatio": {"size": 32, "pad": 4}}, NORMALIZE], {}),
}  # fmt: skip
