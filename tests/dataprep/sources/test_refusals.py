"""What cannot be read is refused in one line, by file and line, with a hint: a table for each reader."""

from __future__ import annotations

import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from helpers.sources import MARKET, refused

from dataprep.sources import listed
from manifests.errors import CallError
from manifests.labels import MAX_LABEL

IMAGES = dict.fromkeys(["1.jpg", "2.jpg", "a/3.jpg"], "x")

# --- the path itself ------------------------------------------------------------------------------


PATHS = {
    "hf://datasets/a/b": "hf:// URLs are not supported. Hint: use s3://",
    "ftp://example.com/photos": "ftp:// URLs are not supported. Hint: use s3://",
    "gs:/b": "--src gs:/b looks like a URL. Hint: write it like s3://bucket/folder",
    r"C:\photos": "is a path of Windows, which does not exist here. Hint: .*/mnt/c/photos",
    "d:/photos": "is a path of Windows, which does not exist here. Hint: .*/mnt/c/photos",
    r"\\server\photos": "is a path of Windows, which does not exist here. Hint: .*/mnt/c/photos",
    "nowhere": "nowhere does not exist",
}


@pytest.mark.parametrize("path", PATHS)
def test_paths_that_are_no_sources(path):
    assert isinstance(refused(path, PATHS[path]), CallError)


# --- folders and options --------------------------------------------------------------------------

KAGGLE = "ILSVRC/Data/CLS-LOC"
PATTERN = {"pattern": "{identity}_c{camera}s*"}
LIST = {**IMAGES, "l.txt": "1.jpg 0\n"}
TABLES_APPLY = "does not apply to"

FOLDERS = [
    (["a/1.jpg"], {"image_root": "x"},
     f"--image-root {TABLES_APPLY} .*, which is a folder of class folders. Hint: .* a table"),
    (["a/1.jpg"], {"label_column": "x"},
     f"--label-column {TABLES_APPLY} .* it applies to .*a table of paths.*--pattern"),
    (["a/1.jpg", "b/1.jpg"], {"zip_encoding": "gbk"}, "it applies to a zip archive"),
    (LIST, {"path_column": "x"}, f"--path-column {TABLES_APPLY} .*l.txt, which is a list file"),
    (LIST, PATTERN, f"--pattern {TABLES_APPLY}"),
    (MARKET, {"label_column": "camera"}, "which is a folder of a re-identification dataset"),
    (["1.jpg"], {}, "has no class folders. Hint: .* --pattern; or set --label-type none"),
    (["a/notes.txt"], {}, "the source contains no images"),
    ({"l.csv": ""}, {}, "l.csv: the table has no header"),
    ({"l.csv": "path,label\n"}, {}, "l.csv: the source contains no images"),
    ({"l.parquet": "not at all"}, {}, "l.parquet: the file is not a valid Parquet table"),
    (["train/a/1.jpg", "training/b/2.jpg"], {}, "train.*training|training.*train"),
    (["train/1_c1s.jpg", "training/1_c1s.jpg"], PATTERN, "names of the same split"),
    (["train/a/1.jpg", "val/1.jpg"], {},
     r"val: the folder of a split has no class folders. Hint: .*val_list\.txt"),
    (["a/1.jpg", "b/1.jpg"], {"classes": ("a",)}, "'b' is not in --classes"),
    (["1_c1s.jpg"], {"pattern": "{identity}_d*"}, "1_c1s.jpg"),
    (["1_c1s.jpg"], {"pattern": ""}, "--pattern : the pattern is not 1 to 255"),
    (["1_c1s.jpg"], {}, "--pattern"),
    (["1_c1s.jpg"], {"pattern": "{person}_*"}, "--pattern has no part for the label"),
    (["1_c1s.jpg"], {"pattern": "{identity}*"},
     "--pattern {identity}.: the end of {identity} is ambiguous"),
    (["1_c1s.jpg"], {"pattern": "{identity}_*", "label_column": "camera"},
     "--label-column camera: --pattern has no {camera}"),
    (["cat-1.jpg", "dog-2.jpg"], {"pattern": "{label}-*", "classes": ("cat",)},
     "dog-2.jpg: label 'dog' is not in --classes"),
    (["cat/ann_1.jpg", "cat/x.jpg"], {"pattern": "{person}_*"},
     "1 of 2 file names does not match"),
    (["cat/ann_1.jpg", "cat/x.jpg"], {"pattern": "{source}"},
     r"\{source\} is a name that sample tables already use"),
    # datasets for detection and segmentation that are not converted never become classes
    (["annotations/panoptic_train2017.json", "train2017/1.jpg"], {},
     "COCO's panoptic annotations"),
    (["train2017/1.jpg", "val2017/2.jpg", "x.json"], {}, "images of COCO"),
    (["annotations/panoptic_1.json", "annotations/x.json", "val/1.jpg"], {}, "COCO annotations"),
    (["JPEGImages/1.jpg", "ImageSets/Main/train.txt"], {}, "Pascal VOC"),
    (["images/train/1.jpg", "labels/train/1.txt", "data.yaml"], {},
     r"looks like YOLO boxes \(images/ and labels/train/1.txt\), which is not converted"),
    (["train/images/1.jpg", "train/labels/1.txt", "valid/images/2.jpg"], {}, "YOLO boxes"),
    (["gtFine/train/aachen/a_gtFine_labelIds.png"], {}, "Cityscapes"),
    (["ADE20K_2021_17_01/images/training/1.jpg"], {}, "ADE20K"),
    ({"images/1.jpg": b"x", "annotations/1.json": '{"shapes": []}'}, {}, "annotations/1.json"),
    (["images/1.jpg", "masks/1.npy"], {}, "images with masks"),
    (["train/images/1.jpg", "train/masks/1.png", "val/images/1.jpg"], {},
     "val/ has no labels, as other folders have"),
    (["images/1.jpg", "masks/1.png", "labels/1.png"], {}, "images with masks"),
    (["Images/n02085620/1.jpg", "Annotation/n02085620/1"], {}, "images with masks.* that folder"),
    (["images/val_0.JPEG", "val_annotations.txt"], {},
     "flat val/ of Tiny ImageNet.*Hint: give the folder above"),
    (["00000.tar", "00000.parquet", "00000_stats.json"], {},
     "shards of img2dataset.*dataprep index"),
    (["00000/000000000.jpg", "00000/000000000.json", "00000/000000000.txt"], {},
     "files of img2dataset"),
    (["data-00000-of-00001.arrow", "state.json", "dataset_info.json"], {},
     "save_to_disk.*to_parquet"),
    (["images/1.jpg", "images/2.jpg"], {}, "one folder of images .*Hint: give .*/images if"),
    (["jpg/image_00001.jpg", "imagelabels.mat"], {},
     "Oxford Flowers 102, but setid.mat does not exist"),
    (["1.jpg", "1.json", "2.jpg", "2.json"], {}, "a JSON file for each image, as LabelMe writes"),
    *(([file, "train/1.jpg", "valid/2.jpg"], {},
     f"looks like {name}, which is not converted. Hint: ") for file,
     name in (("train/_annotations.csv", "boxes in a table of Roboflow"),
     ("train/_annotations.createml.json",
     "boxes in Create ML's format"), ("via_region_data.json", "boxes in VGG Image Annotator's format"),
     ("train/label_2/1.txt", "boxes of KITTI"), ("train/labelTxt/1.txt",
     "rotated boxes of DOTA"))),
]  # fmt: skip


@pytest.mark.parametrize(("files", "options", "message"), FOLDERS, ids=range(len(FOLDERS)))
def test_folders_and_options_that_do_not_fit(files, options, message, make_tree):
    root = make_tree(files)
    (table,) = [name for name in files if name.startswith("l.")] or [""]
    refused(root / table, message, **options)


# --- lists, tables and JSON -----------------------------------------------------------------------

LISTS = [
    ("1.jpg 0\n2.jpg\n", 2, "the line '2.jpg' does not have the form `path label`"),
    ("1.jpg 0\n\n  \n2.jpg\n", 4, "does not have the form `path label`"),
    ("1.jpg 0\n2\0.jpg 1\n", 2, "does not have the form `path label`"),
    (b"1.jpg 0\ncaf\xe9.jpg 0\n", 2, "not valid UTF-8"),
    (b"\xff\xfe1\0.\0", 1, "not valid UTF-8"),
    ("1.jpg 0\nno.jpg 0\n9.jpg 1\n", 2, r"image 'no.jpg' does not exist.*\(2 in total\)"),
    ("1.jpg 0\na 0\n", 2, "image 'a' does not exist"),
    ("1.jpg 0\n2.jpg -1\n", 2, "label -1 is out of the range 0 to"),
    (f"1.jpg 0\n2.jpg {MAX_LABEL + 1}\n", 2, "out of the range"),
    ("1.jpg 0\n2.jpg 1\n./1.jpg 1\n", 3, r"'1.jpg' is listed twice.*l.txt, line 1"),
    ("/a/3 x\na\\3.jpg y\n", 2, "listed twice"),
    ("1.jpg 0 3 5\n", 1, r"'1.jpg' exists there; .* without blanks, 0\|3\|LABEL"),
]

CSV = [
    ("path,label\n1.jpg,1\n2.jpg,2,3\n", 3, "the row has 3 columns, but the header has 2"),
    ("path,label\n1.jpg,1\n2.jpg\n", 3, "the row has 1 column, but the header has 2"),
    ("path,label\n1.jpg,1\nno.jpg,2\n", 3, "image 'no.jpg' does not exist"),
    ("path,label\n1.jpg,1\n\n\nno.jpg,2\n", 5, "image 'no.jpg' does not exist"),
    ('path,label,note\n1.jpg,1,"two\nlines"\nno.jpg,2,\n', 4, "image 'no.jpg' does not exist"),
    ("path,label\n1.jpg,1\n1.jpg,2\n", 3, "listed twice.*line 2"),
    ("path,label\n1.jpg,cat\n1.jpg,cat\n", 3, "image '1.jpg' is listed twice"),
    ("path,label,rater\n1.jpg,cat,1\n1.jpg,cat,2\n", 3,
     "listed twice, with the labels cat and cat"),
    ("path,label\n1.jpg,1\n2.jpg,-1\n", 3,
     "out of the range .*--max-classes to a number|--classes"),
    (f"path,label\n1.jpg,0\n2.jpg,{'9' * 4000}\n", 3, "is out of the range 0 to 999999 "),
    (f"path,label\n1.jpg,0\n2.jpg,{2**64}\n", 3, "is out of the range 0 to 999999 "),
    ("path,label\n1.jpg,0\n2.jpg,1000000\n", 3, "is out of the range 0 to 999999 "),
    ("path,label\n1.jpg,1\n2.jpg,\n", 3, "'label' is empty"),
    ("path,label\n1.jpg,cat\n,dog\n", 3, "'path' is empty"),
    ("path,label,split\n1.jpg,cat,train\n2.jpg,dog,\n", 3, "'split' is empty"),
    (f"path,label,split\n1.jpg,0,{'a' * 101}\n", None,
     "cannot be part of a file name. Hint: use at most 100"),
    (b"path,label\n1.jpg,cat\n2.jpg,caf\xe9\n", 3, "UTF-8"),
    ("path,label,label\n1.jpg,1,2\n", 1, "two columns have the name 'label'"),
    ('path,label\n1.jpg,"cat\n2.jpg,dog"\n', 3, "column 'label' contains a line break"),
    (f"path,label,{','.join(map(str, range(999)))}\n", 1,
     "the table has 1,001 columns, but the limit is 1,000"),
]  # fmt: skip

TSV = [
    (
        'path\tlabel\tnote\n1.jpg\t0\t"big\n2.jpg\t1\tsmall"\na/3.jpg\t1\tx\n',
        2,
        "a quotation mark opens here and closes in a later line",
    ),
]

#: A line after a good one.
GOOD = '{"path": "1.jpg", "label": "cat"}\n'
JSONL = [
    ("{\n", 2, "the line is not a JSON object"),
    ("[1]\n", 2, r"the line is not a JSON object \(it is not an object\)"),
    ('{"path": "cut\n', 2, r"the line is not a JSON object \(Invalid control character\)"),
    ('{"path": "cut', 2, r"the line is not a JSON object \(Unterminated string\)"),
    ('{"path": "2.jpg", "path": "a/3.jpg", "label": "x"}\n', 2, "the name 'path' occurs twice"),
    ('{"path": "2.jpg", "label": NaN}\n', 2, "NaN is not JSON"),
    ("[" * 100_000 + "\n", 2, "nested too deeply"),
    ("\xff\n", 2, "the line is not a JSON object"),
    ('{"path": "2.jpg", "label": 7}\n', 2, "member 'label' is an integer, but text in line 1"),
    ('{"path": "2.jpg", "label": ["cat", "dog"]}\n', 2, "member 'label' is a list"),
    ('{"path": {"a": 1}, "label": "x"}\n', 2, "member 'path' is an object"),
    (f'{{"path": "2.jpg", "label": "x", "id": {1 << 63}}}\n', 2,
     "member 'id' is an integer of more than 64 bits"),
    ('{"path": "2.jpg", "label": "\\ud800"}\n', 2, "member 'label' is not valid Unicode"),
    ('{"path": "2.jpg"}\n', 2, "column 'label' is empty"),
    ('{"path": "no.jpg", "label": "x"}\n', 2, "image 'no.jpg' does not exist"),
    (GOOD, 2, "image '1.jpg' is listed twice"),
    (json.dumps({"path": "2.jpg", "label": "x", **{f"m{n}": 1 for n in range(1000)}}), 2,
     "more than 1,000 different members"),
]  # fmt: skip
JSONL = [(GOOD + text, *others) for text, *others in JSONL]
#: Integers above 2**53 do not become fractions.
LARGE = (1 << 53) + 1
for values, line, message in [
    ((LARGE, 0.5), 2, r"member 'x' is a number, but an integer above 2\*\*53 in line 1"),
    ((0.5, LARGE), 2, r"member 'x' is an integer above 2\*\*53, but a number in line 1"),
    ((1, LARGE, 0.5), 3, "member 'x' is a number, but an integer above"),
]:
    found = [{"path": path, "label": "a", "x": x} for path, x in zip(IMAGES, values, strict=False)]
    JSONL.append(("\n".join(map(json.dumps, found)), line, message))

ITEM = {"path": "1.jpg", "label": "cat"}
JSON = [
    ([ITEM, 3], None, "item 2 of the list is not an object"),
    ([ITEM, {**ITEM, "path": "2.jpg", "label": 7}], None,
     "item 2: member 'label' is an integer, but text in item 1"),
    ([ITEM, {**ITEM, "path": "c.jpg"}], None, "item 2: image 'c.jpg' does not exist"),
    ({"1.jpg": "x", "2.jpg": {"label": "x", "boxes": [{}]}}, None,
     "item 2: member 'boxes' has an object"),
    ('[{"path": "2.jpg", "label": "x"}] 1', None, "something follows the last item"),
    ('[{"path": "2.jpg", "label": "x"},', None, "the file is not valid JSON"),
    ({"images": [ITEM]}, None, "is not one of the tables that can be read"),
    ([{"name": "2.jpg"}], None, "is not one of the tables that can be read"),
]  # fmt: skip

TEXTS = {".txt": LISTS, ".csv": CSV, ".tsv": TSV, ".jsonl": JSONL, ".json": JSON}
ROWS = [(f"l{suffix}", *row) for suffix, rows in TEXTS.items() for row in rows]


@pytest.mark.parametrize(("name", "text", "line", "message"), ROWS, ids=range(len(ROWS)))
def test_tables_of_text_name_the_line(name, text, line, message, make_tree):
    content = text if isinstance(text, (str, bytes)) else json.dumps(text)
    root = make_tree({**IMAGES, name: content})
    error = refused(root / name, message)
    assert len(str(error)) < 400 + len(str(root))
    if line is not None:
        assert (error.file, error.line) == (f"{root}/{name}", line)
        assert str(error).startswith(f"{root}/{name}, line {line}: ")


PARQUET = [
    ({"path": ["1.jpg", None]}, 2, "'path' is empty"),
    ({"label": [None, 1]}, 1, "'label' is empty"),
    ({"path": ["1.jpg", "no.jpg"]}, 2, "image 'no.jpg' does not exist"),
    ({"path": [1.0, 2.0]}, None, "'path' has the type double"),
    ({"label": [float("nan"), 1]}, 1, "'label' contains nan, which is not a finite number"),
    ({"box": [[1, 2], [1, 2]]}, 1, "column 'box' has .* and not four numbers"),
    ({"raw": [b"x", b"y"]}, None, "'raw' has the type binary"),
    ({"key": ["k", "l"], "column:key": ["k", "l"]}, None, "would have the same name"),
    ({"n" * 128: ["k", "l"]}, None, "has a name of 128 bytes"),
    ({"split": ["../x", "a"]}, None, "split '../x' cannot be part of a file name"),
    ({"x": pa.array([b"a\xff", b"b"]).dictionary_encode()}, None,
     "column 'x' has the type binary"),
    ({"x": pa.array([0, 1], pa.timestamp("us", tz="Mars/Olympus"))}, None,
     "column 'x' cannot be converted to text"),
    ({"x": pa.Array.from_buffers(pa.string(), 2, pa.array([b"a\xff", b"b"]).buffers())}, None,
     r"\(column 'x': .*Invalid UTF8"),
    ({"x": [{"a": 1}, None]}, None, "column 'x' has the type struct<a: int64>"),
    ({"x": [{"a" * 500: 1}, None]}, None, r"column 'x' has the type struct<a{53}\.\.\., which"),
    ({"x": pa.array([b"a", b"b"], pa.binary(1))}, None,
     r"column 'x' has the type fixed_size_binary\[1\]"),
    ({f"c{n}": [0, 1] for n in range(999)}, None,
     "the file has 1,001 columns, but the limit is 1,000"),
]  # fmt: skip


@pytest.mark.parametrize(("columns", "line", "message"), PARQUET, ids=range(len(PARQUET)))
def test_tables_of_parquet_name_the_column(columns, line, message, make_tree):
    file = make_tree(IMAGES) / "l.parquet"
    pq.write_table(pa.table({"path": ["1.jpg", "2.jpg"], "label": [0, 1], **columns}), file)
    error = refused(file, message)
    assert (error.file, error.line) == (str(file), line)


def test_missing_images_are_counted_up_to_a_limit(make_tree, monkeypatch):
    monkeypatch.setattr(listed, "MAX_MISSING", 3)
    root = make_tree(IMAGES)
    for count, total in ((3, "3 in total"), (4, "more than 3 in total"), (9, "more than 3")):
        lines = "".join(f"no{number}.jpg,0\n" for number in range(count))
        (root / "l.csv").write_text(f"path,label\n1.jpg,0\n{lines}")
        refused(root / "l.csv", rf"'no0.jpg' does not exist.*\({total}")


@pytest.mark.parametrize("second", ["a/3.jpg 0\n1.jpg 0\n", "a/3.jpg 0\nno.jpg 0\n"])
def test_the_second_of_two_lists_is_named(second, make_tree):
    root = make_tree({**IMAGES, "train_list.txt": "2.jpg 0\n1.jpg 0\n", "val_list.txt": second})
    message = "listed twice.*train_list.txt, line 2" if "no" not in second else "no.jpg"
    error = refused(root, message)
    assert (error.file, error.line) == (f"{root}/val_list.txt", 2)


# --- ImageNet of Kaggle ---------------------------------------------------------------------------

SOLUTION, CLASSES, HEAD = (
    "LOC_val_solution.csv",
    "LOC_synset_mapping.txt",
    "ImageId,PredictionString\n",
)
FIRST, SECOND = (f"ILSVRC2012_val_0000000{n}" for n in (1, 2))
LABEL = f"{HEAD}{FIRST},n02 1 2 3 4\n"
IMAGENET = {
    **{f"{KAGGLE}/train/{wnid}/1.JPEG": "x" for wnid in ("n01", "n02")},
    **{f"{KAGGLE}/val/{name}.JPEG": "x" for name in (FIRST, SECOND)},
    CLASSES: "n01 tench, Tinca tinca\nn02 goldfish\n",
    SOLUTION: f"{LABEL}{SECOND},n01 1 2 3 4\n",
}
KAGGLES = [
    ({SOLUTION: None}, "val: .*LOC_val_solution.csv"),
    ({SOLUTION: f"{LABEL}{SECOND},n99 1 2\n"}, f"{SOLUTION}, line 3: .*n99"),
    ({SOLUTION: f"{LABEL}\n\n{SECOND},n99\n"}, f"{SOLUTION}, line 5: .*n99"),
    ({SOLUTION: f"{LABEL}{SECOND}\n"}, f"{SOLUTION}, line 3: the row has 1 column"),
    ({SOLUTION: f"{LABEL}{'x' * 5000}\n"}, f"{SOLUTION}, line 3: the row has 1 column"),
    ({SOLUTION: LABEL}, f"{SOLUTION}: .*val/{SECOND}.JPEG' has no label"),
    ({SOLUTION: f"{LABEL}{FIRST},n01 1\n"}, f"line 3: image 'val/{FIRST}.JPEG' is listed twice"),
    ({SOLUTION: f'{LABEL}{SECOND},"n01\n'}, f"{SOLUTION}, line 3: the line is not valid CSV"),
    (
        {SOLUTION: f"{LABEL}{SECOND},n01 {'1 ' * 100_000}\n"},
        "line 3: the line is not valid CSV: field larger",
    ),
    ({SOLUTION: LABEL.encode() + b"caf\xe9,n01 1\n"}, f"{SOLUTION}, line 3: .*UTF-8"),
    ({f"{KAGGLE}/val/{SECOND}.JPEG": None}, f"{SOLUTION}, line 3: .*00000002.JPEG' does not exist"),
    ({CLASSES: "n01 tench\n"}, f"{CLASSES}: .*does not name 'n02'"),
    ({CLASSES: b"n01 tench\nn02 caf\xe9\n"}, f"{CLASSES}, byte 17: the file is not valid UTF-8"),
]


@pytest.mark.parametrize(("changes", "message"), KAGGLES, ids=range(len(KAGGLES)))
def test_imagenet_of_kaggle_names_file_and_line(changes, message, make_tree):
    files = {name: text for name, text in {**IMAGENET, **changes}.items() if text is not None}
    root = make_tree(files)
    assert len(str(refused(root, message))) < 400 + len(str(root))
