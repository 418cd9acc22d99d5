"""Loaders of clips: windows of frames, equal draws for the frames of a clip, ranks, resume, sources of tracklets."""

import pytest
import torch
from helpers import loading
from helpers.loading import converted, take
from helpers.pictures import photo
from helpers.rows import read_named
from helpers.sampling import Still

from loaders.samplers import ClipSampler, PKSampler, SubsetSampler
from manifests.errors import CallError

#: Frames of each tracklet, by identity and camera.
LENGTHS = {(1, 1): 7, (1, 2): 3, (3, 1): 12, (3, 2): 8, (5, 1): 9, (5, 2): 10}
EXACT = [{"Resize": {"size": [32, 16]}}]
pytestmark = pytest.mark.filterwarnings("ignore:.* fewer frames than|.* whole images:UserWarning")
FIELDS = ("image", "label", "valid", "frame", "clip")
#: Every way of drawing: NumPy, DALI's random operators, and the ones that draw for themselves.
DRAWING = read_named(__file__, "drawing", {"EXACT": EXACT})


@pytest.fixture(scope="module")
def tracklets(tmp_path_factory):
    """A folder like MARS, with junk, converted with a column of the clip of each frame."""
    root = tmp_path_factory.mktemp("mars")
    for (identity, camera), frames in {**LENGTHS, ("00-1", 1): 2}.items():
        name = identity if isinstance(identity, str) else f"{identity:04}"
        for part in ("bbox_train", "bbox_test"):
            folder = root / "src" / part / name
            folder.mkdir(parents=True, exist_ok=True)
            for frame in range(1, frames + 1):
                picture = photo(97 * frames + 31 * camera + frame, width=40, height=80)
                picture.save(folder / f"{name}C{camera}T0001F{frame:03}.jpg")
    return converted(root / "src", root / "out")


def build(folder, sampler, **options):
    options = {"fields": FIELDS, "transforms": EXACT, "dtype": "uint8", **options}
    return loading.build(folder, sampler=sampler, **options)


def test_an_epoch_has_a_window_of_each_tracklet(tracklets):
    """[B, T, C, H, W], a label for each clip, and the other fields for each frame."""
    with build(tracklets, ClipSampler(4, 2, short="loop"), batch_size=8) as loader:
        batches = list(loader)
        assert "one window of each clip" in loader.explain()
        assert "A batch: 2 x 4 x 3 x 32 x 16" in loader.explain()
    assert len(batches) == 3
    clips = set()
    for images, labels, valid, frames, names in batches:
        assert images.shape == (2, 4, 3, 32, 16)
        assert labels.shape == (2,)
        for label, own, numbers, name in zip(labels, valid, frames, names, strict=True):
            assert len(set(name)) == 1
            clips.add(name[0])
            identity = loader.classes[label]
            camera = int(name[0].split("C")[1][0])
            assert name[0] == f"bbox_train/{identity}/{identity}C{camera}T0001"
            length = LENGTHS[int(identity), camera]
            whole = [int(numbers[0]) + 2 * step for step in range(4)]
            assert own.tolist() == [number <= length for number in whole]
            assert numbers.tolist() == [(number - 1) % length + 1 for number in whole]
    assert len(clips) == 6


@pytest.mark.parametrize("transforms", DRAWING.values(), ids=DRAWING)
def test_frames_of_a_clip_share_every_draw(tracklets, transforms):
    options = {"fields": ("image",), "transforms": transforms, "dtype": "float32"}
    with build(tracklets, Still(), batch_size=16, **options) as loader:
        (images,) = take(loader, 1)[0]
    assert torch.equal(images, images[:, :1].expand_as(images))
    assert not torch.equal(images[0], images[1])


@pytest.mark.parametrize(("length", "stride"), [(4, 1), (4, 3), (5, 2)])
@pytest.mark.parametrize("world_size", [1, 3])
def test_evaluation_has_every_frame_once(tracklets, length, stride, world_size):
    seen = []
    for rank in range(world_size):
        sampler = ClipSampler(length, stride, jitter=False)
        options = {"fields": ("index", "valid"), "rank": rank, "world_size": world_size}
        with build(tracklets, sampler, split="test", batch_size=2 * length, **options) as loader:
            for rows, valid in loader:
                assert rows.shape == valid.shape == (len(rows), length)
                seen += rows[valid].tolist()
    assert sorted(seen) == list(range(sum(LENGTHS.values())))


def test_turns_of_identities_have_tracklets(tracklets):
    sampler = PKSampler(3, 2, across="camera", clip=ClipSampler(2, 2))
    with build(tracklets, sampler, batch_size=12, fields=("label", "camera", "frame")) as loader:
        for labels, cameras, frames in loader:
            assert torch.equal(labels[::2], labels[1::2])
            assert len(set(labels.tolist())) == 3
            assert (cameras == cameras[:, :1]).all()
            assert (cameras[::2] != cameras[1::2]).all()
            assert (frames[:, 1] - frames[:, 0] == 2).all()


def test_the_files_of_wrong_frames_are_named(tracklets):
    sampler = ClipSampler(2, by="camera")
    message = r"camera.*twice: 'bbox_train/.*jpg' \(row \d+\) and 'bbox_train/.*' \(row \d+\)"
    message = message.replace("camera.*", "clip 1 has the frame number 1 ")
    with pytest.raises(CallError, match=message):
        build(tracklets, sampler)
    with pytest.raises(CallError, match=message):
        build(tracklets, SubsetSampler(where="camera = 1", sampler=sampler))
    labels = ClipSampler(2, by="split_of_source")
    with pytest.raises(CallError, match="ClipSampler uses 'split_of_source'"):
        build(tracklets, labels)
    mixing = [*EXACT, "ToTensor", {"MixupOperator": {"alpha": 1.0}}]
    with pytest.raises(CallError, match="cannot be mixed"):
        build(tracklets, ClipSampler(2), transforms=mixing, dtype="float32")
    loader = build(tracklets, ClipSampler(2, by="camera", frame="crc32c", jitter=False))
    with loader, pytest.raises(CallError, match="frames with the labels"):
        list(loader)


def test_a_bad_frame_is_replaced_within_its_clip(tracklets):
    with build(tracklets, ClipSampler(3), batch_size=6, on_error="replace") as loader:
        assert loader.spec.order.peers is not None
    with pytest.raises(CallError, match="not of whole clips"):
        build(tracklets, ClipSampler(3), batch_size=6, on_error="skip")
