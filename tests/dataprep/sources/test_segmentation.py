"""Images with masks or depth maps as sources: Cityscapes, ADE20K, plain folders.

And masks that cannot be used.
"""

from __future__ import annotations

import json
import os
import shutil

import numpy as np
import pyarrow.parquet as pq
import pytest
from helpers import annotated, oracles
from helpers.pictures import encode
from helpers.sources import has_notice, read
from PIL import Image

from dataprep.options import Downscale, Options
from dataprep.run.convert import convert_dataset
from dataprep.verification.verify import verify_dataset
from manifests.errors import CallError, SourceError
from manifests.store import read_manifest


def seconds(source):
    return list(zip(source.path.to_pylist(), source.extra["mask_source"].to_pylist(), strict=True))


PAIRS = {
    "masks": (["images/1.jpg", "images/a/2.png"], ["masks/1.png", "masks/a/2.png"], ("train",)),
    "endings": (["imgs/1.jpg", "imgs/2.jpg"], ["gt/1_mask.png", "gt/2_gt.png"], ("train",)),
    "splits inside": (
        ["images/train/1.jpg", "images/val/2.jpg"],
        ["labels/train/1.png", "labels/val/2.png"],
        ("train", "val"),
    ),
    "splits around": (
        ["train/images/1.jpg", "valid/images/2.jpg"],
        ["train/masks/1.png", "valid/masks/2.png"],
        ("train", "val"),
    ),
    "pets": (["images/Abyssinian_1.jpg"], ["annotations/trimaps/Abyssinian_1.png"], ("train",)),
    "ade20k": (
        ["images/training/1.jpg", "images/validation/2.jpg"],
        ["annotations/training/1.png", "annotations/validation/2.png"],
        ("train", "val"),
    ),
    "ade20k archive": (
        ["ADEChallengeData2016/images/training/1.jpg"],
        ["ADEChallengeData2016/annotations/training/1.png"],
        ("train",),
    ),
    "cityscapes": (
        [
            "leftImg8bit/train/ulm/ulm_0_leftImg8bit.png",
            "leftImg8bit/val/bonn/bonn_1_leftImg8bit.png",
        ],
        [
            "gtFine/train/ulm/ulm_0_gtFine_labelIds.png",
            "gtFine/val/bonn/bonn_1_gtFine_labelIds.png",
        ],
        ("train", "val"),
    ),
}


@pytest.mark.parametrize("name", PAIRS)
def test_masks_are_found(name, make_tree):
    images, masks, splits = PAIRS[name]
    more = ["gtFine/train/ulm/ulm_0_gtFine_instanceIds.png", "gtFine/test/x/x_gtFine_labelIds.png"]
    source = read(make_tree([*images, *masks, *(more if name == "cityscapes" else [])]))
    prefix = "ADEChallengeData2016/" if name == "ade20k archive" else ""
    assert seconds(source) == [
        (a.removeprefix(prefix), b.removeprefix(prefix)) for a, b in zip(images, masks, strict=True)
    ]
    assert (source.label_type, source.splits, source.rejected) == ("mask", splits, ())


@pytest.mark.parametrize("archive", [False, True], ids=["folder", "archive"])
@pytest.mark.parametrize("name", PAIRS)
def test_without_labels_the_images_alone_are_read(name, archive, make_tree, tmp_path):
    images, masks, splits = PAIRS[name]
    src = make_tree([*images, *masks])
    if archive:
        src = shutil.make_archive(str(tmp_path / "photos"), "zip", src)
    source = read(src, label_type="none")
    paths = [path.removeprefix("photos.zip/") for path in source.path.to_pylist()]
    expected = sorted(images)
    if name == "ade20k archive" and not archive:
        expected = [path.partition("/")[2] for path in expected]
    assert (sorted(paths), source.splits, source.label_type) == (expected, splits, "none")
    assert has_notice(source, "which belongs to the images in")


def test_folders_with_names_of_masks_are_images_if_no_images_are_beside_them(make_tree):
    files = ["labels/bottle.png", "photos/bottle.jpg"]
    assert sorted(read(make_tree(files), label_type="none").path.to_pylist()) == files


def test_names_of_classes(make_tree):
    images, masks, _ = PAIRS["cityscapes"]
    source = read(make_tree([*images, *masks]))
    assert (source.classes[7], source.classes[33], len(source.classes)) == ("road", "bicycle", 34)
    train_ids = [name.replace("labelIds", "labelTrainIds") for name in masks]
    source = read(make_tree([*images, *masks, *train_ids]))
    assert [second for _, second in seconds(source)] == train_ids
    assert (source.classes[0], len(source.classes)) == ("road", 19)


def test_names_of_classes_of_ade20k(make_tree):
    table = (
        "Idx\tRatio\tTrain\tVal\tStuff\tName\n1\t0.1\t1\t1\t1\twall\n2\t0.1\t1\t1\t1\tbuilding,"
        " edifice\n"
    )
    images, masks, _ = PAIRS["ade20k"]
    files = {**dict.fromkeys([*images, *masks], b"x"), "objectInfo150.txt": table}
    assert read(make_tree(files)).classes == ("other", "wall", "building")


def test_depth_maps(make_tree):
    files = ["images/1.jpg", "masks/1.png", "depth/1_depth.png"]
    assert read(make_tree(files)).label_type == "mask"
    source = read(make_tree(files), label_type="depth")
    assert (source.label_type, seconds(source)) == (
        "depth",
        [("images/1.jpg", "depth/1_depth.png")],
    )
    images = ["leftImg8bit/train/ulm/u_leftImg8bit.png"]
    source = read(make_tree([*images, "disparity/train/ulm/u_disparity.png"]), label_type="depth")
    assert source.extra["mask_source"].to_pylist() == ["disparity/train/ulm/u_disparity.png"]


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


WITHOUT_MASKS = {
    "skipped test: there is no masks/test/": [
        "images/train/1.jpg",
        "masks/train/1.png",
        "images/test/2.jpg",
    ],
    "skipped test/: its images have no labels": [
        "train/images/1.jpg",
        "train/masks/1.png",
        "test/images/2.jpg",
    ],
}


@pytest.mark.parametrize("notice", WITHOUT_MASKS)
def test_a_split_without_masks_is_skipped(notice, make_tree):
    files = WITHOUT_MASKS[notice]
    source = read(make_tree(files))
    assert (seconds(source), source.splits) == ([(files[0], files[1])], ("train",))
    assert has_notice(source, notice)


def test_images_outside_of_the_splits_are_mentioned(make_tree):
    files = [
        "images/train/1.jpg",
        "masks/train/1.png",
        "images/more/2.jpg",
        "masks/more/2.png",
        "images/3.jpg",
    ]
    source = read(make_tree(files))
    assert seconds(source) == [("images/train/1.jpg", "masks/train/1.png")]
    assert has_notice(source, "skipped images/more/, which is not the name of a split")
    assert has_notice(source, "skipped 1 image outside of the splits: images/3.jpg")


@pytest.mark.parametrize(
    "names", [("images/{}/1.jpg", "masks/{}/1.png"), ("{}/images/1.jpg", "{}/masks/1.png")]
)
def test_two_folders_of_one_split_are_refused(names, make_tree):
    with pytest.raises(SourceError, match="val/ and valid/ are two names of the same split"):
        read(make_tree([name.format(split) for name in names for split in ("val", "valid")]))


def test_splits_with_masks_and_with_depth_maps(make_tree):
    files = [
        "train/images/1.jpg",
        "train/masks/1.png",
        "train/depth/1.png",
        "val/images/2.jpg",
        "val/depth/2.png",
    ]
    with pytest.raises(SourceError, match="some splits have masks, and others depth maps"):
        read(make_tree(files))
    source = read(make_tree(files), label_type="depth")
    assert (source.splits, source.label_type) == (("train", "val"), "depth")


def test_two_masks_of_an_image_are_refused(make_tree):
    with pytest.raises(
        SourceError, match=r"masks/1.*png and masks/1.*png belong to the same image"
    ):
        read(make_tree(["images/1.jpg", "masks/1.png", "masks/1_mask.png"]))


def test_folders_in_which_nothing_fits_are_refused(make_tree):
    with pytest.raises(SourceError, match="no image has a mask of the same name"):
        read(make_tree(["images/1.jpg", "masks/2.png"]))


# Content
# --------------------------------------------------------------------------------------------------

SIZE = (40, 30)


def save(folder, name, image, **options):
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    image.save(path, **options)


def classes_of(out):
    """Return the stored masks as arrays, by the name of their image."""
    found = {}
    for split in read_manifest(out).splits:
        for shard in split.shards:
            data = (out / shard.file.name).read_bytes()
            for row in pq.read_table(out / shard.table.name).to_pylist():
                start = row["mask_offset"]
                (path := out.parent / "mask.png").write_bytes(
                    data[start : start + row["mask_size"]]
                )
                with Image.open(path) as image:
                    found[os.path.basename(row["source"])] = (image.mode, np.asarray(image))
    return found


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
        out = tmp_path / fmt
        convert_dataset(read(tmp_path / "src"), str(out), Options(fmt=fmt))
        found = classes_of(out)
        assert {*found} == {f"{name}.png" for name in kinds}
        for name, (mode, values) in found.items():
            assert mode == "L", name
            assert (values == numbers).all(), name
        assert not verify_dataset(str(out)).problems


REJECTED = {
    "another size": (
        Image.new("L", (30, 40)),
        "mask-size",
        "30x40 pixels, but the upright image has 40x30",
    ),
    "red": (
        Image.new("RGB", SIZE, "red"),
        "unsupported",
        "colors of 8 bits, but a mask has one class number",
    ),
    "16 bits": (
        Image.fromarray(np.full(SIZE[::-1], 300, np.uint16)),
        "unsupported",
        "the value 300, but classes go from 0 to 255",
    ),
}


def test_masks_that_cannot_be_used_reject_their_image(tmp_path):
    for name, (mask, _, _) in REJECTED.items():
        save(tmp_path, f"src/masks/{name}.png", mask)
        save(tmp_path, f"src/images/{name}.png", Image.new("RGB", SIZE, "red"))
    save(tmp_path, "src/masks/good.png", Image.new("L", SIZE))
    save(tmp_path, "src/images/good.png", Image.new("RGB", SIZE, "red"))
    (tmp_path / "src/masks/jpeg.png").write_bytes(encode(Image.new("L", SIZE), "jpg"))
    save(tmp_path, "src/images/jpeg.png", Image.new("RGB", SIZE, "red"))
    out = tmp_path / "out"
    convert_dataset(read(tmp_path / "src"), str(out), Options())
    rows = {
        row["source"]: row
        for row in map(json.loads, (out / "rejected.jsonl").read_text().splitlines())
    }
    assert {*classes_of(out)} == {"good.png"}
    for name, (_, reason, detail) in REJECTED.items():
        row = rows[f"images/{name}.png"]
        assert row["reason"] == reason
        assert row["detail"].startswith(f"its mask masks/{name}.png has {detail}")
    assert "is a JPEG, but masks and depths are stored as PNG" in rows["images/jpeg.png"]["detail"]


def test_the_orientation_of_the_image_counts(tmp_path):
    """A photograph that is stored on its side is shown upright.

    Its mask must have the upright size.
    """
    image, exif = Image.new("RGB", SIZE, "blue"), Image.Exif()
    exif[0x0112] = 6
    for name, size in {"upright": SIZE[::-1], "as stored": SIZE}.items():
        save(tmp_path, f"src/images/{name}.jpg", image, exif=exif)
        save(tmp_path, f"src/masks/{name}.png", Image.new("L", size))
    out = tmp_path / "out"
    convert_dataset(read(tmp_path / "src"), str(out), Options())
    assert {*classes_of(out)} == {"upright.jpg"}
    (row,) = map(json.loads, (out / "rejected.jsonl").read_text().splitlines())
    assert row["detail"].endswith("40x30 pixels, but the upright image has 30x40")


def test_depth_maps_have_16_bits(tmp_path):
    save(tmp_path, "src/depth/1.png", Image.fromarray(np.full(SIZE[::-1], 40_000, np.uint16)))
    save(tmp_path, "src/depth/2.png", Image.new("L", SIZE))
    for number in (1, 2):
        save(tmp_path, f"src/images/{number}.png", Image.new("RGB", SIZE, "red"))
    out = tmp_path / "out"
    convert_dataset(read(tmp_path / "src"), str(out), Options())
    ((_, values),) = classes_of(out).values()
    assert (values == 40_000).all()
    (row,) = map(json.loads, (out / "rejected.jsonl").read_text().splitlines())
    assert (
        row["detail"]
        == "its depth depth/2.png has gray values of 8 bits, but a depth map has gray values of 16"
        " bits"
    )


def test_boxes_that_do_not_fit_the_image_reject_it(tmp_path):
    annotations = annotated.coco_json()
    annotations["images"][0] |= {"width": 200, "height": 200}  # another size than the file
    del annotations["images"][1]["width"], annotations["images"][1]["height"]
    annotations["annotations"][3]["bbox"] = [0, 0, 500, 10]
    source = read(annotated.make_coco(tmp_path / "coco", annotations=annotations))
    assert source.rejected == ()
    out = tmp_path / "out"
    convert_dataset(source, str(out), Options())
    rows = [json.loads(line) for line in (out / "rejected.jsonl").read_text().splitlines()]
    details = {row["source"][-5:]: row["detail"] for row in rows}
    assert details == {
        "0.png": "its boxes refer to an image of 200x200 pixels, but it has 160x120",
        "1.png": "boxes[0] (0, 0, 500, 10) is outside of the image of 131x97 pixels",
    }


def test_boxes_of_a_photograph_on_its_side(tmp_path):
    """Boxes refer to the upright photograph, in the table, in the record and in a batch."""
    folder, exif = annotated.make_coco(tmp_path / "coco"), Image.Exif()
    exif[0x0112] = 6
    height, width = annotated.SIZES[0]
    path = folder / "train2017/000000000000.png"
    path.unlink()
    upright = Image.fromarray(annotated.pictures()[0])
    upright.transpose(Image.Transpose.ROTATE_90).save(path, "jpeg", exif=exif, quality=95)
    for options in (
        Options(shuffle=False),
        Options(shuffle=False, downscale=Downscale(longest=80)),
    ):
        out = tmp_path / f"out-{bool(options.downscale)}"
        convert_dataset(read(folder), str(out), options)
        table = pq.read_table(out / "train-00000.parquet").slice(0, 1).to_pylist()[0]
        scale = 0.5 if options.downscale else 1
        assert (table["annotated_width"], table["annotated_height"]) == (
            width * scale,
            height * scale,
        )
        np.testing.assert_allclose(table["boxes"], annotated.boxes()[0] * scale)
        record = oracles.parse_example(oracles.read_tfrecord(out / "train-00000.tfrecord")[0])
        np.testing.assert_allclose(
            record["image/object/bbox/xmax"], annotated.boxes()[0][:, 2] / width, atol=1e-6
        )


@pytest.mark.parametrize(
    ("label_type", "missing"), [("depth", "disparity/"), ("mask", "gtFine/ or gtCoarse/")]
)
def test_cityscapes_without_what_was_chosen(label_type, missing, make_tree):
    folder = "disparity" if label_type == "mask" else "gtFine"
    source = make_tree(["leftImg8bit/train/ulm/u_leftImg8bit.png", f"{folder}/train/ulm/u.png"])
    with pytest.raises(
        SourceError, match=f"Cityscapes has no {missing} for --label-type {label_type}"
    ):
        read(source, label_type=label_type)


@pytest.mark.parametrize(
    ("second", "label_type", "has"),
    [("masks", "boxes", "mask"), ("masks", "depth", "mask"), ("depth", "mask", "depth")],
)
def test_labels_of_another_type_are_named(second, label_type, has, make_tree):
    """The folder is one that is converted, so the message must not say that it is not."""
    folder = make_tree(["images/1.jpg", f"{second}/1.png"])
    with pytest.raises(
        CallError,
        match=rf"--label-type {label_type}: .* has labels of the type {has} \(images with",
    ):
        read(folder, label_type=label_type)
