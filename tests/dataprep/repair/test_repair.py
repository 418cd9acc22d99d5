"""`dataprep repair`: damage of every kind is found, and repaired byte for byte or named."""

from __future__ import annotations

import shutil

import pytest
from helpers.datasets import FORMATS, SUFFIX, flip

from dataprep.verification.verify import verify_dataset


@pytest.fixture
def source(image_folder, tmp_path):
    return shutil.copytree(image_folder, tmp_path / "photos")


@pytest.fixture
def out(tmp_path):
    return tmp_path / "out"


@pytest.fixture
def make(convert, source, out, snapshot):
    """A function that converts the source, in shards of 5, and returns all files."""

    def run(*options, src=source):
        convert(src, out, "--workers", 1, "--samples-per-shard", 5, *options)
        return snapshot(out)

    return run


@pytest.fixture
def repair(invoke, out):
    """A function that repairs the dataset, and returns what the command says."""

    def run(*options, status=0, folder=out):
        return invoke("repair", "--workers", 1, folder, *options, status=status).output

    return run


def stats(folder):
    files = {path.name: path.stat() for path in folder.glob("[!.]*")}
    return {name: (stat.st_ino, stat.st_mtime_ns) for name, stat in files.items()}


@pytest.mark.parametrize("fmt", FORMATS)
@pytest.mark.parametrize("options", [(), ("--store", "raw", "--raw-size", 24)])
def test_index_and_table_come_from_the_shard(options, fmt, make, repair, snapshot, out):
    files, before = make("--fmt", fmt, *options), stats(out)
    flip(out / "train-00000.idx")
    (out / "train-00001.idx").unlink()
    damaged = {"train-00000.idx", "train-00001.idx"}
    if not options:  # tables of changed images need the source
        (out / "train-00001.parquet").unlink()
        flip(out / "train-00002.parquet")
        damaged |= {"train-00001.parquet", "train-00002.parquet"}
    assert f"would be rebuilt from train-00001{SUFFIX[fmt]}" in repair("--dry-run")
    assert not (out / "train-00001.idx").exists()
    assert f"{len(damaged)} files repaired" in repair()
    assert snapshot(out) == files
    after = stats(out)
    assert {name for name, stat in after.items() if stat != before[name]} == damaged
    assert "nothing to repair" in repair()
    assert stats(out) == after


@pytest.mark.parametrize(
    ("fmt", "options"),
    [
        ("tfrecord", ()),
        ("webdataset", ("--val-fraction", 0.3)),
        ("tfrecord", ("--resize-shorter", 30)),
    ],
)
def test_shards_come_from_the_source(fmt, options, make, repair, source, snapshot, out):
    (source / "cat" / "broken.jpg").write_bytes(b"no image")
    files = make("--fmt", fmt, "--max-rejected", 1, *options)
    flip(out / "rejected.jsonl")
    assert "rebuilt from the sample tables" in repair()
    assert snapshot(out) == files
    before = stats(out)
    flip(out / f"train-00000{SUFFIX[fmt]}")
    for name in (f"train-00001{SUFFIX[fmt]}", "train-00001.idx", "train-00001.parquet"):
        (out / name).unlink()
    assert "set --src" in repair(status=1)
    assert not (out / f"train-00001{SUFFIX[fmt]}").exists()
    assert "would be made again" in repair("--src", source, "--dry-run")
    assert "4 files repaired" in repair("--src", source)
    assert snapshot(out) == files
    assert stats(out)["train-00000.idx"] == before["train-00000.idx"]
    assert verify_dataset(str(out), workers=1).problems == ()


def test_replaced_and_missing_images_are_named(make, repair, source, out):
    make()
    for shard in out.glob("*.tfrecord"):
        shard.unlink()
    image = sorted((source / "cat").iterdir())[0]
    flip(image, -20)
    assert "images of the source were replaced since" in repair("--src", source, status=1)
    assert len([*out.glob("*.tfrecord")]) == 2  # the shards without this image
    image.unlink()
    assert "was not made from" in repair("--src", source, status=1)
    assert not (out / ".dataprep/partial").exists()


def test_refusals(make, repair, tmp_path, out):
    make()
    assert "--src" in repair("--pattern", "{label}_*", status=2)
    repair(folder=tmp_path / "none", status=2)
    (out / "train-00000.idx").unlink()
    (out / "train-00000.idx").mkdir()
    repair(status=3)
    (out / "train-00000.idx").rmdir()
    flip(out / "manifest.json")
    assert "manifest" in repair(status=1)


def test_revisions(make, convert, repair, source, snapshot, tmp_path, out):
    """Each revision has its own source; what a shard determines is rebuilt without it."""
    make("--fmt", "webdataset")
    second = tmp_path / "second"
    for number, path in enumerate(sorted(source.rglob("*.*"))[:7]):
        name = second / ("日本" if number % 2 else "new") / f"{number}{path.suffix.lower()}"
        name.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(path, name)
    convert(second, out, "--append")
    files = snapshot(out)
    old, *_, new = sorted(out.glob("*.tar"))
    new.with_suffix(".idx").unlink()
    flip(new.with_suffix(".parquet"))
    assert repair().count(f"rebuilt from {new.name}") == 2
    assert snapshot(out) == files
    flip(old)
    flip(new)
    failed = repair("--src", second, status=1)
    damaged = "the file does not match its checksum"
    assert f"{old.name}: {damaged}; not repaired: revision 0 was not made from" in failed
    assert "`dataprep convert` that made revision 0 of the dataset" in failed
    assert f"{new.name}: {damaged}; made again from the source" in failed
    assert snapshot(out) != files
    repair("--src", source)
    assert snapshot(out) == files
    flip(out / "manifest.0.json")
    failed = repair(status=1)
    assert "manifest.0.json: this is not the manifest of revision 0" in failed
    reason = "not repaired: the newest manifest does not determine it. Hint: restore it from a copy"
    assert reason in failed


@pytest.mark.parametrize(
    ("fmt", "options"),
    [
        ("tfrecord", ("--duplicates", "drop")),
        ("webdataset", ("--duplicates", "same-split")),
        ("tfrecord", ("--val-fraction", 0.3, "--split-by", "duplicates")),
        ("webdataset", ("--duplicates", "drop", "--distance", -1, "--where", "label != 'cat'")),
    ],
)
def test_options_that_choose_images_apply_again(fmt, options, make, repair, source, snapshot, out):
    first, *_ = sorted((source / "日本").iterdir())
    shutil.copy(first, first.with_stem("copy"))
    files = make("--fmt", fmt, *options)
    assert ("rejected.jsonl" in files) == ("drop" in options)
    for name in {"rejected.jsonl", f"train-00000{SUFFIX[fmt]}", "train-00001.parquet"} & {*files}:
        flip(out / name)
    if "drop" in options:
        assert "Hint: set --src to the source of the dataset, run the same" in repair(status=1)
    assert "made again from the source" in repair("--src", source)
    assert snapshot(out) == files


def test_the_source_is_a_dataset_with_hashes(make, convert, repair, source, snapshot, tmp_path):
    hashed = tmp_path / "hashed"
    convert(source, hashed, "--hash", "--workers", 1)
    files = make(src=hashed)
    flip(tmp_path / "out" / "train-00000.tfrecord")
    repair("--src", hashed)
    assert snapshot(tmp_path / "out") == files
