"""Duplicates: how many changed copies the perceptual hash finds, and how long the whole command takes.

    python scripts/bench duplicates --images PHOTOS/ --dataset 1280000x1280000
    python scripts/bench duplicates --judged DIR PAIRS.csv --imagededup HASHES.json

`found` is the share of the changed copies of the photographs that are found at a distance of 31 bits,
in the right symmetry. `false pairs` are pairs of different photographs, in any symmetry. --dataset runs
`dataprep duplicates --across` on two prepared datasets of A and B samples. Their tables have the hashes of
the photographs with a quarter of the bits changed: their bits depend on each other as they do in
photographs, but only planted pairs are near, and all must be found. Compare CPU seconds, because other
programs may use the machine. --judged compares DIR/test with DIR/train, and what is found with pairs that
people judged.
"""

import csv
import json
import os
import subprocess
import tempfile
import time
from argparse import Namespace
from collections.abc import Callable, Iterator
from contextlib import suppress
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from harness import Report, Row, WrongOptionError, option, timed
from inputs import command_line, convert_here, encoded, photographs, repeat_shards
from numpy.typing import NDArray
from PIL import Image, ImageOps
from PIL.ImageEnhance import Brightness

from dataprep.duplicates.collection import collect
from dataprep.duplicates.find import find_duplicates
from dataprep.duplicates.pixels import SYMMETRIES, Symmetry, parse_hashes, transform_hashes
from dataprep.duplicates.search import distances
from dataprep.images.perceptual_hash import hash_image
from dataprep.images.validate import check_image
from dataprep.options import DEFAULT_DISTANCE, HASH_COLUMN
from dataprep.sources import read_source
from manifests.tables import build_table, write_table

TAKES = "3 minutes; 20 minutes for a dataset of 1280000x1280000; needs photographs, 4 GB of memory; CIFAR-10 and the pairs of ciFAIR for --judged"
OPTIONS = [
    option("--images", None, "folder of photographs", type=Path),
    option("--dataset", [], "samples of two datasets", nargs="*", metavar="AxB"),
    option("--judged", None, "images, and pairs of them", nargs=2, type=Path),
    option("--imagededup", None, "JSON: hashes of the judged images by imagededup", type=Path),
]
#: Of the datasets: the samples of a shard, the bytes of an image, and the classes.
SAMPLES_PER_SHARD, IMAGE_BYTES, CLASSES = 10_000, 110_000, 1000
Hashes = NDArray[np.uint64]
Pair = frozenset[str]
#: What is done with a photograph, the quality of the JPEG, and the symmetry of the copy.
CHANGES: dict[str, tuple[Callable[[Image.Image], Image.Image], int, Symmetry]] = {
    "quality 75": (lambda image: image, 75, "identical"),
    "quality 30": (lambda image: image, 30, "identical"),
    "half size, quality 60": (lambda image: ImageOps.scale(image, 0.5), 60, "identical"),
    "shorter side 256": (lambda each: ImageOps.scale(each, 256 / min(each.size)), 90, "identical"),
    "brightness x 1.3": (lambda image: Brightness(image).enhance(1.3), 90, "identical"),
    "brightness x 0.7": (lambda image: Brightness(image).enhance(0.7), 90, "identical"),
    "gray": (lambda image: image.convert("L"), 90, "identical"),
    "mirror": (ImageOps.mirror, 90, "mirrored"),
    "rotated": (lambda image: image.transpose(Image.Transpose.ROTATE_270), 90, "rotated 90"),
    "crop of 1%": (lambda image: crop(image, 0.01), 90, "identical"),
    "crop of 5%": (lambda image: crop(image, 0.05), 90, "identical"),
}


def crop(image: Image.Image, border: float) -> Image.Image:
    x, y = image.width * border, image.height * border
    return image.crop((round(x), round(y), round(image.width - x), round(image.height - y)))


def hashes_of(files: list[bytes]) -> tuple[Hashes, NDArray[np.bool_]]:
    """Return the hashes of images, and whether each has one."""
    texts = [hash_image(data, check_image(data, "none")) for data in files]
    hashes = parse_hashes("".join(text or "0" * 64 for text in texts))
    return hashes, np.array([text is not None for text in texts])


def measure_changes(files: list[bytes], report: Report) -> Hashes:
    """Report the changed copies and the false pairs; return the hashes of the photographs."""
    with timed() as spent:
        hashes, has_hash = hashes_of(files)
    images = [Image.open(BytesIO(data)).convert("RGB") for data in files]
    rows: list[Row] = []
    for name, (change, quality, symmetry) in CHANGES.items():
        copies = [encoded(change(image), "JPEG", quality=quality) for image in images]
        changed, changed_has = hashes_of(copies)
        # The change turns the original into the copy.
        bits = distances(changed, transform_hashes(hashes, symmetry))[has_hash & changed_has]
        found = np.count_nonzero(bits <= DEFAULT_DISTANCE) / len(files)
        row = {"change": name, "found": f"{found:.2%}", "median bits": float(np.median(bits))}
        rows.append(row | {"99% bits": float(np.percentile(bits, 99)), "most": int(bits.max())})
    report.table("Changed copies", rows)
    own = hashes[has_hash]
    near, least = 0, 256
    for symmetry in SYMMETRIES:
        other = transform_hashes(own, symmetry)
        between = np.stack([distances(row, other) for row in own])[np.triu_indices(len(own), 1)]
        near += int((between <= DEFAULT_DISTANCE).sum())
        least = min(least, int(between.min()))
    row = {"photographs": len(files), "with a hash": len(own), "false pairs": near}
    row |= {"least bits": least, "ms per image": spent["CPU s"] / len(files) * 1e3}
    row["mean KB"] = sum(map(len, files)) / len(files) / 1e3
    report.table("Different photographs", [row])
    return own


def plant(a: Hashes, b: Hashes, copies: int = 1000) -> int:
    """Make hashes of b near to hashes of a, at most so many, in random symmetries; return their number."""
    rng = np.random.default_rng(2)
    rows = rng.permutation(min(len(a), len(b)))[: 2 * copies]
    copies = len(rows) // 2
    for source, target in zip(rows[:copies].tolist(), rows[copies:].tolist(), strict=False):
        b[target] = transform_hashes(a[source : source + 1], SYMMETRIES[rng.integers(8)])[0]
        for bit in rng.choice(256, rng.integers(0, DEFAULT_DISTANCE + 1), replace=False):
            b[target, bit // 64] ^= np.uint64(1) << np.uint64(bit % 64)
    return copies


def make_dataset(out: Path, hashes: Hashes, image: Path, first: int) -> None:
    """Write a dataset with these hashes and empty shards: as all checksums differ, no image is read."""
    images, example = (out.with_name(f"{out.name}-{name}") for name in ("images", "example"))
    (images / "class").mkdir(parents=True)
    (images / "class" / image.name).write_bytes(image.read_bytes())
    convert_here(images, example, workers=1, hash=True)
    # A file without content takes no space.
    os.truncate(next(example.glob("*.tfrecord")), IMAGE_BYTES * SAMPLES_PER_SHARD)

    def make_table(shard: int, path: Path) -> int:
        part = hashes[shard * SAMPLES_PER_SHARD : (shard + 1) * SAMPLES_PER_SHARD]
        rows, text = np.arange(len(part)), part.tobytes().hex()
        numbers = first + shard * SAMPLES_PER_SHARD + rows
        columns: dict[str, Any] = {
            "key": [f"{row:08d}" for row in rows],
            "label": rows % CLASSES,
            "source": [f"train/n{row % CLASSES:08d}/{row:010d}.JPEG" for row in numbers.tolist()],
            "offset": rows * IMAGE_BYTES,
            "size": np.full(len(rows), IMAGE_BYTES),
            "crc32c": numbers.astype(np.uint32),
            HASH_COLUMN: pa.array([text[64 * row : 64 * row + 64] for row in rows]),
        }
        columns |= {name: np.full(len(rows), 500) for name in ("width", "height")}
        write_table(build_table(columns), str(path))
        return len(rows)

    classes = tuple(f"n{number:08d}" for number in range(CLASSES))
    counts = {"train": -(-len(hashes) // SAMPLES_PER_SHARD)}
    repeat_shards(example, out, counts, make_table, classes=classes)


def memory_of_session(session: int) -> float:
    """Return the MB of all processes of a session, with shared pages divided (PSS)."""
    total = 0.0
    for folder in Path("/proc").iterdir():
        with suppress(OSError):  # the process ended
            if folder.name.isdigit() and os.getsid(int(folder.name)) == session:
                lines = (folder / "smaps_rollup").read_text().splitlines()
                total += sum(int(each.split()[1]) for each in lines if each[:4] == "Pss:")
    return total * 1024 / 1e6


def measure_datasets(own: Hashes, size: str, image: Path) -> Row:
    """Run `dataprep duplicates --across` on two datasets, in a process of its own."""
    first, second = map(int, size.split("x"))
    rng, count = np.random.default_rng(0), first + second
    flips = rng.integers(0, 1 << 64, (2, count, 4), dtype=np.uint64)
    # A quarter of the bits of photographs change.
    hashes = own[rng.integers(0, len(own), count)] ^ (flips[0] & flips[1])
    planted = plant(hashes[:first], hashes[first:])
    with tempfile.TemporaryDirectory() as work, tempfile.TemporaryFile() as output:
        folders = [Path(work) / "first", Path(work) / "second"]
        make_dataset(folders[0], hashes[:first], image, 0)
        make_dataset(folders[1], hashes[first:], image, first)
        del hashes
        command, peak = command_line("duplicates", *folders, "--json", "--across"), 0.0
        pipes: Any = {"stdout": output, "stderr": subprocess.DEVNULL}
        with timed() as row:
            process = subprocess.Popen(command, start_new_session=True, **pipes)
            while process.poll() is None:
                peak = max(peak, memory_of_session(process.pid))
                time.sleep(0.05)
        output.seek(0)
        result = json.load(output)
    leaked = sum(leak["images"] for leak in result["leaks"])
    found = {"pairs": result["near"], "listed": len(result["pairs"])}
    found |= {"leaked images": f"{leaked} of {planted}", "status": process.returncode}
    return {"samples": size, **row, "peak MB": peak, **found}


#: Distances, the pairs that they find, and CPU seconds.
Found = Iterator[tuple[int, set[Pair], float]]


def find_ours(folder: Path) -> Found:
    """Compare images of different splits only."""
    with timed() as hashing:
        source = read_source(str(folder))
        images = collect([source], workers=1)
    paths = source.path.to_pylist()
    for distance in (15, 20, 25, 31, 37, 43):
        with timed() as search:
            found = find_duplicates(images, distance, across=True, workers=1)
        first, second = found.first_image[found.pairs.first], found.first_image[found.pairs.second]
        numbers = zip(first.tolist(), second.tolist(), strict=True)
        pairs = {frozenset((paths[a], paths[b])) for a, b in numbers}
        yield distance, pairs, hashing["CPU s"] + search["CPU s"]


def find_imagededup(file: Path) -> Found:
    """Compare the hashes that `PHash().encode_images` wrote: 16 hex digits by path."""
    hashes, wanted = json.loads(file.read_text()), range(0, 15, 2)
    test, train = (sorted(p for p in hashes if p.startswith(name)) for name in ("test", "train"))
    a, b = (np.array([int(hashes[path], 16) for path in side], np.uint64) for side in (test, train))
    bits = {}
    for start in range(0, len(a), 256):
        differing = np.bitwise_count(a[start : start + 256, None] ^ b)
        for row, column in zip(*np.nonzero(differing <= max(wanted)), strict=True):
            bits[frozenset((test[start + row], train[column]))] = int(differing[row, column])
    for distance in wanted:
        yield distance, {pair for pair, count in bits.items() if count <= distance}, 0.0


def report_judged(report: Report, args: Namespace) -> None:
    with args.judged[1].open(newline="", encoding="utf-8") as file:
        judged = {frozenset(row) for row in csv.reader(file)}
    tools = {"dataprep": find_ours(args.judged[0])}
    if args.imagededup:
        tools["imagededup PHash"] = find_imagededup(args.imagededup)
    rows: list[Row] = []
    for tool, found in tools.items():
        for distance, pairs, cpu in found:
            hits = len(pairs & judged)
            row = {"tool": tool, "distance": distance, "pairs": len(pairs), "judged ones": hits}
            row |= {"recall": hits / len(judged), "listed precision": hits / max(len(pairs), 1)}
            rows.append(row | {"CPU s": cpu})
    report.table("Judged pairs", rows)


def run(report: Report, args: Namespace) -> None:
    if not (args.judged or args.images):
        hint = "Hint: pass a folder of photographs."
        raise WrongOptionError(f"--images or --judged is missing. {hint}")
    if args.judged:
        report_judged(report, args)
    if args.images:
        paths = photographs(args.images)
        own = measure_changes([path.read_bytes() for path in paths], report)
        for size in args.dataset:
            report.table("dataprep duplicates", [measure_datasets(own, size, paths[0])])
