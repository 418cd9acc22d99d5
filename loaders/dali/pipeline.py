"""A reader and a recipe -> DALI's pipeline. It must never know a framework of tensors, or who holds the pipeline."""

from __future__ import annotations

from collections.abc import Callable

from loaders.dali.decode import decode
from loaders.dali.graph import GraphContext, Node, Pipeline, RandomStreams, apply, dali
from loaders.dali.mixing import mix
from loaders.dali.normalize import finish
from loaders.dali.readers import ReaderOutputs
from loaders.options import Options
from loaders.transforms.base import ImageSpec
from loaders.transforms.decode_normalize import Decode, Normalize, Unpack
from loaders.transforms.fuse import DecodeCrop, FlipNormalize, fuse
from loaders.transforms.parse import Recipe


def make_pipeline(
    read: Callable[[], ReaderOutputs],
    recipe: Recipe,
    options: Options,
    *,
    seed: int,
    gpu: int | None,
    checkpoint: bytes | None = None,
) -> Pipeline:
    """Make a loader's pipeline, not yet built.

    Its outputs, in order: the images if they are among the fields, on the GPU if there is one; what else the reader
    gives (`readers.ReaderOutputs`, in its order); and where images are mixed, int32 partner and float32 share.

    Args:
        read: makes the reader, in the pipeline's graph.
        recipe: what becomes of an image.
        options: the rest.
        seed: of the transforms; another for each rank.
        gpu: number of the GPU; none for the processor.
        checkpoint: of an equal pipeline, to go on from.

    """
    # The dynamic executor gives each batch memory of its own, so that a held batch stays as it is.
    pipeline: Pipeline = dali.Pipeline(
        batch_size=options.batch_size,
        num_threads=options.num_threads,
        device_id=gpu,
        seed=seed,
        prefetch_queue_depth=options.prefetch,
        exec_dynamic=True,
        enable_checkpointing=True,
        checkpoint=checkpoint,
    )
    context = GraphContext(gpu=gpu is not None, batch_size=options.batch_size, random=RandomStreams(seed))
    wanted = "image" in options.fields
    with pipeline:
        records = read()
        first, *operations = fuse(recipe.operations).operations
        if not isinstance(first, (Decode, DecodeCrop, Unpack)):
            raise TypeError("a recipe begins with decoding")
        image = decode(records.encoded, first, context, options.hw_decoder_load or 0.0)
        spec = first.output(ImageSpec())
        ends_normal = bool(operations) and isinstance(operations[-1], (Normalize, FlipNormalize)) and not recipe.mixing
        last = operations.pop() if ends_normal else None
        for operation in operations:
            image = apply(operation, image, spec, context)
            spec = operation.output(spec)
        extra: list[Node] = []
        if recipe.mixing:
            image, *extra = mix(recipe.mixing, image, spec, context, wanted=wanted)
        image = finish(image, last, spec, context, dtype=options.dtype, layout=options.layout)
        # DALI runs what the outputs need: images that are not among them are not even decoded.
        pipeline.set_outputs(*([image] if wanted else []), *records.metadata, *extra)
    return pipeline


def release_memory() -> None:
    """Give back what DALI holds of memory and no pipeline uses; its pools outlive pipelines."""
    dali.backend.ReleaseUnusedMemory()
