"""Convert, verify and load the photographs that come with scikit-image: see `scripts/demo`."""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

PHOTOS = (
    *("astronaut", "camera", "chelsea", "coffee"),
    *("hubble_deep_field", "coins", "retina", "rocket"),
)
DATAPREP = str(Path(sys.executable).with_name("dataprep"))


def make_photos(folder: Path, images: int) -> None:
    """Make an ImageFolder with train/ and val/: one class per photograph, images are random square crops of it."""
    import skimage

    data = Path(skimage.__file__).parent / "data"
    rng = np.random.default_rng(0)
    for name in PHOTOS:
        photo = Image.open(next(data.glob(f"{name}.*")))
        for split, count in (("train", images), ("val", images // 4)):
            (folder / split / name).mkdir(parents=True)
            for number in range(count):
                side = int(rng.integers(192, min(photo.size) + 1))
                left, top = (int(rng.integers(0, length - side + 1)) for length in photo.size)
                crop = photo.crop((left, top, left + side, top + side))
                crop.save(folder / split / name / f"{number:04d}.jpg", quality=90)


def dataprep(*arguments: str | Path) -> None:
    """Print a `dataprep` command and run it."""
    print(f"\n$ dataprep {' '.join(map(str, arguments))}", flush=True)
    subprocess.run([DATAPREP, *map(str, arguments)], check=True)


def save_preview(dataset: Path, picture: Path, device: str) -> None:
    """Load one epoch, and save a picture of stored images beside what the loader makes of them."""
    import loaders

    options: Any = {"batch_size": 32, "transforms": "imagenet-train", "device": device}
    with loaders.build(dataset, split="train", **options) as train:
        batches = sum(1 for _ in train)
        images, labels = next(iter(train))
        train.preview(samples=8, draws=5).save(picture)
    made = f"{tuple(images.shape)} {images.dtype} on {images.device}, labels {labels.dtype}"
    print(f"{dataset}: {batches} batches; {made}")
    print(f"stored images, and what the model gets: {picture}")


def main() -> None:
    parser = argparse.ArgumentParser(description="Convert, verify and load a few photographs.")
    out_help = "output folder; it is replaced"
    parser.add_argument("--out", type=Path, default=Path("demo-out"), help=out_help)
    parser.add_argument("--images", type=int, default=40, help="training images per class")
    parser.add_argument("--device", choices=["auto", "cpu", "gpu"], default="auto")
    args = parser.parse_args()

    shutil.rmtree(args.out, ignore_errors=True)
    photos = args.out / "photos"
    make_photos(photos, args.images)
    for fmt in ("tfrecord", "webdataset"):
        out = args.out / f"photos-{fmt}"
        dataprep("convert", "--src", photos, "--fmt", fmt, "--out", out)
        dataprep("verify", out)
        dataprep("info", out)
        save_preview(out, args.out / f"batch-{fmt}.png", args.device)
    page = args.out / "report.html"
    dataprep("report", args.out / "photos-tfrecord", "--out", page)
    print(f"open this page in a browser: {page}")


if __name__ == "__main__":
    main()
