"""Find the images that made a batch fail, and take them out of the order."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from loaders.dali.decode_errors import UndecodableError
from loaders.dali.find_bad import find_bad_images
from loaders.dataset.bad_samples import describe_bad_samples, located_error
from loaders.progress import Position
from loaders.samplers.tolerant import TolerantOrder
from loaders.spec import LoaderSpec
from manifests.errors import DamagedError

#: Bad images to find for an error, which names the first one.
_FOR_AN_ERROR = 5


def new_bad_images(
    spec: LoaderSpec, position: Position, known: Mapping[int, str], error: UndecodableError
) -> dict[int, str]:
    """Return why images of a failed batch cannot be decoded, by row, without those that are known.

    Args:
        spec: what the loader is built from.
        position: position of the loader when the batch failed.
        known: rows that are known to be bad.
        error: the error of the batch.

    Raises:
        UndecodableError: no further image is bad, or ``on_error="raise"``.

    """
    limit = _FOR_AN_ERROR if spec.options.on_error == "raise" else None
    try:
        found = find_bad_images(spec, position, limit)
    except DamagedError:
        raise error from None  # What stops the search is other damage, and this error is the first one.
    bad = {row: reason for row, reason in found.items() if row not in known}
    if not bad:
        raise error
    if spec.options.on_error == "raise":
        complete = limit is None or len(found) < limit
        raise located_error(describe_bad_samples(spec.split, bad), error, spec.split, complete=complete) from error
    return bad


def bad_images_message(spec: LoaderSpec, bad: Mapping[int, str]) -> str:
    """Return a line that says what happens to bad images, by row, and names the first of them."""
    first = min(bad)
    (sample,) = describe_bad_samples(spec.split, {first: bad[first]})
    done = "left out" if spec.options.on_error == "skip" else "replaced by others"
    count = "an image that cannot be decoded is" if len(bad) == 1 else f"{len(bad)} images that cannot be decoded are"
    return f"{spec.split.folder}: {count} {done} (loader.errors): {sample}{' and others' if len(bad) > 1 else ''}"


def without_rows(spec: LoaderSpec, bad: Mapping[int, str]) -> LoaderSpec:
    """Return a spec whose order leaves these rows out, if it can."""
    if not isinstance(spec.order, TolerantOrder):
        return spec
    return replace(spec, order=spec.order.without(frozenset(bad)))
