"""Several images of a sample in a batch: the same as from a loader of each, and with the same random values."""

import shutil

import numpy as np
import pytest
from helpers import annotated, loading
from helpers.datasets import FORMATS
from helpers.loading import equal, state_after
from helpers.rows import evaluate, read_named, read_rows

import loaders
from dataprep.options import Raw
from dataprep.sources import SourceOptions
from manifests.errors import CallError, DamagedError
from manifests.store import read_dataset, read_manifest

RANDOM = [{"RandomResizedCrop": {"size": [48, 40]}}, "RandomHorizontalFlip", {"ColorJitter": {"brightness": 0.4}}]  # fmt: skip
BOTH = ("image:left", "image:right")
ORDERS = read_named(__file__, "orders", vars(loaders))


@pytest.fixture(scope="module")
def datasets(tmp_path_factory):
    """Pairs of images in both formats, as raw pixels, and with a sample that lacks its second image."""
    root = tmp_path_factory.mktemp("several")
    source = annotated.make_views(root / "source")
    shutil.copytree(source / "cat", source / "dog")
    pairs = SourceOptions(pattern="{key}_{image}", missing_images="valid")
    for fmt in FORMATS:
        loading.convert(source, root / fmt, pairs, fmt=fmt, shard_samples=4)
    loading.convert(source, root / "raw", pairs, raw=Raw(64), shard_samples=4)
    (source / "dog/3_right.png").unlink()
    for fmt in FORMATS:
        loading.convert(source, root / f"{fmt} missing", pairs, fmt=fmt, shuffle=False)
    return root


def batches(dataset, fields, transforms=RANDOM, **options):
    options = {"batch_size": 2, "dtype": "float32", "framework": "numpy", "seed": 5, **options}
    with loading.build(dataset, fields=fields, transforms=transforms, **options) as loader:
        return [[np.asarray(value) for value in batch] for batch in loader]


@pytest.mark.parametrize(
    ("name", "order"),
    [*((fmt, order) for fmt in FORMATS for order in ORDERS), ("raw", "stored"), ("raw", "pk")],
)
def test_each_image_is_the_one_of_a_loader_of_its_own(name, order, datasets):
    dataset, options = datasets / name, ORDERS[order]
    both = batches(dataset, (*BOTH, "key"), **options)
    assert len(both) >= 2
    for place, field in enumerate(BOTH):
        alone = batches(dataset, (field, "key"), **options)
        assert equal([batch[place] for batch in both], [batch[0] for batch in alone])
        assert equal([batch[2] for batch in both], [batch[1] for batch in alone])
    assert equal([b[0] for b in both], [b[0] for b in batches(dataset, ("image",), **options)])
    # The second image is the first one turned by 180 degrees, so the crop is another part of it.
    other = batches(dataset, BOTH, shared=False, **options)
    assert equal([batch[0] for batch in both], [batch[0] for batch in other])
    assert not equal([batch[1] for batch in both], [batch[1] for batch in other])


def test_equal_images_get_equal_random_values(datasets, tmp_path):
    """Not only the crop: a color operation, and each view of several."""
    source = shutil.copytree(datasets / "source", tmp_path / "source")
    for path in source.rglob("*_left.png"):
        shutil.copy(path, str(path).replace("left", "right"))
    options = SourceOptions(pattern="{key}_{image}", missing_images="valid")
    loading.convert(source, tmp_path / "out", options)
    (first, *_) = batches(tmp_path / "out", BOTH)
    np.testing.assert_array_equal(*first)
    ((left, right), *_) = batches(tmp_path / "out", BOTH, [], views=[RANDOM, RANDOM])
    np.testing.assert_array_equal(left, right)
    assert (left[0] != left[1]).any()
    first = batches(tmp_path / "out", BOTH, shared=False)[0]
    assert (first[0] != first[1]).any()


@pytest.mark.parametrize("fmt", FORMATS)
def test_an_image_that_a_sample_does_not_have_is_zeros(fmt, datasets):
    fields = (*BOTH, "valid:right", "valid:left", "source")
    for options in ({"shuffle": False}, {}, {"on_error": "replace"}):
        found = batches(datasets / f"{fmt} missing", fields, **options)
        for left, right, is_valid, first, sources in found:
            assert is_valid.tolist() == [source != "dog/3_left.png" for source in sources]
            assert first.all()
            for image, valid, other in zip(right, is_valid, left, strict=True):
                assert image.any() == valid
                assert other.any()
    with pytest.raises(CallError, match="cannot leave out an image"):
        batches(datasets / f"{fmt} missing", BOTH, shuffle="buffer")


def test_a_state_resumes_and_an_image_that_cannot_be_decoded_is_named(datasets, tmp_path):
    folder = shutil.copytree(datasets / "tfrecord", tmp_path / "damaged")
    options = {"fields": (*BOTH, "index"), "transforms": RANDOM, "batch_size": 2, "seed": 1}
    with loading.build(folder, **options) as whole, loading.build(folder, **options) as loader:
        state = state_after(loader, 1)
        loader.load_state_dict(state)
        assert equal([*loader], [*whole][1:])
    with loading.build(folder, shared=False, **options) as loader:
        with pytest.raises(CallError, match="shared"):
            loader.load_state_dict(state)
        other = loader.state_dict()
    with loading.build(folder, **options) as loader, pytest.raises(CallError, match="shared"):
        loader.load_state_dict(other)
    batch = next(read_dataset(folder))
    with open(folder / batch.shard.name, "r+b") as file:
        file.seek(batch.table["right_offset"][1].as_py() + 60)
        file.write(bytes(range(256)))
    with (
        pytest.raises(DamagedError, match=r"its image right: |an image is damaged"),
        loading.build(folder, **{**options, "shuffle": False}) as loader,
    ):
        list(loader)
    with loading.build(folder, **options, on_error="skip") as loader:
        list(loader)
        assert [error.reason.split(":")[0] for error in loader.errors] == ["its image right"]


@pytest.mark.parametrize(("row", "message"), read_rows(__file__, "refused"))
def test_what_cannot_be_done_is_refused_by_name(row, message, datasets, tmp_path):
    name, fields, transforms = evaluate(row, globals())
    dataset = datasets / name
    if not dataset.exists():
        for side, height in (("left", 50), ("right", 40)):
            path = tmp_path / f"source/cat/1_{side}.png"
            annotated.save(path, np.zeros((height, 60, 3), np.uint8))
        pairs = SourceOptions(pattern="{key}_{image}") if name == "uneven" else None
        dataset = loading.convert(tmp_path / "source", tmp_path / "out", pairs)
    with pytest.raises(CallError, match=message):
        batches(dataset, fields, transforms, batch_size=1)


def test_joined_datasets_have_the_same_images_and_a_preview_shows_all(datasets):
    assert read_manifest(datasets / "raw").images == ("left", "right")
    names = [str(datasets / fmt) for fmt in FORMATS]
    assert len(batches(names, BOTH)) == 10
    with loading.build(names[0], fields=BOTH, transforms=RANDOM, batch_size=2) as loader:
        preview = loader.preview(samples=2, draws=1)
        captions = [draw.caption for draw in preview.items[0].draws]
        assert [caption.split(",")[0] for caption in captions] == ["image left", "image right"]
        assert "for each of image:left, image:right, with the same random" in loader.explain()


def test_a_preview_crops_the_center_of_images_of_other_sizes(tmp_path):
    """The graph of a loader knows the size of the first images, which are squares."""
    for side, size in (("left", 32), ("right", 64)):
        pixels = np.zeros((size, size, 3), np.uint8)
        pixels[size // 2 :] = 255
        annotated.save(tmp_path / f"source/cat/1_{side}.png", pixels)
    pairs = SourceOptions(pattern="{key}_{image}")
    folder = loading.convert(tmp_path / "source", tmp_path / "out", pairs)
    crop = [{"CenterCrop": {"size": 20}}]
    with loading.build(folder, transforms=crop, batch_size=1) as loader:
        draws = loader.preview(samples=1, draws=1).items[0].draws
    assert [draw.pixels.mean() for draw in draws] == [127.5, 127.5]
