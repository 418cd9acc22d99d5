"""Write the graph of a pipeline as Python source, which every version of DALI can read.

DALI has no public way to list the operators of a pipeline. This module reads them from the nodes
(private attributes), and the names of their argument inputs from the serialized pipeline.
`loaders.export` compares the outputs of the source with those of the loader, so a change in DALI
cannot give wrong images.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Iterator
from typing import Any

from loaders.dali.graph import Node, Pipeline
from manifests.errors import CallError
from manifests.parquet import read_varint

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
        label, module = kwargs.pop("_display_name"), kwargs.pop("_module")
        own = (
            instance.name
            if label == "external_source"
            else f"{label.strip('_')}_{len(self._names)}"
        )
        if label == "external_source":
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
