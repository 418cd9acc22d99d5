"""A loader resumes from a checkpoint, also in a new process, with the same batches bit for bit."""

import pickle
import zlib
from base64 import b64encode
from functools import partial

import pytest
from helpers import damaged, small
from helpers.loading import build, column, equal, state_after, take
from helpers.rows import evaluate, read_named, read_rows

import loaders
from loaders.transforms.crop_resize import RandomResizedCrop
from loaders.transforms.decode_normalize import Normalize
from loaders.transforms.geometry import Flip
from manifests.errors import CallError, DamagedError

LARGE = {"batch_size": 6, "transforms": small.TRAIN}
RANDOM = [{"RandCropImage": {"size": 24}}, {"RandFlipImage": {"flip_code": 1}}]
PLACED = {
    "batch_size": 2,
    "transforms": [RandomResizedCrop((48, 64)), Flip(), Normalize((0, 0, 0), (1, 1, 1))],
    "sampler": loaders.ShuffledSampler(),
}
VIEWS = [
    [{"RandomResizedCrop": {"size": 32}}, "RandomHorizontalFlip", "ToTensor"],
    [{"RandomResizedCrop": {"size": 16, "scale": [0.05, 0.4]}}, "NormalizeImage"],
]
PLACED_VIEWS = [
    [{"ColorJitter": {"brightness": 0.4}}, "RandomHorizontalFlip"],
    [{"RandomCrop": {"size": [40, 48]}}, {"RandomHorizontalFlip": {"p": 1.0}}],
]
SHAPED = {
    "batch_size": 2, "fields": ("image", "index", "valid"),
    "transforms": [
        {"RandomResizedCrop": {"size": "bucket"}}, {"ColorJitter": {"brightness": 0.4}},
        {"RandomErasing": {"p": 1.0}}, "RandomHorizontalFlip",
    ],
}  # fmt: skip
bucketed = partial(loaders.BucketSampler, [(32, 48), (48, 32)])
GROWING = [{"RandomResizedCrop": {"size": 64}}, {"RandAugment": {"num_ops": 1}}, "ToTensor"]

#: Loaders of each kind: the dataset and the arguments.
KINDS = read_named(__file__, "kinds", globals())
SIZES = ({"size": 32, "magnitude": 3}, {"size": 48, "magnitude": 6})


@pytest.mark.parametrize(("number", "kind"), [*enumerate(KINDS)], ids=KINDS)
def test_resumes_bit_for_bit(prepared, number, kind):
    """A checkpoint before each batch; each kind loads every eleventh, with another prefetch."""
    dataset, options = KINDS[kind]

    def epochs(loader, first):
        for epoch in range(first, 2):
            if kind.startswith("growing"):
                loader.set(**SIZES[epoch])
            yield epoch

    batches, states = [], []
    with build(prepared[dataset], prefetch=3, **options) as whole:
        for epoch in epochs(whole, 0):
            batches.append([])
            states.append((whole.state_dict(), epoch, 0))
            for batch in whole:
                batches[-1].append(batch)
                states.append((whole.state_dict(), epoch, len(batches[-1])))
        errors = whole.errors
    assert not equal(batches[0], batches[1]) or kind == "stored"
    for state, epoch, taken in states[number % 11 :: 11]:
        with build(prepared[dataset], prefetch=1, **options) as resumed:
            resumed.load_state_dict(state)
            if taken < len(resumed):
                assert equal(list(resumed), batches[epoch][taken:])
            for later in epochs(resumed, epoch + 1):
                assert equal(list(resumed), batches[later])
            assert resumed.errors == errors


@pytest.mark.parametrize(
    ("last_batch", "at", "error"),
    [("drop", 0, KeyboardInterrupt), ("partial", 1, ZeroDivisionError), ("pad", 3, MemoryError)],
)
def test_an_interrupted_batch_comes_next(prepared, last_batch, at, error):
    """The user did not receive it. The interrupted loader itself begins its next epoch."""
    numbers = iter(range(100))

    def interrupted(images):
        if next(numbers) == at:
            raise error
        return images

    options = {"last_batch": last_batch, "transforms": small.TRAIN}
    with build(prepared["mixed tfrecord"], **options) as whole:
        epochs = [list(whole), list(whole)]
    options["transforms"] = [*small.TRAIN, interrupted]
    with build(prepared["mixed tfrecord"], **options) as loader:
        with pytest.raises(error):
            list(loader)
        state = loader.state_dict()
        assert len(list(loader)) == len(loader)
    with build(prepared["mixed tfrecord"], **{**options, "transforms": small.TRAIN}) as again:
        again.load_state_dict(state)
        assert equal(list(again), epochs[0][at:])
        assert equal(list(again), epochs[1])


@pytest.mark.parametrize("shuffle", [False, "buffer", True])
def test_set_epoch_gives_the_order_of_an_uninterrupted_run(prepared, shuffle):
    options = {"shuffle": shuffle, "fields": ("index",), "rank": 1, "world_size": 2}
    with (
        build(prepared["mixed webdataset"], **options) as whole,
        build(prepared["mixed webdataset"], **options) as other,
    ):
        epochs = [column(whole) for _ in range(5)]
        for epoch in (3, 1, 2, 2):
            other.set_epoch(epoch)
            assert column(other) == epochs[epoch]
        assert column(other) == epochs[3]


def test_a_state_in_the_handler_of_an_exception_continues_the_epoch(prepared):
    def interrupt():
        raise KeyboardInterrupt

    folder = prepared["mixed tfrecord"]
    with build(folder) as whole, build(folder) as loader, build(folder) as again:
        try:
            for number, _ in enumerate(loader):
                if number == 2:
                    interrupt()
        except KeyboardInterrupt:
            again.load_state_dict(loader.state_dict())
        assert equal(list(again), list(whole)[3:])
        try:
            interrupt()
        except KeyboardInterrupt:
            take(loader, 1)
            # This exception is older than the `break`, so it is not the reason.
            assert loader.state_dict()["position"]["epoch"] == 2


@pytest.mark.parametrize(
    ("order", "last_batch", "taken"),
    [("shuffled", "partial", 2), ("pk", "pad", 1), ("subset", "drop", 2)],
)
def test_a_state_resumes_at_another_world_size(prepared, order, last_batch, taken):
    def ranks(world_size, states=()):
        # P is the number of identities on one rank.
        size = 8 // world_size
        sampler = None if order == "shuffled" else loaders.PKSampler(size // 2, 2)
        if order == "subset":
            sampler = loaders.SubsetSampler(rows=range(20), sampler=sampler)
        options = {"batch_size": size, "last_batch": last_batch, "sampler": sampler}
        options |= {"world_size": world_size, "fields": ("index", "valid"), "pipelines": 2}
        dataset = prepared["mixed webdataset"]
        found = [build(dataset, rank=rank, **options) for rank in range(world_size)]
        for loader, state in zip(found, states, strict=False):
            loader.load_state_dict(state)
        return found

    def global_batches(parts):
        epochs = [[rows[valid].tolist() for rows, valid in part] for part in parts]
        return [[row for part in batch for row in part] for batch in zip(*epochs, strict=True)]

    whole = ranks(1)
    epochs = [global_batches(whole) for _ in range(3)]
    four = ranks(4, [state_after(ranks(2)[0], taken)] * 4)
    if taken < len(epochs[0]):
        assert global_batches(four) == epochs[0][taken:]
    assert global_batches(four) == epochs[1]
    # The state of such a loader fits loaders of its own kind to the bit, and other world sizes
    # again.
    states = [state_after(each, 1) for each in four]
    assert global_batches(ranks(1, states[3:])) == epochs[2][1:]
    assert global_batches(ranks(4, states)) == epochs[2][1:]


@pytest.mark.parametrize(("row", "hint"), read_rows(__file__, "another world size"))
def test_a_state_of_another_world_size_says_how_to_resume(prepared, row, hint):
    shuffle, ranks, size = evaluate(row)
    options = {"fields": ("index",), "shuffle": shuffle}
    with build(prepared["mixed tfrecord"], rank=0, world_size=4, **options) as loader:
        state = state_after(loader, 1)
    own = dict(zip(("rank", "world_size"), ranks, strict=True))
    with build(prepared["mixed tfrecord"], batch_size=size, **own, **options) as loader:
        with pytest.raises(CallError) as caught:
            loader.load_state_dict(state)
        own = f"but this loader is rank {ranks[0]} of {ranks[1]} with"
        assert f"rank 0 of 4 with batch_size=4, {own}" in str(caught.value)
        assert hint in str(caught.value)


def test_a_run_that_stopped_at_a_bad_image_resumes_without_it(tmp_path):
    made = damaged.damage(damaged.make(tmp_path / "set", "tfrecord", 24), rows=(9,))
    in_order = loaders.SequentialSampler()
    with damaged.build(made, sampler=in_order) as loader:
        iteration = iter(loader)
        taken = [next(iteration), next(iteration)]
        with pytest.raises(DamagedError):
            next(iteration)
        stopped = loader.state_dict()
    with damaged.build(made, sampler=in_order, on_error="skip") as loader:
        loader.load_state_dict(stopped)
        iteration = iter(loader)
        taken.append(next(iteration))
        state = loader.state_dict()
        assert damaged.rows_of([*taken, *iteration]) == [row for row in range(24) if row != 9]
    message = "on_error='skip', but this loader has on_error='raise'"
    with damaged.build(made, sampler=in_order) as loader, pytest.raises(CallError, match=message):
        loader.load_state_dict(state)


def test_a_damaged_state_leaves_the_loader_where_it_was(prepared):
    """DALI itself refuses this one, whose checksum is right."""
    with build(prepared["mixed tfrecord"], fields=("label",)) as loader:
        epochs = [column(loader) for _ in range(3)]
        loader.set_epoch(0)
        iteration = iter(loader)
        assert [next(iteration)[0].tolist() for _ in range(2)] == epochs[0][:2]
        state = loader.state_dict()
        junk = {"checkpoint": b64encode(b"junk").decode(), "checksum": zlib.crc32(b"junk")}
        with pytest.raises(CallError, match="checkpoint must be the bytes that were saved"):
            loader.load_state_dict({**state, "checkpoint": junk["checkpoint"]})
        assert next(iteration)[0].tolist() == epochs[0][2]
        with pytest.raises(CallError, match="this state is damaged or of another version: DALI"):
            loader.load_state_dict({**state, **junk})
        assert column(loader) == epochs[0][3:]


def test_what_a_loader_cannot_do(prepared):
    with build(prepared["mixed tfrecord"]) as loader:
        with pytest.raises(CallError, match="cannot be copied or sent to another process"):
            pickle.dumps(loader)
        with pytest.raises(CallError, match="epoch must be an integer of at least 0, got -1"):
            loader.set_epoch(-1)
