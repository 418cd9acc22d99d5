"""Writing shards: `dataprep.convert` beside webdataset.ShardWriter, GNU tar and TensorFlow's TFRecordWriter.

All sides read the same ImageFolder from memory and write into memory, in turn, in one run:

    python scripts/bench/convert.py --images PHOTOS/ --count 30000 --work /dev/shm/bench

PHOTOS is a folder of JPEGs, at any depth, which are repeated up to the count. `dataprep` does all of its work: scan,
plan, header validation, both indexes' and tables' writing, checksums, reading back; two worker processes,
their start included; as a command, the start of the interpreter and all imports too. TensorFlow is measured where
it is installed. Processes that only copy, and others that also take the checksums and read back, show what the
machine allows.
"""

from __future__ import annotations

import argparse
import io
import multiprocessing
import multiprocessing.pool
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import compare
from awscrt.checksums import crc32c
from PIL import Image

from dataprep import engines, storage
from dataprep.convert import convert_dataset
from dataprep.plan import Options
from dataprep.sources import read_source

SHARD = 256 << 20


def ours(src: Path, out: Path, fmt: str, workers: int) -> None:
    engine = engines.LocalEngine(workers)
    engine.start("dataprep.shards")  # as the command does
    convert_dataset(read_source(str(src)), str(out), Options(fmt=fmt, shard_bytes=SHARD), engine=engine)


def command(src: Path, out: Path, fmt: str, workers: int) -> None:
    call = ["convert", "--src", src, "--out", out, "--fmt", fmt, "--shard-size", SHARD, "--workers", workers]
    program = [sys.executable, "-m", "dataprep.cli", *map(str, call)]
    subprocess.run(program, check=True, capture_output=True)


def labelled(src: Path) -> Iterator[tuple[Path, int, str]]:
    for label, folder in enumerate(sorted(src.iterdir())):
        for file in sorted(folder.iterdir()):
            yield file, label, folder.name


def size_of(data: bytes) -> tuple[int, int]:
    """Read width and height from an image's header, as one does without a parser of one's own."""
    with Image.open(io.BytesIO(data)) as image:
        return image.size


def shard_writer(src: Path, out: Path, *, same: bool) -> None:
    """Write image and label with `webdataset`; with `same`, the .json too that `dataprep` writes."""
    import webdataset

    out.mkdir()
    with webdataset.ShardWriter(f"{out}/%05d.tar", maxsize=SHARD, maxcount=1 << 40, verbose=0) as sink:
        for number, (file, label, name) in enumerate(labelled(src)):
            data = file.read_bytes()
            sample = {"__key__": f"{number:08d}", "jpg": data, "cls": label}
            if same:
                width, height = size_of(data)
                sample["json"] = {
                    "key": sample["__key__"],
                    "label": label,
                    "class": name,
                    "width": width,
                    "height": height,
                    "source": str(file),
                }
            sink.write(sample)


def tar(src: Path, out: Path) -> None:
    out.mkdir()
    subprocess.run(["tar", "--format=ustar", "-C", src, "-cf", out / "all.tar", "."], check=True)


def tensorflow_writer(src: Path, out: Path, *, same: bool) -> None:
    """Write image and label with TensorFlow; with `same`, all features that `dataprep` writes."""
    import tensorflow as tf

    def feature(value: bytes | int) -> tf.train.Feature:
        if isinstance(value, int):
            return tf.train.Feature(int64_list=tf.train.Int64List(value=[value]))
        return tf.train.Feature(bytes_list=tf.train.BytesList(value=[value]))

    out.mkdir()
    with tf.io.TFRecordWriter(f"{out}/all.tfrecord") as sink:
        for file, label, name in labelled(src):
            data = file.read_bytes()
            features = {"image/encoded": feature(data), "image/class/label": feature(label)}
            if same:
                width, height = size_of(data)
                features |= {
                    "image/class/text": feature(name.encode()),
                    "image/filename": feature(str(file).encode()),
                    "image/format": feature(b"JPEG"),
                    "image/height": feature(height),
                    "image/width": feature(width),
                }
            example = tf.train.Example(features=tf.train.Features(feature=features))
            sink.write(example.SerializeToString())


def copy_alone(paths: list[str], out: str, checked: bool) -> None:
    """Read every file and append it to another; with `checked`, take both checksums and read all back too."""
    handle = os.open(out, os.O_RDWR | os.O_CREAT | os.O_TRUNC)
    reader, end = storage.ReadBack(handle), 0
    for path in paths:
        source = os.open(path, os.O_RDONLY)
        data = os.read(source, os.fstat(source).st_size + 1)
        os.close(source)
        end += os.write(handle, data)
        if checked:
            crc32c(data)
            if end - reader.position > 4 << 20:
                reader.advance(end)
    os.close(handle)


def copy_in_processes(pool: multiprocessing.pool.Pool, src: Path, out: Path, workers: int, *, checked: bool) -> None:
    out.mkdir()
    paths = [str(file) for file, _, _ in labelled(src)]
    pool.starmap(copy_alone, [(paths[number::workers], f"{out}/{number}", checked) for number in range(workers)])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--images", type=Path, required=True, help="folder of photographs")
    parser.add_argument("--count", type=int, default=30_000, help="images in the ImageFolder made of them")
    parser.add_argument("--work", type=Path, default=Path("/dev/shm/bench"), help="folder in memory")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--only", nargs="+", help="measure only the sides whose names contain one of these")
    call = parser.parse_args()

    src = compare.repeat_images(call.images, call.work / "src", call.count)
    out = call.work / "out"

    pool = multiprocessing.get_context("spawn").Pool(call.workers)
    copied = f"{call.workers} processes that only copy"
    checked = f"{call.workers} that copy, check, read back"
    sides: dict[str, Callable[[], None]] = {
        "dataprep, webdataset": lambda: ours(src, out, "webdataset", call.workers),
        "dataprep webdataset, as a command": lambda: command(src, out, "webdataset", call.workers),
        "dataprep, tfrecord": lambda: ours(src, out, "tfrecord", call.workers),
        copied: lambda: copy_in_processes(pool, src, out, call.workers, checked=False),
        checked: lambda: copy_in_processes(pool, src, out, call.workers, checked=True),
        "GNU tar": lambda: tar(src, out),
        "ShardWriter, the same files": lambda: shard_writer(src, out, same=True),
        "ShardWriter, image and label": lambda: shard_writer(src, out, same=False),
    }
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    if compare.installed("tensorflow"):
        sides |= {
            "TFRecordWriter, the same features": lambda: tensorflow_writer(src, out, same=True),
            "TFRecordWriter, image and label": lambda: tensorflow_writer(src, out, same=False),
        }
    if call.only:
        sides = {name: side for name, side in sides.items() if any(word in name for word in call.only)}
    compare.run(
        sides,
        images=call.count,
        repeats=call.repeats,
        reset=lambda: compare.clear(out, ready=compare.length(src)),
        ratios=[
            ("dataprep, webdataset", "ShardWriter, the same files", 6.0),
            ("dataprep, webdataset", "ShardWriter, image and label", 6.0),
            ("dataprep webdataset, as a command", "ShardWriter, the same files", 6.0),
            ("dataprep, webdataset", "GNU tar", 0.8),
            ("dataprep, tfrecord", "TFRecordWriter, the same features", 3.0),
            ("dataprep, tfrecord", "TFRecordWriter, image and label", 3.0),
            (copied, "ShardWriter, the same files", 6.0),
            (copied, "TFRecordWriter, the same features", 3.0),
            (checked, "ShardWriter, the same files", 6.0),
            (checked, "TFRecordWriter, the same features", 3.0),
        ],
    )
    pool.terminate()
    shutil.rmtree(out, ignore_errors=True)


if __name__ == "__main__":
    main()
