"""Map the interpolation names of OpenCV, Pillow and torchvision to filters, with notes where the filters differ."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from loaders.transforms.base import Filter, check_bool, check_choice
from loaders.transforms.parse.registry import Note
from manifests.errors import CallError
from manifests.process.text import shown

_FILTERS: dict[str, dict[str, Filter]] = {
    "cv2": {
        "nearest": "nearest",
        "bilinear": "linear",
        "bicubic": "cubic",
        "area": "triangular",
        "lanczos": "lanczos",
        "random": "random",
    },
    "pil": {
        "nearest": "nearest",
        "bilinear": "linear",
        "bicubic": "cubic",
        "box": "triangular",
        "hamming": "triangular",
        "lanczos": "lanczos",
        "random": "random",
    },
}
_TORCHVISION: dict[str, Filter] = {
    "nearest": "nearest",
    "nearest-exact": "nearest",
    "bilinear": "linear",
    "bicubic": "cubic",
    "lanczos": "lanczos",
    "box": "triangular",
    "hamming": "triangular",
}

#: How pixels differ from torchvision's: the largest difference in twelve photographs of 200 to 310
#: pixels, resized to 97 x 131, 224 x 224 and 400 x 500.
_REPLACED = (
    "the {} filter is replaced by an antialiased triangle filter: pixels of photographs differ by up"
    " to 117 of 255"
)
_SHARPER = (
    "without antialias, bicubic has the coefficient -0.5, as in Pillow; torchvision's is -0.75 for"
    " tensors. Pixels of photographs differ by up to 28 of 255"
)

#: The differences to torchvision's filters, for the documentation.
TORCHVISION_DIFFERS = (
    "The box and Hamming filters are an antialiased triangle filter; bicubic without antialias has"
    " Pillow's coefficient."
)

#: The difference to OpenCV's filters, for the documentation.
CV2_DIFFERS = "With backend cv2, bilinear is exact; the other filters follow Pillow."

_CV2_BICUBIC = "the bicubic filter uses Pillow's coefficient of -0.5; OpenCV uses -0.75"
_NOTES = {
    (
        "cv2",
        "nearest",
    ): (
        "the nearest filter takes the pixel at the center, as Pillow does; OpenCV takes the pixel"
        " at the top left"
    ),
    ("cv2", "bicubic"): _CV2_BICUBIC,
    ("cv2", "random"): _CV2_BICUBIC,
    ("cv2", "area"): "the area filter is an antialiased triangle filter; OpenCV's is a box filter",
    ("cv2", "lanczos"): "the Lanczos filter has three lobes; OpenCV's has four",
    ("pil", "box"): "the box filter is replaced by an antialiased triangle filter",
    ("pil", "hamming"): "the Hamming filter is replaced by an antialiased triangle filter",
}


@dataclass(frozen=True, slots=True)
class Interpolation:
    """A filter, whether it is antialiased, and notes on how it differs from the library's filter."""

    filter: Filter
    antialias: bool
    notes: tuple[Note, ...] = ()


def parse_backend(backend: Any) -> str:
    """Parse PaddleClas's ``backend``: ``"cv2"`` or ``"pil"``, in any case."""
    library = backend.lower() if isinstance(backend, str) else backend
    check_choice("backend", library, _FILTERS)
    return str(library)


def parse_paddleclas_interpolation(interpolation: Any, backend: Any) -> Interpolation:
    """Parse PaddleClas's ``interpolation`` and ``backend``.

    Only Pillow's filters and OpenCV's area are antialiased.
    """
    library = parse_backend(backend)
    filters = _FILTERS[library]
    name = "bilinear" if interpolation is None else interpolation
    name = name.lower() if isinstance(name, str) else ""
    if name not in filters:
        raise CallError(
            f"interpolation must be one of {', '.join(filters)} for backend {library!r}, got"
            f" {shown(interpolation)}"
        )
    note = _NOTES.get((library, name))
    antialias = library == "pil" or filters[name] == "triangular"
    return Interpolation(filters[name], antialias, () if note is None else (Note(note),))


def parse_torchvision_interpolation(interpolation: Any, antialias: Any) -> Interpolation:
    """Parse torchvision's ``interpolation``, a name or an ``InterpolationMode``, and ``antialias``."""
    check_bool("antialias", antialias)
    value = getattr(interpolation, "value", interpolation)
    name = value.lower() if isinstance(value, str) else ""
    if name not in _TORCHVISION:
        raise CallError(
            f"interpolation must be one of {', '.join(_TORCHVISION)}, got {shown(interpolation)}"
        )
    notes: tuple[Note, ...] = ()
    if name in ("box", "hamming"):
        notes = (Note(_REPLACED.format(name)),)
    elif name == "bicubic" and not antialias:
        notes = (Note(_SHARPER),)
    return Interpolation(_TORCHVISION[name], antialias, notes)
