"""The object that a training script iterates over: runs a DALI pipeline and returns a framework's tensors."""

from __future__ import annotations

import os
import sys
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Any, Generic, NoReturn

import numpy as np
from numpy.typing import NDArray

from loaders.agreement import require_agreement
from loaders.checkpoint import Phase, Progress, State, read_state
from loaders.dali.decode_errors import UndecodableError, is_checkpoint_error, translate_error
from loaders.dali.find_bad import find_bad_images
from loaders.dali.pipeline import keep_pipelines, make_pipeline, release_memory
from loaders.dali.readers import READER, add_reader, derive_seed
from loaders.dataset.bad_samples import BadSample, describe_bad_samples, located_error
from loaders.dataset.index_check import find_index_error
from loaders.dataset.info import DatasetInfo
from loaders.dataset.split import ShardCheck
from loaders.explain import explain
from loaders.frameworks import load_framework
from loaders.interrupts import delayed_interrupts
from loaders.memory import RESERVATIONS, estimate_memory
from loaders.options import BatchT_co, ResolvedOptions, require_int
from loaders.ranks import check_group
from loaders.resolve import LoaderSpec, adjusted_spec
from loaders.samplers.order import PlannedOrder, StoredOrder
from loaders.samplers.tolerant import TolerantOrder
from loaders.transforms.adjust import Adjustment
from loaders.transforms.base import Size
from loaders.transforms.soft_labels import mixed_labels
from manifests.errors import CallError, DamagedError, DatasetError, IndexFileError

#: All loaders of this process.
_loaders: weakref.WeakSet[Loader[Any]] = weakref.WeakSet()


os.register_at_fork(after_in_child=lambda: keep_pipelines(loader._pipeline for loader in _loaders))


class _NotAnIteratorError(CallError, TypeError):
    """`next` was called with a loader. It is also the error that Python raises for other objects."""


_VERIFY = "run `dataprep verify` to find the damaged file"


class Loader(Generic[BatchT_co]):
    """An iterable of batches, which `loaders.build` creates and documents.

    Each ``for`` loop is one epoch. If you leave the loop early, the epoch is over: the next loop begins the next
    epoch, with another order if the loader shuffles. On several ranks, leave the loop at the same batch on all of
    them.

    Use a loader from one thread at a time, in the process that built it, and with one iterator at a time: the first
    batch that an iterator returns invalidates all earlier iterators.
    Close the loader, or use it as a context manager, to release its memory. `loaders.checkpoint.Progress` documents
    the states of a loader.
    """

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
        #: Number of the iteration that a loop is in.
        self._looping = -1
        #: The exception that was being handled when the newest epoch was left, by its `id`.
        self._handled_at_leave: int | None = None
        self._progress = Progress.start(spec.order.batches)
        #: Why images could not be decoded, by their row in the split.
        self._errors: dict[int, str] = {}
        #: `None` if the loader is closed, or if the pipeline could not be started.
        self._pipeline: Any = self._start()
        self._reserve_memory()

    @property
    def spec(self) -> LoaderSpec:
        """Everything that was decided before the pipeline started."""
        return self._spec

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
        """Number of the epoch, from 0: within a loop that of the loop, otherwise that of the next loop.

        After `load_state_dict`, ``for epoch in range(loader.epoch, epochs)`` therefore continues with the right one.
        """
        progress = self._progress
        return progress.position.epoch if self._looping == progress.iteration else progress.next_epoch

    @property
    def rank(self) -> int:
        """Number of this process among those that share an epoch, from 0."""
        return self.options.ranks.rank

    @property
    def world_size(self) -> int:
        """Number of processes that share an epoch."""
        return self.options.ranks.world_size

    @property
    def device(self) -> Any:
        """Where the tensors are: a `torch.device`, a device of JAX, a place of Paddle, or ``"cpu"`` for NumPy."""
        return self._framework.device(self.options.device)

    @property
    def dataset(self) -> DatasetInfo:
        """The dataset; its length is the number of samples in the split, over all ranks."""
        split = self._spec.split
        return DatasetInfo(split.folder, split.name, split.samples, split.manifest.classes)

    @property
    def split(self) -> str:
        """Name of the split."""
        return self._spec.split.name

    @property
    def errors(self) -> tuple[BadSample, ...]:
        """The images that could not be decoded so far, by their row, also those before a checkpoint was loaded.

        With ``on_error="skip"`` or ``"replace"``, the loader continued without them.

        Raises:
            TableError: a sample table is missing or damaged.

        """
        return describe_bad_samples(self._spec.split, self._errors)

    def __len__(self) -> int:
        """Return the number of batches per epoch, which is equal on every rank."""
        return self._spec.order.batches

    def __repr__(self) -> str:
        options, split = self.options, self._spec.split
        closed = ", closed" if self._closed else ""
        return (
            f"<Loader of {split.folder!r}, split {split.name!r}: epoch {self.epoch}, {len(self):,} batches of "
            f"{options.batch_size:,} ({', '.join(options.fields)}), rank {self.rank} of {self.world_size}, "
            f"{options.device}{closed}>"
        )

    if not TYPE_CHECKING:  # Type checkers report `next(loader)` by themselves.

        def __next__(self) -> NoReturn:
            raise _NotAnIteratorError(
                "a loader is not an iterator, because each loop over it is a new epoch",
                hint="call next(iter(loader)) for one batch, or keep batches = iter(loader) and call next(batches)",
            )

    def __iter__(self) -> Iterator[BatchT_co]:
        """Return an iterator. Its first batch begins the next epoch, or continues one that `load_state_dict` loaded.

        Raises:
            CallError: the loader is closed, was built in another process, or has another rank or world size than a
                process group that was initialized after it was built. The iterator raises it if a newer iterator has
                begun, or if the loaders of the ranks differ.
            DamagedError: the iterator raises it for an image that cannot be decoded or a label that cannot be read.

        """
        self._require_usable()
        return self._batches()

    def set_epoch(self, epoch: int) -> None:
        """Set the number of the next epoch, from 0. Without this call, the number increases by one after each epoch.

        The epoch has the same order as in an uninterrupted run. If another epoch would have been next, the pipeline
        restarts, so the augmentation differs from that of an uninterrupted run.

        Raises:
            CallError: `epoch` is not an integer of at least 0; or as for iterating.

        """
        epoch = require_int("epoch", epoch, 0)
        self._require_usable()
        if epoch != self._progress.next_epoch:
            self._restart(Progress.start(len(self), epoch, iteration=self._progress.iteration))

    def set(self, *, size: int | Size | None = None, magnitude: float | None = None) -> None:
        """Change the size of the images or the strength of the augmentation, from the next epoch on.

        For progressive training, with one loader and one pipeline: call it between two loops. The pipeline restarts,
        unless nothing changes. A checkpoint contains the values, and `load_state_dict` sets them.

        Args:
            size: height and width of the images in pixels; one number for square images. Every crop, resize, padding
                and mask in the list is scaled in proportion, from the sizes as written. With views, it is the size of
                the first view, and the others are scaled alike. `None` changes nothing.
            magnitude: strength of the policies: `magnitude` of RandAugment, the section ``m`` of TimmAutoAugment,
                `severity` of AugMix, in the units of the list. `None` changes nothing.

        Raises:
            CallError: an epoch has begun and not ended; no transform has a size or a strength to change; the value is
                not possible; or the images no longer fit into `memory_limit`. The loader then stays as it was.

        """
        self._require_usable()
        adjustment = self._spec.adjustment
        if size is not None:
            adjustment = replace(adjustment, size=self._height_and_width(size))
        if magnitude is not None:
            adjustment = replace(adjustment, magnitude=magnitude)
        if adjustment == self._spec.adjustment:
            return
        progress, previous = self._progress.resumable, self._spec
        looping = self._looping == self._progress.iteration
        if looping or progress.phase in (Phase.RESUMED, Phase.READING, Phase.RUNNING):
            raise CallError(
                f"set() was called in the middle of epoch {self.epoch}",
                hint="call it between two loops; with a checkpoint from the middle of an epoch, after that epoch",
            )
        self._adjust(adjustment)
        try:
            self._restart(Progress.start(len(self), progress.next_epoch))
        except Exception:
            # The next iteration starts the pipeline as it was.
            self._spec = previous
            self._reserve_memory()
            self._set(Progress.restore(len(self), progress.saved, progress.checkpoint))
            raise

    def state_dict(self) -> dict[str, Any]:
        """Return a checkpoint as plain values: epoch, batch, and the state of DALI's pipeline.

        Pass it to `load_state_dict` of a loader that was built with the same arguments, also in a new process, to
        continue with the same batches bit for bit, including augmentation. Each rank saves and loads its own
        checkpoint. Within the loop over an epoch, the checkpoint is the one after the last batch that you received;
        also after an exception within a batch, and in the ``except`` or ``finally`` block of an exception that ended
        the loop. Once the loop was left by ``break``, the checkpoint is the beginning of the next epoch, which is
        where this loader itself continues.

        Raises:
            CallError: the loader is closed, or was built in another process.

        """
        self._require_usable()
        handled = sys.exception()
        interrupted = handled is not None and id(handled) != self._handled_at_leave
        progress = self._progress if interrupted else self._progress.resumable
        return State(self._built(), progress.saved, progress.checkpoint, self._errors, self._spec.adjustment).to_dict()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Resume from a checkpoint that `state_dict` returned.

        Raises:
            CallError: `state` is not a checkpoint, is damaged, or comes from a loader that was built with other
                arguments. With a sampler, rank, world size and batch size may differ if the global batch is the same.
                After an error, this loader continues after its own last complete batch.

        """
        self._require_usable()
        loaded = read_state(state, self._built(), batches=len(self))
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
                "this state is damaged: DALI cannot restore its checkpoint", hint="load another checkpoint"
            ) from error

    def explain(self) -> str:
        """Describe what this loader does: transforms as written and as run, and why; memory, threads, order."""
        return explain(self._spec)

    def close(self) -> None:
        """Stop reading and release the memory. Batches that you keep stay valid."""
        self._closed = True
        with delayed_interrupts():
            self._pipeline = None
        RESERVATIONS.remove(self)
        if self._spec.records is not None:
            self._spec.records.close()
        if os.getpid() == self._process:
            release_memory()

    def __reduce__(self) -> Any:
        raise CallError(
            "a loader cannot be copied or sent to another process", hint="build a new loader in that process"
        )

    def __enter__(self) -> Loader[BatchT_co]:
        self._require_usable()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _batches(self) -> Iterator[Any]:
        iteration = self._looping = self._begin()
        try:
            while self._progress.position.batch < len(self):
                self._require_usable()
                if iteration != self._progress.iteration:
                    raise CallError(
                        "this iterator is invalid: the loader has a newer one, or set_epoch() was called",
                        hint="use one iterator at a time, or build a second loader",
                    )
                batch = self._decodable_batch()
                self._progress = self._progress.batch_given(self._pipeline.checkpoint())
                yield batch
        except GeneratorExit as error:
            # The iterator was dropped. If an exception is the reason, it is not visible here, but in `state_dict`.
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
            require_agreement(self.options.ranks, {"batches": len(self), **self._sampling(), **position})
            self._agreed = True
        if self._progress.phase is Phase.FINISHED:
            # DALI still has the batches of this epoch that last_batch="drop" omits.
            for _ in range(order.runs - len(self)):
                self._run()
        self._progress = self._progress.begin()
        return self._progress.iteration

    def _decodable_batch(self) -> Any:
        """Return the next batch. If an image cannot be decoded, find it, and continue without it or raise."""
        while True:
            try:
                return self._batch(self._spec.order.size(self._progress.position))
            except UndecodableError as error:
                self._handle_bad_images(error)

    def _handle_bad_images(self, error: UndecodableError) -> None:
        """Restart at the batch that failed, without its bad images.

        Raises:
            UndecodableError: no further image is bad, or ``on_error="raise"``.

        """
        spec, failed = self._spec, self._progress
        try:
            found = find_bad_images(spec, failed.position)
        except DamagedError:
            raise error from None  # What stops the search is other damage, and this error is the first one.
        bad = {row: reason for row, reason in found.items() if row not in self._errors}
        if not bad:
            raise error
        if spec.options.on_error == "raise":
            raise located_error(describe_bad_samples(spec.split, bad), error, spec.split) from error
        self._leave_out(self._errors | bad)
        # The iteration stays the same, so the iterator in use remains valid.
        saved = Progress.restore(len(self), failed.saved, failed.checkpoint)
        self._set(saved)
        self._pipeline = self._start()
        self._progress = replace(self._progress.begin(), iteration=failed.iteration)

    def _height_and_width(self, size: Any) -> Size:
        if isinstance(size, int):
            height, width = self._spec.written.outputs[0].size or (0, 0)
            if height != width:
                raise CallError(
                    f"size={size} is one number, but the transforms make images of {height} x {width} pixels",
                    hint="set size=(height, width)",
                )
            return (size, size)
        return tuple(size) if isinstance(size, list) else size

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
            RESERVATIONS.add(self, spec.options.device.index, estimate_memory(spec.sizes, spec.settings))

    def _leave_out(self, errors: dict[int, str]) -> None:
        """Remember bad images, and take them out of the order."""
        self._errors = errors
        order = self._spec.order
        if isinstance(order, TolerantOrder):
            self._spec = replace(self._spec, order=order.without(frozenset(errors)))

    def _batch(self, size: int) -> Any:
        spec, names = self._spec, self._spec.options.fields
        outputs = list(self._run())
        images = [outputs.pop(0) for _ in spec.recipe.outputs] if "image" in names else []
        arrays = [np.asarray(each.as_tensor()) for each in outputs]
        stored_label = arrays.pop(0) if spec.fields.stored_label else None
        rows = self._rows(arrays)
        values = spec.fields.values(stored_label, rows)
        if "valid" in names:
            values["valid"] = spec.order.valid(self._progress.position)
        if arrays and "label" in values:
            labels = np.asarray(values["label"])
            values["label"] = mixed_labels(labels, arrays[0], arrays[1], spec.num_classes, spec.recipe.smoothing)
        tensor = self._tensors(images, size) if images else None
        return tuple(tensor if name == "image" else self._values(values[name], size) for name in names)

    def _rows(self, arrays: list[NDArray[Any]]) -> NDArray[np.int64] | None:
        """Remove the output that has the rows of a batch, or the origin of its records, and return the rows."""
        if isinstance(self._spec.order, PlannedOrder):
            return arrays.pop(0)
        return self._spec.fields.rows(arrays.pop(0)) if self._spec.fields.source else None

    def _tensors(self, images: list[Any], size: int) -> Any:
        """Return the batch of images, or a tuple of one batch for each view."""
        recipe = self._spec.recipe
        if not recipe.views:
            return self._images(images[0], size, recipe.batch_functions)
        pairs = zip(images, recipe.views, strict=True)
        return tuple(self._images(each, size, view.batch_functions) for each, view in pairs)

    def _images(self, outputs: Any, size: int, functions: Sequence[Callable[[Any], Any]]) -> Any:
        options = self._spec.options
        # The last batch of a rank may be empty, and functions need not handle that. They get one image of those that
        # fill DALI's batch, so that the empty result has the shape and the type of the other batches.
        given = max(size, 1)
        tensor = self._framework.images(outputs, options.dtype, options.device)[:given]
        for function in functions:
            tensor = function(tensor)
            if not hasattr(tensor, "__len__") or len(tensor) != given:
                name = getattr(function, "__name__", type(function).__name__)
                raise CallError(
                    f"the function {name} in transforms must return a tensor of {given} images",
                    hint="change the batch that the function receives, and return all of its images",
                )
        return tensor[:size]

    def _values(self, values: Any, size: int) -> Any:
        if isinstance(values, list):
            return values[:size]
        return self._framework.numbers(values[:size], self._spec.options.device)

    def _run(self) -> Any:
        """Take a batch from DALI, and let DALI start the next one."""
        pipeline = self._pipeline
        # Set the phase before DALI runs: an interruption after this line leaves it at RUNNING.
        self._progress = self._progress.run_started()
        try:
            outputs = pipeline.share_outputs()
            pipeline.release_outputs()
            if self._check_shards is not None:
                self._check_shards()
            pipeline.schedule_run()
        except (RuntimeError, StopIteration) as error:
            raise translate_error(error, self._spec.split) from error
        self._progress = self._progress.run_finished()
        return outputs

    def _start(self) -> Any:
        """Build the pipeline for the current progress, and let DALI start its first batch."""
        spec, options = self._spec, self._spec.options
        started, skipped = self._progress.position.started, self._progress.position.skipped
        seed = derive_seed(options.seed, started, options.ranks.rank, *([skipped] if skipped else []))
        pipeline = make_pipeline(
            partial(add_reader, spec, seed=seed, started=started, skipped=skipped),
            spec.recipe,
            spec.fusion.operations,
            options,
            seed=seed,
            views=[each.operations for each in spec.view_fusions],
            checkpoint=self._progress.checkpoint,
        )
        try:
            pipeline.build()
            meta = pipeline.reader_meta()
        except RuntimeError as error:
            self._raise_index_error(error)
        indexed_samples = meta[READER]["epoch_size"] if READER in meta else spec.split.samples
        if indexed_samples != spec.split.samples:
            raise find_index_error(spec.split) or IndexFileError(
                f"the index files of {spec.split.folder} contain {indexed_samples} samples, but the manifest states "
                f"{spec.split.samples}",
                hint=_VERIFY,
            )
        pipeline.schedule_run()
        return pipeline

    def _raise_index_error(self, error: RuntimeError) -> NoReturn:
        translated = translate_error(error, self._spec.split)
        if isinstance(translated, DamagedError) and not isinstance(translated, IndexFileError):
            # No record has been read yet, so the error is in an index file.
            message = translated.message.replace("a record", "an index file")
            raise IndexFileError(message, file=translated.file, hint=_VERIFY) from error
        if isinstance(translated, IndexFileError):
            raise translated from error
        raise error

    def _restart(self, progress: Progress) -> None:
        """Replace the pipeline by one that starts at `progress`. Older iterators become invalid.

        If it cannot be started, the error is raised, and the next iteration tries again.
        """
        self._set(progress)
        self._pipeline = self._start()

    def _set(self, progress: Progress) -> None:
        # Release the old pipeline first, so that there are never two in memory.
        with delayed_interrupts():
            self._pipeline = None
        self._progress = replace(progress, iteration=self._progress.iteration + 1)

    def _require_usable(self) -> None:
        if self._closed:
            raise CallError("this loader is closed", hint="build a new loader")
        if os.getpid() != self._process:
            raise CallError(
                "this loader was built in another process, and DALI's threads do not exist in a forked one",
                hint="build the loader in the process that uses it",
            )
        check_group(self.options.ranks)

    def _sampling(self) -> dict[str, Any]:
        """Return the choices that all ranks must share, because they decide which samples an epoch has."""
        spec, options = self._spec, self._spec.options
        return {
            "dataset": spec.split.fingerprint,
            "batch_size": options.batch_size,
            "shuffle": options.shuffle,
            "sampler": spec.order.text,
            "sample_order": spec.order.version,
            "seed": options.seed,
            "last_batch": options.last_batch,
        }

    def _built(self) -> dict[str, Any]:
        """Return the choices that another loader must share to resume from a checkpoint of this one."""
        options, recipe = self._spec.options, self._spec.written
        views = [operation for view in recipe.views for operation in view.operations]
        return {
            **self._sampling(),
            "transforms": " ".join(map(repr, (*recipe.operations, *recipe.mixing, *views))),
            "rank": options.ranks.rank,
            "world_size": options.ranks.world_size,
            "dtype": options.dtype,
            "layout": options.layout,
            "fields": list(options.fields),
            "device": options.device.kind,
        }
