"""Conversions into object stores beside each other, and after another one was killed: nothing locks a folder there."""

from __future__ import annotations

import pytest

from dataprep import storage
from dataprep.images.base import Rejected
from dataprep.ledger.state import read_journal
from dataprep.options import Options
from dataprep.run import convert as prepare
from dataprep.run import prepare as dataset
from dataprep.run import work
from dataprep.run.convert import append_dataset, plan_dataset
from dataprep.run.finish import finish
from dataprep.run.work import Share
from dataprep.shards import write as segments
from dataprep.sources import read_source
from dataprep.verification.verify import verify_dataset
from manifests.errors import StoppedError, StorageError
from manifests.remote.store import Store

pytestmark = pytest.mark.usefixtures("staging")

OPTIONS = Options(shard_samples=10)
ALL = Share(0, 1)


@pytest.fixture(scope="module")
def source(make_photos, tmp_path_factory) -> str:
    return str(make_photos(tmp_path_factory.mktemp("images") / "set", 36))


def problems(store: Store):
    return verify_dataset(str(store), workers=1).problems


def test_a_run_that_deletes_what_another_has_finished_since_writes_it_again(
    convert_into, store, monkeypatch, elsewhere, kill_before
):
    """It looks at the folder while a shard has no table yet."""
    kill_before("train-00001.parquet", convert_into)
    remove, deleted = dataset.remove_outdated, []

    def after_another(resumable):
        if not deleted:
            deleted.append(resumable.outdated)
            elsewhere(convert_into)
            assert problems(store) == ()
        remove(resumable)

    monkeypatch.setattr(dataset, "remove_outdated", after_another)
    convert_into()
    assert "train-00001.tfrecord" in deleted[0]
    assert problems(store) == ()


def test_a_run_knows_its_own_files_while_another_finishes(
    convert_into, store, monkeypatch, elsewhere, kill_before
):
    kill_before("train-00001.parquet", convert_into)
    calls = []

    def after_another(out):
        journal = read_journal(out)
        calls.append(journal)
        if len(calls) == 1:
            elsewhere(convert_into)
        return journal

    monkeypatch.setattr("dataprep.ledger.state.read_journal", after_another)
    convert_into()
    assert len(calls) > 1
    assert problems(store) == ()


def test_a_lost_or_damaged_file_of_a_shard_with_a_table_is_written_by_work(source, each_store):
    plan_dataset(read_source(source), str(each_store), OPTIONS)
    work.work(str(each_store), ALL, workers=1)
    shard, index = "train-00001.tfrecord", "train-00001.idx"
    data, first = bytes(each_store.get(shard)), bytes(each_store.get(index))
    changed = bytes([first[0] ^ 1]) + first[1:]
    for name, content in ((shard, data[:-1]), (index, changed), (shard, b""), (index, b"")):
        each_store.delete(name)
        if content:
            each_store.put(name, content)
        with pytest.raises(StoppedError, match="1 shard of 4 is missing or damaged: train-00001"):
            finish(str(each_store), workers=1)
        written = work.work(str(each_store), ALL, workers=1).written
        assert [each.name for each in written] == ["train-00001"]
        assert (bytes(each_store.get(shard)), bytes(each_store.get(index))) == (data, first)
    finish(str(each_store), workers=1)
    assert problems(each_store) == ()


def test_work_tries_an_image_again_that_could_not_be_read(source, store, monkeypatch):
    read = segments.read_image

    def unreadable(root, path, *arguments, **options):
        if path.endswith("00000.jpg"):
            raise Rejected("unreadable", "Input/output error")
        return read(root, path, *arguments, **options)

    plan_dataset(read_source(source), str(store), OPTIONS)
    with monkeypatch.context() as patch:
        patch.setattr(segments, "read_image", unreadable)
        written = work.work(str(store), ALL, workers=1).written
    (name,) = [shard.name for shard in written if shard.conversion.rejected]
    assert [shard.name for shard in work.work(str(store), ALL, workers=1).written] == [name]
    assert finish(str(store), workers=1).rejected == 0
    assert problems(store) == ()


def test_a_worker_whose_temporary_files_were_removed_by_finish(source, store, monkeypatch):
    """All of them are removed once the dataset is complete: this worker writes a shard that another has written."""
    create, ended = Store.create, []

    def finished_meanwhile(self, name, data):
        is_written = create(self, name, data)
        if name == "train-00001.tfrecord" and not ended:
            ended.append(name)
            work.work(str(store), ALL, workers=1)
            finish(str(store), workers=1)
        return is_written

    plan_dataset(read_source(source), str(store), OPTIONS)
    monkeypatch.setattr(Store, "create", finished_meanwhile)
    work.work(str(store), ALL, workers=1)
    assert ended
    assert problems(store) == ()


def test_an_equal_append_that_ends_before_this_one_begins(
    convert_into, store, make_photos, monkeypatch, elsewhere, tmp_path
):
    """Its shards are part of the dataset: nobody may be told to move them away."""
    convert_into()
    more = read_source(str(make_photos(tmp_path / "more", 9, classes=1)))
    refuse_folders = prepare.refuse_folders

    def append():
        return append_dataset(more, str(store), OPTIONS, name="more", workers=1)

    def after_the_other(*arguments):
        monkeypatch.setattr(prepare, "refuse_folders", refuse_folders)
        elsewhere(append)
        refuse_folders(*arguments)

    monkeypatch.setattr(prepare, "refuse_folders", after_the_other)
    message = "another program has changed the dataset since this command began"
    with pytest.raises(StorageError, match=message):
        append()
    assert append().converted is None
    assert problems(store) == ()


def test_an_error_about_a_lock_names_the_url(store):
    with (
        storage.locked(str(store)),
        pytest.raises(StorageError, match="another run is working in this folder") as caught,
        storage.locked(str(store)),
    ):
        pass
    assert caught.value.file == str(store)
