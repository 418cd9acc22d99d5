"""Convert into object stores: the same bytes as on a disk, resumed, and safe against other writers."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest
from helpers.datasets import without_plan
from helpers.object_stores import environment, files_of, upload
from helpers.servers import ACCESS_KEY, BUCKET, SECRET_KEY

from dataprep import storage
from dataprep.options import Options
from dataprep.run.convert import convert_dataset, plan_dataset
from dataprep.run.finish import finish
from dataprep.run.work import work
from dataprep.shards.write import write_shard
from dataprep.sources import read_source
from dataprep.storage.temporary import JOURNAL_NAME
from dataprep.verification.verify import verify_dataset
from manifests.errors import CallError, LostFolderError, StorageError
from manifests.remote.store import Store

pytestmark = pytest.mark.usefixtures("staging")

OPTIONS = Options(shard_samples=10)


@pytest.fixture(scope="module")
def source(make_photos, tmp_path_factory) -> str:
    root = make_photos(tmp_path_factory.mktemp("images") / "set", 36)
    (root / "class 0" / "broken.jpg").write_bytes(b"\xff\xd8\xff")
    return str(root)


@pytest.fixture(scope="module")
def expected(source, tmp_path_factory) -> dict[str, bytes]:
    out = tmp_path_factory.mktemp("expected") / "out"
    convert_dataset(read_source(source), str(out), OPTIONS, workers=1)
    return files_of(out)


def test_a_bucket_gets_the_same_bytes_as_a_folder(source, expected, each_store, staging) -> None:
    result = convert_dataset(read_source(source), str(each_store), OPTIONS, workers=1)
    assert (result.resumed, result.rejected) == (0, 1)
    assert files_of(each_store) == expected
    assert not verify_dataset(str(each_store), workers=1).problems
    assert [path for path in staging.rglob("*") if path.is_file()] == []


def test_only_what_is_missing_is_written_again(convert_into, expected, store, monkeypatch) -> None:
    convert_into()
    before = {info.name: info.etag for info in store.list_objects()}
    with monkeypatch.context() as patch:
        patch.setattr(Store, "put", None)
        assert convert_into().resumed == 4
    assert {info.name: info.etag for info in store.list_objects()} == before
    for lost in ("train-00001.parquet", "train-00001.tfrecord", "train-00001.idx", "manifest.json"):
        store.delete(lost)
        assert convert_into().resumed == (4 if lost == "manifest.json" else 3), lost
        assert files_of(store) == expected, lost


@pytest.mark.parametrize("in_steps", [False, True])
def test_a_run_killed_between_the_manifest_and_the_mark_of_incomplete_datasets(
    source, convert_into, expected, store, monkeypatch, in_steps
) -> None:
    """The manifest is written, and the object that says that the dataset is incomplete is not deleted yet."""
    delete = Store.delete

    def killed(self, name, *check):
        if name == "journal.json" and "manifest.json" in files_of(store):
            raise ZeroDivisionError
        delete(self, name, *check)

    def run():
        if in_steps:
            work(str(store), workers=1)
            finish(str(store), workers=1)
        else:
            convert_into()

    if in_steps:
        plan_dataset(read_source(source), str(store), OPTIONS)
    with monkeypatch.context() as patch:
        patch.setattr(Store, "delete", killed)
        with pytest.raises(ZeroDivisionError):
            run()
    assert {"manifest.json", JOURNAL_NAME} <= {*files_of(store)}
    run()
    assert without_plan(files_of(store)) == expected


def test_a_late_worker_of_another_plan_is_refused_and_changes_nothing(
    convert_into, store, monkeypatch
) -> None:
    tasks = []

    def record(task, pool=None):
        tasks.append(task)
        return write_shard(task, pool)

    monkeypatch.setattr("dataprep.run.work.write_shard", record)
    convert_into(Options(shard_samples=12))
    convert_into(overwrite=True)
    before = files_of(store)
    with pytest.raises(LostFolderError, match="another run has taken over the folder"):
        write_shard(tasks[0])
    message = "was written by another run, with another source or other options"
    with pytest.raises(StorageError, match=message):
        write_shard(tasks[0]._replace(check=None))
    assert files_of(store) == before


def test_a_store_that_ignores_create_if_absent_is_refused_at_start(
    convert_into, store, monkeypatch
) -> None:
    monkeypatch.setattr(Store, "create", lambda self, name, data: self.put(name, data) is None)
    with pytest.raises(CallError, match="this object store ignores create-if-absent"):
        convert_into()
    assert files_of(store) == {}


def test_outputs_and_folders_that_are_refused(source, convert_into, store, staging) -> None:
    with pytest.raises(CallError, match=r"--out https://host/x can only be read"):
        convert_dataset(read_source(source), "https://host/x", OPTIONS, workers=1)
    upload(Path(source), f"{store}/set")
    inside = read_source(f"{store}/set")
    with pytest.raises(CallError, match="is inside the source"):
        convert_dataset(inside, f"{store}/set/class 0/out", OPTIONS, workers=1)
    shutil.rmtree(staging / f"dataprep-{os.getuid()}", ignore_errors=True)
    (staging / f"dataprep-{os.getuid()}").write_text("another user's, or not a folder")
    with pytest.raises(CallError, match="is not a folder of this user"):
        convert_into()


@pytest.fixture(params=["seaweedfs", "moto"])
def uploads(request, server_environment, monkeypatch, staging):
    """A folder on a server, whose objects are uploaded in parts, and a client of the server."""
    boto3 = pytest.importorskip("boto3")
    with environment(server_environment(request.param)):
        monkeypatch.setattr("manifests.remote.store.SINGLE_PUT_BYTES", 1000)
        yield f"parts {request.node.originalname}", boto3.client("s3")


def uploads_below(client, prefix: str) -> list[dict[str, str]]:
    return client.list_multipart_uploads(Bucket=BUCKET, Prefix=prefix).get("Uploads", [])


def test_parts_of_a_killed_upload_are_removed_by_the_next_run(source, expected, uploads) -> None:
    folder, client = uploads
    url = f"s3://{BUCKET}/{folder}"
    for name in ("train-00001.tfrecord", "train-00099.tfrecord"):
        place = {"Bucket": BUCKET, "Key": f"{folder}/{name}"}
        upload = client.create_multipart_upload(**place)["UploadId"]
        client.upload_part(**place, PartNumber=1, UploadId=upload, Body=b"x" * 1000)
    with storage.partials(url, is_alone=False):  # what a killed process leaves
        left = Path(storage.partial_path(f"{url}/train-00001.tfrecord"))
        left.write_bytes(b"x" * 2000)
        os.rename(left, left.with_name("1-train-00001.tfrecord"))
    convert_dataset(read_source(source), url, OPTIONS, workers=1)
    assert files_of(url) == expected
    assert [each["Key"] for each in uploads_below(client, folder)] == [place["Key"]]


def test_an_interrupted_upload_leaves_that_of_another_process(uploads, monkeypatch) -> None:
    folder, client = uploads
    place = {"Bucket": BUCKET, "Key": f"{folder}/train-00000.tfrecord"}

    def begin_and_fail(*_: object) -> None:
        client.create_multipart_upload(**place)
        raise KeyboardInterrupt

    other = client.create_multipart_upload(**place)["UploadId"]
    monkeypatch.setattr("manifests.remote.store.Store.put", begin_and_fail)
    with storage.partials(f"s3://{BUCKET}/{folder}", is_alone=False):
        paths = [f"s3://{BUCKET}/{folder}/train-00000.{kind}" for kind in ("tfrecord", "parquet")]
        for path in paths:
            Path(storage.partial_path(path)).write_bytes(b"x" * 2000)
        with pytest.raises(KeyboardInterrupt):
            storage.publish(paths)
        assert len(uploads_below(client, folder)) == 2
        storage.discard(paths)
    (left,) = uploads_below(client, folder)
    assert left["UploadId"] == other


def test_no_credential_in_anything_that_is_written_or_printed(
    source, bucket, dataprep, staging
) -> None:
    commands = (
        ("convert", "--src", source, "--out", bucket, "--samples-per-shard", 10, "--max-rejected", 1),
        ("info", bucket, "--json"), ("verify", bucket),
        ("plan", "--src", source, "--out", f"{bucket}/planned"),
    )  # fmt: skip
    runs = [dataprep(*command) for command in commands]
    assert [run.returncode for run in runs] == [0] * 4
    written = {info.name: bytes(bucket.get(info.name)) for info in bucket.list_objects()}
    assert {
        "manifest.json", "rejected.jsonl", ".dataprep/stamps.json",
        "planned/.dataprep/plan/plan.json",
    } <= {*written}  # fmt: skip
    printed = "".join(run.stdout + run.stderr for run in runs).encode()
    for content in (printed, *written.values()):
        for secret in (ACCESS_KEY, SECRET_KEY):
            assert secret.encode() not in content
