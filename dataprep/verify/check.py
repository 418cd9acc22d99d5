"""What to check of a shard, and what `verify` finds: a bounded list of problems."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from functools import lru_cache

from dataprep.formats import FORMATS, RecordFormat
from dataprep.options import MAX_PIXELS
from manifests.errors import DamagedError, ManifestError
from manifests.files import SHARD
from manifests.process.text import shown
from manifests.schema import Manifest, Shard
from manifests.store import read_manifest

#: A damaged table of a million rows has a million problems. The first ones of each file are kept,
#: the rest is counted.
MAX_PER_FILE = 100
MAX_PROBLEMS = 1000


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing that is wrong with a dataset.

    Attributes:
        file: file with the problem, relative to the dataset folder.
        message: what is wrong.
        record: number of the record in the shard, from 0.
        byte: offset in the file.
        hint: how to fix it.

    """

    file: str
    message: str
    record: int | None = None
    byte: int | None = None
    hint: str = ""

    def __str__(self) -> str:
        return str(DamagedError(**asdict(self)))


class ProblemList:
    """Keeps the first problems of each file, and counts all.

    Attributes:
        kept: at most `MAX_PER_FILE` problems of each file, in the order in which they were found.
        counts: the number of all problems of each file, by its name.

    """

    def __init__(self) -> None:
        self.kept: list[Problem] = []
        self.counts: Counter[str] = Counter()

    def add(self, *problems: Problem) -> None:
        """Count problems, and keep the first ones of each file."""
        for problem in problems:
            self.counts[problem.file] += 1
            if self.counts[problem.file] <= MAX_PER_FILE:
                self.kept.append(problem)

    def join(self, lists: Iterable[ProblemList]) -> None:
        """Add the problems of other files."""
        for other in lists:
            self.kept += other.kept
            self.counts += other.counts


# --- what to check ----------------------------------------------------------------------------------


@lru_cache(maxsize=1)
def manifest_of(folder: str) -> Manifest:
    """Read the manifest once per worker process, instead of sending its classes with every task."""
    return read_manifest(folder)


@dataclass(frozen=True, slots=True)
class ShardCheck:
    """A shard to check.

    Attributes:
        folder: the dataset folder.
        shard: the shard with its index and table, from the manifest.
        decode: whether to decode every image.
        given_max_pixels: images with more pixels are not valid; `None` uses the limit in the
            manifest.

    """

    folder: str
    shard: Shard
    decode: bool
    given_max_pixels: int | None

    @property
    def manifest(self) -> Manifest:
        """The manifest of the dataset."""
        return manifest_of(self.folder)

    @property
    def format(self) -> RecordFormat:
        """The record format of the shard."""
        return FORMATS[self.manifest.format]

    @property
    def was_converted(self) -> bool:
        """Whether `dataprep convert` wrote the shard.

        If so, the table row determines every byte around an image.
        """
        return self.manifest.creator == "convert"

    @property
    def converted_max_pixels(self) -> int:
        """The limit that the dataset was converted with, as the manifest states it."""
        limit = self.manifest.options.get("max_pixels")
        return limit if isinstance(limit, int) else MAX_PIXELS

    @property
    def max_pixels(self) -> int:
        """Images with more pixels are not valid.

        The manifest is as untrusted as the images, so only the user can raise the limit above its
        default.
        """
        return self.given_max_pixels or min(self.converted_max_pixels, MAX_PIXELS)

    @property
    def index_hint(self) -> str:
        """How to fix a damaged index or table."""
        if self.was_converted:
            return (
                f"run `dataprep repair {self.folder}`, which rebuilds it from its shard if possible"
            )
        return "run `dataprep index --overwrite` again"

    @property
    def label_key(self) -> str | None:
        """The member of a sample's ``.json`` that contains the label, if ``dataprep index`` was given one."""
        key = self.manifest.options.get("label_key")
        if key is not None and not isinstance(key, str):
            raise ManifestError(
                f"options.label_key of the manifest is not text, but {shown(key)}",
                hint="run `dataprep index --overwrite` again",
            )
        return key

    def path(self, name: str) -> str:
        """Return the path of a file of the dataset."""
        return os.path.join(self.folder, name)

    def shard_problem(
        self, message: str, record: int | None = None, byte: int | None = None
    ) -> Problem:
        """Return a problem of the shard itself."""
        hint = SHARD.hint
        if self.was_converted:
            hint = (
                f"run `dataprep repair {self.folder} --src SRC` with its source to make the shard"
                " again"
            )
        return Problem(self.shard.name, message, record, byte, hint)

    def table_problem(self, message: str, record: int | None = None) -> Problem:
        """Return a problem of the sample table."""
        return Problem(self.shard.table.name, message, record, hint=self.index_hint)
