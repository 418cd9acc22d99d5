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
from helpers.pictures import encode

import loaders
from loaders.dali.bad_images import DecodeMemoryError
from loaders.dataset.split import open_split
from manifests.errors import CallError, DamagedError
from manifests.tables import read_table


@pytest.fixture(scope="module", params=["tfrecord", "webdataset"])
def folder(request, tmp_path_factory):
    """39 images of 3 classes in 3 shards, 4 of them damaged."""
    return damage(make(tmp_path_factory.mktemp("damaged") / "data set", request.param))


@pytest.mark.parametrize("shuffle", [True, False, "buffer"])
def test_the_error_names_the_image(folder, shuffle):
    with (
        pytest.raises(DamagedError) as caught,
        build(folder, shuffle=shuffle, batch_size=3, prefetch=1) as loader,
    ):
        list(loader)
    error = caught.value
    split = open_split(folder, "train")
    paths = [split.path(shard.file) for shard in split.shards]
    row = PER_SHARD * paths.index(error.file) + error.record
    assert row in BAD
    key = read_table(split.path(split.shards[row // PER_SHARD].table)).to_pylist()[row % PER_SHARD][
        "key"
    ]
    # With a sampler, the first image that is read from a shard is compared with its checksum.
    messages = (
        f"the image with the key {key!r} cannot be decoded (DALI says: ",
        "an image is damaged: its checksum",
    )
    assert error.message.startswith(messages if shuffle is True else messages[:1])
    assert error.hint.endswith('or build the loader with on_error="skip"')


@pytest.mark.parametrize("shuffle", [True, False])
@pytest.mark.parametrize("on_error", ["skip", "replace"])
def test_every_good_sample_is_read(folder, shuffle, on_error):
    with build(folder, shuffle=shuffle, on_error=on_error) as loader:
        for _ in range(3):
            counts = Counter(rows_of(loader))
            assert not set(counts) & set(BAD)
            assert set(counts) == set(range(SAMPLES)) - set(BAD)
            # The last batch, of which nothing is left, repeats one sample in training.
            expected = SAMPLES - len(BAD) + 1 if on_error == "skip" else SAMPLES
            assert counts.total() == expected
            if on_error == "skip":
                assert max(counts.values()) == 2
        assert len(loader) == 10
        assert {error.row for error in loader.errors} == set(BAD)


def test_errors_say_where_an_image_is(folder):
    with build(folder, shuffle=False, on_error="skip") as loader:
        assert loader.errors == ()
        list(loader)
        errors = loader.errors
    assert [(error.row, error.record) for error in errors] == [(5, 5), (16, 3), (17, 4), (38, 12)]
    split = open_split(folder, "train")
    for error in errors:
        shard = split.shards[error.row // PER_SHARD]
        assert (error.shard, error.split, error.dataset) == (shard.name, "train", str(folder))
        assert error.key == read_table(split.path(shard.table)).to_pylist()[error.record]["key"]
        assert error.reason
        assert str(error).startswith(f"{shard.name}, record {error.record}, key {error.key!r}: ")


@pytest.mark.parametrize("last_batch", ["drop", "pad", "partial"])
@pytest.mark.parametrize("on_error", ["skip", "replace"])
def test_ranks_stay_in_step(folder, on_error, last_batch):
    counts = Counter()
    for rank in range(2):
        with build(
            folder, on_error=on_error, last_batch=last_batch, rank=rank, world_size=2
        ) as loader:
            batches = list(loader)
            assert len(batches) == len(loader)
            if last_batch != "partial":
                assert all(len(labels) == 4 for _, labels, _ in batches)
            counts.update(rows_of(batches))
    assert not set(counts) & set(BAD)
    if last_batch == "partial" and on_error == "skip":
        assert set(counts) == set(range(SAMPLES)) - set(BAD)
        assert counts.total() == len(counts) + 1  # one rank has nothing left for its last batch


@pytest.mark.parametrize("on_error", ["skip", "replace"])
def test_a_checkpoint_resumes_to_the_same_batches(folder, on_error, request):
    """Within the first epoch, between two, and within the second.

    The stops are shared between the formats.
    """

    def collect(loader, count):
        batches, states = [], {}
        while len(batches) < count:
            for batch in loader:
                batches.append(batch)
                states[len(batches)] = loader.state_dict()
                if len(batches) >= count:
                    break
        return batches, states

    random = [{"RandCropImage": {"size": 24}}, {"RandFlipImage": {"flip_code": 1}}]
    with build(folder, on_error=on_error, transforms=random) as loader:
        whole, states = collect(loader, 20)
    stops = {"tfrecord": (1, 9, 13), "webdataset": (4, 10, 13)}
    for stop in stops[request.node.callspec.params["folder"]]:
        with build(folder, on_error=on_error, transforms=random) as loader:
            loader.load_state_dict(states[stop])
            resumed, _ = collect(loader, 20 - stop)
            assert {error.row for error in loader.errors} == set(BAD)
        for expected, batch in zip(whole[stop:], resumed, strict=True):
            for left, right in zip(expected, batch, strict=True):
                assert np.array_equal(left, right)


def test_pk_batches_keep_their_identities(folder):
    with build(
        folder, sampler=loaders.PKSampler(2, 2), on_error="replace", last_batch="drop"
    ) as loader:
        for _ in range(3):
            for _, labels, index in loader:
                assert not set(index.tolist()) & set(BAD)
                assert labels[0] == labels[1] != labels[2] == labels[3]
    with pytest.raises(CallError, match="are not P x K"):
        build(folder, sampler=loaders.PKSampler(2, 2), on_error="skip", last_batch="drop")


def test_a_replacement_is_one_that_the_sampler_draws(folder):
    """Neither a row outside a subset, nor one of weight 0."""
    chosen = np.arange(0, SAMPLES, 2)
    weights = np.isin(np.arange(SAMPLES), chosen).astype(float)
    for sampler in (loaders.SubsetSampler(chosen), loaders.WeightedSampler(weights)):
        with build(folder, sampler=sampler, on_error="replace") as loader:
            for _ in range(3):
                assert set(rows_of(loader)) <= set(chosen.tolist()) - set(BAD)
            assert loader.errors
    pk = loaders.SubsetSampler(chosen, sampler=loaders.PKSampler(2, 2))
    with pytest.raises(CallError, match="are not P x K"):
        build(folder, sampler=pk, on_error="skip", last_batch="drop")


def test_a_batch_of_bad_images_alone(tmp_path):
    made = damage(make(tmp_path / "set", "tfrecord", 12, shards=1), rows=range(4, 8))
    for on_error, expected in (("skip", 9), ("replace", 12)):
        with build(made, shuffle=False, on_error=on_error) as loader:
            assert len(rows_of(loader)) == expected


@pytest.mark.parametrize("on_error", ["skip", "replace"])
def test_only_bad_images_are_an_error(tmp_path, on_error):
    made = damage(make(tmp_path / "set", "tfrecord", 6), rows=range(6))
    with pytest.raises(DamagedError), build(made, on_error=on_error) as loader:
        list(loader)


@pytest.mark.parametrize(
    ("bad", "others"), [(1, ""), (3, "; 2 more images"), (11, "; at least 4 more images")]
)
def test_an_error_does_not_wait_for_all_bad_images(tmp_path, bad, others):
    """On a GPU each costs seconds, and perhaps none of a thousand can be decoded."""
    made = damage(make(tmp_path / "set", "tfrecord", 12, shards=1), rows=range(bad))
    with pytest.raises(DamagedError) as caught, build(made, shuffle=False, batch_size=12) as loader:
        list(loader)
    assert caught.value.record == 0
    assert caught.value.message.rpartition(")")[2] == others + (
        " near it cannot be decoded either" if others else ""
    )


@pytest.mark.parametrize("table", ["there", "gone"])
@pytest.mark.parametrize(
    ("on_error", "one", "several"),
    [
        ("skip", "left out", "left out"),
        ("replace", "replaced by another sample", "replaced by other samples"),
    ],
)
def test_a_warning_says_what_is_lost(tmp_path, caplog, on_error, one, several, table):
    made = damage(make(tmp_path / "set", "tfrecord", 12, shards=1), rows=(2, 3, 9))
    with build(made, shuffle=False, prefetch=1, on_error=on_error) as loader:
        if table == "gone":
            (path,) = made.glob("*.parquet")
            path.rename(tmp_path / "table")
        for _ in range(2):
            list(loader)
        if table == "gone":
            (tmp_path / "table").rename(path)
        second, _, ninth = map(str, loader.errors)
    messages = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    if table == "gone":
        second, ninth = (
            f"row {row}: {text.partition(': ')[2]}" for row, text in ((2, second), (9, ninth))
        )
    assert messages == [
        (
            f"{made}: 2 images cannot be decoded and are {several}; loader.errors lists them, the"
            f" first is {second}"
        ),
        f"{made}: an image cannot be decoded and is {one}: {ninth}",
    ]


@pytest.mark.parametrize("bad", [1, 4, 6])
def test_a_changed_shard_is_told_from_a_damaged_image(make_photos, dataprep, tmp_path, bad):
    """Converted datasets have checksums: with one intact image in a shard, the others may be damaged."""
    made = tmp_path / "set"
    photos = make_photos(tmp_path / "photos", 6, classes=1)
    assert dataprep("convert", "--src", photos, "--out", made, "--fmt", "tfrecord").returncode == 0
    damage(made, rows=range(6) if bad == 6 else range(1, 1 + bad))
    if bad == 6:
        with pytest.raises(DamagedError, match="the shard has changed"):
            build(made, on_error="skip")
        return
    with build(made, on_error="skip", fields=("image", "index")) as loader:
        rows = [row for _, index in loader for row in index.tolist()]
    assert len(set(rows)) == 6 - bad


def test_wrong_arguments(folder):
    with pytest.raises(
        CallError, match="on_error must be one of 'raise', 'skip', 'replace', got 'ignore'"
    ):
        build(folder, on_error="ignore")
    with pytest.raises(CallError, match="cannot leave out an image"):
        build(folder, on_error="skip", shuffle="buffer")


def _with_bad_bmp(folder, *, cut=0, width=33):
    """Make a dataset of 4 images.

    The second is a BMP that lacks its last bytes, or states a wrong width.
    """
    samples = [
        ("bmp", encode(np.full((33, 33, 3), 5 * row, np.uint8), "bmp"), row % 3) for row in range(4)
    ]
    second = samples[1][1]
    samples[1] = ("bmp", second[: len(second) - cut], 1)
    made = handmade.make_dataset(folder, "tfrecord", samples, shards=1)
    split = open_split(made, "train")
    with open(split.path(split.shards[0].file), "r+b") as file:
        file.seek(read_table(split.path(split.shards[0].table))["offset"][1].as_py() + 18)
        file.write(struct.pack("<i", width))
    return made


def test_an_image_of_which_no_region_can_be_decoded(tmp_path):
    """DALI decodes this image whole without the padding of its rows, but no region of it."""
    made = _with_bad_bmp(tmp_path / "set", cut=30)
    crop = [{"RandomResizedCrop": {"size": 16}}]
    with (
        pytest.raises(DamagedError) as caught,
        build(made, shuffle=False, transforms=crop) as loader,
    ):
        list(loader)
    assert caught.value.record == 1
    with build(made, shuffle=False, on_error="skip", transforms=crop) as loader:
        assert rows_of(loader) == [0, 2, 3]


def test_a_header_that_states_a_huge_size(tmp_path):
    """The batch fails because there is not enough memory for it."""
    made = _with_bad_bmp(tmp_path / "set", width=822083683)
    with pytest.raises(DamagedError) as caught, build(made, shuffle=False) as loader:
        list(loader)
    assert caught.value.record == 1
    assert "bad_alloc: its header states 822083683 x 33 pixels" in caught.value.message
    with build(made, shuffle=False, on_error="skip") as loader:
        assert rows_of(loader) == [0, 2, 3]


@pytest.mark.parametrize("on_error", ["raise", "skip"])
def test_too_little_memory_is_one_line(tmp_path, monkeypatch, on_error):
    """Where headers state supported sizes, no image is bad."""
    monkeypatch.setattr("loaders.dali.bad_images.MAX_PIXELS", 2**60)
    made = _with_bad_bmp(tmp_path / "set", width=822083683)
    message = "not enough memory to decode a batch"
    with (
        pytest.raises(DecodeMemoryError, match=message),
        build(made, shuffle=False, on_error=on_error) as loader,
    ):
        list(loader)


def test_a_bad_image_that_no_batch_contains(tmp_path):
    """DALI reads it between two epochs, and the loader discards it."""
    made = damage(make(tmp_path / "set", "tfrecord", 14, shards=1), rows=(13,))
    with build(made, shuffle=False, last_batch="drop", batch_size=3, prefetch=1) as loader:
        assert [rows_of(loader) for _ in range(3)] == [list(range(12))] * 3
        assert loader.epoch == 3
        assert loader.errors == ()


@pytest.mark.usefixtures("no_garbage_collector")
def test_ctrl_c_during_the_search(tmp_path, monkeypatch):
    """Python ignores an exception in a destructor, so Ctrl-C waits until pipelines are destroyed."""
    made = damage(make(tmp_path / "set", "tfrecord", 12, shards=1), rows=(2, 9))
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
