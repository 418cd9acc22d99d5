"""Bad and odd input, image by image: kept or rejected, why, and what comes back of what is kept."""

from __future__ import annotations

import json
import os
from pathlib import Path

import numpy as np
import pytest
from helpers.bad_images import KEPT, ODD_NAMES, Case, cases, write_cases
from helpers.oracles import read_with_tfrecord_package
from helpers.pictures import encode, photo

from dataprep.convert import convert_dataset
from dataprep.images.base import EXTENSIONS, REASONS, Rejected
from dataprep.images.validate import inspect, parse_header
from dataprep.options import Downscale, Options, Raw
from dataprep.sources import read_source
from dataprep.verify import verify_dataset
from manifests.errors import SourceError
from manifests.schema import Sample
from manifests.store import read_manifest, read_table, samples

CASES = list(cases())
NAMES = [case.name for case in CASES]
FORMATS = ("tfrecord", "webdataset")


def verdict(data: bytes, validation: str) -> str:
    try:
        inspect(data, validation)
    except Rejected as error:
        return error.reason
    return ""


@pytest.mark.parametrize("case", CASES, ids=NAMES)
def test_verdict(case: Case):
    assert (verdict(case.data, "header"), verdict(case.data, "decode")) == (case.header, case.decode)


def test_names_of_the_corpus_are_its_own():
    assert len(set(NAMES)) == len(NAMES) > 60
    assert {case.decode for case in CASES} - {""} == set(REASONS) - {"unreadable", "bad-name"}


# --- through a shard and DALI -------------------------------------------------------------------


def decoded_by_dali(dataset: Path, batch_size: int = 8) -> list[np.ndarray]:
    """Decode every image of a dataset on the processor, in stored order."""
    from nvidia.dali import fn, pipeline_def, types

    manifest = read_manifest(dataset)
    ((shard,),) = [split.shards for split in manifest.splits]
    path, index = str(dataset / shard.name), str(dataset / shard.index.name)

    @pipeline_def(batch_size=batch_size, num_threads=2, device_id=None)
    def pipeline():
        if manifest.format == "tfrecord":
            import nvidia.dali.tfrecord as tfrec

            features = {"image/encoded": tfrec.FixedLenFeature([], tfrec.string, "")}
            image = fn.readers.tfrecord(path=path, index_path=index, features=features)["image/encoded"]
        else:
            extensions = ";".join(manifest.components.image)
            image = fn.readers.webdataset(
                paths=path, index_paths=index, ext=[extensions], missing_component_behavior="error"
            )
        return fn.decoders.image(image, device="cpu", output_type=types.RGB)

    pipe = pipeline()
    pipe.build()
    images: list[np.ndarray] = []
    while len(images) < shard.samples:
        (batch,) = pipe.run()
        images += [np.asarray(batch.at(number)) for number in range(len(batch))]
    return images[: shard.samples]


def stored(dataset: Path) -> list[tuple[Sample, bytes]]:
    """Every sample of a dataset with the bytes that its table points at."""
    found = []
    for split in read_manifest(dataset).splits:
        for shard in split.shards:
            data = (dataset / shard.name).read_bytes()
            rows = samples(read_table(dataset / shard.table.name))
            found += [(row, data[row.offset : row.offset + row.size]) for row in rows]
    return found


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    return write_cases(tmp_path_factory.mktemp("corpus") / "images")


@pytest.mark.parametrize("fmt", FORMATS)
@pytest.mark.parametrize("validation", ["header", "decode"])
def test_whole_corpus(fmt, validation, corpus, tmp_path):
    """What is kept comes back bit for bit; what is rejected is listed with its reason; nothing is lost."""
    out = tmp_path / "out"
    convert_dataset(read_source(str(corpus)), str(out), Options(fmt=fmt, validate=validation), workers=1)
    expected = {f"class/{case.name}": getattr(case, validation) for case in CASES}
    content = {f"class/{case.name}": case.data for case in CASES}
    assert {row.source: data for row, data in stored(out)} == {
        name: content[name] for name, reason in expected.items() if not reason
    }
    lines = [json.loads(line) for line in (out / "rejected.jsonl").read_text().splitlines()]
    assert {line["source"]: line["reason"] for line in lines} == {
        name: reason for name, reason in expected.items() if reason
    }
    assert all(list(line) == ["source", "reason", "detail"] and line["detail"] for line in lines)
    assert verify_dataset(str(out), workers=1).faults == ()


@pytest.mark.parametrize("fmt", FORMATS)
def test_dali_decodes_all_that_decoding_kept(fmt, corpus, tmp_path):
    out = tmp_path / "out"
    convert_dataset(read_source(str(corpus)), str(out), Options(fmt=fmt, validate="decode"), workers=1)
    rows = [row for row, _ in stored(out)]
    images = decoded_by_dali(out)
    assert len(images) == len(rows)
    for row, image in zip(rows, images, strict=True):
        turned = row.source in ("class/turned 6.jpg", "class/turned 8.jpg", "class/thumbnail.jpg")
        assert image.shape == ((row.width, row.height, 3) if turned else (row.height, row.width, 3)), row.source
        assert image.std() > 1 or row.width == 1, row.source


#: What is done to images, so that all are decoded: the smallest of the corpus but one pixel has 48 on its shorter side.
ALTERED = {"resize": {"downscale": Downscale(shorter=24)}, "raw": {"raw": Raw(24)}, "pad": {"raw": Raw(70, "pad")}}


@pytest.mark.parametrize("fmt", FORMATS)
@pytest.mark.parametrize("altered", ALTERED)
def test_whole_corpus_altered(fmt, altered, corpus, tmp_path):
    """What is decoded to be stored otherwise need not be asked for its soundness: damage is found by itself."""
    out = tmp_path / "out"
    convert_dataset(read_source(str(corpus)), str(out), Options(fmt=fmt, **ALTERED[altered]), workers=1)
    lines = [json.loads(line) for line in (out / "rejected.jsonl").read_text().splitlines()]
    # Every pixel of one is there; only DALI would mind what is not.
    expected = {case.name: case.decode for case in CASES} | {"no checksum after the pixels.png": KEPT}
    assert {line["source"]: line["reason"] for line in lines} == {
        f"class/{name}": reason for name, reason in expected.items() if reason
    }
    kept = {row.source: data for row, data in stored(out)}
    assert set(kept) == {f"class/{name}" for name, reason in expected.items() if not reason}
    assert verify_dataset(str(out), decode=True, workers=1).faults == ()
    if altered == "resize":
        images = dict(zip(kept, decoded_by_dali(out), strict=True))
        sides = {min(image.shape[:2]) for name, image in images.items() if "one pixel" not in name}
        assert sides == {24}
        assert images["class/turned 6.jpg"].shape == (32, 24, 3)
    else:
        side = ALTERED[altered]["raw"].size
        assert {len(data) for data in kept.values()} == {side * side * 3}


# --- names, links and what is no file -----------------------------------------------------------


@pytest.fixture
def folder(tmp_path):
    path = tmp_path / "images" / "class"
    path.mkdir(parents=True)
    (path / "sound.jpg").write_bytes(encode(photo(0)))
    return path


def prepared(folder: Path, out: Path, **options: object) -> tuple[set[str], dict[str, str]]:
    """Convert; give the sources that were kept, and those that were rejected with their reasons."""
    convert_dataset(read_source(str(folder.parent)), str(out), Options(**options), workers=1)
    rejected = out / "rejected.jsonl"
    lines = [json.loads(line) for line in rejected.read_text().splitlines()] if rejected.exists() else []
    assert verify_dataset(str(out), workers=1).faults == ()
    return {row.source for row, _ in stored(out)}, {line["source"]: line["reason"] for line in lines}


@pytest.mark.parametrize("fmt", FORMATS)
def test_odd_names(fmt, folder, tmp_path):
    content = {name: encode(photo(number)) for number, name in enumerate(ODD_NAMES, 1)}
    for name, data in content.items():
        (folder / name).write_bytes(data)
    kept, rejected = prepared(folder, tmp_path / "out", fmt=fmt)
    assert kept == {"class/sound.jpg", *(f"class/{name}" for name in ODD_NAMES)}
    assert rejected == {}
    assert {row.source[6:]: data for row, data in stored(tmp_path / "out") if row.source[6:] in content} == content
    assert len(decoded_by_dali(tmp_path / "out")) == len(ODD_NAMES) + 1


@pytest.mark.parametrize("fmt", FORMATS)
def test_odd_names_are_read_by_the_formats_own_libraries(fmt, folder, tmp_path):
    for number, name in enumerate(ODD_NAMES, 1):
        (folder / name).write_bytes(encode(photo(number)))
    convert_dataset(read_source(str(folder.parent)), str(tmp_path / "out"), Options(fmt=fmt), workers=1)
    path, expected = tmp_path / "out" / "train-00000", {f"class/{name}" for name in ("sound.jpg", *ODD_NAMES)}
    if fmt == "webdataset":
        webdataset = pytest.importorskip("webdataset")
        read = list(webdataset.WebDataset(f"{path}.tar", shardshuffle=False))
        assert {json.loads(sample["json"])["source"] for sample in read} == expected
    else:
        read = read_with_tfrecord_package(path.with_suffix(".tfrecord"), image="image/filename")
        assert {name.decode() for name, _ in read} == expected


def test_a_name_that_is_no_text(folder, tmp_path):
    with open(os.fsencode(folder) + b"/caf\xe9.jpg", "wb") as file:
        file.write(encode(photo(1)))
    kept, rejected = prepared(folder, tmp_path / "out")
    assert kept == {"class/sound.jpg"}
    assert rejected == {"class/caf\\xe9.jpg": "bad-name"}


@pytest.mark.parametrize("fmt", FORMATS)
def test_an_output_folder_whose_name_is_no_text(fmt, folder, dataprep, tmp_path):
    out = os.fsencode(tmp_path) + b"/caf\xe9"
    done = dataprep("convert", "--src", folder.parent, "--out", out, "--fmt", fmt)
    assert "Traceback" not in done.stderr
    assert done.returncode == 0 or (done.returncode == 2 and "--out" in done.stderr)
    if done.returncode == 0:
        for verb in ("verify", "info"):
            assert dataprep(verb, out).returncode == 0


def test_files_that_are_no_files(folder, tmp_path):
    """A pipe, a dangling link, a link to itself, a folder with an image's name: each is told, none ends the run."""
    os.mkfifo(folder / "pipe.jpg")
    (folder / "dangling.jpg").symlink_to("nowhere.jpg")
    (folder / "itself.jpg").symlink_to("itself.jpg")
    (folder / "a.jpg").symlink_to("b.jpg")
    (folder / "b.jpg").symlink_to("a.jpg")
    (folder / "link.jpg").symlink_to("sound.jpg")
    (folder / "folder.jpg").mkdir()
    (folder / "folder.jpg" / "inside.jpg").write_bytes(encode(photo(2)))
    kept, rejected = prepared(folder, tmp_path / "out")
    assert kept == {"class/sound.jpg", "class/link.jpg", "class/folder.jpg/inside.jpg"}
    broken = ("pipe", "dangling", "itself", "a", "b")
    assert rejected == dict.fromkeys((f"class/{name}.jpg" for name in broken), "unreadable")


def test_folders_in_a_circle(folder, tmp_path):
    (folder / "below").mkdir()
    (folder / "below" / "up").symlink_to("..")
    (folder / "round").symlink_to(".")
    source = read_source(str(folder.parent))
    assert source.path.to_pylist() == ["class/sound.jpg"]
    assert sum("is a link to a folder above it" in notice for notice in source.notices) == 2


def test_a_class_folder_that_links_to_itself(folder, tmp_path):
    (folder.parent / "circle").symlink_to("circle")
    source = read_source(str(folder.parent))
    assert source.path.to_pylist() == ["class/sound.jpg"]


@pytest.mark.parametrize("fmt", FORMATS)
def test_a_dataset_of_which_nothing_is_kept(fmt, tmp_path, dataprep):
    (tmp_path / "images" / "class").mkdir(parents=True)
    (tmp_path / "images" / "class" / "empty.jpg").write_bytes(b"")
    done = dataprep("convert", "--src", tmp_path / "images", "--out", tmp_path / "out", "--fmt", fmt)
    assert done.returncode == 1
    assert "rejected: 1 of 1 image " in done.stdout
    for verb in (["info"], ["info", "--json"], ["verify"]):
        done = dataprep(*verb, tmp_path / "out")
        assert "Traceback" not in done.stderr
        assert done.returncode in (0, 1)


@pytest.mark.parametrize("fmt", FORMATS)
@pytest.mark.parametrize(
    "value",
    ["1e300", "-1e39", "inf", "nan", "9223372036854775807", "-1", "18446744073709551615", '"a\nb"', "", "é" * 5000],
)
def test_odd_values_in_further_columns(fmt, value, folder, dataprep, tmp_path):
    table = folder.parent / "list.csv"
    table.write_text(f"path,label,value\nclass/sound.jpg,3,{value}\n")
    done = dataprep("convert", "--src", table, "--out", tmp_path / "out", "--fmt", fmt)
    assert "Traceback" not in done.stderr
    assert done.returncode == 0 or (done.returncode == 2 and "'value'" in done.stderr), done.stderr
    if done.returncode == 0:
        assert [str(fault) for fault in verify_dataset(str(tmp_path / "out"), workers=1).faults] == []


@pytest.mark.parametrize("fmt", FORMATS)
@pytest.mark.parametrize("length", [1, 100, 101, 128, 300])
def test_a_further_column_with_a_long_name(fmt, length, folder, tmp_path):
    table, name = folder.parent / "list.csv", "x" * length
    table.write_text(f"path,label,{name}\nclass/sound.jpg,3,7\n")
    if length > 100:  # more than one byte of a protobuf's length field holds, with room to spare
        with pytest.raises(SourceError, match="rename it"):
            read_source(str(table))
        return
    source = read_source(str(table))
    convert_dataset(source, str(tmp_path / "out"), Options(fmt=fmt), workers=1)
    assert verify_dataset(str(tmp_path / "out"), workers=1).faults == ()
    ((row, data),) = stored(tmp_path / "out")
    assert (dict(row.extra), data) == ({name: 7}, (folder / "sound.jpg").read_bytes())


def test_header_of_everything_kept_names_a_format():
    kept = [case for case in CASES if not case.header]
    assert {parse_header(case.data).format for case in kept} == set(EXTENSIONS)
