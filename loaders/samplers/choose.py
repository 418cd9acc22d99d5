"""Choose which samples a batch contains: DALI's stored order, or that of a sampler, fitted to the split.

Never imports DALI.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, replace

import numpy as np

from loaders.dataset.filesystem import network_filesystem
from loaders.dataset.index_check import check_indexes
from loaders.dataset.joined import JoinedSplit, mix_weights
from loaders.dataset.split import OpenSplit
from loaders.dataset.tables import SampleTables
from loaders.integers import require_int
from loaders.options import BuildRequest, LastBatch, Shuffle, first_given
from loaders.ranks import Ranks, find_ranks
from loaders.samplers.base import Plan, Sampler, on_one_rank, sampler_text
from loaders.samplers.fit import fit_sampler, grouping_column, sampler_columns
from loaders.samplers.from_config import configured_sampler
from loaders.samplers.order import PlannedOrder, StoredOrder
from loaders.samplers.sequential import SequentialSampler
from loaders.samplers.shuffled import ShuffledSampler
from loaders.samplers.subset import SubsetSampler
from loaders.samplers.tolerant import tolerant_order
from loaders.samplers.weighted import WeightedSampler
from loaders.transforms.argument import ParsedTransforms
from loaders.transforms.base import short_repr
from manifests.errors import CallError
from manifests.process.text import agree, plural


@dataclass(frozen=True, slots=True)
class Batching:
    """How an epoch is divided into batches.

    Attributes:
        batch_size: samples per batch of one rank, as requested.
        last_batch: treatment of the samples that do not fill the last batch.
        ranks: rank and world size.
        seed: seed of the order.
        training: whether the batches are for training.
        filled: whether a batch can have samples that are not valid, because a field says which.

    """

    batch_size: int
    last_batch: LastBatch
    ranks: Ranks
    seed: int
    training: bool = False
    filled: bool = False


@dataclass(frozen=True, slots=True)
class ChosenOrder:
    """The order of a loader.

    Attributes:
        order: which samples a batch contains.
        batching: how an epoch is divided into batches.
        shuffle: the final value of the argument `shuffle`.
        warnings: the warnings of the sampler.
        notes: how the sampler differs from that of a PaddleClas config.

    """

    order: StoredOrder | PlannedOrder
    batching: Batching
    shuffle: Shuffle
    warnings: tuple[str, ...]
    notes: tuple[str, ...]


def choose_order(
    request: BuildRequest, parsed: ParsedTransforms, split: OpenSplit, tables: SampleTables
) -> ChosenOrder:
    """Choose the order, from the arguments of the call, the config, and where the dataset is.

    Raises:
        CallError: arguments contradict each other or the dataset.
        DamagedError: a sample table or an index is missing or damaged.

    """
    batching = _batching(request, parsed)
    given, notes = _given_sampler(request, parsed, batching.batch_size)
    shuffle = _shuffle(request, parsed, split)
    sampler = _chosen_sampler(split, request, given, shuffle)
    if shuffle or (sampler is not None and _draws(sampler)):
        batching = replace(batching, training=True)
    if sampler is None:
        check_indexes(split)  # only DALI's readers, which read the stored order, use them
        stored = stored_order(split, batching, shuffle=bool(shuffle))
        warnings = empty_batch_warnings(stored, split.name)
        return ChosenOrder(stored, batching, shuffle, warnings, notes)
    order = planned_order(split, tables, batching, sampler)
    warnings = (
        *sampler_warnings(split, tables, sampler, order),
        *empty_batch_warnings(order, split.name),
    )
    if request.on_error != "raise":
        order = tolerant_order(order, tables, sampler, mode=request.on_error, seed=request.seed)
    return ChosenOrder(order, batching, shuffle, warnings, notes)


def on_network(split: OpenSplit) -> bool:
    """Return whether a dataset is on a network file system."""
    parts = split.parts if isinstance(split, JoinedSplit) else (split,)
    return any(network_filesystem(part.root) for part in parts)


def _given_sampler(
    request: BuildRequest, parsed: ParsedTransforms, batch_size: int
) -> tuple[Sampler | None, tuple[str, ...]]:
    """Return the sampler that was given or that the config names, and how it differs from that of the config."""
    sampler = request.sampler
    notes: tuple[str, ...] = ()
    if sampler is None and parsed.sampler is not None:
        sampler, notes = configured_sampler(parsed.sampler, batch_size)
    if sampler is not None and request.shuffle is not None:
        raise CallError(
            f"shuffle={request.shuffle} cannot be combined with a sampler, which decides the order",
            hint=(
                "remove shuffle, or pass sampler=loaders.ShuffledSampler() to read every sample"
                " once per epoch"
            ),
        )
    return sampler, notes


def _chosen_sampler(
    split: OpenSplit, request: BuildRequest, sampler: Sampler | None, shuffle: Shuffle
) -> Sampler | None:
    """Return the sampler that reads the split; `None` for DALI's own readers."""
    if sampler is not None:
        return sampler
    if isinstance(split, JoinedSplit) and request.mix is not None:
        return WeightedSampler(mix_weights(split.parts, request.mix), replacement=False)
    if shuffle is True:
        return ShuffledSampler()
    if not _needs_sampler(request, split):
        return None
    if shuffle == "buffer":
        raise CallError(
            'shuffle="buffer" reads with DALI\'s own reader, which reads one local dataset and'
            " cannot leave out an image",
            hint="set shuffle=True",
        )
    return SequentialSampler()


def _needs_sampler(request: BuildRequest, split: OpenSplit) -> bool:
    # DALI's own readers would read parts of a shard that are not there yet.
    return (
        split.cached is not None
        or request.on_error != "raise"
        or not isinstance(request.dataset, (str, os.PathLike))
    )


def _is_training(request: BuildRequest) -> bool:
    return request.split == "train"


def _shuffle(request: BuildRequest, parsed: ParsedTransforms, split: OpenSplit) -> Shuffle:
    shuffle: Shuffle = first_given(request.shuffle, parsed.shuffle, _is_training(request))
    native = request.shuffle is None and not _needs_sampler(request, split)
    if shuffle is True and native and on_network(split):
        # Each image would be a request of its own.
        return "buffer"
    return shuffle


def _batching(request: BuildRequest, parsed: ParsedTransforms) -> Batching:
    batch_size = parsed.batch_size if request.batch_size is None else request.batch_size
    if batch_size is None:
        raise CallError("batch_size is missing", hint="pass the number of samples per batch")
    drop_last = first_given(parsed.drop_last, _is_training(request))
    default: LastBatch = "drop" if drop_last else "partial"
    return Batching(
        batch_size=require_int("batch_size", batch_size, 1),
        last_batch=first_given(request.last_batch, default),
        ranks=find_ranks(request.rank, request.world_size),
        seed=request.seed,
        training=_is_training(request),
        filled="valid" in (request.fields or ()),
    )


# --- the order ------------------------------------------------------------------------------------


def stored_order(split: OpenSplit, batching: Batching, *, shuffle: bool) -> StoredOrder:
    """Return the order of DALI's readers.

    Raises:
        CallError: the split has fewer samples than ranks, or than a full batch needs.

    """
    ranks, samples = batching.ranks, split.samples
    if ranks.world_size > samples:
        raise CallError(
            f"split {split.name!r} has {samples} samples, but there are {ranks.world_size} ranks",
            hint="use fewer ranks, for example a single one with rank=0, world_size=1",
        )
    size = batching.batch_size
    if batching.last_batch == "partial":
        # DALI decodes full batches, and a batch never contains more than a rank's part of the
        # split.
        size = min(size, ranks.largest_share(samples))
    order = StoredOrder(
        samples=samples,
        ranks=ranks,
        batch_size=size,
        last_batch=batching.last_batch,
        shuffle=shuffle,
        training=batching.training,
        filled=batching.filled,
    )
    if order.batches == 0:
        raise _no_full_batch(batching, samples, f"of split {split.name!r}")
    return order


def planned_order(
    split: OpenSplit, tables: SampleTables, batching: Batching, sampler: Sampler
) -> PlannedOrder:
    """Fit a sampler to a split.

    Raises:
        CallError: the object is not a sampler, cannot sample this split, or plans less than one
            full batch.

    """
    name = type(sampler).__name__
    columns = sampler_columns(split, tables, sampler)
    ranks, size = batching.ranks, batching.batch_size

    def fit(batch_size: int) -> Plan:
        return fit_sampler(
            sampler,
            columns,
            samples=split.samples,
            batch_size=batch_size,
            world_size=ranks.world_size,
            seed=batching.seed,
        )

    plan = fit(size)
    if batching.last_batch == "partial" and plan.samples < size:
        # DALI decodes full batches.
        size = plan.samples
        plan = fit(size)
    texts = [
        getattr(each, "text", None) or sampler_text(each, short_repr)
        for each in (sampler, on_one_rank(sampler, ranks.world_size))
    ]
    spread = getattr(sampler, "spread", False) is True
    order = PlannedOrder(
        plan=plan,
        rows=split.samples,
        ranks=ranks,
        batch_size=size,
        last_batch=batching.last_batch,
        text=texts[0],
        global_text=texts[1],
        training=batching.training,
        filled=batching.filled,
        spread=spread,
        by=grouping_column(sampler),
    )
    if order.batches == 0:
        whole_split = plan.samples == split.samples
        raise _no_full_batch(
            batching,
            plan.samples,
            f"of split {split.name!r}" if whole_split else f"in an epoch of {name}",
        )
    return order


def sampler_warnings(
    split: OpenSplit, tables: SampleTables, sampler: Sampler, order: PlannedOrder
) -> tuple[str, ...]:
    """Return the warnings of a fitted sampler, and one if some classes have no sample."""
    notes: tuple[str, ...] = tuple(getattr(order.plan, "notes", ()))
    if "label" not in sampler.columns or not split.manifest.labels.is_class:
        return notes
    classes = len(split.manifest.classes)
    present = int(
        np.count_nonzero(np.bincount(tables.columns(["label"], requested_by="a sampler")["label"]))
    )
    if present >= classes:
        return notes
    absent = classes - present
    have, them = agree(absent, "has", "have"), agree(absent, "it", "them")
    of = f"{absent:,} of {plural(classes, 'class')}"
    return (*notes, f"{of} {have} no sample in split {split.name!r}, so no batch contains {them}")


def empty_batch_warnings(order: StoredOrder | PlannedOrder, split: str) -> tuple[str, ...]:
    """Return a warning if the last batch of a split has fewer samples than ranks."""
    left = order.too_few
    # A batch that is filled tells which samples are valid.
    if order.last_batch != "partial" or not left or order.filled:
        return ()
    ranks = f"there are {order.ranks.world_size} ranks"
    if not order.training:
        return (
            f"{ranks}, but the last batch has {plural(left, 'sample')}, so some ranks get an empty"
            ' batch. Hint: with fields=("image", "label", "valid"), they get a sample that is not'
            " valid",
        )
    # Training on the split "train" is free to leave samples out; other epochs are often counted.
    if split == "train":
        return ()
    return (
        f"{ranks}, so {plural(left, 'sample')} at the end of each epoch of split {split!r}"
        f" {agree(left, 'is', 'are')} left out. Hint: to read all, set shuffle=False",
    )


def _draws(sampler: Sampler) -> bool:
    """Return whether a sampler draws an order of its own, as for training."""
    while isinstance(sampler, SubsetSampler):
        sampler = sampler.sampler
    return not isinstance(sampler, SequentialSampler)


def _no_full_batch(batching: Batching, samples: int, where: str) -> CallError:
    size, world = batching.batch_size, batching.ranks.world_size
    if world == 1:
        message = f"batch_size={size} is more than the {samples} samples {where}"
    else:
        share = batching.ranks.smallest_share(samples)
        message = (
            f"batch_size={size}, but a rank reads only {share} of the {samples} samples {where}"
        )
    return CallError(
        message, hint='lower batch_size, or set last_batch="partial" or last_batch="pad"'
    )
