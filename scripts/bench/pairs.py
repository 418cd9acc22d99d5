"""Pairs of training runs, one with each loader: results are kept in a file, and compared by seed."""

import json
import math
import multiprocessing
import random
import statistics
import time
import zlib
from argparse import Namespace
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import torch
from harness import CORES, DEVICE, Report, Row, option, usual
from inputs import convert

#: The name of a batch, which seeds its random numbers, and a row.
Key = tuple[str, int]
OPTIONS = [
    ("images", {"type": Path, "help": "folder with train/CLASS/ and val/CLASS/"}),
    *usual("accuracy", workers=max(1, CORES - 3)),
    DEVICE,
    option("--seeds", 12, "pairs of runs"),
    option("--seconds", math.inf, "start no run that would end later than this"),
    option("--results", Path("results.jsonl"), "file of the finished runs"),
]


def split_folders(images: Path) -> tuple[Path, Path]:
    """Return the folders of the training images and of the evaluated ones."""
    found = [images / name for name in ("val", "test") if (images / name).is_dir()]
    if not found or not (images / "train").is_dir():
        raise SystemExit(f"{images} needs the folders train/CLASS/ and val/CLASS/")
    return images / "train", found[0]


def dataset_folder(args: Namespace) -> Path:
    return Path(args.work) / f"accuracy-{args.images.resolve().name}"


class Images:
    """An ImageFolder with rows, whose random numbers depend only on the names of the batches.

    Labels number `classes`, by default the folders.
    """

    def __init__(self, folder: Path, steps: Sequence[Any], classes: Sequence[str] = ()) -> None:
        from torchvision import datasets, transforms

        self.folder = datasets.ImageFolder(str(folder), transforms.Compose([*steps]))
        names = list(classes or self.folder.classes)
        self.labels = [names.index(name) for name in self.folder.classes]

    def __len__(self) -> int:
        return len(self.folder)

    def in_order(self) -> list[list[Key]]:
        """Return the keys of all images, in batches of 256."""
        keys = [("in order", row) for row in range(len(self))]
        return [keys[start : start + 256] for start in range(0, len(keys), 256)]

    def __getitems__(self, keys: Sequence[Key]) -> list[Any]:
        """Return image, label and row of each sample of a batch."""
        random.seed(keys[0][0])
        torch.manual_seed(zlib.crc32(keys[0][0].encode()))
        found = [(*self.folder[row], row) for _, row in keys]
        return [(image, self.labels[label], row) for image, label, row in found]


def to_device(batch: Any, device: torch.device) -> Any:
    """Return images, channels last, and labels on the device; what else a batch has stays."""
    images, labels, *rest = batch
    images = images.to(device, non_blocking=True).contiguous(memory_format=torch.channels_last)
    return images, labels.to(device, non_blocking=True), *rest


def prepare(args: Namespace) -> None:
    """Convert the images. They stay encoded as they are, so all loaders decode the same bytes."""
    if not (dataset_folder(args) / "manifest.json").exists():
        convert(args.images, dataset_folder(args), "tfrecord")


def run_sides(
    sides: Sequence[str], function: Callable[..., None], args: Namespace, settings: Row, *more: Any
) -> dict[str, dict[int, Row]]:
    """Call a function for each side, at the same time, each in a process; return the runs of all sides."""
    prepare(args)
    with ProcessPoolExecutor(len(sides), multiprocessing.get_context("spawn")) as pool:
        for done in [pool.submit(function, side, args, settings, *more) for side in sides]:
            done.result()
    return read_results(args.results, settings)


def remaining_seeds(side: str, args: Namespace, settings: Row) -> list[int]:
    """Return the seeds without a result of this side."""
    done = read_results(args.results, settings).get(side, {})
    return [seed for seed in range(args.seeds) if seed not in done]


def run_seeds(
    side: str, args: Namespace, settings: Row, train: Callable[[int], dict[str, float]]
) -> None:
    """Train with each seed that has no result while there is time, and append each result to the file."""
    end, took = time.monotonic() + args.seconds, 0.0
    for seed in remaining_seeds(side, args, settings):
        start = time.monotonic()
        if start + took > end:
            break
        scores = train(seed)
        took = time.monotonic() - start
        row = {"side": side, "seed": seed, **scores, "seconds": round(took, 2)}
        with args.results.open("a") as stream:
            stream.write(json.dumps({**row, "settings": settings}) + "\n")
        print(f"{side}, seed {seed}: {scores}, {took:.1f} s", flush=True)


def read_results(file: Path, settings: Row) -> dict[str, dict[int, Row]]:
    """Return the runs of each side by seed that have the same settings."""
    found: dict[str, dict[int, Row]] = {}
    for line in file.read_text().splitlines() if file.exists() else ():
        row = json.loads(line)
        if row.pop("settings") == settings:
            found.setdefault(row.pop("side"), {})[row.pop("seed")] = row
    return found


def paired_interval(differences: Sequence[float]) -> tuple[float, float]:
    """Return the mean of the differences, and half the width of its 95% interval (Student's t)."""
    from scipy import stats

    mean = statistics.fmean(differences)
    if len(differences) < 2:
        return mean, math.inf
    return mean, float(stats.ttest_1samp(differences, 0).confidence_interval(0.95).high) - mean


def report_pairs(
    report: Report, found: dict[str, dict[int, Row]], sides: tuple[str, str], title: str,
    names: Sequence[str],
) -> dict[str, tuple[float, float]]:  # fmt: skip
    """Report the scores of two sides; return the mean difference and half its interval for each score."""
    other, ours = (found.get(side, {}) for side in sides)
    seeds = sorted(set(ours) & set(other))
    if len(seeds) < 2:
        raise SystemExit(
            f"an interval needs two pairs of runs, there are {len(seeds)}. Hint: raise --seeds or"
            " --seconds."
        )
    rows: list[Row] = []
    for side in sides:
        row: Row = {"mean of the seeds": side, "seeds": len(seeds)}
        for name in found[side][seeds[0]]:
            values = [found[side][seed][name] for seed in seeds]
            row[name] = f"{statistics.fmean(values):.2f}"
            row[f"deviation of {name}"] = f"{statistics.stdev(values):.2f}"
            row[f"{name} of each seed"] = values
        rows.append(row)
    report.table(title, rows, hidden=[name for name in rows[0] if name.endswith("of each seed")])
    intervals = {}
    for name in names:
        mean, half = paired_interval([ours[seed][name] - other[seed][name] for seed in seeds])
        intervals[name] = mean, half
        difference = f"{mean:+.3f} ± {half:.3f} percentage points (95%, {len(seeds)} pairs)"
        print(f"{name}, {sides[1]} - {sides[0]}: {difference}")
    return intervals
