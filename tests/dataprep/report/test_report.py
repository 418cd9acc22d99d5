"""`dataprep report`: the page and its JSON, of sound, damaged and unusual datasets."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from html.parser import HTMLParser
from itertools import pairwise
from pathlib import Path

import pyarrow as pa
import pytest
from helpers.bombs import flat_png
from helpers.damaged import change_column, change_manifest
from helpers.datasets import rows_of, write_csv, write_images
from helpers.handmade import make_dataset
from helpers.pictures import encode, photo
from PIL import Image

from dataprep.report.pictures import (
    RejectedImage,
    make_thumbnail,
    read_rejected,
    show_rejected,
)
from dataprep.report.statistics import MemoryEstimate
from manifests.schema import File
from manifests.store import (
    MANIFEST_NAME,
    REJECTED_NAME,
    read_manifest,
    rejected_bytes,
)
from manifests.tables import read_table

HOSTILE = (
    "<script>alert(1)</script>", "\"'><img src=x onerror=alert(1)>", "evil\u202egnp.exe",
    "{{ 7 * 7 }}",
)  # fmt: skip


class Page(HTMLParser):
    """Collects the tags of a page and its visible text."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.source = path.read_text("utf-8")
        self.feed(self.source)

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data):
        self.text += data


@pytest.fixture(scope="module")
def source(tmp_path_factory) -> Path:
    """An ImageFolder with a leak, a wrong label, a copy, a black image, and images that are rejected."""
    root = tmp_path_factory.mktemp("source") / "zoo"
    counts = {
        "train/cat": 24,
        "train/dog": 6,
        "train/emu": 2,
        "val/cat": 4,
        "val/dog": 2,
        "val/emu": 1,
    }
    folders = [name for name, count in counts.items() for _ in range(count)]
    for number, name in enumerate(folders):
        kind = ("JPEG", "JPEG", "PNG", "WEBP")[number % 4]
        path = root / name / f"{number:03d}.img.{kind.lower()}"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(encode(photo(number, 60 + number, 48), kind))
    cats = sorted((root / "train" / "cat").iterdir())
    shutil.copy(cats[0], root / "val" / "cat" / "leak.jpeg")
    shutil.copy(cats[1], root / "train" / "dog" / "conflict.jpeg")
    shutil.copy(cats[4], root / "train" / "cat" / "copy.jpeg")
    (root / "train" / "dog" / "black.png").write_bytes(encode(Image.new("RGB", (50, 40)), "PNG"))
    (root / "train" / "emu" / "cut.jpeg").write_bytes(encode(photo(99, 200, 150))[:2000])
    (root / "train" / "emu" / "page.jpeg").write_text("<html><script>alert(1)</script>")
    return root


@pytest.fixture(scope="module")
def dataset(source, tmp_path_factory, convert, snapshot) -> Iterator[Path]:
    """The source, converted once. Tests change copies."""
    out = tmp_path_factory.mktemp("dataset") / "zoo-tfrecord"
    convert(source, out, "--samples-per-shard", 10, "--max-rejected", 1)
    made = snapshot(out)
    yield out
    assert snapshot(out) == made, "a test has changed it"


@pytest.fixture
def copy(dataset, tmp_path) -> Path:
    return Path(shutil.copytree(dataset, tmp_path / "copy"))


@contextmanager
def left_out_memory():
    """Leave out the estimate of GPU memory, which starts another program."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(MemoryEstimate, "__init__", lambda *_: None)
        patch.setattr(MemoryEstimate, "result", lambda _: "left out by the test")
        patch.setattr(MemoryEstimate, "close", lambda _: None)
        yield


def make_report(invoke, out, dataset, *options, status=0):
    """Make a report in one process; return the JSON and the page."""
    with left_out_memory():
        invoke("report", dataset, "--out", out, "--workers", 1, *options, status=status)
    return json.loads(out.with_suffix(".json").read_text("utf-8")), Page(out)


@pytest.fixture
def run(invoke, tmp_path):
    """A function that makes a report of a dataset with some options."""

    def make(dataset, *options, status=0, name="report"):
        return make_report(invoke, tmp_path / f"{name}.html", dataset, *options, status=status)

    return make


@pytest.fixture(scope="module")
def report(invoke, dataset, source, tmp_path_factory):
    """The JSON and the page of the dataset."""
    out = tmp_path_factory.mktemp("report") / "report.html"
    return make_report(invoke, out, dataset, "--src", source)


def make_four(folder):
    """Write a dataset of four images in four classes."""
    images = [("jpg", encode(photo(n)), n) for n in range(4)]
    return make_dataset(folder, "tfrecord", images, shards=1)


def titles(data):
    return [finding["title"] for finding in data["findings"]]


# --- what the page says -------------------------------------------------------------------------


def test_facts_match_the_source(report, source):
    data, page = report
    assert data["dataset"] == "zoo-tfrecord"
    assert [(each["name"], each["samples"]) for each in data["splits"]] == [
        ("train", 35),
        ("val", 8),
    ]
    classes = {each["name"]: each for each in data["classes"]}
    samples = {name: each["samples"] for name, each in classes.items()}
    assert samples == {"cat": [25, 5], "dog": [8, 2], "emu": [2, 1]}
    formats = {kind: len([*source.rglob(f"*.{kind}")]) for kind in ("jpeg", "png", "webp")}
    assert data["looks"]["formats"] == {**formats, "jpeg": formats["jpeg"] - 2}
    rejected, copies = data["rejected"], data["copies"]
    assert rejected["total"] == 2
    assert rejected["reasons"] == {"not-an-image": 1, "truncated": 1}
    assert rejected["folders"] == {"train/emu": 2}
    assert copies["leaked"] == {"val in train": 1}
    assert (copies["conflicting"], copies["surplus"]) == (1, 3)
    leak = {image["source"] for image in copies["leaks"][0]["images"]}
    assert leak == {"train/cat/000.img.jpeg", "val/cat/leak.jpeg"}
    for name in ("Darkest", "Flattest"):
        assert data["looks"]["odd"][name][0]["source"] == "train/dog/black.png"
    assert "train/emu/cut.jpeg" in page.text
    # The train image of a leak and the first of two copies have no problem.
    expected = {"also in an earlier split": 1, "copied": 1, "with several labels": 1}
    assert classes["cat"]["flagged"] == expected
    found = titles(data)
    leaks = ["1 image of val is also in train", "One image is stored with several labels"]
    assert found[:2] == leaks
    assert "2 source images were rejected" in found
    assert "Some images are almost black or of one color" in found
    (worst,) = [each for each in data["findings"] if "largest share" in each["title"]]
    named = "\u201cemu\u201d is the class with the largest share of images with problems"
    assert (worst["title"], worst["detail"]) == (named, "2 source images were rejected.")
    assert "<code>dataprep convert</code> <code>--duplicates drop</code> takes" in page.source
    assert "<code>" not in " ".join(finding["detail"] for finding in data["findings"])


def test_the_page_is_offline_and_accessible(report):
    page = report[1]
    ids = [attributes["id"] for _, attributes in page.tags if "id" in attributes]
    links = [attributes["href"] for tag, attributes in page.tags if tag == "a"]
    assert len(ids) == len(set(ids))
    assert {link.removeprefix("#") for link in links} <= {*ids}
    assert not {tag for tag, _ in page.tags} & {"script", "iframe", "object", "embed", "form"}
    for tag, attributes in page.tags:
        assert not [name for name in attributes if name.startswith("on")]
        for name in ("src", "href"):
            if value := attributes.get(name):
                assert value.startswith(("#", "data:")), (tag, value[:80])
    policy = next(
        a["content"] for tag, a in page.tags if a.get("http-equiv") == "Content-Security-Policy"
    )
    assert policy == "default-src 'none'; img-src data:; style-src 'unsafe-inline'"
    levels = [int(tag[1]) for tag, _ in page.tags if re.fullmatch("h[1-6]", tag)]
    assert levels[0] == 1
    assert levels.count(1) == 1
    assert all(later <= earlier + 1 for earlier, later in pairwise(levels))
    images = [a for tag, a in page.tags if tag == "svg" and "aria-hidden" not in a]
    assert len(images) > 20
    assert all(a["role"] == "img" and a["aria-label"] for a in images)
    assert next(a for tag, a in page.tags if tag == "html")["lang"] == "en"
    assert all("scope" in a for tag, a in page.tags if tag == "th")


@pytest.mark.usefixtures("quick_programs")
def test_the_same_dataset_gives_the_same_bytes(invoke, dataset, source, tmp_path):
    """Also with the GPU memory that `loaders memory` states."""
    copy = tmp_path / "elsewhere" / dataset.name
    shutil.copytree(dataset, copy)
    pages, calls = {}, {"a": (dataset, 1, 0), "b": (copy, 3, 0), "c": (dataset, 1, 1)}
    for name, (folder, workers, seed) in calls.items():
        out = tmp_path / f"{name}.html"
        options = ("--src", source, "--batch-size", 32, "--workers", workers, "--seed", seed)
        invoke("report", folder, "--out", out, *options)
        pages[name] = out.read_bytes(), out.with_suffix(".json").read_bytes()
    assert pages["a"] == pages["b"]
    assert pages["a"][0] != pages["c"][0]
    command = [sys.executable, "-m", "loaders", "memory", dataset, "--batch-size", "32", "--json"]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    splits = json.loads(done.stdout)["splits"]
    cost = json.loads(pages["a"][1])["cost"]
    assert cost["gpu_memory"] == {name: split["gpu_memory"] for name, split in splits.items()}


# --- names that come with the dataset -----------------------------------------------------------


def test_hostile_names_are_shown_and_never_run(run, tmp_path):
    long = "x" * 10_000
    names = (*HOSTILE, long)
    pixels = [("jpg", encode(photo(number)), number % len(names)) for number in range(20)]
    folder = make_dataset(tmp_path / "hostile", "webdataset", pixels, shards=1)
    change_manifest(folder, classes=names)
    change_table(folder, "source", [f"../{names[row % len(names)]}/{row}" for row in range(20)])
    data, page = run(folder)
    assert [each["name"] for each in data["classes"]] == list(names)
    assert not [tag for tag, a in page.tags if tag == "script" or "onerror" in a]
    for text in (
        "<script>alert(1)</script>",
        "evil\\u202egnp.exe",
        "{{ 7 * 7 }}",
        "characters left out",
    ):
        assert text in page.text
    for text in ("\u202e", long):
        assert text not in page.text


def change_table(folder: Path, column: str, values: list[object]) -> None:
    """Replace a column of the only table, and the table's length in the manifest."""
    (split,) = read_manifest(folder).splits
    (shard,) = split.shards
    path = folder / shard.table.name
    change_column(path, column, pa.array(values, read_table(path).schema.field(column).type))
    shard = replace(shard, table=File(path.name, path.stat().st_size, None))
    change_manifest(folder, splits=(replace(split, shards=(shard,)),))


def test_a_class_of_one_to_nine_training_images_is_rare(tmp_path, run):
    images = [("jpg", encode(photo(1)), label) for label in [0, *[1] * 9, *[2] * 10]]
    data, _ = run(make_dataset(tmp_path / "few", "tfrecord", images, shards=1))
    assert "2 classes have fewer than 10 training images" in titles(data)


def reject(folder: Path, images: list[tuple[str, str]]) -> None:
    """Replace the list of rejected images of a dataset: sources and reasons."""
    rows = [{"source": name, "reason": reason, "detail": "test"} for name, reason in images]
    (folder / REJECTED_NAME).write_bytes(rejected_bytes(rows))


def test_rejected_images_are_read_only_below_the_source(run, copy, source, tmp_path_factory):
    """A list that names files elsewhere, also by a link, does not put them on the page."""
    tmp_path = tmp_path_factory.mktemp("r")  # the page shortens long names
    root = tmp_path / "root"
    (root / "sub").mkdir(parents=True)
    secret = tmp_path / "secret.png"
    secret.write_bytes(encode(photo(5), "PNG"))
    (root / "sub" / "seen.png").write_bytes(secret.read_bytes())
    (root / "sub" / "cut.jpg").write_bytes(encode(photo(5))[:100])
    (root / "link.png").symlink_to(secret)
    os.mkfifo(root / "pipe.png")
    inside = str(root / "sub" / "seen.png")
    names = ["sub/seen.png", inside, "../secret.png", str(secret), "link.png", "pipe.png"]
    names += ["a\0b", "no.png", "sub/cut.jpg"]
    reject(copy, [(name, "corrupt") for name in names])

    def shown(page):
        labels = [attributes.get("aria-label") or "" for _, attributes in page.tags]
        return re.findall("^rejected image (.+)$", "\n".join(labels), re.MULTILINE)

    page = run(copy, "--src", root)[1]
    assert shown(page) == ["sub/seen.png", f"{root}/sub/seen.png"]
    assert "begins with the bytes ff d8 ff" in page.text
    assert page.text.count("the path leads out of the folder that --src names") == 3
    assert "it is a named pipe, not a regular file" in page.text
    assert not shown(run(copy)[1])


def test_the_first_images_of_each_reason_are_shown_up_to_a_total(copy):
    names = [f"{number // 14}/{number % 14:02d}" for number in range(6 * 14)]
    reject(copy, [(name, name[0]) for name in names])
    found = read_rejected(str(copy), read_manifest(str(copy)))
    shown = [name for name in names[: 5 * 14] if int(name[2:]) < 12]
    assert [image.source for image in found.shown] == shown
    assert found.names == dict.fromkeys("012345", 14)


KINDS = {
    "jpeg": encode(photo(1)),
    "progressive jpeg": encode(photo(1), progressive=True),
    "CMYK jpeg": encode(photo(1).convert("CMYK")),
    "multi-picture jpeg": encode(photo(1), "MPO", save_all=True, append_images=[photo(2)]),
    "png": encode(photo(1), "PNG"),
}


def test_info_counts_formats_of_a_sample(tmp_path, convert, invoke, monkeypatch):
    assert [make_thumbnail(data).format for data in KINDS.values()] == [*KINDS]
    out, sources = tmp_path / "out", tmp_path / "source" / "a"
    sources.mkdir(parents=True)
    for number, data in enumerate([*KINDS.values(), KINDS["jpeg"]]):
        (sources / f"{number}.{'png' if data[1:4] == b'PNG' else 'jpg'}").write_bytes(data)
    convert(sources.parent, out, "--samples-per-shard", 4)
    counts = dict.fromkeys(KINDS, 1) | {"jpeg": 2}
    assert json.loads(invoke("info", out, "--formats", "--json").stdout)["formats"] == counts
    assert "does not take 50%" in invoke("info", out, "--formats").stdout
    assert "hardware" not in invoke("info", out).stdout
    convert(sources.parent, tmp_path / "raw", "--store", "raw", "--raw-size", 16)
    assert "all images are raw pixels" in invoke("info", tmp_path / "raw", "--formats").stdout
    monkeypatch.setattr("dataprep.summary.formats.SAMPLED", 3)
    (out / "train-00001.tfrecord").unlink()
    formats = json.loads(invoke("info", out, "--formats", "--json").stdout)["formats"]
    assert (sum(formats.values()), formats["unreadable"]) == (3, 1)


@pytest.mark.parametrize("reason", ["corrupt", "too-large"])
def test_bombs_are_not_decoded(reason, tmp_path):
    (tmp_path / "bomb.png").write_bytes(flat_png(60_000, 2))
    (image,) = show_rejected(str(tmp_path), (RejectedImage("bomb.png", reason, "test"),))
    assert not image.thumbnail
    assert image.note


# --- damaged and unusual datasets ---------------------------------------------------------------


def test_a_missing_shard_and_damaged_files_are_named(run, copy):
    (copy / "train-00001.tfrecord").unlink()
    for name, size in (("train-00002.parquet", 100), ("val-00000.tfrecord", 3000)):
        os.truncate(copy / name, size)
    data, page = run(copy, status=1)
    text = "\n".join(data["problems"])
    assert len(data["problems"]) == 3
    for problem in (
        "train-00001.tfrecord",
        "train-00002.parquet",
        "val-00000.tfrecord: the shard has 3000",
    ):
        assert problem in text
    assert data["findings"][0]["title"] == "3 files of the dataset are damaged or missing"
    assert data["samples"] == 34
    assert len(data["looks"]["failed"]) >= 10
    assert "Damaged files" in page.text


def test_an_image_that_cannot_be_decoded_is_named(run, copy):
    row = rows_of(copy)[3]
    with (copy / "train-00000.tfrecord").open("r+b") as shard:
        shard.seek(row["offset"])
        shard.write(bytes(row["size"]))
    report, page = run(copy, status=1)
    (failed,) = report["looks"]["failed"]
    assert (failed["key"], failed["source"]) == (row["key"], row["source"])
    assert failed["reason"].startswith("not-an-image")
    assert "1 image of 43 that were decoded cannot be decoded" in titles(report)
    assert row["key"] in page.text


def pipe(path):
    path.unlink()
    os.mkfifo(path)


DAMAGE = [
    (REJECTED_NAME, Path.unlink, ""),
    (REJECTED_NAME, lambda path: path.write_text("no\n"), ""),
]
for _name in ("train-00000.tfrecord", "train-00000.parquet", REJECTED_NAME):
    DAMAGE.append((_name, pipe, "it is a named pipe, not a regular file"))


@pytest.mark.parametrize(("name", "damage", "message"), DAMAGE)
def test_a_damaged_file_is_a_problem(run, copy, name, damage, message):
    damage(copy / name)
    (problem,) = run(copy, status=1)[0]["problems"]
    assert problem.startswith(name)
    assert message in problem


def test_datasets_names_and_sizes_that_are_refused(invoke, dataset, copy, tmp_path):
    (tmp_path / "folder.html").mkdir()
    (copy / MANIFEST_NAME).write_text("{}")
    assert "manifest" in invoke("report", copy, "--out", tmp_path / "r.html", status=1).stderr
    for folder, out, options, message in (
        (tmp_path / "none", "r.html", (), "does not exist"),
        (dataset, "page.txt", (), "does not end in .html"),
        (dataset, "none/page.html", (), "does not exist"),
        (dataset, "folder.html", (), "is a folder"),
        (dataset, "r.html", ("--src", tmp_path / "none"), "is not a folder"),
        (dataset, "r.html", ("--max-size", "10000B"), "set --max-size 1MiB"),
    ):
        result = invoke("report", folder, "--out", tmp_path / out, *options, status=2)
        assert message in result.stderr
    assert not (tmp_path / "r.html").exists()


def test_raw_pixels(run, source, convert, tmp_path):
    out = tmp_path / "raw"
    convert(source, out, "--store", "raw", "--raw-size", 96, "--max-rejected", 1)
    data, page = run(out)
    assert data["looks"]["formats"] == {"raw": 43}
    assert data["pixels"] == [96, 96, 3]
    stored = [row["change"] for row in rows_of(out)]
    assert data["changes"].get("cropped", 0) == sum("cropped" in change for change in stored) > 0
    assert data["changes"].get("unchanged", 0) == stored.count("")
    assert data["original_formats"].keys() == {"jpeg", "png", "webp"}
    assert "What dataprep convert changed" in page.text
    assert data["looks"]["odd"]["Darkest"][0]["source"] == "train/dog/black.png"


def test_an_empty_split_and_a_dataset_of_one_image(run, tmp_path):
    one = make_dataset(tmp_path / "one", "tfrecord", [("jpg", encode(photo(1)), 0)], shards=1)
    data = run(one)[0]
    assert data["samples"] == 1
    assert data["balance"][0]["evenness"] == 1.0
    change_manifest(one, splits=())
    data, page = run(one, name="empty")
    assert data["samples"] == 0
    assert "There are no images." in page.text


# --- size, sample, files ------------------------------------------------------------------------


def test_max_size_cuts_the_contact_sheets_and_says_so(run, dataset, tmp_path):
    assert "cut nothing" in run(dataset, name="whole")[1].text
    whole = (tmp_path / "whole.html").stat().st_size
    page = run(dataset, "--max-size", f"{whole - 10_000}B", name="cut")[1]
    assert "cut nothing" not in page.text
    limit = int(0.75 * whole)
    page = run(dataset, "--max-size", f"{limit}B", name="cut")[1]
    assert (tmp_path / "cut.html").stat().st_size <= limit
    text = " ".join(page.text.split())
    assert "cut the contact sheets to" in text
    assert "for each class" in text, "there is room for pictures of all three"


def test_a_sample_is_stated(run, dataset):
    data, page = run(dataset, "--sample", 10, "--seed", 3)
    assert data["looks"]["sampled"] == 10
    assert sum(data["looks"]["formats"].values()) == 10
    assert "10 of the images, drawn at random with seed 3, were decoded" in page.text
    assert sum(sum(counts) for counts in data["histograms"]["shorter"]["counts"].values()) == 43


def test_only_reports_are_replaced(invoke, dataset, tmp_path):
    out, extra = tmp_path / "page.html", tmp_path / "page.json"
    call = ("report", dataset, "--out", out, "--workers", 1)
    with left_out_memory():
        for path in (out, extra):
            path.write_text("mine")
            assert f"{path} exists, and is not a report" in invoke(*call, status=2).stderr
            assert path.read_text() == "mine"
            path.unlink()
        for _ in range(2):
            printed = invoke(*call, "--json").stdout
            assert json.loads(printed) == json.loads(extra.read_text("utf-8"))
        out.write_text("mine")
        invoke(*call, "--overwrite")
    assert "mine" not in out.read_text()[:10]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["page.html", "page.json"]


def test_huge_labels_sizes_and_many_splits_are_bounded(run, invoke, tmp_path):
    folder = make_four(tmp_path / "huge")
    change_table(folder, "label", [0, 10_000_000, 5, 5])
    for classes, first in ((("a",), "a"), ((), "label 0")):
        change_manifest(folder, classes=classes)
        names = [each["name"] for each in run(folder)[0]["classes"]]
        assert names == [first, "label 5", "label 10000000"]
    for side in ("width", "height"):
        change_table(folder, side, [2**31 - 1] * 4)
    assert run(folder)[0]["splits"][0]["pixels"] == pytest.approx(4 * 2**62)
    change_table(folder, "size", [2**63 - 1] * 4)
    assert "outside its shard" in run(folder, status=1)[0]["problems"][0]
    (split,) = read_manifest(folder).splits
    splits = [replace(split, name=f"split{number}", shards=()) for number in range(101)]
    change_manifest(folder, splits=tuple(splits))
    result = invoke("report", folder, "--out", tmp_path / "r.html", status=2)
    assert "has 101 splits, but a report shows at most 100" in result.stderr


def test_very_many_class_names(run, tmp_path):
    folder = make_four(tmp_path / "many")
    change_manifest(folder, classes=tuple(f"name {number}" for number in range(200_000)))
    data, page = run(folder)
    assert [each["name"] for each in data["classes"]] == [f"name {number}" for number in range(4)]
    assert data["unused"] == 199_996
    assert "199,996 classes have no images at all" in titles(data)
    assert "200,000" in page.text


def test_columns_of_the_source_that_are_named_like_changes(run, convert, tmp_path):
    write_images(tmp_path / "photos", range(4), ("cat",))
    columns = "path,label,original_width,original_height,original_format,change"
    rows = [(f"photos/cat/000{number}.jpg", "cat", *"xxxx") for number in range(4)]
    convert(write_csv(tmp_path / "all.csv", columns, rows), tmp_path / "out")
    assert run(tmp_path / "out")[0]["changes"] == {}
