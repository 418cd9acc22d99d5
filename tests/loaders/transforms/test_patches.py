"""Patchify: timm's sizes and layout, Pillow's pixels, the same batch on every rank and after a resume."""

import io

import numpy as np
import pytest
import torch
from helpers import handmade, loading
from helpers.loading import equal, state_after, take
from helpers.rows import evaluate, read_rows
from helpers.timm_oracle import import_timm
from PIL import Image

import loaders
from loaders.transforms import Patchify
from loaders.transforms.parse import read_recipe
from loaders.transforms.patches import pack, place_patches
from manifests.errors import CallError
from manifests.naflex import token_grids

FIELDS = ("image", "label", "grid", "tokens", "mask")
#: Height and width: of photographs, of one pixel, of a line, and what EXIF turns.
SIZES = [(48, 64), (64, 48), (60, 60), (200, 20), (1, 1), (37, 91), (8, 3200), (75, 50)]


def pictures():
    """Return smooth images with another color in each corner, which tell apart every order of axes."""
    for number, (height, width) in enumerate(SIZES):
        y, x = np.mgrid[:height, :width] / max(height, width)
        waves = 40 * np.sin(9 * x * (number + 1)) * np.cos(7 * y)
        pixels = np.stack([200 * y + waves + 20, 200 * x + 30, 120 + waves], axis=2)
        yield Image.fromarray(pixels.clip(0, 255).astype(np.uint8))


@pytest.fixture(scope="module")
def dataset(tmp_path_factory):
    samples = []
    for number, picture in enumerate(pictures()):
        buffer, exif = io.BytesIO(), Image.Exif()
        if number == len(SIZES) - 1:
            exif[274] = 6
            picture = picture.transpose(Image.Transpose.ROTATE_90)  # noqa: PLW2901
        picture.save(buffer, "png", exif=exif)
        samples.append(("png", buffer.getvalue(), number))
    folder = tmp_path_factory.mktemp("shapes") / "data"
    return handmade.make_dataset(folder, "webdataset", samples, shards=1)


def build(dataset, transforms=(), fields=FIELDS, batch_size=8, **arguments):
    options = {"dtype": "uint8"}
    if not arguments.get("sampler"):
        options["shuffle"] = False
    own = {key: arguments.pop(key) for key in [*arguments] if key in Patchify.__slots__}
    transforms = [*transforms, Patchify(**{"patch": 8, "max_tokens": 64, **own})]
    options |= {"transforms": transforms, "fields": fields, "batch_size": batch_size}
    return loading.build(dataset, **(options | arguments))


def images_of(patches, grid, patch=8):
    """Return an image of its patches."""
    rows, columns = grid.tolist()
    tiles = np.asarray(patches)[: rows * columns].reshape(rows, columns, patch, patch, -1)
    return tiles.transpose(0, 2, 1, 3, 4).reshape(rows * patch, columns * patch, -1)


# --- timm and Pillow ------------------------------------------------------------------------------


@pytest.mark.parametrize("most_ratio", [100.0, 1.0])
def test_sizes_are_those_of_timm(most_ratio):
    naflex, rng = import_timm("naflex_transforms"), np.random.default_rng(0)
    random = np.exp(rng.uniform(0, 10, (600, 2))).astype(int)
    usual = rng.choice([224, 333, 375, 480, 500, 512, 640, 1024], (300, 2))
    sides = np.concatenate([random, usual, [(20_000, 50), (50, 20_000), (1, 1), (1, 9999)]])
    for patch, budget in [(16, 256), (16, 128), (14, 576), (32, 49), (16, 1)]:
        grids = token_grids(sides, patch, budget, most_ratio) * patch
        for size, found in zip(sides.tolist(), grids.tolist(), strict=True):
            _, expected = naflex.get_image_size_for_seq(size, patch, budget, max_ratio=most_ratio)
            assert tuple(found) == expected, (size, patch, budget)


@pytest.mark.parametrize("budget", [64, 150])
def test_batches_are_those_of_timm_and_pillow(dataset, budget):
    naflex = import_timm("naflex_transforms")
    with build(dataset, max_tokens=budget, position="tokens") as loader:
        images, labels, positions, tokens, mask = take(loader, 1)[0]
    assert images.shape == (8, budget, 8 * 8 * 3)
    assert labels.tolist() == [*range(8)]
    for number, picture in enumerate(pictures()):
        _, (height, width) = naflex.get_image_size_for_seq(
            (picture.height, picture.width), 8, budget
        )
        resized = np.array(picture.resize((width, height), Image.Resampling.BICUBIC))
        patches, coordinates, _ = naflex.patchify_image(
            torch.from_numpy(resized).permute(2, 0, 1), (8, 8)
        )
        count = len(patches)
        assert tokens[number] == count == mask[number].sum() == height * width / 64
        difference = (images[number, :count].int() - patches.int()).abs().float()
        assert difference.mean() <= 0.25, (picture.size, difference.mean())
        assert not images[number, count:].any()
        assert torch.equal(positions[number, :count], coordinates)
        assert not positions[number, count:].any()
        assert mask[number, :count].all()


def test_a_flip_runs_after_the_resize_and_shows_the_same(dataset):
    with build(dataset, [{"RandomHorizontalFlip": {"p": 1.0}}]) as loader:
        flipped, _, grids, *_ = take(loader, 1)[0]
        assert "Patchify before Flip" in loader.explain()
    with build(dataset) as loader:
        plain = take(loader, 1)[0][0]
    for one, other, grid in zip(plain, flipped, grids, strict=True):
        difference = images_of(one, grid).astype(int) - images_of(other, grid)[:, ::-1]
        assert np.abs(difference).mean() < 0.1


# --- budgets --------------------------------------------------------------------------------------

BUDGETS = {"max_tokens": (9, 16, 25), "sampler": loaders.ShuffledSampler(), "seed": 5}


def lengths(loader, epochs=1):
    found = []
    for _ in range(epochs):
        found += [images.shape[1] for images, *_ in loader]
    return found


@pytest.mark.parametrize("sampler", [loaders.ShuffledSampler(), None])
def test_a_global_batch_has_one_budget_on_all_ranks(dataset, sampler):
    options = {**BUDGETS, "sampler": sampler}
    with build(dataset, batch_size=2, **options) as loader:
        alone = lengths(loader, 3)
    assert {*alone} == {9, 16, 25}
    for rank in range(2):
        with build(dataset, batch_size=1, rank=rank, world_size=2, **options) as loader:
            assert lengths(loader, 3) == alone
    with build(dataset, batch_size=2, **{**options, "seed": 6}) as loader:
        assert lengths(loader, 3) != alone


ROWS = {"max_tokens": (9, 16, 25), "row_tokens": 40, "position": "tokens", "dropout": 0.3}


@pytest.mark.parametrize("own", [BUDGETS, {**BUDGETS, **ROWS}])
def test_a_resume_is_exact_at_each_batch(dataset, own):
    with build(dataset, batch_size=2, **own) as loader:
        epochs = [[*loader], [*loader]]
        for number in (0, 3):
            state = state_after(build(dataset, batch_size=2, **own), number + 1)
            loader.load_state_dict(state)
            assert all(map(equal, [*loader], epochs[0][number + 1 :] or epochs[1]))
    if "row_tokens" not in own:
        # Half of each batch, at another world size.
        with build(dataset, batch_size=1, rank=1, world_size=2, **own) as half:
            half.load_state_dict(state_after(build(dataset, batch_size=2, **own), 2))
            for found, whole in zip(half, epochs[0][2:], strict=True):
                assert all(torch.equal(a, b[1:]) for a, b in zip(found, whole, strict=True))


# --- dropout and rows -----------------------------------------------------------------------------


def test_dropout_keeps_a_random_share_in_order(dataset):
    with build(dataset) as loader:
        whole, _, grids, *_ = take(loader, 1)[0]
    with build(dataset, dropout=0.5, position="tokens") as loader:
        first = take(loader, 1)[0]
        second = take(loader, 1)[0]
    assert not torch.equal(first[2], second[2])
    for images, _, positions, tokens, mask in (first, second):
        assert images.shape == (8, 32, 192)
        for number, grid in enumerate(grids.tolist()):
            count = int(tokens[number])
            assert count == max(1, grid[0] * grid[1] // 2) == mask[number].sum()
            places = positions[number, :count, 0] * grid[1] + positions[number, :count, 1]
            assert (places.diff() > 0).all()
            assert torch.equal(images[number, :count], whole[number][places])
            assert not images[number, count:].any()


@pytest.mark.parametrize("budget", [64, None])
def test_rows_have_the_patches_of_whole_images(dataset, budget):
    fields = (*FIELDS, "segments", "index")
    with build(dataset, max_tokens=64 if budget else 150, fields=FIELDS) as loader:
        whole, _, grids, *_ = take(loader, 1)[0]
    options = {"row_tokens": 150, "position": "tokens", "max_tokens": budget}
    with build(dataset, fields=fields, **options) as loader:
        images, _, positions, tokens, mask, segments, _ = take(loader, 1)[0]
        assert "8 images in rows of 150 x 192" in loader.explain()
    assert images.shape[:2] == mask.shape == segments.shape == positions.shape[:2]
    assert torch.equal(mask, segments >= 0)
    assert not images[~mask].any()
    for number, size in enumerate(SIZES):
        row, column = (segments == number).nonzero(as_tuple=True)
        assert len(row) == tokens[number]
        assert row.unique().numel() == 1
        assert (column.diff() == 1).all()
        grid = positions[row, column].amax(dim=0) + 1
        if budget:
            assert torch.equal(grid, grids[number])
            assert torch.equal(images[row, column], whole[number, : len(row)])
        else:
            # Of its own size, unless a row has no room for it.
            native = token_grids(np.array([size]), 8, 150, 1.0)[0]
            assert grid.tolist() == native.tolist()


def test_rows_do_not_overlap():
    tokens = np.array([5, 9, 1, 7, 9, 2, 3])
    row, start, rows = pack(tokens, 10)
    used = np.zeros((rows, 10), int)
    for image, count in enumerate(tokens):
        used[row[image], start[image] : start[image] + count] += 1
    assert used.max() == 1
    assert used.sum() == tokens.sum()
    assert pack(tokens[:0], 10)[2] == 0
    one = place_patches(Patchify(), np.array([[1, 1]]), 256, np.zeros((1, 0), np.uint64))
    assert one.field("mask").sum() == 1


# --- with everything else -------------------------------------------------------------------------


def test_other_parts_of_a_loader_work(prepared):
    cut = {"Patchify": {"patch": 8, "max_tokens": [16, 25], "position": "tokens"}}
    views = [[{"RandomHorizontalFlip": {"p": 0.5}}, cut], [{"Patchify": {"patch": 16}}]]
    with build_list(prepared["mixed tfrecord"], [], views=views) as loader:
        (first, second), (grids, others), (tokens, _) = take(loader, 1)[0]
    assert first.shape == (4, tokens.shape[0] and first.shape[1], 192)
    assert grids.shape == (*first.shape[:2], 2)
    assert (second.shape, others.shape) == ((4, 256, 768), (4, 2))
    sampler = loaders.PKSampler(2, 2)
    options = {"sampler": sampler, "fields": ("tokens",)}
    with build_list(prepared["people tfrecord"], [cut], **options) as loader:
        assert take(loader, 1)[0][0].shape == (4,)
    for on_error, count in (("skip", 4), ("replace", 4)):
        options = {"on_error": on_error, "fields": ("image", "valid"), "last_batch": "pad"}
        with build_list(prepared["damaged tfrecord"], [cut], **options) as loader:
            for images, valid in loader:
                assert images.shape[0] == len(valid) == count
            assert loader.errors
    options = {"last_batch": "partial", "shuffle": False, "batch_size": 7, "framework": "numpy"}
    rows = {"Patchify": {"patch": 8, "row_tokens": 64, "max_tokens": None}}
    options["fields"] = ("image", "tokens", "segments")
    with build_list(prepared["mixed tfrecord"], [rows], **options) as loader:
        *_, (images, tokens, segments) = loader
    # The images that fill up the batch are in no row.
    assert (len(tokens), int(segments.max())) == (2, 1)
    assert len(images) == len(segments) <= 2


def build_list(dataset, transforms, **options):
    options = {"fields": ("image", "grid", "tokens"), "dtype": "uint8", **options}
    return loading.build(dataset, transforms=transforms, **options)


@pytest.mark.parametrize(("row", "message"), read_rows(__file__, "wrong arguments are refused"))
def test_wrong_arguments_are_refused(row, message):
    arguments = evaluate(row)
    for make in (lambda: Patchify(**arguments), lambda: read_recipe([{"Patchify": arguments}])):
        with pytest.raises(CallError) as caught:
            make()
        assert message in str(caught.value)


def test_what_cannot_be_combined_is_refused_by_name(prepared, tmp_path):
    from loaders.export.command import export

    cut = {"Patchify": {"patch": 8, "max_tokens": 16}}
    photos = prepared["photos tfrecord"]

    def refused(message, transforms, dataset=photos, **options):
        with pytest.raises(CallError, match=message):
            build_list(dataset, transforms, **options)

    refused(r"transforms\[1\]: .* comes after Patchify, which cuts", [cut, "RandomHorizontalFlip"])
    refused(r"transforms\[1\]: .* comes after Patchify, .*leave it out", [cut, "MixUp"])
    refused(r"transforms\[1\]: .* comes after Patchify, .*leave it out", [cut, cut])
    refused(r"comes after FiveCrop", [{"FiveCrop": {"size": 8}}, cut])
    views = [[cut], [{"CenterCrop": {"size": 8}}]]
    refused("of some views into patches, but not of all", [], views=views)
    refused('the field "segments" says', [cut], fields=("image", "segments"))
    for kind, field in (("mask", "mask"), ("depth", "depth"), ("boxes", "boxes")):
        message = f"Patchify.* cannot keep {'boxes' if kind == 'boxes' else 'masks'} right: it cuts"
        refused(message, [cut], prepared[f"{kind} tfrecord"], fields=("image", field))
    with build_list(photos, [cut]) as loader:
        with pytest.raises(CallError, match="is not possible: Patchify gives"):
            loader.set(size=(32, 32))
        with pytest.raises(CallError, match="a preview shows images, but Patchify"):
            loader.preview()
    for target in ("triton", "onnx"):
        with pytest.raises(CallError, match="cannot be exported: Patchify cuts images"):
            export(str(photos), str(tmp_path / target), transforms=[cut], target=target)
