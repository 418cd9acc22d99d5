"""A dataset of many shards, whose manifest has a list of shards beside it."""

from dataprep.options import Options
from dataprep.run.convert import convert_dataset
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
