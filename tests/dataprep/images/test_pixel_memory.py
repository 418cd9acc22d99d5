"""The processes of an engine hold a bounded number of decoded pixels."""

from __future__ import annotations

import io
import multiprocessing
import os

import numpy as np
import pytest
from PIL import Image

from dataprep.images import base, downscale
from dataprep.images.base import ImageInfo
from dataprep.options import Options, Raw

WIDTH, HEIGHT = 2048, 1152
PIXELS = WIDTH * HEIGHT * 4


@pytest.fixture
def shared():
    file = base.create_pixel_file()
    base.share_pixel_file(file)
    yield
    base.share_pixel_file(None)
    os.close(file)


@pytest.fixture(scope="module")
def png():
    row = np.linspace(0, 255, WIDTH * 3).astype(np.uint8).reshape(1, WIDTH, 3)
    out = io.BytesIO()
    Image.fromarray(np.repeat(row, HEIGHT, 0)).save(out, "PNG", compress_level=1)
    return out.getvalue()


def prepare_counting(data, log):
    """Prepare an image, and append to a file how the bytes of pixels that are held change."""
    decode, resample = downscale.decode, downscale.resample

    def counting_decode(*arguments):
        os.write(log, b"%d\n" % PIXELS)
        return decode(*arguments)

    def counting_resample(*arguments, **options):
        result = resample(*arguments, **options)
        os.write(log, b"%d\n" % -PIXELS)
        return result

    downscale.decode, downscale.resample = counting_decode, counting_resample
    for _ in range(2):
        downscale.prepare(data, Options(raw=Raw(256, "pad")))


def test_eight_processes_hold_few_images(png, shared, tmp_path, monkeypatch):
    monkeypatch.setattr(base, "PIXEL_MEMORY", 2 * PIXELS + 1)
    log = os.open(tmp_path / "log", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    context = multiprocessing.get_context("fork")
    processes = [context.Process(target=prepare_counting, args=(png, log)) for _ in range(8)]
    for process in processes:
        process.start()
    for process in processes:
        process.join(60)
    os.close(log)
    assert [process.exitcode for process in processes] == [0] * 8
    changes = [int(line) for line in (tmp_path / "log").read_text().split()]
    assert len(changes) == 32
    assert max(np.cumsum(changes)) <= base.PIXEL_MEMORY


def test_an_image_above_the_limit_waits_for_all_others(shared, monkeypatch):
    monkeypatch.setattr(base, "PIXEL_MEMORY", 3 * PIXELS)
    taken = []
    monkeypatch.setattr(
        base.fcntl, "lockf", lambda file, command, *place: taken.append((command, *place))
    )
    with base.pixels_of(ImageInfo("png", 2 * WIDTH, 2 * HEIGHT)):
        pass
    lock, unlock = taken
    assert lock[1:] == unlock[1:] == (3 * PIXELS, 0)
