"""Operations -> DALI graph. It must never know torch, or who holds the pipeline."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

import nvidia.dali
import nvidia.dali.math
import nvidia.dali.tfrecord

from loaders.options import Options
from loaders.shards import OpenSplit
from loaders.transforms import CenterCrop, Normalize, Operation, RandomFlip, RandomResizedCrop, ResizeShort

# DALI's type stubs lack much of what it has.
_dali: Any = nvidia.dali
fn, math, tfrecord, types = _dali.fn, _dali.math, _dali.tfrecord, _dali.types

#: A node of DALI's graph.
Node: TypeAlias = Any

#: DALI's ``Pipeline``.
Pipeline: TypeAlias = Any

READER = "reader"

#: Samples that a shuffling reader draws from.
SHUFFLE_BUFFER = 1024

#: Share of the JPEGs that the GPU's own decoder takes; the fastest of those measured on an H200.
HW_DECODER_LOAD = 0.65

_DTYPES = {"float16": types.FLOAT16, "float32": types.FLOAT}


def make_pipeline(
    split: OpenSplit, operations: Sequence[Operation], options: Options, *, seed: int, gpu: int | None
) -> Pipeline:
    """Make the pipeline of a split, not yet built.

    Its outputs are the images, on the GPU if there is one, and what `labels.label_reader` takes: int64
    [B, 1] for TFRecord features, uint8 [B, W] for texts.

    Args:
        split: what to read.
        operations: what becomes of an image, first to last; a `Normalize` is the last.
        options: the rest.
        seed: of every random choice.
        gpu: number of the GPU; none for the processor.

    """
    # The default executor gives each batch memory of its own, so that a held batch stays as it is.
    pipeline: Pipeline = _dali.Pipeline(
        batch_size=options.batch_size,
        num_threads=options.num_threads,
        device_id=gpu,
        seed=seed,
        exec_dynamic=True,
    )
    with pipeline:
        encoded, label = read_records(split, options, seed)
        image, rest = _decode(encoded, operations, "cpu" if gpu is None else "mixed")
        for operation in rest:
            image = _apply(image, operation, options)
        pipeline.set_outputs(image, label)
    return pipeline


def release_memory() -> None:
    """Give back what DALI holds of memory and no pipeline uses; its pools outlive pipelines."""
    _dali.backend.ReleaseUnusedMemory()


def read_records(split: OpenSplit, options: Options, seed: int) -> tuple[Node, Node]:
    """Make the reader of a split: encoded images as uint8 [bytes], and what `labels.label_reader` takes."""
    components = split.manifest.components
    order = {
        "name": READER,
        # Epochs end where a batch ends, so that each has every sample once.
        "pad_last_batch": True,
        "random_shuffle": options.shuffle,
        "initial_fill": SHUFFLE_BUFFER,
        "shuffle_after_epoch": options.shuffle,
    }
    if options.shuffle:
        order["shuffle_after_epoch_seed"] = seed  # DALI warns of it elsewhere
    read = _read_tfrecord if split.manifest.format == "tfrecord" else _read_webdataset
    encoded, *labels = read(split, order)
    if components.label is None:
        return encoded, fn.pad(fn.get_property(encoded, key="source_info"))
    return encoded, labels[0]


def _read_tfrecord(split: OpenSplit, order: dict[str, Any]) -> list[Node]:
    components = split.manifest.components
    features = {components.image[0]: tfrecord.FixedLenFeature((), tfrecord.string, "")}
    if components.label is not None:
        # The length of one shows a record without the feature; a scalar would come as 0.
        features[components.label] = tfrecord.FixedLenFeature([1], tfrecord.int64, -1)
    outputs = fn.readers.tfrecord(
        path=[split.path(shard.file) for shard in split.shards],
        index_path=[split.path(shard.index) for shard in split.shards],
        features=features,
        **order,
    )
    return [outputs[name] for name in features]


def _read_webdataset(split: OpenSplit, order: dict[str, Any]) -> list[Node]:
    components = split.manifest.components
    extensions = [";".join(components.image)]
    if components.label is not None:
        extensions.append(components.label)
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


def _decode(encoded: Node, operations: Sequence[Operation], device: str) -> tuple[Node, Sequence[Operation]]:
    hardware = {"hw_decoder_load": HW_DECODER_LOAD} if device == "mixed" else {}
    first = operations[0]
    if isinstance(first, RandomResizedCrop):
        # Only the part is decoded that is kept.
        part = fn.decoders.image_random_crop(
            encoded,
            device=device,
            output_type=types.RGB,
            random_area=first.area,
            random_aspect_ratio=first.ratio,
            num_attempts=10,
            **hardware,
        )
        return _resized(part, [first.size, first.size]), operations[1:]
    # Chroma is interpolated on the GPU as it is on the processor: whole images are for evaluation.
    image = fn.decoders.image(encoded, device=device, output_type=types.RGB, jpeg_fancy_upsampling=True, **hardware)
    return image, operations


def _apply(image: Node, operation: Operation, options: Options) -> Node:
    match operation:
        case RandomFlip():
            return fn.flip(image, horizontal=fn.random.coin_flip(probability=operation.probability))
        case ResizeShort():
            return _resize_short(image, operation.size)
        case CenterCrop():
            return _center_crop(image, operation.size)
        case Normalize():
            return _normalized(image, operation, options)
    raise TypeError(f"{operation} can only be the first operation")


def _resized(image: Node, size: Any) -> Node:
    return fn.resize(image, size=size, interp_type=types.INTERP_LINEAR, antialias=True)


def _resize_short(image: Node, size: int) -> Node:
    # DALI's own `resize_shorter` rounds the longer side to the nearest, torchvision down.
    shape = image.shape()[:2]
    return _resized(image, fn.cast(shape * size // math.min(shape[0], shape[1]), dtype=types.FLOAT))


def _center_crop(image: Node, size: int) -> Node:
    # Python's rounding, which is torchvision's: a half goes to the even side.
    room = image.shape()[:2] - size
    half = room // 2
    start = fn.cast(half + (half & room & 1), dtype=types.INT32)
    return fn.slice(image, start=start, shape=[size, size], axes=[0, 1])


def _normalized(image: Node, operation: Normalize, options: Options) -> Node:
    return fn.crop_mirror_normalize(
        image,
        mean=[255 * value for value in operation.mean],
        std=[255 * value for value in operation.std],
        dtype=_DTYPES[options.dtype],
        output_layout=options.layout[1:],
    )
