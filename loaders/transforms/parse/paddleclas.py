"""Find transforms, sampler and batch size in a YAML file: a PaddleClas config, a section of one, or a plain list."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Any

from loaders.transforms.base import MAX_BATCH_SIZE, MAX_CLASSES
from loaders.transforms.parse.registry import Library
from manifests.errors import CallError
from manifests.process.text import printable, shown, suggest
from manifests.yaml_file import load_yaml

#: Side in pixels of PaddleClas datasets that contain only square images of one size. Their configs
#: do not set it.
_DATASET_SIDES = {"AdaFaceDataset": 112, "Cifar10": 32, "Cifar100": 32}

_TRANSFORM_KEYS = ("transform_ops", "transform")

#: Names in a message or in notes, and characters of each name in a message.
_LISTED = 50

_EXPECTED = (
    "write a list of transforms, a mapping with transform_ops, or a PaddleClas config with "
    "DataLoader.Train.dataset.transform_ops"
)


@dataclass(frozen=True, slots=True)
class Config:
    """The values that a loader reads from a YAML file.

    Values that the file does not set are ``None``.

    Attributes:
        transforms: the items of ``transform_ops``, in order, not yet parsed.
        batch_transforms: the items of ``batch_transform_ops``.
        batch_size: samples per batch and process.
        sampler: the ``sampler`` section, unchanged.
        drop_last: whether the last incomplete batch is dropped.
        shuffle: whether each epoch has its own random order.
        num_classes: number of classes of the model (``Arch.class_num`` or ``Global.class_num``).
        notes: one sentence for each key of the file that is ignored or interpreted.
        library: the library of the names, if the file is not just a list.

    """

    transforms: tuple[Any, ...]
    batch_transforms: tuple[Any, ...] = ()
    batch_size: int | None = None
    sampler: Mapping[str, Any] | None = None
    drop_last: bool | None = None
    shuffle: bool | None = None
    num_classes: int | None = None
    notes: tuple[str, ...] = ()
    library: Library | None = None


def read_config(path: str | os.PathLike[str], split: str = "train") -> Config:
    """Read a YAML file: a PaddleClas training config, one section of it, or a list of transforms.

    Args:
        path: the file.
        split: which section of a training config to use. ``"train"`` uses ``Train``, any other
            split ``Eval``. If ``Eval`` has ``Query`` and ``Gallery``, ``"gallery"`` uses
            ``Eval.Gallery`` and any other split ``Eval.Query``.

    Raises:
        CallError: the file cannot be read, is not valid YAML, or a required section is missing; the
            message names the key.

    """
    file = os.fspath(path)
    content = load_yaml(file)
    try:
        return _config(content, split)
    except CallError as error:
        raise CallError(error.message, file=file, line=error.line, hint=error.hint) from None


def _config(content: Any, split: str) -> Config:
    if isinstance(content, list):
        return Config(tuple(content))
    if not isinstance(content, dict):
        raise CallError(
            "the file contains neither a list of transforms nor a config", hint=_EXPECTED
        )
    section, notes = _find_section(content, split)
    dataset = section.mapping("dataset") if "dataset" in section.content else section
    transforms = dataset.transforms()
    name = dataset.content.get("name")
    if isinstance(name, str) and name in _DATASET_SIDES:
        side = _DATASET_SIDES[name]
        transforms = [{"CropImage": {"size": side}}, *transforms]
        notes.append(
            f"{dataset.path}.name is {name}: images are assumed to have {side} x {side} pixels"
        )
    sampler = section.mapping("sampler") if section.content.get("sampler") is not None else None
    return Config(
        tuple(transforms),
        (
            tuple(dataset.items("batch_transform_ops"))
            if dataset.content.get("batch_transform_ops") is not None
            else ()
        ),
        sampler.positive_int(MAX_BATCH_SIZE, "batch_size", "first_bs") if sampler else None,
        dict(sampler.content) if sampler else None,
        sampler.flag("drop_last") if sampler else None,
        sampler.flag("shuffle") if sampler else None,
        _num_classes(content),
        (*notes, *_ignored_keys(dataset, sampler)),
        "PaddleClas",
    )


def _find_section(content: dict[Any, Any], split: str) -> tuple[_Section, list[str]]:
    """Return the section that contains ``dataset`` and ``sampler``, or only the transforms, and notes."""
    top = _Section(content, "")
    if "DataLoader" in content:
        top = top.mapping("DataLoader")
    elif not {"Train", "Eval"} & set(content):
        if not {"dataset", *_TRANSFORM_KEYS} & set(content):
            raise top.missing("DataLoader", hint=_EXPECTED)
        return top, []
    others = (
        str(name)
        for name, value in top.content.items()
        if name not in ("Train", "Eval") and _has_dataset(value)
    )
    notes = [
        f"{top.key_path(name)} is ignored: a loader reads one dataset"
        for name in islice(others, _LISTED)
    ]
    section = top.mapping("Train" if split == "train" else "Eval")
    if "dataset" not in section.content and {"Query", "Gallery"} & set(section.content):
        section = section.mapping("Gallery" if split == "gallery" else "Query")
    return section, notes


def _ignored_keys(dataset: _Section, sampler: _Section | None) -> Iterable[str]:
    if sampler and sampler.content.get("scales") is not None:
        yield (
            f"{sampler.key_path('scales')} is ignored: all batches have the size that the"
            " transforms set"
        )
    if dataset.content.get("bbox_crop"):
        yield (
            f"{dataset.key_path('bbox_crop')} is ignored: crop images to their boxes before"
            " converting them"
        )


def _listed(names: list[str]) -> str:
    """Return the first names, separated by commas."""
    more = ["..."] if len(names) > _LISTED else []
    return ", ".join([printable(name[:_LISTED]) for name in names[:_LISTED]] + more)


def _has_dataset(value: Any) -> bool:
    """Return whether a value is a section that contains a dataset at any depth."""
    return isinstance(value, dict) and any(
        key == "dataset" or _has_dataset(each) for key, each in value.items()
    )


def _num_classes(content: dict[Any, Any]) -> int | None:
    for name in ("Arch", "Global"):
        section = content.get(name)
        if isinstance(section, dict) and section.get("class_num") is not None:
            return _Section(section, name).positive_int(MAX_CLASSES, "class_num")
    return None


@dataclass(frozen=True, slots=True)
class _Section:
    """A mapping in a config, with the path of keys that leads to it."""

    content: dict[Any, Any]
    path: str

    def key_path(self, key: str) -> str:
        return f"{self.path}.{key}" if self.path else key

    def missing(self, key: str, hint: str = "") -> CallError:
        names = [str(each) for each in self.content]
        suggestion = suggest(key, names, quote=False)
        if suggestion.startswith("did you mean"):
            hint = suggestion
        elif not hint:
            hint = (
                f"{self.path or 'the file'} {'has only ' + _listed(names) if names else 'is empty'}"
            )
        return CallError(f"{self.key_path(key)} is missing", hint=hint)

    def mapping(self, key: str) -> _Section:
        if key not in self.content:
            raise self.missing(key)
        value = self.content[key]
        if not isinstance(value, dict):
            raise CallError(f"{self.key_path(key)} must be a mapping, got {shown(value)}")
        return _Section(value, self.key_path(key))

    def items(self, key: str) -> list[Any]:
        value = self.content[key]
        if not isinstance(value, list):
            raise CallError(f"{self.key_path(key)} must be a list, got {shown(value)}")
        return value

    def transforms(self) -> list[Any]:
        for key in _TRANSFORM_KEYS:
            if self.content.get(key) is not None:
                return self.items(key)
        raise self.missing("transform_ops")

    def positive_int(self, most: int, *keys: str) -> int | None:
        """Return the value of the first of the keys that is set, from 1 to `most`."""
        for key in keys:
            value = self.content.get(key)
            if value is None:
                continue
            if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= most:
                raise CallError(
                    f"{self.key_path(key)} must be an integer from 1 to {most}, got {shown(value)}"
                )
            return value
        return None

    def flag(self, key: str) -> bool | None:
        value = self.content.get(key)
        if value is not None and not isinstance(value, bool):
            raise CallError(f"{self.key_path(key)} must be true or false, got {shown(value)}")
        return value
