"""Find the images that made a batch fail, and take them out of the order."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from loaders.dali.bad_images import DecodeMemoryError, UndecodableError, find_bad_images
from loaders.dataset.bad_samples import describe_bad_samples, located_error
from loaders.progress import Position
from loaders.samplers.tolerant import TolerantOrder
from loaders.spec import LoaderSpec
from manifests.errors import DamagedError

#: Bad images to find for an error, which names the first one.
_FOR_AN_ERROR = 5


def new_bad_images(
    spec: LoaderSpec,
    position: Position,
    known: Mapping[int, str],
    error: UndecodableError | DecodeMemoryError,
) -> dict[int, str]:
    """Return why images of a failed batch cannot be decoded, by row, without those that are known.

    Args:
        spec: what the loader is built from.
        position: position of the loader when the batch failed.
        known: rows that are known to be bad.
        error: the error of the batch.

    Raises:
        UndecodableError: no further image is bad, or ``on_error="raise"``.
        DecodeMemoryError: there is not enough memory, and no image's header is the reason.

    """
    raises = spec.options.on_error == "raise"
    try:
        bad = find_bad_images(spec, position, known, _FOR_AN_ERROR if raises else None)
    except (DamagedError, DecodeMemoryError):
        raise error from None  # What stops the search is another problem, and this error is the first one.
    if not bad:
        raise error
    if raises:
        complete = len(bad) < _FOR_AN_ERROR
        unlocated = UndecodableError(error.message)
        raise located_error(
            describe_bad_samples(spec.split, bad), unlocated, spec.split, complete=complete
        ) from error
    return bad


def bad_images_message(spec: LoaderSpec, bad: Mapping[int, str]) -> str:
    """Return a sentence that says what happens to bad images, by row, and names the first of them."""
    first = min(bad)
    try:
        (sample,) = map(str, describe_bad_samples(spec.split, {first: bad[first]}))
    except (DamagedError, OSError):  # training goes on, as without the message
        sample = f"row {first}: {bad[first]}"
    skipped = spec.options.on_error == "skip"
    if len(bad) == 1:
        done = "left out" if skipped else "replaced by another sample"
        return f"{spec.split.folder}: an image cannot be decoded and is {done}: {sample}"
    done = "left out" if skipped else "replaced by other samples"
    return (
        f"{spec.split.folder}: {len(bad)} images cannot be decoded and are {done}; loader.errors"
        f" lists them, the first is {sample}"
    )


def without_rows(spec: LoaderSpec, bad: Mapping[int, str]) -> LoaderSpec:
    """Return a spec whose order leaves these rows out, if it can."""
    if not isinstance(spec.order, TolerantOrder):
        return spec
    return replace(spec, order=spec.order.without(frozenset(bad)))
