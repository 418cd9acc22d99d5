"""Convert batches to the tensors of torch, NumPy, JAX or Paddle.

Each library is imported only if it is chosen.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from loaders.devices import Device
from loaders.options import FrameworkName
from manifests.errors import CallError


@dataclass(frozen=True, slots=True)
class Framework:
    """The conversions to the tensors of one framework.

    Attributes:
        images: converts DALI's tensor list to a tensor, given the name of the dtype and the device.
        numbers: converts a NumPy array to a tensor on the device.
        device: returns the device as the framework's own object; for NumPy, whose arrays are in
            host memory, ``"cpu"``.

    """

    images: Callable[[Any, str, Device], Any]
    numbers: Callable[[NDArray[Any], Device], Any]
    device: Callable[[Device], Any]


def load_framework(name: FrameworkName) -> Framework:
    """Import a framework.

    Raises:
        CallError: the framework is not installed.

    """
    try:
        return _FRAMEWORKS[name]()
    except ImportError as error:
        other = "numpy" if name == "torch" else "torch"
        raise CallError(
            f"framework={name!r} is not installed ({error})",
            hint=f"install it, or set framework={other!r}",
        ) from None


#: Largest copy from pageable memory for which CUDA never waits for the GPU, in bytes (CUDA Runtime
#: API, "API synchronization behavior").
_READ_AT_ONCE = 65_536


def _torch() -> Framework:
    import torch
    from torch.utils.dlpack import from_dlpack

    def images(outputs: Any, dtype: str, device: Device) -> torch.Tensor:
        tensor = from_dlpack(outputs.as_tensor())
        return tensor.to(torch.bfloat16) if dtype == "bfloat16" else tensor

    def numbers(array: NDArray[Any], device: Device) -> torch.Tensor:
        tensor = torch.from_numpy(np.ascontiguousarray(array))
        if not device.is_gpu:
            return tensor
        # CUDA reads a little pageable memory before it returns, without waiting for the GPU.
        # Pinning it would take two more calls, each of which waits for those of DALI's threads.
        source = tensor if array.nbytes <= _READ_AT_ONCE else tensor.pin_memory()
        return source.to(place(device), non_blocking=True)

    def place(device: Device) -> torch.device:
        return torch.device("cuda", device.index) if device.is_gpu else torch.device("cpu")

    return Framework(images, numbers, place)


def _numpy() -> Framework:
    def images(outputs: Any, dtype: str, device: Device) -> NDArray[Any]:
        # A copy, because a view of DALI's memory would keep the whole output alive.
        return np.array(outputs.as_cpu().as_tensor() if device.is_gpu else outputs.as_tensor())

    return Framework(images, lambda array, device: array, lambda device: "cpu")


#: What JAX makes of numbers of 64 bits, unless it is told to keep them.
_JAX_DTYPES = {"int64": "int32", "uint64": "uint32", "float64": "float32"}
_ENABLE_X64 = 'call jax.config.update("jax_enable_x64", True) before the loader is built, or '

#: Paddle has no unsigned types of more than 8 bits, and reads uint16 as bfloat16.
_PADDLE_DTYPES = {"uint16": "int32", "uint32": "int64", "uint64": "int64"}


def _jax() -> Framework:
    import jax
    from jax import numpy as jnp

    def images(outputs: Any, dtype: str, device: Device) -> Any:
        tensor = outputs.as_tensor()
        array = jax.dlpack.from_dlpack(tensor) if device.is_gpu else jnp.asarray(np.array(tensor))
        return array.astype(jnp.bfloat16) if dtype == "bfloat16" else array

    def place(device: Device) -> Any:
        # Of this process: `jax.devices` also lists those of other processes, which this one cannot
        # address.
        found = jax.local_devices(backend=device.kind)
        chosen = (
            each for each in found if device.is_gpu and each.local_hardware_id == device.index
        )
        return next(chosen, found[0])

    def numbers(array: NDArray[Any], device: Device) -> Any:
        if not jax.config.jax_enable_x64:
            array = converted(array, _JAX_DTYPES, "jax", _ENABLE_X64)
        return jax.device_put(array, place(device))

    return Framework(images, numbers, place)


def _paddle() -> Framework:
    import paddle

    def images(outputs: Any, dtype: str, device: Device) -> Any:
        tensor = outputs.as_tensor()
        if str(tensor.dtype).endswith("UINT16"):  # depth
            on_cpu = outputs.as_cpu().as_tensor() if device.is_gpu else tensor
            return numbers(np.array(on_cpu), device)
        if device.is_gpu:
            array = paddle.utils.dlpack.from_dlpack(tensor)
        else:
            array = paddle.to_tensor(np.array(tensor), place=place(device))
        return array.astype("bfloat16") if dtype == "bfloat16" else array

    def place(device: Device) -> Any:
        return paddle.CUDAPlace(device.index) if device.is_gpu else paddle.CPUPlace()

    def numbers(array: NDArray[Any], device: Device) -> Any:
        array = converted(array, _PADDLE_DTYPES, "paddle", "")
        return paddle.to_tensor(array, place=place(device))

    return Framework(images, numbers, place)


def converted(
    array: NDArray[Any], dtypes: Mapping[str, str], framework: str, remedy: str
) -> NDArray[Any]:
    """Return an array as a type that a framework has.

    Args:
        array: the numbers.
        dtypes: the types that the framework does not have, and what takes their place.
        framework: how the error names the framework.
        remedy: the beginning of the hint.

    Raises:
        CallError: a number does not have the same value in the other type.

    """
    dtype = dtypes.get(array.dtype.name)
    if dtype is None:
        return array
    result = array.astype(dtype)
    # The comparison of int64 with uint64 would round.
    differs = result.astype(array.dtype) != array
    differs |= (result < 0) != (array < 0)
    if array.dtype.kind == "f":
        differs &= ~np.isnan(array)
    if differs.any():
        raise CallError(
            f"{array[differs].flat[0]!r} is a number of type {array.dtype}, which"
            f" framework={framework!r} would change",
            hint=f'{remedy}set framework="numpy" or "torch"',
        )
    return result


_FRAMEWORKS = {"torch": _torch, "numpy": _numpy, "jax": _jax, "paddle": _paddle}
