"""A dataset of many shards, whose manifest has a list of shards beside it."""

import gc

from dataprep.options import Options
from dataprep.plan.files import read_plan
from dataprep.run.convert import convert_dataset, plan_dataset
from dataprep.run.work import stored_tasks
from dataprep.sources import read_source
from dataprep.verification.verify import verify_dataset
from manifests import store
from manifests.store import MANIFEST_NAME
from manifests.tables import SHARD_LIST_NAME


def test_converting_verifying_and_resuming_with_a_list(tmp_path, image_folder, monkeypatch):
    monkeypatch.setattr(store, "MAX_SHARDS_IN_JSON", 2)
    source, out = read_source(str(image_folder)), tmp_path / "out"
    options = Options(fmt="webdataset", shard_samples=1)
    first = convert_dataset(source, str(out), options, workers=1)
    assert (out / SHARD_LIST_NAME).exists()
    assert len(first.manifest.splits[0].shards) > 2
    assert verify_dataset(str(out), workers=1).problems == ()
    before = (out / MANIFEST_NAME).stat().st_mtime_ns
    again = convert_dataset(source, str(out), options, workers=1)
    assert again.resumed == len(first.manifest.splits[0].shards)
    assert (out / MANIFEST_NAME).stat().st_mtime_ns == before
    # The new dataset needs no list.
    convert_dataset(source, str(out), Options(fmt="webdataset"), workers=1, overwrite=True)
    assert not (out / SHARD_LIST_NAME).exists()
    assert verify_dataset(str(out), workers=1).problems == ()


def test_a_worker_keeps_no_footers_of_plan_files(image_folder, tmp_path):
    """Each is part of a cycle, and Python collects cycles by their number, not by their size."""
    plan_dataset(read_source(str(image_folder)), str(tmp_path / "out"), Options(shard_samples=1))
    plan = read_plan(str(tmp_path / "out"))
    tasks = stored_tasks(plan.job(str(tmp_path / "out")), range(3), 1, plan)
    gc.collect()
    before = len(footers())
    gc.disable()
    try:
        for number in [0, 1, 2] * 10:
            tasks.read(number)
        after = len(footers())
    finally:
        gc.enable()
    assert after - before < 3


def footers():
    return [each for each in gc.get_objects() if type(each).__name__ == "FileMetaData"]
