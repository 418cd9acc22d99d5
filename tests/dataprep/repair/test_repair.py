"""`dataprep repair`: damage of every kind is found, and repaired byte for byte or named."""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import sys
import time

import pytest
from helpers.processes import wait_until_gone

from dataprep.verification.verify import verify_dataset

SHARDS = ("--samples-per-shard", 5)


@pytest.fixture(params=["tfrecord", "webdataset"])
def fmt(request):
    return request.param


@pytest.fixture
def source(image_folder, tmp_path):
    return shutil.copytree(image_folder, tmp_path / "photos")


@pytest.fixture
def convert(invoke, source, tmp_path):
    def run(*options, src=source):
        invoke(
            "convert", "--src", src, "--out", tmp_path / "out", "--workers", 1, *SHARDS, *options
        )
        return tmp_path / "out"

    return run


def flip(path):
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 4
    path.write_bytes(data)


def stats(folder):
    return {
        path.name: (path.stat().st_ino, path.stat().st_mtime_ns) for path in folder.glob("[!.]*")
    }


def suffix(fmt):
    return ".tar" if fmt == "webdataset" else ".tfrecord"


def test_nothing_to_do(convert, invoke, fmt):
    out = convert("--fmt", fmt)
    before = stats(out)
    assert "nothing to repair" in invoke("repair", "--workers", 1, out).stdout
    assert stats(out) == before


@pytest.mark.parametrize("options", [(), ("--no-shuffle",), ("--store", "raw", "--raw-size", 24)])
def test_index_and_table_come_from_the_shard(options, convert, invoke, snapshot, fmt):
    out = convert("--fmt", fmt, *options)
    files, before = snapshot(out), stats(out)
    flip(out / "train-00000.idx")
    (out / "train-00001.idx").unlink()
    damaged = {"train-00000.idx", "train-00001.idx"}
    if not options or options == ("--no-shuffle",):  # tables of changed images need the source
        (out / "train-00001.parquet").unlink()
        flip(out / "train-00002.parquet")
        damaged |= {"train-00001.parquet", "train-00002.parquet"}
    plan = invoke("repair", "--workers", 1, out, "--dry-run").stdout
    assert f"would be rebuilt from train-00001{suffix(fmt)}" in plan
    assert not (out / "train-00001.idx").exists()
    result = invoke("repair", "--workers", 1, out)
    assert f"{len(damaged)} files repaired" in result.stdout
    assert snapshot(out) == files
    assert {name for name, stat in stats(out).items() if stat != before[name]} == damaged
    assert "nothing to repair" in invoke("repair", "--workers", 1, out).stdout


def test_extra_columns(invoke, source, tmp_path, snapshot, fmt):
    lines = ["path,label,age,name"]
    for number, path in enumerate(sorted(source.rglob("*.*"))):
        lines.append(f"{path},{path.parent.name},{number / 3},person {number}")
    (tmp_path / "table.csv").write_text("\n".join(lines) + "\n")
    out = tmp_path / "out"
    invoke("convert", "--src", tmp_path / "table.csv", "--out", out, "--fmt", fmt, *SHARDS)
    files = snapshot(out)
    (out / "train-00001.parquet").unlink()
    if fmt == "tfrecord":  # its floats have 32 bits
        assert "does not determine" in invoke("repair", "--workers", 1, out, status=1).stdout
        invoke("repair", "--workers", 1, out, "--src", tmp_path / "table.csv")
    else:
        invoke("repair", "--workers", 1, out)
    assert snapshot(out) == files


@pytest.mark.parametrize("options", [(), ("--val-fraction", 0.3), ("--resize-shorter", 30)])
def test_shards_come_from_the_source(options, convert, invoke, source, snapshot, fmt):
    (source / "cat" / "broken.jpg").write_bytes(b"no image")
    out = convert("--fmt", fmt, "--max-rejected", 1, *options)
    files = snapshot(out)
    before = stats(out)
    flip(out / f"train-00000{suffix(fmt)}")
    for name in (f"train-00001{suffix(fmt)}", "train-00001.idx", "train-00001.parquet"):
        (out / name).unlink()
    result = invoke("repair", "--workers", 1, out, status=1)
    assert "set --src" in result.stdout
    assert not (out / f"train-00001{suffix(fmt)}").exists()
    assert (
        "would be made again"
        in invoke("repair", "--workers", 1, out, "--src", source, "--dry-run").stdout
    )
    assert "4 files repaired" in invoke("repair", "--workers", 1, out, "--src", source).stdout
    assert snapshot(out) == files
    assert stats(out)["train-00000.idx"] == before["train-00000.idx"]
    assert verify_dataset(str(out), workers=1).problems == ()


def test_rejected_list(convert, invoke, source, snapshot):
    (source / "cat" / "broken.jpg").write_bytes(b"no image")
    out = convert("--max-rejected", 1)
    files = snapshot(out)
    flip(out / "rejected.jsonl")
    assert "rebuilt from the sample tables" in invoke("repair", "--workers", 1, out).stdout
    assert snapshot(out) == files


def test_replaced_and_missing_images_are_named(convert, invoke, source):
    out = convert()
    for shard in out.glob("*.tfrecord"):
        shard.unlink()
    image = sorted((source / "cat").iterdir())[0]
    data = bytearray(image.read_bytes())
    data[-20] ^= 1
    image.write_bytes(data)
    result = invoke("repair", "--workers", 1, out, "--src", source, status=1)
    assert "images of the source were replaced since" in result.stdout
    assert len([*out.glob("*.tfrecord")]) == 2  # the shards without this image
    image.unlink()
    result = invoke("repair", "--workers", 1, out, "--src", source, status=1)
    assert "was not made from" in result.stdout
    assert not (out / ".dataprep/partial").exists()


def test_indexed_dataset(convert, invoke, snapshot, tmp_path, fmt):
    out = convert("--fmt", fmt)
    folder = tmp_path / "indexed"
    folder.mkdir()
    for shard in out.glob(f"*{suffix(fmt)}"):
        shutil.copy(shard, folder)
    invoke("index", folder, "--validate", "header")
    files = snapshot(folder)
    for path in (*folder.glob("*00001.idx"), *folder.glob("*00001*.parquet")):
        path.unlink()
    assert "2 files repaired" in invoke("repair", "--workers", 1, folder).stdout
    assert snapshot(folder) == files
    flip(folder / f"train-00000{suffix(fmt)}")
    assert "not repaired" in invoke("repair", "--workers", 1, folder, status=1).stdout


def test_refusals(convert, invoke, source, tmp_path):
    out = convert()
    assert (
        "--src" in invoke("repair", "--workers", 1, out, "--pattern", "{label}_*", status=2).stderr
    )
    invoke("repair", "--workers", 1, tmp_path / "none", status=2)
    (out / "train-00000.idx").unlink()
    (out / "train-00000.idx").mkdir()
    invoke("repair", "--workers", 1, out, status=3)
    (out / "train-00000.idx").rmdir()
    flip(out / "manifest.json")
    assert "manifest" in invoke("repair", "--workers", 1, out, status=1).stderr


def test_killed_at_any_moment(convert, invoke, source, snapshot):
    out = convert("--fmt", "webdataset")
    files = snapshot(out)
    command = [
        sys.executable,
        "-m",
        "dataprep",
        "repair",
        str(out),
        "--src",
        str(source),
        "--workers",
        "2",
    ]
    rng = random.Random(0)
    delays = [0.0, *(rng.uniform(0.3, 2.0) for _ in range(3))]
    for delay in delays:
        for name in ("train-00000.tar", "train-00001.parquet", "train-00002.idx"):
            (out / name).unlink(missing_ok=True)
        process = subprocess.Popen(
            command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True
        )
        time.sleep(delay)
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        assert wait_until_gone(process.pid)
        # Whatever has its final name is whole.
        assert all(
            files[name] == data for name, data in snapshot(out).items() if not name.startswith(".")
        )
    invoke("repair", "--workers", 1, out, "--src", source)
    assert snapshot(out) == files
    assert not (out / ".dataprep/partial").exists()


def test_revisions(convert, invoke, source, snapshot, tmp_path, fmt):
    """Each revision has its own source; what a shard determines is rebuilt without it."""
    out = convert("--fmt", fmt)
    second = tmp_path / "second"
    for number, path in enumerate(sorted(source.rglob("*.*"))[:7]):
        name = second / ("日本" if number % 2 else "new") / f"{number}{path.suffix.lower()}"
        name.parent.mkdir(parents=True, exist_ok=True)
        name.write_bytes(path.read_bytes())
    invoke("convert", "--src", second, "--out", out, "--append")
    files = snapshot(out)
    old, new = sorted(out.glob(f"*{suffix(fmt)}"))[0], sorted(out.glob(f"*{suffix(fmt)}"))[-1]
    new.with_suffix(".idx").unlink()
    flip(new.with_suffix(".parquet"))
    result = invoke("repair", "--workers", 1, out)
    assert result.stdout.count(f"rebuilt from {new.name}") == 2
    assert snapshot(out) == files
    flip(old)
    flip(new)
    failed = invoke("repair", "--workers", 1, out, "--src", second, status=1).stdout
    assert (
        f"{old.name}: the file does not match its checksum; not repaired: revision 0 was not made"
        " from" in failed
    )
    assert "`dataprep convert` that made revision 0 of the dataset" in failed
    assert f"{new.name}: the file does not match its checksum; made again from the source" in failed
    assert snapshot(out) != files
    invoke("repair", "--workers", 1, out, "--src", source)
    assert snapshot(out) == files
    flip(out / "manifest.0.json")
    failed = invoke("repair", "--workers", 1, out, status=1).stdout
    assert "manifest.0.json: this is not the manifest of revision 0" in failed
    assert (
        "not repaired: the newest manifest does not determine it. Hint: restore it from a copy"
        in failed
    )


@pytest.mark.parametrize(
    "options",
    [
        ("--duplicates", "drop"),
        ("--duplicates", "same-split"),
        ("--val-fraction", 0.3, "--split-by", "duplicates"),
        ("--duplicates", "drop", "--distance", -1, "--where", "label != 'cat'"),
    ],
)
def test_options_that_choose_images_apply_again(options, convert, invoke, source, snapshot, fmt):
    first, *_ = sorted((source / "日本").iterdir())
    shutil.copy(first, first.with_stem("copy"))
    out = convert("--fmt", fmt, *options)
    files = snapshot(out)
    assert ("rejected.jsonl" in files) == ("drop" in options)
    for name in files.keys() & {
        "rejected.jsonl",
        f"train-00000{suffix(fmt)}",
        "train-00001.parquet",
    }:
        flip(out / name)
    if "drop" in options:
        failed = invoke("repair", "--workers", 1, out, status=1).stdout
        assert "Hint: set --src to the source of the dataset, run the same" in failed
    assert (
        "made again from the source"
        in invoke("repair", "--workers", 1, out, "--src", source).stdout
    )
    assert snapshot(out) == files


def test_the_source_is_a_dataset_with_hashes(convert, invoke, source, snapshot, tmp_path):
    invoke("convert", "--src", source, "--out", tmp_path / "hashed", "--hash", "--workers", 1)
    out = convert(src=tmp_path / "hashed")
    files = snapshot(out)
    flip(out / "train-00000.tfrecord")
    invoke("repair", "--workers", 1, out, "--src", tmp_path / "hashed")
    assert snapshot(out) == files


def test_duplicates_that_an_append_left_out(convert, invoke, source, snapshot, tmp_path):
    out = convert()
    second = tmp_path / "second" / "cat"
    second.mkdir(parents=True)
    for number, path in enumerate(sorted(source.rglob("*.*"))[:7]):
        shutil.copy(path, second / f"{number}{path.suffix.lower()}")
    shutil.copy(path, second / f"copy{path.suffix.lower()}")
    invoke("convert", "--src", second.parent, "--out", out, "--append", "--duplicates", "drop")
    files = snapshot(out)
    flip(sorted(out.glob("*.tfrecord"))[-1])
    flip(out / "rejected.1.jsonl")
    result = invoke("repair", "--workers", 1, out, "--src", second.parent)
    assert (
        "rejected.1.jsonl: the file does not match its checksum; rebuilt from the sample tables and"
        " the source" in (result.stdout)
    )
    assert snapshot(out) == files
