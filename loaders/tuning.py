"""The file that `loaders tune` writes and `loaders.build` reads: options, and what they are for."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Annotated, Any

from loaders.dataset.split import OpenSplit
from loaders.devices import Device, device_name
from loaders.transforms.parse import Recipe
from manifests.errors import CallError, raise_machine_fault
from manifests.files import TUNING, read_file
from manifests.json_members import Member, MemberError, parse_json
from manifests.process.text import plural, printable

#: Version of the file.
_VERSION = 1
#: First member of the file, by which the command recognizes one that it may replace.
MARK = "loaders_tuning"
#: Maximum number of entries; more are a mistake.
_MAX_ENTRIES = 10_000

#: Values of `num_threads` and `prefetch` in a file.
_THREADS: Any = Annotated[int, 1, 1024] | None
_BATCHES: Any = Annotated[int, 1, 64] | None

_AGAIN = "run `loaders tune` again for this machine, dataset and transforms, or remove tuning"


@dataclass(frozen=True, slots=True)
class TuningKey:
    """What a tuning is for. A loader uses it only if all of these are equal.

    Attributes:
        device: name of the GPU, or of the CPU if that transforms the images.
        cores: cores that the process may use.
        dataset: fingerprint of the split.
        transforms: the operations, as text.

    """

    device: str
    cores: Annotated[int, 1]
    dataset: str
    transforms: str


@dataclass(frozen=True, slots=True)
class Tuning:
    """The tuned arguments of `loaders.build`. `None` leaves the default.

    Attributes:
        num_threads: CPU threads that read and decode.
        prefetch: batches prepared in advance.
        hw_decoder_load: share of the JPEG images for the GPU's hardware decoder.

    """

    num_threads: int | None = None
    prefetch: int | None = None
    hw_decoder_load: float | None = None


@dataclass(frozen=True, slots=True)
class Entry:
    """A tuning and what it is for.

    Attributes:
        key: what it is for.
        batch_size: images per batch with which it was measured.
        tuning: the options.
        notes: how it was found, for people. `loaders.build` does not use them.

    """

    key: TuningKey
    batch_size: int
    tuning: Tuning
    notes: Mapping[str, Any]


def use_tuning(path: str, key: TuningKey, batch_size: int) -> tuple[Tuning, tuple[str, ...]]:
    """Return the tuning of a file for a loader, with the nearest batch size, and warnings.

    Raises:
        CallError: the file does not exist or is damaged, or is for another machine, dataset or
            transforms. The message says what differs.

    """
    entries = read_entries(path)
    if not entries:
        raise _damaged(path, "it has no entries")

    def distance(entry: Entry) -> tuple[int, float]:
        sizes = abs(math.log(entry.batch_size / batch_size))
        return len(_differences(entry.key, key)), sizes

    # The most similar entry, so that the message names few differences.
    nearest = min(entries, key=distance)
    differences = _differences(nearest.key, key)
    if differences:
        which = "it was" if len(entries) == 1 else "the most similar of its entries was"
        raise CallError(
            f"tuning: {which} measured for something else: {'; '.join(differences)}",
            file=path,
            hint=_AGAIN,
        )
    if nearest.batch_size == batch_size:
        return nearest.tuning, ()
    warning = (
        f"{path} was measured with batches of {nearest.batch_size:,} images, and this"
        f" loader has batches of {batch_size:,}, for which other options may be faster: add them"
        f" with `loaders tune --batch-size {batch_size}`"
    )
    return nearest.tuning, (warning,)


def read_entries(path: str) -> list[Entry]:
    """Return everything in a file; see `use_tuning` for its errors."""
    try:
        return _entries(parse_json(read_file(path, TUNING)))
    except MemberError as error:
        raise _damaged(path, str(error)) from None
    except ValueError as error:
        if isinstance(error, CallError):
            raise
        raise _damaged(path, f"it is not JSON ({error})") from None
    except OSError as error:
        raise_machine_fault(error)
        raise CallError(
            f"tuning: the file cannot be read ({error.strerror})",
            file=path,
            hint="write it with `loaders tune`",
        ) from None


def with_entry(entries: list[Entry], entry: Entry) -> bytes:
    """Return the content of a file with an entry, which replaces one for the same loader."""
    written = []
    for each in (*entries, entry):
        is_old = each is not entry and (each.key, each.batch_size) == (entry.key, entry.batch_size)
        if is_old:
            continue
        json_entry = {
            **asdict(each.key),
            "batch_size": each.batch_size,
            "options": asdict(each.tuning),
            "notes": dict(each.notes),
        }
        written.append(json_entry)
    body = {MARK: _VERSION, "entries": written}
    return (json.dumps(body, indent=1, ensure_ascii=False) + "\n").encode()


def _entries(body: Member) -> list[Entry]:
    version = body[MARK].integer()
    if version != _VERSION:
        raise MemberError(f"its version is {version}, and this program reads version {_VERSION}")
    # A file of anyone may be read, so its size is limited.
    items = body["entries"].items()
    if len(items) > _MAX_ENTRIES:
        raise MemberError(f"entries has {plural(len(items), 'item')}, more than {_MAX_ENTRIES:,}")
    return [_entry(item) for item in items]


def _entry(item: Member) -> Entry:
    options = item["options"]
    load = options["hw_decoder_load"]
    if load.value is not None and (
        not isinstance(load.value, (int, float))
        or isinstance(load.value, bool)
        or not 0 <= load.value <= 1
    ):
        load.fail("a number from 0 to 1")
    threads = options["num_threads"].read(_THREADS)
    prefetch = options["prefetch"].read(_BATCHES)
    tuning = Tuning(threads, prefetch, load.value)
    notes = item["notes"].mapping()
    return Entry(item.record(TuningKey), item["batch_size"].integer(1), tuning, notes)


def _differences(there: TuningKey, here: TuningKey) -> list[str]:
    texts = {
        "device": (
            f"the device was {printable(there.device)!r}, and here it is {printable(here.device)!r}"
        ),
        "cores": (
            f"there were {plural(there.cores, 'core')}, and this process may use {here.cores:,}"
        ),
        "dataset": "the dataset or its split was another one, or has changed",
        "transforms": "the transforms were different",
    }
    return [text for name, text in texts.items() if getattr(there, name) != getattr(here, name)]


def _damaged(path: str, problem: str) -> CallError:
    return CallError(f"tuning: the file is damaged: {problem}", file=path, hint=_AGAIN)


def tuning_key(device: Device, cores: int, split: OpenSplit, recipe: Recipe) -> TuningKey:
    """Return what a file must have been measured for, to be used by a loader."""
    return TuningKey(device_name(device), cores, split.fingerprint, recipe.text)
