"""Changes that could make a loader faster, each as a loader that can be measured."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from loaders.bench.other_images import with_other_images
from loaders.bench.sources import Candidate, MakeSpec, close
from loaders.options import BuildRequest
from loaders.resolve import resolve
from loaders.samplers import ShuffledSampler
from loaders.samplers.order import StoredOrder
from loaders.spec import LoaderSpec
from loaders.transforms.base import BatchOperation, ImageSpec
from loaders.transforms.decode_normalize import Decode
from loaders.transforms.fuse import fuse_recipe
from loaders.transforms.parse import Recipe
from manifests.process.text import cut_middle, printable

#: Maximum number of transforms to leave out one by one.
_MAX_LEFT_OUT = 6
#: A size that shows whether a transform changes the size of images; any one that no transform
#: returns.
_PROBE = (1009, 1009)


def find_candidates(request: BuildRequest, stage: str, cached: float | None) -> Iterator[Candidate]:
    """Yield changes that may help if a stage limits the loader, the cheapest first.

    Args:
        request: the loader.
        stage: name of the stage; see `loaders.bench.results.STAGES`.
        cached: share of the shards that was in the page cache before the measurement; `None` if not
            known.

    """
    spec = resolve(request)
    if isinstance(spec.order, StoredOrder):
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
    if stage == "augmentation":
        yield from _without_transforms(request, spec)
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


def _without_transforms(request: BuildRequest, spec: LoaderSpec) -> Iterator[Candidate]:
    """Yield the loader without each of its transforms that change neither the size nor the type of the images."""
    for number in _removable(spec.recipe)[:_MAX_LEFT_OUT]:
        name = cut_middle(printable(spec.recipe.items[number].description), 80)
        yield Candidate(
            f"without {name}", "leave it out, or choose a cheaper one", _left_out(request, number)
        )


def _removable(recipe: Recipe) -> list[int]:
    found, spec = [], ImageSpec()
    for number, item in enumerate(recipe.items):
        before = after = spec.with_size(_PROBE)
        for operation in item.operations:
            if not isinstance(operation, BatchOperation):
                spec, after = operation.output(spec), operation.output(after)
        own = [each for each in item.operations if not isinstance(each, (BatchOperation, Decode))]
        if own and after == before and len(own) == len(item.operations):
            found.append(number)
    return found


def _left_out(request: BuildRequest, number: int) -> MakeSpec:
    def make_spec() -> LoaderSpec:
        spec = resolve(request)
        items = spec.recipe.items
        recipe = replace(spec.recipe, items=(*items[:number], *items[number + 1 :]))
        fusion, *views = fuse_recipe(recipe)
        return replace(spec, recipe=recipe, fusion=fusion, view_fusions=tuple(views))

    return make_spec
