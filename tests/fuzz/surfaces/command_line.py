"""Command lines of ``dataprep``: any options with any values, and paths that are no regular files or folders."""

from __future__ import annotations

import json
import os
from pathlib import Path
from random import Random

import click

from dataprep.commands.base import main
from fuzz import mutate
from fuzz.checks import Case, command, require, write_case
from fuzz.seeds import dataset, images, table

#: Paths that `_make_files` makes.
_PATHS = (
    *["source", "source/list.csv", "source/list.csv/x", "source/list.txt", "source/classes.txt"],
    *["empty", "missing", "tfrecord", "webdataset", "shards", "tfrecord/train-00000.tfrecord"],
    *["webdataset/train-00000.tar", "tfrecord/manifest.json", "fifo", "fifo.csv", "fifo.tar"],
    *[
        "zero", "zero.tar", "zero.parquet", "loop", "broken", "odd", "deep", "out", "out/a/b",
        "to-source",
    ],
    *["source/out", "to-source/out", ".", "..", "-", "~", "/dev/null"],
    *("", "x" * 300, "x\0y", "\udcff", "line\nfeed"),
)  # fmt: skip

_VALUES = (
    *[
        "0", "1", "2", "8", "-1", "1.5", "100", "1e3", "0.5", "1/2", "1/0", "50%", "nan", "inf",
        "1KiB", "0B", "tfrecord", "webdataset",
    ],
    *[
        "none", "header", "decode", "raw", "encoded", "lanczos", "bicubic", "420", "444", "path",
        "label", "identity", "split",
    ],
    *["train", "val", "{identity}_c{camera}s*", "{", "{}", "{a}{b}", "{label}*", "[", "train/../x"],
    *["image/encoded", "jpg", "cls", "json"],
    *("1 MB", "*" * 30, "a" * 300, "1" + " " * 9_000 + "/2", "x y", "9" * 30),
)  # fmt: skip

_DATASETS = {kind: dataset(kind) for kind in ("tfrecord", "webdataset")}


def make(rng: Random) -> Case:
    context = click.Context(main)
    name = rng.choice(main.list_commands(context))
    parameters = main.get_command(context, name).params
    options = [each for each in parameters if isinstance(each, click.Option) and not each.hidden]
    words = [name, "--workers", "1"] if name != "info" else [name]
    if name == "convert":
        words += ["--src", _usual_path(rng, name), "--out", rng.choice(("out", "out", _path(rng)))]
    else:
        words += [_usual_path(rng, name) for _ in range(rng.choice((1, 1, 1, 1, 2)))]
    for option in mutate.pick(rng, options, 3) if rng.random() < 0.8 else []:
        words.append(rng.choice(option.opts))
        if not option.is_flag and rng.random() < 0.97:
            words.append(_value(rng, option))
    return {
        "arguments": json.dumps([word.replace("\0", "") for word in words]).encode()
    }  # a word cannot contain NUL


def _path(rng: Random) -> str:
    return rng.choice(_PATHS[:12]) if rng.random() < 0.5 else rng.choice(_PATHS)


#: Commands and the paths that they work with.
_USUAL = {
    "convert": ("source", "source/list.csv", "source/folders"),
    "index": ("shards", "shards", "webdataset"),
}


def _usual_path(rng: Random, name: str) -> str:
    usual = _USUAL.get(name, ("tfrecord", "webdataset"))
    return rng.choice(usual) if rng.random() < 0.6 else _path(rng)


def _value(rng: Random, option: click.Option) -> str:
    choice = rng.random()
    if isinstance(option.type, click.Choice) and choice < 0.7:
        return str(rng.choice(option.type.choices))
    if option.name == "workers":
        return rng.choice(("1", "0", "x"))  # more workers are processes that start slowly
    if isinstance(option.type, (click.IntRange, click.FloatRange)) and choice < 0.6:
        return rng.choice(("0", "1", "2", "8", "0.5"))
    if choice < 0.25:
        return _path(rng)
    return rng.choice(_VALUES) if choice < 0.9 else mutate.odd_text(rng)[:9_000]


def _make_files(folder: Path) -> None:
    lists = {"list.csv": table(), "classes.txt": "cat\ndog\nowl\n"}
    lists["list.txt"] = "".join(f"{name} 0\n" for name in images())
    source = write_case(images(), folder / "source")
    for name, text in lists.items():
        (source / name).write_text(text)
    write_case(images(), source / "folders" / "cat")
    for kind, files in _DATASETS.items():
        write_case(files, folder / kind)
    shards = {name: data for name, data in _DATASETS["webdataset"].items() if name.endswith(".tar")}
    write_case(shards, folder / "shards")
    # Files of odd kinds where images and files of a dataset should be.
    odd = write_case({"class/a.jpg": next(iter(images().values()))}, folder / "odd")
    for name in ("fifo", "fifo.csv", "fifo.tar", "odd/class/b.jpg", "odd/manifest.json"):
        os.mkfifo(folder / name)
    links = dict.fromkeys(("zero", "zero.tar", "zero.parquet", "odd/class/c.jpg"), "/dev/zero")
    links |= {"loop": "loop", "broken": "nowhere", "to-source": "source"}
    links |= {"odd/class/d.jpg": "d.jpg", "odd/class/up": ".."}
    for name, target in links.items():
        (folder / name).symlink_to(target)
    (odd / "class/e.jpg").mkdir()
    (folder / "empty").mkdir()
    (folder / "deep" / "/".join(["d"] * 100)).mkdir(parents=True)


def _snapshot(folder: Path) -> dict[str, tuple[int, int, int]]:
    """Return mode, size and time of everything below a folder, without following links."""
    found = {}
    for parent, folders, files in os.walk(folder):
        for name in (*folders, *files):
            path = os.path.join(parent, name)
            status, is_folder = os.lstat(path), os.path.isdir(path)
            time = 0 if is_folder else status.st_mtime_ns
            found[path] = (status.st_mode, status.st_size, time)
    return found


def check(case: Case, folder: Path) -> None:
    words = json.loads(case["arguments"])
    work = folder / "work"
    work.mkdir()
    _make_files(work)
    os.chdir(work)
    before = _snapshot(work)
    outcome = command(*words, writable=[folder])  # OUT may be ".."
    after = _snapshot(work)
    if outcome.status == 2 or words[0] in ("verify", "info"):
        changed = sorted(name for name, _ in before.items() ^ after.items())
        require(not changed, f"exit status {outcome.status}, but files are changed: {changed}")
    gone = before.keys() - after.keys()
    images_gone = [name for name in gone if name.endswith((".jpg", ".png", ".webp"))]
    require(not images_gone, f"images are gone: {images_gone}")
    require(outcome.status == 0 or outcome.stdout + outcome.stderr, "a status without a message")
