"""Names of torchvision, some of PaddleClas too, whose arguments need work; `names` lists all."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from typing import Annotated, Any, TypeAlias

from loaders.transforms.base import Chain, Operation, Range, check_choice
from loaders.transforms.color import ConvertColor
from loaders.transforms.combinators import RandomApply, RandomChoice, RandomOrder
from loaders.transforms.crop_resize import (
    Crop,
    MultiCrop,
    RandomResizedCrop,
    Resize,
    ResizeWithin,
    ScaleJitter,
)
from loaders.transforms.decode_normalize import Normalize, Rescale, ToFloat
from loaders.transforms.erasing import RandomErasing
from loaders.transforms.geometry import Pad, RandomAffine, RandomAffineAround, RotateAround
from loaders.transforms.mixing import Mixing, MixOneOf, MixupCutmix
from loaders.transforms.parse.arguments import (
    BatchFunction,
    Bool,
    Chains,
    Fill,
    HeightWidth,
    HeightWidthOrBucket,
    Means,
    NeedsBytes,
    Note,
    Pair,
    Parsed,
    Probability,
    ProbabilityText,
    Shares,
    WarpFilter,
    is_list,
    read_any_size,
    read_around_zero,
    read_channels,
    read_fill,
    read_number,
    read_numbers,
    read_pair,
    torchvision_filter,
)
from manifests.errors import CallError
from manifests.process.text import shown

_FLOATS = ("float32", "float16", "bfloat16", "float64", "float", "half", "double")


# Values and types
# --------------------------------------------------------------------------------------------------


def normalize(mean: Means, std: Means, data_format: str = "CHW", to_rgb: Bool = False) -> Parsed:
    """Subtract `mean` and divide by `std`; use it after ToTensor."""
    check_choice("data_format", data_format, ("CHW", "HWC"))
    if to_rgb:
        raise CallError(
            "to_rgb=True is not supported", hint="remove it, and set to_rgb in DecodeImage"
        )
    yield Normalize(mean, std, scale=1.0)


def convert_image_dtype(dtype: Any = "float32") -> Parsed:
    """Convert to floating point and scale values from 0-255 to 0-1.

    With dtype uint8, keep bytes.
    """
    yield from to_dtype(dtype, scale=True)


def to_dtype(dtype: Any, scale: Bool = False) -> Parsed:
    """Convert to floating point, and scale values from 0-255 to 0-1 if `scale` is set.

    With dtype uint8, keep bytes.
    """
    name = ""
    if isinstance(dtype, str) or type(dtype).__module__ == "torch":
        # torch's dtypes print as `torch.float32`.
        name = str(dtype).removeprefix("torch.")
    if name == "uint8":
        yield NeedsBytes()
    elif name not in _FLOATS:
        raise CallError(f"dtype must be one of uint8, {', '.join(_FLOATS)}, got {shown(dtype)}")
    else:
        yield Rescale() if scale else ToFloat()
        if name not in ("float32", "float"):
            yield Note(f"dtype {name} is ignored: build's dtype sets the type of a batch")


# Crops and sizes
# --------------------------------------------------------------------------------------------------


def ten_crop(size: HeightWidth, vertical_flip: Bool = False) -> Parsed:
    """Crop the four corners and the center, (height, width), of the image and of the flipped image."""
    yield MultiCrop(size, "vertical" if vertical_flip else "horizontal")


def read_padding(padding: Any, fill: Any, mode: str) -> Pad:
    """Read one number, (left and right, top and bottom), or (left, top, right, bottom)."""
    sides = tuple(padding) if is_list(padding) else (padding,)
    if len(sides) not in (1, 2, 4) or not all(isinstance(each, int) for each in sides):
        raise CallError(f"padding must be one, two or four integers, got {shown(padding)}")
    # Two numbers are left and top, and repeat.
    left, top, right, bottom = sides * (4 // len(sides))
    # The record checks how many numbers a list has.
    color = read_numbers(fill, "fill") if is_list(fill) else read_channels(fill, "fill")
    return Pad(left, top, right, bottom, color, mode)  # type: ignore[arg-type]


def pad(padding: Any, fill: Any = 0, padding_mode: str = "constant") -> Parsed:
    """Pad: one number for all sides, (left and right, top and bottom), or (left, top, right, bottom)."""
    yield read_padding(padding, fill, padding_mode)


def random_crop(
    size: HeightWidthOrBucket,
    padding: Any = None,
    pad_if_needed: Bool = False,
    fill: Any = 0,
    padding_mode: str = "constant",
) -> Parsed:
    """Crop (height, width) at a random position, after optional padding."""
    padded = read_padding(0 if padding is None else padding, fill, padding_mode)
    if padding is not None:
        yield padded
    if pad_if_needed and padded.mode != "constant":
        raise CallError(
            f'pad_if_needed=True pads with fill, and not with padding_mode="{padded.mode}"',
            hint='set padding_mode="constant", or put a resize before it and leave pad_if_needed out',
        )
    yield Crop(size, at="random", fits=not pad_if_needed, fill=padded.fill)


def random_resized_crop(
    size: HeightWidthOrBucket,
    scale: Shares = (0.08, 1.0),
    ratio: Pair = (3 / 4, 4 / 3),
    interpolation: Any = "bilinear",
    antialias: Bool = True,
) -> Parsed:
    """Crop a random region and resize it to (height, width)."""
    filter_, notes = torchvision_filter(interpolation, antialias)
    yield RandomResizedCrop(size, area=scale, ratio=ratio, filter=filter_, antialias=antialias)
    yield from notes


def resize(
    size: Any = None, interpolation: Any = "bilinear", antialias: Bool = True, max_size: Any = None
) -> Parsed:
    """Resize the shorter side to an integer, the longer to at most `max_size`.

    Or resize the longer side to `max_size`, or to (height, width).
    """
    filter_, notes = torchvision_filter(interpolation, antialias)
    filters: Any = {"filter": filter_, "antialias": antialias}
    if size is None and max_size is None:
        raise CallError("size or max_size is required", hint="write {'Resize': {'size': ...}}")
    # One number is the shorter side.
    one_side = size is None or isinstance(size, int)
    if max_size is not None:
        if not one_side:
            raise CallError(
                "max_size needs a size of one number",
                hint="remove max_size, or write size as one number",
            )
        yield ResizeWithin(shorter=size, longest=max_size, **filters)
    else:
        yield resize_to(size, filters)
    yield from notes


def resize_to(size: Any, filters: Mapping[str, Any]) -> Resize:
    """Return a resize of the shorter side to an integer, or a resize to (height, width)."""
    if isinstance(size, int):
        return Resize(shorter=size, **filters)
    return Resize(read_any_size(size), **filters)


def scale_jitter(
    target_size: HeightWidth,
    scale_range: Pair = (0.1, 2.0),
    interpolation: Any = "bilinear",
    antialias: Bool = True,
) -> Parsed:
    """Resize to `target_size` times a random factor, and keep the aspect ratio.

    Images then have different sizes.
    """
    filter_, notes = torchvision_filter(interpolation, antialias)
    yield ScaleJitter(target_size, scale_range, filter_, antialias)
    yield from notes


# Warps and erasing
# --------------------------------------------------------------------------------------------------


def read_rotation(
    degrees: Any, probability: float, filter_: Any, expand: bool, fill: Any
) -> dict[str, Any]:
    """Return the fields of a rotation by up to `degrees` both ways, or between two angles."""
    if expand:
        raise CallError(
            "expand=True is not supported", hint="remove it; images always keep their size"
        )
    if is_list(degrees):
        bounds = read_pair(degrees, "degrees")
    else:
        limit = read_number(degrees, "degrees")
        bounds = (-limit, limit)
    color = read_fill(fill, "fill")
    # One number stays as it was written, because the record seeds random numbers.
    if is_list(fill) and len({*color}) > 1:
        fill = color
    elif not isinstance(fill, (int, float)):
        fill = color[0]
    return {"degrees": bounds, "probability": probability, "filter": filter_, "fill": fill}


def random_rotation(
    degrees: Any,
    interpolation: WarpFilter = "nearest",
    expand: Bool = False,
    center: Pair | None = None,
    fill: Any = 0,
) -> Parsed:
    """Rotate by an angle between -degrees and degrees, or between two angles, around `center`."""
    yield RotateAround(**read_rotation(degrees, 1.0, interpolation, expand, fill), center=center)


_Degrees: TypeAlias = Annotated[Range, read_around_zero]


def random_affine(
    degrees: _Degrees,
    translate: Pair | None = None,
    scale: Pair | None = None,
    shear: Any = None,
    interpolation: WarpFilter = "nearest",
    fill: Fill = 0,
    center: Pair | None = None,
) -> Parsed:
    """Rotate by `degrees`, shift by fractions of the sides, scale and shear by random amounts, around `center`."""
    angles: Any = (0, 0, 0, 0)
    # Two numbers or one shear only along x.
    if is_list(shear) and len(shear) == 4:
        angles = read_numbers(shear, "shear")
    elif shear is not None:
        angles = (*read_around_zero(shear, "shear"), 0, 0)
    fields: Any = {
        "degrees": degrees,
        "translate": translate or (0, 0),
        "scale": scale or (1, 1),
        "shear": angles,
        "filter": interpolation,
        "fill": fill,
    }
    if center is None:
        yield RandomAffine(**fields)
    else:
        yield RandomAffineAround(**fields, center=center)


def random_erasing(
    p: ProbabilityText = 0.5,
    scale: Shares = (0.02, 0.33),
    ratio: Pair = (0.3, 3.3),
    value: Any = 0,
    *,
    inplace: Bool = False,
) -> Parsed:
    """Erase a random rectangle with probability `p`; with the value ``"random"`` by noise."""
    mode: Any = "constant"
    if isinstance(value, str) and value == "random":
        mode = "pixels"
        value = 0
    yield RandomErasing(
        probability=p,
        area=scale,
        ratio=ratio,
        log_ratio=True,
        attempts=10,
        mode=mode,
        fill=read_channels(value, "value"),
    )


# Lists of transforms, and functions
# --------------------------------------------------------------------------------------------------


def random_apply(transforms: Chains, p: Probability = 0.5) -> Parsed:
    """Run all of a list of transforms with probability `p`."""
    operations = tuple(chain.from_iterable(transforms))
    if _mixes(operations):
        yield _choose_mixing("RandomApply", [operations], [float(p)])
    else:
        yield RandomApply(operations, p)


def random_choice(transforms: Chains, p: Any = None) -> Parsed:
    """Run one of a list of transforms, chosen with the relative probabilities `p`."""
    weights = None
    if p is not None:
        # A list of one number comes as the number.
        weights = read_numbers(p if is_list(p) else [p], "p")
        if len(weights) != len(transforms):
            raise CallError(
                f"p must be {len(transforms)} numbers, one per transform, got {shown(p)}"
            )
    if _mixes(chain.from_iterable(transforms)):
        shares = weights or (1.0,) * len(transforms)
        if min(shares) < 0 or not any(shares):
            raise CallError(f"p must be numbers of at least 0, and not all 0, got {shown(p)}")
        total = sum(shares)
        yield _choose_mixing("RandomChoice", transforms, [each / total for each in shares])
    else:
        # Equal weights are left out: the text of a record seeds its random numbers.
        if weights and len(set(weights)) == 1:
            weights = None
        yield RandomChoice(transforms, weights)


def random_order(transforms: Chains) -> Parsed:
    """Run all of a list of transforms, in an order drawn per image."""
    yield RandomOrder(transforms)


def _mixes(operations: Iterable[Operation]) -> bool:
    return any(isinstance(each, Mixing) for each in operations)


def _choose_mixing(name: str, chains: Sequence[Chain], probabilities: Sequence[float]) -> MixOneOf:
    """Return what draws one operation that mixes images, for each batch.

    Raises:
        CallError: a chain does something else.

    """
    for each in chains:
        if len(each) != 1 or not _mixes(each):
            raise CallError(
                f"{name} of an operation that mixes the images of a batch cannot have others",
                hint="put the others into a list of their own, or write OpSampler",
            )
    return mix_one_of([*chain.from_iterable(chains)], probabilities, None)


def mix_one_of(
    mixing: Sequence[Any], probabilities: Sequence[float], classes: int | None
) -> MixOneOf:
    """Return what draws one of several operations; the first number of classes counts for all.

    What draws one of several itself gives its operations.
    """
    operations: list[Any] = []
    shares: list[float] = []
    for each, probability in zip(mixing, probabilities, strict=True):
        if classes is None:
            classes = each.classes
        if isinstance(each, MixupCutmix):
            raise CallError(
                "MixupCutmixHybrid draws one of two operations, and cannot be one of several",
                hint="write it alone, or CutmixOperator and MixupOperator in OpSampler",
            )
        if isinstance(each, MixOneOf):
            operations.extend(each.operations)
            shares.extend(probability * share for share in each.probabilities)
        else:
            operations.append(each)
            shares.append(probability)
    return MixOneOf(tuple(operations), tuple(shares), classes)


def lambda_(lambd: Any) -> Parsed:
    """Call a function with the finished batch, [B, C, H, W] in the layout of the loader."""
    if not callable(lambd) or isinstance(lambd, (type, Operation)):
        raise CallError(f"lambd must be a function, got {shown(lambd)}")
    if not converts_to_rgb(lambd):
        yield BatchFunction(lambd)
        yield Note(
            "the function gets the finished batch, while torchvision calls it with each image"
        )


def grayscale(num_output_channels: int = 3) -> Parsed:
    """Convert every image to three equal gray channels."""
    if num_output_channels != 3:
        raise CallError(
            f"num_output_channels must be 3, got {shown(num_output_channels)}",
            hint="set num_output_channels=3, and use one channel of each batch",
        )
    yield ConvertColor("GRAY")


def converts_to_rgb(function: Any) -> bool:
    """Return whether all that a function does is ``image.convert("RGB")``: images always are RGB.

    Lists for CLIP have such a function in the middle. Only its code is looked at.
    """
    code = getattr(function, "__code__", None)
    if code is None or code.co_argcount != 1 or not {"convert"} <= {*code.co_names} <= _CONVERTING:
        return False
    # Of `image.convert(mode="RGB")`, a constant is the name of the argument.
    return {*code.co_consts} - {None, ("mode",), getattr(function, "__doc__", None)} == {"RGB"}


#: Names in ``image.convert("RGB")``, and in a condition such as ``image.mode != "RGB"``.
_CONVERTING = {"convert", "mode"}
