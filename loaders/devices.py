"""Which device a loader uses, the tensors of torch, NumPy, JAX and Paddle on it, and CUDA's queues.

A framework is imported only if it is chosen: it knows its GPUs, and makes the tensors.
"""

from __future__ import annotations

import ctypes
import os
import platform
import sys
from collections.abc import Callable, Mapping, MutableMapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from loaders.arrays import Array
from loaders.ranks import Ranks, imported, local_rank
from manifests.errors import CallError
from manifests.process.text import plural


@dataclass(frozen=True, slots=True)
class Device:
    """Where images are decoded and transformed.

    Attributes:
        kind: ``"cpu"`` or ``"gpu"``.
        index: number of the GPU. 0 for the CPU.

    """

    kind: str
    index: int = 0

    @property
    def is_gpu(self) -> bool:
        """Whether this is a GPU."""
        return self.kind == "gpu"

    @property
    def gpu_index(self) -> int | None:
        """The number of the GPU; `None` for the CPU."""
        return self.index if self.is_gpu else None

    def __str__(self) -> str:
        return f"gpu:{self.index}" if self.is_gpu else self.kind


CPU = Device("cpu")


@dataclass(frozen=True, slots=True)
class Gpus:
    """The GPUs that a framework can use in this process.

    Attributes:
        count: number of GPUs, which are numbered from 0.
        current: returns the number of the GPU that the framework uses by default.
        chosen: whether `current` was chosen for this process, so that it applies to several ranks
            as well.

    """

    count: int
    current: Callable[[], int] = lambda: 0
    chosen: bool = False


def find_gpus(framework: str) -> Gpus:
    """Return the GPUs that a framework can use: none if it is missing or was built for the CPU."""
    try:
        return _FIND[framework]()
    except ImportError:
        # `load_framework` reports the missing library.
        return Gpus(0)


def find_device(device: str, device_id: int | None, ranks: Ranks, gpus: Gpus) -> Device:
    """Return the device to use: ``"auto"`` takes a GPU if there is one.

    Args:
        device: ``"auto"``, ``"gpu"`` or ``"cpu"``.
        device_id: number of the GPU. `None` means the framework's current GPU; with several ranks,
            the local rank.
        ranks: rank and world size.
        gpus: the GPUs of the framework.

    Raises:
        CallError: the GPU does not exist on this machine.

    """
    if device == "cpu":
        return CPU
    if not gpus.count:
        if device == "auto":
            return CPU
        raise CallError(
            'device="gpu", but this machine has no GPU', hint='set device="cpu" or device="auto"'
        )
    if device_id is None:
        return Device("gpu", _default_gpu(ranks, gpus))
    if device_id >= gpus.count:
        numbers = "0"
        if gpus.count > 1:
            numbers = f"0 to {gpus.count - 1}"
        raise CallError(
            f"device_id={device_id}, but this machine has {plural(gpus.count, 'GPU')}, numbered"
            " from 0",
            hint=f"choose {numbers}, or remove device_id",
        )
    return Device("gpu", device_id)


def _default_gpu(ranks: Ranks, gpus: Gpus) -> int:
    current = gpus.current()
    if ranks.world_size == 1 or gpus.chosen:
        return current
    local = local_rank(ranks)
    if local is not None:
        return local % gpus.count
    # Without a launcher, as with torch.multiprocessing, ranks are numbered machine by machine. A
    # GPU other than the first was chosen with `torch.cuda.set_device`.
    return current or ranks.rank % gpus.count


def _torch_gpus() -> Gpus:
    import torch

    if not torch.cuda.is_available():
        return Gpus(0)
    return Gpus(torch.cuda.device_count(), torch.cuda.current_device)


def _numpy_gpus() -> Gpus:
    torch = imported("torch")
    if torch is not None and torch.cuda.is_available():
        return _torch_gpus()
    return Gpus(_cuda_count())


def _jax_gpus() -> Gpus:
    import jax

    try:
        found: list[Any] = jax.local_devices(backend="gpu")
    except RuntimeError:  # JAX was built for the CPU, or sees no GPU.
        return Gpus(0)
    # JAX numbers its devices over all processes; `local_hardware_id` is CUDA's number.
    numbers = [int(device.local_hardware_id) for device in found]
    return Gpus(max(numbers, default=-1) + 1, lambda: numbers[0], chosen=len(numbers) == 1)


def _paddle_gpus() -> Gpus:
    import paddle

    if not paddle.is_compiled_with_cuda():
        return Gpus(0)
    return Gpus(
        paddle.device.cuda.device_count(),
        lambda: int(paddle.device.get_device().partition(":")[2] or 0),
    )


def device_name(device: Device) -> str:
    """Return the name of a GPU, as the CUDA driver says it, or of the CPU. Empty without a driver."""
    if not device.is_gpu:
        return cpu_name()
    return _gpu_text(device.index, "cuDeviceGetName")


def cpu_name() -> str:
    """Return the name of the CPU."""
    try:
        with open("/proc/cpuinfo", encoding="utf-8", errors="replace") as file:
            names = (
                line.partition(":")[2].strip() for line in file if line.startswith("model name")
            )
            return next(names, "") or platform.machine()
    except OSError:
        return platform.machine()


def gpu_bus_id(index: int) -> str:
    """Return the PCI address of a GPU, by which other programs know it. Empty without a driver."""
    return _gpu_text(index, "cuDeviceGetPCIBusId")


def _gpu_text(index: int, function: str) -> str:
    driver = _cuda_driver()
    device = ctypes.c_int()
    text = ctypes.create_string_buffer(256)
    if driver is None or driver.cuDeviceGet(ctypes.byref(device), index):
        return ""
    if getattr(driver, function)(text, len(text), device):
        return ""
    return text.value.decode(errors="replace")


def _cuda_count() -> int:
    """Return the number of GPUs that the CUDA driver offers to this process. 0 without a driver."""
    driver = _cuda_driver()
    count = ctypes.c_int()
    if driver is None or driver.cuDeviceGetCount(ctypes.byref(count)):
        return 0
    return count.value


def _cuda_driver() -> ctypes.CDLL | None:
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return None
    return None if driver.cuInit(0) else driver


_FIND = {"torch": _torch_gpus, "numpy": _numpy_gpus, "jax": _jax_gpus, "paddle": _paddle_gpus}


# --- tensors --------------------------------------------------------------------------------------


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
    numbers: Callable[[Array, Device], Any]
    device: Callable[[Device], Any]


def load_framework(name: str) -> Framework:
    """Import a framework.

    Raises:
        CallError: the framework is not installed.

    """
    try:
        return _FRAMEWORKS[name]()
    except ImportError as error:
        others = [other for other in ("torch", "numpy") if other != name]
        raise CallError(
            f"framework={name!r} is not installed ({error})",
            hint=f"install it, or set framework={others[0]!r}",
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

    def numbers(array: Array, device: Device) -> torch.Tensor:
        tensor = torch.from_numpy(np.ascontiguousarray(array))
        if not device.is_gpu:
            return tensor
        # CUDA reads a little pageable memory before it returns, without waiting for the GPU.
        # Pinning it would take two more calls, each of which waits for calls of DALI's threads.
        if array.nbytes > _READ_AT_ONCE:
            pinned = torch.empty_like(tensor, pin_memory=True)
            # NumPy copies in this thread. PyTorch would divide the copy among all cores, which
            # decode: 8 ms for a megabyte instead of 0.1 ms.
            np.copyto(pinned.numpy(), array)
            tensor = pinned
        return tensor.to(place(device), non_blocking=True)

    def place(device: Device) -> torch.device:
        return torch.device("cuda", device.index) if device.is_gpu else torch.device("cpu")

    return Framework(images, numbers, place)


def _numpy() -> Framework:
    def images(outputs: Any, dtype: str, device: Device) -> Array:
        # A copy, because a view of DALI's memory would keep the whole output alive.
        if device.is_gpu:
            outputs = outputs.as_cpu()
        return np.array(outputs.as_tensor())

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
        # `jax.devices` also lists devices of other processes, which this one cannot address.
        found = jax.local_devices(backend=device.kind)
        for each in found:
            if device.is_gpu and each.local_hardware_id == device.index:
                return each
        return found[0]

    def numbers(array: Array, device: Device) -> Any:
        if not jax.config.jax_enable_x64:
            array = converted(array, _JAX_DTYPES, "jax", _ENABLE_X64)
        return jax.device_put(array, place(device))

    return Framework(images, numbers, place)


def _paddle() -> Framework:
    import paddle

    def images(outputs: Any, dtype: str, device: Device) -> Any:
        tensor = outputs.as_tensor()
        if str(tensor.dtype).endswith("UINT16"):  # depth
            if device.is_gpu:
                tensor = outputs.as_cpu().as_tensor()
            return numbers(np.array(tensor), device)
        if device.is_gpu:
            array = paddle.utils.dlpack.from_dlpack(tensor)
        else:
            array = paddle.to_tensor(np.array(tensor), place=place(device))
        return array.astype("bfloat16") if dtype == "bfloat16" else array

    def place(device: Device) -> Any:
        return paddle.CUDAPlace(device.index) if device.is_gpu else paddle.CPUPlace()

    def numbers(array: Array, device: Device) -> Any:
        array = converted(array, _PADDLE_DTYPES, "paddle", "")
        return paddle.to_tensor(array, place=place(device))

    return Framework(images, numbers, place)


def converted(array: Array, dtypes: Mapping[str, str], framework: str, remedy: str) -> Array:
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


# --- hardware queues ------------------------------------------------------------------------------

# CUDA maps the streams of a process to 8 hardware queues. A kernel waits for the work before it in
# its queue, also for work of other streams. nvJPEG uses about 40 streams, so a model that trains
# beside DALI waits for decoding. ResNet-50 at batch 128 on an H200, as a fraction of its speed with
# one cached batch: 0.80 with 8 queues, 0.96 with 16, 0.95 with 32.
#
# More queues are dangerous if many processes share a GPU. Each queue takes channels of the GPU,
# whose number is limited, and no decoder reports that none is left: with 14 processes of 32 queues
# each, most images were black or wrong.
#
# CUDA reads the environment variable when it starts in a process, which is often before
# `loaders.build`. So importing this module sets it, and `loaders` imports this module.

VARIABLE = "CUDA_DEVICE_MAX_CONNECTIONS"

QUEUES = "16"


def request_queues(environ: MutableMapping[str, str], modules: Mapping[str, Any]) -> bool:
    """Set the number of queues, unless it is set, and return whether CUDA had already started.

    Args:
        environ: the environment of the process.
        modules: the imported modules by name. Only torch tells whether it has started CUDA.

    """
    if VARIABLE in environ:
        return False
    environ[VARIABLE] = QUEUES
    torch = modules.get("torch")
    return torch is not None and torch.cuda.is_initialized()


#: Whether CUDA had started before `loaders` was imported, and without the number of queues.
STARTED_BEFORE = request_queues(os.environ, sys.modules)


def queues_note() -> str | None:
    """Return what a user should know about the number of queues, `None` if it is right."""
    if STARTED_BEFORE:
        return (
            "CUDA had started before loaders was imported, so it uses 8 hardware queues, and a"
            " model that trains waits for decoding: import loaders first, or set"
            f" {VARIABLE}={QUEUES}"
        )
    given = os.environ.get(VARIABLE, "")
    if given.isdecimal() and int(given) < int(QUEUES):
        return (
            f"{VARIABLE} is {given}: with fewer than {QUEUES} hardware queues, a model that trains"
            " waits for decoding"
        )
    return None
