"""`dataprep index`: indexes equal those of NVIDIA's tools, images are not read, and DALI can read the dataset."""

from __future__ import annotations

import json
import os
import tarfile
from pathlib import Path
from unittest import mock

import pyarrow.parquet as pq
import pytest
from helpers import oracles
from helpers.datasets import FORMATS, flip

from dataprep.indexing import index as index_module
from dataprep.indexing.index import index_shards
from dataprep.ledger.state import Journal, journal_bytes
from dataprep.options import IndexOptions
from dataprep.storage.temporary import JOURNAL_NAME
from dataprep.verification.verify import verify_dataset
from manifests.errors import CallError, ShardError
from manifests.store import read_manifest
from manifests.tables import read_table

SUFFIXES = (".tar", ".tfrecord", ".tfrecords", ".tfrec", ".record")


def sidecar(shard, suffix):
    return shard.with_suffix(suffix) if shard.suffix in SUFFIXES else Path(f"{shard}{suffix}")


def index(*paths, workers=1, **options):
    return index_shards([str(path) for path in paths], IndexOptions(**options), workers=workers)


def refused(error, message, folder, **options):
    with pytest.raises(error, match=message):
        index(folder, **options)


def index_folder(folder, **options):
    result = index(folder, **options)
    assert result.errors == ()
    assert read_manifest(folder) == result.manifest
    return result


def check(folder, expected, tmp_path, *, offset=0, dali=True, official=True, **options):
    """Index a folder; compare index, table and manifest with the expected samples and with what DALI reads.

    Args:
        expected: (image, stored label) of every sample, by shard.
        offset: the value of `--label-offset`.
    """
    result = index_folder(folder, label_offset=offset, **options)
    components = result.manifest.components
    least = offset + min(label for samples in expected.values() for _, label in samples)
    assert any(f"no record has a label below {least}" in text for text in result.notices) == (
        least > 0
    )
    for name, samples in expected.items():
        shard = Path(folder, name)
        data = shard.read_bytes()
        rows = read_table(sidecar(shard, ".parquet")).to_pylist()
        found = [(data[row["offset"] :][: row["size"]], row["label"]) for row in rows]
        assert found == [(image, label + offset) for image, label in samples]
        if official:
            expected_index = oracles.official_index(shard, tmp_path / "official.idx")
            assert sidecar(shard, ".idx").read_bytes() == expected_index
        assert len({row["key"] for row in rows}) == len(rows)
    shards = [shard for split in result.manifest.splits for shard in split.shards]
    assert sorted(shard.name for shard in shards) == sorted(expected)
    assert sum(shard.samples for shard in shards) == sum(map(len, expected.values()))
    if dali:
        paths = [Path(folder, name) for name in expected]
        read = oracles.read_with_dali(
            paths, [sidecar(path, ".idx") for path in paths], components.image, components.label
        )
        assert read == [sample for samples in expected.values() for sample in samples]
    assert verify_dataset(str(folder), workers=1).problems == ()
    return result


def labeled(images, first=0):
    return [(image, first + number % 3) for number, image in enumerate(images)]


def shard_of(kind, path, samples, order=-1):
    """Write a shard; its suffix is its kind."""
    if kind == "tfrecord":
        records = [example(*sample, order=order) for sample in samples]
        oracles.write_tfrecord(path.with_suffix(".tfrecord"), records)
    else:
        oracles.write_tar(path.with_suffix(".tar"), members(samples))


@pytest.fixture
def folder(tmp_path):
    path = tmp_path / "downloaded shards"
    path.mkdir()
    return path


# --- TFRecord -----------------------------------------------------------------------------------


def example(
    image, label, *, order=1, image_name="image/encoded", label_name="image/class/label", **more
):
    features = {
        image_name: image,
        "image/colorspace": b"RGB",
        label_name: label,
        "image/object/bbox/xmin": [0.1, 0.2],
        "image/object/bbox/label": [7, 8],
        "image/filename": b"n01440764_1.JPEG",
        **more,
    }
    return oracles.make_example(dict(list(features.items())[::order]))


@pytest.mark.parametrize("order", [1, -1], ids=["image first", "image last"])
def test_tfrecord_features_in_any_order(folder, tmp_path, jpegs, order):
    """Records may name their classes, and a name may have several values."""
    samples = labeled(jpegs)
    names = [b"cat", b"dog", [b"eel", b"Anguilla"]] if order > 0 else [b"cat", b"dog", b"eel"]
    records = [example(*s, order=order, **{"image/class/text": names[s[1]]}) for s in samples]
    oracles.write_tfrecord(folder / "train.tfrecord", records)
    result = check(folder, {"train.tfrecord": samples}, tmp_path)
    assert result.manifest.components.image == ("image/encoded",)
    assert result.manifest.classes == (("cat", "dog", "2") if order > 0 else ("cat", "dog", "eel"))


@pytest.mark.parametrize(
    ("names", "message"),
    [
        (["cat", "dog", "cat", "cat"], "label 1 is both 'dog' and 'cat'"),
        (["cat", "cat"], "labels 0 and 1 are both 'cat'"),
        (["cat", "dog"], None),
    ],
)
@pytest.mark.parametrize("files", [1, 2])
def test_names_that_contradict_each_other_are_not_used(folder, jpegs, names, message, files):
    records = []
    for number, name in enumerate(names):
        records.append(example(jpegs[0], number % 2, **{"image/class/text": name.encode()}))
    for file in range(files):
        some = records[file * len(records) // files : (file + 1) * len(records) // files]
        oracles.write_tfrecord(folder / f"{file}.tfrecord", some)
    result = index_folder(folder)
    assert result.manifest.classes == (("0", "1") if message else ("cat", "dog"))
    assert any(str(message) in text for text in result.notices) == bool(message)
    result = index_folder(folder, classes=("a", "b"))
    assert result.manifest.classes == ("a", "b")
    assert not any("are not used" in text for text in result.notices)


def test_tfrecord_written_by_tensorflow_with_labels_from_one(folder, tmp_path, jpegs):
    tf = pytest.importorskip("tensorflow")
    names = [f"train-{n:05d}-of-00002" for n in range(2)] + ["validation-00000-of-00001"]
    parts = [labeled(jpegs[:4], 1), labeled(jpegs[4:], 1), labeled(jpegs[:2], 1)]
    for name, part in zip(names, parts, strict=True):
        with tf.io.TFRecordWriter(str(folder / name)) as writer:
            for image, label in part:
                text = {"image/class/text": [b"cat", b"dog", b"eel"][label - 1]}
                written = tf.train.Example.FromString(example(image, label, **text))
                writer.write(written.SerializeToString())
    result = check(folder, dict(zip(names, parts, strict=True)), tmp_path, offset=-1)
    found = [(split.name, split.samples) for split in result.manifest.splits]
    assert found == [("train", len(jpegs)), ("val", 2)]
    assert result.manifest.classes == ("cat", "dog", "eel")
    assert result.manifest.components.label_offset == -1


def test_tfrecord_with_other_feature_names_and_two_images_in_a_record(folder, tmp_path, jpegs):
    samples, names = labeled(jpegs), {"image_name": "picture", "label_name": "what"}
    records = [example(*s, **names, mask=b"\0\1\2", **{"class": 9}) for s in samples]
    oracles.write_tfrecord(folder / "a.tfrec", records)
    for name in ("missing", "what"):
        message = rf"--image {name}: .*no image of that name.*features are:.*picture"
        refused(CallError, message, folder, image=name, label="what")
    check(folder, {"a.tfrec": samples}, tmp_path, label="what")
    records = [example(*s, image_name="left", right=jpegs[0]) for s in samples]
    oracles.write_tfrecord(folder / "a.tfrec", records)
    message = r"more than one feature contains an image.*left.*right.*--image"
    refused(ShardError, message, folder, overwrite=True)
    check(folder, {"a.tfrec": samples}, tmp_path, image="left", overwrite=True)


# --- WebDataset ---------------------------------------------------------------------------------


def test_shards_of_webdataset_shard_writer(folder, tmp_path, jpegs, photographs):
    import webdataset

    with webdataset.ShardWriter(str(folder / "train-%04d.tar"), maxcount=6, verbose=0) as writer:
        for number, (extension, image) in enumerate(photographs):
            sample = {extension: image, "cls": number % 3, "json": {"n": number}}
            writer.write({"__key__": f"sub/dir/{number:06d}", **sample})
    samples = labeled([image for _, image in photographs])
    expected = {f"train-{n:04d}.tar": samples[6 * n :][:6] for n in range(3)}
    result = check(folder, expected, tmp_path)
    assert result.manifest.components.image == ("jpg", "png", "webp")
    for name in expected:
        keys = [sample["__key__"] for sample in oracles.read_with_webdataset(folder / name)]
        assert read_table(sidecar(folder / name, ".parquet"))["key"].to_pylist() == keys


def members(samples, names="{n:04d}"):
    for number, (image, label) in enumerate(samples):
        key = names.format(n=number)
        yield f"{key}.jpg", image
        yield f"{key}.cls", b"%d" % label


LONG = "folder/" * 16
TAR_KINDS = {
    "USTAR, prefix field": (tarfile.USTAR_FORMAT, LONG + "{n:04d}"),
    "GNU, long names": (tarfile.GNU_FORMAT, LONG + "x" * 120 + "{n:04d}"),
    "PAX, long names": (tarfile.PAX_FORMAT, LONG + "x" * 120 + "{n:04d}"),
    "PAX, Unicode": (tarfile.PAX_FORMAT, "日本/é{n:04d}"),
    "leading ./": (tarfile.GNU_FORMAT, "./a/{n:04d}"),
    "dots in folders": (tarfile.USTAR_FORMAT, "v1.0/b.c/{n:04d}"),
}


@pytest.mark.parametrize("kind", TAR_KINDS)
def test_all_tar_formats(folder, tmp_path, jpegs, kind):
    tar_format, names = TAR_KINDS[kind]
    samples = labeled(jpegs)
    oracles.write_tar(folder / "a.tar", members(samples, names), tar_format)
    # For a GNU long name, the official tool mistakes the block with the name for the data of the
    # file.
    check(folder, {"a.tar": samples}, tmp_path, official="GNU, long" not in kind)


@pytest.mark.parametrize(
    ("tar_format", "prefix"),
    [*((kind, "") for kind in ("gnu", "oldgnu", "pax", "ustar", "v7")), ("gnu", "./")],
)
def test_archives_of_tar_with_folders_and_links(folder, tmp_path, jpegs, tar_format, prefix):
    samples = labeled(jpegs)
    source = tmp_path / "source"
    (source / "deep/er").mkdir(parents=True)
    for name, data in members(samples, "deep/er/{n:04d}"):
        (source / name).write_bytes(data)
    (source / "deep/.hidden").write_bytes(b"x")
    (source / "z.link").symlink_to("deep")
    create = ("--create", "--sort=name", f"--format={tar_format}", "-f", folder / "a.tar")
    oracles.tar(*create, "-C", source, f"{prefix}deep", f"{prefix}z.link")
    # In name order, the label of a sample comes before its image.
    check(folder, {"a.tar": samples}, tmp_path)


def test_extensions_with_several_parts(folder, tmp_path, jpegs, photographs):
    png = next(image for extension, image in photographs if extension == "png")
    samples = labeled(jpegs)
    files = []
    for n, (image, label) in enumerate(samples):
        files += [
            (f"{n}.img.jpg", image),
            (f"{n}.seg.png", png),
            (f"{n}.target.cls", b"%d\n" % label),
        ]
    oracles.write_tar(folder / "a.tar", files)
    message = r"more than one image: img\.jpg, seg\.png.*--image"
    refused(ShardError, message, folder, label="target.cls")
    refused(CallError, r"no label.*--label", folder, image="img.jpg")
    message = r"--image missing,png: .*files are: img\.jpg, seg\.png"
    refused(CallError, message, folder, image="missing,png", label="target.cls")
    result = check(folder, {"a.tar": samples}, tmp_path, image="img.jpg", label="target.cls")
    assert result.manifest.components.image == ("img.jpg",)


def test_img2dataset(folder, tmp_path, jpegs):
    samples = labeled(jpegs)
    files = []
    for n, (image, label) in enumerate(samples):
        text = {"url": f"http://x/{n}.jpg", "label": label, "other": label + 5, "key": f"{n:09d}"}
        data = json.dumps({**text, "error_message": None}).encode()
        members = {"jpg": image, "json": data, "txt": b"a caption"}
        files += [(f"{n:09d}.{extension}", content) for extension, content in members.items()]
    oracles.write_tar(folder / "00000.tar", files)
    (folder / "00000_stats.json").write_text("{}")
    (folder / "00000.parquet.txt").write_text("")
    refused(CallError, r"has no label in its first record\. Hint: .*--label-key", folder)
    message = r"--label-key missing: .*its integer members are: label, other"
    refused(CallError, message, folder, label_key="missing")
    result = check(folder, {"00000.tar": samples}, tmp_path, label_key="label", dali=False)
    assert result.manifest.components.label is None
    assert read_table(folder / "00000.parquet")["source"][0].as_py() == "http://x/0.jpg"
    index_folder(folder, label_key="other", label_offset=-5)
    labels = [label for _, label in samples]
    assert read_table(folder / "00000.parquet")["label"].to_pylist() == labels


# --- bytes read -------------------------------------------------------------------------------

COUNT, LENGTH = 12, 1 << 20


@pytest.fixture
def bytes_read(monkeypatch):
    """Record the length of each `os.pread`. Reading with mmap fails the test."""
    lengths = []
    pread = os.pread

    def counted(handle, n, at):
        data = pread(handle, n, at)
        lengths.append(len(data))
        return data

    monkeypatch.setattr(os, "pread", counted)
    monkeypatch.setattr("mmap.mmap", lambda *_, **__: pytest.fail("used mmap"))
    return lengths


@pytest.mark.parametrize("kind", ["tar", "image first", "image last"])
def test_only_headers_are_read(folder, jpegs, bytes_read, kind):
    image = jpegs[0] + bytes(LENGTH - len(jpegs[0]))
    shard_of("tar" if kind == "tar" else "tfrecord", folder / "a", [(image, n) for n in range(COUNT)],
             order=-1 if "last" in kind else 1)  # fmt: skip
    (result,) = index_folder(folder).manifest.splits
    assert result.samples == COUNT
    assert result.shards[0].file.checksum is None
    assert 0 < sum(bytes_read) <= (COUNT + 1) * 5 * 4096
    assert max(bytes_read) <= 1 << 16


@pytest.mark.parametrize("decode", [False, True])
def test_verify_says_what_it_did_not_check(folder, jpegs, invoke, decode):
    half = jpegs[1][: len(jpegs[1]) // 2]
    oracles.write_tar(folder / "a.tar", members(labeled([jpegs[0], half])))
    index(folder)
    output = invoke("verify", folder, *["--decode"] * decode, status=int(decode)).stdout
    assert ("truncated" in output) == decode
    assert ("1 shard has no checksum to compare with. Hint" in output) == decode
    assert ("1 shard has no checksum, so their images were not checked" in output) != decode


def test_broken_images_are_rejected_with_a_reason(folder, tmp_path, jpegs, invoke):
    # One JPEG is damaged in the middle, one is truncated, and one file is not an image.
    good = labeled(jpegs[:2])
    middle = jpegs[2][: len(jpegs[2]) // 2]
    damaged = middle + b"\xff\xd9"
    bad = [(damaged, 0), (jpegs[3][:-200], 1), (b"<html>not found</html>", 1)]
    oracles.write_tar(folder / "a.tar", members([good[0], *bad, good[1]]))
    for validate, rejected in (("none", [3]), ("header", [2, 3]), ("decode", [1, 2, 3])):
        call = ("index", folder, "--validate", validate, "--workers", 1, "--overwrite")
        result = invoke(*call, status=1)
        assert f"left out of the index: {len(rejected)} record" in result.stdout
        rows = [json.loads(line) for line in (folder / "rejected.jsonl").read_text().splitlines()]
        assert [row["source"] for row in rows] == [f"a.tar#{n}" for n in rejected]
        kept = [sample for n, sample in enumerate([good[0], *bad, good[1]]) if n not in rejected]
        read = oracles.read_with_dali([folder / "a.tar"], [folder / "a.idx"], ["jpg"], "cls")
        assert read == kept
        assert verify_dataset(str(folder), workers=1).problems == ()
    oracles.write_tar(folder / "a.tar", members(good))
    index_folder(folder, overwrite=True)
    assert not (folder / "rejected.jsonl").exists()


# --- options, and several shards ----------------------------------------------------------------


def test_splits_and_classes(folder, tmp_path, jpegs):
    samples = labeled(jpegs)
    for name in ("train-0.tar", "my_validation_1.tar", "train/test/0.tar", "other.tar"):
        (folder / name).parent.mkdir(exist_ok=True, parents=True)
        oracles.write_tar(folder / name, members(samples))
    manifest = index_folder(folder).manifest
    assert {split.name: [s.name for s in split.shards] for split in manifest.splits} == {
        "train": ["other.tar", "train-0.tar"],
        "val": ["my_validation_1.tar"],
        "test": ["train/test/0.tar"],  # the word nearest to the shard
    }
    manifest = index_folder(folder, split="fold3", classes=("a", "b", "c", "d")).manifest
    assert [(split.name, len(split.shards)) for split in manifest.splits] == [("fold3", 4)]
    assert manifest.classes == ("a", "b", "c", "d")
    errors = index(folder, classes=("a", "b")).errors
    assert {error.record for error in errors} == {2}
    assert all("range 0 to 1" in str(error) and "--classes" in str(error) for error in errors)


BRACES = {
    "train-{000..002}.tar": ["train-000.tar", "train-001.tar", "train-002.tar"],
    "{train-{001,000},val-0}.tar": ["train-001.tar", "train-000.tar", "val-0.tar"],
    "odd{0..1}.tar": ["odd{0..1}.tar"],
}


@pytest.mark.parametrize("pattern", BRACES)
def test_only_the_given_shards_are_indexed(folder, jpegs, pattern):
    """Braces in a path are expanded as in a shell; a path that exists is used as it is."""
    for name in {"odd0.tar", *(name for names in BRACES.values() for name in names)}:
        oracles.write_tar(folder / name, members(labeled(jpegs)))
    result = index(folder / pattern)
    shards = [shard.name for split in result.manifest.splits for shard in split.shards]
    assert shards == BRACES[pattern]
    assert len(list(folder.glob("*.idx"))) == len(shards)


def test_the_default_number_of_workers_grows_with_the_dataset(folder, jpegs, monkeypatch):
    for number in range(3):
        shard_of("tar", folder / f"{number}", labeled(jpegs))
    run = mock.Mock(side_effect=lambda function, tasks, _: (function(task) for task in tasks))
    monkeypatch.setattr(index_module.engines, "run", run)
    monkeypatch.setattr(index_module.engines, "default_workers", lambda: 2)
    for bytes_per_worker, records_per_worker in ((1 << 30, 1), (1, 20_000), (1, 1)):
        monkeypatch.setattr(index_module, "_BYTES_PER_WORKER", bytes_per_worker)
        monkeypatch.setattr(index_module, "_RECORDS_PER_WORKER", records_per_worker)
        index(folder, workers=None)
    index(folder, workers=None, validate="header")  # reads all bytes
    index(folder, workers=9)
    assert [call.args[2] for call in run.mock_calls] == [1, 1, 2, 2, 3]


def test_a_different_index_is_replaced_only_with_overwrite(folder, jpegs):
    oracles.write_tar(folder / "a.tar", members(labeled(jpegs)))
    shard = (folder / "a.tar").read_bytes()
    index_folder(folder)
    assert sorted(os.listdir(folder)) == ["a.idx", "a.parquet", "a.tar", "manifest.json"]
    assert (folder / "a.tar").read_bytes() == shard
    right = (folder / "a.idx").read_bytes()
    index_folder(folder)  # an equal index is not replaced
    (folder / "a.idx").write_bytes(b"v1.1 0\n")
    message = r"a\.idx exists and differs from the new index.*--overwrite"
    refused(CallError, message, folder)
    assert (folder / "a.idx").read_bytes() == b"v1.1 0\n"
    index_folder(folder, overwrite=True)
    assert (folder / "a.idx").read_bytes() == right


def test_tables_of_convert_are_not_replaced(image_folder, tmp_path, convert, invoke, snapshot):
    """They contain checksums and columns that the shards do not contain."""
    out = tmp_path / "out"
    convert(image_folder, out, "--workers", 1)
    before = snapshot(out)
    invoke("index", out, "--workers", 1, status=2)
    assert snapshot(out) == before


# --- wrong usage and damage -----------------------------------------------------------------------


@pytest.mark.parametrize(("action", "what"), [("convert", "a conversion"), ("append", "a change")])
def test_a_folder_in_which_another_command_has_not_ended(folder, jpegs, action, what):
    oracles.write_tar(folder / "a.tar", members(labeled(jpegs)))
    (folder / ".dataprep").mkdir()
    (folder / JOURNAL_NAME).write_bytes(journal_bytes(Journal(action=action, plan="0" * 32)))
    for overwrite in (False, True):
        message = f"{what} in .* was interrupted, or is running"
        refused(CallError, message, folder, overwrite=overwrite)
    assert sorted(os.listdir(folder)) == [".dataprep", "a.tar"]
    assert os.listdir(folder / ".dataprep") == ["journal.json"]


def test_a_failed_run_keeps_the_files_of_an_earlier_one(folder, jpegs, invoke, snapshot):
    for name in "ab":
        shard_of("tar", folder / f"{name}.tar", labeled(jpegs))
    invoke("index", folder, "--workers", 1)
    shard_of("tar", folder / "a.tar", labeled(jpegs[1:]))
    os.truncate(folder / "b.tar", 700)
    before = snapshot(folder)
    result = invoke("index", folder, "--workers", 1, "--overwrite", status=1)
    assert f"so {folder} was not changed" in result.stderr
    assert snapshot(folder) == before


@pytest.mark.parametrize("kind", ["tar", "tfrecord"])
def test_a_flipped_bit_is_found_where_there_are_checksums(folder, jpegs, kind):
    """In headers always; in the payload of a TFRecord if it is read. Tar has no checksum there."""
    shard_of(kind, folder / f"a.{kind}", labeled(jpegs[:3]))
    index_folder(folder)
    row = read_table(folder / "a.parquet").to_pylist()[2]
    intact = (folder / f"a.{kind}").read_bytes()
    header = int((folder / "a.idx").read_text().split()[-7 if kind == "tar" else -2])
    places = [(header - 512 + 3 if kind == "tar" else header + 2, "none")]
    if kind == "tfrecord":
        places.append((row["offset"] + 40, "header"))
    for at, validate in places:
        (folder / f"a.{kind}").write_bytes(intact)
        flip(folder / f"a.{kind}", at)
        (error,) = index(folder, validate=validate, overwrite=True).errors
        assert "checksum" in str(error) or "CRC" in str(error)
        assert error.record == 2


@pytest.mark.parametrize("fmt", FORMATS)
def test_captions_of_other_tools_stay(fmt, folder, jpegs, convert, invoke, tmp_path):
    """They stay in a dataset that is made of these shards, and in a table that is made again."""
    captions, records, files = [f"number {number} é" for number in range(5)], [], []
    for number, caption in enumerate(captions):
        image, text = jpegs[number % len(jpegs)], caption.encode()
        records.append(oracles.make_example({"image/encoded": image, "image/caption": text}))
        stated = json.dumps({"caption": caption, "url": f"http://x/{number}.jpg"}).encode()
        for extension, data in {"jpg": image, "json": stated, "txt": text}.items():
            files.append((f"{number:09d}.{extension}", data))
    if fmt == "tfrecord":
        oracles.write_tfrecord(folder / "00000.tfrecord", records)
    else:
        oracles.write_tar(folder / "00000.tar", files)
    assert "add --label-type none or caption" in invoke("index", folder, status=2).stderr
    invoke("index", folder, "--label-type", "caption", "--validate", "header")
    table = pq.read_table(folder / "00000.parquet")
    assert "label" not in table.column_names
    assert table["caption"].to_pylist() == captions
    convert(folder, tmp_path / "again", "--no-shuffle")
    again = pq.read_table(tmp_path / "again" / "train-00000.parquet")
    again = again.drop_columns(["key", "offset"])
    assert again.equals(table.select(again.column_names))
    before = (folder / "00000.parquet").read_bytes()
    (folder / "00000.parquet").unlink()
    invoke("repair", folder)
    assert (folder / "00000.parquet").read_bytes() == before
