"""The loaders whose batches, explanations and errors are recorded.

Each scenario is a function that takes a `BatchRecorder`. Its name is the name of its files in
`records/loaders/`.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from golden.batches import BatchRecorder

from loaders import (
    ClassBalancedSampler,
    PKSampler,
    RepeatedSampler,
    SequentialSampler,
    ShuffledSampler,
    SubsetSampler,
    WeightedSampler,
)
from loaders.export.command import export

Scenario = Callable[[BatchRecorder], None]

SCENARIOS: dict[str, Scenario] = {}

#: What every list of transforms ends with, so that images fit into a batch.
_TAIL = [{"Resize": {"size": [20, 20]}}]

_MEAN, _STD = [0.485, 0.456, 0.406], [0.229, 0.224, 0.225]

_TRAIN = [{"RandomResizedCrop": {"size": 20}}, "RandomHorizontalFlip"]
_NORMALIZED = [*_TRAIN, "ToTensor", {"Normalize": {"mean": _MEAN, "std": _STD}}]


def scenario(function: Scenario) -> Scenario:
    SCENARIOS[function.__name__] = function
    return function


# --- transforms ------------------------------------------------------------------------------

Arguments = dict[str, Any]


def _each(name: str, *arguments: Arguments) -> list[Any]:
    """Return a name with each of some arguments."""
    return [{name: each} for each in arguments]


#: Choose between transforms of the same name.
_PADDLECLAS, _TORCHVISION = {"library": "PaddleClas"}, {"library": "torchvision"}

_INTERPOLATIONS = ("nearest", "nearest-exact", "bilinear", "bicubic", "lanczos", "box", "hamming")

#: Transforms that are followed by a resize, by scenario.
_TRANSFORMS: dict[str, list[Any]] = {
    "sizes": [
        *_each("Resize", {"size": 18}, {"size": [30, 14]}, {"size": 18, "max_size": 24}, {"max_size": 24}),
        *_each("Resize", *({"size": [13, 17], "interpolation": each} for each in _INTERPOLATIONS)),
        *_each("Resize", *({"size": [44, 52], "interpolation": each} for each in _INTERPOLATIONS)),
        *_each("Resize", {"size": [13, 17], "antialias": False}),
        *_each("Resize", {"size": [13, 17], "interpolation": "bicubic", "antialias": False}),
        *_each("ResizeImage", {"size": 16}, {"size": [30, 14]}, {"resize_short": 18}),
        *_each("ResizeImage", {"size": 16, "interpolation": "area"}, {"size": 40, "backend": "pil"}),
        *_each("ResizeImage", {"size": 16, "interpolation": "bicubic"}),
        *_each("ResizeImage", {"size": 16, "interpolation": "lanczos"}),
        *_each("ScaleJitter", {"target_size": [20, 30]}, {"target_size": [9, 9], "antialias": False}),
        *_each("ResizeToCover", {"size": [20, 30]}),
        *_each("RandomInterpolationAugment", {"prob": 0.9}),
        *_each("RandomResizedCrop", {"size": 20}, {"size": [12, 28], "interpolation": "bicubic"}),
        *_each("RandomResizedCrop", {"size": 20, "scale": [0.5, 0.6], "ratio": [1, 1]}),
        *_each("RandomResizedCrop", {"size": 20, "antialias": False}),
        *_each("RandCropImage", {"size": 20}, {"size": 20, "scale": [0.2, 0.4], "backend": "pil"}),
        *_each("RandCropImage", {"size": 20, "use_log_aspect": True, "interpolation": "bicubic"}),
        *_each("CropImageAtRatio", {"size": 16, "pad": 4}),
        *_each("CropWithPadding", {"size": 20}, {"size": 20, "prob": 0.5, "padding_num": 9}),
    ],
    "crops": [
        *_each("CenterCrop", {"size": 16}, {"size": [9, 14]}, {"size": [28, 36]}),
        *_each("CropImage", {"size": 16}, {"size": [9, 14]}),
        *_each("RandomCrop", {"size": 16}, {"size": [12, 9]}, {"size": 20, "padding": 4}),
        *_each("RandomCrop", {"size": 24, "padding": [5, 6, 7, 8], "fill": [1, 99, 200]}),
        *_each("RandomCrop", {"size": 24, "padding": 6, "padding_mode": "reflect"}),
        *_each("RandomCrop", {"size": 24, "padding": 6, "padding_mode": "symmetric"}),
        *_each("RandomCrop", {"size": 24, "padding": 6, "padding_mode": "edge"}),
        *_each("RandomCrop", {"size": 28, "pad_if_needed": True}, {"size": 64}),
        *_each("RandCropImageV2", {"size": 14}, {"size": [9, 30]}),
        *_each("RandomCropImage", {"size": 14}, {"size": [9, 14]}),
        *_each("Pad", {"padding": 5}, {"padding": [1, 2], "fill": 9}),
        *_each("Pad", {"padding": [1, 2, 3, 4], "fill": [9, 99, 200]}),
        *_each("Pad", {"padding": 3, "padding_mode": "edge", **_TORCHVISION}),
        *_each("Pad", {"padding": 3, "padding_mode": "reflect"}),
        *_each("Pad", {"padding": 3, "padding_mode": "reflect", **_TORCHVISION}),
        *_each("Pad", {"padding": 3, "padding_mode": "reflect", **_PADDLECLAS}),
        *_each("Pad_paddle_vision", {"padding": 5}, {"padding": [1, 2, 3, 4], "fill": 7}),
        *_each("Padv2", {}, {"size": [40, 48], "pad_mode": 1}, {"size": [40, 48], "pad_mode": 2}),
        *_each("Padv2", {"size": [40, 48], "pad_mode": -1, "offsets": [3, 5], "fill_value": [1, 2, 3]}),
        *_each("RandomHorizontalFlip", {}, {"p": 1}, {"prob": 1}),
        *_each("RandomVerticalFlip", {}, {"p": 1}),
        *_each("RandFlipImage", {"flip_code": 1}, {"flip_code": 0}, {"flip_code": -1}),
        "RandomRot90",
        "Identity",
    ],
    "warps": [
        *_each("RandomRotation", {"degrees": 30}, {"degrees": [20, 40], "expand": True, "prob": 1}),
        *_each("RandomRotation", {"degrees": 30, "interpolation": "bilinear", "fill": 77, "prob": 1}),
        *_each("RandomRotation", {"degrees": 30, "center": [3, 4], "prob": 1}),
        *_each("RandomRotation", {"degrees": 30, "fill": [255, 100, 0], **_TORCHVISION}),
        *_each("RandomRotation", {"degrees": 30, "interpolation": "bilinear", **_TORCHVISION}),
        *_each("RandomRotation", {"degrees": 30, "prob": 0.5}),
        *_each("RandomAffine", {"degrees": 20}, {"degrees": 0, "translate": [0.2, 0.3]}),
        *_each("RandomAffine", {"degrees": 9, "scale": [0.5, 1.5], "shear": 20}),
        *_each("RandomAffine", {"degrees": 9, "shear": [1, 9, 2, 8], "interpolation": "bilinear"}),
        *_each("RandomAffine", {"degrees": 40, "center": [3, 4], "fill": [9, 99, 200]}),
        *_each("RandomPerspective", {}, {"p": 1, "distortion_scale": 0.8, "fill": 50}),
        *_each("RandomPerspective", {"p": 1, "interpolation": "nearest"}),
        *_each("ElasticTransform", {}, {"alpha": 100, "sigma": 3, "interpolation": "nearest"}),
    ],
    "colors": [
        *_each("ColorJitter", {"brightness": 0.5}, {"contrast": 0.5}, {"saturation": 0.9}),
        *_each("ColorJitter", {"hue": 0.3}, {"brightness": [0.2, 0.3], "contrast": [2, 3]}),
        *_each("ColorJitter", {"brightness": 0.4, "contrast": 0.4, "saturation": 0.4, "hue": 0.1}),
        *_each("ColorJitter", {"prob": 0.5, "brightness": 0.8}),
        *_each("RawColorJitter", {"brightness": 0.4, "contrast": 0.4, "saturation": 0.4, "hue": 0.1}),
        *_each("Grayscale", {}, {"num_output_channels": 1}),
        *_each("RandomGrayscale", {"p": 0.5}),
        *_each("RandomInvert", {"p": 1}, {}),
        *_each("RandomEqualize", {"p": 1}, {}),
        *_each("RandomAutocontrast", {"p": 1}, {}),
        *_each("RandomPosterize", *({"bits": bits, "p": 1} for bits in (0, 1, 4, 8))),
        *_each("RandomSolarize", {"threshold": 128, "p": 1}, {"threshold": 30}),
        *_each("RandomAdjustSharpness", *({"sharpness_factor": f, "p": 1} for f in (0, 0.5, 2, 9))),
        *_each("GaussianBlur", {"kernel_size": 3}, {"kernel_size": [5, 9], "sigma": [1, 3]}),
        *_each("GaussianBlur", {"kernel_size": 7, "sigma": 2}),
        *_each("BlurImage", {}, {"ratio": 1, "motion_max_ksize": 7}),
        "PCALighting",
        "RGB",
        "ToGray",
        "ToRGB",
        "ToBGR",
        "ToHSV",
        "ToLab",
        "ToYCbCr",
    ],
    "erasing": [
        *_each("RandomErasing", {"p": 1}, {"p": 1, "value": [9, 99, 200]}, {"p": 1, "value": "random"}),
        *_each("RandomErasing", {}, _PADDLECLAS),
        *_each("RandomErasing", {"EPSILON": 1, "sl": 0.1, "sh": 0.4, "r1": 0.3, "mode": "pixel"}),
        *_each("RandomErasing", {"EPSILON": 1, "mode": "rand"}, {"EPSILON": 1, "mode": "const"}),
        *_each("Cutout", {"length": 8}, {"n_holes": 3, "length": 5, "fill_value": [9, 99, 200]}),
        *_each("GridMask", {"d1": 6, "d2": 12}, {"d1": 6, "d2": 12, "mode": 1, "rotate": 30}),
        "HideAndSeek",
    ],
    "containers": [
        *_each("RandomApply", {"transforms": ["RandomHorizontalFlip", "ToGray"]}),
        *_each("RandomChoice", {"transforms": [{"RandomInvert": {"p": 1}}, "ToGray", "Identity"]}),
        *_each("RandomChoice", {"transforms": ["ToGray", "ToBGR"], "p": [0.9, 0.1]}),
        *_each("RandomOrder", {"transforms": [{"Pad": {"padding": 3}}, {"CenterCrop": {"size": 16}}]}),
        *_each("RandomChoice", {"transforms": [
            {"RandomOrder": {"transforms": ["ToBGR", {"RandomSolarize": {"threshold": 99, "p": 1}}]}},
            {"RandomApply": {"transforms": [{"GaussianBlur": {"kernel_size": 5}}], "p": 0.9}},
        ]}),
    ],
    "conversions": [
        "DecodeImage",
        *_each("DecodeImage", {"to_rgb": False}, {"channel_first": True}),
        "ToCHWImage",
        "ToImage",
        "ToPureTensor",
        "PILToTensor",
        "ToTensor",
        *_each("ConvertImageDtype", {}, {"dtype": "uint8"}),
        *_each("ToDtype", {"dtype": "float32"}, {"dtype": "float32", "scale": True}),
    ],
}  # fmt: skip

#: Policies, which draw from many operations: more samples in smaller images.
_POLICIES = [
    *_each("AutoAugment", {}, _PADDLECLAS, {"policy": "cifar10"}, {"policy": "svhn"}),
    *_each("AutoAugment", {"interpolation": "bilinear", "fill": 77}),
    *_each("RandAugment", {}, _PADDLECLAS, {"num_ops": 3, "magnitude": 15}, {"num_layers": 2, "magnitude": 5}),
    *_each("RandAugment", {"num_ops": 2, "interpolation": "bilinear", "fill": [9, 99, 200]}),
    *_each("RandAugmentV2", {}, {"num_layers": 3, "magnitude": 9}),
    *_each("RandAugmentV3", {}, {"num_layers": 3, "magnitude": 9, "interpolation": "nearest"}),
    "RandAugmentV4",
    *_each("TrivialAugmentWide", {}, {"num_magnitude_bins": 7, "interpolation": "bilinear"}),
    *_each("AugMix", _PADDLECLAS, {"severity": 5}, {"mixture_width": 2, "chain_depth": 2, "all_ops": False}),
    *_each("AugMix", {"aug_severity": 2}),
    *_each("TimmAutoAugment", {"img_size": 20}, {"config_str": "rand-m5-n3-inc1", "img_size": 20}),
    *_each("TimmAutoAugment", {"config_str": "original-mstd0.5"}, {"config_str": "v0"}),
    *_each("TimmAutoAugment", {"config_str": "augmix-m5-w2-d1"}, {"config_str": "3a"}),
]  # fmt: skip

#: Transforms of a batch, after a resize.
_MIXING = [
    *_each("MixUp", {}, {"alpha": 0.3, "num_classes": 7}),
    *_each("CutMix", {}, {"alpha": 0.3}),
    *_each("MixupOperator", {}, {"alpha": 0.3, "class_num": 4}),
    *_each("CutmixOperator", {}),
    *_each("FmixOperator", {}, {"alpha": 0.5, "decay_power": 2, "max_soft": 0.3}),
    *_each("MixupCutmixHybrid", {"cutmix_alpha": 1.0}, {"label_smoothing": 0}, {"mode": "elem", "cutmix_alpha": 1}),
    *_each("MixupCutmixHybrid", {"mode": "pair", "prob": 0.7, "cutmix_minmax": [0.2, 0.8]}),
    *_each("OpSampler", {"MixupOperator": {"alpha": 0.8, "prob": 0.5}, "CutmixOperator": {"alpha": 1, "prob": 0.5}}),
    *_each("RandomChoice", {"transforms": ["CutMix", "MixUp"]}),
]  # fmt: skip


def _darker(images: Any) -> Any:
    return images * 0.5


#: Whole lists: what normalizes, crops several times or calls a function.
_LISTS = [
    [*_TAIL, "ToTensor"],
    [*_TAIL, "ToTensor", {"Normalize": {"mean": _MEAN, "std": _STD}}],
    [*_TAIL, {"NormalizeImage": {}}, "ToCHWImage"],
    [*_TAIL, {"NormalizeImage": {"scale": "1.0/255.0", "mean": _MEAN, "std": _STD, "order": "hwc"}}],
    [*_TAIL, {"NormalizeImage": {"mean": _MEAN, "std": _STD}}, {"RandomErasing": {"EPSILON": 1, "mode": "pixel"}}],
    [{"DecodeImage": {"to_rgb": False}}, *_TAIL, {"Normalize": {"mean": [99, 100, 120], "std": 57, "to_rgb": True}}],
    [{"FiveCrop": {"size": 12}}, "ToTensor"],
    [{"TenCrop": {"size": [9, 14]}}],
    [{"TenCrop": {"size": 12, "vertical_flip": True}}],
    [{"NormalizeImage": {}}, {"Patchify": {"patch": 4, "max_tokens": [9, 16]}}],
    [{"Patchify": {"patch": 4, "max_tokens": 16, "dropout": 0.5, "position": "tokens"}}, "ToTensor"],
    [{"Patchify": {"patch": 4, "max_tokens": None, "row_tokens": 100}}],
    [*_TAIL, "ToTensor", {"Lambda": {"lambd": _darker}}],
    "imagenet-eval",
]  # fmt: skip


def _transforms(items: list[Any]) -> Scenario:
    def record(r: BatchRecorder) -> None:
        for item in items:
            r.batches("classes", repr(item), transforms=[item, *_TAIL])

    return record


for _name, _items in _TRANSFORMS.items():
    SCENARIOS[f"transforms_{_name}"] = _transforms(_items)


@scenario
def transforms_policies(r: BatchRecorder) -> None:
    for item in _POLICIES:
        transforms = [item, {"Resize": {"size": [12, 12]}}]
        r.batches("classes", repr(item), transforms=transforms, batch_size=20)


@scenario
def transforms_mixing(r: BatchRecorder) -> None:
    for item in _MIXING:
        r.batches("classes", repr(item), transforms=[*_TAIL, item], most=2)
    for dataset in ("multi-label", "regression"):
        fields = ("image", "labels" if dataset == "multi-label" else "values")
        for item in ("MixUp", "CutMix"):
            r.batches(dataset, f"{dataset}: {item}", transforms=[*_TAIL, item], fields=fields)


@scenario
def transforms_lists(r: BatchRecorder) -> None:
    for transforms in _LISTS:
        r.batches("classes", str(transforms), transforms=transforms, batch_size=2)


@scenario
def transforms_of_the_presets(r: BatchRecorder) -> None:
    names = ("imagenet-train", "imagenet-eval", "modern-train", "reid-train", "reid-eval")
    for name in names:
        r.explained("classes", name, transforms=name)
    views = [[{"RandomResizedCrop": {"size": 20}}], [{"RandomResizedCrop": {"size": 12}}, "ToGray"]]
    r.batches("classes", transforms=[{"RandomInvert": {"p": 0.5}}], views=views)


# --- labels, types and libraries -------------------------------------------------------------

_FIELDS = {
    "classes": ("image", "label", "index", "key", "camera", "weight", "note", "wide", "source"),
    "photographs": ("image", "label", "source", "width", "height"),
    "none": ("image", "index", "valid"),
    "multi-label": ("image", "labels", "key"),
    "regression": ("image", "values"),
    "caption": ("image", "caption"),
    "captions": ("caption", "captions", "key"),
    "boxes": ("image", "boxes", "box_labels", "box_counts"),
    "mask": ("image", "mask"),
    "depth": ("image", "depth"),
}


@scenario
def labels(r: BatchRecorder) -> None:
    for dataset, fields in _FIELDS.items():
        for sampler in (None, ShuffledSampler()):
            options = {} if sampler is None else {"sampler": sampler}
            r.batches(
                dataset, fields=fields, transforms=_TAIL, last_batch="partial", most=0, **options
            )
    for dataset in ("boxes", "mask", "depth"):
        fields = _FIELDS[dataset]
        for transforms in (
            _TRAIN,
            [{"RandomCrop": {"size": 14, "padding": 2}}],
            [{"RandomRotation": {"degrees": 90, "prob": 1}}, *_TAIL],
            [{"Pad": {"padding": 3}}, "RandomVerticalFlip", {"Resize": {"size": [13, 17]}}],
        ):
            r.batches(dataset, fields=fields, transforms=transforms)
        views = [_TAIL, [{"CenterCrop": {"size": 16}}]]
        r.batches(dataset, f"{dataset}, views", fields=fields, transforms=[], views=views)


@scenario
def formats(r: BatchRecorder) -> None:
    fields = ("image", "label", "index", "camera")
    both = ["classes", "classes of WebDataset"]
    for dataset in (*both, "pixels", both):
        for options in ({"shuffle": False}, {"shuffle": True}, {"shuffle": "buffer"}):
            r.batches(dataset, transforms=_TAIL, fields=fields, epochs=2, most=2, **options)
    mix = {"mix": [0.7, 0.3], "fields": ("image", "label", "index")}
    r.batches(["classes", "classes of WebDataset"], transforms=_TAIL, epochs=2, most=2, **mix)


@scenario
def types(r: BatchRecorder) -> None:
    for framework in ("torch", "numpy"):
        for dtype in ("float16", "bfloat16", "float32", "uint8"):
            for layout in ("NCHW", "NHWC"):
                transforms = _TRAIN if dtype == "uint8" else _NORMALIZED
                options = {"framework": framework, "dtype": dtype, "layout": layout}
                r.batches("classes", transforms=transforms, batch_size=2, **options)
    fields = ("label", "index", "valid", "camera", "weight", "wide", "note", "key")
    for framework in ("torch", "numpy"):
        given = {"framework": framework, "fields": fields, "last_batch": "pad"}
        r.batches("classes", transforms=_TAIL, most=0, **given)


# --- orders ----------------------------------------------------------------------------------

_SAMPLERS: list[dict[str, Any]] = [
    {"shuffle": False}, {"shuffle": True}, {"shuffle": "buffer"}, {"sampler": ShuffledSampler()},
    {"sampler": SequentialSampler()}, {"sampler": ClassBalancedSampler()},
    {"sampler": ClassBalancedSampler(alpha=0.5, replacement=True)},
    {"sampler": ClassBalancedSampler(beta=0.9)}, {"sampler": ClassBalancedSampler(threshold=0.2)},
    {"sampler": ClassBalancedSampler(by="camera")}, {"sampler": PKSampler(2, 2)},
    {"sampler": PKSampler(2, 2, by="camera")}, {"sampler": PKSampler(2, 2, weight="sample")},
    {"sampler": PKSampler(2, 2, across="camera")}, {"sampler": RepeatedSampler(2)},
    {"sampler": SubsetSampler(rows=[1, 3, 5, 7, 11, 13])},
    {"sampler": SubsetSampler(where="label in (1, 2)")}, {"sampler": WeightedSampler("weight")},
    {"sampler": WeightedSampler("weight", replacement=False)},
]  # fmt: skip


@scenario
def orders(r: BatchRecorder) -> None:
    """The rows of two epochs, of one rank and of each of several."""
    for options in _SAMPLERS:
        given = {"transforms": _TAIL, "fields": ("index", "valid"), **options}
        r.batches("classes", epochs=2, most=0, **given)
        # A batch of three ranks would need six identities.
        world_size = 2 if isinstance(options.get("sampler"), PKSampler) else 3
        for rank in range(world_size):
            for last_batch in ("drop", "partial", "pad"):
                ranks = {"rank": rank, "world_size": world_size, "last_batch": last_batch}
                r.batches("classes", most=0, **given, **ranks)


@scenario
def continued(r: BatchRecorder) -> None:
    """What follows a checkpoint in the middle of an epoch, and the checkpoint itself."""
    for options in ({"shuffle": False}, {"shuffle": "buffer"}, {"sampler": ShuffledSampler()}):
        given = {"transforms": _TRAIN, "fields": ("image", "index"), "batch_size": 3, **options}
        first = r.build("classes", **given)
        batches = iter(first)
        for _ in range(2):
            next(batches)
        state = first.state_dict()
        # What DALI writes depends on its version.
        known = {name: state[name] for name in state if name not in ("checkpoint", "checksum")}
        r.lines(json.dumps(known, indent=1))
        first.close()
        with r.build("classes", **given) as second:
            second.load_state_dict(state)
            for number, (image, index) in enumerate(second):
                r.value(f"{number} image", image)
                r.value(f"{number} index", index)


# --- texts -----------------------------------------------------------------------------------


@scenario
def explanations(r: BatchRecorder) -> None:
    for options in _SAMPLERS:
        r.explained("classes", transforms=_NORMALIZED, **options)
    for dataset, fields in _FIELDS.items():
        r.explained(dataset, transforms=_TAIL, fields=fields)
    for dataset in ("pixels", "classes of WebDataset", ["classes", "classes of WebDataset"]):
        r.explained(dataset, transforms=_TAIL)
    options = {"rank": 1, "world_size": 3, "last_batch": "partial", "prefetch": 3}
    r.explained("classes", transforms=[*_TAIL, "CutMix"], **options)
    r.explained("classes", transforms=[], views=[_TRAIN, _NORMALIZED], layout="NHWC")
    r.explained("classes", transforms=[{"FiveCrop": {"size": 12}}])


#: Arguments that are refused, for the dataset of classes.
_REFUSED: list[Arguments] = [
    {"batch_size": 0}, {"batch_size": 21}, {"batch_size": None}, {"split": "trian"},
    {"fields": ("imgae",)}, {"fields": ("labels",)}, {"fields": ("boxes",)},
    {"fields": ("image", "image")}, {"fields": ()}, {"device": "gpu"}, {"device": "tpu"},
    {"dtype": "int8"}, {"dtype": "bfloat16"}, {"layout": "CHW"}, {"last_batch": "keep"},
    {"framework": "keras"}, {"shuffle": "no"}, {"shuffle": True, "sampler": ShuffledSampler()},
    {"rank": 3, "world_size": 3}, {"rank": 0}, {"seed": -1}, {"num_threads": 0}, {"prefetch": 99},
    {"mix": [1, 2]}, {"revision": 7}, {"cache": "/nowhere"}, {"tuning": "missing.json"},
    {"memory_limit": "x"}, {"hw_decoder_load": 2}, {"on_error": "ignore"}, {"nonsense": 3},
    {"transform": []}, {"drop_last": 3}, {"sampler": PKSampler(3, 2)},
    {"sampler": PKSampler(2, 2, by="person")}, {"sampler": ClassBalancedSampler(by="note")},
    {"sampler": WeightedSampler("nothing")}, {"sampler": SubsetSampler(rows=[99])},
    {"sampler": SubsetSampler(where="label in (9, 10)")}, {"sampler": 3}, {"views": []},
    {"transforms": None}, {"transforms": 3}, {"transforms": "imagenet-trian"},
    {"transforms": ["CenterCorp"]}, {"transforms": ["CenterCrop"]},
    {"transforms": [{"CenterCrop": {"sze": 3}}]}, {"transforms": [{"CenterCrop": {"size": "x"}}]},
    {"transforms": [{"CenterCrop": {"size": 0}}]}, {"transforms": [{"CenterCrop": 16}]},
    {"transforms": [{"RandomCrop": {"size": 64}}]}, {"transforms": [{"FiveCrop": {"size": 64}}]},
    {"transforms": [{"Patchify": {"max_tokens": None}}]},
    {"transforms": [{"Patchify": {"dropout": 0.5}}]}, {"transforms": ["Patchify", "MixUp"]},
    {"transforms": ["Patchify"], "fields": ("image", "segments")}, {"transforms": ["ToGray"]},
    {"transforms": ["ToTensor", "ToTensor"]}, {"transforms": ["ToTensor", "RandAugment", *_TAIL]},
    {"transforms": [*_TAIL, "MixUp", "ToGray"]},
    {"transforms": [*_TAIL, {"Normalize": {"mean": [0.5], "std": [0.5]}}]},
    {"transforms": [*_TAIL, "ToTensor", {"Normalize": {"mean": _MEAN, "std": [1, 2]}}]},
    {"transforms": [*_TAIL, "ToTensor", {"Normalize": {"mean": _MEAN, "std": 0}}]},
    {"transforms": [*_TAIL, {"RandomApply": {"transforms": ["MixUp"]}}]},
    {"transforms": [{"RandomRotation": {"degrees": -3}}, *_TAIL]},
    {"transforms": [{"RandomErasing": {"p": 2}}, *_TAIL]},
    {"transforms": [{"Resize": {"size": 16, "interpolation": "cubic"}}, *_TAIL]},
    {"transforms": [{"TimmAutoAugment": {"config_str": "rnd-m9"}}, *_TAIL]},
    {"transforms": [*_TAIL, {"ToTensor": {}, "ToGray": {}}]}, {"transforms": "missing.yaml"},
]  # fmt: skip


@scenario
def errors(r: BatchRecorder) -> None:
    for options in _REFUSED:
        r.explained("classes", str(options), **{"transforms": _TAIL, **options})
    for dataset, fields in {"mask": ("image", "mask"), "boxes": ("image", "boxes")}.items():
        perspective, policy = {"RandomPerspective": {"p": 1}}, {"AutoAugment": {"policy": "svhn"}}
        for item in ("MixUp", perspective, policy, "ToGray"):
            r.explained(dataset, fields=fields, transforms=[item, *_TAIL])
    r.explained(["classes", "pixels"], transforms=_TAIL)
    r.explained(["classes", "mask"], transforms=_TAIL)
    r.explained(["classes", "photographs"], transforms=_TAIL)
    r.explained([], transforms=_TAIL)
    with r.build("classes", "methods", transforms=_TAIL) as loader:
        for title, action in {
            "set(size=0)": lambda: loader.set(size=0),
            "set(magnitude=3)": lambda: loader.set(magnitude=3),
            "set_epoch(-1)": lambda: loader.set_epoch(-1),
            "load_state_dict({})": lambda: loader.load_state_dict({}),
            "next(loader)": lambda: next(loader),
        }.items():
            r.attempt(title, action)
    r.attempt("a closed loader", lambda: iter(loader))


# --- exports ---------------------------------------------------------------------------------

_EXPORTED: dict[str, Any] = {
    "resized": [{"Resize": {"size": 20}}, {"CenterCrop": {"size": 16}}, *_NORMALIZED[2:]],
    "PaddleClas": [
        {"ResizeImage": {"resize_short": 20}}, {"CropImage": {"size": 16}},
        {"NormalizeImage": {"mean": _MEAN, "std": _STD}}, "ToCHWImage",
    ],
    "padded": [{"Resize": {"size": 18}}, {"Pad": {"padding": 3}}, {"CenterCrop": {"size": 20}}, "ToTensor"],
    "ratio": [{"CropImageAtRatio": {"size": 16, "pad": 4}}, *_NORMALIZED[2:]],
    "random": [*_TRAIN, "ToTensor"],
    "five crops": [{"FiveCrop": {"size": 12}}, "ToTensor"],
}  # fmt: skip


@scenario
def exports(r: BatchRecorder) -> None:
    pytest.importorskip("onnxruntime")
    for target in ("onnx", "triton"):
        for name, transforms in _EXPORTED.items():
            out = r.scratch / f"{target} {name}"
            folder = str(r.dataset("photographs"))
            made = r.attempt(
                f"{name} for {target}",
                lambda out=out, transforms=transforms, target=target, folder=folder: export(
                    folder, str(out), transforms=transforms, target=target, device="cpu", samples=2
                ),
            )
            if made is not None:
                r.exported(out)
