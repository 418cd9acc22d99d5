"""What feeds a model, or nothing, and how fast it is: `loaders.build`, DALI by hand, torchvision's DataLoader."""

import importlib
import itertools
import json
import multiprocessing
import os
import statistics
import tempfile
import time
from argparse import Namespace
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, closing, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import by_hand
import torch
from by_hand import MEAN, STD, fn, tfrecord
from harness import Pairs, Report, Row, WrongOptionError, chosen, torch_device
from inputs import shard_files

import loaders
from manifests.store import read_manifest

OURS, HAND, TORCHVISION = "loaders.build", "DALI by hand", "torchvision"
SAMPLES_PER_CLASS = 4


@dataclass(frozen=True)
class Feed:
    """Where batches come from."""

    #: Endless: images, labels, and perhaps the number of pixels.
    batches: Iterator[Any]
    #: Batches that may be ready before they are requested, and processes that make whole batches.
    prefetched: int = 0
    workers: int = 0

    def take(self, count: int) -> Any:
        """Return the last of `count` batches, after the GPU has finished all work."""
        last = deque(itertools.islice(self.batches, count), maxlen=1)
        synchronize()
        return last[0] if last else None


#: Opens a feed.
Opener = Callable[[], AbstractContextManager[Feed]]


def synchronize() -> None:
    if torch.cuda.is_available():
        torch.cuda.synchronize()


def endless(loader: Any) -> Iterator[Any]:
    while True:
        yield from loader


@contextmanager
def open_feeds(openers: Mapping[str, Opener], only: Sequence[str]) -> Iterator[dict[str, Feed]]:
    with ExitStack() as stack:
        found = chosen(openers, only)
        yield {name: stack.enter_context(opener()) for name, opener in found.items()}


def read_clocks() -> tuple[float, float, float]:
    """Return the time, the CPU time of this process and all its children, and of this thread, in seconds."""
    ticks = 0
    for child in multiprocessing.active_children():
        fields = Path(f"/proc/{child.pid}/stat").read_text().rpartition(")")[2].split()
        ticks += int(fields[11]) + int(fields[12])
    cpu = sum(os.times()[:4]) + ticks / os.sysconf("SC_CLK_TCK")
    return time.perf_counter(), cpu, time.thread_time()


def measure_feed(feed: Feed, images: int, least: float = 0.0) -> Row:
    """Take at least so many images in at least so many seconds; return what an image takes on average.

    The batches that were prefetched while another side was measured are discarded first, and the
    same number is prefetched again afterwards. In a short measurement, a single delay of the
    machine would dominate.
    """
    feed.take(2 * feed.prefetched)
    starts, taken, batches = read_clocks(), 0, 0
    pixels = torch.zeros((), dtype=torch.int64)
    while taken < images or time.perf_counter() - starts[0] < least:
        _, labels, *sizes = next(feed.batches)
        taken, batches = taken + len(labels), batches + 1
        if sizes:  # on a GPU, counting does not wait for it
            pixels = pixels + sizes[0]
    synchronize()
    spent = [end - start for start, end in zip(starts, read_clocks(), strict=True)]
    time.sleep(feed.prefetched * spent[0] / batches)
    seconds, cpu, thread = (each / taken for each in spent)
    return {"s": seconds, "CPU s": cpu, "thread s": thread, "pixels": int(pixels) / taken}


def compare_feeds(
    report: Report, title: str, feeds: Mapping[str, Feed], args: Namespace, pairs: Pairs,
    *, least: float = 0.0, unit: str = "images/s",
) -> dict[str, Row]:  # fmt: skip
    """Measure all feeds in turn, report their rates and ratios, and return the medians for each feed."""
    found: dict[str, list[Row]] = {name: [] for name in feeds}

    def measure(name: str) -> tuple[float, float]:
        row = measure_feed(feeds[name], args.count, least)
        found[name].append(row)
        parts = row["pixels"] / 1e6 if unit == "megapixels/s" else 1
        return row["s"] / parts, row["CPU s"] / parts

    sides = {name: partial(measure, name) for name in feeds}
    report.compare(title, sides, images=1, repeats=args.repeats, pairs=pairs, unit=unit)
    medians = {}
    for name, (_, *rows) in found.items():  # without the warm-up
        medians[name] = {key: statistics.median(row[key] for row in rows) for key in rows[0]}
    return medians


def count_kernels(feed: Feed, batches: int) -> Row:
    """Return kernels and copies of a batch by PyTorch's profiler, and the ms in which at least one of them runs."""
    from torch.profiler import ProfilerActivity, profile

    feed.take(2 * feed.prefetched + 2)
    with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as profiled:
        feed.take(batches)
    with tempfile.NamedTemporaryFile(suffix=".json") as file:
        profiled.export_chrome_trace(file.name)
        events = json.loads(Path(file.name).read_text())["traceEvents"]
    row: Row = {}
    for title, category in (("kernels", "kernel"), ("copies", "gpu_memcpy")):
        found = sorted((each["ts"], each["dur"]) for each in events if each.get("cat") == category)
        covered, reached = 0.0, float("-inf")
        for begin, length in found:
            covered += max(0.0, begin + length - max(begin, reached))
            reached = max(reached, begin + length)
        row |= {title: len(found) / batches, f"{title} ms": covered / 1000 / batches}
    return row


def channels_last(batches: Iterator[Any]) -> Iterator[Any]:
    """Yield a channels-last view of images that are stored as NHWC."""
    for images, labels in batches:
        yield images.permute(0, 3, 1, 2), labels


def samplers(count: int, batch_size: int) -> dict[str, Any]:
    """Return the samplers that benchmarks compare; `None` is DALI's own reader."""
    identities, samples = (
        max(1, batch_size // SAMPLES_PER_CLASS),
        min(SAMPLES_PER_CLASS, batch_size),
    )
    return {
        "buffer": None,
        "SequentialSampler": loaders.SequentialSampler(),
        "ShuffledSampler": loaders.ShuffledSampler(),
        "ClassBalancedSampler": loaders.ClassBalancedSampler(),
        "PKSampler": loaders.PKSampler(identities, samples, batches=max(1, count // batch_size)),
    }


def open_loader(dataset: Path | str, args: Namespace, **options: Any) -> Any:
    """Build a loader of imagenet-train with the batch size, device and threads of the arguments."""
    chosen = {"transforms": "imagenet-train", "batch_size": args.batch_size, "device": args.device}
    chosen["dtype"] = "float16" if args.device == "gpu" else "float32"
    chosen["num_threads"] = getattr(args, "num_threads", None)
    return loaders.build(dataset, **{"last_batch": "drop", **chosen, **options})


@contextmanager
def our_feed(dataset: Path, args: Namespace, **options: Any) -> Iterator[Feed]:
    with open_loader(dataset, args, **options) as loader:
        batches = endless(loader)
        nhwc = options.get("layout") == "NHWC"
        yield Feed(channels_last(batches) if nhwc else batches, loader.options.prefetch)


@contextmanager
def hand_feed(
    dataset: Path, args: Namespace, layout: str = "NCHW",
    policy: Callable[[Any], Any] | None = None, **options: Any,
) -> Iterator[Feed]:  # fmt: skip
    """Open a DALI pipeline with our loader's options and DALI's own reader, as NVIDIA's examples do."""
    names = ("num_threads", "hw_decoder_load", "prefetch")
    if not {*names} <= options.keys():
        with open_loader(dataset, args, **options) as loader:
            options = {name: getattr(loader.options, name) for name in names}
    gpu, load = args.device == "gpu", options.pop("hw_decoder_load")
    manifest = read_manifest(dataset)
    if manifest.format != "tfrecord":
        raise WrongOptionError(f"--fmt {manifest.format}: {HAND} reads TFRecord")
    shards, image, label = shard_files(dataset), manifest.components.image[0], "image/class/label"
    features = {image: tfrecord.FixedLenFeature((), tfrecord.string, "")}
    features[label] = tfrecord.FixedLenFeature([1], tfrecord.int64, -1)
    reader: Row = {"path": [str(path) for path in shards], "features": features, "name": "reader"}
    reader |= {"index_path": [str(path.with_suffix(".idx")) for path in shards]}
    reader |= {"pad_last_batch": True, "random_shuffle": True, "initial_fill": 1024}
    reader |= {"shuffle_after_epoch": True, "shuffle_after_epoch_seed": 1}

    def graph() -> Any:
        found = fn.readers.tfrecord(**reader)
        pixels = {"pixels": manifest.pixels, "hw_decoder_load": load}
        images = by_hand.crop_resize(found[image], gpu=gpu, **pixels)
        images = images if policy is None else policy(images)
        images = by_hand.normalize(images, gpu=gpu, layout=layout.removeprefix("N"))
        return images, found[label].gpu() if gpu else found[label]

    # DALI's policies are written with its conditionals.
    sizes = {"gpu": gpu, "batch_size": args.batch_size, "conditionals": policy is not None}
    batches = by_hand.run_graph(graph, **sizes, **options)
    made = ((images, labels.flatten()) for images, labels in batches)
    yield Feed(channels_last(made) if layout == "NHWC" else made, options["prefetch"])


def to_device(tensor: Any, args: Namespace) -> Any:
    return tensor.to(torch_device(args), non_blocking=True)


def data_loader(images: Any, batches: Any, args: Namespace, workers: int, ahead: int = 2) -> Any:
    """Return torch's DataLoader of batches of keys, whose processes start once for all epochs."""
    # A process that runs DALI has threads and must not be forked. The fork server has only imported
    # torchvision.
    multiprocessing.set_forkserver_preload(["torchvision.transforms.v2"])
    options: Any = {"num_workers": workers, "pin_memory": args.device == "gpu"}
    if workers:
        options |= {"multiprocessing_context": "forkserver", "prefetch_factor": ahead}
    return torch.utils.data.DataLoader(images, batch_sampler=batches, **options)


@contextmanager
def workers_feed(
    data: Any, args: Namespace, workers: int, finish: Callable[[Any], Any] = lambda images: images
) -> Iterator[Feed]:
    """Open torch's DataLoader of a dataset; the device finishes the images of a batch."""
    from torch.utils.data import BatchSampler, RandomSampler

    # An order that never ends has no pause between epochs.
    order = RandomSampler(data, num_samples=len(data) * 10_000)
    loader = data_loader(data, BatchSampler(order, args.batch_size, drop_last=True), args, workers)
    made = ((finish(to_device(each, args)), to_device(labels, args)) for each, labels in loader)
    with closing(made):
        yield Feed(made, 2 * workers, workers)


def torchvision_feed(
    folder: Path, args: Namespace, version: str, workers: int
) -> AbstractContextManager[Feed]:
    """Load an ImageFolder with torchvision's transforms, version v1 or v2, in worker processes."""
    from torchvision.datasets import ImageFolder

    kinds: Any = importlib.import_module(f"torchvision.transforms{'.v2' * (version == 'v2')}")
    steps = [kinds.RandomResizedCrop(224, antialias=True), kinds.RandomHorizontalFlip()]
    if version == "v2":
        steps += [kinds.ToImage(), kinds.ToDtype(torch.float32, scale=True)]
    else:
        steps.append(kinds.ToTensor())
    data = ImageFolder(str(folder), kinds.Compose([*steps, kinds.Normalize(MEAN, STD)]))
    return workers_feed(data, args, workers, half_on_gpu)


def half_on_gpu(images: Any) -> Any:
    return images.half() if images.is_cuda else images
