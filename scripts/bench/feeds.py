"""What feeds a model, or nothing: `loaders.build`, a DALI pipeline by hand, torchvision's DataLoader."""

from __future__ import annotations

import argparse
import importlib
import itertools
import multiprocessing
import os
import time
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
from harness import CORES
from torch.utils.dlpack import from_dlpack

import loaders
from manifests.store import read_manifest

MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
OURS, HAND, TORCHVISION = "loaders.build", "DALI by hand", "torchvision"
SAMPLES_PER_CLASS = 4


@dataclass(frozen=True)
class Feed:
    """Where batches come from.

    Attributes:
        batches: an endless iterator of images and labels.
        prefetched: batches that may be ready before they are requested.
        workers: processes that make whole batches.

    """

    batches: Iterator[Any]
    prefetched: int = 0
    workers: int = 0

    def take(self, count: int) -> Any:
        """Return the last of `count` batches, after the GPU has finished all work."""
        last = None
        for batch in itertools.islice(self.batches, count):
            last = batch
        synchronize()
        return last


def synchronize() -> None:
    if torch.cuda.is_available():
        torch.cuda.synchronize()


def cpu_seconds_of_all() -> float:
    """Return the CPU time of this process and its children, including running ones."""
    ticks = 0
    for child in multiprocessing.active_children():
        fields = Path(f"/proc/{child.pid}/stat").read_text().rpartition(")")[2].split()
        ticks += int(fields[11]) + int(fields[12])
    return sum(os.times()[:4]) + ticks / os.sysconf("SC_CLK_TCK")


def endless(loader: Any) -> Iterator[Any]:
    while True:
        yield from loader


def channels_last(batches: Iterator[Any]) -> Iterator[Any]:
    """Yield a channels-last view of images that are stored as NHWC."""
    for images, labels in batches:
        yield images.permute(0, 3, 1, 2), labels


def samplers(count: int, batch_size: int) -> dict[str, Any]:
    """Return the samplers that benchmarks compare; `None` is DALI's own reader."""
    identities = max(1, batch_size // SAMPLES_PER_CLASS)
    samples = min(SAMPLES_PER_CLASS, batch_size)
    return {
        "buffer": None,
        "SequentialSampler": loaders.SequentialSampler(),
        "ShuffledSampler": loaders.ShuffledSampler(),
        "ClassBalancedSampler": loaders.ClassBalancedSampler(),
        "PKSampler": loaders.PKSampler(identities, samples, batches=max(1, count // batch_size)),
    }


def open_loader(dataset: Path, args: argparse.Namespace, **options: Any) -> Any:
    """Build a loader of imagenet-train with the batch size and the device of the arguments."""
    chosen = {"transforms": "imagenet-train", "batch_size": args.batch_size, "device": args.device}
    chosen["dtype"] = "float16" if args.device == "gpu" else "float32"
    return loaders.build(dataset, **{"last_batch": "drop", **chosen, **options})


@contextmanager
def our_feed(dataset: Path, args: argparse.Namespace, **options: Any) -> Iterator[Feed]:
    """Open a loader."""
    with open_loader(dataset, args, **options) as loader:
        batches = endless(loader)
        nhwc = options.get("layout") == "NHWC"
        yield Feed(channels_last(batches) if nhwc else batches, loader.options.prefetch)


@contextmanager
def turns_feed(
    dataset: Path, args: argparse.Namespace, pipelines: int, **options: Any
) -> Iterator[Feed]:
    """Open several loaders, each driven by a thread of its own, whose batches are taken in turn."""
    threads = max(1, min(8, (options.pop("num_threads", None) or CORES) // pipelines))
    with ExitStack() as stack:
        turns = deque[Any]()
        for rank in range(pipelines):
            ranks = {"rank": rank, "world_size": pipelines, "num_threads": threads}
            feed = stack.enter_context(our_feed(dataset, args, **options, **ranks))
            pool = stack.enter_context(ThreadPoolExecutor(1))
            turns.append(partial(pool.submit, next, feed.batches))

        def batches() -> Iterator[Any]:
            # Each thread is two batches ahead.
            waiting = deque((submit, submit()) for submit in (*turns, *turns))
            while True:
                submit, batch = waiting.popleft()
                waiting.append((submit, submit()))
                yield batch.result()

        yield Feed(batches(), 2 * pipelines)


@contextmanager
def hand_feed(
    dataset: Path,
    args: argparse.Namespace,
    layout: str = "NCHW",
    policy: Callable[[Any], Any] | None = None,
    **options: Any,
) -> Iterator[Feed]:
    """Open a DALI pipeline with our loader's options and DALI's own reader, as NVIDIA's examples do.

    A policy is a function of the resized images in its graph.
    """
    names = ("num_threads", "hw_decoder_load", "prefetch")
    if not {*names} <= options.keys():
        with open_loader(dataset, args, **options) as loader:
            options = {name: getattr(loader.options, name) for name in names}
    batches = by_hand(dataset, args, layout.removeprefix("N"), policy=policy, **options)
    yield Feed(channels_last(batches) if layout == "NHWC" else batches, options["prefetch"])


def by_hand(
    dataset: Path, args: argparse.Namespace, layout: str, *, num_threads: int,
    hw_decoder_load: float, prefetch: int, policy: Callable[[Any], Any] | None = None,
) -> Iterator[Any]:  # fmt: skip
    """Yield the batches of a DALI pipeline that does the work of imagenet-train."""
    dali: Any = importlib.import_module("nvidia.dali")
    fn, types, tfrecord = dali.fn, dali.types, dali.tfrecord
    gpu, records = args.device == "gpu", bool(list(dataset.glob("*.tfrecord")))
    shards = sorted(dataset.glob("*.tfrecord" if records else "*.tar"))
    paths = [str(path) for path in shards]
    indexes = [str(path.with_suffix(".idx")) for path in shards]
    manifest = read_manifest(dataset)
    stored, pixels = manifest.components.image[0], manifest.pixels
    reader = {"name": "reader", "pad_last_batch": True, "random_shuffle": True}
    reader |= {"initial_fill": 1024, "shuffle_after_epoch": True, "shuffle_after_epoch_seed": 1}
    crop = {"random_aspect_ratio": [3 / 4, 4 / 3], "random_area": [0.08, 1.0], "num_attempts": 10}
    resize = {"size": [224, 224], "interp_type": types.INTERP_LINEAR, "antialias": True}

    def read() -> tuple[Any, Any]:
        if records:
            features = {
                stored: tfrecord.FixedLenFeature((), tfrecord.string, ""),
                "image/class/label": tfrecord.FixedLenFeature([1], tfrecord.int64, -1),
            }
            found = fn.readers.tfrecord(path=paths, index_path=indexes, features=features, **reader)
            return found[stored], found["image/class/label"]
        image, label = fn.readers.webdataset(
            paths=paths, index_paths=indexes, ext=[stored, "cls"], **reader
        )
        return image, fn.pad(label)

    def augment(image: Any) -> Any:
        if pixels:
            decoded = fn.reshape(image, shape=list(pixels), layout="HWC")
            return fn.random_resized_crop(decoded.gpu() if gpu else decoded, **crop, **resize)
        load = {"hw_decoder_load": hw_decoder_load} if gpu else {}
        device = "mixed" if gpu else "cpu"
        decoded = fn.decoders.image_random_crop(
            image, device=device, output_type=types.RGB, **crop, **load
        )
        return fn.resize(decoded, **resize)

    # DALI's policies are written with its conditionals.
    @dali.pipeline_def(enable_conditionals=policy is not None)  # type: ignore[untyped-decorator]
    def pipeline() -> Any:
        image, label = read()
        images = augment(image)
        if policy is not None:
            images = policy(images)
        images = fn.crop_mirror_normalize(
            images,
            mirror=fn.random.coin_flip(probability=0.5),
            mean=[255 * value for value in MEAN],
            std=[255 * value for value in STD],
            dtype=types.FLOAT16 if gpu else types.FLOAT,
            output_layout=layout,
        )
        return images, label.gpu() if gpu and records else label

    device = torch.cuda.current_device() if gpu else None
    sizes = {"batch_size": args.batch_size, "num_threads": num_threads, "device_id": device}
    made = pipeline(**sizes, seed=1, prefetch_queue_depth=prefetch, exec_dynamic=True)
    for images, labels in outputs(made):
        numbers = from_dlpack(labels.as_tensor())
        if not records:  # a label is text
            numbers = torch.tensor([int(bytes(row).rstrip(b"\0")) for row in numbers.numpy()])
            numbers = numbers.to("cuda", non_blocking=True) if gpu else numbers
        yield from_dlpack(images.as_tensor()), numbers.flatten()


def outputs(pipeline: Any) -> Iterator[Any]:
    pipeline.build()
    pipeline.schedule_run()
    while True:
        batch = pipeline.share_outputs()
        pipeline.release_outputs()
        pipeline.schedule_run()
        yield batch


def data_loader(
    images: Any, batches: Any, args: argparse.Namespace, workers: int, ahead: int = 2
) -> Any:
    """Return torch's DataLoader of batches of keys, whose processes start once for all epochs."""
    # A process that runs DALI has threads and must not be forked. The fork server has only imported
    # torchvision.
    multiprocessing.set_forkserver_preload(["torchvision.transforms.v2"])
    several: Any = {"multiprocessing_context": "forkserver", "prefetch_factor": ahead}
    return torch.utils.data.DataLoader(
        images,
        batch_sampler=batches,
        num_workers=workers,
        pin_memory=args.device == "gpu",
        **(several if workers else {}),
    )


@contextmanager
def torchvision_feed(
    folder: Path, args: argparse.Namespace, version: str, workers: int, batch_size: int
) -> Iterator[Feed]:
    """Load an ImageFolder with torchvision's transforms, version v1 or v2, in worker processes.

    The sampler never ends, so there is no pause between epochs.
    """
    from torch.utils.data import BatchSampler, RandomSampler
    from torchvision.datasets import ImageFolder

    kinds: Any = importlib.import_module(f"torchvision.transforms{'.v2' * (version == 'v2')}")
    steps = [kinds.RandomResizedCrop(224, antialias=True), kinds.RandomHorizontalFlip()]
    if version == "v2":
        steps += [kinds.ToImage(), kinds.ToDtype(torch.float32, scale=True)]
    else:
        steps.append(kinds.ToTensor())
    data = ImageFolder(str(folder), kinds.Compose([*steps, kinds.Normalize(MEAN, STD)]))
    order = RandomSampler(data, num_samples=len(data) * 10_000)
    loader = data_loader(data, BatchSampler(order, batch_size, drop_last=False), args, workers)

    def batches() -> Any:
        for images, labels in loader:
            if args.device == "gpu":
                moved = images.to("cuda", non_blocking=True)
                yield moved.half(), labels.to("cuda", non_blocking=True)
            else:
                yield images, labels

    with closing(batches()) as made:
        yield Feed(made, 2 * workers, workers)


Opener = Callable[[], Any]


def measure_seconds(feed: Feed, batches: int, least: float) -> tuple[float, float, float]:
    """Return the mean seconds of `batches` batches, and the CPU time of the program and of this thread.

    The batches that were prefetched while another side was measured are discarded first. Batches
    are repeated until `least` seconds have passed: in a short measurement, a single delay of the
    machine would dominate. Afterwards the same number is prefetched again.
    """
    feed.take(2 * feed.prefetched)
    starts, rounds = (time.perf_counter(), cpu_seconds_of_all(), time.thread_time()), 0
    while rounds == 0 or time.perf_counter() - starts[0] < least:
        for _ in itertools.islice(feed.batches, batches):
            pass
        rounds += 1
    synchronize()
    ends = (time.perf_counter(), cpu_seconds_of_all(), time.thread_time())
    seconds, cpu, thread = ((end - start) / rounds for start, end in zip(starts, ends, strict=True))
    time.sleep(feed.prefetched * seconds / batches)
    return seconds, cpu, thread
