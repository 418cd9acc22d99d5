"""Changes that could make a loader faster, each as a loader that can be measured."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from loaders.bench.other_images import with_other_images
from loaders.bench.sources import Candidate, close
from loaders.options import BuildRequest
from loaders.resolve import resolve
from loaders.samplers import ShuffledSampler


def find_candidates(request: BuildRequest, stage: str, cached: float | None) -> Iterator[Candidate]:
    """Yield changes that may help if a stage limits the loader, the cheapest first.

    Args:
        request: the loader.
        stage: name of the stage; see `loaders.bench.results.STAGES`.
        cached: share of the shards that was in the page cache before the measurement; `None` if not
            known.

    """
    spec = resolve(request)
    if not spec.order.is_planned:
        # It starts a new pipeline for each epoch. Images in memory have no stored order, so the
        # changes below do not.
        yield Candidate(
            "with sampler=ShuffledSampler()",
            "pass sampler=loaders.ShuffledSampler() to loaders.build",
            lambda: resolve(replace(request, sampler=ShuffledSampler(), shuffle=None)),
        )
    if stage == "delivery":
        prefetch = min(64, 2 * spec.options.prefetch + 1)
        action = f"pass prefetch={prefetch} to loaders.build"
        yield Candidate(
            f"with prefetch={prefetch}",
            action,
            lambda: resolve(replace(request, prefetch=prefetch)),
        )
    else:
        yield from with_other_images(request, spec, stage, cached)
    close(spec)


def disturbance_candidates(request: BuildRequest) -> Iterator[Candidate]:
    """Yield changes that may disturb a model less that runs beside the loader."""
    spec = resolve(request)
    close(spec)
    options = spec.options
    if options.device.is_gpu and spec.recipe.raw_size is None and options.hw_decoder_load < 1:
        yield Candidate(
            "with hw_decoder_load=1.0",
            "pass hw_decoder_load=1.0 to loaders.build",
            lambda: resolve(replace(request, hw_decoder_load=1.0)),
        )
    if options.num_threads > 1:
        threads = options.num_threads // 2
        yield Candidate(
            f"with num_threads={threads}",
            f"pass num_threads={threads} to loaders.build",
            lambda: resolve(replace(request, num_threads=threads)),
        )
