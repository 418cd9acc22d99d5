"""PaddleClas configs: what is read from them, errors, and examples of every kind of config."""

from __future__ import annotations

import textwrap

import numpy as np
import pytest
import yaml
from helpers import handmade
from helpers.pictures import encode

from loaders.transforms.mixing import Cutmix, MixOneOf, Mixup, MixupCutmix
from loaders.transforms.parse import read_recipe
from loaders.transforms.parse.paddleclas import Config, read_config
from manifests.errors import CallError

WHOLE = """
    Global:
      class_num: 9
    Arch:
      name: ResNet50
      class_num: 7
    DataLoader:
      Train:
        dataset:
          name: ImageNetDataset
          image_root: ./images/
          transform_ops:
            - DecodeImage: {to_rgb: True, channel_first: False}
            - RandCropImage: {size: 20}
            - RandFlipImage:
                flip_code: 1
            - NormalizeImage: {scale: 1.0/255.0, order: ''}
          batch_transform_ops:
            - MixupOperator: {alpha: 0.2}
        sampler:
          name: DistributedBatchSampler
          batch_size: 64
          drop_last: True
          shuffle: True
        loader:
          num_workers: 4
      Eval:
        dataset:
          transform_ops:
            - DecodeImage:
            - CropImage: {size: 30}
            - NormalizeImage:
        sampler: {batch_size: 32, drop_last: false, shuffle: false}
"""


@pytest.fixture
def write(tmp_path):
    def write(text, name="config.yaml"):
        path = tmp_path / name
        if isinstance(text, bytes):
            path.write_bytes(text)
        else:
            path.write_text(textwrap.dedent(text), encoding="utf-8")
        return path

    return write


def assert_config_error(path, message, **options):
    """Check that reading fails with a one-line message that names the file, and return the error."""
    with pytest.raises(CallError, match=message) as caught:
        read_config(path, **options)
    assert caught.value.file == str(path)
    assert "\n" not in str(caught.value)
    return caught.value


# Reading
# --------------------------------------------------------------------------------------------------


def test_whole_config(write):
    path = write(WHOLE)
    train = read_config(path)
    assert [next(iter(each)) for each in train.transforms] == [
        "DecodeImage", "RandCropImage", "RandFlipImage", "NormalizeImage",
    ]  # fmt: skip
    assert train.transforms[1] == {"RandCropImage": {"size": 20}}
    assert train.batch_transforms == ({"MixupOperator": {"alpha": 0.2}},)
    assert (train.batch_size, train.drop_last, train.shuffle, train.num_classes) == (
        64,
        True,
        True,
        7,
    )
    assert train.sampler == {
        "name": "DistributedBatchSampler", "batch_size": 64, "drop_last": True, "shuffle": True,
    }  # fmt: skip
    assert train.notes == ()
    evaluation = read_config(str(path), "val")
    assert evaluation.transforms == (
        {"DecodeImage": None},
        {"CropImage": {"size": 30}},
        {"NormalizeImage": None},
    )
    assert evaluation.batch_transforms == ()
    assert (evaluation.batch_size, evaluation.drop_last, evaluation.shuffle) == (32, False, False)


def test_sections_of_a_config(write):
    loader = yaml.safe_load(textwrap.dedent(WHOLE))["DataLoader"]
    whole = read_config(write(WHOLE))
    for content in (loader, loader["Train"]):
        found = read_config(write(yaml.safe_dump(content), "part.yaml"))
        assert (found.transforms, found.batch_transforms) == (
            whole.transforms,
            whole.batch_transforms,
        )
        assert (found.batch_size, found.sampler) == (whole.batch_size, whole.sampler)
        assert found.num_classes is None
    found = read_config(write(yaml.safe_dump(loader["Train"]["dataset"]), "part.yaml"))
    assert (found.transforms, found.batch_transforms) == (whole.transforms, whole.batch_transforms)
    assert found.sampler is found.batch_size is found.drop_last is found.shuffle is None


def test_bare_list(write):
    text = "- ResizeImage: {size: 8}\n- ToCHWImage\n"
    config = read_config(write(text))
    assert config == Config(({"ResizeImage": {"size": 8}}, "ToCHWImage"))
    assert read_config(write(text), "val") == config


def test_class_num_of_old_configs(write):
    assert read_config(write(WHOLE.replace("      class_num: 7\n", ""))).num_classes == 9


def test_query_and_gallery(write):
    path = write("""
        DataLoader:
          Train: {dataset: {transform_ops: [{ResizeImage: {size: 8}}]}}
          Eval:
            Query: {dataset: {transform_ops: [{ResizeImage: {size: 9}}]}, sampler: {batch_size: 2}}
            Gallery: {dataset: {transform_ops: [{ResizeImage: {size: 10}}]}, sampler: {batch_size: 3}}
    """)
    for split in ("val", "query", "test"):
        query = read_config(path, split)
        assert (query.transforms, query.batch_size) == (({"ResizeImage": {"size": 9}},), 2)
    gallery = read_config(path, "gallery")
    assert (gallery.transforms, gallery.batch_size) == (({"ResizeImage": {"size": 10}},), 3)


def test_key_transform(write):
    path = write("Train: {dataset: {name: D, transform: [{Resize: {size: [8, 9]}}]}}")
    assert read_config(path).transforms == ({"Resize": {"size": [8, 9]}},)


def test_multi_scale_sampler(write):
    config = read_config(
        write("""
            Train:
              dataset: {name: MultiScaleDataset, transform_ops: [{RandCropImage: {size: 224}}]}
              sampler: {name: MultiScaleSampler, scales: [160, 192], first_bs: 500, is_training: True}
        """)
    )
    assert config.batch_size == 500
    assert config.drop_last is None
    assert config.sampler["scales"] == [160, 192]
    assert config.notes == (
        "Train.sampler.scales is ignored: all batches have the size that the transforms set",
    )


def test_ignored_keys_give_notes(write):
    config = read_config(
        write("""
            DataLoader:
              mean: [0.5, 0.5, 0.5]
              Train: {dataset: {transform_ops: [ToCHWImage], bbox_crop: True}}
              UnLabelTrain: {dataset: {transform_ops_weak: [ToCHWImage]}}
              Metalearning: {Train: {dataset: {transform_ops: [ToCHWImage]}}}
        """)
    )
    ignored = "is ignored: a loader reads one dataset"
    assert config.notes == (
        f"DataLoader.UnLabelTrain {ignored}",
        f"DataLoader.Metalearning {ignored}",
        (
            "DataLoader.Train.dataset.bbox_crop is ignored: crop images to their boxes before"
            " converting them"
        ),
    )


def test_datasets_whose_images_have_one_size(write):
    config = read_config(
        write("Eval: {dataset: {name: Cifar10, transform_ops: [NormalizeImage]}}"), "val"
    )
    assert read_recipe(config.transforms).output.size == (32, 32)
    assert config.notes == (
        "Eval.dataset.name is Cifar10: images are assumed to have 32 x 32 pixels",
    )


def test_anchors_and_merges(write):
    config = read_config(
        write("""
            shared: &normal {NormalizeImage: {order: ''}}
            base: &base {name: Sampler, batch_size: 4}
            DataLoader:
              Train:
                dataset: {transform_ops: [{ResizeImage: {size: 8}}, *normal]}
                sampler: {<<: *base, drop_last: true}
        """)
    )
    assert config.transforms == ({"ResizeImage": {"size": 8}}, {"NormalizeImage": {"order": ""}})
    assert config.sampler == {"name": "Sampler", "batch_size": 4, "drop_last": True}


def test_byte_order_mark(write):
    assert read_config(write(b"\xef\xbb\xbf- ToCHWImage\n")).transforms == ("ToCHWImage",)


# Errors
# --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "the file contains neither a list of transforms nor a config. Hint: write a list"),
        ("just words\n", "the file contains neither a list of transforms nor a config"),
        ("Arch: {class_num: 4}\n", "DataLoader is missing. Hint: write a list of transforms, a mapping with"),
        ("dataloader: {}\n", r"DataLoader is missing. Hint: did you mean dataloader\?"),
        ("transform_op: []\n", "DataLoader is missing. Hint: write a list of transforms"),
        ("DataLoader: 3\n", "DataLoader must be a mapping, got 3"),
        ("DataLoader: {}\n", "DataLoader.Train is missing. Hint: DataLoader is empty"),
        ("DataLoader: {Trains: {}}\n", r"DataLoader.Train is missing. Hint: did you mean Trains\?"),
        ("DataLoader: {Train: null}\n", "DataLoader.Train must be a mapping, got None"),
        ("DataLoader: {Train: {dataset: {transforms_op: []}}}\n", "did you mean transforms_op"),
        ("DataLoader: {Train: {dataset: {name: A}}}\n",
         "dataset.transform_ops is missing. Hint: DataLoader.Train.dataset has only name"),
        ("DataLoader: {Train: {sampler: {}}}\n",
         "DataLoader.Train.transform_ops is missing. Hint: DataLoader.Train has only sampler"),
        ("Train: {dataset: {transform_ops: {ToTensor: null}}}\n", "dataset.transform_ops must be a list"),
        ("transform_ops: []\nbatch_transform_ops: 3\n", "batch_transform_ops must be a list, got 3"),
        ("transform_ops: []\nsampler: [1]\n", r"sampler must be a mapping, got \[1\]"),
        ("transform_ops: []\nsampler: {batch_size: 0}\n",
         "sampler.batch_size must be an integer from 1 to 65536, got 0"),
        ("transform_ops: []\nsampler: {batch_size: true}\n", "sampler.batch_size must be an integer"),
        ("transform_ops: []\nsampler: {drop_last: 1}\n", "sampler.drop_last must be true or false, got 1"),
        ("transform_ops: []\nArch: {class_num: many}\n", "Arch.class_num must be an integer"),
    ],
)  # fmt: skip
def test_invalid_configs(write, text, message):
    assert assert_config_error(write(text), message).line is None


def test_eval_section_is_missing(write):
    assert_config_error(
        write("DataLoader: {Train: {dataset: {transform_ops: []}}}"),
        "DataLoader.Eval is missing",
        split="val",
    )


# Examples of configs
# -------------------------------------------------------------------------------------------------

NORMAL = (
    "{NormalizeImage: {scale: 1.0/255.0, mean: [0.485, 0.456, 0.406], std: [0.229, 0.224, 0.225],"
    " order: ''}}"
)
ERASE = (
    "{RandomErasing: {EPSILON: 0.25, sl: 0.02, sh: 1.0/3.0, r1: 0.3, attempt: 10, use_log_aspect:"
    " True, mode: pixel}}"
)
FLIP = "{RandFlipImage: {flip_code: 1}}"
DECODE = "{DecodeImage: {to_rgb: True, channel_first: False}}"
PIL = "{DecodeImage: {to_np: False, channel_first: False, backend: pil}}"
TENSOR = "{Normalize: {mean: [0.485, 0.456, 0.406], std: [0.229, 0.224, 0.225]}}"

#: Name, transforms, batch transforms, height and width, channels.
EXAMPLES = [
    ("train", [DECODE, "{RandCropImage: {size: 64}}", FLIP, NORMAL], [], (64, 64), 3),
    (
        "eval",
        [DECODE, "{ResizeImage: {resize_short: 80}}", "{CropImage: {size: 64}}", NORMAL],
        [],
        (64, 64),
        3,
    ),
    (
        "eval, then layout",
        ["DecodeImage", "{ResizeImage: {size: 64}}", NORMAL, "ToCHWImage"],
        [],
        (64, 64),
        3,
    ),
    (
        "transformer, train",
        [
            DECODE,
            "{RandCropImage: {size: 64, interpolation: bicubic, backend: pil}}",
            FLIP,
            (
                "{TimmAutoAugment: {config_str: rand-m9-mstd0.5-inc1, interpolation: bicubic,"
                " img_size: 64}}"
            ),
            NORMAL,
            ERASE,
        ],
        [
            "{OpSampler: {MixupOperator: {alpha: 0.8, prob: 0.5}, CutmixOperator: {alpha: 1.0,"
            " prob: 0.5}}}"
        ],
        (64, 64),
        3,
    ),
    (
        "transformer, eval",
        [
            DECODE,
            "{ResizeImage: {resize_short: 73, interpolation: bicubic, backend: pil}}",
            "{CropImage: {size: 64}}",
            (
                "{NormalizeImage: {scale: 1.0/255.0, mean: [0.5, 0.5, 0.5], std: [0.5, 0.5, 0.5],"
                " order: ''}}"
            ),
        ],
        [],
        (64, 64),
        3,
    ),
    (
        "convnet, modern train",
        [
            DECODE,
            "{RandCropImage: {size: 64, interpolation: random, backend: pil}}",
            FLIP,
            (
                "{TimmAutoAugment: {config_str: rand-m1-mstd0.5-inc1, interpolation: random,"
                " img_size: 64}}"
            ),
            NORMAL,
            ERASE.replace("0.25", "0.0"),
        ],
        [
            "{OpSampler: {MixupOperator: {alpha: 0.2, prob: 0.25}, CutmixOperator: {alpha: 1.0,"
            " prob: 0.25}}}"
        ],
        (64, 64),
        3,
    ),
    (
        "hybrid mixing",
        [DECODE, "{RandCropImage: {size: 64, use_log_aspect: True}}", FLIP, NORMAL],
        [
            "{MixupCutmixHybrid: {mixup_alpha: 0.8, cutmix_alpha: 1.0, switch_prob: 0.5,"
            " num_classes: 30}}"
        ],
        (64, 64),
        3,
    ),
    (
        "mixup",
        [DECODE, "{RandCropImage: {size: 64}}", FLIP, NORMAL],
        ["{MixupOperator: {alpha: 0.2}}"],
        (64, 64),
        3,
    ),
    (
        "cutmix",
        [DECODE, "{RandCropImage: {size: 64}}", NORMAL],
        ["{CutmixOperator: {alpha: 0.2}}"],
        (64, 64),
        3,
    ),
    (
        "four channels, float16",
        [
            DECODE,
            "{RandCropImage: {size: 64}}",
            (
                "{NormalizeImage: {scale: 0.00392157, mean: [0.485, 0.456, 0.406], std: [0.229,"
                " 0.224, 0.225], order: '', output_fp16: True, channel_num: 4}}"
            ),
        ],
        [],
        (64, 64),
        4,
    ),
    (
        "mean from 0 to 255",
        [
            DECODE,
            "{ResizeImage: {size: 64}}",
            (
                "{NormalizeImage: {scale: 1.0, mean: [123.675, 116.28, 103.53], std: [58.395,"
                " 57.12, 57.375], order: ''}}"
            ),
        ],
        [],
        (64, 64),
        3,
    ),
    (
        "BGR",
        [
            "{DecodeImage: {to_rgb: False, channel_first: False}}",
            "{ResizeImage: {size: 64}}",
            NORMAL,
        ],
        [],
        (64, 64),
        3,
    ),
    (
        "auto augment",
        [DECODE, "{RandCropImage: {size: 64}}", FLIP, "AutoAugment", NORMAL],
        [],
        (64, 64),
        3,
    ),
    (
        "rand augment",
        [
            DECODE,
            "{RandCropImage: {size: 64}}",
            "{RandAugment: {num_layers: 2, magnitude: 5}}",
            NORMAL,
        ],
        [],
        (64, 64),
        3,
    ),
    (
        "cutout",
        [DECODE, "{RandCropImage: {size: 64}}", NORMAL, "{Cutout: {n_holes: 1, length: 20}}"],
        [],
        (64, 64),
        3,
    ),
    (
        "grid mask",
        [
            DECODE,
            "{RandCropImage: {size: 64}}",
            "{GridMask: {d1: 20, d2: 40, rotate: 1, ratio: 0.5, mode: 0}}",
            NORMAL,
        ],
        [],
        (64, 64),
        3,
    ),
    (
        "hide and seek",
        [DECODE, "{RandCropImage: {size: 64}}", NORMAL, "HideAndSeek"],
        [],
        (64, 64),
        3,
    ),
    (
        "person attributes",
        [
            DECODE,
            "{ResizeImage: {size: [48, 64]}}",
            "{TimmAutoAugment: {prob: 0.8, config_str: rand-m9-mstd0.5-inc1, img_size: [48, 64]}}",
            "{Padv2: {size: [58, 74], pad_mode: 1, fill_value: 0}}",
            "{RandomCropImage: {size: [48, 64]}}",
            FLIP,
            NORMAL,
            ERASE.replace("0.25", "0.4"),
        ],
        [],
        (64, 48),
        3,
    ),
    (
        "text lines, wide",
        [
            DECODE,
            "{ResizeImage: {size: [96, 24]}}",
            "{TimmAutoAugment: {prob: 1.0, config_str: rand-m9-mstd0.5-inc1, img_size: [96, 24]}}",
            NORMAL,
        ],
        [],
        (24, 96),
        3,
    ),
    (
        "pedestrians",
        [
            (
                "{ResizeImage: {size: [32, 64], return_numpy: False, interpolation: bilinear,"
                " backend: pil}}"
            ),
            FLIP,
            "{Pad: {padding: 5}}",
            "{RandCropImageV2: {size: [32, 64]}}",
            "ToTensor",
            TENSOR,
            (
                "{RandomErasing: {EPSILON: 0.5, sl: 0.02, sh: 0.4, r1: 0.3, mean: [0.485, 0.456,"
                " 0.406]}}"
            ),
        ],
        [],
        (64, 32),
        3,
    ),
    (
        "pedestrians, color jitter",
        [
            (
                "{ResizeImage: {size: [32, 64], return_numpy: False, interpolation: bicubic,"
                " backend: pil}}"
            ),
            "{ColorJitter: {brightness: 0.15, contrast: 0.15, saturation: 0.1, hue: 0.1}}",
            "ToTensor",
            TENSOR,
        ],
        [],
        (64, 32),
        3,
    ),
    (
        "vehicles",
        [
            "{Resize: {size: 70}}",
            "{RandomResizedCrop: {size: 64, scale: [0.2, 1]}}",
            "{RandomHorizontalFlip: {prob: 0.5}}",
            "ToTensor",
            TENSOR,
        ],
        [],
        (64, 64),
        3,
    ),
    (
        "vehicles, query",
        ["{Resize: {size: 70}}", "{CenterCrop: {size: 64}}", "ToTensor", TENSOR],
        [],
        (64, 64),
        3,
    ),
    (
        "vehicles, AugMix",
        [
            "{ResizeImage: {size: 64}}",
            FLIP,
            "{AugMix: {prob: 0.5}}",
            NORMAL,
            "{RandomErasing: {EPSILON: 0.5}}",
        ],
        [],
        (64, 64),
        3,
    ),
    (
        "products",
        [
            PIL,
            (
                "{ResizeImage: {size: [64, 64], return_numpy: False, interpolation: bilinear,"
                " backend: cv2}}"
            ),
            FLIP,
            "{Pad: {padding: 10, backend: cv2}}",
            "{RandCropImageV2: {size: [64, 64]}}",
            "{RandomRotation: {prob: 0.3, degrees: 90, interpolation: bilinear}}",
            NORMAL,
        ],
        [],
        (64, 64),
        3,
    ),
    (
        "small images",
        [
            "{RandFlipImage: {flip_code: 1}}",
            "{Pad_paddle_vision: {padding: 4, padding_mode: reflect}}",
            "{RandCropImageV2: {size: [32, 32]}}",
            (
                "{NormalizeImage: {scale: 1.0/255.0, mean: [0.49, 0.48, 0.45], std: [0.25, 0.24,"
                " 0.26], order: hwc}}"
            ),
        ],
        [],
        (32, 32),
        3,
    ),
    (
        "multi-label",
        [
            DECODE,
            "{ResizeImage: {size: 64, interpolation: bilinear, backend: pil}}",
            "RandAugmentV4",
            "{Cutout: {length: 32, fill_value: none}}",
            FLIP,
            NORMAL,
        ],
        [],
        (64, 64),
        3,
    ),
    (
        "faces",
        [
            "{CropImage: {size: 48}}",
            (
                "{CropWithPadding: {prob: 0.2, padding_num: 0, size: [48, 48], scale: [0.2, 1.0],"
                " ratio: [0.75, 1.3333]}}"
            ),
            "{RandomInterpolationAugment: {prob: 0.2}}",
            "{ColorJitter: {prob: 0.2, brightness: 0.5, contrast: 0.5, saturation: 0.5, hue: 0}}",
            "RandomHorizontalFlip",
            "ToTensor",
            "{Normalize: {mean: [0.5, 0.5, 0.5], std: [0.5, 0.5, 0.5]}}",
        ],
        [],
        (48, 48),
        3,
    ),
    (
        "center crop at a ratio",
        [DECODE, "{CropImageAtRatio: {size: 64, pad: 6, interpolation: bilinear}}", NORMAL],
        [],
        (64, 64),
        3,
    ),
    (
        "rotation and blur",
        [DECODE, "{RandCropImage: {size: 64}}", "RandomRot90", "BlurImage", NORMAL],
        [],
        (64, 64),
        3,
    ),
]
EVERY_EXAMPLE = pytest.mark.parametrize(
    ("transforms", "batch", "size", "channels"),
    [example[1:] for example in EXAMPLES],
    ids=[example[0] for example in EXAMPLES],
)


def config_text(transforms, batch):
    lines = ["DataLoader:", "  Train:", "    dataset:", "      transform_ops:"]
    lines += [f"        - {each}" for each in transforms]
    if batch:
        lines += ["      batch_transform_ops:", *(f"        - {each}" for each in batch)]
    return "\n".join(
        [*lines, "    sampler: {name: DistributedBatchSampler, batch_size: 4, drop_last: True}"]
    )


@EVERY_EXAMPLE
def test_examples_parse(write, transforms, batch, size, channels):
    config = read_config(write(config_text(transforms, batch)))
    recipe = read_recipe(config.transforms, batch=config.batch_transforms)
    assert recipe.output.size == size
    assert recipe.output.channels == channels
    assert not recipe.output.is_uint8
    assert len(recipe.mixing) == len(batch)
    assert all(isinstance(each, (Mixup, Cutmix, MixOneOf, MixupCutmix)) for each in recipe.mixing)


@pytest.fixture(scope="module")
def dataset(tmp_path_factory):
    """Twelve noise images of different sizes, none smaller than 70 pixels."""
    rng = np.random.default_rng(0)
    samples = []
    for label in range(12):
        pixels = rng.integers(0, 256, (90 + label, 130 - 5 * label, 3), np.uint8)
        samples.append(("jpg", encode(pixels, "jpg"), label))
    return handmade.make_dataset(tmp_path_factory.mktemp("configs") / "data", "tfrecord", samples)


@EVERY_EXAMPLE
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_examples_give_batches(write, dataset, transforms, batch, size, channels):
    import loaders

    path = write(config_text(transforms, batch))
    with loaders.build(
        dataset, transforms=path, device="cpu", num_threads=2, dtype="float32"
    ) as loader:
        images, labels = next(iter(loader))
    assert images.shape == (4, channels, *size)
    assert np.isfinite(images.numpy()).all()
    if not batch:
        assert labels.shape == (4,)
    else:
        assert labels.shape == (4, 30 if "num_classes: 30" in batch[0] else 12)
        assert np.allclose(labels.numpy().sum(1), 1, atol=1e-5)


@pytest.mark.parametrize(
    ("split", "side"), [("train", 8), ("query", 16), ("val", 16), ("gallery", 24)]
)
def test_each_split_uses_its_section(write, tmp_path, split, side):
    import loaders

    path = write("""
        DataLoader:
          Train: {dataset: {transform_ops: [{ResizeImage: {size: 8}}]}, sampler: {batch_size: 2}}
          Eval:
            Query: {dataset: {transform_ops: [{ResizeImage: {size: 16}}]}, sampler: {batch_size: 3}}
            Gallery: {dataset: {transform_ops: [{ResizeImage: {size: 24}}]}, sampler: {batch_size: 4}}
    """)
    pixels = np.zeros((30, 40, 3), np.uint8)
    samples = [("jpg", encode(pixels, "jpg"), 0)] * 4
    folder = handmade.make_dataset(tmp_path / "data", "tfrecord", samples, shards=1, split=split)
    with loaders.build(
        folder, split=split, transforms=path, device="cpu", num_threads=1, dtype="uint8"
    ) as loader:
        images, _ = next(iter(loader))
    assert images.shape == (1 + side // 8, 3, side, side)
