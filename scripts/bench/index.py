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
from functools import partial
from pathlib import Path
from typing import Any

import harness
from harness import FORMATS, Report, Side, WrongOptionError, at_least, option, replaced, usual
from inputs import dataprep, drop_pages, prepare, require_disk, run_command, shard_files

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


def index_each(shards: list[Path], *command: str) -> None:
    """Run a command for each shard."""
    for shard in shards:
        run_command([*command, str(shard), str(shard.with_suffix(".idx"))])


def tfrecord2idx_loop(shards: list[Path]) -> None:
    modules: dict[str, Any] = sys.modules
    modules["tensorflow"] = None
    for shard in shards:
        sys.argv = ["tfrecord2idx", str(shard), str(shard.with_suffix(".idx"))]
        runpy.run_path(tool("tfrecord2idx"))


def wds2idx_loop(shards: list[Path]) -> None:
    from wds2idx import IndexCreator

    for shard in shards:
        with IndexCreator(str(shard), str(shard.with_suffix(".idx")), verbose=False) as creator:
            creator.create_index()


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
        folder = prepare(replaced(args, fmt=fmt))[1]
        shards = shard_files(folder)
        start: tuple[str, ...]
        if fmt == "tfrecord":
            name, loop = "tfrecord2idx", tfrecord2idx_loop
            start = (harness.PYTHON, "-c", WITHOUT_TENSORFLOW, tool(name))
        else:
            name, loop, start = "wds2idx", wds2idx_loop, (tool("wds2idx"),)
        ours, commands, alone = (
            "dataprep index",
            f"{name}, a command per shard",
            f"{name}, its loop alone",
        )
        sides: dict[str, Side] = {
            ours: partial(run_command, dataprep("index", folder)),
            commands: partial(index_each, shards, *start),
            alone: partial(loop, shards),
        }
        where = f"{'not ' if args.cold else ''}in the page cache"
        target = COLD if args.cold else WARM
        report.compare(
            f"{fmt}: {args.count:,} samples in {len(shards)} shards, {where}",
            sides,
            images=args.count,
            repeats=args.repeats,
            pairs=[(ours, name, target) for name in (commands, alone)],
            reset=partial(reset, shards, args.cold),
        )
        # The tools of DALI leave no manifest, so nothing can be used again.
        shutil.rmtree(folder)
