"""The loader that a command measures: the arguments of `loaders.build` that its options give."""

from __future__ import annotations

from typing import Any

from loaders.cache.open import open_anywhere
from loaders.dataset.split import OpenSplit
from loaders.dataset.tables import SampleTables
from loaders.options import BuildRequest
from loaders.transforms.argument import parse_transforms
from manifests.errors import CallError

#: Default batch size. A smaller split is one batch.
_BATCH_SIZE = 256

#: With fewer images if they are large: bytes of a batch of whole images, of which several are in
#: memory at a time.
_BATCH_BYTES = 1 << 30


def make_request(
    dataset: str,
    *,
    transforms: str,
    split: str,
    batch_size: int | None,
    device: Any,
    cache: str | None = None,
) -> BuildRequest:
    """Return a request with the defaults of `loaders.build`, for one process.

    Raises:
        CallError: an option is wrong, or the dataset does not exist.
        DamagedError: the manifest or a table is damaged.
        StorageError: the object store or the cache cannot be used.

    """
    opened = open_anywhere(dataset, split, cache, None)
    fields = ("image", *opened.manifest.labels.fields[:1])
    if batch_size is None and not _config_has_batch_size(transforms, split):
        batch_size = _default_batch_size(opened)
    return BuildRequest(
        dataset=dataset,
        mix=None,
        split=split,
        batch_size=batch_size,
        transforms=transforms,
        sampler=None,
        shuffle=None,
        device=device,
        device_id=None,
        rank=0,
        world_size=1,
        seed=0,
        num_threads=None,
        dtype="float16",
        layout="NCHW",
        last_batch="drop",
        fields=fields,
        framework="torch",
        prefetch=None,
        hw_decoder_load=None,
        memory_limit=None,
        on_error="raise",
        cache=cache,
    )


def _default_batch_size(split: OpenSplit) -> int:
    tables = SampleTables(split)
    sizes = tables.image_sizes() if split.samples else None
    tables.close()
    mean = 3 * sizes.mean_pixels if sizes else 0
    fitting = _BATCH_BYTES / mean if mean > 0 else _BATCH_SIZE
    size = next((2**n for n in range(8, 0, -1) if 2**n <= fitting), 1)
    return max(1, min(size, split.samples))


def _config_has_batch_size(transforms: str, split: str) -> bool:
    """Return whether the transforms are a PaddleClas config that gives a batch size, which its sampler may need."""
    try:
        return parse_transforms(transforms, split=split).batch_size is not None
    except CallError:  # `resolve` raises it again, if it is one
        return False
