"""PaddleClas configs: what is read from them, errors, and examples of every kind of config."""

from __future__ import annotations

import textwrap
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import yaml
from helpers import handmade
from helpers.pictures import encode
from helpers.rows import evaluate, read_rows

import loaders
from loaders.transforms.mixing import Cutmix, MixOneOf, Mixup, MixupCutmix
from loaders.transforms.parse import read_recipe
from loaders.transforms.parse.paddleclas import read_config
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
        content = text if isinstance(text, (str, bytes)) else yaml.safe_dump(text)
        path.write_bytes(
            content if isinstance(content, bytes) else textwrap.dedent(content).encode()
        )
        return path

    return write


def test_whole_config_and_its_sections(write):
    path = write(WHOLE)
    train, evaluation = read_config(path), read_config(str(path), "val")
    assert train.transforms == (
        {"DecodeImage": {"to_rgb": True, "channel_first": False}},
        {"RandCropImage": {"size": 20}},
        {"RandFlipImage": {"flip_code": 1}},
        {"NormalizeImage": {"scale": "1.0/255.0", "order": ""}},
    )
    assert train.batch_transforms == ({"MixupOperator": {"alpha": 0.2}},)
    assert (train.batch_size, train.drop_last, train.shuffle, train.num_classes) == (
        64,
        True,
        True,
        7,
    )
    sampler = {
        "name": "DistributedBatchSampler",
        "batch_size": 64,
        "drop_last": True,
        "shuffle": True,
    }
    assert train.sampler == sampler
    assert train.notes == ()
    crop = ({"DecodeImage": None}, {"CropImage": {"size": 30}}, {"NormalizeImage": None})
    assert (evaluation.transforms, evaluation.batch_transforms) == (crop, ())
    assert (evaluation.batch_size, evaluation.drop_last, evaluation.shuffle) == (32, False, False)
    loader = yaml.safe_load(textwrap.dedent(WHOLE))["DataLoader"]
    for content in (loader, loader["Train"]):
        assert read_config(write(content)) == replace(train, num_classes=None)
    found = read_config(write(loader["Train"]["dataset"]))
    assert (found.transforms, found.batch_transforms) == (train.transforms, train.batch_transforms)
    assert found.sampler is found.batch_size is found.drop_last is found.shuffle is None
    assert read_config(write(WHOLE.replace("      class_num: 7\n", ""))).num_classes == 9


def test_what_else_a_config_may_have(write):
    assert read_config(write(b"\xef\xbb\xbf- ToCHWImage\n")).transforms == ("ToCHWImage",)
    config = read_config(
        write("""
            DataLoader:
              mean: [0.5, 0.5, 0.5]
              Train: {dataset: {transform_ops: [ToCHWImage], bbox_crop: True}}
              UnLabelTrain: {dataset: {transform_ops_weak: [ToCHWImage]}}
              Metalearning: {Train: {dataset: {transform_ops: [ToCHWImage]}}}
        """)
    )
    assert config.notes == (
        "DataLoader.UnLabelTrain is ignored: a loader reads one dataset",
        "DataLoader.Metalearning is ignored: a loader reads one dataset",
        "DataLoader.Train.dataset.bbox_crop is ignored: crop images to their boxes before converting them",
    )
    # A dataset whose images have one size.
    text = "Eval: {dataset: {name: Cifar10, transform_ops: [NormalizeImage]}}"
    config = read_config(write(text), "val")
    assert read_recipe(config.transforms).output.size == (32, 32)
    note = "Eval.dataset.name is Cifar10: images are assumed to have 32 x 32 pixels"
    assert config.notes == (note,)
    # Anchors and merges.
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


@pytest.mark.parametrize(("row", "message"), read_rows(__file__, "invalid configs"))
def test_invalid_configs(write, row, message):
    path = write(evaluate(row))
    with pytest.raises(CallError, match=message) as caught:
        read_config(path)
    assert (caught.value.file, caught.value.line) == (str(path), None)
    assert "\n" not in str(caught.value)


# Examples of configs
# -------------------------------------------------------------------------------------------------

EXAMPLES = yaml.safe_load(Path(__file__).with_name("paddleclas_examples.yaml").read_text())[
    "examples"
]


@pytest.fixture(scope="module")
def dataset(tmp_path_factory):
    """Twelve noise images of different sizes, none smaller than 70 pixels."""
    rng = np.random.default_rng(0)
    samples = []
    for label in range(12):
        pixels = rng.integers(0, 256, (90 + label, 130 - 5 * label, 3), np.uint8)
        samples.append(("jpg", encode(pixels, "jpg"), label))
    return handmade.make_dataset(tmp_path_factory.mktemp("configs") / "data", "tfrecord", samples)


@pytest.mark.parametrize("example", EXAMPLES.values(), ids=EXAMPLES)
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_examples_give_batches(write, dataset, example):
    height, width, channels = example["output"]
    batch = example.get("batch", [])
    content = {"transform_ops": example["transforms"], "batch_transform_ops": batch}
    sampler = {"name": "DistributedBatchSampler", "batch_size": 4, "drop_last": True}
    path = write({"DataLoader": {"Train": {"dataset": content, "sampler": sampler}}})
    config = read_config(path)
    recipe = read_recipe(config.transforms, batch=config.batch_transforms)
    assert (recipe.output.size, recipe.output.channels) == ((height, width), channels)
    assert not recipe.output.is_uint8
    assert len(recipe.mixing) == len(batch)
    assert all(isinstance(each, (Mixup, Cutmix, MixOneOf, MixupCutmix)) for each in recipe.mixing)
    options = {"device": "cpu", "num_threads": 2, "dtype": "float32"}
    with loaders.build(dataset, transforms=path, **options) as loader:
        images, labels = next(iter(loader))
    assert images.shape == (4, channels, height, width)
    assert np.isfinite(images.numpy()).all()
    if not batch:
        assert labels.shape == (4,)
    else:
        assert labels.shape == (4, 30 if "MixupCutmixHybrid" in batch[0] else 12)
        assert np.allclose(labels.numpy().sum(1), 1, atol=1e-5)


@pytest.mark.parametrize(
    ("split", "side"), [("train", 8), ("query", 16), ("val", 16), ("gallery", 24)]
)
def test_each_split_uses_its_section(write, tmp_path, split, side):
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
