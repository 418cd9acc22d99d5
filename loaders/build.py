"""The arguments of `loaders.build` -> a loader. It must never know DALI's graph or a framework of tensors."""

from __future__ import annotations

import os
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from loaders.costs import order_warnings
from loaders.dataset.fields import shadowed
from loaders.dataset.split import open_split
from loaders.options import Options, at_least, read_bytes
from loaders.order import fit_order
from loaders.ranks import find_ranks
from loaders.samplers import Sampler, ShuffledSampler
from loaders.samplers.from_config import configured_sampler
from loaders.transforms.parse import Recipe, read_recipe
from loaders.transforms.parse.paddleclas import Config, read_config
from loaders.transforms.presets import PRESETS, preset
from manifests.errors import CallError

if TYPE_CHECKING:
    from loaders.loader import Loader


@dataclass(frozen=True, slots=True)
class Asked:
    """What `transforms` says: a recipe, and what a config says of the batches."""

    recipe: Recipe
    batch_size: int | None = None
    drop_last: bool | None = None
    shuffle: bool | None = None
    sampler: Mapping[str, Any] | None = None


def assemble(
    dataset: str | os.PathLike[str],
    *,
    split: str,
    transforms: str | os.PathLike[str] | Sequence[Any],
    sampler: Sampler | None,
    **arguments: Any,
) -> Loader:
    """Check everything, open the split and start the loader; `loaders.build` says what the arguments are."""
    if not isinstance(dataset, (str, os.PathLike)) or not os.fspath(dataset):
        raise CallError(f"dataset must be a path, got {dataset!r}", hint="name the folder of a prepared dataset")
    if not isinstance(split, str):
        raise CallError(f"split must be the name of one split, got {split!r}", hint='write "train", say')
    training = split == "train"
    asked = read_transforms(transforms, split=split)
    options = _options(asked, training=training, **arguments)
    if sampler is None and asked.sampler is not None:
        sampler, notes = configured_sampler(asked.sampler, options.batch_size)
        asked = replace(asked, recipe=replace(asked.recipe, notes=(*asked.recipe.notes, *notes)))
    if sampler is not None and arguments["shuffle"] is not None:
        raise CallError(
            f"shuffle={arguments['shuffle']!r}, and a sampler decides the order",
            hint="leave shuffle out, or say sampler=loaders.ShuffledSampler() for every sample once an epoch",
        )
    if options.dtype == "uint8" and not asked.recipe.output.is_uint8:
        raise CallError(
            'dtype="uint8", and the transforms end in values that are not whole',
            hint="leave the normalisation out of the transforms, or say another dtype",
        )
    opened = open_split(dataset, split)
    if opened.manifest.pixels is not None:
        asked = replace(asked, recipe=replace(asked.recipe, raw_size=opened.manifest.pixels[:2]))
        # Nothing is decoded, so that DALI's reader, which copies, is what all would wait for.
        unsaid = training and asked.shuffle is None and arguments["shuffle"] is None
        sampler = ShuffledSampler() if sampler is None and unsaid else sampler
    options, order, said = fit_order(opened, split, sampler, options)
    for note in said:
        warnings.warn(note, stacklevel=3)
    for warning in (*order_warnings(opened, asked.recipe, options.batch_size), *shadowed(opened, options.fields)):
        warnings.warn(warning, stacklevel=3)
    if asked.recipe.all_notes:
        warnings.warn("not to the letter: " + "; ".join(asked.recipe.all_notes), stacklevel=3)

    from loaders.loader import Loader

    return Loader(opened, asked.recipe, options, order)


def _options(
    asked: Asked,
    *,
    training: bool,
    batch_size: int | None,
    shuffle: bool | None,
    last_batch: str | None,
    rank: int | None,
    world_size: int | None,
    memory_limit: int | str | None,
    fields: Sequence[str],
    **plain: Any,
) -> Options:
    """Put what a config says, and then what suits, where the call says nothing."""
    size = asked.batch_size if batch_size is None else batch_size
    if size is None:
        raise CallError("batch_size is missing", hint="say how many samples a batch has")
    if not isinstance(fields, (list, tuple)) or not all(isinstance(name, str) for name in fields):
        raise CallError(f"fields must be a list of names, got {fields!r}", hint='write ("image", "label")')
    drops = training if asked.drop_last is None else asked.drop_last
    shuffles = training if asked.shuffle is None else asked.shuffle
    return Options(
        batch_size=at_least("batch_size", size, 1),
        shuffle=shuffles if shuffle is None else shuffle,
        last_batch=("drop" if drops else "partial") if last_batch is None else last_batch,
        ranks=find_ranks(rank, world_size),
        memory_limit=None if memory_limit is None else read_bytes("memory_limit", memory_limit),
        fields=tuple(fields),
        **plain,
    )


def read_transforms(transforms: str | os.PathLike[str] | Sequence[Any], *, split: str) -> Asked:
    """Read a preset's name, a list, or a YAML file.

    Raises:
        CallError: there is no such preset or file, or something in it is unknown or wrong.

    """
    if isinstance(transforms, (list, tuple)):
        if named := [item for item in transforms if isinstance(item, str) and item in PRESETS]:
            raise CallError(f"transforms has the preset {named[0]!r} in a list", hint=f"write transforms={named[0]!r}")
        return Asked(read_recipe(transforms))
    if not isinstance(transforms, (str, os.PathLike)):
        raise CallError(
            f"transforms must be a preset's name, a list or a YAML file, got {transforms!r}",
            hint='write "imagenet-train", or [{"CropImage": {"size": 224}}], say',
        )
    path = os.fspath(transforms)
    if path.endswith((".yaml", ".yml")) or os.path.isfile(path):
        return _from_config(read_config(path, split), path)
    items, batch = preset(path)
    return Asked(read_recipe(items, source=path, batch=batch))


def _from_config(config: Config, path: str) -> Asked:
    recipe = read_recipe(
        config.transforms,
        source=f"{path}: transform_ops",
        batch=config.batch_transforms,
        num_classes=config.num_classes,
        notes=config.notes,
    )
    return Asked(recipe, config.batch_size, config.drop_last, config.shuffle, config.sampler)
