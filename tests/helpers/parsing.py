"""Parse transform names in tests: operations, notes, and example arguments for every name."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Iterator
from typing import Any

import pytest

import loaders.transforms.argument
import loaders.transforms.fuse  # noqa: F401
from loaders.transforms.base import Operation
from loaders.transforms.parse import Meaning, read_recipe, transform_table
from loaders.transforms.parse.arguments import Note
from loaders.transforms.parse.items import parse_transform
from loaders.transforms.parse.names import ANY, names_of
from manifests.errors import CallError

#: Description of every registered name. If two libraries have it, of PaddleClas's, or of the
#: library that it means where a list does not say.
INFO: dict[str, Meaning] = {}
for _info in transform_table():
    if not _info.of_arrays and (_info.name not in INFO or "PaddleClas" in _info.libraries):
        INFO[_info.name] = _info


def operation_types(base: type = Operation) -> Iterator[type[Operation]]:
    """Yield every record of an operation, also those that fusion makes."""
    for each in base.__subclasses__():
        # Slots are added to a copy of a class. The first one remains a subclass.
        module = vars(sys.modules[each.__module__])
        if dataclasses.is_dataclass(each) and module.get(each.__name__) is each:
            yield each
        yield from operation_types(each)


#: Names that mean different transforms in two libraries.
AMBIGUOUS = ("AugMix", "AutoAugment", "RandAugment", "RandomErasing", "RandomRotation")

#: A valid value for each parameter that has no default.
_VALID = {
    "size": 8, "pad": 1, "padding": 1, "degrees": 10, "prob": 0.5, "kernel_size": 3, "mean": 0.5, "std": 0.2,
    "transforms": ["ToGray"], "lambd": len, "bits": 4, "threshold": 128, "sharpness_factor": 2, "dtype": "uint8",
    "target_size": 16,
}  # fmt: skip

#: Names that need one of several parameters although each has a default, and the error without any.
NEEDS_ONE_OF = {
    "ResizeImage": "size or resize_short is required",
    "Resize": "size or max_size is required",
}


def required_parameters(name: str) -> list[str]:
    """Return the names of the parameters without a default."""
    arguments = INFO[name].arguments
    return [each for each in named_parameters(name) if arguments[each].is_required]


def named_parameters(name: str) -> list[str]:
    """Return the names of all parameters except ``**kwargs``."""
    return [each for each in INFO[name].arguments if each != ANY]


def valid_arguments(name: str) -> dict[str, Any]:
    """Return the smallest set of arguments that a name accepts."""
    arguments = {parameter: _VALID[parameter] for parameter in required_parameters(name)}
    if name in NEEDS_ONE_OF:
        arguments["size"] = 8
    if name in AMBIGUOUS:
        arguments["library"] = "PaddleClas"
    return arguments


def valid_value(parameter: str) -> Any:
    """Return a valid value for a parameter."""
    return _VALID.get(parameter, 8)


def parse_operations(name: str, **arguments: Any) -> list[Operation]:
    """Return the operations of a transform; if two libraries have it, of PaddleClas's."""
    with names_of("PaddleClas" if "PaddleClas" in INFO[name].libraries else None):
        parsed = parse_transform(name, arguments)
    return [item for item in parsed if isinstance(item, Operation)]


def parse_operation(name: str, **arguments: Any) -> Any:
    """Return the only operation of a transform."""
    (operation,) = parse_operations(name, **arguments)
    return operation


def parse_notes(name: str, **arguments: Any) -> str:
    """Return the notes of a transform, joined."""
    with names_of("PaddleClas" if "PaddleClas" in INFO[name].libraries else None):
        parsed = parse_transform(name, arguments)
    return " ".join(item.text for item in parsed if isinstance(item, Note))


def recipe_error(items: Any, **options: Any) -> str:
    """Return the message of the error that `read_recipe` raises."""
    with pytest.raises(CallError) as error:
        read_recipe(items, **options)
    return str(error.value)
