"""What people give as ``--src`` by mistake is named, with what to give instead."""

from __future__ import annotations

import io
import zipfile

import pytest
from helpers.pictures import encode, photo
from helpers.sources import has_notice, read, rows

from manifests.errors import CallError, SourceError


def make_zip():
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w") as archive:
        archive.writestr("a/1.jpg", b"x")
    return data.getvalue()


@pytest.mark.parametrize(
    ("name", "data", "message"),
    [
        ("photos.7z", b"7z", "is an archive. Hint: unpack it"),
        ("photos.tar.gz", b"\x1f\x8b", "is an archive that is compressed as a whole"),
        ("photos", b"\x1f\x8b", "is an archive that is compressed as a whole"),
        ("train-00000.tfrecord", b"", "`dataprep index`"),
        ("1.JPG", b"", "is an image. Hint: give the folder"),
        ("image", encode(photo(1, 8, 8)), "is an image. Hint: give the folder"),
        (
            "list.json",
            b'[{"name": "1.jpg"}]',
            "not one of the tables .* save it as CSV, JSON Lines or Parquet",
        ),
        ("list.xlsx", make_zip(), "is a spreadsheet. Hint: save it as `CSV UTF-8`"),
        ("list.ODS", make_zip(), "is a spreadsheet. Hint: .*pandas"),
    ],
)
def test_files_that_are_no_lists(name, data, message, tmp_path):
    (tmp_path / name).write_bytes(data)
    with pytest.raises(CallError, match=f"--src .*{name} .*{message}"):
        read(tmp_path / name)


@pytest.mark.parametrize("url", ["hf://datasets/a/b", "ftp://example.com/photos"])
def test_urls_that_are_not_supported(url):
    with pytest.raises(
        CallError, match=rf"{url.partition(':')[0]}:// URLs are not supported. Hint: use s3://"
    ):
        read(url)


def test_a_url_with_a_missing_slash():
    with pytest.raises(
        CallError, match=r"--src gs:/b looks like a URL. Hint: write it like s3://bucket/folder"
    ):
        read("gs:/b")


@pytest.mark.parametrize("path", [r"C:\photos", "d:/photos", r"\\server\photos"])
def test_paths_of_windows(path):
    with pytest.raises(
        CallError, match=r"is a path of Windows, which does not exist here. Hint: .*/mnt/c/photos"
    ):
        read(path)


@pytest.mark.parametrize("name", ["a.csv", "a.tsv"])
@pytest.mark.parametrize("delimiter", [",", ";", "\t", "|"])
def test_the_delimiter_is_detected(name, delimiter, make_tree):
    lines = (("path", "label", "note"), ("1.jpg", "0", "x"), ("2.jpg", "1", "y"))
    root = make_tree(
        ["1.jpg", "2.jpg"], **{name: "".join(delimiter.join(line) + "\n" for line in lines)}
    )
    assert rows(read(root / name)) == [("train", "1.jpg", "0", "x"), ("train", "2.jpg", "1", "y")]


def test_the_usual_delimiter_wins(make_tree):
    """Other delimiters may be part of names and values."""
    root = make_tree(["1.jpg"], **{"a.csv": "path,label,a;b;c;d\n1.jpg,0,x;y\n"})
    assert read(root / "a.csv").extra["a;b;c;d"].to_pylist() == ["x;y"]


# --- nothing vanishes or counts twice without a word --------------------------------------------


@pytest.mark.parametrize("hidden", [".cat/1.jpg", "a/.cat/1.jpg"])
def test_hidden_folders_are_named(hidden, make_tree):
    source = read(make_tree(["a/1.jpg", "b/1.jpg", hidden]))
    assert len(source) == 2
    assert has_notice(source, "hidden folder")


def test_hidden_class_of_a_split_is_named(make_tree):
    source = read(make_tree(["train/a/1.jpg", "val/a/1.jpg", "val/.b/1.jpg"]))
    assert has_notice(source, "skipped 1 hidden folder: val/.b/")


@pytest.mark.parametrize("kind", ["list", "csv"])
@pytest.mark.parametrize("through_link", [False, True])
def test_a_path_and_its_absolute_twin_are_the_same_image(kind, through_link, make_tree):
    root = make_tree(["a/1.jpg", "a/2.jpg"])
    (root.parent / "link").symlink_to(root)
    twin = (root.parent / "link" if through_link else root) / "a" / "1.jpg"
    if kind == "list":
        (root / "all.txt").write_text(f"a/1.jpg 0\na/2.jpg 1\n{twin} 1\n")
    else:
        (root / "all.csv").write_text(f"path,label\na/1.jpg,0\na/2.jpg,1\n{twin},1\n")
    with pytest.raises(
        SourceError, match=r"line [34]: image '.*a/1\.jpg' is listed twice .*line [12]"
    ):
        read(root / ("all.txt" if kind == "list" else "all.csv"))


def test_absolute_paths_of_different_images_are_read(make_tree):
    root = make_tree(["a/1.jpg", "a/2.jpg"])
    (root / "all.txt").write_text(f"a/1.jpg 0\n{root}/a/2.jpg 1\n")
    assert read(root / "all.txt").path.to_pylist() == ["a/1.jpg", f"{root}/a/2.jpg"]


def test_an_unbalanced_quotation_mark_does_not_join_lines_of_a_tsv(make_tree):
    root = make_tree(["1.jpg", "2.jpg", "3.jpg"])
    (root / "all.tsv").write_text(
        'path\tlabel\tnote\n1.jpg\t0\t"big\n2.jpg\t1\tsmall"\n3.jpg\t1\tx\n'
    )
    with pytest.raises(
        SourceError, match="line 2: a quotation mark opens here and closes in a later line"
    ):
        read(root / "all.tsv")


def test_an_unbalanced_quotation_mark_does_not_join_labels_of_a_csv(make_tree):
    root = make_tree(["1.jpg", "2.jpg"])
    (root / "all.csv").write_text('path,label\n1.jpg,"cat\n2.jpg,dog"\n')
    with pytest.raises(SourceError, match="line 3: column 'label' contains a line break"):
        read(root / "all.csv")
    (root / "all.csv").write_text('path,label,caption\n1.jpg,cat,"two\nlines"\n2.jpg,dog,one\n')
    assert read(root / "all.csv").extra["caption"].to_pylist() == ["two\nlines", "one"]
