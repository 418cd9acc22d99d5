"""`loaders bench` and `loaders tune` on datasets of every kind of label."""

import json
from dataclasses import replace

import pytest
from helpers import annotated
from helpers.loading import convert
from helpers.object_stores import upload
from helpers.pictures import encode, photo

from loaders.bench.command import bench, make_request
from loaders.bench.measure import Method
from loaders.bench.model import load_model
from loaders.bench.remedies import find_candidates
from loaders.resolve import resolve
from manifests.errors import CallError

COLUMNS = {
    "caption": {"caption": "two birds"},
    "captions": {"captions": ["two birds", "a bird and another one"]},
    "multi-label": {"labels": ["bird", "sky"]},
    "regression": {"values": [1.5]},
}
PLACED = {"mask": annotated.make_pairs, "boxes": annotated.make_coco}


def write_table(folder, **columns):
    folder.mkdir()
    rows = []
    for number in range(6):
        (folder / f"{number}.jpg").write_bytes(encode(photo(number, 480, 360)))
        rows.append(json.dumps({"path": f"{number}.jpg", **columns}))
    (folder / "table.jsonl").write_text("\n".join(rows))
    return folder / "table.jsonl"


@pytest.mark.parametrize("kind", [*PLACED, *COLUMNS])
def test_bench(kind, tmp_path):
    source, folder = tmp_path / "source", str(tmp_path / "data")
    source = PLACED[kind](source) if kind in PLACED else write_table(source, **COLUMNS[kind])
    convert(source, folder)
    config = tmp_path / "transforms.yaml"
    config.write_text("transform_ops: [{Resize: {size: [96, 112]}}, {NormalizeImage: {}}]")
    options = {"transforms": str(config), "split": "train", "device": "cpu", "batch_size": None}
    results = bench(
        folder, **options, model=None, torchvision=False, method=Method(0.0, 1), announce=str
    )
    assert min(rate.median for rate in results.stages.values()) > 0
    local = make_request(folder, **options)
    assert len(local.fields) == 2
    assert local.fields != ("image", "label")
    url = upload(tmp_path / "data", f"memory://bucket/{tmp_path.name}")
    remote = make_request(url, **options, cache=str(tmp_path / "cache"))
    assert remote == replace(local, dataset=url, cache=remote.cache)
    resolve(remote).close()
    texts = [each.text for each in find_candidates(local, "decoding", 1.0)]
    assert bool(texts) == (kind in COLUMNS)  # images with masks or boxes keep their size
    message = f"--model resnet50 needs a class for each image, but .* of the type {kind}"
    with pytest.raises(CallError, match=message):
        load_model("resnet50", resolve(local))
