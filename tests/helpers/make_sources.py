"""The same images in every kind of source that `dataprep convert` reads."""

from __future__ import annotations

import gzip
import io
import json
import shutil
import struct
import tarfile
import zipfile
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import lmdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import scipy.io
from google.protobuf.internal.encoder import BytesEncoder

from dataprep.formats import FORMATS
from dataprep.options import Options
from dataprep.run.convert import convert_dataset
from dataprep.sources import read_source
from helpers.pictures import encode, photo
from helpers.tables import write_table
from manifests.schema import Format

CLASSES = ("cat", "dog", "eel")


class Image(NamedTuple):
    """An image to put into a source."""

    split: str
    name: str
    label: int
    data: bytes

    @property
    def class_name(self) -> str:
        return CLASSES[self.label]

    @property
    def path(self) -> str:
        return f"{self.split}/{self.class_name}/{self.name}"


class Made(NamedTuple):
    """A source: what to give as ``--src``, and the name of each image in the column ``source``.

    Damage of the container must be noticed. It is `None` if every image is a file of its own.
    """

    src: Path
    names: Sequence[str]
    container: Path | None = None
    classes: tuple[str, ...] = CLASSES


def _images() -> list[Image]:
    images = []
    for number in range(18):
        split = "val" if number % 3 == 2 else "train"
        data = encode(photo(number, 20 + number, 16))
        images.append(Image(split, f"{number:02d}.jpg", number // 2 % 3, data))
    images.append(Image("train", "broken.jpg", 1, encode(photo(99, 40, 40))[:-50]))
    # Sorted as every source lists them: by split, class and name.
    return sorted(images, key=lambda image: (image.split, image.label, image.name))


IMAGES = _images()
#: The image that is not valid, and all others.
BROKEN = next(number for number, image in enumerate(IMAGES) if image.name == "broken.jpg")
VALID = [image for number, image in enumerate(IMAGES) if number != BROKEN]


def image_folder(folder: Path, images: Sequence[Image] = IMAGES) -> Made:
    for image in images:
        path = folder / image.path
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(image.data)
    return Made(folder, [image.path for image in images])


def lists(folder: Path, images: Sequence[Image] = IMAGES) -> Made:
    made = image_folder(folder, images)
    for split in ("train", "val"):
        lines = (f"{image.path} {image.class_name}\n" for image in images if image.split == split)
        (folder / f"{split}_list.txt").write_text("".join(lines))
    return made


def _table(kind: str, folder: Path, images: Sequence[Image] = IMAGES) -> Made:
    columns: dict[str, list[str]] = {"path": [], "label": [], "split": []}
    for image in images:
        for name, value in zip(columns, (image.path, image.class_name, image.split), strict=True):
            columns[name].append(value)
    made = image_folder(folder, images)
    return made._replace(src=write_table(folder, kind, columns).rename(folder / f"all{kind}"))


FEATURES = {"image": {"_type": "Image"}, "label": {"names": [*CLASSES], "_type": "ClassLabel"}}


def hugging_face(folder: Path, images: Sequence[Image] = IMAGES) -> Made:
    """Two files of train and one of validation, with row groups of four images."""
    (folder / "data").mkdir(parents=True)
    metadata = {"huggingface": json.dumps({"info": {"features": FEATURES}})}
    train = [image for image in images if image.split == "train"]
    parts = {
        "data/train-00000-of-00002.parquet": train[:7],
        "data/train-00001-of-00002.parquet": train[7:],
        "data/validation-00000-of-00001.parquet": [i for i in images if i.split == "val"],
    }
    names = {}
    for name, part in parts.items():
        content = [{"bytes": image.data, "path": image.name} for image in part]
        labels = pa.array([image.label for image in part], pa.int64())
        table = pa.table({"image": content, "label": labels}).replace_schema_metadata(metadata)
        pq.write_table(table, folder / name, row_group_size=4)
        for row, image in enumerate(part):
            names[image.path] = f"{name}/{row}"
    return Made(folder, [names[image.path] for image in images], folder / next(iter(parts)))


def tar_of(files: Sequence[tuple[str, bytes]]) -> bytes:
    """Return a tar archive of some files."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as archive:
        for name, data in files:
            member = tarfile.TarInfo(name)
            member.size = len(data)
            archive.addfile(member, io.BytesIO(data))
    return out.getvalue()


def zip_of(path: Path, files: Sequence[tuple[str, bytes]], **options: Any) -> Path:
    """Write a zip archive of some files."""
    with zipfile.ZipFile(path, "w", **options) as archive:
        for name, data in files:
            archive.writestr(name, data)
    return path


def zip_archive(folder: Path, images: Sequence[Image] = IMAGES) -> Made:
    """A zip archive with one more folder and other files, where every second member is compressed."""
    folder.mkdir()
    with zipfile.ZipFile(folder / "photos.zip", "w") as archive:
        for number, image in enumerate(images):
            method = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)[number % 2]
            archive.writestr(f"photos/{image.path}", image.data, method)
        archive.writestr("__MACOSX/photos/train/cat/._00.jpg", b"x")
        archive.writestr("photos/README.md", b"x")
    names = [f"photos.zip/photos/{image.path}" for image in images]
    return Made(folder / "photos.zip", names, folder / "photos.zip")


def tar_archive(folder: Path, images: Sequence[Image] = IMAGES) -> Made:
    folder.mkdir()
    files = [(f"./{image.path}", image.data) for image in reversed(images)]
    (folder / "photos.tar").write_bytes(tar_of(files))
    names = [f"photos.tar/{image.path}" for image in images]
    return Made(folder / "photos.tar", names, folder / "photos.tar")


def tar_of_tars(folder: Path, images: Sequence[Image] = IMAGES) -> Made:
    """A tar for each class of each split, in a tar, as ImageNet's training set is."""
    folder.mkdir()
    members: dict[str, list[tuple[str, bytes]]] = {}
    for image in images:
        name = f"{image.split}/{image.class_name}.tar"
        members.setdefault(name, []).append((image.name, image.data))
    inner = [(name, tar_of(members[name])) for name in sorted(members)]
    (folder / "all.tar").write_bytes(tar_of(inner))
    names = [f"all.tar/{image.path}" for image in images]
    return Made(folder / "all.tar", names, folder / "all.tar")


WNIDS = ("n00000003", "n00000005", "n00000009")


def imagenet_tars(folder: Path, images: Sequence[Image] = IMAGES) -> Made:
    """ImageNet's archives, where ``ILSVRC2012_ID`` counts the classes from the last to the first."""
    folder.mkdir()
    train = [image for image in images if image.split == "train"]
    val = [image for image in images if image.split == "val"]
    inner = []
    for label, wnid in enumerate(WNIDS):
        own = [(i.name.replace(".jpg", ".JPEG"), i.data) for i in train if i.label == label]
        inner.append((f"{wnid}.tar", tar_of(own)))
    (folder / "ILSVRC2012_img_train.tar").write_bytes(tar_of(inner))
    val_names, members = {}, []
    for number, image in enumerate(val, 1):
        val_names[image.name] = f"ILSVRC2012_val_{number:08d}.JPEG"
        members.append((val_names[image.name], image.data))
    (folder / "ILSVRC2012_img_val.tar").write_bytes(tar_of(members))
    truth = "".join(f"{3 - image.label}\n" for image in val).encode()
    data = "ILSVRC2012_devkit_t12/data"
    kit = [
        (f"{data}/meta.mat", meta_mat()),
        (f"{data}/ILSVRC2012_validation_ground_truth.txt", truth),
    ]
    (folder / "ILSVRC2012_devkit_t12.tar.gz").write_bytes(gzip.compress(tar_of(kit)))
    names = [
        f"ILSVRC2012_img_val.tar/{val_names[image.name]}" if image.split == "val" else
        f"ILSVRC2012_img_train.tar/{WNIDS[image.label]}/{image.name.replace('.jpg', '.JPEG')}"
        for image in images
    ]  # fmt: skip
    return Made(folder, names, folder / "ILSVRC2012_img_train.tar", classes=WNIDS)


def meta_mat() -> bytes:
    """Return the classes as MATLAB stores them: the last one is a synset above the others."""
    fields = ("ILSVRC2012_ID", "WNID", "words", "gloss", "num_children", "children")
    synsets = np.zeros((len(WNIDS) + 1, 1), [(name, object) for name in fields])
    for number, wnid in enumerate(reversed(WNIDS)):
        synsets[number, 0] = (np.uint16(number + 1), wnid, "fish", "a fish", 0.0, np.zeros((0, 0)))
    children = np.array([1, 2, 3], np.uint8)
    synsets[-1, 0] = (np.uint16(1001), "n00000001", "animal", "a being", 3.0, children)
    out = io.BytesIO()
    scipy.io.savemat(out, {"synsets": synsets}, do_compression=True)
    return out.getvalue()


def _prepared(folder: Path, images: Sequence[Image], fmt: Format) -> Made:
    """A dataset of six images per shard. Only images that are valid can be in one."""
    source = image_folder(folder / "original", images)
    options = Options(fmt=fmt, shard_samples=6, validate="none", seed=3)
    convert_dataset(read_source(str(source.src)), str(folder / "dataset"), options, workers=1)
    shutil.rmtree(folder / "original")
    shard = sorted((folder / "dataset").glob("train-*.idx"))[0].with_suffix(FORMATS[fmt].SUFFIX)
    return Made(folder / "dataset", [image.path for image in images], shard)


def tfrecord_dataset(folder: Path, images: Sequence[Image] = IMAGES) -> Made:
    return _prepared(folder, images, "tfrecord")


def webdataset_dataset(folder: Path, images: Sequence[Image] = IMAGES) -> Made:
    return _prepared(folder, images, "webdataset")


def recordio(folder: Path, images: Sequence[Image] = IMAGES) -> Made:
    """Files of im2rec with their lists and indexes. Half of the labels follow."""
    folder.mkdir()
    for split in ("train", "val"):
        data, lst, idx = b"", "", ""
        for number, image in enumerate(image for image in images if image.split == split):
            lst += f"{number}\t{image.label}\t{image.class_name}/{image.name}\n"
            idx += f"{number}\t{len(data)}\n"
            data += record_of(image.data, image.label, number, labels=number % 2)
        (folder / f"{split}.rec").write_bytes(data)
        (folder / f"{split}.lst").write_text(lst)
        (folder / f"{split}.idx").write_text(idx)
    names = [f"{image.split}.rec/{image.class_name}/{image.name}" for image in images]
    return Made(folder, names, folder / "train.rec", classes=("0", "1", "2"))


_MAGIC = struct.pack("<I", 0xCED7230A)


def record_of(image: bytes, label: float, number: int, *, labels: int = 0) -> bytes:
    """Return an MXNet record, in several parts if the data contains the magic number (dmlc-core, recordio.cc)."""
    data = (
        struct.pack("<IfQQ", labels, 0 if labels else label, number, 0)
        + struct.pack("<f", label) * labels
        + image
    )
    cuts = [at for at in range(0, len(data) - 3, 4) if data[at : at + 4] == _MAGIC]
    record, start = b"", 0
    for part, cut in enumerate([*cuts, len(data)]):
        flag = 0 if not cuts else 1 if part == 0 else 3 if part == len(cuts) else 2
        piece, start = data[start:cut], cut + 4
        record += _MAGIC + struct.pack("<I", flag << 29 | len(piece)) + piece
        record += bytes(-len(piece) % 4)
    return record


def caffe_lmdb(folder: Path, images: Sequence[Image] = IMAGES) -> Made:
    """Two databases, as Caffe's ``convert_imageset --encoded`` makes them."""
    names = {}
    for split in ("train", "val"):
        values = {}
        for image in images:
            if image.split == split:
                key = f"{len(values):08d}_{image.name}"
                values[key.encode()] = datum_of(image.data, image.label)
                names[image.path] = f"cats_{split}_lmdb/data.mdb/{key}"
        write_lmdb(folder / f"cats_{split}_lmdb", values)
    made = Made(folder, [names[image.path] for image in images], classes=("0", "1", "2"))
    return made._replace(container=folder / "cats_train_lmdb" / "data.mdb")


def lsun_lmdb(folder: Path, images: Sequence[Image] = IMAGES) -> Made:
    """A database for each class and split, with the images themselves."""
    values: dict[str, dict[bytes, bytes]] = {}
    for image in images:
        database = values.setdefault(f"{image.class_name}_{image.split}_lmdb", {})
        database[image.name.encode()] = image.data
    for name, database in values.items():
        write_lmdb(folder / name, database)
    names = [f"{image.class_name}_{image.split}_lmdb/data.mdb/{image.name}" for image in images]
    return Made(folder, names, folder / "dog_train_lmdb" / "data.mdb")


def write_lmdb(folder: Path, values: Mapping[bytes, bytes]) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    with lmdb.open(str(folder), map_size=1 << 26) as env, env.begin(write=True) as transaction:
        for key, value in values.items():
            transaction.put(key, value)
    (folder / "lock.mdb").unlink()
    return folder


def datum_of(image: bytes, label: int, *, encoded: bool = True) -> bytes:
    """Return a ``Datum`` of Caffe: channels, height, width, data, label, encoded."""
    out = io.BytesIO(b"\x08\x03\x10\x00\x18\x00")
    out.seek(0, io.SEEK_END)
    BytesEncoder(4, False, False)(out.write, image, False)
    return out.getvalue() + b"\x28" + bytes([label, 0x38, encoded])


#: All kinds of sources.
MAKERS: dict[str, Callable[..., Made]] = {
    "image folder": image_folder, "lists": lists, "csv": partial(_table, ".csv"),
    "json lines": partial(_table, ".jsonl"), "parquet table": partial(_table, ".parquet"),
    "hugging face": hugging_face, "zip": zip_archive,
    "tar": tar_archive, "tar of tars": tar_of_tars, "imagenet": imagenet_tars,
    "tfrecord dataset": tfrecord_dataset, "webdataset dataset": webdataset_dataset,
    "recordio": recordio, "lmdb of Caffe": caffe_lmdb, "lmdb of LSUN": lsun_lmdb,
}  # fmt: skip
