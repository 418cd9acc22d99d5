"""Loaders of a dataset to which images are appended: each reads one revision, and its state says which."""

import shutil

import numpy as np
import pytest
from helpers.pictures import encode, photo

import loaders
from manifests.errors import CallError


def write(folder, numbers, class_name):
    for number in numbers:
        path = folder / class_name / f"{number:02d}.jpg"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(encode(photo(number, 32, 32)))


@pytest.fixture(scope="module")
def made(tmp_path_factory, dataprep):
    """A dataset of 12 images, and a source to append."""
    root = tmp_path_factory.mktemp("revisions")
    write(root / "a", range(12), "cat")
    write(root / "b", range(20, 26), "ant")
    assert (
        dataprep(
            "convert", "--src", root / "a", "--out", root / "out", "--samples-per-shard", 5
        ).returncode
        == 0
    )
    return root


@pytest.fixture
def dataset(made, tmp_path):
    return shutil.copytree(made / "out", tmp_path / "out")


def build(dataset, **options):
    defaults = {
        "batch_size": 2,
        "device": "cpu",
        "transforms": [{"ResizeImage": {"size": [32, 32]}}],
        "dtype": "uint8",
    }
    return loaders.build(dataset, **{**defaults, "fields": ("image", "label", "source"), **options})


def batches(iterator):
    return [
        (images.numpy().tobytes(), labels.tolist(), sources) for images, labels, sources in iterator
    ]


@pytest.mark.parametrize("shuffle", [True, False, "buffer"])
def test_readers_of_the_old_revision_are_not_disturbed(shuffle, made, dataset, dataprep):
    """The append happens in the middle of an epoch.

    Its checkpoint resumes with the old revision only.
    """
    with build(dataset, shuffle=shuffle) as undisturbed:
        expected = batches(undisturbed)
    with build(dataset, shuffle=shuffle) as loader:
        iterator = iter(loader)
        first = batches([next(iterator), next(iterator)])
        state = loader.state_dict()
        assert (
            dataprep("convert", "--src", made / "b", "--out", dataset, "--append").returncode == 0
        )
        assert [*first, *batches(iterator)] == expected
    assert state["revision"] == 0
    with build(dataset, shuffle=shuffle) as newest:
        assert newest.samples == 18
        assert newest.classes == ("cat", "ant")
        assert newest.state_dict()["revision"] == 1
        with pytest.raises(CallError) as caught:
            newest.load_state_dict(state)
    assert (
        str(caught.value)
        == "the state belongs to revision 0 of the dataset, but this loader reads revision 1. "
        "Hint: build the loader with revision=0."
    )
    with build(dataset, shuffle=shuffle, revision=0) as old:
        assert (old.samples, old.classes) == (12, ("cat",))
        old.load_state_dict(state)
        assert [*first, *batches(old)] == expected


def test_the_newest_revision_has_all_images(made, dataset, dataprep):
    assert dataprep("convert", "--src", made / "b", "--out", dataset, "--append").returncode == 0
    with build(dataset, shuffle=False) as loader:
        read = batches(loader)
        assert "(revision 1): 18 samples" in loader.explain()
    labels = [label for _, labels, _ in read for label in labels]
    assert sorted(labels) == [0] * 12 + [1] * 6
    sources = {source for _, _, sources in read for source in sources}
    assert sources == {
        *(f"cat/{n:02d}.jpg" for n in range(12)),
        *(f"ant/{n}.jpg" for n in range(20, 26)),
    }


def test_a_split_that_did_not_change_resumes_in_any_revision(made, dataset, dataprep, tmp_path):
    (tmp_path / "more").mkdir()
    shutil.copytree(made / "b", tmp_path / "more" / "val")
    with build(dataset) as loader:
        iterator = iter(loader)
        first = batches([next(iterator)])
        state = loader.state_dict()
        expected = [*first, *batches(iterator)]
    assert (
        dataprep("convert", "--src", tmp_path / "more", "--out", dataset, "--append").returncode
        == 0
    )
    with build(dataset) as loader:
        loader.load_state_dict(state)
        assert [*first, *batches(loader)] == expected


def test_several_datasets(made, dataset, dataprep):
    other = shutil.copytree(made / "out", dataset.parent / "other")
    assert dataprep("convert", "--src", made / "b", "--out", dataset, "--append").returncode == 0
    with build([dataset, other]) as loader:
        assert (loader.samples, loader.state_dict()["revision"]) == (30, [1, 0])
        state = loader.state_dict()
    with build([dataset, other], revision=[0, None]) as loader:
        assert (loader.samples, loader.state_dict()["revision"]) == (24, [0, 0])
        with pytest.raises(
            CallError,
            match=r"revision \[1, 0\] of the dataset, but this loader reads revision \[0, 0\]",
        ):
            loader.load_state_dict(state)


@pytest.mark.parametrize(
    ("revision", "message"),
    [
        (2, "has no revision 2. Hint: choose a revision from 0 to 1."),
        (-1, "revision must be an integer of at least 0, got -1"),
        ([0], "revision must be one number for each of 1 dataset, got [0]"),
        (np.int64(0), ""),
    ],
)
def test_wrong_revisions(revision, message, made, dataset, dataprep):
    assert dataprep("convert", "--src", made / "b", "--out", dataset, "--append").returncode == 0
    if not message:
        with build(dataset, revision=revision) as loader:
            assert loader.samples == 12
        return
    with pytest.raises(CallError) as caught:
        build(dataset, revision=revision)
    assert message in str(caught.value)


def test_a_missing_old_manifest(made, dataset, dataprep):
    assert dataprep("convert", "--src", made / "b", "--out", dataset, "--append").returncode == 0
    (dataset / "manifest.0.json").unlink()
    with pytest.raises(
        loaders.DatasetError, match=r"manifest.0.json: the manifest of revision 0 cannot be read"
    ):
        build(dataset, revision=0)
    done = dataprep("verify", dataset)
    assert done.returncode == 1
    assert "manifest.0.json: the manifest of revision 0 cannot be read" in done.stdout
