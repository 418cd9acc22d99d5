"""Names of PaddleClas whose arguments need work, and its configs. `names` lists all names."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, TypeAlias

from loaders.transforms.base import (
    MAX_BATCH_SIZE,
    MAX_CLASSES,
    check_choice,
    check_int,
    check_number,
)
from loaders.transforms.crop_resize import CropAtRatio, RandomResizedCrop, Resize
from loaders.transforms.decode_normalize import Decode, Normalize
from loaders.transforms.erasing import Cutout, GridMask, KeepPart, RandomErasing
from loaders.transforms.geometry import PAD_MODES, PadTo, Rotate
from loaders.transforms.parse.arguments import (
    Backend,
    Bool,
    Channels,
    HeightWidth,
    Library,
    Means,
    Note,
    Number,
    Pair,
    Parsed,
    Probability,
    ProbabilityText,
    Shares,
    WarpFilter,
    WidthHeight,
    checked,
    choice,
    paddleclas_filter,
    read_channels,
    read_numbers,
    read_operator,
    read_width_height,
)
from loaders.transforms.parse.torchvision import mix_one_of, read_padding, read_rotation, resize_to
from manifests.errors import CallError
from manifests.process.text import printable, shown, suggest
from manifests.yaml_file import load_yaml


def decode_image(
    to_np: Bool = True, to_rgb: Bool = True, channel_first: Bool = False, backend: Backend = "cv2"
) -> Parsed:
    """Decode an image; with ``to_rgb=False`` the channels stay blue, green, red."""
    if channel_first:
        raise CallError(
            "channel_first=True is not supported",
            hint='remove it, and set layout="NCHW" or "NHWC" in loaders.build',
        )
    yield Decode("RGB" if to_rgb or not to_np else "BGR")


def normalize_image(
    scale: Number | None = None,
    mean: Means | None = None,
    std: Means | None = None,
    order: str = "chw",
    output_fp16: Bool = False,
    channel_num: int = 3,
) -> Parsed:
    """Multiply by `scale`, subtract `mean` and divide by `std`.

    PaddleClas needs `order` to find the channel axis of its array: ``"hwc"`` or ``""`` before
    ToCHWImage, ``"chw"`` after it. It fails if `order` is wrong.
    """
    check_choice("order", order, ("chw", "hwc", ""))
    if channel_num not in (3, 4):
        raise CallError(f"channel_num must be 3 or 4, got {shown(channel_num)}")
    yield Normalize(
        mean or (0.485, 0.456, 0.406),
        std or (0.229, 0.224, 0.225),
        scale=1 / 255 if scale is None else scale,
        channels=channel_num,
    )
    if output_fp16:
        yield Note(
            "output_fp16 is ignored: build's dtype sets the type of a batch, float16 by default"
        )


# Crops and sizes
# --------------------------------------------------------------------------------------------------


def crop_image_at_ratio(size: int, pad: int, interpolation: str = "bilinear") -> Parsed:
    """Crop a centered square of size / (size + pad) of the shorter side, and resize it to `size`."""
    filter_, _, notes = paddleclas_filter(interpolation, "cv2")
    check_int("size", size, 1)
    check_number("pad", pad, 0)
    yield CropAtRatio(size, size / (size + pad), filter_)
    yield from notes


def rand_crop_image(
    size: WidthHeight,
    progress_size: Any = None,
    scale: Shares | None = None,
    ratio: Pair | None = None,
    interpolation: str | None = None,
    use_log_aspect: Bool = False,
    backend: Backend = "cv2",
) -> Parsed:
    """Crop a random region and resize it to (width, height)."""
    filter_, antialias, notes = paddleclas_filter(interpolation, backend)
    yield RandomResizedCrop(
        size,
        area=scale or (0.08, 1.0),
        ratio=ratio or (3 / 4, 4 / 3),
        sampling="bounded",
        log_ratio=use_log_aspect,
        filter=filter_,
        antialias=antialias,
    )
    yield from notes
    if progress_size is not None:
        yield Note("progress_size is ignored: build one loader per size")


def resize(size: Any, interpolation: str = "bilinear") -> Parsed:
    """Resize the shorter side to an integer, or resize to (height, width), with OpenCV."""
    filter_, antialias, notes = paddleclas_filter(interpolation, "cv2")
    filters: Any = {"filter": filter_, "antialias": antialias}
    yield resize_to(size, filters)
    yield from notes


def random_resized_crop(
    size: HeightWidth,
    scale: Shares = (0.08, 1.0),
    ratio: Pair = (3 / 4, 4 / 3),
    interpolation: str = "bilinear",
) -> Parsed:
    """Crop a random region and resize it to (height, width), with OpenCV."""
    filter_, antialias, notes = paddleclas_filter(interpolation, "cv2")
    yield RandomResizedCrop(size, area=scale, ratio=ratio, filter=filter_, antialias=antialias)
    yield from notes


def resize_image(
    size: Any = None,
    resize_short: int | None = None,
    interpolation: str | None = None,
    backend: Backend = "cv2",
    return_numpy: Bool = True,
) -> Parsed:
    """Resize to (width, height), or resize the shorter side to `resize_short`."""
    filter_, antialias, notes = paddleclas_filter(interpolation, backend)
    filters: Any = {"filter": filter_, "antialias": antialias}
    if resize_short is not None:
        check_number("resize_short", resize_short)
    if resize_short is not None and resize_short > 0:
        yield Resize(shorter=resize_short, rounding="nearest", **filters)
    elif size is not None:
        yield Resize(read_width_height(size), **filters)
    else:
        raise CallError(
            "size or resize_short is required", hint="write {'ResizeImage': {'size': ...}}"
        )
    yield from notes


def pad(
    padding: Any, fill: Any = 0, padding_mode: str = "constant", backend: Backend = "pil"
) -> Parsed:
    """Pad with a constant, whatever `padding_mode` is."""
    check_choice("padding_mode", padding_mode, PAD_MODES)
    yield read_padding(padding, fill, "constant")
    if padding_mode != "constant":
        yield Note("padding_mode has no effect, as in PaddleClas, which pads with a constant")


def pad_v2(
    size: WidthHeight | None = None,
    size_divisor: int = 32,
    pad_mode: int = 0,
    offsets: Annotated[Any, read_width_height] | None = None,
    fill_value: Channels = (127.5, 127.5, 127.5),
) -> Parsed:
    """Pad to (width, height).

    `pad_mode` 0 pads right and bottom, 1 all sides, 2 left and top, -1 uses `offsets`.
    """
    if pad_mode not in (-1, 0, 1, 2):
        raise CallError(f"pad_mode must be one of -1, 0, 1, 2, got {shown(pad_mode)}")
    if pad_mode == -1 and offsets is None:
        raise CallError(
            "pad_mode=-1 needs offsets", hint="set offsets to [left, top], or use another pad_mode"
        )
    at: Any = {-1: offsets, 0: "start", 1: "center", 2: "end"}[pad_mode]
    yield PadTo(size, size_divisor, at, fill_value)


def random_rotation(
    degrees: Any,
    prob: Probability = 0.5,
    interpolation: WarpFilter = "nearest",
    expand: Bool = False,
    center: Any = None,
    fill: Any = 0,
) -> Parsed:
    """Rotate with probability `prob` by an angle between -degrees and degrees, or between two angles."""
    if center is not None:
        raise CallError(
            "center is not supported", hint="remove it; images always rotate around their center"
        )
    yield Rotate(**read_rotation(degrees, prob, interpolation, expand, fill))


# Masks
# --------------------------------------------------------------------------------------------------

_FillMode: TypeAlias = Annotated[
    Any, choice({"const": "constant", "rand": "color", "pixel": "pixels"})
]


def random_erasing(
    EPSILON: ProbabilityText = 0.5,
    sl: Number = 0.02,
    sh: Number = 0.4,
    r1: Number = 0.3,
    mean: Any = (0, 0, 0),
    attempt: int = 100,
    *,
    use_log_aspect: Bool = False,
    mode: _FillMode = "const",
) -> Parsed:
    """Erase a random rectangle with probability `EPSILON`."""
    if r1 <= 0:
        raise CallError(f"r1 must be above 0, got {r1:g}")
    yield RandomErasing(
        probability=EPSILON,
        area=(sl, sh),
        ratio=(min(r1, 1 / r1), max(r1, 1 / r1)),
        log_ratio=use_log_aspect,
        attempts=attempt,
        mode=mode,
        fill=read_numbers(mean, "mean"),  # type: ignore[arg-type]
    )


def cutout(n_holes: int = 1, length: int = 112, fill_value: Any = (0, 0, 0)) -> Parsed:
    """Mask squares; a `fill_value` of ``None`` or ``"none"`` draws a random color per square."""
    if fill_value is None or fill_value == "none":
        yield Cutout(n_holes, length, None)
        yield Note(
            "PaddleClas's squares extend one pixel further to the right and bottom; here their side"
            " is length"
        )
    else:
        yield Cutout(n_holes, length, read_channels(fill_value, "fill_value"))
        yield Note(
            "PaddleClas fails or does nothing if fill_value is a color; here the squares are filled"
            " with it"
        )


def grid_mask(
    d1: int = 96,
    d2: int = 224,
    rotate: int = 1,
    ratio: Number = 0.5,
    mode: int = 0,
    prob: ProbabilityText = 1.0,
) -> Parsed:
    """Set a grid to 0: its lines with mode 0, the squares between them with mode 1."""
    if mode not in (0, 1):
        raise CallError(f"mode must be 0 or 1, got {shown(mode)}")
    if not (isinstance(d1, int) and isinstance(d2, int) and 2 <= d1 < d2):
        raise CallError(
            f"d1 and d2 must be integers of at least 2 with d1 < d2, got {shown(d1)} and"
            f" {shown(d2)}"
        )
    # PaddleClas draws d with randint(d1, d2), which leaves d2 out.
    hide: Any = "lines"
    if mode:
        hide = "squares"
    yield GridMask((d1, d2 - 1), rotate, ratio, hide, prob)
    yield Note(
        "PaddleClas increases the probability with each epoch, from 0; here it is prob from the"
        " first epoch"
    )


def crop_with_padding(
    prob: ProbabilityText = 1,
    padding_num: Number = 0,
    size: HeightWidth = 224,
    scale: Shares = (0.08, 1.0),
    ratio: Pair = (3 / 4, 4 / 3),
    interpolation: str = "bilinear",
    key: Any = None,
) -> Parsed:
    """Fill everything outside a random region with `padding_num`."""
    if key is not None:
        raise CallError(f"key is not supported, got {shown(key)}", hint="remove it")
    if not isinstance(interpolation, str):
        raise CallError(f"interpolation must be a string, got {shown(interpolation)}")
    yield KeepPart(area=scale, ratio=ratio, fill=padding_num, probability=prob)


# Mixing
# --------------------------------------------------------------------------------------------------


def op_sampler(
    class_num: Annotated[int, checked(check_int, 1, MAX_CLASSES)] | None = None,
    **operators: Annotated[Any, read_operator],
) -> Parsed:
    """Run one operator per batch, each with its probability `prob`.

    The other batches are not mixed.
    """
    mixing = []
    probabilities = []
    for name, (operation, probability) in operators.items():
        if probability is None:
            yield Note(f"{name} is never run, because its prob is not set and the default is 0")
        mixing.append(operation)
        probabilities.append(probability or 0.0)
    if sum(probabilities) > 1 + 1e-9:
        raise CallError(
            f"prob of all operators must add up to at most 1, got a sum of {sum(probabilities):g}"
        )
    if mixing:
        yield mix_one_of(mixing, probabilities, class_num)
    else:
        yield Note("OpSampler has no operators, so nothing is mixed")


# Configs
# --------------------------------------------------------------------------------------------------

#: Side in pixels of PaddleClas datasets that contain only square images of one size. Their configs
#: do not set it.
_DATASET_SIDES = {"AdaFaceDataset": 112, "Cifar10": 32, "Cifar100": 32}

_TRANSFORM_KEYS = ("transform_ops", "transform")

#: Names in a message or in notes, and characters of each name in a message.
_LISTED = 50

_EXPECTED = (
    "write a list of transforms, a mapping with transform_ops, or a PaddleClas config with "
    "DataLoader.Train.dataset.transform_ops"
)


@dataclass(frozen=True, slots=True)
class Config:
    """The values that a loader reads from a YAML file.

    Values that the file does not set are ``None``.

    Attributes:
        transforms: the items of ``transform_ops``, in order, not yet parsed.
        batch_transforms: the items of ``batch_transform_ops``.
        batch_size: samples per batch and process.
        sampler: the ``sampler`` section, unchanged.
        drop_last: whether the last incomplete batch is dropped.
        shuffle: whether each epoch has its own random order.
        num_classes: number of classes of the model (``Arch.class_num`` or ``Global.class_num``).
        notes: one sentence for each key of the file that is ignored or interpreted.
        library: the library of the names, if the file is not just a list.

    """

    transforms: tuple[Any, ...]
    batch_transforms: tuple[Any, ...] = ()
    batch_size: int | None = None
    sampler: Mapping[str, Any] | None = None
    drop_last: bool | None = None
    shuffle: bool | None = None
    num_classes: int | None = None
    notes: tuple[str, ...] = ()
    library: Library | None = None


def read_config(path: str | os.PathLike[str], split: str = "train") -> Config:
    """Read a YAML file: a PaddleClas training config, one section of it, or a list of transforms.

    Args:
        path: the file.
        split: which section of a training config to use. ``"train"`` uses ``Train``, any other
            split ``Eval``. If ``Eval`` has ``Query`` and ``Gallery``, ``"gallery"`` uses
            ``Eval.Gallery`` and any other split ``Eval.Query``.

    Raises:
        CallError: the file cannot be read, is not valid YAML, or a required section is missing; the
            message names the key.

    """
    file = os.fspath(path)
    content = load_yaml(file)
    try:
        return _config(content, split)
    except CallError as error:
        raise CallError(error.message, file=file, line=error.line, hint=error.hint) from None


def _config(content: Any, split: str) -> Config:
    if isinstance(content, list):
        return Config(tuple(content))
    if not isinstance(content, dict):
        raise CallError(
            "the file contains neither a list of transforms nor a config", hint=_EXPECTED
        )
    section, notes = _find_section(content, split)
    dataset = section
    if "dataset" in section.content:
        dataset = section.mapping("dataset")
    if all(dataset.content.get(key) is None for key in _TRANSFORM_KEYS):
        raise dataset.missing("transform_ops")
    transforms = dataset.items(*_TRANSFORM_KEYS)
    name = dataset.content.get("name")
    if isinstance(name, str) and name in _DATASET_SIDES:
        side = _DATASET_SIDES[name]
        transforms = [{"CropImage": {"size": side}}, *transforms]
        notes.append(
            f"{dataset.path}.name is {name}: images are assumed to have {side} x {side} pixels"
        )
    sampler = section.section("sampler")
    notes += sampler.ignored("scales", "all batches have the size that the transforms set")
    notes += dataset.ignored("bbox_crop", "crop images to their boxes before converting them")
    return Config(
        tuple(transforms),
        batch_transforms=tuple(dataset.items("batch_transform_ops")),
        batch_size=sampler.positive_int(MAX_BATCH_SIZE, "batch_size", "first_bs"),
        sampler=section.content.get("sampler"),
        drop_last=sampler.flag("drop_last"),
        shuffle=sampler.flag("shuffle"),
        num_classes=_num_classes(content),
        notes=tuple(notes),
        library="PaddleClas",
    )


def _find_section(content: dict[Any, Any], split: str) -> tuple[_Section, list[str]]:
    """Return the section with ``dataset`` and ``sampler``, or with only the transforms, and notes."""
    top = _Section(content, "")
    if "DataLoader" in content:
        top = top.mapping("DataLoader")
    elif not {"Train", "Eval"} & set(content):
        if not {"dataset", *_TRANSFORM_KEYS} & set(content):
            raise top.missing("DataLoader", hint=_EXPECTED)
        return top, []
    notes: list[str] = []
    for name, value in top.content.items():
        if name not in ("Train", "Eval") and _has_dataset(value) and len(notes) < _LISTED:
            notes.append(f"{top.key_path(str(name))} is ignored: a loader reads one dataset")
    section = top.mapping("Train" if split == "train" else "Eval")
    if "dataset" not in section.content and {"Query", "Gallery"} & set(section.content):
        section = section.mapping("Gallery" if split == "gallery" else "Query")
    return section, notes


def _has_dataset(value: Any) -> bool:
    """Return whether a value is a section that contains a dataset at any depth."""
    return isinstance(value, dict) and any(
        key == "dataset" or _has_dataset(each) for key, each in value.items()
    )


def _num_classes(content: dict[Any, Any]) -> int | None:
    for name in ("Arch", "Global"):
        section = content.get(name)
        if isinstance(section, dict) and section.get("class_num") is not None:
            return _Section(section, name).positive_int(MAX_CLASSES, "class_num")
    return None


@dataclass(frozen=True, slots=True)
class _Section:
    """A mapping in a config, with the path of keys that leads to it."""

    content: dict[Any, Any]
    path: str

    def key_path(self, key: str) -> str:
        return f"{self.path}.{key}" if self.path else key

    def missing(self, key: str, hint: str = "") -> CallError:
        """Return the error for a key that is missing; the hint suggests a similar one."""
        names = [*map(str, self.content)]
        suggestion = suggest(key, names, quote=False)
        if suggestion.startswith("did you mean"):
            hint = suggestion
        elif not hint:
            listed = [printable(name[:_LISTED]) for name in names[:_LISTED]]
            listed += ["..."] * (len(names) > _LISTED)
            content = f"has only {', '.join(listed)}" if names else "is empty"
            hint = f"{self.path or 'the file'} {content}"
        return CallError(f"{self.key_path(key)} is missing", hint=hint)

    def mapping(self, key: str) -> _Section:
        if key not in self.content:
            raise self.missing(key)
        value = self.content[key]
        if not isinstance(value, dict):
            raise CallError(f"{self.key_path(key)} must be a mapping, got {shown(value)}")
        return _Section(value, self.key_path(key))

    def section(self, key: str) -> _Section:
        """Return a section that may be missing or empty."""
        if self.content.get(key) is None:
            return _Section({}, self.key_path(key))
        return self.mapping(key)

    def items(self, *keys: str) -> list[Any]:
        """Return the list of the first of the keys that is set; empty if none is."""
        for key in keys:
            value = self.content.get(key)
            if value is not None and not isinstance(value, list):
                raise CallError(f"{self.key_path(key)} must be a list, got {shown(value)}")
            if value is not None:
                return value
        return []

    def ignored(self, key: str, why: str) -> list[str]:
        """Return a note if a key without effect is set."""
        return [f"{self.key_path(key)} is ignored: {why}"] if self.content.get(key) else []

    def positive_int(self, most: int, *keys: str) -> int | None:
        """Return the value of the first of the keys that is set, from 1 to `most`."""
        for key in keys:
            value = self.content.get(key)
            if value is None:
                continue
            if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= most:
                raise CallError(
                    f"{self.key_path(key)} must be an integer from 1 to {most}, got {shown(value)}"
                )
            return value
        return None

    def flag(self, key: str) -> bool | None:
        value = self.content.get(key)
        if value is not None and not isinstance(value, bool):
            raise CallError(f"{self.key_path(key)} must be true or false, got {shown(value)}")
        return value
