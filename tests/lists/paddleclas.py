"""Draw lists of PaddleClas, as its configs write them, and run them with its own operators."""

from __future__ import annotations

import importlib
import importlib.util
import io
import logging
import random
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
from PIL import Image

from lists.compare import SIZES as COUNTS
from lists.compare import Case
from lists.paddle_mixing import draw_mixing, make_mixers

Arguments = dict[str, Any]
#: Returns arguments, and whether every draw of the operator gives the same image.
Draw = Callable[[random.Random, str], tuple[Arguments, bool]]


def _operators() -> Any:
    """Return ``ppcls.data.preprocess``, imported without the rest of PaddleClas."""
    if "ppcls" not in sys.modules:
        spec = importlib.util.find_spec("ppcls")
        if spec is None or importlib.util.find_spec("paddle") is None:
            raise SystemExit(
                "PaddleClas is not installed. Hint: pip install paddlepaddle, clone"
                " https://github.com/PaddlePaddle/PaddleClas and add its folder to PYTHONPATH"
            )
        for name, folder in (("ppcls", "."), ("ppcls.data", "data"), ("ppcls.utils", "utils")):
            module = ModuleType(name)
            module.__path__ = [str(Path(each, folder)) for each in spec.submodule_search_locations]
            sys.modules[name] = module
        logger = ModuleType("ppcls.utils.logger")
        logger.warning = logger.info = print
        sys.modules["ppcls.utils"].logger = sys.modules["ppcls.utils.logger"] = logger
    module = importlib.import_module("ppcls.data.preprocess")
    logging.getLogger().setLevel(logging.WARNING)
    return module


#: Arguments without a default, or without one that fits small images.
_REQUIRED = {"size", "padding", "pad", "d1", "d2", "prob", "fill_value"}


def _always(**arguments: Any) -> Draw:
    """Return the function that draws one of the values of each argument."""

    def draw(rng: random.Random, kind: str) -> tuple[Arguments, bool]:
        del kind
        given = {}
        for name, values in arguments.items():
            if name in _REQUIRED or rng.random() < 0.9:
                given[name] = rng.choice(values)
        return given, True

    return draw


def _random(**arguments: Any) -> Draw:
    """Return the function that draws arguments of an operator whose result is random."""
    draw_fixed = _always(**arguments)
    return lambda rng, kind: (draw_fixed(rng, kind)[0], False)


def _resize(rng: random.Random, kind: str) -> tuple[Arguments, bool]:
    del kind
    backend = rng.choice(("cv2", "pil"))
    filters = (None, "bilinear", "nearest") if backend == "cv2" else (None, "bilinear", "bicubic")
    size = rng.choice(({"size": rng.choice((32, [40, 24]))}, {"resize_short": 36}))
    return {**size, "interpolation": rng.choice(filters), "backend": backend}, True


def _crop_at_ratio(rng: random.Random, kind: str) -> tuple[Arguments, bool]:
    # PaddleClas fails for a share of a line of pixels.
    pad = 0 if kind == "tiny" else rng.choice((4, 0))
    bilinear = {"interpolation": "bilinear"}
    return {"size": 32, "pad": pad, **rng.choice(({}, bilinear, bilinear))}, True


def _crop(rng: random.Random, kind: str) -> tuple[Arguments, bool]:
    is_exact = kind == "square" and rng.random() < 0.6
    arguments: Arguments = {"size": rng.choice((24, [32, 24]))}
    if is_exact:
        arguments.update(scale=[1.0, 1.0], ratio=[1.0, 1.0])
    elif rng.random() < 0.5:
        arguments.update(scale=[0.2, 1.0], ratio=[0.8, 1.25])
    if rng.random() < 0.5:
        arguments.update(interpolation="bilinear", backend=rng.choice(("cv2", "pil")))
    return arguments, is_exact


def _jitter(rng: random.Random, kind: str) -> tuple[Arguments, bool]:
    del kind
    arguments: Arguments = {"brightness": 0.4, "contrast": 0.4, "saturation": 0.4, "hue": 0.1}
    prob = rng.choice((0.0, 2, 0.8))
    return {**arguments, "prob": prob}, prob == 0


def _with_probability(name: str, values: tuple[float, ...] = (0.0, 1.0)) -> Draw:
    return lambda rng, kind: ({name: rng.choice(values)}, True)


def _rotation(rng: random.Random, kind: str) -> tuple[Arguments, bool]:
    del kind
    prob = rng.choice((0.0, 1.0))
    angle = rng.choice((90, 30, -12.5))
    degrees = rng.choice((15, (-20, 40), (angle, angle), (angle, angle)))
    arguments = {"prob": prob, "degrees": degrees, "interpolation": "nearest"}
    return arguments, prob == 0 or degrees == (angle, angle)


#: Operators for images of uint8 that all have a size of their own.
FIRST: dict[str, Draw] = {
    "ResizeImage": _resize,
    "RandCropImage": _crop,
    "Resize": _always(size=(32, (40, 24)), interpolation=("bilinear",)),
    "RandomResizedCrop": _random(size=(24, 32), scale=((0.2, 1.0),), ratio=((0.8, 1.25),)),
    "CropImageAtRatio": _crop_at_ratio,
}
#: Operators that change the size of an image.
SIZES: dict[str, Draw] = {
    "CropImage": _always(size=(24, [20, 16])),
    "CenterCrop": _always(size=(24, (16, 20))),
    "RandomCropImage": _random(size=(16, 24)),
    "RandCropImageV2": _random(size=(16, 24)),
    "Padv2": _always(
        size=(256, [256, 288]), size_divisor=(32,), pad_mode=(0, 1, 2), fill_value=((1, 2, 3),)
    ),
    "Pad_paddle_vision": _always(
        padding=(2, [1, 2, 3, 4]), fill=(0, 9), padding_mode=("constant", "edge", "reflect")
    ),
}
#: Operators that keep the size.
SAME: dict[str, Draw] = {
    "RandFlipImage": _random(flip_code=(1, 0, -1)),
    "RandomHorizontalFlip": _with_probability("prob"),
    "ColorJitter": _jitter,
    "RandomRotation": _rotation,
    "RandomRot90": _random(),
    "AutoAugment": _random(),
    "RandAugment": _random(num_layers=(1, 2), magnitude=(3, 5), fillcolor=((1, 2, 3),)),
    "RandAugmentV2": _random(num_layers=(1, 2), magnitude=(3, 5)),
    "RandAugmentV3": _random(num_layers=(1, 2), magnitude=(1, 3)),
    "RandAugmentV4": _random(),
    "TimmAutoAugment": _random(config_str=("rand-m9-mstd0.5-inc1", "rand-m7-n3"), prob=(1.0, 0.5)),
    "AugMix": _random(prob=(0.5, 1.0), mixture_width=(1, 3), mixture_depth=(1, 2), aug_severity=(1,)),
    # PaddleClas crops nothing in this operator: with a probability, it fails.
    "CropWithPadding": _always(prob=(0,), padding_num=(0, 9), size=(24,)),
    # With a color, PaddleClas fails or does nothing.
    "Cutout": _random(n_holes=(1, 2), length=(4, 8), fill_value=("none", None)),
    "BlurImage": _random(ratio=(0.5,), gaussian_max_ksize=(12,)),
    "RandomInterpolationAugment": _random(prob=(0.5, 1.0)),
}  # fmt: skip
FLIPS = {name: SAME[name] for name in ("RandFlipImage", "RandomHorizontalFlip")}
#: Operators for images of Pillow: the first, the ones that change the size, and the ones that keep it.
PILLOW: tuple[dict[str, Draw], ...] = (
    {name: FIRST[name] for name in ("Resize", "RandomResizedCrop")},
    {
        "CenterCrop": SIZES["CenterCrop"],
        "RandCropImageV2": SIZES["RandCropImageV2"],
        "Pad": _always(padding=(2, (1, 3), (1, 2, 3, 4)), fill=(0, 9, (1, 2, 3))),
    },
    {"RandomGrayscale": _with_probability("p"), **FLIPS},
)
#: Operators after NormalizeImage or ToCHWImage.
LAST: dict[str, Draw] = {
    "RandomErasing": _random(EPSILON=(0.5,), sl=(0.02,), sh=(0.3,), r1=(0.3,), mode=("const", "pixel", "rand")),
    "GridMask": _random(d1=(8,), d2=(16,), rotate=(1, 30), ratio=(0.5,), mode=(0, 1)),
    "HideAndSeek": _random(),
}  # fmt: skip


#: How often names are drawn that are in few tables, or whose arguments are rare; others: once.
_WEIGHTS = {
    "RandFlipImage": 0.3, "RandomHorizontalFlip": 0.3, "RandomGrayscale": 0.6, "RandCropImage": 3,
    "ResizeImage": 2.2, "CropImageAtRatio": 1.5, "RandomCropImage": 1.5, "Pad_paddle_vision": 2,
    "Padv2": 2, "Pad": 2, "Cutout": 1.3, "CropImage": 2, "RandomRot90": 0.9,
}  # fmt: skip


def _of(table: dict[str, Draw], rng: random.Random, kind: str) -> tuple[str, Arguments, bool]:
    name = rng.choices([*table], [_WEIGHTS.get(each, 1) for each in table])[0]
    arguments, is_exact = table[name](rng, kind)
    return name, arguments, is_exact


def _images(rng: random.Random, kind: str) -> list[tuple[str, Arguments, bool]]:
    """Return the operators of images of uint8; the last of them can make floats."""
    first, sizes, same = FIRST, SIZES, SAME
    decoding: Arguments = {"to_rgb": True, "channel_first": False}
    if rng.random() < 0.3:
        first, sizes, same = PILLOW
        decoding = {"to_np": False, "backend": "pil"}
    # PaddleClas fails for a part of an image of few pixels.
    elif kind == "tiny":
        first = {name: each for name, each in FIRST.items() if name != "RandCropImage"}
    drawn = [("DecodeImage", decoding, True), _of(first, rng, kind)]
    if rng.random() < 0.7:
        drawn.append(_of(sizes, rng, kind))
        # It makes floats, which policies do not take.
        if drawn[-1][0] == "Padv2":
            same = FLIPS
    drawn += [_of(same, rng, kind) for _ in range(rng.randint(2, 4))]
    # Last of these, because it makes floats too; of an image of Pillow, it makes nothing.
    if first is not PILLOW[0] and rng.random() < 0.22:
        drawn.append(("PCALighting", {}, False))
    return drawn


def draw(rng: random.Random, kind: str) -> Case:
    """Return a list of PaddleClas."""
    drawn = _images(rng, kind)
    unit = 1.0
    if rng.random() < 0.8:
        std = rng.choice(([0.229, 0.224, 0.225], [0.5, 0.25, 0.2]))
        arguments = {
            "scale": rng.choice((1 / 255, "1.0/255.0")), "mean": [0.485, 0.456, 0.406], "std": std,
            "order": "",
        }  # fmt: skip
        drawn.append(("NormalizeImage", arguments, True))
        unit = 1 / 255 / min(std)
        last = [("ToCHWImage", {}, True)]
        if rng.random() < 0.5:
            last.append(_of(LAST, rng, kind))
        # It takes height, width and channels.
        if last[-1][0] == "RandomErasing":
            last.reverse()
        drawn += last
    module = _operators()
    steps = []
    for name, arguments, _ in drawn:
        # A config can name an operator that the package does not list.
        operator = getattr(module, name, None) or getattr(module.ops.operators, name)
        steps.append(_as_step(operator(**arguments)))
    # Images of one size, in the order of channels that the operators for batches take.
    mixing = []
    sized = not any(name == "RandomRot90" or "resize_short" in each for name, each, _ in drawn)
    if sized and unit < 1:
        drawn.append((*draw_mixing(rng, kind), True))
        mixing = make_mixers(module, *drawn[-1][:2], len(COUNTS[kind]))
    config = [{name: arguments or None} for name, arguments, _ in drawn]
    used = []
    for name, arguments, _ in drawn:
        used += [(name, ""), *((name, argument) for argument in arguments)]
        if name == "OpSampler":
            # PaddleClas gives the number of classes to each of the operators.
            shared = {*arguments} & {"class_num"}
            for each in {*arguments} - shared:
                used += [(each, ""), *((each, name) for name in {*arguments[each]} | shared)]
    moves = sum(arguments.get("interpolation") == "nearest" for _, arguments, _ in drawn)
    return Case(
        text=str(config),
        used=used,
        transforms=config,
        steps=steps,
        unit=unit,
        moves=moves,
        is_exact=all(is_exact for _, _, is_exact in drawn),
        can_fail=True,
        mixing=mixing,
    )


def _as_step(operator: Any) -> Callable[[Any], Any]:
    """Return an operator that takes and returns an image, as bytes if it decodes them."""

    def step(image: Any) -> Any:
        if type(operator).__name__ == "DecodeImage":
            buffer = io.BytesIO()
            image.save(buffer, "png")
            image = buffer.getvalue()
        value = operator(image)
        return value if isinstance(value, (np.ndarray, Image.Image)) else np.asarray(value)

    return step
