"""What ``loaders preview`` does."""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable
from typing import Any

from loaders.preview.preview import GENERATOR, SOFTWARE, Preview, encoder
from loaders.samplers import ClassBalancedSampler, PKSampler
from manifests.errors import CallError
from manifests.process.options import check_output_file
from manifests.process.text import printable

_PK = re.compile(r"(\d{1,6})x(\d{1,6})", re.ASCII)

#: Images of a batch that shows how classes are balanced.
_BALANCED_BATCH = 64


def make_preview(
    build: Callable[..., Any],
    dataset: str,
    *,
    samples: int,
    draws: int | None,
    pk: str | None,
    balanced: bool,
    by: str,
    batch_size: int | None,
    threshold: float | None,
    **options: Any,
) -> Preview:
    """Build a loader with `loaders.build`, which is above this package, and return its preview.

    `options` are other arguments of `loaders.build`.

    Raises:
        CallError: an option is wrong, or two options contradict each other.
        DamagedError: the dataset is damaged.

    """
    sampler, batch = _sampler(pk, by, batch_size, threshold, balanced=balanced)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about the speed of training, which is not the subject
        loader = build(
            dataset,
            fields=("image",),  # a preview names the labels of every type itself
            sampler=sampler,
            batch_size=batch,
            last_batch="pad",
            rank=0,
            world_size=1,
            **options,
        )
    # The preview is complete when it is returned, so the loader can be closed.
    with loader:
        preview: Preview = loader.preview(samples, draws)
        return preview


def _sampler(
    pk: str | None, by: str, batch_size: int | None, threshold: float | None, *, balanced: bool
) -> tuple[Any, int]:
    """Return the sampler that the options name, and the size of its batch."""
    if pk is not None and balanced:
        raise CallError("--pk and --balanced cannot be combined", hint="give one of them")
    if balanced:
        return (
            ClassBalancedSampler(by=by, threshold=threshold),
            batch_size or _BALANCED_BATCH,
        )
    # An option without effect would look as if it had one.
    if batch_size is not None:
        raise CallError(
            "--batch-size is for --balanced", hint="leave it out; --pk gives the size of its batch"
        )
    if threshold is not None:
        raise CallError("--threshold is for --balanced", hint="leave it out, or add --balanced")
    if pk is None:
        return None, 1
    match = _PK.fullmatch(pk)
    if match is None or not int(match[1]) or not int(match[2]):
        raise CallError(
            f"--pk {printable(pk)} is not two numbers such as 8x4",
            hint="give P and K with an x between",
        )
    identities = int(match[1])
    per_identity = int(match[2])
    return PKSampler(identities, per_identity, by=by), identities * per_identity


def check_out(out: str, *, overwrite: bool) -> None:
    """Check that the file may be written, before the work begins.

    Raises:
        CallError: its kind is not known, its folder does not exist, or another file has its name.

    """
    encoder(out)
    check_output_file(out, "preview", (GENERATOR.encode(), SOFTWARE.encode()), overwrite=overwrite)
