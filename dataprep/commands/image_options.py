"""The options of `dataprep convert` that say what a stored image is, and what is printed of them; nothing else."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import reduce
from typing import TYPE_CHECKING, Any

import click

from dataprep.humanize import count, size
from manifests.errors import CallError

if TYPE_CHECKING:
    from dataprep.convert import ConvertResult, Trial
    from dataprep.options import Downscale, Options, Raw
    from dataprep.plan import ShardPlan
    from dataprep.sources import Source

_OPTIONS = (
    click.option(
        "--resize-shorter", type=click.IntRange(1), metavar="N", help="Shrink to N pixels on the shorter side."
    ),
    click.option("--max-side", type=click.IntRange(1), metavar="N", help="Shrink to N pixels on the longer side."),
    click.option(
        "--only-above",
        type=click.IntRange(1),
        metavar="N",
        help="Leave images alone whose shorter side (with --max-side only, the longer) has at most N pixels.",
    ),
    click.option("--quality", type=click.IntRange(1, 100), help="Of a resized image's JPEG.  [default: 90]"),
    click.option(
        "--subsampling",
        type=click.Choice(["keep", "444", "422", "420"]),
        help="Of its chroma; keep: as in the source, 444 if that is no JPEG.  [default: keep]",
    ),
    click.option(
        "--filter",
        type=click.Choice(["lanczos", "bicubic", "bilinear", "box"]),
        help="For resizing.  [default: lanczos]",
    ),
    click.option(
        "--store",
        type=click.Choice(["encoded", "raw"]),
        default="encoded",
        show_default=True,
        help="JPEG, PNG, ...; or pixels of one size, which need no decoding and much more disk.",
    ),
    click.option(
        "--raw-size", type=click.IntRange(1, 4096), metavar="N", help="Raw images have N x N pixels.  [default: 256]"
    ),
    click.option(
        "--raw-fit",
        type=click.Choice(["crop", "pad"]),
        help="Resize to cover the square and crop at the centre, or to fit in and pad with black.  [default: crop]",
    ),
)


def options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command the options of this file."""
    return reduce(lambda function, option: option(function), reversed(_OPTIONS), command)


def read(call: dict[str, Any]) -> tuple[Downscale | None, Raw | None]:
    """Make of a call's options what is to be done to images.

    Raises:
        CallError: one would do nothing, or contradicts another.

    """
    from dataprep.options import Downscale, Raw

    resize = [name for name in ("resize_shorter", "max_side") if call[name] is not None]
    if call["store"] == "raw":
        others = (*resize, "only_above", "quality", "subsampling")
        _refuse(call, others, "does not go with --store raw", "say how large images are to be with --raw-size")
        return None, Raw(**_given(call, size="raw_size", fit="raw_fit", filter="filter"))
    _refuse(call, ("raw_size", "raw_fit"), "goes with --store raw", "add that, or leave it out")
    encoding = ("only_above", "quality", "subsampling", "filter")
    if not resize:
        _refuse(call, encoding, "goes with --resize-shorter or --max-side", "say how large images are to be")
        return None, None
    least = call["resize_shorter"] or call["max_side"]
    if call["only_above"] is not None and call["only_above"] < least:
        raise CallError(
            f"--only-above {call['only_above']} is less than {_named(resize[0])} {least}, and changes nothing",
            hint="leave it out, or raise it",
        )
    names = {name: name for name in encoding}
    return Downscale(**_given(call, shorter="resize_shorter", longest="max_side", **names)), None


def _given(call: dict[str, Any], **names: str) -> dict[str, Any]:
    return {field: call[name] for field, name in names.items() if call[name] is not None}


def _refuse(call: dict[str, Any], names: Sequence[str], why: str, hint: str) -> None:
    given = next((name for name in names if call[name] is not None), None)
    if given:
        raise CallError(f"{_named(given)} {call[given]} {why}", hint=hint)


def _named(name: str) -> str:
    return f"--{name.replace('_', '-')}"


# --- before -------------------------------------------------------------------------------------


def costs(source: Source, shards: Sequence[ShardPlan], options: Options, trial: Trial) -> str:
    """Say in one line what the images alone take of a disk, stored in each of the ways that there are."""
    from dataprep.convert import try_some
    from dataprep.options import Downscale, Raw

    rows = [shard.rows for shard in shards]
    images, came = sum(map(len, rows)), sum(int(source.size[some].clip(min=0).sum()) for some in rows)
    downscale, raw = options.downscale or Downscale(shorter=256), options.raw or Raw()
    if not options.downscale:
        trial = try_some(source, shards, replace(options, downscale=downscale, raw=None))
    sides = {"--resize-shorter": downscale.shorter, "--max-side": downscale.longest}
    resize = " ".join(f"{name} {side}" for name, side in sides.items() if side)
    pixels = f"--store raw --raw-size {raw.size}"
    return (
        f"disk: {size(came)} as the images came; about {size(trial.stored * images)} with {resize}, by "
        f"{trial.tried:,} of them; {size(math.prod(raw.pixels) * images)} with {pixels}"
    )


# --- after --------------------------------------------------------------------------------------

_REPAIRS = {
    "turned": "turned upright",
    "rgb": "colours brought to RGB",
    "alpha": "transparency dropped",
    "icc": "colour profile applied",
}


def table(result: ConvertResult) -> Iterator[str]:
    """Give the lines of a table that says what was done to the images of a dataset, by one run or several."""
    altered = [counts for change, counts in result.changes.items() if change]
    rows = {
        "kept": result.changes.get("", (0, 0, 0)),
        "resized": tuple(map(sum, zip(*altered, strict=True))) if altered else (0, 0, 0),
    }
    before, after = (sum(counts[column] for counts in rows.values()) for column in (1, 2))
    yield f"{'':10}{'images':>12}{'before':>12}{'after':>12}"
    for name, (images, came, stored) in rows.items():
        yield f"{name:10}{images:>12,}{size(came):>12}{size(stored):>12}"
    yield f"{'rejected':10}{result.rejected:>12,}{size(result.bytes - before):>12}{'-':>12}"
    yield f"{'all':10}{result.images:>12,}{size(result.bytes):>12}{size(after):>12}"
    repaired = {word: _changed(result, word) for word in _REPAIRS}
    told = ", ".join(f"{_REPAIRS[word]} {number:,}" for word, number in repaired.items() if number)
    if told:
        yield f"repaired: {count(_changed(result, *_REPAIRS), 'image')} ({told})"


def _changed(result: ConvertResult, *words: str) -> int:
    """Count images to which one of these was done."""
    return sum(counts[0] for change, counts in result.changes.items() if set(words) & set(change.split()))
