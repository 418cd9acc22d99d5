"""Any bytes give a size or `Rejected` with a known reason, and DALI decodes what validation keeps."""

from __future__ import annotations

import time
from typing import get_args

import pytest
from helpers.bad_images import IMAGES_TO_MUTATE
from helpers.examples import examples
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dataprep.images.base import EXTENSIONS, REASONS, ImageInfo, Rejected
from dataprep.images.downscale import prepare
from dataprep.images.validate import check_image
from dataprep.options import MAX_PIXELS, Downscale, Options, Raw, Validation

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


@st.composite
def mutated(draw):
    """A real image with random changes: bytes set, a part removed, a part repeated, the end cut off."""
    data = bytearray(draw(st.sampled_from(IMAGES_TO_MUTATE)))
    for _ in range(draw(st.integers(1, 4))):
        at = draw(st.integers(0, len(data)))
        kind = draw(st.sampled_from(["set", "word", "remove", "repeat", "truncate"]))
        if kind == "set" and at < len(data):
            data[at] = draw(st.integers(0, 255))
        elif kind == "word":
            data[at : at + 4] = draw(
                st.sampled_from([b"\xff" * 4, bytes(4), b"\x7f\xff\xff\xff", b"\0\0\0\x01"])
            )
        elif kind == "remove":
            del data[at : at + draw(st.integers(1, 64))]
        elif kind == "repeat":
            data[at:at] = data[at : at + 64]
        else:
            del data[at:]
    return bytes(data)


@settings(quick, max_examples=examples(800))
@given(
    mutated(),
    st.sampled_from(
        [{"downscale": Downscale(shorter=9)}, {"raw": Raw(9)}, {"raw": Raw(30, "pad")}]
    ),
)
def test_mutated_images_through_prepare(data, change):
    try:
        stored = prepare(data, Options(max_pixels=1 << 22, **change))
    except Rejected as error:
        stored, rejected = None, error
    if stored is None:
        assert rejected.reason in REASONS
    elif "raw" in change:
        assert len(stored.data) == 3 * change["raw"].size ** 2
    else:
        validation = "header" if stored.data is data else "decode"
        assert check_image(stored.data, validation).width == stored.info.width


@pytest.mark.parametrize("number", range(len(IMAGES_TO_MUTATE)))
def test_every_truncation(number):
    """A truncated image is never kept."""
    data = IMAGES_TO_MUTATE[number]
    kept = [
        length for length in range(0, len(data), 5) if validate(data[:length], "header") is not None
    ]
    assert kept == []
