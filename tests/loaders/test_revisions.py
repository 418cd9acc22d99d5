"""Loaders of a dataset to which images are appended: each reads one revision, and its state says which."""

import shutil

import pytest
from helpers import loading
from helpers.datasets import FORMATS, write_csv
from helpers.loading import equal, state_after
from helpers.pictures import encode, photo

import dataprep
import loaders
from dataprep.options import RemoveOptions
from dataprep.run.remove import remove_samples
from manifests.errors import CallError
from manifests.tables import read_table


def write(folder, numbers):
    for number in numbers:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"{number:02d}.jpg").write_bytes(encode(photo(number, 32, 32)))


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A dataset of 12 images, the same one with 6 more, and a source of another split."""
    root = tmp_path_factory.mktemp("revisions")
    write(root / "a" / "cat", range(12))
    write(root / "b" / "ant", range(20, 26))
    write(root / "c" / "val" / "cat", range(30, 33))
    dataprep.convert(root / "a", root / "old", samples_per_shard=5, workers=1)
    shutil.copytree(root / "old", root / "new")
    dataprep.convert(root / "b", root / "new", append=True, workers=1)
    return root


def build(dataset, **options):
    defaults = {"batch_size": 2, "transforms": [{"ResizeImage": {"size": [32, 32]}}]}
    return loading.build(dataset, **{**defaults, "fields": ("image", "label", "source"), **options})


def by_name(batches):
    """Return the images by their sources."""
    found = {}
    for images, _, names in batches:
        found |= zip(names, images, strict=True)
    return found


@pytest.mark.parametrize(("shuffle", "added"), [(False, "b"), ("buffer", "b"), (True, "c")])
def test_readers_of_the_old_revision_are_not_disturbed(shuffle, added, made, tmp_path):
    """The append happens in the middle of an epoch.

    Its checkpoint resumes with the old revision only, unless the split has not changed.
    """
    dataset = shutil.copytree(made / "old", tmp_path / "out")
    with build(dataset, shuffle=shuffle) as undisturbed:
        expected = list(undisturbed)
    with build(dataset, shuffle=shuffle) as loader:
        iterator = iter(loader)
        first = [next(iterator), next(iterator)]
        state = loader.state_dict()
        dataprep.convert(made / added, dataset, append=True, workers=1)
        assert equal([*first, *iterator], expected)
    assert state["revision"] == 0
    with build(dataset, shuffle=shuffle) as newest:
        assert newest.state_dict()["revision"] == 1
        assert f"(revision 1): {18 if added == 'b' else 12} samples" in newest.explain()
        if added == "c":
            newest.load_state_dict(state)
            assert equal(list(newest), expected[2:])
            return
        assert (newest.samples, newest.classes) == (18, ("cat", "ant"))
        with pytest.raises(CallError) as caught:
            newest.load_state_dict(state)
    assert str(caught.value) == (
        "the state belongs to revision 0 of the dataset, but this loader reads revision 1. "
        "Hint: build the loader with revision=0."
    )
    with build(dataset, shuffle=shuffle, revision=0) as old:
        assert (old.samples, old.classes) == (12, ("cat",))
        old.load_state_dict(state)
        assert equal(list(old), expected[2:])


def test_a_join_is_read_without_a_new_conversion(made, tmp_path):
    """Samplers and fields use the joined columns, and a state fits the revision that it is from."""
    dataset = shutil.copytree(made / "new", tmp_path / "out")
    with build(dataset) as loader:
        expected = list(loader)
    sources = sorted(source for batch in expected for source in batch[2])
    with build(dataset) as loader:
        state = state_after(loader, 1)
    rows = [(source, n % 2, ("cat", "ant")[n % 3 == 0]) for n, source in enumerate(sources)]
    table = write_csv(tmp_path / "scores.csv", "source,score,label", rows)
    dataprep.join(dataset, table, on="source")
    odd = {source: n % 3 == 0 for n, source in enumerate(sources) if n % 2}
    fields = ("image", "label", "source", "score")
    weighted = loaders.WeightedSampler("score", replacement=False)
    for sampler in (weighted, loaders.SubsetSampler(where="score = 1")):
        with build(dataset, sampler=sampler, fields=fields) as loader:
            for _, labels, names, scores in loader:
                assert {*scores.tolist()} == {1}
                assert [odd[name] for name in names] == labels.tolist()
    # DALI's own reader would take the labels from the records.
    with build(dataset, shuffle=False) as loader:
        labels = {}
        for _, own, names in loader:
            labels.update(zip(names, own, strict=True))
        assert all(labels[name] == is_ant for name, is_ant in odd.items())
        with pytest.raises(CallError, match=r"Hint: build the loader with revision=1\."):
            loader.load_state_dict(state)
    with build(dataset, revision=1) as loader:
        loader.load_state_dict(state)
        assert equal(list(loader), expected[1:])


@pytest.mark.parametrize("fmt", FORMATS)
@pytest.mark.parametrize("shuffle", [False, "buffer", True])
def test_removed_samples_are_never_read(shuffle, fmt, made, tmp_path):
    """A whole shard is removed, too. A state fits the revision that it is from."""
    dataset = tmp_path / "out"
    dataprep.convert(made / "a", dataset, samples_per_shard=5, fmt=fmt, workers=1)
    with build(dataset, shuffle=shuffle) as loader:
        expected = list(loader)
    with build(dataset, shuffle=shuffle) as loader:
        state = state_after(loader, 1)
    first = read_table(dataset / "train-00000.parquet")
    gone = {*first["source"].to_pylist()}
    gone.add(read_table(dataset / "train-00001.parquet")["source"][2].as_py())
    (tmp_path / "gone.txt").write_text("\n".join(gone))
    remove_samples(str(dataset), RemoveOptions(sources=str(tmp_path / "gone.txt")))
    images = by_name(expected)
    with build(dataset, shuffle=shuffle) as newest:
        assert newest.samples == 6
        assert len(by_name([*newest])) == len(newest) * 2
        found = by_name([*newest])
        assert found.keys() == images.keys() - gone
        assert all(equal(image, images[name]) for name, image in found.items())
        with pytest.raises(CallError, match=r"Hint: build the loader with revision=0\."):
            newest.load_state_dict(state)
    with build(dataset, shuffle=shuffle, revision=0) as old:
        old.load_state_dict(state)
        assert equal(list(old), expected[1:])
    with build(dataset, sampler=loaders.SubsetSampler(where="width > 0")) as subset:
        assert subset.samples == 6
    remove_samples(str(dataset), RemoveOptions(scrub=True))
    dataprep.verify(dataset, decode=True, workers=1)
    with build(dataset, shuffle=shuffle) as newest:
        found = by_name(newest)
        assert found.keys() == images.keys() - gone
        assert all(equal(image, images[name]) for name, image in found.items())


def test_several_datasets(made):
    both = [made / "new", made / "old"]
    with build(both) as loader:
        assert (loader.samples, loader.state_dict()["revision"]) == (30, [1, 0])
        state = state_after(loader, 1)
    message = r"revision \[1, 0\] of the dataset, but this loader reads revision \[0, 0\]"
    buckets = {"sampler": loaders.BucketSampler([(32, 32)]), "transforms": "bucket-train"}
    new, old = made / "new", made / "old"
    with build(new, revision=0, **buckets) as first, build(old, **buckets) as other:
        assert equal([*first, *first], [*other, *other])
    with build([made / "new", made / "old"], revision=[0, None]) as loader:
        assert (loader.samples, loader.state_dict()["revision"]) == (24, [0, 0])
        with pytest.raises(CallError, match=message):
            loader.load_state_dict(state)
