"""Build a loader's DALI pipeline from a reader and a recipe, start it, and take batches from it."""

from __future__ import annotations

import ctypes
import logging
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from itertools import chain
from typing import Any, Literal, TypeAlias

import numpy as np

from loaders.arrays import Ints
from loaders.dali.bad_images import translate_error
from loaders.dali.decode_normalize import as_dtype, finish
from loaders.dali.graph import (
    GraphContext,
    Node,
    Pipeline,
    RandomStreams,
    ReaderOutputs,
    apply,
    apply_all,
    dali,
    fn,
)
from loaders.dali.lanes import Lanes, split_checkpoint
from loaders.dali.mixing import mix
from loaders.dali.patches import cut
from loaders.dali.readers import READER, add_reader, derive_seed
from loaders.dali.targets import frames, label_images
from loaders.dataset.damage import find_index_error
from loaders.dataset.split import OpenSplit
from loaders.options import ResolvedOptions
from loaders.progress import ONE_LANE, Lane, Position, Progress, Upcoming
from loaders.spec import LoaderSpec, draw_budgets
from loaders.transforms.base import ImageSpec, Operation
from loaders.transforms.patches import Patchify
from manifests.errors import DamagedError, IndexFileError
from manifests.labels import LABEL_IMAGE


def make_pipeline(
    spec: LoaderSpec,
    random: RandomStreams,
    upcoming: Upcoming | None,
    *,
    seed: int,
    started: int,
    skipped: int = 0,
    lane: Lane = ONE_LANE,
    checkpoint: bytes = b"",
) -> Pipeline:
    """Return a loader's pipeline, not yet built.

    Its outputs, in order:

    1. the images of each field that is one, in the order of the batch: on the GPU if there is one,
       in the dtype and layout of the batch; one output for each view if the recipe has views,
    2. the masks or depth maps, if they are one of the fields, on the same device, for each view;
       see `loaders.dali.targets`,
    3. the reader's other outputs (`ReaderOutputs.metadata`), on the CPU,
    4. the frames of the images, if the fields contain boxes, on the CPU, for each view; see
      `loaders.dali.targets`,
    5. rows and columns of the patches of the images, if the recipe cuts them, int32 [2] on the CPU,
      for each view,
    6. if the recipe mixes images: each sample's int32 partner and float32 share of its own label,
      on the CPU.

    Args:
        spec: what the loader is built from.
        random: the random values of the transforms.
        upcoming: the batches of all lanes; `None` for the stored order.
        seed: seed of the transforms; different on each rank.
        started: epoch of the first batch.
        skipped: batches of that epoch that come before the first batch.
        lane: which of the batches this pipeline computes.
        checkpoint: a checkpoint of an equal pipeline to resume from; empty to start with the first
            epoch.

    """
    recipe = spec.recipe
    fields = spec.fields
    pipeline = new_pipeline(spec.options, seed, checkpoint)
    with pipeline:
        records = add_reader(spec, upcoming, seed=seed, started=started, lane=lane)
        context = replace(
            new_context(spec.options, random),
            budgets=lambda operation, run: _pipeline_budgets(
                spec, started, skipped, operation, lane.number(run)
            ),
            bucket=records.bucket,
            known=records.known,
        )
        images, drawn = _images(spec, records, context, seed)
        grids = []
        for number, patchify in enumerate(recipe.patchify):
            if patchify is not None:
                channels = recipe.outputs[number].channels
                images[""][number], grid = cut(patchify, images[""][number], channels, context)
                grids.append(grid)
        # Label images and frames follow the operations as written: a fused one may read pixels in
        # between.
        written = [view.operations for view in recipe.views] or [()]
        labels = []
        moved = []
        if fields.label_image is not None:
            encoded = records.others[LABEL_IMAGE]
            kind = fields.label_image
            labels = label_images(encoded, kind, recipe.operations, context, seed, views=written)
        if fields.has_boxes:
            moved = frames(records.encoded, recipe.operations, context, seed, views=written)
        # DALI computes only what the outputs need. If they contain no images, it decodes none.
        pixels = chain.from_iterable(map(images.__getitem__, fields.images.values()))
        pipeline.set_outputs(*pixels, *labels, *records.metadata, *moved, *grids, *drawn)
    return pipeline


def _images(
    spec: LoaderSpec, records: ReaderOutputs, context: GraphContext, seed: int
) -> tuple[dict[str, list[Node]], list[Node]]:
    """Return each image of a sample after all transforms, for each view, and what mixing has drawn."""
    options = spec.options
    images: dict[str, list[Node]] = {}
    drawn: list[Node] = []
    if spec.fields.others:
        # They may have other sizes, and their draws must be the same.
        spec = replace(spec, stored=ImageSpec())
    # The first image is in the graph also if no field needs it: DALI leaves it out.
    for number, name in enumerate(dict.fromkeys(("", *spec.fields.images.values()))):
        own = context
        encoded = records.encoded
        if number:
            encoded = records.others[name]
            draws = seed
            if not options.shared:
                draws = derive_seed(seed, number)
            own = replace(context, random=context.random.again(draws), known=None)
        if spec.recipe.mixing:
            image, *drawn = _mixed(spec, encoded, own)
            images[name] = [image]
        else:
            images[name] = _views(spec, encoded, own)
        if name in records.present:
            there = context.to_device(records.present[name])
            # DALI multiplies no float16 on a CPU.
            images[name] = [
                as_dtype(as_dtype(image, "float32") * there, options.dtype)
                for image in images[name]
            ]
    return images, drawn


def _mixed(spec: LoaderSpec, encoded: Node, context: GraphContext) -> tuple[Node, Node, Node]:
    """Return mixed images, and the partner and the share of each."""
    options = spec.options
    exact = replace(options, dtype="float32")
    image, output = finished(spec.fusion.operations, encoded, spec.stored, context, exact)
    image, partner, share = mix(
        spec.recipe.mixing,
        image,
        output,
        context,
        layout=options.layout,
        with_images=bool(spec.fields.images),
    )
    return as_dtype(image, options.dtype), partner, share


def _views(spec: LoaderSpec, encoded: Node, context: GraphContext) -> list[Node]:
    """Return images after all transforms, for each view."""
    operations = spec.fusion.operations
    options = spec.options
    if not spec.view_fusions:
        return [finished(operations, encoded, spec.stored, context, options)[0]]
    image, output = apply_all(operations, encoded, spec.stored, context)
    images = []
    for view in spec.view_fusions:
        context.random.next_view()
        images.append(finished(view.operations, image, output, context, options)[0])
    return images


def new_pipeline(options: ResolvedOptions, seed: int, checkpoint: bytes = b"") -> Pipeline:
    """Return an empty pipeline with the options of a loader; see `make_pipeline`."""
    # With the dynamic executor each batch has its own memory, so users may keep a batch.
    return dali.Pipeline(
        batch_size=options.batch_size,
        num_threads=options.pipeline_threads,
        device_id=options.device.gpu_index,
        seed=seed,
        prefetch_queue_depth=options.prefetch,
        exec_dynamic=True,
        enable_checkpointing=True,
        checkpoint=checkpoint or None,
    )


def new_context(options: ResolvedOptions, random: RandomStreams) -> GraphContext:
    """Return the context of a graph with the options of a loader."""
    return GraphContext(
        options.device.is_gpu,
        options.batch_size,
        random,
        gpu_decodes=options.decoder == "gpu",
        hw_decoder_load=options.hw_decoder_load,
        # Evaluation, which is not shuffled, should not depend on the device.
        smooth=not options.shuffle,
    )


def finished(
    operations: Sequence[Operation],
    image: Node,
    spec: ImageSpec,
    context: GraphContext,
    options: ResolvedOptions,
) -> tuple[Node, ImageSpec]:
    """Apply operations to images of `spec`, and convert the result to the dtype and layout of the batch.

    Images that are cut into patches later are HWC.
    """
    before, last, after = _around_normalization(operations)
    image, spec = apply_all(before, image, spec, context)
    if after and (spec.size is None or "int" in options.dtype):
        image, spec = apply_all([last, *after], image, spec, context)
        last = None
        after = []
    layout: str = options.layout
    if spec.patches is not None:
        layout = "NHWC"
    image = finish(image, last, spec, context, dtype=options.dtype, layout=layout)
    if last is not None:
        spec = last.output(spec)
    return apply_all(after, image, spec, replace(context, dtype=options.dtype))


def _around_normalization(operations: Sequence[Operation]) -> tuple[Any, Any, Sequence[Operation]]:
    """Return the operations before the normalization, the normalization, and the operations after it.

    If an operation after it needs HWC images, it is `None`, and all operations are before it.
    """
    for at in range(len(operations) - 1, -1, -1):
        if operations[at].normalizes:
            return operations[:at], operations[at], operations[at + 1 :]
        if not operations[at].any_layout:
            break
    return operations, None, ()


def keep_pipelines(loaders: Iterable[Lanes | None]) -> None:
    """Never destroy the pipelines of loaders, in a forked child: that would wait for threads that only the parent has."""
    for lanes in loaders:
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(lanes))
    # DALI would destroy the pipelines of this set when Python ends.
    getattr(dali.Pipeline, "_pipes", set()).clear()


def release_memory() -> None:
    """Free the memory in DALI's pools that no pipeline uses.

    The pools are global and outlive pipelines.
    """
    dali.backend.ReleaseUnusedMemory()


def _pipeline_budgets(
    spec: LoaderSpec, started: int, skipped: int, operation: Patchify, number: int
) -> Ints:
    """Return the budgets of the images of a batch by its number from the start of the lanes.

    Args:
        spec: what the loader is built from.
        started: epoch of the pipeline's first batch.
        skipped: batches of that epoch that come before the first batch.
        operation: the operation.
        number: number of the batch.

    """
    epochs, batch = divmod(skipped + number, spec.order.runs)
    return draw_budgets(operation, spec.options, started + epochs, batch)


_log = logging.getLogger(__name__)

_VERIFY = "run `dataprep verify` to find the damaged file"


def start_pipelines(spec: LoaderSpec, progress: Progress) -> Lanes:
    """Build the pipelines for a loader's progress, and let DALI start their first batches.

    Raises:
        IndexFileError: DALI cannot read an index file, or it does not fit the manifest.
        ValueError: the checkpoint is damaged.

    """
    begin = time.monotonic()
    position = progress.position
    upcoming = spec.order.upcoming(position.started, position.skipped)
    count = spec.options.pipelines
    if upcoming is not None and spec.images is not None:
        # DALI asks for these batches at once. By threads, which would take turns with the
        # interpreter's lock, it takes two to three times as long to read hundreds of tables.
        for number in range(position.read, position.read + count * spec.options.prefetch):
            spec.images.read_tables(upcoming.rank_rows(number))
    checkpoints = split_checkpoint(progress.checkpoint, count, position.read)
    pipelines = []
    for index, checkpoint in enumerate(checkpoints):
        pipelines.append(
            _start_lane(spec, position, upcoming, lane=Lane(index, count), checkpoint=checkpoint)
        )
    lanes = Lanes(pipelines, checkpoints, position.read)
    lanes.start()
    _log.info(
        "the pipeline is started in %.2f s, at batch %d", time.monotonic() - begin, position.batch
    )
    return lanes


def _start_lane(
    spec: LoaderSpec,
    position: Position,
    upcoming: Upcoming | None,
    *,
    lane: Lane,
    checkpoint: bytes,
) -> Pipeline:
    """Build the pipeline of a lane."""
    options = spec.options
    started = position.started
    skipped = position.skipped
    samples = _batch_size(upcoming)
    if samples is not None:
        # Of the first batch of the lane from this position on.
        first = lane.number(lane.runs(position.read))
        options = replace(options, hw_decoder_load=_first_load(spec, samples(first)))
    seed = derive_seed(options.seed, started, options.ranks.rank, *([skipped] if skipped else []))
    pipeline = make_pipeline(
        replace(spec, options=options),
        RandomStreams(seed, samples, first_frames(spec), lane),
        upcoming,
        seed=seed,
        started=started,
        skipped=skipped,
        lane=lane,
        checkpoint=checkpoint,
    )
    try:
        pipeline.build()
        meta = pipeline.reader_meta()
    except RuntimeError as error:
        raise _index_error(error, spec.split) from error
    indexed_samples = meta[READER]["epoch_size"] if READER in meta else spec.split.samples
    if indexed_samples != spec.split.samples:
        raise find_index_error(spec.split) or IndexFileError(
            f"the index files of {spec.split.folder} contain {indexed_samples} samples, but the"
            f" manifest states {spec.split.samples}",
            hint=_VERIFY,
        )
    return pipeline


def _batch_size(upcoming: Upcoming | None) -> Callable[[int], int] | None:
    """Return a function that returns the samples of a batch by its number, if they differ."""
    if upcoming is None or upcoming.shapes is None:
        return None
    shape = upcoming.shapes.of_batch
    return lambda number: shape(number).samples


def _first_load(spec: LoaderSpec, first: int) -> float:
    """Return the hardware decoder's share of the first batch, if batches have different sizes.

    It takes as many images of each batch as its share of the first one that the pipeline decodes,
    rounded up to its number of engines, and its pixels differ from those of the CUDA cores. So
    this number must be the same wherever a run begins.

    Args:
        spec: what the loader is built from.
        first: images of the first batch.

    """
    plan = spec.order.shaped
    load = spec.options.hw_decoder_load
    if plan is None:
        return load
    sizes = [whole // spec.options.ranks.world_size for whole in plan.wholes]
    images = min(*sizes, round(load * sum(sizes) / len(sizes)))
    # A little more than the share, so that its product with the batch is not less than the number.
    return min(1.0, (images + 0.25) / first) if images else 0.0


def first_frames(spec: LoaderSpec) -> Ints | None:
    """Return the number of the first frame of the clip of each sample of a batch, if it has clips."""
    numbers = np.arange(spec.options.batch_size)
    return None if spec.order.clipped is None else numbers - numbers % spec.order.unit


def take_batch(lanes: Lanes, split: OpenSplit, check_shards: Callable[[], None] | None) -> Any:
    """Return DALI's outputs for the next batch, and let DALI start another one.

    Args:
        lanes: the pipelines.
        split: the split that they read, for error messages.
        check_shards: checks shards that DALI has mapped; `None` if it maps none.

    Raises:
        DamagedError: an image cannot be decoded, or a record cannot be read.

    """
    try:
        outputs = lanes.take()
        if check_shards is not None:
            check_shards()
        lanes.schedule()
    except (RuntimeError, StopIteration) as error:
        raise translate_error(error, split) from error
    return outputs


def _index_error(error: RuntimeError, split: OpenSplit) -> Exception:
    """Return what an error before the first record means: no record has been read, so it is in an index file."""
    translated = translate_error(error, split)
    if isinstance(translated, IndexFileError):
        return translated
    if isinstance(translated, DamagedError):
        message = translated.message.replace("a record", "an index file")
        return IndexFileError(message, file=translated.file, hint=_VERIFY)
    return error


#: What pipelines do, in order. Each one contains the ones before it.
Stage: TypeAlias = Literal["reading", "decoding", "augmentation"]


def start_stage(spec: LoaderSpec, stage: Stage) -> Lanes:
    """Build pipelines that end after a stage, and let DALI start their first batches.

    They have the loader's reader, threads, prefetching and random numbers.

    Args:
        spec: what the loader is built from.
        stage: ``"reading"`` reads every byte of the images, ``"decoding"`` also decodes them, or
            with raw pixels copies them to the device, and ``"augmentation"`` is the whole pipeline.

    Raises:
        IndexFileError: DALI cannot read an index file.

    """
    if stage == "augmentation":
        return start_pipelines(spec, Progress.start(spec.order.batches))
    options = replace(spec.options, pipelines=1)
    seed = derive_seed(options.seed, 0, options.ranks.rank)
    pipeline = new_pipeline(options, seed)
    with pipeline:
        records = add_reader(spec, spec.order.upcoming(0, 0), seed=seed, started=0)
        if stage == "reading":
            # Images are mapped: without an operator that reads them, nothing would come from the
            # disk.
            result = fn.reductions.max(records.encoded)
        else:
            context = replace(
                new_context(options, RandomStreams(seed)),
                bucket=records.bucket,
                known=records.known,
            )
            result = apply(spec.fusion.operations[0], records.encoded, ImageSpec(), context)
        pipeline.set_outputs(result, *records.metadata)
    pipeline.build()
    lanes = Lanes((pipeline,))
    lanes.start()
    return lanes
