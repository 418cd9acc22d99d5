"""Whatever the bytes: a size, or `Rejected` with a known reason; and DALI decodes what decoding kept."""

from __future__ import annotations

import json
import pickle
import random
import subprocess
import sys
import time

import pytest
from helpers import HELPERS
from helpers.bad_images import CASES_TO_MUTATE
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dataprep.images.base import EXTENSIONS, MAX_PIXELS, REASONS, VALIDATIONS, ImageInfo, Rejected
from dataprep.images.downscale import prepare
from dataprep.images.validate import inspect
from dataprep.options import Downscale, Options, Raw

LIMIT = 2.0  # seconds for one image of a few KB


def judged(data: bytes, validation: str, max_pixels: int = MAX_PIXELS) -> ImageInfo | None:
    begun = time.perf_counter()
    try:
        info = inspect(data, validation, max_pixels)
    except Rejected as error:
        info, rejected = None, error
    assert time.perf_counter() - begun < LIMIT
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


@settings(quick, max_examples=600)
@given(st.one_of(st.just(b""), *map(st.just, MAGIC)), st.binary(max_size=200), st.sampled_from(VALIDATIONS))
def test_random_bytes(magic, rest, validation):
    judged(magic + rest, validation, 1 << 20)


@st.composite
def mutated(draw):
    """A real image with some of: bytes changed, a part cut out, a part doubled, an end cut off."""
    data = bytearray(draw(st.sampled_from(CASES_TO_MUTATE)))
    for _ in range(draw(st.integers(1, 4))):
        at = draw(st.integers(0, len(data)))
        kind = draw(st.sampled_from(["set", "word", "cut", "double", "end"]))
        if kind == "set" and at < len(data):
            data[at] = draw(st.integers(0, 255))
        elif kind == "word":
            data[at : at + 4] = draw(st.sampled_from([b"\xff" * 4, bytes(4), b"\x7f\xff\xff\xff", b"\0\0\0\x01"]))
        elif kind == "cut":
            del data[at : at + draw(st.integers(1, 64))]
        elif kind == "double":
            data[at:at] = data[at : at + 64]
        else:
            del data[at:]
    return bytes(data)


@settings(quick, max_examples=1500)
@given(mutated(), st.sampled_from(VALIDATIONS))
def test_mutated_images(data, validation):
    judged(data, validation, 1 << 22)


@settings(quick, max_examples=800)
@given(mutated(), st.sampled_from([{"downscale": Downscale(shorter=9)}, {"raw": Raw(9)}, {"raw": Raw(30, "pad")}]))
def test_mutated_images_altered(data, altered):
    try:
        stored = prepare(data, Options(max_pixels=1 << 22, **altered))
    except Rejected as error:
        stored, rejected = None, error
    if stored is None:
        assert rejected.reason in REASONS
    elif "raw" in altered:
        assert len(stored.data) == 3 * altered["raw"].size ** 2
    else:
        assert inspect(stored.data, "decode").width == stored.info.width


@pytest.mark.parametrize("number", range(len(CASES_TO_MUTATE)))
def test_every_truncation(number):
    """An image that was cut off is never kept, but for a few last bytes that carry nothing."""
    data = CASES_TO_MUTATE[number]
    kept = [length for length in range(0, len(data), 5) if judged(data[:length], "header") is not None]
    assert kept == []


def not_decoded_by_dali(images: list[bytes]) -> list[tuple[int, str]]:
    """Number each image that ends a DALI pipeline, or the process with it."""
    program = [sys.executable, str(HELPERS / "dali_decodes.py")]
    done = subprocess.run(program, input=pickle.dumps(images), capture_output=True, check=True, timeout=60)
    return json.loads(done.stdout)


@pytest.mark.parametrize("number", range(len(CASES_TO_MUTATE)))
def test_a_flipped_byte_that_decoding_does_not_mind_dali_does_not_mind_either(number):
    """So no image that passed `--validate decode` ends a training run."""
    data, draw = CASES_TO_MUTATE[number], random.Random(number)
    places = sorted({*range(min(64, len(data))), *draw.sample(range(len(data)), min(250, len(data)))})
    flips = [data[:at] + bytes((data[at] ^ 1 << draw.randrange(8),)) + data[at + 1 :] for at in places]
    kept = [(at, image) for at, image in zip(places, flips, strict=True) if judged(image, "decode", 1 << 22)]
    wrong = not_decoded_by_dali([image for _, image in kept])
    assert [(f"byte {kept[number][0]}", what) for number, what in wrong] == [], f"of {len(kept)} kept"
