"""Datasets of load.py: photographs repeated up to a count, or one shard under many names."""

from __future__ import annotations

import argparse
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

from conversion import convert
from images import photographs
from report import make_parser

#: How images may be stored, and the options of `prepare` for it.
STORES: dict[str, dict[str, Any]] = {
    "full": {"store": "encoded", "resize_shorter": None},
    "256": {"store": "encoded", "resize_shorter": 256},
    "raw": {"store": "raw", "resize_shorter": None},
}


def dataset_parser(
    description: str | None, *, count: int, work: str, images: str = "folder of photographs"
) -> argparse.ArgumentParser:
    """Return a parser with the options that `prepare` reads, with these defaults.

    Args:
        description: the program, as `make_parser` takes it.
        count: images of a dataset.
        work: folder for the datasets, in memory.
        images: what to say of ``--images``.

    """
    parser = make_parser(description)
    parser.add_argument("--images", type=Path, required=True, help=images)
    parser.add_argument("--count", type=int, default=count, help="images of each dataset")
    parser.add_argument(
        "--work", type=Path, default=Path(work), help="folder in memory for the datasets"
    )
    parser.add_argument("--fmt", choices=["tfrecord", "webdataset"], default="tfrecord")
    return parser


def prepare_store(args: argparse.Namespace, store: str) -> tuple[Path, Path]:
    """Return what `prepare` returns for one of `STORES`."""
    return prepare(argparse.Namespace(**{**vars(args), **STORES[store]}))


def prepare(args: argparse.Namespace) -> tuple[Path, Path]:
    """Return an ImageFolder of `count` images, hard links to the photographs, and the dataset converted from it."""
    src, out = (
        args.work / f"src-{args.count}",
        args.work / f"{args.fmt}-{args.count}{stored_as(args)}",
    )
    if not (out / "manifest.json").exists():
        originals = args.work / "originals"
        shutil.rmtree(src, ignore_errors=True)
        shutil.rmtree(originals, ignore_errors=True)
        found = photographs(args.images)
        originals.mkdir(parents=True)
        for number, file in enumerate(found):
            shutil.copyfile(file, originals / f"{number}.jpg")
        for number in range(args.count):
            link = src / f"class{number % 100:04d}" / f"{number:08d}.jpg"
            link.parent.mkdir(parents=True, exist_ok=True)
            link.hardlink_to(originals / f"{number % len(found)}.jpg")
        shorter = ("--resize-shorter", str(args.resize_shorter)) if args.resize_shorter else ()
        convert(src, out, args.fmt, "--store", args.store, *shorter)
    return src, out


def stored_as(args: argparse.Namespace) -> str:
    """Return the suffix of a dataset's name for its options."""
    return ("-raw" if args.store == "raw" else "") + (
        f"-{args.resize_shorter}" if args.resize_shorter else ""
    )


def repeat_shard(args: argparse.Namespace, shards: int, samples: int) -> Path:
    """Make a dataset of tiny images whose shards are hard links to one shard."""
    from PIL import Image

    from manifests.schema import File, Shard, Split
    from manifests.store import manifest_bytes, read_manifest

    src, out = args.work / "tiny", args.work / f"tiny-{shards}x{samples}"
    if (out / "manifest.json").exists():
        return out
    shutil.rmtree(src, ignore_errors=True)
    shutil.rmtree(out, ignore_errors=True)
    (src / "a").mkdir(parents=True)
    Image.new("RGB", (8, 8)).save(src / "a" / "0.jpg")
    for number in range(1, samples):
        (src / "a" / f"{number}.jpg").hardlink_to(src / "a" / "0.jpg")
    convert(src, out, args.fmt, "--samples-per-shard", str(samples))
    manifest = read_manifest(out)
    (shard,) = manifest.splits[0].shards

    def linked(file: File, number: int) -> File:
        name = file.name.replace("00000", f"{number:05d}")
        if number:
            (out / name).hardlink_to(out / file.name)
        return replace(file, name=name)

    copies = tuple(
        Shard(
            linked(shard.file, number),
            shard.samples,
            linked(shard.index, number),
            linked(shard.table, number),
        )
        for number in range(shards)
    )
    complete = replace(manifest, splits=(Split("train", copies),))
    (out / "manifest.json").write_bytes(manifest_bytes(complete))
    return out
