"""The canary: equal on equal machines, and refused wherever a library would write other bytes."""

from __future__ import annotations

from dataclasses import replace

import PIL
import pyarrow.parquet
import pytest
import simplejpeg

from dataprep import canary as canary_module
from dataprep.canary import canary, check_canary
from manifests.errors import ExitStatus, StoppedError


@pytest.fixture(autouse=True)
def recompute():
    """Compute the canary again in every test, and forget what the test made of it."""
    canary.cache_clear()
    yield
    canary.cache_clear()


def refusal(expected) -> str:
    canary.cache_clear()
    with pytest.raises(StoppedError, match="Hint: ") as caught:
        check_canary(expected)
    assert caught.value.status == ExitStatus.STOPPED
    return str(caught.value)


def test_another_version_is_refused_and_named_even_if_the_pictures_are_equal(monkeypatch):
    expected = canary()
    monkeypatch.setattr(PIL, "__version__", "1.1.7")
    made = f"made with Pillow {expected.versions['Pillow']}, but this machine has Pillow 1.1.7"
    assert made in refusal(expected)


encode, write = simplejpeg.encode_jpeg, pyarrow.parquet.write_table
#: As if libjpeg-turbo took another path on another CPU: one JPEG differs in one bit; and a table.
OTHER_BYTES = {
    "simplejpeg.encode_jpeg": lambda image, *more: encode(image ^ (image == image.max()), *more),
    "pyarrow.parquet.write_table": lambda *call, **more: write(*call, **more, version="1.0"),
}


@pytest.mark.parametrize("function", OTHER_BYTES)
def test_other_bytes_are_refused_although_the_versions_are_equal(function, monkeypatch):
    expected = canary()
    monkeypatch.setattr(function, OTHER_BYTES[function])
    assert "the versions are equal" in refusal(expected)


def test_other_cpus_that_give_the_same_bytes_are_accepted(monkeypatch):
    expected = canary()
    monkeypatch.setattr(canary_module, "_cpu_level", lambda: "aarch64")
    canary.cache_clear()
    check_canary(expected)
    assert "CPU aarch64" in refusal(replace(expected, digest="another"))
