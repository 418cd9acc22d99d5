"""Sources in object stores: ImageFolders, lists and tables, with relative paths and absolute URLs."""

from __future__ import annotations

import csv
import os
import struct
from pathlib import Path

import numpy as np
import pytest
from helpers.http_files import serve_folder
from helpers.make_sources import MAKERS, tar_of

from dataprep.containers import locations_of, read_location, start_reading
from dataprep.options import Options
from dataprep.run.convert import convert_dataset
from dataprep.sources import Source, SourceOptions, read_source
from manifests.errors import CallError, SourceError, SourceVanishedError
from manifests.files import open_downloaded
from manifests.remote.store import Store


def upload(folder: Path, store: Store) -> str:
    for path in sorted(folder.rglob("*")):
        if path.is_file():
            store.put(str(path.relative_to(folder)), path.read_bytes())
    return str(store)


@pytest.fixture(scope="module")
def images(make_photos, tmp_path_factory) -> Path:
    root = tmp_path_factory.mktemp("images") / "set"
    make_photos(root / "train", 24)
    make_photos(root / "val", 12)
    (root / "train" / "class 1" / "Ünï 日本 +&.jpg").write_bytes(
        (root / "train/class 0/00000.jpg").read_bytes()
    )
    (root / "train" / "notes.txt").write_text("no image")
    (root / "train" / "class 0" / "deep" / "er").mkdir(parents=True)
    os.rename(root / "train/class 0/00003.jpg", root / "train/class 0/deep/er/x.jpg")
    return root


def assert_equal(remote: Source, local: Source) -> None:
    assert remote.path.to_pylist() == local.path.to_pylist()
    for name in ("label", "split", "size"):
        np.testing.assert_array_equal(getattr(remote, name), getattr(local, name))
    assert (remote.classes, remote.splits, remote.layout) == (
        local.classes,
        local.splits,
        local.layout,
    )
    assert remote.notices == local.notices
    assert remote.extra.equals(local.extra)


def convert(source: Source, out: Path) -> dict[str, bytes]:
    convert_dataset(source, str(out), Options(shard_samples=10), workers=1)
    return {path.name: path.read_bytes() for path in out.iterdir() if path.is_file()}


def test_an_image_folder_gives_the_same_bytes(images, each_store, tmp_path) -> None:
    remote, local = read_source(upload(images, each_store)), read_source(str(images))
    assert_equal(remote, local)
    assert convert(remote, tmp_path / "remote") == convert(local, tmp_path / "local")


def test_a_list_gives_the_same_bytes(images, store, tmp_path) -> None:
    upload(images, store)
    paths = sorted(path for path in images.rglob("*") if path.suffix in (".jpg", ".png", ".webp"))
    text = "".join(
        f"{path.relative_to(images)} {number % 3}\n" for number, path in enumerate(paths)
    )
    (tmp_path / "train_list.txt").write_text(text)
    store.put("train_list.txt", text.encode())
    local = read_source(str(tmp_path / "train_list.txt"), SourceOptions(image_root=str(images)))
    remote = read_source(f"{store}/train_list.txt")
    assert_equal(remote, local)
    from_local_list = read_source(
        str(tmp_path / "train_list.txt"), SourceOptions(image_root=str(store))
    )
    assert_equal(from_local_list, local)
    assert convert(remote, tmp_path / "remote") == convert(local, tmp_path / "local")


@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
def test_a_table_with_absolute_urls(images, store, tmp_path, suffix) -> None:
    import pyarrow.csv
    import pyarrow.parquet as pq

    upload(images, store)
    names = ["train/class 0/00000.jpg", "val/class 1/00001.png", "train/class 1/Ünï 日本 +&.jpg"]
    rows = [[f"{store}/{names[0]}", "a"], [str(images / names[1]), "b"], [names[2], "a"]]
    table = tmp_path / "table.csv"
    with table.open("w", newline="") as file:
        csv.writer(file).writerows([["path", "label"], *rows])
    if suffix == ".parquet":
        pq.write_table(pyarrow.csv.read_csv(table), table := tmp_path / "table.parquet")
    store.put(table.name, table.read_bytes())
    source = read_source(f"{store}/{table.name}")
    assert source.path.to_pylist() == [row[0] for row in rows]
    assert source.size.tolist() == [(images / name).stat().st_size for name in names]
    convert(source, tmp_path / "out")


def test_a_missing_image_is_named_with_its_line(images, store) -> None:
    upload(images, store)
    store.put("list.txt", b"train/class 0/00000.jpg 0\ntrain/missing.jpg 1\n")
    with pytest.raises(
        SourceError, match=r"image 'train/missing.jpg' does not exist in folder"
    ) as error:
        read_source(f"{store}/list.txt")
    assert error.value.line == 2


@pytest.mark.parametrize("suffix", [".txt", ".csv"])
def test_a_url_with_a_credential_in_a_list_is_refused_and_not_repeated(tmp_path, suffix) -> None:
    path = tmp_path / f"list{suffix}"
    url = "https://host/x.jpg?X-Amz-Signature=planted"
    path.write_text(f"path,label\n{url},1\n" if suffix == ".csv" else f"\n{url} 1\n")
    with pytest.raises(SourceError, match="may contain a credential") as error:
        read_source(str(path))
    assert error.value.line == 2
    assert "planted" not in str(error.value)


def test_a_source_that_does_not_exist(store) -> None:
    with pytest.raises(CallError, match="does not exist"):
        read_source(str(store))
    with pytest.raises(CallError, match="does not exist"):
        read_source(f"{store}/list.txt")


@pytest.mark.parametrize("name", ["what?.jpg", "no#2.jpg", "which?/1.jpg"])
def test_names_that_cannot_be_part_of_a_url_are_rejected(images, store, name) -> None:
    url = upload(images, store)
    before = read_source(url)
    store.put(f"train/class 0/{name}", (images / "train/class 0/00000.jpg").read_bytes())
    source = read_source(url)
    rejected = [row for row in source.rejected if row not in before.rejected]
    assert [(row["source"], row["reason"]) for row in rejected] == [
        (f"train/class 0/{name.removesuffix('/1.jpg')}", "bad-name")
    ]
    assert source.path == before.path


def test_plan_work_and_finish_with_images_in_an_object_store(
    images, store, invoke, tmp_path
) -> None:
    url = upload(images, store)
    invoke("convert", "--src", url, "--out", tmp_path / "a", "--samples-per-shard", 10)
    invoke("plan", "--src", url, "--out", tmp_path / "b", "--samples-per-shard", 10)
    invoke("info", tmp_path / "b/.dataprep/plan")
    invoke("work", tmp_path / "b", "--task", "0/1")
    invoke("finish", tmp_path / "b")
    for name in ("manifest.json", "train-00000.tfrecord", "val-00001.parquet"):
        assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes()


def test_an_image_that_was_replaced_after_the_scan(images, store, tmp_path) -> None:
    source = read_source(upload(images, store))
    store.put("train/class 0/00000.jpg", b"shorter")
    with pytest.raises(SourceVanishedError, match=r"when the source was scanned, but has 7 now"):
        convert(source, tmp_path / "out")
    store.delete("train/class 0/00000.jpg")
    with pytest.raises(
        SourceVanishedError, match=r"cannot be read now \(the object does not exist\)"
    ):
        convert(source, tmp_path / "out")


def test_a_replaced_image_of_the_same_size_has_another_stamp(images, store) -> None:
    before = read_source(upload(images, store))
    store.put("val/class 0/00000.jpg", bytes((images / "val/class 0/00000.jpg").stat().st_size))
    after = read_source(str(store))
    changed = np.flatnonzero(before.stamp[:, 1] != after.stamp[:, 1])
    assert [after.path[int(row)].as_py() for row in changed] == ["val/class 0/00000.jpg"]


def test_each_folder_is_listed_once(images, bucket, monkeypatch) -> None:
    url = upload(images, bucket)
    listed: list[str] = []
    start_listing = Store.start_listing

    def counted(self):
        listed.append(str(self.url))
        return start_listing(self)

    monkeypatch.setattr(Store, "start_listing", counted)
    read_source(url)
    assert len(listed) == len(set(listed))
    # Two of them are the folders `raw`, whose files would tell MNIST and its like.
    assert len(listed) <= 13


def test_a_prepared_dataset_is_read_in_parts(images, store, tmp_path, monkeypatch) -> None:
    convert(read_source(str(images)), tmp_path / "set")
    options = Options(fmt="webdataset", shard_samples=7, seed=3)
    convert_dataset(read_source(str(tmp_path / "set")), str(tmp_path / "local"), options, workers=1)
    url = upload(tmp_path / "set", store)

    def never_a_shard(path, check):
        assert not path.endswith(".tfrecord")
        return open_downloaded(path, check)

    monkeypatch.setattr("manifests.files.open_downloaded", never_a_shard)
    convert_dataset(read_source(url), str(tmp_path / "remote"), options, workers=1)
    for path in (tmp_path / "local").glob("[!.]*"):
        if path.is_file():
            assert (tmp_path / "remote" / path.name).read_bytes() == path.read_bytes()


@pytest.mark.parametrize(
    "kind", ["hugging face", "tfrecord dataset", "webdataset dataset", "json lines"]
)
def test_containers_give_the_same_bytes(kind, store, tmp_path) -> None:
    assert_same_in(store, kind, tmp_path)


@pytest.mark.parametrize(
    "kind", ["zip", "tar", "tar of tars", "imagenet", "recordio", "lmdb of Caffe", "lmdb of LSUN"]
)
def test_archives_are_read_in_place(kind, bucket, tmp_path, monkeypatch) -> None:
    def never_an_archive(path, check):
        assert not path.endswith((".zip", "_train.tar", "_val.tar", "photos.tar", ".rec", ".mdb"))
        return open_downloaded(path, check)

    monkeypatch.setattr("manifests.files.open_downloaded", never_an_archive)
    assert_same_in(bucket, kind, tmp_path)


def assert_same_in(store: Store, kind: str, tmp_path: Path) -> None:
    """Check that a kind of source is the same in a store as on the disk, and gives the same bytes."""
    made = MAKERS[kind](tmp_path / "source")
    folder = made.src if made.src.is_dir() else made.src.parent
    url = (
        upload(folder, store) if folder == made.src else f"{upload(folder, store)}/{made.src.name}"
    )
    remote, local = read_source(url), read_source(str(made.src))
    assert_equal(remote, local)
    assert remote.stamp is not None
    assert convert(remote, tmp_path / "remote") == convert(local, tmp_path / "local")


def test_an_archive_of_large_files_is_listed_without_them(bucket, tmp_path, monkeypatch) -> None:
    """Each file is longer than what is read to save a request, so little more than the headers is read."""
    names = [f"class {number % 2}/{number}.jpg" for number in range(6)]
    data = tar_of([(name, bytes(3 << 20)) for name in names])
    bucket.put("photos.tar", data)
    read = 0
    start_range = Store.start_range

    def counted(self, name, start, end, *, etag=None):
        nonlocal read
        read += end - start
        return start_range(self, name, start, end, etag=etag)

    monkeypatch.setattr(Store, "start_range", counted)
    assert len(read_source(f"{bucket}/photos.tar")) == 6
    assert read < len(data) / 3


def test_a_record_of_many_parts_takes_few_requests(bucket, tmp_path, monkeypatch) -> None:
    def part(flag: int, data: bytes) -> bytes:
        return struct.pack("<II", 0xCED7230A, flag << 29 | len(data)) + data

    count = 20_000
    header = struct.pack("<IfQQ", 0, 0.0, 1, 0)
    bucket.put("train.rec", part(1, header) + part(2, b"") * count + part(3, b"abcd"))
    source = read_source(f"{bucket}/train.rec")
    (location,) = locations_of(source.location, [0])
    requests, start_range = [], Store.start_range

    def counted(self, name, start, end, *, etag=None):
        requests.append(name)
        return start_range(self, name, start, end, etag=etag)

    monkeypatch.setattr(Store, "start_range", counted)
    pending = start_reading(source.root, location)
    assert pending is not None
    image = read_location(source.root, location, int(source.size[0]), pending.result())
    assert image == struct.pack("<I", 0xCED7230A) * (count + 1) + b"abcd"
    assert len(requests) < 10


def test_a_list_on_a_web_server_that_sends_no_ranges(images, tmp_path) -> None:
    """A list without an extension may be an archive, as its first bytes cannot be requested."""
    (tmp_path / "train_list").write_text("train/class 0/00000.jpg 0\nval/class 1/00001.png 1\n")
    with serve_folder(tmp_path, ranges=False) as url:
        with pytest.raises(CallError, match=r"does not exist. Hint: give a list or a table"):
            read_source(f"{url}/images")  # a folder cannot be listed
        source = read_source(f"{url}/train_list", SourceOptions(image_root=str(images)))
    assert source.label.tolist() == [0, 1]


@pytest.mark.parametrize("kind", ["zip", "recordio"])
def test_an_image_takes_one_request(kind, bucket, tmp_path, monkeypatch) -> None:
    made = MAKERS[kind](tmp_path / "source")
    folder = made.src if made.src.is_dir() else made.src.parent
    url = (
        upload(folder, bucket)
        if folder == made.src
        else f"{upload(folder, bucket)}/{made.src.name}"
    )
    source = read_source(url)
    requests, start_range = [], Store.start_range

    def counted(self, name, start, end, *, etag=None):
        requests.append(name)
        return start_range(self, name, start, end, etag=etag)

    monkeypatch.setattr(Store, "start_range", counted)
    convert(source, tmp_path / "out")
    assert len(requests) == len(source)
