"""Columns of captions, of names of classes and of several labels in a cell, as people write them."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence

_NOUNS = [
    "man", "woman", "dog", "cat", "horse", "bus", "train", "kite", "pizza", "laptop", "bench",
    "clock", "vase", "bird", "boat", "child",
]  # fmt: skip
_VERBS = ["holding", "riding", "watching", "near", "behind", "under", "beside", "chasing"]
_COLORS = ["red", "blue", "green", "small", "large", "old", "wooden", "shiny"]
_PLACES = ["street", "beach", "kitchen", "park", "table", "field", "room", "river"]


def _sentences(rows: int, make: Callable[[random.Random], str], seed: int = 1) -> list[str]:
    rng = random.Random(seed)
    return [make(rng) for _ in range(rows)]


def _coco(rng: random.Random) -> str:
    return (
        f"A {rng.choice(_COLORS)} {rng.choice(_NOUNS)} {rng.choice(_VERBS)} a {rng.choice(_NOUNS)}"
        f" on the {rng.choice(_PLACES)}."
    )


def _short(rng: random.Random) -> str:
    return f"{rng.choice(_COLORS)} {rng.choice(_NOUNS)}"


def _two(rng: random.Random) -> str:
    return f"{_coco(rng)} {_coco(rng)}"


#: Captions, and texts such as names that are one label each.
CAPTIONS: Mapping[str, Sequence[str]] = {
    "COCO": _sentences(200, _coco),
    "COCO, many": _sentences(5000, _coco),
    "COCO, few": _sentences(8, _coco),
    "lower case": [text.lower().rstrip(".") for text in _sentences(300, _coco)],
    "two sentences": _sentences(100, _two),
    "commas": [text.replace(" on", ", on").replace("A ",
        "Here, a ") for text in _sentences(100, _coco)],
    "template": [f"a photo of number {number}" for number in range(50)],
    "template of classes": [f"a photo of a {noun}" for noun in _NOUNS] * 9,
    "short": _sentences(60, _short),
    "short, repeated": [f"{color} {noun}" for color in _COLORS[:3] for noun in _NOUNS[:3]] * 20,
    "question": [f"what is the {color} {noun} doing?" for color,
        noun in zip(_COLORS * 4, _NOUNS * 2, strict=True)],
    "German": [f"Ein {noun} steht neben einem Baum und schaut auf das Wasser" for noun in _NOUNS] * 4,
    "Chinese": ["一只猫坐在桌子上", "一个人在海边骑马", "两只狗在草地上奔跑"] * 10,
    "breeds": ["golden retriever", "labrador retriever", "beagle", "german shepherd",
        "basset hound", "english setter"] * 50,
    "dog and hot dog": ["dog", "hot dog", "cat", "pizza", "apple pie"] * 40,
    "ImageNet": ["tench, Tinca tinca", "goldfish, Carassius auratus",
        "great white shark, white shark", "hen"] * 25,
    "people": ["Ada Lovelace", "Alan Turing", "Grace Hopper", "Alan Kay", "John McCarthy",
        "Barbara Liskov"] * 10,
    "cars": ["Audi A4 Sedan 2012", "Audi TT Coupe 2011", "BMW X5 SUV 2007",
        "Ford Focus Sedan 2007"] * 30,
    "file names": [f"IMG_{number:04} (copy) final v2" for number in range(40)],
    "dates": [f"2021 {month:02} {day:02}" for month in range(1, 5) for day in range(1, 9)],
    "and": ["bread and butter", "salt and pepper", "black & white", "rock & roll", "R&B"] * 8,
    "fractions": [f"{a}/{b}" for a in range(1, 4) for b in range(5, 12)],
}  # fmt: skip


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
