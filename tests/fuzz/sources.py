"""Surfaces of sources: `convert` reads files that are mutated, and each sample is compared with the source."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

import pyarrow.parquet as pq

import loaders
from fuzz.checks import Case, command, guarded, is_complete, require, write_case

#: Options that change how images are stored.
STORED = (
    [], [], ["--fmt", "webdataset"], ["--resize-shorter", "8"],
    ["--store", "raw", "--raw-size", "8"],
)  # fmt: skip

#: The fields of labels of each type; see `loaders.dataset.fields`.
_FIELDS = {
    "class": ["label"], "multi-label": ["labels"], "regression": ["values"], "caption": ["caption"],
    "captions": ["caption"], "boxes": ["boxes", "box_labels", "box_counts"], "mask": ["mask"],
    "depth": ["depth"],
}  # fmt: skip


class Made(NamedTuple):
    """What `convert` made.

    Attributes:
        rows: the rows of all sample tables, each with the stored image as ``"data"``.
        manifest: the manifest.
        rejected: the rows of the list of rejected images.
        options: the options of the case.
        is_complete: whether `convert` ended with success.

    """

    rows: list[dict[str, Any]]
    manifest: dict[str, Any]
    rejected: list[dict[str, str]]
    options: list[str]
    is_complete: bool


class Source:
    """A surface: one kind of source.

    Args:
        make: returns the files of a source, some of them mutated, and perhaps its options.
        oracle: compares what was made with the case.
        ways: more options, of which each case has one.

    """

    def __init__(
        self,
        make: Callable[[Random], Case],
        oracle: Callable[[Case, Made], None],
        ways: Sequence[Sequence[str]] = STORED,
    ) -> None:
        self._make, self._oracle, self._ways = make, oracle, ways

    def make(self, rng: Random) -> Case:
        """Return the files of a source, and the options."""
        case = self._make(rng)
        options = [*json.loads(case.get("options", b"[]")), *rng.choice(self._ways)]
        return {**case, "options": json.dumps(options).encode()}

    def check(self, case: Case, folder: Path) -> None:
        """Convert, verify and load, and compare with the oracle."""
        files = {name: data for name, data in case.items() if name != "options"}
        src, out = write_case(files, folder / "source"), folder / "out"
        options = json.loads(case["options"])
        words = [src / word if word in files else word for word in options]
        words = words if "--src" in options else ["--src", src, *words]
        words += [] if "--validate" in options else ["--validate", "decode"]
        converted = command("convert", *words, "--out", out, "--workers", 1, writable=[out])
        if converted.status == 2:
            require(not out.exists(), "exit status 2, but the output folder exists")
        if not (out / "manifest.json").exists():
            return
        decode = ["--decode"] * ("header" not in options)
        command("verify", out, *decode, "--workers", 1, writable=[], statuses=(0,))
        made = _read(out, options, is_complete(converted))
        self._oracle(case, made)
        if made.is_complete and decode and made.manifest["splits"]:
            name, split = next(iter(made.manifest["splits"].items()))
            loaded = guarded(lambda: _epoch(out, name, made.manifest), writable=[])
            require(isinstance(loaded, int), f"convert says complete, but the loader: {loaded}")
            stored = sum(shard["samples"] for shard in split["shards"])
            require(loaded == stored, f"the loader returns {loaded} samples")


def each_row(check: Callable[[Case, dict[str, Any], Made], None]) -> Callable[[Case, Made], None]:
    """Return an oracle that looks at one row after the other."""

    def oracle(case: Case, made: Made) -> None:
        for row in made.rows:
            check(case, row, made)

    return oracle


def _read(out: Path, options: list[str], complete: bool) -> Made:
    rows = []
    for path in sorted(out.glob("*.parquet")):
        (shard,) = out.glob(f"{path.stem}.t*")
        content = shard.read_bytes()
        for row in pq.read_table(path, use_threads=False).to_pylist():
            rows.append({**row, "data": content[row["offset"] :][: row["size"]]})
    rejected = out / "rejected.jsonl"
    lines = rejected.read_text().splitlines() if rejected.exists() else []
    manifest = json.loads((out / "manifest.json").read_bytes())
    return Made(rows, manifest, [json.loads(line) for line in lines], options, complete)


def _epoch(out: Path, split: str, manifest: dict[str, Any]) -> int:
    """Return the number of samples of a split, read with the field of their labels."""
    fields = _FIELDS.get(manifest.get("label_type", "class"), ["key"])
    with loaders.build(
        out, split=split, fields=("image", *fields, "index"), transforms=[{"Resize": {"size": [8, 8]}}],
        batch_size=3, device="cpu", num_threads=1, shuffle=False, last_batch="partial", framework="numpy",
    ) as loader:  # fmt: skip
        return sum(len(batch[-1]) for batch in loader)
