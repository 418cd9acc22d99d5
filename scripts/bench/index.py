"""Indexing: `dataprep index` against DALI's `tfrecord2idx` and `wds2idx`.

    python scripts/bench/index.py --images PHOTOS/ --count 40000 --work /dev/shm/bench
    python scripts/bench/index.py --images PHOTOS/ --count 20000 --work /some/disk --cold

DALI's tools take one shard per call and write its index. `dataprep` takes the folder and writes
indexes, sample tables and the manifest, with the size of each image from its header. Every side is
a complete command, including its start. DALI's tools are also measured without the start: only
their loops, in a process that already runs. With --cold the shards are dropped from the page cache
before each measurement, so that they are read from the disk.
"""

from __future__ import annotations

import runpy
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Callable
from functools import partial
from pathlib import Path

from conversion import convert
from images import drop_pages, repeat_images, require_disk, shard_files
from report import Report, make_parser, time_in_turn

BIN = Path(sysconfig.get_path("scripts"))
#: tfrecord2idx imports TensorFlow if it is installed, only to open files; without it, the tool is
#: faster.
WITHOUT_TENSORFLOW = (
    "import sys, runpy; sys.modules['tensorflow'] = None; sys.argv = sys.argv[1:];"
    " runpy.run_path(sys.argv[0])"
)


def tfrecord2idx_commands(shards: list[Path]) -> None:
    for shard in shards:
        index = shard.with_suffix(".idx")
        subprocess.run(
            [sys.executable, "-c", WITHOUT_TENSORFLOW, BIN / "tfrecord2idx", shard, index],
            check=True,
        )


def tfrecord2idx_loop(shards: list[Path]) -> None:
    sys.modules["tensorflow"] = None  # type: ignore[assignment]
    for shard in shards:
        sys.argv = ["tfrecord2idx", str(shard), str(shard.with_suffix(".idx"))]
        runpy.run_path(str(BIN / "tfrecord2idx"))


def wds2idx_commands(shards: list[Path]) -> None:
    for shard in shards:
        index = shard.with_suffix(".idx")
        subprocess.run([BIN / "wds2idx", shard, index], check=True, stdout=subprocess.DEVNULL)


def wds2idx_loop(shards: list[Path]) -> None:
    from wds2idx import IndexCreator

    for shard in shards:
        with IndexCreator(str(shard), str(shard.with_suffix(".idx")), verbose=False) as creator:
            creator.create_index()


def dataprep_index(folder: Path) -> None:
    subprocess.run(
        [BIN / "dataprep", "index", folder],
        check=True,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )


TOOLS: dict[str, dict[str, Callable[[list[Path]], None]]] = {
    "tfrecord": {
        "tfrecord2idx, a command per shard": tfrecord2idx_commands,
        "tfrecord2idx, its loop alone": tfrecord2idx_loop,
    },
    "webdataset": {
        "wds2idx, a command per shard": wds2idx_commands,
        "wds2idx, its loop alone": wds2idx_loop,
    },
}


def make_shards(photos: Path, work: Path, fmt: str, count: int) -> list[Path]:
    folder = work / f"index-{fmt}"
    if not (folder / "complete").exists():
        src = repeat_images(photos, work / "src", count)
        convert(src, folder, fmt)
        (folder / "complete").touch()
        shutil.rmtree(src)
    return shard_files(folder)


def reset(shards: list[Path], cold: bool) -> None:
    for shard in shards:
        for name in (
            shard.with_suffix(".idx"),
            shard.with_suffix(".parquet"),
            shard.with_name("manifest.json"),
        ):
            name.unlink(missing_ok=True)
    if cold:
        drop_pages(shards)


def main() -> None:
    parser = make_parser(__doc__)
    parser.add_argument("--images", type=Path, required=True, help="folder of photographs")
    parser.add_argument("--count", type=int, default=40_000, help="samples")
    parser.add_argument(
        "--work", type=Path, default=Path("/dev/shm/bench"), help="folder for the shards"
    )
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument(
        "--cold",
        action="store_true",
        help="drop the shards from the page cache each time; --work must be on a disk",
    )
    args = parser.parse_args()
    if args.cold:
        require_disk(args.work)
    with Report("index", args.json) as report:
        for fmt, tools in TOOLS.items():
            shards = make_shards(args.images, args.work, fmt, args.count)
            sides: dict[str, Callable[[], None]] = {
                "dataprep index": partial(dataprep_index, shards[0].parent)
            }
            sides |= {name: partial(tool, shards) for name, tool in tools.items()}
            timings = time_in_turn(
                sides, repeats=args.repeats, reset=partial(reset, shards, args.cold)
            )
            where = "not in" if args.cold else "in"
            report.rates(
                f"{fmt}: {args.count:,} samples in {len(shards)} shards, {where} the page cache",
                timings,
                args.count,
            )
            report.ratios(
                timings,
                [("dataprep index", name, "cold" if args.cold else "warm") for name in tools],
            )


if __name__ == "__main__":
    main()
