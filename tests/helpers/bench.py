"""Results of `loaders bench` that nobody has measured."""

from __future__ import annotations

from collections.abc import Sequence

from loaders.bench.measure import Conditions, Machine, Method, Rate
from loaders.bench.results import STAGES, ModelRates, Remedy, Results, Subject


def rate(median: float, spread: float = 0.0) -> Rate:
    """Return a rate of three repeats, from `median` * (1 - `spread`) to `median` * (1 + `spread`)."""
    return Rate((median * (1 - spread), median, median * (1 + spread)))


def make_results(
    stages: Sequence[float],
    remedies: Sequence[Remedy] = (),
    model: ModelRates | None = None,
    *,
    raw: bool = False,
    other_cores: float = 0.0,
    dataset: str = "photos-tfrecord",
) -> Results:
    """Return results with these rates of the stages."""
    return Results(
        Subject(dataset, "train", 1000, "imagenet-train", 256, {"num_threads": 8}, raw),
        Machine("NVIDIA H200", "Xeon", 16),
        Method(),
        Conditions(1.0, 1.0, other_cores, 0.0),
        dict(zip(STAGES, map(rate, stages), strict=True)),
        tuple(remedies),
        model,
    )
