"""Indexing: `dataprep index` against DALI's `tfrecord2idx` and `wds2idx`.

DALI's tools take one shard per call and write its index. `dataprep` takes the folder and writes
indexes, sample tables and the manifest, with the size of each image from its header. Every side is
a complete command, including its start. DALI's tools are also measured without the start: only
their loops, in a process that already runs. With --cold the shards are dropped from the page cache
before each measurement, so that they are read from the disk.
"""

from __future__ import annotations

import argparse
import runpy
import shutil
import sys
import sysconfig
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import harness
from harness import Report, WrongOptionError, at_least, option, time_in_turn, usual
from inputs import (
    FORMATS,
    convert,
    dataprep,
    drop_pages,
    repeat_images,
    require_disk,
    run_command,
    shard_files,
)

TAKES = "10 minutes"
NEEDS = "photographs, DALI with its tools, 5 GB of memory"
OPTIONS = [
    *usual("index", count=40_000, repeats=5),
    option("--formats", [*FORMATS], "formats of the shards"),
    option("--cold", False, "read from the disk; --work must be on one"),
]
WARM, COLD = at_least(1.0), at_least(5.0)  # ratios of images per second to DALI's tools
#: tfrecord2idx imports TensorFlow if it is installed, only to open files, and is slower with it.
WITHOUT_TENSORFLOW = (
    "import sys, runpy; sys.modules['tensorflow'] = None; sys.argv = sys.argv[1:];"
    " runpy.run_path(sys.argv[0])"
)


def tool(name: str) -> str:
    """Return the path of one of DALI's tools."""
    found = shutil.which(name, path=sysconfig.get_path("scripts")) or shutil.which(name)
    if found is None:
        raise WrongOptionError(f"{name} is not installed. Hint: install nvidia-dali-cuda120.")
    return found


def tfrecord2idx_commands(shards: list[Path]) -> None:
    for shard in shards:
        files = [str(shard), str(shard.with_suffix(".idx"))]
        run_command([harness.PYTHON, "-c", WITHOUT_TENSORFLOW, tool("tfrecord2idx"), *files])


def tfrecord2idx_loop(shards: list[Path]) -> None:
    modules: dict[str, Any] = sys.modules
    modules["tensorflow"] = None
    for shard in shards:
        sys.argv = ["tfrecord2idx", str(shard), str(shard.with_suffix(".idx"))]
        runpy.run_path(tool("tfrecord2idx"))


def wds2idx_commands(shards: list[Path]) -> None:
    for shard in shards:
        run_command([tool("wds2idx"), str(shard), str(shard.with_suffix(".idx"))])


def wds2idx_loop(shards: list[Path]) -> None:
    from wds2idx import IndexCreator

    for shard in shards:
        with IndexCreator(str(shard), str(shard.with_suffix(".idx")), verbose=False) as creator:
            creator.create_index()


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


def reset(shards: list[Path], cold: bool) -> None:
    """Leave only the shards of the dataset."""
    for shard in shards:
        shard.with_suffix(".idx").unlink(missing_ok=True)
        shard.with_suffix(".parquet").unlink(missing_ok=True)
    shards[0].with_name("manifest.json").unlink(missing_ok=True)
    if cold:
        drop_pages(shards)


def run(report: Report, args: argparse.Namespace) -> None:
    """Index the shards of each format with every tool."""
    if args.cold:
        require_disk(args.work)
    for fmt in args.formats:
        folder = args.work / fmt
        if not (folder / "complete").exists():
            convert(repeat_images(args.images, args.work / "src", args.count), folder, fmt)
            (folder / "complete").touch()
        shards = shard_files(folder)
        index = partial(run_command, dataprep("index", folder))
        sides: dict[str, Callable[[], None]] = {"dataprep index": index}
        sides |= {name: partial(function, shards) for name, function in TOOLS[fmt].items()}
        again = partial(reset, shards, args.cold)
        timings = time_in_turn(sides, repeats=args.repeats, reset=again)
        where = f"{'not ' if args.cold else ''}in the page cache"
        report.rates(
            f"{fmt}: {args.count:,} samples in {len(shards)} shards, {where}", timings, args.count
        )
        target = COLD if args.cold else WARM
        report.ratios(timings, [("dataprep index", name, target) for name in TOOLS[fmt]])
