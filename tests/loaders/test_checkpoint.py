"""The state machine of a loader, without DALI: which epoch comes next, when the pipeline restarts, what is saved."""

import json
import zlib

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from loaders.checkpoint import State, read_state
from loaders.progress import Phase, Position, Progress
from loaders.transforms.base import Adjustment
from manifests.errors import CallError

BATCHES = 3
BUILT = {"batch_size": 4}
SET = Adjustment((128, 96), 4.5)


def take(progress, batches=1):
    """Take batches from a loader in this state."""
    for _ in range(batches):
        progress = progress.run_started().run_finished()
        progress = progress.batch_given(b"checkpoint %d" % progress.position.read)
    return progress


def begin(progress, discarded=0):
    """Begin an iteration as a loader does, with batches that "drop" discards."""
    if progress.needs_restart:
        progress = Progress.start(BATCHES, progress.next_epoch, iteration=progress.iteration)
    elif progress.phase is Phase.FINISHED:
        for _ in range(discarded):
            progress = progress.run_started().run_finished()
    return progress.begin()


@pytest.fixture
def new():
    return Progress.start(BATCHES)


def test_a_new_loader_is_ready_for_epoch_0(new):
    assert (new.phase, new.next_epoch, new.needs_restart) == (Phase.READY, 0, False)
    assert (new.saved, new.checkpoint) == (Position(), b"")


def test_an_iteration_without_a_batch_does_not_count_an_epoch(new):
    assert begin(begin(new)).position == Position(epoch=0)
    assert begin(begin(new)).iteration == 2


@pytest.mark.parametrize("batches", [1, 2])
def test_a_dropped_iterator_leaves_the_epoch_and_the_next_one_is_saved(new, batches):
    progress = take(begin(new), batches)
    left = progress.leave()
    assert (left.phase, left.needs_restart, left.next_epoch) == (Phase.LEFT, True, 1)
    # An exception may be the reason, so the last batch stays known.
    assert (left.saved, left.checkpoint) == (progress.saved, progress.checkpoint)
    resumable = left.resumable
    assert (resumable.saved, resumable.checkpoint) == (Position(epoch=1, started=1), b"")
    restored = Progress.restore(BATCHES, resumable.saved, resumable.checkpoint)
    assert begin(restored).position == begin(left).position == Position(epoch=1, started=1)


@pytest.mark.parametrize(
    "progress", [Progress.start(BATCHES), take(begin(Progress.start(BATCHES)), BATCHES)]
)
def test_only_an_epoch_between_two_batches_can_be_left(progress):
    assert progress.leave() is progress
    assert progress.resumable is progress


def test_a_resume_at_another_world_size_starts_at_a_batch():
    progress = Progress.restore(BATCHES, Position(4, 2, started=4, skipped=2), b"")
    assert (progress.phase, progress.next_epoch, progress.needs_restart) == (Phase.READY, 4, False)
    assert take(begin(progress)).position == Position(4, 3, read=1, started=4, skipped=2)


def test_a_batch_moves_and_saves_the_position(new):
    progress = take(begin(new), 2)
    assert progress.phase is Phase.READING
    assert progress.position == progress.saved == Position(epoch=0, batch=2, read=2)
    assert progress.checkpoint == b"checkpoint 2"


def test_the_last_batch_finishes_the_epoch_and_the_next_continues_the_pipeline(new):
    finished = take(begin(new), BATCHES)
    assert (finished.phase, finished.next_epoch, finished.needs_restart) == (
        Phase.FINISHED,
        1,
        False,
    )
    assert begin(finished).position == Position(epoch=1, read=BATCHES)
    following = begin(finished, discarded=1)
    assert following.phase is Phase.READING
    assert following.position == Position(epoch=1, read=BATCHES + 1)
    # Nothing of epoch 1 was given, so the end of epoch 0 remains saved.
    assert following.saved == finished.saved


def test_an_epoch_left_early_restarts_the_pipeline_at_the_next(new):
    left = take(begin(new), 2)
    assert (left.needs_restart, left.next_epoch) == (True, 1)
    assert begin(left).position == Position(epoch=1, started=1)


def test_an_interruption_while_dali_runs_keeps_the_last_complete_batch(new):
    interrupted = take(begin(new), 1).run_started()
    assert interrupted.phase is Phase.RUNNING
    assert (interrupted.saved, interrupted.checkpoint) == (
        Position(batch=1, read=1),
        b"checkpoint 1",
    )
    assert (interrupted.needs_restart, interrupted.next_epoch) == (True, 1)


def test_an_error_after_dali_has_run_keeps_the_last_complete_batch(new):
    failed = take(begin(new), 1).run_started().run_finished()
    assert failed.saved == Position(batch=1, read=1)
    assert (failed.needs_restart, failed.next_epoch) == (True, 1)


@pytest.mark.parametrize("runs", [0, 1])
def test_an_interruption_while_discarded_batches_are_read_restarts_the_pipeline(new, runs):
    progress = take(begin(new), BATCHES)
    for _ in range(runs):
        progress = progress.run_started().run_finished()
    interrupted = progress.run_started()
    assert interrupted.saved == Position(batch=BATCHES, read=BATCHES)
    assert (interrupted.needs_restart, interrupted.next_epoch) == (True, 1)


def test_a_checkpoint_within_an_epoch_continues_it():
    progress = Progress.restore(
        BATCHES, Position(epoch=4, batch=2, read=5, started=3), b"checkpoint"
    )
    assert (progress.phase, progress.next_epoch, progress.needs_restart) == (
        Phase.RESUMED,
        4,
        False,
    )
    continued = begin(progress)
    assert continued.phase is Phase.READING
    assert continued.position == progress.position
    assert take(continued).phase is Phase.FINISHED


def test_a_second_iterator_leaves_a_resumed_epoch():
    progress = Progress.restore(
        BATCHES, Position(epoch=4, batch=2, read=5, started=3), b"checkpoint"
    )
    assert begin(begin(progress)).position == Position(epoch=5, started=5)


def test_a_checkpoint_between_epochs_begins_the_next():
    progress = Progress.restore(
        BATCHES, Position(epoch=4, batch=BATCHES, read=9, started=2), b"checkpoint"
    )
    assert (progress.phase, progress.next_epoch) == (Phase.FINISHED, 5)


def test_a_checkpoint_before_the_first_batch_begins_the_same_epoch():
    progress = Progress.restore(BATCHES, Position(epoch=4, started=4), b"")
    assert (progress.phase, progress.next_epoch) == (Phase.READY, 4)


@given(st.lists(st.sampled_from(["iterate", "batch", "interrupt", "leave", "resume"]), max_size=40))
def test_every_sequence_of_calls_keeps_the_counts_consistent(calls):
    progress = begin(Progress.start(BATCHES))
    for call in calls:
        if call == "iterate":
            progress = begin(progress, discarded=1)
        elif call == "interrupt":
            progress = progress.run_started()
        elif call == "leave":
            progress = progress.leave()
        elif call == "resume":
            progress = begin(Progress.restore(BATCHES, progress.saved, progress.checkpoint))
        elif progress.position.batch < BATCHES and progress.phase not in (
            Phase.RUNNING,
            Phase.LEFT,
        ):
            progress = take(progress)
        position, saved = progress.position, progress.saved
        assert 0 <= position.batch <= min(BATCHES, position.read)
        assert 0 <= position.started <= position.epoch
        assert bool(progress.checkpoint) == bool(saved.read)
        state = State(BUILT, saved, progress.checkpoint)
        assert read_state(state.to_dict(), BUILT, batches=BATCHES) == state
        assert Progress.restore(BATCHES, saved, progress.checkpoint).phase in (
            Phase.READY,
            Phase.RESUMED,
            Phase.FINISHED,
        )


def test_a_state_is_plain_values():
    errors = {7: "no data", 3: "no pixels"}
    state = State(
        {"batch_size": 4}, Position(epoch=1, batch=2, read=5), b"checkpoint", errors, SET, (3,)
    )
    assert state.to_dict() == {
        "version": 1,
        "revision": 3,
        "built": {"batch_size": 4},
        "position": {"epoch": 1, "batch": 2, "read": 5, "started": 0, "skipped": 0},
        "checkpoint": "Y2hlY2twb2ludA==",
        "checksum": zlib.crc32(b"checkpoint"),
        "errors": [[3, "no pixels"], [7, "no data"]],
        "set": {"size": [128, 96], "magnitude": 4.5},
    }
    stored = json.loads(json.dumps(state.to_dict()))
    assert stored == state.to_dict()
    assert read_state(stored, {"batch_size": 4}, batches=3) == state


def test_a_state_of_another_loader_is_rejected():
    state = State(BUILT, Position(), b"").to_dict()
    with pytest.raises(
        CallError, match="by a loader with batch_size=4, but this loader has batch_size=5"
    ):
        read_state(state, {"batch_size": 5}, batches=BATCHES)


def test_a_bad_row_outside_the_split_is_rejected():
    state = State(BUILT, Position(), b"", {28: "no data"}).to_dict()
    with pytest.raises(
        CallError, match=r"\(errors contains row 28, but the split has 28 samples\)"
    ):
        read_state(state, BUILT, batches=BATCHES, samples=28)
    assert read_state(state, BUILT, batches=BATCHES, samples=29).errors == {28: "no data"}
    # Another dataset is the more useful reason.
    with pytest.raises(CallError, match="by a loader with batch_size=4"):
        read_state(state, {"batch_size": 5}, batches=BATCHES, samples=28)


WITHIN, AT_END = Position(batch=2, read=2), Position(batch=BATCHES, read=BATCHES)


def saved_with(on_error, position=WITHIN, errors=(), **part):
    """Return a state, and what another loader has in common with it."""
    built = {"sampler": "ShuffledSampler()", "rank": 0, "world_size": 2, "batch_size": 4, **part}
    saved = {**built, "on_error": on_error}
    return State(saved, position, b"checkpoint", dict.fromkeys(errors, "no data")).to_dict(), built


@pytest.mark.parametrize(
    ("saved", "own"),
    [("skip", "raise"), ("skip", "replace"), ("replace", "skip"), ("replace", "raise")],
)
def test_an_epoch_with_bad_images_continues_with_the_same_on_error(saved, own):
    state, built = saved_with(saved, errors=[3])
    with pytest.raises(
        CallError, match=f"on_error='{saved}', but this loader has on_error='{own}'"
    ):
        read_state(state, {**built, "on_error": own}, batches=BATCHES)
    for accepted, like in (
        (state, saved),
        (saved_with(saved)[0], own),  # no image is bad
        (saved_with(saved, AT_END, errors=[3])[0], own),
    ):
        assert (
            read_state(accepted, {**built, "on_error": like}, batches=BATCHES).checkpoint
            == b"checkpoint"
        )


@pytest.mark.parametrize("part", [{"rank": 1}, {"rank": 0, "world_size": 1, "batch_size": 8}])
def test_on_other_ranks_skip_continues_between_epochs_only(part):
    """The samples of a rank move up for its own bad images, which the states of other ranks do not contain."""
    state, built = saved_with("skip")
    with pytest.raises(
        CallError,
        match="it does not tell which samples other ranks have read; it was saved with",
    ):
        read_state(state, {**built, **part, "on_error": "skip"}, batches=BATCHES)
    for saved, own, position in (
        ("skip", "skip", AT_END),
        ("replace", "replace", WITHIN),
        ("raise", "skip", WITHIN),
    ):
        state, built = saved_with(saved, position)
        assert (
            read_state(state, {**built, **part, "on_error": own}, batches=BATCHES).position.read
            == 0
        )


VALID = State(
    {"batch_size": 4, "fields": ["image"], "shuffle": None}, Position(1, 2, 9, 0), b"checkpoint"
).to_dict()


class Endless:
    """A value whose comparison and text must not be asked for."""

    def __eq__(self, other: object) -> bool:
        raise AssertionError

    __hash__ = None

    def __repr__(self) -> str:
        return "x" * 10**6


def nested(depth):
    value = []
    for _ in range(depth):
        value = [value]
    return value


@pytest.mark.parametrize("path", ["version", "built", "built.batch_size", "built.fields", "position", "checkpoint",
                                  *(f"position.{name}" for name in ("epoch", "batch", "read", "started"))])  # fmt: skip
@pytest.mark.parametrize(
    "value",
    [None, 1.5, float("nan"), "x", "\ud800", b"x", -1, 2**63, 10**5000, [[1]], [b"x"], {}, {1: 2}, {"\ud800": 1},
     object(), Endless(), nested(50_000), np.zeros(3), "x" * 10**6],
    ids=lambda value: type(value).__name__,
)  # fmt: skip
def test_a_damaged_member_is_named(path, value):
    first, _, second = path.partition(".")
    state = {**VALID, first: {**VALID[first], second: value} if second else value}
    with pytest.raises(CallError) as caught:
        read_state(state, VALID["built"], batches=3)
    assert (
        path.split(".")[-1]
        if type(value) is not dict or path != "built" or value
        else "batch_size=None"
    ) in str(caught.value)
    assert len(str(caught.value)) < 2000


@pytest.mark.parametrize("missing", ["version", "built", "position", "checkpoint"])
def test_a_missing_member_is_named(missing):
    state = {name: value for name, value in VALID.items() if name != missing}
    with pytest.raises(
        CallError, match=rf"^this is not the state of a loader \({missing} is missing\)"
    ):
        read_state(state, VALID["built"], batches=3)


@pytest.mark.parametrize("name", ["epoch", "batch", "read", "started"])
def test_a_missing_number_is_named(name):
    position = {each: value for each, value in VALID["position"].items() if each != name}
    with pytest.raises(CallError, match=rf"\(position\.{name} is missing\)"):
        read_state({**VALID, "position": position}, VALID["built"], batches=3)
