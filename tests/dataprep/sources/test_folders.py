"""Folders and archives of images: classes, splits, links, and what is skipped with a word."""

from __future__ import annotations

import os
import shutil
import struct
import subprocess
import zipfile
import zlib
from contextlib import chdir

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from helpers.rows import evaluate, read_named, read_rows
from helpers.sources import has_notice, read, refused, rows

from dataprep.ledger.finished import check_output
from dataprep.sources import UNREADABLE
from dataprep.sources.scan import IMAGE_SUFFIXES
from manifests.errors import CallError


def test_file_names_of_any_characters(make_tree):
    names = ["a b.jpg", "a\nb.jpg", "'\".jpg", "a,b;c.jpg", "日本.jpg", "%41\\.jpg", "-rf.jpg"]
    names += [f"1{suffix}" for suffix in IMAGE_SUFFIXES] + [f"2{s.upper()}" for s in IMAGE_SUFFIXES]
    source = read(make_tree([f"{name}.d/{name}" for name in names]))
    assert rows(source) == [("train", f"{name}.d/{name}", f"{name}.d") for name in sorted(names)]


def test_names_that_are_not_utf8(make_tree):
    root = make_tree(["a/1.jpg"])
    os.mknod(os.fsencode(root) + b"/a/caf\xe9.jpg")
    source = read(root)
    assert source.path.to_pylist() == ["a/1.jpg"]
    (rejected,) = source.rejected
    assert (rejected["source"], rejected["reason"]) == ("a/caf\\xe9.jpg", "bad-name")
    os.mkdir(os.fsencode(root) + b"/caf\xe9")
    refused(root, r"caf\\xe9: .*not valid UTF-8")


@pytest.mark.parametrize(("row", "texts"), read_rows(__file__, "notices"))
def test_what_is_left_out_is_said(row, texts, make_tree):
    files = evaluate(row)
    texts = evaluate(texts)
    source = read(make_tree(files))
    assert has_notice(source, *texts), source.notices
    assert len(source) >= len({*source.classes})


def test_links(make_tree):
    root = make_tree(["a/1.jpg", "b/2.jpg"])
    (root / "a/link.jpg").symlink_to("1.jpg")
    (root / "a/gone.jpg").symlink_to("nowhere.jpg")
    (root / "a/up").symlink_to("..")
    (root / "a kitty").symlink_to("b")
    # A table beside class folders, and inside of them, is no source.
    for place in ("metadata.parquet", "a/metadata.parquet"):
        pq.write_table(pa.table({"path": ["a/1.jpg"], "label": ["a"]}), root / place)
    source = read(root)
    assert source.layout == "ImageFolder"
    sizes = dict(zip(source.path.to_pylist(), source.size.tolist(), strict=True))
    assert sizes == {"a/1.jpg": 1, "a/link.jpg": 1, "a/gone.jpg": UNREADABLE, "b/2.jpg": 1}
    assert has_notice(source, "skipped a/up", "link to a folder above it")
    # An image must not have two labels.
    assert has_notice(source, "skipped a kitty: it is the same folder as b")


def test_given_classes_determine_the_labels_and_empty_ones_keep_theirs(make_tree):
    root = make_tree(["a/1.jpg", "c/1.jpg"])
    assert read(root, classes=("z", "c", "a")).label.tolist() == [2, 1]
    (root / "b").mkdir()
    source = read(root)
    assert (source.classes, source.label.tolist()) == (("a", "b", "c"), [0, 2])
    assert has_notice(source, "1 of 3 classes has no images: b")


# --- which folders are the classes ----------------------------------------------------------------

#: Files of a folder, and the split and class of each image, in order.
TREES = read_named(__file__, "trees")

#: Files of folders that do not say what the classes are, and what the message must contain.
UNCLEAR = read_named(__file__, "unclear")


@pytest.mark.parametrize("kind", ["folder", "zip", "tar"])
@pytest.mark.parametrize("name", [*TREES, *UNCLEAR])
def test_class_folders_are_found_or_asked_for(name, kind, make_tree):
    files, expected = {**TREES, **UNCLEAR}[name]
    src = make_tree(files)
    if kind != "folder":
        src = shutil.make_archive(str(src), kind, src)
    if isinstance(expected, str):
        refused(src, expected)
    else:
        assert sorted((split, label) for split, _, label in rows(read(src))) == expected


@pytest.mark.parametrize(("row", "expected"), read_rows(__file__, "class folders"))
def test_the_user_chooses_the_class_folders(row, expected, make_tree):
    (name, choice), expected = evaluate(row), evaluate(expected)
    root = make_tree(UNCLEAR[name][0])
    source = read(root, class_folders=choice)
    assert source.classes == expected
    assert len(source) == sum(file.endswith(("jpg", "png")) for file in UNCLEAR[name][0])
    if name == "thumbnails":
        assert read(root, classes=expected).classes == expected


def test_inner_folders_of_the_same_name_are_counted(make_tree):
    """A link to a folder above does not repeat them."""
    root = make_tree(["amazon/bag/1.jpg", "amazon/cup/1.jpg", "dslr/bag/1.jpg", "dslr/pen/1.jpg"])
    source = read(root, class_folders="inner")
    assert has_notice(source, "joins folders of the same name: 1 class is in several", "dslr/bag/")
    (root / "dslr" / "up").symlink_to(root)
    assert len(read(root, class_folders="inner")) == 4


@pytest.mark.parametrize(
    ("row", "notice"), read_rows(__file__, "names that may be a mistake are said")
)
def test_names_that_may_be_a_mistake_are_said(row, notice, make_tree):
    names = evaluate(row)
    notices = read(make_tree([f"{name}/1.jpg" for name in names])).notices
    assert len(notices) == bool(notice)
    assert all(notice in each for each in notices)


# --- zip archives: the encoding of names ----------------------------------------------------------


class NamedInfo(zipfile.ZipInfo):
    """A member whose name is stored as bytes, without the flag of UTF-8, as other programs do."""

    def _encodeFilenameFlags(self):  # noqa: N802
        return self.raw, self.flag_bits


def zip_with_names(path, names, encoding, *, unicode_path=False):
    with zipfile.ZipFile(path, "w") as archive:
        for number, name in enumerate(names):
            info = NamedInfo(f"{number}.jpg")
            info.raw = name.encode(encoding)
            if unicode_path:
                field = struct.pack("<BI", 1, zlib.crc32(info.raw)) + name.encode()
                info.extra = struct.pack("<HH", 0x7075, len(field)) + field
            archive.writestr(info, b"x")
    return path


@pytest.mark.parametrize("row", [row for row, _ in read_rows(__file__, "encodings of a zip")])
def test_names_in_a_zip_archive(row, tmp_path):
    encoding, unicode_path, given = evaluate(row)
    names = ["猫/1.jpg", "犬/1.jpg"]
    path = zip_with_names(tmp_path / "a.zip", names, encoding, unicode_path=unicode_path)
    source = read(path, zip_encoding=given)
    assert source.classes == ("犬", "猫")
    # Short names in GBK can also be read as UTF-8.
    assert has_notice(source, "read as UTF-8", "set --zip-encoding") == (encoding == "utf-8")


def test_names_in_an_unknown_encoding_are_refused(tmp_path):
    path = zip_with_names(tmp_path / "a.zip", ["熊猫/1.jpg", "犬/1.jpg"], "gbk")
    refused(path, r"set --zip-encoding: the name would be '?熊猫/1.jpg'? in gbk")
    refused(path, "not valid in ascii", zip_encoding="ascii")
    refused(path, "--zip-encoding klingon is not an encoding", zip_encoding="klingon")


# --- the walk -------------------------------------------------------------------------------------


def test_links_do_not_multiply_a_tree(tmp_path):
    """Each of 16 levels has 30 links to the next one: 30 ** 16 paths lead to the last image."""
    root = tmp_path / "photos"
    levels = [root / "class" / str(number) for number in range(16)]
    for number, level in enumerate(levels):
        level.mkdir(parents=True)
        (level / "1.jpg").write_bytes(b"x")
        if number:
            for link in range(30):
                (levels[number - 1] / f"link{link}").symlink_to(level)
    source = read(root)
    assert source.path.to_pylist() == sorted(f"{n}/1.jpg" for n in range(16))
    assert has_notice(source, "skipped 0/link0: it is the same folder as 1")
    assert has_notice(source, "skipped 445 more links to folders that are visited already")


def test_deep_trees(dataprep, tmp_path):
    """Paths may be longer than Linux allows: folders are made and removed one in the other."""
    root = tmp_path / "photos"
    (root / "class").mkdir(parents=True)
    with chdir(root / "class"):
        for _ in range(3000):
            os.mkdir("d")
            os.chdir("d")
        os.mknod("1.jpg")
    done = dataprep("convert", "--src", root, "--out", tmp_path / "out")
    index = dataprep("index", root)
    # `shutil.rmtree` of pytest is recursive.
    subprocess.run(["rm", "-r", root], check=True)
    assert (index.returncode, "Traceback" in index.stderr) == (2, False)
    assert done.returncode == 2
    assert "the path cannot be read (File name too long)" in done.stderr
    assert len(done.stderr) < 10_000


def test_output_inside_the_source_through_links(make_tree, tmp_path):
    make_tree(["a/1.jpg", "b/1.jpg"]).rename(tmp_path / "photos")
    for name in ("elsewhere", "free"):
        (tmp_path / name).mkdir()
    links = {"link": "photos", "photos/c": "elsewhere", "nested": "photos/c", "up": "free"}
    for link, target in links.items():
        (tmp_path / link).symlink_to(tmp_path / target)
    message = r"is inside the source .*, so the next run would read it as images"
    for src in ("photos", "link"):
        source = read(tmp_path / src)
        inside = "photos/out photos/a/out link/out elsewhere/out elsewhere nested/x/y"
        for out in inside.split():
            with pytest.raises(CallError, match=message):
                check_output(source, str(tmp_path / out))
        for out in ("out", "free", "up/new", "photos-tfrecord"):
            check_output(source, str(tmp_path / out))
    with pytest.raises(CallError, match=r"is 5,0\d\d bytes long, but the limit is 3,800. Hint: "):
        check_output(source, str(tmp_path) + "/o" * ((5080 - len(str(tmp_path))) // 2))
