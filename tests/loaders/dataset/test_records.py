"""DALI's readers return every image and label of a dataset as it was stored."""

import pytest
from helpers.datasets import FORMATS
from helpers.read_back import read_back

EACH_FORMAT = pytest.mark.parametrize("fmt", FORMATS)


@EACH_FORMAT
@pytest.mark.parametrize("labels_in", ["records", "tables"])
def test_images_and_labels_are_read_bit_for_bit(make_dataset, mixed, fmt, labels_in):
    """Shuffled, every epoch has each sample once, in another order."""
    folder = make_dataset(fmt, mixed, labels_in=labels_in)
    (rows,) = read_back(folder)
    assert rows == [(data, label) for start in range(3) for _, data, label in mixed[start::3]]
    epochs = list(read_back(folder, shuffle=True, epochs=4))
    assert [sorted(each) for each in epochs] == [sorted(rows)] * 4
    assert len({tuple(label for _, label in each) for each in epochs}) == 4


@pytest.mark.parametrize(
    ("fmt", "options"),
    [
        ("tfrecord", {"label_offset": -1}),
        ("webdataset", {"label_offset": -1}),
        ("webdataset", {"label_texts": lambda label: b"%d\n" % label}),
    ],
)
def test_labels_that_are_stored_in_another_form(make_dataset, mixed, fmt, options):
    (rows,) = read_back(make_dataset(fmt, mixed, **options))
    assert sorted(label for _, label in rows) == list(range(23))


@EACH_FORMAT
@pytest.mark.parametrize("path", ["a:1:b", "../here//a:1:b"])
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
