"""Start: seconds from `loaders.build` to the first batch, by order and number of shards, beside DALI by hand.

    python scripts/bench start --images PHOTOS/

A dataset has shards of 1,000 samples, hard links to one. Each start is one of a new process, which has
imported torch and loaders before, and has used the GPU. DALI is imported meanwhile, as `build` does.
"""

import statistics
from argparse import Namespace
from pathlib import Path
from typing import Any

import harness
from harness import Report, Row, at_most, option
from inputs import prepare, repeat_shards, shard_files

TAKES = "2 minutes; needs photographs, a GPU for the stated figures"
PER_SHARD = 1_000
OPTIONS = [
    *harness.usual("start", feeds=True, repeats=3, batch_size=256),
    harness.IMAGES,
    option("--shards", [1, 1_280], f"shards of {PER_SHARD:,} samples"),
    option("--samples", PER_SHARD, "different samples of the shards"),
    harness.ONLY,
]
HAND, DEFAULT = "DALI by hand", "default"
ORDERS = (DEFAULT, "SequentialSampler", "ShuffledSampler", "ClassBalancedSampler", "PKSampler")
#: Seconds with the most shards, and the ratio to one shard.
SECONDS, RATIO = at_most(1.5), at_most(1.1)


def start(name: str, dataset: Path, args: Namespace) -> Row:
    """Return the seconds and the CPU seconds until the first batch is there."""
    import torch

    import loaders

    device = harness.torch_device(args)
    torch.zeros(1, device=device)
    sampler: Any = None
    if name in ORDERS[1:]:
        sizes = (args.batch_size // 4, 4) if name == "PKSampler" else ()
        sampler = getattr(loaders, name)(*sizes)
    with harness.timed() as row:
        if name == HAND:
            first = hand_batch(dataset, args)
        else:
            options: Row = {"transforms": "imagenet-train", "batch_size": args.batch_size}
            loader = loaders.build(dataset, sampler=sampler, device=args.device, **options)
            first = next(iter(loader))[0]
        first.sum().item()  # waits for the GPU
    return row


def hand_batch(dataset: Path, args: Namespace) -> Any:
    """Return the first batch of a pipeline that does the same."""
    import by_hand

    shards, gpu = shard_files(dataset), args.device == "gpu"
    feature = by_hand.tfrecord.FixedLenFeature((), by_hand.tfrecord.string, "")
    reader: Row = {"path": [*map(str, shards)], "features": {"image/encoded": feature}}
    reader |= {"index_path": [str(path.with_suffix(".idx")) for path in shards]}

    def graph() -> Any:
        found = by_hand.fn.readers.tfrecord(**reader, random_shuffle=True, initial_fill=1024)
        return by_hand.normalize(by_hand.crop_resize(found["image/encoded"], gpu=gpu), gpu=gpu)

    threads = min(harness.CORES, 12)
    sizes = {"gpu": gpu, "batch_size": args.batch_size, "num_threads": threads}
    return next(by_hand.run_graph(graph, **sizes))[0]


def run(report: Report, args: Namespace) -> None:
    args.count, medians = args.samples, {}
    base = prepare(args, "full", "--samples-per-shard", args.samples, classes=args.samples)[1]
    for shards in sorted(args.shards):
        dataset = repeat_shards(base, args.work / f"shards-{shards}", {"train": shards})
        rows = []
        for name in harness.chosen(dict.fromkeys((HAND, *ORDERS)), args.only):
            found = [harness.apart(start, name, dataset, args) for _ in range(args.repeats)]
            seconds = [row["seconds"] for row in found]
            medians[name, shards] = statistics.median(seconds)
            row = {"s": name, "median": medians[name, shards], "min": min(seconds)}
            row |= {
                "max": max(seconds),
                "CPU s": statistics.median(each["CPU s"] for each in found),
            }
            rows.append(row)
        report.table(f"{shards:,} shards", rows)
    least, most = min(args.shards), max(args.shards)
    for name, shards in medians:
        if shards == most:
            target = SECONDS if name != HAND else None
            report.check(f"{name}, {most:,} shards: seconds", medians[name, most], target)
            ratio = medians[name, most] / medians[name, least]
            report.check(f"{name}: to {least:,} shards", ratio, RATIO if name != HAND else None)
