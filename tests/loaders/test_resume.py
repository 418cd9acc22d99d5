"""A loader resumes from a checkpoint, also in a new process, with the same batches bit for bit."""

import pickle

import pytest
import torch
from helpers import HELPERS, damaged, small

import loaders
from manifests.errors import CallError, DamagedError

FORMATS = pytest.mark.parametrize("fmt", ["tfrecord", "webdataset"])


def build(folder, **options):
    defaults = {"batch_size": 4, "transforms": small.TRAIN, "device": "cpu", "num_threads": 2}
    return loaders.build(folder, **{**defaults, **options})


def flat(batches):
    return [tuple(batch) for batch in batches]


def equal(first, second):
    return len(first) == len(second) and all(
        torch.equal(images, images_again) and torch.equal(labels, labels_again)
        for (images, labels), (images_again, labels_again) in zip(first, second, strict=True)
    )


@pytest.mark.parametrize("last_batch", ["drop", "partial"])
@pytest.mark.parametrize(
    ("fmt", "stops"),
    [("tfrecord", [(0, 0), (0, 5), (2, 4)]), ("webdataset", [(0, 1), (0, 5), (1, 2)])],
)
def test_resumes_bit_for_bit(make_dataset, mixed, fmt, stops, last_batch):
    folder = make_dataset(fmt, mixed)
    whole = build(folder, last_batch=last_batch)
    epochs = [flat(whole) for _ in range(4)]
    for epoch, taken in stops:
        resume_at(folder, epochs, epoch, taken, last_batch=last_batch)


def resume_at(folder, epochs, epoch, taken, **options):
    """Stop after some batches of an epoch, resume in another loader, and compare the rest of all epochs."""
    first = build(folder, **options)
    for _ in range(epoch):
        list(first)
    iteration = iter(first)
    if taken:
        for _ in range(taken):
            next(iteration)
        state = first.state_dict()
    else:
        state = build(folder, **options).state_dict()
    first.close()

    second = build(folder, **options)
    second.load_state_dict(state)
    rest = epochs[epoch][taken:]
    if rest:
        assert equal(flat(second), rest)
    for later in epochs[epoch + 1 :]:
        assert equal(flat(second), later)


def test_resumes_between_epochs(make_dataset, mixed):
    folder = make_dataset("tfrecord", mixed)
    whole = build(folder)
    epochs = [flat(whole) for _ in range(3)]
    first = build(folder)
    list(first)
    second = build(folder)
    second.load_state_dict(first.state_dict())
    second.set_epoch(1)
    assert equal(flat(second), epochs[1])
    assert equal(flat(second), epochs[2])


def test_resumes_after_every_batch(make_dataset, mixed):
    folder = make_dataset("webdataset", mixed)
    epoch = flat(build(folder))
    state = build(folder).state_dict()
    for batch in epoch:
        loader = build(folder)
        loader.load_state_dict(state)
        iteration = iter(loader)
        found = next(iteration)
        assert equal([found], [batch])
        state = loader.state_dict()
        loader.close()


def test_resumes_in_a_new_process(make_dataset, mixed, tmp_path, python):
    folder = make_dataset("tfrecord", mixed)
    script = HELPERS / "save_batches.py"
    for part in ("whole", "first", "second"):
        python.run(script, part, folder, tmp_path, check=True, timeout=600)
    whole, parts = (
        torch.load(tmp_path / "whole.pt"),
        [torch.load(tmp_path / f"{part}.pt") for part in ("first", "second")],
    )
    assert equal(whole, [*parts[0], *parts[1]])


def test_mixing_and_policies_resume(make_dataset, mixed):
    folder = make_dataset("tfrecord", mixed)
    options = {"transforms": "modern-train", "dtype": "float32"}
    whole = flat(build(folder, **options))
    first = build(folder, **options)
    iteration = iter(first)
    next(iteration), next(iteration)
    second = build(folder, **options)
    second.load_state_dict(first.state_dict())
    assert equal(flat(second), whole[2:])


@pytest.mark.parametrize("last_batch", ["drop", "partial", "pad"])
@pytest.mark.parametrize("at", [0, 1, 3])
def test_state_after_an_interruption_within_a_batch(make_dataset, mixed, last_batch, at):
    """The interrupted batch comes next, because the user did not receive it."""
    folder = make_dataset("tfrecord", mixed)
    uninterrupted = build(folder, last_batch=last_batch)
    epochs = [flat(uninterrupted), flat(uninterrupted)]
    batches = iter(range(100))

    def interrupted(images):
        if next(batches) == at:
            raise KeyboardInterrupt
        return images

    loader = build(folder, last_batch=last_batch, transforms=[*small.TRAIN, interrupted])
    with pytest.raises(KeyboardInterrupt):
        list(loader)
    state = loader.state_dict()
    again = build(folder, last_batch=last_batch)
    again.load_state_dict(state)
    assert equal(flat(again), epochs[0][at:])
    assert equal(flat(again), epochs[1])
    # The interrupted loader itself begins its next epoch.
    assert len(flat(loader)) == len(loader)


def test_state_after_a_batch_function_fails(make_dataset, mixed):
    folder = make_dataset("tfrecord", mixed)
    calls = []

    def fails(images):
        calls.append(0)
        if len(calls) == 3:
            raise ZeroDivisionError
        return images

    transforms = [{"RandCropImage": {"size": 32}}, "NormalizeImage"]
    whole = flat(build(folder, transforms=transforms))
    loader = build(folder, transforms=[*transforms, fails])
    with pytest.raises(ZeroDivisionError):
        list(loader)
    again = build(folder, transforms=transforms)
    again.load_state_dict(loader.state_dict())
    assert equal(flat(again), whole[2:])


@pytest.mark.parametrize(
    "change",
    [
        {"checkpoint": "anVuaw=="},
        {"checkpoint": "no base64"},
        {"checkpoint": b"junk"},
        {"checkpoint": ""},
        {"checkpoint": 5},
        {"position": {"epoch": 0, "batch": 99, "read": 99, "started": 0}},
        {"position": {"epoch": -1, "batch": 1, "read": 1, "started": -1}},
        {"position": {"epoch": "x", "batch": 1, "read": 1, "started": 0}},
    ],
)
def test_a_damaged_state(make_dataset, mixed, change):
    folder = make_dataset("tfrecord", mixed)
    first = build(folder)
    iteration = iter(first)
    next(iteration)
    loader = build(folder)
    with pytest.raises(CallError, match=r"state is damaged|not the state of a loader"):
        loader.load_state_dict({**first.state_dict(), **change})
    assert len(flat(loader)) == len(loader)


def test_a_loader_cannot_be_pickled(make_dataset, mixed):
    with pytest.raises(CallError, match="cannot be copied or sent to another process"):
        pickle.dumps(build(make_dataset("tfrecord", mixed)))


def test_set_epoch(make_dataset, mixed):
    folder = make_dataset("tfrecord", mixed)
    loader = build(folder, shuffle=False)
    loader.set_epoch(7)
    seventh = flat(loader)
    other = build(folder, shuffle=False)
    list(other)
    other.set_epoch(7)
    assert equal(flat(other), seventh)
    other.set_epoch(8)
    iteration = iter(other)
    next(iteration)
    # Epoch 8 comes next anyway, so the pipeline that started with epoch 7 continues.
    position = other.state_dict()["position"]
    assert (position["epoch"], position["batch"], position["started"]) == (8, 1, 7)


#: Each way to read: in stored order, by DALI's buffer, and by a sampler.
ORDERS = pytest.mark.parametrize("shuffle", [False, "buffer", True])


@ORDERS
@FORMATS
def test_set_epoch_gives_the_order_of_an_uninterrupted_run(make_dataset, mixed, fmt, shuffle):
    folder = make_dataset(fmt, mixed)
    for rank in range(2):
        options = {"shuffle": shuffle, "fields": ("index",), "rank": rank, "world_size": 2}
        whole = build(folder, **options)
        epochs = [rows_of(whole) for _ in range(5)]
        other = build(folder, **options)
        for epoch in (3, 1, 2, 2):
            other.set_epoch(epoch)
            assert rows_of(other) == epochs[epoch]
        assert rows_of(other) == epochs[3]


def rows_of(loader):
    return [rows.tolist() for (rows,) in loader]


def test_a_rank_sees_all_samples_over_the_epochs(make_dataset, mixed):
    folder = make_dataset("tfrecord", mixed, shards=1)
    for shuffle in ("buffer", True):
        loader = build(
            folder, shuffle=shuffle, fields=("index",), rank=1, world_size=4, batch_size=5
        )
        assert len({row for _ in range(20) for rows in rows_of(loader) for row in rows}) == 23


@ORDERS
def test_a_state_after_break_begins_the_next_epoch_as_the_loader_does(make_dataset, mixed, shuffle):
    folder = make_dataset("tfrecord", mixed)
    whole = build(folder, shuffle=shuffle)
    epochs = [flat(whole) for _ in range(2)]
    first = build(folder, shuffle=shuffle)
    within = []
    for number, _ in enumerate(first):
        within.append(first.state_dict())
        if number == 2:
            break
    second, third = build(folder, shuffle=shuffle), build(folder, shuffle=shuffle)
    second.load_state_dict(first.state_dict())
    third.load_state_dict(within[-1])
    following = flat(first)
    assert equal(flat(second), following)
    assert [labels.tolist() for _, labels in following] == [
        labels.tolist() for _, labels in epochs[1]
    ]
    # Within the loop, the state is that of the batch.
    assert equal(flat(third), epochs[0][3:])


def test_a_state_in_the_handler_of_an_exception_continues_the_epoch(make_dataset, mixed):
    folder = make_dataset("tfrecord", mixed)
    epoch = flat(build(folder))
    loader, states = build(folder), []
    try:
        for number, _ in enumerate(loader):
            if number == 2:
                interrupt()
    except KeyboardInterrupt:
        states.append(loader.state_dict())
    again = build(folder)
    again.load_state_dict(states[0])
    assert equal(flat(again), epoch[3:])
    try:
        interrupt()
    except KeyboardInterrupt:
        for _ in loader:
            break
        # This exception is older than the `break`, so it is not the reason.
        assert loader.state_dict()["position"]["epoch"] == 2


def interrupt():
    raise KeyboardInterrupt


def test_iterators_that_are_not_used_change_nothing(make_dataset, mixed):
    folder = make_dataset("tfrecord", mixed)
    whole = build(folder)
    epochs = [flat(whole) for _ in range(2)]
    first = build(folder)
    iteration = iter(first)
    next(iteration), next(iteration)
    state = first.state_dict()
    iter(first)
    assert equal([next(iteration)], epochs[0][2:3])
    loader = build(folder)
    loader.load_state_dict(state)
    iter(loader)
    assert loader.state_dict()["position"] == state["position"]
    assert equal(flat(loader), epochs[0][2:])
    iter(loader), iter(loader)
    assert equal(flat(loader), epochs[1])


@pytest.mark.parametrize("taken", [0, 2, 5])
def test_a_state_is_safe_to_load_with_torch(make_dataset, mixed, tmp_path, taken):
    loader = build(make_dataset("tfrecord", mixed))
    iteration = iter(loader)
    for _ in range(taken):
        next(iteration)
    torch.save(loader.state_dict(), tmp_path / "state.pt")
    assert torch.load(tmp_path / "state.pt", weights_only=True) == loader.state_dict()


# Each pair of two of the three once.
@pytest.mark.parametrize(
    ("order", "last_batch", "taken"),
    [(order, last_batch, 1 + (row + column) % 3)
     for row, order in enumerate(("shuffled", "pk", "subset"))
     for column, last_batch in enumerate(("drop", "partial", "pad"))],
)  # fmt: skip
def test_a_state_resumes_at_another_world_size(make_dataset, mixed, last_batch, taken, order):
    folder = make_dataset("webdataset", mixed)

    def ranks(world_size, batch_size, states=None):
        # P is the number of identities on one rank.
        sampler = None if order == "shuffled" else loaders.PKSampler(batch_size // 2, 2)
        if order == "subset":
            sampler = loaders.SubsetSampler(rows=range(20), sampler=sampler)
        loaders_of_ranks = [
            build(folder, rank=rank, world_size=world_size, batch_size=batch_size, last_batch=last_batch,
                  fields=("index", "valid"), sampler=sampler)
            for rank in range(world_size)
        ]  # fmt: skip
        for loader, state in zip(loaders_of_ranks, states or [], strict=bool(states)):
            loader.load_state_dict(state)
        return loaders_of_ranks

    def global_batches(parts):
        epochs = [[rows[valid].tolist() for rows, valid in part] for part in parts]
        return [[row for part in batch for row in part] for batch in zip(*epochs, strict=True)]

    def after(parts, count):
        states = []
        for part in parts:
            iteration = iter(part)
            for _ in range(count):
                next(iteration)
            states.append(part.state_dict())
        return states

    whole = ranks(1, 8)
    epochs = [global_batches(whole) for _ in range(3)]
    if taken > len(epochs[0]):
        return
    states = after(ranks(2, 4), taken)
    four = ranks(4, 2, [states[0]] * 4)
    rest = epochs[0][taken:]
    if rest:
        assert global_batches(four) == rest
    assert global_batches(four) == epochs[1]
    # The state of such a loader fits loaders of its own kind to the bit, and other world sizes
    # again.
    states = after(four, 1)
    assert global_batches(ranks(1, 8, [states[3]])) == epochs[2][1:]
    again = ranks(4, 2, states)
    assert global_batches(again) == epochs[2][1:]


def test_a_run_that_stopped_at_a_bad_image_resumes_without_it(tmp_path):
    made = damaged.damage(damaged.make(tmp_path / "set", "tfrecord", 24), rows=(9,))
    in_order = loaders.SequentialSampler()
    taken = []
    with damaged.build(made, sampler=in_order) as loader:
        iteration = iter(loader)
        taken += [next(iteration), next(iteration)]
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


def test_augmentation_after_a_resume_at_another_world_size_is_reproducible(make_dataset, mixed):
    folder = make_dataset("tfrecord", mixed)
    first = build(folder, batch_size=8)
    iteration = iter(first)
    next(iteration)
    state = first.state_dict()
    one, other = (build(folder, batch_size=4, rank=1, world_size=2) for _ in range(2))
    one.load_state_dict(state)
    other.load_state_dict(state)
    assert equal(flat(one), flat(other))
    # And it resumes to the bit.
    iteration = iter(one)
    next(iteration)
    other.load_state_dict(one.state_dict())
    assert equal(flat(other), flat_rest(iteration))


def flat_rest(iteration):
    return [tuple(batch) for batch in iteration]


@pytest.mark.parametrize(
    "change", [{"batch_size": 3}, {"batch_size": 2, "rank": 0, "world_size": 4}, {"shuffle": False}]
)
def test_another_global_batch_or_order_is_rejected(make_dataset, mixed, change):
    folder = make_dataset("tfrecord", mixed)
    state = build(folder).state_dict()
    with pytest.raises(CallError, match="the state was saved by a loader with"):
        build(folder, **change).load_state_dict(state)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"batch_size": 5}, "by a loader with batch_size=4, but this loader has batch_size=5"),
        ({"seed": 1}, "by a loader with seed=0, but this loader has seed=1"),
        ({"transforms": "imagenet-eval"}, "by a loader with transforms="),
        (
            {"rank": 0, "world_size": 2},
            "by a loader with world_size=1, but this loader has world_size=2",
        ),
    ],
)
def test_a_state_of_a_loader_with_other_arguments(make_dataset, mixed, change, message):
    folder = make_dataset("tfrecord", mixed)
    state = build(folder).state_dict()
    with pytest.raises(CallError, match=message):
        build(folder, **change).load_state_dict(state)


def test_a_state_of_another_dataset(make_dataset, mixed):
    state = build(make_dataset("tfrecord", mixed, name="a")).state_dict()
    with pytest.raises(CallError, match="by a loader with dataset="):
        build(make_dataset("tfrecord", mixed[1:], name="b")).load_state_dict(state)


@pytest.mark.parametrize(
    "state",
    [{}, {"version": 1}, [], None, {"version": 9, "built": {}, "position": {}, "checkpoint": b""}],
)
def test_a_state_of_another_form(make_dataset, mixed, state):
    with pytest.raises(
        CallError, match=r"this is not the state of a loader|this state has version 9"
    ):
        build(make_dataset("tfrecord", mixed)).load_state_dict(state)


def test_set_epoch_rejects_negative_numbers(make_dataset, mixed):
    with pytest.raises(CallError, match="epoch must be an integer of at least 0, got -1"):
        build(make_dataset("tfrecord", mixed)).set_epoch(-1)
