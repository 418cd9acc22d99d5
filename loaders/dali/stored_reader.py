"""Read encoded images and labels in stored order, with DALI's native readers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import nvidia.dali.tfrecord as _tfrecord

from loaders.dali.graph import Node, ReaderOutputs, fn
from loaders.dataset.split import OpenSplit
from loaders.samplers.order import StoredOrder
from loaders.samplers.shuffle import shuffled
from manifests.schema import Shard

# DALI's type stubs are incomplete.
tfrecord: Any = _tfrecord

#: The native reader's name in the pipeline.
READER = "reader"

#: What the draw of the order of shards is for: the last number of its key.
_SHARD_ORDER = 3

#: Size of the buffer that a shuffling native reader draws from, in samples.
SHUFFLE_BUFFER = 1024


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
        # DALI moves on to the next part after every epoch, so any epoch has the same part as if
        # epoch 0 had been first.
        "shard_id": order.ranks.part(started),
        "num_shards": order.ranks.world_size,
        # Epochs end at a batch boundary on all ranks at once, so each epoch contains every sample
        # once.
        "pad_last_batch": True,
        "random_shuffle": order.shuffle,
        "initial_fill": SHUFFLE_BUFFER,
        "seed": seed,
        "dont_use_mmap": not mmap,
    }
    shards = split.shards
    if order.shuffle:
        shards = tuple(
            shards[number] for number in shuffled(len(shards), shard_seed, started, _SHARD_ORDER)
        )
    components = split.manifest.components
    label = components.label if with_label else None
    label_image = components.mask if with_label_image else None
    read = _read_tfrecord if split.manifest.format == "tfrecord" else _read_webdataset
    encoded, *others = read(split, shards, label, label_image, kwargs)
    labels = others.pop(0) if label is not None else None
    source = fn.pad(fn.get_property(encoded, key="source_info")) if with_source else None
    return ReaderOutputs(encoded, labels, source, label_image=others[0] if others else None)


def _read_tfrecord(
    split: OpenSplit,
    shards: Sequence[Shard],
    label: str | None,
    label_image: str | None,
    kwargs: dict[str, Any],
) -> list[Node]:
    features = {
        split.manifest.components.image[0]: tfrecord.FixedLenFeature((), tfrecord.string, "")
    }
    if label is not None:
        # With shape [1], a record without the feature gives an empty tensor. With a scalar it would
        # give 0.
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
    split: OpenSplit,
    shards: Sequence[Shard],
    label: str | None,
    label_image: str | None,
    kwargs: dict[str, Any],
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
