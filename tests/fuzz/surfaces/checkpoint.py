"""States of a loader: what `Loader.load_state_dict` receives."""

from __future__ import annotations

import base64
import json
import tempfile
from contextlib import suppress
from functools import cache
from pathlib import Path
from random import Random
from typing import Any

import loaders
from fuzz import mutate
from fuzz.checks import Case, guarded, require, write_case
from fuzz.seeds import dataset
from loaders import ClassBalancedSampler
from manifests.errors import DatasetError

_TAKEN = 2


def _build(folder: Path, sampler: str) -> Any:
    return loaders.build(
        folder,
        batch_size=2,
        transforms=[{"RandCropImage": {"size": 8}}, "RandFlipImage"],
        sampler=ClassBalancedSampler() if sampler == "balanced" else None,
        device="cpu",
        num_threads=1,
        framework="numpy",
        dtype="uint8",
        fields=("image", "label", "key"),
    )


@cache
def _saved(sampler: str) -> tuple[dict[str, Any], list[Any]]:
    """Return a state after `_TAKEN` batches, and the batches that follow."""

    def run() -> Any:
        with _build(data, sampler) as loader:
            batches = iter(loader)
            for _ in range(_TAKEN):
                next(batches)
            return loader.state_dict(), [_plain(batch) for batch in batches]

    # The state does not depend on where the dataset is.
    with tempfile.TemporaryDirectory() as name:
        data = write_case(dataset("tfrecord"), Path(name, "data"))
        state, rest = guarded(run, writable=[])
    return state, rest


def _plain(batch: Any) -> Any:
    images, labels, keys = batch
    return images.tobytes(), labels.tolist(), list(keys)


def make(rng: Random) -> Case:
    sampler = rng.choice(("none", "balanced"))
    state = dict(_saved(sampler)[0])
    checkpoint = base64.b64decode(state.pop("checkpoint"))
    if rng.random() < 0.6:
        state = mutate.mutate_json(rng, state)
    else:
        checkpoint = mutate.mutate_bytes(rng, checkpoint) if rng.random() < 0.7 else b""
    if isinstance(state, dict) and rng.random() < 0.95:
        state["checkpoint"] = base64.b64encode(checkpoint).decode()
    return {"state.json": mutate.dump_json(state), "sampler": sampler.encode()}


def check(case: Case, folder: Path) -> None:
    sampler, state = case["sampler"].decode(), None
    with suppress(ValueError, RecursionError):  # a number of 5,000 digits, or nested too deep
        state = json.loads(case["state.json"].decode("utf-8", "surrogatepass"))
    data = write_case(dataset("tfrecord"), folder / "data")

    def resume() -> list[Any]:
        with _build(data, sampler) as loader:
            try:
                loader.load_state_dict(state)
            except DatasetError:
                # The loader goes on as before.
                assert len([_plain(batch) for batch in loader]) == len(loader)
                raise
            position = loader.state_dict()["position"]
            return [position, *(_plain(batch) for batch in loader)]

    batches = guarded(resume, writable=[])
    intact, rest = _saved(sampler)
    if isinstance(batches, DatasetError):
        require(repr(state) != repr(intact), f"an intact state is refused: {batches}")
        return
    is_right = batches[0] != intact["position"] or batches[1:] == rest
    require(is_right, "a damaged state is accepted, and other batches follow")
