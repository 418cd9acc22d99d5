"""The file of `loaders tune`, and `loaders.build(tuning=...)`: used where it fits, refused with a reason elsewhere."""

import json
import os
import re
from dataclasses import replace

import pytest
from helpers import loading
from helpers.rows import evaluate, read_rows
from hypothesis import given, settings
from hypothesis import strategies as st

from loaders.bench.command import make_request
from loaders.resolve import resolve
from loaders.tuning import (
    Entry,
    Tuning,
    TuningKey,
    read_entries,
    tuning_key,
    use_tuning,
    with_entry,
)  # fmt: skip
from manifests.errors import CallError

OPTIONS = {"transforms": "imagenet-train", "batch_size": 4, "device": "cpu"}
KEY = TuningKey("NVIDIA H200", 16, "0123456789abcdef", "Decode(space='RGB')")


@pytest.fixture
def dataset(prepared):
    return prepared["photos tfrecord"]


@pytest.fixture
def key(dataset):
    spec = resolve(make_request(str(dataset), split="train", **OPTIONS))
    spec.images.close()
    return tuning_key(spec.options.device, len(os.sched_getaffinity(0)), spec.split, spec.recipe)


@pytest.fixture
def file(tmp_path, key):
    def write(entries=(), batch_size=4, **changes):
        path = tmp_path / "tune.json"
        entry = Entry(replace(key, **changes), batch_size, Tuning(3, 4), {})
        path.write_bytes(with_entry(list(entries), entry))
        return path

    return write


def build(dataset, **options):
    return loading.build(dataset, **{"num_threads": None, **OPTIONS, **options})


def test_build_uses_the_options(dataset, file):
    with build(dataset, tuning=file()) as loader:
        assert (loader.options.num_threads, loader.options.prefetch) == (3, 4)
        assert loader.options.tuning.endswith("tune.json")
        text = f"threads, prefetch and hardware decoder from {loader.options.tuning}"
        assert text in loader.explain()
        assert len(next(iter(loader))[0]) == 4
    # Arguments of the call override the file.
    with build(dataset, tuning=file(), num_threads=1) as loader:
        assert (loader.options.num_threads, loader.options.prefetch) == (1, 4)
    with build(dataset) as loader:
        assert loader.options.tuning == ""
        assert "unless given" not in loader.explain()


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"device": "NVIDIA A100"}, "the device was 'NVIDIA A100', and here it is "),
        ({"cores": 99}, "there were 99 cores, and this process may use "),
        ({"dataset": "0" * 16}, "the dataset or its split was another one, or has changed"),
        ({"transforms": "Decode(space='RGB')"}, "the transforms were different"),
    ],
)
def test_a_file_for_something_else_is_refused_with_the_reason(dataset, file, changes, reason):
    path = file(**changes)
    with pytest.raises(CallError) as raised:
        build(dataset, tuning=path)
    told = str(raised.value)
    assert told.startswith(f"{path}: tuning: ")
    assert f"it was measured for something else: {reason}" in told
    assert "; " not in raised.value.message
    assert "Hint: run `loaders tune` again for this machine" in told


def test_the_entry_that_fits_is_used_and_the_most_similar_one_is_explained(dataset, file, key):
    others = [Entry(replace(key, cores=99), 4, Tuning(9), {}), Entry(KEY, 4, Tuning(8), {})]
    with build(dataset, tuning=file(entries=others)) as loader:
        assert loader.options.num_threads == 3
    message = "the most similar of its entries was measured for something else: there were 9"
    with pytest.raises(CallError, match=message):
        build(dataset, tuning=file(entries=others, cores=98, device="other"))


def test_a_result_for_another_batch_size_is_used_with_a_warning(dataset, file, key, recwarn):
    others = [Entry(key, 256, Tuning(8), {}), Entry(key, 2, Tuning(2), {})]
    with build(dataset, tuning=file(entries=others)) as loader:
        assert loader.options.num_threads == 3
    assert not any("was measured with batches" in str(each.message) for each in recwarn)
    message = "was measured with batches of 2 images, and this loader has batches of 4, "
    with pytest.warns(UserWarning, match=message):
        build(dataset, tuning=file(entries=others, batch_size=100)).close()
    with pytest.warns(UserWarning, match="add them with `loaders tune --batch-size 8`"):
        build(dataset, tuning=file(batch_size=256), batch_size=8).close()


@pytest.mark.parametrize(("row", "problem"), read_rows(__file__, "wrong"))
def test_a_damaged_file_is_an_error_that_says_what_is_wrong(dataset, file, row, problem):
    """Also values that `build` would refuse."""
    content = evaluate(row)
    path = file()
    if isinstance(content, dict):
        body = json.loads(path.read_bytes())
        body["entries"][0]["options"] |= content
        content = json.dumps(body).encode()
    path.write_bytes(content)
    with pytest.raises(CallError) as raised:
        build(dataset, tuning=path)
    assert str(raised.value).startswith(f"{path}: tuning: the file is damaged: {problem}")


def test_files_that_cannot_be_read(dataset, tmp_path):
    os.mkfifo(tmp_path / "pipe")
    for given_as, message in (
        (tmp_path / "none.json", "tuning: the file cannot be read (No such file"),
        (tmp_path / "pipe", "the tuning file cannot be read: it is a named pipe"),
        (3, "tuning must be a path, got 3"),
    ):
        with pytest.raises(CallError, match=re.escape(message)):
            build(dataset, tuning=given_as)


texts = st.text(st.characters(exclude_categories=["Cs"]))
keys = st.builds(TuningKey, texts, st.integers(1, 10_000), texts, texts)
threads, prefetch = st.none() | st.integers(1, 1024), st.none() | st.integers(1, 64)
tunings = st.builds(Tuning, threads, prefetch, st.none() | st.floats(0, 1))


@settings(max_examples=40)
@given(st.lists(st.tuples(keys, st.sampled_from([32, 256]), tunings), min_size=1, max_size=4))
def test_written_entries_are_read_back_and_the_newest_of_a_key_wins(tmp_path_factory, written):
    path = tmp_path_factory.mktemp("round") / "tune.json"
    entries: list[Entry] = []
    for key, batch_size, tuning in written:
        path.write_bytes(with_entry(entries, Entry(key, batch_size, tuning, {"note": "x"})))
        entries = read_entries(path)
    newest = {(key, batch_size): tuning for key, batch_size, tuning in written}
    assert {(entry.key, entry.batch_size): entry.tuning for entry in entries} == newest
    assert all(use_tuning(path, *key)[0] == tuning for key, tuning in newest.items())
