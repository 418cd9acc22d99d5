"""Archives of class folders, read in place: members, links, names, damage and bombs."""

from __future__ import annotations

import io
import re
import struct
import tarfile
import zipfile

import pytest
from helpers.datasets import rejected_of
from helpers.make_sources import tar_of, zip_of
from helpers.pictures import encode, photo
from helpers.rows import evaluate, read_rows
from helpers.sources import has_notice, load, read, refused, rows

from manifests.errors import SourceError

JPEG = encode(photo(0, 16, 16))


def write(path, names):
    """Write an archive of images, of the kind of its name."""
    if path.suffix == ".zip":
        return zip_of(path, [(name, JPEG) for name in names])
    path.write_bytes(tar_of([(name, JPEG) for name in names]))
    return path


def with_field(data, at, value, entry=b""):
    """Change a field of the zip archive's entries whose names begin like this, at its place in an entry."""
    data, start = bytearray(data), -1
    while (start := data.find(b"PK\x01\x02", start + 1)) >= 0:
        if data[start + 46 :].startswith(entry):
            struct.pack_into("<H" if at < 16 else "<I", data, start + at, value)
    return bytes(data)


@pytest.mark.parametrize("style", [tarfile.GNU_FORMAT, tarfile.PAX_FORMAT], ids=["gnu", "pax"])
@pytest.mark.parametrize("folder", ["cat", "long" * 40, "dög"], ids=["short", "long", "unicode"])
def test_links_in_a_tar_are_followed_or_listed(style, folder, tmp_path):
    images = [encode(photo(number, 16, 16)) for number in range(2)]
    copy = f"dog/{'copy' * 40}.jpg"
    links = {
        copy: (tarfile.LNKTYPE, f"{folder}/1.jpg"),
        "dog/text.jpg": (tarfile.LNKTYPE, f"{folder}/notes.txt"),
        "dog/soft.jpg": (tarfile.SYMTYPE, "../cat/0.jpg"),
    }
    files = {f"{folder}/0.jpg": images[0], f"{folder}/1.jpg": images[1], "dog/real.jpg": JPEG}
    with tarfile.open(tmp_path / "photos.tar", "w", format=style) as archive:
        for name in [*files, *links]:
            info, data = tarfile.TarInfo(name), files.get(name, b"")
            info.size = len(data)
            info.type, info.linkname = links.get(name, (tarfile.REGTYPE, ""))
            archive.addfile(info, io.BytesIO(data))
    source = read(tmp_path / "photos.tar")
    found = dict(zip([row[1] for row in rows(source)], load(source), strict=True))
    expected = {**files, copy: images[1]}
    assert found == {f"photos.tar/{name}": data for name, data in expected.items()}
    rejected = sorted((row["source"], row["reason"]) for row in source.rejected)
    places = ("photos.tar/dog/soft.jpg", "photos.tar/dog/text.jpg")
    assert rejected == [(place, "unreadable") for place in places]


@pytest.mark.parametrize(
    ("name", "place", "top"),
    [
        ("photos.zip", "images/", ""),
        ("photos.ZIP", "", ""),
        ("photos", "", ""),
        ("photos.zip", "images/", "top/"),
    ],
)
def test_a_table_in_an_archive_or_beside_it(name, place, top, tmp_path):
    table = f"image,label\n{place}1.jpg,cat\n{place}2.jpg,dog\n".encode()
    files = [("images/1.jpg", JPEG), ("images/2.jpg", JPEG), ("labels.csv", table)]
    path = zip_of(tmp_path / name, [(f"{top}{file}", data) for file, data in files])
    (tmp_path / "labels.csv").write_bytes(table)
    with pytest.raises(SourceError) as caught:
        read(path)
    command = re.search(r"--src (\S+?)( --image-root ([^;]+))?;", caught.value.hint)
    root = command[3] or f"{path}/{top}".rstrip("/")
    beside = read(tmp_path / "labels.csv", image_root=root)
    for source in (read(command[1], image_root=command[3]), beside):
        assert [row[2] for row in rows(source)] == ["cat", "dog"]
        assert source.path[0].as_py() == f"{name}/{top}images/1.jpg"
        assert load(source) == [JPEG] * 2
    # Errors about a table are said as they are if it is in an archive.
    with pytest.raises(SourceError, match=r"line 2: image '\S*1\.jpg' does not exist"):
        read(command[1], image_root=f"{path}/{top}nowhere")


def test_names_that_leave_the_folder_are_rejected(tmp_path, convert):
    bad = ["../cat/2.jpg", "/cat/3.jpg", "cat/../../4.jpg", "cat\\5.jpg"]
    write(tmp_path / "a.tar", ["cat/1.jpg", "dog/1.jpg", *bad])
    convert(tmp_path / "a.tar", tmp_path / "out", "--max-rejected", 1)
    rejected = [(row["source"], row["reason"]) for row in rejected_of(tmp_path / "out")]
    assert rejected == sorted((f"a.tar/{name}", "bad-name") for name in bad)


@pytest.mark.parametrize(
    "names",
    [
        ["photos\\", "photos\\cat\\1.jpg", "photos\\dog\\2.jpg"],
        ["cat/1.jpg", "dog/2.jpg", "dog/a\\3.jpg"],
    ],
)
def test_backslashes_of_a_whole_zip_are_slashes(names, tmp_path):
    files = [(name, b"" if name.endswith("\\") else JPEG) for name in names]
    source = read(zip_of(tmp_path / "a.zip", files))
    assert (source.classes, len(source)) == (("cat", "dog"), 2)
    assert bool(source.rejected) != has_notice(source, "backslashes in the names of the archive")


@pytest.mark.parametrize(("row", "message"), read_rows(__file__, "refused"))
def test_archives_that_are_refused(row, message, tmp_path):
    name, make = evaluate(row, globals())
    (tmp_path / name).write_bytes(make())
    assert str(tmp_path / name) in str(refused(tmp_path / name, message))


@pytest.mark.parametrize(("row", "message"), read_rows(__file__, "members"))
def test_members_that_are_refused(row, message, tmp_path):
    field, value = evaluate(row)
    path = write(tmp_path / "a.zip", ["cat/1.jpg", "cat/2.jpg"])
    path.write_bytes(with_field(path.read_bytes(), field, value))
    refused(path, message)


def test_a_bomb_is_not_unpacked(tmp_path):
    """One that claims to be small has another length, and is not unpacked further than that."""
    path, options = (
        tmp_path / "without-extension",
        {"compression": zipfile.ZIP_DEFLATED, "compresslevel": 9},
    )
    zip_of(path, [("cat/1.jpg", bytes(60 << 20))], **options)
    assert read(path).size.tolist() == [60 << 20]
    path.write_bytes(with_field(path.read_bytes(), 24, 100_000))
    assert load(read(path)) == ["corrupt"]


@pytest.mark.parametrize(("row", "reason"), read_rows(__file__, "a member"))
def test_a_member_that_cannot_be_read_is_rejected_by_itself(
    row, reason, tmp_path, bucket, monkeypatch
):
    """The directory states another position (42) or compressed length (20) of a member than it has."""
    monkeypatch.setattr("dataprep.sources.archives.MAX_BYTES", 4 << 20)
    files = [("cat/1.jpg", JPEG), ("notes.txt", bytes(8 << 20)), ("dog/2.jpg", JPEG)]
    path = zip_of(tmp_path / "a.zip", files)
    # Leaves room: all members together are not longer than the file.
    data = with_field(path.read_bytes(), 20, 0, b"notes")
    field, value = evaluate(row, {"end": len(data)})
    data = with_field(data, field, value, b"dog")
    path.write_bytes(data)
    bucket.put("a.zip", data)
    for source in (read(path), read(f"{bucket}/a.zip")):
        assert [row["reason"] for row in source.rejected] == [reason]
        assert load(source) == [JPEG]
    path.write_bytes(data.replace(b"cat/", b".at/"))
    refused(path, r"no image of the archive can be read; .*2\.jpg: ")
