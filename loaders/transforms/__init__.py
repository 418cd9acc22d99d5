"""Image operations as frozen records, for ``loaders.build(transforms=[...])``.

A record carries what the rest of the package asks about it. A new operation is one record here, one
function in the module of the same name in `loaders.dali`, and a name in `parse`. Nothing in this
package imports DALI or torch; `loaders.dali` turns the records into a graph::

    argument, parse/    from what users pass to a list of operations, presets; begin here
    base                what an operation is: its traits, checks of its fields, and limits
    color, combinators, crop_resize, decode_normalize, geometry, erasing, mixing, patches, policies
                        the operations, as records of their parameters; mixing and patches also
                        compute what they draw
    fuse                fewer operations that give the same images, and what they cost
"""

from __future__ import annotations

from functools import cache
from importlib import import_module
from typing import Any

#: The modules whose classes users may put into a list.
_MODULES = (
    "color",
    "combinators",
    "crop_resize",
    "decode_normalize",
    "erasing",
    "geometry",
    "mixing",
    "patches",
    "policies",
)


def __getattr__(name: str) -> Any:
    if name == "__all__":
        return sorted(_records())
    if name in _records():
        return _records()[name]
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


@cache
def _records() -> dict[str, Any]:
    """Return the records of all modules by name, so that a new one needs no line here."""
    found = {}
    for each in _MODULES:
        module = import_module(f"{__name__}.{each}")
        for name, value in vars(module).items():
            is_own = isinstance(value, type) and value.__module__ == module.__name__
            if is_own and not name.startswith("_"):
                found[name] = value
    return found
