"""The options of ``dataprep convert`` that check images and change them: smaller images, or raw pixels."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import get_args

import click

from dataprep.commands.param_types import Count
from dataprep.commands.sections import option, pass_record, section
from dataprep.images.base import MAX_PIXELS, Validation
from dataprep.options import Downscale, Filter, Fit, Raw, Subsampling
from manifests.errors import CallError
from manifests.schema import Store

_DOWNSCALE, _RAW = Downscale(), Raw()
_IMAGES = section(
    "Images",
    option(
        "--validate",
        type=click.Choice(get_args(Validation)),
        default="header",
        show_default=True,
        help=(
            "none: do not check the images. header: check the header and the end of each image."
            " decode: also decode every image."
        ),
    ),
    option(
        "--max-pixels",
        type=Count(1),
        metavar="N",
        default=MAX_PIXELS,
        show_default=True,
        help=(
            "Reject images with more than N pixels, which may be decompression bombs. A value above"
            " the default also accepts small files with very many pixels."
        ),
    ),
    option(
        "--resize-shorter",
        type=Count(1),
        metavar="N",
        help="Shrink images until the shorter side has at most N pixels.",
    ),
    option(
        "--max-side",
        type=Count(1),
        metavar="N",
        help="Shrink images until the longer side has at most N pixels.",
    ),
    option(
        "--only-above",
        type=Count(1),
        metavar="N",
        help=(
            "Do not resize images whose shorter side (with only --max-side: longer side) has at"
            " most N pixels."
        ),
    ),
    option(
        "--quality",
        type=click.IntRange(1, 100),
        metavar="N",
        help=f"JPEG quality of resized images.  [default: {_DOWNSCALE.quality}]",
    ),
    option(
        "--subsampling",
        type=click.Choice(get_args(Subsampling)),
        help=(
            "Chroma subsampling of resized images. keep: the same as the source JPEG, or 444 for"
            f" other formats.  [default: {_DOWNSCALE.subsampling}]"
        ),
    ),
    option(
        "--filter",
        type=click.Choice(get_args(Filter)),
        help=f"Resampling filter of resized and raw images.  [default: {_DOWNSCALE.filter}]",
    ),
    option(
        "--store",
        type=click.Choice(get_args(Store)),
        default="encoded",
        show_default=True,
        help=(
            "encoded: image files such as JPEG or PNG. raw: decoded pixels, all images of one size,"
            " which need no decoding when they are read, but far more disk space."
        ),
    ),
    option(
        "--raw-size",
        type=click.IntRange(1, 4096),
        metavar="N",
        help=f"With --store raw: store images of N x N pixels.  [default: {_RAW.size}]",
    ),
    option(
        "--raw-fit",
        type=click.Choice(get_args(Fit)),
        help=(
            "How raw images become square. crop: resize to cover the square, then center crop."
            f" pad: resize to fit, then pad with black.  [default: {_RAW.fit}]"
        ),
    ),
)


@dataclass(frozen=True)
class ImageArguments:
    """The values of these options; `None` means that an option was not given."""

    validate: Validation
    max_pixels: int
    resize_shorter: int | None
    max_side: int | None
    only_above: int | None
    quality: int | None
    subsampling: Subsampling | None
    filter: Filter | None
    store: Store
    raw_size: int | None
    raw_fit: Fit | None

    def resolve(self) -> tuple[Downscale | None, Raw | None]:
        """Combine the options.

        Returns:
            How to shrink images, or the size of raw pixels. At most one of the two is set.

        Raises:
            CallError: an option has no effect with the other options, or contradicts one of them.

        """
        resize = {"--resize-shorter": self.resize_shorter, "--max-side": self.max_side}
        encoding = {
            "--only-above": self.only_above,
            "--quality": self.quality,
            "--subsampling": self.subsampling,
        }
        raw = {"--raw-size": self.raw_size, "--raw-fit": self.raw_fit}
        if self.store == "raw":
            hint = "leave it out; --raw-size sets the image size"
            _reject({**resize, **encoding}, "cannot be used with --store raw", hint)
            return None, Raw(
                self.raw_size or _RAW.size, self.raw_fit or _RAW.fit, self.filter or _RAW.filter
            )
        _reject(raw, "requires --store raw", "add --store raw, or leave the option out")
        side = self.resize_shorter or self.max_side
        if side is None:
            hint = "set the size of the stored images with one of them"
            _reject(
                {**encoding, "--filter": self.filter},
                "requires --resize-shorter or --max-side",
                hint,
            )
            return None, None
        if self.only_above is not None and self.only_above < side:
            name = "--resize-shorter" if self.resize_shorter else "--max-side"
            raise CallError(
                f"--only-above {self.only_above} is less than {name} {side}, so it has no effect",
                hint="leave --only-above out, or set a larger value",
            )
        downscale = Downscale(
            self.resize_shorter,
            self.max_side,
            self.only_above,
            self.quality or _DOWNSCALE.quality,
            self.subsampling or _DOWNSCALE.subsampling,
            self.filter or _DOWNSCALE.filter,
        )
        return downscale, None


add_image_options = pass_record("images", ImageArguments, _IMAGES)


def _reject(options: Mapping[str, object], reason: str, hint: str) -> None:
    for name, value in options.items():
        if value is not None:
            raise CallError(f"{name} {value} {reason}", hint=hint)
