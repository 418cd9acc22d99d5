"""Which folders are the classes, and which are splits: the same in folders and archives."""

from __future__ import annotations

import shutil
import struct
import zipfile
import zlib

import pytest
from helpers.sources import has_notice, read, rows

from dataprep.sources.scan import split_of
from manifests.errors import CallError, SourceError

#: Files of a folder, and the split and class of each image, in order.
TREES = {
    "one folder around the classes": (
        ["2750/Forest/1.jpg", "2750/River/1.jpg"],
        [("train", "Forest"), ("train", "River")],
    ),
    "splits in a folder of the same name": (
        ["chest/chest/train/a/1.jpg", "chest/chest/val/b/1.jpg", "chest/__MACOSX/x/1.jpg"],
        [("train", "a"), ("val", "b")],
    ),
    "names that contain splits": (
        ["training_set/a/1.jpg", "training_set/b/1.jpg", "test_set/a/1.jpg"],
        [("test", "a"), ("train", "a"), ("train", "b")],
    ),
    "each split in itself": (
        ["seg_train/seg_train/a/1.jpg", "seg_train/seg_train/b/1.jpg", "seg_val/seg_val/a/1.jpg"],
        [("train", "a"), ("train", "b"), ("val", "a")],
    ),
    "camel case, numbers": (
        ["TrainImages/a/1.jpg", "val2/b/1.jpg", "test-v3/a/2.jpg"],
        [("test", "a"), ("train", "a"), ("val", "b")],
    ),
    "usual and other names": (
        ["train/a/1.jpg", "train/b/1.jpg", "valset/a/1.jpg"],
        [("train", "a"), ("train", "b"), ("val", "a")],
    ),
    "dev and eval": (
        ["train/a/1.jpg", "train/b/1.jpg", "dev/a/2.jpg", "eval/b/3.jpg"],
        [("test", "b"), ("train", "a"), ("train", "b"), ("val", "a")],
    ),
    "train and val in one folder": (
        ["trainval/a/1.jpg", "trainval/b/2.jpg", "test/a/3.jpg"],
        [("test", "a"), ("train", "a"), ("train", "b")],
    ),
    "names that occur in every class": (
        ["original/1.jpg", "copy/1.jpg"],
        [("train", "copy"), ("train", "original")],
    ),
    "a class with the word train": (
        ["steam_train/1.jpg", "car/1.jpg", "bus/1.jpg"],
        [("train", "bus"), ("train", "car"), ("train", "steam_train")],
    ),
    "folders of other files": (
        ["cat/1.jpg", "dog/1.jpg", "meta/names.txt", "docs/more/a.pdf"],
        [("train", "cat"), ("train", "dog")],
    ),
    "classes beside folders of other files": (
        ["images/cat/1.jpg", "images/dog/1.jpg", "attributes/a.txt", "README"],
        [("train", "cat"), ("train", "dog")],
    ),
    "thumbnails and the recycle bin": (
        [
            *("cat/1.jpg", "cat/@eaDir/1.jpg/SYNOPHOTO_THUMB_M.jpg", "@eaDir/cat/1.jpg"),
            *("dog/1.jpg", "$RECYCLE.BIN/1.jpg", "System Volume Information/1.jpg"),
            *("lost+found/1.jpg", "#recycle/dog/1.jpg", ".Trash-1000/files/1.jpg"),
            *("dog/.ipynb_checkpoints/1-checkpoint.jpg", "cat/a_THUMB_b.jpg", "cat/._1.jpg"),
        ],
        [("train", "cat"), ("train", "dog")],
    ),
}

#: Files of folders that do not say what the classes are, and what the message must contain.
UNCLEAR = {
    "two depths": (
        ["cat/1.jpg", "dogs/husky/1.jpg", "dogs/poodle/1.jpg"],
        r"dogs/ contains folders of images, and no images; beside them, cat/ contains images",
    ),
    "groups of classes": (
        ["a/abbey/1.jpg", "a/airfield/1.jpg", "b/bakery/1.jpg"],
        r"a/, b/ contain folders of images.*--class-folders inner if a/abbey/, a/airfield/",
    ),
    "images of splits": (
        ["cars_train/1.jpg", "cars_test/1.jpg", "devkit/annos.mat"],
        "the folder of a split has no class folders",
    ),
    "the same split twice": (
        ["train1/a/1.jpg", "train2/b/1.jpg"],
        "train1/ and train2/ are two names of the same split",
    ),
    "folds": (
        ["fold1/1.jpg", "fold2/1.jpg"],
        "look like numbered parts of one dataset: fold1, fold2",
    ),
    "folds of classes": (["fold_1/a/1.jpg", "fold_2/a/1.jpg"], "numbered parts of one dataset"),
    "dev beside val": (
        ["train/a/1.jpg", "val/a/2.jpg", "dev/a/3.jpg"],
        "dev/ and val/ are two names of the same split, val|val/ and dev/",
    ),
    "a split of an unknown name": (
        ["train/a/1.jpg", "train/b/2.jpg", "extra/a/3.jpg"],
        "extra/ has class folders as the splits have, such as a/.*rename it to the name",
    ),
    "splits inside of classes": (
        ["cat/train/1.jpg", "cat/test/2.jpg", "dog/train/3.jpg", "dog/test/4.jpg"],
        "splits are inside of class folders: cat/test/.*to test/cat/; or set --class-folders outer",
    ),
    "thumbnails": (
        ["cat/1.jpg", "dog/2.jpg", "dog/3.jpg", "thumbnails/1.png", "thumbnails/2.png"],
        "thumbnails/ looks like .* have 2 of its 2 names.*move the folder away",
    ),
    "originals in a class": (
        ["cat/1.jpg", "cat/Originals/1.png", "dog/2.jpg"],
        "cat/Originals/ looks like a folder of copies: other folders have 1 of its 1 name, too",
    ),
    "a backup": (
        ["cat/1.jpg", "dog/2.jpg", "_backup/cat/1.jpg", "_backup/dog/2.jpg"],
        "_backup/ has folders of the same names as the class folders beside it",
    ),
    "nothing": (["meta/a.txt"], "the source contains no images"),
}


def packed(root, kind):
    """Return a folder, or an archive of it."""
    if kind == "folder":
        return root
    return shutil.make_archive(str(root), kind, root)


@pytest.mark.parametrize("kind", ["folder", "zip", "tar"])
@pytest.mark.parametrize("name", TREES)
def test_class_folders_are_found(name, kind, make_tree):
    files, expected = TREES[name]
    source = read(packed(make_tree(files), kind))
    assert sorted((split, label) for split, _, label in rows(source)) == expected


@pytest.mark.parametrize("kind", ["folder", "zip", "tar"])
@pytest.mark.parametrize("name", UNCLEAR)
def test_folders_that_are_not_clear_are_refused(name, kind, make_tree):
    files, message = UNCLEAR[name]
    with pytest.raises(SourceError, match=message):
        read(packed(make_tree(files), kind))


@pytest.mark.parametrize(
    ("choice", "expected"),
    [("inner", ["cat", "husky", "poodle"]), ("outer", ["cat", "dogs", "dogs"])],
)
def test_the_user_chooses_the_class_folders(choice, expected, make_tree):
    src = make_tree(UNCLEAR["two depths"][0])
    assert sorted(row[2] for row in rows(read(src, class_folders=choice))) == expected


def test_the_user_chooses_classes_that_look_like_parts(make_tree):
    files = UNCLEAR["folds"][0]
    assert read(make_tree(files), class_folders="outer").classes == ("fold1", "fold2")


def test_inner_folders_of_the_same_name_are_counted(make_tree):
    files = ["amazon/bag/1.jpg", "amazon/cup/1.jpg", "dslr/bag/1.jpg", "dslr/pen/1.jpg"]
    source = read(make_tree(files), class_folders="inner")
    assert has_notice(source, "joins folders of the same name: 1 class is in several", "dslr/bag/")


def test_links_to_a_folder_above_do_not_repeat_inner_classes(make_tree):
    root = make_tree(UNCLEAR["groups of classes"][0])
    (root / "a" / "again").symlink_to(root)
    assert len(read(root, class_folders="inner")) == 3


def test_what_was_read_is_said(make_tree):
    source = read(make_tree(TREES["each split in itself"][0]))
    assert has_notice(source, "read seg_train/ as train and seg_val/ as val")
    assert has_notice(source, "read the class folders in seg_train/seg_train/")
    source = read(make_tree(["d/cat/1.jpg", "d/dog/1.jpg"]).parent)
    assert has_notice(source, "read source/, the only folder")


@pytest.mark.parametrize(
    ("names", "notice"),
    [
        (["cat", "cat "], "'cat' and 'cat '"),
        (["Cat", "cat"], "'Cat' and 'cat'"),
        (["hot dog", "hot_dog"], "'hot dog' and 'hot_dog'"),
        (["caf\u00e9", "cafe\u0301"], r"'cafe\u0301' and 'caf\xe9'"),
        (["2", "10"], "10 is before 2, as in torchvision"),
        (["02", "10"], ""),
        (["cat", "car"], ""),
    ],
)
def test_names_that_may_be_a_mistake_are_said(names, notice, make_tree):
    source = read(make_tree([f"{name}/1.jpg" for name in names]))
    assert [each for each in source.notices if "classes" in each] == [
        each for each in source.notices if notice and notice in each
    ]
    assert bool(notice) == bool(source.notices)


@pytest.mark.parametrize("files", [["photos/cat/1.jpg"], ["cat/1.jpg", "meta/a.txt"]])
def test_one_class_that_is_left_is_refused(files, make_tree):
    src = make_tree([*files, "photos/README" if "photos/cat/1.jpg" in files else "README"])
    with pytest.raises(SourceError, match="cat would be the only class"):
        read(src)
    assert read(src, class_folders="inner").classes == ("cat",)


def test_one_class_is_said(make_tree):
    assert has_notice(
        read(make_tree(["cat/1.jpg"])), "there is one class, cat; if the images have no"
    )


@pytest.mark.parametrize(
    ("name", "split"),
    [
        *(("training_set", "train"), ("seg_test", "test"), ("VAL", "val"), ("testImages", "test")),
        *(("train_val2018", None), ("strain", None), ("valley", None), ("train2017", "train")),
        *(("trainset", "train"), ("validation-data", "val"), ("contest", None)),
    ],
)
def test_splits_in_names(name, split):
    assert split_of(name) == split


# --- zip archives: the encoding of names ----------------------------------------------------------


class NamedInfo(zipfile.ZipInfo):
    """A member whose name is stored as bytes, without the flag of UTF-8, as other programs do."""

    def _encodeFilenameFlags(self):  # noqa: N802
        return self.raw, self.flag_bits


def zip_with_names(path, names, encoding, unicode_path=False):
    with zipfile.ZipFile(path, "w") as archive:
        for number, name in enumerate(names):
            info = NamedInfo(f"{number}.jpg")
            info.raw = name.encode(encoding)
            if unicode_path:
                field = struct.pack("<BI", 1, zlib.crc32(info.raw)) + name.encode()
                info.extra = struct.pack("<HH", 0x7075, len(field)) + field
            archive.writestr(info, b"x")
    return path


NAMES = ["猫/1.jpg", "犬/1.jpg"]


@pytest.mark.parametrize(
    ("encoding", "options"),
    [
        ("utf-8", {}),
        ("gbk", {"zip_encoding": "gbk"}),
        ("shift_jis", {"zip_encoding": "shift_jis"}),
        ("shift_jis", {"unicode_path": True}),
    ],
)
def test_names_in_a_zip_archive(encoding, options, tmp_path):
    unicode_path = options.pop("unicode_path", False)
    path = zip_with_names(tmp_path / "a.zip", NAMES, encoding, unicode_path)
    source = read(path, **options)
    assert source.classes == ("犬", "猫")
    # Short names in GBK can also be read as UTF-8.
    assert has_notice(source, "read as UTF-8", "set --zip-encoding") == (encoding == "utf-8")


def test_names_in_an_unknown_encoding_are_refused(tmp_path):
    path = zip_with_names(tmp_path / "a.zip", ["熊猫/1.jpg", "犬/1.jpg"], "gbk")
    with pytest.raises(
        SourceError, match=r"set --zip-encoding: the name would be '?熊猫/1.jpg'? in gbk"
    ):
        read(path)
    with pytest.raises(SourceError, match="not valid in ascii"):
        read(path, zip_encoding="ascii")
    with pytest.raises(CallError, match="--zip-encoding klingon is not an encoding"):
        read(path, zip_encoding="klingon")


def test_the_encoding_of_names_is_an_option_of_zip_archives(make_tree):
    with pytest.raises(CallError, match="it applies to a zip archive"):
        read(make_tree(["cat/1.jpg", "dog/1.jpg"]), zip_encoding="gbk")


# --- what else is in an archive -------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["folder", "zip", "tar"])
def test_lists_in_an_archive_are_read(kind, make_tree):
    src = make_tree({"a/1.jpg": "1", "a/2.jpg": "22", "train_list.txt": "a/1.jpg 1\na/2.jpg 0\n"})
    source = read(packed(src, kind))
    assert [row[2] for row in rows(source)] == ["1", "0"]
    assert source.size.tolist() == [1, 2]


def test_folders_of_containers_are_refused_in_an_archive(make_tree):
    src = make_tree(["images/1.jpg", "masks/1.png"])
    with pytest.raises(SourceError, match=r"which is not read inside of an archive\. Hint: unpack"):
        read(packed(src, "zip"))
