"""A split's shards -> encoded images and labels, with DALI's native readers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import nvidia.dali.tfrecord as _tfrecord

from loaders.graph.base import Node, fn
from loaders.ranks import Ranks
from loaders.shards import OpenSplit

# DALI's type stubs lack much of what it has.
tfrecord: Any = _tfrecord

READER = "reader"

#: Samples that a shuffling reader draws from.
SHUFFLE_BUFFER = 1024


@dataclass(frozen=True, slots=True)
class Records:
    """What a reader gives.

    Attributes:
        encoded: images as uint8 [bytes].
        label: what the shard stores of the label: int64 [1] in TFRecord, uint8 [W] text in WebDataset; none
            where labels are in the tables alone, or not asked for.
        source: where each record came from, as uint8 [W] text; none where not asked for.

    """

    encoded: Node
    label: Node | None
    source: Node | None


def read_records(
    split: OpenSplit, *, shuffle: bool, ranks: Ranks, seed: int, file_seed: int, with_label: bool, with_source: bool
) -> Records:
    """Make the reader of a split.

    Args:
        split: what to read.
        shuffle: whether each epoch has an order of its own.
        ranks: which part of an epoch to read.
        seed: of the order within the buffer.
        file_seed: of the order of shards between epochs; the same for all ranks.
        with_label: whether to read what shards store of labels.
        with_source: whether to tell where records come from.

    """
    order: dict[str, Any] = {
        "name": READER,
        "shard_id": ranks.rank,
        "num_shards": ranks.world_size,
        # Epochs end where a batch ends, on every rank at once, so that each has every sample once.
        "pad_last_batch": True,
        "random_shuffle": shuffle,
        "initial_fill": SHUFFLE_BUFFER,
        "shuffle_after_epoch": shuffle,
        "seed": seed,
    }
    if shuffle:
        order["shuffle_after_epoch_seed"] = file_seed  # DALI warns of it elsewhere
    label = split.manifest.components.label if with_label else None
    read = _read_tfrecord if split.manifest.format == "tfrecord" else _read_webdataset
    encoded, *labels = read(split, label, order)
    source = fn.pad(fn.get_property(encoded, key="source_info")) if with_source else None
    return Records(encoded, labels[0] if labels else None, source)


def _read_tfrecord(split: OpenSplit, label: str | None, order: dict[str, Any]) -> list[Node]:
    features = {split.manifest.components.image[0]: tfrecord.FixedLenFeature((), tfrecord.string, "")}
    if label is not None:
        # The length of one shows a record without the feature; a scalar would come as 0.
        features[label] = tfrecord.FixedLenFeature([1], tfrecord.int64, -1)
    outputs = fn.readers.tfrecord(
        path=[split.path(shard.file) for shard in split.shards],
        index_path=[split.path(shard.index) for shard in split.shards],
        features=features,
        **order,
    )
    return [outputs[name] for name in features]


def _read_webdataset(split: OpenSplit, label: str | None, order: dict[str, Any]) -> list[Node]:
    extensions = [";".join(split.manifest.components.image)]
    if label is not None:
        extensions.append(label)
    outputs = fn.readers.webdataset(
        paths=[split.path(shard.file) for shard in split.shards],
        index_paths=[split.path(shard.index) for shard in split.shards],
        ext=extensions,
        case_sensitive_extensions=False,
        missing_component_behavior="error",
        **order,
    )
    encoded, *labels = outputs if isinstance(outputs, (list, tuple)) else [outputs]
    return [encoded, *(fn.pad(label) for label in labels)]
