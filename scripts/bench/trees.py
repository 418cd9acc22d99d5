"""Writing and start-up of two source trees of this project, in turn, as whole commands.

    git worktree add /tmp/before COMMIT
    python scripts/bench trees --before /tmp/before --images PHOTOS/ --cpus 0 1

Both trees run with this environment and are compiled first. A command converts an ImageFolder from
memory to memory; the start of the interpreter, all imports and the end of the workers count.
Processes that only copy the images show what the machine allows. Start-up is `--help`, and the
conversion of 20 images.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import shutil
import subprocess
from functools import partial
from pathlib import Path

import harness
from convert import SHARD, copy_in_processes
from harness import FORMATS, ROOT, Report, Side, at_least, option, usual
from inputs import repeat_images, run_command

TAKES = "20 minutes"
NEEDS = "photographs, another source tree, 7 GB of memory"
OPTIONS = [
    option("--before", None, "the tree to compare with", type=Path, required=True),
    *usual("trees", count=30_240, repeats=7),
    option("--workers", [2, 1], "processes of a conversion"),
    option("--cpus", None, "run on these CPUs only", type=int, nargs="+"),
]
#: Imports a tree in place of the installed one.
PROGRAM = "import sys; sys.path.insert(0, {tree!r}); from dataprep.__main__ import run; run()"
RATIO = at_least(0.97)  # commands per second, to the tree before


def command(tree: Path, *arguments: object) -> None:
    """Run `dataprep` of a tree."""
    run_command([harness.PYTHON, "-c", PROGRAM.format(tree=str(tree)), *map(str, arguments)])


def run(report: Report, args: argparse.Namespace) -> None:
    """Compare conversions in both formats, and starts."""
    if args.cpus:
        os.sched_setaffinity(0, args.cpus)
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    trees = {"now": ROOT, "before": args.before.resolve()}
    for tree in trees.values():
        folders = [tree / name for name in ("dataprep", "manifests")]
        subprocess.run([harness.PYTHON, "-m", "compileall", "-q", *folders], check=True)
    src = repeat_images(args.images, args.work / "src", args.count)
    few = repeat_images(args.images, args.work / "few", 20)
    out = args.work / "out"
    reset = partial(shutil.rmtree, out, ignore_errors=True)
    compare = partial(report.compare, repeats=args.repeats, reset=reset)
    for workers in args.workers:
        pool = multiprocessing.get_context("spawn").Pool(workers)
        for fmt in FORMATS:
            options = ("--fmt", fmt, "--workers", workers, "--shard-size", SHARD, "--out", out)
            convert = ("convert", "--src", src, *options)
            sides: dict[str, Side] = {}
            for name, tree in trees.items():
                sides[name] = partial(command, tree, *convert)
            sides["copy"] = partial(copy_in_processes, pool, src, out, workers, checked=False)
            title = f"{fmt}, {workers} workers, {args.count:,} images"
            pairs = [("now", "before", RATIO), ("now", "copy", None)]
            compare(title, sides, images=args.count, pairs=pairs)
        pool.terminate()
    starts: dict[str, tuple[object, ...]] = {
        "--help": ("--help",),
        "convert --help": ("convert", "--help"),
        "convert, 20 images": ("convert", "--src", few, "--out", out, "--workers", 1),
    }
    for title, arguments in starts.items():
        sides = {name: partial(command, tree, *arguments) for name, tree in trees.items()}
        name = f"start-up: {title}, commands in 100 s"
        compare(name, sides, images=100, pairs=[("now", "before", RATIO)])
    reset()
