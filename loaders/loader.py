"""The object that a training script holds: a DALI pipeline in, a framework's tensors out."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from types import TracebackType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from loaders.checkpoint import Position, State, read_state
from loaders.costs import check_limit, computes_on_processor, load_settings, measure_sizes
from loaders.dali.decode_errors import translate_error
from loaders.dali.pipeline import make_pipeline, release_memory
from loaders.dali.readers import READER, ReaderOutputs, read_planned, read_stored
from loaders.dataset.fields import Fields
from loaders.dataset.index_check import index_fault
from loaders.dataset.records import Records
from loaders.dataset.split import OpenSplit
from loaders.devices import find_gpu
from loaders.explain import explanation
from loaders.frameworks import load_framework
from loaders.memory import HW_DECODER_LOAD, MAX_THREADS, PREFETCH, PREFETCH_RAW, ImageSizes
from loaders.options import Options, at_least, default_threads
from loaders.ranks import local_processes
from loaders.samplers.order import PlannedOrder, StoredOrder
from loaders.transforms.parse import Recipe
from loaders.transforms.soft_labels import mixed_labels
from manifests.errors import CallError, DamagedError, IndexFileError


class Loader:
    """An iterable of batches; `loaders.build` says what they are.

    Each ``for`` begins an epoch. One that is left early is over: the next begins anew, with another order
    if the loader shuffles. One thread may use a loader at a time, and one iteration: the beginning of
    another ends the first. Ranks that share epochs leave them at the same batch. Use it as a context manager,
    or `close` it, to give its memory back.
    """

    def __init__(self, split: OpenSplit, recipe: Recipe, options: Options, order: StoredOrder | PlannedOrder) -> None:
        """Open the shards and start to read; `loaders.build` calls it."""
        self._gpu = find_gpu(options)
        sizes = None if self._gpu is None else measure_sizes(split)
        self._split, self._recipe = split, recipe
        self._options = _suited(options, recipe, sizes, gpu=self._gpu is not None)
        if options.memory_limit is not None and self._gpu is not None:
            _check_limit(sizes, recipe, self._options, order)
        self._order = order
        self._framework = load_framework(options.framework)
        self._fields = Fields(split, options.fields, planned=isinstance(order, PlannedOrder))
        self._records: Records | None = None
        # With mixed labels comes as many classes as the recipe or the dataset has.
        self._classes = _classes(split, recipe)
        self._position = Position()
        # Where the last whole batch left the loader: an interruption in the middle of one must not shift the rest.
        self._safe = (self._position, b"")
        self._whole = True
        self._iteration = 0
        self._pipeline: Any = self._start()

    def __len__(self) -> int:
        """Return how many batches an epoch has on this rank; every rank has as many."""
        return self._order.batches

    @property
    def classes(self) -> tuple[str, ...]:
        """The dataset's class names, in label order; empty where it states none."""
        return self._split.manifest.classes

    def __iter__(self) -> Iterator[Any]:
        """Begin an epoch, or go on in one that `load_state_dict` named.

        Raises:
            CallError: the loader is closed. Going on raises it when a newer iteration has begun.
            DamagedError: going on raises it for an image that cannot be decoded, or a label that cannot
                be read.

        """
        self._open()
        self._begin()
        self._iteration += 1
        return self._batches(self._iteration)

    def set_epoch(self, epoch: int) -> None:
        """Name the coming epoch, counted from 0; the epochs of a loader count up by themselves.

        An epoch that is not the next is begun anew, with an order that only the seed and its number decide.

        Raises:
            CallError: the number is wrong, or the loader is closed.

        """
        epoch = at_least("epoch", epoch, 0)
        self._open()
        if epoch != self._position.next_epoch():
            self._restart(Position(epoch=epoch, started=epoch))

    def state_dict(self) -> dict[str, Any]:
        """Return where this loader stands, as plain values: epoch, batch, and the state of DALI's pipeline.

        `load_state_dict` in a new process, on a loader that was built alike, goes on with the same batches to the
        bit, augmentation included. Each rank saves and loads its own. After an interruption or an error in the
        middle of a batch it is where the last whole batch left the loader.

        Raises:
            CallError: the loader is closed.

        """
        self._open()
        return State(self._built(), *self._safe).to_dict()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on where the loader stood that gave `state`.

        Raises:
            CallError: it is not a state, or is one of a loader that was built otherwise; the message says in what.

        """
        self._open()
        found = read_state(state, self._built(), batches=len(self))
        before = self._safe
        try:
            self._restart(found.position.restored(len(self)), found.checkpoint)
        except (RuntimeError, ValueError) as error:
            self._restart(before[0].restored(len(self)), before[1])
            raise CallError("this state is damaged: DALI cannot go on from it", hint="load another") from error

    def explain(self) -> str:
        """Return what this loader does, as text: transforms, what became of them and why, memory and threads."""
        return explanation(self._split, self._recipe, self._options, self._order, gpu=self._gpu is not None)

    def close(self) -> None:
        """Stop reading and give the memory back. Batches already taken stay good."""
        self._pipeline = None
        if self._records is not None:
            self._records.close()
        release_memory()

    def __reduce__(self) -> Any:
        raise CallError("a loader cannot be copied, or sent to another process", hint="build one there")

    def __enter__(self) -> Loader:
        self._open()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _start(self, checkpoint: bytes = b"") -> Any:
        options, started = self._options, self._position.started
        seed = _seed([options.seed, started, options.ranks.rank])
        pipeline = make_pipeline(
            self._reader(seed), self._recipe, options, seed=seed, gpu=self._gpu, checkpoint=checkpoint or None
        )
        try:
            pipeline.build()
            meta = pipeline.reader_meta()
        except RuntimeError as error:
            named = translate_error(error, self._split)
            if isinstance(named, IndexFileError):
                raise named from error
            if isinstance(named, DamagedError):
                # No record has been read yet.
                raise IndexFileError(
                    named.message.replace("a record", "an index"), file=named.file, hint=_VERIFY
                ) from error
            raise
        found = meta[READER]["epoch_size"] if READER in meta else self._split.samples
        if found != self._split.samples:
            raise index_fault(self._split) or IndexFileError(
                f"the indexes of {self._split.folder} have {found} samples, and the manifest states "
                f"{self._split.samples}",
                hint=_VERIFY,
            )
        pipeline.schedule_run()
        return pipeline

    def _reader(self, seed: int) -> Callable[[], ReaderOutputs]:
        started = self._position.started
        if isinstance(self._order, StoredOrder):
            return partial(
                read_stored,
                self._split,
                self._order,
                seed=seed,
                file_seed=_seed([self._options.seed, started]),
                with_label=self._fields.stored_label,
                with_source=self._fields.source,
            )
        if self._records is None:
            self._records = Records(self._split)
        prefetch = self._options.prefetch or PREFETCH
        return partial(read_planned, self._order, self._records, started=started, prefetch=prefetch)

    def _restart(self, position: Position, checkpoint: bytes = b"") -> None:
        # Nothing of the old pipeline may be held while the new one takes its memory.
        self._pipeline = None
        self._position, self._safe, self._whole = position, (position, checkpoint), True
        self._iteration += 1
        self._pipeline = self._start(checkpoint)

    def _open(self) -> Any:
        if self._pipeline is None:
            raise CallError("this loader is closed", hint="build another")
        return self._pipeline

    def _built(self) -> dict[str, Any]:
        """Return what two loaders must have in common for one to go on where the other stood."""
        options = self._options
        return {
            "dataset": self._split.fingerprint,
            "transforms": " ".join(map(repr, (*self._recipe.operations, *self._recipe.mixing))),
            "batch_size": options.batch_size,
            "shuffle": options.shuffle,
            "sampler": self._order.text,
            "sample_order": self._order.version,
            "seed": options.seed,
            "rank": options.ranks.rank,
            "world_size": options.ranks.world_size,
            "last_batch": options.last_batch,
            "dtype": options.dtype,
            "layout": options.layout,
            "fields": list(options.fields),
            "device": "cpu" if self._gpu is None else "gpu",
        }

    def _begin(self) -> None:
        position, runs = self._position, self._order.runs
        if position.resumed:
            self._position = position.going_on()
            return
        epoch = position.next_epoch()
        if position.read == 0:
            self._position = Position(epoch=epoch, started=position.started)
        elif position.batch < len(self) or not self._whole:
            self._restart(Position(epoch=epoch, started=epoch))
        else:
            # What is left is what `drop` leaves out.
            for _ in range(runs - position.batch):
                self._run()
            self._position = Position(epoch=epoch, started=position.started, read=self._position.read)

    def _batches(self, iteration: int) -> Iterator[Any]:
        while self._position.batch < len(self):
            self._open()
            if iteration != self._iteration:
                raise CallError(
                    "another iteration of this loader has begun since, or its epoch was set",
                    hint="build a loader for each",
                )
            batch = self._batch(self._order.size(self._position))
            self._position = self._position.after_batch()
            self._safe = (self._position, self._open().checkpoint())
            yield batch

    def _batch(self, size: int) -> Any:
        outputs = list(self._run())
        images = outputs.pop(0) if "image" in self._options.fields else None
        arrays = [np.asarray(each.as_tensor()) for each in outputs]
        stored = arrays.pop(0) if self._fields.stored_label else None
        rows = self._rows(arrays)
        values = self._fields.values(self._options.fields, stored, rows)
        if arrays and "label" in values:
            values["label"] = mixed_labels(
                np.asarray(values["label"]), arrays[0], arrays[1], self._classes, self._recipe.smoothing
            )
        tensor = None if images is None else self._images(images, size)
        return tuple(tensor if name == "image" else self._given(values[name], size) for name in self._options.fields)

    def _rows(self, arrays: list[NDArray[Any]]) -> NDArray[np.int64] | None:
        """Take what tells where a batch's samples come from, if anything does."""
        if isinstance(self._order, PlannedOrder):
            return arrays.pop(0)
        return self._fields.rows(arrays.pop(0)) if self._fields.source else None

    def _images(self, outputs: Any, size: int) -> Any:
        tensor = self._framework.images(outputs, self._options.dtype, self._gpu)[:size]
        # Of no image nothing can be asked: the last batch of a rank may be empty.
        for function in self._recipe.batch_functions if size else ():
            tensor = function(tensor)
            if not hasattr(tensor, "__len__") or len(tensor) != size:
                name = getattr(function, "__name__", type(function).__name__)
                raise CallError(
                    f"the function {name} of transforms must return a tensor of {size} images",
                    hint="return the batch that it is given, changed",
                )
        return tensor

    def _given(self, values: Any, size: int) -> Any:
        return values[:size] if isinstance(values, list) else self._framework.numbers(values[:size], self._gpu)

    def _run(self) -> Any:
        pipeline = self._open()
        # An interruption comes after what it waits for, and before the next line.
        self._whole, self._position = False, self._position.after_run()
        try:
            outputs = pipeline.share_outputs()
            pipeline.release_outputs()
            pipeline.schedule_run()
        except (RuntimeError, StopIteration) as error:
            raise translate_error(error, self._split) from error
        self._whole = True
        return outputs


_VERIFY = "run `dataprep verify` to see which is wrong"


def _seed(numbers: list[int]) -> int:
    return int(np.random.SeedSequence(numbers).generate_state(1)[0] >> 1)


def _suited(options: Options, recipe: Recipe, sizes: ImageSizes | None, *, gpu: bool) -> Options:
    """Choose what was not said, for this machine and these images."""
    decoded = sizes if recipe.raw_size is None else None
    most = decoded.threads if decoded else MAX_THREADS
    computing = computes_on_processor(recipe.operations)
    threads = options.num_threads or default_threads(local_processes(), most, gpu=gpu, computing=computing)
    load = options.hw_decoder_load
    if load is None:
        load = decoded.hardware_load if decoded else HW_DECODER_LOAD
    prefetch = options.prefetch or (PREFETCH_RAW if gpu and recipe.raw_size else PREFETCH)
    return replace(options, num_threads=threads, hw_decoder_load=load, prefetch=prefetch)


def _check_limit(sizes: ImageSizes | None, recipe: Recipe, options: Options, order: StoredOrder | PlannedOrder) -> None:
    if sizes is None:
        raise CallError(
            "memory_limit is said, and the sample tables do not state the sizes of all images",
            hint="run `dataprep index --overwrite --validate header` if the shards are from elsewhere, or leave it out",
        )
    spread = isinstance(order, PlannedOrder) and order.spread
    check_limit(sizes, load_settings(recipe, options, spread=spread), options.memory_limit or 0)


def _classes(split: OpenSplit, recipe: Recipe) -> int:
    stated = recipe.num_classes
    held = len(split.manifest.classes)
    if recipe.mixing and not (stated or held):
        raise CallError(
            f"{split.folder} states no classes, and mixed labels need their number",
            hint="say class_num with the operation that mixes",
        )
    if recipe.mixing and stated and held > stated:
        raise CallError(
            f"mixed labels of {stated} classes (class_num), and {split.folder} has {held}",
            hint="leave class_num out, and it is the dataset's",
        )
    return stated or held
