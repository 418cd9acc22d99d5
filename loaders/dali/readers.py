"""A split's shards -> encoded images and labels: DALI's native readers in their order, or as a sampler plans."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any

import numpy as np
import nvidia.dali.tensors as _tensors
import nvidia.dali.tfrecord as _tfrecord
from numpy.typing import NDArray

from loaders.dali.base import Node, fn, types
from loaders.dataset.records import Records
from loaders.dataset.split import OpenSplit
from loaders.samplers.order import PlannedOrder, StoredOrder

# DALI's type stubs lack much of what it has.
tfrecord: Any = _tfrecord
TensorCPU: Any = _tensors.TensorCPU

READER = "reader"

#: Samples that a shuffling reader draws from.
SHUFFLE_BUFFER = 1024


#: Batches whose images are asked of the disk before they are read.
AHEAD = 8


@dataclass(frozen=True, slots=True)
class Read:
    """What a reader gives.

    Attributes:
        encoded: images as uint8 [bytes].
        label: what the shard stores of the label: int64 [1] in TFRecord, uint8 [W] text in WebDataset; none
            where labels are in the tables alone, or not asked for.
        source: where each record came from, as uint8 [W] text; none where not asked for.
        row: of each sample in the split, an int64; none but where a sampler plans.

    """

    encoded: Node
    label: Node | None = None
    source: Node | None = None
    row: Node | None = None

    @property
    def told(self) -> list[Node]:
        """What it gives besides images: label, source, row, as far as they are there."""
        return [each for each in (self.label, self.source, self.row) if each is not None]


def read_stored(
    split: OpenSplit, order: StoredOrder, *, seed: int, file_seed: int, with_label: bool, with_source: bool
) -> Read:
    """Make the native reader of a split.

    Args:
        split: what to read.
        order: whether each epoch has its own, and which part of it to read.
        seed: of the order within the buffer.
        file_seed: of the order of shards between epochs; the same for all ranks.
        with_label: whether to read what shards store of labels.
        with_source: whether to tell where records come from.

    """
    said: dict[str, Any] = {
        "name": READER,
        "shard_id": order.ranks.rank,
        "num_shards": order.ranks.world_size,
        # Epochs end where a batch ends, on every rank at once, so that each has every sample once.
        "pad_last_batch": True,
        "random_shuffle": order.shuffle,
        "initial_fill": SHUFFLE_BUFFER,
        "shuffle_after_epoch": order.shuffle,
        "seed": seed,
    }
    if order.shuffle:
        said["shuffle_after_epoch_seed"] = file_seed  # DALI warns of it elsewhere
    label = split.manifest.components.label if with_label else None
    read = _read_tfrecord if split.manifest.format == "tfrecord" else _read_webdataset
    encoded, *labels = read(split, label, said)
    source = fn.pad(fn.get_property(encoded, key="source_info")) if with_source else None
    return Read(encoded, labels[0] if labels else None, source)


def read_planned(planned: PlannedOrder, records: Records, *, started: int, prefetch: int) -> Read:
    """Make a reader that gives what a sampler plans.

    Args:
        planned: the batches.
        records: the images.
        started: epoch that the first batch begins.
        prefetch: batches made ahead of the one in use.

    """
    feed = _Feed(planned, records, started, prefetch)
    said: dict[str, Any] = {"batch": True, "batch_info": True, "no_copy": True}
    # Two sources, so that DALI leaves out the one that no output needs.
    encoded = fn.external_source(feed.images, dtype=types.UINT8, ndim=1, **said)
    return Read(encoded, row=fn.external_source(feed.rows, dtype=types.INT64, ndim=0, **said))


class _Feed:
    """What DALI calls for each batch, on the thread that uses the loader."""

    def __init__(self, planned: PlannedOrder, records: Records, started: int, prefetch: int) -> None:
        self._planned = lru_cache(AHEAD + 2)(partial(planned.filled, started=started))
        self._records = records
        self._asked = 0
        # DALI asks for what it does not copy to be held, and works on one batch more than wait for it.
        self._given: deque[Any] = deque(maxlen=2 * (prefetch + 2))

    def rows(self, batch: Any) -> NDArray[np.int64]:
        rows = self._planned(batch.iteration)
        self._given.append(rows)
        return rows

    def images(self, batch: Any) -> list[Any]:
        run = batch.iteration
        for coming in range(max(run, self._asked), run + AHEAD + 1):
            self._records.ask_ahead(self._planned(coming))
        self._asked = run + AHEAD + 1
        # An array costs DALI twice what a tensor of its own does, and all this is the time of the thread that trains.
        images = [TensorCPU(image, "") for image in self._records.images(self._planned(run))]
        self._given.append(images)
        return images


def _read_tfrecord(split: OpenSplit, label: str | None, said: dict[str, Any]) -> list[Node]:
    features = {split.manifest.components.image[0]: tfrecord.FixedLenFeature((), tfrecord.string, "")}
    if label is not None:
        # The length of one shows a record without the feature; a scalar would come as 0.
        features[label] = tfrecord.FixedLenFeature([1], tfrecord.int64, -1)
    outputs = fn.readers.tfrecord(
        path=[split.path(shard.file) for shard in split.shards],
        index_path=[split.path(shard.index) for shard in split.shards],
        features=features,
        **said,
    )
    return [outputs[name] for name in features]


def _read_webdataset(split: OpenSplit, label: str | None, said: dict[str, Any]) -> list[Node]:
    extensions = [";".join(split.manifest.components.image)]
    if label is not None:
        extensions.append(label)
    outputs = fn.readers.webdataset(
        paths=[split.path(shard.file) for shard in split.shards],
        index_paths=[split.path(shard.index) for shard in split.shards],
        ext=extensions,
        case_sensitive_extensions=False,
        missing_component_behavior="error",
        **said,
    )
    encoded, *labels = outputs if isinstance(outputs, (list, tuple)) else [outputs]
    return [encoded, *(fn.pad(label) for label in labels)]
