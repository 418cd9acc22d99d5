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


@pytest.mark.parametrize("name", known_transforms())
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
    notes = [each for each in parsed if isinstance(each, Note)]
    for note in notes:
        assert note.text
        assert not note.text.endswith(".")
        assert "\n" not in note.text
    # The only note of OpSampler without arguments is that it has no operators.
    assert not notes or INFO[name].differs or INFO[name].notes or name == "OpSampler"


@pytest.mark.parametrize("name", known_transforms())
def test_every_argument_is_checked(name):
    unknown = rf"^{name}( has no argument|:) 'no such thing'.* Hint: "
    with pytest.raises(CallError, match=unknown):
        parse_transform(name, {"no such thing": 1})
    for parameter in named_parameters(name):
        if (name, parameter) not in IGNORED:
            with pytest.raises(CallError, match=rf"^{name}(\(.*\b{parameter}\b.*\))?: "):
                parse_transform(name, valid_arguments(name) | {parameter: object()})
