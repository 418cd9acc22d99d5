"""Conversions with `dataprep`, as a command and in this process."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path


def convert(src: Path | str, out: Path | str, fmt: str, *options: object) -> None:
    """Run ``dataprep convert``; exit with what it prints if it fails."""
    arguments = ["convert", "--src", src, "--out", out, "--fmt", fmt, *options]
    done = subprocess.run(
        [sys.executable, "-m", "dataprep", *map(str, arguments)],
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise SystemExit(done.stderr)


def convert_here(
    src: Path | str, out: Path | str, fmt: str, *, shard_bytes: int, workers: int
) -> None:
    """Convert with workers of this process, which start while the source is scanned, as those of the command do."""
    from dataprep.engines import LocalEngine
    from dataprep.options import Options
    from dataprep.run.convert import convert_dataset
    from dataprep.sources import read_source

    engine = LocalEngine(workers)
    engine.start("dataprep.shards.write")
    convert_dataset(
        read_source(str(src)), str(out), Options(fmt=fmt, shard_bytes=shard_bytes), engine=engine
    )
