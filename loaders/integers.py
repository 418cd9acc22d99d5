"""Check integers that callers pass."""

from __future__ import annotations

import operator
from typing import Any

from manifests.errors import CallError
from manifests.process.text import shown

#: Largest integer of an argument, if nothing else limits it.
MAX_INT = 2**31 - 1


def require_int(name: str, value: Any, minimum: int, *, maximum: int = MAX_INT) -> int:
    """Return `value` as a Python `int`.

    Args:
        name: name of the argument, for the message.
        value: an integer of Python or NumPy.
        minimum: smallest valid value.
        maximum: largest valid value.

    Raises:
        CallError: `value` is not an integer or is out of range.

    """
    try:
        number = operator.index(value)
    except TypeError:
        number = None
    if number is None or isinstance(value, bool) or number < minimum:
        raise CallError(f"{name} must be an integer of at least {minimum}, got {shown(value)}")
    if number > maximum:
        raise CallError(f"{name} must be at most {maximum}, got {shown(value)}")
    return number


def require_int_field(record: Any, name: str, minimum: int, *, maximum: int = MAX_INT) -> None:
    """Check an integer field in the ``__post_init__`` of a frozen dataclass, and store it as a Python `int`.

    Raises:
        CallError: see `require_int`.

    """
    object.__setattr__(
        record, name, require_int(name, getattr(record, name), minimum, maximum=maximum)
    )
