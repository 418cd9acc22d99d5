"""Read encoded images and labels: in the order of a sampler's plan, or in stored order, which `stored_reader` does.

DALI asks for one batch after the other (`PlannedBatches`). A thread prepares what it will ask for
next.
"""

from __future__ import annotations

import weakref
from collections import deque
from collections.abc import Callable
from functools import lru_cache
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import nvidia.dali.tensors as _tensors
from numpy.typing import NDArray

from loaders.cache.images import CachedImages, CachedLabelImages
from loaders.cache.joined import JoinedImages
from loaders.dali.ahead import Ahead
from loaders.dali.graph import ReaderOutputs, dali, fn, types
from loaders.dali.stored_reader import read_stored
from loaders.dataset.records import LastBytes, Records
from loaders.samplers.order import PlannedOrder, StoredOrder, Upcoming

if TYPE_CHECKING:
    from loaders.spec import Images, LoaderSpec

# DALI's type stubs are incomplete.
TensorCPU: Any = _tensors.TensorCPU
TensorListCPU: Any = _tensors.TensorListCPU

#: Returns the rows of a batch by its number, counted from the start of the pipeline.
RowsOf: TypeAlias = Callable[[int], NDArray[np.int64]]

#: Batches that are prepared before DALI asks for them. Their images are views of memory-mapped
#: shards, or copies if the shards are read instead.
PREPARED_BATCHES = 2

#: Number of batches for which a planned reader asks the operating system to load images into memory
#: in advance.
READ_AHEAD_BATCHES = 8


def add_reader(spec: LoaderSpec, *, seed: int, started: int, skipped: int = 0) -> ReaderOutputs:
    """Add the reader of a loader to the graph: DALI's own for the stored order, otherwise one that follows a sampler.

    Args:
        spec: what the loader is built from.
        seed: seed of the order within the shuffle buffer of DALI's own readers.
        started: epoch of the first batch.
        skipped: batches of that epoch that come before the first batch. 0 for the stored order.

    """
    if isinstance(spec.order, StoredOrder):
        return read_stored(
            spec.split,
            spec.order,
            seed=seed,
            shard_seed=spec.options.seed,
            started=started,
            mmap=spec.options.mmap,
            with_label=spec.fields.stored_label,
            with_source=spec.fields.source,
            with_label_image=spec.fields.label_image is not None,
        )
    if spec.records is None:
        raise TypeError("a planned order needs records")
    return read_planned(
        spec.order,
        spec.records,
        started=started,
        skipped=skipped,
        prefetch=spec.options.prefetch,
        label_images=spec.label_images,
    )


def derive_seed(*numbers: int) -> int:
    """Derive a seed for DALI, from 0 to 2**31 - 1, from integers of at least 0."""
    return int(np.random.SeedSequence(numbers).generate_state(1)[0] >> 1)


def read_planned(
    planned: PlannedOrder,
    records: Images,
    *,
    started: int,
    prefetch: int,
    skipped: int = 0,
    label_images: Images | None = None,
) -> ReaderOutputs:
    """Add a reader to the graph that returns the batches of a sampler's plan.

    Args:
        planned: the batches.
        records: random access to the encoded images.
        started: the epoch of the pipeline's first batch.
        prefetch: batches that the pipeline computes ahead of the one in use.
        skipped: batches of the epoch `started` that come before the first batch.
        label_images: random access to the masks or depth maps. `None` if no field needs them.

    """
    upcoming = Upcoming(
        rank_rows=lambda run: planned.rank_rows(skipped + run, started),
        global_rows=lambda run: planned.global_rows(skipped + run, started),
        batches=planned.batches,
        batch_size=planned.batch_size,
    )
    rows_of = lru_cache(READ_AHEAD_BATCHES + PREPARED_BATCHES + prefetch + 2)(upcoming.rank_rows)
    batches = PlannedBatches(upcoming, rows_of, records, prefetch)
    kwargs: dict[str, Any] = {"batch": True, "batch_info": True, "no_copy": True}
    # Several sources, so that DALI drops those that no output needs.
    encoded = fn.external_source(batches.images, dtype=types.UINT8, ndim=1, **kwargs)
    row = fn.external_source(batches.rows, dtype=types.INT64, ndim=0, **kwargs)
    if label_images is None:
        return ReaderOutputs(encoded, row=row)
    of_labels = PlannedBatches(upcoming, rows_of, label_images, prefetch)
    label_image = fn.external_source(of_labels.images, dtype=types.UINT8, ndim=1, **kwargs)
    return ReaderOutputs(encoded, row=row, label_image=label_image)


class PlannedBatches:
    """The callbacks of `fn.external_source`.

    DALI calls them once per batch, on the thread that uses the loader.
    """

    def __init__(self, upcoming: Upcoming, rows_of: RowsOf, records: Images, prefetch: int) -> None:
        """Prepare to return batches.

        Args:
            upcoming: the batches.
            rows_of: returns the rows of a batch by its number; remembers those of the last batches.
            records: random access to the images.
            prefetch: batches that the pipeline computes ahead of the one in use.

        """
        pipeline = dali.Pipeline.current()
        self._upcoming, self._rows_of, self._records = upcoming, rows_of, records
        # Images of an object store are fetched ahead anyway, and Ctrl-C must end the wait for them.
        with_thread = not isinstance(records, (CachedImages, CachedLabelImages, JoinedImages))
        prepare = _Preparation(
            rows_of, records, _used_batches(prefetch) + (PREPARED_BATCHES if with_thread else 0)
        )
        self._prepared: _Preparation | Ahead[tuple[Any, LastBytes | None]] = prepare
        if with_thread:
            self._prepared = ahead = Ahead(prepare, PREPARED_BATCHES, "images", prepare.release)
            # DALI's objects, which refer to this one, may wait for the garbage collector. The
            # pipeline does not.
            weakref.finalize(pipeline, ahead.stop).atexit = False
        # For `release`.
        pipeline.planned_batches = [*getattr(pipeline, "planned_batches", ()), self]
        self._alive: deque[Any] = deque(maxlen=_used_batches(prefetch))

    def release(self) -> None:
        """Release the images, which keep their shards mapped. DALI must not use them any more."""
        if isinstance(self._prepared, Ahead):
            self._prepared.close()
        else:
            self._prepared.release()

    def rows(self, batch: Any) -> NDArray[np.int64]:
        """Return the rows of a batch, int64 [B]; `batch` is DALI's ``BatchInfo``."""
        rows = self._rows_of(batch.iteration)
        self._alive.append(rows)
        return rows

    def images(self, batch: Any) -> Any:
        """Return the encoded images of a batch as DALI's tensor list, uint8 [bytes] per sample."""
        number = batch.iteration
        if isinstance(self._records, (CachedImages, CachedLabelImages, JoinedImages)):
            self._records.follow(number, self._upcoming)
        tensors, needed = self._prepared(number)
        if needed is not None and isinstance(self._records, Records):
            self._records.check_readable(needed)
        return tensors


class _Preparation:
    """Makes the images of a batch ready for DALI, and lets the system read those of later batches from disk."""

    def __init__(self, rows_of: RowsOf, records: Images, kept: int) -> None:
        self._rows_of, self._records = rows_of, records
        self._requested = 0
        # To release the images of a batch takes 0.1 ms, so the thread that prepares does it.
        self._alive: deque[Any] = deque(maxlen=kept)

    def release(self) -> None:
        """Release the images of the batches in use."""
        self._alive.clear()

    def __call__(self, number: int) -> tuple[Any, LastBytes | None]:
        """Return the images of a batch as DALI's tensor list, and the part of the shards that they need."""
        if not isinstance(self._records, (CachedImages, CachedLabelImages)):
            for coming in range(max(number, self._requested), number + READ_AHEAD_BATCHES + 1):
                self._records.prefetch(self._rows_of(coming))
            self._requested = number + READ_AHEAD_BATCHES + 1
        rows = self._rows_of(number)
        if isinstance(self._records, Records):
            encoded, needed = self._records.images_to_check(rows)
        else:
            encoded, needed = self._records.images(rows), None
        # DALI takes a list of arrays too, but converts it when it asks for the batch, in 1 ms for
        # 256 images.
        tensors = [*map(TensorCPU, encoded)]
        images = TensorListCPU(tensors, "", contiguous=False)
        self._alive.append(images)
        return images, needed


def _used_batches(prefetch: int) -> int:
    """Return for how many batches arrays must stay alive, because DALI uses them without a copy (`no_copy`)."""
    return prefetch + 2
