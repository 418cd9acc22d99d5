"""A list of transforms as a user gives it -> a recipe: operations, notes and the user's functions, checked."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from loaders.transforms.base import BatchOperation, ImageSpec, Operation, Size
from loaders.transforms.decode_normalize import Decode, Unpack
from loaders.transforms.mixing import Mixing
from loaders.transforms.parse.registry import Note, parse_transform
from manifests.errors import CallError

#: A function of the whole batch of images, called last: tensor in, tensor out.
BatchFunction: TypeAlias = Callable[[Any], Any]


@dataclass(frozen=True, slots=True)
class RecipeItem:
    """What one item of the list means.

    Attributes:
        location: where the item stands, as in ``transforms[2]``.
        description: the item as it can be written.
        operations: what it means; may be none.
        notes: where that is not exactly what the item's library does.

    """

    location: str
    description: str
    operations: tuple[Operation, ...] = ()
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Recipe:
    """What becomes of the images.

    Attributes:
        items: the items, in order.
        batch_functions: the user's own, called with each batch in order.
        output: of an image when all operations are done; its size is set.
        config_num_classes: of mixed labels, where the operation that mixes does not say; none for the dataset's.
        notes: where the list as a whole is not followed to the letter.
        raw_size: height and width of the stored images, where they are stored as pixels.

    """

    items: tuple[RecipeItem, ...]
    batch_functions: tuple[BatchFunction, ...]
    output: ImageSpec
    config_num_classes: int | None = None
    notes: tuple[str, ...] = ()
    raw_size: Size | None = None

    @property
    def all_notes(self) -> tuple[str, ...]:
        """The notes of the list and of its items, each item's with its place."""
        return (
            *self.notes,
            *(f"{step.location}, {step.description}: {note}" for step in self.items for note in step.notes),
        )

    @property
    def operations(self) -> tuple[Operation, ...]:
        """All operations on an image, in order; the first is a `Decode`, or an `Unpack` where pixels are stored."""
        found = tuple(each for step in self.items for each in step.operations if not isinstance(each, BatchOperation))
        first, *others = found if found and isinstance(found[0], Decode) else (Decode(), *found)
        if self.raw_size is not None and isinstance(first, Decode):
            first = Unpack(self.raw_size, first.space)
        return (first, *others)

    @property
    def mixing(self) -> tuple[Mixing, ...]:
        """All operations on a batch, in order."""
        return tuple(each for step in self.items for each in step.operations if isinstance(each, Mixing))

    @property
    def smoothing(self) -> float:
        """How much of a mixed label is spread over all classes."""
        return max((each.smoothing for each in self.mixing), default=0.0)

    @property
    def num_classes(self) -> int | None:
        """Of mixed labels; none for as many as the dataset has."""
        return next((each.classes for each in self.mixing if each.classes), self.config_num_classes)

    @property
    def size(self) -> Size:
        """Height and width of the images of a batch."""
        if self.output.size is None:
            raise TypeError("a recipe's form has a size")
        return self.output.size


def read_recipe(
    items: Sequence[Any],
    *,
    source: str = "transforms",
    batch: Sequence[Any] = (),
    num_classes: int | None = None,
    notes: Sequence[str] = (),
) -> Recipe:
    """Read a list of transforms.

    Args:
        items: each a name, a name with its arguments (``{"ResizeImage": {"size": 224}}``), an `Operation`, or a
            function of a batch; functions stand last.
        source: what to call the list in messages.
        batch: items for a batch (PaddleClas' ``batch_transform_ops``).
        num_classes: of mixed labels, where the items do not say.
        notes: where the list as a whole is not followed to the letter.

    Raises:
        CallError: an item is unknown, wrong, or cannot stand where it does; the message names its place.

    """
    steps: list[RecipeItem] = []
    functions: list[BatchFunction] = []
    named = [(f"{source}[{number}]", item) for number, item in enumerate(items)]
    named += [(f"batch_{source}[{number}]", item) for number, item in enumerate(batch)]
    for place, item in named:
        if callable(item) and not isinstance(item, (Operation, type)):
            functions.append(item)
            steps.append(RecipeItem(place, f"{getattr(item, '__name__', type(item).__name__)}(images)"))
        elif functions:
            raise CallError(f"{place}: a function works on the finished batch", hint="put it at the end of the list")
        else:
            steps.append(_step(place, item))
    return Recipe(tuple(steps), tuple(functions), _checked(steps, source), num_classes, tuple(notes))


def _step(place: str, item: Any) -> RecipeItem:
    if isinstance(item, Operation):
        return RecipeItem(place, repr(item), (item,))
    if isinstance(item, str):
        item = {item: None}
    if not (isinstance(item, Mapping) and len(item) == 1 and all(isinstance(name, str) for name in item)):
        raise CallError(
            f"{place} is no transform: {item!r}", hint="write a name, or a name with arguments: {'ResizeImage': {...}}"
        )
    ((name, arguments),) = item.items()
    if arguments is not None and not isinstance(arguments, Mapping):
        raise CallError(
            f"{place}, {name}: its arguments must be named, got {arguments!r}",
            hint=f"write {{{name!r}: {{argument: value}}}}",
        )
    arguments = arguments or {}
    try:
        meaning = parse_transform(name, arguments)
    except CallError as error:
        raise CallError(f"{place}: {error.message}", hint=error.hint) from None
    text = f"{name}({', '.join(f'{key}={value!r}' for key, value in arguments.items())})"
    return RecipeItem(
        place,
        text,
        tuple(each for each in meaning if isinstance(each, Operation)),
        tuple(each.text for each in meaning if isinstance(each, Note)),
    )


def _checked(steps: Sequence[RecipeItem], source: str) -> ImageSpec:
    form, last, mixed = Decode().output(ImageSpec()), None, None
    for number, step in enumerate(steps):
        for operation in step.operations:
            if isinstance(operation, Decode) and any(each.operations for each in steps[:number]):
                raise CallError(f"{step.location}: images are decoded already", hint="decode first, and once")
            if isinstance(operation, BatchOperation):
                if form.size is None:
                    raise _varying(source, last)
                mixed = step
            elif mixed is not None:
                raise CallError(
                    f"{step.location}: {step.description} works on an image, and {mixed.location} on a batch",
                    hint="put what mixes images last",
                )
            try:
                form = operation.output(form)
            except CallError as error:
                raise CallError(f"{step.location}: {error.message}", hint=error.hint) from None
        if step.operations:
            last = step
    if form.size is None:
        raise _varying(source, last)
    return form


def _varying(source: str, last: RecipeItem | None) -> CallError:
    after = f" after {last.description}" if last else ""
    return CallError(
        f"{source}: images would have different sizes{after}, and a batch needs one size",
        hint="add a crop (CropImage), a resize to height and width (ResizeImage with size) or a RandCropImage",
    )
