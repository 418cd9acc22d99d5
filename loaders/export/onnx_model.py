"""An ONNX model that transforms decoded images, and how much it differs from the loader."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from loaders.arrays import Array, Bytes, Float32s, Floats
from loaders.dali.serving import decode_images
from loaders.devices import CPU
from loaders.export.folder import Golden, npy
from loaders.export.triton import Exported, output_dims
from loaders.spec import LoaderSpec
from loaders.transforms.base import (
    BUCKET,
    AnySize,
    Filter,
    ImageSpec,
    Operation,
    Size,
    no_buckets,
)
from loaders.transforms.color import ConvertColor
from loaders.transforms.crop_resize import Crop, CropAtRatio, KeepSize, Resize, ResizeWithin
from loaders.transforms.decode_normalize import Decode, Normalize, Rescale, ToFloat, Unpack
from loaders.transforms.geometry import Pad
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
    operations = spec.recipe.operations
    options = spec.options
    first = operations[0]
    if not isinstance(first, (Decode, Unpack)):
        raise TypeError(f"a recipe must start with Decode or Unpack, got {first!r}")
    # The model gets pixels, so the difference of two decoders does not count.
    device = options.device if options.decoder == "gpu" else CPU
    pixels = decode_images(golden.encoded, first, device)
    made = run_model(_model(spec, {}), pixels)
    axis = options.layout.index("C")
    values = np.abs(made.astype(np.float64) - golden.images.astype(np.float64))
    # A fourth channel is padding.
    values = np.moveaxis(values, axis, -1)[..., :3] * levels_per_value(operations)
    note = (
        f"its pixels differ from the loader's by {values.mean():.3g} on average and by at most "
        f"{values.max():.3g} of 255"
    )
    difference: dict[str, float | str] = {
        "unit": "levels from 0 to 255",
        "reference": "the loader, given the same decoded pixels",
        "mean": round(float(values.mean()), 6),
        "largest": round(float(values.max()), 6),
    }
    # The model says itself how much it differs.
    files = {"model.onnx": _model(spec, difference), "golden/images.npy": npy(golden.images)}
    for number, image in enumerate(pixels):
        files[f"golden/pixels-{number:03d}.npy"] = npy(image[None])
    return Exported(files, difference, note)


def _model(spec: LoaderSpec, difference: Mapping[str, float | str]) -> bytes:
    import onnx
    from onnx import TensorProto, helper

    dtype = helper.np_dtype_to_tensor_dtype(np.dtype(spec.options.dtype))
    layout = spec.options.layout
    graph, result = build_graph(spec.recipe.operations, dtype, layout)
    graph.nodes.append(helper.make_node("Identity", [result], [OUTPUT]))
    # Stored pixels have one size, and decoded images any.
    first = spec.recipe.operations[0]
    sides: tuple[int | str, int | str] = ("height", "width")
    if isinstance(first, Unpack):
        sides = first.size
    shape: list[str | int | None] = ["batch", *sides, 3]
    inputs = [helper.make_tensor_value_info(INPUT, TensorProto.UINT8, shape)]
    shape = ["batch", *output_dims(spec.recipe.output, layout)]
    outputs = [helper.make_tensor_value_info(OUTPUT, dtype, shape)]
    made = helper.make_graph(graph.nodes, "preprocess", inputs, outputs, graph.constants)
    model = helper.make_model(
        made,
        producer_name="loaders export",
        ir_version=IR_VERSION,
        opset_imports=[helper.make_opsetid("", OPSET)],
    )
    helper.set_model_props(
        model, {f"difference_{name}": str(value) for name, value in difference.items()}
    )
    # A model that another runtime would refuse must not be written.
    onnx.checker.check_model(model)
    serialized: bytes = model.SerializeToString(deterministic=True)
    return serialized


def run_model(model: bytes, pixels: Sequence[Bytes]) -> Array:
    """Run a model on decoded images, uint8 [H, W, 3] each, and return its images, [B, ...]."""
    import onnxruntime

    session = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])
    return np.concatenate([session.run([OUTPUT], {INPUT: image[None]})[0] for image in pixels])


def levels_per_value(operations: Sequence[Operation]) -> Floats:
    """Return how many of the 255 levels of a pixel one unit of the output is: float64 [3]."""
    levels = np.ones(3)
    for operation in operations:
        if isinstance(operation, Normalize):
            levels = levels * np.abs(np.array(operation.std) / operation.scale)
        elif isinstance(operation, Rescale):
            levels = levels * 255
    return levels


#: The first version of the operators with an antialiasing Resize.
OPSET = 18

#: Readable by ONNX Runtime 1.14 and later.
IR_VERSION = 8

INPUT, OUTPUT = "pixels", "images"

_MODES: dict[Filter, str] = {
    "nearest": "nearest",
    "linear": "linear",
    "triangular": "linear",
    "cubic": "cubic",
}
_DETAILS: dict[Filter, dict[str, Any]] = {
    "nearest": {"nearest_mode": "round_prefer_ceil"},
    "cubic": {"cubic_coeff_a": -0.5, "exclude_outside": 1},
}
_PAD_MODES = {"constant": "constant", "edge": "edge", "reflect": "reflect"}


class Graph:
    """Collects the nodes of a graph. Values are named by number."""

    def __init__(self) -> None:
        self.nodes: list[Any] = []
        self.constants: list[Any] = []

    def add(self, operator: str, *inputs: ArrayLike, **attributes: Any) -> str:
        """Add a node, and return the name of its output.

        Args:
            operator: name of the operator.
            inputs: names of values, or constants; an empty name is an input that is not given.
            attributes: of the operator.

        """
        from onnx import helper

        # Numbers make the file the same for the same recipe.
        name = f"{operator.lower()}_{len(self.nodes)}"
        names = [each if isinstance(each, str) else self.constant(each) for each in inputs]
        self.nodes.append(helper.make_node(operator, names, [name], **attributes))
        return name

    def constant(self, values: ArrayLike) -> str:
        """Add a constant, int64 or float32, and return its name."""
        from onnx import numpy_helper

        name = f"constant_{len(self.constants)}"
        array = np.asarray(values)
        array = array.astype(np.int64 if array.dtype.kind == "i" else np.float32)
        self.constants.append(numpy_helper.from_array(array, name))
        return name

    def to_float(self, value: str) -> str:
        """Convert to float32."""
        from onnx import TensorProto

        return self.add("Cast", value, to=TensorProto.FLOAT)

    def to_int(self, value: str) -> str:
        """Convert to int64."""
        from onnx import TensorProto

        return self.add("Cast", value, to=TensorProto.INT64)

    def sides(self, image: str) -> str:
        """Return the height and width of images [B, C, H, W]: float32 [2]."""
        return self.to_float(self.add("Shape", image, start=2))

    def joined(self, *parts: str) -> str:
        """Return several vectors as one."""
        return self.add("Concat", *parts, axis=0)


def build_graph(operations: Sequence[Operation], dtype: int, layout: str) -> tuple[Graph, str]:
    """Return the graph of a recipe, and the name of its output, whose type is one of ONNX.

    Its input is `INPUT`, uint8 [B, H, W, 3]: RGB images of one size. Inside it, images are float32
    [B, C, H, W], with whole numbers from 0 to 255 where the loader has uint8.

    Raises:
        CallError: an operation has no implementation in ONNX.

    """
    graph = Graph()
    image = graph.to_float(graph.add("Transpose", INPUT, perm=[0, 3, 1, 2]))
    spec = ImageSpec()
    for operation in operations:
        # A subclass may do something else, so only the exact type counts.
        step = _STEPS.get(type(operation))
        if step is None:
            raise _not_supported(operation)
        image = step(graph, operation, image, spec)
        spec = operation.output(spec)
    # Every operation works on NCHW.
    if layout == "NHWC":
        image = graph.add("Transpose", image, perm=[0, 2, 3, 1])
    return graph, graph.add("Cast", image, to=dtype)


def _not_supported(operation: Operation, detail: str = "") -> CallError:
    return CallError(
        f"{type(operation).__name__}{detail} cannot be exported to ONNX",
        hint=f"use only {', '.join(each.__name__ for each in _STEPS)}, or --for triton",
    )


def _fixed(size: AnySize) -> Size:
    """Return a size in pixels. A server gets images without an aspect bucket."""
    if size == BUCKET:
        raise no_buckets()
    return size


def _floats(size: Size) -> Float32s:
    return np.array(size, np.float32)


def _decode(graph: Graph, operation: Any, image: str, spec: ImageSpec) -> str:
    if operation.space == "RGB":
        return image
    return _reversed_channels(graph, image)


def _convert_color(graph: Graph, operation: ConvertColor, image: str, spec: ImageSpec) -> str:
    if {operation.space, spec.color_space} != {"RGB", "BGR"}:
        raise _not_supported(operation, f" from {spec.color_space} to {operation.space}")
    return _reversed_channels(graph, image)


def _reversed_channels(graph: Graph, image: str) -> str:
    return graph.add("Gather", image, [2, 1, 0], axis=1)


def _resize(graph: Graph, operation: Resize, image: str, spec: ImageSpec) -> str:
    return _resized(graph, operation, image, spec, _target(graph, operation, image))


def _target(graph: Graph, operation: Resize, image: str) -> str:
    """Return the height and width that an image gets, float32 [2].

    The arithmetic is the same as in `loaders.dali.crop_resize`.
    """
    if operation.size is not None:
        return graph.constant(_floats(_fixed(operation.size)))
    # The last operations need the size of each image, which a model learns when it runs.
    sides = graph.sides(image)
    target = sides
    most = float("inf")
    rounding = "Floor" if operation.rounding == "down" else "Round"
    if operation.shorter is not None:
        shorter = graph.add("ReduceMin", sides, keepdims=1)
        multiplied = graph.add("Mul", sides, float(operation.shorter))
        target = graph.add(rounding, graph.add("Div", multiplied, shorter))
        most = 1.0
    if not isinstance(operation, ResizeWithin):
        return target
    longer = graph.add("ReduceMax", target, keepdims=1)
    share = graph.add("Div", float(operation.longest), longer)
    # After a resize of the shorter side, this limit only makes images smaller.
    share = graph.add("Min", share, most)
    # A side of 224.00001 pixels must not become 223.
    scaled = graph.add("Add", graph.add("Mul", target, share), 1e-4)
    return graph.add("Max", graph.add("Floor", scaled), 1.0)


def _resized(
    graph: Graph,
    operation: Any,
    image: str,
    spec: ImageSpec,
    target: str,
    *,
    antialias: bool = True,
) -> str:
    if operation.filter not in _MODES:
        raise _not_supported(operation, f" with the filter {operation.filter}")
    mode: Filter = operation.filter
    # With antialiasing, the filter is as wide as the reduction.
    wide = mode != "nearest" and (mode == "triangular" or (antialias and operation.antialias))
    # Batch and channels keep their sizes.
    sizes = graph.joined(graph.add("Shape", image, start=0, end=2), graph.to_int(target))
    resized = graph.add(
        "Resize",
        image,
        "",
        "",
        sizes,
        mode=_MODES[mode],
        antialias=int(wide),
        **_DETAILS.get(mode, {}),
    )
    if not spec.is_uint8:
        return resized
    # Cubic interpolation leaves the range.
    return graph.add("Clip", graph.add("Round", resized), 0.0, 255.0)


def _crop(graph: Graph, operation: Crop, image: str, spec: ImageSpec) -> str:
    # As in `loaders.dali.crop_resize`.
    half = graph.add(
        "Mul", graph.add("Sub", graph.sides(image), _floats(_fixed(operation.size))), 0.5
    )
    if operation.rounding == "down":
        start = graph.add("Floor", half)
    else:
        start = graph.add("Round", half)
        start = graph.add("Max", start, graph.add("Min", graph.add("Ceil", half), 0.0))
    return _cut(graph, image, start, _fixed(operation.size))


def _cut(graph: Graph, image: str, start: str, size: Size) -> str:
    """Cut out a rectangle. What lies outside of the image is 0."""
    # Pad first, because Slice would cut a smaller rectangle.
    before = graph.add("Max", graph.add("Neg", start), 0.0)
    end = graph.add("Add", start, _floats(size))
    after = graph.add("Max", graph.add("Sub", end, graph.sides(image)), 0.0)
    none = graph.constant([0.0, 0.0])
    pads = graph.to_int(graph.joined(none, before, none, after))
    padded = graph.add("Pad", image, pads, 0.0)
    first = graph.to_int(graph.add("Add", start, before))
    last = graph.add("Add", first, size)
    return graph.add("Slice", padded, first, last, [2, 3])


def _crop_at_ratio(graph: Graph, operation: CropAtRatio, image: str, spec: ImageSpec) -> str:
    sides = graph.sides(image)
    side = graph.add("Mul", graph.add("ReduceMin", sides, keepdims=1), operation.share)
    side = graph.add("Max", graph.add("Floor", side), 1.0)
    start = graph.add("Floor", graph.add("Mul", graph.add("Sub", sides, side), 0.5))
    end = graph.to_int(graph.add("Add", start, side))
    square = graph.add("Slice", image, graph.to_int(start), end, [2, 3])
    size = graph.constant(_floats((operation.size, operation.size)))
    return _resized(graph, operation, square, spec, size, antialias=False)


def _pad(graph: Graph, operation: Pad, image: str, spec: ImageSpec) -> str:
    mode = _PAD_MODES.get(operation.mode)
    if mode is None:
        raise _not_supported(operation, f" with the mode {operation.mode}")
    sides = (operation.top, operation.left, operation.bottom, operation.right)
    pads = [0, 0, *sides[:2], 0, 0, *sides[2:]]
    if len(set(operation.fill)) > 1 and mode == "constant":
        raise _not_supported(operation, " with a fill of several values")
    if mode != "constant":
        return graph.add("Pad", image, pads, mode=mode)
    # The loader pads uint8 images with whole numbers.
    fill = int(operation.fill[0]) if spec.is_uint8 else operation.fill[0]
    return graph.add("Pad", image, pads, float(fill))


def _normalize(graph: Graph, operation: Normalize, image: str, spec: ImageSpec) -> str:
    mean = np.array(operation.mean)[:, None, None] / operation.scale
    std = np.array(operation.std)[:, None, None] / operation.scale
    normalized = graph.add("Div", graph.add("Sub", image, mean), std)
    if operation.channels == 3:
        return normalized
    # PaddleClas can add a fourth channel of zeros.
    return graph.add("Pad", normalized, [0, 0, 0, 0, 0, 1, 0, 0], 0.0)


def _rescale(graph: Graph, operation: Rescale, image: str, spec: ImageSpec) -> str:
    return graph.add("Div", image, 255.0)


def _keep(graph: Graph, operation: Operation, image: str, spec: ImageSpec) -> str:
    return image


#: Adds an operation to a graph: graph, operation, images and their spec.
_STEPS: dict[type[Operation], Callable[[Graph, Any, str, ImageSpec], str]] = {
    Decode: _decode,
    Unpack: _decode,
    Resize: _resize,
    ResizeWithin: _resize,
    Crop: _crop,
    CropAtRatio: _crop_at_ratio,
    KeepSize: _keep,
    Pad: _pad,
    ConvertColor: _convert_color,
    Normalize: _normalize,
    Rescale: _rescale,
    ToFloat: _keep,
}
