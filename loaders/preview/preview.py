"""What a preview contains.

It displays itself in a notebook, and saves itself as a picture or as HTML.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from manifests.errors import CallError
from manifests.process.options import write_output_file

#: Pixels of a picture, uint8 [H, W, 3].
Pixels = NDArray[np.uint8]


@dataclass(frozen=True, slots=True)
class Draw:
    """One result of the transforms.

    Attributes:
        pixels: uint8 [H, W, 3].
        caption: which view and which crop it is, what the random transforms drew, which labels are
            mixed. May be empty.

    """

    pixels: Pixels
    caption: str = ""


@dataclass(frozen=True, slots=True)
class Item:
    """One sample.

    Attributes:
        key: key of the sample.
        label: its class.
        size: width and height of the stored image in pixels.
        source: path of the image in the source.
        original: the stored image, upright and made smaller, uint8 [H, W, 3]. `None` if it cannot
            be decoded.
        draws: results of the transforms.

    """

    key: str
    label: str
    size: str
    source: str
    original: Pixels | None
    draws: tuple[Draw, ...]


@dataclass(frozen=True, slots=True)
class Group:
    """Samples that are shown together: those of one identity, or all.

    Attributes:
        title: what they have in common. May be empty.
        items: the samples.

    """

    title: str
    items: tuple[Item, ...]


@dataclass(frozen=True, slots=True)
class Preview:
    """Samples before and after the transforms, which `Loader.preview` returns.

    In a notebook it displays itself. `save` writes a picture or HTML.

    Attributes:
        title: dataset and split.
        notes: how to read it: what the loader is, and how values were made visible.
        groups: the samples.

    """

    title: str
    notes: tuple[str, ...]
    groups: tuple[Group, ...]

    @property
    def items(self) -> tuple[Item, ...]:
        """All samples."""
        return tuple(item for group in self.groups for item in group.items)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the preview to a file, which appears complete or not at all.

        Args:
            path: ends in ``.png``, ``.jpg`` or ``.webp`` for a picture, or ``.html``. A file of
                this name is replaced.

        Raises:
            CallError: it has another ending.
            StorageError: it cannot be written.

        """
        name = os.fspath(path)
        write_output_file(name, encoder(name)(self), "preview")

    def _repr_html_(self) -> str:
        from loaders.preview.page import fragment

        return str(fragment(self))

    def __repr__(self) -> str:
        draws = sum(len(item.draws) for item in self.items)
        return (
            f"<Preview of {self.title}: {len(self.items)} samples, {draws} draws; save(path)"
            " writes it>"
        )


def encoder(path: str) -> Callable[[Preview], bytes]:
    """Return what encodes a preview for a file of this name.

    Raises:
        CallError: the name has another ending than those that `Preview.save` documents.

    """
    ending = os.path.splitext(path)[1].lower()
    if ending in (".html", ".htm"):
        from loaders.preview.page import page

        return lambda preview: page(preview).encode()
    if ending in (".png", ".jpg", ".jpeg", ".webp"):
        from loaders.preview.sheet import encoded_sheet

        return lambda preview: encoded_sheet(preview, ending)
    raise CallError(
        f"{path!r} does not end in .png, .jpg, .webp or .html",
        hint="name the kind of file by its extension",
    )
