"""Loading: `loaders.build` by transforms and sampler, against torchvision, and DALI by hand.

    python scripts/bench load --images PHOTOS/ --count 51200 --stores full 256 raw
    python scripts/bench load --images PHOTOS/ --only loaders --stores full 256 raw --formats tfrecord
        webdataset --samplers buffer ShuffledSampler

torchvision reads an ImageFolder of the photographs, the other sides read shards, all from memory.
Every side does the work of imagenet-train and returns float16 tensors on the GPU, or float32 tensors
on the CPU, without a pause between epochs. `us of the thread` is the CPU time, for an image, of the
thread that would train. `loaders bench` measures the stages of a loader.
"""

import importlib.util
import itertools
from argparse import Namespace
from functools import partial
from pathlib import Path

import feeds
import harness
from feeds import HAND, OURS, TORCHVISION, Opener, samplers
from harness import CORES, FORMATS, ONLY, Report, Target, at_least, option
from inputs import prepare

import loaders

TAKES = "5 minutes for each store; needs photographs, a GPU for the stated figures; measures torchvision if it is installed"
DEFAULT, TOLERANT = "default", "on_error=skip"
SAMPLERS = [DEFAULT, *samplers(1, 1), TOLERANT]
USUAL = {"count": 25_600, "repeats": 5, "batch_size": 256, "stores": ["full"], "min_seconds": 1.0}
OPTIONS = [
    *harness.usual("load", feeds=True, **USUAL),
    option("--formats", [], "formats of the shards, instead of --fmt", choices=FORMATS),
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


def openers(src: Path, dataset: Path, args: Namespace) -> dict[str, Opener]:
    """Return what opens each side that this machine can measure."""
    known = {DEFAULT: None, TOLERANT: None, **samplers(args.count, args.batch_size)}
    found: dict[str, Opener] = {}
    for sampler in args.samplers:
        options: dict[str, object] = {"sampler": known[sampler]}
        if sampler == "buffer":
            options["shuffle"] = "buffer"
        if sampler == TOLERANT:
            options = {"sampler": loaders.ShuffledSampler(), "on_error": "skip"}
        found[our_name(sampler, args)] = partial(feeds.our_feed, dataset, args, **options)
    found[HAND] = partial(feeds.hand_feed, dataset, args)
    if importlib.util.find_spec("torchvision"):
        found[TORCHVISION] = partial(feeds.torchvision_feed, src, args, "v1", CORES)
    return found


def our_name(sampler: str, args: Namespace) -> str:
    return f"{OURS}, {sampler}" if len(args.samplers) > 1 else OURS


def compare(report: Report, store: str, args: Namespace) -> None:
    """Measure the sides of one store and format."""
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


def run(report: Report, args: Namespace) -> None:
    for store, fmt in itertools.product(args.stores, args.formats or [args.fmt]):
        compare(report, store, harness.replaced(args, fmt=fmt))
