"""An append of a source in which images of the dataset were moved, replaced or removed."""

from __future__ import annotations

import pytest
from helpers.pictures import encode, photo

from manifests.store import read_manifest


@pytest.fixture
def source(tmp_path):
    folder = tmp_path / "photos"
    for number in range(8):
        path = folder / ("cat", "dog")[number % 2] / f"{number}.jpg"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(encode(photo(number, 40, 30)))
    return folder


@pytest.fixture(params=[[], ["--resize-shorter", "16"]], ids=["stored", "resized"])
def dataset(request, source, invoke, tmp_path):
    invoke("convert", "--src", source, "--out", tmp_path / "out", *request.param)
    return tmp_path / "out"


def append(invoke, source, dataset, *more, status=2):
    plan = ["convert", "--src", source, "--out", dataset, "--append", *more]
    dry = invoke(*plan, "--dry-run", status=status).output
    output = invoke(*plan, status=status).output
    if status == 2:
        assert dry == output
        assert read_manifest(dataset).revision == 0
        return " ".join(output.split())
    return output


def add(source):
    (source / "cat" / "new.jpg").write_bytes(encode(photo(50, 40, 30)))


def test_every_kind_of_edit_is_counted_and_named(dataset, source, invoke):
    add(source)
    (source / "cat" / "0.jpg").rename(source / "dog" / "0.jpg")
    (source / "cat" / "2.jpg").write_bytes(encode(photo(60, 40, 30)))
    (source / "dog" / "1.jpg").unlink()
    (source / "dog" / "3.jpg").unlink()
    output = append(invoke, source, dataset)
    assert "1 image moved (cat/0.jpg is now dog/0.jpg)" in output
    assert "1 image replaced (cat/2.jpg)" in output
    assert "2 images removed (dog/1.jpg, ...)" in output
    assert "convert the source again, with --overwrite or to another --out" in output
    assert "--keep-removed" not in output
    assert append(invoke, source, dataset, "--keep-removed") == output


def test_removed_images_can_stay(dataset, source, invoke):
    (source / "cat" / "0.jpg").unlink()
    assert "1 image removed (cat/0.jpg)" in append(invoke, source, dataset)
    output = append(invoke, source, dataset, "--keep-removed", status=0)
    assert "they stay in the dataset" in output
    assert "nothing to append" in output
    add(source)
    append(invoke, source, dataset, "--keep-removed", status=0)
    manifest = read_manifest(dataset)
    assert (manifest.revision, sum(split.samples for split in manifest.splits)) == (1, 9)


@pytest.mark.parametrize("same_names", [True, False])
def test_another_folder_is_not_an_edited_one(same_names, dataset, invoke, tmp_path):
    """Cameras and scripts number images anew each day."""
    for number in range(4):
        path = (
            tmp_path / "next" / ("cat", "dog")[number % 2] / f"{number + 90 * (not same_names)}.jpg"
        )
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(encode(photo(100 + number, 40, 30)))
    append(invoke, tmp_path / "next", dataset, status=0)
    assert read_manifest(dataset).revision == 1


def test_one_source_of_a_merged_dataset(source, invoke, tmp_path):
    """The other source is not removed; paths in the dataset begin with the name of the source."""
    other = tmp_path / "other" / "cat"
    other.mkdir(parents=True)
    (other / "9.jpg").write_bytes(encode(photo(9, 40, 30)))
    invoke("convert", "--src", source, "--src", tmp_path / "other", "--out", tmp_path / "out")
    add(source)
    (source / "dog" / "1.jpg").rename(source / "cat" / "1.jpg")
    output = append(invoke, source, tmp_path / "out")
    assert "1 image moved (dog/1.jpg is now cat/1.jpg); " not in output
    assert "(dog/1.jpg is now cat/1.jpg). Hint" in output
    (source / "cat" / "1.jpg").rename(source / "dog" / "1.jpg")
    append(invoke, source, tmp_path / "out", status=0)
