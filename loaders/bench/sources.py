"""What is measured: a loader's pipeline up to each stage, the loader, the model, and the model fed by the loader."""

from __future__ import annotations

import itertools
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from loaders.bench.model import Model
from loaders.bench.rates import Method, Rate, measure
from loaders.dali.pipeline import release_memory
from loaders.dali.run import take_batch
from loaders.dali.stages import Stage, start_stage
from loaders.loader import Loader
from loaders.spec import LoaderSpec

#: Builds the spec of a loader. A loader closes what its spec has opened, so each one needs a new spec.
MakeSpec = Callable[[], LoaderSpec]


def measure_stage(make_spec: MakeSpec, stage: Stage, method: Method) -> Rate:
    """Measure a pipeline that ends after a stage."""
    spec = make_spec()
    try:
        return _measure_pipeline(spec, stage, method)
    finally:
        if spec.records is not None:
            spec.records.close()
        release_memory()


def _measure_pipeline(spec: LoaderSpec, stage: Stage, method: Method) -> Rate:
    pipeline = start_stage(spec, stage)

    def batch() -> int:
        take_batch(pipeline, spec.split, None)
        return spec.options.batch_size

    return measure(batch, wait_for_device, method, prefetched=spec.options.prefetch)


def measure_loader(make_spec: MakeSpec, method: Method) -> Rate:
    """Measure a loader: the whole pipeline, and the delivery to the framework."""
    with _endless(make_spec()) as (batches, loader):
        return measure(
            lambda: len(next(batches)[-1]), wait_for_device, method, prefetched=loader.options.prefetch
        )


def measure_model(make_spec: MakeSpec, model: Model, method: Method) -> Rate:
    """Measure a model with one batch that is in memory: its limit."""
    with _endless(make_spec()) as (batches, _):
        cached = next(batches)
    return measure(lambda: model(cached), wait_for_device, method, prefetched=1)


def measure_training(make_spec: MakeSpec, model: Model, method: Method) -> Rate:
    """Measure a model that a loader feeds."""
    with _endless(make_spec()) as (batches, loader):
        return measure(lambda: model(next(batches)), wait_for_device, method, prefetched=loader.options.prefetch)


def wait_for_device() -> None:
    """Wait until the GPUs have finished all work, of DALI too."""
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_available():
        torch.cuda.synchronize()


@contextmanager
def _endless(spec: LoaderSpec) -> Iterator[tuple[Iterator[Any], Loader[Any]]]:
    with Loader[Any](spec) as loader:
        yield itertools.chain.from_iterable(itertools.repeat(loader)), loader
