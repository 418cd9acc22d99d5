"""Names of decoding, resizing, cropping, flipping, turning and padding. It must never know DALI."""

from __future__ import annotations

from typing import Any, Literal

from loaders.transforms.base import Filter, check_bool, check_choice, check_int, check_number
from loaders.transforms.decode_normalize import Decode, Normalize, Rescale
from loaders.transforms.geometry import (
    Crop,
    CropAtRatio,
    Flip,
    Pad,
    PadTo,
    RandomDownscale,
    RandomResizedCrop,
    RandomRightAngle,
    Resize,
    Rotate,
)
from loaders.transforms.parse.registry import Note, Parsed, height_width, number, numbers, pair, register, width_height
from manifests.errors import CallError

_CV2 = {
    "nearest": "nearest", "bilinear": "linear", "bicubic": "cubic", "area": "triangular", "lanczos": "lanczos",
    "random": "random",
}  # fmt: skip
_PIL = {
    "nearest": "nearest", "bilinear": "linear", "bicubic": "cubic", "box": "triangular", "hamming": "triangular",
    "lanczos": "lanczos", "random": "random",
}  # fmt: skip

_INEXACT = {
    ("cv2", "nearest"): "OpenCV takes the pixel at the top left, this one that in the middle, as Pillow",
    ("cv2", "bicubic"): "OpenCV's bicubic filter has the parameter -0.75, this one Pillow's -0.5",
    ("cv2", "random"): "OpenCV's bicubic filter has the parameter -0.75, this one Pillow's -0.5",
    ("cv2", "area"): "the area filter is a box, here it is a triangle with antialiasing",
    ("cv2", "lanczos"): "OpenCV's Lanczos filter has four lobes, this one three",
    ("pil", "box"): "the box filter is a triangle with antialiasing here",
    ("pil", "hamming"): "the Hamming filter is a triangle with antialiasing here",
}


def _filter(interpolation: Any, backend: Any) -> tuple[Filter, bool, tuple[Note, ...]]:
    """Return the filter, whether it is antialiased, and what of it is not exact."""
    library = _library(backend)
    known = _CV2 if library == "cv2" else _PIL
    name = "bilinear" if interpolation is None else str(interpolation).lower()
    if name not in known:
        raise CallError(
            f"interpolation must be one of {', '.join(known)} with backend {library!r}, got {interpolation!r}"
        )
    notes = tuple(Note(text) for key, text in _INEXACT.items() if key == (library, name))
    antialias = library == "pil" or known[name] == "triangular"
    return known[name], antialias, notes  # type: ignore[return-value]


def _library(backend: Any) -> str:
    library = str(backend).lower()
    check_choice("backend", library, ("cv2", "pil"))
    return library


@register("DecodeImage")
def decode_image(to_np: bool = True, to_rgb: bool = True, channel_first: bool = False, backend: str = "cv2") -> Parsed:
    """Decode; `to_rgb` false leaves the channels as blue, green, red."""
    for name, value in (("to_np", to_np), ("to_rgb", to_rgb), ("channel_first", channel_first)):
        check_bool(name, value)
    if channel_first:
        raise CallError("channel_first=True has no place here", hint="leave it out; build's layout says NCHW or NHWC")
    _library(backend)
    yield Decode("RGB" if to_rgb or not to_np else "BGR")


@register("ResizeImage")
def resize_image(
    size: Any = None,
    resize_short: int | None = None,
    interpolation: str | None = None,
    backend: str = "cv2",
    return_numpy: bool = True,
) -> Parsed:
    """Resize to width and height, or the shorter side to a length; `return_numpy` changes no pixel."""
    check_bool("return_numpy", return_numpy)
    filter_, antialias, notes = _filter(interpolation, backend)
    if resize_short is not None:
        check_number("resize_short", resize_short)
    if resize_short is not None and resize_short > 0:
        yield Resize(shorter=resize_short, filter=filter_, antialias=antialias, rounding="nearest")
    elif size is not None:
        yield Resize(width_height(size), filter=filter_, antialias=antialias)
    else:
        raise CallError("needs size or resize_short", hint="write {'ResizeImage': {'size': ...}}")
    yield from notes


@register("CropImage")
def crop_image(size: Any) -> Parsed:
    """Cut the middle out."""
    yield Crop(width_height(size), rounding="down")


@register("RandomCropImage")
def random_crop_image(size: Any) -> Parsed:
    """Cut a part out, anywhere."""
    yield Crop(width_height(size), at="random")


@register("RandCropImageV2")
def rand_crop_image_v2(size: Any) -> Parsed:
    """Cut a part out, anywhere."""
    yield Crop(width_height(size), at="random")
    yield Note(
        "PaddleClas' position may lie one pixel beyond the edge, which gives a smaller image; here it never does"
    )


@register("RandCropImage")
def rand_crop_image(
    size: Any,
    progress_size: Any = None,
    scale: Any = None,
    ratio: Any = None,
    interpolation: str | None = None,
    use_log_aspect: bool = False,
    backend: str = "cv2",
) -> Parsed:
    """Cut a random part out and resize it."""
    filter_, antialias, notes = _filter(interpolation, backend)
    check_bool("use_log_aspect", use_log_aspect)
    yield RandomResizedCrop(
        width_height(size),
        area=(0.08, 1.0) if scale is None else pair(scale, "scale"),
        ratio=(3 / 4, 4 / 3) if ratio is None else pair(ratio, "ratio"),
        sampling="bounded",
        log_ratio=use_log_aspect,
        filter=filter_,
        antialias=antialias,
    )
    yield from notes
    if progress_size is not None:
        yield Note("progress_size is not followed: build a loader for each size")


@register("CropImageAtRatio")
def crop_image_at_ratio(size: int, pad: int, interpolation: str = "bilinear") -> Parsed:
    """Cut the middle square out that is size / (size + pad) of the shorter side, and resize it."""
    filter_, _, notes = _filter(interpolation, "cv2")
    check_int("size", size, 1)
    check_number("pad", pad, 0)
    yield CropAtRatio(size, size / (size + pad), filter_)
    yield from notes


@register("RandFlipImage")
def rand_flip_image(flip_code: int = 1) -> Parsed:
    """Mirror with a probability of one half: 1 left and right, 0 top and bottom, -1 both."""
    if flip_code not in (-1, 0, 1):
        raise CallError(f"flip_code must be 1, 0 or -1, got {flip_code!r}")
    yield Flip(0.5, {1: "horizontal", 0: "vertical", -1: "both"}[flip_code])  # type: ignore[arg-type]


@register("RandomHorizontalFlip")
def random_horizontal_flip(prob: float = 0.5, p: float | None = None) -> Parsed:
    """Mirror left and right."""
    yield Flip(prob if p is None else p, "horizontal")


@register("RandomVerticalFlip")
def random_vertical_flip(prob: float = 0.5, p: float | None = None) -> Parsed:
    """Mirror top and bottom."""
    yield Flip(prob if p is None else p, "vertical")


@register("RandomRotation")
def random_rotation(
    degrees: Any,
    prob: float | None = None,
    interpolation: str = "nearest",
    expand: bool = False,
    center: Any = None,
    fill: float = 0,
) -> Parsed:
    """Turn by an angle between -degrees and degrees, or between two angles."""
    check_bool("expand", expand)
    if expand or center is not None:
        raise CallError("expand and center are not offered", hint="leave them out: the size stays, about the middle")
    check_choice("interpolation", interpolation, ("nearest", "bilinear", "bicubic"))
    if isinstance(degrees, (list, tuple)):
        bounds = pair(degrees, "degrees")
    else:
        most = number(degrees, "degrees")
        bounds = (-most, most)
    filter_: Literal["nearest", "linear"] = "nearest" if interpolation == "nearest" else "linear"
    yield Rotate(bounds, 0.5 if prob is None else prob, filter_, fill)
    if prob is None:
        yield Note("prob is 0.5, as in PaddleClas; torchvision turns every image, which is prob=1")
    if interpolation == "bicubic":
        yield Note("the bicubic filter is a bilinear one here")


@register("RandomRot90")
def random_rot90() -> Parsed:
    """Turn by a random multiple of 90 degrees."""
    yield RandomRightAngle()
    yield Note("PaddleClas also gives the orientation as random_rot90_orientation; here the image alone is turned")


def _pad(padding: Any, fill: Any, mode: str) -> Pad:
    sides = tuple(padding) if isinstance(padding, (list, tuple)) else (padding,)
    if len(sides) not in (1, 2, 4) or not all(isinstance(each, int) for each in sides):
        raise CallError(f"padding must be one, two or four whole numbers, got {padding!r}")
    left, top, right, bottom = sides * (4 // len(sides))
    values = numbers(fill, "fill") if isinstance(fill, (list, tuple)) else (number(fill, "fill"),) * 3
    return Pad(left, top, right, bottom, values, mode)  # type: ignore[arg-type]


@register("Pad")
def pad_image(padding: Any, fill: Any = 0, padding_mode: str = "constant", backend: str = "pil") -> Parsed:
    """Add pixels on every side; both of PaddleClas' backends do the same."""
    _library(backend)
    yield _pad(padding, fill, padding_mode)
    if padding_mode != "constant":
        yield Note("padding_mode is followed, as in torchvision; PaddleClas pads with a constant whatever it says")


@register("Pad_paddle_vision")
def pad_paddle_vision(padding: Any, fill: Any = 0, padding_mode: str = "constant") -> Parsed:
    """Add pixels: one number, left-right and top-bottom, or left, top, right, bottom."""
    yield _pad(padding, fill, padding_mode)


@register("Padv2")
def pad_v2(
    size: Any = None,
    size_divisor: int = 32,
    pad_mode: int = 0,
    offsets: Any = None,
    fill_value: Any = (127.5, 127.5, 127.5),
) -> Parsed:
    """Pad to width and height: 0 at right and bottom, 1 around, 2 at left and top, -1 by offsets."""
    if pad_mode not in (-1, 0, 1, 2):
        raise CallError(f"pad_mode must be one of -1, 0, 1, 2, got {pad_mode!r}")
    if pad_mode == -1 and offsets is None:
        raise CallError("pad_mode=-1 needs offsets", hint="say offsets, left and top, or another pad_mode")
    place = None if offsets is None else width_height(offsets, "offsets")
    at: Any = {-1: place, 0: "start", 1: "center", 2: "end"}[pad_mode]
    yield PadTo(None if size is None else width_height(size), size_divisor, at, _three(fill_value, "fill_value"))  # type: ignore[arg-type]


@register("RandomInterpolationAugment")
def random_interpolation_augment(prob: float) -> Parsed:
    """Make the image smaller and as large again, with random filters."""
    yield RandomDownscale(prob)
    yield Note("the area filter is not among those drawn from")


# torchvision and paddle.vision ---------------------------------------------------------------------------------------

_TORCH = {"nearest": "nearest", "bilinear": "linear", "bicubic": "cubic", "lanczos": "lanczos", "box": "triangular"}


def _torch_filter(interpolation: Any) -> Filter:
    name = str(getattr(interpolation, "value", interpolation)).lower()
    if name not in _TORCH:
        raise CallError(f"interpolation must be one of {', '.join(_TORCH)}, got {interpolation!r}")
    return _TORCH[name]  # type: ignore[return-value]


@register("Resize")
def resize(size: Any, interpolation: Any = "bilinear", antialias: bool = True) -> Parsed:
    """Resize the shorter side to a number, or to height and width."""
    filter_ = _torch_filter(interpolation)
    if isinstance(size, int):
        yield Resize(shorter=size, filter=filter_, antialias=antialias)
    else:
        yield Resize(height_width(size), filter=filter_, antialias=antialias)


@register("CenterCrop")
def center_crop(size: Any) -> Parsed:
    """Cut the middle out."""
    yield Crop(height_width(size))


@register("RandomCrop")
def random_crop(
    size: Any, padding: Any = None, pad_if_needed: bool = False, fill: Any = 0, padding_mode: str = "constant"
) -> Parsed:
    """Cut a part out, anywhere, perhaps after padding."""
    check_bool("pad_if_needed", pad_if_needed)
    pad = _pad(0 if padding is None else padding, fill, padding_mode)
    if padding is not None:
        yield pad
    yield Crop(height_width(size), at="random")
    if pad_if_needed and (fill != 0 or padding_mode != "constant"):
        yield Note("where an image is smaller, the rest is filled with zeros, whatever fill and padding_mode say")


@register("RandomResizedCrop")
def random_resized_crop(
    size: Any,
    scale: Any = (0.08, 1.0),
    ratio: Any = (3 / 4, 4 / 3),
    interpolation: Any = "bilinear",
    antialias: bool = True,
) -> Parsed:
    """Cut a random part out and resize it."""
    yield RandomResizedCrop(
        height_width(size),
        area=pair(scale, "scale"),
        ratio=pair(ratio, "ratio"),
        filter=_torch_filter(interpolation),
        antialias=antialias,
    )


@register("ToTensor")
def to_tensor() -> Parsed:
    """Bring values onto 0 to 1."""
    yield Rescale()


@register("Normalize")
def normalize(mean: Any, std: Any, data_format: str = "CHW", to_rgb: bool = False) -> Parsed:
    """Subtract the mean and divide by the deviation, after ToTensor; where the channels stand is known here."""
    check_choice("data_format", data_format, ("CHW", "HWC"))
    check_bool("to_rgb", to_rgb)
    if to_rgb:
        raise CallError("to_rgb=True is not offered", hint="say to_rgb at DecodeImage")
    yield Normalize(_three(mean, "mean"), _three(std, "std"), scale=1.0)


@register("NormalizeImage")
def normalize_image(
    scale: Any = None,
    mean: Any = None,
    std: Any = None,
    order: str = "chw",
    output_fp16: bool = False,
    channel_num: int = 3,
) -> Parsed:
    """Multiply by `scale`, subtract `mean`, divide by `std`.

    PaddleClas needs `order` to tell where the channels of its array stand (``hwc``, or nothing, before ToCHWImage,
    ``chw`` after it) and fails where it is wrong; here they are known, and each gets its own mean.
    """
    check_choice("order", order, ("chw", "hwc", ""))
    check_bool("output_fp16", output_fp16)
    yield Normalize(
        (0.485, 0.456, 0.406) if mean is None else _three(mean, "mean"),
        (0.229, 0.224, 0.225) if std is None else _three(std, "std"),
        scale=1 / 255 if scale is None else number(scale, "scale"),
        channels=channel_num,
    )
    if output_fp16:
        yield Note("in PaddleClas output_fp16 gives float16; here build's dtype decides, float16 unless given")


@register("ToCHWImage")
def to_chw_image() -> Parsed:
    """Nothing: the layout of a batch is what `build` is told."""
    yield from ()


def _three(value: Any, name: str) -> tuple[float, ...]:
    return numbers(value, name) if isinstance(value, (list, tuple)) else (number(value, name),) * 3
