"""`verify` and `info` of datasets in object stores."""

from __future__ import annotations

from pathlib import Path

import pytest
from helpers.servers import ACCESS_KEY, SECRET_KEY

from dataprep.summary.info import summarize
from dataprep.verification.shard import ShardCheck, manifest_of, verify_shard
from dataprep.verification.verify import verify_dataset, verify_manifest
from manifests.errors import CallError, ExitStatus, StorageError, UnreachableError
from manifests.remote import connect
from manifests.remote.store import Store


def upload(folder: Path, store: Store) -> str:
    for path in sorted(folder.glob("[!.]*")):
        store.put(path.name, path.read_bytes())
    return str(store)


@pytest.fixture(scope="module")
def dataset(photos, dataprep, tmp_path_factory):
    out = tmp_path_factory.mktemp("out") / "set"
    done = dataprep(
        "convert", "--src", photos, "--out", out, "--fmt", "webdataset", "--shard-size", "300KB"
    )
    assert done.returncode == 0, done.stderr
    return out


def test_info_is_that_of_the_local_copy(dataset, store) -> None:
    url = upload(dataset, store)
    remote = summarize(url, formats=True).as_json()
    local = summarize(str(dataset), formats=True).as_json()
    assert local["formats"]
    assert remote.pop("folder") == url
    assert local.pop("folder") == str(dataset)
    assert remote == local


def test_verify_streams_each_shard_once(dataset, store, monkeypatch) -> None:
    url = upload(dataset, store)
    monkeypatch.setattr("dataprep.storage.remote.VIEW_BYTES", 1 << 14)
    ranges: dict[str, list[tuple[int, int]]] = {}
    start_range = Store.start_range

    def counted(self, name, start, end, *, etag=None):
        ranges.setdefault(name, []).append((start, end))
        return start_range(self, name, start, end, etag=etag)

    monkeypatch.setattr(Store, "start_range", counted)
    assert not verify_dataset(url, workers=1, decode=True).problems
    shards = sorted(dataset.glob("*.tar"))
    assert len(shards) > 2
    for shard in shards:
        read = sum(end - start for start, end in ranges[shard.name])
        assert read <= shard.stat().st_size + (1 << 20)


def test_damage_is_found_where_it_is(dataset, each_store) -> None:
    url = upload(dataset, each_store)
    data = bytearray((dataset / "train-00001.tar").read_bytes())
    data[2000] ^= 1
    each_store.put("train-00001.tar", data)
    each_store.delete("train-00002.idx")
    each_store.put("train-00000.parquet", b"")
    each_store.put("train-99999.tar", b"")
    problems = {
        problem.file: problem.message for problem in verify_dataset(url, workers=1).problems
    }
    assert "does not match its checksum" in problems["train-00001.tar"]
    assert "does not exist" in problems["train-00002.idx"]
    assert problems["train-99999.tar"] == "the file is not in the manifest"
    assert "train-00000.parquet" in problems


def test_the_presence_and_length_of_every_file(dataset, store) -> None:
    url = upload(dataset, store)
    assert not verify_manifest(url).problems
    store.put("train-00001.tar", b"short")
    store.delete("train-00002.idx")
    assert {problem.file for problem in verify_manifest(url).problems} == {
        "train-00001.tar",
        "train-00002.idx",
    }


def test_a_dataset_that_does_not_exist(store) -> None:
    with pytest.raises(CallError, match="does not exist"):
        verify_dataset(str(store))
    store.put("something", b"")
    (problem,) = verify_dataset(str(store)).problems
    assert problem.message == "the manifest is missing, so the dataset is incomplete"


def test_a_server_that_stops_is_no_damage(dataset, bucket, monkeypatch) -> None:
    url = upload(dataset, bucket)
    monkeypatch.setattr(connect, "MAX_RETRIES", 1)
    assert manifest_of(url)
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:1")
    connect.close_connections()
    shard = manifest_of(url).shards[0]
    with pytest.raises(UnreachableError, match="the server cannot be reached"):
        verify_shard(ShardCheck(url, shard, decode=False, given_max_pixels=None))


def test_wrong_credentials_are_status_3_and_are_never_shown(
    dataset, bucket, dataprep, monkeypatch
) -> None:
    url = upload(dataset, bucket)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", f"{SECRET_KEY}wrong")
    monkeypatch.setenv("DATAPREP_DEBUG", "1")
    done = dataprep("verify", url)
    assert done.returncode == ExitStatus.STOPPED
    assert "refused permission" in done.stderr
    assert "with the credentials in AWS_ACCESS_KEY_ID" in done.stderr
    for secret in (ACCESS_KEY, SECRET_KEY):
        assert secret not in done.stdout + done.stderr


@pytest.mark.parametrize(
    "url", ["s3://bucket/x?X-Amz-Signature=planted", "s3://planted:planted@bucket/x"]
)
def test_a_url_with_a_credential_is_refused_and_not_repeated(dataprep, url) -> None:
    done = dataprep("info", url)
    assert done.returncode == ExitStatus.WRONG_USAGE
    assert "may contain a credential" in done.stderr
    assert "planted" not in done.stdout + done.stderr


def test_a_replaced_shard_is_an_error(dataset, store, monkeypatch) -> None:
    from dataprep import storage

    url = upload(dataset, store)
    monkeypatch.setattr("dataprep.storage.remote.VIEW_BYTES", 1 << 14)
    with storage.open_view(f"{url}/train-00000.tar") as (view, size):
        view(0, 512)
        store.put("train-00000.tar", bytes(size))
        with pytest.raises(StorageError, match="was replaced while it was in use"):
            view.checksum(size)
