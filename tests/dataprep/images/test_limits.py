"""A small file cannot cost much memory or time: each bomb has its reason, and a process that reads it stays small."""

from __future__ import annotations

import json
import multiprocessing
import os
import re
from pathlib import Path
from random import Random

import numpy as np
import pytest
from helpers.bad_images import KEPT
from helpers.bombs import bombs, flat_png
from helpers.pictures import encode, photo

from dataprep.images import base, downscale
from dataprep.images.base import ImageInfo, Rejected
from dataprep.images.validate import check_image
from dataprep.options import MAX_PIXELS, Options, Raw
from dataprep.run.convert import convert_dataset
from dataprep.sources import read_source

ROOT = Path(__file__).parents[3]
#: The documented ceiling, in KiB, and the seconds after which a run of all bombs counts as a hang.
#: Pages of libraries that the system maps ahead are part of it: 120 to 150 MiB of a run without
#: large images, by how the libraries lie in the page cache.
MAX_RESIDENT, HANG = 512 * 1024, 600
BOMBS = [*bombs()]


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("bombs") / "images"
    (path / "class").mkdir(parents=True)
    for bomb in BOMBS:
        (path / "class" / bomb.name).write_bytes(bomb.data)
    return path


MODES = {
    "default": (),
    "resize": ("--validate", "decode", "--resize-shorter", "256"),
    "raw": ("--store", "raw", "--raw-size", "64"),
}


@pytest.mark.parametrize("mode", MODES)
def test_convert_stays_below_the_ceiling(mode, folder, run_measured, tmp_path):
    out = tmp_path / "out"
    options = ("--workers", 1, "--max-rejected", 1, *MODES[mode])
    status, resident, output = run_measured("convert", "--src", folder, "--out", out, *options)
    assert status == 0, output
    assert resident < MAX_RESIDENT
    found = {}
    for line in map(json.loads, (out / "rejected.jsonl").read_text().splitlines()):
        found[line["source"].removeprefix("class/")] = line["reason"]
    for bomb in BOMBS:
        expected = bomb.header if mode == "default" else bomb.decode
        assert found.get(bomb.name, KEPT) == expected, bomb.name


def test_verify_stays_below_the_ceiling(folder, run_measured, tmp_path, monkeypatch):
    """`verify` reads shards that another program may have written, so nothing has checked their images."""
    out = tmp_path / "out"
    monkeypatch.setattr("dataprep.shards.write.check_image", lambda *_: ImageInfo("png", 64, 64))
    convert_dataset(read_source(str(folder)), str(out), Options(), workers=1)
    status, resident, output = run_measured("verify", "--decode", "--workers", 1, out)
    assert status == 1
    assert resident < MAX_RESIDENT
    assert "Traceback" not in output
    assert output.count("too-large") == sum(bomb.decode == "too-large" for bomb in BOMBS)


#: Runs `dataprep` in a fork, and prints its peak. A fork does not count pages of libraries that
#: only its parent has used; they are added.
PROGRAM = """
import os, re, resource, runpy
def libraries(process):
    return int(re.search(r"RssFile:\\s+(\\d+) kB", open(f"/proc/{process}/status").read())[1])
def end(status, end=os._exit):
    of_parent = max(0, libraries(os.getppid()) - libraries("self"))
    print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss + of_parent, flush=True)
    end(status)
os._exit = end
runpy.run_module("dataprep", run_name="__main__", alter_sys=True)
"""


@pytest.fixture(scope="module")
def run_measured(warm):
    """A function that runs `dataprep`; it returns status, peak memory in KiB and output."""

    def run(*arguments: object) -> tuple[int, int, str]:
        result = warm.run("-c", PROGRAM, *map(str, arguments), cwd=ROOT, timeout=HANG)
        *output, resident = result.stdout.splitlines()
        return result.returncode, int(resident), "\n".join([*output, result.stderr])

    return run


def test_libtiff_prints_nothing(capfd):
    """libtiff's messages name no image."""
    image = bytearray(encode(photo(5, 24, 16), "TIFF", compression="tiff_lzw"))
    image[38:68] = Random(0).randbytes(30)
    with pytest.raises(Rejected, match="corrupt"):
        check_image(bytes(image), "decode")
    assert capfd.readouterr() == ("", "")


def test_a_larger_max_pixels_accepts_a_flat_image():
    """Above Pillow's own limit, which is twice `MAX_PIXELS` and would raise an error."""
    image = flat_png(19_000, 0)
    with pytest.raises(Rejected, match=f"19000x19000 pixels, but the limit is {MAX_PIXELS}"):
        check_image(image, "decode")
    assert check_image(image, "decode", 400_000_000)[:3] == ("png", 19_000, 19_000)


def test_limits_are_documented():
    """The table of limits in the guide has every limit of `dataprep.images.base`, with its value."""
    guide = (ROOT / "docs" / "convert.md").read_text()
    table = guide[guide.index("| limit |") :].split("\n\n")[0]
    documented = {int(number.replace(",", "")) for number in re.findall(r"\d[\d,]*", table)}
    limits = [name for name in vars(base) if re.match("MAX_|MIN_COUNTED", name)]
    assert len(limits) > 8
    for name in limits:
        value = getattr(base, name)
        assert value in documented or value / (1 << 20) in documented, name
    assert set(base.PIXELS_PER_BYTE.values()) <= documented


WIDTH, HEIGHT = 2048, 1152
PIXELS = WIDTH * HEIGHT * 4


@pytest.fixture
def shared():
    file = base.create_pixel_file()
    base.share_pixel_file(file)
    yield
    base.share_pixel_file(None)
    os.close(file)


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


def test_eight_processes_hold_few_images(shared, tmp_path, monkeypatch):
    png = encode(np.tile(np.uint8(255), (HEIGHT, WIDTH, 3)), "PNG", compress_level=1)
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
    monkeypatch.setattr(base.fcntl, "lockf", lambda file, command, *place: taken.append(place))
    with base.pixels_of(ImageInfo("png", 2 * WIDTH, 2 * HEIGHT)):
        pass
    assert taken == [(3 * PIXELS, 0)] * 2
