"""Convert into object stores: the same bytes as on a disk, resumed, and safe against other writers."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from helpers.object_stores import environment
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
from manifests.remote.store import Store, open_store

pytestmark = pytest.mark.usefixtures("staging")

OPTIONS = Options(shard_samples=10)


def download(store: Store) -> dict[str, bytes]:
    return {info.name: bytes(store.get(info.name)) for info in store.list_objects()}


def content(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}


def without_stamps(files: dict[str, bytes]) -> dict[str, bytes]:
    machine = (".dataprep/stamps.json", ".dataprep/owner")
    return {name: data for name, data in files.items() if name not in machine}


@pytest.fixture(scope="module")
def source(make_photos, tmp_path_factory) -> str:
    root = make_photos(tmp_path_factory.mktemp("images") / "set", 36)
    (root / "class 0" / "broken.jpg").write_bytes(b"\xff\xd8\xff")
    return str(root)


@pytest.fixture(scope="module")
def expected(source, tmp_path_factory) -> dict[str, bytes]:
    out = tmp_path_factory.mktemp("expected") / "out"
    convert_dataset(read_source(source), str(out), OPTIONS, workers=1)
    return without_stamps(content(out))


def files_below(folder: Path) -> list[str]:
    return [str(path) for path in folder.rglob("*") if path.is_file()]


def test_a_bucket_gets_the_same_bytes_as_a_folder(source, expected, each_store, staging) -> None:
    result = convert_dataset(read_source(source), str(each_store), OPTIONS, workers=1)
    assert (result.resumed, result.rejected) == (0, 1)
    assert without_stamps(download(each_store)) == expected
    assert not verify_dataset(str(each_store), workers=1).problems
    assert files_below(staging) == []


def test_a_complete_dataset_is_not_written_again(source, store, monkeypatch) -> None:
    convert_dataset(read_source(source), str(store), OPTIONS, workers=1)
    before = {info.name: info.etag for info in store.list_objects()}
    monkeypatch.setattr(Store, "put", None)
    result = convert_dataset(read_source(source), str(store), OPTIONS, workers=1)
    assert result.resumed == 4
    assert {info.name: info.etag for info in store.list_objects()} == before


@pytest.mark.parametrize("in_steps", [False, True])
def test_a_run_killed_between_the_manifest_and_the_mark_of_incomplete_datasets(
    source, expected, store, monkeypatch, in_steps
) -> None:
    """The manifest is written, and the object that says that the dataset is incomplete is not deleted yet."""
    delete = Store.delete

    def killed(self, name, *check):
        if name == "journal.json" and "manifest.json" in download(store):
            raise ZeroDivisionError
        delete(self, name, *check)

    def run():
        if in_steps:
            work(str(store), workers=1)
            finish(str(store), workers=1)
        else:
            convert_dataset(read_source(source), str(store), OPTIONS, workers=1)

    if in_steps:
        plan_dataset(read_source(source), str(store), OPTIONS)
    with monkeypatch.context() as patch:
        patch.setattr(Store, "delete", killed)
        with pytest.raises(ZeroDivisionError):
            run()
    assert {"manifest.json", JOURNAL_NAME} <= {*download(store)}
    run()
    files = {
        name: data
        for name, data in download(store).items()
        if not name.startswith(".dataprep/plan/")
    }
    assert without_stamps(files) == expected


def test_what_is_missing_is_written_again(source, expected, store) -> None:
    convert_dataset(read_source(source), str(store), OPTIONS, workers=1)
    for lost in ("train-00001.parquet", "train-00001.tfrecord", "train-00001.idx", "manifest.json"):
        store.delete(lost)
        result = convert_dataset(read_source(source), str(store), OPTIONS, workers=1)
        assert result.resumed == (4 if lost == "manifest.json" else 3), lost
        assert without_stamps(download(store)) == expected, lost


def test_a_late_worker_of_another_plan_is_refused_and_changes_nothing(
    source, store, monkeypatch
) -> None:
    tasks = []

    def record(task, pool=None):
        tasks.append(task)
        return write_shard(task, pool)

    monkeypatch.setattr("dataprep.run.work.write_shard", record)
    convert_dataset(read_source(source), str(store), Options(shard_samples=12), workers=1)
    convert_dataset(read_source(source), str(store), OPTIONS, workers=1, overwrite=True)
    before = download(store)
    with pytest.raises(LostFolderError, match="another run has taken over the folder"):
        write_shard(tasks[0])
    with pytest.raises(
        StorageError, match="was written by another run, with another source or other options"
    ):
        write_shard(tasks[0]._replace(check=None))
    assert download(store) == before


def test_a_store_that_ignores_create_if_absent_is_refused_at_start(
    source, store, monkeypatch
) -> None:
    monkeypatch.setattr(Store, "create", lambda self, name, data: self.put(name, data) is None)
    with pytest.raises(CallError, match="this object store ignores create-if-absent"):
        convert_dataset(read_source(source), str(store), OPTIONS, workers=1)
    assert download(store) == {}


def test_an_output_that_cannot_be_written(source) -> None:
    with pytest.raises(CallError, match=r"--out https://host/x can only be read"):
        convert_dataset(read_source(source), "https://host/x", OPTIONS, workers=1)


def test_the_output_is_not_inside_the_source(make_photos, tmp_path, store) -> None:
    for path in make_photos(tmp_path / "set", 3).rglob("*.*"):
        store.put(str(path.relative_to(tmp_path / "set")), path.read_bytes())
    with pytest.raises(CallError, match="is inside the source"):
        convert_dataset(read_source(str(store)), f"{store}/class 0/out", OPTIONS, workers=1)


def test_a_folder_of_another_user_is_not_used_for_temporary_files(source, bucket, staging) -> None:
    (staging / f"dataprep-{os.getuid()}").write_text("not a folder")
    with pytest.raises(CallError, match="is not a folder of this user"):
        convert_dataset(read_source(source), str(bucket), OPTIONS, workers=1)


@pytest.mark.parametrize("server", ["seaweedfs", "moto"])
def test_parts_of_a_killed_upload_are_removed_by_the_next_run(
    source, expected, server, server_environment, monkeypatch, staging
) -> None:
    boto3 = pytest.importorskip("boto3")
    with environment(server_environment(server)):
        monkeypatch.setattr("manifests.remote.store.SINGLE_PUT_BYTES", 1000)
        url = f"s3://{BUCKET}/parts {server}"
        client = boto3.client("s3")
        for name in ("train-00001.tfrecord", "train-00099.tfrecord"):
            key = f"parts {server}/{name}"
            upload = client.create_multipart_upload(Bucket=BUCKET, Key=key)["UploadId"]
            client.upload_part(
                Bucket=BUCKET, Key=key, PartNumber=1, UploadId=upload, Body=b"x" * 1000
            )
        with storage.partials(url, is_alone=False):  # what a killed process leaves
            left = Path(storage.partial_path(f"{url}/train-00001.tfrecord"))
            left.write_bytes(b"x" * 2000)
            os.rename(left, left.with_name("1-train-00001.tfrecord"))
        convert_dataset(read_source(source), url, OPTIONS, workers=1)
        assert without_stamps(download(open_store(url))) == expected
        uploads = client.list_multipart_uploads(Bucket=BUCKET, Prefix=f"parts {server}").get(
            "Uploads", ()
        )
        assert [upload["Key"] for upload in uploads] == [f"parts {server}/train-00099.tfrecord"]


@pytest.mark.parametrize("server", ["seaweedfs", "moto"])
def test_an_interrupted_upload_leaves_that_of_another_process(
    server, server_environment, monkeypatch, staging
) -> None:
    boto3 = pytest.importorskip("boto3")
    with environment(server_environment(server)):
        monkeypatch.setattr("manifests.remote.store.SINGLE_PUT_BYTES", 1000)
        url, key = f"s3://{BUCKET}/two {server}", f"two {server}/train-00000.tfrecord"
        client = boto3.client("s3")

        def begin_and_fail(*_: object) -> None:
            client.create_multipart_upload(Bucket=BUCKET, Key=key)
            raise KeyboardInterrupt

        other = client.create_multipart_upload(Bucket=BUCKET, Key=key)["UploadId"]
        monkeypatch.setattr("manifests.remote.store.Store.put", begin_and_fail)
        with storage.partials(url, is_alone=False):
            paths = [f"{url}/train-00000.{suffix}" for suffix in ("tfrecord", "parquet")]
            for path in paths:
                Path(storage.partial_path(path)).write_bytes(b"x" * 2000)
            with pytest.raises(KeyboardInterrupt):
                storage.publish(paths)
            assert len(client.list_multipart_uploads(Bucket=BUCKET, Prefix=key)["Uploads"]) == 2
            storage.discard(paths)
        uploads = client.list_multipart_uploads(Bucket=BUCKET, Prefix=key).get("Uploads", ())
        for upload in uploads:
            client.abort_multipart_upload(Bucket=BUCKET, Key=key, UploadId=upload["UploadId"])
        assert [upload["UploadId"] for upload in uploads] == [other]


def test_no_credential_in_anything_that_is_written_or_printed(
    source, bucket, dataprep, staging, tmp_path
) -> None:
    runs = [dataprep("convert", "--src", source, "--out", bucket, "--samples-per-shard", "10", "--max-rejected", "1"),
            dataprep("info", bucket, "--json"), dataprep("verify", bucket),
            dataprep("plan", "--src", source, "--out", f"{bucket}/planned")]  # fmt: skip
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
