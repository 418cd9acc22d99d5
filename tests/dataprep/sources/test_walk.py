"""The walk through folders: links that multiply a tree, deep trees, and output folders inside the source."""

from __future__ import annotations

import os

import pytest
from helpers.sources import has_notice, read, rows, shuffled_scandir

from dataprep.ledger.finished import check_output
from manifests.errors import CallError


def test_links_do_not_multiply_a_tree(tmp_path):
    """Each of 16 levels has 30 links to the next one: 30 ** 16 paths lead to the last image."""
    root = tmp_path / "photos"
    levels = [root / "class" / "0", *(root / "class" / str(n) for n in range(1, 16))]
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


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_the_real_path_wins_whatever_the_order_of_the_folder(seed, make_tree, monkeypatch):
    root = make_tree(["a/1.jpg", "z/real/2.jpg", "z/3.jpg"])
    (root / "a" / "link").symlink_to(root / "z" / "real")
    outside = root.parent / "outside"
    outside.mkdir()
    (outside / "4.jpg").write_bytes(b"x")
    (root / "z" / "first").symlink_to(outside)
    (root / "z" / "second").symlink_to(outside)
    monkeypatch.setattr(os, "scandir", shuffled_scandir(seed))
    source = read(root)
    assert source.path.to_pylist() == ["a/1.jpg", "z/3.jpg", "z/first/4.jpg", "z/real/2.jpg"]
    assert has_notice(source, "skipped a/link: it is the same folder as z/real")


def test_two_classes_of_one_folder(make_tree):
    """An image must not have two labels."""
    root = make_tree(["cat/1.jpg"])
    (root / "a kitty").symlink_to("cat")
    source = read(root)
    assert [row[1:] for row in rows(source)] == [("cat/1.jpg", "cat")]
    assert has_notice(source, "skipped a kitty: it is the same folder as cat")


def test_two_splits_of_one_folder(make_tree):
    """`ln -s train val` is a common way to try a script."""
    root = make_tree(["train/a/1.jpg", "train/a/deep/2.jpg"])
    (root / "val").symlink_to("train")
    assert [row[:2] for row in rows(read(root))] == [
        ("train", "train/a/1.jpg"),
        ("train", "train/a/deep/2.jpg"),
        ("val", "val/a/1.jpg"),
        ("val", "val/a/deep/2.jpg"),
    ]


def make_deep(root, levels):
    (root / "class").mkdir(parents=True)
    before = os.getcwd()
    os.chdir(root / "class")
    try:
        for _ in range(levels):
            os.mkdir("d")
            os.chdir("d")
        with open("1.jpg", "wb") as file:
            file.write(b"x")
    finally:
        os.chdir(before)


def remove_deep(root, levels):
    """`shutil.rmtree` of pytest is recursive."""
    before = os.getcwd()
    os.chdir(root / "class")
    try:
        for _ in range(levels):
            os.chdir("d")
        os.unlink("1.jpg")
        for _ in range(levels):
            os.chdir("..")
            os.rmdir("d")
    finally:
        os.chdir(before)


@pytest.mark.parametrize("levels", [1000, 1800, 3000])
def test_deep_trees(levels, dataprep, tmp_path):
    root = tmp_path / "photos"
    make_deep(root, levels)
    try:
        done = dataprep("convert", "--src", root, "--out", tmp_path / "out", "--max-rejected", "1",
            "--class-folders", "outer",
        )  # fmt: skip
        index = dataprep("index", root)
    finally:
        remove_deep(root, levels)
    assert (index.returncode, "Traceback" in index.stderr) == (2, False)
    if levels < 2000:  # the path of the image fits into the 4,096 bytes that Linux allows
        assert done.returncode == 0, done.stderr
        assert "rejected: 1 of 1 image (100.00%)" in done.stdout
    else:
        assert done.returncode == 2
        assert "the path cannot be read (File name too long)" in done.stderr
        assert len(done.stderr) < 10_000


# --- the output folder --------------------------------------------------------------------------


@pytest.mark.parametrize(
    "out", ["photos/out", "photos/a/out", "link/out", "elsewhere/out", "elsewhere", "nested/x/y"]
)
def test_output_inside_the_source_through_links(out, make_tree, tmp_path):
    root = make_tree(["a/1.jpg", "b/1.jpg"])
    root.rename(tmp_path / "photos")
    (tmp_path / "link").symlink_to("photos")
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "photos" / "c").symlink_to(tmp_path / "elsewhere")
    (tmp_path / "nested").symlink_to("photos/c")
    for src in ("photos", "link"):
        with pytest.raises(
            CallError, match=r"is inside the source .*, so the next run would read it as images"
        ):
            check_output(read(tmp_path / src), str(tmp_path / out))


def test_output_next_to_the_source(make_tree, tmp_path):
    root = make_tree(["a/1.jpg"])
    (tmp_path / "free").mkdir()
    (root.parent / "up").symlink_to(tmp_path / "free")
    for out in (
        root.parent / "out",
        tmp_path / "free",
        root.parent / "up" / "new",
        f"{root}-tfrecord",
    ):
        check_output(read(root), str(out))
    with pytest.raises(
        CallError, match=r"is 5,0\d\d bytes long, but the limit is 3,800. Hint: .* shorter"
    ):
        check_output(read(root), str(tmp_path) + "/o" * ((5080 - len(str(tmp_path))) // 2))
