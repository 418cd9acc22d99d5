"""Check that a recipe gives the same image for the same bytes, so that a server can run it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from loaders.transforms.argument import ParsedTransforms
from loaders.transforms.base import BatchOperation
from loaders.transforms.parse import Recipe
from manifests.errors import CallError
from manifests.process.text import printable, shown

#: Samplers of PaddleClas configs that read every sample once.
_PLAIN_SAMPLERS = (None, "BatchSampler", "DistributedBatchSampler")


def check_exportable(parsed: ParsedTransforms, sampler: Any) -> None:
    """Check that nothing in the transforms or the sampler keeps a server from giving the images of the loader.

    Args:
        parsed: the transforms.
        sampler: the argument `sampler` of `loaders.build`; `None` if not given.

    Raises:
        CallError: a transform draws random values, mixes images, or is a Python function; there are
            views or a sampler. The message names them all.

    """
    problems = [*_sampler_problems(parsed, sampler), *_recipe_problems(parsed.recipe)]
    if problems:
        raise CallError(
            "these transforms cannot be exported: " + "; ".join(problems),
            hint="use the transforms of the evaluation, for example imagenet-eval",
        )


def _sampler_problems(parsed: ParsedTransforms, sampler: Any) -> Iterator[str]:
    if sampler is not None:
        yield (
            f"the sampler {type(sampler).__name__} chooses samples, but a server gets its images"
            " from requests"
        )
    named = (parsed.sampler or {}).get("name")
    if named not in _PLAIN_SAMPLERS:
        text = printable(named[:100]) if isinstance(named, str) else shown(named)
        yield (
            f"the config's sampler {text} chooses samples, but a server gets its images from"
            " requests"
        )


def _recipe_problems(recipe: Recipe) -> Iterator[str]:
    if recipe.views:
        yield "views make several tensors of an image"
    for item in recipe.all_items:
        if item.function is not None:
            yield (
                f"{item.location}, {item.description}, is a Python function, which a server does"
                " not have"
            )
        elif any(isinstance(each, BatchOperation) for each in item.operations):
            yield f"{item.location}, {item.description}, mixes the images of a batch"
    if not recipe.views:
        from loaders.dali.serving import find_random

        for item in find_random(recipe.items, recipe.operations[0]):  # type: ignore[arg-type]
            yield f"{item.location}, {item.description}, draws random values"
