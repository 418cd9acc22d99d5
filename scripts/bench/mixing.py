"""How well `ShuffledSampler(window=)` mixes: many shards in a batch, and stored neighbors far apart.

python scripts/bench/mixing.py --shards 1000 --samples 1280
"""

from __future__ import annotations

import numpy as np
from report import Report, make_parser

import loaders
from loaders.samplers.base import SHARD

BATCH = 256
WINDOWS = (1, 4, 16, 64, 256, None)


def measure(window: int | None, shards: int, samples: int) -> dict[str, object]:
    """Measure the first epoch of a split of `shards` shards of `samples` samples each."""
    columns = {SHARD: np.repeat(np.arange(shards, dtype=np.int32), samples)}
    plan = loaders.ShuffledSampler(window=window).plan(
        columns, samples=shards * samples, batch_size=BATCH, world_size=1, seed=0
    )
    batches = [plan.batch(0, number) for number in range(shards * samples // BATCH)]
    places = np.argsort(
        np.concatenate(
            [*batches, np.setdiff1d(np.arange(shards * samples), np.concatenate(batches))]
        )
    )
    distance = np.abs(np.diff(places.reshape(shards, samples), axis=1)).mean()
    return {
        "window": "whole split" if window is None else str(window),
        "shards in a batch": float(np.mean([len(np.unique(rows // samples)) for rows in batches])),
        "distance of neighbors / epoch / 3": float(distance / (shards * samples / 3)),
    }


def main() -> None:
    parser = make_parser(__doc__)
    parser.add_argument("--shards", type=int, default=1000)
    parser.add_argument("--samples", type=int, default=1280, help="samples in a shard")
    arguments = parser.parse_args()
    with Report("mixing", arguments.json) as report:
        rows = [measure(window, arguments.shards, arguments.samples) for window in WINDOWS]
        report.table(
            f"{arguments.shards:,} shards of {arguments.samples:,} samples, batches of {BATCH}",
            rows,
        )


if __name__ == "__main__":
    main()
