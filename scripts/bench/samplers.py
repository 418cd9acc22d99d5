"""How well a window of shards mixes: the shards in a batch, and the distance of stored neighbors.

The first epoch of ``ShuffledSampler(window=)`` is planned for each window. The distance of two
samples that are stored next to each other is 1 in a shuffle of the whole split. What planning costs
is a step of `plan_scale`.
"""

from argparse import Namespace

import numpy as np
from harness import Report, Row, option

from loaders.samplers import ShuffledSampler
from loaders.samplers.base import SHARD

TAKES = "1 minute; needs 1 GB of memory"
OPTIONS = [option("--shards", 1000, "shards of 1,280 samples")]
BATCH = 256
SHARD_SAMPLES = 1280


def mixing(window: int | None, shards: int) -> Row:
    samples = shards * SHARD_SAMPLES
    columns = {SHARD: np.repeat(np.arange(shards, dtype=np.int32), SHARD_SAMPLES)}
    sampler = ShuffledSampler(window=window)
    plan = sampler.plan(columns, samples=samples, batch_size=BATCH, world_size=1, seed=0)
    batches = [plan.batch(0, number) for number in range(samples // BATCH)]
    counts = [len(np.unique(rows // SHARD_SAMPLES)) for rows in batches]
    order = np.concatenate(batches)
    # The rows of the last batch, if it is not full, come at the end.
    places = np.argsort(np.concatenate([order, np.setdiff1d(np.arange(samples), order)]))
    distance = np.abs(np.diff(places.reshape(shards, SHARD_SAMPLES), axis=1)).mean()
    row: Row = {"window": "whole split" if window is None else str(window)}
    row["shards in a batch"] = float(np.mean(counts))
    return row | {"distance of neighbors": float(distance / (samples / 3))}


def run(report: Report, args: Namespace) -> None:
    windows = (1, 4, 16, 64, 256, None)
    mixed = [mixing(window, args.shards) for window in windows]
    report.table(f"{args.shards:,} shards of {SHARD_SAMPLES:,}, batches of {BATCH}", mixed)
