"""Draw lists of torchvision's transforms as plain data, and make the library's objects of them."""

from __future__ import annotations

import importlib
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
from helpers.torchvision_oracle import import_torchvision

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
        moves: whether rounding can choose the neighbour of a pixel: pixels move by a fraction, or
            the nearest pixel is taken.

    """

    name: str
    arguments: dict[str, Any]
    children: list[Step] = field(default_factory=list)
    is_exact: bool = True
    moves: bool = False

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
        is_float: whether the images are tensors of floats.

    """

    rng: random.Random
    version: int
    size: tuple[int, int] | None = None
    is_float: bool = False

    def probability(self) -> tuple[float, bool]:
        """Return a probability, and whether it decides."""
        p = self.rng.choice((0.0, 1.0, 1.0, 1.0, 0.5))
        return p, p != 0.5

    def fixed(self, low: float, high: float, digits: int = 2) -> float:
        return round(self.rng.uniform(low, high), digits)

    def fill(self) -> Any:
        """Return a color, as people write it."""
        color = [self.rng.randrange(256) for _ in range(3)]
        return self.rng.choice((0, color[0], tuple(color), color))

    def side(self) -> int:
        return self.rng.choice((1, 8, 31, 32, 50))


Draw = Callable[[Drawing], Step]


def _with_p(name: str, arguments: Callable[[Drawing], dict[str, Any]]) -> Draw:
    """Return the function that draws a transform that runs with a probability."""

    def draw(d: Drawing) -> Step:
        p, is_exact = d.probability()
        given = arguments(d)
        # Left out, the probability is the library's own.
        if d.rng.random() < 0.1:
            return Step(name, given, is_exact=False)
        return Step(name, {**given, "p": p}, is_exact=is_exact)

    return draw


def _plain(name: str) -> Draw:
    return lambda d: Step(name, {})


def _resize(d: Drawing) -> Step:
    filters = d.rng.choice(FILTERS)
    arguments: dict[str, Any] = {"interpolation": filters}
    form = d.rng.choice((0, 1, 2, 2, 3, 4))
    height, width = d.side(), d.side()
    if form == 0:
        arguments["size"] = height
        d.size = (height, height) if d.size and d.size[0] == d.size[1] else None
    elif form == 1 and d.version == 1:
        arguments["size"] = (height,)
        d.size = None
    elif form == 2:
        arguments.update(size=height, max_size=height + d.rng.choice((1, 20)))
        d.size = None
    else:
        arguments["size"] = d.rng.choice((list, tuple))((height, width))
        d.size = (height, width)
    if d.rng.random() < 0.4:
        arguments["antialias"] = True
    return Step("Resize", arguments, moves=filters == "nearest")


def _center_crop(d: Drawing) -> Step:
    side = d.side()
    size: Any = d.rng.choice((side, (side, d.side())))
    d.size = (size, size) if isinstance(size, int) else size
    return Step("CenterCrop", {"size": size})


def _pad(d: Drawing) -> Step:
    mode = d.rng.choice(("constant", "edge", "reflect", "symmetric"))
    most = 9 if mode == "constant" or d.size is None else min(*d.size, 9)
    amounts = [d.rng.randrange(most) for _ in range(4)]
    padding = d.rng.choice((amounts[0], amounts[:2], tuple(amounts)))
    left, top, right, bottom = padding if isinstance(padding, tuple) else amounts
    if isinstance(padding, int):
        left = top = right = bottom = padding
    elif isinstance(padding, list):
        right, bottom = left, top
    if d.size is not None:
        d.size = (d.size[0] + top + bottom, d.size[1] + left + right)
    # Other modes than constant refuse a color for tensors, and ignore it for images of Pillow.
    fill = d.fill() if mode == "constant" else 0
    return Step("Pad", {"padding": padding, "fill": fill, "padding_mode": mode})


def _random_crop(d: Drawing) -> Step:
    """Draw a crop; it is exact if it is as large as the image."""
    arguments: dict[str, Any] = {"size": d.size or (d.side(), d.side())}
    is_exact = d.size is not None
    if d.rng.random() < 0.5:
        arguments["padding"] = d.rng.choice((0, 4, (2, 3), (1, 2, 3, 4)))
        is_exact = is_exact and arguments["padding"] == 0
    if d.rng.random() < 0.5:
        arguments["pad_if_needed"] = True
    if d.rng.random() < 0.5:
        arguments["fill"] = d.rng.randrange(256)
        arguments["padding_mode"] = d.rng.choice(("constant", "reflect"))
    d.size = arguments["size"]
    return Step("RandomCrop", arguments, is_exact=is_exact)


def _resized_crop(d: Drawing) -> Step:
    height, width = d.size or (1, 2)
    size: Any = d.rng.choice((d.side(), (d.side(), d.side())))
    arguments: dict[str, Any] = {
        "size": size, "scale": (1.0, 1.0), "ratio": (width / height, width / height),
        "interpolation": d.rng.choice(FILTERS),
    }  # fmt: skip
    is_exact = d.size is not None
    if d.rng.random() < 0.3:
        arguments.update(scale=(0.2, 0.9), ratio=(0.5, 2.0))
        is_exact = False
    if d.rng.random() < 0.3:
        arguments["antialias"] = True
    d.size = (size, size) if isinstance(size, int) else size
    moves = arguments["interpolation"] == "nearest"
    return Step("RandomResizedCrop", arguments, is_exact=is_exact, moves=moves)


def _rotation(d: Drawing) -> Step:
    angle = d.rng.choice((0, 90, -90, 180, d.fixed(-180, 180)))
    is_exact = d.rng.random() < 0.8
    degrees: Any = (angle, angle) if is_exact else d.rng.choice((15, (-10, 30)))
    arguments: dict[str, Any] = {
        "degrees": degrees, "interpolation": d.rng.choice(FILTERS), "fill": d.fill(),
        "expand": d.rng.random() < 0.05,
    }  # fmt: skip
    if d.rng.random() < 0.3:
        arguments["center"] = (d.rng.randrange(20), d.rng.randrange(20))
    if arguments["expand"]:
        d.size = None
    return Step("RandomRotation", arguments, is_exact=is_exact, moves=True)


def _affine(d: Drawing) -> Step:
    angle, scale = d.fixed(-90, 90), d.fixed(0.5, 1.6)
    x, y = d.fixed(-30, 30), d.fixed(-30, 30)
    arguments: dict[str, Any] = {
        "degrees": (angle, angle), "interpolation": d.rng.choice(FILTERS), "fill": d.fill()
    }  # fmt: skip
    is_exact = True
    if d.rng.random() < 0.5:
        arguments["scale"] = (scale, scale)
    if d.rng.random() < 0.5:
        arguments["shear"] = d.rng.choice(((x, x), (x, x, y, y)))
    if d.rng.random() < 0.3:
        arguments["center"] = (d.rng.randrange(20), d.rng.randrange(20))
    if d.rng.random() < 0.3:
        translate = d.rng.choice(((0, 0), (0.1, 0.3)))
        arguments["translate"] = translate
        is_exact = translate == (0, 0)
    return Step("RandomAffine", arguments, is_exact=is_exact, moves=True)


def _perspective(d: Drawing) -> Step:
    p = d.rng.choice((0.0, 1.0))
    scale = d.rng.choice((0.0, 0.5))
    arguments = {
        "distortion_scale": scale, "p": p, "interpolation": d.rng.choice(FILTERS),
        "fill": d.fill(),
    }  # fmt: skip
    return Step("RandomPerspective", arguments, is_exact=p == 0 or scale == 0, moves=True)


def _elastic(d: Drawing) -> Step:
    alpha, sigma = d.rng.choice((0.0, 50.0)), d.rng.choice((5.0, 9.0))
    arguments = {
        "alpha": alpha, "sigma": sigma, "interpolation": d.rng.choice(FILTERS),
        "fill": d.fill(),
    }  # fmt: skip
    return Step("ElasticTransform", arguments, is_exact=alpha == 0, moves=True)


def _jitter(d: Drawing) -> Step:
    """Draw a jitter; the order of several changes is random, so one is exact."""
    names = d.rng.sample(
        ("brightness", "contrast", "saturation", "hue"), d.rng.choice((1, 1, 1, 4))
    )
    arguments: dict[str, Any] = {}
    is_exact = len(names) == 1
    for name in names:
        value = d.fixed(-0.5, 0.5) if name == "hue" else d.fixed(0, 2)
        arguments[name] = d.rng.choice((tuple, list))((value, value))
        if not is_exact:
            arguments[name] = 0.1
    return Step("ColorJitter", arguments, is_exact=is_exact)


def _blur(d: Drawing) -> Step:
    sigma = d.fixed(0.1, 4)
    is_exact = d.rng.random() < 0.8
    # Half a kernel must be smaller than the image, which torchvision's padding reflects.
    kernel = d.rng.choice((1, 3)) if d.size and min(d.size) > 1 else 1
    if d.size and min(d.size) > 12:
        kernel = d.rng.choice((3, 5, 23, [5, 9]))
    arguments: dict[str, Any] = {"kernel_size": kernel}
    if is_exact:
        arguments["sigma"] = d.rng.choice((sigma, (sigma, sigma)))
    elif d.rng.random() < 0.5:
        arguments["sigma"] = (0.1, 3.0)
    return Step("GaussianBlur", arguments, is_exact=is_exact)


def _erasing(d: Drawing) -> Step:
    arguments: dict[str, Any] = {"p": d.rng.choice((0.0, 0.0, 1.0))}
    if d.rng.random() < 0.5:
        arguments.update(scale=(0.1, 0.2), ratio=(0.5, 2.0), inplace=d.rng.random() < 0.5)
    if d.rng.random() < 0.5:
        arguments["value"] = d.rng.choice((0, 0.5, "random", (0.1, 0.2, 0.3)))
    return Step("RandomErasing", arguments, is_exact=arguments["p"] == 0)


def _normalize(d: Drawing) -> Step:
    def three() -> Any:
        numbers = [d.fixed(0.2, 0.7, 3) for _ in range(3)]
        return d.rng.choice((numbers, tuple(numbers), [numbers[0]], torch.tensor(numbers)))

    arguments = {"mean": three(), "std": three()}
    if d.rng.random() < 0.2:
        arguments["inplace"] = True
    return Step("Normalize", arguments)


def _scale_jitter(d: Drawing) -> Step:
    # A side of less than half a pixel is an error of torchvision.
    arguments: dict[str, Any] = {"target_size": (d.side() + 30, d.side() + 30)}
    scale = d.fixed(0.7, 1.5)
    arguments["scale_range"] = (scale, scale)
    arguments["interpolation"] = d.rng.choice(FILTERS[:2])
    if d.rng.random() < 0.8:
        arguments["antialias"] = True
    d.size = None
    moves = arguments["interpolation"] == "nearest"
    return Step("ScaleJitter", arguments, moves=moves)


def _policy(name: str, **choices: tuple[Any, ...]) -> Draw:
    """Return the function that draws a policy: its steps are random, so that sizes are compared."""

    def draw(d: Drawing) -> Step:
        arguments = {}
        for argument, values in choices.items():
            if d.rng.random() < 0.6:
                arguments[argument] = d.rng.choice(values)
        arguments.setdefault("interpolation", "bilinear")
        return Step(name, arguments, is_exact=False, moves=True)

    return draw


_FILL = (None, 128, [1, 2, 3], (9, 9, 9))

#: Steps that take and return images of uint8; the sizes that they change are in `Drawing.size`.
IMAGE_STEPS: dict[str, Draw] = {
    "Resize": _resize,
    "CenterCrop": _center_crop,
    "Pad": _pad,
    "RandomCrop": _random_crop,
    "RandomResizedCrop": _resized_crop,
    "RandomHorizontalFlip": _with_p("RandomHorizontalFlip", lambda d: {}),
    "RandomVerticalFlip": _with_p("RandomVerticalFlip", lambda d: {}),
    "RandomRotation": _rotation,
    "RandomAffine": _affine,
    "RandomPerspective": _perspective,
    "ElasticTransform": _elastic,
    "ColorJitter": _jitter,
    "GaussianBlur": _blur,
    "Grayscale": lambda d: Step("Grayscale", {"num_output_channels": 3}),
    "RandomGrayscale": _with_p("RandomGrayscale", lambda d: {}),
    "RandomInvert": _with_p("RandomInvert", lambda d: {}),
    "RandomPosterize": _with_p("RandomPosterize", lambda d: {"bits": d.rng.randint(1, 8)}),
    "RandomSolarize": _with_p("RandomSolarize", lambda d: {"threshold": d.rng.randint(0, 256)}),
    "RandomAdjustSharpness": _with_p(
        "RandomAdjustSharpness", lambda d: {"sharpness_factor": d.fixed(0, 3)}
    ),
    "RandomAutocontrast": _with_p("RandomAutocontrast", lambda d: {}),
    "RandomEqualize": _with_p("RandomEqualize", lambda d: {}),
    "RandAugment": _policy(
        "RandAugment", num_ops=(0, 1, 2), magnitude=(0, 5, 9), num_magnitude_bins=(11, 31),
        interpolation=FILTERS[:2], fill=_FILL,
    ),
    "AutoAugment": _policy(
        "AutoAugment", policy=("imagenet", "cifar10", "svhn"), interpolation=FILTERS[:2],
        fill=_FILL,
    ),
    "TrivialAugmentWide": _policy(
        "TrivialAugmentWide", num_magnitude_bins=(11, 31), interpolation=FILTERS[:2], fill=_FILL
    ),
    "AugMix": _policy(
        "AugMix", severity=(1, 3), mixture_width=(1, 3), chain_depth=(-1, 2), alpha=(0.5, 1.0),
        all_ops=(True, False), interpolation=FILTERS[:2], fill=_FILL,
    ),
    "RandomApply": lambda d: _container("RandomApply", d),
    "RandomChoice": lambda d: _container("RandomChoice", d),
    "RandomOrder": lambda d: _container("RandomOrder", d),
    "Compose": lambda d: _container("Compose", d),
    "Identity": _plain("Identity"),
    "RGB": _plain("RGB"),
    "ToImage": _plain("ToImage"),
    "ScaleJitter": _scale_jitter,
}  # fmt: skip

#: Steps of `IMAGE_STEPS` that ``torchvision.transforms`` does not have.
ONLY_V2 = ("Identity", "RGB", "ToImage", "ScaleJitter")
#: Steps that keep the size of an image, which containers may hold.
KEEP_SIZE = tuple(
    name
    for name in IMAGE_STEPS
    if name not in {"Resize", "CenterCrop", "Pad", "RandomCrop", "RandomResizedCrop", "ScaleJitter", "ToImage"}
)  # fmt: skip


def _container(name: str, d: Drawing) -> Step:
    depth = getattr(d, "depth", 0)
    number = 1 if name == "RandomOrder" else d.rng.randint(1, 3)
    names = [each for each in KEEP_SIZE if d.version == 2 or each not in ONLY_V2]
    if depth > 1:
        names = [each for each in names if not each.startswith(("RandomApply", "RandomChoice", "RandomOrder", "Compose"))]  # fmt: skip
    inner = _Deeper(d.rng, d.version, d.size, d.is_float, depth + 1)
    children = [IMAGE_STEPS[d.rng.choice(names)](inner) for _ in range(number)]
    # Steps whose size is not fixed, as of a rotation that expands, do not fit into containers.
    for child in children:
        for step in child.walk():
            step.arguments.pop("expand", None)
    exact = all(child.is_exact for child in children)
    moves = any(child.moves for child in children)
    arguments: dict[str, Any] = {}
    if name == "RandomApply":
        arguments["p"], decided = d.probability()
        exact = arguments["p"] == 0 or (decided and exact)
    elif name == "RandomChoice" and number > 1:
        chosen = d.rng.randrange(number)
        arguments["p"] = [float(place == chosen) for place in range(number)]
        exact = children[chosen].is_exact
        if d.rng.random() < 0.2:
            del arguments["p"]
            exact = False
    return Step(name, arguments, children, is_exact=exact, moves=moves)


@dataclass(slots=True)
class _Deeper(Drawing):
    depth: int = 0


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
        step = Step("RandomApply", {"p": d.probability()[0]}, [step])
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
    steps += [IMAGE_STEPS[rng.choice(names)](d) for _ in range(rng.randint(1, 4))]
    if rng.random() < 0.2:
        return steps
    # Lambda of v2 gets one crop at a time.
    if version == 1 and rng.random() < 0.3:
        return [*steps, *_crops(d)]
    steps += _floats(d, steps)
    if rng.random() < 0.7:
        steps.append(_normalize(d))
    if rng.random() < 0.3:
        steps.append(_erasing(d))
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
