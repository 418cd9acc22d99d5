"""Check that the items of a list can run one after another. No side effects."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from loaders.transforms.base import (
    MAX_PIXELS,
    MAX_SIDE,
    BatchOperation,
    ImageSpec,
    Operation,
    Size,
    Values,
)
from loaders.transforms.decode_normalize import Decode, Normalize, Rescale, ToFloat
from loaders.transforms.parse.arguments import errors_at
from loaders.transforms.parse.items import RecipeItem
from loaders.transforms.patches import Patchify
from manifests.errors import CallError
from manifests.pixels import RGB8, PixelKind

#: Operations that work on images of several crops, and of patches.
_AFTER_CROPS = (Rescale, ToFloat, Normalize)


class SizesVaryError(CallError):
    """The images of a batch would have different sizes."""


def check_functions_are_last(items: Sequence[RecipeItem]) -> None:
    """Check that only functions follow a function.

    Raises:
        CallError: another transform does.

    """
    function = None
    for item in items:
        if item.function:
            function = item
        elif function:
            why = f", but {item.location} comes after it"
            raise function.function_error(why, "move functions to the end of the list")


def check_sequence(
    items: Sequence[RecipeItem], source: str, *, any_size: bool = False, kind: PixelKind = RGB8
) -> ImageSpec:
    """Check that each operation supports its predecessor's output; return the final images' spec.

    Args:
        items: the items of the list, parsed.
        source: name of the list in error messages.
        any_size: whether the final images may have different sizes.
        kind: what a pixel of the dataset is.

    Raises:
        SizesVaryError: the images of a batch would have different sizes.
        CallError: an operation does not support the images at its place.

    """
    spec = Decode().output(ImageSpec(kind=kind))
    last = None
    mixing = None
    values = Values.BYTES
    for number, item in enumerate(items):
        # What an item needs before it runs.
        _check_bytes(item, spec)
        _check_lambda(item, spec)
        for operation in item.operations:
            # Only items that do nothing may come before the decoding.
            if isinstance(operation, Decode) and any(each.operations for each in items[:number]):
                raise CallError(
                    f"{item.location}: images are already decoded at this point",
                    hint="decode only once, as the first transform",
                )
            _check_after_crops(item, operation, spec)
            _check_after_patches(item, operation, spec)
            # Images of a batch are mixed pixel by pixel.
            if isinstance(operation, BatchOperation):
                if spec.size is None:
                    raise _sizes_vary(
                        item.location, last, f"{item.description} needs one size", " before it"
                    )
                mixing = item
            elif mixing is not None:
                raise CallError(
                    f"{item.location}: {item.description} works on single images, but comes after"
                    f" {mixing.location}, which mixes the images of a batch",
                    hint="move transforms that mix images to the end",
                )
            # Records know their own names, users the names that they wrote.
            try:
                operation.check_pixels(kind)
                spec = operation.output(spec)
                values = _values_after(operation, values, kind)
            except CallError as error:
                message = _as_written(error.message, item)
                raise CallError(f"{item.location}: {message}", hint=error.hint) from None
            _check_known_size(item, spec)
        if item.operations:
            last = item
    # A batch is one tensor, so its images have one size.
    known = spec.size is not None or spec.patches is not None or spec.of_bucket
    if not known and not any_size:
        raise _sizes_vary(source, last, "a batch needs one size")
    return spec


def _values_after(operation: Operation, values: Values, kind: PixelKind) -> Values:
    """Return what values are after an operation; of other pixels than RGB of 8 bits, it is not checked."""
    if isinstance(operation, Normalize):
        operation.check_channels(kind)
    if kind != RGB8:
        return values
    return operation.values_after(values)


def depends_on_size(items: Sequence[RecipeItem]) -> bool:
    """Return whether a crop that must fit comes where the sizes of the images are not known.

    Where they are known, `check_sequence` has checked it.
    """
    spec = ImageSpec()
    for item in items:
        for operation in item.operations:
            # Where the size is known, check_sequence has compared it.
            if operation.needs_size and spec.size is None:
                return True
            spec = operation.output(spec)
    return False


def check_fits(items: Sequence[RecipeItem], size: Size) -> None:
    """Check that crops fit into images of a size, where this depends on the size.

    Raises:
        CallError: an image is too small for one.

    """
    spec = ImageSpec().with_size(size)
    for item in items:
        for operation in item.operations:
            if not isinstance(operation, Decode):  # of which this is the size
                with errors_at(item.location):
                    spec = operation.output(spec)


def _as_written(message: str, item: RecipeItem) -> str:
    """Return a message that begins with the name in the list, not with the name of a record."""
    # Messages of records begin with the record's name.
    first, space, rest = message.partition(" ")
    records = {operation.__name__ for operation in _subclasses(Operation)}
    if first not in records or first in item.description:
        return message
    return f"{item.description.partition('(')[0]}{space}{rest}"


def _subclasses(base: type[Operation]) -> Iterator[type[Operation]]:
    """Yield all classes that extend a class."""
    for each in base.__subclasses__():
        yield each
        yield from _subclasses(each)


def _check_bytes(item: RecipeItem, spec: ImageSpec) -> None:
    if item.needs_bytes and spec.kind == RGB8 and not spec.is_uint8:
        raise CallError(
            f"{item.location}: {item.description} would convert floating-point images back, which"
            " is not supported",
            hint="leave it out, and what converts them to floating point before it",
        )


def _check_lambda(item: RecipeItem, spec: ImageSpec) -> None:
    if spec.crops and isinstance(item.written, Mapping) and "Lambda" in item.written:
        raise CallError(
            f"{item.location}: Lambda after FiveCrop or TenCrop gets the crops of one image in"
            " torchvision, but here the finished batch [B, crops, C, H, W]",
            hint="remove it, and write ToTensor and Normalize after the crops",
        )


def _check_after_crops(item: RecipeItem, operation: Operation, spec: ImageSpec) -> None:
    if spec.crops and not isinstance(operation, _AFTER_CROPS):
        raise CallError(
            f"{item.location}: {item.description} comes after FiveCrop or TenCrop",
            hint=(
                "move it before them; only ToTensor, Normalize and functions of the batch may"
                " follow"
            ),
        )


def _check_after_patches(item: RecipeItem, operation: Operation, spec: ImageSpec) -> None:
    if spec.patches is None or isinstance(operation, _AFTER_CROPS):
        return
    hint = "move it before Patchify; only ToTensor, Normalize and functions of the batch may follow"
    # Neither of them can stand before Patchify.
    if isinstance(operation, (BatchOperation, Patchify)):
        hint = "leave it out"
    raise CallError(
        f"{item.location}: {item.description} comes after Patchify, which cuts images into patches",
        hint=hint,
    )


def _check_known_size(item: RecipeItem, spec: ImageSpec) -> None:
    height, width = spec.size or (1, 1)
    if max(height, width) > MAX_SIDE or height * width > MAX_PIXELS:
        raise CallError(
            f"{item.location}: {item.description} makes images of {height} x {width} pixels, but at"
            f" most {MAX_SIDE} per side and {MAX_PIXELS} in all are supported"
        )


def _sizes_vary(
    location: str, last: RecipeItem | None, requirement: str, position: str = ""
) -> SizesVaryError:
    after = f" after {last.description}" if last else ""
    return SizesVaryError(
        f"{location}: images have different sizes{after}, but {requirement}",
        hint=(
            "add a crop (CropImage, RandCropImage) or a resize to a fixed size (ResizeImage with"
            f" size){position}"
        ),
    )
