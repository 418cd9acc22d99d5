"""The transforms of a loader as a pipeline of their own, for a server that sends encoded images to it."""

from __future__ import annotations

import enum
import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from loaders.arrays import Array, Bytes
from loaders.dali.graph import (
    GraphContext,
    Node,
    Pipeline,
    RandomStreams,
    apply,
    apply_all,
    dali,
    fn,
    types,
)
from loaders.dali.pipeline import finished, new_context
from loaders.devices import Device
from loaders.options import ResolvedOptions
from loaders.transforms.base import ImageSpec, Operation
from loaders.transforms.combinators import chain_output
from loaders.transforms.decode_normalize import Decode, Unpack
from loaders.transforms.parse.items import RecipeItem
from manifests.errors import CallError
from manifests.parquet import read_varint

#: Names of the input and the output of the pipeline.
INPUT, OUTPUT = "encoded", "images"

_SOURCE = '''\
"""Decode and transform images as the loader does that was exported. Written by `loaders export`.

Triton runs this file if its version of DALI cannot read model.dali. To write model.dali with another version of DALI:

    python -c "import dali; dali.{function}().serialize(filename='model.dali')"
"""

from nvidia.dali import fn, math, pipeline_def, types
from nvidia.dali.plugin.triton import autoserialize


@autoserialize
@pipeline_def(batch_size={batch_size}, num_threads={num_threads}, device_id={device_id})
def {function}():
{body}
'''
_FUNCTION = "preprocess"


class RandomDrawError(Exception):
    """A graph that must not contain random values draws one."""


class NoRandomStreams(RandomStreams):
    """Raises `RandomDrawError` instead of drawing a random value."""

    def seed(self, owner: Operation, name: str, *, of_lane: bool = True) -> int:  # noqa: ARG002
        """Raise an error: every draw needs a seed."""
        raise RandomDrawError(f"{type(owner).__name__} draws {name}")


def find_random(items: Sequence[RecipeItem], first: Decode | Unpack) -> list[RecipeItem]:
    """Return the items whose operations draw random values in the graph.

    Args:
        items: the items of a recipe.
        first: the recipe's first operation.

    """
    found = []
    context = GraphContext(gpu=False, batch_size=1, random=NoRandomStreams(0))
    with dali.Pipeline(batch_size=1, num_threads=1, device_id=None):
        encoded = fn.external_source(dtype=types.UINT8, ndim=1)
        image, spec = apply_all([first], encoded, ImageSpec(), context)
        for item in items:
            after = chain_output(item.operations, spec)
            try:
                for operation in item.operations:
                    # The first operation and operations on batches do not nest.
                    if operation.nests:
                        image = apply(operation, image, spec, context)
                        spec = operation.output(spec)
            except RandomDrawError:
                found.append(item)
            spec = after
    return found


def serving_source(operations: Sequence[Operation], options: ResolvedOptions) -> str:
    """Return a Python module that defines the pipeline and needs only DALI.

    Args:
        operations: a loader's operations, fused. None of them draws random values.
        options: device, threads, dtype and layout of the loader; its batch size is the largest
            batch of the server.

    """
    device_id = 0 if options.device.is_gpu else None
    context = new_context(options, NoRandomStreams(0))
    pipeline = dali.Pipeline(
        batch_size=options.batch_size, num_threads=options.num_threads, device_id=device_id
    )
    with pipeline:
        encoded = fn.external_source(name=INPUT, dtype=types.UINT8, ndim=1)
        images, _ = finished(operations, encoded, ImageSpec(), context, options)
        pipeline.set_outputs(images)
    return _SOURCE.format(
        function=_FUNCTION,
        batch_size=options.batch_size,
        num_threads=options.num_threads,
        device_id=device_id,
        body=graph_as_python(pipeline, images, OUTPUT),
    )


def serialize(source: str) -> bytes:
    """Return the pipeline that a module of `serving_source` defines, serialized."""
    namespace: dict[str, Any] = {}
    # The serialized operators name the file that they come from: not a file of this machine.
    exec(compile(source, "dali.py", "exec"), namespace)  # noqa: S102 - `serving_source` wrote it
    serialized: bytes = namespace[_FUNCTION]().serialize()
    return serialized


def run_serialized(serialized: bytes, encoded: Bytes, device: Device) -> Array:
    """Run a serialized pipeline once.

    Args:
        serialized: the pipeline.
        encoded: uint8 [B, bytes], encoded images padded with zeros.
        device: where it runs.

    Returns:
        The images, [B, ...].

    """
    pipeline: Pipeline = dali.Pipeline.deserialize(serialized, device_id=device.gpu_index)
    pipeline.feed_input(INPUT, encoded)
    (images,) = pipeline.run()
    return np.array((images.as_cpu() if device.is_gpu else images).as_tensor())


def decode_images(
    encoded: Sequence[Bytes], operation: Decode | Unpack, device: Device
) -> list[Bytes]:
    """Decode images as a loader does.

    Returns:
        RGB pixels, uint8 [H, W, 3] each.

    """
    whole = replace(operation, space="RGB")
    context = GraphContext(device.is_gpu, len(encoded), NoRandomStreams(0))
    pipeline = dali.Pipeline(batch_size=len(encoded), num_threads=1, device_id=device.gpu_index)
    with pipeline:
        source = fn.external_source(name=INPUT, dtype=types.UINT8, ndim=1)
        pipeline.set_outputs(apply(whole, source, ImageSpec(), context))
    pipeline.build()
    pipeline.feed_input(INPUT, list(encoded))
    (images,) = pipeline.run()
    return [np.array(image) for image in (images.as_cpu() if device.is_gpu else images)]


_INFIX = {
    "add": "+", "sub": "-", "mul": "*", "fdiv": "/", "div": "//", "eq": "==", "neq": "!=", "lt": "<", "leq": "<=",
    "gt": ">", "geq": ">=", "bitand": "&", "bitor": "|", "bitxor": "^",
}  # fmt: skip
_FUNCTIONS = {"floor", "ceil", "min", "max", "abs", "sqrt", "exp", "log", "clamp"}
_EXPRESSION = re.compile(r"(\w+)\((.*)\)")

#: Numbers of the fields of DALI's protobuf messages.
_PIPELINE_OPERATOR, _OPERATOR_INPUT, _OPERATOR_NAME, _INPUT_ARGUMENT = 5, 2, 5, 4


def graph_as_python(pipeline: Pipeline, node: Node, output: str) -> str:
    """Return the body of a function that builds the same graph and returns its output, indented by four spaces.

    The function needs the names ``fn``, ``math`` and ``types`` of ``nvidia.dali``.

    Args:
        pipeline: a pipeline whose output is `node`.
        node: the output.
        output: name of the variable that the function returns.

    Raises:
        CallError: the graph contains an operator that only DALI's internals can create.

    """
    writer = _Writer(_argument_names(pipeline.serialize()))
    result = writer.value(node)
    lines = [*writer.lines, f"{output} = {result}", f"return {output}"]
    return "\n".join(f"    {line}" for line in lines)


class _Writer:
    """Writes one assignment for each operator, inputs first."""

    def __init__(self, arguments: dict[str, list[str]]) -> None:
        self.lines: list[str] = []
        self._arguments = arguments
        self._names: dict[str, str] = {}

    def value(self, node: Node) -> str:
        """Return an expression for a node, after writing what it depends on."""
        instance = node.source
        if instance.name not in self._names:
            self._write(instance)
        name = self._names[instance.name]
        if len(instance.outputs) > 1:
            name = f"{name}[{node.index}]"
        return (
            f"{name}.gpu()"
            if node.device == "gpu" and instance.outputs[node.index].device == "cpu"
            else name
        )

    def _write(self, instance: Any) -> None:
        encoded = _whose_size(instance)
        nodes = instance.inputs if encoded is None else [encoded]
        if instance._op.device == "cpu" and any(each.device == "gpu" for each in nodes):
            # Triton's backend runs pipelines with DALI's older executor, which refuses this.
            raise CallError(
                "these transforms cannot be exported to Triton for a GPU: they need the size of an"
                " image that the GPU has changed, which DALI's executor in Triton cannot return",
                hint="use --device cpu, or resize to a fixed height and width",
            )
        inputs = [self.value(each) for each in nodes]
        kwargs = dict(instance._op._init_args)
        label = kwargs.pop("_display_name")
        module = kwargs.pop("_module")
        own = f"{label.strip('_')}_{len(self._names)}"
        if label == "external_source":
            own = instance.name
            text = f'fn.external_source(name={own!r}, dtype=types.UINT8, ndim=1, device="cpu")'
        elif "expression_desc" in kwargs:
            text = _arithmetic(inputs, kwargs)
        elif label == "_tensor_subscript":
            if len(inputs) > 1:
                raise _not_supported("a subscript that is computed")
            text = f"{inputs[0]}[{_subscripts(kwargs)}]"
        elif encoded is not None:
            text = f"fn.peek_image_shape({_joined([*inputs, *_keywords(kwargs)])})"
        elif label == "_shape":
            text = f"{inputs[0]}.shape({_joined(_keywords(kwargs))})"
        elif "._" in f"{module}.{label}":
            raise _not_supported(f"the operator {module}.{label}")
        else:
            names = self._arguments[instance.name]
            positional = inputs[: len(inputs) - len(names)]
            named = [
                f"{name}={value}"
                for name, value in zip(names, inputs[len(positional) :], strict=True)
            ]
            if instance._op.device != "cpu":
                named.append(f"device={instance._op.device!r}")
            module = module.removeprefix("nvidia.dali.")
            text = f"{module}.{label}({_joined([*positional, *named, *_keywords(kwargs)])})"
        self._names[instance.name] = own
        self.lines.append(f"{own} = {text}")


def _whose_size(instance: Any) -> Node | None:
    """Return the encoded images if an operator only returns the size of whole decoded ones, which headers tell too.

    Triton's backend runs pipelines with DALI's older executor, which cannot return sizes from the
    GPU.
    """
    if instance._op._init_args["_display_name"] != "_shape":
        return None
    operator = instance.inputs[0].source
    arguments = operator._op._init_args
    whole = (arguments["_module"], arguments["_display_name"]) == (
        "nvidia.dali.fn.decoders",
        "image",
    )
    return operator.inputs[0] if whole and "adjust_orientation" not in arguments else None


def _not_supported(what: str) -> CallError:
    return CallError(
        f"these transforms cannot be exported to Triton: DALI has no Python function for {what}",
        hint="use transforms such as those of imagenet-eval, or --for onnx",
    )


def _joined(parts: list[str]) -> str:
    return ", ".join(parts)


def _keywords(kwargs: dict[str, Any]) -> list[str]:
    return [f"{name}={_literal(value)}" for name, value in kwargs.items()]


def _literal(value: Any) -> str:
    if isinstance(value, (list, tuple)):
        return f"[{_joined([_literal(each) for each in value])}]"
    if isinstance(value, (bool, int, float, str)) and not isinstance(value, enum.Enum):
        return repr(value)
    if type(value).__name__ in ("DALIDataType", "DALIImageType", "DALIInterpType"):
        return f"types.{type(value).__name__}.{value.name}"
    raise _not_supported(f"the value {value!r}")


def _arithmetic(inputs: list[str], kwargs: dict[str, Any]) -> str:
    """Return an arithmetic expression, from a text such as ``mul(&0 $0:float32)``: input 0 times constant 0."""
    match = _EXPRESSION.fullmatch(kwargs["expression_desc"])
    name = match[1] if match else ""
    constants = {
        "int32": kwargs.get("integer_constants", []),
        "float32": kwargs.get("real_constants", []),
    }
    operands = []
    for operand in match[2].split() if match else []:
        number, _, kind = operand[1:].partition(":")
        operands.append(
            inputs[int(number)] if operand[0] == "&" else repr(constants[kind][int(number)])
        )
    if name in _INFIX and len(operands) == 2:
        return f"{operands[0]} {_INFIX[name]} {operands[1]}"
    if name not in _FUNCTIONS:
        raise _not_supported(f"the expression {kwargs['expression_desc']}")
    return f"math.{name}({_joined(operands)})"


def _subscripts(kwargs: dict[str, Any]) -> str:
    parts = []
    for axis in range(kwargs["num_subscripts"]):
        if f"at_{axis}" in kwargs:
            parts.append(str(kwargs[f"at_{axis}"]))
        else:
            low, high = (kwargs.get(f"{end}_{axis}", "") for end in ("lo", "hi"))
            parts.append(f"{low}:{high}")
    return _joined(parts)


def _argument_names(serialized: bytes) -> dict[str, list[str]]:
    """Return the names of the argument inputs of each operator, by the name of the operator."""
    names = {}
    for field, value in _fields(serialized):
        if field == _PIPELINE_OPERATOR:
            operator = list(_fields(value))
            inputs = [dict(_fields(each)) for field, each in operator if field == _OPERATOR_INPUT]
            arguments = [
                each[_INPUT_ARGUMENT].decode() for each in inputs if _INPUT_ARGUMENT in each
            ]
            names[dict(operator)[_OPERATOR_NAME].decode()] = arguments
    return names


def _fields(message: bytes) -> Iterator[tuple[int, Any]]:
    """Yield number and value of each field of a protobuf message: bytes if it has a length, else an integer."""
    at = 0
    while at < len(message):
        key, at = read_varint(message, at)
        kind = key & 7
        if kind == 0:
            value, at = read_varint(message, at)
            yield key >> 3, value
        else:
            length, at = read_varint(message, at) if kind == 2 else ({1: 8, 5: 4}[kind], at)
            yield key >> 3, message[at : at + length]
            at += length
