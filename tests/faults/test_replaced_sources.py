"""Source images that are replaced by others of the same size, and finished files that are damaged at equal length."""

from __future__ import annotations

import os
import shutil
from dataclasses import replace
from unittest.mock import Mock

import pytest
from helpers.datasets import flip
from helpers.pictures import encode, photo

from dataprep.ledger.finished import STAMPS_NAME
from dataprep.options import Downscale, Options, Raw
from dataprep.run import prepare as reread
from dataprep.run.convert import convert_dataset
from dataprep.shards import write as shards
from dataprep.sources import read_source
from dataprep.storage.temporary import JOURNAL_NAME
from dataprep.verification.verify import verify_dataset
from manifests.errors import CallError

OPTIONS = Options(shard_samples=4, shuffle=False)


@pytest.fixture
def folder(tmp_path):
    """An ImageFolder of BMP images, which all have the same size, and of one broken image."""
    (tmp_path / "photos" / "a").mkdir(parents=True)
    for number in range(11):
        (tmp_path / "photos" / "a" / f"{number:02d}.bmp").write_bytes(
            encode(photo(number, 20, 16), "bmp")
        )
    (tmp_path / "photos" / "a" / "11.bmp").write_bytes(b"x" * len(encode(photo(0, 20, 16), "bmp")))
    return tmp_path / "photos"


def run(folder, out, options=OPTIONS, *, workers=1, **arguments):
    source = read_source(str(folder))
    return convert_dataset(source, str(out), options, workers=workers, **arguments)


@pytest.fixture
def made(folder, tmp_path, snapshot):
    """A dataset of the folder, and its files."""
    run(folder, tmp_path / "out")
    return tmp_path / "out", snapshot(tmp_path / "out")


def replace_image(folder, keeps_time=False):
    """Replace an image by another of the same size: in place, or as `cp -p` and tar do."""
    path, data = folder / "a" / "05.bmp", encode(photo(99, 20, 16), "bmp")
    status = path.stat()
    assert len(data) == status.st_size
    if not keeps_time:
        path.write_bytes(data)
        return
    new = folder.parent / "new.bmp"
    new.write_bytes(data)
    os.utime(new, ns=(status.st_atime_ns, status.st_mtime_ns))
    os.replace(new, path)


KINDS = [{}, {"downscale": Downscale(shorter=8)}, {"raw": Raw(8)}]


@pytest.mark.parametrize("keeps_time", [False, True])
@pytest.mark.parametrize("extra", KINDS)
def test_replaced_image_is_noticed_and_overwrite_starts_over(
    keeps_time, extra, folder, tmp_path, snapshot
):
    out, options = tmp_path / "out", replace(OPTIONS, **extra)
    run(folder, out, options)
    before = snapshot(out)
    replace_image(folder, keeps_time)
    message = r"is complete, but .* replaced since. Hint: .* --overwrite"
    with pytest.raises(CallError, match=message) as caught:
        run(folder, out, options)
    assert extra or "image a/05.bmp of the source was" in str(caught.value)
    assert snapshot(out) == before
    assert run(folder, out, options, overwrite=True).resumed == 0
    run(folder, tmp_path / "fresh", options)
    assert snapshot(out) == snapshot(tmp_path / "fresh")
    assert run(folder, out, options).resumed == 3


@pytest.mark.parametrize("extra", KINDS[:2])
def test_an_interrupted_run_reads_replaced_images_again(extra, folder, tmp_path, snapshot):
    out, options = tmp_path / "out", replace(OPTIONS, **extra)
    run(folder, out, options)
    (out / "manifest.json").rename(out / JOURNAL_NAME)
    replace_image(folder)
    assert run(folder, out, options).resumed == 2
    run(folder, tmp_path / "fresh", options)
    assert snapshot(out) == snapshot(tmp_path / "fresh")


def test_rejected_image_that_was_repaired_is_noticed(folder, made):
    out, _ = made
    assert "a/11.bmp" in (out / "rejected.jsonl").read_text()
    (folder / "a" / "11.bmp").write_bytes(encode(photo(7, 20, 16), "bmp"))
    with pytest.raises(CallError, match=r"image a/11\.bmp of the source was replaced"):
        run(folder, out)


@pytest.mark.parametrize("change", ["copy", "touch", "no stamps", "damaged stamps"])
def test_checksums_prove_that_unchanged_images_are_the_same(
    change, folder, made, tmp_path, snapshot
):
    """A copied source has other times and inodes; the rerun reads it, and records them."""
    (out, before), source = made, folder
    if change == "copy":
        source = shutil.copytree(folder, tmp_path / "copy", copy_function=shutil.copyfile)
    elif change == "touch":
        for path in folder.glob("*/*"):
            path.touch()
    else:
        (out / STAMPS_NAME).write_bytes(b"[{" if change == "damaged stamps" else b"")
    assert run(source, out).resumed == 3
    assert {**snapshot(out), STAMPS_NAME: b""} == {**before, STAMPS_NAME: b""}


def test_images_are_not_read_again_while_their_stamps_are_the_same(folder, made, monkeypatch):
    monkeypatch.setattr(reread, "load_image", None)
    assert run(folder, made[0]).resumed == 3


def test_overwrite_starts_over_and_resumes_only_itself(folder, made, monkeypatch, snapshot):
    out, before = made

    def times():
        return {path.name: path.stat().st_mtime_ns for path in out.glob("[!.]*")}.items()

    def stop(task, pool):
        if task.name == "train-00002":
            raise KeyboardInterrupt
        return shards.write_shard(task, pool)

    first = times()
    with monkeypatch.context() as patch:
        patch.setattr("dataprep.run.work.write_shard", stop)
        with pytest.raises(KeyboardInterrupt):
            run(folder, out, overwrite=True)
    assert not (out / "manifest.json").exists()
    assert run(folder, out, overwrite=True).resumed == 2
    assert snapshot(out) == before
    assert not first & times()
    assert run(folder, out, overwrite=True).resumed == 0


# --- damage at equal length ---------------------------------------------------------------------


@pytest.mark.parametrize("complete", [True, False])
@pytest.mark.parametrize("name", ["train-00001.idx", "train-00001.parquet", "rejected.jsonl"])
@pytest.mark.parametrize("damage", ["zeros", "one bit", "lost"])
def test_a_rerun_repairs_what_it_can_compare(complete, name, damage, folder, made, snapshot):
    """The checksums of indexes and tables, and the list of rejected images if it is lost."""
    out, before = made
    if not complete:
        (out / "manifest.json").rename(out / JOURNAL_NAME)
    if damage == "lost":
        (out / name).unlink()
    elif damage == "zeros":
        (out / name).write_bytes(bytes(len(before[name])))
    else:
        flip(out / name, 9)
    assert run(folder, out).resumed == (3 if name == "rejected.jsonl" else 2)
    assert snapshot(out) == before
    assert verify_dataset(str(out), workers=1).problems == ()


def test_a_rerun_compares_shards_on_request(folder, tmp_path, snapshot, dataprep):
    out = tmp_path / "out"
    call = ["convert", "--src", folder, "--out", out, "--samples-per-shard", 4, "--max-rejected", 1]
    assert dataprep(*call).returncode == 0
    before = snapshot(out)
    flip(out / "train-00001.tfrecord", 200)
    assert "3 shards were done by an earlier run" in dataprep(*call).stdout
    assert "2 shards were done by an earlier run" in dataprep(*call, "--check-shards").stdout
    assert snapshot(out) == before


@pytest.mark.parametrize("workers", [1, 2])
def test_what_is_read_again_has_a_progress_and_the_workers(workers, folder, made, snapshot):
    (out, before), names = made, ["train-00000", "train-00001", "train-00002"]
    for case in ("nothing", "shards", "images"):
        if case == "images":
            for path in folder.rglob("*.*"):
                os.utime(path, (1, 1))
        bar = Mock()
        options = {"check_shards": case == "shards", "check_progress": bar}
        assert run(folder, out, workers=workers, **options).resumed == 3
        advanced = sorted(call.args[0] for call in bar.advance.call_args_list)
        started = [call.args for call in bar.start.call_args_list]
        assert (advanced, started) == (([], []) if case == "nothing" else (names, [(12, 3)]))
    assert {**snapshot(out), STAMPS_NAME: b""} == {**before, STAMPS_NAME: b""}
