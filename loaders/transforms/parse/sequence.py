"""Check that the items of a list can run one after another, and scale values exactly once. No side effects."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from enum import Enum

from loaders.transforms.base import MAX_PIXELS, MAX_SIDE, BatchOperation, ImageSpec, Operation, Size
from loaders.transforms.decode_normalize import Decode, Normalize, Rescale, ToFloat
from loaders.transforms.parse.arguments import errors_at
from loaders.transforms.parse.items import RecipeItem
from manifests.errors import CallError

#: Operations that work on images of several crops.
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
            raise CallError(
                f"{function.location}: {function.description} is a function, which is called with"
                f" the finished batch, but {item.location} comes after it",
                hint="move functions to the end of the list",
            )


def check_sequence(
    items: Sequence[RecipeItem], source: str, *, any_size: bool = False
) -> ImageSpec:
    """Check that each operation supports its predecessor's output, and return the spec of the final images.

    Args:
        items: the items of the list, parsed.
        source: name of the list in error messages.
        any_size: whether the final images may have different sizes.

    Raises:
        SizesVaryError: the images of a batch would have different sizes.
        CallError: an operation does not support the images at its place.

    """
    spec, last, mixing = Decode().output(ImageSpec()), None, None
    values = Values.BYTES
    for number, item in enumerate(items):
        _check_bytes(item, spec)
        _check_lambda(item, spec)
        for operation in item.operations:
            if isinstance(operation, Decode) and any(each.operations for each in items[:number]):
                raise CallError(
                    f"{item.location}: images are already decoded at this point",
                    hint="decode only once, as the first transform",
                )
            _check_after_crops(item, operation, spec)
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
            try:
                spec, values = operation.output(spec), values_after(operation, values)
            except CallError as error:
                message = _as_written(error.message, item)
                raise CallError(f"{item.location}: {message}", hint=error.hint) from None
            _check_known_size(item, spec)
        if item.operations:
            last = item
    if spec.size is None and not any_size:
        raise _sizes_vary(source, last, "a batch needs one size")
    return spec


def depends_on_size(items: Sequence[RecipeItem]) -> bool:
    """Return whether a crop that must fit comes where the sizes of the images are not known.

    Where they are known, `check_sequence` has checked it.
    """
    spec = ImageSpec()
    for item in items:
        for operation in item.operations:
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
    if item.needs_bytes and not spec.is_uint8:
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


# Values
# --------------------------------------------------------------------------------------------------


class Values(Enum):
    """What the values of an image are at some point of a list."""

    BYTES = "from 0 to 255"
    UNIT = "from 0 to 1"
    NORMALIZED = "normalized"


def values_after(operation: Operation, values: Values) -> Values:
    """Return what the values are after an operation.

    Raises:
        CallError: the operation scales values that are already scaled, or normalizes with a mean
            and a standard deviation for values from 0 to 1 although the values are from 0 to 255,
            or the other way round.

    """
    if isinstance(operation, Rescale):
        return Values.UNIT
    if not isinstance(operation, Normalize):
        return values
    if values is not Values.BYTES and abs(operation.scale) < _SCALES:
        raise CallError(
            f"the values are already {values.value} at this point, and are scaled by"
            f" {operation.scale:.4g} again",
            hint="remove ToTensor before it, or use Normalize, which does not scale",
        )
    if values is Values.BYTES and operation.scale == 1 and _are_for_unit(operation):
        raise CallError(
            f"the mean {operation.mean} and std {operation.std} are for values from 0 to 1, but the"
            " values are from 0 to 255",
            hint="put ToTensor before it, or use NormalizeImage, which scales by 1/255",
        )
    if (
        values is Values.UNIT
        and operation.scale == 1
        and min(operation.mean) > 1
        and min(operation.std) > 1
    ):
        raise CallError(
            f"the mean {operation.mean} and std {operation.std} are for values from 0 to 255, but"
            " the values are from 0 to 1",
            hint="divide mean and std by 255, or remove ToTensor before it",
        )
    return Values.NORMALIZED


#: A smaller factor scales values from 0-255. PaddleClas's configs use 1/255 and 0.00392157.
_SCALES = 0.02


def _are_for_unit(operation: Normalize) -> bool:
    changes = any(operation.mean) or operation.std != (1, 1, 1)
    return changes and max(map(abs, operation.mean)) <= 1 and max(map(abs, operation.std)) <= 1
