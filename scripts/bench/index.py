"""Indexing shards: `dataprep index` beside DALI's `tfrecord2idx` and `wds2idx`.

    python scripts/bench/index.py --images PHOTOS/ --count 40000 --work /dev/shm/bench
    python scripts/bench/index.py --images PHOTOS/ --count 20000 --work /some/disk --cold

DALI's tools take one shard a call and write the index; `dataprep` takes the folder, and writes index, sample table and
manifest, with each image's size read from its header. Every side is a whole command, its start included; DALI's tools
are also measured without: their loops in one process that is running already. With --cold the pages of the shards are
dropped from the page cache before each measurement, so that the disk must give them again.
"""

from __future__ import annotations

import argparse
import os
import runpy
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Callable
from pathlib import Path

import compare

from dataprep.convert import convert_dataset
from dataprep.plan import Options
from dataprep.sources import read_source

BIN = Path(sysconfig.get_path("scripts"))
#: tfrecord2idx imports TensorFlow where it finds it, only to open files; without, it is faster.
WITHOUT_TENSORFLOW = (
    "import sys, runpy; sys.modules['tensorflow'] = None; sys.argv = sys.argv[1:]; runpy.run_path(sys.argv[0])"
)


def tfrecord2idx_commands(shards: list[Path]) -> None:
    for shard in shards:
        index = shard.with_suffix(".idx")
        subprocess.run([sys.executable, "-c", WITHOUT_TENSORFLOW, BIN / "tfrecord2idx", shard, index], check=True)


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
        [BIN / "dataprep", "index", folder], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )


def make_shards(photos: Path, work: Path, fmt: str, count: int) -> list[Path]:
    folder = work / f"index-{fmt}"
    if not (folder / "made").exists():
        src = compare.repeat_images(photos, work / "src", count)
        made = convert_dataset(read_source(str(src)), str(folder), Options(fmt=fmt))
        (folder / "made").write_text(str(made.images))
        shutil.rmtree(src)
    return sorted(file for file in folder.iterdir() if file.suffix in (".tfrecord", ".tar"))


def reset(shards: list[Path], cold: bool) -> None:
    for shard in shards:
        for name in (shard.with_suffix(".idx"), shard.with_suffix(".parquet"), shard.with_name("manifest.json")):
            name.unlink(missing_ok=True)
        if cold:
            handle = os.open(shard, os.O_RDONLY)
            os.fsync(handle)
            os.posix_fadvise(handle, 0, 0, os.POSIX_FADV_DONTNEED)
            os.close(handle)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--images", type=Path, required=True, help="folder of photographs")
    parser.add_argument("--count", type=int, default=40_000, help="samples")
    parser.add_argument("--work", type=Path, default=Path("/dev/shm/bench"), help="folder for the shards")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument(
        "--cold", action="store_true", help="drop the shards from the page cache each time; --work is on a disk then"
    )
    call = parser.parse_args()
    if call.cold:
        compare.refuse_memory(call.work)

    tools: dict[str, list[tuple[str, Callable[[list[Path]], None]]]] = {
        "tfrecord": [
            ("tfrecord2idx, a command a shard", tfrecord2idx_commands),
            ("tfrecord2idx, its loop alone", tfrecord2idx_loop),
        ],
        "webdataset": [
            ("wds2idx, a command a shard", wds2idx_commands),
            ("wds2idx, its loop alone", wds2idx_loop),
        ],
    }
    for fmt, others in tools.items():
        shards = make_shards(call.images, call.work, fmt, call.count)
        print(f"\n{fmt}: {len(shards)} shards, {'not in' if call.cold else 'in'} the page cache")
        sides: dict[str, Callable[[], None]] = {
            "dataprep index": lambda shards=shards: dataprep_index(shards[0].parent)
        }
        sides |= {name: lambda tool=tool, shards=shards: tool(shards) for name, tool in others}
        compare.run(
            sides,
            images=call.count,
            repeats=call.repeats,
            reset=lambda shards=shards: reset(shards, call.cold),
            ratios=[("dataprep index", name, 5.0 if call.cold else 1.0) for name, _ in others],
        )


if __name__ == "__main__":
    main()
