"""Read a list of transforms as a recipe, check it, and change its size and strength."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any, TypeAlias

from loaders.transforms.base import (
    BUCKET,
    MAX_TRANSFORMS,
    MAX_VIEWS,
    Adjustment,
    BatchOperation,
    Chain,
    ImageSpec,
    Operation,
    Scale,
    Size,
)
from loaders.transforms.crop_resize import KeepSize
from loaders.transforms.decode_normalize import Decode, Unpack
from loaders.transforms.mixing import Mixing
from loaders.transforms.parse.arguments import ImageSize, Library, errors_at, is_list
from loaders.transforms.parse.items import (
    RecipeItem,
    composed,
    names_in,
    parse_item,
    with_strength,
    written_items,
)
from loaders.transforms.parse.names import library_of, makes_arrays, names_of
from loaders.transforms.parse.sequence import (
    SizesVaryError,
    check_functions_are_last,
    check_sequence,
)
from loaders.transforms.patches import Patchify
from manifests.errors import CallError
from manifests.pixels import RGB8, PixelKind
from manifests.process.text import shown

Items: TypeAlias = tuple[RecipeItem, ...]
Functions: TypeAlias = tuple[Callable[[Any], Any], ...]
#: Items as they are written, with their locations.
Located: TypeAlias = list[tuple[str, Any]]


@dataclass(frozen=True, slots=True)
class View:
    """What makes one of several tensors of an image, after the transforms that all views share.

    Attributes:
        items: the items of the view's list, in order.
        batch_functions: the user's functions, called with each batch of this view.
        output: spec of the images; its size is known.

    """

    items: Items
    batch_functions: Functions
    output: ImageSpec

    @property
    def operations(self) -> Chain:
        """The operations in order."""
        return _operations(self.items)


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
        arrays: whether DecodeImage makes arrays, which PaddleClas resizes with OpenCV.
        kind: what a pixel of the dataset is.

    """

    items: Items
    batch_functions: Functions
    output: ImageSpec
    config_num_classes: int | None = None
    notes: tuple[str, ...] = ()
    raw_size: Size | None = None
    views: tuple[View, ...] = ()
    library: Library | None = None
    arrays: bool = False
    kind: PixelKind = RGB8

    @property
    def outputs(self) -> tuple[ImageSpec, ...]:
        """Spec of the images of each tensor in a batch."""
        return tuple(view.output for view in self.views) or (self.output,)

    @property
    def patchify(self) -> tuple[Patchify | None, ...]:
        """What cuts the images of each tensor in a batch into patches; `None` if nothing does."""
        lists = [_operations((*self.items, *view.items)) for view in self.views]
        found: list[Patchify | None] = []
        for operations in lists or [_operations(self.items)]:
            found.append(next((each for each in operations if isinstance(each, Patchify)), None))
        return tuple(found)

    @property
    def all_notes(self) -> tuple[str, ...]:
        """The notes of the list, then the notes of its items with their locations."""
        located = chain.from_iterable(item.located_notes for item in self.all_items)
        return (*self.notes, *located)

    @property
    def all_items(self) -> Items:
        """The items of the list, and of the lists of the views."""
        return (*self.items, *chain.from_iterable(view.items for view in self.views))

    @property
    def operations(self) -> Chain:
        """All per-image operations in order.

        The first is `Decode`, or `Unpack` for datasets that store raw pixels.
        """
        # Batch operations run after these: `mixing`.
        listed = [each for each in _operations(self.items) if not isinstance(each, BatchOperation)]
        first: Operation = Decode()
        if listed and isinstance(listed[0], Decode):
            first = listed.pop(0)
        if isinstance(first, Decode) and self.kind != RGB8:
            first = replace(first, kind=self.kind)
        # Raw pixels need no decoding, and their table says the size.
        if self.raw_size is not None and isinstance(first, Decode):
            first = Unpack(self.raw_size, first.space, first.kind)
            listed = [each for each in listed if each != KeepSize(self.raw_size)]
        return (first, *listed)

    @property
    def mixing(self) -> tuple[Mixing, ...]:
        """All batch operations, in order."""
        return tuple(each for each in _operations(self.items) if isinstance(each, Mixing))

    @property
    def text(self) -> str:
        """All operations as text: what checkpoints and files of ``loaders tune`` compare."""
        parts = [*map(repr, (*self.operations, *self.mixing))]
        for view in self.views:
            parts.append(f"view({' '.join(map(repr, view.operations))})")
        return " ".join(parts)

    @property
    def of_buckets(self) -> bool:
        """Whether an operation, or one inside of it, has the size of the batch's aspect bucket."""
        return repr(BUCKET) in self.text

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


def _operations(items: Items) -> Chain:
    return tuple(chain.from_iterable(item.operations for item in items))


# Read
# --------------------------------------------------------------------------------------------------


def read_recipe(
    items: Sequence[Any],
    *,
    source: str = "transforms",
    batch: Sequence[Any] = (),
    num_classes: int | None = None,
    notes: Sequence[str] = (),
    image_size: ImageSize = lambda: None,
    library: Library | None = None,
    any_size: bool = False,
    kind: PixelKind = RGB8,
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
        kind: what a pixel of the dataset is.

    Raises:
        CallError: an item is unknown, wrong or in the wrong position; the message names the item's
            location.

    """
    # Of a file, source is "FILE: transform_ops".
    file, colon, name = source.rpartition(": ")
    located = [*written_items(source, items), *written_items(f"{file}{colon}batch_{name}", batch)]
    _check_count(located, source)
    named = [*names_in(located)]
    library = library or library_of(named)
    arrays = makes_arrays(named)
    # The names of the whole list decide what each name means.
    with names_of(library, arrays=arrays):
        parsed = _parsed(located)
    recipe = Recipe(
        parsed,
        (),
        ImageSpec(),
        num_classes,
        tuple(notes),
        library=library,
        arrays=arrays,
        kind=kind,
    )
    return _with_sizes(recipe, [], source, image_size, any_size=any_size)


def read_views(
    items: Sequence[Any],
    views: Sequence[Any],
    *,
    image_size: ImageSize,
    any_size: bool = False,
    kind: PixelKind = RGB8,
) -> Recipe:
    """Parse and check a list of transforms that all views share, and one list for each view.

    Args:
        items: as in `read_recipe`.
        views: for each view a list as in `read_recipe`, or a torchvision `Compose`.
        image_size: as in `read_recipe`.
        any_size: as in `read_recipe`.
        kind: as in `read_recipe`.

    Raises:
        CallError: see `read_recipe`; or a view mixes images, or there are too many views.

    """
    if not is_list(views) or not 1 <= len(views) <= MAX_VIEWS:
        raise CallError(
            f"views must be a list of 1 to {MAX_VIEWS} lists of transforms, got {shown(views)}"
        )
    located = [*written_items("transforms", items)]
    # Views may share nothing, or have lists of their own that are empty.
    written = [_written_view(f"views[{number}]", view) for number, view in enumerate(views)]
    # Counted before parsing, which takes time for each item.
    for number, own in enumerate(written):
        _check_count([*located, *own], f"views[{number}]")
    named = [*names_in(chain(located, *written))]
    library = library_of(named)
    arrays = makes_arrays(named)
    with names_of(library, arrays=arrays):
        shared = _parsed(located)
        lists = [_parsed(each) for each in written]
    # A view often is the whole Compose of a script, decoding included.
    decoding = [own[0] for own in lists if own and _decodes(own[0])]
    if decoding and not shared:
        # All views see one decoded image.
        same = all(each.operations == decoding[0].operations for each in decoding)
        if len(decoding) < len(lists) or not same:
            raise CallError(
                "views decode images in different ways",
                hint="write DecodeImage once, in transforms",
            )
        shared = (decoding[0],)
        lists = [own[1:] for own in lists]
    recipe = Recipe(shared, (), ImageSpec(), library=library, arrays=arrays, kind=kind)
    recipe = _with_sizes(recipe, lists, "transforms", image_size, any_size=any_size)
    # A mixed label would belong to one view only.
    if any(isinstance(each, Mixing) for each in _operations(recipe.all_items)):
        raise CallError(
            "transforms that mix images cannot be combined with views",
            hint="mix the tensors yourself",
        )
    if len({each is None for each in recipe.patchify}) > 1:
        raise CallError(
            "Patchify cuts the images of some views into patches, but not of all",
            hint="put Patchify into each view, or build two loaders",
        )
    return recipe


def _written_view(location: str, view: Any) -> Located:
    items = composed(view) or view
    if not is_list(items):
        raise CallError(
            f"{location} must be a list of transforms, got {shown(view)}",
            hint="write a list of lists",
        )
    return [*written_items(location, items)]


def _check_count(located: Located, source: str) -> None:
    if len(located) > MAX_TRANSFORMS:
        raise CallError(
            f"{source} has {len(located)} transforms, but at most {MAX_TRANSFORMS} are supported"
        )


def _parsed(located: Located) -> Items:
    items = []
    tensors = False
    for location, written in located:
        item = parse_item(location, written)
        name, arguments = "", None
        if isinstance(item.written, dict):
            ((name, arguments),) = item.written.items()
        exact = arguments and "exact" in str(arguments.get("interpolation")).lower()
        filters = [getattr(each, "filter", "") for each in item.operations if each.resizes]
        # Before ToImage or ToTensor, torchvision resizes images of Pillow, whose filter is exact.
        if tensors and not exact and "nearest" in filters and not item.notes:
            item = replace(item, notes=(_CORNER,))
        tensors = tensors or name in ("ToImage", "PILToTensor", "ToTensor")
        items.append(item)
    return tuple(items)


_CORNER = (
    "the nearest filter takes the pixel at the center, as torchvision does for images of Pillow and"
    " with nearest-exact; of tensors it takes the pixel at the top left. Pixels of photographs"
    " differ by up to 237 of 255"
)


def _decodes(item: RecipeItem) -> bool:
    return any(isinstance(each, Decode) for each in item.operations)


# Check
# --------------------------------------------------------------------------------------------------


def _with_sizes(
    recipe: Recipe,
    lists: Sequence[Items],
    source: str,
    image_size: ImageSize,
    *,
    any_size: bool,
) -> Recipe:
    """Return a checked recipe; if sizes differ, the size of the dataset's images counts."""
    try:
        return _checked(recipe, lists, source)
    except SizesVaryError:
        # Asking for the size reads tables: only if the list needs it.
        size = image_size()
        if size is None and not any_size:
            raise
    if size is not None:
        # After decoding, if that is written out.
        first = 0
        while first < len(recipe.items) and _only_decodes(recipe.items[first]):
            first += 1
        text = f"all images have {size[0]} x {size[1]} pixels"
        keep = RecipeItem("the dataset", text, (KeepSize(size),))
        recipe = replace(recipe, items=(*recipe.items[:first], keep, *recipe.items[first:]))
    return _checked(recipe, lists, source, any_size=any_size)


def _only_decodes(item: RecipeItem) -> bool:
    return not item.function and all(isinstance(each, Decode) for each in item.operations)


def _checked(
    recipe: Recipe, lists: Sequence[Items], source: str, *, any_size: bool = False
) -> Recipe:
    """Return a recipe with views of these lists, if any, after checking that all items can run."""
    views = []
    for number, own in enumerate(lists):
        items = (*recipe.items, *own)
        functions, output = _result(items, f"views[{number}]", recipe.kind, any_size=any_size)
        views.append(View(own, functions, output))
    if views:
        return replace(recipe, views=tuple(views), output=views[0].output)
    functions, output = _result(recipe.items, source, recipe.kind, any_size=any_size)
    return replace(recipe, batch_functions=functions, output=output)


def _result(
    items: Items, source: str, kind: PixelKind, *, any_size: bool
) -> tuple[Functions, ImageSpec]:
    """Check that items can run in order; return the user's functions and the images' spec."""
    check_functions_are_last(items)
    output = check_sequence(items, source, any_size=any_size, kind=kind)
    return tuple(item.function for item in items if item.function), output


# Change
# --------------------------------------------------------------------------------------------------


def adjusted(recipe: Recipe, adjustment: Adjustment) -> Recipe:
    """Return a recipe with another size of the images and another strength of its policies.

    Every crop, resize, padding and mask in pixels is scaled in proportion, except before the first
    resize, where images have their stored sizes. The descriptions of the items stay.

    Args:
        recipe: the recipe as the user wrote it.
        adjustment: what to change.

    Raises:
        CallError: no transform sets a size, or none has a strength; the message names the
            transforms. Or the size or the strength is not possible.

    """
    if adjustment.magnitude is not None:
        recipe = _with_magnitude(recipe, adjustment.magnitude)
    if adjustment.size is not None:
        recipe = _with_size(recipe, adjustment.size)
    return recipe


def _changed(recipe: Recipe, change: Callable[[RecipeItem], RecipeItem]) -> Recipe:
    """Return a recipe with changed items, which are checked again."""
    items = tuple(map(change, recipe.items))
    lists = [tuple(map(change, view.items)) for view in recipe.views]
    # A batch of one image had no size before, and needs none now.
    any_size = recipe.output.size is None
    return _checked(replace(recipe, items=items), lists, "transforms", any_size=any_size)


def _with_size(recipe: Recipe, size: Size) -> Recipe:
    before = recipe.outputs[0].size
    if recipe.outputs[0].patches is not None:
        raise CallError(
            f"size={size} is not possible: Patchify gives each image the size of its budget",
            hint="build another loader with other max_tokens",
        )
    if recipe.of_buckets:
        raise CallError(
            f"size={size} is not possible: the sampler gives each batch the size of its bucket",
            hint="build a loader with another BucketSampler",
        )
    if before is None:
        raise CallError(
            f"size={size} is not possible: the images have different sizes",
            hint="add a crop or a resize to the list",
        )
    changed = _scaled(recipe, before, size)
    # Rounding may miss the size, for example of crops in a share of a resize.
    result = changed.outputs[0].size
    if result == size:
        return changed
    if result == before:
        raise CallError(
            f"size={size} changes nothing: no transform sets the size of the images"
            f" ({_names(recipe)})",
            hint="add a crop or a resize to the list",
        )
    raise CallError(
        f"size={size} is not possible: rounding gives images of {result}",
        hint=f"set size={_possible_size(recipe, before, size) or result}",
    )


def _possible_size(recipe: Recipe, before: Size, size: Size) -> Size | None:
    """Return the nearest size that no rounding changes."""
    # Nearest first, larger before smaller.
    for distance in range(1, 9):
        for pixels in (distance, -distance):
            near = (size[0] + pixels, size[1] + pixels)
            if min(near) > 0 and _scaled(recipe, before, near).outputs[0].size == near:
                return near
    return None


def _scaled(recipe: Recipe, before: Size, size: Size) -> Recipe:
    scale = Scale(size[0] / before[0], size[1] / before[1])
    # A crop before the first resize is in pixels of the stored images.
    stored = _of_stored_size(recipe)

    def change(item: RecipeItem) -> RecipeItem:
        if item.location in stored:
            return item
        operations = tuple(operation.scaled(scale) for operation in item.operations)
        return replace(item, operations=operations)

    with errors_at(f"size={size} is not possible"):
        return _changed(recipe, change)


def _of_stored_size(recipe: Recipe) -> set[str]:
    """Return the locations of the items before the first resize, where sizes are the stored ones.

    If no item resizes, the crops set the size of the images, and there are none.
    """
    locations: set[str] = set()
    for own in [view.items for view in recipe.views] or [()]:
        items = (*recipe.items, *own)
        # The first resize itself is scaled.
        resizing = [any(each.resizes for each in item.operations) for item in items]
        if any(resizing):
            locations.update(item.location for item in items[: resizing.index(True)])
    return locations


def _with_magnitude(recipe: Recipe, magnitude: float) -> Recipe:
    def change(item: RecipeItem) -> RecipeItem:
        if item.written is None:
            return item
        return replace(item, operations=parse_item(item.location, item.written).operations)

    # Policies are parsed again, because their levels depend on other arguments.
    with names_of(recipe.library, arrays=recipe.arrays), with_strength(magnitude) as strength:
        changed = _changed(recipe, change)
    if not strength.is_used:
        raise CallError(
            f"magnitude={magnitude:g} changes nothing: no transform has a magnitude"
            f" ({_names(recipe)})",
            hint=(
                "use RandAugment, TimmAutoAugment with a policy such as rand-m9-mstd0.5, or AugMix"
            ),
        )
    return changed


def _names(recipe: Recipe) -> str:
    names = [item.description.partition("(")[0] for item in recipe.all_items]
    return ", ".join(names) or "the list is empty"
