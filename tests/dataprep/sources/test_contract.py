"""What holds for every source: equal images give equal samples, and damage is named before anything is written."""

from __future__ import annotations

import builtins
import os
import random
from contextlib import contextmanager, suppress

import pytest
from helpers import sources
from helpers.datasets import rejected_of, rows_of
from helpers.make_sources import BROKEN, IMAGES, MAKERS
from helpers.rows import read_named
from helpers.shards import stored_samples
from helpers.sources import load, read, rows

from dataprep.engines import LocalEngine
from dataprep.options import Options
from dataprep.run.convert import convert_dataset
from dataprep.verification.verify import verify_dataset
from manifests.errors import CallError, SourceError, SourceVanishedError

#: A list that ends early is a shorter list, and a folder has no end.
_LINES = ("image folder", "lists", "csv")
_TABLES = ("json lines", "parquet table")
_PREPARED = ("tfrecord dataset", "webdataset dataset")


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


@pytest.mark.parametrize("kind", [kind for kind in MAKERS if kind not in _LINES])
def test_a_container_that_ends_early_is_named_and_nothing_is_written(kind, tmp_path, convert):
    source = MAKERS[kind](tmp_path / "source")
    container = source.container or source.src
    content = container.read_bytes()
    for length in (0, 1, len(content) // 2, len(content) - 1):
        container.write_bytes(content[:length])
        if source.container is None and length == len(content) - 1:
            continue  # a list that ends without a line feed is complete
        result = convert(source.src, tmp_path / "out", status=2)
        assert container.name in result.stderr
        assert "Hint: " in result.stderr
        assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    "kind", [kind for kind in MAKERS if kind not in (*_LINES, *_TABLES, *_PREPARED)]
)
def test_damage_is_an_error_or_a_rejected_image(kind, tmp_path):
    """Flipped bits and an end anywhere, before the scan and after it."""
    source, rng = MAKERS[kind](tmp_path / "source"), random.Random(1)
    content, scanned = source.container.read_bytes(), read(source.src)
    for _ in range(100):
        damaged = bytearray(content)
        for _ in range(rng.choice((1, 1, 4, 30))):
            # Half of the bytes are in headers of pages, which an LMDB database has.
            page = rng.randrange(0, len(content) - 64, 4096) + rng.randrange(64)
            damaged[rng.choice((page, rng.randrange(len(content))))] ^= 1 << rng.randrange(8)
        end = rng.choice((len(content), len(content), rng.randrange(len(content))))
        source.container.write_bytes(damaged[:end])
        with suppress(SourceVanishedError):
            load(scanned)
        try:
            images = load(read(source.src))
        except (SourceError, CallError) as error:
            assert str(tmp_path) in str(error)  # noqa: PT017
            continue
        if kind == "zip":  # which has checksums
            assert {*images} <= {*(image.data for image in IMAGES), "corrupt", "truncated"}


@pytest.mark.parametrize("kind", MAKERS)
def test_a_container_that_vanishes_after_the_scan_stops_the_run(kind, engine, tmp_path):
    """If it is there, two processes find the bytes of every image."""
    source, out = MAKERS[kind](tmp_path / "source"), tmp_path / "out"
    scanned = read(source.src)
    os.rename(tmp_path / "source", tmp_path / "moved")
    with pytest.raises(SourceVanishedError, match="source"):
        convert_dataset(scanned, str(out), Options(), workers=1)
    os.rename(tmp_path / "moved", tmp_path / "source")
    convert_dataset(scanned, str(out), Options(shard_samples=5), engine=engine)
    found, expected = [], []
    for row, (_, data) in zip(rows_of(out), stored_samples(out), strict=True):
        found.append((row["split"], row["source"], row["class"], data))
    for image, name in zip(IMAGES, source.names, strict=True):
        expected.append((image.split, name, source.classes[image.label], image.data))
    broken = expected.pop(BROKEN)
    assert sorted(found) == sorted(expected)
    (rejected,) = rejected_of(out)
    assert (rejected["source"], rejected["reason"]) == (broken[1], "truncated")
    assert verify_dataset(str(out), workers=1).problems == ()


# --- folders --------------------------------------------------------------------------------------

NAMES = [f"{name}/{number}.jpg" for name in ("b", "a", "a b", "Z") for number in (3, 20, "x/1")]

#: Folders of files by layout; only the last two have a list, which is the source.
FOLDERS = read_named(__file__, "folders", globals(), vars(sources))


@pytest.mark.parametrize("layout", FOLDERS)
def test_samples_are_in_order_and_no_image_is_opened(layout, make_tree, monkeypatch):
    """Whatever the order of the file system is."""
    files = FOLDERS[layout]
    root = make_tree(files)
    (table,) = [name for name in files if name.startswith("list.")] or [""]
    opened, rng, scandir = [], random.Random(0), os.scandir
    for module in (builtins, os):

        def spy(path, *args, original=module.open, **options):
            opened.append(str(path))
            return original(path, *args, **options)

        monkeypatch.setattr(module, "open", spy)
    expected = rows(read(root / table))
    assert expected
    assert not [path for path in opened if path.endswith(".jpg")]
    if files is NAMES:
        assert [row[1] for row in expected] == sorted(NAMES, key=lambda name: name.split("/", 1))

    @contextmanager
    def shuffled(path):
        entries = list(scandir(path))
        yield iter(rng.sample(entries, len(entries)))

    monkeypatch.setattr(os, "scandir", shuffled)
    for _ in range(4):
        assert rows(read(root / table)) == expected
