"""The lines of Python in docs/sources.md write the images of array datasets into class folders."""

from __future__ import annotations

import gzip
import os
import pickle
import re
from pathlib import Path

import numpy as np
import pytest
from helpers.sources import read
from PIL import Image

from manifests.errors import CallError, SourceError

PAGE = Path(__file__).parents[2] / "docs/sources.md"
RNG = np.random.default_rng(3)


def pixels(count, side):
    return RNG.integers(0, 256, (count, side, side, 3), np.uint8)


IMAGES = {"train": pixels(4, 32), "test": pixels(2, 32)}
LARGE = {"train": pixels(4, 96), "test": pixels(2, 96)}
LABELS = {"train": [1, 0, 1, 0], "test": [0, 1]}


def planes(images):
    """Return images with the channels first, as CIFAR has them: uint8 [N, 3072]."""
    return images.transpose(0, 3, 1, 2).reshape(len(images), -1)


def make_cifar10(folder):
    """https://www.cs.toronto.edu/~kriz/cifar.html, Dataset layout."""
    folder = folder / "cifar-10-batches-py"
    folder.mkdir()
    write_pickle(folder / "batches.meta", {"label_names": ["cat", "dog"]})
    for name, split, first in (
        ("data_batch_1", "train", 0), ("data_batch_2", "train", 2), ("test_batch", "test", 0),
    ):  # fmt: skip
        rows = slice(first, first + 2)
        data = {b"data": planes(IMAGES[split][rows]), b"labels": LABELS[split][rows]}
        write_pickle(folder / name, data)


def write_pickle(path, value):
    path.write_bytes(pickle.dumps(value))


def make_cifar100(folder):
    folder = folder / "cifar-100-python"
    folder.mkdir()
    write_pickle(folder / "meta", {"fine_label_names": ["cat", "dog"]})
    (folder / "file.txt~").write_text("")
    for split, images in IMAGES.items():
        write_pickle(folder / split, {b"data": planes(images), b"fine_labels": LABELS[split]})


def make_cifar_binary(folder):
    folder = folder / "cifar-10-batches-bin"
    folder.mkdir()
    for name, split in (("data_batch_1", "train"), ("test_batch", "test")):
        labels = np.array(LABELS[split], np.uint8)[:, None]
        np.concatenate([labels, planes(IMAGES[split])], 1).tofile(folder / f"{name}.bin")


def make_mnist(folder):
    """http://yann.lecun.com/exdb/mnist, The IDX file format; one file is still compressed."""
    folder = folder / "MNIST/raw"
    folder.mkdir(parents=True)
    for name, split in (("train", "train"), ("t10k", "test")):
        gray = IMAGES[split][..., 0]
        head = b"\0\0\x08\x03" + np.array(gray.shape, ">i4").tobytes()
        (folder / f"{name}-images-idx3-ubyte").write_bytes(head + gray.tobytes())
        labels = b"\0\0\x08\x01" + np.array([len(gray)], ">i4").tobytes() + bytes(LABELS[split])
        (folder / f"{name}-labels-idx1-ubyte.gz").write_bytes(gzip.compress(labels))


def make_svhn(folder):
    """http://ufldl.stanford.edu/housenumbers, Format 2: the digit 0 has the label 10."""
    from scipy.io import savemat

    for split, images in IMAGES.items():
        labels = np.array([[each or 10] for each in LABELS[split]], np.uint8)
        savemat(folder / f"{split}_32x32.mat", {"X": images.transpose(1, 2, 3, 0), "y": labels})


def make_stl10(folder):
    """https://cs.stanford.edu/~acoates/stl10: columns of pixels come first."""
    folder = folder / "stl10_binary"
    folder.mkdir()
    (folder / "class_names.txt").write_text("cat\ndog\n")
    for split, images in LARGE.items():
        images.transpose(0, 3, 2, 1).tofile(folder / f"{split}_X.bin")
        (np.array(LABELS[split], np.uint8) + 1).tofile(folder / f"{split}_y.bin")


def make_medmnist(folder):
    """https://medmnist.com, Data Format."""
    arrays = {}
    for split, own in (("train", "train"), ("val", "train"), ("test", "test")):
        arrays[f"{split}_images"] = IMAGES[own]
        arrays[f"{split}_labels"] = np.array(LABELS[own])[:, None]
    np.savez(folder / "pathmnist.npz", **arrays)


#: What the refusal calls each dataset, for which the page has a function of this name.
DATASETS = {
    "cifar10": "CIFAR for Python", "cifar100": "CIFAR for Python", "cifar_binary": "CIFAR in binary files",
    "mnist": "MNIST", "svhn": "SVHN", "stl10": "STL-10", "medmnist": "NumPy, HDF5 or pickled arrays",
}  # fmt: skip


@pytest.mark.parametrize(("name", "what"), DATASETS.items())
def test_arrays_are_refused_and_the_way_out_works(name, what, tmp_path, monkeypatch):
    globals()[f"make_{name}"](tmp_path)
    with pytest.raises(
        SourceError, match=rf"looks like {what}, which is not .* under Arrays of pixels"
    ):
        read(tmp_path)
    for file in tmp_path.rglob("*"):
        if file.suffix in (".npz", ".mat", ".bin") or file.name.endswith("-ubyte"):
            with pytest.raises(CallError, match="is a file of arrays"):
                read(file)
    monkeypatch.chdir(tmp_path)
    text = PAGE.read_text("utf-8")
    code = re.search(r"^```python\n(import gzip\n.*?)^```", text, re.M | re.S)[1]
    lines: dict[str, object] = {}
    exec(compile(code, PAGE, "exec"), lines)
    lines[name]()
    source = read("images")
    assert {*source.splits} >= {"train", "test"}
    names = ("0", "1") if name in ("cifar_binary", "mnist", "svhn", "medmnist") else ("cat", "dog")
    assert source.classes == names
    for split, pixels_of in (LARGE if name == "stl10" else IMAGES).items():
        rows = np.flatnonzero(source.split == source.splits.index(split))
        assert np.bincount(source.label[rows]).tolist() == np.bincount(LABELS[split]).tolist()
        paths = sorted(source.path.take(rows.tolist()).to_pylist(), key=os.path.basename)
        found = [np.asarray(Image.open(f"images/{path}")) for path in paths]
        assert np.array_equal(found, pixels_of[..., 0] if name == "mnist" else pixels_of)
