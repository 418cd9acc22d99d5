"""The object that a training script iterates over: its public methods.

`loaders.loader_state.LoaderState` has its construction and its loop over the batches of an epoch.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any, Generic

from loaders.checkpoint import State, read_state
from loaders.closing import finish_closing
from loaders.dali.bad_images import is_checkpoint_error
from loaders.dali.pipeline import release_memory
from loaders.explain import explain
from loaders.identity import checkpoint_choices
from loaders.integers import require_int
from loaders.loader_state import LoaderState
from loaders.memory_limit import RESERVATIONS
from loaders.options import BatchT_co
from loaders.progress import Phase, Progress
from loaders.transforms.base import Size
from manifests.errors import CallError, DatasetError

if TYPE_CHECKING:
    from loaders.preview import Preview
    from loaders.spec import LoaderSpec


class Loader(LoaderState, Generic[BatchT_co]):
    """An iterable of batches, which `loaders.build` creates and documents.

    Each ``for`` loop is one epoch. If you leave the loop early, the epoch is over: the next loop
    begins the next epoch, with another order if the loader shuffles. On several ranks, leave the
    loop at the same batch on all of them.

    Use a loader from one thread at a time, in the process that built it, and with one iterator at a
    time: the first batch that an iterator returns invalidates all earlier iterators. Close the
    loader, or use it as a context manager, to release its memory. `loaders.progress.Progress`
    documents the states of a loader.
    """

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

    def set_epoch(self, epoch: int) -> None:
        """Set the number of the next epoch, from 0.

        Without this call, the number increases by one after each epoch.

        The epoch has the same order as in an uninterrupted run. If another epoch would have been
        next, the pipeline restarts, so the augmentation differs from that of an uninterrupted run.

        Raises:
            CallError: `epoch` is not an integer of at least 0; or as for iterating.

        """
        epoch = require_int("epoch", epoch, 0)
        self._require_usable()
        if epoch != self._progress.next_epoch:
            self._restart(Progress.start(len(self), epoch, iteration=self._progress.iteration))

    def set(self, *, size: int | Size | None = None, magnitude: float | None = None) -> None:
        """Change the size of the images or the strength of the augmentation, from the next epoch on.

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
        adjustment = spec.adjustment.changed(size, magnitude, written=spec.written.outputs[0].size)
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
        try:
            self._restart(Progress.start(len(self), progress.next_epoch))
        except Exception:
            # The next iteration starts the pipeline as it was.
            self._spec = spec
            self._reserve_memory()
            self._set(Progress.restore(len(self), progress.saved, progress.checkpoint))
            raise

    def state_dict(self) -> dict[str, Any]:
        """Return a checkpoint as plain values, which JSON can store: epoch, batch, and DALI's pipeline.

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
        progress = self._progress if interrupted else self._progress.resumable
        return State(
            checkpoint_choices(self._spec),
            progress.saved,
            progress.checkpoint,
            self._errors,
            self._spec.adjustment,
            self._spec.split.revisions,
        ).to_dict()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Resume from a checkpoint that `state_dict` returned.

        Raises:
            CallError: `state` is not a checkpoint, is damaged, or comes from a loader that was
                built with other arguments. With a sampler, rank, world size and batch size may
                differ if the global batch is the same; with ``on_error="skip"``, only at the end of
                an epoch. After an error, this loader continues after its own last complete batch.

        """
        self._require_usable()
        choices, revisions = checkpoint_choices(self._spec), self._spec.split.revisions
        loaded = read_state(
            state, choices, batches=len(self), samples=self.samples, revisions=revisions
        )
        previous, errors, adjustment = self._progress.resumable, self._errors, self._spec.adjustment
        try:
            self._adjust(loaded.adjustment)
            self._leave_out(dict(loaded.errors))
            self._restart(Progress.restore(len(self), loaded.position, loaded.checkpoint))
        except Exception as error:
            # The next iteration starts the pipeline. Now, it could fail for the same reason.
            self._adjust(adjustment)
            self._leave_out(errors)
            self._set(Progress.restore(len(self), previous.saved, previous.checkpoint))
            if isinstance(error, DatasetError) or not is_checkpoint_error(error):
                raise
            raise CallError(
                "this state is damaged: DALI cannot restore its checkpoint",
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
        `ClassBalancedSampler` do, they are those of the first batch of the epoch, grouped.
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

        def open_loader(spec: LoaderSpec) -> Loader[Any]:
            loader = Loader[Any](spec)
            # Do not compare with the loaders of other ranks, which need not make a preview.
            loader._agreed = True
            return loader

        self._require_usable()
        return preview_spec(self._spec, open_loader, samples=samples, draws=draws, epoch=self.epoch)

    def close(self) -> None:
        """Stop reading and release the memory. Batches that you keep stay valid."""
        self._closed = True
        self._drop_pipeline()
        finish_closing()
        RESERVATIONS.remove(self)
        self._when_dropped.detach()
        for records in (self._spec.records, self._spec.label_images):
            if records is not None:
                records.close()
        if os.getpid() == self._process:
            release_memory()

    def __reduce__(self) -> Any:
        raise CallError(
            "a loader cannot be copied or sent to another process",
            hint="build a new loader in that process",
        )

    def __enter__(self) -> Loader[BatchT_co]:
        self._require_usable()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()
