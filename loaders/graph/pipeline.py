"""A split and a recipe -> DALI's pipeline. It must never know a framework of tensors, or who holds the pipeline."""

from __future__ import annotations

from dataclasses import dataclass

from loaders.fuse import DecodePart, FlipNormalize, fuse
from loaders.graph.base import Draws, Node, Pipeline, Run, apply, dali
from loaders.graph.ends import finish
from loaders.graph.geometry import decode
from loaders.graph.mixing import mix
from loaders.graph.readers import read_records
from loaders.options import Options
from loaders.shards import OpenSplit
from loaders.transforms.base import Form
from loaders.transforms.ends import Decode, Normalize
from loaders.vocabulary import Recipe


@dataclass(frozen=True, slots=True)
class Seeds:
    """Of random choices.

    Attributes:
        draws: of the transforms, and of the order within a rank; another for each rank.
        files: of the order of shards; the same for all ranks.

    """

    draws: int
    files: int


def make_pipeline(
    split: OpenSplit,
    recipe: Recipe,
    options: Options,
    *,
    seeds: Seeds,
    gpu: int | None,
    with_label: bool,
    with_source: bool,
    checkpoint: bytes | None = None,
) -> Pipeline:
    """Make the pipeline of a split, not yet built.

    Its outputs, in order: the images, on the GPU if there is one; the stored label and the source if asked for
    (`readers.Records` says what they are); and where images are mixed, int32 partner and float32 share.

    Args:
        split: what to read.
        recipe: what becomes of an image.
        options: the rest.
        seeds: of every random choice.
        gpu: number of the GPU; none for the processor.
        with_label: whether to give what shards store of labels.
        with_source: whether to tell where records come from.
        checkpoint: of an equal pipeline, to go on from.

    """
    # The dynamic executor gives each batch memory of its own, so that a held batch stays as it is.
    pipeline: Pipeline = dali.Pipeline(
        batch_size=options.batch_size,
        num_threads=options.num_threads,
        device_id=gpu,
        seed=seeds.draws,
        prefetch_queue_depth=options.prefetch,
        exec_dynamic=True,
        enable_checkpointing=True,
        checkpoint=checkpoint,
    )
    run = Run(gpu=gpu is not None, batch_size=options.batch_size, draws=Draws(seeds.draws))
    with pipeline:
        records = read_records(
            split,
            shuffle=options.shuffle,
            ranks=options.ranks,
            seed=seeds.draws,
            file_seed=seeds.files,
            with_label=with_label,
            with_source=with_source,
        )
        first, *operations = fuse(recipe.operations).operations
        if not isinstance(first, (Decode, DecodePart)):
            raise TypeError("a recipe begins with decoding")
        image = decode(records.encoded, first, run, options.hw_decoder_load)
        form = first.output(Form())
        ends_normal = bool(operations) and isinstance(operations[-1], (Normalize, FlipNormalize)) and not recipe.mixing
        last = operations.pop() if ends_normal else None
        for operation in operations:
            image = apply(operation, image, form, run)
            form = operation.output(form)
        extra: list[Node] = []
        if recipe.mixing:
            image, *extra = mix(recipe.mixing, image, form, run)
        image = finish(image, last, form, run, dtype=options.dtype, layout=options.layout)
        pipeline.set_outputs(image, *(each for each in (records.label, records.source) if each is not None), *extra)
    return pipeline


def release_memory() -> None:
    """Give back what DALI holds of memory and no pipeline uses; its pools outlive pipelines."""
    dali.backend.ReleaseUnusedMemory()
