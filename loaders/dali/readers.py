"""Read encoded images and labels: in the order of a sampler's plan, or in stored order.

DALI asks for one batch after the other (`PlannedBatches`). A thread prepares what it will ask for
next.
"""

from __future__ import annotations

import atexit
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any, Generic, TypeAlias, TypeVar

import numpy as np
import nvidia.dali.tensors as _tensors
import nvidia.dali.tfrecord as _tfrecord

from loaders.arrays import Bools, Bytes, Float32s, Ints
from loaders.dali.graph import Node, ReaderOutputs, dali, fn, types
from loaders.dataset.files import MappedRanges
from loaders.dataset.images import COPIED_BYTES, Encoded, Images, do_nothing
from loaders.dataset.split import OpenSplit
from loaders.progress import ONE_LANE, Lane, Shapes, Upcoming
from loaders.ranks import Ranks
from loaders.samplers.draws import permutation

if TYPE_CHECKING:
    from loaders.spec import LoaderSpec

# DALI's type stubs are incomplete.
TensorCPU: Any = _tensors.TensorCPU
TensorListCPU: Any = _tensors.TensorListCPU

#: Returns the rows of a batch by its number, counted from the start of the lanes.
RowsOf: TypeAlias = Callable[[int], Ints]

#: Batches that are prepared before DALI asks for them. Their images are views of memory-mapped
#: shards, or copies if the shards are read instead.
PREPARED_BATCHES = 2

#: Batches whose images are located before a second thread copies them, if the images are small and raw.
#: Raw images of 96x96 per second on an H200, batches of 256: 99,000 with one thread for both, 126,000
#: with two.
LOCATED_BATCHES = 1

#: Number of batches for which a planned reader asks the operating system to load images into memory
#: in advance.
READ_AHEAD_BATCHES = 8


def add_reader(
    spec: LoaderSpec, upcoming: Upcoming | None, *, seed: int, started: int, lane: Lane = ONE_LANE
) -> ReaderOutputs:
    """Add the reader of a loader to the graph: DALI's own for the stored order, otherwise one that follows a sampler.

    Args:
        spec: what the loader is built from.
        upcoming: the batches of all lanes; `None` for the stored order.
        seed: seed of the order within the shuffle buffer of DALI's own readers.
        started: epoch of the first batch.
        lane: which of the batches to read. The stored order has one lane.

    """
    if upcoming is None:
        return read_stored(
            spec.split,
            spec.options.ranks,
            shuffle=spec.order.restarts,
            seed=seed,
            shard_seed=spec.options.seed,
            started=started,
            mmap=spec.options.mmap,
            with_label=spec.fields.stored_label,
            with_source=spec.fields.source,
            others=spec.fields.others,
        )
    if spec.images is None:
        raise TypeError("a planned order needs images")
    return read_planned(
        upcoming,
        spec.images,
        prefetch=spec.options.prefetch,
        others=spec.fields.others,
        present=spec.fields.present,
        lane=lane,
    )


def derive_seed(*numbers: int) -> int:
    """Derive a seed for DALI, from 0 to 2**31 - 1, from integers of at least 0."""
    return int(np.random.SeedSequence(numbers).generate_state(1)[0] >> 1)


def read_planned(
    upcoming: Upcoming,
    images: Images,
    *,
    prefetch: int,
    others: Sequence[str],
    present: Mapping[str, Callable[[Ints], Bools]],
    lane: Lane,
) -> ReaderOutputs:
    """Add a reader to the graph that returns the batches of a sampler's plan.

    Args:
        upcoming: the batches.
        images: random access to the encoded images.
        prefetch: batches that the pipeline computes ahead of the one in use.
        others: names of the other images of a sample that fields need.
        present: which of some rows have an image, for images that not all samples have.
        lane: which of the batches to return.

    """
    remembered = READ_AHEAD_BATCHES + LOCATED_BATCHES + PREPARED_BATCHES + prefetch + 2
    rows_of = lru_cache(remembered)(upcoming.rank_rows)
    batches = PlannedBatches(upcoming, rows_of, images, prefetch, lane=lane)
    kwargs: dict[str, Any] = {"batch": True, "batch_info": True, "no_copy": True}
    # Several sources, so that DALI drops the ones that no output needs.
    encoded = fn.external_source(batches.images, dtype=types.UINT8, ndim=1, **kwargs)
    row = fn.external_source(batches.rows, dtype=types.INT64, ndim=0, **kwargs)
    bucket = known = None
    if upcoming.shapes is not None:
        bucket, known = _read_buckets(upcoming.shapes, rows_of, lane)
    nodes = {}
    for name in others:
        of_name = PlannedBatches(upcoming, rows_of, images, prefetch, lane=lane, component=name)
        nodes[name] = fn.external_source(of_name.images, dtype=types.UINT8, ndim=1, **kwargs)
    there = {}
    for name, are_present in present.items():
        source = _presence_of(rows_of, are_present, lane)
        there[name] = fn.external_source(
            source, dtype=types.UINT8, ndim=0, batch=True, batch_info=True
        )
    return ReaderOutputs(encoded, row=row, bucket=bucket, known=known, others=nodes, present=there)


def _presence_of(
    rows_of: RowsOf, present: Callable[[Ints], Bools], lane: Lane
) -> Callable[[Any], Bytes]:
    """Return a source of 1 for each sample of a batch that has an image, else 0: uint8 [B]."""
    return lambda batch: present(rows_of(lane.number(batch.iteration))).astype(np.uint8)


def _read_buckets(
    shapes: Shapes, rows_of: RowsOf, lane: Lane
) -> tuple[Node, Callable[[int], Sequence[Float32s]]]:
    """Return `bucket` and `known` of `ReaderOutputs`."""

    def of_bucket(number: int) -> Float32s:
        shape = shapes.of_batch(number)
        return np.full((shape.samples, 2), (shape.height, shape.width), np.float32)

    def known(number: int) -> Sequence[Float32s]:
        return shapes.sides[rows_of(number)], of_bucket(number)

    bucket = fn.external_source(
        lambda batch: of_bucket(lane.number(batch.iteration)),
        dtype=types.FLOAT,
        ndim=1,
        batch=True,
        batch_info=True,
    )
    return bucket, known


class PlannedBatches:
    """The callbacks of `fn.external_source`.

    DALI calls them once per batch, on the thread that uses the loader.
    """

    def __init__(
        self,
        upcoming: Upcoming,
        rows_of: RowsOf,
        images: Images,
        prefetch: int,
        *,
        lane: Lane,
        component: str = "",
    ) -> None:
        """Prepare to return batches.

        Args:
            upcoming: the batches.
            rows_of: returns the rows of a batch by its number; remembers the rows of the last batches.
            images: random access to the images.
            prefetch: batches that the pipeline computes ahead of the one in use.
            lane: which of the batches to return.
            component: name of the image of each sample; empty for the first one.

        """
        pipeline = dali.Pipeline.current()
        # Batches whose arrays must stay alive, because DALI uses them without a copy (`no_copy`).
        used = prefetch + 2
        self._upcoming = upcoming
        self._rows_of = rows_of
        self._images = images
        self._lane = lane
        # Images of an object store are fetched ahead anyway, and Ctrl-C must end the wait for them.
        kept = used
        if not images.is_remote:
            kept += PREPARED_BATCHES
        locate: Callable[[int], _Located] = _Locations(rows_of, images, lane, component)
        threads: list[Ahead[Any]] = []
        if images.gathers and not component:
            locate = Ahead(locate, LOCATED_BATCHES, "located images")
            threads.append(locate)
        prepare = _Preparation(locate, kept)
        self._prepared: Callable[[int], tuple[Any, Callable[[], None]]] = prepare
        if not images.is_remote:
            self._prepared = Ahead(prepare, PREPARED_BATCHES, "images")
            threads.append(self._prepared)
        for thread in threads:
            # DALI's objects, which refer to this one, may wait for the garbage collector. The
            # pipeline does not.
            weakref.finalize(pipeline, thread.stop).atexit = False
        self._threads = threads
        self._release = prepare.release
        # For `release`.
        pipeline.planned_batches = [*getattr(pipeline, "planned_batches", ()), self]
        self._alive: deque[Any] = deque(maxlen=used)

    def release(self) -> None:
        """Release the images, which keep their shards mapped. DALI must not use them any more."""
        # The last thread waits for the values of the one before.
        for thread in reversed(self._threads):
            thread.close()
        self._release()

    @property
    def ready(self) -> int:
        """Batches whose images are ready for DALI."""
        return getattr(self._prepared, "ready", 0)

    def rows(self, batch: Any) -> Ints:
        """Return the rows of a batch, int64 [B]; `batch` is DALI's ``BatchInfo``."""
        rows = self._rows_of(self._lane.number(batch.iteration))
        self._alive.append(rows)
        return rows

    def images(self, batch: Any) -> Any:
        """Return the encoded images of a batch as DALI's tensor list, uint8 [bytes] per sample."""
        self._images.follow(self._lane.number(batch.iteration), self._upcoming)
        tensors, check_readable = self._prepared(batch.iteration)
        check_readable()
        return tensors


#: The images of a batch, and a function that checks that they can be read.
_Located: TypeAlias = "tuple[list[Encoded] | MappedRanges, Callable[[], None]]"


class _Locations:
    """Locates the images of a batch, and lets the system read the next batches from disk."""

    def __init__(self, rows_of: RowsOf, images: Images, lane: Lane, component: str) -> None:
        self._rows_of = rows_of
        self._images = images
        self._lane = lane
        self._component = component
        self._requested = 0

    def __call__(self, run: int) -> _Located:
        following = run + READ_AHEAD_BATCHES // self._lane.count + 1
        for coming in range(max(run, self._requested), following):
            self._images.prefetch(self._rows_of(self._lane.number(coming)), self._component)
        self._requested = following
        rows = self._rows_of(self._lane.number(run))
        return self._images.images_to_check(rows, self._component)


class _Preparation:
    """Makes the located images of a batch ready for DALI."""

    def __init__(self, locate: Callable[[int], _Located], kept: int) -> None:
        self._locate = locate
        # To release the images of a batch takes 0.1 ms, so the thread that prepares does it.
        self._alive: deque[Any] = deque(maxlen=kept)

    def release(self) -> None:
        """Release the images of the batches in use."""
        self._alive.clear()

    def __call__(self, run: int) -> tuple[Any, Callable[[], None]]:
        """Return the images of a batch as DALI's tensor list, and a function that checks that they can be read."""
        located, check_readable = self._locate(run)
        if isinstance(located, MappedRanges):
            # The caller checks images that DALI reads later; these are copied now.
            check_readable()
            images = _tensor_list(located.gather())
            check_readable = do_nothing
        else:
            images = _tensor_list(located)
        self._alive.append(images)
        return images, check_readable


def _tensor_list(encoded: list[Encoded] | Bytes) -> Any:
    """Return images as DALI's tensor list, which keeps their memory: one array if they are small and raw."""
    if isinstance(encoded, list):
        size = len(encoded[0])
        if size <= COPIED_BYTES and all(len(each) == size for each in encoded):
            encoded = np.stack(encoded)
    if isinstance(encoded, np.ndarray):
        return TensorListCPU(encoded, "")
    # DALI takes a list of arrays too, but converts it when it asks for the batch, in 1 ms for 256
    # images.
    return TensorListCPU([*map(TensorCPU, encoded)], "", contiguous=False)


# DALI's type stubs are incomplete.
tfrecord: Any = _tfrecord

#: The native reader's name in the pipeline.
READER = "reader"

#: What the draw of the order of shards is for: the last number of its key.
_SHARD_ORDER = 3

#: Size of the buffer that a shuffling native reader draws from, in samples.
SHUFFLE_BUFFER = 1024


def read_stored(
    split: OpenSplit,
    ranks: Ranks,
    *,
    shuffle: bool,
    seed: int,
    shard_seed: int,
    started: int,
    with_label: bool,
    with_source: bool,
    others: Sequence[str] = (),
    mmap: bool = True,
) -> ReaderOutputs:
    """Add the native reader of a split to the graph.

    Args:
        split: the split to read.
        ranks: which part of the split this rank reads.
        shuffle: whether to shuffle.
        seed: seed of the order within the shuffle buffer.
        shard_seed: seed of the order of the shards; the same on all ranks.
        started: epoch of the first batch.
        with_label: whether to read the labels that the shards store.
        with_source: whether to return the file and position of each record.
        others: names of the other images of a sample to read, which all samples have.
        mmap: whether to map the shards instead of reading them.

    """
    kwargs: dict[str, Any] = {
        "name": READER,
        # DALI moves on to the next part after every epoch, so any epoch has the same part as if
        # epoch 0 had been first.
        "shard_id": ranks.part(started),
        "num_shards": ranks.world_size,
        # Epochs end at a batch boundary on all ranks at once, so each epoch contains every sample
        # once.
        "pad_last_batch": True,
        "random_shuffle": shuffle,
        "initial_fill": SHUFFLE_BUFFER,
        "seed": seed,
        "dont_use_mmap": not mmap,
    }
    shards = split.shards
    if shuffle:
        shards = tuple(
            shards[number] for number in permutation(len(shards), shard_seed, started, _SHARD_ORDER)
        )
    label = None
    if with_label:
        label = split.manifest.components.label
    images = [";".join(split.manifest.components.image)]
    for name in others:
        images.append(";".join(split.manifest.components_of(name)))
    paths = []
    indexes = []
    for shard in shards:
        paths.append(split.path(shard.file))
        indexes.append(split.path(shard.index))
    read = _read_webdataset
    if split.manifest.format == "tfrecord":
        read = _read_tfrecord
    encoded, *nodes = read(images, label, paths, indexes, kwargs)
    labels = nodes.pop() if label is not None else None
    source = None
    if with_source:
        source = fn.pad(fn.get_property(encoded, key="source_info"))
    return ReaderOutputs(encoded, labels, source, others=dict(zip(others, nodes, strict=True)))


def _read_tfrecord(
    images: Sequence[str],
    label: str | None,
    paths: Sequence[str],
    indexes: Sequence[str],
    kwargs: dict[str, Any],
) -> Sequence[Node]:
    features = {}
    for name in images:
        features[name] = tfrecord.FixedLenFeature((), tfrecord.string, "")
    if label is not None:
        # With shape [1], a record without the feature gives an empty tensor. With a scalar it would
        # give 0.
        features[label] = tfrecord.FixedLenFeature([1], tfrecord.int64, -1)
    outputs = fn.readers.tfrecord(path=paths, index_path=indexes, features=features, **kwargs)
    return [outputs[name] for name in features]


def _read_webdataset(
    images: Sequence[str],
    label: str | None,
    paths: Sequence[str],
    indexes: Sequence[str],
    kwargs: dict[str, Any],
) -> Sequence[Node]:
    extensions = [*images]
    if label is not None:
        extensions.append(label)
    outputs = fn.readers.webdataset(
        paths=paths,
        index_paths=indexes,
        ext=extensions,
        case_sensitive_extensions=False,
        missing_component_behavior="error",
        **kwargs,
    )
    nodes = list(outputs) if isinstance(outputs, (list, tuple)) else [outputs]
    if label is not None:
        nodes[-1] = fn.pad(nodes[-1])
    return nodes


T = TypeVar("T")

#: Numbers to compute. `None` ends the thread.
_Jobs: TypeAlias = "SimpleQueue[int | None]"

#: Numbers with their values or errors. The last one, without a number, says that the thread has
#: ended.
_Values: TypeAlias = "SimpleQueue[tuple[int | None, Any, BaseException | None]]"

#: Seconds that a thread waits before it works, if it had nothing to do for plenty of time.
#: Otherwise it would take the interpreter's lock from the thread that has just asked for a value,
#: each time that one enters a call that releases the lock: `next` of a loader took 1 ms longer.
_PAUSE, _PLENTY = 0.002, 0.008

#: The threads that run, and their jobs.
_running: dict[threading.Thread, _Jobs] = {}


class Ahead(Generic[T]):
    """A function of a batch's number whose values for the next numbers are computed in advance.

    The numbers are asked for in increasing order. An error is raised when its own number is asked
    for, and no earlier. The thread ends when this object is no longer used, or when `stop` is
    called.
    """

    # Neither an executor nor futures: Python code holds their locks, so Ctrl-C may leave them
    # locked for ever, and the garbage collector must not wait for an executor's lock. `SimpleQueue`
    # waits in C.

    def __init__(self, compute: Callable[[int], T], ahead: int, name: str) -> None:
        """Start no thread yet.

        Args:
            compute: the function. One thread at a time calls it. It must not refer to this object.
            ahead: number of values to compute in advance.
            name: name of the thread.

        """
        self._ahead = ahead
        self._jobs: _Jobs = SimpleQueue()
        self._values: _Values = SimpleQueue()
        self._requested = 0
        arguments = ([compute], self._jobs, self._values)
        self._thread = threading.Thread(target=_work, args=arguments, name=name, daemon=True)
        self._started = False
        weakref.finalize(self, _stop, self._jobs).atexit = False

    def __call__(self, number: int) -> T:
        """Return the value of a number, and let the thread compute the next ones.

        Raises:
            RuntimeError: the thread was stopped before.

        """
        if not self._started:
            self._started = True
            _running[self._thread] = self._jobs
            try:
                self._thread.start()
            except RuntimeError:  # The system permits no more threads.
                del _running[self._thread]
                self._started = False
                raise
        following = number + self._ahead + 1
        for coming in range(max(number, self._requested), following):
            self._jobs.put(coming)
        self._requested = following
        while True:
            computed, value, error = self._values.get()
            if computed == number:
                break
            if computed is None:
                self._values.put((None, None, None))
                raise RuntimeError(f"the thread {self._thread.name!r} has ended")
        if error is None:
            found: T = value
            return found
        try:
            raise error
        finally:
            del error  # its traceback refers to this frame

    @property
    def ready(self) -> int:
        """Values that were computed and not asked for yet."""
        return self._values.qsize()

    def stop(self) -> None:
        """End the thread after the value that is being computed, without waiting for it."""
        _stop(self._jobs)

    def close(self) -> None:
        """End the thread, wait for it, and release all values."""
        _stop(self._jobs)
        if self._started:
            self._thread.join()
        while not self._values.empty():
            self._values.get()


def _work(functions: list[Callable[[int], Any]], jobs: _Jobs, values: _Values) -> None:
    compute = functions.pop()
    idle = time.monotonic()
    while (number := jobs.get()) is not None:
        if jobs.empty() and time.monotonic() - idle > _PLENTY:
            time.sleep(_PAUSE)
        try:
            values.put((number, compute(number), None))
        except BaseException as error:
            values.put((number, None, error))
        idle = time.monotonic()
    # What only the function refers to is released here, while `_stop_all` still waits for this
    # thread.
    del compute
    values.put((None, None, None))
    _running.pop(threading.current_thread(), None)


def _stop(jobs: _Jobs) -> None:
    """End a thread after the value that is being computed.

    Does not wait: the garbage collector calls this too.
    """
    try:
        while True:
            jobs.get_nowait()
    except Empty:
        jobs.put(None)


def _stop_all() -> None:
    """Wait for all threads: one that is in DALI while Python ends would use what is already gone."""
    for thread, jobs in list(_running.items()):
        _stop(jobs)
        if thread.ident is not None:
            thread.join()


atexit.register(_stop_all)
