"""Loading from an object store through a cache gives the batches and states of the local datasets."""

import gc
import os
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from unittest.mock import Mock

import numpy as np
import pytest
from helpers import annotated, handmade
from helpers.cached import assert_equal, build, noise, read
from helpers.datasets import FORMATS, write_images
from helpers.eventually import eventually
from helpers.loading import convert
from helpers.object_stores import upload
from helpers.pictures import photo
from helpers.rows import evaluate, read_rows

from dataprep.options import RemoveOptions
from dataprep.run.remove import remove_samples
from dataprep.sources import SourceOptions
from loaders import BucketSampler, ClassBalancedSampler, PKSampler, ShuffledSampler
from loaders.cache import folder
from loaders.cache.folder import disk_usage
from manifests.errors import CallError
from manifests.remote.store import Store, open_store
from manifests.remote.url import parse_url
from manifests.tables import read_table

FIELDS = {
    "mask": ("image", "mask", "index"),
    "depth": ("depth", "index"),
    "boxes": ("image", "boxes", "box_labels", "box_counts"),
    "views": ("image", "image:right", "valid:right", "index"),
}


@pytest.fixture(scope="module")
def datasets(prepared, tmp_path_factory):
    """Datasets of classes in both formats, of each placed label type, of two images and of arrays.

    Each is a folder and the URL of a copy. Tests must not change them.
    """
    root = tmp_path_factory.mktemp("cached")
    folders = {"tfrecord": prepared["mixed tfrecord"], "webdataset": prepared["gray webdataset"]}
    for number, kind in enumerate(("mask", "depth", "boxes")):
        folders[kind] = prepared[f"{kind} {FORMATS[number % 2]}"]
    views = annotated.make_views(root / "sources" / "views")
    (views / "cat/2_right.png").unlink()
    options = SourceOptions(pattern="{key}_{image}", missing_images="valid")
    folders["views"] = convert(views, root / "views", options, shard_samples=2)
    arrays = write_images(root / "sources" / "arrays", range(20), ("a",))
    for number in range(20):
        np.save(arrays / f"a/{number:04d}.npy", np.arange(3, dtype=np.int16) + number)
    options = SourceOptions(array=("embedding={stem}.npy",))
    folders["arrays"] = convert(arrays, root / "arrays", options, shard_samples=8)
    url = f"memory://bucket/{root.name}"
    return {name: (folder, upload(folder, f"{url}/{name}")) for name, folder in folders.items()}


def placed_options(kind, **options):
    transforms = [{"RandomResizedCrop": {"size": [48, 64]}}, "RandomHorizontalFlip"]
    return {
        "batch_size": 2, "fields": FIELDS[kind], "transforms": transforms, "last_batch": "partial",
        "sampler": ShuffledSampler(), **options,
    }  # fmt: skip


STORED = {"shuffle": False}
VIEWS = {"views": [[], [{"CenterCrop": {"size": 32}}]]}
ORDERS = (
    {"sampler": PKSampler(2, 4)},
    {"sampler": ClassBalancedSampler()},
    {"sampler": ShuffledSampler(window=2), "pipelines": 3},
    {"sampler": BucketSampler([(48, 64), (64, 48)]), "transforms": "bucket-train"},
)


@pytest.mark.parametrize(
    ("names", "remote", "options"),
    [
        *(([name], [True], options) for name in FORMATS for options in ({}, STORED)),
        *((["webdataset"], [True], options) for options in ORDERS),
        (["arrays"], [True], {"fields": ("image", "embedding", "index"), **STORED}),
        (FORMATS, [True, True], {}),
        (FORMATS, [True, False], STORED),
        (FORMATS, [False, True], {"mix": [0.7, 0.3]}),
        *(
            ([kind], [True], placed_options(kind, **options))
            for kind in FIELDS
            for options in (VIEWS, {"sampler": None, **STORED})
        ),
    ],
)
def test_batches_are_those_of_local_datasets(datasets, names, remote, options, tmp_path):
    with build([datasets[name][0] for name in names], **options) as loader:
        expected = read(loader, 2)
    chosen = [datasets[name][is_remote] for name, is_remote in zip(names, remote, strict=True)]
    # A list of one dataset has another name in `explain`, and no other batches.
    chosen = chosen[0] if len(chosen) == 1 else chosen
    for _ in ("cold", "warm"):
        with build(chosen, cache=tmp_path / "cache", **options) as loader:
            assert_equal(read(loader, 2), expected)
            assert loader.explain().count("cache ") >= sum(remote)
            assert loader.options.cache == str(tmp_path / "cache")


def test_ranks_that_start_together_fetch_every_table_once(datasets, tmp_path, monkeypatch):
    url, together = datasets["tfrecord"][1], threading.Barrier(4)

    def start():
        opened = folder.open_dataset(open_store(parse_url(url)), tmp_path / "cache")
        together.wait()
        folder.fetch_tables(opened, opened.manifest.splits[0].shards, ())

    monkeypatch.setattr(folder, "_download", download := Mock(wraps=folder._download))
    with ThreadPoolExecutor(4) as threads:
        for done in [threads.submit(start) for _ in range(4)]:
            done.result()
    fetched = sorted(call.args[1].name for call in download.call_args_list)
    assert fetched == [f"train-0000{number}.parquet" for number in range(3)]


def test_a_state_moves_between_the_disk_and_the_store(datasets, tmp_path):
    with build([datasets[name][0] for name in FORMATS]) as loader:
        iterator = iter(loader)
        next(iterator)
        state = loader.state_dict()
        expected = read(iterator)
    with build([datasets[name][1] for name in FORMATS], cache=tmp_path / "cache") as loader:
        loader.load_state_dict(state)
        assert_equal(read(loader), expected)


@pytest.fixture(scope="module")
def large(tmp_path_factory):
    """Return a local dataset of 600 images of 20 KB, its URL, and the disk space of all images."""
    root, stored = tmp_path_factory.mktemp("large"), noise(600, 120, 130)
    folder = handmade.make_dataset(root / "local", "webdataset", stored, shards=6)
    size = sum(-(-len(data) // 4096) * 4096 for _, data, _ in stored)
    return folder, upload(folder, f"memory://bucket/{root.name}/set"), size


def test_the_first_batches_come_before_the_rest_of_the_dataset(large, tmp_path, monkeypatch):
    """After a quarter of the dataset, the store answers only single images of the first batches, until one is there."""
    local, url, size = large
    true, lock, go, sent, needed = Store.read_parts, threading.Lock(), threading.Event(), [0], set()

    def read_parts(self, name, ranges):
        with lock:  # the requests come in any order
            sent[0] += sum(end - start for start, end in ranges)
            wait = sent[0] > size / 4
        if wait and not all(is_needed_image(name, start, end) for start, end in ranges):
            assert go.wait(300)
        return true(self, name, ranges)

    def is_needed_image(name, start, end):
        needed_bytes = [byte for shard, byte in needed if shard == name]
        return end - start < 50_000 and any(start <= byte < end for byte in needed_bytes)

    monkeypatch.setattr(Store, "read_parts", read_parts)
    with build(local, batch_size=4) as loader:
        expected = read(loader)
    with build(url, cache=tmp_path / "cache", batch_size=4) as loader:
        layout, shards = loader.spec.images._layout, loader.spec.images._shards
        rows = np.concatenate([loader.spec.order.rank_rows(number, 0) for number in range(4)])
        names = [os.path.basename(shards.describe(shard)) for shard in layout.shards_of(rows)]
        needed |= {*zip(names, layout.offsets[rows].tolist(), strict=True)}
        iterator = iter(loader)
        first = next(iterator)
        assert loader._spec.images._fetcher.bytes < size / 2
        go.set()
        assert_equal(read([first, *iterator]), expected)


@pytest.fixture(scope="module")
def masks(tmp_path_factory):
    """Return a local dataset of 36 images with masks that are larger, its URL, and their sizes."""
    root, rng = tmp_path_factory.mktemp("masks"), np.random.default_rng(0)
    for number in range(36):
        annotated.save(root / f"source/images/{number}.jpg", np.asarray(photo(number, 160, 200)))
        pixels = rng.integers(0, 255, (200, 160), np.uint8)
        annotated.save(root / f"source/masks/{number}.png", pixels)
    convert(root / "source", root / "out", fmt="webdataset", shard_samples=9)
    sizes = {"size": [], "mask_size": []}
    for path in sorted((root / "out").glob("*.parquet")):
        for name in sizes:
            sizes[name] += read_table(path, label_type="mask")[name].to_pylist()
    return root / "out", upload(root / "out", f"memory://bucket/{root.name}/masks"), sizes


def test_masks_are_fetched_only_if_a_field_needs_them(masks, tmp_path):
    local, url, sizes = masks
    fetched = []
    for fields in (("image", "index"), FIELDS["mask"]):
        options = placed_options("mask", fields=fields, batch_size=8)
        with build(url, cache=tmp_path / f"{len(fields)}", **options) as loader:
            found = read(loader)
            fetched.append(loader.spec.images.traffic[2])
        with build(local, **options) as loader:
            assert_equal(found, read(loader))
    size, mask_size = sum(sizes["size"]), sum(sizes["mask_size"])
    assert size <= fetched[0] < size + mask_size / 2
    # Headers, and small members between images, come with them.
    assert size + mask_size <= fetched[1] < 1.25 * (size + mask_size)


def test_a_cache_that_is_too_small_evicts_images_and_masks(masks, tmp_path):
    local, url, sizes = masks
    options = placed_options("mask", pipelines=2)
    with build(local, **options) as loader:
        expected = read(loader, 3)
    stored = sum(-(-size // 4096) * 4096 for name in sizes for size in sizes[name])
    limit = 2 * stored // 3
    measured = []
    options |= {"cache": tmp_path / "cache", "cache_limit": limit, "metrics": measured.append}
    with pytest.warns(UserWarning, match=r"every epoch fetches about .* again"):
        loader = build(url, **options)
    with loader:
        batches = iter(expected)
        for _ in range(3):
            for batch in loader:
                assert_equal(read([batch]), [next(batches)])
                assert disk_usage(str(tmp_path / "cache")) <= limit * 1.02 + 4096 * 32
        # An order by age would fetch everything three times.
        assert stored < loader.spec.images.traffic[2] < 2.6 * stored
        assert 0 < sum(each.store_bytes for each in measured) <= loader.spec.images.traffic[2]
        assert sum(each.cache_misses for each in measured) > 0
    # What other loaders of the cache find is right: none of them reads pages that were given back.
    for _ in range(3):
        with build(url, **options | {"fields": ("image", "index")}) as loader:
            assert_equal(read(loader), [[image, index] for image, _, index in expected[:18]])
        with pytest.warns(UserWarning, match="again"), build(url, **options) as loader:
            assert_equal(read(loader), expected[:18])


@pytest.mark.parametrize(("row", "message"), read_rows(__file__, "refused"))
def test_arguments_that_do_not_fit_are_refused(large, datasets, tmp_path, row, message):
    chosen, options = evaluate(row)
    local, url, _ = large
    names = {"local": local, "url": url, "other": datasets["tfrecord"][1]}
    one = isinstance(chosen, str)
    chosen = [each.format(**names) for each in ([chosen] if one else chosen)]
    with pytest.raises(CallError, match=message):
        build(chosen[0] if one else chosen, **{"cache": tmp_path / "cache", **options})


def test_a_folder_of_other_files_is_not_a_cache(large, tmp_path):
    (tmp_path / "mine.txt").write_text("mine")
    with pytest.raises(CallError, match="contains files of other programs"):
        build(large[1], cache=tmp_path)
    assert os.listdir(tmp_path) == ["mine.txt"]


@pytest.mark.parametrize("close", [True, False])
def test_nothing_stays_open(datasets, tmp_path, close):
    """A loader that is closed, or only dropped, leaves no file and no thread."""
    before = threading.enumerate()

    def use():
        loader = build(datasets["webdataset"][1], cache=tmp_path / "cache")
        next(iter(loader))
        if close:
            loader.close()

    def nothing_open():
        gc.collect()
        links = []
        for handle in Path("/proc/self/fd").iterdir():
            with suppress(OSError):
                links.append(os.readlink(handle))
        names = [thread.name for thread in threading.enumerate() if thread not in before]
        return str(tmp_path) not in "".join(links) and "fetch" not in "".join(names)

    use()
    assert eventually(nothing_open)  # A thread closes what was dropped.


@pytest.mark.parametrize("fmt", FORMATS)
def test_removed_samples_are_not_read_from_a_cache_of_the_revision_before(fmt, tmp_path):
    first = handmade.make_dataset(tmp_path / "first", fmt, noise(12, 50, 60), shards=2)
    made = convert(first, tmp_path / "set", fmt=fmt, shard_samples=5)
    url = upload(made, f"memory://bucket/{tmp_path.name}/{fmt}")
    options = {"cache": str(tmp_path / "cache"), "shuffle": False, "batch_size": 1}
    options["fields"] = ("image", "key")
    with build(url, **options) as loader:
        before = read(loader)
    keys = np.concatenate([batch[1] for batch in before]).tolist()
    (tmp_path / "keys").write_text("\n".join([*keys[:5], keys[7]]))
    remove_samples(url, RemoveOptions(keys=str(tmp_path / "keys")))
    with build(url, **options) as loader:
        found = np.concatenate([batch[1] for batch in read(loader)]).tolist()
    assert found == [*keys[5:7], *keys[8:]]
    with build(url, revision=0, **options) as loader:
        assert_equal(read(loader), before)
