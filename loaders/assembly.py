"""The arguments of `loaders.build` -> a loader. It must never know DALI's graph or a framework of tensors."""

from __future__ import annotations

import os
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from loaders.configs import Config, read_config
from loaders.costs import order_warnings
from loaders.fields import shadowed
from loaders.options import PREFETCH, Options, at_least, read_bytes
from loaders.orders import Planned, Stored
from loaders.presets import PRESETS, preset
from loaders.ranks import find_ranks
from loaders.samplers import Sampler
from loaders.samplers.configured import configured_sampler
from loaders.shards import OpenSplit, open_split
from loaders.tables import read_columns
from loaders.transforms.base import brief
from loaders.vocabulary import Recipe, read_recipe
from manifests.errors import CallError

if TYPE_CHECKING:
    from loaders.iterators import Loader


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
        raise CallError(f"dataset must be a path, got {dataset!r}", mend="name the folder of a prepared dataset")
    if not isinstance(split, str):
        raise CallError(f"split must be the name of one split, got {split!r}", mend='write "train", say')
    training = split == "train"
    asked = read_transforms(transforms, split=split)
    if sampler is not None and arguments["shuffle"] is not None:
        raise CallError(
            f"shuffle={arguments['shuffle']!r}, and a sampler decides the order",
            mend="leave shuffle out, or the sampler",
        )
    options = _options(asked, training=training, **arguments)
    if sampler is None and asked.sampler is not None:
        sampler, notes = configured_sampler(asked.sampler, options.batch_size)
        asked = replace(asked, recipe=replace(asked.recipe, notes=(*asked.recipe.notes, *notes)))
    if options.dtype == "uint8" and not asked.recipe.form.whole:
        raise CallError(
            'dtype="uint8", and the transforms end in values that are not whole',
            mend="leave the normalisation out of the transforms, or say another dtype",
        )
    opened = open_split(dataset, split)
    if opened.manifest.pixels is not None:
        asked = replace(asked, recipe=replace(asked.recipe, pixels=opened.manifest.pixels[:2]))
    if sampler is None:
        options = _fitted(options, opened.samples, split)
        order: Stored | Planned = _stored(options, opened.samples)
    else:
        order = _planned(opened, split, sampler, options)
    for warning in (*order_warnings(opened, asked.recipe, options.batch_size), *shadowed(opened, options.fields)):
        warnings.warn(warning, stacklevel=3)
    if asked.recipe.all_notes:
        warnings.warn("not to the letter: " + "; ".join(asked.recipe.all_notes), stacklevel=3)

    from loaders.iterators import Loader

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
    prefetch: int | None,
    memory_limit: int | str | None,
    fields: Sequence[str],
    **plain: Any,
) -> Options:
    """Put what a config says, and then what suits, where the call says nothing."""
    size = asked.batch_size if batch_size is None else batch_size
    if size is None:
        raise CallError("batch_size is missing", mend="say how many samples a batch has")
    if not isinstance(fields, (list, tuple)) or not all(isinstance(name, str) for name in fields):
        raise CallError(f"fields must be a list of names, got {fields!r}", mend='write ("image", "label")')
    drops = training if asked.drop_last is None else asked.drop_last
    shuffles = training if asked.shuffle is None else asked.shuffle
    return Options(
        batch_size=at_least("batch_size", size, 1),
        shuffle=shuffles if shuffle is None else shuffle,
        last_batch=("drop" if drops else "partial") if last_batch is None else last_batch,
        ranks=find_ranks(rank, world_size),
        prefetch=PREFETCH if prefetch is None else prefetch,
        memory_limit=None if memory_limit is None else read_bytes("memory_limit", memory_limit),
        fields=tuple(fields),
        **plain,
    )


def _fitted(options: Options, samples: int, split: str) -> Options:
    """Return the options for a split of so many samples.

    Raises:
        CallError: there are too few for the ranks, or for a whole batch.

    """
    ranks = options.ranks
    if ranks.world_size > samples:
        raise CallError(
            f"split {split!r} holds {samples} samples, and there are {ranks.world_size} ranks",
            mend="read it on fewer ranks: rank=0, world_size=1 on one of them",
        )
    if _stored(options, samples).batches == 0:
        shared = f", shared by {ranks.world_size} ranks," if ranks.world_size > 1 else ""
        raise CallError(
            f"batch_size={options.batch_size} is more than the {samples} samples of split {split!r}{shared} hold",
            mend='lower batch_size, or say last_batch="partial" or "pad"',
        )
    if options.last_batch != "partial":
        return options
    # What fills a batch up is decoded too, and a partial one never holds more than a rank's part.
    return replace(options, batch_size=min(options.batch_size, ranks.greatest_share(samples)))


def _stored(options: Options, samples: int) -> Stored:
    return Stored(samples, options.ranks, options.batch_size, options.last_batch, options.shuffle)


def _planned(opened: OpenSplit, split: str, sampler: Sampler, options: Options) -> Planned:
    """Fit a sampler to the split.

    Raises:
        CallError: it is no sampler, asks for a column that is not there, or an epoch of it has no batch.

    """
    name = type(sampler).__name__
    if isinstance(sampler, type) or not callable(getattr(sampler, "plan", None)):
        raise CallError(
            f"sampler must be one of loaders.samplers or of the same interface, got {sampler!r}",
            mend='write loaders.ClassBalancedSampler(by="label"), say',
        )
    ranks, size = options.ranks, options.batch_size
    columns = read_columns(opened, sampler.columns, asked_by=name)
    plan = sampler.plan(
        columns, samples=opened.samples, batch_size=size, world_size=ranks.world_size, seed=options.seed
    )
    # What says nothing of its choices is told by its kind.
    text = f"{name}()" if type(sampler).__repr__ is object.__repr__ else brief(sampler)
    spread = getattr(sampler, "spread", False) is True
    planned = Planned(plan, opened.samples, ranks, size, options.last_batch, text, spread)
    if planned.batches == 0:
        raise CallError(
            f"batch_size={size} of {ranks.world_size} ranks is more than the {plan.samples} samples of an epoch that "
            f"{name} makes of split {split!r}",
            mend='lower batch_size, or say last_batch="partial" or "pad"',
        )
    return planned


def read_transforms(transforms: str | os.PathLike[str] | Sequence[Any], *, split: str) -> Asked:
    """Read a preset's name, a list, or a YAML file.

    Raises:
        CallError: there is no such preset or file, or something in it is unknown or wrong.

    """
    if isinstance(transforms, (list, tuple)):
        if named := [item for item in transforms if isinstance(item, str) and item in PRESETS]:
            raise CallError(f"transforms has the preset {named[0]!r} in a list", mend=f"write transforms={named[0]!r}")
        return Asked(read_recipe(transforms))
    if not isinstance(transforms, (str, os.PathLike)):
        raise CallError(
            f"transforms must be a preset's name, a list or a YAML file, got {transforms!r}",
            mend='write "imagenet-train", or [{"CropImage": {"size": 224}}], say',
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
        classes=config.classes,
        notes=config.notes,
    )
    return Asked(recipe, config.batch_size, config.drop_last, config.shuffle, config.sampler)
