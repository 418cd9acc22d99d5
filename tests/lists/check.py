"""Compare a range of lists; each process runs some ranges."""

from __future__ import annotations

import importlib
import random
import tempfile
import warnings
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lists.compare import SIZES, Outcome, compare, make_dataset

#: How often each kind of dataset is drawn.
_WEIGHTS = {"tiny": 3, "small": 5, "square": 3, "usual": 3, "large": 0.3}


@dataclass(frozen=True, slots=True)
class Range:
    """The lists of a library with a seed, from one number to another."""

    library: str
    seed: int
    first: int
    last: int


@dataclass(frozen=True, slots=True)
class Result:
    """A list and how it went."""

    number: int
    text: str
    outcome: Outcome
    used: tuple[tuple[str, str], ...]


def check(part: Range) -> list[Result]:
    """Draw and compare the lists of a range."""
    warnings.filterwarnings("ignore", module="torchvision")
    draw = importlib.import_module(f"lists.{part.library}").draw
    results = []
    with tempfile.TemporaryDirectory() as folder:
        datasets: dict[str, Any] = {}
        for number in range(part.first, part.last):
            rng = random.Random(f"{part.library}/{part.seed}/{number}")
            kind = rng.choices([*SIZES], [_WEIGHTS[name] for name in SIZES])[0]
            try:
                case = draw(rng, kind)
            except (ValueError, TypeError, AssertionError) as error:
                # The library does not take the arguments.
                results.append(Result(number, "", Outcome("both refused", str(error)), ()))
                continue
            if kind not in datasets:
                datasets[kind] = make_dataset(Path(folder), kind)
            outcome = compare(case, *datasets[kind])
            results.append(Result(number, f"{kind} {case.text}", outcome, tuple(case.used)))
    return results


def count_used(results: list[Result]) -> Counter[tuple[str, str]]:
    """Return how often each name and argument was drawn."""
    used: Counter[tuple[str, str]] = Counter()
    for result in results:
        used.update(result.used)
    return used
