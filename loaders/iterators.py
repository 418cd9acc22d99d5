"""The object that a training script holds: a DALI pipeline in, torch tensors out."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Sequence
from types import TracebackType
from typing import Any, TypeAlias

import numpy as np
import torch
from torch.utils.dlpack import from_dlpack

from loaders.graph import READER, Pipeline, make_pipeline, release_memory
from loaders.labels import label_reader
from loaders.options import Options
from loaders.shards import OpenSplit
from loaders.transforms import Operation
from manifests.errors import CallError, DamagedError, IndexFileError

Batch: TypeAlias = tuple[torch.Tensor, torch.Tensor]


class Loader:
    """An iterable of batches ``(images, labels)``; `loaders.build` says what they are.

    Each ``for`` begins an epoch. One that is left early is over: the next begins anew, with another order
    if the loader shuffles. One thread may use a loader at a time, and one iteration: the beginning of
    another ends the first. Use it as a context manager, or `close` it, to give its memory back.
    """

    def __init__(self, split: OpenSplit, operations: Sequence[Operation], options: Options) -> None:
        self._gpu = _gpu(options)
        self._split = split
        self._operations = operations
        self._options = options
        self._labels = label_reader(split)
        self._epoch = 0
        self._runs_left = 0
        self._pipeline: Pipeline | None = self._start()

    def __len__(self) -> int:
        """Return how many batches an epoch has."""
        return self._options.batches(self._split.samples)

    def __iter__(self) -> Iterator[Batch]:
        """Begin an epoch.

        Raises:
            CallError: the loader is closed. Going on raises it when a newer iteration has begun.
            DamagedError: going on raises it for an image that cannot be decoded, or a label that cannot
                be read.

        """
        self._open()
        self._begin()
        self._epoch += 1
        return self._batches(self._epoch)

    def close(self) -> None:
        """Stop reading and give the memory back. Batches already taken stay good."""
        self._pipeline = None
        release_memory()

    def __enter__(self) -> Loader:
        self._open()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _start(self) -> Pipeline:
        seed = int(np.random.SeedSequence([self._options.seed, self._epoch]).generate_state(1)[0])
        pipeline = make_pipeline(self._split, self._operations, self._options, seed=seed, gpu=self._gpu)
        try:
            pipeline.build()
            found = pipeline.reader_meta(READER)["epoch_size"]
        except RuntimeError as error:
            raise _named(error, self._split) from error
        if found != self._split.samples:
            raise IndexFileError(
                f"the indexes of {self._split.folder} have {found} samples, and the manifest states "
                f"{self._split.samples}",
                mend="run `dataprep verify` to see which is wrong",
            )
        pipeline.schedule_run()
        return pipeline

    def _open(self) -> Pipeline:
        if self._pipeline is None:
            raise CallError("this loader is closed", mend="build another")
        return self._pipeline

    def _begin(self) -> None:
        runs = -(-self._split.samples // self._options.batch_size)
        if self._runs_left > runs - len(self):
            # Nothing of the old pipeline may be held while the new one takes its memory.
            self._pipeline = None
            self._pipeline = self._start()
        else:
            # What is left is the batch that `drop` leaves out.
            for _ in range(self._runs_left):
                self._run()
        self._runs_left = runs

    def _batches(self, epoch: int) -> Iterator[Batch]:
        for step in range(len(self)):
            self._open()
            if epoch != self._epoch:
                raise CallError("another iteration of this loader has begun since", mend="build a loader for each")
            size = self._options.batch_size
            if self._options.last_batch == "partial":
                size = min(size, self._split.samples - step * size)
            yield self._batch(size)

    def _batch(self, size: int) -> Batch:
        images, labels = self._run()
        numbers = torch.from_numpy(self._labels(np.asarray(labels.as_tensor())))[:size]
        if self._gpu is not None:
            # From pinned memory the copy joins torch's stream, and this thread does not wait for it.
            numbers = numbers.pin_memory().to(torch.device("cuda", self._gpu), non_blocking=True)
        return from_dlpack(images.as_tensor())[:size], numbers

    def _run(self) -> tuple[Any, Any]:
        pipeline = self._open()
        try:
            outputs = pipeline.share_outputs()
            pipeline.release_outputs()
            self._runs_left -= 1
            pipeline.schedule_run()
        except RuntimeError as error:
            raise _named(error, self._split) from error
        images, labels = outputs
        return images, labels


def _gpu(options: Options) -> int | None:
    if options.device == "cpu":
        return None
    if not torch.cuda.is_available():
        if options.device == "auto":
            return None
        raise CallError('device="gpu", and torch finds no GPU here', mend='say device="cpu" or "auto"')
    gpu = torch.cuda.current_device() if options.device_id is None else options.device_id
    if gpu >= torch.cuda.device_count():
        raise CallError(f"device_id={gpu}, and there are {torch.cuda.device_count()} GPUs, counted from 0")
    return gpu


#: An operator that fails on what it reads or decodes; what DALI says of it stands between two marks.
_FAILED = re.compile(
    r"operator `nvidia\.dali\.fn\.(readers|decoders)\.\w+`.*?encountered:\s*(.*?)\s*"
    r"(?:C\+\+ context|Current pipeline object|$)",
    re.DOTALL,
)


def _named(error: RuntimeError, split: OpenSplit) -> Exception:
    """Return the error to raise for one of DALI's: `error` itself if the dataset is not to blame."""
    found = _FAILED.search(str(error))
    if found is None or re.search("memory|bad_alloc", found[2]):
        return error
    what = "an image cannot be decoded" if found[1] == "decoders" else "a record cannot be read"
    said = " ".join(found[2].split())
    return DamagedError(
        f"{what} (DALI says: {said})",
        file=split.folder,
        mend=f"run `dataprep verify --decode {shlex.quote(split.folder)}` to see which",
    )
