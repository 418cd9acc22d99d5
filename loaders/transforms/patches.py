"""Patchify: images cut into patches for a NaFlex ViT, its sizes, and where each patch goes in a batch.

Pure: what is random comes in as random words.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Annotated, Any, Literal, TypeAlias

import numpy as np

from loaders.arrays import Array, Ints, Words
from loaders.transforms.base import (
    MAX_PIXELS,
    MAX_VALUES,
    Filter,
    ImageSpec,
    Operation,
    Targets,
    check_int,
    check_number,
    integers,
)
from manifests.errors import CallError
from manifests.naflex import MOST_RATIO
from manifests.process.text import shown

#: Limits of the side of a patch in pixels, and of the patches of an image or a row.
MAX_PATCH = 256
MAX_TOKENS = 2**14

#: Fields of a batch that only lists with Patchify have.
PATCH_FIELDS = ("grid", "tokens", "mask", "segments")


def _check_budgets(name: str, value: Any) -> None:
    """Check a number of tokens, a tuple of several, or `None`."""
    if value is None:
        return
    values = value if isinstance(value, tuple) else (value,)
    if not 1 <= len(values) <= MAX_VALUES:
        raise CallError(f"{name} must be a number or 1 to {MAX_VALUES} numbers, got {shown(value)}")
    for each in values:
        check_int(name, each, 1, MAX_TOKENS)


def _check_dropout(name: str, value: Any) -> None:
    check_number(name, value, 0)
    if value >= 1:
        raise CallError(f"{name} must be below 1, got {shown(value)}")


@dataclass(frozen=True, slots=True)
class Patchify(Operation):
    """Resize each image to a budget of tokens, keep its aspect ratio, and cut it into patches.

    The size is the size of timm's NaFlex rule, ``timm.data.naflex_transforms.ResizeToSequence``
    (``get_image_size_for_seq``, https://github.com/huggingface/pytorch-image-models): the largest
    ratio, up to timm's precision of 1e-5, with ``ceil(height * ratio / patch) * ceil(width * ratio
    / patch) <= budget``; both sides are then rounded up to whole patches. Images are enlarged, too.

    A batch has the patches row by row, the values of a patch in the order of its rows, columns and
    channels, and zeros after the last patch: ``image`` is [B, T, patch * patch * channels], as in
    timm's ``patchify_image`` and ``NaFlexCollator``. T is the budget; with `dropout`, the patches
    that are kept of the budget. More fields: ``grid`` (int64 [B, 2], rows and columns of patches of
    each image), ``tokens`` (int64 [B], patches of each image in the batch), ``mask`` (bool [B, T],
    false for padding).

    It is the last transform of an image. The normalization may come before or after it: it always
    runs after the resize, as in timm, and padding is 0 in normalized values.

    Attributes:
        patch: side of a patch in pixels.
        max_tokens: the budget of an image in patches. Of several, one is drawn for each global
            batch, from the seed, the epoch and the number of the batch, equally on all ranks; with
            `row_tokens`, one for each image. `None`, which needs `row_tokens`, keeps the size of an
            image, rounded up to whole patches, if it has at most `row_tokens` patches.
        position: ``"grid"``, or ``"tokens"``: the field ``grid`` is then int64 [B, T, 2], row and
            column of each patch in its image, 0 for padding, as timm's ``patch_coord``.
        dropout: share of the patches of each image that are left out, from 0 to below 1. At least
            one stays, and the others keep their order. It needs ``position="tokens"``.
        row_tokens: length T of rows that contain several images each: ``image`` is then [R, T, ...]
            with as many rows as the batch needs, and so are ``mask`` and the positions of tokens.
            The field ``segments`` (int64 [R, T]) is the number of the image in the batch that each
            patch belongs to, -1 for padding: attention stays within equal numbers. Labels,
            ``tokens`` and other fields have a value for each image of the batch.
        filter: interpolation filter.
        antialias: whether the filter widens when it shrinks the image.

    """

    shrinks = True
    resizes = True
    nests = False

    patch: Annotated[int, integers(1, MAX_PATCH)] = 16
    max_tokens: Annotated[int | tuple[int, ...] | None, _check_budgets] = 256
    position: Literal["grid", "tokens"] = "grid"
    dropout: Annotated[float, _check_dropout] = 0.0
    row_tokens: Annotated[int, integers(1, MAX_TOKENS)] | None = None
    filter: Filter = "cubic"
    antialias: bool = True

    def _check(self) -> None:
        if self.max_tokens is None and self.row_tokens is None:
            raise CallError(
                "max_tokens=None keeps the sizes of images, which needs rows of one length",
                hint="set row_tokens, for example row_tokens=1024, or max_tokens=256",
            )
        if self.row_tokens is not None and self.most_tokens > self.row_tokens:
            raise CallError(
                f"max_tokens={self.max_tokens} does not fit into row_tokens={self.row_tokens}",
                hint=f"set row_tokens={self.most_tokens} or more",
            )
        if self.dropout and self.position == "grid":
            raise CallError(
                f"dropout={self.dropout:g} leaves out patches, so the grid of an image does not say"
                " where the others are",
                hint='set position="tokens"',
            )
        if self.most_tokens * self.patch**2 > MAX_PIXELS:
            raise CallError(f"{self.most_tokens} patches of {self.patch} pixels are too many")

    @property
    def budgets(self) -> tuple[int, ...]:
        """The budgets to draw from."""
        if isinstance(self.max_tokens, tuple):
            return self.max_tokens
        return (self.max_tokens or self.row_tokens or 0,)

    @property
    def most_tokens(self) -> int:
        """The largest budget."""
        return max(self.budgets)

    @property
    def most_ratio(self) -> float:
        """The largest ratio of a resize: 1 for images that keep their size."""
        if self.max_tokens is None:
            return 1.0
        return MOST_RATIO

    @property
    def rearranges(self) -> bool:
        """Whether the patches of a batch are not simply one image after another."""
        return bool(self.dropout) or self.row_tokens is not None

    def kept(self, tokens: Ints) -> Ints:
        """Return how many of the patches of images stay; of all patches, if there is no dropout."""
        return np.maximum(1, (tokens * (1 - self.dropout)).astype(np.int64))

    def output(self, spec: ImageSpec) -> ImageSpec:
        """Return the spec of patches."""
        length = self.row_tokens or int(self.kept(np.array(self.most_tokens)))
        return replace(spec.with_size(None), patches=(length, self.patch))

    def commutes(self, first: Operation) -> bool:
        """Return whether the filter mixes pixels that `first` treats alike."""
        return first.linear

    def loses(self, targets: Targets) -> str:
        """Return that no label can follow it."""
        return "it cuts images into patches"


def chosen_budgets(operation: Patchify, words: Words) -> Ints:
    """Return a budget for each random word but the first: all equally often, in random order.

    Rows of several images are fuller if every batch has the same lengths.
    """
    order = np.argsort(words[1:], kind="stable") + int(words[0] >> np.uint64(32))
    return np.array(operation.budgets, np.int64)[order % len(operation.budgets)]


# Where the patches of a batch go
# --------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Places:
    """Where the patches of n images are in a batch of R rows of T patches.

    Attributes:
        operation: the operation.
        grids: rows and columns of patches of each image, int64 [n, 2].
        tokens: patches of each image that stay, int64 [n].
        shape: R and T.
        image: number of the image of each patch, int64 [patches].
        patch: number of the patch in its image, int64 [patches].
        at: index of the patch in the rows, one row after another, int64 [patches].

    """

    operation: Patchify
    grids: Ints
    tokens: Ints
    shape: tuple[int, int]
    image: Ints
    patch: Ints
    at: Ints

    def field(self, name: str) -> Array:
        """Return one of the `PATCH_FIELDS`, as `Patchify` documents them."""
        if name == "tokens":
            return self.tokens
        if name == "grid":
            return self._grid()
        if name == "segments":
            return self._spread(self.image, np.full(self.shape, -1))
        return self._spread(np.True_, np.zeros(self.shape, np.bool_))

    def _grid(self) -> Ints:
        """Return rows and columns of each image, or the position of each patch."""
        if self.operation.position == "grid":
            return self.grids
        position = np.zeros((*self.shape, 2), np.int64)
        columns = self.grids[:, 1].repeat(self.tokens)
        row = self.patch // columns
        flat = position.reshape(-1, 2)
        flat[self.at, 0], flat[self.at, 1] = row, self.patch - row * columns
        return position

    def sources(self, width: int) -> Ints:
        """Return the index of each place in the patches of all images, int64 [R, T].

        Args:
            width: patches of an image with its padding; the last one is always padding.

        """
        return self._spread(self.image * width + self.patch, np.full(self.shape, width - 1))

    def _spread(self, values: Any, places: Array) -> Array:
        places.reshape(-1)[self.at] = values
        return places


def place_patches(operation: Patchify, grids: Ints, budget: int, words: Words) -> Places:
    """Return where the patches of images are in a batch.

    Args:
        operation: the operation.
        grids: rows and columns of patches of each image, int64 [n, 2].
        budget: budget of the images of the batch.
        words: random words for the dropout, uint64 [n, at least the most patches of an image].

    """
    counts = grids.prod(axis=1)
    tokens = operation.kept(counts)
    if operation.row_tokens is None:
        width = int(operation.kept(np.array(budget)))
        rows = len(grids)
        begin = np.arange(rows) * width
    else:
        width = operation.row_tokens
        row, start, rows = pack(tokens, width)
        begin = row * width + start
    image = np.arange(len(grids)).repeat(tokens)
    # The number of a patch among the patches of its image that stay.
    within = np.arange(len(image)) - (np.cumsum(tokens) - tokens).repeat(tokens)
    patch = within
    if operation.dropout:
        # The patches with the smallest words stay.
        drawn = words[:, : int(counts.max(initial=1))].copy()
        drawn[np.arange(drawn.shape[1]) >= counts[:, None]] = ~np.uint64(0)
        last = np.sort(drawn, axis=1)[np.arange(len(drawn)), tokens - 1]
        patch = np.flatnonzero(drawn <= last[:, None]) % drawn.shape[1]
    shape = (rows, width)
    return Places(operation, grids, tokens, shape, image, patch, begin.repeat(tokens) + within)


#: Number of the row of each image, where it starts in the row, and the number of rows.
Packed: TypeAlias = tuple[Ints, Ints, int]


def pack(tokens: Ints, width: int) -> Packed:
    """Put images into rows: the longest image first, each into the first row with room for it.

    The window is the batch. Equal lengths stay in order, so the result depends on the lengths only.

    Args:
        tokens: patches of each image, at most `width`, int64 [n].
        width: length of a row.

    """
    row = np.zeros(len(tokens), np.int64)
    start = np.zeros(len(tokens), np.int64)
    room = np.full(len(tokens), width, np.int64)
    rows = 0
    for image in np.argsort(-tokens, kind="stable").tolist():
        # Rows that are not begun have room, so there always is one.
        place = int(np.argmax(room >= tokens[image]))
        row[image], start[image] = place, width - room[place]
        room[place] -= tokens[image]
        rows = max(rows, place + 1)
    return row, start, rows
