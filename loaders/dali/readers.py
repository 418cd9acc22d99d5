"""Read encoded images and labels: with DALI's native readers in stored order, or in the order of a sampler's plan."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import nvidia.dali.tensors as _tensors
import nvidia.dali.tfrecord as _tfrecord
from numpy.typing import NDArray

from loaders.cache.fetcher import Upcoming
from loaders.cache.images import CachedImages, CachedSeconds
from loaders.cache.joined import JoinedImages
from loaders.dali.ahead import AHEAD, Ahead
from loaders.dali.graph import Node, fn, types
from loaders.dataset.records import LastBytes, Records
from loaders.dataset.split import OpenSplit
from loaders.samplers.order import PlannedOrder, StoredOrder
from loaders.samplers.shuffle import shuffled
from manifests.schema import Shard

if TYPE_CHECKING:
    from loaders.spec import Images, LoaderSpec

# DALI's type stubs are incomplete.
tfrecord: Any = _tfrecord
TensorCPU: Any = _tensors.TensorCPU
TensorListCPU: Any = _tensors.TensorListCPU

#: Returns the rows of a batch by its number, counted from the start of the pipeline.
RowsOf: TypeAlias = Callable[[int], NDArray[np.int64]]

#: The native reader's name in the pipeline.
READER = "reader"

#: What the draw of the order of shards is for: the last number of its key.
_SHARD_ORDER = 3

#: Size of the buffer that a shuffling native reader draws from, in samples.
SHUFFLE_BUFFER = 1024

#: Number of batches for which a planned reader asks the operating system to load images into memory in advance.
PREFETCH_BATCHES = 8


@dataclass(frozen=True, slots=True)
class ReaderOutputs:
    """The nodes that a reader adds to the graph, all on the CPU.

    Attributes:
        encoded: encoded images, or raw pixels: uint8 [bytes].
        label: the label as the shard stores it: int64 [1] in TFRecord, uint8 [W] text in WebDataset. `None` if only
            the sample tables contain labels, or if no field needs it.
        source: the file and position of each record: uint8 [W] text. `None` if no field needs it.
        row: each sample's row in the split: an int64 scalar. `None` without a sampler.
        label_image: encoded masks or depth maps: uint8 [bytes]. `None` if no field needs them.

    """

    encoded: Node
    label: Node | None = None
    source: Node | None = None
    row: Node | None = None
    label_image: Node | None = None

    @property
    def metadata(self) -> list[Node]:
        """All outputs that are no images: label, source and row, without those that are `None`."""
        return [node for node in (self.label, self.source, self.row) if node is not None]


def add_reader(spec: LoaderSpec, *, seed: int, started: int, skipped: int = 0) -> ReaderOutputs:
    """Add the reader of a loader to the graph: DALI's own for the stored order, otherwise one that follows a sampler.

    Args:
        spec: what the loader is built from.
        seed: seed of the order within the shuffle buffer of DALI's own readers.
        started: epoch of the first batch.
        skipped: batches of that epoch that come before the first batch. 0 for the stored order.

    """
    if isinstance(spec.order, StoredOrder):
        return read_stored(
            spec.split,
            spec.order,
            seed=seed,
            shard_seed=spec.options.seed,
            started=started,
            mmap=spec.options.mmap,
            with_label=spec.fields.stored_label,
            with_source=spec.fields.source,
            with_label_image=spec.fields.label_image is not None,
        )
    if spec.records is None:
        raise TypeError("a planned order needs records")
    return read_planned(
        spec.order,
        spec.records,
        started=started,
        skipped=skipped,
        prefetch=spec.options.prefetch,
        label_images=spec.label_images,
    )


def derive_seed(*numbers: int) -> int:
    """Derive a seed for DALI, from 0 to 2**31 - 1, from integers of at least 0."""
    return int(np.random.SeedSequence(numbers).generate_state(1)[0] >> 1)


def read_stored(
    split: OpenSplit,
    order: StoredOrder,
    *,
    seed: int,
    shard_seed: int,
    started: int,
    with_label: bool,
    with_source: bool,
    with_label_image: bool = False,
    mmap: bool = True,
) -> ReaderOutputs:
    """Add the native reader of a split to the graph.

    Args:
        split: the split to read.
        order: whether to shuffle, and which part of the split this rank reads.
        seed: seed of the order within the shuffle buffer.
        shard_seed: seed of the order of the shards; the same on all ranks.
        started: epoch of the first batch.
        with_label: whether to read the labels that the shards store.
        with_source: whether to return the file and position of each record.
        with_label_image: whether to read the masks or depth maps.
        mmap: whether to map the shards instead of reading them.

    """
    kwargs: dict[str, Any] = {
        "name": READER,
        # DALI moves on to the next part after every epoch, so any epoch has the same part as if epoch 0 had been first.
        "shard_id": order.ranks.part(started),
        "num_shards": order.ranks.world_size,
        # Epochs end at a batch boundary on all ranks at once, so each epoch contains every sample once.
        "pad_last_batch": True,
        "random_shuffle": order.shuffle,
        "initial_fill": SHUFFLE_BUFFER,
        "seed": seed,
        "dont_use_mmap": not mmap,
    }
    shards = split.shards
    if order.shuffle:
        shards = tuple(shards[number] for number in shuffled(len(shards), shard_seed, started, _SHARD_ORDER))
    components = split.manifest.components
    label = components.label if with_label else None
    label_image = components.mask if with_label_image else None
    read = _read_tfrecord if split.manifest.format == "tfrecord" else _read_webdataset
    encoded, *others = read(split, shards, label, label_image, kwargs)
    labels = others.pop(0) if label is not None else None
    source = fn.pad(fn.get_property(encoded, key="source_info")) if with_source else None
    return ReaderOutputs(encoded, labels, source, label_image=others[0] if others else None)


def read_planned(
    planned: PlannedOrder,
    records: Images,
    *,
    started: int,
    prefetch: int,
    skipped: int = 0,
    label_images: Images | None = None,
) -> ReaderOutputs:
    """Add a reader to the graph that returns the batches of a sampler's plan.

    Args:
        planned: the batches.
        records: random access to the encoded images.
        started: the epoch of the pipeline's first batch.
        prefetch: batches that the pipeline computes ahead of the one in use.
        skipped: batches of the epoch `started` that come before the first batch.
        label_images: random access to the masks or depth maps. `None` if no field needs them.

    """
    upcoming = Upcoming(
        own=lambda run: planned.filled(skipped + run, started),
        everyone=lambda run: planned.everyone(skipped + run, started),
        batches=planned.batches,
        batch_size=planned.batch_size,
    )
    rows_of = lru_cache(PREFETCH_BATCHES + AHEAD + prefetch + 2)(upcoming.own)
    batches = PlannedBatches(upcoming, rows_of, records, prefetch)
    kwargs: dict[str, Any] = {"batch": True, "batch_info": True, "no_copy": True}
    # Several sources, so that DALI drops those that no output needs.
    encoded = fn.external_source(batches.images, dtype=types.UINT8, ndim=1, **kwargs)
    row = fn.external_source(batches.rows, dtype=types.INT64, ndim=0, **kwargs)
    if label_images is None:
        return ReaderOutputs(encoded, row=row)
    seconds = PlannedBatches(upcoming, rows_of, label_images, prefetch)
    second = fn.external_source(seconds.images, dtype=types.UINT8, ndim=1, **kwargs)
    return ReaderOutputs(encoded, row=row, label_image=second)


class PlannedBatches:
    """The callbacks of `fn.external_source`. DALI calls them once per batch, on the thread that uses the loader."""

    def __init__(self, upcoming: Upcoming, rows_of: RowsOf, records: Images, prefetch: int) -> None:
        """Prepare to return batches.

        Args:
            upcoming: the batches.
            rows_of: returns the rows of a batch by its number; remembers those of the last batches.
            records: random access to the images.
            prefetch: batches that the pipeline computes ahead of the one in use.

        """
        self._upcoming, self._rows_of, self._records = upcoming, rows_of, records
        prepare = _Preparation(rows_of, records)
        # Images of an object store are fetched ahead anyway, and to wait for them must be possible to interrupt.
        self._prepared = prepare if isinstance(records, (CachedImages, CachedSeconds, JoinedImages)) else Ahead(prepare)
        # With `no_copy=True`, arrays must stay alive until DALI has used them. DALI keeps up to `prefetch` + 1 batches.
        self._alive: deque[Any] = deque(maxlen=2 * (prefetch + 2))

    def rows(self, batch: Any) -> NDArray[np.int64]:
        """Return the rows of a batch, int64 [B]; `batch` is DALI's ``BatchInfo``."""
        rows = self._rows_of(batch.iteration)
        self._alive.append(rows)
        return rows

    def images(self, batch: Any) -> Any:
        """Return the encoded images of a batch as DALI's tensor list, uint8 [bytes] per sample."""
        number = batch.iteration
        if isinstance(self._records, (CachedImages, CachedSeconds, JoinedImages)):
            self._records.follow(number, self._upcoming)
        tensors, needed = self._prepared(number)
        if needed is not None and isinstance(self._records, Records):
            self._records.check_readable(needed)
        self._alive.append(tensors)
        return tensors


class _Preparation:
    """Makes the images of a batch ready for DALI, and lets the system read those of later batches from disk."""

    def __init__(self, rows_of: RowsOf, records: Images) -> None:
        self._rows_of, self._records = rows_of, records
        self._requested = 0

    def __call__(self, number: int) -> tuple[Any, LastBytes | None]:
        """Return the images of a batch as DALI's tensor list, and the part of the shards that they need."""
        if not isinstance(self._records, (CachedImages, CachedSeconds)):
            for coming in range(max(number, self._requested), number + PREFETCH_BATCHES + 1):
                self._records.prefetch(self._rows_of(coming))
            self._requested = number + PREFETCH_BATCHES + 1
        rows = self._rows_of(number)
        # DALI takes a list of arrays too, but converts it on the thread that trains, in 1 ms for 256 images.
        tensors = [TensorCPU(image, "") for image in self._records.images(rows)]
        needed = self._records.last_bytes(rows) if isinstance(self._records, Records) else None
        return TensorListCPU(tensors, "", contiguous=False), needed


def _read_tfrecord(
    split: OpenSplit, shards: Sequence[Shard], label: str | None, label_image: str | None, kwargs: dict[str, Any]
) -> list[Node]:
    features = {split.manifest.components.image[0]: tfrecord.FixedLenFeature((), tfrecord.string, "")}
    if label is not None:
        # With shape [1], a record without the feature gives an empty tensor. With a scalar it would give 0.
        features[label] = tfrecord.FixedLenFeature([1], tfrecord.int64, -1)
    if label_image is not None:
        features[label_image] = tfrecord.FixedLenFeature((), tfrecord.string, "")
    outputs = fn.readers.tfrecord(
        path=[split.path(shard.file) for shard in shards],
        index_path=[split.path(shard.index) for shard in shards],
        features=features,
        **kwargs,
    )
    return [outputs[name] for name in features]


def _read_webdataset(
    split: OpenSplit, shards: Sequence[Shard], label: str | None, label_image: str | None, kwargs: dict[str, Any]
) -> list[Node]:
    extensions = [";".join(split.manifest.components.image)]
    if label is not None:
        extensions.append(label)
    if label_image is not None:
        extensions.append(label_image)
    outputs = fn.readers.webdataset(
        paths=[split.path(shard.file) for shard in shards],
        index_paths=[split.path(shard.index) for shard in shards],
        ext=extensions,
        case_sensitive_extensions=False,
        missing_component_behavior="error",
        **kwargs,
    )
    encoded, *others = outputs if isinstance(outputs, (list, tuple)) else [outputs]
    if label is not None:
        others[0] = fn.pad(others[0])
    return [encoded, *others]
