"""Every command and every Python example of the README and of the docs runs as printed."""

from __future__ import annotations

import json
import re
import runpy
import shlex
import shutil
import warnings
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import NamedTuple

import click
import numpy as np
import pydicom.examples
import pytest
import tifffile
from helpers import make_sources, oracles
from helpers.datasets import write_csv
from helpers.pictures import encode, photo
from helpers.tables import write_table
from helpers.warm_python import WarmPython

from dataprep.commands.base import main

ROOT = Path(__file__).parents[2]
PACKAGES = ("manifests", "dataprep", "loaders")
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]

CONFIG = """
Arch: {name: Tiny, class_num: 4}
DataLoader:
  Train:
    dataset:
      transform_ops:
        - DecodeImage: {to_rgb: True, channel_first: False}
        - RandCropImage: {size: 224}
        - RandFlipImage: {flip_code: 1}
        - NormalizeImage: {scale: 1.0/255.0, mean: [0.485, 0.456, 0.406], std: [0.229, 0.224, 0.225], order: ''}
      batch_transform_ops:
        - OpSampler: {MixupOperator: {alpha: 0.8, prob: 0.5}, CutmixOperator: {alpha: 1.0, prob: 0.5}}
    sampler: {name: DistributedBatchSampler, batch_size: 8, drop_last: False, shuffle: True}
"""

BLOCK = re.compile(
    r"(?:^<!-- not run: (?P<reason>.+?) -->\n)?^```(?P<language>\w+)\n(?P<code>.*?)^```",
    re.M | re.S,
)

#: Commands in blocks that run, which need no test: they come before anything of ours is installed.
SHELL = ("git clone", "pip install", "scripts/demo", "scripts/test", "scripts/fuzz")


#: The batch size of the examples, as in training, and one for the few pictures here.
BATCH, SMALL_BATCH = "256", "4"


class Block(NamedTuple):
    """A fenced code block: its language, its text, and why it does not run (empty if it does)."""

    language: str
    code: str
    reason: str


def blocks(page: Path) -> Iterator[Block]:
    for match in BLOCK.finditer(page.read_text("utf-8")):
        yield Block(match["language"], match["code"], match["reason"] or "")


def commands(block: Block) -> list[str]:
    return [line.removeprefix("$ ") for line in block.code.splitlines() if line.startswith("$ ")]


@pytest.fixture(scope="module")
def sources(make_photos, tmp_path_factory) -> Path:
    """Everything that a reader of the docs has in the folder where the commands are typed."""
    folder = tmp_path_factory.mktemp("docs")
    photos = make_photos(folder / "photos", 40, classes=4)
    for split in ("train", "val"):
        make_photos(folder / "birds" / split, 6)
    images = make_photos(folder / "images", 6)
    names = [str(path.relative_to(folder)) for path in sorted(images.glob("*/*"))]
    lines = [f"{name} {number % 2}\n" for number, name in enumerate(names)]
    (folder / "list.txt").write_text("".join(lines))
    columns = {
        "path": names,
        "label": ["cat", "dog"] * 3,
        "split": ["train"] * 4 + ["val"] * 2,
        "age": range(6),
    }
    for kind in (".csv", ".jsonl"):
        write_table(folder, kind, columns)
    people = [path.relative_to(folder) for path in sorted(photos.glob("*/*"))]
    rows = [(path, f"person {n % 20}", f"camera {n % 3}") for n, path in enumerate(people)]
    write_csv(folder / "people.csv", "path,identity,camera", rows)
    (folder / "withdrawn.txt").write_text("class 0/00000.jpg\n")
    (folder / "cars").mkdir()
    for number in range(6):
        name = f"cars/{number // 2:04d}_c{number % 2}_{number}.jpg"
        (folder / name).write_bytes(encode(photo(number)))
    make_sources.hugging_face(folder / "beans", make_sources.VALID)
    for kind in ("zip", "tar"):
        make_archive = getattr(make_sources, f"{kind}_archive")
        make_archive(folder / "archives", make_sources.VALID).src.rename(folder / f"photos.{kind}")
        (folder / "archives").rmdir()
    make_sources.imagenet_tars(folder / "imagenet", make_sources.VALID)
    for name, make in (("recordio", "recordio"), ("caffe", "caffe_lmdb"), ("lsun", "lsun_lmdb")):
        getattr(make_sources, make)(folder / name, make_sources.VALID)
    make_market(folder / "Market-1501")
    make_tiles(folder)
    make_label_tables(folder)
    (folder / "DeiT_tiny_patch16_224.yaml").write_text(CONFIG)
    return folder


def make_label_tables(folder: Path) -> None:
    """Write tables with labels of every type, next to images."""
    photos = sorted(path.relative_to(folder) for path in (folder / "photos").rglob("*.jpg"))
    tags = ("cat", "cat|dog", "dog", "")
    numbers = range(len(photos))
    for name, columns, values in (
        ("tags", "label", [(tags[number % 4],) for number in numbers]),
        ("faces", "age", [(18 + number % 60,) for number in numbers]),
        ("points", "x,y", [(number / 7, number / 3) for number in numbers]),
        ("captions", "caption", [(f"a photo of number {number}",) for number in numbers]),
        ("celebs", "Smiling,Eyeglasses", [(number % 2, number // 2 % 2) for number in numbers]),
    ):
        rows = [(path, *row) for path, row in zip(photos, values, strict=True)]
        write_csv(folder / f"{name}.csv", f"path,{columns}", rows)
    lines = []
    for number, path in enumerate(photos):
        texts = [f"a photo of number {number}", f"number {number}, from the left"]
        row = {"path": str(path), "captions": texts, "weights": [0.75, 0.25]}
        lines.append(json.dumps(row))
    (folder / "clip.jsonl").write_text("\n".join(lines))
    (folder / "flat").mkdir()
    for path in photos[:8]:
        shutil.copy(folder / path, folder / "flat" / f"{path.parent.name}-{path.name}")


def make_tiles(folder: Path) -> None:
    """Write Sentinel-2 tiles of 13 bands, and the slices of a CT."""
    rng = np.random.default_rng(0)
    for number in range(24):
        tile, slices = (folder / f"{name}/class{number % 4}" for name in ("sentinel", "series"))
        tile.mkdir(parents=True, exist_ok=True)
        slices.mkdir(parents=True, exist_ok=True)
        pixels = rng.integers(0, 4000, (64, 64, 13), np.uint16)
        kind = {"photometric": "minisblack", "planarconfig": "contig"}
        tifffile.imwrite(tile / f"{number}.tif", pixels, compression="zlib", **kind)
        shutil.copy(pydicom.examples.get_path("ct"), slices / f"{number}.dcm")


def make_market(folder: Path) -> None:
    splits = {"bounding_box_train": range(1, 17), "query": (20, 21), "bounding_box_test": (20, 21)}
    for split, identities in splits.items():
        (folder / split).mkdir(parents=True)
        for identity in identities:
            for number in range(4):
                name = f"{identity:04d}_c{number % 2 + 1}s1_{number:06d}_00.jpg"
                (folder / split / name).write_bytes(encode(photo(identity, 64, 128)))


def make_shards(folder: Path, arguments: list[str]) -> None:
    """Write shards of another tool, as the arguments of `dataprep index` expect them."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    images = [encode(photo(number)) for number in range(8)]
    if "image_raw" in arguments:
        features = [{"image_raw": image, "image/label": 1 + n} for n, image in enumerate(images)]
        oracles.write_tfrecord(folder / "a.tfrecord", map(oracles.make_example, features))
        return
    files = []
    for number, image in enumerate(images):
        label = f'{{"category_id": {number}}}' if "--label-key" in arguments else f"{number}"
        suffix = "json" if "--label-key" in arguments else "cls"
        files += [(f"{number}.jpg", image), (f"{number}.{suffix}", label.encode())]
    oracles.write_tar(folder / "a.tar", files)


DATASETS = {
    "photos-tfrecord": "photos",
    "web-photos-tfrecord": "photos",
    "people-tfrecord": "people.csv",
    "Market-1501-tfrecord": "Market-1501",
}


@pytest.fixture
def folder(sources, tmp_path, monkeypatch) -> Path:
    shutil.copytree(sources, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def prepare_datasets(text: str, folder: Path, dataprep: Callable) -> None:
    """Make the datasets that a text names, unless they exist."""
    for name, source in DATASETS.items():
        if name in text and not (folder / name).exists():
            options = ["--val-fraction", "0.1"] if source == "photos" else []
            options += ["--label-column", "identity"] if source == "people.csv" else []
            done = dataprep("convert", "--src", source, "--out", name, *options, cwd=folder)
            assert done.returncode == 0, done.stderr


@pytest.fixture
def programs(warm, python) -> dict[str, WarmPython]:
    """Run the commands, with the modules that most of them import."""
    warm.executable("dataprep.report.make", "pyarrow.compute")
    python.executable("pyarrow.compute", "pyarrow.parquet")
    return {"dataprep": warm, "loaders": python}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_example_runs_as_printed(page, folder, dataprep, programs):
    prepare = partial(prepare_datasets, folder=folder, dataprep=dataprep)
    for block in blocks(page):
        if block.reason:
            continue
        if block.language == "console":
            for line in commands(block):
                run_command(line, folder, prepare, programs)
        elif block.language == "python":
            prepare(block.code)
            run_python(block.code, folder)
        elif block.language == "bash":
            parse_commands(block.code)
        else:
            assert block.language in ("text", "yaml"), (
                f"{page.name}: {block.language} is not tested"
            )

    if page.name == "README.md":
        made = {path.parent.name for path in folder.glob("*/manifest.json")}
        named = "photos-tfrecord photos-webdataset photos-256 photos-raw shards"
        assert made >= {*named.split()}


def parse_commands(code: str) -> None:
    """Parse the commands of a block that cannot run here, because it needs a bucket or a cluster."""
    for line in code.splitlines():
        found = re.search(r"(?:^|srun )dataprep (.+)", line)
        if found:
            text = found[1].replace("$SLURM_CPUS_PER_TASK", "8")
            name, *arguments = shlex.split(text, comments=True)
            program = click.Context(main, **main.context_settings)
            command = main.get_command(program, name)
            assert command is not None, line
            command.make_context(name, arguments, parent=program)


def run_command(
    line: str, folder: Path, prepare: Callable[[str], None], programs: dict[str, WarmPython]
) -> None:
    program, *arguments = shlex.split(line, comments=True)
    if program not in programs:
        assert line.startswith(SHELL), f"not tested: {line}"
        return
    if arguments[0] == "index":
        make_shards(folder / "shards", arguments)
    elif "--src" in arguments and arguments[arguments.index("--src") + 1].rstrip("/") in DATASETS:
        prepare(arguments[arguments.index("--src") + 1])
    elif arguments[0] != "convert":
        prepare(line)
    if program == "loaders" and arguments[0] in ("bench", "tune"):
        arguments += ["--seconds", "0.01", "--repeats", "1"]  # what a reader waits a minute for
        if "--batch-size" not in arguments:
            arguments += ["--batch-size", BATCH]
        arguments = [SMALL_BATCH if each == BATCH else each for each in arguments]
    done = programs[program].run("-m", program, *arguments, cwd=folder, timeout=600)
    assert done.returncode == 0, f"{line}\n{done.stdout}{done.stderr}"
    assert "Traceback" not in done.stderr, f"{line}\n{done.stderr}"
    if arguments[0] in ("convert", "index") and "--dry-run" not in arguments:
        made = done.stdout.splitlines()[-1].partition(" is ")[0]  # complete, or at a revision
        assert (folder / made / "manifest.json").is_file(), line


def run_python(code: str, folder: Path) -> None:
    program = folder / "example.py"
    program.write_text(code.replace(f"batch_size={BATCH}", f"batch_size={SMALL_BATCH}"))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        runpy.run_path(str(program), run_name="__main__")


def test_every_command_is_shown():
    printed = [block for page in PAGES for block in blocks(page)]
    shown = {line.split()[1] for block in printed for line in commands(block) if " " in line}
    named = "convert index verify info report memory preview bench tune"
    assert shown >= {*named.split()}


def messages() -> list[str]:
    """Fixed parts of messages that the headings of the troubleshooting page quote."""
    headings = re.findall(
        r"^### (.*)$", (ROOT / "docs/troubleshooting.md").read_text("utf-8"), re.M
    )
    return [quoted for heading in headings for quoted in re.findall(r"`(.+?)`", heading)]


def test_the_troubleshooting_page_quotes_messages_that_exist():
    code = "\n".join(
        path.read_text("utf-8") for package in PACKAGES for path in (ROOT / package).rglob("*.py")
    )
    texts = re.sub(r'"\s*\n?\s*f?"', "", code)  # joins the parts of long messages
    assert [message for message in messages() if message not in texts] == []
    assert len(messages()) > 20
