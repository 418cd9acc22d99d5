"""An ONNX model that transforms decoded images, and how much its images differ from those of the loader."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from loaders.dali.serving import decode_images
from loaders.export.golden import Golden, npy
from loaders.export.onnx_graph import INPUT, IR_VERSION, OPSET, OUTPUT, build_graph
from loaders.export.triton import Exported, output_dims
from loaders.options import DType
from loaders.spec import LoaderSpec
from loaders.transforms.base import Operation
from loaders.transforms.decode_normalize import Decode, Normalize, Rescale, Unpack
from manifests.errors import CallError


def require_onnx() -> None:
    """Check that the libraries are installed.

    Raises:
        CallError: they are not.

    """
    try:
        import onnx  # noqa: F401
        import onnxruntime  # noqa: F401
    except ImportError as error:
        raise CallError(
            f"--for onnx needs {error.name}, which is not installed",
            hint="run `pip install 'dataprep-loaders[onnx]'`",
        ) from None


def onnx_model(spec: LoaderSpec, golden: Golden) -> Exported:
    """Return the files of an ONNX model.

    Args:
        spec: a loader of the recipe.
        golden: encoded images, and what the loader makes of them.

    Raises:
        CallError: an operation has no implementation in ONNX.

    """
    operations, options = spec.recipe.operations, spec.options
    first = operations[0]
    if not isinstance(first, (Decode, Unpack)):
        raise TypeError(f"a recipe must start with Decode or Unpack, got {first!r}")
    pixels = decode_images(golden.encoded, first, options.device)
    made = run_model(_model(spec), pixels)
    axis = 1 if options.layout == "NCHW" else 3
    values = np.moveaxis(
        np.abs(made.astype(np.float64) - golden.images.astype(np.float64)), axis, -1
    )[..., :3]
    values = values * levels_per_value(operations)
    difference: dict[str, float | str] = {
        "mean": round(float(values.mean()), 6),
        "largest": round(float(values.max()), 6),
    }
    note = (
        f"its pixels differ from the loader's by {values.mean():.3g} on average and by at most "
        f"{values.max():.3g} of 255"
    )
    recorded = {
        "unit": "levels from 0 to 255",
        "reference": "the loader, given the same decoded pixels",
        **difference,
    }
    model = _model(spec, {name: str(value) for name, value in recorded.items()})
    files = {"model.onnx": model, "golden/images.npy": npy(golden.images)}
    files |= {
        f"golden/pixels-{number:03d}.npy": npy(image[None]) for number, image in enumerate(pixels)
    }
    return Exported(files, recorded, note)


def _model(spec: LoaderSpec, metadata: dict[str, str] | None = None) -> bytes:
    import onnx
    from onnx import TensorProto, helper

    dtype, layout = spec.options.dtype, spec.options.layout
    graph, result = build_graph(spec.recipe.operations, dtype, layout)
    graph.nodes.append(helper.make_node("Identity", [result], [OUTPUT]))
    types: dict[DType, int] = {
        "float32": TensorProto.FLOAT, "float16": TensorProto.FLOAT16, "uint8": TensorProto.UINT8,
    }  # fmt: skip
    first = spec.recipe.operations[0]
    sides: tuple[int | str, int | str] = (
        first.size if isinstance(first, Unpack) else ("height", "width")
    )
    shape: list[str | int | None] = ["batch", *sides, 3]
    inputs = [helper.make_tensor_value_info(INPUT, TensorProto.UINT8, shape)]
    shape = ["batch", *output_dims(spec.recipe.output, layout)]
    outputs = [helper.make_tensor_value_info(OUTPUT, types[dtype], shape)]
    made = helper.make_graph(graph.nodes, "preprocess", inputs, outputs, graph.constants)
    model = helper.make_model(
        made,
        producer_name="loaders export",
        ir_version=IR_VERSION,
        opset_imports=[helper.make_opsetid("", OPSET)],
    )
    helper.set_model_props(
        model, {f"difference_{name}": value for name, value in (metadata or {}).items()}
    )
    onnx.checker.check_model(model)
    serialized: bytes = model.SerializeToString(deterministic=True)
    return serialized


def run_model(model: bytes, pixels: Sequence[NDArray[np.uint8]]) -> NDArray[Any]:
    """Run a model on decoded images, uint8 [H, W, 3] each, and return its images, [B, ...]."""
    import onnxruntime

    session = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])
    return np.concatenate([session.run([OUTPUT], {INPUT: image[None]})[0] for image in pixels])


def levels_per_value(operations: Sequence[Operation]) -> NDArray[np.float64]:
    """Return how many levels of a pixel, of 255, one unit of the output is: float64 [3], by channel."""
    levels = np.ones(3)
    for operation in operations:
        if isinstance(operation, Normalize):
            levels = levels * np.abs(np.array(operation.std) / operation.scale)
        elif isinstance(operation, Rescale):
            levels = levels * 255
    return levels
