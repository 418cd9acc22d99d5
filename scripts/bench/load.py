"""Reading: `loaders.build` beside torchvision's ImageFolder with a DataLoader, and beside a DALI pipeline by hand.

    python scripts/bench/load.py --images PHOTOS/ --count 25600 --work /dev/shm/bench-load
    python scripts/bench/load.py --images PHOTOS/ --count 4096 --device cpu --torch-workers 2
    python scripts/bench/load.py --images PHOTOS/ --memory
    python scripts/bench/load.py --start

PHOTOS is a folder of JPEGs, at any depth, which are repeated up to the count and converted with `dataprep convert`;
torchvision reads them as an ImageFolder, the other two as shards, all from memory. Every side does the work of
imagenet-train and ends with float16 tensors on the GPU, or float32 ones where there is none. Each of `--epochs` is a
whole one, begun after the side has given away what it made ahead while another was measured, so that nothing counts
that was made outside of the time, and nobody pays for a cold start. torchvision reads epoch after epoch without a
pause, and its number of workers and size of batches are the best of those that are tried.

Then the loader is taken apart: reading alone, with decoding, with the augmentation, and with torch's tensors.
With --memory: GPU memory after each of three epochs. With --start: how long `loaders.build` takes for a million
samples.
"""

from __future__ import annotations

import argparse
import functools
import itertools
import multiprocessing
import os
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import compare
import torch
from torch.utils.dlpack import from_dlpack

import loaders

MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
OURS, TORCHVISION, HAND = "loaders.build", "torchvision", "DALI by hand"
STAGES = ("storage", "decoder", "augmentation", "transfer to torch")


class Side:
    """Batches without end, in portions; what each portion took.

    Attributes:
        ahead: batches that may be made before they are asked for.
        portion: batches that `measure` takes.
        seconds: of each portion.
        worked: seconds of processor time of each portion.

    """

    def __init__(self, batches: Iterator[Any], *, ahead: int, portion: int) -> None:
        self._batches, self.ahead, self.portion = batches, ahead, portion
        self.seconds: list[float] = []
        self.worked: list[float] = []

    def take(self, count: int) -> Any:
        """Return the last of so many batches once it is complete; and all that is under way on the GPU with it."""
        last = None
        for batch in itertools.islice(self._batches, count):
            last = batch
        synchronize()
        return last

    def measure(self) -> None:
        """Take what was made ahead, then a portion that counts; return when as much is made ahead again."""
        self.take(2 * self.ahead)
        begun, worked = time.perf_counter(), processor_seconds()
        self.take(self.portion)
        self.seconds.append(time.perf_counter() - begun)
        self.worked.append(processor_seconds() - worked)
        time.sleep(self.ahead * self.seconds[-1] / self.portion)


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
    print(f"{images:,} images, {call.repeats} repeats after one warm-up; images a second:")
    print(f"  {'':34}{'median':>10}{'least':>10}{'most':>10}{'processor':>16}")
    for name, side in sides.items():
        rates = sorted(images / seconds for seconds in side.seconds[1:])
        worked = statistics.median(side.worked[1:]) / images * 1e6
        columns = "".join(f"{rate:>10,.0f}" for rate in (statistics.median(rates), rates[0], rates[-1]))
        print(f"  {name:34}{columns}{worked:>7,.0f} us/image")
    for left, right, bar in ratios:
        if left in sides and right in sides:
            # Neighbours in time are compared, so that a slow moment of the machine hits both.
            pairs = sorted(b / a for a, b in zip(sides[left].seconds[1:], sides[right].seconds[1:], strict=True))
            spent = [statistics.median(sides[name].worked[1:]) for name in (left, right)]
            print(
                f"{left} / {right}: {statistics.median(pairs):.2f} (of pairs {pairs[0]:.2f} to {pairs[-1]:.2f}; by "
                f"processor time {spent[1] / spent[0]:.2f}), asked for: {bar:g}"
            )
    return sides


def prepare(call: argparse.Namespace) -> tuple[Path, Path]:
    """Return an ImageFolder of `count` images, hard links to a few, and the dataset converted from it."""
    src, out = call.work / f"src-{call.count}", call.work / f"{call.fmt}-{call.count}"
    if not (out / "manifest.json").exists():
        originals = call.work / "originals"
        shutil.rmtree(src, ignore_errors=True)
        shutil.rmtree(originals, ignore_errors=True)
        found = sorted(file for file in call.images.rglob("*") if file.suffix.lower() in (".jpg", ".jpeg"))
        if not found:
            raise SystemExit(f"{call.images} holds no .jpg or .jpeg file")
        originals.mkdir(parents=True)
        for number, file in enumerate(found):
            shutil.copyfile(file, originals / f"{number}.jpg")
        for number in range(call.count):
            link = src / f"class{number % 100:04d}" / f"{number:08d}.jpg"
            link.parent.mkdir(parents=True, exist_ok=True)
            link.hardlink_to(originals / f"{number % len(found)}.jpg")
        convert(src, out, call.fmt)
    return src, out


def convert(src: Path, out: Path, fmt: str, *options: str) -> None:
    command = [sys.executable, "-m", "dataprep.cli", "convert", "--src", src, "--out", out, "--fmt", fmt, *options]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)


def build(dataset: Path, call: argparse.Namespace, **options: Any) -> Any:
    chosen = {
        "batch_size": call.batch_size,
        "transforms": call.preset,
        "device": call.device,
        "dtype": "float16" if call.device == "gpu" else "float32",
        "num_threads": call.threads,
        **options,
    }
    return loaders.build(dataset, split="train", **chosen)


def endless(loader: Any) -> Iterator[Any]:
    while True:
        yield from loader


def ours(dataset: Path, call: argparse.Namespace) -> Side:
    return Side(endless(build(dataset, call)), ahead=2, portion=call.batches)


def torchvision_side(src: Path, call: argparse.Namespace, workers: int, batch_size: int) -> Side:
    """Read as torchvision's users do; epoch follows epoch without a pause, for the sampler goes round and round."""
    from torch.utils.data import DataLoader, RandomSampler
    from torchvision import datasets, transforms

    steps = [transforms.RandomResizedCrop(224), transforms.RandomHorizontalFlip(), transforms.ToTensor()]
    data = datasets.ImageFolder(str(src), transforms.Compose([*steps, transforms.Normalize(MEAN, STD)]))
    batches: Iterator[Any] = iter(
        DataLoader(
            data,
            batch_size,
            sampler=RandomSampler(data, num_samples=len(data) * 10_000),
            num_workers=workers,
            pin_memory=call.device == "gpu",
            # A process that runs DALI has threads, and must not be forked.
            multiprocessing_context="spawn",
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
                "image/encoded": tfrecord.FixedLenFeature((), tfrecord.string, ""),
                "image/class/label": tfrecord.FixedLenFeature([1], tfrecord.int64, -1),
            }
            read = fn.readers.tfrecord(path=paths, index_path=indexes, features=features, **reader)
            encoded, label = read["image/encoded"], read["image/class/label"]
        else:
            encoded, label = fn.readers.webdataset(paths=paths, index_paths=indexes, ext=["jpg", "cls"], **reader)
            label = fn.pad(label)
        images = fn.decoders.image_random_crop(
            encoded,
            device="mixed" if gpu else "cpu",
            output_type=types.RGB,
            random_aspect_ratio=[3 / 4, 4 / 3],
            random_area=[0.08, 1.0],
            num_attempts=10,
            **({"hw_decoder_load": options.hw_decoder_load} if gpu else {}),
        )
        images = fn.resize(images, size=[224, 224], interp_type=types.INTERP_LINEAR, antialias=True)
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

    return Side(batches(), ahead=2, portion=call.batches)


def outputs(pipeline: Any) -> Iterator[Any]:
    pipeline.build()
    pipeline.schedule_run()
    while True:
        batch = pipeline.share_outputs()
        pipeline.release_outputs()
        pipeline.schedule_run()
        yield batch


def taken_apart(dataset: Path, call: argparse.Namespace) -> dict[str, Side]:
    """Return the loader cut off after each of `STAGES`."""
    from nvidia import dali

    from loaders.fuse import fuse
    from loaders.graph.base import Draws, Run
    from loaders.graph.geometry import decode
    from loaders.graph.pipeline import Seeds, make_pipeline
    from loaders.graph.readers import read_records

    loader = build(dataset, call)
    # What the loader itself has worked out, so that the parts are its own.
    split, recipe, options, gpu = loader._split, loader._recipe, loader._options, loader._gpu

    def part(*, decoded: bool) -> Any:
        pipeline = dali.Pipeline(
            batch_size=options.batch_size,
            num_threads=options.num_threads,
            device_id=gpu,
            seed=1,
            prefetch_queue_depth=options.prefetch,
            exec_dynamic=True,
            enable_checkpointing=True,
        )
        with pipeline:
            records = read_records(
                split,
                shuffle=options.shuffle,
                ranks=options.ranks,
                seed=1,
                file_seed=1,
                with_label=True,
                with_source=False,
            )
            image = records.encoded
            if decoded:
                run = Run(gpu=gpu is not None, batch_size=options.batch_size, draws=Draws(1))
                image = decode(image, fuse(recipe.operations).operations[0], run, options.hw_decoder_load)
            pipeline.set_outputs(image, records.label)
        return pipeline

    whole = make_pipeline(
        split, recipe, options, seeds=Seeds(draws=1, files=1), gpu=gpu, with_label=True, with_source=False
    )
    pipelines = [part(decoded=False), part(decoded=True), whole]
    names = ("reading", "+ decoding", "+ augmentation", "+ torch's tensors: all of it")
    batches = [*map(outputs, pipelines), endless(loader)]
    return {name: Side(each, ahead=2, portion=call.batches) for name, each in zip(names, batches, strict=True)}


def tell_bottleneck(sides: dict[str, Side]) -> None:
    """Say which stage adds most to the time of the stages before it."""
    medians = [statistics.median(side.seconds[1:]) for side in sides.values()]
    added = [max(0.0, after - before) for before, after in itertools.pairwise([0.0, *medians])]
    shares = {stage: seconds / sum(added) for stage, seconds in zip(STAGES, added, strict=True)}
    most = max(shares, key=shares.__getitem__)
    print(f"bottleneck: {most} (added time: {', '.join(f'{stage} {share:.0%}' for stage, share in shares.items())})")


def makers(src: Path, dataset: Path, call: argparse.Namespace) -> dict[str, Callable[[], Side]]:
    """Return how to begin each side that can take part here."""
    with build(dataset, call) as loader:
        options = loader._options  # what was not said, and what the loader chose
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
    bar = 7.0 if call.device == "gpu" else 1.7
    measure(sides, call, ratios=[(OURS, TORCHVISION, bar), (OURS, HAND, 0.97)])


def tell_memory(call: argparse.Namespace) -> None:
    """Print the GPU's used memory, of all pools, after each of three epochs."""
    _, dataset = prepare(call)

    def used() -> int:
        torch.cuda.synchronize()
        free, total = torch.cuda.mem_get_info()
        return total - free

    before, after = used(), []
    with build(dataset, call) as loader:
        for epoch in range(3):
            for _ in loader:
                pass
            after.append(used())
            print(f"GPU memory after epoch {epoch}: {(after[-1] - before) / 2**20:,.0f} MiB more than before")
    print(f"from the first to the third: {(after[-1] - after[0]) / 2**20:+,.0f} MiB, asked for: 0")


def repeat_shard(call: argparse.Namespace, shards: int, samples: int) -> Path:
    """Make a dataset of tiny images whose shards are one and the same, under many names."""
    from PIL import Image

    from manifests.schema import File, Shard, Split
    from manifests.store import manifest_bytes, read_manifest

    src, out = call.work / "tiny", call.work / f"tiny-{shards}x{samples}"
    if (out / "manifest.json").exists():
        return out
    shutil.rmtree(src, ignore_errors=True)
    shutil.rmtree(out, ignore_errors=True)
    (src / "a").mkdir(parents=True)
    Image.new("RGB", (8, 8)).save(src / "a" / "0.jpg")
    for number in range(1, samples):
        (src / "a" / f"{number}.jpg").hardlink_to(src / "a" / "0.jpg")
    convert(src, out, call.fmt, "--samples-per-shard", str(samples))
    manifest = read_manifest(out)
    (shard,) = manifest.splits[0].shards

    def linked(file: File, number: int) -> File:
        name = file.name.replace("00000", f"{number:05d}")
        if number:
            (out / name).hardlink_to(out / file.name)
        return replace(file, name=name)

    copies = tuple(
        Shard(linked(shard.file, number), shard.samples, linked(shard.index, number), linked(shard.table, number))
        for number in range(shards)
    )
    whole = replace(manifest, splits=(Split("train", copies),))
    (out / "manifest.json").write_bytes(manifest_bytes(whole))
    return out


def start_empty(call: argparse.Namespace) -> float:
    """Return the seconds until a DALI pipeline that does nothing has given a batch."""
    from nvidia import dali

    synchronize()
    begun = time.perf_counter()
    pipeline = dali.Pipeline(
        batch_size=call.batch_size,
        num_threads=call.threads or len(os.sched_getaffinity(0)),
        device_id=torch.cuda.current_device() if call.device == "gpu" else None,
        exec_dynamic=True,
    )
    with pipeline:
        pipeline.set_outputs(dali.types.Constant(0, device=call.device))
    pipeline.build()
    pipeline.run()
    return time.perf_counter() - begun


def start_ours(call: argparse.Namespace, dataset: Path, fields: Sequence[str], batches: int) -> float:
    """Return the seconds that `loaders.build` takes, and those until so many batches; DALI is imported before."""
    import loaders.iterators  # noqa: F401

    synchronize()
    begun = time.perf_counter()
    loader = build(dataset, call, fields=fields)
    for _ in itertools.islice(loader, batches):
        pass
    return time.perf_counter() - begun


def tell_start(call: argparse.Namespace) -> None:
    """Print how long it takes to start, each time in a process of its own."""
    million, few = repeat_shard(call, 100, 10_000), repeat_shard(call, 1, 1_000)
    plain, indexed = ("image", "label"), ("image", "label", "index")
    sides: dict[str, Callable[[], float]] = {
        "an empty DALI pipeline": functools.partial(start_empty, call),
        "build, 1,000 samples": functools.partial(start_ours, call, few, plain, 0),
        "build, 1,000,000 samples": functools.partial(start_ours, call, million, plain, 0),
        "the same, to the first batch": functools.partial(start_ours, call, million, plain, 1),
        "build, 1,000,000 with tables": functools.partial(start_ours, call, million, indexed, 0),
    }
    seconds: dict[str, list[float]] = {name: [] for name in sides}
    for _, (name, side) in itertools.product(range(call.repeats), sides.items()):
        with multiprocessing.get_context("spawn").Pool(1) as pool:
            seconds[name].append(pool.apply(side))
    medians = {name: statistics.median(times) for name, times in seconds.items()}
    empty = medians["an empty DALI pipeline"]
    print(f"seconds to start, {call.repeats} repeats, a process each, torch and DALI imported before:")
    for name, times in seconds.items():
        beyond = "" if name == "an empty DALI pipeline" else f", beyond the empty one {medians[name] - empty:.2f}"
        print(f"  {name:34}{medians[name]:.2f} ({min(times):.2f} to {max(times):.2f}){beyond}")
    print("asked for: less than 2 beyond the empty one")


def tell_machine(call: argparse.Namespace) -> None:
    from importlib.metadata import version

    packages = ["nvidia-dali-cuda120", "torch", *(["torchvision"] if compare.installed("torchvision") else [])]
    gpu = torch.cuda.get_device_name() if call.device == "gpu" else "no GPU"
    cores = len(os.sched_getaffinity(0))
    print(f"{gpu}; {cores} cores usable; {', '.join(f'{name} {version(name)}' for name in packages)}")


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--images", type=Path, help="folder of photographs")
    parser.add_argument("--count", type=int, default=25_600, help="images of an epoch; whole batches are kept")
    parser.add_argument("--epochs", type=int, default=1, help="epochs that each measurement takes")
    parser.add_argument(
        "--work",
        type=Path,
        default=Path("/dev/shm/bench-load"),
        help="folder in memory; what an earlier call made there is used again",
    )
    parser.add_argument("--fmt", choices=["tfrecord", "webdataset"], default="tfrecord")
    parser.add_argument("--preset", default="imagenet-train")
    parser.add_argument("--device", choices=["auto", "gpu", "cpu"], default="auto")
    parser.add_argument("--batch-size", type=int, default=256)
    parser.add_argument("--threads", type=int, help="of both that run DALI; none means loaders.build's own choice")
    parser.add_argument(
        "--torch-workers", type=int, nargs="+", default=[len(os.sched_getaffinity(0))], help="numbers to try"
    )
    parser.add_argument("--torch-batch-sizes", type=int, nargs="+", help="sizes to try; none means --batch-size")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--only", nargs="+", help="only the sides whose names contain one of these; `apart` for stages")
    parser.add_argument("--memory", action="store_true", help="tell the GPU memory of three epochs, and nothing else")
    parser.add_argument("--start", action="store_true", help="tell the time to start, and nothing else")
    call = parser.parse_args()
    if call.device == "auto":
        call.device = "gpu" if torch.cuda.is_available() else "cpu"
    if call.memory and call.device == "cpu":
        parser.error("--memory needs a GPU")
    if call.images is None and not call.start:
        parser.error("--images is needed")
    if call.count < call.batch_size:
        parser.error(f"--count {call.count} is less than a batch of {call.batch_size}")
    call.batches = call.count // call.batch_size * call.epochs
    call.count = call.count // call.batch_size * call.batch_size
    call.torch_batch_sizes = call.torch_batch_sizes or [call.batch_size]
    return call


def main() -> None:
    call = parse()
    tell_machine(call)
    if call.start:
        tell_start(call)
    elif call.memory:
        tell_memory(call)
    else:
        src, dataset = prepare(call)
        compare_sides(src, dataset, call)
        if not call.only or "apart" in call.only:
            print(f"\n{OURS} taken apart")
            tell_bottleneck(measure(taken_apart(dataset, call), call))


if __name__ == "__main__":
    main()
