"""Train a classifier on a prepared dataset, on one device or several, and go on where a stopped run was.

    python scripts/train.py ILSVRC2012-tfrecord --checkpoint run.pt
    torchrun --nproc-per-node 8 scripts/train.py ILSVRC2012-tfrecord --checkpoint run.pt --resume

With --resume the next batch is the one that would have come, and the weights become those of a run never stopped.
"""

from __future__ import annotations

import argparse
import os
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import distributed, nn

import loaders
from manifests.errors import DatasetError


@dataclass
class Training:
    """All that a checkpoint holds, and what it takes to go on."""

    train: Any  # what loaders.build gave
    model: nn.Module
    optimizer: torch.optim.Optimizer
    scheduler: torch.optim.lr_scheduler.LRScheduler
    device: torch.device
    step: int = 0

    def save(self, path: Path) -> None:
        """Write one file for all ranks, which is there whole or not at all."""
        states: list[Any] = [None] * distributed.get_world_size()
        distributed.all_gather_object(states, self.train.state_dict())  # each rank's loader has its own
        if distributed.get_rank() == 0:
            parts = {name: getattr(self, name).state_dict() for name in ("model", "optimizer", "scheduler")}
            fresh = path.with_name(path.name + ".new")
            torch.save({"step": self.step, "loaders": states, **parts}, fresh)
            os.replace(fresh, path)

    def resume(self, path: Path) -> None:
        """Become what was saved; the loader's next batch is the one that would have come."""
        saved = torch.load(path, map_location=self.device)
        if saved["scheduler"]["total_steps"] != self.scheduler.total_steps:  # type: ignore[attr-defined]
            raise SystemExit(
                f"{path} is of a run with other --epochs: the learning rate's course is planned to its end"
            )
        for name in ("model", "optimizer", "scheduler"):
            getattr(self, name).load_state_dict(saved[name])
        self.train.load_state_dict(saved["loaders"][distributed.get_rank()])
        self.step = saved["step"]

    def learn(self, learner: nn.Module, call: argparse.Namespace) -> None:
        """Learn from what is left of an epoch."""
        criterion = nn.CrossEntropyLoss(label_smoothing=0.1)
        begun, first = time.perf_counter(), self.step
        for images, labels in self.train:
            with torch.autocast(self.device.type, torch.bfloat16, enabled=self.device.type == "cuda"):
                loss = criterion(learner(images.permute(0, 3, 1, 2)), labels)
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()
            self.scheduler.step()
            self.step += 1
            if self.step % call.log_every == 0:
                seen = (self.step - first) * call.batch_size * distributed.get_world_size()
                rate = seen / (time.perf_counter() - begun)
                tell(f"step {self.step}: loss {loss.item():.4f}, {rate:,.0f} img/s")
                begun, first = time.perf_counter(), self.step
            if self.step % call.save_every == 0 or self.step == call.epochs * len(self.train):
                self.save(call.checkpoint)


@torch.no_grad()
def evaluate(model: nn.Module, batches: Any, device: torch.device) -> tuple[int, int]:
    """Return how many samples are classified right and how many there are, over all ranks."""
    counts = torch.zeros(2, dtype=torch.int64, device=device)
    for buffer in model.buffers():
        distributed.broadcast(buffer, 0)  # each rank has had means and variances of its own
    model.eval()
    for images, labels in batches:
        if len(labels):  # the last batch of some ranks may be empty
            with torch.autocast(device.type, torch.bfloat16, enabled=device.type == "cuda"):
                right = model(images.permute(0, 3, 1, 2)).argmax(1) == labels
            counts += torch.stack([right.sum(), right.new_tensor(len(labels), dtype=torch.int64)])
    model.train()
    distributed.all_reduce(counts)
    correct, total = counts.tolist()
    return correct, total


def make_model(name: str, classes: int) -> nn.Module:
    if name == "tiny":
        stem = (nn.Conv2d(3, 8, 8, stride=8), nn.BatchNorm2d(8), nn.ReLU())
        return nn.Sequential(*stem, nn.AdaptiveAvgPool2d(4), nn.Flatten(), nn.Linear(8 * 4 * 4, classes))
    try:
        from torchvision.models import get_model
    except ImportError:
        raise SystemExit(
            f"--model {name} is torchvision's, which is not installed; --model tiny needs it not"
        ) from None
    return get_model(name, num_classes=classes)


def join(gpu: bool) -> torch.device:
    """Join the processes that torchrun started, or be the only one, and return this process' device."""
    alone = {} if "RANK" in os.environ else {"store": distributed.HashStore(), "rank": 0, "world_size": 1}
    distributed.init_process_group("nccl" if gpu else "gloo", **alone)
    if not gpu:
        return torch.device("cpu")
    device = torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0")))
    torch.cuda.set_device(device)
    return device


def tell(line: str) -> None:
    if distributed.get_rank() == 0:
        print(line, flush=True)


def count(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"must be at least 1, got {number}")
    return number


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("dataset", help="folder that dataprep made, with splits train and val")
    parser.add_argument("--model", default="resnet50", help="one of torchvision's, or `tiny`")
    parser.add_argument("--epochs", type=count, default=90)
    parser.add_argument("--batch-size", type=count, default=256, help="of each process")
    parser.add_argument("--lr", type=float, default=0.1, help="highest learning rate, for 256 samples a step")
    parser.add_argument("--device", choices=["gpu", "cpu"], default="gpu" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--checkpoint", type=Path, default=Path("checkpoint.pt"))
    parser.add_argument("--save-every", type=count, default=1000, help="steps")
    parser.add_argument("--log-every", type=count, default=50, help="steps")
    parser.add_argument("--resume", action="store_true", help="go on from --checkpoint, if it is there")
    return parser.parse_args()


def main() -> None:
    call = parse()
    device = join(call.device == "gpu")
    torch.manual_seed(call.seed)
    shared = {"batch_size": call.batch_size, "device": call.device, "seed": call.seed}
    # Channels last in memory, as tensor cores want them.
    shared |= {"dtype": "float16" if call.device == "gpu" else "float32", "layout": "NHWC"}
    train = loaders.build(call.dataset, split="train", transforms="imagenet-train", **shared)
    val = loaders.build(call.dataset, split="val", transforms="imagenet-eval", **shared)

    model = make_model(call.model, len(train.classes))
    model = model.to(device, memory_format=torch.channels_last)
    optimizer = torch.optim.SGD(model.parameters(), momentum=0.9, weight_decay=1e-4, nesterov=True)
    rate = call.lr * call.batch_size * distributed.get_world_size() / 256
    steps = call.epochs * len(train)
    scheduler = torch.optim.lr_scheduler.OneCycleLR(optimizer, rate, total_steps=steps, pct_start=max(0.1, 2 / steps))
    training = Training(train, model, optimizer, scheduler, device)
    if call.resume and call.checkpoint.exists():
        training.resume(call.checkpoint)
    learner = nn.parallel.DistributedDataParallel(model)

    # A run that was stopped between an epoch's last batch and its evaluation evaluates first.
    for number in range(max(0, training.step - 1) // len(train), call.epochs):
        if training.step < (number + 1) * len(train):
            training.learn(learner, call)
        correct, total = evaluate(model, val, device)
        tell(f"epoch {number}: {correct} of {total} right, {correct / total:.2%}")
    distributed.destroy_process_group()


if __name__ == "__main__":
    try:
        main()
    except DatasetError as error:
        raise SystemExit(str(error)) from None
