"""Write `images.zip`, from which all golden datasets are made.

The images are committed, because other versions of Pillow encode them differently. Run this file
only to add images: `python tests/golden/make_images.py` from the folder of the project, with
`PYTHONPATH=tests`. The names in the archive are the paths that scenarios use.
"""

from __future__ import annotations

import zipfile
from pathlib import Path

import numpy as np
from helpers.make_sources import IMAGES
from helpers.photographs import photograph
from helpers.pictures import encode, photo
from PIL import Image

#: Class folders of the photographs. One has spaces and letters beyond ASCII.
CLASSES = ("cat", "ein Häßlicher Name", "日本")


def _photographs() -> dict[str, bytes]:
    """Return photographs in each format and color mode that the converter treats differently."""
    cat = Image.fromarray(photograph("chelsea")).resize((96, 64))
    cup = Image.fromarray(photograph("coffee")).resize((90, 60))
    woman = Image.fromarray(photograph("astronaut")).resize((64, 64))
    transparent = cup.copy()
    transparent.putalpha(Image.fromarray(np.tile(np.arange(90, dtype=np.uint8) * 2, (60, 1))))
    rotated = Image.Exif()
    rotated[0x0112] = 6
    return {
        "plain.jpg": encode(cat, "jpg", quality=85),
        "full chroma.jpg": encode(cup, "jpg", quality=80, subsampling=0),
        "progressive.JPG": encode(woman, "jpg", quality=70, progressive=True),
        "rotated é.jpeg": encode(cat, "jpg", quality=85, exif=rotated.tobytes()),
        "gray.jpg": encode(cat.convert("L"), "jpg", quality=80),
        "cmyk.jpg": encode(woman.convert("CMYK"), "jpg", quality=75),
        "color.png": encode(cup.resize((45, 30)), "png"),
        "palette.png": encode(cat.quantize(32), "png"),
        "transparent.png": encode(transparent.resize((45, 30)), "png"),
        "dim.png": encode(woman.convert("L"), "png"),
        "lossy.webp": encode(cup, "webp", quality=60),
        "copy of plain.jpg": encode(cat.resize((72, 48)), "jpg", quality=60),
    }


def _annotated() -> dict[str, bytes]:
    """Return images with their masks and depth maps."""
    rng, files = np.random.default_rng(5), {}
    for number, (height, width) in enumerate(((24, 32), (20, 26), (30, 22), (16, 40), (20, 20))):
        coarse = rng.integers(0, 5, (height // 4, width // 4)).astype(np.uint8)
        mask = np.asarray(Image.fromarray(coarse).resize((width, height), 0))
        depth = (mask.astype(np.uint16) * 9000) + np.arange(width, dtype=np.uint16)
        files[f"images/{number}.jpg"] = encode(photo(40 + number, width, height), "jpg")
        files[f"masks/{number}.png"] = encode(mask, "png")
        files[f"depth/{number}.png"] = encode(depth, "png")
    return files


def main() -> None:
    files = {f"splits/{image.path}": image.data for image in IMAGES}
    for number, (name, data) in enumerate(_photographs().items()):
        files[f"photographs/{CLASSES[number % 3]}/{name}"] = data
    files |= {f"annotated/{name}": data for name, data in _annotated().items()}
    with zipfile.ZipFile(Path(__file__).with_name("images.zip"), "w") as archive:
        for name, data in files.items():
            archive.writestr(zipfile.ZipInfo(name), data)


if __name__ == "__main__":
    main()
