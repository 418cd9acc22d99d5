"""`Loader.set` on a GPU: images of another size, policies of another strength, exact resume, constant memory."""

import pytest
import torch
from helpers import gpu
from helpers.loading import equal

from manifests.errors import CallError

TRAIN = [
    {"RandomResizedCrop": {"size": 128}},
    "RandomHorizontalFlip",
    {"RandAugment": {"num_ops": 2, "magnitude": 9}},
    "ToTensor",
]
EPOCHS = [(64, 3), (96, 6), (128, 9)]


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """40 JPEG images of three sizes, in both formats."""
    sizes = [(side, side * 3 // 4) for side in (160, 240, 400)] * 14
    return gpu.write_both(tmp_path_factory.mktemp("set"), sizes[:40], classes=5)


def build(folder, **options):
    return gpu.build(folder, **{"batch_size": 8, "transforms": TRAIN, **options})


@pytest.mark.parametrize(
    ("fmt", "shuffle"), [("tfrecord", True), ("webdataset", True), ("tfrecord", "buffer")]
)
def test_progressive_training_resumes_bit_for_bit(folders, fmt, shuffle):
    """Three epochs of growing images.

    States from before, within and after them continue in a fresh loader.
    """
    with build(folders[fmt], shuffle=shuffle) as loader:
        batches, states = [], []
        for epoch, (size, magnitude) in enumerate(EPOCHS):
            loader.set(size=size, magnitude=magnitude)
            states.append((loader.state_dict(), epoch, 0))
            batches.append([])
            for images, labels in loader:
                assert images.is_cuda
                assert images.shape == (8, 3, size, size)
                assert images.isfinite().all()
                batches[-1].append((images.clone(), labels.clone()))
                states.append((loader.state_dict(), epoch, len(batches[-1])))
        assert [len(epoch) for epoch in batches] == [5, 5, 5]
    for number in (0, 3, 8, 12):
        state, epoch, taken = states[number]
        with build(folders[fmt], shuffle=shuffle) as fresh:
            fresh.load_state_dict(state)
            assert equal(list(fresh), batches[epoch][taken:])
            assert fresh.epoch == epoch + 1


def test_the_batches_are_those_of_a_loader_built_with_the_new_values(folders):
    policy = {"RandAugment": {"num_ops": 2, "magnitude": 4}}
    adjusted = [{"RandomResizedCrop": {"size": 64}}, TRAIN[1], policy, TRAIN[3]]
    folder = folders["tfrecord"]
    with build(folder) as loader, build(folder, transforms=adjusted) as other:
        loader.set(size=64, magnitude=4)
        assert equal(list(loader), list(other))


@pytest.mark.alone
def test_memory_is_constant_over_changes(folders):
    used = []
    with build(folders["tfrecord"]) as loader:
        for _ in range(8):
            for size, magnitude in [*EPOCHS, (224, 12)]:
                loader.set(size=size, magnitude=magnitude)
                for _ in loader:
                    pass
            torch.cuda.synchronize()
            free, total = torch.cuda.mem_get_info()
            used.append((total - free) / 2**20)
    # Each size has occurred in the first cycles. After them, DALI's pools may grow by one more
    # block of 64 MiB.
    assert used[-1] - used[2] <= 128, used


def test_memory_limit_is_checked_again(folders):
    """A batch of 8 images of 8192 x 8192 in float16 takes 3 GiB."""
    with build(folders["tfrecord"], memory_limit="2.5GiB") as loader:
        with pytest.raises(CallError, match="memory_limit"):
            loader.set(size=8192)
        assert next(iter(loader))[0].shape == (8, 3, 128, 128)
        loader.set(size=64)
        assert next(iter(loader))[0].shape == (8, 3, 64, 64)
