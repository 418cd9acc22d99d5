"""A split and what was asked for -> the order in which its samples come. It must never know a graph."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from loaders.dataset.split import OpenSplit
from loaders.dataset.tables import read_columns
from loaders.options import Options
from loaders.samplers import Plan, Sampler
from loaders.samplers.order import PlannedOrder, StoredOrder
from loaders.transforms.base import short_repr
from manifests.errors import CallError

_TRY = "try it with `loaders.samplers.check_sampler`"


def fit_order(
    opened: OpenSplit, split: str, sampler: Sampler | None, options: Options
) -> tuple[Options, StoredOrder | PlannedOrder, Sequence[str]]:
    """Return the options that suit a split, its order, and what is to be said of it at once.

    Raises:
        CallError: the split is too small, or cannot be sampled so; or the sampler is none.

    """
    if sampler is None:
        options = _fitted(options, opened.samples, split)
        return options, _stored(options, opened.samples), ()
    columns = _columns(opened, sampler)
    order = _planned(opened, split, sampler, columns, options)
    notes = (*getattr(order.plan, "notes", ()), *_empty_classes(opened, columns.get("label"), split))
    return replace(options, batch_size=order.batch_size), order, notes


def _fitted(options: Options, samples: int, split: str) -> Options:
    """Return the options for a split of so many samples.

    Raises:
        CallError: there are too few for the ranks, or for a whole batch.

    """
    ranks = options.ranks
    if ranks.world_size > samples:
        raise CallError(
            f"split {split!r} holds {samples} samples, and there are {ranks.world_size} ranks",
            hint="read it on fewer ranks: rank=0, world_size=1 on one of them",
        )
    if _stored(options, samples).batches == 0:
        raise _no_batch(options, f"{samples} samples of split {split!r}")
    if options.last_batch != "partial":
        return options
    # What fills a batch up is decoded too, and a partial one never holds more than a rank's part.
    return replace(options, batch_size=min(options.batch_size, ranks.greatest_share(samples)))


def _no_batch(options: Options, held: str) -> CallError:
    ranks = options.ranks.world_size
    shared = f"each of {ranks} ranks has of" if ranks > 1 else "the"
    return CallError(
        f"batch_size={options.batch_size} is more than {shared} {held}",
        hint='lower batch_size, or say last_batch="partial" or "pad"',
    )


def _stored(options: Options, samples: int) -> StoredOrder:
    return StoredOrder(samples, options.ranks, options.batch_size, options.last_batch, options.shuffle)


def _columns(opened: OpenSplit, sampler: Sampler) -> dict[str, NDArray[Any]]:
    """Read the columns that a sampler needs.

    Raises:
        CallError: it is no sampler, or asks for a column that is not there.

    """
    if isinstance(sampler, type) or not callable(getattr(sampler, "plan", None)):
        raise CallError(
            f"sampler must be one of loaders.samplers or of the same interface, got {sampler!r}",
            hint='write loaders.ClassBalancedSampler(by="label"), say',
        )
    name = type(sampler).__name__
    wanted = getattr(sampler, "columns", None)
    if not isinstance(wanted, (tuple, list)) or not all(isinstance(column, str) for column in wanted):
        raise CallError(f"{name}.columns must be a tuple of names, got {wanted!r}", hint=_TRY)
    return read_columns(opened, wanted, asked_by=name)


def _planned(
    opened: OpenSplit, split: str, sampler: Sampler, columns: Mapping[str, NDArray[Any]], options: Options
) -> PlannedOrder:
    """Fit a sampler to the split.

    Raises:
        CallError: it gives no plan, or one of which an epoch has no batch.

    """
    name = type(sampler).__name__
    ranks, size = options.ranks, options.batch_size

    def fit(size: int) -> Plan:
        return _checked(
            sampler.plan(
                columns, samples=opened.samples, batch_size=size, world_size=ranks.world_size, seed=options.seed
            ),
            name,
        )

    plan = fit(size)
    if options.last_batch == "partial" and plan.samples < size:
        # What fills a batch up is decoded too.
        size = plan.samples
        plan = fit(size)
    # What says nothing of its choices is told by its kind.
    text = f"{name}()" if type(sampler).__repr__ is object.__repr__ else short_repr(sampler)
    spread = getattr(sampler, "spread", False) is True
    planned = PlannedOrder(plan, opened.samples, ranks, size, options.last_batch, text, spread)
    if planned.batches == 0:
        epoch = "" if plan.samples == opened.samples else f"an epoch that {name} makes of "
        raise _no_batch(options, f"{plan.samples} samples of {epoch}split {split!r}")
    return planned


def _checked(plan: Plan, name: str) -> Plan:
    """Return what `Sampler.plan` gave, if it can be a plan."""
    samples, lines = getattr(plan, "samples", None), getattr(plan, "lines", None)
    if not isinstance(samples, int) or samples < 1:
        raise CallError(f"what {name}.plan() gives must have samples, at least 1, got {samples!r}", hint=_TRY)
    if not isinstance(lines, tuple) or not callable(getattr(plan, "batch", None)):
        raise CallError(f"what {name}.plan() gives must have lines, a tuple of texts, and batch()", hint=_TRY)
    return plan


def _empty_classes(opened: OpenSplit, labels: NDArray[Any] | None, split: str) -> list[str]:
    """Say how many of the dataset's classes a sampler that needs the labels can never give."""
    classes = len(opened.manifest.classes)
    found = classes if labels is None else len(np.unique(labels))
    if found >= classes:
        return []
    return [f"{classes - found:,} of {classes:,} classes have no sample in split {split!r}, and none comes of them"]
