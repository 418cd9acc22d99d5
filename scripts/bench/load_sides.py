"""The sides that load.py compares (`loaders.build`, torchvision, and DALI by hand), and how they are measured."""

from __future__ import annotations

import argparse
import importlib.util
import itertools
import multiprocessing
import os
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from report import Report, Timing
from torch.utils.dlpack import from_dlpack

import loaders
from manifests.store import read_manifest

MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
OURS, TORCHVISION, HAND = SIDES = ("loaders.build", "torchvision", "DALI by hand")
#: The stages after which a pipeline by hand may end.
STAGES = ("reading", "decoding", "augmentation")


class Side:
    """An endless iterator of batches, and the time that each measurement of it took.

    Attributes:
        iterator: the batches.
        prefetch: batches that may be made before they are requested.
        batches: minimum number of batches in a measurement.
        seconds: minimum duration of a measurement, which repeats the batches until then. In a short
            measurement, a single delay of the machine would dominate.
        timing: mean time of `batches` batches in each measurement.

    """

    def __init__(
        self, iterator: Iterator[Any], *, prefetch: int, batches: int, seconds: float
    ) -> None:
        self.iterator, self.prefetch, self.batches, self.seconds = (
            iterator,
            prefetch,
            batches,
            seconds,
        )
        self.timing = Timing()

    def take(self, count: int) -> Any:
        """Return the last of `count` batches, after the GPU has finished all work."""
        last = self._next(count)
        synchronize()
        return last

    def measure(self) -> None:
        """Discard the prefetched batches, measure, and wait until the same number is prefetched again."""
        self.take(2 * self.prefetch)
        start, cpu_start, rounds = time.perf_counter(), cpu_seconds_of_all(), 0
        while rounds == 0 or time.perf_counter() - start < self.seconds:
            self._next(self.batches)
            rounds += 1
        synchronize()
        self.timing.seconds.append((time.perf_counter() - start) / rounds)
        self.timing.cpu_seconds.append((cpu_seconds_of_all() - cpu_start) / rounds)
        time.sleep(self.prefetch * self.timing.seconds[-1] / self.batches)

    def _next(self, count: int) -> Any:
        last = None
        for batch in itertools.islice(self.iterator, count):
            last = batch
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


def measure(
    report: Report, title: str, sides: Mapping[str, Side], args: argparse.Namespace
) -> dict[str, Timing]:
    """Measure every side in turn, `--repeats` times after one warm-up, and report the rates."""
    for _, side in itertools.product(range(args.repeats + 1), sides.values()):
        side.measure()
    timings = {
        name: Timing(side.timing.seconds[1:], side.timing.cpu_seconds[1:])
        for name, side in sides.items()
    }
    images = args.count * args.epochs
    report.rates(
        f"{title}: at least {images:,} images, {args.repeats} repeats after one warm-up",
        timings,
        images,
    )
    return timings


def compare_sides(report: Report, src: Path, dataset: Path, args: argparse.Namespace) -> None:
    """Measure the sides that --only names, in turn."""
    sides = {
        name: make()
        for name, make in makers(src, dataset, args).items()
        if not args.only or any(word in name for word in args.only)
    }
    if not sides:
        return
    firsts = {name: side.take(1)[0] for name, side in sides.items()}
    if len({(images.shape[1:], images.dtype, images.device) for images in firsts.values()}) > 1:
        raise SystemExit(
            "the sides differ:"
            f" { {name: (x.shape, x.dtype, x.device) for name, x in firsts.items()} }"
        )
    firsts.clear()
    timings = measure(report, "Loading", sides, args)
    hand = "hand_raw" if args.store == "raw" else "hand_encoded"
    report.ratios(timings, [(OURS, TORCHVISION, torchvision_target(args)), (OURS, HAND, hand)])


def torchvision_target(args: argparse.Namespace) -> str:
    """Return the name of the target in targets.toml."""
    if args.device == "cpu":
        return "torchvision_cpu"
    if args.store == "raw":
        return "torchvision_raw"
    return "torchvision_resized" if args.resize_shorter else "torchvision_encoded"


def makers(src: Path, dataset: Path, args: argparse.Namespace) -> dict[str, Callable[[], Side]]:
    """Return a function for each side that this machine can measure."""
    with build(dataset, args) as loader:
        options = loader.options
        print(loader.explain().splitlines()[-1])
    found: dict[str, Callable[[], Side]] = {OURS: lambda: ours(dataset, args)}
    if args.preset != "imagenet-train":
        print(f"{HAND} and {TORCHVISION} are skipped: they implement only imagenet-train")
        return found
    found[HAND] = lambda: by_hand(dataset, args, options)
    if importlib.util.find_spec("torchvision"):
        found[TORCHVISION] = lambda: best_torchvision(src, args)
    else:
        print(f"{TORCHVISION} is skipped: it is not installed")
    return found


def build(dataset: Path, args: argparse.Namespace, **options: Any) -> Any:
    chosen = {
        "batch_size": args.batch_size,
        "transforms": args.preset,
        "device": args.device,
        "dtype": "float16" if args.device == "gpu" else "float32",
        "num_threads": args.threads,
        "sampler": loaders.ShuffledSampler() if args.order == "sampled" else None,
        "shuffle": "buffer" if args.order == "stored" else None,
        **options,
    }
    return loaders.build(dataset, split="train", **chosen)


def endless(loader: Any) -> Iterator[Any]:
    while True:
        yield from loader


def ours(dataset: Path, args: argparse.Namespace) -> Side:
    loader = build(dataset, args)
    return Side(
        endless(loader),
        prefetch=loader.options.prefetch,
        batches=args.batches,
        seconds=args.min_seconds,
    )


def torchvision_side(src: Path, args: argparse.Namespace, workers: int, batch_size: int) -> Side:
    """Load with an ordinary DataLoader.

    The sampler never ends, so there is no pause between epochs.
    """
    from torch.utils.data import DataLoader, RandomSampler
    from torchvision import datasets, transforms

    # A process that runs DALI has threads and must not be forked. The fork server has only imported
    # torchvision.
    multiprocessing.set_forkserver_preload(["torchvision"])
    steps = [
        transforms.RandomResizedCrop(224),
        transforms.RandomHorizontalFlip(),
        transforms.ToTensor(),
    ]
    data = datasets.ImageFolder(
        str(src), transforms.Compose([*steps, transforms.Normalize(MEAN, STD)])
    )
    iterator: Iterator[Any] = iter(
        DataLoader(
            data,
            batch_size,
            sampler=RandomSampler(data, num_samples=len(data) * 10_000),
            num_workers=workers,
            pin_memory=args.device == "gpu",
            multiprocessing_context="forkserver",
        )
    )
    if args.device == "gpu":
        iterator = (
            (images.to("cuda", non_blocking=True).half(), labels.to("cuda", non_blocking=True))
            for images, labels in iterator
        )
    return Side(
        iterator,
        prefetch=2 * workers,
        batches=args.count * args.epochs // batch_size,
        seconds=args.min_seconds,
    )


def best_torchvision(src: Path, args: argparse.Namespace) -> Side:
    """Try each number of workers with each batch size, and return the fastest."""
    tried = list(itertools.product(args.torch_workers, args.torch_batch_sizes))
    rates = {}
    for workers, size in tried if len(tried) > 1 else []:
        side = torchvision_side(src, args, workers, size)
        side.batches = max(4 * workers, args.count // size // 4)
        side.measure()
        rates[workers, size] = side.batches * size / side.timing.seconds[0]
        print(
            f"  {TORCHVISION}, {workers} workers, batches of {size}: {rates[workers, size]:,.0f}"
            " images/s"
        )
    workers, size = max(tried, key=lambda each: rates.get(each, 0.0))
    print(f"{TORCHVISION} with {workers} workers and batches of {size}")
    return torchvision_side(src, args, workers, size)


def by_hand(
    dataset: Path,
    args: argparse.Namespace,
    options: Any,
    until: str | None = None,
    layout: str = "CHW",
) -> Side:
    """Load as NVIDIA's ImageNet examples do, with the options of our loader.

    With `until`, end after that stage.
    """
    from nvidia.dali import fn, pipeline_def, tfrecord, types

    gpu = args.device == "gpu"
    shards = sorted(dataset.glob("*.tfrecord" if args.fmt == "tfrecord" else "*.tar"))
    paths, indexes = (
        [str(path) for path in shards],
        [str(path.with_suffix(".idx")) for path in shards],
    )
    manifest = read_manifest(dataset)
    stored, pixels = manifest.components.image[0], manifest.pixels
    reader = {
        "name": "reader",
        "pad_last_batch": True,
        "random_shuffle": True,
        "initial_fill": 1024,
        "shuffle_after_epoch": True,
        "shuffle_after_epoch_seed": 1,
    }

    @pipeline_def
    def pipeline() -> Any:
        if args.fmt == "tfrecord":
            features = {
                stored: tfrecord.FixedLenFeature((), tfrecord.string, ""),
                "image/class/label": tfrecord.FixedLenFeature([1], tfrecord.int64, -1),
            }
            read = fn.readers.tfrecord(path=paths, index_path=indexes, features=features, **reader)
            encoded, label = read[stored], read["image/class/label"]
        else:
            encoded, label = fn.readers.webdataset(
                paths=paths, index_paths=indexes, ext=[stored, "cls"], **reader
            )
            label = fn.pad(label)
        if until == "reading":
            return encoded, label
        crop = {
            "random_aspect_ratio": [3 / 4, 4 / 3],
            "random_area": [0.08, 1.0],
            "num_attempts": 10,
        }
        resize = {"size": [224, 224], "interp_type": types.INTERP_LINEAR, "antialias": True}
        if pixels:
            decoded = fn.reshape(encoded, shape=list(pixels), layout="HWC")
            decoded = decoded.gpu() if gpu else decoded
        else:
            load = {"hw_decoder_load": options.hw_decoder_load} if gpu else {}
            decoded = fn.decoders.image_random_crop(
                encoded, device="mixed" if gpu else "cpu", output_type=types.RGB, **crop, **load
            )
        if until == "decoding":
            return decoded, label
        images = (
            fn.random_resized_crop(decoded, **crop, **resize)
            if pixels
            else fn.resize(decoded, **resize)
        )
        images = fn.crop_mirror_normalize(
            images,
            mirror=fn.random.coin_flip(probability=0.5),
            mean=[255 * value for value in MEAN],
            std=[255 * value for value in STD],
            dtype=types.FLOAT16 if gpu else types.FLOAT,
            output_layout=layout,
        )
        return images, label.gpu() if gpu and args.fmt == "tfrecord" else label

    built = pipeline(
        batch_size=args.batch_size,
        num_threads=options.num_threads,
        device_id=torch.cuda.current_device() if gpu else None,
        seed=1,
        prefetch_queue_depth=options.prefetch,
        exec_dynamic=True,
    )

    def batches() -> Iterator[Any]:
        for images, labels in outputs(built):
            numbers = from_dlpack(labels.as_tensor())
            if args.fmt == "webdataset":
                numbers = torch.tensor([int(bytes(row).rstrip(b"\0")) for row in numbers.numpy()])
                numbers = numbers.to("cuda", non_blocking=True) if gpu else numbers
            yield from_dlpack(images.as_tensor()), numbers.flatten()

    return Side(
        outputs(built) if until else batches(),
        prefetch=options.prefetch,
        batches=args.batches,
        seconds=args.min_seconds,
    )


def outputs(pipeline: Any) -> Iterator[Any]:
    pipeline.build()
    pipeline.schedule_run()
    while True:
        batch = pipeline.share_outputs()
        pipeline.release_outputs()
        pipeline.schedule_run()
        yield batch
