"""What `verify` prints, the limits of a manifest that nobody vouches for, and `verify --manifest-only`."""

from __future__ import annotations

import os
import re
import shutil
from dataclasses import replace
from pathlib import Path
from unittest import mock

import pytest
from helpers.bombs import flat_png

from dataprep.options import MAX_PIXELS, Options
from dataprep.run.convert import convert_dataset
from dataprep.sources import read_source
from dataprep.verification import verify
from dataprep.verification.shard import MAX_PER_FILE
from dataprep.verification.verify import verify_manifest
from manifests import store
from manifests.serialization import file_of
from manifests.store import manifest_bytes, read_manifest
from manifests.tables import read_table, write_table


def convert(source, out, **options):
    convert_dataset(read_source(str(source)), str(out), Options(**options), workers=1)
    return out


@pytest.fixture(scope="module")
def small(image_folder, tmp_path_factory, snapshot):
    """A dataset of seven shards. Tests change copies."""
    out = convert(image_folder, tmp_path_factory.mktemp("small") / "out", shard_samples=2)
    before = snapshot(out)
    yield out
    assert snapshot(out) == before


@pytest.fixture
def out(small, tmp_path):
    return Path(shutil.copytree(small, tmp_path / "out"))


# --- many problems ------------------------------------------------------------------------------


def test_the_first_problems_of_each_file_are_listed(photos, tmp_path, invoke, monkeypatch):
    """Two shards with 180 samples each are cut off within their first record."""
    out = convert(photos, tmp_path / "out", shard_samples=180)
    for shard in out.glob("*.tfrecord"):
        os.truncate(shard, 100)
    result = verify.verify_dataset(str(out), workers=1)
    names = [f"train-{number:05d}.tfrecord" for number in (0, 1)]
    found = [problem.file for problem in result.problems]
    assert found == [name for name in names for _ in range(MAX_PER_FILE)]
    counts = list(result.counts.values())
    assert min(counts) >= 180
    *lines, first, second, last = invoke("verify", out, status=1).stdout.splitlines()
    assert len(lines) == 2 * MAX_PER_FILE
    more = [f"{n}: {c - MAX_PER_FILE} problems more" for n, c in zip(names, counts, strict=True)]
    assert [first, second] == more
    assert last == f"{sum(counts)} problems in {out}; the first 200 are listed"
    monkeypatch.setattr(verify, "MAX_PROBLEMS", 30)
    *lines, _, last = invoke("verify", out, "--workers", 1, status=1).stdout.splitlines()
    assert len(lines) == 30
    assert last.endswith("; the first 30 are listed")


# --- the limit of pixels ------------------------------------------------------------------------


def test_a_manifest_does_not_raise_the_limit_of_pixels(tmp_path, invoke):
    """The manifest is as untrusted as the images. An option states that the user trusts both."""
    images, limit = tmp_path / "images", 2 * MAX_PIXELS
    (images / "class").mkdir(parents=True)
    (images / "class/flat.png").write_bytes(flat_png(5200, 0))  # 27 million pixels in 100 KB
    out = convert(images, tmp_path / "out", max_pixels=limit)
    assert "no problems" in invoke("verify", out).stdout
    problem, _ = invoke("verify", "--decode", out, status=1).stdout.splitlines()
    assert "record 0" in problem
    assert "too-large" in problem
    assert problem.endswith(
        f"Hint: the dataset was converted with --max-pixels {limit}; if you trust it, verify it"
        " with this option, too."
    )
    assert "no problems" in invoke("verify", "--decode", "--max-pixels", limit, out).stdout


def test_a_record_without_a_row_is_named(out, invoke):
    manifest = read_manifest(out)
    (first, *others), splits = manifest.splits[0].shards, manifest.splits[1:]
    path = out / first.table.name
    write_table(read_table(str(path)).slice(0, 1), str(path))
    first = replace(first, samples=1, table=file_of(path.name, path.read_bytes()))
    splits = (replace(manifest.splits[0], shards=(first, *others)), *splits)
    (out / "manifest.json").write_bytes(manifest_bytes(replace(manifest, splits=splits)))
    (line, _) = invoke("verify", out, status=1).stdout.splitlines()
    assert line.startswith(f"{first.file.name}, record 1, byte ")
    assert ": the record has no row in the table. Hint: run `dataprep repair " in line


def test_options_that_exclude_each_other(small, invoke):
    for options, message in (
        (("--max-pixels", 5), "--max-pixels requires --decode. Hint: add --decode"),
        (("--manifest-only", "--decode"), "reads no image, so it excludes --decode"),
    ):
        assert message in invoke("verify", *options, small, status=2).output


# --- the lengths of all files, of which none is read ----------------------------------------------


def files_of(out):
    shards = [shard for split in read_manifest(out).splits for shard in split.shards]
    return [file for shard in shards for file in (shard.file, shard.index, shard.table)]


def test_no_shard_index_or_table_is_opened(out, invoke, monkeypatch):
    def refuse(path, kind):
        raise AssertionError(path)

    monkeypatch.setattr("dataprep.storage.local.open_handle", refuse)
    for file in files_of(out):
        os.truncate(out / file.name, 0)
        os.truncate(out / file.name, file.bytes)
    last = invoke("verify", "--manifest-only", out).stdout.splitlines()[-1]
    words = r"[\d,]+ samples in 7 shards, whose contents were not read"
    assert re.fullmatch(rf"no problems in .*: {words}", last)


def replace_by(make):
    return lambda path: (path.unlink(), make(path))


DAMAGE = {
    "the file cannot be read: No such file or directory": Path.unlink,
    r"the file has 7 bytes, but the manifest states \d+": lambda path: os.truncate(path, 7),
    "the .* cannot be read: it is a folder, not a regular file": replace_by(Path.mkdir),
    "the .* cannot be read: it is a named pipe, .*": replace_by(os.mkfifo),
}


@pytest.mark.parametrize("suffix", ["tfrecord", "idx", "parquet"])
@pytest.mark.parametrize("message", DAMAGE)
def test_files_that_are_missing_or_have_another_length(out, invoke, suffix, message):
    DAMAGE[message](out / f"train-00001.{suffix}")
    (problem,) = verify_manifest(str(out)).problems
    assert problem.file == f"train-00001.{suffix}"
    assert re.fullmatch(message, problem.message)
    last = invoke("verify", "--manifest-only", out, status=1).stdout.splitlines()[-1]
    assert last == f"1 problem in {out}"


def test_problems_are_in_the_order_of_the_manifest_whatever_the_threads(out, monkeypatch):
    monkeypatch.setattr(verify, "_SHARDS_PER_CALL", 1)
    shown, names = mock.Mock(), [f"train-{number:05d}.idx" for number in range(7)]
    for name in names:
        (out / name).unlink()
    (out / "train-00099.tfrecord").touch()
    foreign, *problems = verify_manifest(str(out), workers=8, progress=shown).problems
    assert [problem.file for problem in problems] == names
    message = "the file is not in the manifest"
    assert (foreign.file, foreign.message) == ("train-00099.tfrecord", message)
    advanced = [mock.call.advance(f"train-{number:05d}.tfrecord", 2) for number in range(7)]
    assert shown.mock_calls == [mock.call.start(14, 7), *advanced]


def test_a_damaged_manifest_and_a_missing_list_of_shards(
    out, tmp_path, invoke, monkeypatch, image_folder
):
    data = (out / "manifest.json").read_bytes()
    (out / "manifest.json").write_bytes(data[:-9])
    (problem,) = verify_manifest(str(out)).problems
    assert problem.file == "manifest.json"
    invoke("verify", "--manifest-only", out, status=1)
    monkeypatch.setattr(store, "MAX_SHARDS_IN_JSON", 1)
    listed = convert(image_folder, tmp_path / "listed", shard_samples=2)
    assert verify_manifest(str(listed)).problems == ()
    (listed / store.SHARD_LIST_NAME).unlink()
    (problem,) = verify_manifest(str(listed)).problems
    assert problem.file == store.SHARD_LIST_NAME
