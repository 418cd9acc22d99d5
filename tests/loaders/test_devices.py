"""Which GPU a loader uses, as each framework reports it.

The frameworks other than torch are stand-ins.
"""

import sys
from types import SimpleNamespace

import numpy as np
import pytest

from loaders import devices
from loaders.devices import Device, Gpus, find_device, find_gpus, load_framework
from loaders.ranks import Ranks, check_group, find_ranks
from manifests.errors import CallError

EIGHT = Gpus(8)


def jax_device(number, process=0):
    return SimpleNamespace(local_hardware_id=number, id=10 * process + number, platform="gpu")


@pytest.fixture
def jax(monkeypatch):
    """JAX as process 1 of 2, which owns GPU 3 of this machine."""

    def local_devices(backend=None):
        if backend == "cpu":
            return [SimpleNamespace(platform="cpu", id=0)]
        return [jax_device(3, process=1)]

    module = SimpleNamespace(
        local_devices=local_devices,
        devices=lambda kind=None: [jax_device(0), jax_device(3, process=1)],
        process_index=lambda: 1,
        process_count=lambda: 2,
        distributed=SimpleNamespace(is_initialized=lambda: True),
        device_put=lambda array, device: (array, device),
        numpy=SimpleNamespace(),
        config=SimpleNamespace(jax_enable_x64=True),
    )
    monkeypatch.setitem(sys.modules, "jax", module)
    monkeypatch.setitem(sys.modules, "jax.numpy", module.numpy)
    return module


def test_jax_uses_the_devices_of_its_process(jax):
    gpus = find_gpus("jax")
    assert find_device("auto", None, Ranks(1, 2), gpus) == Device("gpu", 3)
    framework = load_framework("jax")
    array, device = framework.numbers(np.zeros(3), Device("gpu", 3))
    assert device.id == 13
    assert framework.numbers(array, Device("cpu"))[1].platform == "cpu"


def test_ranks_of_jax(jax):
    assert find_ranks(None, None, {}) == Ranks(1, 2)
    check_group(Ranks(1, 2))
    with pytest.raises(CallError, match=r"but jax\.distributed says rank 1 of 2"):
        check_group(Ranks())


def test_ranks_of_paddle(monkeypatch):
    group = SimpleNamespace(
        is_initialized=lambda: True, get_rank=lambda: 2, get_world_size=lambda: 4
    )
    monkeypatch.setitem(sys.modules, "paddle", SimpleNamespace(distributed=group))
    assert find_ranks(None, None, {}) == Ranks(2, 4)


def test_jax_without_a_gpu(jax):
    def fail(backend=None):
        raise RuntimeError("Unknown backend: 'gpu'")

    jax.local_devices = fail
    assert find_gpus("jax") == Gpus(0)
    assert find_device("auto", None, Ranks(), find_gpus("jax")) == Device("cpu")


@pytest.mark.parametrize(("built", "expected"), [(True, Device("gpu", 2)), (False, Device("cpu"))])
def test_paddle_asks_paddle(monkeypatch, built, expected):
    device = SimpleNamespace(
        cuda=SimpleNamespace(device_count=lambda: 4), get_device=lambda: "gpu:2"
    )
    module = SimpleNamespace(is_compiled_with_cuda=lambda: built, device=device)
    monkeypatch.setitem(sys.modules, "paddle", module)
    assert find_device("auto", None, Ranks(), find_gpus("paddle")) == expected


def test_numpy_asks_the_driver_if_torch_has_no_cuda(monkeypatch):
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    monkeypatch.setattr(devices, "_cuda_count", lambda: 2)
    assert find_device("auto", None, Ranks(), find_gpus("numpy")) == Device("gpu", 0)
    # torch itself cannot use these GPUs.
    assert find_device("auto", None, Ranks(), find_gpus("torch")) == Device("cpu")


def test_a_machine_without_a_driver(monkeypatch):
    def missing(name):
        raise OSError(name)

    monkeypatch.setattr("ctypes.CDLL", missing)
    assert devices._cuda_count() == 0


def test_a_framework_that_is_not_installed(monkeypatch):
    monkeypatch.setitem(sys.modules, "paddle", None)
    assert find_gpus("paddle") == Gpus(0)


@pytest.mark.parametrize(
    ("environment", "current", "expected"),
    [
        ({"LOCAL_RANK": "5"}, 0, 5),
        ({"LOCAL_RANK": "9"}, 0, 1),
        ({"MPI_LOCALRANKID": "2"}, 0, 2),
        # Without a launcher, as with torch.multiprocessing: the GPU that was set, otherwise that of
        # the rank.
        ({}, 6, 6),
        ({}, 0, 3),
    ],
)
def test_the_gpu_of_a_rank(monkeypatch, environment, current, expected):
    for name in ("LOCAL_RANK", "MPI_LOCALRANKID"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    gpus = Gpus(8, lambda: current)
    assert find_device("gpu", None, Ranks(3, 8), gpus) == Device("gpu", expected)
