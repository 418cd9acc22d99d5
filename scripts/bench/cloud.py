"""Conversion from bucket to bucket: `dataprep convert` against plain obstore, and s5cmd if it is installed.

    python scripts/bench/cloud.py --images PHOTOS/ --count 3000

PHOTOS is a folder of JPEGs, at any depth, which are repeated up to the count and uploaded to
SeaweedFS on this machine. `plain obstore` gets the same images with as many processes and requests
at a time, joins those of a shard in memory, and puts the shards: no scan, checks, indexes or
tables. `s5cmd` only downloads the images into a folder in memory. The server runs on the same CPUs
as everything else, so only rates count, not CPU times.
"""

from __future__ import annotations

import functools
import multiprocessing
import multiprocessing.pool
import os
import shutil
import statistics
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from conversion import convert, convert_here
from images import photographs
from report import Report, make_parser, time_in_turn

ROOT = Path(__file__).parents[2]
sys.path[:0] = [
    str(ROOT),
    str(ROOT / "tests"),
]  # The packages come first: `tests` has folders of the same names.

from helpers.servers import BUCKET, seaweedfs  # noqa: E402

from manifests.remote.store import open_store  # noqa: E402

SHARD = 64 << 20

#: Requests that one worker process of `dataprep` has under way: as many as it has connections.
REQUESTS = 32


def upload(photos: Path, url: str, count: int) -> None:
    store = open_store(url)
    contents = [file.read_bytes() for file in photographs(photos)]
    with ThreadPoolExecutor(16) as pool:
        list(
            pool.map(
                lambda number: store.put(
                    f"class{number % 100:04d}/{number:08d}.jpg", contents[number % len(contents)]
                ),
                range(count),
            )
        )


@functools.cache
def _plain_store() -> object:
    from obstore.store import S3Store

    return S3Store(
        BUCKET, endpoint=os.environ["AWS_ENDPOINT_URL"], client_options={"allow_http": True}
    )


def copy_shard(keys: list[str], target: str) -> None:
    """Get objects and put them together as one, with nothing but obstore."""
    store = _plain_store()
    with ThreadPoolExecutor(REQUESTS) as threads:
        parts = list(threads.map(lambda key: store.get(key).bytes(), keys))
    store.put(target, b"".join(map(bytes, parts)), use_multipart=False)


def plain(pool: multiprocessing.pool.Pool, prefix: str, out: str) -> None:
    objects = [meta for chunk in _plain_store().list(prefix, chunk_size=1000) for meta in chunk]
    shards: list[list[str]] = [[]]
    size = 0
    for meta in objects:
        if size + meta["size"] > SHARD:
            shards.append([])
            size = 0
        shards[-1].append(meta["path"])
        size += meta["size"]
    pool.starmap(
        copy_shard, [(keys, f"{out}/{number}") for number, keys in enumerate(shards)], chunksize=1
    )


def s5cmd(src: str, folder: Path) -> None:
    program = [
        "s5cmd",
        "--endpoint-url",
        os.environ["AWS_ENDPOINT_URL"],
        "cp",
        f"{src}/*",
        f"{folder}/",
    ]
    subprocess.run(program, check=True, capture_output=True)


def clear(url: str, folder: Path) -> None:
    store = open_store(url)
    for info in list(store.list_objects()):
        store.delete(info.name)
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)


def main() -> None:
    parser = make_parser(__doc__)
    parser.add_argument("--images", type=Path, required=True, help="folder of photographs")
    parser.add_argument("--count", type=int, default=3000, help="images in the bucket")
    parser.add_argument(
        "--work", type=Path, default=Path("/dev/shm/bench-cloud"), help="folder in memory"
    )
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--workers", type=int, default=2)
    args = parser.parse_args()

    src, out, folder = f"s3://{BUCKET}/images", f"s3://{BUCKET}/out", args.work / "download"
    args.work.mkdir(parents=True, exist_ok=True)
    os.environ["TMPDIR"] = str(args.work)
    with seaweedfs(args.work / "server") as environment, Report("cloud", args.json) as report:
        os.environ |= environment
        upload(args.images, src, args.count)
        pool = multiprocessing.get_context("spawn").Pool(args.workers)
        sides: dict[str, Callable[[], None]] = {
            "dataprep, bucket to bucket": lambda: convert_here(
                src, out, "webdataset", shard_bytes=SHARD, workers=args.workers
            ),
            "dataprep, as a command": lambda: convert(
                src, out, "webdataset", "--shard-size", SHARD, "--workers", args.workers
            ),
            "plain obstore": lambda: plain(pool, "images", "out"),
        }
        if shutil.which("s5cmd"):
            sides["s5cmd, download only"] = lambda: s5cmd(src, folder)
        timings = time_in_turn(sides, repeats=args.repeats, reset=lambda: clear(out, folder))
        report.rates(
            f"{args.count:,} images, {args.repeats} repeats after one warm-up", timings, args.count
        )
        for name in ("dataprep, bucket to bucket", "dataprep, as a command"):
            one, other = timings[name].seconds, timings["plain obstore"].seconds
            pairs = sorted(b / a for a, b in zip(one, other, strict=True))
            note = f"pairs {pairs[0]:.2f} to {pairs[-1]:.2f}"
            report.check(f"{name} / plain obstore", statistics.median(pairs), "plain_obstore", note)
        pool.terminate()
    shutil.rmtree(args.work, ignore_errors=True)


if __name__ == "__main__":
    main()
