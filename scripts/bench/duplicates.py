"""Duplicates: how many changed copies of photographs the perceptual hash finds, and how long the exact search takes.

    python scripts/bench/duplicates.py --photos DIR
    python scripts/bench/duplicates.py --photos DIR --search 50000x1280000 1280000x1280000
    python scripts/bench/duplicates.py --photos DIR --dataset 1000000 1280000x1280000
    python scripts/bench/duplicates.py --judged DIR PAIRS.csv --imagededup HASHES.json

Every JPEG of DIR is changed in each of several ways. `found` is the share of the copies that are
found at a distance of 31 bits, in the right symmetry where there is one. `false pairs` are pairs of
different photographs of DIR, in any symmetry. `ms per image` is the CPU time to hash a photograph
in memory.

The search compares A x B hashes of images (A x A if both are equal) in all eight symmetries. The
hashes are those of the photographs with a quarter of their bits changed, so their bits depend on
each other as those of photographs do, but there are no near pairs except the planted ones, all of
which must be found. Times are CPU seconds of all processes, because other programs may use the
machine; `wall s` is what the run took beside them. `peak GB` is the sum of the peaks of the
processes.

--dataset runs the whole command, a process of its own, on a prepared dataset of N samples, a
twentieth of them in val, or with --across on two datasets of A and B samples. Their tables have
such hashes, so it reads no image. `peak GB` is the largest sum over all of its processes, with
shared pages divided (PSS). --judged compares DIR/test with DIR/train, and what is found with pairs
that people judged.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from hashed_dataset import make_hashed_dataset
from images import photographs
from judged_pairs import measure_imagededup, measure_ours, read_pairs
from numpy.typing import NDArray
from PIL import Image, ImageEnhance
from report import Report, make_parser
from report_page import memory_of_session

from dataprep.duplicates.near import search_hashes
from dataprep.duplicates.pixels import SYMMETRIES, parse_hashes, transform_hashes
from dataprep.duplicates.search import distances
from dataprep.images.perceptual_hash import hash_image
from dataprep.images.validate import check_image
from dataprep.options import DEFAULT_DISTANCE


def encode(image: Image.Image, quality: int) -> bytes:
    out = io.BytesIO()
    image.save(out, "JPEG", quality=quality)
    return out.getvalue()


def shrink(image: Image.Image, factor: float) -> Image.Image:
    return image.resize((max(1, round(image.width * factor)), max(1, round(image.height * factor))))


def crop(image: Image.Image, border: float) -> Image.Image:
    x, y = image.width * border, image.height * border
    return image.crop((round(x), round(y), round(image.width - x), round(image.height - y)))


CHANGES: dict[str, tuple[Callable[[Image.Image], bytes], str]] = {
    "quality 75": (lambda image: encode(image, 75), "identical"),
    "quality 30": (lambda image: encode(image, 30), "identical"),
    "half size, quality 60": (lambda image: encode(shrink(image, 0.5), 60), "identical"),
    "shorter side 256": (
        lambda image: encode(shrink(image, 256 / min(image.size)), 90),
        "identical",
    ),
    "brightness x 1.3": (
        lambda image: encode(ImageEnhance.Brightness(image).enhance(1.3), 90),
        "identical",
    ),
    "brightness x 0.7": (
        lambda image: encode(ImageEnhance.Brightness(image).enhance(0.7), 90),
        "identical",
    ),
    "gray": (lambda image: encode(image.convert("L"), 90), "identical"),
    "mirror": (
        lambda image: encode(image.transpose(Image.Transpose.FLIP_LEFT_RIGHT), 90),
        "mirrored",
    ),
    "rotated": (
        lambda image: encode(image.transpose(Image.Transpose.ROTATE_270), 90),
        "rotated 90",
    ),
    "crop of 1%": (lambda image: encode(crop(image, 0.01), 90), "identical"),
    "crop of 5%": (lambda image: encode(crop(image, 0.05), 90), "identical"),
}


def hashes_of(files: list[bytes]) -> tuple[NDArray[np.uint64], NDArray[np.bool_]]:
    """Return the hashes of images, and whether each has one."""
    texts = [hash_image(data, check_image(data, "none")) for data in files]
    hashes = parse_hashes("".join(text or "0" * 64 for text in texts))
    return hashes, np.array([text is not None for text in texts])


def measure_changes(files: list[bytes], report: Report) -> NDArray[np.uint64]:
    start = time.process_time()
    hashes, has_hash = hashes_of(files)
    milliseconds = (time.process_time() - start) / len(files) * 1e3
    images = [Image.open(io.BytesIO(data)).convert("RGB") for data in files]
    rows: list[dict[str, Any]] = []
    for name, (change, symmetry) in CHANGES.items():
        changed, changed_has = hashes_of([change(image) for image in images])
        # The change turns the original into the copy.
        bits = distances(changed, transform_hashes(hashes, symmetry))[has_hash & changed_has]  # type: ignore[arg-type]
        rows.append({
            "change": name,
            "found": f"{np.count_nonzero(bits <= DEFAULT_DISTANCE) / len(files):.2%}",
            "median bits": float(np.median(bits)),
            "99% bits": float(np.percentile(bits, 99)),
            "most": int(bits.max()),
        })  # fmt: skip
    report.table("Changed copies", rows)
    own = hashes[has_hash]
    false = {name: _near(own, transform_hashes(own, name)) for name in SYMMETRIES}
    report.table("Different photographs", [{
        "photographs": len(files),
        "with a hash": int(has_hash.sum()),
        "false pairs": sum(count for count, _ in false.values()),
        "least bits": min(least for _, least in false.values()),
        "ms per image": milliseconds,
        "mean KB": sum(map(len, files)) / len(files) / 1e3,
    }])  # fmt: skip
    return own


def _near(a: NDArray[np.uint64], b: NDArray[np.uint64]) -> tuple[int, int]:
    """Return the number of near pairs of different rows, and the minimum distance."""
    bits = np.stack([distances(row, b) for row in a])
    others = bits[np.triu_indices(len(a), 1)]
    return int((others <= DEFAULT_DISTANCE).sum()), int(others.min())


def many_hashes(own: NDArray[np.uint64], count: int, seed: int) -> NDArray[np.uint64]:
    """Return hashes whose bits depend on each other as those of photographs do."""
    rng = np.random.default_rng(seed)
    flips = rng.integers(0, 1 << 64, (2, count, 4), dtype=np.uint64)
    hashes: NDArray[np.uint64] = own[rng.integers(0, len(own), count)] ^ (flips[0] & flips[1])
    return hashes


def plant(a: NDArray[np.uint64], b: NDArray[np.uint64], copies: int) -> Iterator[tuple[int, int]]:
    """Make hashes of b near to hashes of a, at most so many, in random symmetries, and yield the pairs."""
    rng = np.random.default_rng(2)
    rows = rng.permutation(min(len(a), len(b)))[: 2 * copies]
    copies = len(rows) // 2
    for source, target in zip(rows[:copies].tolist(), rows[copies:].tolist(), strict=False):
        b[target] = transform_hashes(a[source : source + 1], SYMMETRIES[rng.integers(8)])[0]
        for bit in rng.choice(256, rng.integers(0, DEFAULT_DISTANCE + 1), replace=False):
            b[target, bit // 64] ^= np.uint64(1) << np.uint64(bit % 64)
        yield source, target


def measure_search(own: NDArray[np.uint64], size: str, workers: int | None) -> dict[str, Any]:
    first, second = map(int, size.split("x"))
    hashes = many_hashes(own, second, 0)
    side = None
    if first == second:
        planted = set(plant(hashes, hashes, 1000))
    else:
        queries = many_hashes(own, first, 1)
        planted = {(source, first + target) for source, target in plant(queries, hashes, 1000)}
        hashes, side = np.concatenate([queries, hashes]), np.repeat([0, 1], [first, second])
    cpu, wall = sum(os.times()[:4]), time.perf_counter()
    pairs = search_hashes(hashes, DEFAULT_DISTANCE, side, workers=workers)
    cpu, wall = sum(os.times()[:4]) - cpu, time.perf_counter() - wall
    found = set(zip(pairs.first.tolist(), pairs.second.tolist(), strict=True))
    missing = {tuple(sorted(pair)) for pair in planted} - found
    peaks = [
        resource.getrusage(who).ru_maxrss
        for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
    ]
    return {
        "search": size,
        "CPU s": cpu,
        "wall s": wall,
        "minutes on two free cores": cpu / 120,
        "peak GB": sum(peaks) / 1e6,
        "pairs": len(found),
        "planted pairs missed": len(missing),
        "load": os.getloadavg()[0],
    }


def measure_command(own: NDArray[np.uint64], size: str, image: Path) -> dict[str, Any]:
    """Run `dataprep duplicates` on one dataset, or on two, in a process of its own."""
    counts = [int(count) for count in size.split("x")]
    hashes = many_hashes(own, sum(counts), 0)
    last = counts[1] if len(counts) > 1 else counts[0] // 20
    planted = len(list(plant(hashes[:-last], hashes[-last:], 1000)))
    with tempfile.TemporaryDirectory() as folder:
        folders = [Path(folder) / f"dataset-{number}" for number in range(len(counts))]
        for number, (out, start) in enumerate(
            zip(folders, np.cumsum([0, *counts]).tolist(), strict=False)
        ):
            part = hashes[start : start + counts[number]]
            make_hashed_dataset(out, part, 0 if len(counts) > 1 else last, image, first=start)
        del hashes
        command = [sys.executable, "-m", "dataprep", "duplicates", *map(str, folders), "--json"]
        command += ["--across"] * (len(counts) > 1)
        cpu, wall, peak = sum(os.times()[2:4]), time.perf_counter(), 0
        with tempfile.TemporaryFile() as output:
            process = subprocess.Popen(
                command, start_new_session=True, stdout=output, stderr=subprocess.DEVNULL
            )
            while process.poll() is None:
                peak = max(peak, memory_of_session(process.pid))
                time.sleep(0.2)
            cpu, wall = sum(os.times()[2:4]) - cpu, time.perf_counter() - wall
            output.seek(0)
            result = json.load(output)
    leaked = sum(leak["images"] for leak in result["leaks"])
    return {
        "samples": size,
        "CPU s": cpu,
        "wall s": wall,
        "peak GB": peak / 1e9,
        "pairs": result["near"],
        "listed": len(result["pairs"]),
        "leaked images": f"{leaked} of {planted}",
        "status": process.returncode,
    }


def main() -> None:
    parser = make_parser(__doc__)
    parser.add_argument("--photos", type=Path, help="folder of JPEGs")
    parser.add_argument(
        "--search", nargs="*", default=[], metavar="AxB", help="numbers of hashes to compare"
    )
    parser.add_argument("--workers", type=int, default=None, help="processes of the search")
    parser.add_argument(
        "--dataset",
        nargs="*",
        default=[],
        metavar="N|AxB",
        help="samples of one dataset, or of two",
    )
    parser.add_argument(
        "--judged", nargs=2, type=Path, metavar=("DIR", "PAIRS"), help="images, and pairs of them"
    )
    parser.add_argument(
        "--imagededup", type=Path, metavar="JSON", help="hashes of the judged images by imagededup"
    )
    args: argparse.Namespace = parser.parse_args()
    with Report("duplicates", args.json) as report:
        if args.judged:
            judged = read_pairs(args.judged[1])
            report.table(
                "Judged pairs", [*measure_ours(args.judged[0], judged, [15, 20, 25, 31, 37, 43])]
            )
            if args.imagededup:
                report.table(
                    "Judged pairs",
                    [*measure_imagededup(args.imagededup, judged, [*range(0, 15, 2)])],
                )
        if not args.photos:
            return
        files = [path.read_bytes() for path in photographs(args.photos)]
        own = measure_changes(files, report)
        for size in args.dataset:
            image = next(iter(photographs(args.photos)))
            report.table("dataprep duplicates", [measure_command(own, size, image)])
        for size in args.search:
            report.table("Exact search", [measure_search(own, size, args.workers)])


if __name__ == "__main__":
    main()
