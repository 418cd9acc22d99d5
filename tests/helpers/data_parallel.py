"""Program of two processes that train, resume in the middle of an epoch and evaluate, under one of several launchers.

    data_parallel.py spawn|ddp|accelerate|lightning DATASET OUT

Each rank writes the rows that it read to OUT/<rank>.json.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import torch
from torch import distributed, nn

import loaders

TRANSFORMS = [
    {"ResizeImage": {"size": 8, "interpolation": "bilinear", "backend": "cv2"}},
    "NormalizeImage",
]


def build(folder: str, **options: Any) -> loaders.Loader:
    defaults = {
        "batch_size": 3,
        "transforms": TRANSFORMS,
        "device": "cpu",
        "num_threads": 1,
        "dtype": "float32",
    }
    return loaders.build(folder, **{**defaults, "fields": ("image", "label", "index"), **options})


def make_model() -> nn.Module:
    return nn.Sequential(nn.AdaptiveAvgPool2d(4), nn.Flatten(), nn.Linear(48, 23))


def rows_of(batches: Any) -> list[list[int]]:
    return [rows.tolist() for _, _, rows in batches]


def write(out: str, **results: Any) -> None:
    Path(out, f"{distributed.get_rank()}.json").write_text(json.dumps(results))


def refused(call: Any) -> str:
    """Return the message of the CallError that a call raises."""
    try:
        call()
    except loaders.CallError as error:
        return str(error)
    return ""


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
    write(
        out,
        ranks=[train.options.ranks.rank, train.options.ranks.world_size],
        epochs=epochs,
        resumed=rows_of(resumed),
        evaluated=int(counts),
        **results,
    )


def run_ddp(folder: str, out: str) -> None:
    distributed.init_process_group("gloo")
    train_and_resume(folder, out, nn.parallel.DistributedDataParallel(make_model()))
    distributed.destroy_process_group()


def run_spawned(rank: int, folder: str, out: str) -> None:
    early = build(folder)
    distributed.init_process_group(
        "gloo", init_method=f"file://{out}/store", rank=rank, world_size=2
    )
    differing = build(folder, seed=rank)
    train_and_resume(
        folder,
        out,
        nn.parallel.DistributedDataParallel(make_model()),
        early=[refused(lambda: next(iter(early))), refused(lambda: early.set_epoch(1))],
        differing=refused(lambda: next(iter(differing))),
        alone=rows_of(build(folder, rank=0, world_size=1, shuffle=False)) if rank == 0 else [],
    )
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
            self.model, self.epochs, self.counts = (
                make_model(),
                {},
                torch.zeros(1, dtype=torch.int64),
            )

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

    def fit(
        model: lightning.LightningModule, checkpoint: str | None = None, **options: Any
    ) -> None:
        trainer = lightning.Trainer(
            accelerator="cpu", devices=2, strategy="ddp", use_distributed_sampler=False, logger=False, max_epochs=2,
            enable_progress_bar=False, enable_model_summary=False, num_sanity_val_steps=0, **options,
        )  # fmt: skip
        trainer.fit(model, ckpt_path=checkpoint)

    whole, second = Classifier(), Classifier()
    save = lightning.pytorch.callbacks.ModelCheckpoint(out, "{step}", every_n_train_steps=5)
    fit(whole, limit_val_batches=0, callbacks=[save])
    fit(second, f"{out}/step=5.ckpt", enable_checkpointing=False)
    print("second", second.epochs, flush=True)
    distributed.all_reduce(second.counts)
    write(
        out,
        ranks=[distributed.get_rank(), distributed.get_world_size()],
        epochs=[whole.epochs[0], whole.epochs[1]],
        resumed=second.epochs[1],
        evaluated=int(second.counts),
    )


if __name__ == "__main__":
    mode, *arguments = sys.argv[1:]
    if mode == "spawn":
        # Forks, so that torch and DALI are not imported again. Otherwise, this is
        # `torch.multiprocessing.spawn`.
        torch.multiprocessing.start_processes(
            run_spawned, tuple(arguments), nprocs=2, start_method="fork"
        )
    else:
        {"ddp": run_ddp, "accelerate": run_accelerate, "lightning": run_lightning}[mode](*arguments)
