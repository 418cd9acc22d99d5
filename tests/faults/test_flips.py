"""One flipped byte anywhere in a prepared dataset: `verify` finds it, and names the file and the record."""

from __future__ import annotations

import csv
import os
import random
import shutil
import zlib
from bisect import bisect_right
from itertools import zip_longest
from pathlib import Path

import pytest
from helpers.pictures import SUFFIXES, encode, photo

from dataprep.formats import FORMATS, ScanOptions
from dataprep.indexing.index import index_shards
from dataprep.ledger.finished import STAMPS_NAME
from dataprep.options import IndexOptions
from dataprep.plan.assign import Options
from dataprep.run.convert import convert_dataset
from dataprep.sources import SourceOptions, read_source
from dataprep.verification.verify import verify_dataset
from manifests.schema import FORMAT_NAMES
from manifests.store import read_manifest

COUNT = 7


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    """A table of seven tiny images in three formats, a damaged eighth image, and two extra columns."""
    folder = tmp_path_factory.mktemp("table")
    with (folder / "list.csv").open("w", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(["path", "label", "identity", "weight", "right"])
        for number in range(COUNT):
            kind = tuple(SUFFIXES)[number % 3]
            name = f"{number} photo.{SUFFIXES[kind]}"
            (folder / name).write_bytes(encode(photo(number, 16, 12), kind))
            row = [name, ("cat", "dog")[number % 2], f"p{number // 2}", number / 4, "0 photo.jpg"]
            rows.writerow(row)
        (folder / "broken.jpg").write_bytes(b"<html>")
        rows.writerow(["broken.jpg", "cat", "p9", 0.0, "0 photo.jpg"])
    return folder / "list.csv"


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


def starts(folder: Path, name: str) -> list[int]:
    """Return the first byte of each record in an intact shard."""
    manifest = read_manifest(folder)
    data = (folder / name).read_bytes()
    scan = FORMATS[manifest.format].scan(
        lambda at, _: (data, at), len(data), name, ScanOptions(manifest.components)
    )
    return [record.start for record in scan]


def shards(folder: Path) -> list[str]:
    return [shard.name for split in read_manifest(folder).splits for shard in split.shards]


def flip(path: Path, *positions: int, mask: int = 0) -> None:
    """Flip bits of the bytes at these positions.

    By default one bit, which depends on the position.
    """
    with path.open("r+b") as file:
        for at in positions:
            byte = os.pread(file.fileno(), 1, at)[0]
            os.pwrite(file.fileno(), bytes([byte ^ (mask or 1 << at % 8)]), at)


def positions_to_flip(name: str, data: bytes) -> list[int]:
    """Return every second byte of an index, of other files many at both ends or in headers and some of the others.

    The index of a shard begins at byte 0 or 1, as its name decides, so that even and odd bytes are
    flipped.
    """
    if name.endswith((".parquet", ".json", ".jsonl")):
        return sorted(
            {*range(0, len(data), 263), *range(0, 64, 7), *range(len(data) - 64, len(data), 7)}
        )
    if name.endswith(".tar"):
        edges = (at for at in range(len(data)) if any(data[max(at - 1, 0) : at + 2]))
        return sorted(
            {
                *list(edges)[::101],
                *range(0, len(data), 613),
                *range(0, len(data), 512),
                len(data) - 1,
            }
        )
    if name.endswith(".idx"):
        return [*range(zlib.crc32(name.encode()) % 2, len(data), 2)]
    return sorted({*range(0, len(data), 113), *range(0, 400, 7)})


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
        ends = [max((at for at, byte in enumerate(data) if byte), default=0) for data in contents]
        for positions in zip_longest(
            *map(positions_to_flip, [path.name for path in paths], contents)
        ):
            flips = [
                (path, at) for path, at in zip(paths, positions, strict=True) if at is not None
            ]
            for path, at in flips:
                flip(path, at)
            problems = files_with_problems(dataset)
            for path, at in flips:
                flip(path, at)
            names = {path.name for path, _ in flips}
            missed += [(name, positions) for name in names - problems.keys()]
            misplaced += [(name, positions) for name in problems.keys() - names]
            for path, at, begin, end in zip(paths, positions, begins, ends, strict=True):
                if at is not None and begin and at <= end:
                    expected = bisect_right(begin, at) - 1
                    if problems.get(path.name, {expected}) != {expected}:
                        misplaced.append((path.name, at, expected, problems[path.name]))
        assert [path.read_bytes() for path in paths] == contents
    assert not missed, f"{len(missed)} flips were not found: {missed[:9]}"
    assert not misplaced, f"{len(misplaced)} flips were reported in another place: {misplaced[:9]}"


def test_any_bits_of_one_byte(dataset):
    """Flip single bits and patterns of bits at the start and in the middle of every file."""
    for paths in beside(dataset):
        for share in (lambda _: 0, lambda _: 9, lambda size: size // 2):
            places = [(path, share(path.stat().st_size)) for path in paths]
            for mask in (1, 2, 4, 8, 16, 32, 64, 128, 255, 0x81):
                for path, at in places:
                    flip(path, at, mask=mask)
                assert files_with_problems(dataset).keys() == {path.name for path in paths}, (
                    places,
                    mask,
                )
                for path, at in places:
                    flip(path, at, mask=mask)


@pytest.mark.parametrize("seed", range(12))
def test_several_flips_in_one_shard_are_all_reported(dataset, seed):
    """One flip in each of three records: one problem does not hide the next."""
    name = shards(dataset)[0]
    begin, size = starts(dataset, name), (dataset / name).stat().st_size
    ends = [*begin[1:], size - 1024 if name.endswith(".tar") else size]
    draw = random.Random(seed)
    records = [0, 2, 3] if seed % 2 else [0, 1, 3]
    positions = [draw.randrange(begin[record], ends[record]) for record in records]
    flip(dataset / name, *positions)
    reported = {problem.record for problem in verify_dataset(str(dataset), workers=1).problems}
    assert reported == set(records), (
        f"flipped bytes {positions} of records {records}, reported {reported}"
    )


@pytest.mark.parametrize("part", ["first byte", "image", "last byte"])
def test_flips_in_every_record_are_all_reported(dataset, part):
    name = shards(dataset)[0]
    manifest, begin = read_manifest(dataset), starts(dataset, name)
    data = (dataset / name).read_bytes()
    scan = list(
        FORMATS[manifest.format].scan(
            lambda at, _: (data, at), len(data), name, ScanOptions(manifest.components)
        )
    )
    positions = {
        "first byte": begin,
        "image": [record.offset + record.size // 2 for record in scan],
        "last byte": [record.end - 1 for record in scan],
    }[part]
    flip(dataset / name, *positions)
    assert {problem.record for problem in verify_dataset(str(dataset), workers=1).problems} == {
        0,
        1,
        2,
        3,
    }


def test_a_shard_cut_at_any_length(dataset):
    name = shards(dataset)[0]
    data = (dataset / name).read_bytes()
    begin = starts(dataset, name)
    for length in (
        0,
        1,
        11,
        12,
        511,
        512,
        len(data) // 2,
        begin[2],
        begin[2] + 1,
        len(data) - 513,
        len(data) - 1,
    ):
        (dataset / name).write_bytes(data[:length])
        problems = verify_dataset(str(dataset), workers=1).problems
        assert {problem.file for problem in problems} == {name}, (
            length,
            [str(problem) for problem in problems],
        )


@pytest.mark.parametrize("garbage", [b"x", b"\0", b"\0" * 4096, b"\0" * 512 + b"x"])
def test_bytes_after_the_end_of_any_file(dataset, garbage):
    for path in sorted(dataset.glob("[!.]*")):
        data = path.read_bytes()
        path.write_bytes(data + garbage)
        assert {problem.file for problem in verify_dataset(str(dataset), workers=1).problems} == {
            path.name
        }, path
        path.write_bytes(data)


def test_a_file_removed_or_emptied(dataset):
    for path in sorted(dataset.glob("[!.]*")):
        data = path.read_bytes()
        path.write_bytes(b"")
        assert path.name in {
            problem.file for problem in verify_dataset(str(dataset), workers=1).problems
        }
        path.unlink()
        assert path.name in {
            problem.file for problem in verify_dataset(str(dataset), workers=1).problems
        }
        path.write_bytes(data)
    assert verify_dataset(str(dataset), workers=1).problems == ()


@pytest.mark.parametrize("number", range(3))
def test_two_shards_swapped(dataset, number):
    """Two shards, two indexes or two tables swap names."""
    manifest = read_manifest(dataset)
    kinds = [
        (shard.name, shard.index.name, shard.table.name)
        for split in manifest.splits
        for shard in split.shards
    ]
    first, second = kinds[0][number], kinds[1][number]
    (dataset / first).rename(dataset / "aside")
    (dataset / second).rename(dataset / first)
    (dataset / "aside").rename(dataset / second)
    assert {first, second} <= {
        problem.file for problem in verify_dataset(str(dataset), workers=1).problems
    }


@pytest.mark.parametrize(
    "change", ["one line missing", "two lines swapped", "one line twice", "of another shard"]
)
def test_an_index_that_does_not_match_its_shard(dataset, change):
    indexes = [
        shard.index.name for split in read_manifest(dataset).splits for shard in split.shards
    ]
    path = dataset / indexes[0]
    head, *lines = path.read_text().splitlines(keepends=True)
    lines = {
        "one line missing": lines[:-1],
        "two lines swapped": [lines[1], lines[0], *lines[2:]],
        "one line twice": [lines[0], *lines],
        "of another shard": (dataset / indexes[1]).read_text().splitlines(keepends=True),
    }[change]
    path.write_text("".join([head, *lines] if change != "of another shard" else lines))
    assert {problem.file for problem in verify_dataset(str(dataset), workers=1).problems} == {
        indexes[0]
    }


def test_an_edited_index_is_found_even_if_its_checksums_are_updated(dataset):
    """The index is compared with the shard, not only with the manifest."""
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
    (problem,) = verify_dataset(str(dataset), workers=1).problems
    assert problem.file == path.name
    assert "does not match the shard" in problem.message


def test_a_manifest_that_names_a_label_which_no_record_has(dataset):
    """DALI would return records without labels."""
    from dataclasses import replace

    from manifests.store import manifest_bytes

    manifest = read_manifest(dataset)
    components = replace(
        manifest.components, label="image/class/text" if manifest.format == "tfrecord" else "txt"
    )
    (dataset / "manifest.json").write_bytes(
        manifest_bytes(replace(manifest, components=components))
    )
    problems = verify_dataset(str(dataset), workers=1).problems
    assert {problem.record for problem in problems} == {0, 1, 2, 3}
    assert all(
        f"no integer label under {components.label!r}" in problem.message for problem in problems
    )


def test_a_file_that_is_not_in_the_manifest(dataset):
    for name in ("train-00009.idx", "more.tar", ".dataprep/partial"):
        (dataset / name).parent.mkdir(exist_ok=True)
        (dataset / name).write_bytes(b"x")
        assert {problem.file for problem in verify_dataset(str(dataset), workers=1).problems} == {
            name
        }
        (dataset / name).unlink()


def test_a_folder_converted_again_in_another_format(dataset, source):
    """Within one process: nothing is cached from the first dataset."""
    assert verify_dataset(str(dataset), workers=1).problems == ()
    other = next(fmt for fmt in FORMAT_NAMES if fmt != read_manifest(dataset).format)
    convert_dataset(
        read_source(str(source)), str(dataset), Options(fmt=other), workers=1, overwrite=True
    )
    assert [str(problem) for problem in verify_dataset(str(dataset), workers=1).problems] == []


def test_flips_in_shards_of_another_tool(intact, tmp_path):
    """Shards indexed with checksums: `verify` names the file wherever the flipped byte is."""
    folder = tmp_path / "indexed"
    folder.mkdir()
    name = shards(intact)[0]
    shutil.copy(intact / name, folder)
    index_shards([str(folder)], IndexOptions(validate="header"), workers=1)
    assert verify_dataset(str(folder), workers=1).problems == ()
    data = (folder / name).read_bytes()
    for at in positions_to_flip(name, data)[::2]:
        flip(folder / name, at)
        problems = verify_dataset(str(folder), workers=1).problems
        flip(folder / name, at)
        assert {problem.file for problem in problems} == {name}, (
            at,
            [str(problem) for problem in problems],
        )
