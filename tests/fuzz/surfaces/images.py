"""Encoded images: mutated headers and pixels, and files of a few KB that expand to a lot."""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from random import Random
from typing import Any

import pyarrow.parquet as pq
from PIL import Image, PngImagePlugin, UnidentifiedImageError

from fuzz import encoded, mutate
from fuzz.checks import Case, command, require, write_case
from fuzz.isolation import isolated

#: Images in one case.
_COUNT = 12

_OPTIONS = (
    ("--validate", "decode"),
    ("--validate", "decode"),
    ("--validate", "decode", "--fmt", "webdataset"),
    ("--validate", "header"),
    ("--validate", "decode", "--resize-shorter", "8"),
    ("--validate", "decode", "--store", "raw", "--raw-size", "8"),
)


#: For formats that DALI does not decode.
_TRANSCODE = (
    ("--transcode", "png"),
    ("--transcode", "webp", "--fmt", "webdataset"),
    ("--transcode", "jpeg", "--resize-shorter", "8"),
)


#: For TIFFs that are rewritten.
_DECODED = ("--validate", "decode")
_PAGES = (("--transcode", "tiff", *_DECODED), ("--transcode", "png", "--page", "1", *_DECODED))

_WINDOW = tuple((*options, "--window", "90,180") for options in _TRANSCODE)


class Images:
    """A surface: images of one format."""

    def __init__(
        self,
        suffix: str,
        seeds: Callable[[], list[bytes]],
        special: Callable[[Random, bytes], bytes],
        options: Sequence[tuple[str, ...]] = _OPTIONS,
    ) -> None:
        self.options = options
        self.suffix = suffix
        self.seeds = cache(seeds)
        self.special = special

    def make(self, rng: Random) -> Case:
        """Return images, one of which may be intact."""
        case = {f"{number:02d}.{self.suffix}": self._mutated(rng) for number in range(_COUNT)}
        return {**case, "options": json.dumps(rng.choice(self.options)).encode()}

    def _mutated(self, rng: Random) -> bytes:
        data = rng.choice(self.seeds())
        choice = rng.random()
        if choice < 0.4:
            return self.special(rng, data)
        if choice < 0.7:
            return mutate.mutate_bytes(rng, data, 100)
        return mutate.mutate_bytes(rng, data)

    def check(self, case: Case, folder: Path) -> None:
        """Convert the images, and compare with DALI and Pillow."""
        options = json.loads(case["options"])
        images = {name: data for name, data in case.items() if name != "options"}
        write_case(images, folder / "source" / "class")
        out = folder / "out"
        convert = ("convert", "--src", folder / "source", "--out", out, "--max-rejected", 1)
        # Others are rejected then. Otherwise, a source of mixed kinds is refused as a whole.
        convert += ("--workers", 1, "--channels", 3, "--dtype", "uint8", *options)
        command(*convert, writable=[out], statuses=(0,))
        rejected = _rejected(out)
        stored = _stored(out)
        kept = images.keys() - {Path(row["source"]).name for row in rejected}
        require(
            {Path(row["source"]).name for row in stored} == kept,
            f"kept {sorted(kept)}, but stored {stored}",
        )
        if "header" in options:
            command("verify", out, "--workers", 1, writable=[], statuses=(0,))
            return
        command("verify", out, "--decode", "--workers", 1, writable=[], statuses=(0,))
        if "raw" not in options:
            for row in stored:
                require(
                    not {"--resize-shorter", "--transcode"}.isdisjoint(options)
                    or row["data"] == images[Path(row["source"]).name],
                    "other bytes",
                )
            self._compare(folder, stored)

    def _compare(self, folder: Path, stored: list[dict[str, Any]]) -> None:
        refused = isolated(
            lambda: refused_by_dali([row["data"] for row in stored]), writable=[folder]
        ).value
        for number, reason in refused:
            row = stored[number]
            require(False, f"verify says sound, but DALI fails: {reason} [{row['source']}]")
        PngImagePlugin.MAX_TEXT_CHUNK = PngImagePlugin.MAX_TEXT_MEMORY = (
            1 << 30
        )  # text is no reason to refuse an image
        for row in stored:
            try:
                with Image.open(io.BytesIO(row["data"])) as image:
                    sizes = (sorted(image.size), sorted((row["width"], row["height"])))
            except UnidentifiedImageError:
                continue  # a TIFF of three channels of gray
            require(
                sizes[0] == sizes[1],
                f"verify says sound, but Pillow reads another size: [{sizes} {row['source']}]",
            )


def _reason(error: RuntimeError) -> str:
    """Return the part of DALI's message that says what is wrong with the image."""
    text = str(error).partition("encountered:")[2].partition("Current pipeline object")[0]
    return " ".join(text.split())[:200]


def _rejected(out: Path) -> list[dict[str, str]]:
    path = out / "rejected.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def _stored(out: Path) -> list[dict[str, Any]]:
    rows = []
    for path in sorted(out.glob("*.parquet")):
        shard = next(
            path.with_suffix(suffix)
            for suffix in (".tar", ".tfrecord")
            if path.with_suffix(suffix).exists()
        )
        content = shard.read_bytes()
        for row in pq.read_table(path, use_threads=False).to_pylist():
            rows.append({**row, "data": content[row["offset"] : row["offset"] + row["size"]]})
    return rows


def refused_by_dali(images: list[bytes]) -> list[tuple[int, str]]:
    """Return the number of each image that DALI does not decode on the CPU, and why."""
    import numpy as np
    from nvidia.dali import fn, pipeline_def, types

    @pipeline_def(num_threads=1, device_id=None, prefetch_queue_depth=1)
    def pipeline(batch: list[Any]) -> Any:
        source = fn.external_source(source=lambda: batch, batch=True)
        return fn.decoders.image(source, device="cpu", output_type=types.RGB)

    def bisect(first: int, last: int) -> list[tuple[int, str]]:
        if first == last:
            return []
        try:
            pipe = pipeline(
                [np.frombuffer(data, np.uint8) for data in images[first:last]],
                batch_size=last - first,
            )
            pipe.build()
            pipe.run()
        except RuntimeError as error:
            if last - first == 1:
                return [(first, _reason(error))]
            middle = (first + last) // 2
            return bisect(first, middle) + bisect(middle, last)
        return []

    return bisect(0, len(images))


SURFACES = {
    "jpeg": Images("jpg", encoded.jpegs, encoded.odd_jpeg),
    "png": Images("png", encoded.pngs, encoded.odd_png),
    "webp": Images("webp", encoded.webps, encoded.odd_webp),
    "bmp": Images("bmp", encoded.bmps, encoded.odd_bmp),
    "tiff": Images("tif", encoded.tiffs, encoded.odd_tiff, (*_OPTIONS, *_PAGES)),
    "ppm": Images("ppm", encoded.ppms, encoded.odd_ppm),
    "jp2": Images("jp2", encoded.jp2s, encoded.odd_jp2),
    "avif": Images("avif", encoded.avifs, encoded.odd_avif, _TRANSCODE),
    "dicom": Images("dcm", encoded.dicoms, encoded.odd_dicom, _WINDOW),
}
