"""The pipelines that are measured do what their names say, and do the same as the loader."""

import io
import shlex
from dataclasses import replace

import numpy as np
import pytest
from helpers import handmade
from helpers.loading import convert
from helpers.pictures import encode, photo
from PIL import Image

import loaders
from dataprep.options import Raw
from loaders.bench.command import make_request
from loaders.bench.measure import Method, measure_loader
from loaders.bench.remedies import disturbance_candidates, find_candidates
from loaders.dali.pipeline import start_stage
from loaders.devices import Device
from loaders.loader import Loader
from loaders.resolve import resolve

QUICK = Method(0.01, 2)


def request_for(dataset, transforms="imagenet-train", **options):
    given = {"transforms": transforms, "split": "train", "batch_size": 4, "device": "cpu"}
    return replace(make_request(str(dataset), **given), **options)


def found(dataset, stage, *arguments, cached=1.0, **options):
    return [*find_candidates(request_for(dataset, *arguments, **options), stage, cached)]


@pytest.fixture(scope="module")
def raw(tmp_path_factory, make_photos):
    folder = tmp_path_factory.mktemp("raw")
    return convert(make_photos(folder / "photos", 6, side=40), folder / "raw", raw=Raw(40))


@pytest.mark.parametrize("shuffle", [False, "buffer", None])
def test_stages_of_a_pipeline(photographs, shuffle):
    spec = resolve(request_for(photographs, shuffle=shuffle))
    reading, decoding = (start_stage(spec, stage).take() for stage in ("reading", "decoding"))
    # Every JPEG has a byte 0xFF.
    assert np.asarray(reading[0].as_tensor()).ravel().tolist() == [255] * 4
    for image in map(np.asarray, decoding[0]):
        assert (image.shape[2], image.dtype) == (3, np.uint8)
        assert max(image.shape) <= 480
    spec.close()


def test_the_last_stage_is_the_pipeline_of_the_loader(photographs):
    request = request_for(photographs, seed=7)
    spec = resolve(request)
    last = np.asarray(start_stage(spec, "augmentation").take()[0].as_tensor())
    spec.close()
    with Loader(resolve(request)) as loader:
        images, _ = next(iter(loader))
        options = loader.options
    assert np.array_equal(last, images.numpy())
    given = {"transforms": "imagenet-train", "batch_size": 4, "device": "cpu", "seed": 7}
    with loaders.build(photographs, **given) as loader:
        assert loader.options == replace(options, ranks=loader.options.ranks)


def images_of(spec):
    return spec.images.images(np.arange(24))


def shapes_of(candidate):
    """Return the shape of a batch of a candidate, and the lengths of what it decodes."""
    spec = candidate.make_spec()
    stored = {*map(len, images_of(spec))}
    with Loader(spec) as loader:
        images, labels = next(iter(loader))
    return tuple(images.shape), len(labels), stored


def test_candidates_for_decoding_are_smaller_and_raw_images(photographs, tmp_path):
    """Their commands can be pasted into a shell."""
    folder = tmp_path / "my photos"
    folder.symlink_to(photographs)
    smaller, raw_pixels = found(folder, "decoding")
    assert smaller.text == "with shards at 256 px"
    small = ["--resize-shorter", "256", "--out", f"{folder}-256"]
    raw = ["--store", "raw", "--raw-size", "256", "--out", f"{folder}-raw"]
    for candidate, options in ((smaller, small), (raw_pixels, raw)):
        words = shlex.split(candidate.action.split("`")[1])
        assert words == ["dataprep", "convert", "--src", str(folder), *options]
    assert shapes_of(smaller)[:2] == ((4, 3, 224, 224), 4)
    stored = images_of(smaller.make_spec())
    assert {Image.open(io.BytesIO(image.tobytes())).size for image in stored} == {(341, 256)}
    assert shapes_of(raw_pixels) == ((4, 3, 224, 224), 4, {256 * 256 * 3})
    assert measure_loader(smaller.make_spec, QUICK).median > 0


@pytest.mark.parametrize("shuffle", [False, "buffer"])
def test_candidates_of_a_stored_order_read_through_a_sampler(photographs, shuffle):
    """The gain of the sampler is measured alone, first: the other candidates contain it."""
    sampler, smaller, _ = found(photographs, "decoding", shuffle=shuffle)
    assert sampler.text == "with sampler=ShuffledSampler()"
    assert shapes_of(sampler)[0] == shapes_of(smaller)[0] == (4, 3, 224, 224)


def test_only_an_order_that_is_planned_gets_another_pipeline(photographs, monkeypatch):
    monkeypatch.setattr(Device, "is_gpu", True)
    for shuffle in ("buffer", True):
        texts = [each.text for each in found(photographs, "augmentation", shuffle=shuffle)]
        assert ("with pipelines=2" in texts) == (shuffle is True)


def test_small_images_that_the_cpu_decodes_are_measured_with_the_other_decoder(
    tmp_path, monkeypatch
):
    monkeypatch.setattr(Device, "is_gpu", True)
    samples = [("jpg", encode(photo(number, 48, 36), "JPEG"), 0) for number in range(4)]
    dataset = handmade.make_dataset(tmp_path / "small", "tfrecord", samples, shards=1)
    texts = [each.text for each in found(dataset, "decoding", decoder=None)]
    assert texts[0] == 'with decoder="gpu"'
    texts = [each.text for each in found(dataset, "decoding", decoder="gpu")]
    assert not any("decoder" in text for text in texts)


@pytest.mark.parametrize("cached", [0.2, None, 1.0])
def test_candidates_for_reading(photographs, cached):
    candidates = found(photographs, "reading", cached=cached)
    assert len(candidates) == (1 if cached == 1.0 else 2)
    if len(candidates) == 2:
        assert candidates[0].text == "with the images in memory"
        stored = {*map(len, images_of(resolve(request_for(photographs))))}
        assert shapes_of(candidates[0])[2] == stored


def test_candidates_for_delivery_small_images_and_beside_a_model(photographs, raw):
    (candidate,) = found(photographs, "delivery")
    assert candidate.action == "pass prefetch=5 to loaders.build"
    small = [{"RandomResizedCrop": {"size": 288}}, "ToTensor"]
    (candidate,) = found(photographs, "decoding", small)
    assert candidate.text == "with raw pixels at 512 px"
    assert found(raw, "decoding") == []
    (fewer,) = disturbance_candidates(request_for(photographs, num_threads=4))
    assert fewer.text == "with num_threads=2"
    assert [*disturbance_candidates(request_for(photographs, num_threads=1))] == []


def test_an_image_that_cannot_be_decoded_is_left_out_of_the_sample(tmp_path):
    samples = [("jpg", encode(photo(number, 480, 360), "JPEG"), 0) for number in range(4)]
    samples[2] = ("jpg", b"not an image", 0)
    dataset = handmade.make_dataset(tmp_path / "bad", "tfrecord", samples, shards=1)
    candidates = found(dataset, "decoding")
    assert shapes_of(candidates[1]) == ((4, 3, 224, 224), 4, {256 * 256 * 3})
