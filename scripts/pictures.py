"""Make the pictures in docs/images: a batch with captions, crops, and screenshots of a report.

Needs Chromium.

    .venv/bin/python scripts/pictures.py

The photographs are those that come with scikit-image.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
from io import BytesIO
from pathlib import Path
from typing import Any

from demo import dataprep, make_photos
from PIL import Image, ImageOps

ROOT = Path(__file__).resolve().parents[1]
# The packages come first: `tests` has folders of the same names.
sys.path[:0] = [str(ROOT), str(ROOT / "tests")]

from helpers.chromium import Browser, chromium  # noqa: E402

#: Width of a screenshot, and what it shows: from the top of one element to the bottom of another.
SCREENSHOTS = {
    "report.jpg": (1180, "header", "#classes"),
    "report-leaks.jpg": (1180, "#rejected", "#copies"),
}
#: Maximum height of a screenshot in pixels: the list of duplicates is longer than a picture may be.
HEIGHT = 1650


def make_flawed_photos(folder: Path) -> None:
    """Make photographs with leaks, a wrong label, a black image, and two images that are rejected."""
    make_photos(folder, 40)
    train, val = folder / "train", folder / "val"
    for number, name in enumerate(("astronaut", "chelsea", "coffee", "rocket", "coins")):
        for file in sorted((train / name).iterdir())[: 6 * number]:
            file.unlink()
    for number in range(3):
        original = train / "astronaut" / f"{number:04d}.jpg"
        shutil.copy(original, val / "astronaut" / f"leak{number}.jpg")
    with Image.open(train / "retina" / "0003.jpg") as photo:
        photo.resize((180, 180)).save(val / "retina" / "smaller.jpg", quality=70)
    shutil.copy(train / "coffee" / "0030.jpg", train / "rocket" / "0100.jpg")
    Image.new("RGB", (320, 240)).save(train / "retina" / "0100.jpg")
    broken = (train / "chelsea" / "0020.jpg").read_bytes()
    (train / "chelsea" / "0100.jpg").write_bytes(broken[: len(broken) // 2])
    (train / "chelsea" / "0101.jpg").write_text("<!doctype html><title>404 Not Found</title>")


def take_screenshots(browser: Browser, page: Path, out: Path) -> None:
    """Save the parts of a page that `SCREENSHOTS` names."""
    for name, (width, first, last) in SCREENSHOTS.items():
        browser.open(page, width)
        rectangle = "document.querySelector('{}').getBoundingClientRect().{} + scrollY"
        top, bottom = (
            browser.evaluate(rectangle.format(element, edge))
            for element, edge in ((first, "top"), (last, "bottom"))
        )
        whole = page.with_suffix(".png")
        browser.screenshot(whole)
        with Image.open(whole) as picture:
            start, end = max(0, int(top) - 14), int(bottom) + 14
            if name == "report-leaks.jpg":
                end = min(end, start + HEIGHT)
            save_small(picture.crop((0, start, width, end)), out / name)


def make_shapes(path: Path) -> None:
    """Show crops of photographs: above to a square, below to their aspect bucket."""
    import numpy as np
    from helpers.photographs import photograph

    from manifests.buckets import candidates, find_buckets, nearest_buckets

    # Parts of the photographs, in the shapes of a wide, a high and two usual cameras.
    chosen = (("astronaut", 512, 340), ("chelsea", 240, 451), ("coffee", 400, 600),
              ("rocket", 427, 600))  # fmt: skip
    photos = [photograph(name)[:height, :width] for name, height, width in chosen]
    heights, widths = np.array([photo.shape[:2] for photo in photos]).T
    buckets = find_buckets(heights, widths, candidates(224 * 224, 16), 3)
    numbers, _ = nearest_buckets(heights, widths, buckets)
    rows = [[(224, 224)] * len(photos), [buckets[each] for each in numbers]]
    spaces = [max(width, 224) + 8 for _, width in rows[1]]
    page = Image.new("RGB", (8 + sum(spaces), 544), "white")
    for top, sizes in zip((8, 248), rows, strict=True):
        left = 8
        for photo, (height, width), space in zip(photos, sizes, spaces, strict=True):
            page.paste(ImageOps.fit(Image.fromarray(photo), (width, height)), (left, top))
            left += space
    save_small(page, path)


def save_small(picture: Image.Image, path: Path, limit: int = 120_000) -> None:
    """Save a JPEG of at most `limit` bytes."""
    for quality in range(88, 30, -4):
        data = BytesIO()
        picture.convert("RGB").save(data, "JPEG", quality=quality, optimize=True)
        if data.tell() <= limit:
            break
    path.write_bytes(data.getvalue())
    print(f"{path}: {picture.width} x {picture.height}, {data.tell():,} bytes")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=ROOT / "docs" / "images")
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)

    import loaders

    make_shapes(args.out / "shapes.jpg")
    with tempfile.TemporaryDirectory() as work:
        names = ("photos", "photos-tfrecord", "report.html")
        photos, dataset, page = (Path(work, name) for name in names)
        make_flawed_photos(photos)
        dataprep("convert", "--hash", "--src", photos, "--out", dataset, "--max-rejected", "1")
        dataprep("report", dataset, "--out", page, "--src", photos)
        options: Any = {"batch_size": 32, "transforms": "imagenet-train", "seed": 198}
        with loaders.build(dataset, device="cpu", **options) as train:
            train.preview(samples=4, draws=6).save(Path(work, "batch.png"))
        options = {"batch_size": 16, "transforms": "reid-train", "seed": 1}
        with loaders.build(
            dataset, device="cpu", sampler=loaders.PKSampler(4, 4), **options
        ) as train:
            train.preview(samples=4).save(Path(work, "pk.png"))
        for name in ("batch", "pk"):
            with Image.open(Path(work, f"{name}.png")) as picture:
                save_small(picture, args.out / f"{name}.jpg")
        with chromium(Path(work)) as browser:
            take_screenshots(browser, page, args.out)


if __name__ == "__main__":
    main()
