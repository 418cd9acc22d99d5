"""The loader cut off after each of its stages, to see which of them holds the others up."""

from __future__ import annotations

import argparse
import itertools
import statistics
from pathlib import Path
from typing import Any

from load_sides import Side, build, endless, outputs

STAGES = ("storage", "decoder", "augmentation", "transfer to torch")


def taken_apart(dataset: Path, call: argparse.Namespace) -> dict[str, Side]:
    """Return the loader cut off after each of `STAGES`."""
    from nvidia import dali

    from loaders.dali.decode import decode
    from loaders.dali.graph import GraphContext, RandomStreams
    from loaders.dali.pipeline import make_pipeline
    from loaders.loader import make_reader

    loader = build(dataset, call)
    # What the loader itself has worked out, so that the parts are its own.
    spec, options = loader.spec, loader.options
    read = make_reader(spec, seed=1, started=0)
    gpu = options.device.index if options.device.is_gpu else None

    def part(*, decoded: bool) -> Any:
        pipeline = dali.Pipeline(
            batch_size=options.batch_size,
            num_threads=options.num_threads,
            device_id=gpu,
            seed=1,
            prefetch_queue_depth=options.prefetch,
            exec_dynamic=True,
            enable_checkpointing=True,
        )
        with pipeline:
            records = read()
            image = records.encoded
            if decoded:
                run = GraphContext(gpu=gpu is not None, batch_size=options.batch_size, random=RandomStreams(1))
                image = decode(image, spec.fusion.operations[0], run, options.hw_decoder_load)
            pipeline.set_outputs(image, *records.metadata)
        return pipeline

    whole = make_pipeline(read, spec.recipe, spec.fusion.operations, options, seed=1)
    pipelines = [part(decoded=False), part(decoded=True), whole]
    names = ("reading", "+ decoding", "+ augmentation", "+ torch's tensors: all of it")
    batches = [*map(outputs, pipelines), endless(loader)]
    return {name: Side(each, ahead=2, portion=call.batches) for name, each in zip(names, batches, strict=True)}


def tell_bottleneck(sides: dict[str, Side]) -> None:
    """Say which stage adds most to the time of the stages before it."""
    medians = [statistics.median(side.seconds[1:]) for side in sides.values()]
    added = [max(0.0, after - before) for before, after in itertools.pairwise([0.0, *medians])]
    shares = {stage: seconds / sum(added) for stage, seconds in zip(STAGES, added, strict=True)}
    most = max(shares, key=shares.__getitem__)
    print(f"bottleneck: {most} (added time: {', '.join(f'{stage} {share:.0%}' for stage, share in shares.items())})")
