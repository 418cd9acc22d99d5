"""Which device a loader uses, and how many hardware queues CUDA has.

`find_gpus` asks the framework that gets the batches; it imports torch only for framework="torch".
"""

from __future__ import annotations

import ctypes
import os
import platform
import sys
from collections.abc import Callable, Mapping, MutableMapping
from dataclasses import dataclass
from typing import Any

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
    local = local_rank()
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
    """Return the name of a GPU, or of the CPU."""
    return gpu_name(device.index) if device.is_gpu else cpu_name()


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


def gpu_name(index: int) -> str:
    """Return the name of a GPU, as the CUDA driver says it. Empty without a driver."""
    return _gpu_text(index, "cuDeviceGetName")


def gpu_bus_id(index: int) -> str:
    """Return the PCI address of a GPU, by which other programs know it. Empty without a driver."""
    return _gpu_text(index, "cuDeviceGetPCIBusId")


def _gpu_text(index: int, function: str) -> str:
    driver, device, text = _cuda_driver(), ctypes.c_int(), ctypes.create_string_buffer(256)
    if driver is None or driver.cuDeviceGet(ctypes.byref(device), index):
        return ""
    if getattr(driver, function)(text, len(text), device):
        return ""
    return text.value.decode(errors="replace")


def _cuda_count() -> int:
    """Return the number of GPUs that the CUDA driver offers to this process. 0 without a driver."""
    driver, count = _cuda_driver(), ctypes.c_int()
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
