"""An image that cannot be decoded is named, and with `on_error` the epoch continues without it."""

import os
import signal
import struct
from collections import Counter

import numpy as np
import nvidia.dali as dali
import pytest
from helpers import handmade
from helpers.damaged import BAD, PER_SHARD, SAMPLES, build, damage, make, rows_of
from helpers.loading import convert
from helpers.pictures import encode

import loaders
from loaders.dali.bad_images import DecodeMemoryError
from loaders.dataset.split import open_split
from manifests.errors import DamagedError
from manifests.tables import read_table

GOOD = set(range(SAMPLES)) - set(BAD)


@pytest.fixture(params=["tfrecord", "webdataset"])
def folder(request, prepared):
    """39 images of 3 classes in 3 shards, 4 of them damaged."""
    return prepared[f"damaged {request.param}"]


@pytest.fixture
def one_shard(tmp_path):
    """A function that makes a dataset of one shard with damaged rows."""

    def make_one(bad, rows=12):
        return damage(make(tmp_path / "set", "tfrecord", rows, shards=1), rows=bad)

    return make_one


@pytest.mark.parametrize("shuffle", [True, False, "buffer"])
def test_the_error_names_the_image(folder, shuffle):
    with (
        pytest.raises(DamagedError) as caught,
        build(folder, shuffle=shuffle, batch_size=3, prefetch=1) as loader,
    ):
        list(loader)
    error, split = caught.value, open_split(folder, "train")
    shard = [split.path(shard.file) for shard in split.shards].index(error.file)
    assert PER_SHARD * shard + error.record in BAD
    table = read_table(split.path(split.shards[shard].table)).to_pylist()
    # With a sampler, the first image that is read from a shard is compared with its checksum.
    messages = (
        f"the image with the key {table[error.record]['key']!r} cannot be decoded (DALI says: ",
        "an image is damaged: its checksum",
    )
    assert error.message.startswith(messages if shuffle is True else messages[:1])
    assert error.hint.endswith('or build the loader with on_error="skip"')


@pytest.mark.parametrize("last_batch", ["drop", "pad", "partial"])
@pytest.mark.parametrize("on_error", ["skip", "replace"])
def test_ranks_stay_in_step(prepared, on_error, last_batch):
    counts = Counter()
    for rank in range(2):
        options = {"on_error": on_error, "last_batch": last_batch, "rank": rank, "world_size": 2}
        with build(prepared["damaged tfrecord"], **options) as loader:
            batches = list(loader)
            assert len(batches) == len(loader)
            assert last_batch == "partial" or {len(labels) for _, labels, _ in batches} == {4}
            counts.update(rows_of(batches))
    assert set(counts) <= GOOD
    if last_batch == "partial" and on_error == "skip":
        assert set(counts) == GOOD
        assert counts.total() == len(counts) + 1  # one rank has nothing left for its last batch


def test_a_replacement_is_one_that_the_sampler_draws(folder):
    """Of the same identity, and neither a row outside a subset nor one of weight 0."""
    options = {"sampler": loaders.PKSampler(2, 2), "last_batch": "drop"}
    with build(folder, on_error="replace", **options) as loader:
        for _, labels, index in [*loader, *loader, *loader]:
            assert set(index.tolist()) <= GOOD
            assert labels[0] == labels[1] != labels[2] == labels[3]
    chosen = np.arange(0, SAMPLES, 2)
    weights = np.isin(np.arange(SAMPLES), chosen).astype(float)
    for sampler in (loaders.SubsetSampler(chosen), loaders.WeightedSampler(weights)):
        with build(folder, sampler=sampler, on_error="replace") as loader:
            for _ in range(3):
                assert set(rows_of(loader)) <= set(chosen.tolist()) & GOOD
            assert loader.errors


@pytest.mark.parametrize(
    ("bad", "others"), [(1, ""), (3, "; 2 more images"), (11, "; at least 4 more images")]
)
def test_an_error_does_not_wait_for_all_bad_images(one_shard, bad, others):
    """On a GPU each costs seconds, and perhaps none of a thousand can be decoded."""
    made = one_shard(range(bad))
    with pytest.raises(DamagedError) as caught, build(made, shuffle=False, batch_size=12) as loader:
        list(loader)
    assert caught.value.record == 0
    near = " near it cannot be decoded either" if others else ""
    assert caught.value.message.rpartition(")")[2] == others + near


@pytest.mark.parametrize(
    ("on_error", "one", "several"),
    [
        ("skip", "left out", "left out"),
        ("replace", "replaced by another sample", "replaced by other samples"),
    ],
)
def test_a_warning_says_what_is_lost(one_shard, tmp_path, caplog, on_error, one, several):
    """It names a row if the table with the key of the image is gone."""
    made = one_shard((2, 3, 9))
    (path,) = made.glob("*.parquet")
    with build(made, shuffle=False, prefetch=1, on_error=on_error) as loader:
        if on_error == "replace":
            path.rename(tmp_path / "table")
        list(loader), list(loader)
        if on_error == "replace":
            (tmp_path / "table").rename(path)
        told = [*map(str, loader.errors)]
    if on_error == "replace":
        told = [
            f"row {row}: {text.partition(': ')[2]}"
            for row, text in zip((2, 3, 9), told, strict=True)
        ]
    assert [record.getMessage() for record in caplog.records if record.levelname == "WARNING"] == [
        f"{made}: 2 images cannot be decoded and are {several}; loader.errors lists them, the"
        f" first is {told[0]}",
        f"{made}: an image cannot be decoded and is {one}: {told[2]}",
    ]


@pytest.mark.parametrize("bad", [1, 4, 6])
def test_a_changed_shard_is_told_from_a_damaged_image(make_photos, tmp_path, bad):
    """Converted datasets have checksums: with one intact image in a shard, the others may be damaged."""
    made = convert(make_photos(tmp_path / "photos", 6, classes=1), tmp_path / "set")
    damage(made, rows=range(6) if bad == 6 else range(1, 1 + bad))
    if bad == 6:
        with pytest.raises(DamagedError, match="the shard has changed"):
            build(made, on_error="skip")
        return
    with build(made, on_error="skip", fields=("image", "index")) as loader:
        assert len({row for _, index in loader for row in index.tolist()}) == 6 - bad


def _with_bad_bmp(folder, *, cut=0, width=33):
    """Make a dataset of 4 images, of which the second is a BMP that lacks bytes or states a wrong width."""
    bmps = [encode(np.full((33, 33, 3), 5 * row, np.uint8), "bmp") for row in range(4)]
    bmps[1] = bmps[1][: len(bmps[1]) - cut]
    samples = [("bmp", bmp, row % 3) for row, bmp in enumerate(bmps)]
    made = handmade.make_dataset(folder, "tfrecord", samples, shards=1)
    shard = made / "train-00000.tfrecord"
    changed = bmps[1][:18] + struct.pack("<i", width) + bmps[1][22:]
    shard.write_bytes(shard.read_bytes().replace(bmps[1], changed))
    return made


@pytest.mark.parametrize(
    ("how", "options", "message"),
    [
        # DALI decodes this image whole without the padding of its rows, but no region of it.
        ({"cut": 30}, {"transforms": [{"RandomResizedCrop": {"size": 16}}]}, "cannot be decoded"),
        # The batch fails because there is not enough memory for it.
        ({"width": 822083683}, {}, "bad_alloc: its header states 822083683 x 33 pixels"),
    ],
)
def test_images_that_are_bad_in_another_way(tmp_path, how, options, message):
    made = _with_bad_bmp(tmp_path / "set", **how)
    with pytest.raises(DamagedError) as caught, build(made, shuffle=False, **options) as loader:
        list(loader)
    assert caught.value.record == 1
    assert message in caught.value.message
    with build(made, shuffle=False, on_error="skip", **options) as loader:
        assert rows_of(loader) == [0, 2, 3]


@pytest.mark.parametrize("on_error", ["raise", "skip"])
def test_too_little_memory_is_one_line(tmp_path, monkeypatch, on_error):
    """Where headers state supported sizes, no image is bad."""
    monkeypatch.setattr("loaders.dali.bad_images.MAX_PIXELS", 2**60)
    made = _with_bad_bmp(tmp_path / "set", width=822083683)
    with (
        pytest.raises(DecodeMemoryError, match="not enough memory to decode a batch"),
        build(made, shuffle=False, on_error=on_error) as loader,
    ):
        list(loader)


def test_a_bad_image_that_no_batch_contains(one_shard):
    """DALI reads it between two epochs, and the loader discards it."""
    options = {"shuffle": False, "last_batch": "drop", "batch_size": 3, "prefetch": 1}
    with build(one_shard((13,), 14), **options) as loader:
        assert [rows_of(loader) for _ in range(3)] == [list(range(12))] * 3
        assert (loader.epoch, loader.errors) == (3, ())


@pytest.mark.usefixtures("no_garbage_collector")
def test_ctrl_c_during_the_search(one_shard, monkeypatch):
    """Python ignores an exception in a destructor, so Ctrl-C waits until pipelines are destroyed."""
    made = one_shard((2, 9))
    true, pressed, destroyed = dali.Pipeline._shutdown, None, 0

    def shutdown(self):
        nonlocal destroyed
        destroyed += 1
        if destroyed == pressed:
            os.kill(os.getpid(), signal.SIGINT)
        return true(self)

    with build(made, shuffle=False, on_error="skip") as loader:
        monkeypatch.setattr(dali.Pipeline, "_shutdown", shutdown)
        list(loader)
        count = destroyed
    assert count >= 3  # two of the search, and the one that failed
    for number in range(1, count + 1):
        with build(made, shuffle=False, on_error="skip") as loader:
            pressed, destroyed = number, 0
            with pytest.raises(KeyboardInterrupt):
                list(loader)
            pressed = None
