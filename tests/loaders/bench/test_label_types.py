"""`loaders bench` and `loaders tune` on datasets of every kind of label."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from helpers import annotated
from helpers.pictures import encode, photo

from dataprep.options import Options
from dataprep.run.convert import convert_dataset
from dataprep.sources import read_source
from loaders.bench.command import bench, make_request
from loaders.bench.measure import Method, close
from loaders.bench.model import load_model
from loaders.bench.remedies import find_candidates
from loaders.resolve import resolve
from manifests.errors import CallError
from manifests.remote.store import open_store

COLUMNS = {
    "caption": {"caption": "two birds"},
    "multi-label": {"labels": ["bird", "sky"]},
    "regression": {"values": [1.5]},
}


def write_table(folder, **columns):
    folder.mkdir()
    lines = []
    for number in range(6):
        (folder / f"{number}.jpg").write_bytes(encode(photo(number, 480, 360)))
        lines.append(json.dumps({"path": f"{number}.jpg", **columns}))
    (folder / "table.jsonl").write_text("\n".join(lines))
    return folder / "table.jsonl"


@pytest.fixture(params=["mask", "boxes", *COLUMNS])
def dataset(request, tmp_path):
    kind = request.param
    if kind in COLUMNS:
        source = write_table(tmp_path / "source", **COLUMNS[kind])
    else:
        source = (annotated.make_pairs if kind == "mask" else annotated.make_coco)(
            tmp_path / "source"
        )
    convert_dataset(read_source(str(source)), str(tmp_path / "data"), Options())
    return kind, str(tmp_path / "data")


def test_bench(dataset, tmp_path):
    kind, folder = dataset
    config = tmp_path / "transforms.yaml"
    config.write_text("transform_ops: [{Resize: {size: [96, 112]}}, {NormalizeImage: {}}]")
    results = bench(
        folder, transforms=str(config), split="train", batch_size=2, device="cpu", model=None, torchvision=False,
        method=Method(0.0, 1), announce=lambda _: None,
    )  # fmt: skip
    assert min(rate.median for rate in results.stages.values()) > 0
    request = make_request(
        folder, transforms=str(config), split="train", batch_size=2, device="cpu"
    )
    assert len(request.fields) == 2
    assert request.fields != ("image", "label")
    close(resolve(request))
    url = f"memory://bucket/{tmp_path.name}"
    for path in Path(folder).iterdir():
        if path.is_file():
            open_store(url).put(path.name, path.read_bytes())
    remote = make_request(
        url,
        transforms=str(config),
        split="train",
        batch_size=None,
        device="cpu",
        cache=str(tmp_path / "cache"),
    )
    local = make_request(
        folder, transforms=str(config), split="train", batch_size=None, device="cpu"
    )
    assert (remote.fields, remote.batch_size) == (local.fields, local.batch_size)
    close(resolve(remote))
    texts = [each.text for each in find_candidates(request, "decoding", 1.0)]
    assert bool(texts) == (kind in COLUMNS)  # images with masks or boxes keep their size
    with pytest.raises(
        CallError, match=f"--model resnet50 needs a class for each image, but .* of the type {kind}"
    ):
        load_model("resnet50", resolve(request))
