"""What `scripts/soak` knows of a dataset: the samples that must be in it, how to read them, and how two ranks train on it."""

from __future__ import annotations

import io
import json
import os
import random
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from helpers.photographs import photograph
from PIL import Image

import loaders
from manifests import read_dataset
from manifests.files import SHARD, read_file
from manifests.remote.store import open_store
from manifests.store import read_revision

CLASSES = ("cat", "dog", "emu", "owl", "yak")
KINDS = {"jpg": "JPEG", "png": "PNG", "webp": "WEBP"}
EPOCHS, RANKS, SIDE = 2, 2, 16
#: Side of raw pixels.
RAW = 31


class WrongError(Exception):
    """The product did something else than the oracle says."""


def expect(right: bool, message: object) -> None:
    if not right:
        raise WrongError(str(message))


@dataclass(frozen=True)
class Sample:
    """What must be stored of an image; columns that are null are left out."""

    image: bytes = field(repr=False, compare=False)  # in the source
    data: bytes = field(repr=False)
    split: str
    label: str
    folder: str  # the class in the source
    columns: tuple[tuple[str, Any], ...] = ()

    def picture(self) -> Image.Image:
        """Decode what is stored."""
        if len(self.data) == 3 * RAW * RAW:
            return Image.frombytes("RGB", (RAW, RAW), self.data)
        return Image.open(io.BytesIO(self.data)).convert("RGB")


#: The samples of a revision by the name of the image file, which no other image of a life has.
Contents = dict[str, Sample]


def make_samples(rng: random.Random, first: int, count: int) -> Contents:
    """Cut images out of photographs, and name them by their number."""
    found: Contents = {}
    # The classes of val/ are in train/, too: else it is not clear that the folders are classes.
    certain = rng.sample(CLASSES, 2)
    for number in range(first, first + count):
        picture = photograph(rng.choice(("astronaut", "chelsea", "coffee")))
        width, height = rng.randint(20, 80), rng.randint(20, 80)
        x, y = rng.randrange(picture.shape[1] - width), rng.randrange(picture.shape[0] - height)
        suffix, file = rng.choice(list(KINDS)), io.BytesIO()
        Image.fromarray(picture[y : y + height, x : x + width]).save(file, KINDS[suffix])
        split, label = rng.choice((("train", rng.choice(CLASSES)), ("val", rng.choice(certain))))
        if number - first < len(certain):
            split, label = "train", certain[number - first]
        found[f"{number:05d}.{suffix}"] = Sample(
            file.getvalue(), file.getvalue(), split, label, label
        )
    return found


# --- a dataset in a folder or in a bucket ---------------------------------------------------------


def names_below(place: str) -> set[str]:
    if "://" in place:
        return {info.name for info in open_store(place).list_objects()}
    return {str(path.relative_to(place)) for path in Path(place).rglob("*") if path.is_file()}


def read_bytes(place: str, name: str) -> bytes:
    return bytes(read_file(os.path.join(place, name), SHARD))


def write_bytes(place: str, name: str, data: bytes | None) -> None:
    """Write a file; `None` removes it."""
    if "://" in place and data is not None:
        open_store(place).put(name, data)
    elif "://" in place:
        open_store(place).delete(name)
    elif data is None:
        Path(place, name).unlink()
    else:
        Path(place, name).parent.mkdir(parents=True, exist_ok=True)
        Path(place, name).write_bytes(data)


def read_contents(place: str, revision: int | None = None) -> Contents:
    """Read every record of a dataset with what its sample table says; empty if there is none."""
    found: Contents = {}
    if "manifest.json" not in names_below(place):
        return found
    classes, shards, keys = read_revision(place, revision).classes, dict[str, bytes](), set[str]()
    for batch in read_dataset(place, revision=revision, checksums=True):
        if batch.shard.name not in shards:
            shards[batch.shard.name] = read_bytes(place, batch.shard.name)
        for row in batch.table.to_pylist():
            folder, image = row["source"].split("/")[-2:]
            expect(image not in found and row["key"] not in keys, f"{image} is in {place} twice")
            keys.add(row["key"])
            columns = [(key, row[key]) for key in ("note", "score") if row.get(key) is not None]
            data = shards[batch.shard.name][row["offset"] : row["offset"] + row["size"]]
            label = classes[row["label"]]
            found[image] = Sample(data, data, batch.split, label, folder, tuple(columns))
    return found


def differences(found: Contents, expected: Contents) -> str:
    lines = []
    for name in sorted(found.keys() | expected.keys()):
        if found.get(name) != expected.get(name):
            lines.append(f"{name}: {found.get(name)}, not {expected.get(name)}")
    return f"{len(lines)} samples differ: " + "; ".join(lines[:3])


# --- training -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Training:
    """A training of two ranks that may wait for a later step to resume it."""

    folder: str
    place: str
    options: dict[str, Any]
    contents: Contents = field(repr=False)

    def run_rank(self, rank: int, first: int) -> None:
        """Write a line for each batch, with the state after it; begin after the first batches."""
        lines, step = self.read_batches(rank), first
        loader = loaders.build(
            self.place, rank=rank, world_size=RANKS, batch_size=3, device="cpu", num_threads=1,
            transforms=[{"Resize": {"size": [SIDE, SIDE]}}], last_batch="pad", dtype="float32",
            fields=("image", "label", "source", "valid"), **self.options,
        )  # fmt: skip
        with loader, open(Path(self.folder, f"{rank}.jsonl"), "a") as file:
            if first:
                try:
                    loader.load_state_dict(lines[first - 1]["state"])
                except loaders.CallError as error:
                    Path(self.folder, f"{rank}.refused").write_text(str(error))
                    return
            while step < EPOCHS * len(loader):
                for images, labels, sources, valid in loader:
                    means = images.mean(dim=(2, 3)).tolist()
                    rows = [*zip(sources, labels.tolist(), valid.tolist(), means, strict=True)]
                    line = {"step": step, "epoch": step // len(loader), "rows": rows}
                    step += 1
                    print(json.dumps({**line, "state": loader.state_dict()}), file=file, flush=True)
                    time.sleep(0.01)  # a model takes time, too

    def read_batches(self, rank: int) -> dict[int, dict[str, Any]]:
        """Read the batches of a rank by their step; one that comes twice must be the same."""
        found: dict[int, dict[str, Any]] = {}
        path = Path(self.folder, f"{rank}.jsonl")
        path.touch()
        lines = path.read_text().splitlines(keepends=True)
        if lines and not lines[-1].endswith("\n"):
            lines.pop()  # the rank was killed
        path.write_text("".join(lines))
        for batch in map(json.loads, lines):
            before = found.setdefault(batch["step"], batch)
            expect(before["rows"] == batch["rows"], f"rank {rank}: another batch {batch['step']}")
        return found

    def check(self) -> None:
        """Compare the epochs of both ranks with the revision that they began with."""
        classes = read_revision(self.place, self.options["revision"]).classes
        samples = {
            name: sample
            for name, sample in self.contents.items()
            if sample.split == self.options["split"]
        }
        taken: dict[int, Counter[str]] = {epoch: Counter() for epoch in range(EPOCHS)}
        for rank in range(RANKS):
            for batch in self.read_batches(rank).values():
                for source, label, valid, means in batch["rows"]:
                    name = os.path.basename(source)
                    taken[batch["epoch"]][name] += valid
                    expect(classes[label] == samples[name].label, f"{name} has the label {label}")
                    pixels = np.asarray(samples[name].picture().resize((SIDE, SIDE)))
                    wrong = np.abs(pixels.mean((0, 1)) - means).max()
                    expect(wrong < 8, f"{name} has other pixels: {means}")
        for epoch, counts in taken.items():
            expect(counts == Counter(samples.keys()), f"epoch {epoch} has {counts}: {self}")
