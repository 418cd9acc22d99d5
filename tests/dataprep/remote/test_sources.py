"""Sources in object stores: ImageFolders, lists and tables, with relative paths and absolute URLs."""

from __future__ import annotations

import os
import struct
from pathlib import Path

import numpy as np
import pytest
from helpers.http_files import serve_folder
from helpers.make_sources import MAKERS, tar_of
from helpers.object_stores import files_of, upload
from helpers.tables import write_table

from dataprep.containers import locations_of, read_location, start_reading
from dataprep.options import Options
from dataprep.run.convert import convert_dataset
from dataprep.sources import Source, SourceOptions, read_source
from manifests.errors import CallError, SourceError, SourceVanishedError
from manifests.files import open_downloaded
from manifests.remote.store import Store

OPTIONS = Options(shard_samples=10)


@pytest.fixture(scope="module")
def images(make_photos, tmp_path_factory) -> Path:
    root = tmp_path_factory.mktemp("images") / "set"
    make_photos(root / "train", 24)
    make_photos(root / "val", 12)
    image = (root / "train/class 0/00000.jpg").read_bytes()
    (root / "train" / "class 1" / "Ünï 日本 +&.jpg").write_bytes(image)
    (root / "train" / "notes.txt").write_text("no image")
    (root / "train" / "class 0" / "deep" / "er").mkdir(parents=True)
    os.rename(root / "train/class 0/00003.jpg", root / "train/class 0/deep/er/x.jpg")
    return root


def assert_equal(remote: Source, local: Source) -> None:
    assert remote.path.to_pylist() == local.path.to_pylist()
    for name in ("label", "split", "size"):
        np.testing.assert_array_equal(getattr(remote, name), getattr(local, name))
    for name in ("classes", "splits", "layout", "notices"):
        assert getattr(remote, name) == getattr(local, name)
    assert remote.extra.equals(local.extra)


def convert(source: Source, out: Path, options: Options = OPTIONS) -> dict[str, bytes]:
    convert_dataset(source, str(out), options, workers=1)
    return files_of(out)


@pytest.fixture
def check_equal(tmp_path):
    """A function that checks that a remote and a local source are the same, and give the same bytes."""

    def check(remote: Source, local: Source) -> None:
        assert_equal(remote, local)
        assert convert(remote, tmp_path / "remote") == convert(local, tmp_path / "local")

    return check


@pytest.fixture
def no_download(monkeypatch):
    """A function after which no file with these suffixes may be read as a whole."""

    def forbid(*suffixes: str) -> None:
        def checked(path, check):
            assert not path.endswith(suffixes)
            return open_downloaded(path, check)

        monkeypatch.setattr("manifests.files.open_downloaded", checked)

    return forbid


def test_an_image_folder_gives_the_same_bytes(images, each_store, check_equal) -> None:
    check_equal(read_source(upload(images, each_store)), read_source(str(images)))


def test_a_list_gives_the_same_bytes(images, store, check_equal, tmp_path) -> None:
    upload(images, store)
    paths = sorted(path for path in images.rglob("*") if path.suffix in (".jpg", ".png", ".webp"))
    lines = [f"{path.relative_to(images)} {number % 3}" for number, path in enumerate(paths)]
    (tmp_path / "train_list.txt").write_text("\n".join(lines))
    store.put("train_list.txt", (tmp_path / "train_list.txt").read_bytes())
    local, mixed = (
        read_source(str(tmp_path / "train_list.txt"), SourceOptions(image_root=str(root)))
        for root in (images, store)
    )
    assert_equal(mixed, local)
    check_equal(read_source(f"{store}/train_list.txt"), local)


@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
def test_a_table_with_absolute_urls(images, store, tmp_path, suffix) -> None:
    upload(images, store)
    names = ["train/class 0/00000.jpg", "val/class 1/00001.png", "train/class 1/Ünï 日本 +&.jpg"]
    paths = [f"{store}/{names[0]}", str(images / names[1]), names[2]]
    table = write_table(tmp_path, suffix, {"path": paths, "label": ["a", "b", "a"]})
    store.put(table.name, table.read_bytes())
    source = read_source(f"{store}/{table.name}")
    assert source.path.to_pylist() == paths
    assert source.size.tolist() == [(images / name).stat().st_size for name in names]
    convert(source, tmp_path / "out")


def test_what_does_not_exist_is_named(images, store) -> None:
    for url in (str(store), f"{store}/list.txt"):
        with pytest.raises(CallError, match="does not exist"):
            read_source(url)
    upload(images, store)
    store.put("list.txt", b"train/class 0/00000.jpg 0\ntrain/missing.jpg 1\n")
    message = r"image 'train/missing.jpg' does not exist in folder"
    with pytest.raises(SourceError, match=message) as error:
        read_source(f"{store}/list.txt")
    assert error.value.line == 2


@pytest.mark.parametrize(("suffix", "text"), [(".txt", "\n{} 1\n"), (".csv", "path,label\n{},1\n")])
def test_a_url_with_a_credential_in_a_list_is_refused_and_not_repeated(
    tmp_path, suffix, text
) -> None:
    path = tmp_path / f"list{suffix}"
    path.write_text(text.format("https://host/x.jpg?X-Amz-Signature=planted"))
    with pytest.raises(SourceError, match="may contain a credential") as error:
        read_source(str(path))
    assert error.value.line == 2
    assert "planted" not in str(error.value)


def test_names_that_cannot_be_part_of_a_url_are_rejected(images, store) -> None:
    before = read_source(upload(images, store))
    image = (images / "train/class 0/00000.jpg").read_bytes()
    for name in ("what?.jpg", "no#2.jpg", "which?/1.jpg"):
        store.put(f"train/class 0/{name}", image)
    source = read_source(str(store))
    rejected = {
        row["source"]: row["reason"] for row in source.rejected if row not in before.rejected
    }
    names = ("no#2.jpg", "what?.jpg", "which?")
    assert rejected == {f"train/class 0/{name}": "bad-name" for name in names}
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
    assert files_of(tmp_path / "a") == files_of(tmp_path / "b")


def test_images_that_are_replaced(images, store, tmp_path) -> None:
    """After the scan, it is an error; another one of the same size has another stamp."""
    source = read_source(upload(images, store))
    replaced = "val/class 0/00000.jpg"
    store.put(replaced, bytes((images / replaced).stat().st_size))
    after = read_source(str(store))
    changed = np.flatnonzero(source.stamp[:, 1] != after.stamp[:, 1])
    assert [after.path[int(row)].as_py() for row in changed] == [replaced]
    store.put("train/class 0/00000.jpg", b"shorter")
    with pytest.raises(SourceVanishedError, match=r"when the source was scanned, but has 7 now"):
        convert(source, tmp_path / "out")
    store.delete("train/class 0/00000.jpg")
    message = r"cannot be read now \(the object does not exist\)"
    with pytest.raises(SourceVanishedError, match=message):
        convert(source, tmp_path / "out")


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


# --- containers -----------------------------------------------------------------------------------


def test_a_prepared_dataset_is_read_in_parts(images, store, tmp_path, no_download) -> None:
    convert(read_source(str(images)), tmp_path / "set")
    options = Options(fmt="webdataset", shard_samples=7, seed=3)
    local = convert(read_source(str(tmp_path / "set")), tmp_path / "local", options)
    url = upload(tmp_path / "set", store)
    no_download(".tfrecord")
    assert convert(read_source(url), tmp_path / "remote", options) == local


@pytest.mark.parametrize(
    "kind",
    [
        "hugging face", "tfrecord dataset", "webdataset dataset", "json lines", "zip", "tar",
        "tar of tars", "imagenet", "recordio", "lmdb of Caffe", "lmdb of LSUN",
    ],
)  # fmt: skip
def test_containers_are_read_in_place(
    kind, store, tmp_path, check_equal, no_download, ranges
) -> None:
    """An image of a zip or of a RecordIO file takes one request."""
    made = MAKERS[kind](tmp_path / "source")
    if made.src.is_dir():
        url = upload(made.src, store)
    else:
        url = f"{upload(made.src.parent, store)}/{made.src.name}"
    no_download(".zip", "_train.tar", "_val.tar", "photos.tar", ".rec", ".mdb")
    remote = read_source(url)
    assert remote.stamp is not None
    ranges.clear()
    check_equal(remote, read_source(str(made.src)))
    assert kind not in ("zip", "recordio") or len(ranges) == len(remote)


def test_an_archive_of_large_files_is_listed_without_them(bucket, ranges) -> None:
    """Each file is longer than what is read to save a request, so little more than the headers is read."""
    data = tar_of([(f"class {number % 2}/{number}.jpg", bytes(3 << 20)) for number in range(6)])
    bucket.put("photos.tar", data)
    assert len(read_source(f"{bucket}/photos.tar")) == 6
    assert sum(end - start for _, start, end in ranges) < len(data) / 3


def test_a_record_of_many_parts_takes_few_requests(bucket, ranges) -> None:
    def part(flag: int, data: bytes) -> bytes:
        return struct.pack("<II", 0xCED7230A, flag << 29 | len(data)) + data

    count = 20_000
    header = struct.pack("<IfQQ", 0, 0.0, 1, 0)
    bucket.put("train.rec", part(1, header) + part(2, b"") * count + part(3, b"abcd"))
    source = read_source(f"{bucket}/train.rec")
    (location,) = locations_of(source.location, [0])
    ranges.clear()
    pending = start_reading(source.root, location)
    assert pending is not None
    image = read_location(source.root, location, int(source.size[0]), pending.result())
    assert image == struct.pack("<I", 0xCED7230A) * (count + 1) + b"abcd"
    assert len(ranges) < 10


def test_a_list_on_a_web_server_that_sends_no_ranges(images, tmp_path) -> None:
    """A list without an extension may be an archive, as its first bytes cannot be requested."""
    (tmp_path / "train_list").write_text("train/class 0/00000.jpg 0\nval/class 1/00001.png 1\n")
    with serve_folder(tmp_path, ranges=False) as url:
        with pytest.raises(CallError, match=r"does not exist. Hint: give a list or a table"):
            read_source(f"{url}/images")  # a folder cannot be listed
        source = read_source(f"{url}/train_list", SourceOptions(image_root=str(images)))
    assert source.label.tolist() == [0, 1]
