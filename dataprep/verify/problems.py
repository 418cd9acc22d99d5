"""What `verify` finds: one problem, and a bounded list of problems."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from manifests.errors import DamagedError

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
        return str(
            DamagedError(
                self.message, file=self.file, record=self.record, byte=self.byte, hint=self.hint
            )
        )


class ProblemList:
    """Keeps the first problems of each file, and counts all.

    Attributes:
        kept: at most `MAX_PER_FILE` problems of each file, in the order in which they were found.
        counts: the number of all problems of each file, by its name.

    """

    def __init__(self) -> None:
        self.kept: list[Problem] = []
        self.counts: Counter[str] = Counter()

    def add(self, problems: Iterable[Problem]) -> None:
        """Count problems, and keep those that are among the first of their file."""
        for problem in problems:
            self.counts[problem.file] += 1
            if self.counts[problem.file] <= MAX_PER_FILE:
                self.kept.append(problem)
