"""Several labels in a cell, as people write them."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence


def _sentences(rows: int, make: Callable[[random.Random], str], seed: int = 1) -> list[str]:
    rng = random.Random(seed)
    return [make(rng) for _ in range(rows)]


def _combined(names: str, separator: str, most: int, rows: int, seed: int = 2) -> list[str]:
    """Return cells with 1 to `most` of some labels, in any order."""
    rng, labels = random.Random(seed), names.split()
    return [separator.join(rng.sample(labels, rng.randint(1, most))) for _ in range(rows)]


def _planet(rng: random.Random) -> str:
    """A weather, and the ground, as in Planet: no part but one is a cell of its own."""
    if rng.random() < 0.1:
        return "cloudy"
    ground = ["agriculture", "water", "road", "cultivation", "habitation", "bare_ground"]
    weather = rng.choice(("clear", "haze", "partly_cloudy"))
    return " ".join([weather, "primary", *rng.sample(ground, rng.randint(0, 4))])


_PLANTS = "scab healthy frog_eye_leaf_spot rust complex powdery_mildew"

#: Several labels in a cell, and what separates them; `None` for lists.
TAGS: Mapping[str, tuple[Sequence[str], str | None]] = {
    "blanks, few": (["cat dog", "dog", "cat", "cat bird", "bird dog", "bird", "cat dog bird",
        "dog bird", "cat", "dog"], " "),
    "Planet": (_sentences(4000, _planet), " "),
    "Plant Pathology": (_combined(_PLANTS, " ", 3, 500), " "),
    "Human Protein Atlas": (_combined(" ".join(map(str, range(28))), " ", 3, 900), " "),
    "with a number": (_combined("t1 t2 t3 t4 t5", " ", 4, 200), " "),
    "sorted": ([" ".join(sorted(cell.split())) for cell in _combined("a b c d e f", " ", 3, 300)],
        " "),
    "semicolons": (_combined("cat dog bird", ";", 3, 40), ";"),
    "semicolons and blanks": (_combined("cat dog bird", "; ", 3, 40), ";"),
    "commas": (_combined("cat dog bird fox", ",", 2, 80), ","),
    "commas and blanks": (_combined("cat dog bird fox", ", ", 2, 80), ","),
    "names with blanks": ([cell.replace("_", " ") for cell in _combined(_PLANTS, ",", 3, 200)],
        ","),
    "slashes": (_combined("cat dog bird fox", "/", 2, 80), "/"),
    "plus": (_combined("cat dog bird fox", "+", 3, 80), "+"),
    "ampersand": (_combined("cat dog bird fox", " & ", 2, 80), "&"),
    "some without": ([cell if number % 5 else "" for number,
        cell in enumerate(_combined("a b c d", ";", 3, 90))], ";"),
    "one number for each class": (["1 0 0", "0 1 1", "0 0 0", "1 1 1"] * 5, " "),
    "one number for each class, commas": (["1,0", "0,1", "1,1", "0,0"] * 5, ","),
    "JSON": (['["cat", "hot dog"]', '["cat"]', "[]"] * 5, None),
    "Python": (["['cat', 'hot dog']", "['cat']", "[]"] * 5, None),
    "NumPy": (["['cat' 'hot dog']", "['cat']", "[]"] * 5, None),
    "without quotation marks": (["[cat, hot dog]", "[cat]", "[]"] * 5, None),
    "tuples": (["('cat', 'hot dog')", "('cat',)", "()"] * 5, None),
    "sets": (["{'cat', 'hot dog'}", "{'cat'}", "set()"] * 5, None),
}  # fmt: skip
