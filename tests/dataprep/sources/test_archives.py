"""Archives of class folders, read in place: members, links, names, damage and bombs."""

from __future__ import annotations

import io
import json
import random
import re
import tarfile
import zipfile

import pytest
from helpers.make_sources import tar_of
from helpers.pictures import encode, photo
from helpers.rows import evaluate, read_rows
from helpers.sources import has_notice, read, refused, rows

from dataprep.containers import locations_of, read_location
from dataprep.images.base import Rejected
from manifests.errors import SourceError

JPEG = encode(photo(0, 16, 16))


def zip_of(path, files, **options):
    with zipfile.ZipFile(path, "w", **options) as archive:
        for name, data in files:
            archive.writestr(name, data)
    return path


def write(path, names):
    """Write an archive of images, of the kind of its name."""
    if path.suffix == ".zip":
        return zip_of(path, [(name, JPEG) for name in names])
    path.write_bytes(tar_of([(name, JPEG) for name in names]))
    return path


def load(source):
    """Read all images of a source, or the reason of their rejection."""
    found = []
    locations = locations_of(source.location, [*range(len(source))])
    for location, size in zip(locations, source.size.tolist(), strict=True):
        try:
            found.append(read_location(source.root, location, size))
        except Rejected as error:
            found.append(error.reason)
    return found


KINDS = pytest.mark.parametrize("kind", ["tar", "zip"])


@pytest.mark.parametrize("style", [tarfile.GNU_FORMAT, tarfile.PAX_FORMAT], ids=["gnu", "pax"])
@pytest.mark.parametrize("folder", ["cat", "long" * 40, "dög"], ids=["short", "long", "unicode"])
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


def test_names_that_leave_the_folder_are_rejected(tmp_path, convert):
    bad = ["../cat/2.jpg", "/cat/3.jpg", "cat/../../4.jpg", "cat\\5.jpg"]
    write(tmp_path / "a.tar", ["cat/1.jpg", "dog/1.jpg", *bad])
    convert(tmp_path / "a.tar", tmp_path / "out", "--max-rejected", 1)
    lines = (tmp_path / "out/rejected.jsonl").read_text().splitlines()
    rejected = [(row["source"], row["reason"]) for row in map(json.loads, lines)]
    assert rejected == sorted((f"a.tar/{name}", "bad-name") for name in bad)


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


@pytest.mark.parametrize(("row", "message"), read_rows(__file__, "refused"))
def test_archives_that_are_refused(row, message, tmp_path):
    name, make = evaluate(row, globals())
    (tmp_path / name).write_bytes(make())
    assert str(tmp_path / name) in str(refused(tmp_path / name, message))


@pytest.mark.parametrize("method", [zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_other_compression_is_refused(method, tmp_path):
    path = zip_of(tmp_path / "a.zip", [("cat/1.jpg", JPEG)], compression=method)
    refused(path, r"member 'cat/1\.jpg' is compressed with (bzip2|LZMA), which is not read in")


def test_encrypted_members_are_refused(tmp_path):
    data = bytearray(write(tmp_path / "a.zip", ["cat/1.jpg"]).read_bytes())
    data[data.index(b"PK\x01\x02") + 8] |= 1
    (tmp_path / "a.zip").write_bytes(data)
    refused(tmp_path / "a.zip", r"member 'cat/1\.jpg' is encrypted\. Hint: unpack")


def test_a_bomb_is_not_unpacked(tmp_path):
    """One that claims to be small has another length, and is not unpacked further than that."""
    path, options = tmp_path / "a.zip", {"compression": zipfile.ZIP_DEFLATED, "compresslevel": 9}
    zip_of(path, [("cat/1.jpg", bytes(60 << 20))], **options)
    data = bytearray(path.read_bytes())
    assert read(path).size.tolist() == [60 << 20]
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
    refused(tmp_path / "a.zip", "the members overlap")


@pytest.mark.parametrize(
    ("field", "value", "reason"),
    [
        (42, 16 << 20, "truncated"), (42, -40, "truncated"), (20, 1 << 20, "corrupt"),
        (20, 5 << 20, "too-large"),
    ],
)  # fmt: skip
def test_a_member_that_cannot_be_read_is_rejected_by_itself(
    field, value, reason, tmp_path, bucket, monkeypatch
):
    """The directory states another position (42) or compressed length (20) of a member than it has."""
    monkeypatch.setattr("dataprep.sources.archives.MAX_BYTES", 4 << 20)
    files = [("cat/1.jpg", JPEG), ("notes.txt", bytes(8 << 20)), ("dog/2.jpg", JPEG)]
    path = zip_of(tmp_path / "a.zip", files)
    data = bytearray(path.read_bytes())
    notes, image = data.rindex(b"notes.txt") - 46, data.rindex(b"PK\x01\x02")
    # Leaves room: all members together are not longer than the file.
    data[notes + 20 : notes + 24] = bytes(4)
    data[image + field : image + field + 4] = (value % len(data) if value < 0 else value).to_bytes(
        4, "little"
    )
    path.write_bytes(data)
    bucket.put("a.zip", bytes(data))
    for source in (read(path), read(f"{bucket}/a.zip")):
        assert [row["reason"] for row in source.rejected] == [reason]
        assert load(source) == [JPEG]
    path.write_bytes(bytes(data).replace(b"cat/", b".at/"))
    refused(path, r"no image of the archive can be read; .*2\.jpg: ")


@KINDS
def test_damage_is_an_error_or_a_rejected_image(kind, tmp_path):
    path = tmp_path / f"a.{kind}"
    names = [f"{name}/{n}.jpg" for name in ("cat", "dog") for n in range(4)]
    if kind == "zip":
        zip_of(path, [(name, JPEG) for name in names], compression=zipfile.ZIP_DEFLATED)
    else:
        write(path, names)
    content, rng = path.read_bytes(), random.Random(1)
    for _ in range(80):
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
