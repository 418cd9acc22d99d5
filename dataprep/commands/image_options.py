"""The options of ``dataprep convert`` that check images and change them: smaller images, or raw pixels."""

from __future__ import annotations

from collections.abc import Mapping
from typing import get_args

import click

from dataprep.commands.sections import section
from dataprep.images.base import MAX_PIXELS, Validation
from dataprep.options import Downscale, Filter, Fit, Raw, Subsampling
from manifests.errors import CallError
from manifests.schema import Store

_DOWNSCALE, _RAW = Downscale(), Raw()
add_image_options = section(
    "Images",
    click.option(
        "--validate",
        type=click.Choice(get_args(Validation)),
        default="header",
        show_default=True,
        help="none: do not check the images. header: check the header and the end of each image. decode: also decode "
        "every image.",
    ),
    click.option(
        "--max-pixels",
        type=click.IntRange(1),
        metavar="N",
        default=MAX_PIXELS,
        show_default=True,
        help="Reject images with more than N pixels, which may be decompression bombs. A value above the default also "
        "accepts small files with very many pixels.",
    ),
    click.option(
        "--resize-shorter",
        type=click.IntRange(1),
        metavar="N",
        help="Shrink images until the shorter side has at most N pixels.",
    ),
    click.option(
        "--max-side",
        type=click.IntRange(1),
        metavar="N",
        help="Shrink images until the longer side has at most N pixels.",
    ),
    click.option(
        "--only-above",
        type=click.IntRange(1),
        metavar="N",
        help="Do not resize images whose shorter side (with only --max-side: longer side) has at most N pixels.",
    ),
    click.option(
        "--quality",
        type=click.IntRange(1, 100),
        metavar="N",
        help=f"JPEG quality of resized images.  [default: {_DOWNSCALE.quality}]",
    ),
    click.option(
        "--subsampling",
        type=click.Choice(get_args(Subsampling)),
        help="Chroma subsampling of resized images. keep: the same as the source JPEG, or 444 for other formats.  "
        f"[default: {_DOWNSCALE.subsampling}]",
    ),
    click.option(
        "--filter",
        type=click.Choice(get_args(Filter)),
        help=f"Resampling filter of resized and raw images.  [default: {_DOWNSCALE.filter}]",
    ),
    click.option(
        "--store",
        type=click.Choice(get_args(Store)),
        default="encoded",
        show_default=True,
        help="encoded: image files such as JPEG or PNG. raw: decoded pixels, all images of one size, which "
        "need no decoding when they are read, but far more disk space.",
    ),
    click.option(
        "--raw-size",
        type=click.IntRange(1, 4096),
        metavar="N",
        help=f"With --store raw: store images of N x N pixels.  [default: {_RAW.size}]",
    ),
    click.option(
        "--raw-fit",
        type=click.Choice(get_args(Fit)),
        help="How raw images become square. crop: resize to cover the square, then center crop. pad: resize to fit, "
        "then pad with black.  "
        f"[default: {_RAW.fit}]",
    ),
)


def resolve_images(
    *,
    store: Store,
    resize_shorter: int | None,
    max_side: int | None,
    only_above: int | None,
    quality: int | None,
    subsampling: Subsampling | None,
    resampling: Filter | None,
    raw_size: int | None,
    raw_fit: Fit | None,
) -> tuple[Downscale | None, Raw | None]:
    """Combine the image options; `None` means that an option was not given.

    Returns:
        How to shrink images, or the size of raw pixels. At most one of the two is set.

    Raises:
        CallError: an option has no effect with the other options, or contradicts one of them.

    """
    resize = {"--resize-shorter": resize_shorter, "--max-side": max_side}
    encoding = {"--only-above": only_above, "--quality": quality, "--subsampling": subsampling}
    raw = {"--raw-size": raw_size, "--raw-fit": raw_fit}
    if store == "raw":
        _reject(
            {**resize, **encoding}, "cannot be used with --store raw", "leave it out; --raw-size sets the image size"
        )
        return None, Raw(raw_size or _RAW.size, raw_fit or _RAW.fit, resampling or _RAW.filter)
    _reject(raw, "requires --store raw", "add --store raw, or leave the option out")
    side = resize_shorter or max_side
    if side is None:
        _reject(
            {**encoding, "--filter": resampling},
            "requires --resize-shorter or --max-side",
            "set the size of the stored images with one of them",
        )
        return None, None
    if only_above is not None and only_above < side:
        name = "--resize-shorter" if resize_shorter else "--max-side"
        raise CallError(
            f"--only-above {only_above} is less than {name} {side}, so it has no effect",
            hint="leave --only-above out, or set a larger value",
        )
    return (
        Downscale(
            resize_shorter,
            max_side,
            only_above,
            quality or _DOWNSCALE.quality,
            subsampling or _DOWNSCALE.subsampling,
            resampling or _DOWNSCALE.filter,
        ),
        None,
    )


def _reject(options: Mapping[str, object], reason: str, hint: str) -> None:
    for name, value in options.items():
        if value is not None:
            raise CallError(f"{name} {value} {reason}", hint=hint)
