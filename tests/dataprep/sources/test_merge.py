"""Several --src: one dataset with the samples of all, whose classes are matched by name."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from helpers.datasets import rows_of
from helpers.make_sources import IMAGES, MAKERS, VALID
from helpers.pictures import encode, photo
from helpers.rows import read_named, read_rows
from helpers.sources import has_notice
from helpers.tables import write_table

from dataprep.containers import locations_of
from dataprep.options import Options
from dataprep.shards.source_image import load_image
from dataprep.sources import Source, SourceOptions, recognize
from dataprep.sources.merge import check_names, merge_sources
from dataprep.sources.recognize import read_sources
from dataprep.verification.verify import verify_dataset
from manifests.errors import CallError
from manifests.store import read_manifest


def write(folder: Path, names: list[str]) -> Path:
    for number, name in enumerate(names):
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(encode(photo(len(name) * 100 + number, 40, 30)))
    return folder


def table(folder: Path, name: str, text: str) -> Path:
    folder.mkdir(exist_ok=True)
    (folder / name).write_text(text)
    return folder / name


@pytest.fixture
def merge(convert):
    """A function that converts several sources into one dataset."""

    def run(first, *others, out, status=0, options=()):
        more = [word for each in others for word in ("--src", each)]
        return convert(first, out, *more, *options, status=status).output

    return run


def merged(*srcs: Path, **options: object) -> Source:
    return merge_sources(read_sources([str(src) for src in srcs], SourceOptions(**options)))


@pytest.mark.parametrize("second", [name for name in MAKERS if name != "image folder"])
def test_every_kind_of_source_can_be_merged_with_a_folder(second, tmp_path):
    """The images are those of both, whether they are files or inside of containers."""
    made = [MAKERS["image folder"](tmp_path / "first"), MAKERS[second](tmp_path / "second")]
    numbered = second in ("recordio", "lmdb of Caffe")
    names = made[0].classes if numbered else None
    both = merged(*(each.src for each in made), classes=names)
    paths, sizes = both.path.to_pylist(), both.size.tolist()
    locations = locations_of(both.location, [*range(len(both))]) or [None] * len(both)
    data, options = set(), Options(validate="none")
    for path, size, location in zip(paths, sizes, locations, strict=True):
        data.add(load_image(both.root, path, size, options, location).data)
    assert data == {image.data for image in IMAGES}
    assert len(both) >= len(IMAGES) + len(VALID)
    new = () if numbered else made[1].classes
    assert both.classes == tuple(dict.fromkeys([*made[0].classes, *new]))
    assert both.splits == ("train", "val")
    assert paths[0].startswith("first/")
    assert paths[-1].startswith("second")


def test_rename_classes(merge, tmp_path):
    a = write(tmp_path / "a", ["cat/1.jpg", "dog/1.jpg"])
    b = write(tmp_path / "b", ["Cat/1.jpg", "puppy/1.jpg", "doggy/1.jpg"])
    out = tmp_path / "out"
    output = merge(a, b, out=out, status=2)
    message = f"{b}: class Cat is almost the class cat of {a}. Hint: if both are one class"
    assert message in output
    assert "--rename-classes" in output
    options = ["--rename-classes", table(tmp_path, "n.csv", "Cat,cat\npuppy,dog\n\ndoggy, dog\n")]
    merge(a, b, out=out, options=options)
    assert sorted((row["source"], row["class"]) for row in rows_of(out)) == [
        ("a/cat/1.jpg", "cat"), ("a/dog/1.jpg", "dog"), ("b/Cat/1.jpg", "cat"),
        ("b/doggy/1.jpg", "dog"), ("b/puppy/1.jpg", "dog"),
    ]  # fmt: skip
    options += ["--classes", table(tmp_path, "c.txt", "dog\ncat\n"), "--overwrite"]
    merge(a, b, out=out, options=options)
    assert read_manifest(out).classes == ("dog", "cat")
    assert verify_dataset(str(out), workers=1).problems == ()
    table(tmp_path, "c.txt", "dog\n")
    assert "class cat is not in --classes" in merge(a, b, out=out, options=options, status=2)


@pytest.mark.parametrize(("lines", "message"), read_rows(__file__, "renamed classes"))
def test_wrong_rename_tables(lines, message, convert, tmp_path):
    lines = lines.replace("; ", "\n")
    names = table(tmp_path, "names.csv", lines)
    options = ["--rename-classes", names]
    src, out = write(tmp_path / "a", ["cat/1.jpg"]), tmp_path / "out"
    output = convert(src, out, *options, status=2).output
    assert str(names) in output
    assert message in output
    assert not out.exists()


def test_sources_that_are_called_like_splits_are_noted(tmp_path):
    srcs = [write(tmp_path / split, ["cat/1.jpg", "dog/2.jpg"]) for split in ("train", "val")]
    source = merged(*srcs)
    assert has_notice(
        source, f"{srcs[1]} is called like the split val, but its images are in train"
    )
    assert not has_notice(source, "like the split train")


def test_images_that_sources_read_differently_are_counted(tmp_path):
    a = write(tmp_path / "a", ["cat/1.jpg", "dog/1.jpg"])
    for row, expected in (
        ("a/cat/1.jpg,cat,train", "more than once"),
        ("a/cat/1.jpg,dog,train", "more than once; 1 in more than one class"),
        ("a/cat/1.jpg,cat,val", "more than once; 1 in more than one split"),
    ):
        b = table(tmp_path, "b.csv", f"path,label,split\n{row}\n")
        found = [each for each in merged(a, b).notices if "more than once" in each]
        assert [each.endswith(expected) for each in found] == [True]


def test_numbers_and_names_do_not_match(merge, tmp_path):
    a, out = write(tmp_path / "a", ["cat/1.jpg", "dog/1.jpg"]), tmp_path / "out"
    b = table(tmp_path, "b.txt", "a/cat/1.jpg 0\na/dog/1.jpg 1\n")
    for sources in ((a, b), (b, a)):
        output = merge(*sources, out=out, status=2)
        assert f"{b}: the classes are numbers, such as 0, but those of {a} have names" in output
        assert "names, such as cat" in output
    options = ["--classes", table(tmp_path, "classes.txt", "cat\ndog\n")]
    output = merge(a, b, out=out, options=options)
    assert "2 images of the sources are listed more than once" in output
    assert read_manifest(out).classes == ("cat", "dog")
    check_names(["cat"], [], "first", "a source in which no image has a class")


def test_images_with_other_numbers_of_values_are_not_merged(convert, merge, tmp_path):
    write(tmp_path, ["x/1.jpg", "x/2.jpg"])
    a = table(tmp_path, "a.csv", "path,values\nx/1.jpg,1.5\n")
    b = table(tmp_path, "b.csv", "path,x,y\nx/2.jpg,1.5,2.5\n")
    one, two, options = tmp_path / "one", tmp_path / "two", ["--label-column", "x,y"]
    convert(a, one)
    output = convert(b, one, *options, "--append", status=2).output
    assert "has 1 number for each image, but the source has 2" in output
    convert(b, two, *options)
    output = merge(one, two, out=tmp_path / "both", status=2)
    assert f"{two}: it has 2 numbers for each image, but {one} has 1" in output
    assert not (tmp_path / "both").exists()


#: Labels of a dataset and of an append that another rule reads, and the classes of the message.
RULES = read_named(__file__, "rules")


@pytest.mark.parametrize("name", RULES)
@pytest.mark.parametrize("append", [True, False])
def test_labels_that_another_rule_reads_do_not_mix(append, name, convert, merge, tmp_path):
    tables, out = [], tmp_path / "out"
    for part, labels in zip("ab", RULES[name][:2], strict=True):
        write(tmp_path / part, [f"{number}.jpg" for number in range(len(labels))])
        lines = [f'{number}.jpg,"{label}"\n' for number, label in enumerate(labels)]
        tables.append(table(tmp_path / part, "t.csv", "".join(["path,label\n", *lines])))
    if append:
        convert(tables[0], out)
        output = convert(tables[1], out, "--append", status=2).output
    else:
        output = merge(*tables, out=out, status=2)
    assert RULES[name][2] in output
    assert "--classes FILE" in output


def test_sources_that_cannot_be_merged(convert, merge, invoke, tmp_path):
    a, b = write(tmp_path / "a", ["cat/1.jpg"]), write(tmp_path / "b", ["cat/2.jpg", "dog/1.jpg"])
    (tmp_path / "link").symlink_to(a)
    for other in (f"{tmp_path}/a/../a", tmp_path / "link"):
        with pytest.raises(CallError, match=r"is given twice|contain the same folder"):
            merged(a, other)
    output = invoke("convert", "--src", "a", "--src", "b", status=2).output
    assert "several --src require --out" in output
    assert f"is inside the source {b}" in merge(a, b, out=b / "out", status=2)
    raw = tmp_path / "raw"
    convert(b, raw, "--store", "raw", "--raw-size", 16)
    output = merge(a, raw, out="x", status=2)
    assert f"{raw}: it stores raw pixels of 16x16, but {a} encoded images" in output


def test_an_error_of_one_of_several_sources_names_it(tmp_path, monkeypatch):
    def refuse(src, options, progress):
        if src == "b.csv":
            raise CallError("the labels are numbers", hint="set --label-type")

    monkeypatch.setattr(recognize, "read_source", refuse)
    for srcs, start in ((["a.csv", "b.csv"], r"^b\.csv: "), (["b.csv"], "^")):
        with pytest.raises(CallError, match=f"{start}the labels are numbers. Hint: set"):
            read_sources(srcs, SourceOptions())


def test_clips_of_one_name_stay_two_clips(merge, tmp_path):
    names = [f"p{person}_{frame}.jpg" for person in range(2) for frame in range(4)]
    first, second = (write(tmp_path / name, names) for name in ("a", "b"))
    options = ("--pattern", "{label}_{frame}")
    shown = merge(first, second, out=tmp_path / "out", options=(*options, "--val-fraction", "0.25"))
    assert "because another source has clips of their names" in shown
    assert "the new splits have whole clips" in shown
    clips = {}
    for row in rows_of(tmp_path / "out"):
        clips.setdefault(row["clip"], set()).add((row["source"].split("/")[0], row["split"]))
    assert {name: len(places) for name, places in clips.items()} == dict.fromkeys(clips, 1)
    assert len(clips) == 4
    merge(second, out=tmp_path / "one", options=options)
    others = write(tmp_path / "c", names[::-1])  # other pictures
    shown = merge(others, out=tmp_path / "one", options=(*options, "--append"))
    assert "2 clips of the dataset get frames of this source" in shown


LARGE = (1 << 53) + 1


#: The values of the column in two sources, and the values of both; `None` if they are refused.
PAIRS = read_named(__file__, "columns of two sources", globals())


@pytest.fixture
def tables(tmp_path):
    write(tmp_path, [f"{number}.jpg" for number in range(4)])

    def make(kind, number, values):
        folder = tmp_path / f"{number}"
        folder.mkdir()
        paths = [f"../{2 * number + row}.jpg" for row in range(2)]
        return write_table(folder, kind, {"path": paths, "label": ["cat", "dog"], "x": values})

    return make


def stored(out):
    return [row["x"] for row in sorted(rows_of(out), key=lambda row: row["source"][-5:])]


@pytest.mark.parametrize("pair", PAIRS)
@pytest.mark.parametrize("kind", [".csv", ".parquet"])
def test_merge_and_append_follow_one_rule(kind, pair, tables, invoke, tmp_path):
    first, second, expected = PAIRS[pair]
    if kind == ".csv":
        first, second = (
            ["" if each is None else each for each in values] for values in (first, second)
        )
    a, b = tables(kind, 0, first), tables(kind, 1, second)
    status = 0 if expected else 2
    merged = ["convert", "--src", a, "--src", b, "--out", tmp_path / "merged"]
    invoke("convert", "--src", a, "--out", tmp_path / "appended")
    for arguments in (merged, ["convert", "--src", b, "--out", tmp_path / "appended", "--append"]):
        output = invoke(*arguments, status=status).output
        if not expected:
            assert "column x has the type" in output
            continue
        out = arguments[arguments.index("--out") + 1]
        assert stored(out) == expected
        if kind == ".csv":
            continue
        # The result can be a source again.
        again = tmp_path / f"{out.name}-again"
        invoke("convert", "--src", out, "--out", again, "--fmt", "webdataset")
        assert stored(again) == expected


def test_an_integer_that_a_record_cannot_have_is_refused(tables, convert, tmp_path):
    table = tables(".parquet", 0, pa.array([2**64 - 1, 0], pa.uint64()))
    convert(table, tmp_path / "webdataset", "--fmt", "webdataset")
    assert stored(tmp_path / "webdataset") == [2**64 - 1, 0]
    output = convert(table, tmp_path / "out", status=2).output
    assert "column x has the integer 18446744073709551615" in output
    assert not (tmp_path / "out").exists()
