"""What a loader is built from: `LoaderSpec`.

Never imports DALI.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from loaders.arrays import Floats, Ints, Words
from loaders.dataset.fields import Fields
from loaders.dataset.images import Images
from loaders.dataset.split import OpenSplit
from loaders.memory import ImageSizes, LoadSettings
from loaders.options import ResolvedOptions
from loaders.samplers.draws import random_words, uniform
from loaders.samplers.order import Order
from loaders.transforms.base import AS_WRITTEN, Adjustment, ImageSpec
from loaders.transforms.fuse import (
    Fusion,
)
from loaders.transforms.parse import Recipe
from loaders.transforms.patches import Patchify, chosen_budgets
from manifests.pixels import RGB8


@dataclass(frozen=True, slots=True)
class LoaderSpec:
    """Everything that is decided before DALI starts. A `Loader` is built from it.

    Attributes:
        split: the split to read.
        recipe: the transforms.
        fusion: the operations that DALI runs, and why they differ from the recipe.
        view_fusions: the same for each view of the recipe.
        options: every option with its final value.
        order: which samples a batch contains.
        fields: where labels and table columns come from.
        images: random access to the encoded images, and to masks or depth maps if a field needs
            them. `None` if DALI's own readers read them.
        num_classes: columns of a mixed label. 0 if the dataset does not name its classes.
        sizes: sizes of the images. `None` on the CPU, or if the sample tables do not have them.
        stored: what is known about the first image of all samples before it is decoded.
        settings: how batches are made, for the estimate of GPU memory.
        order_warnings: operations that cost memory because of their place in the list.
        warnings: all warnings of `loaders.build`.
        written: the transforms as the user passed them, before `Loader.set` changed sizes or
            strengths.
        adjustment: what `Loader.set` has changed: how `recipe` differs from `written`.

    """

    split: OpenSplit
    recipe: Recipe
    fusion: Fusion
    view_fusions: tuple[Fusion, ...]
    options: ResolvedOptions
    order: Order
    fields: Fields
    images: Images | None
    num_classes: int
    sizes: ImageSizes | None
    stored: ImageSpec
    settings: LoadSettings
    order_warnings: tuple[str, ...]
    warnings: tuple[str, ...]
    written: Recipe
    adjustment: Adjustment = AS_WRITTEN

    @property
    def may_choose_decoder(self) -> bool:
        """Whether images are decoded that either the GPU of the loader or the CPU can decode."""
        is_decoded = self.recipe.raw_size is None and bool(self.fields.images)
        return self.options.device.is_gpu and is_decoded and self.recipe.kind == RGB8

    def close(self) -> None:
        """Close what the spec has opened: at the end of the loader, or if none is built from it."""
        if self.images is not None:
            self.images.close()


#: What words are drawn for; with the seed, the epoch and the batch, their key. The dropout of a view
#: adds the number of the view.
_BUDGETS, _DROPOUT = 2**32, 2**32 + 1

#: What the words of captions are drawn for; with the seed and the epoch, their key.
_CAPTIONS = 2**33


def draw_budgets(operation: Patchify, options: ResolvedOptions, epoch: int, batch: int) -> Ints:
    """Return the budget of each image of a batch in tokens, int64 [batch_size].

    All images of a global batch have one budget, equal on all ranks, unless rows contain several
    images.
    """
    key = (options.seed, epoch, batch, _BUDGETS)
    count = options.batch_size
    if operation.row_tokens is None:
        return np.repeat(chosen_budgets(operation, random_words(2, *key, 0)), count)
    return chosen_budgets(operation, random_words(count + 1, *key, options.ranks.rank))


def draw_dropout(
    operation: Patchify, options: ResolvedOptions, epoch: int, batch: int, view: int
) -> Words:
    """Return random words for the patches of each image of a batch, uint64 [batch_size, most]."""
    most = operation.most_tokens * bool(operation.dropout)
    key = (options.seed, epoch, batch, _DROPOUT + view, options.ranks.rank)
    return random_words(options.batch_size * most, *key).reshape(options.batch_size, most)


def draw_captions(seed: int, epoch: int, rows: Ints) -> Floats:
    """Return a uniform number in [0, 1) for the caption of each row, [B].

    It depends on the seed, the epoch and the row alone, so it is the same at any world size.
    """
    first, second = random_words(2, seed, epoch, _CAPTIONS)
    return uniform(_mixed(_mixed(rows.astype(np.uint64) + first) + second))


def _mixed(words: Words) -> Words:
    """Return the steps of SplitMix64 for each word: a permutation of all words."""
    words = words * np.uint64(0x9E3779B97F4A7C15)
    words = (words ^ (words >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    words = (words ^ (words >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return words ^ (words >> np.uint64(31))
