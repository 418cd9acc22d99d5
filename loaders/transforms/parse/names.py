"""The table of names: which name of a library makes which record of what arguments.

To add a transform, add a row to `_ROWS`. A name that means different transforms in two libraries
has a row for each. Its arguments decide if only one meaning takes them, or both give the same
operations. Else the list decides, to whose library the other names belong; `library_of` finds it.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import cached_property
from itertools import chain
from typing import Annotated, Any, get_args, get_origin, get_type_hints

from loaders.transforms.base import (
    MAX_CLASSES,
    MAX_GAUSSIAN,
    MAX_MOTION,
    MAX_MOTION_ANGLE,
    Operation,
    Range,
    Size,
    check_int,
    check_number,
)
from loaders.transforms.color import (
    ColorJitter,
    ConvertColor,
    GaussianBlur,
    PCALighting,
    RandomBlur,
    RandomGrayscale,
)
from loaders.transforms.crop_resize import Crop, MultiCrop, RandomDownscale, ResizeKeepRatio
from loaders.transforms.decode_normalize import Rescale
from loaders.transforms.erasing import HideAndSeek
from loaders.transforms.geometry import Elastic, Flip, RandomPerspective, RandomRightAngle
from loaders.transforms.mixing import Cutmix, Fmix, Mixup, MixupCutmix
from loaders.transforms.parse import paddleclas, policies, timm, torchvision
from loaders.transforms.parse.arguments import (
    BICUBIC_DIFFERS,
    CV2_DIFFERS,
    REQUIRED,
    TORCHVISION_DIFFERS,
    Argument,
    Arguments,
    Libraries,
    Library,
    Parsed,
    Reader,
    checked,
    choice,
    is_list,
    optional,
    read_any_size,
    read_as_given,
    read_bool,
    read_fill,
    read_height_width,
    read_number,
    read_one_or_two,
    read_pair,
    read_probability,
    read_probability_text,
    read_warp_filter,
    read_width_height,
    setting,
)
from loaders.transforms.patches import Patchify
from manifests.errors import CallError
from manifests.process.text import shown, suggest

#: The name of what stands for arguments of any name. Only OpSampler has it.
ANY = "**operators"


@dataclass(frozen=True)
class Meaning:
    """What a name means in some libraries: a row of the table.

    Attributes:
        name: the name that users write.
        libraries: the libraries in which the name means this.
        make: a record, or a function that yields records and notes.
        summary: what the transform does; empty if the docstring of a function says it.
        fields: the arguments that set fields of a record. A function declares its own.
        fixed: fields of the record that no argument sets.
        notes: how results differ from the library's, for whoever uses the name.
        differs: how results differ from the library's beyond rounding, for the documentation;
            empty if the notes say it.
        magnitude: the argument that sets the strength of a policy; empty if none does.
        of_arrays: whether the name means this only after a DecodeImage that makes arrays; else it
            means the transform of the other library.

    """

    name: str
    libraries: Libraries
    make: Callable[..., Operation | Parsed]
    summary: str = ""
    fields: Mapping[str, Argument] = field(default_factory=dict)
    fixed: Mapping[str, Any] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    differs: str = ""
    magnitude: str = ""
    of_arrays: bool = False

    @cached_property
    def arguments(self) -> Mapping[str, Argument]:
        """The arguments in order; the one named `ANY` stands for all others."""
        if self.summary:
            return self.fields
        # A function declares its arguments by its signature.
        hints = get_type_hints(self.make, include_extras=True)
        found = {}
        for name, parameter in inspect.signature(self.make).parameters.items():
            read = _reader(hints[name])
            if parameter.kind is parameter.VAR_KEYWORD:
                found[ANY] = Argument(read, REQUIRED)
            else:
                default = parameter.default
                if default is parameter.empty:
                    default = REQUIRED
                found[name] = Argument(read, default)
        return found

    def argument(self, name: str) -> Argument:
        """Return how an argument that the name takes is read."""
        return self.arguments.get(name) or self.arguments[ANY]

    def takes(self, argument: object) -> bool:
        """Return whether the name has an argument."""
        known = argument in self.arguments or ANY in self.arguments
        return isinstance(argument, str) and known


def _reader(hint: Any) -> Reader:
    """Return the reader of a type hint such as ``Annotated[float, reader] | None``."""
    for each in (hint, *get_args(hint)):
        # `Annotated[...] | None` allows None, which is not read then.
        if get_origin(each) is Annotated:
            read: Reader = each.__metadata__[0]
            return read if each is hint else optional(read)
    return read_as_given


# Readers of one name
# --------------------------------------------------------------------------------------------------


def _read_factor(value: Any, name: str) -> Range:
    """Read two factors, or one number x for the range from 1 - x, but at least 0, to 1 + x."""
    if is_list(value):
        return read_pair(value, name)
    amount = read_number(value, name)
    if amount < 0:
        raise CallError(f"{name} must not be negative, got {shown(value)}")
    return max(0.0, 1 - amount), 1 + amount


def _read_hue(value: Any, name: str) -> Range:
    """Read two shifts, or one number x for the range from -x to x."""
    if is_list(value):
        return read_pair(value, name)
    amount = read_number(value, name)
    if not 0 <= amount <= 0.5:
        raise CallError(
            "hue must be a number from 0 to 0.5, or two numbers from -0.5 to 0.5, got"
            f" {shown(value)}"
        )
    return -amount, amount


def _read_jitter_probability(value: Any, name: str) -> float:
    """Read PaddleClas's ``prob``: above 1 is always."""
    probability = read_number(value, name)
    if probability < 0:
        raise CallError(f"{name} must not be negative, got {shown(value)}")
    return min(probability, 1.0)


def _read_window(value: Any, name: str) -> Size:
    """Read the height and width of a kernel, which are odd."""
    window = read_width_height(value, name)
    # OpenCV and torchvision center a kernel on a pixel.
    if not all(side % 2 for side in window):
        raise CallError(f"{name} must be odd, got {shown(value)}")
    return window


def _read_budgets(value: Any, name: str) -> Any:
    """Read a number of tokens, several, or none."""
    return tuple(value) if is_list(value) else value


def _read_flip_code(value: Any, name: str) -> str:
    axes = {1: "horizontal", 0: "vertical", -1: "both"}
    if value not in (-1, 0, 1):
        raise CallError(f"{name} must be 1, 0 or -1, got {shown(value)}")
    return axes[value]


def do_nothing() -> Parsed:
    """Yield nothing, for names that convert to what images already are."""
    yield from ()


# The table
# --------------------------------------------------------------------------------------------------

# The libraries of most rows.
_TORCHVISION: Libraries = ("torchvision",)
_PADDLECLAS: Libraries = ("PaddleClas",)
_BOTH: Libraries = ("torchvision", "PaddleClas")
_LOADERS: Libraries = ("loaders",)

# Arguments that several names have.
_SIZE = Argument(read_height_width, REQUIRED)
_WIDTH_HEIGHT = Argument(read_width_height, REQUIRED, "size")
_P = Argument(read_probability, 0.5, "probability")
_FILL = Argument(read_fill, 0)
_WARP = Argument(read_warp_filter, "bilinear", "filter")
_FACTOR = Argument(_read_factor, 0)
_JITTER = {
    "brightness": _FACTOR,
    "contrast": _FACTOR,
    "saturation": _FACTOR,
    "hue": Argument(_read_hue, 0),
}
_CLASSES = Argument(optional(checked(check_int, 1, MAX_CLASSES)), None, "classes")

# Differences that several names have.
_CROPS_DIFFER = (
    "A batch is [B, crops, C, H, W]. Only ToTensor, Normalize and functions of the batch may"
    " follow."
)
_PADDED = "Images smaller than the crop are padded with zeros."
_NOTHING = "Does nothing: images are already what it converts to."
_ARRAYS = (
    "Only after DecodeImage, whose arrays PaddleClas resizes with OpenCV; without it, or with"
    f" to_np=False, the transform of torchvision. {CV2_DIFFERS}"
)
_HUE = "The hue is shifted in floating point; Pillow shifts it in bytes."
_DTYPE = "build's dtype sets the type of a batch."
_POLICY_BICUBIC = "Steps that move pixels use a bilinear filter instead of a bicubic one."


def _to_space(name: str, space: str, summary: str) -> Meaning:
    return Meaning(name, _LOADERS, ConvertColor, summary, fixed={"space": space})


def _step(name: str, step: str, summary: str, **argument: Reader) -> Meaning:
    """Return a row of a name that runs one step of a policy, with at most one argument."""
    # The step's own argument comes before the probability, as in torchvision.
    fields = {key: Argument(read, REQUIRED, "argument") for key, read in argument.items()}
    fields["p"] = Argument(read_probability, 0.5)
    return Meaning(name, _TORCHVISION, policies.one_step, summary, fields, {"name": step})


_ROWS: tuple[Meaning, ...] = (
    # Decode, convert, normalize.
    Meaning(
        "DecodeImage",
        _PADDLECLAS,
        paddleclas.decode_image,
        differs="Applies the EXIF orientation with either backend. channel_first=True is an error:"
        " build's layout sets it.",
    ),
    Meaning(
        "ToTensor",
        _BOTH,
        Rescale,
        "Scale values from 0-255 to 0-1.",
        differs="build's layout sets the layout of a batch.",
    ),
    Meaning(
        "Normalize",
        _BOTH,
        torchvision.normalize,
        differs="The position of the channels is known, so data_format changes nothing.",
    ),
    Meaning(
        "NormalizeImage",
        _PADDLECLAS,
        paddleclas.normalize_image,
        differs="The position of the channels is known, so order changes nothing. build's dtype"
        " replaces output_fp16.",
    ),
    Meaning(
        "ToCHWImage",
        _PADDLECLAS,
        do_nothing,
        "Transpose HWC to CHW.",
        differs="Does nothing: build's layout sets the layout of a batch.",
    ),
    Meaning(
        "ToImage",
        _TORCHVISION,
        do_nothing,
        "Convert an image or array to a tensor of bytes.",
        differs=_NOTHING,
    ),
    Meaning(
        "PILToTensor",
        _TORCHVISION,
        do_nothing,
        "Convert an image to a tensor of bytes.",
        differs=_NOTHING,
    ),
    Meaning(
        "ToPureTensor",
        _TORCHVISION,
        do_nothing,
        "Convert tensors of torchvision to plain ones.",
        differs=_NOTHING,
    ),
    Meaning("RGB", _TORCHVISION, do_nothing, "Convert to red, green, blue.", differs=_NOTHING),
    Meaning("Identity", _TORCHVISION, do_nothing, "Change nothing."),
    Meaning("ConvertImageDtype", _TORCHVISION, torchvision.convert_image_dtype, differs=_DTYPE),
    Meaning("ToDtype", _TORCHVISION, torchvision.to_dtype, differs=_DTYPE),
    # Crop.
    Meaning(
        "CropImage",
        _PADDLECLAS,
        Crop,
        "Crop the center, (width, height).",
        {"size": _WIDTH_HEIGHT},
        fixed={"rounding": "down"},
        differs=_PADDED,
    ),
    Meaning(
        "RandomCropImage",
        _PADDLECLAS,
        Crop,
        "Crop (width, height) at a random position.",
        {"size": _WIDTH_HEIGHT},
        fixed={"at": "random"},
        differs=_PADDED,
    ),
    Meaning(
        "RandCropImageV2",
        _PADDLECLAS,
        Crop,
        "Crop (width, height) at a random position.",
        {"size": _WIDTH_HEIGHT},
        fixed={"at": "random"},
        notes=(
            "PaddleClas can place the crop one pixel outside the image, which makes it smaller;"
            " here it never does",
        ),
    ),
    Meaning(
        "CropImageAtRatio",
        _PADDLECLAS,
        paddleclas.crop_image_at_ratio,
        differs="Bilinear is exact; the other filters follow Pillow.",
    ),
    Meaning(
        "CenterCrop",
        _BOTH,
        Crop,
        "Crop the center, (height, width).",
        {"size": Argument(read_any_size, REQUIRED)},
    ),
    Meaning(
        "FiveCrop",
        _TORCHVISION,
        MultiCrop,
        "Crop the four corners and the center, (height, width).",
        {"size": _SIZE},
        differs=_CROPS_DIFFER,
    ),
    Meaning("TenCrop", _TORCHVISION, torchvision.ten_crop, differs=_CROPS_DIFFER),
    Meaning(
        "RandomCrop",
        _TORCHVISION,
        torchvision.random_crop,
        differs='pad_if_needed needs padding_mode="constant".',
    ),
    Meaning(
        "RandCropImage",
        _PADDLECLAS,
        paddleclas.rand_crop_image,
        differs=f"{CV2_DIFFERS} progress_size is ignored.",
    ),
    Meaning(
        "RandomResizedCrop",
        _PADDLECLAS,
        paddleclas.random_resized_crop,
        differs=_ARRAYS,
        of_arrays=True,
    ),
    Meaning(
        "RandomResizedCrop",
        _TORCHVISION,
        torchvision.random_resized_crop,
        differs="If ten draws give no crop that fits, the largest one that fits is at a random"
        f" position, not centered. {TORCHVISION_DIFFERS}",
    ),
    # Resize.
    Meaning("ResizeImage", _PADDLECLAS, paddleclas.resize_image, differs=CV2_DIFFERS),
    Meaning("Resize", _PADDLECLAS, paddleclas.resize, differs=_ARRAYS, of_arrays=True),
    Meaning("Resize", _TORCHVISION, torchvision.resize, differs=TORCHVISION_DIFFERS),
    Meaning(
        "ResizeToCover",
        _LOADERS,
        ResizeKeepRatio,
        "Resize until the image covers (height, width), or the bucket; the aspect ratio stays.",
        {"size": Argument(read_any_size, REQUIRED, "target")},
    ),
    Meaning("ScaleJitter", _TORCHVISION, torchvision.scale_jitter, differs=TORCHVISION_DIFFERS),
    Meaning(
        "RandomInterpolationAugment",
        _PADDLECLAS,
        RandomDownscale,
        "Downscale an image and upscale it again, with random filters.",
        {"prob": Argument(read_as_given, REQUIRED, "probability")},
        notes=("PaddleClas also draws the area filter; here it is never drawn",),
    ),
    Meaning(
        "Patchify",
        _LOADERS,
        Patchify,
        "Resize each image to a budget of tokens and cut it into patches, for a NaFlex ViT.",
        {
            "patch": Argument(read_as_given, 16),
            "max_tokens": Argument(_read_budgets, 256),
            "position": Argument(read_as_given, "grid"),
            "dropout": Argument(read_number, 0.0),
            "row_tokens": Argument(read_as_given, None),
            "interpolation": Argument(read_as_given, "cubic", "filter"),
        },
    ),
    # Flip, rotate, pad.
    Meaning(
        "RandFlipImage",
        _PADDLECLAS,
        Flip,
        "Flip with a probability of 0.5. `flip_code` 1 swaps left and right, 0 swaps top and"
        " bottom, -1 swaps both.",
        {"flip_code": Argument(_read_flip_code, 1, "axis")},
    ),
    Meaning(
        "RandomHorizontalFlip",
        _PADDLECLAS,
        Flip,
        "Swap left and right with probability `prob`.",
        {"prob": _P},
    ),
    Meaning(
        "RandomHorizontalFlip",
        _TORCHVISION,
        Flip,
        "Swap left and right with probability `p`.",
        {"p": _P},
    ),
    Meaning(
        "RandomVerticalFlip",
        _PADDLECLAS,
        Flip,
        "Swap top and bottom with probability `prob`.",
        {"prob": _P},
        fixed={"axis": "vertical"},
    ),
    Meaning(
        "RandomVerticalFlip",
        _TORCHVISION,
        Flip,
        "Swap top and bottom with probability `p`.",
        {"p": _P},
        fixed={"axis": "vertical"},
    ),
    Meaning(
        "RandomRotation",
        _TORCHVISION,
        torchvision.random_rotation,
        differs=f"{BICUBIC_DIFFERS} expand=True is an error.",
    ),
    Meaning(
        "RandomRotation",
        _PADDLECLAS,
        paddleclas.random_rotation,
        differs=f"{BICUBIC_DIFFERS} expand and center are errors.",
    ),
    Meaning(
        "RandomRot90",
        _PADDLECLAS,
        RandomRightAngle,
        "Rotate by a random multiple of 90 degrees.",
        notes=(
            "PaddleClas also returns the rotation as random_rot90_orientation; here only the image"
            " is returned",
        ),
    ),
    Meaning("Pad", _TORCHVISION, torchvision.pad),
    Meaning(
        "Pad",
        _PADDLECLAS,
        paddleclas.pad,
        differs="padding_mode has no effect, as in PaddleClas.",
    ),
    Meaning("Pad_paddle_vision", _PADDLECLAS, torchvision.pad),
    Meaning("Padv2", _PADDLECLAS, paddleclas.pad_v2),
    # Change colors, blur.
    Meaning(
        "ColorJitter",
        _BOTH,
        ColorJitter,
        "Change brightness, contrast, saturation and hue in random order, with probability `prob`"
        " (above 1: always).",
        {"prob": Argument(_read_jitter_probability, 2, "probability"), **_JITTER},
        differs=_HUE,
    ),
    Meaning(
        "RawColorJitter",
        _PADDLECLAS,
        ColorJitter,
        "Change brightness, contrast, saturation and hue of every image in random order.",
        _JITTER,
        differs=_HUE,
    ),
    Meaning(
        "RandomGrayscale",
        _BOTH,
        RandomGrayscale,
        "Convert an image to three equal gray channels with probability `p`.",
        {"p": Argument(read_probability, 0.1, "probability")},
    ),
    Meaning(
        "Grayscale",
        _TORCHVISION,
        torchvision.grayscale,
        differs="Only num_output_channels=3 is supported.",
    ),
    Meaning(
        "PCALighting",
        _PADDLECLAS,
        PCALighting,
        "Add one random color along the principal components of ImageNet's colors.",
        notes=(
            "PaddleClas adds amounts for values from 0 to 1 to images of any range; here they are"
            " multiplied by 255 for uint8 images, as in AlexNet",
        ),
    ),
    _to_space("ToRGB", "RGB", "Convert to red, green, blue."),
    _to_space("ToBGR", "BGR", "Convert to blue, green, red."),
    _to_space("ToGray", "GRAY", "Convert to three equal gray channels."),
    _to_space(
        "ToLab",
        "LAB",
        "Convert to CIE L*a*b* (D65) in OpenCV's uint8 encoding: L * 255 / 100, a + 128, b + 128.",
    ),
    _to_space(
        "ToHSV",
        "HSV",
        "Convert to hue, saturation and value, each from 0 to 255 as in Pillow and OpenCV's"
        " ``_FULL`` conversion.",
    ),
    _to_space(
        "ToYCbCr",
        "YCbCr",
        "Convert to JPEG's Y, Cb and Cr in this order, each from 0 to 255 as in Pillow.",
    ),
    Meaning(
        "GaussianBlur",
        _TORCHVISION,
        GaussianBlur,
        "Blur with a Gaussian. `kernel_size` is one integer or (width, height), `sigma` one number"
        " or a range.",
        {
            "kernel_size": Argument(_read_window, REQUIRED, "window"),
            "sigma": Argument(read_one_or_two, (0.1, 2.0)),
        },
    ),
    Meaning(
        "BlurImage",
        _PADDLECLAS,
        RandomBlur,
        "Blur an image with probability `ratio`, by defocus or motion.",
        {
            "ratio": Argument(read_probability_text, 0.5, "probability"),
            "motion_max_ksize": Argument(checked(check_int, 6, MAX_MOTION), 12, "motion_length"),
            "motion_max_angle": Argument(
                checked(check_int, 1, MAX_MOTION_ANGLE), 45, "motion_angle"
            ),
            "gaussian_max_ksize": Argument(
                checked(check_int, 6, MAX_GAUSSIAN), 12, "gaussian_length"
            ),
        },
        notes=(
            "PaddleClas also returns blur_image, which is True for a blurred image; here only the"
            " image is returned",
            "OpenCV uses tabulated weights for Gaussians of 5 and 7 pixels; here all weights are"
            " computed, so uint8 values differ by at most 4",
        ),
    ),
    # One step of a policy.
    _step("RandomInvert", "invert", "Invert the colors with probability `p`."),
    _step(
        "RandomPosterize",
        "posterize",
        "Keep the highest `bits` bits of each value, with probability `p`.",
        bits=checked(check_int, 0, 8),
    ),
    _step(
        "RandomSolarize",
        "solarize",
        "Invert the values at or above `threshold` (0 to 255), with probability `p`.",
        threshold=checked(check_number, 0, 256),
    ),
    _step(
        "RandomAutocontrast",
        "autocontrast",
        "Stretch each channel to the full range from 0 to 255, with probability `p`.",
    ),
    _step(
        "RandomEqualize",
        "equalize",
        "Equalize the histogram of each channel, with probability `p`.",
    ),
    _step(
        "RandomAdjustSharpness",
        "sharpness",
        "Blur (factor 0), keep (1) or sharpen (2) an image, with probability `p`.",
        sharpness_factor=checked(check_number, 0, 1000),
    ),
    # Move pixels.
    Meaning("RandomAffine", _TORCHVISION, torchvision.random_affine, differs=BICUBIC_DIFFERS),
    Meaning(
        "RandomPerspective",
        _TORCHVISION,
        RandomPerspective,
        "Move each corner by up to `distortion_scale` of half the side toward the center, with"
        " probability `p`.",
        {
            "distortion_scale": Argument(read_number, 0.5, "distortion"),
            "p": _P,
            "interpolation": _WARP,
            "fill": _FILL,
        },
        differs=BICUBIC_DIFFERS,
    ),
    Meaning(
        "ElasticTransform",
        _TORCHVISION,
        Elastic,
        "Shift each pixel by smooth noise of strength `alpha`, blurred with a Gaussian of `sigma`"
        " pixels.",
        {
            "alpha": Argument(read_one_or_two, 50.0),
            "sigma": Argument(read_one_or_two, 5.0),
            "interpolation": _WARP,
            "fill": _FILL,
        },
        differs=f"{BICUBIC_DIFFERS} Slow on a CPU, where Python moves the pixels.",
    ),
    # Mask regions.
    Meaning("RandomErasing", _PADDLECLAS, paddleclas.random_erasing),
    Meaning("RandomErasing", _TORCHVISION, torchvision.random_erasing),
    Meaning(
        "Cutout",
        _PADDLECLAS,
        paddleclas.cutout,
        differs="A color as fill_value is supported; PaddleClas fails or does nothing. Squares with"
        " random colors have the side length; PaddleClas adds one pixel.",
    ),
    Meaning(
        "GridMask",
        _PADDLECLAS,
        paddleclas.grid_mask,
        differs="prob applies from the first epoch; PaddleClas increases it from 0.",
    ),
    Meaning(
        "HideAndSeek",
        _PADDLECLAS,
        HideAndSeek,
        "Set random cells of a grid to 0. The side of a cell is 16, 32, 44 or 56 pixels, or no cell"
        " is changed.",
        notes=(
            "PaddleClas swaps height and width of images that are not square; here the grid covers"
            " the whole image",
        ),
    ),
    Meaning(
        "CropWithPadding",
        _PADDLECLAS,
        paddleclas.crop_with_padding,
        differs="size and interpolation have no effect, as in PaddleClas, which does not resize"
        " either. key is an error.",
    ),
    # Mix the images of a batch.
    Meaning(
        "MixupOperator",
        _PADDLECLAS,
        Mixup,
        "Blend each image with a random partner, one weight per batch.",
        {"alpha": Argument(read_number, 1.0), "class_num": _CLASSES},
    ),
    Meaning(
        "CutmixOperator",
        _PADDLECLAS,
        Cutmix,
        "Replace a box of each image with the same box of a random partner, one box per batch.",
        {"alpha": Argument(read_number, 0.2), "class_num": _CLASSES},
    ),
    Meaning(
        "FmixOperator",
        _PADDLECLAS,
        Fmix,
        "Replace regions of random shape with a random partner's, one mask per batch.",
        {
            "alpha": Argument(read_number, 1),
            "decay_power": Argument(read_number, 3, "decay"),
            "max_soft": Argument(read_number, 0.0, "softness"),
            "reformulate": Argument(read_as_given, default=False, field="own_more"),
            "class_num": _CLASSES,
        },
    ),
    Meaning(
        "MixupCutmixHybrid",
        ("PaddleClas", "timm"),
        MixupCutmix,
        "Choose mixup or CutMix at random per batch, pair or image, and smooth the labels.",
        {
            "mixup_alpha": Argument(read_number, 1.0),
            "cutmix_alpha": Argument(read_number, 0.0),
            "cutmix_minmax": Argument(optional(read_pair), None, "cutmix_sides"),
            "prob": Argument(read_number, 1.0, "probability"),
            "switch_prob": Argument(read_number, 0.5, "cutmix_probability"),
            "mode": Argument(
                choice({"batch": "batch", "pair": "pair", "elem": "image"}), "batch", "each"
            ),
            "correct_lam": Argument(read_bool, default=True, field="correct"),
            "label_smoothing": Argument(read_number, 0.1, "smoothing"),
            "num_classes": _CLASSES,
        },
    ),
    Meaning("OpSampler", _PADDLECLAS, paddleclas.op_sampler),
    Meaning(
        "MixUp",
        _TORCHVISION,
        Mixup,
        "Blend each image with the previous image of the batch, one weight per batch.",
        {"alpha": Argument(read_as_given, 1.0), "num_classes": _CLASSES},
        fixed={"pairing": "previous"},
    ),
    Meaning(
        "CutMix",
        _TORCHVISION,
        Cutmix,
        "Replace a box of each image with the same box of the previous image of the batch, one box"
        " per batch.",
        {"alpha": Argument(read_as_given, 1.0), "num_classes": _CLASSES},
        fixed={"pairing": "previous"},
    ),
    # Policies.
    Meaning("AutoAugment", _PADDLECLAS, policies.paddleclas_auto_augment, differs=_POLICY_BICUBIC),
    Meaning("AutoAugment", _TORCHVISION, policies.auto_augment, differs=BICUBIC_DIFFERS),
    Meaning(
        "RandAugment",
        _PADDLECLAS,
        policies.paddleclas_rand_augment,
        differs=_POLICY_BICUBIC,
        magnitude="magnitude",
    ),
    Meaning(
        "RandAugment",
        _TORCHVISION,
        policies.rand_augment,
        differs=BICUBIC_DIFFERS,
        magnitude="magnitude",
    ),
    Meaning(
        "RandAugmentV2",
        _PADDLECLAS,
        policies.rand_augment_v2,
        differs="progress_magnitude is ignored.",
        magnitude="magnitude",
    ),
    Meaning(
        "RandAugmentV3",
        _PADDLECLAS,
        policies.rand_augment_v3,
        differs=_POLICY_BICUBIC,
        magnitude="magnitude",
    ),
    Meaning("RandAugmentV4", _PADDLECLAS, policies.rand_augment_v4, differs=_POLICY_BICUBIC),
    Meaning("AugMix", _PADDLECLAS, policies.paddleclas_aug_mix, magnitude="aug_severity"),
    Meaning(
        "AugMix", _TORCHVISION, policies.aug_mix, differs=BICUBIC_DIFFERS, magnitude="severity"
    ),
    Meaning(
        "TrivialAugmentWide",
        _TORCHVISION,
        policies.trivial_augment_wide,
        differs=BICUBIC_DIFFERS,
    ),
    Meaning(
        "TimmAutoAugment",
        ("PaddleClas", "timm"),
        timm.auto_augment,
        differs=f"{_POLICY_BICUBIC} config_str=None does nothing.",
        magnitude="config_str",
    ),
    # Lists of transforms, and functions.
    Meaning(
        "RandomApply",
        _TORCHVISION,
        torchvision.random_apply,
        differs="The transforms run on every image; the result is used with probability p.",
    ),
    Meaning(
        "RandomChoice",
        _TORCHVISION,
        torchvision.random_choice,
        differs="All transforms run on every image; one result is used.",
    ),
    Meaning(
        "RandomOrder",
        _TORCHVISION,
        torchvision.random_order,
        differs="All transforms run in each place; at most six are supported.",
    ),
    Meaning(
        "Lambda",
        _TORCHVISION,
        torchvision.lambda_,
        differs="The function gets the finished batch instead of one image, and must be last.",
    ),
)

_MEANINGS: dict[str, list[Meaning]] = {}
# Sorting is stable: of a name, the first row is the first meaning.
for _row in sorted(_ROWS, key=lambda row: row.name):
    _MEANINGS.setdefault(_row.name, []).append(_row)


# Which meaning
# --------------------------------------------------------------------------------------------------

#: The library of the list that is being parsed, if its names belong to one.
_OF_LIST: ContextVar[Library | None] = ContextVar("library", default=None)

#: Whether DecodeImage makes arrays of the images in the list that is being parsed.
_IN_ARRAYS: ContextVar[bool] = ContextVar("arrays", default=False)

#: The libraries whose names can mean different transforms.
_RIVALS: set[Library] = {"PaddleClas", "torchvision"}


def transform_table() -> tuple[Meaning, ...]:
    """Return every meaning of every name, sorted by name.

    The documentation's table is generated from this.
    """
    return tuple(chain.from_iterable(_MEANINGS.values()))


def known_transforms() -> tuple[str, ...]:
    """Return every name, sorted."""
    return tuple(_MEANINGS)


def is_ambiguous(name: str, arguments: Arguments) -> bool:
    """Return whether a name with arguments can be the transforms of several libraries."""
    return len(_fitting(_MEANINGS[name], arguments)) > 1


def library_of(items: Iterable[tuple[str, Arguments]]) -> Library | None:
    """Return the library to which the names of a list belong; `None` if they do not say.

    Args:
        items: names with their arguments. A name counts if only one library has it, or has it with
            these arguments.

    """
    found: set[Library] = set()
    for name, arguments in items:
        fitting = _fitting(_MEANINGS.get(name, []), arguments)
        if len(fitting) == 1:
            rivals = _RIVALS & {*fitting[0].libraries}
            # A name of both libraries says nothing.
            if len(rivals) == 1:
                found |= rivals
    if len(found) != 1:
        return None
    return found.pop()


def makes_arrays(items: Iterable[tuple[str, Arguments]]) -> bool:
    """Return whether a list has PaddleClas' DecodeImage, which makes arrays by default."""
    return any(name == "DecodeImage" and arguments.get("to_np", True) for name, arguments in items)


@contextmanager
def names_of(library: Library | None, *, arrays: bool = False) -> Iterator[None]:
    """Let names that two libraries have mean the transforms of one of them, for arrays or not."""
    with setting(_OF_LIST, library), setting(_IN_ARRAYS, arrays):
        yield


def chosen(name: str, arguments: Arguments) -> list[Meaning]:
    """Return the meanings that take the arguments: of the list's library, if it has one.

    Raises:
        CallError: the name is unknown, or no meaning takes the arguments.

    """
    if name not in _MEANINGS:
        raise CallError(f"{shown(name)} is not a known transform", hint=suggest(name, _MEANINGS))
    meanings = _MEANINGS[name]
    # The list decides only between meanings that take the arguments.
    fitting = _fitting(meanings, arguments)
    if not fitting:
        raise _unknown_argument(name, meanings, arguments)
    if not _IN_ARRAYS.get():
        fitting = [each for each in fitting if not each.of_arrays] or fitting
    return [each for each in fitting if _OF_LIST.get() in each.libraries] or fitting


def _fitting(meanings: list[Meaning], arguments: Arguments) -> list[Meaning]:
    """Return the meanings that take all arguments, and are of the library that they may name."""
    # Only names with several meanings have the argument `library`.
    names = [*arguments]
    if len(meanings) > 1 and "library" in arguments:
        meanings = [each for each in meanings if arguments["library"] in each.libraries]
        names.remove("library")
    return [each for each in meanings if all(map(each.takes, names))]


def _unknown_argument(name: str, meanings: list[Meaning], arguments: Arguments) -> CallError:
    """Return the error for an argument that no library has, or for arguments of two libraries."""
    # Of an argument of several libraries, the first library counts.
    known: dict[str, Library] = {}
    for meaning in reversed(meanings):
        known.update(dict.fromkeys(meaning.arguments, meaning.libraries[0]))
    # First arguments that no library has, then a library that the name does not have.
    several = len(meanings) > 1
    for argument in arguments:
        if argument not in known and not (several and argument == "library"):
            hint = f"{name} takes no arguments"
            if known:
                hint = suggest(argument, known, quote=False)
            return CallError(f"{name} has no argument {shown(argument)}", hint=hint)
    libraries = [each.libraries[0] for each in meanings]
    written = arguments.get("library", libraries[0])
    if written not in libraries:
        return CallError(
            f"{name}: library must be one of {', '.join(map(repr, libraries))}, got"
            f" {shown(written)}"
        )
    # Each argument is known, but no library has all of them.
    only = []
    if "library" in arguments:
        only.append(f"library is {shown(written)}")
    for argument, library in known.items():
        is_shared = all(each.takes(argument) for each in meanings)
        if argument in arguments and not is_shared and library != arguments.get("library"):
            only.append(f"{argument} is an argument of {library}")
    return CallError(
        f"{name}: {only[0]}, but {only[-1]}", hint="use the arguments of only one library"
    )
