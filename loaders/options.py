"""The arguments of `build` that are plain values, checked. It must never know a dataset or a graph."""

from __future__ import annotations

import operator
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from loaders.ranks import Ranks
from manifests.errors import CallError

#: Operators on the processor wait for all threads. Images a second on an H200 with 16 cores, with 8, 12 and 16: a
#: PaddleClas list whose crop is computed by such operators 19,500, 15,500 and 14,500.
MAX_THREADS_COMPUTING = 8

#: Of a value of an image.
BYTES = {"float16": 2, "bfloat16": 2, "float32": 4, "uint8": 1}

DTYPES = ("float16", "bfloat16", "float32", "uint8")
FRAMEWORKS = ("torch", "numpy", "jax", "paddle")


@dataclass(frozen=True, slots=True)
class Options:
    """How batches are made; the words are those of `loaders.build`.

    Raises:
        CallError: a value is wrong; the message names it.

    """

    batch_size: int
    shuffle: bool
    device: str
    device_id: int | None
    ranks: Ranks
    seed: int
    num_threads: int | None
    dtype: str
    layout: str
    last_batch: str
    fields: tuple[str, ...]
    framework: str
    prefetch: int | None
    hw_decoder_load: float | None
    memory_limit: int | None = None

    def __post_init__(self) -> None:
        keep_whole(self, "batch_size", 1)
        keep_whole(self, "seed", 0, most=2**63)
        for name, least, most in (("device_id", 0, 1024), ("num_threads", 1, 1024), ("prefetch", 1, 64)):
            if getattr(self, name) is not None:
                keep_whole(self, name, least, most=most)
        if not isinstance(self.shuffle, bool):
            raise CallError(f"shuffle must be True, False or None, got {self.shuffle!r}")
        _one_of("device", self.device, ("auto", "gpu", "cpu"))
        _one_of("dtype", self.dtype, DTYPES)
        _one_of("layout", self.layout, ("NCHW", "NHWC"))
        _one_of("last_batch", self.last_batch, ("drop", "partial", "pad"))
        _one_of("framework", self.framework, FRAMEWORKS)
        if self.device == "cpu" and self.device_id is not None:
            raise CallError(
                f'device_id={self.device_id} names a GPU, and device is "cpu"',
                hint='leave device_id out, or say device="gpu"',
            )
        if not self.fields or len(set(self.fields)) != len(self.fields):
            raise CallError(f"fields must name something, and nothing twice, got {self.fields!r}")
        if self.framework == "numpy" and self.dtype == "bfloat16":
            raise CallError('dtype="bfloat16", which NumPy does not know', hint='say dtype="float32" or "float16"')
        load = self.hw_decoder_load
        if load is not None and (not isinstance(load, (int, float)) or isinstance(load, bool) or not 0 <= load <= 1):
            raise CallError(f"hw_decoder_load must be a number from 0 to 1, got {load!r}")


def default_threads(processes: int, most: int, *, gpu: bool, computing: bool) -> int:
    """Return how many threads one of so many processes on this machine should read and decode with.

    Args:
        processes: that share the machine.
        most: that these images are worth, where a GPU does the rest.
        gpu: whether images are on the GPU once decoded.
        computing: whether the transforms have operators on the processor besides decoding.

    """
    cores = max(1, len(os.sched_getaffinity(0)) // processes)
    if not gpu:
        return cores
    return min(cores, most, MAX_THREADS_COMPUTING) if computing else min(cores, most)


def read_bytes(name: str, value: Any) -> int:
    """Read a number of bytes: a whole number, or a text such as ``"4GiB"``, ``"500 MB"``.

    Raises:
        CallError: it is neither.

    """
    if not isinstance(value, str):
        return at_least(name, value, 1, most=2**60)
    found = re.fullmatch(r"\s*(\d{1,9}(?:\.\d{1,9})?)\s*([KMGT]?)(i?)B\s*", value)
    if found is None:
        raise CallError(f"{name}={value!r} is no number of bytes", hint='write "4GiB", say')
    number, prefix, binary = found.groups()
    return at_least(
        name, int(float(number) * (1024 if binary else 1000) ** " KMGT".index(prefix or " ")), 1, most=2**60
    )


def at_least(name: str, value: Any, least: int, *, most: int = 2**31 - 1) -> int:
    """Return a whole number of Python's from one of Python's or NumPy's, within bounds.

    Raises:
        CallError: it is none, or not within the bounds; the message names it.

    """
    try:
        number = operator.index(value)
    except TypeError:
        number = None
    if number is None or isinstance(value, bool) or number < least:
        raise CallError(f"{name} must be a whole number of at least {least}, got {value!r}")
    if number > most:
        raise CallError(f"{name} must be at most {most}, got {value!r}")
    return number


def keep_whole(record: Any, name: str, least: int, *, most: int = 2**31 - 1) -> None:
    """Check a whole number of a frozen record that is being made, and keep it as Python's own.

    Raises:
        CallError: see `at_least`.

    """
    object.__setattr__(record, name, at_least(name, getattr(record, name), least, most=most))


def _one_of(name: str, value: object, known: Sequence[str]) -> None:
    if not isinstance(value, str) or value not in known:
        raise CallError(f"{name} must be one of {', '.join(map(repr, known))}, got {value!r}")
