"""Choose which samples a batch contains: DALI's stored order, or the order of a sampler. Never imports DALI."""

from __future__ import annotations

import os
from dataclasses import dataclass

from loaders.dataset.filesystem import network_filesystem
from loaders.dataset.index_check import check_indexes
from loaders.dataset.joined import JoinedSplit, mix_weights
from loaders.dataset.split import OpenSplit
from loaders.dataset.tables import SampleTables
from loaders.integers import require_int
from loaders.options import BuildRequest, LastBatch, Shuffle, first_given
from loaders.ranks import find_ranks
from loaders.samplers.base import Sampler
from loaders.samplers.fit import Batching, planned_order, sampler_warnings, stored_order
from loaders.samplers.from_config import configured_sampler
from loaders.samplers.order import PlannedOrder, StoredOrder
from loaders.samplers.sequential import SequentialSampler
from loaders.samplers.shuffled import ShuffledSampler
from loaders.samplers.tolerant import tolerant_order
from loaders.samplers.weighted import WeightedSampler
from loaders.transforms.argument import ParsedTransforms
from manifests.errors import CallError


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
    if sampler is None:
        check_indexes(split)  # only DALI's readers, which read the stored order, use them
        return ChosenOrder(stored_order(split, batching, shuffle=bool(shuffle)), batching, shuffle, (), notes)
    order = planned_order(split, tables, batching, sampler)
    warnings = sampler_warnings(split, tables, sampler, order)
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
            hint="remove shuffle, or pass sampler=loaders.ShuffledSampler() to read every sample once per epoch",
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
            'shuffle="buffer" reads with DALI\'s own reader, which reads one local dataset and cannot leave out an '
            "image",
            hint="set shuffle=True",
        )
    return SequentialSampler()


def _needs_sampler(request: BuildRequest, split: OpenSplit) -> bool:
    # DALI's own readers would read parts of a shard that are not there yet.
    return (
        split.cached is not None or request.on_error != "raise" or not isinstance(request.dataset, (str, os.PathLike))
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
    )
