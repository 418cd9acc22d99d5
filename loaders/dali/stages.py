"""A loader's pipeline that ends after one of its stages, to measure what each stage costs."""

from __future__ import annotations

from typing import Literal, TypeAlias

from loaders.dali.decode import decode
from loaders.dali.graph import GraphContext, Pipeline, RandomStreams, fn
from loaders.dali.pipeline import new_pipeline
from loaders.dali.readers import add_reader, derive_seed
from loaders.dali.run import start_pipeline
from loaders.progress import Progress
from loaders.spec import LoaderSpec
from loaders.transforms.decode_normalize import Decode, Unpack
from loaders.transforms.fuse import DecodeCrop

#: What a pipeline does, in order. Each one contains those before it.
Stage: TypeAlias = Literal["reading", "decoding", "augmentation"]


def start_stage(spec: LoaderSpec, stage: Stage) -> Pipeline:
    """Build a pipeline that ends after a stage, and let DALI start its first batch.

    Its reader, threads, prefetching and random numbers are those of the loader.

    Args:
        spec: what the loader is built from.
        stage: ``"reading"`` reads every byte of the images, ``"decoding"`` also decodes them, or
            with raw pixels copies them to the device, and ``"augmentation"`` is the whole pipeline.

    Raises:
        IndexFileError: DALI cannot read an index file.

    """
    if stage == "augmentation":
        return start_pipeline(spec, Progress.start(spec.order.batches))
    options = spec.options
    seed = derive_seed(options.seed, 0, options.ranks.rank)
    pipeline = new_pipeline(options, seed)
    with pipeline:
        records = add_reader(spec, seed=seed, started=0)
        if stage == "reading":
            # Images are mapped: without an operator that reads them, nothing would come from the
            # disk.
            result = fn.reductions.max(records.encoded)
        else:
            context = GraphContext(options.device.is_gpu, options.batch_size, RandomStreams(seed))
            first = spec.fusion.operations[0]
            if not isinstance(first, (Decode, DecodeCrop, Unpack)):
                raise TypeError(f"a recipe must start with Decode or Unpack, got {first!r}")
            result = decode(records.encoded, first, context, options.hw_decoder_load)
        pipeline.set_outputs(result, *records.metadata)
    pipeline.build()
    pipeline.schedule_run()
    return pipeline
