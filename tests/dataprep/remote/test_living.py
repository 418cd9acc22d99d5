"""Append, revert, merge, repair and diff in object stores: the same as on a disk, and safe against other writers."""

from __future__ import annotations

import shutil
import tempfile
from contextlib import suppress
from functools import partial
from pathlib import Path

import pytest
from helpers.datasets import write_csv
from helpers.object_stores import environment
from helpers.pictures import encode, photo

from dataprep.options import JoinOptions, Options, RemoveOptions, SyncOptions
from dataprep.run import commit as complete
from dataprep.run import convert as prepare
from dataprep.run.commit import revert_dataset
from dataprep.run.convert import append_dataset, convert_dataset, write_append_plan
from dataprep.run.finish import finish
from dataprep.run.join import join_dataset
from dataprep.run.remove import remove_samples
from dataprep.run.sync import sync_dataset
from dataprep.run.work import Share, work
from dataprep.sources import SourceOptions, read_source
from dataprep.sources.merge import merge_sources
from dataprep.sources.recognize import read_sources
from dataprep.verification.verify import verify_dataset
from manifests.errors import StoppedError
from manifests.remote.store import Store, open_store
from manifests.store import MANIFEST_NAME, read_manifest, read_revision

OPTIONS = Options(shard_samples=5)


def download(store: Store) -> dict[str, bytes]:
    files = {info.name: bytes(store.get(info.name)) for info in store.list_objects()}
    machine = (".dataprep/stamps.json", ".dataprep/owner")
    return {name: data for name, data in files.items() if name not in machine}


def content(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}


@pytest.fixture(scope="module")
def sources(tmp_path_factory) -> list[str]:
    root = tmp_path_factory.mktemp("sources")
    for number in range(21):
        path = (
            root / ("first", "second")[number > 11] / ("cat", "dog")[number % 2] / f"{number}.jpg"
        )
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


def test_append_and_revert(each_store, sources, tmp_path):
    convert_dataset(read_source(sources[0]), str(each_store), OPTIONS, workers=1)
    convert_dataset(read_source(sources[0]), str(tmp_path / "out"), OPTIONS, workers=1)
    before = download(each_store)
    assert before == content(tmp_path / "out")
    assert append(sources[1], str(each_store)).manifest.revision == 1
    append(sources[1], str(tmp_path / "out"))
    assert download(each_store) == content(tmp_path / "out")
    assert append(sources[1], str(each_store)).revision == 1
    table = write_csv(tmp_path / "a.csv", "key,a", [(f"{n:08d}", n) for n in range(12)])
    for place in (str(each_store), str(tmp_path / "out")):
        options = JoinOptions(on="key", missing="null")
        assert join_dataset(place, str(table), options).manifest.revision == 2
    (tmp_path / "keys").write_text("00000003\n00000005\n1-00000002\n")
    for place in (str(each_store), str(tmp_path / "out")):
        options = RemoveOptions(keys=str(tmp_path / "keys"))
        assert remove_samples(place, options).removed == {"train": 3}
    assert download(each_store) == content(tmp_path / "out")
    assert verify_dataset(str(each_store), workers=1).problems == ()
    assert read_revision(str(each_store), 0).splits[0].samples == 12
    assert revert_dataset(str(each_store)).restored == 3
    assert revert_dataset(str(each_store)).joined == ("a",)
    assert revert_dataset(str(each_store)).removed == 9
    assert download(each_store) == before
    (tmp_path / "keys").write_text("00000003\n00000005\n")
    for place in (str(each_store), str(tmp_path / "new")):
        convert_dataset(read_source(sources[0]), place, OPTIONS, workers=1)
        result = remove_samples(place, RemoveOptions(keys=str(tmp_path / "keys"), scrub=True))
        assert "copies of the dataset" in result.notices[-1]
    assert download(each_store) == content(tmp_path / "new")
    assert verify_dataset(str(each_store), workers=1).problems == ()


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
    assert (
        "train-00004.tfrecord: the file does not match its checksum; made again from the source"
        in output
    )
    assert download(bucket) == before
    convert_dataset(read_source(sources[0]), str(tmp_path / "out"), OPTIONS, workers=1)
    assert "9  only in A" in invoke("diff", bucket, tmp_path / "out", status=1).stdout
    assert "the datasets have the same samples" in invoke("diff", bucket, bucket).stdout


def test_append_in_three_steps(store, sources, tmp_path):
    convert_dataset(read_source(sources[0]), str(store), OPTIONS, workers=1)
    before = download(store)
    plan = partial(
        write_append_plan, read_source(sources[1]), str(store), OPTIONS, name="second", workers=1
    )
    assert len(plan().finished) == 0
    work(str(store), Share(0, 2), workers=1)
    assert len(plan().finished) == 1
    with pytest.raises(StoppedError, match="1 shard of 2 is missing"):
        finish(str(store), workers=1)
    work(str(store), Share(1, 2), workers=1)
    assert finish(str(store), workers=1).manifest.revision == 1
    assert finish(str(store), workers=1).revision == 1
    work(str(store), Share(0, 1), workers=1)
    convert_dataset(read_source(sources[0]), str(tmp_path / "out"), OPTIONS, workers=1)
    append(sources[1], str(tmp_path / "out"))
    after = download(store)
    assert {
        name: data for name, data in after.items() if not name.startswith(".dataprep/plan/")
    } == content(tmp_path / "out")
    assert verify_dataset(str(store), workers=1).problems == ()
    revert_dataset(str(store))
    assert download(store) == before


@pytest.fixture
def memory(sources, tmp_path) -> Store:
    """A dataset in memory: what several machines do at once does not depend on the server."""
    url = f"memory://bucket/{tmp_path.name}/set"
    convert_dataset(read_source(sources[0]), url, OPTIONS, workers=1)
    return open_store(url)


@pytest.fixture
def third(tmp_path) -> str:
    path = tmp_path / "third" / "cat" / "1.jpg"
    path.parent.mkdir(parents=True)
    path.write_bytes(encode(photo(77, 24, 20)))
    return str(path.parents[1])


@pytest.fixture
def elsewhere(tmp_path):
    """A function that calls another one as if on another machine, which has other temporary files and locks."""

    def run(function, *args, **kwargs):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(tempfile, "tempdir", str(tmp_path / "tmp" / "elsewhere"))
            (tmp_path / "tmp" / "elsewhere").mkdir(exist_ok=True)
            return function(*args, **kwargs)

    return run


@pytest.fixture
def patch():
    """What a test can undo before its end, apart from the folder of `staging`."""
    with pytest.MonkeyPatch.context() as patch:
        yield patch


def interrupt(source: str, store: Store, name: str) -> None:
    """Begin to append a source, and fail before the object `name` is written."""

    def fail_before(original):
        def write(self, key, *data):
            return 1 / 0 if key == name else original(self, key, *data)

        return write

    with pytest.MonkeyPatch.context() as patch:
        for each in ("put", "create", "replace"):
            patch.setattr(Store, each, fail_before(getattr(Store, each)))
        with pytest.raises(ZeroDivisionError):
            append(source, str(store))


def test_an_equal_append_ends_while_another_one_looks(memory, sources, elsewhere, patch):
    """The other one deletes nothing: what was not finished when it looked may be part of the dataset."""
    interrupt(sources[1], memory, "train-00004.parquet")

    def look(*args):
        found = find_finished(*args)
        patch.undo()
        elsewhere(append, sources[1], str(memory))
        return found

    find_finished = prepare._find_finished
    patch.setattr(prepare, "_find_finished", look)
    with pytest.raises(
        StoppedError, match="another program has changed the dataset since this command began"
    ):
        append(sources[1], str(memory))
    assert verify_dataset(str(memory), workers=1).problems == ()
    assert append(sources[1], str(memory)).revision == 1


def before_replace(patch, function) -> None:
    """Call a function once, between the last look of `Store.replace`'s caller at the manifest and its request."""
    original = Store.replace

    def replace(store, name, *args):
        if name == MANIFEST_NAME:
            patch.undo()
            function()
        return original(store, name, *args)

    patch.setattr(Store, "replace", replace)


def test_the_revision_after_an_append_is_not_replaced(memory, sources, third, elsewhere, patch):
    """Another machine ends the same append, and makes another one, just before this one writes the manifest."""

    def go_on():
        elsewhere(append, sources[1], str(memory))
        assert elsewhere(append, third, str(memory)).manifest.revision == 2

    before_replace(patch, go_on)
    with pytest.raises(
        StoppedError, match="another program has changed the dataset since this command began"
    ):
        append(sources[1], str(memory))
    assert verify_dataset(str(memory), workers=1).problems == ()
    assert read_manifest(str(memory)).revision == 2


def test_the_revision_after_a_revert_is_not_replaced(memory, sources, third, elsewhere, patch):
    append(sources[1], str(memory))

    def go_on():
        elsewhere(revert_dataset, str(memory))
        elsewhere(append, third, str(memory))

    before_replace(patch, go_on)
    with pytest.raises(
        StoppedError, match="another command has changed the revision since this revert began"
    ):
        revert_dataset(str(memory))
    assert verify_dataset(str(memory), workers=1).problems == ()
    assert read_manifest(str(memory)).splits[0].samples == 13


def test_the_first_attempt_of_a_repeated_request_has_written(memory, sources, patch):
    """The server has written the manifest, but its answer is lost, and it refuses the second attempt."""
    original = Store.replace

    def replace(store, name, *args):
        assert name != MANIFEST_NAME or original(store, name, *args)
        return original(store, name, *args)

    patch.setattr(Store, "replace", replace)
    assert append(sources[1], str(memory)).manifest.revision == 1
    assert revert_dataset(str(memory)).removed == 9
    assert verify_dataset(str(memory), workers=1).problems == ()


def test_an_equal_append_ends_after_another_one_has_looked(memory, sources, elsewhere, patch):
    """The other one is about to delete the first file, or to write a shard. Then it is killed."""
    interrupt(sources[1], memory, "train-00004.parquet")

    def kill(*_):
        raise KeyboardInterrupt

    def wait(function, *args):
        patch.undo()
        elsewhere(append, sources[1], str(memory))
        patch.setattr("dataprep.run.convert.write_shards", kill)
        function(*args)

    patch.setattr("dataprep.run.convert.write_shards", partial(wait, kill))
    delete = Store.delete
    patch.setattr(Store, "delete", lambda *args: wait(delete, *args))
    with pytest.raises(KeyboardInterrupt):
        append(sources[1], str(memory))
    patch.undo()
    assert verify_dataset(str(memory), workers=1).problems == ()
    assert append(sources[1], str(memory)).revision == 1


@pytest.mark.parametrize("are_repaired", [False, True])
def test_images_change_after_an_interrupted_append(are_repaired, memory, third, sources, tmp_path):
    """Files that are not needed any more are removed: a shard without images, or the list of rejected images."""
    data = encode(photo(78, 24, 20))
    image = tmp_path / "third" / "dog" / "2.jpg"
    image.parent.mkdir()
    options = Options(shard_samples=1)
    image.write_bytes(bytes(len(data)) if are_repaired else data)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(f"{__name__}.OPTIONS", options)
        interrupt(third, memory, "manifest.json")
        before = {*download(memory)}
        image.write_bytes(data if are_repaired else bytes(len(data)))
        assert append(third, str(memory)).manifest.revision == 1
        after = {*download(memory)}
        assert len(before - after - {".dataprep/journal.json"}) == (1 if are_repaired else 3)
        out = tmp_path / "out"
        convert_dataset(read_source(sources[0]), str(out), Options(shard_samples=5), workers=1)
        append(third, str(out))
    assert download(memory) == content(out)


def test_the_mark_of_the_next_append_stays(memory, sources, third, elsewhere, patch):
    """The next append has seen the end of an append that has not removed its mark."""

    def wait(*args):
        patch.undo()
        elsewhere(interrupt, third, memory, "train-00005.parquet")
        return remove_journal(*args)

    remove_journal = complete.remove_journal
    patch.setattr(complete, "remove_journal", wait)
    append(sources[1], str(memory))
    assert ".dataprep/journal.json" in download(memory)
    assert append(third, str(memory)).manifest.revision == 2
    assert verify_dataset(str(memory), workers=1).problems == ()


def test_finish_keeps_the_next_revision(memory, sources, third, elsewhere, patch):
    """Another `finish` has written the manifest, and another append replaces it at once."""
    write_append_plan(read_source(sources[1]), str(memory), OPTIONS, name="second", workers=1)
    work(str(memory), Share(0, 1), workers=1)

    def read(*args):
        patch.undo()
        elsewhere(finish, str(memory), workers=1)
        data = read_file(*args)
        elsewhere(append, third, str(memory))
        return data

    read_file = complete.read_file
    patch.setattr(complete, "read_file", read)
    finish(str(memory), workers=1)
    assert read_manifest(str(memory)).revision == 2
    assert verify_dataset(str(memory), workers=1).problems == ()


def test_a_scrub_deletes_old_versions_and_unfinished_uploads(sources, server_environment, tmp_path):
    boto3 = pytest.importorskip("boto3")
    with environment(server_environment("moto")):
        client = boto3.client("s3")
        versions = {"Status": "Enabled"}
        client.create_bucket(Bucket="versioned")
        client.put_bucket_versioning(Bucket="versioned", VersioningConfiguration=versions)
        url = "s3://versioned/set"
        convert_dataset(read_source(sources[0]), url, OPTIONS, workers=1)
        client.create_multipart_upload(Bucket="versioned", Key="set/train-00000.tfrecord")
        (tmp_path / "gone").write_text("dog/3.jpg\n")
        remove_samples(url, RemoveOptions(sources=str(tmp_path / "gone"), scrub=True))
        assert "Uploads" not in client.list_multipart_uploads(Bucket="versioned")
        listed = client.list_object_versions(Bucket="versioned", Prefix="set/")
        image = Path(sources[0], "dog", "3.jpg").read_bytes()
        for each in listed["Versions"]:
            found = client.get_object(
                Bucket="versioned", Key=each["Key"], VersionId=each["VersionId"]
            )
            assert image not in found["Body"].read()
        assert len(listed["Versions"]) > 10
        assert verify_dataset(url, workers=1).problems == ()


class StoppedRequest(BaseException):
    pass


def stop_at(call: int, patch: pytest.MonkeyPatch) -> None:
    """Raise an error instead of the request of this number that changes an object."""
    left = iter(range(call))

    def counted(method):
        def run(*arguments, **members):
            if next(left, None) is None:
                raise StoppedRequest
            return method(*arguments, **members)

        return run

    for name in ("put", "create", "replace", "delete"):
        patch.setattr(Store, name, counted(getattr(Store, name)))


@pytest.mark.parametrize("action", ["remove", "scrub", "sync"])
def test_what_stops_before_any_request_is_finished(action, sources, tmp_path, monkeypatch):
    place, source = str(tmp_path / "out"), Path(shutil.copytree(sources[0], tmp_path / "photos"))
    convert_dataset(read_source(str(source)), place, OPTIONS, workers=1)
    before, gone = content(tmp_path / "out"), tmp_path / "gone"
    gone.write_text("dog/3.jpg\ncat/4.jpg\n")
    if action == "sync":
        (source / "dog/3.jpg").rename(source / "cat/3.jpg")
        (source / "cat/4.jpg").unlink()

    def act(out: str) -> None:
        if action == "sync":
            options = SyncOptions(max_removed=0.5, workers=1)
            sync_dataset(read_source(str(source)), out, options, name="photos")
        else:
            remove_samples(out, RemoveOptions(sources=str(gone), scrub=action == "scrub"))

    act(place)
    after = content(tmp_path / "out")
    for call in range(0, 1000, 3 if action == "sync" else 1):
        url = f"memory://stopped/{tmp_path.name}/{call}"
        for name, data in before.items():
            open_store(url).put(name, data)
        with monkeypatch.context() as patch, suppress(StoppedRequest):
            stop_at(call, patch)
            act(url)
            break
        there = download(open_store(url))
        whole = (before["manifest.json"], after["manifest.json"])
        assert there["manifest.json"] in whole or action == "sync"  # which has two revisions
        for file in read_manifest(url).shard_files:
            assert len(there[file.name]) == file.bytes
        act(url)
        assert download(open_store(url)) == after
    assert call > 10
