"""A small residual network and its training, which accuracy.py repeats with each loader and seed."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import pairwise
from typing import Any

import torch
from torch import nn
from torch.nn import functional

WIDTHS = (32, 64, 128, 256)
LABEL_SMOOTHING, MOMENTUM, WEIGHT_DECAY = 0.1, 0.9, 5e-4

#: Share of the steps before the learning rate is at its maximum.
WARM_UP = 0.2


class Block(nn.Module):
    """A convolution that halves the sides, and a residual one."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.down = nn.Sequential(
            convolution(inputs, outputs), nn.MaxPool2d(2), nn.BatchNorm2d(outputs), nn.ReLU()
        )
        self.residual = nn.Sequential(
            convolution(outputs, outputs), nn.BatchNorm2d(outputs), nn.ReLU()
        )

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """Return [B, outputs, H / 2, W / 2]."""
        smaller: torch.Tensor = self.down(images)
        return smaller + self.residual(smaller)


class Network(nn.Module):
    """A residual network with seven convolutions."""

    def __init__(self, classes: int, size: int) -> None:
        super().__init__()
        stem = convolution(3, WIDTHS[0], stride=2 if size > 48 else 1)
        blocks = [Block(*pair) for pair in pairwise(WIDTHS)]
        self.features = nn.Sequential(stem, nn.BatchNorm2d(WIDTHS[0]), nn.ReLU(), *blocks)
        self.classifier = nn.Linear(WIDTHS[-1], classes, bias=False)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """Return class scores, [B, classes]."""
        scores: torch.Tensor = self.classifier(self.features(images).amax((2, 3)))
        return scores * 0.125


def convolution(inputs: int, outputs: int, stride: int = 1) -> nn.Conv2d:
    return nn.Conv2d(inputs, outputs, 3, stride, padding=1, bias=False)


def make_network(classes: int, size: int, seed: int, device: torch.device) -> nn.Module:
    """Return a network whose initial weights depend only on the seed."""
    torch.manual_seed(seed)
    return Network(classes, size).to(device, memory_format=torch.channels_last)


def autocast(device: torch.device) -> torch.autocast:
    return torch.autocast(device.type, torch.bfloat16, enabled=device.type == "cuda")


def train(
    model: nn.Module, batches: Iterable[Any], steps: int, lr: float, device: torch.device
) -> float:
    """Train on all batches, and return the mean loss of the last tenth of the steps."""
    optimizer = torch.optim.SGD(
        model.parameters(), lr, MOMENTUM, weight_decay=WEIGHT_DECAY, nesterov=True
    )
    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, triangle(steps))
    last: list[torch.Tensor] = []
    done = 0
    for images, labels in batches:
        with autocast(device):
            loss = functional.cross_entropy(model(images.to(memory_format=torch.channels_last)).float(), labels,
                                            label_smoothing=LABEL_SMOOTHING)  # fmt: skip
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        scheduler.step()
        done += 1
        if done > steps * 0.9:
            last.append(loss.detach())
    if done != steps:
        raise SystemExit(f"the loader made {done} batches, but the schedule has {steps} steps")
    return float(torch.stack(last).mean())


def triangle(steps: int) -> Callable[[int], float]:
    """Return the share of the learning rate at each step: up, and down to 0."""
    peak = max(1, steps * WARM_UP)
    return lambda step: (
        (step + 1) / peak if step + 1 < peak else max(0.0, (steps - step) / (steps - peak + 1))
    )


@torch.no_grad()
def evaluate(model: nn.Module, images: torch.Tensor, labels: torch.Tensor) -> float:
    """Return the percentage of correctly classified images.

    The scores are those of an image and its mirror image.
    """
    model.eval()
    correct = 0
    for part, expected in zip(images.split(2048), labels.split(2048), strict=True):
        with autocast(images.device):
            scores = model(part.to(torch.float32)) + model(part.flip(3).to(torch.float32))
        correct += int((scores.argmax(1) == expected).sum())
    return 100 * correct / len(labels)
