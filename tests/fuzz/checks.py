"""What the checks of all surfaces share: they run a command or the loader in a limited child process."""

from __future__ import annotations

import hashlib
import json
import os
import re
import sys
import warnings
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import Any, TypeAlias
from unittest.mock import Mock

import pyarrow.parquet as pq
from helpers.oracles import read_with_dali

# Commands import these when they need them. Importing them here saves every child process the time.
import dataprep.__main__
import dataprep.commands.convert
import dataprep.indexing.index
import dataprep.report.make
import dataprep.report.pictures
import dataprep.run.convert
import dataprep.summary.info
import dataprep.verification.verify
import loaders.loader
import loaders.resolve
from fuzz.isolation import Fault, Outcome, isolated
from manifests.errors import DatasetError

#: Files by name. The names are relative paths.
Case: TypeAlias = dict[str, bytes]

#: Longest line of a message. A message has two names of up to 4,096 bytes at most.
_MAX_LINE = 10_000
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f]")


def write_case(case: Case, folder: Path) -> Path:
    """Write the files of a case into a folder, which is made."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, data in case.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(data)
    return folder


def read_folder(folder: Path) -> Case:
    """Return every file below a folder, except hidden ones."""
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and not path.name.startswith(".")
    }


def command(
    *arguments: object, writable: Sequence[Path], statuses: Collection[int] = (0, 1, 2)
) -> Outcome:
    """Run ``dataprep`` with these arguments.

    Raises:
        Fault: a property that every command has does not hold.

    """
    words = [os.fspath(word) if isinstance(word, os.PathLike) else str(word) for word in arguments]

    def run() -> None:
        sys.argv = ["dataprep", *words]
        # `report` starts another program for the estimate of GPU memory, and a case must not.
        estimate = Mock(**{"result.return_value": "left out"})
        vars(dataprep.report.make)["MemoryEstimate"] = lambda *_: estimate
        dataprep.__main__.run()

    try:
        outcome = isolated(run, writable)
    except Fault as fault:
        raise Fault(f"dataprep {words[0] if words else ''}: {fault}") from None
    shown = f"dataprep {words[0]}"
    for line in ((outcome.stdout if "--json" not in words else "") + outcome.stderr).split("\n"):
        require("please report" not in line, line[:1000])
        length = len(line)
        require(length <= _MAX_LINE, f"{shown}: a line of {length} characters: {line[:300]!r}")
        has_control = _CONTROL.search(line)
        require(not has_control, f"{shown}: control characters in the output: {line[:300]!r}")
    text = outcome.stdout + outcome.stderr
    is_expected = outcome.status in statuses
    require(is_expected, f"{shown}: exit status {outcome.status}: {text[-2000:]!r}")
    return outcome


#: One sample that the loader returned: label, key, and a digest of its pixels.
Loaded: TypeAlias = tuple[int, str, str]


def load(folder: Path, **options: Any) -> list[Loaded] | DatasetError:
    """Read one epoch with the loader on the CPU; return its samples, or the error that ended it.

    Raises:
        Fault: the loader raised another exception, crashed or exceeded a limit.

    """
    arguments = {
        "split": "train",
        "batch_size": 3,
        "transforms": [{"ResizeImage": {"size": [16, 12]}}],
        "shuffle": False,
        "last_batch": "partial",
        "fields": ("image", "label", "key"),
        "dtype": "uint8",
    }
    return guarded(lambda: _epoch(folder, {**arguments, **options}), writable=[])


def guarded(function: Any, writable: Sequence[Path]) -> Any:
    """Call a function in a child process; return its result, or its `DatasetError`."""

    def run() -> Any:
        warnings.simplefilter("ignore")
        try:
            return function()
        except DatasetError as error:
            return error

    try:
        value = isolated(run, writable).value
    except Fault as fault:
        raise Fault(f"loaders: {fault}") from None
    if isinstance(value, DatasetError) and len(str(value)) > _MAX_LINE:
        raise Fault(f"loaders: a message of {len(str(value))} characters: {str(value)[:300]!r}")
    return value


def _epoch(folder: Path, arguments: dict[str, Any]) -> list[Loaded]:
    samples: list[Loaded] = []
    with loaders.build(
        folder, device="cpu", num_threads=1, framework="numpy", **arguments
    ) as loader:
        for images, labels, keys in loader:
            digests = [hashlib.sha256(pixels.tobytes()).hexdigest()[:12] for pixels in images]
            samples += zip(labels.tolist(), keys, digests, strict=True)
    return samples


def check_index(
    shard: str, case: Case, folder: Path, stored: Callable[[Any], list[tuple[bytes, int]]]
) -> None:
    """Index, verify and load a shard, and compare it with other readers.

    Args:
        shard: the name of the shard.
        case: the shard, and the options of `index`.
        folder: where it goes.
        stored: returns images and labels as another reader finds them, from the components that the
            manifest states. `None` for a label: there is none to compare.

    """
    options = json.loads(case["options"])
    data = write_case({shard: case[shard]}, folder / "data")
    indexed = command("index", data, "--workers", 1, *options, writable=[data])
    require((data / shard).read_bytes() == case[shard], "index changed the shard")
    if indexed.status and not (data / "manifest.json").exists():
        require(len(list(data.iterdir())) == 1, f"index failed, but left {list(data.iterdir())}")
        return
    # Without validation, `index` reads no padding and no image, but `verify` does.
    statuses = (0, 1) if "none" in options else (0,)
    command("verify", data, "--workers", 1, writable=[], statuses=statuses)
    samples = load(data)
    is_unread = "none" in options and shard.endswith(".tfrecord")  # with a checksum of each image
    if not is_complete(indexed) or is_unread:
        return
    components = json.loads((data / "manifest.json").read_bytes())["components"]
    path = (data / shard).with_suffix(".parquet")
    rows = pq.read_table(path, use_threads=False).to_pylist()
    found = []
    for row in rows:
        found.append((case[shard][row["offset"] :][: row["size"]], row["label"]))
    expected = stored(components)
    require(sorted(image for image, _ in found) == sorted(image for image, _ in expected),
            f"{len(found)} samples, but another reader finds {len(expected)}")  # fmt: skip
    if all(label is not None for _, label in expected):
        require(sorted(found) == sorted(expected), "the table has other labels than the shard")
        index = path.with_suffix(".idx")
        read = read_with_dali([data / shard], [index], components["image"], components["label"])
        shifted = [(image, label + components["label_offset"]) for image, label in read]
        require(sorted(shifted) == sorted(expected), "DALI reads other samples")
    if "decode" in options:
        require(isinstance(samples, list), f"index says complete, but the loader fails: {samples}")
    if isinstance(samples, list):
        labels = [label for label, _, _ in samples]
        require(labels == [row["label"] for row in rows], f"other labels: {samples}")


def is_complete(outcome: Outcome) -> bool:
    """Return whether `convert` or `index` ended with success."""
    if (outcome.status == 0) != outcome.stdout.endswith("is complete\n"):
        raise Fault(f"exit status {outcome.status}, but the output is {outcome.stdout[-300:]!r}")
    return outcome.status == 0


def require(holds: object, message: str) -> None:
    """Raise `Fault` unless the property holds."""
    if not holds:
        raise Fault(message)
