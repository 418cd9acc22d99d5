"""Masks, depth maps, boxes and captions in object stores: the same bytes as from and to a disk."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from helpers import annotated
from helpers.object_stores import files_of, upload

from dataprep.options import Options
from dataprep.run.convert import convert_dataset
from dataprep.sources import SourceOptions, read_source
from manifests.errors import CallError

pytestmark = pytest.mark.usefixtures("staging")


def make_cityscapes(folder: Path) -> None:
    for number in range(5):
        split, city = ("train", "ulm") if number < 3 else ("val", "bonn")
        name = f"{split}/{city}/{city}_{number}"
        annotated.save(folder / f"leftImg8bit/{name}_leftImg8bit.png", annotated.pictures()[number])
        annotated.save(folder / f"gtFine/{name}_gtFine_labelIds.png", annotated.masks()[number])


def make_ade20k(folder: Path) -> None:
    for number in range(5):
        name = f"{'training' if number < 3 else 'validation'}/{number}"
        annotated.save(folder / f"images/{name}.jpg", annotated.pictures()[number])
        annotated.save(folder / f"annotations/{name}.png", annotated.masks()[number])
    (folder / "objectInfo150.txt").write_text(
        "Idx\tRatio\tTrain\tVal\tStuff\tName\n1\t0.1\t1\t1\t1\twall, x\n"
    )


def make_captions(folder: Path) -> None:
    annotated.make_coco(folder)
    captions = [{"id": n, "image_id": 1000 + n % 5, "caption": f"picture {n}"} for n in range(9)]
    text = json.dumps({**annotated.coco_json(), "annotations": captions})
    (folder / "annotations/captions_train2017.json").write_text(text)


LAYOUTS: dict[str, tuple[Callable[..., object], dict[str, object], SourceOptions]] = {
    "masks": (annotated.make_pairs, {}, SourceOptions()),
    "depth": (annotated.make_pairs, {"seconds": "depth", "kind": "depth"}, SourceOptions()),
    "views": (annotated.make_views, {}, SourceOptions(pattern="{key}_{image}")),
    "cityscapes": (make_cityscapes, {}, SourceOptions()),
    "ade20k": (make_ade20k, {}, SourceOptions()),
    "coco": (annotated.make_coco, {"splits": ("train2017", "val2017")}, SourceOptions()),
    "captions": (make_captions, {}, SourceOptions(label_type="captions")),
    "voc boxes": (annotated.make_voc, {}, SourceOptions()),
    "voc masks": (annotated.make_voc, {}, SourceOptions(label_type="mask")),
}


@pytest.mark.parametrize("name", LAYOUTS)
def test_every_layout_gives_the_same_bytes(name, store, tmp_path) -> None:
    make, arguments, chosen = LAYOUTS[name]
    make(tmp_path / "source", **arguments)
    options = Options(fmt="webdataset" if " " in name else "tfrecord", shard_samples=3)
    local = read_source(str(tmp_path / "source"), chosen)
    convert_dataset(local, str(tmp_path / "out"), options, workers=1)
    remote = read_source(upload(tmp_path / "source", f"{store}/source"), chosen)
    for member in ("layout", "classes", "splits", "notices"):
        assert getattr(remote, member) == getattr(local, member)
    convert_dataset(remote, f"{store}/out", options, workers=1)
    assert files_of(f"{store}/out") == files_of(tmp_path / "out")


def test_a_missing_a_huge_and_a_replaced_mask(store, tmp_path, monkeypatch) -> None:
    annotated.make_pairs(tmp_path / "source")
    url = upload(tmp_path / "source", store)
    source = read_source(url)

    def change(name: str, text: bytes) -> None:
        store.put(name, annotated.with_text((tmp_path / "source" / name).read_bytes(), text))

    store.delete("masks/1.png")
    monkeypatch.setattr("dataprep.shards.source_image.MAX_BYTES", 90_000)
    change("masks/3.png", bytes(99_999))
    out = tmp_path / "out"
    assert convert_dataset(source, str(out), Options(), workers=1).rejected >= 2
    lines = (out / "rejected.jsonl").read_text().splitlines()
    rows = {row["source"]: row for row in map(json.loads, lines)}
    assert rows["images/1.png"]["reason"] == "unreadable"
    assert rows["images/3.png"]["reason"] == "too-large"
    assert rows["images/1.png"]["detail"].startswith("its mask masks/1.png: ")
    upload(tmp_path / "source", store)
    convert_dataset(read_source(url), str(tmp_path / "second"), Options(), workers=1)
    change("masks/0.png", b"other")
    with pytest.raises(CallError, match=r"image masks/0.png of the source was replaced since"):
        convert_dataset(read_source(url), str(tmp_path / "second"), Options(), workers=1)
