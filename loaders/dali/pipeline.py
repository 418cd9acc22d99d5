"""Build a loader's DALI pipeline from a reader and a recipe."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterable, Sequence

from loaders.dali.boxes import frames
from loaders.dali.decode import decode
from loaders.dali.graph import (
    GraphContext,
    Node,
    Pipeline,
    RandomStreams,
    ReaderOutputs,
    apply_all,
    dali,
)
from loaders.dali.label_images import label_images
from loaders.dali.mixing import mix
from loaders.dali.normalize import finish
from loaders.options import ResolvedOptions
from loaders.transforms.base import ImageSpec, Operation
from loaders.transforms.decode_normalize import Decode, Normalize, Unpack
from loaders.transforms.fuse import DecodeCrop, FlipNormalize
from loaders.transforms.parse import Recipe
from manifests.labels import LabelType


def make_pipeline(
    read: Callable[[], ReaderOutputs],
    recipe: Recipe,
    operations: Sequence[Operation],
    options: ResolvedOptions,
    *,
    seed: int,
    views: Sequence[Sequence[Operation]] = (),
    checkpoint: bytes = b"",
    label_image: LabelType | None = None,
    with_frames: bool = False,
    random: RandomStreams | None = None,
) -> Pipeline:
    """Return a loader's pipeline, not yet built.

    Its outputs, in order:

    1. the images, if `"image"` is one of the fields: on the GPU if there is one, in the dtype and
       layout of the batch; one output for each view if the recipe has views,
    2. the masks or depth maps, if they are one of the fields, on the same device, for each view;
       see `loaders.dali.label_images`,
    3. the reader's other outputs (`ReaderOutputs.metadata`), on the CPU,
    4. the frames of the images, if the fields contain boxes, on the CPU, for each view; see
      `loaders.dali.boxes`,
    5. if the recipe mixes images: each sample's int32 partner and float32 share of its own label,
      on the CPU.

    Args:
        read: adds the reader to the graph and returns its outputs.
        recipe: how images are mixed.
        operations: the recipe's operations on an image, fused.
        options: device, batch size, threads, dtype, layout, fields and the other options of the
            loader.
        seed: seed of the transforms; different on each rank.
        views: the operations of each of the recipe's views, fused.
        checkpoint: a checkpoint of an equal pipeline to resume from; empty to start with the first
            epoch.
        label_image: what the label images are, if a field needs them.
        with_frames: whether to return the frames, which tell where the transforms put boxes.
        random: the random values; `None` for those of `seed`.

    Raises:
        TypeError: the recipe does not start with decoding.

    """
    pipeline = new_pipeline(options, seed, checkpoint)
    context = GraphContext(options.device.is_gpu, options.batch_size, random or RandomStreams(seed))
    with_images = "image" in options.fields
    with pipeline:
        records = read()
        first, *remaining = operations
        if not isinstance(first, (Decode, DecodeCrop, Unpack)):
            raise TypeError(f"a recipe must start with Decode or Unpack, got {first!r}")
        image = decode(records.encoded, first, context, options.hw_decoder_load)
        spec = first.output(ImageSpec())
        extra: list[Node] = []
        if views:
            image, spec = apply_all(remaining, image, spec, context)
            images = []
            for each in views:
                context.random.next_view()
                images.append(finished(each, image, spec, context, options))
        elif recipe.mixing:
            image, spec = apply_all(remaining, image, spec, context)
            image, *extra = mix(recipe.mixing, image, spec, context, with_images=with_images)
            images = [
                finish(image, None, spec, context, dtype=options.dtype, layout=options.layout)
            ]
        else:
            images = [finished(remaining, image, spec, context, options)]
        written = [view.operations for view in recipe.views] or [()]
        labels, moved = [], []
        if label_image is not None and records.label_image is not None:
            labels = label_images(
                records.label_image, label_image, recipe.operations, context, seed, views=written
            )
        if with_frames:
            moved = frames(records.encoded, recipe.operations, context, seed, views=written)
        # DALI computes only what the outputs need. If they contain no images, it decodes none.
        pipeline.set_outputs(
            *(images if with_images else []), *labels, *records.metadata, *moved, *extra
        )
    return pipeline


def new_pipeline(options: ResolvedOptions, seed: int, checkpoint: bytes = b"") -> Pipeline:
    """Return an empty pipeline with the options of a loader; see `make_pipeline`."""
    # With the dynamic executor each batch has its own memory, so users may keep a batch.
    return dali.Pipeline(
        batch_size=options.batch_size,
        num_threads=options.num_threads,
        device_id=options.device.index if options.device.is_gpu else None,
        seed=seed,
        prefetch_queue_depth=options.prefetch,
        exec_dynamic=True,
        enable_checkpointing=True,
        checkpoint=checkpoint or None,
    )


def finished(
    operations: Sequence[Operation],
    image: Node,
    spec: ImageSpec,
    context: GraphContext,
    options: ResolvedOptions,
) -> Node:
    """Apply operations to images of `spec`, and convert the result to the dtype and layout of the batch."""
    last = (
        operations[-1]
        if operations and isinstance(operations[-1], (Normalize, FlipNormalize))
        else None
    )
    image, spec = apply_all(operations[:-1] if last else operations, image, spec, context)
    return finish(image, last, spec, context, dtype=options.dtype, layout=options.layout)


def keep_pipelines(pipelines: Iterable[Pipeline]) -> None:
    """Never destroy these pipelines, in a forked child: that would wait for threads that only the parent has."""
    for pipeline in pipelines:
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(pipeline))
    # DALI would destroy the pipelines of this set when Python ends.
    getattr(dali.Pipeline, "_pipes", set()).clear()


def release_memory() -> None:
    """Free the memory in DALI's pools that no pipeline uses.

    The pools are global and outlive pipelines.
    """
    dali.backend.ReleaseUnusedMemory()
