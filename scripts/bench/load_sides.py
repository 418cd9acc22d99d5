"""The sides of the benchmark of reading: `loaders.build`, torchvision, and DALI by hand; and how they are measured."""

from __future__ import annotations

import argparse
import itertools
import multiprocessing
import os
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import compare
import torch
from torch.utils.dlpack import from_dlpack

import loaders
from manifests.store import read_manifest

MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
OURS, TORCHVISION, HAND = SIDES = ("loaders.build", "torchvision", "DALI by hand")


class Side:
    """Batches without end, in portions; what each portion took.

    Attributes:
        ahead: batches that may be made before they are asked for.
        portion: batches that `measure` takes at least; it takes as many again until `LEAST` seconds are over.
        seconds: that a portion took, in each measurement on average.
        worked: seconds of processor time, likewise.

    """

    #: Seconds; in less, one hiccup of the machine would be what is measured.
    LEAST = 1.0

    def __init__(self, batches: Iterator[Any], *, ahead: int, portion: int) -> None:
        self._batches, self.ahead, self.portion = batches, ahead, portion
        self.seconds: list[float] = []
        self.worked: list[float] = []

    def take(self, count: int) -> Any:
        """Return the last of so many batches once it is complete; and all that is under way on the GPU with it."""
        last = self._next(count)
        synchronize()
        return last

    def measure(self) -> None:
        """Take what was made ahead, then portions that count; return when as much is made ahead again."""
        self.take(2 * self.ahead)
        begun, worked, portions = time.perf_counter(), processor_seconds(), 0
        while portions == 0 or time.perf_counter() - begun < self.LEAST:
            self._next(self.portion)
            portions += 1
        synchronize()
        self.seconds.append((time.perf_counter() - begun) / portions)
        self.worked.append((processor_seconds() - worked) / portions)
        time.sleep(self.ahead * self.seconds[-1] / self.portion)

    def _next(self, count: int) -> Any:
        last = None
        for batch in itertools.islice(self._batches, count):
            last = batch
        return last


def synchronize() -> None:
    if torch.cuda.is_available():
        torch.cuda.synchronize()


def processor_seconds() -> float:
    """Return how long this process and its children, running ones too, were at work."""
    ticks = 0
    for child in multiprocessing.active_children():
        fields = Path(f"/proc/{child.pid}/stat").read_text().rpartition(")")[2].split()
        ticks += int(fields[11]) + int(fields[12])
    return sum(os.times()[:4]) + ticks / os.sysconf("SC_CLK_TCK")


def measure(
    sides: dict[str, Side], call: argparse.Namespace, ratios: Sequence[tuple[str, str, float]] = ()
) -> dict[str, Side]:
    """Measure every side in turn, `--repeats` times after one that does not count; print rates and ratios."""
    for _, side in itertools.product(range(call.repeats + 1), sides.values()):
        side.measure()
    images = call.count * call.epochs
    print(f"at least {images:,} images, {call.repeats} repeats after one warm-up; images a second:")
    print(f"  {'':34}{'median':>10}{'least':>10}{'most':>10}{'processor':>16}")
    for name, side in sides.items():
        rates = sorted(images / seconds for seconds in side.seconds[1:])
        worked = statistics.median(side.worked[1:]) / images * 1e6
        columns = "".join(f"{rate:>10,.0f}" for rate in (statistics.median(rates), rates[0], rates[-1]))
        print(f"  {name:34}{columns}{worked:>7,.0f} us/image")
    for left, right, bar in ratios:
        if left in sides and right in sides:
            pairs = compare.paired(sides[left].seconds[1:], sides[right].seconds[1:])
            spent = [statistics.median(sides[name].worked[1:]) for name in (left, right)]
            print(
                f"{left} / {right}: {statistics.median(pairs):.2f} (of pairs {pairs[0]:.2f} to {pairs[-1]:.2f}; by "
                f"processor time {spent[1] / spent[0]:.2f}), asked for: {bar:g}"
            )
    return sides


def compare_sides(src: Path, dataset: Path, call: argparse.Namespace) -> None:
    """Measure the sides that --only names, in turn."""
    sides = {
        name: make()
        for name, make in makers(src, dataset, call).items()
        if not call.only or any(word in name for word in call.only)
    }
    if not sides:
        return
    firsts = {name: side.take(1)[0] for name, side in sides.items()}
    if len({(images.shape[1:], images.dtype, images.device) for images in firsts.values()}) > 1:
        raise SystemExit(f"the sides differ: { {name: (x.shape, x.dtype, x.device) for name, x in firsts.items()} }")
    firsts.clear()
    hand = 0.95 if call.store == "raw" else 0.97
    measure(sides, call, ratios=[(OURS, TORCHVISION, asked_of_torchvision(call)), (OURS, HAND, hand)])


def asked_of_torchvision(call: argparse.Namespace) -> float:
    if call.device == "cpu":
        return 1.7
    if call.store == "raw":
        return 40.0
    return 12.0 if call.resize_shorter else 7.0


def makers(src: Path, dataset: Path, call: argparse.Namespace) -> dict[str, Callable[[], Side]]:
    """Return how to begin each side that can take part here."""
    with build(dataset, call) as loader:
        options = loader.options  # what was not said, and what the loader chose
        print(loader.explain().splitlines()[-1])
    found: dict[str, Callable[[], Side]] = {OURS: lambda: ours(dataset, call)}
    if call.preset != "imagenet-train":
        print(f"{HAND} and {TORCHVISION} are left out: they do imagenet-train only")
        return found
    found[HAND] = lambda: by_hand(dataset, call, options)
    if compare.installed("torchvision"):
        found[TORCHVISION] = lambda: best_torchvision(src, call)
    else:
        print(f"{TORCHVISION} is left out: it is not installed")
    return found


def build(dataset: Path, call: argparse.Namespace, **options: Any) -> Any:
    chosen = {
        "batch_size": call.batch_size,
        "transforms": call.preset,
        "device": call.device,
        "dtype": "float16" if call.device == "gpu" else "float32",
        "num_threads": call.threads,
        "sampler": loaders.ShuffledSampler() if call.order == "sampled" else None,
        "shuffle": True if call.order == "stored" else None,
        **options,
    }
    return loaders.build(dataset, split="train", **chosen)


def endless(loader: Any) -> Iterator[Any]:
    while True:
        yield from loader


def ours(dataset: Path, call: argparse.Namespace) -> Side:
    loader = build(dataset, call)
    return Side(endless(loader), ahead=loader.options.prefetch, portion=call.batches)


def torchvision_side(src: Path, call: argparse.Namespace, workers: int, batch_size: int) -> Side:
    """Read as torchvision's users do; epoch follows epoch without a pause, for the sampler goes round and round."""
    from torch.utils.data import DataLoader, RandomSampler
    from torchvision import datasets, transforms

    # A process that runs DALI has threads, and must not be forked; one that has imported what all need may be.
    multiprocessing.set_forkserver_preload(["torchvision"])
    steps = [transforms.RandomResizedCrop(224), transforms.RandomHorizontalFlip(), transforms.ToTensor()]
    data = datasets.ImageFolder(str(src), transforms.Compose([*steps, transforms.Normalize(MEAN, STD)]))
    batches: Iterator[Any] = iter(
        DataLoader(
            data,
            batch_size,
            sampler=RandomSampler(data, num_samples=len(data) * 10_000),
            num_workers=workers,
            pin_memory=call.device == "gpu",
            multiprocessing_context="forkserver",
        )
    )
    if call.device == "gpu":
        batches = (
            (images.to("cuda", non_blocking=True).half(), labels.to("cuda", non_blocking=True))
            for images, labels in batches
        )
    return Side(batches, ahead=2 * workers, portion=call.count * call.epochs // batch_size)


def best_torchvision(src: Path, call: argparse.Namespace) -> Side:
    """Try each number of workers with each size of batches, and return the fastest."""
    tried = list(itertools.product(call.torch_workers, call.torch_batch_sizes))
    rates = {}
    for workers, size in tried if len(tried) > 1 else []:
        side = torchvision_side(src, call, workers, size)
        side.portion = max(4 * workers, call.count // size // 4)
        side.measure()
        rates[workers, size] = side.portion * size / side.seconds[0]
        print(f"  {TORCHVISION}, {workers} workers, batches of {size}: {rates[workers, size]:,.0f} images a second")
    workers, size = max(tried, key=lambda each: rates.get(each, 0.0))
    print(f"{TORCHVISION} with {workers} workers and batches of {size}")
    return torchvision_side(src, call, workers, size)


def by_hand(dataset: Path, call: argparse.Namespace, options: Any) -> Side:
    """Read as NVIDIA's examples for ImageNet do, with the options that our reader has."""
    from nvidia.dali import fn, pipeline_def, tfrecord, types

    gpu = call.device == "gpu"
    shards = sorted(dataset.glob("*.tfrecord" if call.fmt == "tfrecord" else "*.tar"))
    paths, indexes = [str(path) for path in shards], [str(path.with_suffix(".idx")) for path in shards]
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
    def pipeline() -> tuple[Any, Any]:
        if call.fmt == "tfrecord":
            features = {
                stored: tfrecord.FixedLenFeature((), tfrecord.string, ""),
                "image/class/label": tfrecord.FixedLenFeature([1], tfrecord.int64, -1),
            }
            read = fn.readers.tfrecord(path=paths, index_path=indexes, features=features, **reader)
            encoded, label = read[stored], read["image/class/label"]
        else:
            encoded, label = fn.readers.webdataset(paths=paths, index_paths=indexes, ext=[stored, "cls"], **reader)
            label = fn.pad(label)
        crop = {"random_aspect_ratio": [3 / 4, 4 / 3], "random_area": [0.08, 1.0], "num_attempts": 10}
        resize = {"size": [224, 224], "interp_type": types.INTERP_LINEAR, "antialias": True}
        if pixels:
            whole = fn.reshape(encoded, shape=list(pixels), layout="HWC")
            images = fn.random_resized_crop(whole.gpu() if gpu else whole, **crop, **resize)
        else:
            load = {"hw_decoder_load": options.hw_decoder_load} if gpu else {}
            images = fn.decoders.image_random_crop(
                encoded, device="mixed" if gpu else "cpu", output_type=types.RGB, **crop, **load
            )
            images = fn.resize(images, **resize)
        images = fn.crop_mirror_normalize(
            images,
            mirror=fn.random.coin_flip(probability=0.5),
            mean=[255 * value for value in MEAN],
            std=[255 * value for value in STD],
            dtype=types.FLOAT16 if gpu else types.FLOAT,
            output_layout="CHW",
        )
        return images, label.gpu() if gpu and call.fmt == "tfrecord" else label

    made = pipeline(
        batch_size=call.batch_size,
        num_threads=options.num_threads,
        device_id=torch.cuda.current_device() if gpu else None,
        seed=1,
        prefetch_queue_depth=options.prefetch,
        exec_dynamic=True,
    )

    def batches() -> Iterator[Any]:
        for images, labels in outputs(made):
            numbers = from_dlpack(labels.as_tensor())
            if call.fmt == "webdataset":
                numbers = torch.tensor([int(bytes(row).rstrip(b"\0")) for row in numbers.numpy()])
                numbers = numbers.to("cuda", non_blocking=True) if gpu else numbers
            yield from_dlpack(images.as_tensor()), numbers.flatten()

    return Side(batches(), ahead=options.prefetch, portion=call.batches)


def outputs(pipeline: Any) -> Iterator[Any]:
    pipeline.build()
    pipeline.schedule_run()
    while True:
        batch = pipeline.share_outputs()
        pipeline.release_outputs()
        pipeline.schedule_run()
        yield batch
