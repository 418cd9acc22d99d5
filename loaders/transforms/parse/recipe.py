"""Parse a list of transforms into a recipe of operations, notes and the user's functions, and check their order."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from loaders.transforms.base import (
    MAX_TRANSFORMS,
    MAX_VIEWS,
    BatchOperation,
    ImageSpec,
    Operation,
    Size,
)
from loaders.transforms.crop_resize import KeepSize
from loaders.transforms.decode_normalize import Decode, Unpack
from loaders.transforms.mixing import Mixing
from loaders.transforms.parse.arguments import Library
from loaders.transforms.parse.items import RecipeItem, composed, names_in, parse_item, written_items
from loaders.transforms.parse.names import library_of, names_of
from loaders.transforms.parse.sequence import (
    SizesVaryError,
    check_functions_are_last,
    check_sequence,
)
from manifests.errors import CallError
from manifests.process.text import shown


@dataclass(frozen=True, slots=True)
class View:
    """What makes one of several tensors of the same images, after the transforms that all views share.

    Attributes:
        items: the items of the view's list, in order.
        batch_functions: the user's functions, called with each batch of this view.
        output: spec of the images; its size is known.

    """

    items: tuple[RecipeItem, ...]
    batch_functions: tuple[Callable[[Any], Any], ...]
    output: ImageSpec

    @property
    def operations(self) -> tuple[Operation, ...]:
        """The operations in order."""
        return tuple(each for item in self.items for each in item.operations)


@dataclass(frozen=True, slots=True)
class Recipe:
    """All transforms of a loader.

    Attributes:
        items: the items of the user's list, in order.
        batch_functions: the user's functions, called with each batch in order.
        output: spec of the images after all operations. Its size is known, unless a batch has one
            image.
        config_num_classes: number of classes of mixed labels if no mixing operation sets it;
            ``None`` takes the number of classes in the dataset.
        notes: differences that concern the whole list instead of one item.
        raw_size: height and width of the stored images for datasets that store raw pixels, else
            ``None``.
        views: views of the images. If there are any, `items` are what they share, and `output` is
            the output of the first.
        library: the library to which the names of the list belong; `None` if they do not say.

    """

    items: tuple[RecipeItem, ...]
    batch_functions: tuple[Callable[[Any], Any], ...]
    output: ImageSpec
    config_num_classes: int | None = None
    notes: tuple[str, ...] = ()
    raw_size: Size | None = None
    views: tuple[View, ...] = ()
    library: Library | None = None

    @property
    def outputs(self) -> tuple[ImageSpec, ...]:
        """Spec of the images of each tensor in a batch."""
        return tuple(view.output for view in self.views) or (self.output,)

    @property
    def all_notes(self) -> tuple[str, ...]:
        """The notes of the list, then those of its items with their locations."""
        return (
            *self.notes,
            *(
                f"{item.location}, {item.description}: {note}"
                for item in self.all_items
                for note in item.notes
            ),
        )

    @property
    def all_items(self) -> tuple[RecipeItem, ...]:
        """The items of the list, and of the lists of the views."""
        return (*self.items, *(item for view in self.views for item in view.items))

    @property
    def operations(self) -> tuple[Operation, ...]:
        """All per-image operations in order.

        The first is `Decode`, or `Unpack` for datasets that store raw pixels.
        """
        listed = tuple(
            each
            for item in self.items
            for each in item.operations
            if not isinstance(each, BatchOperation)
        )
        first, *others = listed if listed and isinstance(listed[0], Decode) else (Decode(), *listed)
        if self.raw_size is not None and isinstance(first, Decode):
            first = Unpack(self.raw_size, first.space)
            others = [each for each in others if each != KeepSize(self.raw_size)]
        return (first, *others)

    @property
    def mixing(self) -> tuple[Mixing, ...]:
        """All batch operations, in order."""
        return tuple(
            each for item in self.items for each in item.operations if isinstance(each, Mixing)
        )

    @property
    def text(self) -> str:
        """All operations as text, which identifies them in checkpoints and in files of ``loaders tune``."""
        views = [f"view({' '.join(map(repr, view.operations))})" for view in self.views]
        return " ".join([*map(repr, (*self.operations, *self.mixing)), *views])

    @property
    def smoothing(self) -> float:
        """Label smoothing of mixed labels, a fraction from 0 to 1."""
        return max((each.smoothing for each in self.mixing), default=0.0)

    @property
    def num_classes(self) -> int | None:
        """Number of classes of mixed labels.

        ``None`` takes the number of classes in the dataset.
        """
        return next((each.classes for each in self.mixing if each.classes), self.config_num_classes)


def read_recipe(
    items: Sequence[Any],
    *,
    source: str = "transforms",
    batch: Sequence[Any] = (),
    num_classes: int | None = None,
    notes: Sequence[str] = (),
    image_size: Callable[[], Size | None] = lambda: None,
    library: Library | None = None,
    any_size: bool = False,
) -> Recipe:
    """Parse and check a list of transforms.

    Args:
        items: each a name, a name with arguments (``{"ResizeImage": {"size": 224}}``), an
            `Operation`, or a function of a batch. Functions come last.
        source: name of the list in error messages.
        batch: transforms of whole batches (``batch_transform_ops`` in PaddleClas).
        num_classes: number of classes of mixed labels if no item sets it.
        notes: differences that concern the whole list instead of one item.
        image_size: returns the height and width of all images of the dataset, or ``None`` if they
            vary. It is called only if the transforms do not give all images one size.
        library: the library of names that two libraries have; `None` if the other names decide.
        any_size: whether images may have different sizes, because a batch has one image.

    Raises:
        CallError: an item is unknown, wrong or in the wrong position; the message names the item's
            location.

    """
    file, colon, name = source.rpartition(": ")
    located = [*written_items(source, items), *written_items(f"{file}{colon}batch_{name}", batch)]
    library = library or library_of(names_in(item for _, item in located))
    with names_of(library):
        recipe = _recipe(
            located, source, image_size, num_classes=num_classes, notes=notes, any_size=any_size
        )
    return replace(recipe, library=library)


def read_views(
    items: Sequence[Any],
    views: Sequence[Any],
    *,
    image_size: Callable[[], Size | None],
    any_size: bool = False,
) -> Recipe:
    """Parse and check a list of transforms that all views share, and one list for each view.

    Args:
        items: as in `read_recipe`.
        views: for each view a list as in `read_recipe`, or a torchvision `Compose`.
        image_size: as in `read_recipe`.
        any_size: as in `read_recipe`.

    Raises:
        CallError: see `read_recipe`; or a view mixes images, or there are too many views.

    """
    if not isinstance(views, (list, tuple)) or not 1 <= len(views) <= MAX_VIEWS:
        raise CallError(
            f"views must be a list of 1 to {MAX_VIEWS} lists of transforms, got {shown(views)}"
        )
    shared = [*written_items("transforms", items)]
    lists = [_written_view(f"views[{number}]", view) for number, view in enumerate(views)]
    library = library_of(names_in(item for each in [shared, *lists] for _, item in each))
    with names_of(library):
        recipe = _read_views(shared, lists, image_size, any_size=any_size)
    return replace(recipe, library=library)


def _read_views(
    shared: list[tuple[str, Any]],
    lists: list[list[tuple[str, Any]]],
    image_size: Callable[[], Size | None],
    *,
    any_size: bool,
) -> Recipe:
    """Parse the transforms that all views share, and the transforms of each view, with their locations."""
    decoding = [each[0] for each in lists if each and _decodes(parse_item(*each[0]))]
    if decoding and not shared:
        # All views see one decoded image.
        if len(decoding) < len(lists) or any(item != decoding[0][1] for _, item in decoding):
            raise CallError(
                "views decode images in different ways",
                hint="write DecodeImage once, in transforms",
            )
        shared, lists = decoding[:1], [each[1:] for each in lists]

    def recipes(*, any_size: bool = False) -> list[Recipe]:
        return [
            _recipe([*shared, *each], f"views[{number}]", lambda: None, any_size=any_size)
            for number, each in enumerate(lists)
        ]

    try:
        parsed = recipes()
    except SizesVaryError:
        size = image_size()
        if size is not None:
            shared = [("the dataset", KeepSize(size)), *shared]
        elif not any_size:
            raise
        parsed = recipes(any_size=any_size)
    if any(each.mixing for each in parsed):
        raise CallError(
            "transforms that mix images cannot be combined with views",
            hint="mix the tensors yourself",
        )
    first, count = parsed[0], len(shared)
    made = tuple(View(each.items[count:], each.batch_functions, each.output) for each in parsed)
    return replace(first, items=first.items[:count], batch_functions=(), views=made)


def _decodes(item: RecipeItem) -> bool:
    return any(isinstance(each, Decode) for each in item.operations)


def _written_view(location: str, view: Any) -> list[tuple[str, Any]]:
    items = composed(view) or view
    if not isinstance(items, (list, tuple)):
        raise CallError(
            f"{location} must be a list of transforms, got {shown(view)}",
            hint="write a list of lists",
        )
    return [*written_items(location, items)]


def _recipe(
    located: Sequence[tuple[str, Any]],
    source: str,
    image_size: Callable[[], Size | None],
    *,
    num_classes: int | None = None,
    notes: Sequence[str] = (),
    any_size: bool = False,
) -> Recipe:
    if len(located) > MAX_TRANSFORMS:
        raise CallError(
            f"{source} has {len(located)} transforms, but at most {MAX_TRANSFORMS} are supported"
        )
    parsed = tuple(parse_item(location, item) for location, item in located)
    check_functions_are_last(parsed)
    functions = tuple(item.function for item in parsed if item.function)
    try:
        output = check_sequence(parsed, source)
    except SizesVaryError:
        size = image_size()
        if size is not None:
            parsed = _with_size(parsed, size)
        elif not any_size:
            raise
        output = check_sequence(parsed, source, any_size=any_size)
    return Recipe(parsed, functions, output, num_classes, tuple(notes))


def _with_size(items: tuple[RecipeItem, ...], size: Size) -> tuple[RecipeItem, ...]:
    """Return the items of a list for images of one size."""
    # After decoding, if that is written out.
    first = 0
    while first < len(items) and _only_decodes(items[first]):
        first += 1
    text = f"all images have {size[0]} x {size[1]} pixels"
    return (
        *items[:first],
        RecipeItem("the dataset", text, (KeepSize(size),)),
        *items[first:],
    )


def rechecked(recipe: Recipe, change: Callable[[RecipeItem], RecipeItem]) -> Recipe:
    """Return a recipe with changed items.

    Args:
        recipe: the recipe.
        change: returns the item that replaces an item.

    Raises:
        CallError: an operation does not support its predecessor's output.

    """
    items = tuple(map(change, recipe.items))
    any_size = recipe.output.size is None
    views = []
    for number, view in enumerate(recipe.views):
        own = tuple(map(change, view.items))
        views.append(
            replace(
                view,
                items=own,
                output=check_sequence((*items, *own), f"views[{number}]", any_size=any_size),
            )
        )
    if views:
        return replace(recipe, items=items, views=tuple(views), output=views[0].output)
    output = check_sequence(items, "transforms", any_size=any_size)
    return replace(recipe, items=items, output=output)


def _only_decodes(item: RecipeItem) -> bool:
    return all(isinstance(operation, Decode) for operation in item.operations)
