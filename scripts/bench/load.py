"""Loading: `loaders.build` by transforms and sampler, against torchvision, and DALI by hand.

    python scripts/bench load --images PHOTOS/ --count 25600
    python scripts/bench load --images PHOTOS/ --count 51200 --stores full 256 raw
    python scripts/bench load --images PHOTOS/ --only loaders --stores full 256 raw --formats tfrecord
        webdataset --samplers buffer ShuffledSampler
    python scripts/bench load --images PHOTOS/ --only loaders --transforms imagenet-train randaugment

torchvision reads an ImageFolder of the photographs, the other sides read shards, all from memory.
Every side does the work of imagenet-train and returns float16 tensors on the GPU, or float32
tensors on the CPU. A measurement takes the batches of `--count` images, more of them until
`--min-seconds` have passed, without a pause between epochs. It starts after a side has returned the
batches that it prefetched while another one was measured. torchvision uses the fastest of the given
numbers of workers and batch sizes. `us of the thread` is the CPU time, for an image, of the thread
that would train. `loaders bench` measures the stages of a loader.
"""

from __future__ import annotations

import argparse
import importlib.util
import itertools
import statistics
from contextlib import ExitStack
from functools import partial
from pathlib import Path

from feeds import (
    HAND,
    OURS,
    TORCHVISION,
    Feed,
    Opener,
    first_batches_agree,
    hand_feed,
    measure_seconds,
    our_feed,
    samplers,
    torchvision_feed,
)
from harness import (
    CORES,
    DEVICE,
    Report,
    Target,
    Timing,
    WrongOptionError,
    at_least,
    at_most,
    option,
    replaced,
    use_device,
    usual,
)
from inputs import FORMATS, STORES, prepare

import loaders
from loaders.transforms.argument import PRESETS

TAKES = "5 minutes for each store"
NEEDS = "photographs, a GPU for the stated figures; measures torchvision if it is installed"
DEFAULT, TOLERANT = "default", "on_error=skip"
OPTIONS = [
    *usual("load", count=25_600, repeats=5),
    DEVICE,
    option("--stores", ["full"], f"how images are stored: {STORES}"),
    option("--formats", ["tfrecord"], "formats of the shards", choices=FORMATS),
    option("--transforms", ["imagenet-train"], "presets or YAML files"),
    option("--samplers", [DEFAULT], f"samplers: {', '.join([DEFAULT, *samplers(1, 1), TOLERANT])}"),
    option("--batch-size", 256, "images of a batch"),
    option("--min-seconds", 1.0, "minimum duration of a measurement"),
    option("--threads", None, "threads of DALI, if not as loaders.build chooses", type=int),
    option("--torch-workers", [CORES], "numbers of DataLoader workers to try"),
    option("--torch-batch-sizes", None, "batch sizes of torchvision to try", type=int, nargs="+"),
    option("--only", [""], "measure only the sides whose names contain one of these words"),
]
#: Ratios of images per second, by store; to torchvision on a GPU, and to DALI by hand.
TO_TORCHVISION = {"full": at_least(7.0), "256": at_least(12.0), "raw": at_least(40.0)}
TO_TORCHVISION_ON_CPU = at_least(1.7)
TO_HAND = {"full": at_least(0.97), "256": at_least(0.97), "raw": at_least(0.95)}
#: To the reader of DALI, and to the same sampler that does not tolerate bad images.
TO_BUFFER, TO_STRICT = at_least(0.97), at_least(0.99)
THREAD_US = at_most(20)


def our_name(transforms: str, sampler: str, args: argparse.Namespace) -> str:
    """Return the name of a side, with what distinguishes it from the others."""
    parts = [OURS]
    parts += [transforms] if len(args.transforms) > 1 else []
    parts += [sampler] if len(args.samplers) > 1 else []
    return ", ".join(parts)


def openers(src: Path, dataset: Path, args: argparse.Namespace) -> dict[str, Opener]:
    """Return what opens each side that this machine can measure."""
    known = {DEFAULT: None, TOLERANT: None, **samplers(args.count, args.batch_size)}
    common = {"num_threads": args.threads}
    found: dict[str, Opener] = {}
    for transforms, sampler in itertools.product(args.transforms, args.samplers):
        options = {**common, "transforms": transforms, "sampler": known[sampler]}
        if sampler == "buffer":
            options["shuffle"] = "buffer"
        if sampler == TOLERANT:
            options |= {"sampler": loaders.ShuffledSampler(), "on_error": "skip"}
        name = our_name(transforms, sampler, args)
        found[name] = partial(our_feed, dataset, args, **options)
    if "imagenet-train" in args.transforms:
        found[HAND] = partial(hand_feed, dataset, args, **common)
        if importlib.util.find_spec("torchvision"):
            found[TORCHVISION] = partial(best_torchvision, src, args)
    return {name: each for name, each in found.items() if any(word in name for word in args.only)}


def best_torchvision(src: Path, args: argparse.Namespace) -> object:
    """Try each number of workers with each batch size, and return the fastest."""
    tried = list(itertools.product(args.torch_workers, args.torch_batch_sizes or [args.batch_size]))
    rates = {}
    for workers, size in tried if len(tried) > 1 else []:
        with torchvision_feed(src, args, "v1", workers, size) as feed:
            count = max(4 * workers, args.count // size // 4)
            rates[workers, size] = count * size / measure_seconds(feed, count, 0)[0]
        print(f"  {TORCHVISION}, {workers} workers, batches of {size}: {rates[workers, size]:,.0f}")
    workers, size = max(tried, key=lambda each: rates.get(each, 0.0))
    print(f"{TORCHVISION} with {workers} workers and batches of {size}")
    return torchvision_feed(src, args, "v1", workers, size)


def measure(
    sides: dict[str, Feed], args: argparse.Namespace
) -> tuple[dict[str, Timing], dict[str, float]]:
    """Measure every side in turn, after one warm-up; return also this thread's us per image."""
    timings = {name: Timing() for name in sides}
    threads: dict[str, list[float]] = {name: [] for name in sides}
    for repeat, (name, feed) in itertools.product(range(args.repeats + 1), sides.items()):
        size = len(feed.take(1)[0])
        batches = max(1, args.count // size)
        seconds, cpu, thread = measure_seconds(feed, batches, args.min_seconds)
        if repeat:
            images = batches * size
            timings[name].seconds.append(seconds * args.count / images)
            timings[name].cpu_seconds.append(cpu * args.count / images)
            threads[name].append(thread / images * 1e6)
    return timings, {name: statistics.median(values) for name, values in threads.items()}


def compare(report: Report, store: str, args: argparse.Namespace) -> None:
    """Measure the sides of one store and format."""
    src, dataset = prepare(args, store)
    with ExitStack() as stack:
        sides: dict[str, Feed] = {}
        for name, opener in openers(src, dataset, args).items():
            sides[name] = stack.enter_context(opener())
        if not sides:
            known = ", ".join(openers(src, dataset, replaced(args, only=[""])))
            raise WrongOptionError(
                f"--only {' '.join(args.only)} matches none of the sides: {known}"
            )
        firsts = [feed.take(1)[0] for feed in sides.values()]
        if len(args.transforms) == 1 and not first_batches_agree(firsts):
            raise SystemExit(f"the sides differ: {[(each.shape, each.dtype) for each in firsts]}")
        firsts.clear()
        timings, threads = measure(sides, args)
    report.rates(f"{store}, {args.fmt}: {args.count:,} images", timings, args.count)
    to_torchvision = TO_TORCHVISION.get(store) if args.device == "gpu" else TO_TORCHVISION_ON_CPU
    for transforms in args.transforms:
        names = {sampler: our_name(transforms, sampler, args) for sampler in args.samplers}
        buffer, strict = names.get("buffer", ""), names.get("ShuffledSampler", "")
        pairs: list[tuple[str, str, Target | None]] = []
        if transforms == "imagenet-train":
            ours = names[args.samplers[0]]
            pairs += [(ours, TORCHVISION, to_torchvision), (ours, HAND, TO_HAND.get(store))]
        for name in names.values():
            if name == names.get(TOLERANT):
                pairs.append((name, strict, TO_STRICT))
            elif name != buffer:
                pairs.append((name, buffer, TO_BUFFER))
        report.ratios(timings, pairs)
    for name, microseconds in threads.items():
        target = THREAD_US if name.startswith(OURS) else None
        report.check(f"{name}: us of the thread per image", microseconds, target)


def run(report: Report, args: argparse.Namespace) -> None:
    """Compare the sides of every store and format."""
    use_device(args)
    known = {DEFAULT, TOLERANT, *samplers(1, 1)}
    for name in args.samplers:
        if name not in known:
            raise WrongOptionError(
                f"--samplers {name}: the samplers are {', '.join(sorted(known))}"
            )
    for name in args.transforms:
        if name not in PRESETS and not Path(name).is_file():
            raise WrongOptionError(
                f"--transforms {name}: neither a YAML file nor one of {', '.join(PRESETS)}"
            )
    if args.count < args.batch_size:
        raise WrongOptionError(f"--count {args.count} is less than --batch-size {args.batch_size}")
    args.count = args.count // args.batch_size * args.batch_size
    for store, fmt in itertools.product(args.stores, args.formats):
        compare(report, store, replaced(args, fmt=fmt))
