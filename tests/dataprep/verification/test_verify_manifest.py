"""`verify --manifest-only` compares the lengths of all files with the manifest, and reads none of them."""

import os
import re

import pytest

from dataprep.options import Options
from dataprep.run.convert import convert_dataset
from dataprep.sources import read_source
from dataprep.verification import verify
from dataprep.verification.verify import verify_manifest
from manifests import store


@pytest.fixture
def out(image_folder, tmp_path):
    out = tmp_path / "out"
    convert_dataset(read_source(str(image_folder)), str(out), Options(shard_samples=2), workers=1)
    return out


class Shown:
    def __init__(self):
        self.total, self.advanced = None, []

    def start(self, images, shards):
        self.total = images, shards

    def advance(self, shard, images):
        self.advanced.append((shard, images))


def test_no_shard_index_or_table_is_opened(out, invoke, monkeypatch):
    def refuse(path, kind):
        raise AssertionError(path)

    monkeypatch.setattr("dataprep.storage.local.open_handle", refuse)
    for name in os.listdir(out):
        if name.endswith((".tfrecord", ".idx", ".parquet")):
            os.truncate(out / name, 0)
            os.truncate(out / name, next(_lengths(out, name)))
    shards = sum(len(split.shards) for split in store.read_manifest(out).splits)
    last = invoke("verify", "--manifest-only", out).stdout.splitlines()[-1]
    assert re.fullmatch(
        rf"no problems in .*: [\d,]+ samples in {shards} shards, whose contents were not read", last
    )


def _lengths(out, name):
    for split in store.read_manifest(out).splits:
        for shard in split.shards:
            for file in (shard.file, shard.index, shard.table):
                if file.name == name:
                    yield file.bytes


@pytest.mark.parametrize("suffix", ["tfrecord", "idx", "parquet"])
@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda path: path.unlink(), "the file cannot be read: No such file or directory"),
        (lambda path: os.truncate(path, 7), r"the file has 7 bytes, but the manifest states \d+"),
        (
            lambda path: (path.unlink(), path.mkdir()),
            "the .* cannot be read: it is a folder, not a regular file",
        ),
        (
            lambda path: (path.unlink(), os.mkfifo(path)),
            "the .* cannot be read: it is a named pipe, .*",
        ),
    ],
)
def test_files_that_are_missing_or_have_another_length(out, invoke, suffix, damage, message):
    damage(out / f"train-00001.{suffix}")
    (problem,) = verify_manifest(str(out)).problems
    assert problem.file == f"train-00001.{suffix}"
    assert re.fullmatch(message, problem.message)
    assert (
        invoke("verify", "--manifest-only", out, status=1).stdout.splitlines()[-1]
        == f"1 problem in {out}"
    )


def test_problems_are_in_the_order_of_the_manifest_whatever_the_threads(out, monkeypatch):
    monkeypatch.setattr(verify, "_SHARDS_PER_CALL", 1)
    shown, names = Shown(), sorted(name for name in os.listdir(out) if name.endswith(".idx"))
    for name in names:
        (out / name).unlink()
    result = verify_manifest(str(out), workers=8, progress=shown)
    assert [problem.file for problem in result.problems] == names
    shards = [
        (shard.name, shard.samples)
        for split in store.read_manifest(out).splits
        for shard in split.shards
    ]
    assert shown.total == (sum(samples for _, samples in shards), len(names))
    assert shown.advanced == shards


def test_a_file_that_the_manifest_does_not_name(out):
    (out / "train-00099.tfrecord").touch()
    (problem,) = verify_manifest(str(out)).problems
    assert (problem.file, problem.message) == (
        "train-00099.tfrecord",
        "the file is not in the manifest",
    )


def test_a_damaged_manifest(out, invoke):
    data = (out / "manifest.json").read_bytes()
    (out / "manifest.json").write_bytes(data[:-9])
    (problem,) = verify_manifest(str(out)).problems
    assert problem.file == "manifest.json"
    invoke("verify", "--manifest-only", out, status=1)


def test_a_missing_list_of_shards_is_named(out, monkeypatch, image_folder):
    monkeypatch.setattr(store, "MAX_SHARDS_IN_JSON", 1)
    source, options = read_source(str(image_folder)), Options(shard_samples=2)
    convert_dataset(source, str(out), options, workers=1, overwrite=True)
    assert verify_manifest(str(out)).problems == ()
    (out / store.SHARD_LIST_NAME).unlink()
    (problem,) = verify_manifest(str(out)).problems
    assert problem.file == store.SHARD_LIST_NAME


def test_decoding_needs_more_than_the_manifest(out, invoke):
    done = invoke("verify", "--manifest-only", "--decode", out, status=2)
    assert "--manifest-only reads no image, so it excludes --decode" in done.stderr
