"""Masks, depth maps, boxes and captions in object stores: the same bytes as from and to a disk."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from helpers import annotated
from helpers.object_stores import upload

from dataprep.options import Options
from dataprep.run.convert import convert_dataset
from dataprep.sources import SourceOptions, read_source
from manifests.errors import CallError
from manifests.remote.store import open_store

pytestmark = pytest.mark.usefixtures("staging")


def make_cityscapes(folder: Path) -> None:
    for number, (image, mask) in enumerate(
        zip(annotated.pictures(), annotated.masks(), strict=True)
    ):
        split, city = ("train", "ulm") if number < 3 else ("val", "bonn")
        name = f"{split}/{city}/{city}_{number}"
        annotated.save(folder / f"leftImg8bit/{name}_leftImg8bit.png", image)
        annotated.save(folder / f"gtFine/{name}_gtFine_labelIds.png", mask)


def make_ade20k(folder: Path) -> None:
    for number, (image, mask) in enumerate(
        zip(annotated.pictures(), annotated.masks(), strict=True)
    ):
        part = "training" if number < 3 else "validation"
        annotated.save(folder / f"images/{part}/{number}.jpg", image)
        annotated.save(folder / f"annotations/{part}/{number}.png", mask)
    (folder / "objectInfo150.txt").write_text(
        "Idx\tRatio\tTrain\tVal\tStuff\tName\n1\t0.1\t1\t1\t1\twall, x\n"
    )


def make_captions(folder: Path) -> None:
    annotated.make_coco(folder)
    captions = [{"id": n, "image_id": 1000 + n % 5, "caption": f"picture {n}"} for n in range(9)]
    text = json.dumps({**annotated.coco_json(), "annotations": captions})
    (folder / "annotations/captions_train2017.json").write_text(text)


LAYOUTS: dict[str, tuple[Callable[[Path], object], SourceOptions]] = {
    "masks": (annotated.make_pairs, SourceOptions()),
    "depth": (
        lambda folder: annotated.make_pairs(folder, seconds="depth", kind="depth"),
        SourceOptions(),
    ),
    "views": (annotated.make_views, SourceOptions(pattern="{key}_{image}")),
    "cityscapes": (make_cityscapes, SourceOptions()),
    "ade20k": (make_ade20k, SourceOptions()),
    "coco": (lambda folder: annotated.make_coco(folder, ("train2017", "val2017")), SourceOptions()),
    "captions": (make_captions, SourceOptions(label_type="captions")),
    "voc boxes": (annotated.make_voc, SourceOptions()),
    "voc masks": (annotated.make_voc, SourceOptions(label_type="mask")),
}


@pytest.fixture(scope="module")
def sources(tmp_path_factory) -> Path:
    root = tmp_path_factory.mktemp("sources")
    for name, (make, _) in LAYOUTS.items():
        make(root / name)
    return root


def content(out: Path | str) -> dict[str, bytes]:
    if isinstance(out, Path):
        files = {path.name: path.read_bytes() for path in out.glob("[!.]*")}
    else:
        store = open_store(out)
        files = {info.name: bytes(store.get(info.name)) for info in store.list_objects()}
    machine = (".dataprep/stamps.json", ".dataprep/owner")
    return {name: data for name, data in files.items() if name not in machine}


def test_every_layout_gives_the_same_bytes(sources, store, tmp_path) -> None:
    for name, (_, chosen) in LAYOUTS.items():
        options = Options(fmt="webdataset" if " " in name else "tfrecord", shard_samples=3)
        local = read_source(str(sources / name), chosen)
        convert_dataset(local, str(tmp_path / name), options, workers=1)
        expected = content(tmp_path / name)
        url = upload(sources / name, f"{store}/{name}")
        remote = read_source(url, chosen)
        assert (remote.layout, remote.classes, remote.splits) == (
            local.layout,
            local.classes,
            local.splits,
        )
        assert remote.notices == local.notices
        out = f"{store}/out {name}"
        convert_dataset(remote, out, options, workers=1)
        assert content(out) == expected, name


def test_a_missing_a_huge_and_a_replaced_mask(store, tmp_path, monkeypatch) -> None:
    annotated.make_pairs(tmp_path / "source")
    url = upload(tmp_path / "source", str(store))
    source = read_source(url)
    store.delete("masks/1.png")
    monkeypatch.setattr("dataprep.shards.source_image.MAX_BYTES", 90_000)
    store.put(
        "masks/3.png",
        annotated.with_text((tmp_path / "source/masks/3.png").read_bytes(), bytes(99_999)),
    )
    out = tmp_path / "out"
    assert convert_dataset(source, str(out), Options(), workers=1).rejected >= 2
    rows = {
        row["source"]: row
        for row in map(json.loads, (out / "rejected.jsonl").read_text().splitlines())
    }
    assert (rows["images/1.png"]["reason"], rows["images/3.png"]["reason"]) == (
        "unreadable",
        "too-large",
    )
    assert rows["images/1.png"]["detail"].startswith("its mask masks/1.png: ")
    upload(tmp_path / "source", str(store))
    convert_dataset(read_source(url), str(tmp_path / "second"), Options(), workers=1)
    store.put(
        "masks/0.png", annotated.with_text((tmp_path / "source/masks/0.png").read_bytes(), b"other")
    )
    with pytest.raises(CallError, match=r"image masks/0.png of the source was replaced since"):
        convert_dataset(read_source(url), str(tmp_path / "second"), Options(), workers=1)
