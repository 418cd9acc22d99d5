"""Find out which images DALI cannot decode, after a batch with one of them has failed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from loaders.dali.decode import decode
from loaders.dali.decode_errors import decode_failure
from loaders.dali.graph import GraphContext, RandomStreams, dali, fn, types
from loaders.transforms.fuse import DecodeCrop

if TYPE_CHECKING:
    from loaders.dataset.records import Records
    from loaders.resolve import LoaderSpec

#: Images that are decoded together as long as all of them are intact.
_TOGETHER = 32


def find_bad_images(spec: LoaderSpec, records: Records, rows: Sequence[int]) -> dict[int, str]:
    """Decode images one by one, whole, on the device of the loader.

    Args:
        spec: what the loader was built from.
        records: random access to the encoded images.
        rows: rows of the images in the split.

    Returns:
        Why an image cannot be decoded, by row. Empty if all can.

    Raises:
        ShardError: a shard is missing or has changed.
        RuntimeError: the device fails for another reason than an image.

    """
    bad: dict[int, str] = {}
    for first in range(0, len(rows), _TOGETHER):
        part = np.asarray(rows[first : first + _TOGETHER], np.int64)
        images = records.images(part)
        if _failure(spec, images) is None:
            continue
        for row, image in zip(part.tolist(), images, strict=True):
            reason = _failure(spec, [image])
            if reason is not None:
                bad[row] = reason
    return bad


def _failure(spec: LoaderSpec, images: Sequence[NDArray[np.uint8]]) -> str | None:
    """Return why DALI cannot decode these images; `None` if it can."""
    options, first = spec.options, spec.fusion.operations[0]
    whole: Any = first.decode if isinstance(first, DecodeCrop) else first
    pipeline = dali.Pipeline(
        batch_size=len(images),
        num_threads=options.num_threads if len(images) > 1 else 1,
        device_id=options.device.index if options.device.is_gpu else None,
        prefetch_queue_depth=1,
        exec_dynamic=True,
    )
    context = GraphContext(gpu=options.device.is_gpu, batch_size=len(images), random=RandomStreams(0))
    with pipeline:
        encoded = fn.external_source(lambda: images, dtype=types.UINT8, ndim=1, batch=True)
        pipeline.set_outputs(decode(encoded, whole, context, options.hw_decoder_load))
    try:
        pipeline.build()
        pipeline.run()
    except RuntimeError as error:
        reason = decode_failure(error)
        if reason is None:
            raise
        return reason
    return None
