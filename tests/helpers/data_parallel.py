"""Program of two processes that train, resume in the middle of an epoch and evaluate, under one of several launchers.

    data_parallel.py spawn|ddp|accelerate|lightning|rejoin DATASET OUT
    data_parallel.py steps OUT WORLD_SIZE KILLED RAW ENCODED

Each rank writes the rows that it read to OUT/<rank>.json. With `steps`, it takes batches of a loader
of each of `ORDERS` in turn, and resumes from OUT/checkpoint. The last rank is killed in step KILLED.
With torchrun, a rank whose environment has KILLED_NODE waits in this step to be killed.
"""

from __future__ import annotations

import datetime
import hashlib
import json
import os
import signal
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import distributed, nn

import loaders

TRANSFORMS = [
    {"ResizeImage": {"size": 8, "interpolation": "bilinear", "backend": "cv2"}},
    "NormalizeImage",
]


def build(folder: str, **options: Any) -> loaders.Loader:
    defaults = {"batch_size": 3, "transforms": TRANSFORMS, "device": "cpu", "num_threads": 1}
    defaults |= {"dtype": "float32", "fields": ("image", "label", "index")}
    return loaders.build(folder, **{**defaults, **options})


def make_model() -> nn.Module:
    return nn.Sequential(nn.AdaptiveAvgPool2d(4), nn.Flatten(), nn.Linear(48, 23))


def rows_of(batches: Any) -> list[list[int]]:
    return [rows.tolist() for _, _, rows in batches]


def write(out: str, **results: Any) -> None:
    Path(out, f"{distributed.get_rank()}.json").write_text(json.dumps(results))


def refused(call: Any) -> str:
    """Return the message of the CallError that a call raises."""
    with pytest.raises(loaders.CallError) as caught:
        call()
    return str(caught.value)


def train_and_resume(folder: str, out: str, model: nn.Module, **results: Any) -> None:
    """Train for an epoch and a part of the next, resume it with a new loader, and count an evaluation.

    No optimizer changes the weights, because the first one imports half of torch, for a second or
    more.
    """
    train = build(folder)
    epochs: list[list[list[int]]] = [[], []]
    state: Any = None
    for epoch in range(2):
        for images, labels, rows in train:
            nn.functional.cross_entropy(model(images), labels).backward()
            epochs[epoch].append(rows.tolist())
            if epoch == 1 and len(epochs[1]) == 2:
                state = train.state_dict()
    resumed = build(folder)
    resumed.load_state_dict(state)
    counts = torch.zeros(1, dtype=torch.int64)
    for _, labels, _ in build(folder, last_batch="partial", shuffle=False):
        counts += len(labels)
    distributed.all_reduce(counts)
    ranks = [train.options.ranks.rank, train.options.ranks.world_size]
    read = {"epochs": epochs, "resumed": rows_of(resumed), "evaluated": int(counts)}
    write(out, ranks=ranks, **read, **results)


def run_ddp(folder: str, out: str) -> None:
    distributed.init_process_group("gloo")
    train_and_resume(folder, out, nn.parallel.DistributedDataParallel(make_model()))
    distributed.destroy_process_group()


def run_spawned(rank: int, folder: str, out: str) -> None:
    early = build(folder)
    place = f"file://{out}/store"
    distributed.init_process_group("gloo", init_method=place, rank=rank, world_size=2)
    differing = build(folder, seed=rank)
    found: dict[str, Any] = {"differing": refused(lambda: next(iter(differing))), "alone": []}
    found["early"] = [refused(lambda: next(iter(early))), refused(lambda: early.set_epoch(1))]
    if rank == 0:
        found["alone"] = rows_of(build(folder, rank=0, world_size=1, shuffle=False))
    train_and_resume(folder, out, nn.parallel.DistributedDataParallel(make_model()), **found)
    distributed.destroy_process_group()


#: Samples of a batch of all ranks.
GLOBAL = 16
STEPS = 7
#: Arguments of loaders, except for the sampler of `pk`, whose P depends on the number of ranks.
ORDERS: dict[str, dict[str, Any]] = {
    "stored": {"shuffle": False},
    "buffer": {"shuffle": "buffer"},
    "shuffled": {"shuffle": True},
    "subset": {"sampler": loaders.SubsetSampler(rows=range(37))},
    "balanced": {"sampler": loaders.ClassBalancedSampler("identity")},
    "pk": {"last_batch": "drop"},
    "buckets": {
        "sampler": loaders.BucketSampler([(32, 48), (48, 32)]),
        "transforms": [{"Resize": {"size": "bucket"}}, "NormalizeImage"],
    },
}


def open_order(name: str, raw: str, encoded: str, rank: int, world_size: int) -> loaders.Loader:
    """Build a loader of one of `ORDERS`; the images do not depend on the rank."""
    size = GLOBAL // world_size
    options = {"batch_size": size, "last_batch": "pad", "transforms": ["NormalizeImage"]}
    if name == "pk":
        options["sampler"] = loaders.PKSampler(size // 2, 2, by="identity")
    dataset = encoded if name == "buckets" else raw
    fields = ("image", "label", "index", "valid")
    ranks = {"rank": rank, "world_size": world_size, "fields": fields}
    return build(dataset, **{**options, **ranks, **ORDERS[name]})


def samples_of(batch: Any) -> list[list[Any]]:
    """Return row, label and a digest of the pixels of each sample that does not only fill a batch."""
    found = []
    for image, label, row, valid in zip(*batch, strict=True):
        if valid:
            pixels = hashlib.sha256(image.numpy().tobytes()).hexdigest()[:12]
            found.append([int(row), int(label), pixels])
    return found


def endless(loader: loaders.Loader) -> Iterator[list[list[Any]]]:
    while True:
        yield from map(samples_of, loader)


def run_steps(rank: int, out: str, world_size: int, killed: int, raw: str, encoded: str) -> None:
    launched = "TORCHELASTIC_RUN_ID" in os.environ
    store = "env://" if launched else f"file://{out}/store{killed}"
    distributed.init_process_group("gloo", store, rank=rank, world_size=world_size)
    found = {name: open_order(name, raw, encoded, rank, world_size) for name in ORDERS}
    checkpoint, first = Path(out, "checkpoint"), 0
    if checkpoint.exists():
        saved = torch.load(checkpoint, weights_only=True)
        first = saved["step"]
        for name, loader in found.items():
            loader.load_state_dict(saved["states"][rank][name])
    batches = {name: endless(loader) for name, loader in found.items()}
    with open(Path(out, f"{rank}.jsonl"), "a") as file:
        for step in range(first, STEPS):
            taken = {name: next(each) for name, each in batches.items()}
            print(json.dumps([step, taken]), file=file, flush=True)
            if step == killed and "KILLED_NODE" in os.environ:
                Path(out, f"{os.getpid()}.waits").touch()
                signal.pause()
            elif step == killed and rank == world_size - 1 and not launched:
                os.kill(os.getpid(), signal.SIGKILL)
            if step % 2:
                states: list[Any] = [None] * world_size
                own = {name: loader.state_dict() for name, loader in found.items()}
                distributed.all_gather_object(states, own)
                if rank == 0:
                    torch.save({"step": step + 1, "states": states}, f"{checkpoint}.new")
                    os.replace(f"{checkpoint}.new", checkpoint)
    distributed.destroy_process_group()


def run_rejoin(number: int, folder: str, out: str) -> None:
    """Be rank 0 of two groups, as process 0, or rank 1 of one of them: the first one is killed."""

    def join(group: int) -> None:
        place, limit = f"file://{out}/group{group}", datetime.timedelta(seconds=60)
        ranks = {"rank": int(number > 0), "world_size": 2}
        distributed.init_process_group("gloo", init_method=place, timeout=limit, **ranks)

    saved, train = Path(out, "state"), None
    if number < 2:
        join(1)
        train = build(folder)
        iteration = iter(train)  # an epoch whose iterator is dropped is over
        next(iteration)
        if number == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        torch.save(train.state_dict(), saved)
        distributed.destroy_process_group()
    join(2)
    if train is None:
        train = build(folder)
    train.load_state_dict(torch.load(saved))
    write(out, resumed=rows_of(train))
    distributed.destroy_process_group()


def run_accelerate(folder: str, out: str) -> None:
    from accelerate import Accelerator

    accelerator = Accelerator(cpu=True)
    train_and_resume(folder, out, accelerator.prepare(make_model()))
    accelerator.end_training()


def run_lightning(folder: str, out: str) -> None:
    import lightning

    class Classifier(lightning.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.model, self.epochs = make_model(), {}
            self.counts = torch.zeros(1, dtype=torch.int64)

        def train_dataloader(self) -> Any:
            # Here, not before the trainer: Lightning has started the processes by now.
            return build(folder)

        def val_dataloader(self) -> Any:
            return build(folder, last_batch="partial", shuffle=False)

        def training_step(self, batch: Any, number: int) -> torch.Tensor:
            images, labels, rows = batch
            self.epochs.setdefault(self.current_epoch, []).append(rows.tolist())
            return nn.functional.cross_entropy(self.model(images), labels)

        def validation_step(self, batch: Any, number: int) -> None:
            self.counts += len(batch[1])

        def configure_optimizers(self) -> Any:
            return torch.optim.SGD(self.parameters(), lr=0.1)

    given = {"accelerator": "cpu", "devices": 2, "strategy": "ddp", "max_epochs": 2}
    off = ("use_distributed_sampler", "logger", "enable_progress_bar", "enable_model_summary")

    def fit(model: lightning.LightningModule, checkpoint: Any = None, **options: Any) -> None:
        options |= {**given, **dict.fromkeys(off, False), "num_sanity_val_steps": 0}
        lightning.Trainer(**options).fit(model, ckpt_path=checkpoint)

    whole, second = Classifier(), Classifier()
    save = lightning.pytorch.callbacks.ModelCheckpoint(out, "{step}", every_n_train_steps=5)
    fit(whole, limit_val_batches=0, callbacks=[save])
    fit(second, f"{out}/step=5.ckpt", enable_checkpointing=False)
    print("second", second.epochs, flush=True)
    distributed.all_reduce(second.counts)
    ranks = [distributed.get_rank(), distributed.get_world_size()]
    read = {"resumed": second.epochs[1], "evaluated": int(second.counts)}
    write(out, ranks=ranks, epochs=[whole.epochs[0], whole.epochs[1]], **read)


if __name__ == "__main__":
    mode, *arguments = sys.argv[1:]
    # Forks, so that torch and DALI are not imported again; `torch.multiprocessing.spawn` otherwise.
    start = partial(torch.multiprocessing.start_processes, start_method="fork")
    if mode == "spawn":
        start(run_spawned, tuple(arguments), nprocs=2)
    elif mode == "steps":
        out, world_size, killed, *datasets = arguments
        if "RANK" in os.environ:
            run_steps(int(os.environ["RANK"]), out, int(world_size), int(killed), *datasets)
            sys.exit()
        given = (out, int(world_size), int(killed), *datasets)
        start(run_steps, given, nprocs=int(world_size))
    elif mode == "rejoin":
        started = torch.multiprocessing.get_context("fork")
        processes = [started.Process(target=run_rejoin, args=(n, *arguments)) for n in range(3)]
        for process in processes:
            process.start()
        for process in processes:
            process.join()
        sys.exit([process.exitcode for process in processes] != [0, -signal.SIGKILL, 0])
    else:
        {"ddp": run_ddp, "accelerate": run_accelerate, "lightning": run_lightning}[mode](*arguments)
