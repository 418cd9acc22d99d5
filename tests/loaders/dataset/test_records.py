"""DALI's readers return every image and label of a dataset as it was stored."""

import pytest
from helpers.read_back import read_back


@pytest.mark.parametrize("fmt", ["tfrecord", "webdataset"])
@pytest.mark.parametrize("labels_in", ["records", "tables"])
def test_images_and_labels_are_read_bit_for_bit(make_dataset, mixed, fmt, labels_in):
    folder = make_dataset(fmt, mixed, labels_in=labels_in)
    (rows,) = read_back(folder)
    expected = [(data, label) for start in range(3) for _, data, label in mixed[start::3]]
    assert rows == expected


@pytest.mark.parametrize("fmt", ["tfrecord", "webdataset"])
@pytest.mark.parametrize("labels_in", ["records", "tables"])
def test_a_shuffled_epoch_contains_every_sample_once(make_dataset, mixed, fmt, labels_in):
    folder = make_dataset(fmt, mixed, labels_in=labels_in)
    epochs = list(read_back(folder, shuffle=True, epochs=4))
    expected = sorted((data, label) for _, data, label in mixed)
    assert all(sorted(rows) == expected for rows in epochs)
    assert len({tuple(label for _, label in rows) for rows in epochs}) == 4


@pytest.mark.parametrize("fmt", ["tfrecord", "webdataset"])
def test_labels_stored_from_one(make_dataset, mixed, fmt):
    folder = make_dataset(fmt, mixed, label_offset=-1)
    (rows,) = read_back(folder)
    assert sorted(label for _, label in rows) == list(range(23))


def test_a_text_label_with_a_line_feed(make_dataset, mixed):
    folder = make_dataset("webdataset", mixed, label_texts=lambda label: b"%d\n" % label)
    (rows,) = read_back(folder)
    assert sorted(label for _, label in rows) == list(range(23))


@pytest.mark.parametrize("fmt", ["tfrecord", "webdataset"])
@pytest.mark.parametrize("path", ["a:1:b", "./a:1:b/", "../here//a:1:b"])
def test_labels_from_tables_whatever_the_path_of_the_folder(
    make_dataset, mixed, fmt, path, monkeypatch
):
    folder = make_dataset(fmt, mixed, labels_in="tables", name="a:1:b")
    link = folder.parent.parent / "here"
    link.unlink(missing_ok=True)
    link.symlink_to(folder.parent)
    monkeypatch.chdir(folder.parent)
    (rows,) = read_back(path)
    assert sorted(label for _, label in rows) == list(range(23))
