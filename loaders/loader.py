"""The object that a training script iterates over.

`loaders.progress.Progress` documents its states, and `loaders.build` makes it.
"""

from __future__ import annotations

import logging
import os
import sys
import threading
import time
import weakref
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any, Generic, NoReturn

from loaders.bad_images import (
    BadSample,
    bad_images_message,
    describe_bad_samples,
    new_bad_images,
)
from loaders.batch import make_batch
from loaders.checkpoint import (
    State,
    checkpoint_choices,
    origin_of,
    read_state,
    sampling_choices,
)
from loaders.dali.bad_images import DecodeMemoryError, UndecodableError, is_checkpoint_error
from loaders.dali.pipeline import keep_pipelines, release_memory, start_pipelines, take_batch
from loaders.dataset.damage import ShardCheck
from loaders.dataset.images import Images
from loaders.dataset.split import DatasetInfo
from loaders.devices import load_framework
from loaders.explain import explain, html_table
from loaders.memory import RESERVATIONS, estimate_memory
from loaders.metrics import Meter, open_sink
from loaders.options import BatchT_co, ResolvedOptions, WrongCallError, require_int
from loaders.progress import Phase, Progress, Seen
from loaders.ranks import check_group, require_agreement
from loaders.receipt import read_receipt
from loaders.resolve import adjusted_spec
from loaders.spec import LoaderSpec
from loaders.transforms.base import Adjustment, Size
from loaders.transforms.parse.items import plain
from manifests.errors import CallError, DatasetError
from manifests.process.interrupts import delayed_interrupts

if TYPE_CHECKING:
    from loaders.preview import Preview

_log = logging.getLogger(__name__)

#: All loaders of this process.
_loaders: weakref.WeakSet[Loader[Any]] = weakref.WeakSet()


os.register_at_fork(after_in_child=lambda: keep_pipelines(loader._lanes for loader in _loaders))


class Loader(Generic[BatchT_co]):
    """An iterable of batches, which `loaders.build` creates and documents.

    Each ``for`` loop is one epoch. If you leave the loop early, the epoch is over: the next loop
    begins the next epoch, with another order if the loader shuffles. On several ranks, leave the
    loop at the same batch on all of them.

    Use a loader from one thread at a time, in the process that built it, and with one iterator at a
    time: the first batch that an iterator returns invalidates all earlier iterators. Close the
    loader, or use it as a context manager, to release its memory. `loaders.progress.Progress`
    documents the states of a loader.
    """

    def __init__(self, spec: LoaderSpec, *, alone: bool = False) -> None:
        """Start the pipeline. `loaders.build` calls this.

        Args:
            spec: what the loader is built from.
            alone: whether the other ranks have no such loader, so that the ranks do not compare
                their loaders before the first batch.

        Raises:
            CallError: the framework is not installed.
            DamagedError: DALI cannot read the index files.

        """
        self._spec = spec
        self._framework = load_framework(spec.options.framework)
        self._process = os.getpid()
        # DALI's readers do not check the shards that they have mapped.
        checks = not spec.order.is_planned and spec.options.mmap
        self._check_shards = ShardCheck(spec.split) if checks else None
        self._closed = False
        self._alone = alone
        #: Whether the loaders of the other ranks are known to agree with this one.
        self._agreed = alone
        #: Held while a thread begins an epoch or waits for a batch.
        self._working = _OneThread()
        #: Number of the iteration that a loop is in, -1 outside of a loop.
        self._looping = -1
        #: The exception that was being handled when the newest epoch was left, by its `id`.
        self._handled_at_leave: int | None = None
        self._progress = Progress.start(spec.order.batches)
        #: Why images could not be decoded, by their row in the split.
        self._errors: dict[int, str] = {}
        self._seen = Seen()
        self._meter: Meter | None = None
        if spec.options.metrics:
            ranks = spec.options.ranks
            sink = open_sink(spec.options.metrics, ranks)
            self._meter = Meter(spec.split.name, ranks.rank, sink, self._traffic)
        #: The pipelines; `None` if the loader is closed, or if they could not be started.
        self._lanes: Any = start_pipelines(spec, self._progress)
        _loaders.add(self)
        self._reserve_memory()
        closer.start()
        self._when_dropped = weakref.finalize(self, _close_dropped, spec.images, self._process)
        self._when_dropped.atexit = False

    def __iter__(self) -> Iterator[BatchT_co]:
        """Return an iterator.

        Its first batch begins the next epoch, or continues one that `load_state_dict` loaded.

        Raises:
            CallError: the loader is closed, was built in another process, or has another rank or
                world size than a process group that was initialized after it was built. The
                iterator raises it if a newer iterator has begun, or if the loaders of the ranks
                differ.
            DamagedError: the iterator raises it for an image that cannot be decoded or a label that
                cannot be read.

        """
        self._require_usable()
        return self._batches()

    def __len__(self) -> int:
        """Return the number of batches per epoch, which is equal on every rank."""
        return self._spec.order.batches

    @property
    def options(self) -> ResolvedOptions:
        """Every option of `loaders.build` with its final value."""
        return self._spec.options

    @property
    def classes(self) -> tuple[str, ...]:
        """The dataset's class names in label order. Empty if the dataset does not name them."""
        return self._spec.split.manifest.classes

    @property
    def samples(self) -> int:
        """Number of samples in the split, over all ranks."""
        return self._spec.split.samples

    @property
    def batch_size(self) -> int:
        """Number of samples per batch on this rank."""
        return self.options.batch_size

    @property
    def epoch(self) -> int:
        """Number of the epoch, from 0: within a loop of this loop, otherwise of the next loop.

        After `load_state_dict`, ``for epoch in range(loader.epoch, epochs)`` therefore continues
        with the right one.
        """
        progress = self._progress
        if self._looping == progress.iteration:
            return progress.position.epoch
        return progress.next_epoch

    @property
    def rank(self) -> int:
        """Number of this process among the processes that share an epoch, from 0."""
        return self.options.ranks.rank

    @property
    def world_size(self) -> int:
        """Number of processes that share an epoch."""
        return self.options.ranks.world_size

    @property
    def device(self) -> Any:
        """Where the tensors are: a device of torch, JAX or Paddle, or ``"cpu"`` for NumPy."""
        return self._framework.device(self.options.device)

    @property
    def dataset(self) -> DatasetInfo:
        """The dataset; its length is the number of samples in the split, over all ranks."""
        split = self._spec.split
        return DatasetInfo(
            split.folder, split.name, split.samples, self.classes, split.manifest.label_type
        )

    @property
    def split(self) -> str:
        """Name of the split."""
        return self._spec.split.name

    @property
    def errors(self) -> tuple[BadSample, ...]:
        """The images that could not be decoded, by row, also before a checkpoint was loaded.

        With ``on_error="skip"`` or ``"replace"``, the loader continued without them.

        Raises:
            TableError: a sample table is missing or damaged.

        """
        return describe_bad_samples(self._spec.split, self._errors)

    @property
    def spec(self) -> LoaderSpec:
        """Everything that was decided before the pipeline started."""
        return self._spec

    def set_epoch(self, epoch: int) -> None:
        """Set the number of the next epoch, from 0.

        Without this call, the number increases by one after each epoch.

        The epoch has the same order as in an uninterrupted run. If another epoch would have been
        next, the pipeline restarts, so the augmentation is not the same as in an uninterrupted run.

        Raises:
            CallError: `epoch` is not an integer of at least 0; or as for iterating.

        """
        epoch = require_int("epoch", epoch, 0)
        self._require_usable()
        if epoch != self._progress.next_epoch:
            self._restart(Progress.start(len(self), epoch, iteration=self._progress.iteration))

    def set(self, *, size: int | Size | None = None, magnitude: float | None = None) -> None:
        """Change the size of the images or the strength of the augmentation, from the next epoch.

        For progressive training, with one loader and one pipeline: call it between two loops. The
        pipeline restarts, unless nothing changes. A checkpoint contains the values, and
        `load_state_dict` sets them.

        Args:
            size: height and width of the images in pixels; one number for square images. Every
                crop, resize, padding and mask in the list is scaled in proportion, from the sizes
                as written. What lies before the first resize stays, because it works on images as
                they are stored. With views, it is the size of the first view, and the others are
                scaled alike. `None` changes nothing.
            magnitude: strength of the policies: `magnitude` of RandAugment, the section ``m`` of
                TimmAutoAugment, `severity` of AugMix, in the units of the list. `None` changes
                nothing.

        Raises:
            CallError: an epoch has begun and not ended; no transform has a size or a strength to
                change; the value is not possible; or the images no longer fit into `memory_limit`.
                The loader then stays as it was.

        """
        self._require_usable()
        spec = self._spec
        written = spec.written.outputs[0].size
        adjustment = spec.adjustment.changed(plain(size), plain(magnitude), written=written)
        if adjustment == spec.adjustment:
            return
        progress = self._progress.resumable
        looping = self._looping == self._progress.iteration
        # A checkpoint from another world size restarts the pipeline, also in the middle of an
        # epoch.
        moved = progress.phase is Phase.READY and progress.position.batch > 0
        if looping or moved or progress.phase in (Phase.RESUMED, Phase.READING, Phase.RUNNING):
            raise CallError(
                f"set() was called in the middle of epoch {self.epoch}",
                hint=(
                    "call it between two loops; with a checkpoint from the middle of an epoch,"
                    " after that epoch"
                ),
            )
        self._adjust(adjustment)
        with self._or_as_before(spec, progress):
            self._restart(Progress.start(len(self), progress.next_epoch))

    def state_dict(self) -> dict[str, Any]:
        """Return a checkpoint as plain values, which JSON can store: epoch, batch, pipeline.

        Pass it to `load_state_dict` of a loader that was built with the same arguments, also in a
        new process, to continue with the same batches bit for bit, including augmentation. Each
        rank saves and loads its own checkpoint. Within the loop over an epoch, the checkpoint is
        the one after the last batch that you received; also after an exception within a batch, and
        in the ``except`` or ``finally`` block of an exception that ended the loop. Once the loop
        was left by ``break``, the checkpoint is the beginning of the next epoch, which is where
        this loader itself continues.

        Raises:
            CallError: the loader is closed, or was built in another process.

        """
        self._require_usable()
        handled = sys.exception()
        interrupted = handled is not None and id(handled) != self._handled_at_leave
        progress = self._progress
        if not interrupted:
            progress = progress.resumable
        return State(
            checkpoint_choices(self._spec),
            progress.saved,
            progress.checkpoint,
            self._errors,
            self._spec.adjustment,
            self._spec.split.revisions,
            self._seen,
            origin_of(self._spec),
        ).to_dict()

    def receipt(self) -> dict[str, Any]:
        """Return what was trained on so far, as plain values, which JSON can store.

        ``"dataset"`` (folders, split, samples, 16 hex digits that identify its content, and
        revisions), ``"transforms"``, ``"sampler"``, ``"seed"`` and the other arguments that decide
        about the samples, ``"epochs"``, those that were read to the end, ``"samples_seen"``, over all
        ranks and epochs, and ``"seen"``: epoch, first batch and the batch after the last one, of
        batches in a row. `state_dict` contains the same, and ``loaders receipt`` prints it from a
        checkpoint file, or the keys of the samples.

        Raises:
            CallError: the loader is closed, or was built in another process.

        """
        return read_receipt(self.state_dict()).to_dict()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Resume from a checkpoint that `state_dict` returned.

        Raises:
            CallError: `state` is not a checkpoint, is damaged, or comes from a loader that was
                built with other arguments. With a sampler, rank, world size and batch size may
                differ if the global batch is the same; with ``on_error="skip"``, only at the end of
                an epoch. After an error, this loader continues after its own last complete batch.

        """
        self._require_usable()
        loaded = read_state(
            state,
            checkpoint_choices(self._spec),
            batches=len(self),
            samples=self.samples,
            revisions=self._spec.split.revisions,
        )
        try:
            with self._or_as_before(self._spec, self._progress.resumable):
                self._adjust(loaded.adjustment)
                self._leave_out(dict(loaded.errors))
                self._restart(Progress.restore(len(self), loaded.position, loaded.checkpoint))
                self._seen = loaded.seen
                # A rank may have loaded another state, or may be a new process.
                self._agreed = self._alone
        except Exception as error:
            if isinstance(error, DatasetError) or not is_checkpoint_error(error):
                raise
            raise CallError(
                "this state is damaged or of another version: DALI cannot restore its checkpoint",
                hint="load another checkpoint",
            ) from error

    def explain(self) -> str:
        """Describe what this loader does: transforms as written and as run, and why.

        Memory, threads, order.
        """
        return explain(self._spec)

    def preview(self, samples: int = 6, draws: int | None = None) -> Preview:
        """Show samples before and after the transforms, as this loader returns them.

        A second pipeline reads them; the state of this loader does not change. On several ranks,
        each may call this alone. If the sampler groups samples by a column, as `PKSampler` and
        `ClassBalancedSampler` do, they are the first batch of the epoch, grouped.
        Otherwise they are random, and the same for the same seed.

        Args:
            samples: number of samples, from 1 to 256; if the sampler groups them, number of groups.
            draws: results of the transforms for each sample, from 1 to 64. `None` means 4, and 1
                with groups.

        Returns:
            The pictures with key, label, and what was drawn for each: the region of a crop, flips,
            steps of a policy, weights of mixed labels. The object displays itself in a notebook;
            its method `save` writes a picture or HTML.

        Raises:
            CallError: an argument is wrong; or the loader is closed, or was built in another
                process.
            DamagedError: an image cannot be decoded.

        """
        from loaders.preview.draw import preview_spec

        self._require_usable()
        # The other ranks need not make a preview.
        open_loader = partial(Loader[Any], alone=True)
        return preview_spec(self._spec, open_loader, samples=samples, draws=draws, epoch=self.epoch)

    def close(self) -> None:
        """Stop reading and release the memory. Batches that you keep stay valid."""
        self._closed = True
        self._drop_pipeline()
        closer.finish()
        RESERVATIONS.remove(self)
        self._when_dropped.detach()
        self._spec.close()
        if os.getpid() == self._process:
            release_memory()

    def __enter__(self) -> Loader[BatchT_co]:
        self._require_usable()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        options = self.options
        split = self._spec.split
        text = (
            f"Loader of {split.folder!r}, split {split.name!r}: epoch {self.epoch}, {len(self):,}"
            f" batches of {options.batch_size:,} ({', '.join(options.fields)}), rank {self.rank} of"
            f" {self.world_size}, {options.device}"
        )
        return f"<{text}, closed>" if self._closed else f"<{text}>"

    def _repr_html_(self) -> str:
        state = "closed" if self._closed else f"epoch {self.epoch}"
        return html_table(self._spec, state=state)

    if not TYPE_CHECKING:  # Type checkers report `next(loader)` by themselves.

        def __next__(self) -> NoReturn:
            raise WrongCallError(
                "a loader is not an iterator, because each loop over it is a new epoch",
                hint=(
                    "call next(iter(loader)) for one batch, or keep batches = iter(loader) and call"
                    " next(batches)"
                ),
            )

        def __getitem__(self, index: object) -> NoReturn:
            raise WrongCallError(
                "a loader has no samples by number, because it makes batches by itself",
                hint="loop over the loader in place of a DataLoader: for images, labels in loader",
            )

    def __reduce__(self) -> Any:
        raise CallError(
            "a loader cannot be copied or sent to another process",
            hint="build a new loader in that process",
        )

    def _batches(self) -> Iterator[Any]:
        iteration = self._looping = self._begin()
        if self._meter is not None:
            self._meter.begin()
        try:
            # If a newer iterator has finished the epoch, this one must not end as if it had.
            while (
                self._progress.position.batch < self._progress.batches or self._looping != iteration
            ):
                self._require_open()
                if not iteration == self._progress.iteration == self._looping:
                    raise CallError(
                        "this iterator is invalid: the loader has a newer one, or set_epoch() was"
                        " called",
                        hint="use one iterator at a time, or build a second loader",
                    )
                yield self._next_batch()
        except GeneratorExit as error:
            # The iterator was dropped. If an exception is the reason, it is not visible here, but
            # in `state_dict`.
            if iteration == self._progress.iteration:
                self._progress = self._progress.leave()
                self._handled_at_leave = id(error.__context__)
            raise
        finally:
            if iteration == self._looping:
                self._looping = -1

    def _traffic(self) -> tuple[int, int, int]:
        return getattr(self._spec.images, "traffic", (0, 0, 0))

    def _begin(self) -> int:
        """Begin an epoch, or continue it, and return the number of the iteration."""
        self._require_usable()
        with self._working:
            progress = self._progress
            order = self._spec.order
            if progress.needs_restart or (progress.phase is Phase.FINISHED and order.restarts):
                self._restart(Progress.start(len(self), progress.next_epoch))
            elif self._lanes is None:
                self._restart(progress)
            if not self._agreed:
                choices = {
                    "batches": len(self),
                    **sampling_choices(self._spec),
                    "epoch": self._progress.next_epoch,
                    "batch": self._progress.position.batch,
                }
                require_agreement(self.options.ranks, choices)
                self._agreed = True
            if self._progress.phase is Phase.FINISHED:
                self._discard_batches(order.runs - len(self))
            self._progress = self._progress.begin()
            at = self._progress.position
            _log.info("epoch %d begins at batch %d of %d", at.epoch, at.batch, len(self))
        return self._progress.iteration

    def _discard_batches(self, count: int) -> None:
        """Discard the batches of the epoch that last_batch="drop" omits, which DALI still has."""
        following = self._progress.next_epoch
        failed = False
        try:
            for _ in range(count):
                self._run()
        except (UndecodableError, DecodeMemoryError):
            failed = True  # No batch contains these images, so a bad one does not matter.
        if failed:  # DALI's pipelines cannot be used after an error.
            self._restart(Progress.start(len(self), following))

    def _next_batch(self) -> Any:
        """Return the next batch, and count it.

        The iterator must not refer to it, so that users can release it.
        """
        began = time.perf_counter()
        with self._working:
            batch = self._decodable_batch()
        at = self._progress.position
        order = self._spec.order
        self._seen = self._seen.with_batch(at.epoch, at.batch, order.count(at.epoch, at.batch))
        if self._meter is not None:
            self._meter.batch(
                began,
                order.size(at),
                at,
                last=at.batch + 1 == len(self),
                prepared=self._lanes.ready,
                errors=len(self._errors),
            )
        self._progress = self._progress.batch_given(self._lanes.checkpoint())
        return batch

    def _decodable_batch(self) -> Any:
        """Return the next batch.

        If an image cannot be decoded, find it, and continue without it or raise.
        """
        while True:
            try:
                return make_batch(self._run(), self._spec, self._framework, self._progress.position)
            except (UndecodableError, DecodeMemoryError) as error:
                bad = new_bad_images(self._spec, self._progress.position, self._errors, error)
            # Not within `except`: the error refers to the old pipeline, so a restart would not
            # release it.
            self._continue_without(bad)

    def _continue_without(self, bad: dict[int, str]) -> None:
        """Continue the epoch without these images."""
        failed = self._progress
        self._leave_out(self._errors | bad)
        _log.warning(bad_images_message(self._spec, bad))
        self._restart(Progress.restore(len(self), failed.saved, failed.checkpoint))
        # The iteration stays the same, so the iterator in use remains valid.
        self._progress = replace(self._progress.begin(), iteration=failed.iteration)

    def _adjust(self, adjustment: Adjustment) -> None:
        """Change the transforms. The next start of the pipeline uses them."""
        if adjustment == self._spec.adjustment:
            return
        RESERVATIONS.remove(self)  # The new estimate replaces it.
        try:
            self._spec = adjusted_spec(self._spec, adjustment)
        finally:
            self._reserve_memory()

    @contextmanager
    def _or_as_before(self, spec: LoaderSpec, progress: Progress) -> Iterator[None]:
        """Go back to this spec and progress if the block fails."""
        errors = self._errors
        try:
            yield
        except Exception:
            self._spec = spec
            self._errors = errors
            self._reserve_memory()
            # The next iteration starts the pipeline. Now, it could fail for the same reason.
            self._stop_at(Progress.restore(len(self), progress.saved, progress.checkpoint))
            raise

    def _reserve_memory(self) -> None:
        spec = self._spec
        if spec.sizes is not None:
            RESERVATIONS.add(
                self, spec.options.device.index, estimate_memory(spec.sizes, spec.settings)
            )

    def _leave_out(self, errors: dict[int, str]) -> None:
        """Remember bad images, and take their rows out of the order."""
        self._errors = errors
        self._spec = replace(self._spec, order=self._spec.order.without(frozenset(errors)))

    def _run(self) -> Any:
        """Take a batch from DALI, and let DALI start the next one."""
        # Set the phase before DALI runs: an interruption after this line leaves it at RUNNING.
        self._progress = self._progress.run_started()
        outputs = take_batch(self._lanes, self._spec.split, self._check_shards)
        self._progress = self._progress.run_finished()
        return outputs

    def _restart(self, progress: Progress) -> None:
        """Replace the pipeline by one that starts at `progress`. Older iterators become invalid.

        If it cannot be started, the error is raised, and the next iteration tries again.
        """
        self._stop_at(progress)
        self._lanes = start_pipelines(self._spec, self._progress)

    def _stop_at(self, progress: Progress) -> None:
        """Release the pipeline. The next iteration starts one at `progress`."""
        # Release the old pipeline first, so that there are never two in memory.
        self._drop_pipeline()
        self._progress = replace(progress, iteration=self._progress.iteration + 1)

    def _drop_pipeline(self) -> None:
        """Release the pipeline, and then its images: DALI waits for the garbage collector."""
        with delayed_interrupts():
            batches = getattr(self._lanes, "planned_batches", ())
            self._lanes = None
            if os.getpid() == self._process:
                for each in batches:
                    each.release()

    def _require_usable(self) -> None:
        self._require_open()
        check_group(self.options.ranks)

    def _require_open(self) -> None:
        if self._closed:
            raise CallError("this loader is closed", hint="build a new loader")
        if os.getpid() != self._process:
            raise CallError(
                "this loader was built in another process, and DALI's threads do not exist in a"
                " forked one",
                hint="build the loader in the process that uses it",
            )


def _close_dropped(images: Images | None, process: int) -> None:
    """Close the images of a loader that was dropped without `close`, in spite of their threads."""
    if os.getpid() == process and images is not None:
        closer.queue.put(images.close)


class _OneThread:
    """Refuses a thread while another one works on a loader: DALI would wait without end."""

    def __init__(self) -> None:
        self._lock = threading.Lock()

    def __enter__(self) -> None:
        if not self._lock.acquire(blocking=False):
            raise CallError(
                "two threads use this loader at the same time",
                hint="use it from one thread at a time, or build a second loader",
            )

    def __exit__(self, *_: object) -> None:
        self._lock.release()


# --- closing without waiting ----------------------------------------------------------------------

# The garbage collector may run in any thread and between any two steps of it, also while the thread
# has a lock of Python's own modules. A finalizer that waits for a thread, or starts one, can
# therefore wait for itself. It passes the work on to the queue of `closer`, which never waits.


class _Closer:
    """A queue of functions, and the thread that calls them."""

    def __init__(self) -> None:
        self.begin_anew()

    def begin_anew(self) -> None:
        """Forget the thread, which a forked process does not have."""
        # Its `put` may be called by a finalizer that interrupts another `put`.
        self.queue = SimpleQueue[Callable[[], object]]()
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Start the thread, before a finalizer may use the queue, and not in a finalizer."""
        with self._lock:
            if self._thread is None:
                self._thread = threading.Thread(
                    target=_work, args=(self.queue,), name="close", daemon=True
                )
                self._thread.start()

    def finish(self) -> None:
        """Wait until all functions of the queue were called; not for finalizers."""
        thread = self._thread
        if thread is not None and thread is not threading.current_thread():
            done = threading.Event()
            self.queue.put(done.set)
            while not done.wait(0.1) and thread.is_alive():
                pass


def _work(queue: SimpleQueue[Callable[[], object]]) -> None:
    while True:
        try:
            queue.get()()
        except Exception as error:  # No one waits for the result.
            _log.debug("closing failed: %s", error)


closer = _Closer()
os.register_at_fork(after_in_child=closer.begin_anew)
