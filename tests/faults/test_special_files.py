"""A pipe, a device, a socket or a folder in the place of any file that is opened gives an error at once."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner
from helpers.special_files import SPECIAL_FILES, stopped_after

import loaders
from dataprep.commands.base import main
from dataprep.storage.temporary import _RECORD_NAME, PARTIALS_NAME
from manifests.errors import CallError, DamagedError, ShardError
from manifests.schema import FORMAT_NAMES
from manifests.store import manifest_bytes, read_manifest

LOADER = {
    "batch_size": 2, "transforms": [{"ResizeImage": {"size": [16, 16]}}], "device": "cpu",
}  # fmt: skip


def run(*arguments: object) -> tuple[int, str]:
    """Run the command line in this process; return its exit status and its output."""
    with stopped_after():
        result = CliRunner().invoke(main, [str(argument) for argument in arguments])
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result.exit_code, result.output


@pytest.fixture(scope="module")
def photo_folder(make_photos, tmp_path_factory):
    return make_photos(tmp_path_factory.mktemp("source") / "photos", 6, side=24)


@pytest.fixture(scope="module", params=FORMAT_NAMES)
def finished(request, photo_folder, tmp_path_factory):
    """A dataset with a list of rejected images."""
    (photo_folder / "class 0" / "broken.jpg").write_bytes(b"no image")
    out = tmp_path_factory.mktemp("finished") / "out"
    status, output = run(
        "convert", "--src", photo_folder, "--out", out, "--fmt", request.param, "--workers", 1
    )
    assert status == 1, output
    return out


@pytest.fixture
def dataset(finished, tmp_path):
    return Path(shutil.copytree(finished, tmp_path / "out"))


def replace_file(dataset: Path, pattern: str, special: str) -> Path:
    (path,) = dataset.glob(pattern)
    path.unlink()
    SPECIAL_FILES[special](path)
    return path


FILES = {
    "manifest": "manifest.json", "shard": "train-00000.t*", "index": "*.idx",
    "sample table": "*.parquet", "list of rejected images": "rejected.jsonl",
}  # fmt: skip


@pytest.mark.parametrize(
    "special", ["a named pipe", "a socket, linked", "a device", "a folder, linked"]
)
@pytest.mark.parametrize("kind", FILES)
def test_a_file_of_a_dataset(kind, special, dataset, photo_folder):
    again = ("convert", "--src", photo_folder, "--out", dataset, "--workers", 1)
    again += ("--fmt", read_manifest(dataset).format)
    path = replace_file(dataset, FILES[kind], special)
    what = special.removesuffix(", linked")
    reason = f"the {kind} cannot be read: it is {what}, not a regular file"
    calls = [("verify", dataset, "--workers", 1)]
    calls += [("info", dataset)] if kind == "sample table" else []
    for call in calls:
        status, output = run(*call)
        assert status == 1
        assert path.name in output
        assert reason in output
    status, output = run(*again)
    assert status == 2
    assert str(dataset) in output
    fields = ("index", "width") if kind == "sample table" else ("image", "label")
    if kind != "list of rejected images":
        with stopped_after(), pytest.raises(DamagedError) as caught:
            loaders.build(dataset, fields=fields, **LOADER).close()
        assert (caught.value.message, caught.value.file) == (reason, str(path))
    assert run("index", dataset, "--workers", 1)[0] in (0, 1, 2)


CONVERT = ("convert", "--src", "AT", "--out", "OUT")

#: Files that commands read, and the command.
INPUTS = {
    **dict.fromkeys(("list.txt", "table.csv", "table.tsv", "table.parquet"), CONVERT),
    **dict.fromkeys(("train-0.tar", "train-0.tfrecord"), ("index", "AT", "--workers", 1)),
    "classes.txt": (
        "convert", "--src", "LIST", "--image-root", "PHOTOS", "--out", "OUT", "--classes", "AT",
    ),
}  # fmt: skip


@pytest.mark.parametrize("special", SPECIAL_FILES)
@pytest.mark.parametrize("name", INPUTS)
def test_an_input(name, special, photo_folder, tmp_path):
    SPECIAL_FILES[special](tmp_path / name)
    (tmp_path / "images.lst").write_text("class 0/00000.jpg 0\nclass 1/00001.png 1\n")
    words = {"AT": tmp_path / name, "OUT": tmp_path / "out", "LIST": tmp_path / "images.lst"}
    words["PHOTOS"] = photo_folder
    status, output = run(*(words.get(word, word) for word in INPUTS[name]))
    assert status in (1, 2)
    kind = special.removesuffix(", linked")
    assert f"it is {kind}, not a regular file" in output or "folder" in special
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("special", [each for each in SPECIAL_FILES if "folder" not in each])
def test_an_output_folder(special, photo_folder, tmp_path):
    SPECIAL_FILES[special](tmp_path / "out")
    for path in (tmp_path / "out", tmp_path / "out" / "below"):
        status, output = run("convert", "--src", photo_folder, "--out", path)
        assert (status, f"--out {path}" in output) == (2, True)


OUTPUTS = ("manifest.json", ".dataprep/journal.json", "train-00000.idx", "train-00000.parquet")


@pytest.mark.parametrize("name", [*OUTPUTS, f"{PARTIALS_NAME}/{_RECORD_NAME}"])
@pytest.mark.parametrize("special", SPECIAL_FILES)
def test_a_file_in_the_place_of_an_output(name, special, photo_folder, tmp_path):
    (tmp_path / name).parent.mkdir(exist_ok=True, parents=True)
    SPECIAL_FILES[special](tmp_path / name)
    call = ("convert", "--src", photo_folder, "--out", tmp_path, "--workers", 1)
    for overwrite in ((), ("--overwrite",)):
        status, output = run(*call, *overwrite)
        assert status in (0, 1, 2, 3), output
        assert "Traceback" not in output


@pytest.mark.parametrize("special", SPECIAL_FILES)
def test_a_config_file(special, dataset, tmp_path):
    SPECIAL_FILES[special](tmp_path / "config.yaml")
    with stopped_after(), pytest.raises(CallError, match="not a regular file"):
        loaders.build(dataset, **LOADER | {"transforms": str(tmp_path / "config.yaml")})


def test_a_shard_of_no_bytes_is_not_opened(dataset):
    """A manifest may state 0 bytes, which is the length of a named pipe; DALI would wait for it."""
    replace_file(dataset, FILES["shard"], "a named pipe")
    manifest = read_manifest(dataset)
    (split,), (shard,) = manifest.splits, manifest.splits[0].shards
    shard = replace(shard, file=replace(shard.file, bytes=0))
    data = manifest_bytes(replace(manifest, splits=(replace(split, shards=(shard,)),)))
    (dataset / "manifest.json").write_bytes(data)
    with stopped_after(), pytest.raises(ShardError, match="named pipe"):
        loaders.build(dataset, **LOADER)
