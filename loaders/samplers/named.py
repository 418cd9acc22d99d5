"""Samplers as plain values, so that a receipt can name what drew the samples of a training run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from typing import Any

import numpy as np

import loaders.samplers as own
from loaders.samplers.base import array_text, is_own, sampler_text
from manifests.errors import CallError

#: Key of the name of a sampler.
_NAME = "type"


def as_plain(sampler: Any) -> Any:
    """Return a sampler as strings, numbers, lists and dictionaries.

    Of an array, and of a sampler of the user, there is only a text that identifies it.
    """
    if is_dataclass(sampler) and is_own(sampler):
        values = {}
        for field in fields(sampler):
            value = getattr(sampler, field.name)
            is_default = type(value) is type(field.default) and bool(value == field.default)
            if field.init and not is_default:
                values[field.name] = as_plain(value)
        return {_NAME: type(sampler).__name__, **values}
    if isinstance(sampler, np.ndarray):
        return {_NAME: array_text(sampler, sampler.dtype.str)}
    if isinstance(sampler, (list, tuple)):
        return [as_plain(each) for each in sampler]
    if sampler is None or isinstance(sampler, (bool, int, float, str)):
        return sampler
    return {_NAME: sampler_text(sampler)}


def from_plain(plain: Any) -> Any:
    """Return the sampler that `as_plain` described.

    Raises:
        CallError: it is not one of this package, or was made with an array.

    """
    if isinstance(plain, Mapping):
        name = plain.get(_NAME)
        kind = getattr(own, str(name), None) if name in own.__all__ else None
        if not (isinstance(kind, type) and is_dataclass(kind)):
            raise CallError(
                f"the order of {name} is known to the training script alone",
                hint="count the fields `key` or `index` of its batches there",
            )
        try:
            return kind(**{key: from_plain(value) for key, value in plain.items() if key != _NAME})
        except TypeError as error:
            raise CallError(f"this release has no such sampler ({error})") from None
    if isinstance(plain, (list, tuple)):
        return tuple(from_plain(each) for each in plain)
    return plain
