"""Any bytes give a size or `Rejected` with a known reason; a truncated image is never kept."""

from __future__ import annotations

import time
from typing import get_args

import pytest
from helpers.bad_images import IMAGES_TO_MUTATE
from helpers.examples import examples
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dataprep.images.base import EXTENSIONS, REASONS, ImageInfo, Rejected
from dataprep.images.validate import check_image
from dataprep.options import MAX_PIXELS, Validation

TIME_LIMIT = 2.0  # seconds of the CPU, for one image of a few KB


def validate(data: bytes, validation: str, max_pixels: int = MAX_PIXELS) -> ImageInfo | None:
    start = time.thread_time()
    try:
        info = check_image(data, validation, max_pixels)
    except Rejected as error:
        info, rejected = None, error
    assert time.thread_time() - start < TIME_LIMIT
    if info is None:
        assert rejected.reason in REASONS
        assert isinstance(rejected.detail, str)
    else:
        assert info.format in EXTENSIONS
        assert info.width > 0 < info.height
        assert info.width * info.height <= max_pixels
    return info


WEBP = tuple(b"RIFF....WEBPVP8" + end for end in (b"X", b"L", b" "))
MAGIC = (b"\xff\xd8\xff", b"\x89PNG\r\n\x1a\n", *WEBP, b"BM", b"II*\0", b"MM\0*")
quick = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow], derandomize=True)


@settings(quick, max_examples=examples(300))
@given(st.one_of(st.just(b""), *map(st.just, MAGIC)), st.binary(max_size=200))
def test_random_bytes(magic, rest):
    for validation in get_args(Validation):
        validate(magic + rest, validation, 1 << 20)


@pytest.mark.parametrize("number", range(len(IMAGES_TO_MUTATE)))
def test_every_truncation(number):
    """A truncated image is never kept."""
    data = IMAGES_TO_MUTATE[number]
    kept = [
        length for length in range(0, len(data), 5) if validate(data[:length], "header") is not None
    ]
    assert kept == []
