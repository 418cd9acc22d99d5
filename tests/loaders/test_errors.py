"""Wrong arguments, and damaged and missing files."""

import re
from dataclasses import replace

import numpy as np
import pytest
import torch
from awscrt.checksums import crc32c
from click.testing import CliRunner

import loaders
from loaders.cli import main
from manifests.errors import (
    CallError,
    DamagedError,
    IndexFileError,
    ManifestError,
    ShardError,
    TableError,
)
from manifests.schema import Manifest
from manifests.serialization import checksum_text
from manifests.store import MANIFEST_NAME, manifest_bytes, read_manifest

FORMATS = pytest.mark.parametrize("fmt", ["tfrecord", "webdataset"])


def build(folder, **options):
    # DALI's reader uses the indexes and the labels of the records; a sampler uses the sample
    # tables.
    reader = {} if "sampler" in options else {"shuffle": False}
    defaults = {
        "batch_size": 4,
        "transforms": "imagenet-eval",
        "device": "cpu",
        "num_threads": 2,
        **reader,
    }
    return loaders.build(folder, **{**defaults, **options})


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"batch_size": 0}, "batch_size must be an integer of at least 1, got 0"),
        ({"batch_size": 2.5}, "batch_size must be an integer of at least 1, got 2.5"),
        ({"batch_size": True}, "batch_size must be an integer of at least 1, got True"),
        ({"batch_size": 2**40}, "batch_size must be at most 2147483647, got "),
        ({"prefetch": 1000}, "prefetch must be at most 64, got 1000"),
        ({"fields": None}, "fields must be a list of names, got None"),
        ({"fields": ["label", 3]}, "fields must be a list of names"),
        ({"split": 3}, "split must be the name of a split, got 3"),
        ({"split": None}, 'Hint: pass a name, for example split="train"'),
        ({"device": np.array([0, 1])}, "device must be one of 'auto', 'gpu', 'cpu', got array"),
        ({"hw_decoder_load": True}, "hw_decoder_load must be a number from 0 to 1, got True"),
        ({"transforms": {"CropImage": {"size": 8}}},
         'for example "imagenet-train" or [{"CropImage": {"size": 224}}]'),
        ({"transforms": ["imagenet-eval", "ToTensor"]}, "write transforms='imagenet-eval'"),
        ({"seed": -1}, "seed must be an integer of at least 0, got -1"),
        # The largest integer of a checkpoint.
        ({"seed": 2**63}, "seed must be at most 9223372036854775807, got 9223372036854775808"),
        ({"num_threads": 0}, "num_threads must be an integer of at least 1, got 0"),
        ({"device": "mps"}, "device must be one of 'auto', 'gpu', 'cpu', got 'mps'"),
        ({"dtype": "int8"},
         "dtype must be one of 'float16', 'bfloat16', 'float32', 'uint8', got 'int8'"),
        ({"layout": "CHW"}, "layout must be one of 'NCHW', 'NHWC', got 'CHW'"),
        ({"last_batch": "keep"}, "last_batch must be one of 'drop', 'partial', 'pad', got 'keep'"),
        ({"shuffle": "yes"}, "shuffle must be True, False, \"buffer\" or None, got 'yes'"),
        ({"device_id": 0}, 'device_id=0 selects a GPU, but device is "cpu"'),
        ({"transforms": "imagenet-trian"}, "did you mean 'imagenet-train'?"),
        (
            {"transforms": "zzz"},
            (
                "valid names are 'imagenet-train', 'imagenet-eval', 'reid-train', 'reid-eval',"
                " 'modern-train'"
            ),
        ),
        ({"split": "trian"}, "has no split 'trian'. Hint: did you mean 'train'?"),
        ({"batch_size": 24}, "batch_size=24 is more than the 23 samples of split 'train'"),
    ],
)  # fmt: skip
def test_wrong_arguments(make_dataset, mixed, options, message):
    with pytest.raises(CallError) as caught:
        build(make_dataset("tfrecord", mixed), **options)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_a_machine_without_gpu(make_dataset, mixed):
    folder = make_dataset("tfrecord", mixed)
    with pytest.raises(
        CallError, match=r'device="gpu", but this machine has no GPU\. Hint: set device="cpu"'
    ):
        build(folder, device="gpu")
    assert next(iter(build(folder, device="auto")))[0].device.type == "cpu"


@pytest.mark.parametrize("name", [None, 3, "", b"data", [3]])
def test_dataset_must_be_a_path(name):
    with pytest.raises(
        CallError, match=r"dataset must be a path, got .*\. Hint: pass the folder of a prepared"
    ):
        build(name)


@pytest.mark.parametrize("name", ["a\0b", "\ud800"])
def test_impossible_folder_names(name):
    with pytest.raises(CallError, match="cannot be the name of a folder"):
        build(name)


def test_image_sizes_are_bounded(make_dataset, mixed):
    with pytest.raises(
        CallError, match=r"size must be \(height, width\), each at most 32768, got "
    ):
        build(make_dataset("tfrecord", mixed), transforms=[{"ResizeImage": {"size": 10**9}}])


def test_a_folder_without_manifest(tmp_path):
    with pytest.raises(ManifestError, match="the dataset is incomplete"):
        build(tmp_path)


def test_a_folder_of_images(tmp_path):
    (tmp_path / "cat").mkdir()
    (tmp_path / "cat/1.jpg").write_bytes(b"")
    message = f"this is a folder of images. Hint: run `dataprep convert --src {tmp_path}` first"
    with pytest.raises(CallError, match=re.escape(message)):
        build(tmp_path)
    for command in (["preview", tmp_path, "--transforms", "imagenet-eval"],
                    ["bench", tmp_path, "--transforms", "imagenet-eval"],
                    ["memory", tmp_path, "--batch-size", 2]):  # fmt: skip
        done = CliRunner().invoke(main, [str(word) for word in command])
        assert done.exit_code == 2
        assert message in done.stderr


def test_every_use_of_a_closed_loader_raises(make_dataset, mixed):
    with build(make_dataset("tfrecord", mixed)) as loader:
        iteration = iter(loader)
        next(iteration)
    for use in (lambda: iter(loader), lambda: next(iteration), loader.__enter__):
        with pytest.raises(CallError, match=r"this loader is closed\. Hint: build a new loader"):
            use()
    loader.close()


def test_a_second_iterator_invalidates_the_first(make_dataset, mixed):
    loader = build(make_dataset("tfrecord", mixed))
    first = iter(loader)
    next(first)
    next(iter(loader))
    with pytest.raises(CallError, match="this iterator is invalid: the loader has a newer one"):
        next(first)


def test_a_loop_inside_of_a_loop_over_the_same_loader_is_an_error(make_dataset, mixed):
    """Also if the inner loop ends: the outer one would end early, as if the epoch were complete."""
    with build(make_dataset("tfrecord", mixed)) as loader:
        outer = iter(loader)
        next(outer)
        assert len([*loader]) == len(loader) > 1
        with pytest.raises(CallError, match="this iterator is invalid: the loader has a newer one"):
            next(outer)
        assert len([*loader]) == len(loader)


@FORMATS
def test_a_missing_or_truncated_shard(make_dataset, mixed, fmt):
    folder = make_dataset(fmt, mixed)
    shard, *_ = sorted(folder.glob("train-00001.t*"))
    shard.write_bytes(shard.read_bytes()[:-1])
    with pytest.raises(ShardError, match=r"bytes long, but the manifest states .*verify"):
        build(folder)
    shard.unlink()
    with pytest.raises(ShardError, match="the file cannot be read"):
        build(folder)


@FORMATS
def test_an_index_of_another_length(make_dataset, mixed, fmt):
    folder = make_dataset(fmt, mixed)
    index = folder / "train-00000.idx"
    index.write_text(index.read_text() + "\n")
    with pytest.raises(IndexFileError, match="bytes long"):
        build(folder)


@FORMATS
@pytest.mark.parametrize(
    ("line", "text", "message"),
    [
        (
            1,
            "rubbish",
            {
                "tfrecord": "the line does not have the form",
                "webdataset": "does not start with v1.2 and a count",
            },
        ),
        (
            3,
            "png x 9 a.png",
            {
                "tfrecord": "the line does not have the form",
                "webdataset": "the offset or the size in the line is not a number",
            },
        ),
        (
            3,
            "png 512 9",
            {
                "tfrecord": "the line does not have the form",
                "webdataset": "the line does not have the form",
            },
        ),
        (
            3,
            "0 99999999",
            {
                "tfrecord": "points past the end of its shard",
                "webdataset": "the line does not have the form",
            },
        ),
        (
            3,
            "png 512 9999999 a.png",
            {
                "tfrecord": "the line does not have the form",
                "webdataset": "points past the end of its shard",
            },
        ),
        (
            3,
            f"0 {'9' * 5000}",
            {
                "tfrecord": "the offset or the size in the line is not a number",
                "webdataset": "the line does not have the form",
            },
        ),
    ],
)
def test_a_damaged_index_is_named(make_dataset, mixed, fmt, line, text, message):
    folder = make_dataset(fmt, mixed)
    index = folder / "train-00001.idx"
    lines = index.read_text().splitlines()
    lines[line - 1] = text
    index.write_text("".join(f"{each}\n" for each in lines))
    update_index_entry(folder, index)
    with pytest.raises(IndexFileError, match=message[fmt]) as caught:
        list(build(folder, last_batch="partial"))
    assert (caught.value.file, caught.value.line) == (str(index), line)
    assert "dataprep verify" in caught.value.hint


@FORMATS
def test_an_index_of_other_records_is_found_by_its_checksum(make_dataset, mixed, fmt):
    """Every line is well-formed, but one has a wrong offset or a wrong extension."""
    folder = make_dataset(fmt, mixed)
    index = folder / "train-00001.idx"
    original = index.read_bytes()
    lines = original.decode().splitlines()
    words = lines[2].split()
    words[0] = str(int(words[0]) - 7) if fmt == "tfrecord" else "xyz"
    lines[2] = " ".join(words)
    index.write_text("".join(f"{each}\n" for each in lines))
    update_index_entry(folder, index, checksum=checksum_text(crc32c(original)))
    with pytest.raises(IndexFileError, match="its checksum differs") as caught:
        list(build(folder, last_batch="partial"))
    assert caught.value.file == str(index)


def test_an_index_with_fewer_samples(make_dataset, mixed):
    folder = make_dataset("tfrecord", mixed)
    index = folder / "train-00000.idx"
    index.write_text("".join(index.read_text().splitlines(keepends=True)[:-1]))
    update_index_entry(folder, index)
    with pytest.raises(IndexFileError, match="has 7 samples, but the manifest states 8") as caught:
        build(folder)
    assert caught.value.file == str(index)


def test_a_table_with_fewer_rows(make_dataset, mixed):
    folder = make_dataset("tfrecord", mixed, labels_in="tables")
    other = make_dataset("tfrecord", mixed[:5], labels_in="tables", name="other")
    (folder / "train-00000.parquet").write_bytes((other / "train-00000.parquet").read_bytes())
    with pytest.raises(TableError, match="has 2 rows, but its shard has 8 samples"):
        build(folder)


@FORMATS
@pytest.mark.parametrize("image", [b"<html>", b"", b"\xff\xd8\xff\xe0 cut", b"GIF89a" + bytes(30)])
def test_an_image_that_cannot_be_decoded(make_dataset, mixed, fmt, image):
    samples = [*mixed[:9], ("jpg", image, 9), *mixed[10:]]
    loader = build(make_dataset(fmt, samples))
    for _ in range(2):
        with pytest.raises(DamagedError) as caught:
            list(loader)
        assert "cannot be decoded (DALI says: " in str(caught.value) or "cannot be read" in str(
            caught.value
        )
        assert "dataprep verify --decode" in str(caught.value)
        assert "\n" not in str(caught.value)
    loader.close()


@pytest.mark.parametrize("text", [b"cat", b"", b"1.5", b"99999999999999999999"])
def test_a_label_that_is_not_a_number(make_dataset, mixed, text):
    folder = make_dataset(
        "webdataset", mixed, label_texts=lambda label: text if label == 7 else b"%d" % label
    )
    with pytest.raises(DamagedError, match="the label of a record is not a decimal number"):
        list(build(folder, last_batch="partial"))


@FORMATS
@pytest.mark.parametrize(("offset", "label"), [(-1, "-1"), (1, "23")])
def test_a_label_that_is_not_a_class(make_dataset, mixed, fmt, offset, label):
    folder = make_dataset(fmt, mixed)
    manifest = read_manifest(folder)
    rewrite(folder, manifest, label_offset=offset)
    with pytest.raises(DamagedError, match=f"has the label {label}, but labels go from 0 to 22"):
        list(build(folder, last_batch="partial"))


@FORMATS
def test_records_without_a_label(make_dataset, mixed, fmt):
    folder = make_dataset(fmt, mixed, labels_in="tables")
    name = "image/class/label" if fmt == "tfrecord" else "cls"
    rewrite(folder, read_manifest(folder), label=name)
    with pytest.raises(DamagedError):
        list(build(folder, last_batch="partial"))


def test_a_record_without_an_image(make_dataset, mixed):
    folder = make_dataset("webdataset", mixed)
    rewrite(folder, read_manifest(folder), image=("jpg", "png"))
    with pytest.raises(DamagedError):
        list(build(folder, last_batch="partial"))


def rewrite(folder, manifest: Manifest, **components):
    changed = replace(manifest, components=replace(manifest.components, **components))
    (folder / MANIFEST_NAME).write_bytes(manifest_bytes(changed))


def update_index_entry(folder, index, checksum=None):
    """Rewrite the manifest with the current length of the index and a checksum."""
    manifest = read_manifest(folder)
    (split,) = manifest.splits
    shards = tuple(
        (
            replace(
                shard, index=replace(shard.index, bytes=index.stat().st_size, checksum=checksum)
            )
            if shard.index.name == index.name
            else shard
        )
        for shard in split.shards
    )
    changed = replace(manifest, splits=(replace(split, shards=shards),))
    (folder / MANIFEST_NAME).write_bytes(manifest_bytes(changed))
