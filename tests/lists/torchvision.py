"""Draw lists of torchvision's transforms as plain data, and make the library's objects of them."""

from __future__ import annotations

import importlib
import random
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import torch
from helpers.torchvision_oracle import import_torchvision
from PIL import Image

from lists.choices import LEFT_OUT, Choice, Draws, Table, choose
from lists.compare import Case, run_mixer

v1, v2 = import_torchvision()
functional = importlib.import_module("torchvision.transforms.functional")

#: The filters of torchvision's `InterpolationMode`.
FILTERS = ("nearest", "bilinear", "bicubic")


@dataclass(slots=True)
class Step:
    """A transform with its arguments.

    Attributes:
        name: the class of torchvision.
        arguments: its keyword arguments; filters and types as text.
        children: the transforms in a container.
        is_exact: whether every draw of torchvision gives the same image.

    """

    name: str
    arguments: dict[str, Any]
    children: list[Step] = field(default_factory=list)
    is_exact: bool = True

    @property
    def moves(self) -> bool:
        """Return whether rounding can choose the neighbour of a pixel: it moves, or the nearest is taken."""
        is_nearest = self.arguments.get("interpolation") == "nearest"
        return is_nearest or self.name in WARPS or any(child.moves for child in self.children)

    def walk(self) -> list[Step]:
        """Return this step and all steps in it."""
        steps = [self]
        for child in self.children:
            steps += child.walk()
        return steps


@dataclass(slots=True)
class Drawing:
    """What the next step of a list depends on.

    Attributes:
        rng: the random numbers.
        version: 1 or 2: ``torchvision.transforms`` or ``torchvision.transforms.v2``.
        size: the height and width of every image; `None` if they differ.
        depth: the number of containers around the step.

    """

    rng: random.Random
    version: int
    size: tuple[int, int] | None = None
    depth: int = 0


def number(low: float, high: float, digits: int = 2) -> Choice:
    return lambda d: round(d.rng.uniform(low, high), digits)


def same(low: float, high: float) -> Choice:
    """Return a range of one number."""
    return lambda d: (round(d.rng.uniform(low, high), 2),) * 2


def color(d: Drawing) -> Any:
    """Return a color, as people write it."""
    values = [d.rng.randrange(256) for _ in range(3)]
    return d.rng.choice((0, values[0], tuple(values), values))


def two_sides(d: Drawing) -> Any:
    return d.rng.choice((list, tuple))(d.rng.choices(SIDES, k=2))


def padding(d: Drawing) -> Any:
    """Return padding that images of few pixels can mirror."""
    amounts = [d.rng.randrange(min(*(d.size or (9, 9)), 9)) for _ in range(4)]
    return d.rng.choice((amounts[0], amounts[:2], tuple(amounts)))


def own_size(d: Drawing) -> Any:
    return d.size or Draws(d.rng.choice(((31, 8), (50, 50), 32)))


def own_ratio(d: Drawing) -> Any:
    height, width = d.size or (1, 2)
    return (width / height,) * 2 if d.size else Draws((width / height,) * 2)


def kernel(d: Drawing) -> Any:
    """Return the sides of a blur. Half a kernel must be smaller than the image, which torchvision reflects."""
    if d.size and min(d.size) > 12:
        return d.rng.choice((3, 5, 23, [5, 9]))
    return d.rng.choice((1, 3)) if d.size and min(d.size) > 1 else 1


def three(d: Drawing) -> Any:
    numbers = [round(d.rng.uniform(0.2, 0.7), 3) for _ in range(3)]
    return d.rng.choice((numbers, tuple(numbers), [numbers[0]], torch.tensor(numbers)))


SIDES = (1, 8, 31, 32, 50)
P = (0.0, *[1.0] * 6, Draws(0.5), Draws(LEFT_OUT))
ANTIALIAS = (LEFT_OUT, LEFT_OUT, True)
CENTER = (LEFT_OUT, LEFT_OUT, (3, 17), (19, 0))
#: The filters and the colors of policies: their steps are random.
POLICY = {
    "interpolation": (Draws("nearest"), Draws("bilinear")),
    "fill": (LEFT_OUT, None, 128, [1, 2, 3], (9, 9, 9)),
}

#: Steps that take and return images of uint8, with the values of their arguments; a list has tables
#: of which one is taken.
IMAGE_STEPS: dict[str, Table | list[Table]] = {
    "Resize": [
        {"size": SIDES, "interpolation": FILTERS, "antialias": ANTIALIAS},
        {"size": (8, 31), "max_size": (32, 51), "interpolation": FILTERS},
        {"size": (two_sides,), "interpolation": FILTERS, "antialias": ANTIALIAS},
    ],
    "CenterCrop": {"size": (*SIDES, two_sides)},
    "Pad": [
        {"padding": (padding,), "fill": (color,), "padding_mode": (LEFT_OUT, "constant")},
        {"padding": (padding,), "padding_mode": ("edge", "reflect", "symmetric")},
    ],
    "RandomCrop": {
        "size": (own_size,), "padding": (LEFT_OUT, 0, Draws(4), Draws((2, 3)), Draws((1, 2, 3, 4))),
        "pad_if_needed": (LEFT_OUT, True), "fill": (LEFT_OUT, 0, 200),
        "padding_mode": (LEFT_OUT, "constant", "reflect"),
    },
    "RandomResizedCrop": {
        "size": (*SIDES, two_sides), "scale": ((1.0, 1.0), (1.0, 1.0), Draws((0.2, 0.9))),
        "ratio": (own_ratio, own_ratio, Draws((0.5, 2.0))), "interpolation": FILTERS, "antialias": ANTIALIAS,
    },
    "RandomHorizontalFlip": {"p": P},
    "RandomVerticalFlip": {"p": P},
    "RandomRotation": {
        "degrees": ((0, 0), (90, 90), (-90, -90), same(-180, 180), same(-180, 180), Draws(15), Draws((-10, 30))),
        "interpolation": FILTERS, "fill": (color,), "expand": (*[False] * 19, True), "center": CENTER,
    },
    "RandomAffine": {
        "degrees": (same(-90, 90),), "scale": (LEFT_OUT, same(0.5, 1.6)),
        "shear": (LEFT_OUT, same(-30, 30), lambda d: (*same(-30, 30)(d), *same(-30, 30)(d))),
        "translate": (LEFT_OUT, LEFT_OUT, (0, 0), Draws((0.1, 0.3))),
        "interpolation": FILTERS, "fill": (color,), "center": CENTER,
    },
    "RandomPerspective": {
        "distortion_scale": (0.0, Draws(0.5)), "p": (0.0, 1.0), "interpolation": FILTERS, "fill": (color,),
    },
    "ElasticTransform": {
        "alpha": (0.0, Draws(50.0)), "sigma": (5.0, 9.0), "interpolation": FILTERS, "fill": (color,),
    },
    # The order of several changes is random, so one is exact.
    "ColorJitter": [
        *({name: (same(0, 2), lambda d: [0.5, 0.5])} for name in ("brightness", "contrast", "saturation")),
        {"hue": (same(-0.5, 0.5),)},
        {name: (Draws(0.1),) for name in ("brightness", "contrast", "saturation", "hue")},
    ],
    "GaussianBlur": {
        "kernel_size": (kernel,),
        "sigma": (*[number(0.1, 4), same(0.1, 4)] * 2, Draws((0.1, 3.0)), Draws(LEFT_OUT)),
    },
    "Grayscale": {"num_output_channels": (3,)},
    "RandomGrayscale": {"p": P},
    "RandomInvert": {"p": P},
    "RandomPosterize": {"bits": tuple(range(1, 9)), "p": P},
    "RandomSolarize": {"threshold": (lambda d: d.rng.randint(0, 256),), "p": P},
    "RandomAdjustSharpness": {"sharpness_factor": (number(0, 3),), "p": P},
    "RandomAutocontrast": {"p": P},
    "RandomEqualize": {"p": P},
    "RandAugment": {
        "num_ops": (LEFT_OUT, 0, 1, 2), "magnitude": (LEFT_OUT, 0, 5, 9),
        "num_magnitude_bins": (LEFT_OUT, 11, 31), **POLICY,
    },
    "AutoAugment": {"policy": (LEFT_OUT, "imagenet", "cifar10", "svhn"), **POLICY},
    "TrivialAugmentWide": {"num_magnitude_bins": (LEFT_OUT, 11, 31), **POLICY},
    "AugMix": {
        "severity": (LEFT_OUT, 1, 3), "mixture_width": (LEFT_OUT, 1, 3), "chain_depth": (LEFT_OUT, -1, 2),
        "alpha": (LEFT_OUT, 0.5, 1.0), "all_ops": (LEFT_OUT, True, False), **POLICY,
    },
    "RandomApply": {},
    "RandomChoice": {},
    "RandomOrder": {},
    "Compose": {},
    "Identity": {},
    "RGB": {},
    "ToImage": {},
    "ScaleJitter": {
        # A side of less than half a pixel is an error of torchvision.
        "target_size": ((31, 80), (50, 62)), "scale_range": (same(0.7, 1.5),), "interpolation": FILTERS[:2],
        "antialias": (LEFT_OUT, True, True, True),
    },
}  # fmt: skip
NORMALIZE: Table = {"mean": (three,), "std": (three,), "inplace": (LEFT_OUT, LEFT_OUT, True)}
ERASING: Table = {
    "p": (0.0, 0.0, Draws(1.0)), "scale": (LEFT_OUT, (0.1, 0.2)), "ratio": (LEFT_OUT, (0.5, 2.0)),
    "inplace": (LEFT_OUT, True, False), "value": (LEFT_OUT, 0, 0.5, "random", (0.1, 0.2, 0.3)),
}  # fmt: skip

CONTAINERS = ("RandomApply", "RandomChoice", "RandomOrder", "Compose")
#: Steps that move pixels by fractions.
WARPS = (
    "RandomRotation", "RandomAffine", "RandomPerspective", "ElasticTransform",
    "RandAugment", "AutoAugment", "TrivialAugmentWide", "AugMix",
)  # fmt: skip
#: Steps of `IMAGE_STEPS` that ``torchvision.transforms`` does not have.
ONLY_V2 = ("Identity", "RGB", "ToImage", "ScaleJitter")
#: Steps that change the size or the type of an image, which containers do not hold.
NOT_INSIDE = (
    "Resize", "CenterCrop", "Pad", "RandomCrop", "RandomResizedCrop", "ScaleJitter", "ToImage"
)  # fmt: skip


def draw_step(name: str, d: Drawing) -> Step:
    """Draw a step, and set the size of the images after it."""
    if name in CONTAINERS:
        return _container(name, d)
    table = IMAGE_STEPS[name]
    arguments, is_exact = choose(d.rng.choice(table) if isinstance(table, list) else table, d)
    if name == "Resize" and d.version == 1 and d.rng.random() < 0.1:
        arguments = {"size": (d.rng.choice(SIDES),)}
    step = Step(name, arguments, is_exact=is_exact)
    # Images of two sizes show whether the size becomes known.
    sizes = set()
    for height, width in [d.size] if d.size else [(40, 30), (57, 64)]:
        try:
            made = _make(step, v2, v1.InterpolationMode)(Image.new("RGB", (width, height)))
        except (TypeError, ValueError, RuntimeError):
            sizes.add(None)
        else:
            sizes.add(tuple(functional.get_dimensions(made)[1:]))
    d.size = sizes.pop() if len(sizes) == 1 and not arguments.get("expand") else None
    return step


def _container(name: str, d: Drawing) -> Step:
    count = 1 if name == "RandomOrder" else d.rng.randint(1, 3)
    left_out = (
        *NOT_INSIDE,
        *(ONLY_V2 if d.version == 1 else ()),
        *(CONTAINERS if d.depth > 1 else ()),
    )
    names = [each for each in IMAGE_STEPS if each not in left_out]
    children = []
    for _ in range(count):
        children.append(draw_step(d.rng.choice(names), replace(d, depth=d.depth + 1)))
        # A rotation that expands changes the size.
        for step in children[-1].walk():
            step.arguments.pop("expand", None)
    arguments: dict[str, Any] = {}
    is_exact = all(child.is_exact for child in children)
    if name == "RandomApply":
        arguments["p"] = d.rng.choice((0.0, 1.0, 1.0, 1.0, 0.5))
        is_exact = arguments["p"] == 0 or (arguments["p"] == 1 and is_exact)
    elif name == "RandomChoice" and count > 1:
        chosen = d.rng.randrange(count)
        is_exact = children[chosen].is_exact
        arguments["p"] = [float(place == chosen) for place in range(count)]
        if d.rng.random() < 0.2:
            del arguments["p"]
            is_exact = False
    return Step(name, arguments, children, is_exact=is_exact)


#: What mixes the images of a batch.
MIXERS = ("CutMix", "MixUp")


def _mixing(d: Drawing) -> Step:
    """Return what mixes a batch: one transform, one of several, or one with a probability."""

    def one() -> Step:
        arguments: dict[str, Any] = {"alpha": d.rng.choice((0.2, 1.0, 3.0))}
        # Left out, the number of classes is the dataset's.
        if d.rng.random() < 0.7:
            arguments["num_classes"] = 9
        return Step(d.rng.choice(MIXERS), arguments)

    step = one()
    if d.rng.random() < 0.5:
        arguments = d.rng.choice(({}, {"p": [0.3, 0.7]}))
        step = Step("RandomChoice", arguments, [one(), one()])
    if d.rng.random() < 0.3:
        step = Step("RandomApply", {"p": d.rng.choice((0.0, 1.0, 0.5))}, [step])
    return step


def _stack(crops: Any) -> torch.Tensor:
    """Stack crops as torchvision's documentation does."""
    return torch.stack([functional.to_tensor(crop) for crop in crops])


def _crops(d: Drawing) -> list[Step]:
    """Return five or ten crops of an image, and the function that stacks them."""
    height, width = d.size or (8, 8)
    size = d.rng.choice((min(height, width), (height, max(1, width // 2))))
    if d.rng.random() < 0.3:
        crop = Step("FiveCrop", {"size": size})
    else:
        crop = Step("TenCrop", {"size": size})
        if d.rng.random() < 0.7:
            crop.arguments["vertical_flip"] = d.rng.random() < 0.5
    return [crop, Step("Lambda", {"lambd": _stack})]


def _floats(d: Drawing, steps: Sequence[Step]) -> list[Step]:
    """Return what makes floats of the images after `steps`."""
    converted = []
    if d.version == 2 and d.rng.random() < 0.5:
        converted.append(Step("ToImage", {}))
        converted.append(Step("ToDtype", {"dtype": torch.float32, "scale": True}))
    elif any(step.name == "ToImage" for step in steps):  # ToTensor would leave these bytes
        converted.append(Step("ToDtype", {"dtype": torch.float32, "scale": True}))
    elif d.rng.random() < 0.15:
        converted.append(Step("PILToTensor", {}))
        converted.append(Step("ConvertImageDtype", {"dtype": torch.float32}))
    else:
        converted.append(Step("ToTensor", {}))
    return converted


def draw_list(rng: random.Random, version: int) -> list[Step]:
    """Return a list of transforms: steps of images, then often the conversion and what follows it."""
    d = Drawing(rng, version)
    names = [name for name in IMAGE_STEPS if version == 2 or name not in ONLY_V2]
    steps = []
    # Most lists begin with a resize; exact crops need the size.
    if rng.random() < 0.7:
        size = (rng.choice((24, 32, 57)), rng.choice((24, 32, 57)))
        steps.append(Step("Resize", {"size": size, "interpolation": "bilinear"}))
        d.size = size
    for _ in range(rng.randint(1, 4)):
        steps.append(draw_step(rng.choice(names), d))
    if rng.random() < 0.2:
        return steps
    # Lambda of v2 gets one crop at a time.
    if version == 1 and rng.random() < 0.3:
        return [*steps, *_crops(d)]
    steps += _floats(d, steps)
    if rng.random() < 0.7:
        steps.append(Step("Normalize", choose(NORMALIZE, d)[0]))
    if rng.random() < 0.3:
        arguments, is_exact = choose(ERASING, d)
        steps.append(Step("RandomErasing", arguments, is_exact=is_exact))
    if version == 2 and rng.random() < 0.1:
        steps.append(Step("ToPureTensor", {}))
    if version == 2 and d.size is not None and rng.random() < 0.4:
        steps.append(_mixing(d))
    return steps


def _make(step: Step, module: Any, modes: Any) -> Any:
    """Return a step as an object of ``torchvision.transforms`` or its ``v2``."""
    arguments = dict(step.arguments)
    if "interpolation" in arguments:
        arguments["interpolation"] = modes(arguments["interpolation"])
    if "policy" in arguments:
        arguments["policy"] = module.AutoAugmentPolicy(arguments["policy"])
    children = [_make(child, module, modes) for child in step.children]
    if step.children:
        return getattr(module, step.name)(children, **arguments)
    return getattr(module, step.name)(**arguments)


def _text(step: Step) -> str:
    """Return a step as Python."""
    arguments = [f"{name}={value!r}" for name, value in step.arguments.items()]
    if step.children:
        arguments.insert(0, "[" + ", ".join(map(_text, step.children)) + "]")
    return f"{step.name}({', '.join(arguments)})"


def draw(rng: random.Random, kind: str) -> Case:
    """Return a list of ``torchvision.transforms`` or its ``v2``."""
    del kind
    version = rng.choice((1, 2))
    module = (v1, v2)[version - 1]
    steps = draw_list(rng, version)
    objects = [_make(step, module, v1.InterpolationMode) for step in steps]
    mixing: list[Any] = []
    for step in steps[-1].walk():
        if step.name in MIXERS:
            mixing.append(partial(run_mixer, _make(step, module, None)))
    if mixing and steps[-1].arguments.get("p", 1.0) in (0.0, 0.5):
        mixing.append(None)
    # torchvision stacks crops with a function; here ToTensor follows them.
    ours = objects
    if steps[-1].name == "Lambda":
        ours = [*objects[:-1], module.ToTensor()]
    unit = 1.0
    used = []
    for step in steps:
        if step.name in {"ToTensor", "ConvertImageDtype", "ToDtype", "Lambda"}:
            unit /= 255
        if step.name == "Normalize":
            unit /= min(float(value) for value in step.arguments["std"])
        for each in step.walk():
            used += [(each.name, ""), *((each.name, name) for name in each.arguments)]
    return Case(
        text=f"v{version} [" + ", ".join(map(_text, steps)) + "]",
        used=used,
        transforms=module.Compose(ours),
        steps=objects[:-1] if mixing else objects,
        unit=unit,
        moves=sum(step.moves for step in steps),
        is_exact=all(step.is_exact for step in steps),
        mixing=mixing,
    )
