"""What `loaders bench` has measured. Pure records."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from loaders.bench.conditions import Conditions, Machine
from loaders.bench.rates import Method, Rate

#: Names of the stages in order, each of which contains those before it.
STAGES = ("reading", "decoding", "augmentation", "delivery")


@dataclass(frozen=True, slots=True)
class Subject:
    """What was measured.

    Attributes:
        dataset: the folder, as the user wrote it.
        split: name of the split.
        samples: its number of samples.
        transforms: the transforms, as the user wrote them.
        batch_size: images per batch.
        options: the arguments of `loaders.build` that affect the speed, with their final values.
        raw: whether the dataset stores raw pixels, so that nothing is decoded.

    """

    dataset: str
    split: str
    samples: int
    transforms: str
    batch_size: int
    options: dict[str, Any]
    raw: bool


@dataclass(frozen=True, slots=True)
class Remedy:
    """A change, and how fast it is.

    Attributes:
        text: the change in words that follow a rate: ``with shards at 256 px``.
        action: what the user does for it: ``run `dataprep convert ...```.
        rate: images per second of the loader; in `ModelRates.remedies`, of the training.

    """

    text: str
    action: str
    rate: Rate


@dataclass(frozen=True, slots=True)
class ModelRates:
    """A model beside the loader.

    Attributes:
        name: as the user wrote it.
        alone: with one batch that is in memory.
        fed: with the batches of the loader.
        remedies: changes that disturb the model less, and the training with them.

    """

    name: str
    alone: Rate
    fed: Rate
    remedies: tuple[Remedy, ...] = ()


@dataclass(frozen=True, slots=True)
class Results:
    """Everything that was measured.

    Attributes:
        subject: what was measured.
        machine: on what.
        method: how.
        conditions: what else affected it.
        stages: rate of the pipeline that ends after each of `STAGES`.
        remedies: changes of what limits the loader, the cheapest first.
        model: the model, if one was given.
        torchvision: rate of torchvision's `DataLoader` for the same images, if requested.

    """

    subject: Subject
    machine: Machine
    method: Method
    conditions: Conditions
    stages: dict[str, Rate]
    remedies: tuple[Remedy, ...]
    model: ModelRates | None = None
    torchvision: Rate | None = None
