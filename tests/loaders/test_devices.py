"""Which GPU a loader uses, the values of each framework, and CUDA's hardware queues.

The frameworks other than torch are stand-ins where a test needs their GPUs.
"""

import sys
from types import SimpleNamespace
from unittest.mock import Mock

import numpy as np
import pytest
from helpers.rows import evaluate, read_rows

from loaders import devices
from loaders.devices import (
    _JAX_DTYPES,
    _PADDLE_DTYPES,
    VARIABLE,
    Device,
    Gpus,
    converted,
    find_device,
    find_gpus,
    load_framework,
    queues_note,
    request_queues,
)  # fmt: skip
from loaders.ranks import Ranks, check_group, find_ranks
from manifests.errors import CallError


@pytest.fixture
def jax(monkeypatch):
    """JAX as process 1 of 2, which owns GPU 3 of this machine."""
    own = SimpleNamespace(local_hardware_id=3, id=13, platform="gpu")
    local = {None: [own], "gpu": [own], "cpu": [SimpleNamespace(platform="cpu", id=0)]}
    other = SimpleNamespace(local_hardware_id=0, id=0, platform="gpu")
    module = SimpleNamespace(
        local_devices=lambda backend=None: local[backend], devices=lambda kind=None: [other, own],
        process_index=lambda: 1, process_count=lambda: 2,
        distributed=SimpleNamespace(is_initialized=lambda: True),
        device_put=lambda array, device: (array, device), numpy=SimpleNamespace(),
        config=SimpleNamespace(jax_enable_x64=True),
    )  # fmt: skip
    monkeypatch.setitem(sys.modules, "jax", module)
    monkeypatch.setitem(sys.modules, "jax.numpy", module.numpy)
    return module


def test_jax_uses_the_devices_and_ranks_of_its_process(jax):
    gpus = find_gpus("jax")
    assert find_device("auto", None, Ranks(1, 2), gpus) == Device("gpu", 3)
    framework = load_framework("jax")
    array, device = framework.numbers(np.zeros(3), Device("gpu", 3))
    assert device.id == 13
    assert framework.numbers(array, Device("cpu"))[1].platform == "cpu"
    assert find_ranks(None, None, {}) == Ranks(1, 2)
    check_group(Ranks(1, 2))
    with pytest.raises(CallError, match=r"but jax\.distributed says rank 1 of 2"):
        check_group(Ranks())
    jax.local_devices = Mock(side_effect=RuntimeError("Unknown backend: 'gpu'"))
    assert find_gpus("jax") == Gpus(0)
    assert find_device("auto", None, Ranks(), find_gpus("jax")) == Device("cpu")


@pytest.mark.parametrize(("built", "expected"), [(True, Device("gpu", 2)), (False, Device("cpu"))])
def test_paddle_uses_the_devices_and_ranks_of_its_process(monkeypatch, built, expected):
    group = SimpleNamespace(
        is_initialized=lambda: True, get_rank=lambda: 2, get_world_size=lambda: 4
    )
    cuda = SimpleNamespace(device_count=lambda: 4)
    device = SimpleNamespace(cuda=cuda, get_device=lambda: "gpu:2")
    given = {"is_compiled_with_cuda": lambda: built, "device": device, "distributed": group}
    monkeypatch.setitem(sys.modules, "paddle", SimpleNamespace(**given))
    assert find_device("auto", None, Ranks(), find_gpus("paddle")) == expected
    assert find_ranks(None, None, {}) == Ranks(2, 4)


def test_numpy_asks_the_driver_if_torch_has_no_cuda(monkeypatch):
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    with monkeypatch.context() as patch:
        patch.setattr(devices, "_cuda_count", lambda: 2)
        assert find_device("auto", None, Ranks(), find_gpus("numpy")) == Device("gpu", 0)
        # torch itself cannot use these GPUs.
        assert find_device("auto", None, Ranks(), find_gpus("torch")) == Device("cpu")
    monkeypatch.setattr("ctypes.CDLL", Mock(side_effect=OSError))
    assert devices._cuda_count() == 0
    monkeypatch.setitem(sys.modules, "paddle", None)
    assert find_gpus("paddle") == Gpus(0)


@pytest.mark.parametrize(("row", "expected"), read_rows(__file__, "the GPU of a rank"))
def test_the_gpu_of_a_rank(monkeypatch, row, expected):
    environment, current = evaluate(row)
    for name in ("LOCAL_RANK", "MPI_LOCALRANKID", "SLURM_LOCALID", "SLURM_STEP_NUM_TASKS"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    gpus = Gpus(8, lambda: current)
    assert find_device("gpu", None, Ranks(3, 8), gpus) == Device("gpu", int(expected))


DTYPES = ("bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64",
          "float16", "float32", "float64")  # fmt: skip

#: What numbers of 64 bits can have and their types of 32 bits do not.
LARGE = {"int64": -(2**40), "uint64": 2**63 + 1, "float64": 0.1}


@pytest.mark.parametrize("table", [_JAX_DTYPES, _PADDLE_DTYPES])
@pytest.mark.parametrize("dtype", DTYPES)
def test_numbers_keep_their_values_or_are_refused(table, dtype):
    small = np.array([0, 1, 100], dtype)
    kept = converted(small, table, "x", "")
    assert kept.dtype.name == table.get(dtype, dtype)
    assert kept.tolist() == small.tolist()
    if dtype[0] in "iu":
        limits = np.array([np.iinfo(dtype).min, np.iinfo(dtype).max], dtype)
        try:
            assert converted(limits, table, "x", "").tolist() == limits.tolist()
        except CallError:
            assert dtype in LARGE
    if dtype in table and dtype in LARGE:
        with pytest.raises(CallError, match=f"of type {dtype}, which framework='x' would change"):
            converted(np.array([1, LARGE[dtype]], dtype), table, "x", "")
    if dtype == "float64":
        assert np.isnan(converted(np.array([np.nan]), table, "x", "")[0])


@pytest.mark.parametrize("started", [None, False, True])
def test_the_number_is_set_unless_it_was(started):
    modules = {}
    if started is not None:
        cuda = SimpleNamespace(is_initialized=lambda: started)
        modules["torch"] = SimpleNamespace(cuda=cuda)
    environ, given = {}, {VARIABLE: "1"}
    assert request_queues(environ, modules) is bool(started)
    assert request_queues(given, modules) is False
    assert (environ[VARIABLE], given[VARIABLE]) == ("16", "1")


def test_a_wrong_number_is_explained(monkeypatch):
    for enough in ("16", "32"):
        monkeypatch.setenv(VARIABLE, enough)
        assert queues_note() is None
    monkeypatch.setenv(VARIABLE, "1")
    assert "CUDA_DEVICE_MAX_CONNECTIONS is 1: with fewer than 16" in queues_note()
    monkeypatch.setattr(devices, "STARTED_BEFORE", True)
    assert "import loaders first, or set CUDA_DEVICE_MAX_CONNECTIONS=16" in queues_note()
