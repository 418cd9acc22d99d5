"""`loaders export --for onnx`: resize, crop and normalize decoded images as the loader does, within a level."""

import json
import sys

import numpy as np
import pytest
from helpers.exported import NORMALIZE
from helpers.exported import RECIPES as SERVED
from helpers.pictures import encode

import loaders
from loaders.export.command import export
from manifests.errors import CallError

onnx = pytest.importorskip("onnx")
onnxruntime = pytest.importorskip("onnxruntime")

#: Some of the lists that Triton gets, and what only ONNX must approximate.
RECIPES = {
    **{name: SERVED[name] for name in ("preset", "half", "bytes", "paddle", "padding", "ratio", "bgr")},
    "cubic": ([{"Resize": {"size": [50, 60], "interpolation": "bicubic"}}, NORMALIZE], {}),
    "nearest": ([{"Resize": {"size": [50, 60], "interpolation": "nearest"}}, "ToTensor"], {}),
    "odd padding": ([{"Resize": {"size": 30}}, {"Pad": {"padding": 3}}, {"CenterCrop": {"size": 63}}, "ToTensor"], {}),
    "longest": ([{"Resize": {"size": 50, "max_size": 60}}, {"CenterCrop": {"size": 64}}, NORMALIZE], {}),
}  # fmt: skip


def levels(recipe, difference):
    """Return a difference of images as levels of a pixel."""
    if recipe == "bytes":
        return difference
    if recipe in ("nearest", "padding", "odd padding"):
        return difference * 255
    std = np.array([0.229, 0.224, 0.225]) * 255
    return difference * std[:, None, None]


@pytest.fixture(scope="module")
def exported(photos, tmp_path_factory):
    out = tmp_path_factory.mktemp("onnx")
    for name, (transforms, options) in RECIPES.items():
        given = {**options, "transforms": transforms, "target": "onnx", "device": "cpu"}
        export(photos, str(out / name), samples=12, **given)
    return out


def run(model, image):
    session = onnxruntime.InferenceSession(str(model), providers=["CPUExecutionProvider"])
    return session.run(["images"], {"pixels": image})[0]


@pytest.mark.parametrize("recipe", RECIPES)
def test_images_are_those_of_the_loader(exported, photos, recipe):
    transforms, options = RECIPES[recipe]
    folder = exported / recipe
    with loaders.build(
        photos, split="train", transforms=transforms, batch_size=12, shuffle=False, device="cpu", framework="numpy",
        **{"dtype": "float32", **options},
    ) as loader:  # fmt: skip
        images, labels = next(iter(loader))
    assert np.array_equal(np.load(folder / "golden/images.npy", allow_pickle=False), images)
    assert np.array_equal(np.load(folder / "golden/labels.npy", allow_pickle=False), labels)
    pixels = [np.load(folder / f"golden/pixels-{number:03d}.npy") for number in range(12)]
    made = np.concatenate([run(folder / "model.onnx", each) for each in pixels])
    assert (made.shape, made.dtype) == (images.shape, images.dtype)
    found = levels(recipe, np.abs(made.astype(np.float64) - images.astype(np.float64)))
    recorded = json.loads((folder / "export.json").read_text())["difference from the loader"]
    assert found.max() == pytest.approx(recorded["largest"], abs=1e-4)
    assert found.mean() == pytest.approx(recorded["mean"], abs=1e-4)
    # DALI decides between two equally near pixels by the order of its additions.
    assert found.max() <= (255 if recipe == "nearest" else 1.01)
    # Half precision rounds normalized values to 1/1024 of themselves.
    assert found.mean() < {"half": 0.08, "nearest": 0.05}.get(recipe, 0.02)
    metadata = {each.key: each.value for each in onnx.load(folder / "model.onnx").metadata_props}
    assert float(metadata["difference_largest"]) == recorded["largest"]


def test_missing_library_names_the_extra(photos, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    with pytest.raises(CallError, match=r"dataprep-loaders\[onnx\]"):
        export(photos, str(tmp_path / "a"), transforms="reid-eval", target="onnx", device="cpu")


def test_a_crop_at_a_ratio_keeps_a_pixel(make_dataset, tmp_path):
    """The share of a side of one pixel is below one pixel."""
    samples = [("png", encode(np.full((1, 7, 3), 90, np.uint8), "png"), 0)] * 2
    dataset = make_dataset("tfrecord", samples, shards=1)
    options = {"transforms": [{"CropImageAtRatio": {"size": 12, "pad": 4}}, "ToTensor"]}
    written = export(dataset, str(tmp_path / "model"), target="onnx", device="cpu", **options)
    record = json.loads((tmp_path / "model/export.json").read_text())
    assert record["difference from the loader"]["largest"] < 1
    assert "at most" in written.note
