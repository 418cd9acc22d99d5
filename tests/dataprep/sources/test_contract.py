"""What holds for every source: equal images give equal samples, and damage is named before anything is written."""

from __future__ import annotations

import json
import os

import numpy as np
import pyarrow.parquet as pq
import pytest
from helpers import HELPERS
from helpers.make_sources import BROKEN, IMAGES, MAKERS
from helpers.sources import read, rows

from dataprep.engines import LocalEngine
from dataprep.options import Options
from dataprep.run.convert import convert_dataset
from dataprep.sources import UNREADABLE
from dataprep.verification.verify import verify_dataset
from manifests.errors import SourceVanishedError
from manifests.store import read_manifest

KINDS = [*MAKERS]
#: These differ from an image folder only in the scan.
_LISTS = ("lists", "csv", "json lines", "parquet table")


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A function that makes each source once."""
    cache = {}

    def make(kind):
        if kind not in cache:
            cache[kind] = MAKERS[kind](tmp_path_factory.mktemp(kind.replace(" ", "-")) / "source")
        return cache[kind]

    return make


class SharedEngine(LocalEngine):
    """An engine whose worker stays for the next conversion, and works from its first shard on."""

    def close(self):
        """Do nothing. `LocalEngine.close` ends it."""


@pytest.fixture(scope="module")
def engine():
    """An engine of two processes, which all conversions of this module share."""
    engine = SharedEngine(2)
    yield engine
    LocalEngine.close(engine)


def samples(out):
    """Return split, source, class name and stored image of every sample of a dataset."""
    manifest = read_manifest(out)
    found = []
    for split in manifest.splits:
        for shard in split.shards:
            data = (out / shard.file.name).read_bytes()
            for row in pq.read_table(out / shard.table.name).to_pylist():
                image = data[row["offset"] : row["offset"] + row["size"]]
                found.append((split.name, row["source"], manifest.classes[row["label"]], image))
    return sorted(found)


def expected(source):
    """Return what `samples` must return."""
    return sorted(
        (image.split, name, source.classes[image.label], image.data)
        for number, (image, name) in enumerate(zip(IMAGES, source.names, strict=True))
        if number != BROKEN
    )


def files_of(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}


@pytest.mark.parametrize("kind", KINDS)
def test_the_scan_is_complete_and_deterministic(kind, made):
    source, again = read(made(kind).src), read(made(kind).src)
    assert rows(source) == rows(again)
    assert source.classes == made(kind).classes
    assert {*source.splits} == {*made(kind).splits}
    assert sorted(source.path.to_pylist()) == sorted(made(kind).names)
    assert len({*source.path.to_pylist()}) == len(IMAGES)
    assert (source.size != UNREADABLE).all()
    assert source.stamp is None or source.stamp.shape == (len(source), 2)
    assert np.array_equal(source.size, again.size)
    if source.location is not None:
        assert source.location.equals(again.location)
        assert len(source.location) == len(source)


@pytest.mark.parametrize("fmt", ["tfrecord", "webdataset"])
@pytest.mark.parametrize("kind", KINDS)
def test_the_shards_have_the_images_of_the_source(kind, fmt, made, tmp_path, invoke):
    out = tmp_path / "out"
    invoke("convert", "--src", made(kind).src, "--out", out, "--fmt", fmt, "--samples-per-shard", 5, "--workers", 1,
           "--max-rejected", 0.1)  # fmt: skip
    assert samples(out) == expected(made(kind))
    rejected = [
        json.loads(line) for line in (out / "rejected.jsonl").read_text("utf-8").splitlines()
    ]
    assert [(row["source"], row["reason"]) for row in rejected] == [
        (made(kind).names[BROKEN], "truncated")
    ]
    assert verify_dataset(str(out), workers=1).problems == ()


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind not in _LISTS])
def test_the_bytes_do_not_depend_on_workers_or_kills(kind, made, engine, warm, tmp_path):
    done = warm.run(
        HELPERS / "kill_at_calls.py",
        made(kind).src,
        tmp_path / "out",
        "tfrecord",
        "67",
        timeout=600,
    )
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    assert result["killed"] >= 2
    assert (result["different"], result["early_manifest"]) == ([], [])
    options = Options(fmt="tfrecord", shard_samples=5, shuffle=False)
    convert_dataset(read(made(kind).src), str(tmp_path / "parallel"), options, engine=engine)
    assert files_of(tmp_path / "parallel") == files_of(tmp_path / "out")


@pytest.mark.parametrize(
    "kind", [kind for kind in KINDS if kind not in {"image folder", "lists", "csv"}]
)
def test_a_container_that_ends_early_is_named_and_nothing_is_written(kind, tmp_path, invoke):
    source = MAKERS[kind](tmp_path / "source")
    container = source.container or source.src
    content = container.read_bytes()
    for length in (0, 1, len(content) // 2, len(content) - 1):
        container.write_bytes(content[:length])
        if source.container is None and length == len(content) - 1:
            continue  # a list that ends without a line feed is complete
        result = invoke("convert", "--src", source.src, "--out", tmp_path / "out", status=2)
        assert container.name in result.stderr
        assert "Hint: " in result.stderr
        assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("kind", KINDS)
def test_a_container_that_vanishes_after_the_scan_stops_the_run(kind, tmp_path):
    source = MAKERS[kind](tmp_path / "source")
    scanned = read(source.src)
    os.rename(tmp_path / "source", tmp_path / "moved")
    with pytest.raises(SourceVanishedError, match="source"):
        convert_dataset(scanned, str(tmp_path / "out"), Options(), workers=1)
    os.rename(tmp_path / "moved", tmp_path / "source")
    convert_dataset(scanned, str(tmp_path / "out"), Options(), workers=1)
    assert samples(tmp_path / "out") == expected(source)
