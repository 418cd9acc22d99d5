"""Append, revert, merge, repair and diff in object stores: the same as on a disk, and safe against other writers."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest
from helpers.pictures import encode, photo

from dataprep.append.dataset import append_dataset
from dataprep.append.revert import revert_dataset
from dataprep.append.steps import finish_planned_append, write_append_plan
from dataprep.convert.dataset import convert_dataset
from dataprep.convert.work import work
from dataprep.options import Options
from dataprep.plan.tasks import Share
from dataprep.sources import SourceOptions, read_source
from dataprep.sources.merge import merge_sources
from dataprep.sources.recognize import read_sources
from dataprep.verify.dataset import verify_dataset
from manifests.errors import CallError, StoppedError
from manifests.history import read_revision
from manifests.remote import Store
from manifests.store import read_manifest

OPTIONS = Options(shard_samples=5)


def download(store: Store) -> dict[str, bytes]:
    files = {info.name: bytes(store.get(info.name)) for info in store.list_objects()}
    return {name: data for name, data in files.items() if name != "source-stamps.json"}


def content(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.name != "source-stamps.json"}


@pytest.fixture(scope="module")
def sources(tmp_path_factory) -> list[str]:
    root = tmp_path_factory.mktemp("sources")
    for number in range(21):
        path = root / ("first", "second")[number > 11] / ("cat", "dog")[number % 2] / f"{number}.jpg"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(encode(photo(number, 24, 20)))
    return [str(root / "first"), str(root / "second")]


@pytest.fixture(autouse=True)
def nothing_stays(staging):
    """No temporary file stays."""
    yield
    assert [path for path in staging.rglob("*") if path.is_file()] == []


def append(source: str, out: str):
    return append_dataset(read_source(source), out, OPTIONS, name="second", workers=1)


def test_append_and_revert(store, sources, tmp_path):
    convert_dataset(read_source(sources[0]), str(store), OPTIONS, workers=1)
    convert_dataset(read_source(sources[0]), str(tmp_path / "out"), OPTIONS, workers=1)
    before = download(store)
    assert before == content(tmp_path / "out")
    assert append(sources[1], str(store)).manifest.revision == 1
    append(sources[1], str(tmp_path / "out"))
    assert download(store) == content(tmp_path / "out")
    assert append(sources[1], str(store)).revision == 1
    assert verify_dataset(str(store), workers=1).problems == ()
    assert read_revision(str(store), 0).splits[0].samples == 12
    assert revert_dataset(str(store)).removed == 9
    assert download(store) == before


def test_only_one_of_two_appends_goes_on(bucket, sources, tmp_path, monkeypatch):
    """Another machine began to append another source: its mark is there, but not its lock."""
    convert_dataset(read_source(sources[0]), str(bucket), OPTIONS, workers=1)
    before = download(bucket)
    with monkeypatch.context() as patch:
        patch.setattr("dataprep.append.dataset.finish_append", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            append(sources[1], str(bucket))
    (tmp_path / "third" / "cat").mkdir(parents=True)
    (tmp_path / "third" / "cat" / "1.jpg").write_bytes(encode(photo(77, 24, 20)))
    with pytest.raises(CallError, match=r"another append to s3://.* was interrupted, or is running"):
        append(str(tmp_path / "third"), str(bucket))
    problems = verify_dataset(str(bucket), workers=1).problems
    assert [problem.file for problem in problems] == ["manifest.append.json"]
    resumed = append(sources[1], str(bucket))
    assert resumed.converted is not None
    assert resumed.converted.resumed == 2
    assert resumed.manifest.revision == 1
    revert_dataset(str(bucket))
    assert download(bucket) == before


def test_merge_local_and_remote_sources(bucket, sources, invoke, tmp_path):
    out = tmp_path / "out"
    convert_dataset(read_source(sources[0]), str(bucket), OPTIONS, workers=1)
    merged = merge_sources(read_sources([sources[1], str(bucket)], SourceOptions()))
    assert (len(merged), merged.classes) == (21, ("cat", "dog"))
    invoke("convert", "--src", sources[1], "--src", bucket, "--out", out)
    assert verify_dataset(str(out), workers=1).problems == ()
    diff = invoke("diff", out, bucket, status=1).stdout
    assert "removed" in diff
    manifest = read_manifest(out)
    assert manifest.splits[0].samples == 21


def test_repair_and_diff(bucket, sources, invoke, tmp_path):
    convert_dataset(read_source(sources[0]), str(bucket), OPTIONS, workers=1)
    append(sources[1], str(bucket))
    before = download(bucket)
    assert "nothing to repair" in invoke("repair", bucket).stdout
    for name in ("train-00000.idx", "train-00003.parquet"):
        bucket.delete(name)
    bucket.put("train-00004.tfrecord", before["train-00004.tfrecord"][:-9] + bytes(9))
    output = invoke("repair", bucket, "--src", sources[1]).stdout
    assert "train-00000.idx: the file is missing; rebuilt from train-00000.tfrecord" in output
    assert "train-00004.tfrecord: the file does not match its checksum; made again from the source" in output
    assert download(bucket) == before
    convert_dataset(read_source(sources[0]), str(tmp_path / "out"), OPTIONS, workers=1)
    assert "9  only in A" in invoke("diff", bucket, tmp_path / "out", status=1).stdout
    assert "the datasets have the same samples" in invoke("diff", bucket, bucket).stdout


def test_append_in_three_steps(store, sources, tmp_path):
    convert_dataset(read_source(sources[0]), str(store), OPTIONS, workers=1)
    before = download(store)
    plan = partial(write_append_plan, read_source(sources[1]), str(store), OPTIONS, name="second", workers=1)
    assert plan().resumed == 0
    work(str(store), Share(0, 2), workers=1)
    assert plan().resumed == 1
    with pytest.raises(StoppedError, match="1 shard of 2 is missing"):
        finish_planned_append(str(store), workers=1)
    work(str(store), Share(1, 2), workers=1)
    assert finish_planned_append(str(store), workers=1).manifest.revision == 1
    assert finish_planned_append(str(store), workers=1).revision == 1
    work(str(store), Share(0, 1), workers=1)
    convert_dataset(read_source(sources[0]), str(tmp_path / "out"), OPTIONS, workers=1)
    append(sources[1], str(tmp_path / "out"))
    after = download(store)
    assert {name: data for name, data in after.items() if not name.startswith("plan/")} == content(tmp_path / "out")
    assert verify_dataset(str(store), workers=1).problems == ()
    revert_dataset(str(store))
    assert download(store) == before
