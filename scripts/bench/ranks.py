"""Ranks: what each of 1, 2, 4 and 8 ranks of one machine reaches, beside one rank alone.

    python scripts/bench ranks --images PHOTOS/ --json ranks.json
    python scripts/bench ranks --images PHOTOS/ --device cpu --ranks 1 2 4 --batch-size 64

The ranks are processes of a torch process group, on GPUs one for each GPU, with the same threads as
one rank alone: the cores divided by the largest number of ranks. They begin every measurement together.
Efficiency is the median of the slowest rank, divided by the median of one rank alone. `classes` are the
different ones of the first global batch: `PxK` has P x ranks. `start` is the first loader of new
processes: seconds of `build` and up to the first batch, of the slowest rank; megabytes that `build` of a
rank reads with calls (tables, manifest and libraries, not mapped shards); and the memory that a rank needs
more: its own pages (USS), and with its part of shared pages (PSS).
"""

import datetime
import json
import os
import statistics
import tempfile
import time
from argparse import Namespace
from pathlib import Path
from typing import Any

import harness
import torch
import train_speed
from feeds import SAMPLES_PER_CLASS, endless, measure_feed, open_loader, our_feed
from harness import CORES, Report, Row, WrongOptionError, at_least, option, own_memory
from inputs import prepare
from torch import distributed
from torch.multiprocessing.spawn import spawn

import loaders

TAKES = "30 minutes on 8 GPUs; needs photographs, torchvision for models, a GPU for each rank for the stated figures"
#: What is measured, in this order: the start comes first, in processes that have loaded nothing.
START, LOADER, PK, TRAINING = "start", "loader", "PxK", "training"
PARTS = (START, LOADER, PK, TRAINING)
MODELS = ["resnet50", "resnet18"]
STORES = ["full", "256", "raw"]
OPTIONS = [
    *harness.usual("ranks", count=25_600, batch_size=256, stores=STORES, feeds=True),
    option("--ranks", [1, 2, 4, 8], "numbers of ranks; 1 is always measured"),
    option("--parts", [*PARTS], "what to measure", choices=PARTS),
    option("--models", [], f"models to train, on GPUs {' and '.join(MODELS)}", nargs="+"),
    option("--threads", 0, "threads of each rank; 0 divides the cores, at most 12"),
    option("--seconds", 2.0, "duration of a measurement"),
    option("--rounds", 5, "measurements of each side, after a warm-up"),
]
EFFICIENCY = at_least(0.9)
#: What each side measured in each round, by title and name of the side.
Found = dict[str, dict[str, list[Row]]]


def read_by_calls() -> float:
    """Return the MB that this process has read with system calls."""
    return int(Path("/proc/self/io").read_text().split()[1]) / 1e6


def measure_start(dataset: Path, args: Namespace) -> Row:
    distributed.barrier()
    before, read, begin = own_memory(), read_by_calls(), time.perf_counter()
    with open_loader(dataset, args) as loader:
        row = {"build s": time.perf_counter() - begin, "MB read": read_by_calls() - read}
        batches = endless(loader)
        next(batches)
        row["first batch s"] = time.perf_counter() - begin
        for _ in range(2 * loader.options.prefetch):
            next(batches)
        for name, value in own_memory().items():
            row[name] = value - before[name]
    return row


def measure_rounds(dataset: Path, args: Namespace, **options: Any) -> list[Row]:
    """Take batches at the same time as the other ranks."""
    rows: list[Row] = []
    with our_feed(dataset, args, **options) as feed:
        gathered: list[Any] = [None] * distributed.get_world_size()
        distributed.all_gather_object(gathered, next(feed.batches)[1].tolist())
        different = len(set().union(*gathered))  # of the first global batch
        for _ in range(args.rounds + 1):
            distributed.barrier()
            row = measure_feed(feed, args.batch_size, args.seconds)
            rows.append({"images/s": 1 / row["s"], "CPU us/image": 1e6 * row["CPU s"]})
            rows[-1]["classes"] = different
    return rows[1:]  # after the warm-up


def measure_models(datasets: dict[str, Path], args: Namespace, device: torch.device) -> Found:
    """Train each model with DistributedDataParallel, fed by each store and by one cached batch."""
    found: Found = {}
    for model in args.models:
        steps = {model: train_speed.make_step(model, device)}
        measured = train_speed.measure(steps, datasets, args, device)[0][model]
        sides: dict[str, list[Row]] = {train_speed.CACHED: []}
        for name, rounds in measured.items():
            sides[train_speed.CACHED] += [{"images/s": limit} for _, limit, _ in rounds]
            sides[name.rpartition(" ")[2]] = [{"images/s": rate} for rate, _, _ in rounds]
        found[f"{model}, DDP"] = sides
    return found


def run_rank(
    rank: int, world_size: int, datasets: dict[str, Path], args: Namespace, folder: str
) -> None:
    """Measure all parts as one of the ranks; rank 0 writes what all of them found."""
    device = torch.device("cpu")
    if args.device == "gpu":
        device = torch.device("cuda", rank)
        torch.cuda.set_device(device)
        torch.backends.cudnn.benchmark = True
    torch.set_num_threads(args.num_threads)
    os.environ.setdefault("TORCH_NCCL_HIGH_PRIORITY", "1")  # as in `scripts/train.py`
    distributed.init_process_group(
        "gloo" if args.device == "cpu" else "cpu:gloo,cuda:nccl",
        init_method=f"file://{folder}/store",
        rank=rank,
        world_size=world_size,
        timeout=datetime.timedelta(minutes=5),
    )
    sampler = loaders.PKSampler(args.batch_size // SAMPLES_PER_CLASS, SAMPLES_PER_CLASS)
    found: Found = {}
    if START in args.parts:
        store, dataset = next(iter(datasets.items()))
        found[START] = {store: [measure_start(dataset, args)]}
    for part, options in ((LOADER, {}), (PK, {"sampler": sampler})):
        if part in args.parts:
            found[part] = {}
            for store, dataset in datasets.items():
                found[part][store] = measure_rounds(dataset, args, **options)
    if TRAINING in args.parts:
        found |= measure_models(datasets, args, device)
    gathered: list[Any] = [None] * world_size
    distributed.all_gather_object(gathered, found)
    if rank == 0:
        Path(folder, "found.json").write_text(json.dumps(gathered))
    distributed.destroy_process_group()


def start_ranks(world_size: int, datasets: dict[str, Path], args: Namespace) -> list[Any]:
    """Return what each of the ranks found, in new processes."""
    print(f"  ranks: {world_size}", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        spawn(run_rank, (world_size, datasets, args, folder), nprocs=world_size)
        found: list[Any] = json.loads(Path(folder, "found.json").read_text())
    return found


def summary(world_size: int, store: str, ranks: list[list[Row]]) -> Row:
    """Return the row of a table: medians over the rounds of each rank, then of all ranks."""
    row: Row = {"ranks": str(world_size), "of": store}
    for name in ranks[0][0]:
        values = [statistics.median(each[name] for each in rounds) for rounds in ranks]
        if name == "images/s":
            row |= {"slowest rank": min(values), "fastest rank": max(values)}
            row["all ranks"] = sum(values)
        elif name.endswith(" s"):  # the ranks wait for the slowest one
            row[name] = max(values)
        else:
            row[name] = statistics.median_low(values)
    return row


def report_part(report: Report, title: str, sizes: dict[int, list[Any]], on_gpu: bool) -> None:
    """Print a table of all numbers of ranks, and the efficiency of the largest one."""
    rows: list[Row] = []
    alone: dict[str, float] = {}
    for world_size, ranks in sizes.items():
        for store in ranks[0][title]:
            rows.append(summary(world_size, store, [rank[title][store] for rank in ranks]))
            if title != START:
                rate = rows[-1]["slowest rank"]
                rows[-1]["efficiency"] = rate / alone.setdefault(store, rate)
    report.table(title, rows)
    for row in rows:
        if row["ranks"] == str(max(sizes)) != "1" and title != START:
            name = f"{title}, {row['of']}: efficiency of {row['ranks']} ranks"
            report.check(name, row["efficiency"], EFFICIENCY if on_gpu else None)


def left_out(args: Namespace) -> list[Row]:
    """Take out of the arguments what this machine cannot measure, and return why."""
    rows: list[Row] = []
    args.ranks = sorted({1, *args.ranks})
    if args.device == "gpu":
        args.models = args.models or MODELS
        because = f"GPUs of this machine: {torch.cuda.device_count()}"
        while args.ranks[-1] > torch.cuda.device_count():
            rows.append({"left out": f"{args.ranks.pop()} ranks", "because": because})
    elif TRAINING in args.parts and not args.models:
        args.parts.remove(TRAINING)
        rows.append({"left out": TRAINING, "because": "there is no GPU, and no --models"})
    return rows


def run(report: Report, args: Namespace) -> None:
    missing = left_out(args)
    most = args.ranks[-1]
    args.num_threads = args.threads or max(1, min(12, CORES // most))
    # What `train_speed` measures besides.
    args.torchvision, args.workers, args.recipes = [], [], []
    args.hand, args.profiled = False, 0
    if args.batch_size % SAMPLES_PER_CLASS or args.count < most * args.batch_size:
        raise WrongOptionError(
            f"--batch-size {args.batch_size} must be a multiple of {SAMPLES_PER_CLASS}, and --count"
            f" {args.count} enough for a batch of each of {most} ranks"
        )
    classes = args.batch_size // SAMPLES_PER_CLASS * most
    made = harness.replaced(args, work=args.work / f"classes-{classes}")
    datasets = {store: prepare(made, store, classes=classes)[1] for store in args.stores}
    os.environ["OMP_NUM_THREADS"] = str(args.num_threads)  # inherited by the processes
    sizes = {number: start_ranks(number, datasets, args) for number in args.ranks}
    print(f"threads of each rank: {args.num_threads}")
    for title in sizes[1][0]:
        report_part(report, title, sizes, args.device == "gpu")
    if missing:
        report.table("Not measured", missing)
