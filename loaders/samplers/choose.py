"""From the arguments of `loaders.build` to an order: choose the sampler, call it, check the plan.

Never imports DALI.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np

from loaders.arrays import Array, Columns
from loaders.dataset.damage import check_indexes
from loaders.dataset.fields import image_fields, sizes_of
from loaders.dataset.files import network_filesystem
from loaders.dataset.orientation import upright_sizes
from loaders.dataset.split import OpenSplit, mix_weights
from loaders.dataset.tables import TABLE_DTYPES, SampleTables
from loaders.options import BuildRequest, LastBatch, Shuffle, first_given, require_int
from loaders.ranks import find_ranks
from loaders.samplers.balanced import has_lists
from loaders.samplers.base import (
    CHECK_SAMPLER,
    SHARD,
    UPRIGHT,
    Fit,
    Plan,
    Sampler,
    check_is_sampler,
    is_own,
    on_one_rank,
    sampler_text,
    shaped,
    traits_of,
    with_last_batch,
)
from loaders.samplers.bucket import BucketSampler
from loaders.samplers.clips import ClipError
from loaders.samplers.order import Batching, Order, Peers, PlannedOrder, StoredOrder
from loaders.samplers.pk import PKSampler
from loaders.samplers.shuffled import SequentialSampler, ShuffledSampler
from loaders.samplers.weighted import WeightedSampler
from loaders.transforms.argument import ParsedTransforms
from loaders.transforms.base import MAX_BATCH_SIZE, MAX_EPOCH_SAMPLES, short_repr
from manifests.errors import CallError
from manifests.labels import LABELS
from manifests.process.text import agree, plural, printable, shown


@dataclass(frozen=True, slots=True)
class ChosenOrder:
    """The order of a loader.

    Attributes:
        order: which samples a batch contains.
        batching: how an epoch is divided into batches, as requested.
        shuffle: the final value of the argument `shuffle`.
        warnings: the warnings of the sampler.
        notes: how the sampler differs from the one of a PaddleClas config.

    """

    order: Order
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
    shuffle = _shuffle(request, parsed, split, tables)
    sampler = _chosen_sampler(split, tables, request, given, shuffle)
    if shuffle or (sampler is not None and traits_of(sampler).draws):
        batching = replace(batching, training=True)
    if sampler is None:
        check_indexes(split)  # only DALI's readers, which read the stored order, use them
        stored = stored_order(split, batching, shuffle=bool(shuffle))
        warnings = empty_batch_warnings(stored, split.name)
        return ChosenOrder(stored, batching, shuffle, warnings, notes)
    columns = sampler_columns(split, tables, sampler)
    try:
        order = planned_order(split, columns, batching, sampler)
    except ClipError as error:
        names = tables.columns(["source"], requested_by="ClipSampler")["source"]
        files = " and ".join(f"{names[row]!r} (row {row})" for row in error.rows)
        raise CallError(f"{error.message}: {files}", hint=error.hint) from None
    warnings = sampler_warnings(split, tables, sampler, order)
    warnings += empty_batch_warnings(order, split.name)
    if request.on_error != "raise":
        order = tolerant_order(order, tables, sampler, mode=request.on_error)
    return ChosenOrder(order, batching, shuffle, warnings, notes)


def on_network(split: OpenSplit) -> bool:
    """Return whether a dataset is on a network file system."""
    return any(network_filesystem(part.root) for part in split.parts)


def _given_sampler(
    request: BuildRequest, parsed: ParsedTransforms, batch_size: int
) -> tuple[Sampler | None, tuple[str, ...]]:
    """Return the sampler that was given or that the config names, and how they differ."""
    sampler = request.sampler
    notes: tuple[str, ...] = ()
    if sampler is None and parsed.sampler is not None:
        sampler, notes = configured_sampler(parsed.sampler, batch_size)
    # Also shuffle=True: a sampler may draw, and may not.
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
    split: OpenSplit,
    tables: SampleTables,
    request: BuildRequest,
    sampler: Sampler | None,
    shuffle: Shuffle,
) -> Sampler | None:
    """Return the sampler that reads the split; `None` for DALI's own readers."""
    if request.mix is not None and isinstance(sampler, BucketSampler):
        return sampler.mixed(mix_weights(split.parts, request.mix))
    if sampler is not None:
        return sampler
    if request.mix is not None:
        # The share of a dataset is divided evenly among its samples.
        return WeightedSampler(mix_weights(split.parts, request.mix), replacement=False)
    if shuffle is True:
        return ShuffledSampler()
    if not _needs_sampler(request, split, tables):
        return None
    if shuffle == "buffer":
        raise CallError(
            'shuffle="buffer" reads with DALI\'s own reader, which reads one local dataset and'
            " cannot leave out an image",
            hint="set shuffle=True",
        )
    return SequentialSampler()


def _needs_sampler(request: BuildRequest, split: OpenSplit, tables: SampleTables) -> bool:
    # DALI's own readers would read parts of a shard that are not there yet.
    if split.is_remote or request.on_error != "raise" or request.joins:
        return True
    # They return no bytes for an image that a sample does not have.
    for name in filter(None, image_fields(split, request.fields).values()):
        if not sizes_of(tables, name).all():
            return True
    return False


def _is_training(request: BuildRequest) -> bool:
    return request.split == "train"


def _shuffle(
    request: BuildRequest, parsed: ParsedTransforms, split: OpenSplit, tables: SampleTables
) -> Shuffle:
    shuffle: Shuffle = first_given(request.shuffle, parsed.shuffle, _is_training(request))
    native = request.shuffle is None and not _needs_sampler(request, split, tables)
    if shuffle is True and native and on_network(split):
        # Each image would be a request of its own.
        return "buffer"
    return shuffle


def _batching(request: BuildRequest, parsed: ParsedTransforms) -> Batching:
    batch_size = request.batch_size
    if batch_size is None:
        batch_size = parsed.batch_size
    if batch_size is None:
        raise CallError("batch_size is missing", hint="pass the number of samples per batch")
    # A config can say what the call does not.
    drop_last = first_given(parsed.drop_last, _is_training(request))
    default: LastBatch = "drop" if drop_last else "partial"
    return Batching(
        batch_size=require_int("batch_size", batch_size, 1),
        last_batch=first_given(request.last_batch, default),
        ranks=find_ranks(request.rank, request.world_size),
        seed=request.seed,
        training=_is_training(request),
        filled="valid" in request.fields,
    )


# --- the order ------------------------------------------------------------------------------------


def stored_order(split: OpenSplit, batching: Batching, *, shuffle: bool) -> StoredOrder:
    """Return the order of DALI's readers.

    Raises:
        CallError: the split has fewer samples than ranks, or than a full batch needs.

    """
    ranks = batching.ranks
    samples = split.samples
    if ranks.world_size > samples:
        raise CallError(
            f"split {split.name!r} has {samples} samples, but there are {ranks.world_size} ranks",
            hint="use fewer ranks, for example a single one with rank=0, world_size=1",
        )
    fitting = batching
    if batching.last_batch == "partial":
        # DALI decodes full batches, and a batch never contains more than a rank's part of the
        # split.
        size = min(batching.batch_size, ranks.largest_share(samples))
        fitting = replace(batching, batch_size=size)
    order = StoredOrder(samples, fitting, restarts=shuffle)
    if order.batches == 0:
        raise _no_full_batch(batching, samples, f"of split {split.name!r}")
    return order


def planned_order(
    split: OpenSplit, columns: Columns, batching: Batching, sampler: Sampler
) -> PlannedOrder:
    """Fit a sampler to a split.

    Raises:
        CallError: the object is not a sampler, cannot sample this split, or plans less than one
            full batch.

    """
    world_size = batching.ranks.world_size
    fitting = batching
    fit = Fit(columns, split.samples, batching.batch_size, world_size, batching.seed)
    ending = with_last_batch(sampler, batching.last_batch)
    plan = fit_sampler(ending, fit)
    by_shape = shaped(plan)
    if by_shape is not None:
        # DALI's batches are at most as large as the largest one.
        fitting = replace(batching, batch_size=max(by_shape.wholes) // world_size)
    elif batching.last_batch == "partial" and plan.samples < batching.batch_size:
        # DALI decodes full batches.
        fitting = replace(batching, batch_size=plan.samples)
        plan = fit_sampler(ending, replace(fit, batch_size=plan.samples))
    order = PlannedOrder(
        split.samples,
        fitting,
        plan,
        text=_shown_text(sampler),
        global_text=_shown_text(on_one_rank(sampler, world_size))
        + (by_shape.global_text if by_shape else ""),
        traits=traits_of(sampler),
        sampler=sampler,
    )
    # Without this check, a loop over the loader would end at once.
    if order.batches == 0:
        where = f"of split {split.name!r}"
        if plan.samples != split.samples:
            where = f"in an epoch of {type(sampler).__name__}"
        raise _no_full_batch(batching, plan.samples, where)
    return order


def _shown_text(sampler: Sampler) -> str:
    text: str | None = getattr(sampler, "text", None)
    return text or sampler_text(sampler, short_repr)


def tolerant_order(
    order: PlannedOrder,
    tables: SampleTables,
    sampler: Sampler,
    *,
    mode: Literal["skip", "replace"],
) -> PlannedOrder:
    """Return an order that can continue without bad images.

    Args:
        order: the order of the sampler.
        tables: the sample tables of the split.
        sampler: the sampler. A bad row is replaced by one with the same value in the column that it
            samples by.
        mode: see `PlannedOrder`.

    Raises:
        CallError: the sampler makes batches of a fixed composition, and `mode` would move samples
            between them.

    """
    if mode == "skip" and order.traits.fixed:
        raise CallError(
            'on_error="skip" would move samples into other batches, which then are not'
            f" {order.traits.fixed}",
            hint='set on_error="replace"',
        )
    peers = None
    by = order.traits.by
    drawable = getattr(order.plan, "drawable", None)
    if order.shaped is not None:
        # A row is replaced by one of the same bucket.
        codes = np.where(getattr(order.plan, "drawable", True), order.shaped.buckets, -1)
        peers = Peers.of_codes(codes)
    elif by is None and LABELS[tables.label_type].is_class:
        by = "label"
    if mode == "replace" and by is not None:
        columns = tables.columns([by], requested_by=type(sampler).__name__)
        # Samples with several classes have no peers, and neither have samples without a class.
        # A row of a batch of P x K must be replaced by one of the same identity.
        if not has_lists(columns[by]):
            peers = Peers.of(columns, by, order.rows, drawable)
    return replace(order, mode=mode, peers=peers, drawable=drawable)


def sampler_warnings(
    split: OpenSplit, tables: SampleTables, sampler: Sampler, order: PlannedOrder
) -> tuple[str, ...]:
    """Return the warnings of a fitted sampler, and one if some classes have no sample."""
    notes: tuple[str, ...] = tuple(getattr(order.plan, "notes", ()))
    # Only a sampler of classes is expected to draw every class.
    if "label" not in sampler.columns or not split.manifest.labels.is_class:
        return notes
    classes = len(split.manifest.classes)
    present = int(
        np.count_nonzero(np.bincount(tables.columns(["label"], requested_by="a sampler")["label"]))
    )
    if present >= classes:
        return notes
    absent = classes - present
    have = agree(absent, "has", "have")
    them = agree(absent, "it", "them")
    of = f"{absent:,} of {plural(classes, 'class')}"
    return (*notes, f"{of} {have} no sample in split {split.name!r}, so no batch contains {them}")


def empty_batch_warnings(order: Order, split: str) -> tuple[str, ...]:
    """Return a warning if the last batch of a split has fewer samples than ranks."""
    left = order.too_few
    batching = order.batching
    # A batch that is filled tells which samples are valid.
    if batching.last_batch != "partial" or not left or batching.filled:
        return ()
    ranks = f"there are {batching.ranks.world_size} ranks"
    if not batching.training:
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


def _no_full_batch(batching: Batching, samples: int, where: str) -> CallError:
    size = batching.batch_size
    world = batching.ranks.world_size
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


def fit_sampler(sampler: Sampler, fit: Fit) -> Plan:
    """Return the plan of a sampler, and check that it has what `Plan` requires.

    Raises:
        CallError: it has not, or the sampler cannot sample this split.

    """
    plan = fit.plan(sampler)
    name = type(sampler).__name__
    # A custom plan is checked here, so that the loader need not ask again.
    planned = getattr(plan, "samples", None)
    lines = getattr(plan, "lines", None)
    if not isinstance(planned, int) or planned < 1:
        raise CallError(
            f"{name}.plan() must return a plan whose samples is an int of at least 1, got"
            f" {planned!r}",
            hint=CHECK_SAMPLER,
        )
    if not isinstance(lines, tuple) or not callable(getattr(plan, "batch", None)):
        raise CallError(
            f"{name}.plan() must return a plan that has lines (a tuple of strings) and the method"
            " batch()",
            hint=CHECK_SAMPLER,
        )
    return plan


def sampler_columns(split: OpenSplit, tables: SampleTables, sampler: Sampler) -> dict[str, Array]:
    """Return the columns that a sampler needs, each an array [samples].

    Raises:
        CallError: the object is not a sampler, or a column does not exist.

    """
    check_is_sampler(sampler)
    name = type(sampler).__name__
    columns = getattr(sampler, "columns", None)
    if not isinstance(columns, (tuple, list)) or not all(
        isinstance(column, str) for column in columns
    ):
        raise CallError(
            f"{name}.columns must be a tuple of column names, got {columns!r}", hint=CHECK_SAMPLER
        )
    traits = traits_of(sampler)
    if traits.lists and split.joined and traits.by == "label":
        raise CallError(
            f"the lists in column {traits.lists!r} have class numbers, but several datasets number"
            " their classes anew",
            hint="use a column of names as by, and lists of these names",
        )
    made = (SHARD, *UPRIGHT)  # no columns of the tables
    found = tables.columns([each for each in columns if each not in made], requested_by=name)
    if SHARD in columns:
        samples = split.counts
        found[SHARD] = np.repeat(np.arange(len(samples), dtype=np.int32), samples)
    if UPRIGHT[0] in columns:
        sides = tables.columns(["height", "width"], requested_by=name)
        upright = upright_sizes(split, tables, sides["height"], sides["width"])
        found |= dict(zip(UPRIGHT, upright, strict=True))
    if is_own(sampler):
        return found
    # The tables are read as narrow types. A custom sampler may calculate with the values, and gets the types that the guide names.
    for column, array in found.items():
        if array.dtype != object:
            found[column] = array.astype(TABLE_DTYPES.get(column, array.dtype), copy=False)
    return found


# --- the sampler of a PaddleClas config -----------------------------------------------------------

#: PaddleClas samplers that read every sample once per epoch, as loaders without a sampler do.
PLAIN_SAMPLERS = [None, "BatchSampler", "DistributedBatchSampler"]

#: PaddleClas samplers that make PK batches, with their argument for K.
_PK = {
    "PKSampler": "sample_per_id",
    "DistributedRandomIdentitySampler": "num_instances",
    "NaiveIdentityBatchSampler": "num_instances",
}

_WEIGHTS: dict[str, Literal["identity", "sample"]] = {
    "sample_avg_prob": "sample",
    "id_avg_prob": "identity",
}


def configured_sampler(
    section: Mapping[str, Any], batch_size: int
) -> tuple[Sampler | None, tuple[str, ...]]:
    """Return the sampler for a config's section, and notes on what differs from PaddleClas.

    Args:
        section: the ``sampler`` section of the config.
        batch_size: samples in a batch of one rank.

    Returns:
        The sampler, and one note for each difference. The sampler is ``None`` if every sample is
        read once per epoch.

    Raises:
        CallError: an argument of the section is wrong, or K does not divide the batch size.

    """
    name = section.get("name")
    if name in PLAIN_SAMPLERS:
        return None, ()
    if not isinstance(name, str):
        raise CallError(f"the config's sampler.name must be a string, got {shown(name)}")
    if name not in _PK:
        text = f"the config's sampler {printable(name[:100])} is not supported and ignored"
        return None, (f"{text}: every sample is read once per epoch",)
    key = _PK[name]
    if section.get(key) is None:
        raise CallError(
            f"the config's sampler {name} has no {key}", hint=f"set {key} in the config"
        )
    k = require_int(f"the config's sampler.{key}", section[key], 1, maximum=MAX_BATCH_SIZE)
    # P is the batch size divided by K.
    if batch_size % k:
        raise CallError(
            f"batch_size={batch_size} is not a multiple of the config's sampler.{key}={k}",
            hint=f"set batch_size to a multiple of {k}",
        )
    method = section.get("sample_method") or "sample_avg_prob"
    if method not in list(_WEIGHTS):  # it may be unhashable
        known = " or ".join(map(repr, _WEIGHTS))
        raise CallError(
            f"the config's sampler.sample_method is {shown(method)}", hint=f"set it to {known}"
        )
    batches = section.get("max_iters")
    if batches is not None:
        batches = require_int(
            "the config's sampler.max_iters", batches, 1, maximum=MAX_EPOCH_SAMPLES // batch_size
        )
    sampler = PKSampler(batch_size // k, k, weight=_WEIGHTS[method], batches=batches)
    notes = [
        f"the config's sampler {name} becomes {sampler!r}, which draws identities in rounds instead"
        " of independently"
    ]
    if section.get("ratio"):
        notes.append(
            "the config's sampler.id_list and sampler.ratio are ignored: the listed identities are"
            " not drawn more often"
        )
    return sampler, tuple(notes)
