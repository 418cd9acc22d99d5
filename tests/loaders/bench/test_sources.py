"""The pipelines that are measured do what their names say, and do the same as the loader."""

from __future__ import annotations

import io
import os
import shlex
from dataclasses import replace

import numpy as np
import pytest
from helpers import handmade
from helpers.pictures import encode, photo
from PIL import Image

import loaders
from loaders.bench import measure, remedies
from loaders.bench.command import make_request
from loaders.bench.measure import Method, cached_share, close, measure_loader, measure_stages
from loaders.bench.remedies import disturbance_candidates, find_candidates
from loaders.dali.pipeline import start_stage
from loaders.dataset.files import map_file, resident_bytes
from loaders.dataset.split import open_split
from loaders.loader import Loader
from loaders.resolve import resolve

QUICK = Method(0.01, 2)
JITTER = [
    {"RandomResizedCrop": {"size": 64}},
    {"ColorJitter": {"brightness": 0.4}},
    "RandomHorizontalFlip",
    "ToTensor",
]


def request_for(dataset, transforms="imagenet-train", **options):
    return replace(
        make_request(
            str(dataset), transforms=transforms, split="train", batch_size=4, device="cpu"
        ),
        **options,
    )


@pytest.fixture(scope="module")
def raw(tmp_path_factory, warm):
    folder = tmp_path_factory.mktemp("raw")
    for number in range(6):
        path = folder / "photos" / str(number % 2) / f"{number}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(encode(photo(number, 40, 40), "PNG"))
    arguments = (
        "--src",
        str(folder / "photos"),
        "--out",
        str(folder / "raw"),
        "--store",
        "raw",
        "--raw-size",
        "40",
    )
    assert warm.run("-m", "dataprep", "convert", *arguments).returncode == 0
    return folder / "raw"


@pytest.mark.parametrize("options", [{"shuffle": False}, {"shuffle": "buffer"}, {}])
def test_stages_of_a_pipeline(photographs, options):
    spec = resolve(request_for(photographs, **options))
    reading, decoding = (
        start_stage(spec, stage).share_outputs() for stage in ("reading", "decoding")
    )
    largest = [int(each) for each in np.asarray(reading[0].as_tensor()).ravel()]
    assert len(largest) == 4
    assert all(value == 255 for value in largest)  # every JPEG has a byte 0xFF
    decoded = [np.asarray(image) for image in decoding[0]]
    assert all(
        image.shape[2] == 3 and image.dtype == np.uint8 and max(image.shape) <= 480
        for image in decoded
    )
    close(spec)


def test_the_last_stage_is_the_pipeline_of_the_loader(photographs):
    request = request_for(photographs, seed=7)
    spec = resolve(request)
    last = np.asarray(start_stage(spec, "augmentation").share_outputs()[0].as_tensor())
    close(spec)
    with Loader(resolve(request)) as loader:
        images, _ = next(iter(loader))
    assert np.array_equal(last, images.numpy())


def test_every_stage_gives_a_rate(photographs):
    request = request_for(photographs)
    stages = measure_stages(lambda: resolve(request), QUICK)
    assert [*stages] == ["reading", "decoding", "augmentation", "delivery"]
    assert all(len(each.repeats) == 2 and min(each.repeats) > 0 for each in stages.values())


def shapes_of(candidate):
    """Return the shape of a batch of a candidate, and the lengths of what it decodes."""
    spec = candidate.make_spec()
    stored = {len(image) for image in spec.images.images(np.arange(24))}
    with Loader(spec) as loader:
        images, labels = next(iter(loader))
    return tuple(images.shape), len(labels), stored


def test_candidates_for_decoding_are_smaller_and_raw_images(photographs):
    smaller, raw_pixels = find_candidates(request_for(photographs), "decoding", 1.0)
    assert smaller.text == "with shards at 256 px"
    assert (
        smaller.action == f"run `dataprep convert --src {photographs} --resize-shorter 256 --out"
        f" {photographs}-256`"
    )
    assert raw_pixels.action.endswith(f"--store raw --raw-size 256 --out {photographs}-raw`")
    assert shapes_of(smaller)[:2] == ((4, 3, 224, 224), 4)
    stored = smaller.make_spec().images.images(np.arange(24))
    assert {Image.open(io.BytesIO(image.tobytes())).size for image in stored} == {(341, 256)}
    assert shapes_of(raw_pixels) == ((4, 3, 224, 224), 4, {256 * 256 * 3})
    assert measure_loader(smaller.make_spec, QUICK).median > 0


def test_candidates_of_a_stored_order_read_through_a_sampler(photographs):
    """The gain of the sampler is measured alone, first: the other candidates contain it."""
    sampler, smaller, _ = find_candidates(
        request_for(photographs, shuffle="buffer"), "decoding", 1.0
    )
    assert (sampler.text, shapes_of(sampler)[0]) == (
        "with sampler=ShuffledSampler()",
        (4, 3, 224, 224),
    )
    assert shapes_of(smaller)[0] == (4, 3, 224, 224)
    first, _ = find_candidates(request_for(photographs, shuffle=False), "delivery", 1.0)
    assert first.text == sampler.text


def test_commands_of_candidates_can_be_pasted_into_a_shell(photographs, tmp_path):
    folder = tmp_path / "my photos"
    folder.symlink_to(photographs)
    smaller, raw_pixels = find_candidates(request_for(folder), "decoding", 1.0)
    words = shlex.split(smaller.action.split("`")[1])
    assert words == [
        "dataprep",
        "convert",
        "--src",
        str(folder),
        "--resize-shorter",
        "256",
        "--out",
        f"{folder}-256",
    ]
    assert shlex.split(raw_pixels.action.split("`")[1])[-1] == f"{folder}-raw"


def test_images_that_are_small_already_are_not_resized(photographs, raw):
    small = request_for(photographs, [{"RandomResizedCrop": {"size": 288}}, "ToTensor"])
    assert [each.text for each in find_candidates(small, "decoding", 1.0)] == [
        "with raw pixels at 512 px"
    ]
    assert list(find_candidates(request_for(raw), "decoding", 1.0)) == []


@pytest.mark.parametrize(("cached", "number"), [(0.2, 2), (None, 2), (1.0, 1)])
def test_candidates_for_reading(photographs, cached, number):
    candidates = list(find_candidates(request_for(photographs), "reading", cached))
    assert len(candidates) == number
    if number == 2:
        assert candidates[0].text == "with the images in memory"
        stored = {
            len(image) for image in resolve(request_for(photographs)).images.images(np.arange(24))
        }
        assert shapes_of(candidates[0])[2] == stored


@pytest.mark.parametrize("transforms", [JITTER, "imagenet-eval"])
def test_no_candidate_leaves_out_an_augmentation(photographs, transforms):
    """A model would be trained or evaluated on other images."""
    (smaller,) = find_candidates(request_for(photographs, transforms), "augmentation", 1.0)
    assert smaller.text == "with shards at 256 px"


def test_programs_on_cores_that_this_process_may_not_use_do_not_count(monkeypatch):
    core = min(os.sched_getaffinity(0))
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {core})
    one = measure._busy_seconds()
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(os.cpu_count())))
    every = measure._busy_seconds()
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {100_000})
    assert 0 < one <= every
    assert measure._busy_seconds() is None


def test_candidates_for_delivery_and_beside_a_model(photographs):
    (candidate,) = find_candidates(request_for(photographs), "delivery", 1.0)
    assert candidate.action == "pass prefetch=5 to loaders.build"
    (fewer,) = disturbance_candidates(request_for(photographs, num_threads=4))
    assert fewer.text == "with num_threads=2"
    assert list(disturbance_candidates(request_for(photographs, num_threads=1))) == []


def test_an_image_that_cannot_be_decoded_is_left_out_of_the_sample(tmp_path):
    samples = [("jpg", encode(photo(number, 480, 360), "JPEG"), 0) for number in range(4)]
    samples[2] = ("jpg", b"not an image", 0)
    dataset = handmade.make_dataset(tmp_path / "bad", "tfrecord", samples, shards=1)
    candidates = list(find_candidates(request_for(dataset), "decoding", 1.0))
    assert shapes_of(candidates[1]) == ((4, 3, 224, 224), 4, {256 * 256 * 3})


def test_cached_share(photographs, tmp_path):
    split = open_split(photographs, "train")
    for shard in split.shards:
        (photographs / shard.file.name).read_bytes()
    assert cached_share(split) == 1.0
    path = tmp_path / "file"
    path.write_bytes(bytes(10_000))
    assert resident_bytes(map_file(str(path), 10_000)) == 10_000


def test_build_and_bench_have_the_same_defaults(photographs):
    spec = resolve(request_for(photographs))
    with loaders.build(
        photographs, transforms="imagenet-train", batch_size=4, device="cpu"
    ) as loader:
        assert loader.options == replace(spec.options, ranks=loader.options.ranks)
    close(spec)


def test_a_config_gives_the_batch_size(photographs, tmp_path):
    config = tmp_path / "pk.yaml"
    config.write_text("""
DataLoader:
  Train:
    dataset: {transform_ops: [{RandCropImage: {size: 64}}, {NormalizeImage: {}}]}
    sampler: {name: PKSampler, batch_size: 6, sample_per_id: 2, drop_last: True}
""")
    options = {"transforms": str(config), "split": "train", "device": "cpu"}
    spec = resolve(make_request(str(photographs), batch_size=None, **options))
    assert spec.options.batch_size == 6
    close(spec)


def test_a_sample_of_large_images_has_fewer_of_them(photographs, monkeypatch):
    monkeypatch.setattr(remedies, "_MAX_BYTES", 256 * 256 * 3 * 5)
    _, raw_pixels = find_candidates(request_for(photographs), "decoding", 1.0)
    records = raw_pixels.make_spec().images
    assert len({image.tobytes() for image in records.images(np.arange(24))}) == 5
