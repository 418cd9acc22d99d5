"""The README's `dataprep` commands, run as printed, in order, beside a small `photos/`, `cars/` and so on."""

from __future__ import annotations

import io
import json
import re
import shlex
import shutil
import tarfile
from pathlib import Path

import pytest
from helpers import oracles
from helpers.pictures import encode, photo

README = Path(__file__).parents[2] / "README.md"


def commands() -> list[str]:
    """Give the lines after a prompt in console blocks that need neither ImageNet nor anything but `dataprep`."""
    blocks = re.findall(r"^```console\n(.*?)^```", README.read_text("utf-8"), re.MULTILINE | re.DOTALL)
    lines = [line.removeprefix("$ ") for block in blocks for line in block.splitlines() if line.startswith("$ ")]
    return [line for line in lines if line.startswith("dataprep ") and "ILSVRC" not in line]


def write_tar(path: Path, files: dict[str, bytes]) -> None:
    with tarfile.open(path, "w", format=tarfile.USTAR_FORMAT) as archive:
        for name, data in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(data)
            archive.addfile(member, io.BytesIO(data))


def make_shards(folder: Path, arguments: list[str]) -> None:
    """Make somebody's shards anew, such as the arguments of `dataprep index` ask for."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    images = [encode(photo(number)) for number in range(3)]
    if "image_raw" in arguments:
        features = [{"image_raw": image, "image/label": 1 + label} for label, image in enumerate(images)]
        oracles.write_tfrecord(folder / "a.tfrecord", map(oracles.make_example, features))
        return
    files = {}
    for number, image in enumerate(images):
        label = json.dumps({"category_id": number}).encode() if "--label-key" in arguments else b"%d" % number
        files |= {f"{number}.jpg": image, f"{number}.json" if "--label-key" in arguments else f"{number}.cls": label}
    write_tar(folder / "a.tar", files)


@pytest.fixture
def folder(make_photos, tmp_path):
    """What the README's reader has in the folder where the commands are typed."""
    photos = make_photos(tmp_path / "photos", 30)
    rows = [f"{path.relative_to(tmp_path)},person {n // 2},camera {n % 3}" for n, path in enumerate(photos.glob("*/*"))]
    (tmp_path / "cars").mkdir()
    for number in range(6):
        (tmp_path / f"cars/{number // 2:04d}_c{number % 2}_{number}.jpg").write_bytes(encode(photo(number)))
    (tmp_path / "people.csv").write_text("\n".join(["path,identity,camera", *rows]) + "\n")
    return tmp_path


def test_every_command_does_as_printed(folder, dataprep):
    seen = set()
    for line in commands():
        arguments = shlex.split(line, comments=True)[1:]
        if arguments[0] == "index":
            make_shards(folder / "shards", arguments)
        done = dataprep(*arguments, cwd=folder)
        assert (done.returncode, "Traceback" in done.stderr) == (0, False), f"{line}\n{done.stdout}{done.stderr}"
        seen.add(arguments[0])
    assert seen >= {"convert", "index", "verify", "info"}
    made = {path.parent.name for path in folder.glob("*/manifest.json")}
    assert made >= {"photos-tfrecord", "photos-webdataset", "people-tfrecord", "shards"}
