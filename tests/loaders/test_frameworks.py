"""Every pair of a framework and a type of numbers: the values that NumPy has, or an error that says what to do."""

import numpy as np
import pytest
from helpers.loading import build

from loaders import devices
from loaders.devices import _JAX_DTYPES, _PADDLE_DTYPES, Device, converted, load_framework
from manifests.errors import CallError

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


@pytest.mark.parametrize("name", ["torch", "numpy", "jax", "paddle"])
def test_frameworks_have_the_values_of_numpy(name):
    pytest.importorskip(name)
    for dtype in DTYPES:
        array = np.array([[0, 1], [100, 127]], dtype)
        tensor = load_framework(name).numbers(array, Device("cpu"))
        found = tensor if isinstance(tensor, np.ndarray) else np.asarray(tensor.tolist())
        assert tuple(tensor.shape) == (2, 2)
        assert found.tolist() == array.tolist()


@pytest.mark.parametrize("name", ["torch", "jax", "paddle"])
def test_depth_maps_and_columns(name, prepared):
    pytest.importorskip(name)
    resize = [{"Resize": {"size": [20, 30], "interpolation": "nearest"}}]
    options = {"batch_size": 5, "transforms": resize, "dtype": "uint8", "shuffle": False}
    options["fields"] = ("image", "depth", "index", "width")
    seen = {}
    for framework in ("numpy", name):
        with build(prepared["depth tfrecord"], framework=framework, **options) as loader:
            seen[framework] = [np.asarray(value.tolist()) for value in next(iter(loader))]
    for expected, found in zip(seen["numpy"], seen[name], strict=True):
        assert expected.max() > 1
        assert (expected == found).all()


def test_an_error_names_the_field(prepared, monkeypatch):
    """A framework that cannot represent a number of a column."""
    numpy = devices._numpy()

    def refuse(array, device):
        return converted(array, {"int64": "int8"}, "jax", devices._ENABLE_X64)

    framework = devices.Framework(numpy.images, refuse, numpy.device)
    monkeypatch.setitem(devices._FRAMEWORKS, "numpy", lambda: framework)
    message = r"field 'size': .* Hint: call jax.config.update"
    with (
        build(prepared["mixed tfrecord"], fields=("label", "size"), framework="numpy") as loader,
        pytest.raises(CallError, match=message),
    ):
        next(iter(loader))
