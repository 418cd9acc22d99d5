"""Which files in the output folder belong to the plan of a run, and which of them the next run keeps."""

from __future__ import annotations

import shutil

import numpy as np
import pytest
from helpers import annotated
from helpers.datasets import flip
from PIL import Image

from dataprep import storage
from dataprep.ledger.fence import begin_conversion
from dataprep.ledger.state import inspect
from dataprep.plan.assign import Options, make_plan
from dataprep.run.convert import convert_dataset
from dataprep.sources import SourceOptions, read_source
from dataprep.storage.temporary import JOURNAL_NAME
from dataprep.verification.verify import verify_dataset
from manifests import store
from manifests.errors import CallError
from manifests.tables import SHARD_LIST_NAME

OPTIONS = Options(shard_samples=5)


def convert(source, out, options=OPTIONS, **more):
    return convert_dataset(source, str(out), options, workers=1, **more)


@pytest.fixture(scope="module")
def source(make_photos, tmp_path_factory):
    return read_source(str(make_photos(tmp_path_factory.mktemp("resume") / "photos", 15, side=16)))


@pytest.fixture(scope="module")
def complete(source, snapshot, tmp_path_factory):
    """All files of a complete dataset, by name."""
    out = tmp_path_factory.mktemp("complete") / "out"
    convert(source, out)
    return snapshot(out)


@pytest.fixture
def out(tmp_path):
    (tmp_path / "out").mkdir()
    return tmp_path / "out"


LEFT_BY_A_KILL = ["train-00001.tfrecord", "train-00001.idx"]
REFUSED = "which was not made from this source with these options"


def write_mark(source, out):
    plan = make_plan(source, OPTIONS)
    with storage.partials(str(out), is_alone=True):
        begin_conversion(inspect(str(out), plan.fingerprint), OPTIONS)
    return plan


def check_refused(source, out, snapshot, message):
    before = snapshot(out)
    with pytest.raises(CallError, match=message):
        convert(source, out)
    assert snapshot(out) == before


@pytest.mark.parametrize("name", [*LEFT_BY_A_KILL, "train-00001.parquet", "rejected.jsonl"])
def test_files_of_others_are_refused(name, source, out, snapshot):
    """Another tool may write a file under a planned name while a dataset is incomplete."""
    for mark in (None, b"", b"[]", b"{}", b'{"options": {"plan": "another"}}', "of this plan"):
        shutil.rmtree(out)
        out.mkdir()
        if mark == "of this plan":
            write_mark(source, out)
        elif mark is not None:
            (out / ".dataprep").mkdir()
            (out / JOURNAL_NAME).write_bytes(mark)
        (out / name).write_bytes(b"of another tool")
        check_refused(source, out, snapshot, f"'{name}', {REFUSED}")


def test_finished_shards_without_mark_are_resumed(source, complete, out, snapshot):
    """Releases without the mark leave this when they are killed. A complete dataset is not rewritten."""
    for name in ("train-00000.tfrecord", "train-00000.idx", "train-00000.parquet"):
        (out / name).write_bytes(complete[name])
    assert convert(source, out).resumed == 1
    assert snapshot(out) == complete
    before = {path.name: path.stat().st_mtime_ns for path in out.iterdir()}
    assert convert(source, out).resumed == 3
    assert {path.name: path.stat().st_mtime_ns for path in out.iterdir()} == before


def test_an_interrupted_overwrite_keeps_no_damaged_shard(source, out, monkeypatch):
    """It was killed before it removed the old shards, which are of the same plan: the next one must not resume them."""
    convert(source, out)
    flip(next(out.glob("*.tfrecord")), 200)

    def killed(resumable):
        raise ZeroDivisionError

    with monkeypatch.context() as patch:
        patch.setattr("dataprep.run.prepare.remove_outdated", killed)
        with pytest.raises(ZeroDivisionError):
            convert(source, out, overwrite=True)
    assert convert(source, out, overwrite=True).resumed == 0
    assert not verify_dataset(str(out), workers=1).problems


def test_a_list_of_shards_beside_the_manifest(image_folder, out, monkeypatch):
    monkeypatch.setattr(store, "MAX_SHARDS_IN_JSON", 2)
    source, options = read_source(str(image_folder)), Options(fmt="webdataset", shard_samples=1)
    shards = convert(source, out, options).manifest.shards
    assert (out / SHARD_LIST_NAME).exists()
    assert verify_dataset(str(out), workers=1).problems == ()
    before = (out / "manifest.json").stat().st_mtime_ns
    assert convert(source, out, options).resumed == len(shards) > 2
    assert (out / "manifest.json").stat().st_mtime_ns == before
    # The new dataset needs no list.
    convert(source, out, Options(fmt="webdataset"), overwrite=True)
    assert not (out / SHARD_LIST_NAME).exists()
    assert verify_dataset(str(out), workers=1).problems == ()


# --- a mask that was replaced between two runs is noticed, as a replaced image is -----------------


@pytest.fixture(params=["mask", "depth", "voc", "views"])
def masks(request, tmp_path):
    """Return a function that reads a source, and one of its masks."""
    folder = tmp_path / "source"
    if request.param == "voc":
        annotated.make_voc(folder)
        options = SourceOptions(label_type="mask")
        return lambda: read_source(str(folder), options), folder / "SegmentationClass/2.png"
    if request.param == "views":
        annotated.make_views(folder)
        options = SourceOptions(pattern="{key}_{image}")
        return lambda: read_source(str(folder), options), folder / "cat/2_right.png"
    annotated.make_pairs(folder, seconds=f"{request.param}s", kind=request.param)
    return lambda: read_source(str(folder), SourceOptions()), folder / f"{request.param}s/2.png"


def change(mask):
    """Replace a mask by one with other values, of the same kind."""
    with Image.open(mask) as opened:
        values, palette = np.array(opened), opened.getpalette()
    image = Image.fromarray(values[::-1].copy())
    if palette:
        image.putpalette(palette)
    image.save(mask)


def content(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}


def test_shards_of_other_masks_are_refused_or_written_again(masks, out, tmp_path):
    """A complete dataset is refused; a run that was killed before the manifest writes some shards again."""
    (read, mask), options, new = masks, Options(shard_samples=2), tmp_path / "new"
    convert(read(), out, options)
    killed = shutil.copytree(out, tmp_path / "killed")
    (killed / "manifest.json").unlink()
    change(mask)
    replaced = rf"image {mask.parent.name}/{mask.name} of the source was replaced since"
    with pytest.raises(CallError, match=replaced):
        convert(read(), out, options)
    convert(read(), out, options, overwrite=True)
    convert(read(), new, options)
    assert content(out) == content(new)
    result = convert(read(), killed, options)
    assert content(killed) == content(new)
    assert 0 < result.resumed < len([*killed.glob("*.tfrecord")])
