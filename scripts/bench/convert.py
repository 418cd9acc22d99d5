"""Conversion: `dataprep convert` against webdataset.ShardWriter, GNU tar and TensorFlow's TFRecordWriter.

All sides read the same ImageFolder from memory and write to memory, in turn. `dataprep` does all of
its work: scan, plan, check of the headers, indexes, sample tables, checksums and reading back. The
time includes the start of the workers; `as a command` also the start of the interpreter and all imports.
Processes that only copy, and processes that copy, compute both checksums and read back, show what
the machine allows.
"""

from __future__ import annotations

import argparse
import importlib.util
import multiprocessing
import multiprocessing.pool
import os
import shutil
import subprocess
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

from awscrt.checksums import crc32c
from harness import ONLY, Report, Side, at_least, chosen, option, usual
from inputs import bytes_in, clear, convert, convert_here, repeat_images
from PIL import Image

TAKES = "15 minutes"
NEEDS = "photographs, 7 GB of memory; measures TensorFlow if it is installed"
OPTIONS = [
    *usual("convert", count=30_000, repeats=5),
    option("--workers", 2, "processes"),
    ONLY,
]
SHARD = 256 << 20
SHARD_WRITER, TFRECORD_WRITER, TAR = at_least(6.0), at_least(3.0), at_least(0.8)


def labeled(src: Path) -> Iterator[tuple[Path, int, str, tuple[int, int]]]:
    """Yield each file with its label, its class, and its width and height from the header."""
    for label, folder in enumerate(sorted(src.iterdir())):
        for file in sorted(folder.iterdir()):
            with Image.open(file) as image:
                yield file, label, folder.name, image.size


def shard_writer(src: Path, out: Path) -> None:
    """Write the same files as `dataprep` with `webdataset`."""
    import webdataset

    out.mkdir()
    options = {"maxsize": SHARD, "maxcount": 1 << 40, "verbose": 0}
    with webdataset.ShardWriter(f"{out}/%05d.tar", **options) as sink:
        for number, (file, label, name, (width, height)) in enumerate(labeled(src)):
            key = f"{number:08d}"
            fields = {"key": key, "label": label, "class": name, "width": width}
            fields |= {"height": height, "source": str(file)}
            sink.write({"__key__": key, "jpg": file.read_bytes(), "cls": label, "json": fields})


def tar(src: Path, out: Path) -> None:
    out.mkdir()
    subprocess.run(["tar", "--format=ustar", "-C", src, "-cf", out / "all.tar", "."], check=True)


def tensorflow_writer(src: Path, out: Path) -> None:
    """Write the same features as `dataprep` with TensorFlow."""
    import tensorflow as tf

    def feature(value: bytes | int) -> Any:
        if isinstance(value, int):
            return tf.train.Feature(int64_list=tf.train.Int64List(value=[value]))
        return tf.train.Feature(bytes_list=tf.train.BytesList(value=[value]))

    out.mkdir()
    with tf.io.TFRecordWriter(f"{out}/all.tfrecord") as sink:
        for file, label, name, (width, height) in labeled(src):
            values: dict[str, bytes | int] = {"encoded": file.read_bytes(), "class/label": label}
            values |= {"class/text": name.encode(), "filename": str(file).encode()}
            values |= {"format": b"JPEG", "height": height, "width": width}
            features = {f"image/{key}": feature(value) for key, value in values.items()}
            example = tf.train.Example(features=tf.train.Features(feature=features))
            sink.write(example.SerializeToString())


def copy_files(paths: list[str], out: str, checked: bool) -> None:
    """Append all files to one file; with `checked`, also compute checksums and read everything back."""
    handle = os.open(out, os.O_RDWR | os.O_CREAT | os.O_TRUNC)
    buffer = memoryview(bytearray(1 << 18))
    end = position = crc = 0
    for path in paths:
        data = Path(path).read_bytes()
        end += os.write(handle, data)
        if checked:
            crc32c(data)
            while position < end - (4 << 20):
                length = os.preadv(handle, [buffer], position)
                crc = crc32c(buffer[:length], crc)
                position += length
    os.close(handle)


def copy_in_processes(
    pool: multiprocessing.pool.Pool, src: Path, out: Path, workers: int, *, checked: bool
) -> None:
    out.mkdir()
    paths = [str(file) for file in sorted(src.rglob("*.jpg"))]
    parts = [(paths[start::workers], f"{out}/{start}", checked) for start in range(workers)]
    pool.starmap(copy_files, parts)


def run(report: Report, args: argparse.Namespace) -> None:
    """Time all sides in turn."""
    src = repeat_images(args.images, args.work / "src", args.count)
    out, workers = args.work / "out", args.workers
    pool = multiprocessing.get_context("spawn").Pool(workers)
    copy = partial(copy_in_processes, pool, src, out, workers)
    options = ("--shard-size", SHARD, "--workers", workers)
    here = {"workers": workers, "shard_bytes": SHARD}
    ours, records = "dataprep, webdataset", "dataprep, tfrecord"
    command = "dataprep webdataset, as a command"
    copied, checked = (
        f"{workers} processes that only copy",
        f"{workers} that copy, check, read back",
    )
    files, features = "ShardWriter, the same files", "TFRecordWriter, the same features"
    sides: dict[str, Side] = {
        ours: partial(convert_here, src, out, fmt="webdataset", **here),
        command: partial(convert, src, out, "webdataset", *options),
        records: partial(convert_here, src, out, fmt="tfrecord", **here),
        copied: partial(copy, checked=False),
        checked: partial(copy, checked=True),
        "GNU tar": partial(tar, src, out),
        files: partial(shard_writer, src, out),
    }
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    if importlib.util.find_spec("tensorflow"):
        sides[features] = partial(tensorflow_writer, src, out)
    pairs = [(side, files, SHARD_WRITER) for side in (ours, command, copied, checked)]
    pairs += [(side, features, TFRECORD_WRITER) for side in (records, copied, checked)]
    pairs.append((ours, "GNU tar", TAR))
    report.compare(
        f"{args.count:,} images, {args.repeats} repeats after one warm-up",
        chosen(sides, args.only),
        images=args.count,
        repeats=args.repeats,
        pairs=pairs,
        reset=partial(clear, out, ready=bytes_in(src)),
    )
    pool.terminate()
    shutil.rmtree(out, ignore_errors=True)
