"""Conversion: `dataprep convert` against webdataset.ShardWriter, GNU tar and TensorFlow's TFRecordWriter.

    python scripts/bench/convert.py --images PHOTOS/ --count 30000 --work /dev/shm/bench

PHOTOS is a folder of JPEGs, at any depth, which are repeated up to the count. All sides read the
same ImageFolder from memory and write to memory, in turn. `dataprep` does all of its work in two
worker processes: scan, plan, check of the headers, indexes, sample tables, checksums and reading
back. The time includes the start of the workers; `as a command` also includes the start of the
interpreter and all imports. TensorFlow is measured if it is installed. Processes that only copy,
and processes that copy, compute both checksums and read back, show what the machine allows.
"""

from __future__ import annotations

import importlib.util
import io
import multiprocessing
import multiprocessing.pool
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

from awscrt.checksums import crc32c
from conversion import convert, convert_here
from images import bytes_in, clear, repeat_images
from PIL import Image
from report import Report, make_parser, time_in_turn

SHARD = 256 << 20


def labeled(src: Path) -> Iterator[tuple[Path, int, str]]:
    for label, folder in enumerate(sorted(src.iterdir())):
        for file in sorted(folder.iterdir()):
            yield file, label, folder.name


def size_of(data: bytes) -> tuple[int, int]:
    """Return width and height from the header of an image."""
    with Image.open(io.BytesIO(data)) as image:
        return image.size


def shard_writer(src: Path, out: Path, *, same: bool) -> None:
    """Write image and label with `webdataset`.

    With `same`, also the .json that `dataprep` writes.
    """
    import webdataset

    out.mkdir()
    with webdataset.ShardWriter(
        f"{out}/%05d.tar", maxsize=SHARD, maxcount=1 << 40, verbose=0
    ) as sink:
        for number, (file, label, name) in enumerate(labeled(src)):
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
        for file, label, name in labeled(src):
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


def copy_files(paths: list[str], out: str, checked: bool) -> None:
    """Append all files to one file.

    With `checked`, also compute both checksums and read everything back.
    """
    handle = os.open(out, os.O_RDWR | os.O_CREAT | os.O_TRUNC)
    buffer = memoryview(bytearray(1 << 18))
    end = position = crc = 0
    for path in paths:
        source = os.open(path, os.O_RDONLY)
        data = os.read(source, os.fstat(source).st_size + 1)
        os.close(source)
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
    paths = [str(file) for file, _, _ in labeled(src)]
    pool.starmap(
        copy_files,
        [(paths[number::workers], f"{out}/{number}", checked) for number in range(workers)],
    )


def main() -> None:
    parser = make_parser(__doc__)
    parser.add_argument("--images", type=Path, required=True, help="folder of photographs")
    parser.add_argument("--count", type=int, default=30_000, help="images in the ImageFolder")
    parser.add_argument(
        "--work", type=Path, default=Path("/dev/shm/bench"), help="folder in memory"
    )
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument(
        "--only", nargs="+", help="measure only the sides whose names contain one of these words"
    )
    args = parser.parse_args()

    src = repeat_images(args.images, args.work / "src", args.count)
    out = args.work / "out"

    pool = multiprocessing.get_context("spawn").Pool(args.workers)
    copied = f"{args.workers} processes that only copy"
    checked = f"{args.workers} that copy, check, read back"
    options = ("--shard-size", SHARD, "--workers", args.workers)
    sides: dict[str, Callable[[], None]] = {
        "dataprep, webdataset": partial(
            convert_here, src, out, "webdataset", shard_bytes=SHARD, workers=args.workers
        ),
        "dataprep webdataset, as a command": lambda: convert(src, out, "webdataset", *options),
        "dataprep, tfrecord": partial(
            convert_here, src, out, "tfrecord", shard_bytes=SHARD, workers=args.workers
        ),
        copied: lambda: copy_in_processes(pool, src, out, args.workers, checked=False),
        checked: lambda: copy_in_processes(pool, src, out, args.workers, checked=True),
        "GNU tar": lambda: tar(src, out),
        "ShardWriter, the same files": lambda: shard_writer(src, out, same=True),
        "ShardWriter, image and label": lambda: shard_writer(src, out, same=False),
    }
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    if importlib.util.find_spec("tensorflow"):
        sides |= {
            "TFRecordWriter, the same features": lambda: tensorflow_writer(src, out, same=True),
            "TFRecordWriter, image and label": lambda: tensorflow_writer(src, out, same=False),
        }
    if args.only:
        sides = {
            name: side for name, side in sides.items() if any(word in name for word in args.only)
        }
    with Report("convert", args.json) as report:
        ready = bytes_in(src)
        timings = time_in_turn(sides, repeats=args.repeats, reset=lambda: clear(out, ready=ready))
        report.rates(
            f"{args.count:,} images, {args.repeats} repeats after one warm-up", timings, args.count
        )
        report.ratios(
            timings,
            [
                ("dataprep, webdataset", "ShardWriter, the same files", "shard_writer"),
                ("dataprep, webdataset", "ShardWriter, image and label", "shard_writer"),
                (
                    "dataprep webdataset, as a command",
                    "ShardWriter, the same files",
                    "shard_writer",
                ),
                ("dataprep, webdataset", "GNU tar", "tar"),
                ("dataprep, tfrecord", "TFRecordWriter, the same features", "tfrecord_writer"),
                ("dataprep, tfrecord", "TFRecordWriter, image and label", "tfrecord_writer"),
                (copied, "ShardWriter, the same files", "shard_writer"),
                (copied, "TFRecordWriter, the same features", "tfrecord_writer"),
                (checked, "ShardWriter, the same files", "shard_writer"),
                (checked, "TFRecordWriter, the same features", "tfrecord_writer"),
            ],
        )
    pool.terminate()
    shutil.rmtree(out, ignore_errors=True)


if __name__ == "__main__":
    main()
