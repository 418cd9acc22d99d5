"""Every Python example of the README runs as printed, on a small dataset."""

import re
import warnings
from pathlib import Path

import pytest
from PIL import Image

import loaders

README = Path(__file__).parents[2] / "README.md"
CONFIG = """
Arch: {name: Tiny, class_num: 7}
DataLoader:
  Train:
    dataset:
      transform_ops:
        - DecodeImage: {to_rgb: True, channel_first: False}
        - RandCropImage: {size: 224}
        - RandFlipImage: {flip_code: 1}
        - NormalizeImage: {scale: 1.0/255.0, mean: [0.485, 0.456, 0.406], std: [0.229, 0.224, 0.225], order: ''}
      batch_transform_ops:
        - OpSampler: {MixupOperator: {alpha: 0.8, prob: 0.5}, CutmixOperator: {alpha: 1.0, prob: 0.5}}
    sampler: {name: DistributedBatchSampler, batch_size: 32, drop_last: False, shuffle: True}
"""


@pytest.fixture(scope="module")
def folder(photos, dataprep, tmp_path_factory):
    folder = tmp_path_factory.mktemp("readme")
    for name in ("photos-tfrecord", "ILSVRC2012-tfrecord"):
        done = dataprep("convert", "--src", photos, "--out", folder / name, "--val-fraction", "0.1")
        assert done.returncode == 0, done.stderr
    rows = []
    for number in range(80):
        Image.new("RGB", (60, 120), (3 * number, 99, 200)).save(folder / f"{number}.png")
        rows.append(f"{number}.png,{number % 20},{number % 20},{number % 3}")
    (folder / "people.csv").write_text("\n".join(["path,label,identity,camera", *rows]))
    done = dataprep("convert", "--src", folder / "people.csv", "--out", folder / "people-tfrecord")
    assert done.returncode == 0, done.stderr
    (folder / "DeiT_tiny_patch16_224.yaml").write_text(CONFIG)
    return folder


def examples():
    return re.findall(r"```python\n(.*?)```", README.read_text(), re.DOTALL)


@pytest.mark.parametrize("number", range(len(examples())))
def test_example(folder, monkeypatch, number):
    monkeypatch.chdir(folder)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        exec(compile(examples()[number], f"README example {number}", "exec"), {"loaders": loaders})
