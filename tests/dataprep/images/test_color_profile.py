"""A color profile cannot cost more than its limit of stages, wherever the stages share their data."""

from __future__ import annotations

from contextlib import suppress

import numpy as np
import pytest
from helpers.color_profiles import curves, matrix, multi_stage_profile
from helpers.pictures import encode, photo
from hypothesis import given
from hypothesis import strategies as st

from dataprep.images.base import MAX_PROFILE_STAGES, Rejected
from dataprep.images.pixels import check_stages, decode
from dataprep.images.validate import check_image, parse_header
from dataprep.options import Downscale, Options, Raw
from dataprep.shards.source_image import load_image

CHANGES = pytest.mark.parametrize(
    "change", [{"downscale": Downscale(shorter=9)}, {"raw": Raw(9)}], ids=["resize", "raw"]
)
KINDS = pytest.mark.parametrize("kind", ["JPEG", "PNG", "WEBP", "TIFF"])


@KINDS
@CHANGES
@pytest.mark.parametrize(
    ("count", "elements"),
    [(100_000, [matrix(), curves(1)]), (3, [curves(30_000)]), (402, [matrix(), curves(1)])],
    ids=["stages", "segments", "just above"],
)
def test_too_many_stages_are_rejected(count, elements, change, kind, tmp_path):
    image = encode(photo(5), kind, icc_profile=multi_stage_profile(count, elements))
    assert check_image(image, "header").width  # an image that is stored unchanged keeps its profile
    (tmp_path / "image").write_bytes(image)
    with pytest.raises(
        Rejected, match=f"too-large: a color profile of over {MAX_PROFILE_STAGES} processing stages"
    ):
        load_image(str(tmp_path), "image", len(image), Options(**change))


@KINDS
def test_a_profile_with_few_stages_is_applied(kind):
    image = encode(photo(5), kind, icc_profile=multi_stage_profile(4, [matrix(), curves(2)]))
    plain = encode(photo(5), kind)
    decoded, unchanged = (decode(data, parse_header(data), 9, 9) for data in (image, plain))
    assert decoded.repairs == ("icc",)
    assert (np.asarray(decoded.image) != np.asarray(unchanged.image)).any()


@given(st.binary(max_size=400))
def test_damaged_profiles_raise_nothing_else(data):
    profile = multi_stage_profile(4, [matrix(), curves(2)])
    for damaged in (
        data,
        profile[: len(data)],
        profile[: 128 + len(data)] + data,
        profile[:132] + data,
    ):
        with suppress(Rejected):
            check_stages(damaged)
