"""Other spellings of the arguments of `loaders.build`: arguments of `DataLoader`, devices and dtypes of torch."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from loaders.integers import require_int
from loaders.options import BuildRequest
from manifests.errors import CallError
from manifests.process.text import parse_bytes, suggest


class WrongCallError(CallError, TypeError):
    """A function or an operator was called as it cannot be; Python raises a `TypeError` for other objects."""


#: Other names of dtypes. torch's are compared without ``torch.``.
_DTYPES = {
    "fp16": "float16",
    "half": "float16",
    "bf16": "bfloat16",
    "fp32": "float32",
    "float": "float32",
    "byte": "uint8",
}

#: Arguments of `torch.utils.data.DataLoader` that `build` does not have, and what to do instead.
DATALOADER_HINTS = {
    "num_workers": (
        "remove it: num_threads is the number of CPU threads, and its default suits most machines"
    ),
    "pin_memory": "remove it: batches are made on the GPU",
    "pin_memory_device": "remove it: batches are made on the GPU; device selects which",
    "persistent_workers": "remove it: there are no worker processes",
    "worker_init_fn": (
        "remove it: there are no worker processes; seed makes the augmentation reproducible"
    ),
    "multiprocessing_context": "remove it: there are no worker processes",
    "prefetch_factor": "set prefetch, the number of batches to prepare in advance",
    "collate_fn": (
        "remove it: batches are tensors already; a function at the end of transforms may change the"
        " images"
    ),
    "batch_sampler": "set sampler and batch_size",
    "generator": "set seed",
    "timeout": "remove it",
    "in_order": "remove it: batches always come in order",
}


def check_positional(values: tuple[object, ...]) -> None:
    """Check that only the dataset is given by position.

    Raises:
        WrongCallError: there are other values.

    """
    if values:
        raise WrongCallError(
            f"build() takes one argument by position, the dataset, but got {1 + len(values)}",
            hint="name the others: loaders.build(dataset, batch_size=256, transforms=[...])",
        )


def canonical_dtype(dtype: Any) -> Any:
    """Return the name of a dtype given as torch's, NumPy's or JAX's, or by a short name.

    Anything else is unchanged.

    >>> canonical_dtype("fp16")
    'float16'
    """
    if isinstance(dtype, str):
        name = dtype
    elif type(dtype).__module__.partition(".")[0] in ("torch", "numpy", "jax", "paddle"):
        name = str(dtype)  # torch.float16, paddle.float16, or a numpy.dtype
    elif isinstance(dtype, type):
        name = dtype.__name__  # numpy.float16
    else:
        name = getattr(dtype, "__name__", "")  # jax.numpy.float16
    name = name.rpartition(".")[2]
    return _DTYPES.get(name, name) if name else dtype


def canonical_device(device: Any, device_id: int | None) -> tuple[Any, Any]:
    """Return `device` and `device_id` for a device in torch's notation: ``"cuda"``, ``"cuda:1"`` or a `torch.device`.

    >>> canonical_device("cuda:1", None)
    ('gpu', 1)

    Raises:
        CallError: the device and `device_id` name different GPUs.

    """
    if type(device).__module__ == "torch" and type(device).__name__ == "device":
        device = str(device)
    if isinstance(device, bool) or not isinstance(device, (str, int)):
        return device, device_id
    match = re.fullmatch(r"(?:cuda|gpu)(?::(\d{1,4}))?", str(device)) or re.fullmatch(
        r"(\d{1,4})", str(device)
    )
    if match is None:
        return device, device_id
    if match[1] is None:
        return "gpu", device_id
    number = int(match[1])
    if device_id not in (None, number):
        raise CallError(
            f"device={device!r} and device_id={device_id} name different GPUs",
            hint="remove device_id",
        )
    return "gpu", number


def canonical_last_batch(last_batch: Any, other: Mapping[str, Any]) -> Any:
    """Return `last_batch`, which `DataLoader` calls ``drop_last``.

    And check that no other argument is left.

    Args:
        last_batch: the argument of `build`.
        other: arguments of the call that `build` does not have, by name.

    Raises:
        CallError: an argument does not exist; the hint names the one to use. Or `drop_last` is not
            a bool, or contradicts `last_batch`.

    """
    for name in other:
        if name == "drop_last":
            continue
        if name in DATALOADER_HINTS:
            raise WrongCallError(f"build() has no argument {name}", hint=DATALOADER_HINTS[name])
        raise WrongCallError(
            f"build() has no argument {name}",
            hint=suggest(name, [field.name for field in fields(BuildRequest)]),
        )
    if "drop_last" not in other:
        return last_batch
    drop = other["drop_last"]
    if not isinstance(drop, bool):
        raise CallError(f"drop_last must be True or False, got {drop!r}")
    if last_batch is not None and (last_batch == "drop") != drop:
        raise CallError(
            f"last_batch={last_batch!r} and drop_last={drop} contradict each other",
            hint="remove drop_last",
        )
    return last_batch or ("drop" if drop else "partial")


#: Largest `memory_limit` and `cache_limit`, in bytes.
_MAX_SIZE = 2**60


def size_in_bytes(name: str, limit: int | str | None) -> float:
    """Return an argument that is a size in bytes; `math.inf` if it is not given.

    Raises:
        CallError: it is not a size.

    """
    if limit is None:
        return math.inf
    if not isinstance(limit, str):
        return require_int(name, limit, 1, maximum=_MAX_SIZE)
    try:
        return require_int(name, parse_bytes(limit), 1, maximum=_MAX_SIZE)
    except CallError:
        raise
    except ValueError:
        raise CallError(
            f"{name}={limit!r} is not a size in bytes", hint='pass for example "4GiB"'
        ) from None
