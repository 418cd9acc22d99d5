"""Turn DALI's outputs into a batch: a tuple with one value for each field, tensors of a framework.

The frameworks are torch, NumPy, JAX and Paddle. Each is imported only if it is chosen.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from loaders.devices import Device
from loaders.options import FrameworkName
from loaders.progress import Position
from loaders.spec import LoaderSpec
from loaders.transforms.mixing import mixed_labels, mixed_values
from manifests.errors import CallError


def make_batch(
    outputs: Sequence[Any], spec: LoaderSpec, framework: Framework, position: Position
) -> tuple[Any, ...]:
    """Return the fields of a batch.

    Args:
        outputs: DALI's outputs, in the order that `loaders.dali.pipeline.make_pipeline` documents.
        spec: what the loader is built from.
        framework: converts to tensors.
        position: position before the batch.

    Raises:
        CallError: a user's function returns another number of images, or the framework does not
            have a number.
        DamagedError: a label is missing, not a number, or not a class of the dataset.

    """
    # One value for each view, by field; and one value, by field.
    of_views, values = _take_apart(outputs, spec)
    if "valid" in spec.options.fields:
        values["valid"] = spec.order.valid(position)
    size, batch = spec.order.size(position), []
    for name in spec.options.fields:
        given = of_views[name] if name in of_views else [values[name]]
        try:
            tensors = []
            for view, value in enumerate(given):
                tensors.append(_tensor(name, value, spec, framework, view=view, size=size))
        except CallError as error:  # such as a number that the framework does not have
            raise CallError(f"field {name!r}: {error.message}", hint=error.hint) from None
        if spec.recipe.views and name in of_views:
            batch.append(tuple(tensors))
        else:
            batch.append(tensors[0])
    return tuple(batch)


def _take_apart(
    outputs: Sequence[Any], spec: LoaderSpec
) -> tuple[dict[str, Sequence[Any]], dict[str, Any]]:
    """Return the outputs of each view by field, and the values of the other fields."""
    fields, views, rest = spec.fields, len(spec.recipe.outputs), outputs
    of_views: dict[str, Sequence[Any]] = {}
    if "image" in spec.options.fields:
        of_views["image"], rest = rest[:views], rest[views:]
    if fields.label_image:
        of_views[fields.label_image], rest = rest[:views], rest[views:]
    # What follows is on the CPU; `make_pipeline` documents the order.
    arrays = [np.asarray(each.as_tensor()) for each in rest]
    stored_label = arrays.pop(0) if fields.stored_label else None
    # DALI's own readers return the origin of each record instead of its row.
    rows = None
    if spec.order.is_planned:
        rows = arrays.pop(0)
    elif fields.source:
        rows = fields.rows(arrays.pop(0))
    values = fields.values(stored_label, rows)
    if fields.has_boxes:
        boxes = [fields.boxes(rows, arrays.pop(0)) for _ in range(views)]
        for name in boxes[0]:
            of_views[name] = [each[name] for each in boxes]
    if arrays:
        _mix_labels(values, spec, *arrays)
    return of_views, values


def _tensor(
    name: str, value: Any, spec: LoaderSpec, framework: Framework, *, view: int, size: int
) -> Any:
    """Return the value of a field, or of one view, as a tensor of `size` samples, or as a list."""
    recipe, device = spec.recipe, spec.options.device
    if name == "image":
        functions = recipe.batch_functions
        if recipe.views:
            functions = recipe.views[view].batch_functions
        return _images(value, spec, framework, size, functions)
    if name == spec.fields.label_image:
        return framework.images(value, "uint8", device)[:size]
    value = value[:size]
    return value if isinstance(value, list) else framework.numbers(value, device)


def _mix_labels(
    values: dict[str, Any], spec: LoaderSpec, partners: NDArray[Any], weights: NDArray[Any]
) -> None:
    """Replace the labels of a batch by the labels of mixed images."""
    labels, smoothing = spec.split.manifest.labels, spec.recipe.smoothing
    if "label" in values and labels.is_class:
        values["label"] = mixed_labels(
            np.asarray(values["label"]), partners, weights, spec.num_classes, smoothing
        )
    # Of classes only, a share may go to all others.
    for name, smooth in ((labels.class_lists, smoothing), (labels.number_column, 0.0)):
        if name in values:
            values[name] = mixed_values(np.asarray(values[name]), partners, weights, smooth)


def _images(
    outputs: Any,
    spec: LoaderSpec,
    framework: Framework,
    size: int,
    functions: Sequence[Callable[[Any], Any]],
) -> Any:
    # The last batch of a rank may be empty, and functions need not handle that. They get one of
    # the images that fill DALI's batch, so that the empty result has the shape and the type of the
    # other batches.
    given = max(size, 1)
    tensor = framework.images(outputs, spec.options.dtype, spec.options.device)
    if given < spec.options.batch_size:
        tensor = tensor[:given]
    for function in functions:
        name = getattr(function, "__name__", type(function).__name__)
        kind = f"{getattr(tensor, 'dtype', type(tensor))} {tuple(getattr(tensor, 'shape', ()))}"
        try:
            tensor = function(tensor)
        except Exception as error:
            error.add_note(f"loaders called the function {name} with the finished batch, {kind}")
            raise
        if not hasattr(tensor, "__len__") or len(tensor) != given:
            raise CallError(
                f"the function {name} in transforms must return a tensor of {given} images",
                hint="change the batch that the function receives, and return all of its images",
            )
    return tensor if size else tensor[:0]


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

    def numbers(array: NDArray[Any], device: Device) -> torch.Tensor:
        tensor = torch.from_numpy(np.ascontiguousarray(array))
        if not device.is_gpu:
            return tensor
        # CUDA reads a little pageable memory before it returns, without waiting for the GPU.
        # Pinning it would take two more calls, each of which waits for calls of DALI's threads.
        source = tensor if array.nbytes <= _READ_AT_ONCE else tensor.pin_memory()
        return source.to(place(device), non_blocking=True)

    def place(device: Device) -> torch.device:
        return torch.device("cuda", device.index) if device.is_gpu else torch.device("cpu")

    return Framework(images, numbers, place)


def _numpy() -> Framework:
    def images(outputs: Any, dtype: str, device: Device) -> NDArray[Any]:
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
