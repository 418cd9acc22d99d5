"""Loading: `loaders.build` by transforms and sampler, against torchvision, and DALI by hand.

    python scripts/bench load --images PHOTOS/ --count 51200 --stores full 256 raw
    python scripts/bench load --images PHOTOS/ --only loaders --stores full 256 raw --formats tfrecord
        webdataset --samplers buffer ShuffledSampler
    python scripts/bench load --images PHOTOS/ --undecoded --work DISK/ --samplers buffer ShuffledSampler

torchvision reads an ImageFolder of the photographs, the other sides read shards, all from memory.
Every side does the work of imagenet-train and returns float16 tensors on the GPU, or float32 tensors
on the CPU, without a pause between epochs. `us of the thread` is the CPU time, for an image, of the
thread that would train. `loaders bench` measures the stages of a loader.

With --undecoded, a pipeline ends after reading, as in `loaders bench`, beside reading the files of
--work, on a disk, from end to end. Each measurement runs in a new process, after the shards were
dropped from the page cache, which cannot drop pages that a process has mapped.
"""

import importlib.util
import itertools
import os
from argparse import Namespace
from dataclasses import replace
from functools import partial
from pathlib import Path

import feeds
import harness
from feeds import HAND, OURS, TORCHVISION, Opener, samplers
from harness import CORES, FORMATS, ONLY, Report, Row, Side, Target, at_least, option
from inputs import drop_pages, prepare, require_disk, shard_files

import loaders
from loaders.bench.command import make_request
from loaders.dali.pipeline import start_stage, take_batch
from loaders.resolve import resolve

TAKES = "5 minutes for each store; needs photographs, a GPU for the stated figures; measures torchvision if it is installed"
DEFAULT, TOLERANT = "default", "on_error=skip"
SAMPLERS = [DEFAULT, *samplers(1, 1), TOLERANT]
USUAL = {"count": 25_600, "repeats": 5, "batch_size": 256, "stores": ["full"], "min_seconds": 1.0}
OPTIONS = [
    *harness.usual("load", feeds=True, **USUAL),
    option("--formats", [], "formats of the shards, instead of --fmt", choices=FORMATS),
    option("--undecoded", False, "read without decoding, from the disk"),
    option("--samplers", [DEFAULT], "samplers to compare", choices=SAMPLERS),
    ONLY,
]
#: Ratios of images per second, by store; to torchvision on a GPU, and to DALI by hand.
TO_TORCHVISION = {"full": at_least(7.0), "256": at_least(12.0), "raw": at_least(40.0)}
TO_TORCHVISION_ON_CPU = at_least(1.7)
TO_HAND = {"full": at_least(0.97), "256": at_least(0.97), "raw": at_least(0.95)}
#: To the reader of DALI, and to the same sampler that does not tolerate bad images.
TO_BUFFER, TO_STRICT = at_least(0.97), at_least(0.99)
THREAD_US = harness.at_most(20)
#: Shards that are read from a disk, and images per second to the disk itself.
DISK, SHARDS, TO_DISK = "the disk, end to end", 16, at_least(0.8)


def sampler_options(name: str, args: Namespace) -> Row:
    """Return the options of `loaders.build` for one of `SAMPLERS`."""
    if name == TOLERANT:
        return {"sampler": loaders.ShuffledSampler(), "on_error": "skip"}
    options: Row = {"sampler": samplers(args.count, args.batch_size).get(name)}
    return options | {"shuffle": "buffer"} if name == "buffer" else options


def openers(src: Path, dataset: Path, args: Namespace) -> dict[str, Opener]:
    found: dict[str, Opener] = {}
    for name in args.samplers:
        options = sampler_options(name, args)
        found[our_name(name, args)] = partial(feeds.our_feed, dataset, args, **options)
    if args.fmt == "tfrecord":
        found[HAND] = partial(feeds.hand_feed, dataset, args)
    if importlib.util.find_spec("torchvision"):
        found[TORCHVISION] = partial(feeds.torchvision_feed, src, args, "v1", CORES)
    return found


def our_name(sampler: str, args: Namespace) -> str:
    return f"{OURS}, {sampler}" if len(args.samplers) > 1 else OURS


def compare(report: Report, store: str, args: Namespace) -> None:
    to_torchvision = TO_TORCHVISION.get(store) if args.device == "gpu" else TO_TORCHVISION_ON_CPU
    names = {sampler: our_name(sampler, args) for sampler in args.samplers}
    ours = names[args.samplers[0]]
    pairs: list[tuple[str, str, Target | None]] = [(ours, TORCHVISION, to_torchvision)]
    pairs.append((ours, HAND, TO_HAND.get(store)))
    for sampler, name in names.items():
        if sampler == TOLERANT:
            pairs.append((name, names.get("ShuffledSampler", ""), TO_STRICT))
        elif sampler != "buffer":
            pairs.append((name, names.get("buffer", ""), TO_BUFFER))
    title = f"{store}, {args.fmt}: {args.count:,} images"
    with feeds.open_feeds(openers(*prepare(args, store), args), args.only) as sides:
        firsts = [feed.take(1)[0] for feed in sides.values()]
        if len({(images.shape[1:], images.dtype, images.device) for images in firsts}) > 1:
            raise SystemExit(f"the sides differ: {[(each.shape, each.dtype) for each in firsts]}")
        firsts.clear()
        found = feeds.compare_feeds(report, title, sides, args, pairs, least=args.min_seconds)
    for name, row in found.items():
        target = THREAD_US if name.startswith(OURS) else None
        report.check(f"{name}: us of the thread per image", row["thread s"] * 1e6, target)


def read_through(folder: Path) -> None:
    """Read the shards from end to end, as fast as the disk allows."""
    buffer = bytearray(1 << 23)
    for file in shard_files(folder):
        with open(file, "rb", buffering=0) as stream:
            os.posix_fadvise(stream.fileno(), 0, 0, os.POSIX_FADV_SEQUENTIAL)
            while stream.readinto(buffer):
                pass


def read_cold(folder: Path, name: str, args: Namespace) -> tuple[float, float]:
    """Read an epoch from the disk without decoding, and return the seconds and the CPU seconds."""
    options = {"transforms": "imagenet-train", "split": "train", "batch_size": args.batch_size}
    request = make_request(str(folder), **options, device="cpu")
    if name != DISK:
        chosen = {"num_threads": CORES, **sampler_options(name, args)}
        spec = resolve(replace(request, **chosen))
        pipeline = start_stage(spec, "reading")
    drop_pages(shard_files(folder))
    with harness.timed() as row:
        if name == DISK:
            read_through(folder)
        else:
            for _ in range(args.count // args.batch_size):
                take_batch(pipeline, spec.split, None)
    return row["seconds"], row["CPU s"]


def compare_reading(report: Report, store: str, args: Namespace) -> None:
    """Measure the samplers of one store and format without decoding, and the disk."""
    require_disk(args.work)
    folder = prepare(args, store, "--samples-per-shard", max(1, args.count // SHARDS))[1]
    sides: dict[str, Side] = {}
    for name in (*args.samplers, DISK):
        sides[name] = partial(harness.apart, read_cold, folder, name, args)
    pairs = [(name, DISK, TO_DISK) for name in args.samplers]
    title = f"reading, {store}, {args.fmt}"
    report.compare(title, sides, args.count, args.repeats, pairs=pairs)


def run(report: Report, args: Namespace) -> None:
    measure = compare_reading if args.undecoded else compare
    for store, fmt in itertools.product(args.stores, args.formats or [args.fmt]):
        measure(report, store, harness.replaced(args, fmt=fmt))
