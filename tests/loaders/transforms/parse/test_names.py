"""Every registered name: it parses, it is described, and it names the argument that is wrong."""

from __future__ import annotations

import pytest
from helpers.parsing import (
    AMBIGUOUS,
    INFO,
    NEEDS_ONE_OF,
    named_parameters,
    required_parameters,
    valid_arguments,
)

from loaders.transforms.base import Operation
from loaders.transforms.parse import known_transforms
from loaders.transforms.parse.arguments import BatchFunction, NeedsBytes, Note
from loaders.transforms.parse.items import parse_transform
from manifests.errors import CallError

#: Parameters that are ignored with a note, whatever their value.
IGNORED = {("RandCropImage", "progress_size"), ("RandAugmentV2", "progress_magnitude")}

#: Names that do nothing here with the smallest set of arguments, and the name of a function.
WITHOUT_OPERATION = {
    "ToCHWImage", "OpSampler", "ToImage", "PILToTensor", "ToPureTensor", "RGB", "Identity", "ToDtype", "Lambda",
}  # fmt: skip

EVERY_NAME = pytest.mark.parametrize("name", known_transforms())


# The table
# --------------------------------------------------------------------------------------------------


@EVERY_NAME
def test_table_states_a_difference_if_the_default_arguments_give_a_note(name):
    noted = any(isinstance(each, Note) for each in parse_transform(name, valid_arguments(name)))
    # The only note of OpSampler without arguments is that it has no operators.
    differs = INFO[name].differs or INFO[name].notes
    assert not noted or differs or name == "OpSampler"


# Every name
# --------------------------------------------------------------------------------------------------


@EVERY_NAME
def test_name_parses_or_states_the_missing_argument(name):
    missing = required_parameters(name)
    if name in AMBIGUOUS:
        pass  # see test_shared_names.py
    elif missing:
        message = f"^{name} needs the argument '{missing[0]}'. Hint: write {{'{name}'"
        with pytest.raises(CallError, match=message):
            parse_transform(name, {})
    elif name in NEEDS_ONE_OF:
        with pytest.raises(
            CallError, match=f"^{name}: {NEEDS_ONE_OF[name]}. Hint: write {{'{name}'"
        ):
            parse_transform(name, {})
        return
    parsed = parse_transform(name, valid_arguments(name))
    assert all(isinstance(each, (Operation, Note, NeedsBytes, BatchFunction)) for each in parsed)
    operations = [each for each in parsed if isinstance(each, Operation)]
    assert operations or name in WITHOUT_OPERATION
    # Operations compare and hash by value.
    assert parsed == parse_transform(name, valid_arguments(name))
    assert len({hash(each) for each in operations}) == len(set(operations))
    for note in [each for each in parsed[len(operations) :] if isinstance(each, Note)]:
        assert note.text
        assert not note.text.endswith(".")
        assert "\n" not in note.text


@EVERY_NAME
def test_unknown_argument_is_named(name):
    with pytest.raises(CallError) as error:
        parse_transform(name, {"no such thing": 1})
    if name == "OpSampler":
        assert (
            str(error.value)
            == "OpSampler: 'no such thing' is not an operator that OpSampler can draw. Hint: valid"
            " names are 'MixupOperator', 'CutmixOperator', 'FmixOperator'."
        )
    else:
        assert f"{name} has no argument 'no such thing'. Hint: " in str(error.value)


@EVERY_NAME
def test_every_argument_is_checked(name):
    for parameter in named_parameters(name):
        if (name, parameter) in IGNORED:
            continue
        with pytest.raises(CallError, match=f"^{name}: "):
            parse_transform(name, valid_arguments(name) | {parameter: object()})


# Suggestions
# --------------------------------------------------------------------------------------------------
