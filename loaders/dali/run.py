"""Start a loader's pipeline at some progress, and take batches from it."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from functools import partial
from typing import Any

from loaders.dali.decode_errors import translate_error
from loaders.dali.graph import Pipeline
from loaders.dali.pipeline import make_pipeline
from loaders.dali.readers import add_reader, derive_seed
from loaders.dali.stored_reader import READER
from loaders.dataset.index_check import find_index_error
from loaders.dataset.split import OpenSplit
from loaders.progress import Progress
from loaders.spec import LoaderSpec
from manifests.errors import DamagedError, IndexFileError

_log = logging.getLogger(__name__)

_VERIFY = "run `dataprep verify` to find the damaged file"


def start_pipeline(spec: LoaderSpec, progress: Progress) -> Pipeline:
    """Build the pipeline for a loader's progress, and let DALI start its first batch.

    Raises:
        IndexFileError: DALI cannot read an index file, or it does not fit the manifest.

    """
    begin, options = time.monotonic(), spec.options
    started, skipped = progress.position.started, progress.position.skipped
    seed = derive_seed(options.seed, started, options.ranks.rank, *([skipped] if skipped else []))
    pipeline = make_pipeline(
        partial(add_reader, spec, seed=seed, started=started, skipped=skipped),
        spec.recipe,
        spec.fusion.operations,
        options,
        seed=seed,
        views=[each.operations for each in spec.view_fusions],
        checkpoint=progress.checkpoint,
        label_image=spec.fields.label_image,
        with_frames=spec.fields.has_boxes,
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
    pipeline.schedule_run()
    position = progress.position
    _log.info(
        "the pipeline is started in %.2f s, at batch %d", time.monotonic() - begin, position.batch
    )
    return pipeline


def take_batch(
    pipeline: Pipeline, split: OpenSplit, check_shards: Callable[[], None] | None
) -> Any:
    """Return DALI's outputs for the next batch, and let DALI start the one after it.

    Args:
        pipeline: the pipeline.
        split: the split that it reads, for error messages.
        check_shards: checks shards that DALI has mapped; `None` if it maps none.

    Raises:
        DamagedError: an image cannot be decoded, or a record cannot be read.

    """
    try:
        outputs = pipeline.share_outputs()
        pipeline.release_outputs()
        if check_shards is not None:
            check_shards()
        pipeline.schedule_run()
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
