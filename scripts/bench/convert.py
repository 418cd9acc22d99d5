"""Writing shards: `dataprep.convert` beside webdataset.ShardWriter, GNU tar and TensorFlow's TFRecordWriter.

All sides read the same ImageFolder from memory and write into memory, in turn, in one run:

    python scripts/bench/convert.py --images PHOTOS/ --count 30000 --work /dev/shm/bench

PHOTOS is a folder of JPEGs, at any depth, which are repeated up to the count. `dataprep` does all of its work: scan,
plan, header validation, both indexes' and tables' writing, checksums, reading back; two worker processes,
their start included. TensorFlow is measured where it is installed.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import compare

from dataprep.convert import convert
from dataprep.plan import Options
from manifests.sources import read_source

SHARD = 256 << 20


def ours(src: Path, out: Path, fmt: str, workers: int) -> None:
    convert(read_source(str(src)), str(out), Options(fmt=fmt, shard_bytes=SHARD), workers=workers)


def labelled(src: Path) -> Iterator[tuple[Path, int, str]]:
    for label, folder in enumerate(sorted(src.iterdir())):
        for file in sorted(folder.iterdir()):
            yield file, label, folder.name


def shard_writer(src: Path, out: Path) -> None:
    import webdataset

    out.mkdir()
    with webdataset.ShardWriter(f"{out}/%05d.tar", maxsize=SHARD, maxcount=1 << 40, verbose=0) as sink:
        for number, (file, label, name) in enumerate(labelled(src)):
            text = {"label": label, "class": name, "source": str(file)}
            sink.write({"__key__": f"{number:08d}", "jpg": file.read_bytes(), "cls": label, "json": text})


def tar(src: Path, out: Path) -> None:
    out.mkdir()
    subprocess.run(["tar", "--format=ustar", "-C", src, "-cf", out / "all.tar", "."], check=True)


def tensorflow_writer(src: Path, out: Path) -> None:
    import tensorflow as tf

    def feature(value: bytes | int) -> tf.train.Feature:
        if isinstance(value, int):
            return tf.train.Feature(int64_list=tf.train.Int64List(value=[value]))
        return tf.train.Feature(bytes_list=tf.train.BytesList(value=[value]))

    out.mkdir()
    with tf.io.TFRecordWriter(f"{out}/all.tfrecord") as sink:
        for file, label, name in labelled(src):
            features = {
                "image/encoded": feature(file.read_bytes()),
                "image/class/label": feature(label),
                "image/class/text": feature(name.encode()),
                "image/filename": feature(str(file).encode()),
            }
            example = tf.train.Example(features=tf.train.Features(feature=features))
            sink.write(example.SerializeToString())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--images", type=Path, required=True, help="folder of photographs")
    parser.add_argument("--count", type=int, default=30_000, help="images in the ImageFolder made of them")
    parser.add_argument("--work", type=Path, default=Path("/dev/shm/bench"), help="folder in memory")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--workers", type=int, default=2)
    call = parser.parse_args()

    src = compare.repeat_images(call.images, call.work / "src", call.count)
    out = call.work / "out"

    sides: dict[str, Callable[[], None]] = {
        "dataprep, webdataset": lambda: ours(src, out, "webdataset", call.workers),
        "dataprep, tfrecord": lambda: ours(src, out, "tfrecord", call.workers),
        "GNU tar": lambda: tar(src, out),
        "webdataset.ShardWriter": lambda: shard_writer(src, out),
    }
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    if compare.installed("tensorflow"):
        sides["TensorFlow TFRecordWriter"] = lambda: tensorflow_writer(src, out)
    compare.run(
        sides,
        images=call.count,
        repeats=call.repeats,
        reset=lambda: shutil.rmtree(out, ignore_errors=True),
        ratios=[
            ("dataprep, webdataset", "webdataset.ShardWriter", 6.0),
            ("dataprep, webdataset", "GNU tar", 0.8),
            ("dataprep, tfrecord", "TensorFlow TFRecordWriter", 3.0),
        ],
    )


if __name__ == "__main__":
    main()
