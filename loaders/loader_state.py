"""Run a loader's epochs: which batch comes next, when the pipeline restarts, and how it continues after a bad image."""

from __future__ import annotations

import logging
import os
import weakref
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from loaders.agreement import require_agreement
from loaders.attributes import LoaderAttributes
from loaders.bad_images import bad_images_message, new_bad_images, without_rows
from loaders.closing import close_later, prepare_closing
from loaders.dali.bad_images import DecodeMemoryError, UndecodableError
from loaders.dali.pipeline import keep_pipelines, start_pipeline, take_batch
from loaders.dataset.split import ShardCheck
from loaders.frameworks import load_framework
from loaders.identity import sampling_choices
from loaders.make_batch import make_batch
from loaders.memory import estimate_memory
from loaders.memory_limit import RESERVATIONS
from loaders.progress import Phase, Progress
from loaders.ranks import check_group
from loaders.samplers.order import StoredOrder
from loaders.spec import Images, LoaderSpec, adjusted_spec
from loaders.transforms.adjust import Adjustment
from manifests.errors import CallError
from manifests.process.interrupts import delayed_interrupts

_log = logging.getLogger(__name__)

#: All loaders of this process.
_loaders: weakref.WeakSet[LoaderState] = weakref.WeakSet()


os.register_at_fork(after_in_child=lambda: keep_pipelines(loader._pipeline for loader in _loaders))


class LoaderState(LoaderAttributes):
    """What `Loader` is inside: its state and transitions, which `loaders.progress.Progress` documents."""

    def __init__(self, spec: LoaderSpec) -> None:
        """Start the pipeline. `loaders.build` calls this.

        Raises:
            CallError: the framework is not installed.
            DamagedError: DALI cannot read the index files.

        """
        self._spec = spec
        self._framework = load_framework(spec.options.framework)
        self._process = os.getpid()
        _loaders.add(self)
        # DALI's readers do not check the shards that they have mapped.
        checks = isinstance(spec.order, StoredOrder) and spec.options.mmap
        self._check_shards = ShardCheck(spec.split) if checks else None
        self._closed = False
        self._agreed = False
        self._looping = -1
        #: The exception that was being handled when the newest epoch was left, by its `id`.
        self._handled_at_leave: int | None = None
        self._progress = Progress.start(spec.order.batches)
        self._errors = {}
        #: `None` if the loader is closed, or if the pipeline could not be started.
        self._pipeline: Any = self._start()
        self._reserve_memory()
        prepare_closing()
        open_images = [each for each in (spec.records, spec.label_images) if each is not None]
        self._when_dropped = weakref.finalize(self, _close_dropped, open_images, self._process)
        self._when_dropped.atexit = False

    def _batches(self) -> Iterator[Any]:
        iteration = self._looping = self._begin()
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

    def _begin(self) -> int:
        """Begin an epoch, or continue it, and return the number of the iteration."""
        self._require_usable()
        progress, order = self._progress, self._spec.order
        if progress.needs_restart or (progress.phase is Phase.FINISHED and order.restarts):
            self._restart(Progress.start(len(self), progress.next_epoch))
        elif self._pipeline is None:
            self._restart(progress)
        if not self._agreed:
            position = {"epoch": self._progress.next_epoch, "batch": self._progress.position.batch}
            require_agreement(
                self.options.ranks,
                {"batches": len(self), **sampling_choices(self._spec), **position},
            )
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
        batch = self._decodable_batch()
        self._progress = self._progress.batch_given(self._pipeline.checkpoint())
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

    def _reserve_memory(self) -> None:
        spec = self._spec
        if spec.sizes is not None:
            RESERVATIONS.add(
                self, spec.options.device.index, estimate_memory(spec.sizes, spec.settings)
            )

    def _leave_out(self, errors: dict[int, str]) -> None:
        """Remember bad images, and take them out of the order."""
        self._errors = errors
        self._spec = without_rows(self._spec, errors)

    def _run(self) -> Any:
        """Take a batch from DALI, and let DALI start the next one."""
        # Set the phase before DALI runs: an interruption after this line leaves it at RUNNING.
        self._progress = self._progress.run_started()
        outputs = take_batch(self._pipeline, self._spec.split, self._check_shards)
        self._progress = self._progress.run_finished()
        return outputs

    def _start(self) -> Any:
        return start_pipeline(self._spec, self._progress)

    def _restart(self, progress: Progress) -> None:
        """Replace the pipeline by one that starts at `progress`. Older iterators become invalid.

        If it cannot be started, the error is raised, and the next iteration tries again.
        """
        self._set(progress)
        self._pipeline = self._start()

    def _set(self, progress: Progress) -> None:
        # Release the old pipeline first, so that there are never two in memory.
        self._drop_pipeline()
        self._progress = replace(progress, iteration=self._progress.iteration + 1)

    def _drop_pipeline(self) -> None:
        """Release the pipeline, and then the images that it used: DALI's objects wait for the garbage collector."""
        with delayed_interrupts():
            batches = getattr(self._pipeline, "planned_batches", ())
            self._pipeline = None
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


def _close_dropped(open_images: Sequence[Images], process: int) -> None:
    """Close the images of a loader that was dropped without `close`: their threads would keep them open."""
    if os.getpid() == process:
        for images in open_images:
            close_later(images.close)
