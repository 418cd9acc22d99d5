"""A flipped byte anywhere in a dataset, or a truncated shard: `verify` and `index` name the file and the record."""

from __future__ import annotations

import os
import re
import shutil
import zlib
from bisect import bisect_right
from dataclasses import replace
from itertools import zip_longest
from pathlib import Path

import pytest
from helpers.datasets import write_csv
from helpers.pictures import SUFFIXES, encode, photo

from dataprep.formats import FORMATS, ScanOptions
from dataprep.formats.base import Record
from dataprep.indexing.index import index_shards
from dataprep.ledger.finished import STAMPS_NAME
from dataprep.options import IndexOptions
from dataprep.plan.assign import Options
from dataprep.run.convert import convert_dataset
from dataprep.sources import SourceOptions, read_source
from dataprep.storage import describe
from dataprep.verification.verify import verify_dataset
from manifests.errors import DatasetError
from manifests.schema import FORMAT_NAMES
from manifests.store import manifest_bytes, read_manifest

COUNT = 7


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    """A table of seven tiny images in three formats, a damaged eighth image, and two extra columns."""
    folder, rows = tmp_path_factory.mktemp("table"), []
    for number in range(COUNT):
        kind = tuple(SUFFIXES)[number % 3]
        name = f"{number} photo.{SUFFIXES[kind]}"
        (folder / name).write_bytes(encode(photo(number, 16, 12), kind))
        label = ("cat", "dog")[number % 2]
        rows.append((name, label, f"p{number // 2}", number / 4, "0 photo.jpg"))
    (folder / "broken.jpg").write_bytes(b"<html>")
    rows.append(("broken.jpg", "cat", "p9", 0.0, "0 photo.jpg"))
    return write_csv(folder / "list.csv", "path,label,identity,weight,right", rows)


@pytest.fixture(scope="module", params=[*FORMAT_NAMES, "several images"])
def intact(request, source, tmp_path_factory):
    """An intact dataset with two shards of four and three records."""
    out, options = tmp_path_factory.mktemp("intact") / request.param, SourceOptions()
    fmt = request.param
    if fmt not in FORMAT_NAMES:
        options, fmt = SourceOptions(image_columns="path,right"), "webdataset"
    samples = read_source(str(source), options)
    convert_dataset(samples, str(out), Options(fmt=fmt, shard_samples=4), workers=1)
    assert verify_dataset(str(out), workers=1).problems == ()
    (out / STAMPS_NAME).unlink()  # only `convert` reads it, and does not rely on it
    return out


@pytest.fixture
def dataset(intact, tmp_path):
    """A copy of the intact dataset, for a test to damage."""
    return Path(shutil.copytree(intact, tmp_path / "copy"))


def scan(folder: Path, name: str) -> list[Record]:
    """Return the records of an intact shard."""
    manifest, data = read_manifest(folder), (folder / name).read_bytes()
    options = ScanOptions(manifest.components)
    return [*FORMATS[manifest.format].scan(lambda at, _: (data, at), len(data), name, options)]


def starts(folder: Path, name: str) -> list[int]:
    """Return the first byte of each record in an intact shard."""
    return [record.start for record in scan(folder, name)]


def shards(folder: Path) -> list[str]:
    return [shard.name for split in read_manifest(folder).splits for shard in split.shards]


def flip(path: Path, *positions: int, mask: int = 0) -> None:
    """Flip bits of these bytes: by default one, which depends on the position."""
    with path.open("r+b") as file:
        for at in positions:
            byte = os.pread(file.fileno(), 1, at)[0]
            os.pwrite(file.fileno(), bytes([byte ^ (mask or 1 << at % 8)]), at)


def positions_to_flip(name: str, data: bytes) -> list[int]:
    """Return every second byte of an index, and many at both ends or in headers of others."""
    length = len(data)
    if name.endswith((".parquet", ".json", ".jsonl")):
        parts = [range(0, length, 263), range(0, 64, 7), range(length - 64, length, 7)]
    elif name.endswith(".tar"):
        edges = [at for at in range(length) if any(data[max(at - 1, 0) : at + 2])]
        parts = [edges[::101], range(0, length, 613), range(0, length, 512), [length - 1]]
    elif name.endswith(".idx"):
        parts = [range(zlib.crc32(name.encode()) % 2, length, 2)]
    else:
        parts = [range(0, length, 113), range(0, 400, 7)]
    return sorted({at for part in parts for at in part})


def beside(dataset: Path) -> list[tuple[Path, ...]]:
    """Return the files to damage together: each file of the first shard with that of the second, and others alone."""
    groups: dict[str, list[Path]] = {}
    for path in sorted(dataset.glob("[!.]*")):
        groups.setdefault(path.name.replace("train-00001", "train-00000"), []).append(path)
    assert sorted(map(len, groups.values())) == [1, 1, 2, 2, 2]
    return [*map(tuple, groups.values())]


def files_with_problems(dataset: Path) -> dict[str, set[int | None]]:
    """Verify the dataset. Return the records that have a problem by file."""
    found: dict[str, set[int | None]] = {}
    for problem in verify_dataset(str(dataset), workers=1).problems:
        found.setdefault(problem.file, set()).add(problem.record)
    return found


def test_a_flip_in_any_file_is_reported_in_its_place(dataset):
    shard_names, missed, misplaced = shards(dataset), [], []
    for paths in beside(dataset):
        contents = [path.read_bytes() for path in paths]
        begins = [starts(dataset, path.name) if path.name in shard_names else [] for path in paths]
        # Nobody reads the zeros at the end of a tar archive as a record.
        ends = [len(data.rstrip(b"\0")) for data in contents]
        places = map(positions_to_flip, [path.name for path in paths], contents)
        for positions in zip_longest(*places):
            flips = [each for each in zip(paths, positions, strict=True) if each[1] is not None]
            for path, at in flips:
                flip(path, at)
            problems = files_with_problems(dataset)
            for path, at in flips:
                flip(path, at)
            names = {path.name for path, _ in flips}
            missed += [(name, positions) for name in names - problems.keys()]
            misplaced += [(name, positions) for name in problems.keys() - names]
            for path, at, begin, end in zip(paths, positions, begins, ends, strict=True):
                if at is not None and begin and at < end:
                    expected = bisect_right(begin, at) - 1
                    if problems.get(path.name, {expected}) != {expected}:
                        misplaced.append((path.name, at, expected, problems[path.name]))
        assert [path.read_bytes() for path in paths] == contents
    assert not missed, f"{len(missed)} flips were not found: {missed[:9]}"
    assert not misplaced, f"{len(misplaced)} flips were reported in another place: {misplaced[:9]}"


def test_flips_in_every_record_are_all_reported(dataset):
    name = shards(dataset)[0]
    records = scan(dataset, name)
    for positions in (
        [record.start for record in records],
        [record.offset + record.size // 2 for record in records],
        [record.end - 1 for record in records],
    ):
        flip(dataset / name, *positions)
        assert files_with_problems(dataset) == {name: {0, 1, 2, 3}}, positions
        flip(dataset / name, *positions)


def test_a_file_that_is_cut_extended_emptied_or_removed(dataset):
    garbage = (b"x", b"\0", b"\0" * 4096, b"\0" * 512 + b"x")
    for path in sorted(dataset.glob("[!.]*")):
        data = path.read_bytes()
        lengths = [0]
        if path.name == shards(dataset)[0]:
            begin = starts(dataset, path.name)[2]
            lengths += [1, 11, 12, 511, 512, len(data) // 2, begin, begin + 1]
            lengths += [len(data) - 513, len(data) - 1]
        for changed in (*(data[:length] for length in lengths), *(data + more for more in garbage)):
            path.write_bytes(changed)
            assert path.name in files_with_problems(dataset), len(changed)
            assert len(changed) < len(data) or [*files_with_problems(dataset)] == [path.name]
        path.unlink()
        assert path.name in files_with_problems(dataset)
        path.write_bytes(data)
    assert not files_with_problems(dataset)


def test_two_shards_swapped(dataset):
    """Two shards, two indexes or two tables swap names."""
    (split,) = read_manifest(dataset).splits
    for files in zip(*(shard.files for shard in split.shards), strict=True):
        first, second = (dataset / file.name for file in files)
        contents = first.read_bytes(), second.read_bytes()
        for one, other in (contents[::-1], contents):
            first.write_bytes(one)
            second.write_bytes(other)
            names = {first.name, second.name} if one != contents[0] else set()
            assert names <= files_with_problems(dataset).keys()
    assert not files_with_problems(dataset)


def test_an_index_that_does_not_match_its_shard(dataset):
    """One line is missing, swapped with the next or there twice; the index of another shard."""
    path, other = sorted(dataset.glob("*.idx"))
    head, *lines = path.read_text().splitlines(keepends=True)
    changes = (lines[:-1], [lines[1], lines[0], *lines[2:]], [lines[0], *lines])
    for text in (*("".join([head, *changed]) for changed in changes), other.read_text()):
        path.write_text(text)
        assert [*files_with_problems(dataset)] == [path.name]


def test_an_edited_index_is_found_even_if_its_checksums_are_updated(dataset):
    """The index is compared with the shard, not only with the manifest."""
    manifest = read_manifest(dataset)
    (split,) = manifest.splits
    path = dataset / split.shards[0].index.name
    head, first, second, *lines = path.read_text().splitlines(keepends=True)
    path.write_text("".join([head, second, first, *lines]))
    edited = replace(split.shards[0], index=describe(str(dataset), path.name))
    manifest = replace(manifest, splits=(replace(split, shards=(edited, *split.shards[1:])),))
    (dataset / "manifest.json").write_bytes(manifest_bytes(manifest))
    (problem,) = verify_dataset(str(dataset), workers=1).problems
    assert (problem.file, "does not match the shard" in problem.message) == (path.name, True)


def test_a_manifest_that_names_a_label_which_no_record_has(dataset):
    """DALI would return records without labels."""
    manifest = read_manifest(dataset)
    label = "image/class/text" if manifest.format == "tfrecord" else "txt"
    manifest = replace(manifest, components=replace(manifest.components, label=label))
    (dataset / "manifest.json").write_bytes(manifest_bytes(manifest))
    problems = verify_dataset(str(dataset), workers=1).problems
    assert {problem.record for problem in problems} == {0, 1, 2, 3}
    assert all(f"no integer label under {label!r}" in problem.message for problem in problems)


def test_a_file_that_is_not_in_the_manifest(dataset):
    for name in ("train-00009.idx", "more.tar", ".dataprep/partial"):
        (dataset / name).parent.mkdir(exist_ok=True)
        (dataset / name).write_bytes(b"x")
        assert [*files_with_problems(dataset)] == [name]
        (dataset / name).unlink()


def test_flips_in_shards_of_another_tool(intact, tmp_path):
    """Shards indexed with checksums: `verify` names the file wherever the flipped byte is."""
    name = shards(intact)[0]
    shutil.copy(intact / name, tmp_path)
    index_shards([str(tmp_path)], IndexOptions(validate="header"), workers=1)
    assert not files_with_problems(tmp_path)
    for at in positions_to_flip(name, (tmp_path / name).read_bytes())[::2]:
        flip(tmp_path / name, at)
        assert [*files_with_problems(tmp_path)] == [name], at
        flip(tmp_path / name, at)


def refusal_of(folder: Path) -> str:
    """Return why the shards of a folder cannot be indexed; an empty string if they can."""
    try:
        result = index_shards([str(folder)], workers=1)
    except DatasetError as error:
        return str(error)
    return "" if result.manifest else str(result.errors[0])


@pytest.mark.parametrize("intact", FORMAT_NAMES, indirect=True)
def test_a_truncated_shard(intact, dataprep, tmp_path):
    """Every truncation is refused, except at the end of a record, and leaves no file."""
    name = shards(intact)[0]
    data, records = (intact / name).read_bytes(), scan(intact, name)
    path, ends = tmp_path / name, {record.end for record in records}
    for number, record in enumerate(records):
        for length in (record.start + 7, record.offset + 20):
            path.write_bytes(data[:length])
            place = rf"{re.escape(name)}, record {number}, byte {record.start}: .*cut short"
            assert re.search(place, refusal_of(tmp_path))
    done = dataprep("index", tmp_path)
    assert (done.returncode, "Traceback" in done.stderr) == (1, False)
    assert re.search(place, done.stderr.splitlines()[0])
    lengths = {*range(1, len(data), 97), *(end + step for end in ends for step in (-1, 1, 100))}
    for length in sorted(lengths - ends):
        if length < max(ends):
            path.write_bytes(data[:length])
            assert refusal_of(tmp_path), length
            assert os.listdir(tmp_path) == [name]
