"""Archives of class folders, and ImageNet's archives, read in place."""

from __future__ import annotations

import gzip
import io
import json
import random
import re
import shutil
import tarfile
import zipfile
from contextlib import suppress

import numpy as np
import pytest
import scipy.io
from helpers.make_sources import IMAGES, imagenet_tars, meta_mat, tar_of
from helpers.pictures import encode, photo
from helpers.sources import has_notice, read, rows

from dataprep.containers import locations_of, read_location
from dataprep.images.base import Rejected
from dataprep.sources import mat_file, read_source
from manifests.errors import SourceError

JPEG = encode(photo(0, 16, 16))


def zip_of(path, files, **options):
    with zipfile.ZipFile(path, "w", **options) as archive:
        for name, data in files:
            archive.writestr(name, data)
    return path


def write_tar(path, names):
    path.write_bytes(tar_of([(name, JPEG) for name in names]))
    return path


def load(source):
    """Read all images of a source, or the reason of their rejection."""
    read_images = []
    for location, size in zip(
        locations_of(source.location, [*range(len(source))]), source.size.tolist(), strict=True
    ):
        try:
            read_images.append(read_location(source.root, location, size))
        except Rejected as error:
            read_images.append(error.reason)
    return read_images


@pytest.mark.parametrize("kind", ["tar", "zip"])
def test_an_archive_that_replaced_another_one_is_read(kind, tmp_path):
    """In the same process, under the same name."""
    path = tmp_path / f"photos.{kind}"
    for names in (["cat/1.jpg", "dog/2.jpg"], ["cat/a longer name.jpg", "dog/2.jpg"]):
        path.unlink(missing_ok=True)
        if kind == "zip":
            zip_of(path, [(name, JPEG) for name in names])
        else:
            write_tar(path, names)
        assert load(read(path)) == [JPEG, JPEG]


@pytest.mark.parametrize(
    ("names", "splits"),
    [
        (["1.jpg", "2.jpg"], [("train", ["1.jpg", "2.jpg"])]),
        (["cat/1.jpg", "dog/2.jpg"], [("train", ["cat/1.jpg", "dog/2.jpg"])]),
        (
            ["all/train/1.jpg", "all/val/a/2.jpg"],
            [("train", ["all/train/1.jpg"]), ("val", ["all/val/a/2.jpg"])],
        ),
        (["train/1.jpg", "2.jpg"], [("train", ["2.jpg", "train/1.jpg"])]),
    ],
    ids=["flat", "folders", "splits", "an image beside splits"],
)
def test_an_archive_without_labels(names, splits, tmp_path):
    source = read(write_tar(tmp_path / "photos.tar", names), label_type="none")
    paths = np.array([path.removeprefix("photos.tar/") for path in source.path.to_pylist()])
    found = [
        (split, paths[source.split == number].tolist())
        for number, split in enumerate(source.splits)
    ]
    assert (found, source.label_type, load(source)) == (splits, "none", [JPEG] * len(names))


@pytest.mark.parametrize("style", [tarfile.GNU_FORMAT, tarfile.PAX_FORMAT], ids=["gnu", "pax"])
@pytest.mark.parametrize("folder", ["cat", "long" * 40], ids=["short", "long"])
def test_links_in_a_tar_are_followed_or_listed(style, folder, tmp_path):
    images = [encode(photo(number, 16, 16)) for number in range(2)]
    links = [
        (f"dog/{'copy' * 40}.jpg", tarfile.LNKTYPE, f"{folder}/1.jpg"),
        ("dog/text.jpg", tarfile.LNKTYPE, f"{folder}/notes.txt"),
        ("dog/soft.jpg", tarfile.SYMTYPE, "../cat/0.jpg"),
    ]
    with tarfile.open(tmp_path / "photos.tar", "w", format=style) as archive:
        for name, data in [(f"{folder}/{n}.jpg", data) for n, data in enumerate(images)] + [
            ("dog/real.jpg", JPEG)
        ]:
            info = tarfile.TarInfo(name)
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
        for name, kind, target in links:
            info = tarfile.TarInfo(name)
            info.type, info.linkname = kind, target
            archive.addfile(info)
    source = read(tmp_path / "photos.tar")
    found = dict(zip([row[1] for row in rows(source)], load(source), strict=True))
    assert found == {
        f"photos.tar/{folder}/0.jpg": images[0], f"photos.tar/{folder}/1.jpg": images[1],
        "photos.tar/dog/real.jpg": JPEG, f"photos.tar/{links[0][0]}": images[1],
    }  # fmt: skip
    assert sorted((row["source"], row["reason"]) for row in source.rejected) == [
        ("photos.tar/dog/soft.jpg", "unreadable"), ("photos.tar/dog/text.jpg", "unreadable"),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        (["cat/1.jpg", "dog/2.jpg"], [("train", "cat"), ("train", "dog")]),
        (["a/b/cat/1.jpg", "a/b/dog/2.jpg"], [("train", "cat"), ("train", "dog")]),
        (["p/train/cat/1.jpg", "p/valid/dog/2.jpg"], [("train", "cat"), ("val", "dog")]),
        (["train/cat/1.jpg", "train/dog/2.jpg"], [("train", "cat"), ("train", "dog")]),
        (["train/1.jpg", "car/2.jpg"], [("train", "car"), ("train", "train")]),
        (["cat/1.jpg", "cat/2.jpg"], [("train", "cat"), ("train", "cat")]),
        (["test/cat/1.jpg", "other/y/1.jpg", "other/x/2.jpg"], [("test", "cat")]),
    ],
)
@pytest.mark.parametrize("kind", ["tar", "zip"])
def test_folders_in_an_archive_are_read_as_folders_on_disk(kind, names, expected, tmp_path):
    path = tmp_path / f"photos.{kind}"
    if kind == "zip":
        zip_of(path, [(name, JPEG) for name in names])
    else:
        write_tar(path, names)
    source = read(path)
    assert sorted((split, name) for split, _, name in rows(source)) == expected
    assert load(source) == [JPEG] * len(expected)


@pytest.mark.parametrize("place", ["images", ""])
def test_a_table_in_an_archive_or_beside_it(place, tmp_path):
    table = (
        f"image,label\n{place and 'images/'}1.jpg,cat\n{place and 'images/'}2.jpg,dog\n".encode()
    )
    files = [("images/1.jpg", JPEG), ("images/2.jpg", JPEG), ("labels.csv", table)]
    path = zip_of(tmp_path / "photos.zip", files)
    (tmp_path / "labels.csv").write_bytes(table)
    with pytest.raises(SourceError) as caught:
        read(path)
    command = re.search(r"--src (\S+?)( --image-root ([^;]+))?;", caught.value.hint)
    root = command[3] or str(path)
    for source in (
        read(command[1], image_root=command[3]),
        read(tmp_path / "labels.csv", image_root=root),
    ):
        assert [row[2] for row in rows(source)] == ["cat", "dog"]
        assert source.path[0].as_py() == "photos.zip/images/1.jpg"
        assert load(source) == [JPEG] * 2


@pytest.mark.parametrize("name", ["photos", "photos.ZIP"])
def test_a_zip_archive_of_any_name(name, tmp_path):
    assert len(read(zip_of(tmp_path / name, [("cat/1.jpg", JPEG)]))) == 1


def test_tar_files_of_other_programs(tmp_path):
    """Long names as GNU tar and PAX write them."""
    long = "x" * 150
    for number, kind in enumerate((tarfile.GNU_FORMAT, tarfile.PAX_FORMAT, tarfile.USTAR_FORMAT)):
        path = tmp_path / f"{number}.tar"
        with tarfile.open(path, "w", format=kind) as archive:
            for name in (f"cat/{long if kind != tarfile.USTAR_FORMAT else 'y'}.jpg", "dög/é.jpg"):
                member = tarfile.TarInfo(name)
                member.size = len(JPEG)
                archive.addfile(member, io.BytesIO(JPEG))
        source = read(path)
        assert source.classes == ("cat", "dög")
        assert load(source) == [JPEG] * 2


def test_notes_about_what_is_left_out(tmp_path):
    names = [
        "1.jpg",
        "train/2.jpg",
        "train/cat/3.jpg",
        "extra/x/4.jpg",
        "train/cat/note.txt",
        "train/cat/.5.jpg",
    ]
    source = read(write_tar(tmp_path / "a.tar", names))
    assert source.path.to_pylist() == ["a.tar/train/cat/3.jpg"]
    assert has_notice(source, "skipped extra/")
    assert has_notice(source, "skipped 2 images outside of class folders")
    assert has_notice(source, ".txt 1", "hidden files 1")


def test_names_that_leave_the_folder_are_rejected(tmp_path, invoke):
    names = [
        "cat/1.jpg",
        "dog/1.jpg",
        "../cat/2.jpg",
        "/cat/3.jpg",
        "cat/../../4.jpg",
        "cat\\5.jpg",
    ]
    write_tar(tmp_path / "a.tar", names)
    invoke("convert", "--src", tmp_path / "a.tar", "--out", tmp_path / "out", "--max-rejected", 1)
    rejected = [
        json.loads(line) for line in (tmp_path / "out/rejected.jsonl").read_text().splitlines()
    ]
    assert [(row["source"], row["reason"]) for row in rejected] == sorted(
        (f"a.tar/{name}", "bad-name") for name in names[2:]
    )


@pytest.mark.parametrize(
    ("names", "read_as"),
    [
        (["photos\\", "photos\\cat\\1.jpg", "photos\\dog\\2.jpg"], ("cat", "dog")),
        (["cat/1.jpg", "dog/2.jpg", "dog/a\\3.jpg"], ("cat", "dog")),
    ],
)
def test_backslashes_of_a_whole_zip_are_slashes(names, read_as, tmp_path):
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as archive:
        for name in names:
            archive.writestr(name, b"" if name.endswith("\\") else JPEG)
    source = read(tmp_path / "a.zip")
    assert (source.classes, len(source)) == (read_as, 2)
    assert bool(source.rejected) != has_notice(source, "backslashes in the names of the archive")


@pytest.mark.parametrize(
    ("name", "make", "message"),
    [
        ("a.tar", lambda: tar_of([("1.jpg", JPEG)]), "the folder has no class folders"),
        ("a.tar", lambda: tar_of([]), "the source contains no images"),
        (
            "a.tar",
            lambda: tar_of([("1.jpg", JPEG), ("1.cls", b"0")]),
            r"is a shard of a WebDataset.* `dataprep index`",
        ),
        (
            "a.tar",
            lambda: tar_of([("x/1.jpg", JPEG), ("x/1.json", b"{}")]),
            "is a shard of a WebDataset",
        ),
        ("a.tar", lambda: tar_of([("c/1.jpg", JPEG)] * 2), r"contains 'c/1\.jpg' twice"),
        ("a.tar", lambda: tar_of([("train2017/1.jpg", JPEG)]), "looks like images of COCO"),
        (
            "a.tar",
            lambda: tar_of([("leftImg8bit/train/a/1.png", JPEG), ("gtFine/x/1.png", JPEG)]),
            "masks or depth maps, which is not read inside of an archive",
        ),
        (
            "a.tar",
            lambda: tar_of([("images/1.jpg", JPEG), ("masks/1.png", JPEG)]),
            "masks or depth maps, which is not read inside of an archive",
        ),
        ("a.tar", lambda: b"x" * 2000, "is not a tar archive"),
        (
            "a.tar",
            lambda: tar_of([("cat.tar", tar_of([("1.jpg", JPEG)])[:700])]),
            r"a\.tar/cat\.tar, byte 0: the arc",
        ),
        ("a.zip", lambda: b"x" * 2000, "is not a complete zip archive"),
    ],
)
def test_archives_that_are_refused(name, make, message, tmp_path):
    (tmp_path / name).write_bytes(make())
    with pytest.raises(SourceError, match=message) as caught:
        read(tmp_path / name)
    assert str(tmp_path / name) in str(caught.value)


@pytest.mark.parametrize("method", [zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_other_compression_is_refused(method, tmp_path):
    path = zip_of(tmp_path / "a.zip", [("cat/1.jpg", JPEG)], compression=method)
    with pytest.raises(
        SourceError,
        match=r"member 'cat/1\.jpg' is compressed with (bzip2|LZMA), which is not read in",
    ):
        read(path)


def test_encrypted_members_are_refused(tmp_path):
    data = bytearray(zip_of(tmp_path / "a.zip", [("cat/1.jpg", JPEG)]).read_bytes())
    data[data.index(b"PK\x01\x02") + 8] |= 1
    (tmp_path / "a.zip").write_bytes(data)
    with pytest.raises(SourceError, match=r"member 'cat/1\.jpg' is encrypted\. Hint: unpack"):
        read(tmp_path / "a.zip")


def test_a_bomb_is_not_unpacked(tmp_path):
    """One that claims to be small has another length, and is not unpacked further than that."""
    zip_of(
        tmp_path / "a.zip",
        [("cat/1.jpg", bytes(60 << 20))],
        compression=zipfile.ZIP_DEFLATED,
        compresslevel=9,
    )
    data = bytearray((tmp_path / "a.zip").read_bytes())
    source = read(tmp_path / "a.zip")
    assert source.size.tolist() == [60 << 20]
    at = data.index(b"PK\x01\x02")
    data[at + 24 : at + 28] = (100_000).to_bytes(4, "little")
    (tmp_path / "b.zip").write_bytes(data)
    assert load(read(tmp_path / "b.zip")) == ["corrupt"]


def test_members_that_overlap_are_refused(tmp_path):
    zip_of(tmp_path / "a.zip", [(f"cat/{n}.jpg", JPEG) for n in range(3)])
    data = bytearray((tmp_path / "a.zip").read_bytes())
    at = -1
    while (at := data.find(b"PK\x01\x02", at + 1)) >= 0:
        data[at + 20 : at + 24] = (len(data)).to_bytes(4, "little")
    (tmp_path / "a.zip").write_bytes(data)
    with pytest.raises(SourceError, match="the members overlap"):
        read(tmp_path / "a.zip")


@pytest.mark.parametrize(
    ("field", "value", "reason"),
    [
        (42, 16 << 20, "truncated"),
        (42, -40, "truncated"),
        (20, 1 << 20, "corrupt"),
        (20, 5 << 20, "too-large"),
    ],
)
def test_a_member_that_cannot_be_read_is_rejected_by_itself(
    field, value, reason, tmp_path, bucket, monkeypatch
):
    """The directory states another position (42) or compressed length (20) of a member than it has."""
    monkeypatch.setattr("dataprep.sources.archives.MAX_BYTES", 4 << 20)
    path = zip_of(
        tmp_path / "a.zip",
        [("cat/1.jpg", JPEG), ("notes.txt", bytes(8 << 20)), ("dog/2.jpg", JPEG)],
    )
    data = bytearray(path.read_bytes())
    notes, image = data.rindex(b"notes.txt") - 46, data.rindex(b"PK\x01\x02")
    data[notes + 20 : notes + 24] = bytes(
        4
    )  # leaves room: all members together are not longer than the file
    data[image + field : image + field + 4] = (value % len(data) if value < 0 else value).to_bytes(
        4, "little"
    )
    path.write_bytes(data)
    bucket.put("a.zip", bytes(data))
    for source in (read(path), read_source(f"{bucket}/a.zip")):
        assert [row["reason"] for row in source.rejected] == [reason]
        assert load(source) == [JPEG]
    path.write_bytes(bytes(data).replace(b"cat/", b".at/"))
    with pytest.raises(SourceError, match=r"no image of the archive can be read; .*2\.jpg: "):
        read(path)


@pytest.mark.parametrize("kind", ["tar", "zip"])
def test_damage_is_an_error_or_a_rejected_image(kind, tmp_path):
    path = tmp_path / f"a.{kind}"
    files = [(f"{name}/{n}.jpg", JPEG) for name in ("cat", "dog") for n in range(4)]
    if kind == "zip":
        zip_of(path, files, compression=zipfile.ZIP_DEFLATED)
    else:
        path.write_bytes(tar_of(files))
    content, rng = path.read_bytes(), random.Random(1)
    for _ in range(150):
        damaged = bytearray(content)
        damaged[rng.randrange(len(content))] ^= 1 << rng.randrange(8)
        path.write_bytes(damaged)
        try:
            source = read(path)
        except SourceError as error:
            assert str(path) in str(error)  # noqa: PT017
            continue
        images = load(source)
        assert kind == "tar" or {*images} <= {JPEG, "corrupt", "truncated"}


# --- ImageNet -----------------------------------------------------------------------------------


def test_the_ground_truth_is_not_the_index_of_sorted_wnids(tmp_path):
    made = imagenet_tars(tmp_path / "imagenet")
    source = read(made.src)
    assert source.layout == "ImageNet in its original archives"
    labels = dict(zip(source.path.to_pylist(), source.label.tolist(), strict=True))
    assert labels == {name: image.label for name, image in zip(made.names, IMAGES, strict=True)}


def test_val_alone_and_train_alone(tmp_path):
    made = imagenet_tars(tmp_path / "imagenet")
    val = read(made.src / "ILSVRC2012_img_val.tar")
    assert (val.splits, val.classes) == (("val",), made.classes)
    train = read(made.src / "ILSVRC2012_img_train.tar")
    assert (train.splits, train.classes) == (("train",), made.classes)
    (made.src / "ILSVRC2012_img_val.tar").unlink()
    (made.src / "ILSVRC2012_img_test_v10102019.tar").write_bytes(b"")
    assert has_notice(read(made.src), "skipped ILSVRC2012_img_test_v10102019.tar: it has no labels")


def test_an_unpacked_devkit(tmp_path):
    made = imagenet_tars(tmp_path / "imagenet")
    before = rows(read(made.src))
    shutil.unpack_archive(made.src / "ILSVRC2012_devkit_t12.tar.gz", made.src, filter="data")
    (made.src / "ILSVRC2012_devkit_t12.tar.gz").unlink()
    assert rows(read(made.src)) == before


def devkit(**files):
    names = {"meta": "meta.mat", "truth": "ILSVRC2012_validation_ground_truth.txt"}
    members = [(f"ILSVRC2012_devkit_t12/data/{names[name]}", data) for name, data in files.items()]
    return gzip.compress(tar_of(members))


def meta_of(*pairs):
    synsets = np.zeros((len(pairs), 1), [("ILSVRC2012_ID", object), ("WNID", object)])
    for row, pair in enumerate(pairs):
        synsets[row, 0] = pair
    out = io.BytesIO()
    scipy.io.savemat(out, {"synsets": synsets})
    return out.getvalue()


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (
            lambda: None,
            (
                "in the development kit, which does not exist. Hint: put"
                " ILSVRC2012_devkit_t12.tar.gz next to"
            ),
        ),
        (lambda: b"x" * 100, "the development kit cannot be read"),
        (
            lambda: devkit(meta=meta_mat(), truth=b"1\n" * 6)[:300],
            "the development kit cannot be read",
        ),
        (
            lambda: devkit(meta=meta_mat()),
            "no file or no class 'ILSVRC2012_validation_ground_truth.txt'",
        ),
        (lambda: devkit(truth=b"1\n"), "no file or no class 'meta.mat'"),
        (
            lambda: devkit(meta=b"x" * 200, truth=b"1\n"),
            "cannot be read .it is not a MAT file of level 5",
        ),
        (
            lambda: devkit(meta=meta_mat()[:300], truth=b"1\n"),
            "cannot be read .it ends within an element",
        ),
        (
            lambda: devkit(meta=meta_of((1, "cat")), truth=b"1\n"),
            "a class in meta.mat has no ILSVRC2012_ID or no WNID",
        ),
        (lambda: devkit(meta=meta_mat(), truth=b"1\n9\n"), "there is no file or no class 9"),
        (
            lambda: devkit(meta=meta_mat(), truth=b"1\n" * 5),
            "ground truth of 5 images do not have the same images",
        ),
        (
            lambda: devkit(meta=meta_mat(), truth=b"1\n" * 8),
            "of 8 images do not have .*one of them alone is ILSVRC2012_val_00000007",
        ),
        (
            lambda: devkit(meta=meta_of((1, "n00000077")), truth=b"1\n" * 6),
            "the class n00000077 of ILSVRC2012_val_00000001.JPEG is not a class of train",
        ),
    ],
)
def test_a_devkit_that_does_not_fit(make, message, tmp_path):
    made = imagenet_tars(tmp_path / "imagenet")
    content = make()
    if content is None:
        (made.src / "ILSVRC2012_devkit_t12.tar.gz").unlink()
    else:
        (made.src / "ILSVRC2012_devkit_t12.tar.gz").write_bytes(content)
    with pytest.raises(SourceError, match=message):
        read(made.src)


def test_a_matlab_file_of_any_content():
    content, rng = meta_mat(), random.Random(5)
    for _ in range(300):
        damaged = bytearray(content)
        for _ in range(rng.choice((1, 3, 20))):
            damaged[rng.randrange(len(content))] = rng.randrange(256)
        with suppress(ValueError):
            mat_file.read_mat(
                bytes(damaged[: rng.choice((len(content), rng.randrange(len(content))))])
            )


def test_a_matlab_file_that_unpacks_to_gigabytes_is_refused(monkeypatch):
    monkeypatch.setattr(mat_file, "MAX_BYTES", 1000)
    with pytest.raises(ValueError, match="more than 1,000 bytes after decompression"):
        mat_file.read_mat(meta_mat() + b"")
