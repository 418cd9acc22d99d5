"""Append, revert, merge, repair and diff in object stores: the same as on a disk, and safe against other writers."""

from __future__ import annotations

import shutil
from contextlib import suppress
from functools import partial
from pathlib import Path

import pytest
from helpers.datasets import without_plan, write_csv, write_images
from helpers.object_stores import environment, files_of
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


@pytest.fixture(scope="module")
def sources(tmp_path_factory) -> list[str]:
    root, pets = tmp_path_factory.mktemp("sources"), ("cat", "dog")
    first = write_images(root / "first", range(12), pets)
    return [str(first), str(write_images(root / "second", range(12, 21), pets))]


@pytest.fixture(autouse=True)
def nothing_stays(staging):
    """No temporary file stays."""
    yield
    assert [path for path in staging.rglob("*") if path.is_file()] == []


def append(source: str, out: object):
    return append_dataset(read_source(source), str(out), OPTIONS, name="second", workers=1)


def check_whole(place: object, revision: int) -> None:
    """Check that a dataset has a revision and no problems."""
    assert read_manifest(str(place)).revision == revision
    assert verify_dataset(str(place), workers=1).problems == ()


def test_append_and_revert(each_store, sources, tmp_path):
    def in_both(act):
        """Do the same in the store and in a folder, which have the same files then."""
        results = [act(place) for place in (str(each_store), str(tmp_path / "out"))]
        assert files_of(each_store) == files_of(tmp_path / "out")
        return results[0]

    in_both(lambda out: convert_dataset(read_source(sources[0]), out, OPTIONS, workers=1))
    before = files_of(each_store)
    assert in_both(partial(append, sources[1])).manifest.revision == 1
    assert append(sources[1], each_store).revision == 1
    table = write_csv(tmp_path / "a.csv", "key,a", [(f"{n:08d}", n) for n in range(12)])
    options = JoinOptions(on="key", missing="null")
    joined = in_both(lambda out: join_dataset(out, str(table), options))
    assert joined.manifest.revision == 2
    keys = tmp_path / "keys"
    keys.write_text("00000003\n00000005\n1-00000002\n")
    result = in_both(lambda out: remove_samples(out, RemoveOptions(keys=str(keys))))
    assert result.removed == {"train": 3}
    check_whole(each_store, 3)
    assert read_revision(str(each_store), 0).splits[0].samples == 12
    assert in_both(revert_dataset).restored == 3
    assert in_both(revert_dataset).joined == ("a",)
    assert in_both(revert_dataset).removed == 9
    assert files_of(each_store) == before
    keys.write_text("00000003\n00000005\n")
    scrub = RemoveOptions(keys=str(keys), scrub=True)
    result = in_both(lambda out: remove_samples(out, scrub))
    assert "copies of the dataset" in result.notices[-1]
    check_whole(each_store, 1)


def test_merge_local_and_remote_sources(bucket, sources, invoke, tmp_path):
    out = tmp_path / "out"
    convert_dataset(read_source(sources[0]), str(bucket), OPTIONS, workers=1)
    merged = merge_sources(read_sources([sources[1], str(bucket)], SourceOptions()))
    assert (len(merged), merged.classes) == (21, ("cat", "dog"))
    invoke("convert", "--src", sources[1], "--src", bucket, "--out", out)
    check_whole(out, 0)
    assert "removed" in invoke("diff", out, bucket, status=1).stdout
    assert read_manifest(out).splits[0].samples == 21


def test_repair_and_diff(bucket, sources, invoke, tmp_path):
    convert_dataset(read_source(sources[0]), str(bucket), OPTIONS, workers=1)
    append(sources[1], bucket)
    before = files_of(bucket)
    assert "nothing to repair" in invoke("repair", bucket).stdout
    for name in ("train-00000.idx", "train-00003.parquet"):
        bucket.delete(name)
    bucket.put("train-00004.tfrecord", before["train-00004.tfrecord"][:-9] + bytes(9))
    output = invoke("repair", bucket, "--src", sources[1]).stdout
    assert "train-00000.idx: the file is missing; rebuilt from train-00000.tfrecord" in output
    damaged = "train-00004.tfrecord: the file does not match its checksum"
    assert f"{damaged}; made again from the source" in output
    assert files_of(bucket) == before
    convert_dataset(read_source(sources[0]), str(tmp_path / "out"), OPTIONS, workers=1)
    assert "9  only in A" in invoke("diff", bucket, tmp_path / "out", status=1).stdout
    assert "the datasets have the same samples" in invoke("diff", bucket, bucket).stdout


def test_append_in_three_steps(store, sources, tmp_path):
    convert_dataset(read_source(sources[0]), str(store), OPTIONS, workers=1)
    before = files_of(store)
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
    append(sources[1], tmp_path / "out")
    assert without_plan(files_of(store)) == files_of(tmp_path / "out")
    check_whole(store, 1)
    revert_dataset(str(store))
    assert files_of(store) == before


@pytest.fixture
def memory(sources, tmp_path) -> Store:
    """A dataset in memory: what several machines do at once does not depend on the server."""
    url = f"memory://bucket/{tmp_path.name}/set"
    convert_dataset(read_source(sources[0]), url, OPTIONS, workers=1)
    return open_store(url)


@pytest.fixture
def third(tmp_path) -> str:
    return str(write_images(tmp_path / "third", (77,), ("cat",)))


@pytest.fixture
def patch():
    """What a test can undo before its end, apart from the folder of `staging`."""
    with pytest.MonkeyPatch.context() as patch:
        yield patch


CHANGED = "another program has changed the dataset since this command began"


def test_an_equal_append_ends_while_another_one_looks(
    memory, sources, elsewhere, patch, kill_before
):
    """The other one deletes nothing: what was not finished when it looked may be part of the dataset."""
    kill_before("train-00004.parquet", append, sources[1], memory)

    def look(*args):
        found = find_finished(*args)
        patch.undo()
        elsewhere(append, sources[1], memory)
        return found

    find_finished = prepare._find_finished
    patch.setattr(prepare, "_find_finished", look)
    with pytest.raises(StoppedError, match=CHANGED):
        append(sources[1], memory)
    assert append(sources[1], memory).revision == 1
    check_whole(memory, 1)


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
        elsewhere(append, sources[1], memory)
        assert elsewhere(append, third, memory).manifest.revision == 2

    before_replace(patch, go_on)
    with pytest.raises(StoppedError, match=CHANGED):
        append(sources[1], memory)
    check_whole(memory, 2)


def test_the_revision_after_a_revert_is_not_replaced(memory, sources, third, elsewhere, patch):
    append(sources[1], memory)

    def go_on():
        elsewhere(revert_dataset, str(memory))
        elsewhere(append, third, memory)

    before_replace(patch, go_on)
    message = "another command has changed the revision since this revert began"
    with pytest.raises(StoppedError, match=message):
        revert_dataset(str(memory))
    check_whole(memory, 1)
    assert read_manifest(str(memory)).splits[0].samples == 13


def test_the_first_attempt_of_a_repeated_request_has_written(memory, sources, patch):
    """The server has written the manifest, but its answer is lost, and it refuses the second attempt."""
    original = Store.replace

    def replace(store, name, *args):
        assert name != MANIFEST_NAME or original(store, name, *args)
        return original(store, name, *args)

    patch.setattr(Store, "replace", replace)
    assert append(sources[1], memory).manifest.revision == 1
    assert revert_dataset(str(memory)).removed == 9
    check_whole(memory, 0)


def test_an_equal_append_ends_after_another_one_has_looked(
    memory, sources, elsewhere, patch, kill_before
):
    """The other one is about to delete the first file, or to write a shard. Then it is killed."""
    kill_before("train-00004.parquet", append, sources[1], memory)

    def kill(*_):
        raise KeyboardInterrupt

    def wait(function, *args):
        patch.undo()
        elsewhere(append, sources[1], memory)
        patch.setattr("dataprep.run.convert.write_shards", kill)
        function(*args)

    patch.setattr("dataprep.run.convert.write_shards", partial(wait, kill))
    delete = Store.delete
    patch.setattr(Store, "delete", lambda *args: wait(delete, *args))
    with pytest.raises(KeyboardInterrupt):
        append(sources[1], memory)
    patch.undo()
    assert append(sources[1], memory).revision == 1
    check_whole(memory, 1)


@pytest.mark.parametrize("are_repaired", [False, True])
def test_images_change_after_an_interrupted_append(
    are_repaired, memory, third, sources, kill_before, tmp_path, monkeypatch
):
    """Files that are not needed any more are removed: a shard without images, or the list of rejected images."""
    out, image = tmp_path / "out", tmp_path / "third/dog/2.jpg"
    convert_dataset(read_source(sources[0]), str(out), OPTIONS, workers=1)
    image.parent.mkdir()
    data = encode(photo(78, 24, 20))
    image.write_bytes(bytes(len(data)) if are_repaired else data)
    monkeypatch.setattr(f"{__name__}.OPTIONS", Options(shard_samples=1))
    kill_before("manifest.json", append, third, memory)
    before = {*files_of(memory)}
    image.write_bytes(data if are_repaired else bytes(len(data)))
    assert append(third, memory).manifest.revision == 1
    gone = before - {*files_of(memory)} - {".dataprep/journal.json"}
    assert len(gone) == (1 if are_repaired else 3)
    append(third, out)
    assert files_of(memory) == files_of(out)


def test_the_mark_of_the_next_append_stays(memory, sources, third, elsewhere, patch, kill_before):
    """The next append has seen the end of an append that has not removed its mark."""

    def wait(*args):
        patch.undo()
        elsewhere(kill_before, "train-00005.parquet", append, third, memory)
        return remove_journal(*args)

    remove_journal = complete.remove_journal
    patch.setattr(complete, "remove_journal", wait)
    append(sources[1], memory)
    assert ".dataprep/journal.json" in files_of(memory)
    assert append(third, memory).manifest.revision == 2
    check_whole(memory, 2)


def test_finish_keeps_the_next_revision(memory, sources, third, elsewhere, patch):
    """Another `finish` has written the manifest, and another append replaces it at once."""
    write_append_plan(read_source(sources[1]), str(memory), OPTIONS, name="second", workers=1)
    work(str(memory), Share(0, 1), workers=1)

    def read(*args):
        patch.undo()
        elsewhere(finish, str(memory), workers=1)
        data = read_file(*args)
        elsewhere(append, third, memory)
        return data

    read_file = complete.read_file
    patch.setattr(complete, "read_file", read)
    finish(str(memory), workers=1)
    check_whole(memory, 2)


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
        (tmp_path / "gone").write_text("dog/0003.jpg\n")
        remove_samples(url, RemoveOptions(sources=str(tmp_path / "gone"), scrub=True))
        assert "Uploads" not in client.list_multipart_uploads(Bucket="versioned")
        listed = client.list_object_versions(Bucket="versioned", Prefix="set/")
        image = Path(sources[0], "dog", "0003.jpg").read_bytes()
        for each in listed["Versions"]:
            found = client.get_object(
                Bucket="versioned", Key=each["Key"], VersionId=each["VersionId"]
            )
            assert image not in found["Body"].read()
        assert len(listed["Versions"]) > 10
        check_whole(url, 1)


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
    before, gone = files_of(tmp_path / "out"), tmp_path / "gone"
    gone.write_text("dog/0003.jpg\ncat/0004.jpg\n")
    if action == "sync":
        (source / "dog/0003.jpg").rename(source / "cat/0003.jpg")
        (source / "cat/0004.jpg").unlink()

    def act(out: str) -> None:
        if action == "sync":
            options = SyncOptions(max_removed=0.5, workers=1)
            sync_dataset(read_source(str(source)), out, options, name="photos")
        else:
            remove_samples(out, RemoveOptions(sources=str(gone), scrub=action == "scrub"))

    act(place)
    after = files_of(tmp_path / "out")
    for call in range(0, 1000, 3 if action == "sync" else 1):
        url = f"memory://stopped/{tmp_path.name}/{call}"
        for name, data in before.items():
            open_store(url).put(name, data)
        with monkeypatch.context() as patch, suppress(StoppedRequest):
            stop_at(call, patch)
            act(url)
            break
        there = files_of(url)
        whole = (before["manifest.json"], after["manifest.json"])
        assert there["manifest.json"] in whole or action == "sync"  # which has two revisions
        for file in read_manifest(url).shard_files:
            assert len(there[file.name]) == file.bytes
        act(url)
        assert files_of(url) == after
    assert call > 10
