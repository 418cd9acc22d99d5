"""The arguments of `loaders.build` -> a loader. It must never know DALI's graph or a framework of tensors."""

from __future__ import annotations

import os
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from loaders.configs import Config, read_config
from loaders.costs import order_warnings
from loaders.options import HW_DECODER_LOAD, PREFETCH, Options
from loaders.presets import preset
from loaders.ranks import find_ranks
from loaders.shards import open_split
from loaders.vocabulary import Recipe, read_recipe
from manifests.errors import CallError

if TYPE_CHECKING:
    from loaders.iterators import Loader


@dataclass(frozen=True, slots=True)
class Asked:
    """What `transforms` says: a recipe, and the batch size and drop of a config that holds them."""

    recipe: Recipe
    batch_size: int | None = None
    drop_last: bool | None = None
    shuffle: bool | None = None


def assemble(
    dataset: str | os.PathLike[str],
    *,
    split: str,
    transforms: str | os.PathLike[str] | Sequence[Any],
    batch_size: int | None,
    shuffle: bool | None,
    last_batch: str | None,
    rank: int | None,
    world_size: int | None,
    prefetch: int | None,
    hw_decoder_load: float | None,
    fields: Sequence[str],
    **plain: Any,
) -> Loader:
    """Check everything, open the split and start the loader; `loaders.build` says what the arguments are."""
    training = split == "train"
    asked = read_transforms(transforms, training=training)
    size = asked.batch_size if batch_size is None else batch_size
    if size is None:
        raise CallError("batch_size is missing", mend="say how many samples a batch has")
    if last_batch is None:
        last_batch = "drop" if (training if asked.drop_last is None else asked.drop_last) else "partial"
    if shuffle is None:
        shuffle = training if asked.shuffle is None else asked.shuffle
    if isinstance(fields, str):
        raise CallError(f"fields must be a list of names, got {fields!r}", mend=f"write ({fields!r},)")
    options = Options(
        batch_size=size,
        shuffle=shuffle,
        last_batch=last_batch,
        ranks=find_ranks(rank, world_size),
        prefetch=PREFETCH if prefetch is None else prefetch,
        hw_decoder_load=HW_DECODER_LOAD if hw_decoder_load is None else hw_decoder_load,
        fields=tuple(fields),
        **plain,
    )
    if options.dtype == "uint8" and not asked.recipe.form.whole:
        raise CallError(
            'dtype="uint8", and the transforms end in values that are not whole',
            mend="leave the normalisation out of the transforms, or say another dtype",
        )
    opened = open_split(dataset, split)
    if options.ranks.world_size > opened.samples:
        raise CallError(
            f"split {split!r} holds {opened.samples} samples, and there are {options.ranks.world_size} ranks",
            mend="read it on fewer ranks: rank=0, world_size=1 on one of them",
        )
    if options.batches(opened.samples) == 0:
        shared = f", shared by {options.ranks.world_size} ranks," if options.ranks.world_size > 1 else ""
        raise CallError(
            f"batch_size={size} is more than the {opened.samples} samples of split {split!r}{shared} hold",
            mend='lower batch_size, or say last_batch="partial" or "pad"',
        )
    for warning in order_warnings(opened, asked.recipe, options.batch_size):
        warnings.warn(warning, stacklevel=3)
    if asked.recipe.all_notes:
        warnings.warn("not to the letter: " + "; ".join(asked.recipe.all_notes), stacklevel=3)

    from loaders.iterators import Loader

    return Loader(opened, asked.recipe, options)


def read_transforms(transforms: str | os.PathLike[str] | Sequence[Any], *, training: bool) -> Asked:
    """Read a preset's name, a list, or a YAML file.

    Raises:
        CallError: there is no such preset or file, or something in it is unknown or wrong.

    """
    if isinstance(transforms, (list, tuple)):
        return Asked(read_recipe(transforms))
    if not isinstance(transforms, (str, os.PathLike)):
        raise CallError(f"transforms must be a preset's name, a list or a YAML file, got {transforms!r}")
    path = os.fspath(transforms)
    if path.endswith((".yaml", ".yml")) or os.path.isfile(path):
        return _from_config(read_config(path, mode="Train" if training else "Eval"), path)
    items, batch = preset(path)
    return Asked(read_recipe(items, source=path, batch=batch))


def _from_config(config: Config, path: str) -> Asked:
    recipe = read_recipe(
        config.transforms,
        source=f"{path}: transform_ops",
        batch=config.batch_transforms,
        classes=config.classes,
        notes=(*config.notes, *_sampler_notes(config)),
    )
    return Asked(recipe, config.batch_size, config.drop_last, config.shuffle)


def _sampler_notes(config: Config) -> tuple[str, ...]:
    name = (config.sampler or {}).get("name")
    if name in (None, "BatchSampler", "DistributedBatchSampler"):
        return ()
    return (f"its sampler {name} is not followed: every sample is read once an epoch",)
