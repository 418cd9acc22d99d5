"""Writing and start-up of two source trees of this project, in turn, as whole commands.

    git worktree add /tmp/before COMMIT
    python scripts/bench/trees.py --before /tmp/before --images PHOTOS/ --cpus 0 1

Both trees run with this environment and are compiled first. A command converts an ImageFolder from
memory to memory; the start of the interpreter, all imports and the end of the workers count.
Processes that only copy the images show what the machine allows. Start-up is `--help`, and the
conversion of 20 images.
"""

from __future__ import annotations

import multiprocessing
import os
import shutil
import subprocess
import sys
from functools import partial
from pathlib import Path

from convert import SHARD, copy_in_processes
from images import repeat_images
from report import Report, make_parser, time_in_turn

NOW = Path(__file__).resolve().parents[2]
FORMATS = ("webdataset", "tfrecord")
#: Imports a tree in place of the installed one.
PROGRAM = "import sys; sys.path.insert(0, {tree!r}); from dataprep.cli import run; run()"


def command(tree: Path, *arguments: object) -> None:
    """Run `dataprep` of a tree; exit with what it prints if it fails."""
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM.format(tree=str(tree)), *map(str, arguments)],
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise SystemExit(f"{tree}: {done.stderr}")


def main() -> None:
    parser = make_parser(__doc__)
    parser.add_argument("--before", type=Path, required=True, help="the tree to compare with")
    parser.add_argument("--images", type=Path, required=True, help="folder of photographs")
    parser.add_argument("--count", type=int, default=30_240, help="images in the ImageFolder")
    parser.add_argument("--workers", type=int, nargs="+", default=[2, 1])
    parser.add_argument("--cpus", type=int, nargs="+", help="run on these CPUs only")
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument(
        "--work", type=Path, default=Path("/dev/shm/bench-trees"), help="folder in memory"
    )
    args = parser.parse_args()
    if args.cpus:
        os.sched_setaffinity(0, args.cpus)
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    trees = {"now": NOW, "before": args.before.resolve()}
    for tree in trees.values():
        folders = [tree / name for name in ("dataprep", "manifests")]
        subprocess.run([sys.executable, "-m", "compileall", "-q", *folders], check=True)
    src = repeat_images(args.images, args.work / "src", args.count)
    few = repeat_images(args.images, args.work / "few", 20)
    out = args.work / "out"
    reset = partial(shutil.rmtree, out, ignore_errors=True)
    with Report("trees", args.json) as report:
        for workers in args.workers:
            pool = multiprocessing.get_context("spawn").Pool(workers)
            for fmt in FORMATS:
                options = ("--fmt", fmt, "--workers", workers, "--shard-size", SHARD, "--out", out)
                sides = {
                    name: partial(command, tree, "convert", "--src", src, *options)
                    for name, tree in trees.items()
                }
                sides["copy"] = partial(copy_in_processes, pool, src, out, workers, checked=False)
                timings = time_in_turn(sides, repeats=args.repeats, reset=reset)
                title = f"{fmt}, {workers} workers, {args.count:,} images"
                report.rates(title, timings, args.count)
                report.ratios(timings, [("now", "before", "speed"), ("now", "copy", None)])
            pool.terminate()
        starts = {
            "--help": ("--help",),
            "convert --help": ("convert", "--help"),
            "convert, 20 images": ("convert", "--src", few, "--out", out, "--workers", 1),
        }
        for title, arguments in starts.items():
            sides = {name: partial(command, tree, *arguments) for name, tree in trees.items()}
            timings = time_in_turn(sides, repeats=args.repeats, reset=reset)
            report.rates(f"start-up: {title}, commands in 100 s", timings, 100)
            report.ratios(timings, [("now", "before", "start")])
    reset()


if __name__ == "__main__":
    main()
