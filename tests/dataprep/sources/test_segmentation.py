"""Images with masks or depth maps as sources: Cityscapes, ADE20K, plain folders.

And masks that cannot be used.
"""

from __future__ import annotations

import io
import os
import shutil

import numpy as np
import pytest
from helpers.datasets import rejected_of, rows_of, shards_of
from helpers.pictures import encode
from helpers.rows import evaluate, read_named, read_rows
from helpers.sources import has_notice, read, refused
from PIL import Image

from dataprep.options import Options
from dataprep.run.convert import convert_dataset
from dataprep.verification.verify import verify_dataset


def seconds(source):
    return list(zip(source.path.to_pylist(), source.extra["mask_source"].to_pylist(), strict=True))


PAIRS = read_named(__file__, "pairs")


def without_prefix(paths):
    return [path.removeprefix("ADEChallengeData2016/") for path in paths]


@pytest.mark.parametrize("name", PAIRS)
def test_masks_are_found(name, make_tree):
    images, masks, splits = PAIRS[name]
    more = ["gtFine/train/ulm/ulm_0_gtFine_instanceIds.png", "gtFine/test/x/x_gtFine_labelIds.png"]
    root = make_tree([*images, *masks, *(more if name == "cityscapes" else [])])
    source = read(root)
    expected = zip(without_prefix(images), without_prefix(masks), strict=True)
    assert seconds(source) == [*expected]
    assert (source.label_type, source.splits, source.rejected) == ("mask", splits, ())
    # Without labels, the images alone are read.
    for src in (root, shutil.make_archive(f"{root.parent}/photos", "zip", root)):
        source = read(src, label_type="none")
        paths = [path.removeprefix("photos.zip/") for path in source.path.to_pylist()]
        assert sorted(without_prefix(paths)) == sorted(without_prefix(images))
        assert (source.splits, source.label_type) == (splits, "none")
        assert has_notice(source, "which belongs to the images in")


def test_names_of_classes(make_tree):
    images, masks, _ = PAIRS["cityscapes"]
    source = read(make_tree([*images, *masks]))
    assert (source.classes[7], source.classes[33], len(source.classes)) == ("road", "bicycle", 34)
    train_ids = [name.replace("labelIds", "labelTrainIds") for name in masks]
    source = read(make_tree([*images, *masks, *train_ids]))
    assert [second for _, second in seconds(source)] == train_ids
    assert (source.classes[0], len(source.classes)) == ("road", 19)
    shutil.rmtree(source.root)
    head, row = "Idx\tRatio\tTrain\tVal\tStuff\tName\n", "0.1\t1\t1\t1"
    table = f"{head}1\t{row}\twall\n2\t{row}\tbuilding, edifice\n"
    images, masks, _ = PAIRS["ade20k"]
    files = {**dict.fromkeys([*images, *masks], b"x"), "objectInfo150.txt": table}
    assert read(make_tree(files)).classes == ("other", "wall", "building")


def test_images_without_masks_and_masks_without_images(make_tree):
    source = read(make_tree(["images/1.jpg", "images/2.jpg", "masks/1.png", "masks/3.png"]))
    assert seconds(source) == [("images/1.jpg", "masks/1.png")]
    assert has_notice(source, "skipped 1 file in masks/ that belongs to no image: masks/3.png")
    (rejected,) = source.rejected
    assert rejected == {
        "source": "images/2.jpg",
        "reason": "bad-label",
        "detail": "it has no mask: masks/ has no file of the name 2",
    }


@pytest.mark.parametrize(("row", "notice"), read_rows(__file__, "notices"))
def test_what_is_left_out_is_said(row, notice, make_tree):
    """The first two files are a pair."""
    files = evaluate(row)
    source = read(make_tree(files))
    assert (seconds(source), source.splits) == ([(files[0], files[1])], ("train",))
    assert has_notice(source, notice)


MIXED = [*("train/images/1.jpg", "train/masks/1.png", "train/depth/1.png")]
MIXED += ["val/images/2.jpg", "val/depth/2.png"]
CITY = "leftImg8bit/train/ulm/u_leftImg8bit.png"


@pytest.mark.parametrize(("row", "message"), read_rows(__file__, "refused"))
def test_folders_that_do_not_fit_are_refused(row, message, make_tree):
    files, label_type = evaluate(row, globals())
    refused(make_tree(files), message, label_type=label_type)


# Content
# --------------------------------------------------------------------------------------------------

SIZE = (40, 30)


def save(folder, name, image, **options):
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    image.save(path, **options)


def convert(folder, fmt="tfrecord"):
    """Convert a source; return the stored masks by the name of their image, and rejected images."""
    out = folder / fmt
    convert_dataset(read(folder / "src"), str(out), Options(fmt=fmt))
    assert not verify_dataset(str(out)).problems
    found, rejected = {}, {}
    (shard,) = shards_of(out)
    for row in rows_of(out):
        start = row["mask_offset"]
        data = shard.read_bytes()[start : start + row["mask_size"]]
        with Image.open(io.BytesIO(data)) as image:
            found[os.path.basename(row["source"])] = image.mode, np.asarray(image)
    for row in rejected_of(out) if (out / "rejected.jsonl").exists() else ():
        rejected[os.path.basename(row["source"])] = row["reason"], row["detail"]
    return found, rejected


def test_class_numbers_of_all_kinds_of_png_are_kept(tmp_path):
    numbers = np.random.default_rng(0).integers(0, 2, SIZE[::-1]).astype(np.uint8)
    palette = Image.fromarray(numbers, "P")
    palette.putpalette([200, 10, 30, 0, 255, 9])
    kinds = {
        "gray": (Image.fromarray(numbers), {}),
        "palette": (palette, {}),
        "palette of 1 bit": (palette, {"bits": 1}),
        "1 bit": (Image.fromarray(numbers * 255).convert("1"), {}),
        "equal colors": (Image.fromarray(np.repeat(numbers[..., None], 3, 2)), {}),
        "transparency": (Image.merge("LA", [Image.fromarray(numbers)] * 2), {}),
        "interlaced": (Image.fromarray(numbers), {"interlace": 1}),
    }
    for name, (mask, options) in kinds.items():
        save(tmp_path, f"src/masks/{name}.png", mask, **options)
        save(tmp_path, f"src/images/{name}.png", Image.new("RGB", SIZE, "red"))
    for fmt in ("tfrecord", "webdataset"):
        found, _ = convert(tmp_path, fmt)
        assert {*found} == {f"{name}.png" for name in kinds}
        for name, (mode, values) in found.items():
            assert mode == "L", name
            assert (values == numbers).all(), name


#: Masks that cannot be used, the reason, and the detail.
REJECTED = read_named(__file__, "rejected", globals())


def test_masks_that_cannot_be_used_reject_their_image(tmp_path):
    masks = {name: mask for name, (mask, *_) in REJECTED.items()}
    for name, mask in {**masks, "good": Image.new("L", SIZE), "jpeg": Image.new("L", SIZE)}.items():
        save(tmp_path, f"src/masks/{name}.png", mask)
        save(tmp_path, f"src/images/{name}.png", Image.new("RGB", SIZE, "red"))
    (tmp_path / "src/masks/jpeg.png").write_bytes(encode(Image.new("L", SIZE), "jpg"))
    found, rejected = convert(tmp_path)
    assert {*found} == {"good.png"}
    for name, (_, reason, detail) in REJECTED.items():
        stored = rejected[f"{name}.png"]
        assert stored[0] == reason
        assert stored[1].startswith(f"its mask masks/{name}.png has {detail}")
    assert "is a JPEG, but masks and depths are stored as PNG" in rejected["jpeg.png"][1]


def test_depth_maps_have_16_bits(tmp_path):
    save(tmp_path, "src/depth/1.png", Image.fromarray(np.full(SIZE[::-1], 40_000, np.uint16)))
    save(tmp_path, "src/depth/2.png", Image.new("L", SIZE))
    for number in (1, 2):
        save(tmp_path, f"src/images/{number}.png", Image.new("RGB", SIZE, "red"))
    found, rejected = convert(tmp_path)
    ((_, values),) = found.values()
    assert (values == 40_000).all()
    ((_, detail),) = rejected.values()
    kind = "gray values of 8 bits, but a depth map has gray values of 16 bits"
    assert detail == f"its depth depth/2.png has {kind}"
