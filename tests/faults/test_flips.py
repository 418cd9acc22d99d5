"""One flipped byte anywhere in a prepared dataset: `verify` finds it, names the file, and the record too."""

from __future__ import annotations

import csv
import os
import random
import shutil
from bisect import bisect_right
from pathlib import Path

import pytest
from helpers.pictures import SUFFIXES, encode, photo

from dataprep.convert import convert_dataset
from dataprep.formats import FORMATS, ScanOptions
from dataprep.index import index_shards
from dataprep.options import IndexOptions
from dataprep.plan import Options
from dataprep.sources import read_source
from dataprep.verify import verify_dataset
from manifests.schema import FORMAT_NAMES
from manifests.store import read_manifest

COUNT = 7


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    """A table of seven tiny images in three formats, an eighth that is broken, and two further columns."""
    folder = tmp_path_factory.mktemp("table")
    with (folder / "list.csv").open("w", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(["path", "label", "identity", "weight"])
        for number in range(COUNT):
            kind = tuple(SUFFIXES)[number % 3]
            name = f"{number} photo.{SUFFIXES[kind]}"
            (folder / name).write_bytes(encode(photo(number, 16, 12), kind))
            rows.writerow([name, ("cat", "dog")[number % 2], f"p{number // 2}", number / 4])
        (folder / "broken.jpg").write_bytes(b"<html>")
        rows.writerow(["broken.jpg", "cat", "p9", 0.0])
    return folder / "list.csv"


@pytest.fixture(scope="module", params=FORMAT_NAMES)
def sound(request, source, tmp_path_factory):
    """A dataset of two shards, of four and three records, that has nothing wrong with it."""
    out = tmp_path_factory.mktemp("sound") / request.param
    convert_dataset(read_source(str(source)), str(out), Options(fmt=request.param, shard_samples=4), workers=1)
    assert verify_dataset(str(out), workers=1).problems == ()
    return out


@pytest.fixture
def dataset(sound, tmp_path):
    """A copy to damage."""
    return Path(shutil.copytree(sound, tmp_path / "copy"))


def starts(folder: Path, name: str) -> list[int]:
    """Where each record of a sound shard begins, by its own reader."""
    manifest = read_manifest(folder)
    data = (folder / name).read_bytes()
    scan = FORMATS[manifest.format].scan(lambda at, _: (data, at), len(data), name, ScanOptions(manifest.components))
    return [record.start for record in scan]


def shards(folder: Path) -> list[str]:
    return [shard.name for split in read_manifest(folder).splits for shard in split.shards]


def flip(path: Path, *places: int, by: int = 0) -> None:
    with path.open("r+b") as file:
        for at in places:
            byte = os.pread(file.fileno(), 1, at)[0]
            os.pwrite(file.fileno(), bytes([byte ^ (by or 1 << at % 8)]), at)


def where_to_flip(name: str, data: bytes) -> list[int]:
    """All that is not an image's inside or a run of zeros; of those every few bytes, and where they begin and end."""
    if name.endswith((".parquet", ".json", ".jsonl")):
        return sorted({*range(0, len(data), 7), *range(64), *range(len(data) - 64, len(data))})
    if name.endswith(".tar"):
        edges = (at for at in range(len(data)) if any(data[max(at - 1, 0) : at + 2]))
        return sorted({*list(edges)[::3], *range(0, len(data), 41), *range(0, len(data), 512), len(data) - 1})
    return list(range(len(data))) if name.endswith(".idx") else sorted({*range(0, len(data), 3), *range(400)})


def test_every_position_of_every_file(dataset):
    shard_names, missed, misplaced = shards(dataset), [], []
    for path in sorted(dataset.iterdir()):
        data = path.read_bytes()
        begin = starts(dataset, path.name) if path.name in shard_names else []
        end = max((at for at, byte in enumerate(data) if byte), default=0)
        for at in where_to_flip(path.name, data):
            flip(path, at)
            faults = verify_dataset(str(dataset), workers=1).problems
            flip(path, at)
            expected = bisect_right(begin, at) - 1 if begin and at <= end else None
            if not faults:
                missed.append((path.name, at))
            elif {fault.file for fault in faults} != {path.name} or (
                expected is not None and {fault.record for fault in faults} != {expected}
            ):
                misplaced.append((path.name, at, expected, [str(fault) for fault in faults]))
        assert path.read_bytes() == data
    assert not missed, f"{len(missed)} flips were not found: {missed[:9]}"
    assert not misplaced, f"{len(misplaced)} flips were put elsewhere: {misplaced[:9]}"


def test_bits_of_one_byte(dataset):
    """Every bit, and every pattern of bits, in a byte of each kind."""
    for path in sorted(dataset.iterdir()):
        for at in (0, 9, path.stat().st_size // 2):
            for by in (1, 2, 4, 8, 16, 32, 64, 128, 255, 0x81):
                flip(path, at, by=by)
                assert {fault.file for fault in verify_dataset(str(dataset), workers=1).problems} == {path.name}, (
                    path,
                    at,
                    by,
                )
                flip(path, at, by=by)


@pytest.mark.parametrize("seed", range(12))
def test_several_flips_in_one_shard_are_all_reported(dataset, seed):
    """One in each of three records: one fault does not hide the next."""
    name = shards(dataset)[0]
    begin, size = starts(dataset, name), (dataset / name).stat().st_size
    ends = [*begin[1:], size - 1024 if name.endswith(".tar") else size]
    draw = random.Random(seed)
    records = [0, 2, 3] if seed % 2 else [0, 1, 3]
    places = [draw.randrange(begin[record], ends[record]) for record in records]
    flip(dataset / name, *places)
    found = {fault.record for fault in verify_dataset(str(dataset), workers=1).problems}
    assert found == set(records), f"flipped bytes {places} of records {records}, reported {found}"


@pytest.mark.parametrize("part", ["first byte", "image", "last byte"])
def test_flips_in_every_record_are_all_reported(dataset, part):
    name = shards(dataset)[0]
    manifest, begin = read_manifest(dataset), starts(dataset, name)
    data = (dataset / name).read_bytes()
    scan = list(
        FORMATS[manifest.format].scan(lambda at, _: (data, at), len(data), name, ScanOptions(manifest.components))
    )
    place = {
        "first byte": begin,
        "image": [record.offset + record.size // 2 for record in scan],
        "last byte": [record.end - 1 for record in scan],
    }[part]
    flip(dataset / name, *place)
    assert {fault.record for fault in verify_dataset(str(dataset), workers=1).problems} == {0, 1, 2, 3}


def test_a_shard_cut_at_any_length(dataset):
    name = shards(dataset)[0]
    data = (dataset / name).read_bytes()
    begin = starts(dataset, name)
    for length in (0, 1, 11, 12, 511, 512, len(data) // 2, begin[2], begin[2] + 1, len(data) - 513, len(data) - 1):
        (dataset / name).write_bytes(data[:length])
        faults = verify_dataset(str(dataset), workers=1).problems
        assert {fault.file for fault in faults} == {name}, (length, [str(fault) for fault in faults])


@pytest.mark.parametrize("garbage", [b"x", b"\0", b"\0" * 4096, b"\0" * 512 + b"x"])
def test_bytes_after_the_end_of_any_file(dataset, garbage):
    for path in sorted(dataset.iterdir()):
        data = path.read_bytes()
        path.write_bytes(data + garbage)
        assert {fault.file for fault in verify_dataset(str(dataset), workers=1).problems} == {path.name}, path
        path.write_bytes(data)


def test_a_file_removed_or_emptied(dataset):
    for path in sorted(dataset.iterdir()):
        data = path.read_bytes()
        path.write_bytes(b"")
        assert path.name in {fault.file for fault in verify_dataset(str(dataset), workers=1).problems}
        path.unlink()
        assert path.name in {fault.file for fault in verify_dataset(str(dataset), workers=1).problems}
        path.write_bytes(data)
    assert verify_dataset(str(dataset), workers=1).problems == ()


@pytest.mark.parametrize("number", range(3))
def test_two_shards_swapped(dataset, number):
    """Shards, indexes or tables under each other's name."""
    manifest = read_manifest(dataset)
    kinds = [(shard.name, shard.index.name, shard.table.name) for split in manifest.splits for shard in split.shards]
    first, second = kinds[0][number], kinds[1][number]
    (dataset / first).rename(dataset / "aside")
    (dataset / second).rename(dataset / first)
    (dataset / "aside").rename(dataset / second)
    assert {first, second} <= {fault.file for fault in verify_dataset(str(dataset), workers=1).problems}


@pytest.mark.parametrize("change", ["one line less", "two lines exchanged", "a line twice", "of another shard"])
def test_an_index_that_does_not_fit(dataset, change):
    indexes = [shard.index.name for split in read_manifest(dataset).splits for shard in split.shards]
    path = dataset / indexes[0]
    head, *lines = path.read_text().splitlines(keepends=True)
    lines = {
        "one line less": lines[:-1],
        "two lines exchanged": [lines[1], lines[0], *lines[2:]],
        "a line twice": [lines[0], *lines],
        "of another shard": (dataset / indexes[1]).read_text().splitlines(keepends=True),
    }[change]
    path.write_text("".join([head, *lines] if change != "of another shard" else lines))
    assert {fault.file for fault in verify_dataset(str(dataset), workers=1).problems} == {indexes[0]}


def test_an_index_that_does_not_fit_though_the_manifest_was_made_to(dataset):
    """Whoever edits an index and mends the checksums is found out by the shard itself."""
    from dataclasses import replace

    from manifests.store import manifest_bytes

    manifest = read_manifest(dataset)
    path = dataset / manifest.splits[0].shards[0].index.name
    head, first, second, *lines = path.read_text().splitlines(keepends=True)
    path.write_text("".join([head, second, first, *lines]))
    from dataprep.storage import describe

    (split,) = manifest.splits
    edited = replace(split.shards[0], index=describe(str(dataset), path.name))
    manifest = replace(manifest, splits=(replace(split, shards=(edited, *split.shards[1:])),))
    (dataset / "manifest.json").write_bytes(manifest_bytes(manifest))
    (fault,) = verify_dataset(str(dataset), workers=1).problems
    assert fault.file == path.name
    assert "does not fit" in fault.message


def test_a_stranger_in_the_folder(dataset):
    for name in ("train-00009.idx", "more.tar", ".partial-123-train-00000.tar"):
        (dataset / name).write_bytes(b"x")
        assert {fault.file for fault in verify_dataset(str(dataset), workers=1).problems} == {name}
        (dataset / name).unlink()


def test_a_folder_made_anew_in_another_format_is_read_anew(dataset, source):
    """Within one process: nothing of the first dataset is remembered."""
    assert verify_dataset(str(dataset), workers=1).problems == ()
    other = next(fmt for fmt in FORMAT_NAMES if fmt != read_manifest(dataset).format)
    convert_dataset(read_source(str(source)), str(dataset), Options(fmt=other), workers=1, overwrite=True)
    assert [str(fault) for fault in verify_dataset(str(dataset), workers=1).problems] == []


def test_flips_in_shards_made_elsewhere(sound, tmp_path):
    """Indexed with checksums: the file is named wherever the byte is; one in a header gives the record too."""
    folder = tmp_path / "elsewhere"
    folder.mkdir()
    name = shards(sound)[0]
    shutil.copy(sound / name, folder)
    index_shards([str(folder)], IndexOptions(validate="header"), workers=1)
    assert verify_dataset(str(folder), workers=1).problems == ()
    data = (folder / name).read_bytes()
    for at in where_to_flip(name, data)[::3]:
        flip(folder / name, at)
        faults = verify_dataset(str(folder), workers=1).problems
        flip(folder / name, at)
        assert {fault.file for fault in faults} == {name}, (at, [str(fault) for fault in faults])
