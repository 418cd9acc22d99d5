"""Train a classifier on a prepared dataset, on one device or several, and resume a run that stopped.

    python scripts/train.py ILSVRC2012-tfrecord --checkpoint run.pt
    torchrun --nproc-per-node 8 scripts/train.py ILSVRC2012-tfrecord --checkpoint run.pt --resume

With --resume, training continues with the next batch, and ends with the same weights as a run that
did not stop.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import distributed, nn

import loaders

#: What a checkpoint contains beside the step and the states of the loaders.
PARTS = ("model", "optimizer", "scheduler")


@dataclass
class Training:
    """Everything that a checkpoint contains."""

    batches: loaders.Loader[Any]
    model: nn.Module
    optimizer: torch.optim.Optimizer
    scheduler: torch.optim.lr_scheduler.LRScheduler
    device: torch.device
    step: int = 0

    def save(self, path: Path) -> None:
        """Write one file for all ranks; after a crash, the previous file is unchanged."""
        # Each rank's loader has its own state.
        loader_states: list[Any] = [None] * distributed.get_world_size()
        distributed.all_gather_object(loader_states, self.batches.state_dict())
        if distributed.get_rank() == 0:
            parts = {name: getattr(self, name).state_dict() for name in PARTS}
            temporary = path.with_name(path.name + ".new")
            torch.save({"step": self.step, "loaders": loader_states, **parts}, temporary)
            os.replace(temporary, path)

    def resume(self, path: Path) -> None:
        """Load a checkpoint; the next batch is the one that follows the checkpoint."""
        saved = torch.load(path, map_location=self.device)
        if saved["scheduler"]["total_steps"] != self.scheduler.total_steps:  # type: ignore[attr-defined]
            raise SystemExit(
                f"--checkpoint {path} was saved with another --epochs, so its learning rate"
                " schedule differs. Hint: pass the same --epochs."
            )
        for name in PARTS:
            getattr(self, name).load_state_dict(saved[name])
        # On more ranks than before, any rank's state will do.
        states = saved["loaders"]
        self.batches.load_state_dict(states[distributed.get_rank() % len(states)])
        self.step = saved["step"]
        # An epoch that is not evaluated yet is not over.
        epoch = max(0, self.step - 1) // len(self.batches)
        log(f"resumed at step {self.step - epoch * len(self.batches)} of epoch {epoch}")

    def train_epoch(self, ddp_model: nn.Module, args: argparse.Namespace) -> None:
        """Train on the remaining batches of the epoch."""
        start, first_step = time.perf_counter(), self.step
        for images, labels in self.batches:
            loss = self.loss(ddp_model, images.permute(0, 3, 1, 2), labels)
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()
            self.scheduler.step()
            self.step += 1
            if self.step % args.log_every == 0:
                images_seen = (self.step - first_step) * len(labels) * distributed.get_world_size()
                rate = images_seen / (time.perf_counter() - start)
                log(f"step {self.step}: loss {loss.item():.4f}, {rate:,.0f} images/s")
                start, first_step = time.perf_counter(), self.step
            if self.step % args.save_every == 0 or self.step == args.epochs * len(self.batches):
                self.save(args.checkpoint)

    def loss(
        self, ddp_model: nn.Module, images: torch.Tensor, labels: torch.Tensor
    ) -> torch.Tensor:
        """Return the loss of a batch."""
        with autocast(self.device):
            return nn.functional.cross_entropy(ddp_model(images), labels, label_smoothing=0.1)


def autocast(device: torch.device) -> torch.autocast:
    """Return a context that computes in bfloat16 on a GPU."""
    return torch.autocast(device.type, torch.bfloat16, enabled=device.type == "cuda")


@torch.no_grad()
def evaluate(
    model: nn.Module, batches: loaders.Loader[Any], device: torch.device
) -> tuple[int, int]:
    """Return the number of correctly classified samples and the number of all samples, over all ranks."""
    counts = torch.zeros(2, dtype=torch.int64, device=device)
    synchronize_buffers(model)
    model.eval()
    for images, labels in batches:
        if len(labels):  # The last batch may be empty on some ranks.
            with autocast(device):
                correct = model(images.permute(0, 3, 1, 2)).argmax(1) == labels
            counts[0] += correct.sum()
            counts[1] += len(labels)
    model.train()
    distributed.all_reduce(counts)
    correct_count, total = counts.tolist()
    return correct_count, total


def synchronize_buffers(model: nn.Module) -> None:
    """Give every rank the batch norm statistics of rank 0."""
    for buffer in model.buffers():
        distributed.broadcast(buffer, 0)


#: Features of the backbone `tiny`.
TINY_WIDTH = 8 * 4 * 4


def tiny_backbone() -> list[nn.Module]:
    stem = (nn.Conv2d(3, 8, 8, stride=8), nn.BatchNorm2d(8), nn.ReLU())
    return [*stem, nn.AdaptiveAvgPool2d(4), nn.Flatten()]


def make_model(name: str, classes: int) -> nn.Module:
    if name == "tiny":
        return nn.Sequential(*tiny_backbone(), nn.Linear(TINY_WIDTH, classes))
    from torchvision.models import get_model

    net: nn.Module = get_model(name, num_classes=classes)
    return net


def check_machine(args: argparse.Namespace) -> None:
    """End the script with one line, before anything starts, if this machine cannot do what the options ask for."""
    gpus, local_rank = torch.cuda.device_count(), int(os.environ.get("LOCAL_RANK", "0"))
    if args.device == "gpu" and not gpus:
        raise SystemExit("--device gpu, but no GPU is available. Hint: use --device cpu.")
    if args.device == "gpu" and local_rank >= gpus:
        raise SystemExit(
            f"process {local_rank} of this machine has no GPU, because torch sees only {gpus}. "
            "Hint: start one process per GPU with --nproc-per-node."
        )
    if args.model == "tiny":
        return
    try:
        from torchvision.models import list_models
    except ImportError:
        raise SystemExit(
            f"--model {args.model} needs torchvision, which is not installed. "
            "Hint: install torchvision, or use --model tiny."
        ) from None
    if args.model not in list_models():
        raise SystemExit(
            f"torchvision has no model {args.model!r}. Hint: torchvision.models.list_models() lists"
            " all."
        )


def init_distributed(gpu: bool) -> torch.device:
    """Join the processes that torchrun started, or start as a single process; return the device."""
    single: dict[str, Any] = {}
    # Otherwise the kernels that exchange gradients wait for the ones that decode.
    os.environ.setdefault("TORCH_NCCL_HIGH_PRIORITY", "1")
    if "RANK" not in os.environ:
        single = {"store": distributed.HashStore(), "rank": 0, "world_size": 1}  # type: ignore[attr-defined]
    distributed.init_process_group("nccl" if gpu else "gloo", **single)
    if not gpu:
        return torch.device("cpu")
    device = torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0")))
    torch.cuda.set_device(device)
    return device


def log(line: str) -> None:
    if distributed.get_rank() == 0:
        print(line, flush=True)


def positive_int(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"must be at least 1, got {number}")
    return number


def positive_float(text: str) -> float:
    if not 0 < float(text) < float("inf"):
        raise argparse.ArgumentTypeError(f"must be more than 0, got {text}")
    return float(text)


class HelpFormatter(argparse.RawDescriptionHelpFormatter, argparse.ArgumentDefaultsHelpFormatter):
    """Shows the description as it is written, and the default of each option."""


def make_parser(
    description: str | None, models: Sequence[str] | None = None, **defaults: Any
) -> argparse.ArgumentParser:
    """Return a parser with the options that trainings share; `defaults` are the ones that differ."""
    parser = argparse.ArgumentParser(description=description, formatter_class=HelpFormatter)
    add = parser.add_argument
    add("dataset", help="folder of a prepared dataset")
    add("--model", default="resnet50", choices=models, help="a torchvision model, or `tiny`")
    add("--epochs", type=positive_int, help="epochs of the whole training")
    add("--lr", type=positive_float, help="maximum learning rate")
    add("--device", choices=["gpu", "cpu"], help="where to train; a GPU if there is one")
    add("--seed", type=int, default=0, help="seed of the order and the weights")
    add("--checkpoint", type=Path, default=Path("checkpoint.pt"), help="file that the run saves")
    add("--save-every", type=positive_int, default=1000, help="steps between checkpoints")
    add("--log-every", type=positive_int, default=50, help="steps between log lines")
    add("--resume", action="store_true", help="resume from --checkpoint, if it exists")
    device = "gpu" if torch.cuda.is_available() else "cpu"
    parser.set_defaults(device=device, **defaults)
    return parser


def parse_args() -> argparse.Namespace:
    parser = make_parser(__doc__, epochs=90, lr=0.1)
    parser.add_argument("--val-split", default="val", help="split to evaluate after each epoch")
    size = "samples per step of each process; --lr is for 256 per step, and scaled to all of them"
    parser.add_argument("--batch-size", type=positive_int, default=256, help=size)
    return parser.parse_args()


def main() -> None:
    args = parse_args()
    check_machine(args)
    device = init_distributed(args.device == "gpu")
    torch.manual_seed(args.seed)
    shared = {"batch_size": args.batch_size, "device": args.device, "seed": args.seed}
    # Tensor cores are fastest with channels last in memory.
    shared |= {"dtype": "float16" if args.device == "gpu" else "float32", "layout": "NHWC"}
    train_batches = loaders.build(
        args.dataset, split="train", transforms="imagenet-train", **shared
    )
    val_batches = loaders.build(
        args.dataset, split=args.val_split, transforms="imagenet-eval", **shared
    )

    model = make_model(args.model, len(train_batches.classes))
    model = model.to(device, memory_format=torch.channels_last)  # type: ignore[call-overload]
    optimizer = torch.optim.SGD(model.parameters(), momentum=0.9, weight_decay=1e-4, nesterov=True)
    lr = args.lr * args.batch_size * distributed.get_world_size() / 256
    steps = args.epochs * len(train_batches)
    scheduler = torch.optim.lr_scheduler.OneCycleLR(
        optimizer, lr, total_steps=steps, pct_start=max(0.1, 2 / steps)
    )
    training = Training(train_batches, model, optimizer, scheduler, device)
    if args.resume and args.checkpoint.exists():
        training.resume(args.checkpoint)
    ddp_model = nn.parallel.DistributedDataParallel(model)

    # If the run stopped between the last batch of an epoch and its evaluation, evaluate first.
    for epoch in range(max(0, training.step - 1) // len(train_batches), args.epochs):
        if training.step < (epoch + 1) * len(train_batches):
            training.train_epoch(ddp_model, args)
        correct, total = evaluate(model, val_batches, device)
        log(f"epoch {epoch}: {correct} of {total} correct, {correct / total:.2%}")
    distributed.destroy_process_group()


if __name__ == "__main__":
    try:
        main()
    except loaders.DatasetError as error:
        raise SystemExit(str(error)) from None
