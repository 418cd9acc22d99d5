"""Fixtures: a picture to encode."""

from __future__ import annotations

import pytest
from PIL import Image


@pytest.fixture(scope="session")
def picture() -> Image.Image:
    """A photograph of 512 x 512 pixels."""
    return Image.fromarray(pytest.importorskip("skimage.data").astronaut())
