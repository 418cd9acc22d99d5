"""Names of hiding parts of an image. It must never know DALI."""

from __future__ import annotations

from typing import Any

from loaders.transforms.base import check_bool, check_choice
from loaders.transforms.masks import Cutout, GridMask, HideAndSeek, KeepPart, RandomErasing
from loaders.transforms.parse.registry import Note, Parsed, height_width, number, numbers, pair, register
from manifests.errors import CallError

_PADDLE = ("EPSILON", "sl", "sh", "r1", "mean", "attempt", "use_log_aspect", "mode")
_TORCH = ("p", "scale", "ratio", "value", "inplace")


@register("RandomErasing")
def random_erasing(
    EPSILON: Any = None,
    sl: Any = None,
    sh: Any = None,
    r1: Any = None,
    mean: Any = None,
    attempt: int | None = None,
    use_log_aspect: bool | None = None,
    mode: str | None = None,
    p: Any = None,
    scale: Any = None,
    ratio: Any = None,
    value: Any = None,
    inplace: bool | None = None,
) -> Parsed:
    """Hide a part: by PaddleClas' arguments, the first eight, or by torchvision's, the last five."""
    given = {name: argument for name, argument in locals().items() if argument is not None}
    theirs = [name for name in _TORCH if name in given]
    ours = [name for name in _PADDLE if name in given]
    if theirs and ours:
        raise CallError(
            f"{ours[0]} is PaddleClas' argument and {theirs[0]} torchvision's", hint="write those of one library"
        )
    for name in ("use_log_aspect", "inplace"):
        check_bool(name, given.get(name, False))
    yield _torch_erasing(given) if theirs else _paddle_erasing(given)


def _paddle_erasing(given: dict[str, Any]) -> RandomErasing:
    least = number(given.get("r1", 0.3), "r1")
    modes: Any = {"const": "constant", "rand": "color", "pixel": "pixels"}
    mode = given.get("mode", "const")
    check_choice("mode", mode, modes)
    if least <= 0:
        raise CallError(f"r1 must be above 0, got {given['r1']!r}")
    return RandomErasing(
        probability=number(given.get("EPSILON", 0.5), "EPSILON"),
        area=(number(given.get("sl", 0.02), "sl"), number(given.get("sh", 0.4), "sh")),
        ratio=(min(least, 1 / least), max(least, 1 / least)),
        log_ratio=given.get("use_log_aspect", False),
        attempts=given.get("attempt", 100),
        mode=modes[mode],
        fill=numbers(given.get("mean", (0, 0, 0)), "mean"),  # type: ignore[arg-type]
    )


def _torch_erasing(given: dict[str, Any]) -> RandomErasing:
    value = given.get("value", 0)
    noise = value == "random"
    if noise:
        value = 0
    return RandomErasing(
        probability=number(given.get("p", 0.5), "p"),
        area=pair(given.get("scale", (0.02, 0.33)), "scale"),
        ratio=pair(given.get("ratio", (0.3, 3.3)), "ratio"),
        log_ratio=True,
        attempts=10,
        mode="pixels" if noise else "constant",
        fill=_three(value, "value"),
    )


@register("Cutout")
def cutout(n_holes: int = 1, length: int = 112, fill_value: Any = (0, 0, 0)) -> Parsed:
    """Hide squares; a `fill_value` of none, or the text, draws a colour for each."""
    random = fill_value is None or fill_value == "none"
    yield Cutout(n_holes, length, None if random else _three(fill_value, "fill_value"))
    if random:
        yield Note("PaddleClas' holes reach one pixel further to the right and the bottom; here their side is length")
    else:
        yield Note("PaddleClas fails or does nothing when given a colour; here the squares are filled with it")


@register("GridMask")
def grid_mask(
    d1: int = 96, d2: int = 224, rotate: int = 1, ratio: float = 0.5, mode: int = 0, prob: float = 1.0
) -> Parsed:
    """Blacken a grid: with mode 0 its lines, with mode 1 the squares between them."""
    if mode not in (0, 1):
        raise CallError(f"mode must be 0 or 1, got {mode!r}")
    if not (isinstance(d1, int) and isinstance(d2, int) and 2 <= d1 < d2):
        raise CallError(f"d1 and d2 must be whole numbers of at least 2, the lesser first, got {d1!r} and {d2!r}")
    yield GridMask((d1, d2 - 1), rotate, number(ratio, "ratio"), "squares" if mode else "lines", number(prob, "prob"))
    yield Note("PaddleClas raises the probability with the epoch, from 0; here it is prob from the beginning")


@register("HideAndSeek")
def hide_and_seek() -> Parsed:
    """Blacken random cells of a grid of 16, 32, 44 or 56 pixels, or none."""
    yield HideAndSeek()
    yield Note("where an image is no square, PaddleClas takes its width for its height; here its whole is covered")


@register("CropWithPadding")
def crop_with_padding(
    prob: float = 1,
    padding_num: float = 0,
    size: Any = 224,
    scale: Any = (0.08, 1.0),
    ratio: Any = (3 / 4, 4 / 3),
    interpolation: str = "bilinear",
    key: Any = None,
) -> Parsed:
    """Keep a random part where it is and fill the rest; `size` and `interpolation` change nothing, for none resizes."""
    height_width(size)
    if key is not None:
        raise CallError(f"key is not offered, got {key!r}", hint="leave it out")
    if not isinstance(interpolation, str):
        raise CallError(f"interpolation must be a text, got {interpolation!r}")
    yield KeepPart(
        area=pair(scale, "scale"),
        ratio=pair(ratio, "ratio"),
        fill=number(padding_num, "padding_num"),
        probability=number(prob, "prob"),
    )


def _three(value: Any, name: str) -> tuple[float, float, float]:
    found = numbers(value, name) if isinstance(value, (list, tuple)) else (number(value, name),)
    if len(found) not in (1, 3):
        raise CallError(f"{name} must be one number or three, got {value!r}")
    red, green, blue = found * (3 // len(found))
    return red, green, blue
