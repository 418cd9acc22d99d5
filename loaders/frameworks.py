"""DALI's outputs -> tensors of a framework, on the device where they are. Each framework is imported when asked for."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from manifests.errors import CallError


@dataclass(frozen=True, slots=True)
class Framework:
    """How a framework takes arrays in.

    Attributes:
        images: from DALI's tensor list, a dtype's name and the GPU's number (none for the processor) to a tensor.
        numbers: from a NumPy array and the GPU's number to a tensor.

    """

    images: Callable[[Any, str, int | None], Any]
    numbers: Callable[[NDArray[Any], int | None], Any]


def load_framework(name: str) -> Framework:
    """Return the framework of that name.

    Raises:
        CallError: it is not installed.

    """
    try:
        return _FRAMEWORKS[name]()
    except ImportError as error:
        raise CallError(
            f"framework={name!r} is not installed ({error})", hint=f"install it, or say framework={_other(name)!r}"
        ) from None


def _other(name: str) -> str:
    return "numpy" if name == "torch" else "torch"


def _torch() -> Framework:
    import torch
    from torch.utils.dlpack import from_dlpack

    def images(outputs: Any, dtype: str, gpu: int | None) -> torch.Tensor:
        tensor = from_dlpack(outputs.as_tensor())
        return tensor.to(torch.bfloat16) if dtype == "bfloat16" else tensor

    def numbers(array: NDArray[Any], gpu: int | None) -> torch.Tensor:
        tensor = torch.from_numpy(np.ascontiguousarray(array))
        if gpu is None:
            return tensor
        # From pinned memory the copy joins torch's stream, and this thread does not wait for it.
        return tensor.pin_memory().to(torch.device("cuda", gpu), non_blocking=True)

    return Framework(images, numbers)


def _numpy() -> Framework:
    def images(outputs: Any, dtype: str, gpu: int | None) -> NDArray[Any]:
        # A copy: DALI's memory goes with its output.
        return np.array(outputs.as_cpu().as_tensor() if gpu is not None else outputs.as_tensor())

    return Framework(images, lambda array, gpu: array)


def _jax() -> Framework:
    import jax
    from jax import numpy as jnp

    def device(gpu: int | None) -> Any:
        return jax.devices("cpu" if gpu is None else "gpu")[gpu or 0]

    def images(outputs: Any, dtype: str, gpu: int | None) -> Any:
        tensor = outputs.as_tensor()
        array = jax.dlpack.from_dlpack(tensor) if gpu is not None else jnp.asarray(np.array(tensor))
        return array.astype(jnp.bfloat16) if dtype == "bfloat16" else array

    return Framework(images, lambda array, gpu: jax.device_put(array, device(gpu)))


def _paddle() -> Framework:
    import paddle

    def place(gpu: int | None) -> Any:
        return paddle.CPUPlace() if gpu is None else paddle.CUDAPlace(gpu)

    def images(outputs: Any, dtype: str, gpu: int | None) -> Any:
        tensor = outputs.as_tensor()
        array = paddle.utils.dlpack.from_dlpack(tensor) if gpu is not None else paddle.to_tensor(np.array(tensor))
        return array.astype("bfloat16") if dtype == "bfloat16" else array

    return Framework(images, lambda array, gpu: paddle.to_tensor(array, place=place(gpu)))


_FRAMEWORKS = {"torch": _torch, "numpy": _numpy, "jax": _jax, "paddle": _paddle}
