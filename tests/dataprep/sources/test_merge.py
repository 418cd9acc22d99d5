"""Several --src: one dataset with the samples of all, whose classes are matched by name."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from helpers.make_sources import IMAGES, MAKERS, VALID
from helpers.pictures import encode, photo

from dataprep.containers import locations_of
from dataprep.options import Options
from dataprep.shards.source_image import load_image
from dataprep.sources import SourceOptions, recognize
from dataprep.sources.merge import merge_sources
from dataprep.sources.recognize import read_sources
from dataprep.verification.verify import verify_dataset
from manifests.errors import CallError, SourceError
from manifests.store import read_manifest
from manifests.tables import read_table


def write(folder: Path, names: list[str]) -> Path:
    for number, name in enumerate(names):
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(encode(photo(len(name) * 100 + number, 40, 30)))
    return folder


def rows(out: Path) -> list[dict]:
    manifest = read_manifest(out)
    return [
        {**row, "split": split.name, "class": manifest.classes[row["label"]]}
        for split in manifest.splits
        for shard in split.shards
        for row in read_table(str(out / shard.table.name)).to_pylist()
    ]


def test_classes_are_merged_by_name_and_samples_say_where_they_are_from(invoke, tmp_path):
    write(tmp_path / "a", ["train/cat/1.jpg", "train/eel/1.jpg", "val/cat/2.jpg"])
    write(tmp_path / "b", ["dog/1.jpg", "cat/1.jpg", "ant/1.jpg"])
    (tmp_path / "b" / "cat" / "broken.jpg").write_bytes(b"")
    output = invoke(
        *(
            "convert",
            "--src",
            tmp_path / "a",
            "--src",
            tmp_path / "b",
            "--out",
            tmp_path / "out",
            "--max-rejected",
            1,
        )
    ).output
    assert read_manifest(tmp_path / "out").classes == ("cat", "eel", "ant", "dog")
    assert sorted(
        (row["source"], row["class"], row["split"]) for row in rows(tmp_path / "out")
    ) == [
        ("a/train/cat/1.jpg", "cat", "train"),
        ("a/train/eel/1.jpg", "eel", "train"),
        ("a/val/cat/2.jpg", "cat", "val"),
        ("b/ant/1.jpg", "ant", "train"),
        ("b/cat/1.jpg", "cat", "train"),
        ("b/dog/1.jpg", "dog", "train"),
    ]
    assert f"4 classes: {tmp_path}/a 2, {tmp_path}/b 3; 1 in all sources" in output
    assert '"source": "b/cat/broken.jpg"' in (tmp_path / "out" / "rejected.jsonl").read_text()


@pytest.mark.parametrize("second", [name for name in MAKERS if name != "image folder"])
def test_every_kind_of_source_can_be_merged_with_a_folder(second, tmp_path):
    """The images are those of both, whether they are files or inside of containers."""
    made = [MAKERS["image folder"](tmp_path / "first"), MAKERS[second](tmp_path / "second")]
    numbered = second in ("recordio", "lmdb of Caffe")
    options = SourceOptions(classes=made[0].classes if numbered else None)
    merged = merge_sources(read_sources([str(each.src) for each in made], options))
    locations = locations_of(merged.location, np.arange(len(merged))) or [None] * len(merged)
    paths = merged.path.to_pylist()
    data = {
        load_image(merged.root, path, size, Options(validate="none"), location).data
        for path, size, location in zip(paths, merged.size.tolist(), locations, strict=True)
    }
    assert data == {image.data for image in IMAGES}
    assert len(merged) >= len(IMAGES) + len(VALID)
    new = () if numbered else made[1].classes
    assert merged.classes == tuple(dict.fromkeys([*made[0].classes, *new]))
    assert merged.splits == ("train", "val")
    assert paths[0].startswith("first/")
    assert paths[-1].startswith("second")


def test_rename_classes(invoke, tmp_path):
    write(tmp_path / "a", ["cat/1.jpg", "dog/1.jpg"])
    write(tmp_path / "b", ["Cat/1.jpg", "puppy/1.jpg", "doggy/1.jpg"])
    convert = [
        "convert",
        "--src",
        tmp_path / "a",
        "--src",
        tmp_path / "b",
        "--out",
        tmp_path / "out",
    ]
    output = invoke(*convert, status=2).output
    assert (
        f"{tmp_path}/b: class Cat is almost the class cat of {tmp_path}/a. Hint: if both are one"
        " class" in output
    )
    assert "--rename-classes" in output
    table = tmp_path / "names.csv"
    table.write_text("Cat,cat\npuppy,dog\n\ndoggy, dog\n")
    invoke(*convert, "--rename-classes", table)
    assert sorted((row["source"], row["class"]) for row in rows(tmp_path / "out")) == [
        ("a/cat/1.jpg", "cat"),
        ("a/dog/1.jpg", "dog"),
        ("b/Cat/1.jpg", "cat"),
        ("b/doggy/1.jpg", "dog"),
        ("b/puppy/1.jpg", "dog"),
    ]
    classes = tmp_path / "classes.txt"
    classes.write_text("dog\ncat\n")
    options = ["--rename-classes", table, "--classes", classes, "--overwrite"]
    invoke(*convert, *options)
    assert read_manifest(tmp_path / "out").classes == ("dog", "cat")
    assert verify_dataset(str(tmp_path / "out"), workers=1).problems == ()
    classes.write_text("dog\n")
    assert "class cat is not in --classes" in invoke(*convert, *options, status=2).output


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        ("cat", "line 1: the line must be two class names, not cat"),
        ("cat,dog,eel", "line 1: the line must be two class names"),
        ("cat,dog\ncat,eel", "line 2: class cat is renamed twice"),
        ("cot,dog", "no source has a class cot. Hint: did you mean 'cat'?"),
    ],
)
def test_wrong_rename_tables(lines, message, invoke, tmp_path):
    write(tmp_path / "a", ["cat/1.jpg"])
    (tmp_path / "names.csv").write_text(lines)
    call = [
        "convert",
        "--src",
        tmp_path / "a",
        "--out",
        tmp_path / "out",
        "--rename-classes",
        tmp_path / "names.csv",
    ]
    assert f"{tmp_path}/names.csv" in (output := invoke(*call, status=2).output)
    assert message in output
    assert not (tmp_path / "out").exists()


def test_numbers_and_names_do_not_match(invoke, tmp_path):
    write(tmp_path / "a", ["cat/1.jpg", "dog/1.jpg"])
    (tmp_path / "b.txt").write_text("a/cat/1.jpg 0\na/dog/1.jpg 1\n")
    convert = [
        "convert",
        "--src",
        tmp_path / "a",
        "--src",
        tmp_path / "b.txt",
        "--out",
        tmp_path / "out",
    ]
    output = invoke(*convert, status=2).output
    assert (
        f"{tmp_path}/b.txt: the classes are numbers, such as 0, but those of {tmp_path}/a have"
        " names" in output
    )
    (tmp_path / "classes.txt").write_text("cat\ndog\n")
    output = invoke(*convert, "--classes", tmp_path / "classes.txt").output
    assert "2 images of the sources are listed more than once" in output
    assert read_manifest(tmp_path / "out").classes == ("cat", "dog")


def test_columns_are_merged_by_name(tmp_path):
    write(tmp_path, ["x/1.jpg", "x/2.jpg"])
    (tmp_path / "a.csv").write_text("path,label,age,name\nx/1.jpg,cat,3,Ada\n")
    (tmp_path / "b.csv").write_text("path,label,age\nx/2.jpg,cat,4.5\n")
    merged = merge_sources(
        read_sources([f"{tmp_path}/a.csv", f"{tmp_path}/b.csv"], SourceOptions())
    )
    assert merged.extra.to_pylist() == [{"age": 3.0, "name": "Ada"}, {"age": 4.5, "name": None}]
    (tmp_path / "b.csv").write_text("path,label,age\nx/2.jpg,cat,old\n")
    with pytest.raises(
        SourceError, match=r"column age has the type .*string, but int64 in .*a.csv"
    ):
        merge_sources(read_sources([f"{tmp_path}/a.csv", f"{tmp_path}/b.csv"], SourceOptions()))


def test_several_classes_stay_sorted_and_unique(tmp_path):
    write(tmp_path, ["x/1.jpg", "x/2.jpg"])
    (tmp_path / "a.csv").write_text("path,label\nx/1.jpg,dog|yak\n")
    (tmp_path / "b.csv").write_text("path,label\nx/2.jpg,ape|dog|kitten|yak\n")
    (tmp_path / "names.csv").write_text("kitten,dog\n")
    srcs = [f"{tmp_path}/a.csv", f"{tmp_path}/b.csv"]
    merged = merge_sources(
        read_sources(srcs, SourceOptions(rename_classes=str(tmp_path / "names.csv")))
    )
    assert merged.classes == ("dog", "yak", "ape")
    assert merged.extra["labels"].to_pylist() == [[0, 1], [0, 1, 2]]


def test_images_with_other_numbers_of_values_are_not_merged(invoke, tmp_path):
    write(tmp_path, ["x/1.jpg", "x/2.jpg"])
    (tmp_path / "a.csv").write_text("path,values\nx/1.jpg,1.5\n")
    (tmp_path / "b.csv").write_text("path,x,y\nx/2.jpg,1.5,2.5\n")
    out = tmp_path / "out"
    pair = ["convert", "--src", tmp_path / "b.csv", "--label-column", "x,y"]
    invoke("convert", "--src", tmp_path / "a.csv", "--out", out)
    output = invoke(*pair, "--out", out, "--append", status=2).output
    assert "has 1 number for each image, but the source has 2" in output
    invoke(*pair, "--out", tmp_path / "two")
    output = invoke(
        "convert", "--src", out, "--src", tmp_path / "two", "--out", tmp_path / "both", status=2
    ).output
    assert f"{tmp_path}/two: it has 2 numbers for each image, but {out} has 1" in output
    assert not (tmp_path / "both").exists()


#: Labels of a dataset and of an append that another rule reads, and the classes of the message.
RULES = {
    "joined": (["cat", "dog", "cat", "dog"], ["dog cat", "bird"], "dog cat"),
    "apart": (["cat;dog", "bird", "cat;dog", "bird"], ["cat", "dog"], "cat;dog"),
    "leading zeros": (["0", "1", "7", "1"], ["007", "1"], "007"),
    "lists of another length": (["[1, 0, 1]", "[0, 1, 1]"], ["[1, 0]", "[1, 1]"], "2 numbers"),
}


@pytest.mark.parametrize("name", RULES)
@pytest.mark.parametrize("append", [True, False])
def test_labels_that_another_rule_reads_do_not_mix(append, name, invoke, tmp_path):
    tables, out = [], ["--out", tmp_path / "out"]
    for part, labels in zip("ab", RULES[name][:2], strict=True):
        write(tmp_path / part, [f"{number}.jpg" for number in range(len(labels))])
        lines = [f'{number}.jpg,"{label}"\n' for number, label in enumerate(labels)]
        (tmp_path / part / "t.csv").write_text("".join(["path,label\n", *lines]))
        tables += ["--src", tmp_path / part / "t.csv"]
    if append:
        invoke("convert", *tables[:2], *out)
    added = [*tables[2:], "--append"] if append else tables
    output = invoke("convert", *added, *out, status=2).output
    assert RULES[name][2] in output
    assert "--classes FILE" in output


def test_sources_that_cannot_be_merged(invoke, tmp_path):
    write(tmp_path / "a", ["cat/1.jpg"])
    for srcs in ([tmp_path / "a", f"{tmp_path}/a/../a"], [tmp_path / "a", tmp_path / "link"]):
        (tmp_path / "link").unlink(missing_ok=True)
        (tmp_path / "link").symlink_to(tmp_path / "a")
        with pytest.raises(CallError, match=r"is given twice|contain the same folder"):
            merge_sources(read_sources([str(src) for src in srcs], SourceOptions()))
    assert (
        "several --src require --out"
        in invoke("convert", "--src", "a", "--src", "b", status=2).output
    )
    write(tmp_path / "b", ["cat/2.jpg", "dog/1.jpg"])
    inside = ["--out", tmp_path / "b" / "out"]
    output = invoke(
        "convert", "--src", tmp_path / "a", "--src", tmp_path / "b", *inside, status=2
    ).output
    assert f"is inside the source {tmp_path}/b" in output
    invoke(
        "convert",
        "--src",
        tmp_path / "b",
        "--out",
        tmp_path / "raw",
        "--store",
        "raw",
        "--raw-size",
        16,
    )
    output = invoke(
        "convert", "--src", tmp_path / "a", "--src", tmp_path / "raw", "--out", "x", status=2
    ).output
    assert (
        f"{tmp_path}/raw: it stores raw pixels of 16x16, but {tmp_path}/a encoded images" in output
    )


def test_three_steps_and_a_copy_give_the_same_bytes(invoke, snapshot, tmp_path):
    for folder in ("here", "there"):
        write(tmp_path / folder / "a", [f"cat/{number}.jpg" for number in range(5)])
        write(tmp_path / folder / "b", [f"dog/{number}.jpg" for number in range(3)] + ["cow/3.jpg"])
        invoke(
            "convert",
            "--src",
            tmp_path / folder / "b",
            "--out",
            tmp_path / folder / "c",
            "--fmt",
            "webdataset",
        )
    names = ("a", "c")
    here, there = (
        [f"--src={tmp_path}/{folder}/{name}" for name in names] for folder in ("here", "there")
    )
    invoke("convert", *here, "--out", tmp_path / "out", "--samples-per-shard", 4)
    invoke("plan", *there, "--out", tmp_path / "steps", "--samples-per-shard", 4)
    invoke("work", tmp_path / "steps", "--task", "0/1")
    invoke("finish", tmp_path / "steps")
    one, other = snapshot(tmp_path / "out"), snapshot(tmp_path / "steps")
    assert {name for name in one if name not in other} <= {".dataprep/stamps.json"}
    assert all(other[name] == data for name, data in one.items() if name != ".dataprep/stamps.json")
    sources = sorted(row["source"] for row in rows(tmp_path / "out"))
    assert sources == [
        *(f"a/cat/{n}.jpg" for n in range(5)),
        "c/cow/3.jpg",
        *(f"c/dog/{n}.jpg" for n in range(3)),
    ]


def test_an_error_of_one_of_several_sources_names_it(tmp_path, monkeypatch):
    def refuse(src, options):
        if src == "b.csv":
            raise CallError("the labels are numbers", hint="set --label-type")
        return

    monkeypatch.setattr(recognize, "read_source", refuse)
    with pytest.raises(CallError, match=r"^b\.csv: the labels are numbers\. Hint: set"):
        read_sources(["a.csv", "b.csv"], SourceOptions())
    with pytest.raises(CallError, match=r"^the labels are numbers"):
        read_sources(["b.csv"], SourceOptions())
