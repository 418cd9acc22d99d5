"""A YAML file -> what a loader takes from it. It must never know DALI, nor run what a file says."""

from __future__ import annotations

import difflib
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import yaml

from manifests.errors import CallError

#: The longest file that is read, in bytes; PaddleClas' longest has 7 thousand.
MAX_BYTES = 2**20

#: The most values that a file may have, those counted again that aliases repeat, and the deepest nesting.
MAX_NODES = 100_000
MAX_DEPTH = 64

#: Sides of the images of datasets where all are squares of one size, so that a config states none.
_SIZES = {"AdaFaceDataset": 112, "Cifar10": 32, "Cifar100": 32}


@dataclass(frozen=True, slots=True)
class Config:
    """What a file says.

    Attributes:
        transforms: the items of ``transform_ops``, in order, as they stand.
        batch_transforms: those of ``batch_transform_ops``.
        batch_size: of one process, or none.
        sampler: the section of that name as it stands, or none.
        drop_last: whether samples that do not fill a batch are left out, or none.
        shuffle: whether each epoch has an order of its own, or none.
        num_classes: how many the model tells apart (``Arch.class_num``), or none.
        notes: what of the file is not followed.

    """

    transforms: tuple[Any, ...]
    batch_transforms: tuple[Any, ...] = ()
    batch_size: int | None = None
    sampler: Mapping[str, Any] | None = None
    drop_last: bool | None = None
    shuffle: bool | None = None
    num_classes: int | None = None
    notes: tuple[str, ...] = ()


def read_config(path: str | os.PathLike[str], split: str = "train") -> Config:
    """Read a YAML file: a PaddleClas training config, one section of it, or a list of transforms.

    Args:
        path: the file.
        split: of a training config, ``train`` takes the section ``Train`` and any other ``Eval``; where that is in
            halves, ``gallery`` takes ``Eval.Gallery`` and any other ``Eval.Query``.

    Raises:
        CallError: the file cannot be read, is no YAML, or lacks what is asked for; the message names the place.

    """
    file = os.fspath(path)
    text = _read(file)
    try:
        return _config(_load(text), split)
    except CallError as error:
        raise CallError(error.message, file=file, line=error.line, hint=error.hint) from None


def _config(content: Any, split: str) -> Config:
    if isinstance(content, list):
        return Config(tuple(content))
    if not isinstance(content, dict):
        raise CallError("holds neither a list of transforms nor a config", hint=_EXPECTED)
    section, notes = _section(content, split)
    dataset = section.mapping("dataset") if "dataset" in section.content else section
    transforms = dataset.transforms()
    name = dataset.content.get("name")
    if isinstance(name, str) and name in _SIZES:
        transforms = [{"CropImage": {"size": _SIZES[name]}}, *transforms]
        notes.append(f"{dataset.path}.name: images of {name} are taken to be {_SIZES[name]} pixels wide and high")
    sampler = section.mapping("sampler") if section.content.get("sampler") is not None else None
    return Config(
        tuple(transforms),
        tuple(dataset.items("batch_transform_ops")) if dataset.content.get("batch_transform_ops") is not None else (),
        sampler.whole("batch_size", "first_bs") if sampler else None,
        dict(sampler.content) if sampler else None,
        sampler.flag("drop_last") if sampler else None,
        sampler.flag("shuffle") if sampler else None,
        _classes(content),
        (*notes, *_unfollowed(dataset, sampler)),
    )


def _section(content: dict[Any, Any], split: str) -> tuple[_Place, list[str]]:
    """Return the place of ``dataset``, ``sampler`` and ``loader``, or of the transforms alone; and notes."""
    top = _Place(content, "")
    if "DataLoader" in content:
        top = top.mapping("DataLoader")
    elif not {"Train", "Eval"} & set(content):
        if not {"dataset", *_TRANSFORMS} & set(content):
            raise top.lacking("DataLoader", hint=_EXPECTED)
        return top, []
    others = [str(name) for name, value in top.content.items() if name not in ("Train", "Eval") and _holds(value)]
    notes = [f"{top.inner(name)} is not read: a loader reads one list of samples" for name in others]
    section = top.mapping("Train" if split == "train" else "Eval")
    if "dataset" not in section.content and {"Query", "Gallery"} & set(section.content):
        section = section.mapping("Gallery" if split == "gallery" else "Query")
    return section, notes


def _unfollowed(dataset: _Place, sampler: _Place | None) -> Iterable[str]:
    if sampler and sampler.content.get("scales") is not None:
        yield f"{sampler.inner('scales')} is not followed: all batches have the size that the transforms state"
    if dataset.content.get("bbox_crop"):
        yield f"{dataset.inner('bbox_crop')} is not followed: cut images to their boxes before they are prepared"


def _holds(value: Any) -> bool:
    """Tell a section with samples of its own from plain values that stand beside."""
    return isinstance(value, dict) and any(key == "dataset" or _holds(each) for key, each in value.items())


def _classes(content: dict[Any, Any]) -> int | None:
    for name in ("Arch", "Global"):
        section = content.get(name)
        if isinstance(section, dict) and section.get("class_num") is not None:
            return _Place(section, name).whole("class_num")
    return None


# Places in a config --------------------------------------------------------------------------------------------------

_TRANSFORMS = ("transform_ops", "transform")

_EXPECTED = (
    "write a list of transforms, a mapping with transform_ops, or a PaddleClas config with "
    "DataLoader.Train.dataset.transform_ops"
)


@dataclass(frozen=True, slots=True)
class _Place:
    """A mapping in a config, with the path of keys that leads to it."""

    content: dict[Any, Any]
    path: str

    def inner(self, key: str) -> str:
        return f"{self.path}.{key}" if self.path else key

    def lacking(self, key: str, hint: str = "") -> CallError:
        names = [str(each) for each in self.content]
        near = difflib.get_close_matches(key, names, n=2, cutoff=0.6)
        if near:
            hint = f"did you mean {' or '.join(near)}?"
        elif not hint:
            hint = f"there {'is' if len(names) == 1 else 'are'} {', '.join(names)}" if names else "it is empty"
        return CallError(f"{self.inner(key)} is missing", hint=hint)

    def mapping(self, key: str) -> _Place:
        if key not in self.content:
            raise self.lacking(key)
        value = self.content[key]
        if not isinstance(value, dict):
            raise CallError(f"{self.inner(key)} must be a mapping, got {_shown(value)}")
        return _Place(value, self.inner(key))

    def items(self, key: str) -> list[Any]:
        value = self.content[key]
        if not isinstance(value, list):
            raise CallError(f"{self.inner(key)} must be a list, got {_shown(value)}")
        return value

    def transforms(self) -> list[Any]:
        for key in _TRANSFORMS:
            if self.content.get(key) is not None:
                return self.items(key)
        raise self.lacking("transform_ops")

    def whole(self, *keys: str) -> int | None:
        """Return the first of these that is stated."""
        for key in keys:
            value = self.content.get(key)
            if value is None:
                continue
            if not isinstance(value, int) or isinstance(value, bool) or value < 1:
                raise CallError(f"{self.inner(key)} must be a whole number of at least 1, got {_shown(value)}")
            return value
        return None

    def flag(self, key: str) -> bool | None:
        value = self.content.get(key)
        if value is not None and not isinstance(value, bool):
            raise CallError(f"{self.inner(key)} must be true or false, got {_shown(value)}")
        return value


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:77]}..."


# YAML ----------------------------------------------------------------------------------------------------------------


def _read(file: str) -> str:
    try:
        with open(file, "rb") as stream:
            data = stream.read(MAX_BYTES + 1)
    except OSError as error:
        hint = "check the path given as transforms"
        raise CallError(f"cannot be read: {error.strerror}", file=file, hint=hint) from None
    if len(data) > MAX_BYTES:
        raise CallError(f"is no config: it has more than {MAX_BYTES} bytes", file=file, hint=_EXPECTED)
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise CallError("is no YAML: it is not UTF-8", file=file, byte=error.start, hint="save it as UTF-8") from None


def _load(text: str) -> Any:
    try:
        _check_extent(text)
        return yaml.safe_load(text)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        problem = error.problem or error.context or "it cannot be parsed"
        at = f", column {mark.column + 1}" if mark else ""
        raise CallError(f"is no YAML{at}: {problem}", line=mark.line + 1 if mark else None) from None
    except yaml.reader.ReaderError as error:
        line = text.count("\n", 0, error.position) + 1
        raise CallError(f"is no YAML: {error.reason}", line=line) from None
    except ValueError as error:
        # A date that the calendar has not, a number too long to convert.
        raise CallError(f"is no YAML: {error}") from None


def _check_extent(text: str) -> None:
    """Check depth and length without following an alias, so that a short file cannot become a huge value."""
    sizes: dict[str, int] = {}
    # Of each open collection: its anchor, and the values before it.
    open_ones: list[tuple[str | None, int]] = []
    total = 0
    for event in yaml.parse(text, Loader=yaml.SafeLoader):
        mark: Any = event.start_mark
        if isinstance(event, yaml.AliasEvent):
            if event.anchor not in sizes:
                raise yaml.MarkedYAMLError(None, None, f"no value has the anchor {event.anchor!r}", mark)
            total += sizes[event.anchor]
        elif isinstance(event, yaml.CollectionStartEvent):
            open_ones.append((event.anchor, total))
            total += 1
        elif isinstance(event, yaml.CollectionEndEvent):
            anchor, before = open_ones.pop()
            if anchor is not None:
                sizes[anchor] = total - before
        elif isinstance(event, yaml.ScalarEvent):
            total += 1
            if event.anchor is not None:
                sizes[event.anchor] = 1
        if total > MAX_NODES or len(open_ones) > MAX_DEPTH:
            limit = f"more than {MAX_NODES} values" if total > MAX_NODES else f"more than {MAX_DEPTH} levels"
            raise CallError(f"is no config: it has {limit}", line=mark.line + 1, hint=_EXPECTED)
