"""What is measured: a loader's pipeline up to each stage, the loader, the model, and the model fed by the loader."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any, get_args

from loaders.bench.model import Model
from loaders.bench.rates import Method, Rate, Source, measure, measure_in_turn
from loaders.dali.pipeline import Stage, release_memory, start_stage, take_batch
from loaders.loader import Loader
from loaders.ranks import imported
from loaders.spec import LoaderSpec

#: Builds the spec of a loader. A loader closes what its spec has opened, so each one needs a new
#: spec.
MakeSpec = Callable[[], LoaderSpec]


@dataclass(frozen=True, slots=True)
class Candidate:
    """A change that may help; see `loaders.bench.results.Remedy`.

    Attributes:
        text: the change in words.
        action: what the user does for it.
        make_spec: builds the spec of a loader with the change.

    """

    text: str
    action: str
    make_spec: MakeSpec


def close(spec: LoaderSpec) -> None:
    """Close what a spec has opened, if no loader is built from it."""
    for records in (spec.records, spec.label_images):
        if records is not None:
            records.close()


def measure_stages(make_spec: MakeSpec, method: Method) -> dict[str, Rate]:
    """Measure a pipeline that ends after each stage, and the loader, in turn.

    See `loaders.bench.results.STAGES`.
    """
    with ExitStack() as stack:
        sources = {
            name: stack.enter_context(_pipeline(make_spec(), name)) for name in get_args(Stage)
        }
        sources["delivery"] = _source_of(stack.enter_context(_loader(make_spec())))
        return measure_in_turn(sources, wait_for_device, method)


def measure_loader(make_spec: MakeSpec, method: Method) -> Rate:
    """Measure a loader: the whole pipeline, and the delivery to the framework."""
    with _loader(make_spec()) as loader:
        return measure(_source_of(loader), wait_for_device, method)


def measure_model(make_spec: MakeSpec, model: Model, method: Method) -> Rate:
    """Measure a model with one batch that is in memory: its limit."""
    with _loader(make_spec()) as loader:
        cached = next(iter(loader))
    return measure(Source(lambda: model(cached), 1), wait_for_device, method)


def measure_training(make_spec: MakeSpec, model: Model, method: Method) -> Rate:
    """Measure a model that a loader feeds."""
    with _loader(make_spec()) as loader:
        batches = _endless(loader)
        return measure(
            Source(lambda: model(next(batches)), loader.options.prefetch), wait_for_device, method
        )


def wait_for_device() -> None:
    """Wait until the GPUs have finished all work, of DALI too."""
    torch = imported("torch")
    if torch is not None and torch.cuda.is_available():
        torch.cuda.synchronize()


@contextmanager
def _pipeline(spec: LoaderSpec, stage: Stage) -> Iterator[Source]:
    pipelines = [start_stage(spec, stage)]

    def batch() -> int:
        take_batch(pipelines[0], spec.split, None)
        return spec.options.batch_size

    try:
        yield Source(batch, spec.options.prefetch)
    finally:
        pipelines.clear()  # `batch` must not keep it
        close(spec)
        release_memory()


@contextmanager
def _loader(spec: LoaderSpec) -> Iterator[Loader[Any]]:
    with Loader[Any](spec) as loader:
        yield loader


def _source_of(loader: Loader[Any]) -> Source:
    batches = _endless(loader)
    return Source(lambda: len(next(batches)[-1]), loader.options.prefetch)


def _endless(loader: Loader[Any]) -> Iterator[Any]:
    return itertools.chain.from_iterable(itertools.repeat(loader))
