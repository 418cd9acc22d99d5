"""Parse one item of a list of transforms: a name, a record, a function or an object.

torchvision is never imported: an object is recognized by the module of its class. Its attributes
have the names of the arguments that it was made with, so it is read as its name with arguments.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from loaders.transforms.base import MAX_NESTING, MAX_TRANSFORMS, Chain, Operation
from loaders.transforms.parse.arguments import (
    Arguments,
    BatchFunction,
    NeedsBytes,
    Note,
    Noted,
    Parsed,
    Part,
    Reader,
    errors_at,
    is_list,
    read_number,
    read_operator,
    read_transforms,
    setting,
)
from loaders.transforms.parse.names import ANY, Meaning, chosen, is_ambiguous, known_transforms
from loaders.transforms.parse.timm import timm_item, with_magnitude
from loaders.transforms.parse.torchvision import converts_to_rgb
from manifests.errors import CallError
from manifests.process.text import shown, suggest

#: Items as they are written, with their locations.
Located: TypeAlias = Iterable[tuple[str, Any]]


@dataclass(frozen=True, slots=True)
class RecipeItem:
    """One item of the user's list, parsed.

    Attributes:
        location: position in the list, such as ``transforms[2]``.
        description: the item as Python code, such as ``CropImage(size=224)``.
        operations: its operations; may be empty.
        notes: its differences from the library that its name comes from.
        function: the user's function if the item is one.
        written: the item as a name or a name with arguments; ``None`` if it is a record or a
            function.
        needs_bytes: whether images must be uint8 before it.

    """

    location: str
    description: str
    operations: Chain = ()
    notes: tuple[str, ...] = ()
    function: Callable[[Any], Any] | None = None
    written: Any = field(default=None, compare=False)
    needs_bytes: bool = False

    @property
    def located_notes(self) -> list[str]:
        """The notes with the item's location and description."""
        return [f"{self.location}, {self.description}: {note}" for note in self.notes]

    def function_error(self, why: str, move: str) -> CallError:
        """Return the error of a function that something follows or surrounds; `move` is the hint."""
        name = _name_of(self.function) if self.function else ""
        # MoCo and BYOL have classes of their own, which take one image of Pillow.
        for known in {name, f"Random{name}"}.intersection(known_transforms()):
            move = (
                f"write {{{known!r}: {{...}}}} or torchvision's {known} instead of your own class"
            )
        return CallError(
            f"{self.location}: {self.description} is a function, which is called with the finished"
            f" batch{why}",
            hint=move,
        )


# Items
# --------------------------------------------------------------------------------------------------


def parse_item(location: str, item: Any) -> RecipeItem:
    """Parse one item of a list.

    Raises:
        CallError: the item is unknown or wrong; the message starts with `location`.

    """
    # A conversion to RGB may stand anywhere, other functions only at the end.
    if converts_to_rgb(item):
        return RecipeItem(location, f"{_name_of(item)}(image)")
    if callable(item) and not isinstance(item, (Operation, type)):
        return RecipeItem(location, f"{_name_of(item)}(images)", function=item)
    if isinstance(item, Operation):
        return RecipeItem(location, repr(item), (item,))
    # A name alone is a name without arguments.
    if isinstance(item, str):
        item = {item: None}
    is_named = isinstance(item, Mapping) and len(item) == 1
    if not is_named or not isinstance(next(iter(item)), str):
        raise CallError(
            f"{location} is not a transform: {shown(item)}",
            hint="write a name, or a name with arguments: {'ResizeImage': {...}}",
        )
    ((name, arguments),) = item.items()
    with errors_at(location):
        arguments = {key: plain(each) for key, each in _named(name, arguments).items()}
        parts = parse_transform(name, arguments)
    # Sort what the name gives by what a recipe does with it.
    operations = []
    notes = []
    function = None
    needs_bytes = False
    for part in parts:
        match part:
            case Note():
                notes.append(part.text)
            case BatchFunction():
                function = part.function
            case NeedsBytes():
                needs_bytes = True
            case _:
                operations.append(part)
    description = f"{name}({_written(arguments)})"
    return RecipeItem(
        location, description, tuple(operations), tuple(notes), function, item, needs_bytes
    )


def _written(arguments: Mapping[str, Any]) -> str:
    return ", ".join(f"{key}={shown(value)}" for key, value in arguments.items())


def _named(name: str, arguments: Any) -> dict[str, Any]:
    """Return the arguments of a name; `None` stands for none."""
    if arguments is not None and not isinstance(arguments, Mapping):
        raise CallError(
            f"{name} takes named arguments, got {shown(arguments)}",
            hint=f"write {{{shown(name)}: {{argument: value}}}}",
        )
    return dict(arguments or {})


def plain(value: Any) -> Any:
    """Return an argument as Python numbers and lists, and a sequence of one number as the number.

    Scripts compute means with NumPy and torch, and torchvision accepts ``(0.5,)`` for ``0.5``.
    """
    # NumPy's numbers have `tolist`, too.
    if _is_array(value):
        value = value.tolist()
    elif is_list(value):
        value = type(value)(each.tolist() if _is_array(each) else each for each in value)
    # Lists of one name or record are not numbers, and stay lists.
    if is_list(value) and len(value) == 1 and isinstance(value[0], (int, float)):
        return value[0]
    return value


def _is_array(value: Any) -> bool:
    """Return whether a value is an array, a number or a tensor of NumPy or torch."""
    return type(value).__module__ in ("numpy", "torch") and hasattr(value, "tolist")


def _name_of(function: Callable[..., Any]) -> str:
    return getattr(function, "__name__", type(function).__name__)


# Names
# --------------------------------------------------------------------------------------------------

#: How many lists are around the one that is being parsed.
_DEPTH: ContextVar[int] = ContextVar("depth", default=0)


@dataclass
class Strength:
    """The magnitude that policies take instead of the one in the list.

    Attributes:
        magnitude: the magnitude.
        is_used: whether a policy has taken it.

    """

    magnitude: float
    is_used: bool = False

    def set(self, argument: str, arguments: Arguments) -> dict[str, Any]:
        """Return the argument of a policy with the magnitude; empty if the policy has none."""
        number: Any = self.magnitude
        if number.is_integer():
            number = int(number)
        # The policies of timm have their magnitude inside a text.
        if argument == "config_str":
            number = with_magnitude(arguments[argument], number)
        if number is None:
            return {}
        self.is_used = True
        return {argument: number}


_STRENGTH: ContextVar[Strength | None] = ContextVar("strength", default=None)


def with_strength(magnitude: float) -> AbstractContextManager[Strength]:
    """Parse policies with another magnitude."""
    return setting(_STRENGTH, Strength(float(magnitude)))


#: What OpSampler draws from.
_OPERATORS = ("MixupOperator", "CutmixOperator", "FmixOperator")


def parse_transform(name: str, arguments: Arguments) -> tuple[Part, ...]:
    """Parse a transform name and its arguments into operations and notes, or a function.

    Raises:
        CallError: the name or an argument is unknown (the hint suggests similar ones), an argument
            is missing, or a value is wrong. Or the name means different transforms in two
            libraries, and nothing says which.

    """
    meanings = chosen(name, arguments)
    results = [_parse(each, arguments) for each in meanings]
    # Two libraries may spell the same: then it does not matter which is meant.
    if results.count(results[0]) < len(results):
        spelled = " or ".join(
            f"{{{shown(name)}: {{'library': {shown(each.libraries[0])}, ...}}}}"
            for each in meanings
        )
        raise CallError(
            f"{name} is another transform in {meanings[0].libraries[0]} than in"
            f" {meanings[1].libraries[0]}, and the other names of the list do not say which is"
            " meant",
            hint=f"write {spelled}",
        )
    return results[0]


def _parse(meaning: Meaning, arguments: Arguments) -> tuple[Part, ...]:
    name = meaning.name
    values = {}
    for key, argument in meaning.arguments.items():
        if not argument.is_required:
            values[key] = argument.default
        elif key not in arguments and key != ANY:
            hint = f"write {{{shown(name)}: {{{shown(key)}: ...}}}}"
            raise CallError(f"{name} needs the argument {shown(key)}", hint=hint)
    # What the user writes replaces the defaults.
    values.update(arguments)
    # The library has chosen the meaning, and is no argument of the transform.
    if not meaning.takes("library"):
        values.pop("library", None)
    try:
        return tuple(_parts(meaning, values))
    except CallError as error:
        # A field of a record may have another name than the arguments that set it.
        place, field_name = name, error.message.split(" ")[0]
        if field_name.isidentifier() and not meaning.takes(field_name):
            place = f"{name}({_written(arguments)})"
        raise CallError(f"{place}: {error.message}", hint=error.hint) from None


def _parts(meaning: Meaning, arguments: Arguments) -> Parsed:
    """Read the arguments, and yield what the name makes of them, then the notes."""
    values = dict(meaning.fixed)
    notes = [*map(Note, meaning.notes)]
    strength = _STRENGTH.get()
    if strength and meaning.magnitude:
        arguments = {**arguments, **strength.set(meaning.magnitude, arguments)}
    for key, value in arguments.items():
        argument = meaning.argument(key)
        # Readers of names are here, because the table of names cannot know them.
        read = _NESTED.get(argument.read, argument.read)(value, key)
        if isinstance(read, Noted):
            notes.extend(read.notes)
            read = read.value
        values[argument.field or key] = read
    made = meaning.make(**values)
    # A record is one operation; a function yields what it makes.
    if isinstance(made, Operation):
        yield made
    else:
        yield from made
    yield from notes


def _read_transforms(value: Any, name: str) -> Noted:
    """Read a list of transforms: the operations of each, and the notes of all.

    A `Compose` in the list is one transform.
    """
    # A ModuleList of torch comes as a list: `_translate` has made it one.
    if not isinstance(value, Sequence) or isinstance(value, (str, bytes)) or not value:
        raise CallError(f"{name} must be a list of at least one transform, got {shown(value)}")
    if len(value) > MAX_TRANSFORMS:
        raise CallError(
            f"{name} has {len(value)} transforms, but at most {MAX_TRANSFORMS} are supported"
        )
    if _DEPTH.get() >= MAX_NESTING:
        raise CallError(f"transforms are nested more than {MAX_NESTING} levels deep")
    chains = []
    notes: list[Note] = []
    with setting(_DEPTH, _DEPTH.get() + 1):
        for number, transform in enumerate(value):
            operations: list[Operation] = []
            # A Compose gives several items, which are one chain.
            for written in flatten(f"{name}[{number}]", transform):
                item = parse_item(*written)
                if item.function:
                    raise item.function_error("", "move it to the end of the outermost list")
                operations.extend(item.operations)
                notes.extend(map(Note, item.located_notes))
            chains.append(tuple(operations))
    return Noted(tuple(chains), tuple(notes))


def _read_operator(value: Any, name: str) -> tuple[Any, float | None]:
    """Read an operator of OpSampler: the operation, and its probability if that is set."""
    if name not in _OPERATORS:
        raise CallError(
            f"{shown(name)} is not an operator that OpSampler can draw",
            hint=suggest(name, _OPERATORS),
        )
    # `prob` belongs to OpSampler, the other arguments to the operator.
    arguments = _named(name, value)
    probability = None
    if "prob" in arguments:
        probability = read_number(arguments.pop("prob"), f"prob of {name}")
        if not 0 <= probability <= 1:
            raise CallError(f"prob of {name} must be a number from 0 to 1, got {probability:g}")
    (operation,) = parse_transform(name, arguments)
    return operation, probability


#: The readers that read names in turn, by what stands for them in the table of names.
_NESTED: dict[Reader, Reader] = {
    read_transforms: _read_transforms,
    read_operator: _read_operator,
}


def names_in(located: Located, depth: int = 0) -> Iterator[tuple[str, Arguments]]:
    """Yield the names in a list, and in the lists inside it, with their arguments.

    Names of what contains other transforms are left out.
    """
    for _, item in located:
        # Records, functions and what is no transform have no name.
        written = {item: None} if isinstance(item, str) else item
        if not isinstance(written, Mapping):
            continue
        for name, arguments in written.items():
            given = arguments if isinstance(arguments, Mapping) else {}
            inner = given.get("transforms")
            if is_list(inner) and depth < MAX_NESTING:
                # An error is raised where the list is parsed, which knows its location.
                with suppress(CallError):
                    yield from names_in(written_items("", inner), depth + 1)
            elif isinstance(name, str):
                yield name, given


# Objects of torchvision
# --------------------------------------------------------------------------------------------------

#: Attributes that do not change what a transform does to an image.
_IGNORED = ("training", "inplace", "types", "policies")

#: Classes of torchvision without a name here, and why. docs/transforms.md has the same table.
REFUSED = {
    "GaussianNoise": "noise for each pixel is not implemented",
    "JPEG": "images are not encoded again",
    "LinearTransformation": "it makes one vector of an image",
    "RandomChannelPermutation": "channels have a fixed order, which Normalize relies on",
    "RandomPhotometricDistort": (
        "write RandomApply with ColorJitter instead; channels have a fixed order"
    ),
    "RandomResize": "write ScaleJitter instead, or RandomResizedCrop",
    "RandomShortestSize": "write Resize with max_size instead, or ScaleJitter",
    "RandomZoomOut": "write Pad or RandomAffine with scale instead",
    "RandomIoUCrop": "a crop that depends on the boxes is not implemented",
    "ClampBoundingBoxes": "boxes are always clipped to the image; remove it",
    "ClampKeyPoints": "there are no key points",
    "ConvertBoundingBoxFormat": "boxes are x1, y1, x2, y2; convert the boxes of the batch",
    "SanitizeBoundingBoxes": "boxes that are no longer visible are always left out; remove it",
    "SanitizeKeyPoints": "there are no key points",
    "SetClampingMode": "boxes are always clipped to the image; remove it",
    "UniformTemporalSubsample": "there are no videos",
    "ToPILImage": "images are arrays from the first transform on; remove it",
}


def written_items(source: str, items: Sequence[Any]) -> Iterator[tuple[str, Any]]:
    """Yield the items of a list with their locations.

    Objects of torchvision and timm become names with arguments.
    """
    for number, item in enumerate(items):
        yield from flatten(f"{source}[{number}]", item)


def flatten(location: str, item: Any, depth: int = 0) -> Iterator[tuple[str, Any]]:
    """Replace torchvision's objects by names with arguments, and a `Compose` by its transforms.

    Args:
        location: where the item is, such as ``transforms[2]``.
        item: an item of a list of transforms.
        depth: number of `Compose` around it.

    Yields:
        Locations, and items that are not objects of torchvision.

    Raises:
        CallError: an object cannot be translated; the message names its class.

    """
    # A list that contains itself would never end.
    if depth > MAX_NESTING:
        raise CallError(f"{location}: transforms are nested more than {MAX_NESTING} levels deep")
    parts = composed(item)
    if parts is not None:
        for number, part in enumerate(parts):
            yield from flatten(f"{location}[{number}]", part, depth + 1)
    elif _is_of("timm.data", item):
        yield location, timm_item(location, item)
    elif _has_torchvision_base(item):
        yield location, _translate(location, item)
    else:
        yield location, item


def composed(item: Any) -> list[Any] | None:
    """Return the transforms of a `Compose`, a `torch.nn.Sequential` of them, or a model's weights.

    Else ``None``.

    Raises:
        CallError: an object has a `Compose` for each image, such as what makes two crops of it, or
            it is of albumentations.

    """
    if _is_of("albumentations", item):
        raise CallError(
            f"{type(item).__name__} of albumentations takes one image, by keyword, and is not translated",
            hint="write the transforms of torchvision that do the same: docs/transforms.md has all names",
        )
    if _is_of("torchvision.transforms._presets", item):
        return _preprocessing(item)
    if _is_compose(item):
        return list(item.transforms)
    if _is_of("torch.nn", item) and type(item).__name__ == "Sequential":
        parts = list(item)
        if any(_has_torchvision_base(part) or composed(part) for part in parts):
            return parts
    # MoCo, SupCon and DINO make several crops with objects of their own.
    for value in getattr(item, "__dict__", {}).values():
        if _is_compose(value) and any(map(_makes_tensors, value.transforms)):
            raise CallError(
                f"{type(item).__name__} runs transforms of torchvision on each image, and is not"
                " one of them",
                hint="pass its transforms; for several crops of an image, pass views=[list, list]",
            )
    return None


def _is_compose(item: Any) -> bool:
    return _is_of("torchvision.transforms", item) and type(item).__name__ == "Compose"


def _makes_tensors(item: Any) -> bool:
    """Return whether a transform takes images of Pillow, so that no batch can be meant."""
    return type(item).__name__ in ("ToTensor", "PILToTensor", "ToImage")


#: The steps of what ``weights.transforms()`` returns, by its class.
_PREPROCESSING = {
    "ImageClassification": ("Resize", "CenterCrop", "ToTensor", "Normalize"),
    "SemanticSegmentation": ("Resize", "ToTensor", "Normalize"),
    "ObjectDetection": ("ToTensor",),
}


def _preprocessing(item: Any) -> list[Any] | None:
    """Return the steps of ``weights.transforms()``; `None` if they are for other data."""
    names = _PREPROCESSING.get(type(item).__name__)
    if names is None:
        return None
    values = {key: _text_of(value) for key, value in vars(item).items()}
    arguments = {
        "Resize": {
            "size": values.get("resize_size"),
            "interpolation": values.get("interpolation"),
            "antialias": values.get("antialias"),
        },
        "CenterCrop": {"size": values.get("crop_size")},
        "Normalize": {"mean": values.get("mean"), "std": values.get("std")},
    }
    return [{name: arguments.get(name)} for name in names]


def _is_of(package: str, item: Any) -> bool:
    module = str(getattr(type(item), "__module__", ""))
    return module == package or module.startswith(f"{package}.")


def _has_torchvision_base(item: Any) -> bool:
    return any(
        str(base.__module__).startswith("torchvision.transforms") for base in type(item).__mro__
    )


def _plain_base(kind: type) -> type:
    """Return the class whose transform a class is: DINO's GaussianBlur only calls the constructor of RandomApply."""
    while not kind.__module__.startswith("torchvision.transforms") and len(kind.__bases__) == 1:
        for name, value in vars(kind).items():
            is_data = name.startswith("__") and not hasattr(value, "__get__")
            if not is_data and name not in ("__init__", "__repr__"):
                return kind
        (kind,) = kind.__bases__
    return kind


def _translate(location: str, item: Any) -> dict[str, dict[str, Any]]:
    kind = _plain_base(type(item))
    name = kind.__name__
    if not kind.__module__.startswith("torchvision.transforms"):
        raise CallError(
            f"{location}: {name} is a class of yours that extends a transform of torchvision, and"
            " cannot be translated",
            hint=(
                "write it as a function that takes and returns a batch, and put it at the end of"
                " the list"
            ),
        )
    if name not in known_transforms():
        raise CallError(
            f"{location}: torchvision's {name} cannot be translated: "
            f"{REFUSED.get(name, 'there is no transform of this name here')}",
            hint=(
                "remove it, or write it as a function that takes and returns a batch, at the end of"
                " the list"
            ),
        )
    # Modules in an attribute are not in `__dict__`.
    # v1 and v2 store arguments under their names.
    attributes = dict(vars(item))
    if hasattr(item, "transforms"):
        attributes["transforms"] = list(item.transforms)
    arguments = {}
    for key, value in attributes.items():
        if not key.startswith("_") and key not in _IGNORED and value is not None:
            arguments[key] = _text_of(value)
    if name == "RandomErasing":
        # v2 stores `None` for "random".
        arguments.setdefault("value", "random")
    # The class says which library is meant, whatever else is in the list.
    if is_ambiguous(name, arguments):
        arguments["library"] = "torchvision"
    return {name: arguments}


def _text_of(value: Any) -> Any:
    """Return a value as users write it: the text of an enum member, a dtype, or the image's value."""
    if isinstance(value, dict):
        # v2 takes a value for each type of input; "others" is for types that it does not name.
        by_name = {getattr(key, "__name__", key): each for key, each in value.items()}
        for name in ("Image", "Tensor", "others"):
            if name in by_name:
                return _text_of(by_name[name])
    if _is_of("torch", value) and type(value).__name__ == "dtype":
        return str(value).removeprefix("torch.")
    if _is_of("torchvision", value):
        return getattr(value, "value", value)
    return value
