"""The state machine of a loader, without DALI: which epoch comes next, when the pipeline restarts, what is saved."""

import json
from unittest.mock import Mock

import numpy as np
import pytest
from helpers.rows import evaluate, read_rows
from hypothesis import given
from hypothesis import strategies as st

from loaders.checkpoint import State, read_state
from loaders.progress import Phase, Position, Progress
from loaders.transforms.base import Adjustment
from manifests.errors import CallError

BATCHES = 3
BUILT = {"batch_size": 4}
NEW = Progress.start(BATCHES)


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


def restored(*position, checkpoint=b"checkpoint"):
    return Progress.restore(BATCHES, Position(*position), checkpoint)


SET = Adjustment((128, 96), 4.5)
ONE, TWO, ALL = (take(begin(NEW), batches) for batches in (1, 2, BATCHES))
WITHIN, MOVED = restored(4, 2, 5, 3), restored(4, 2, 0, 4, 2, checkpoint=b"")


@pytest.mark.parametrize(("row", "saved"), read_rows(__file__, "progress"))
def test_progress(row, saved):
    progress, phase, next_epoch, restarts, position = evaluate(row, globals())
    saved = evaluate(saved, globals())
    found = (progress.phase, progress.next_epoch, progress.needs_restart)
    assert found == (Phase(phase), next_epoch, restarts)
    assert (progress.position, progress.saved) == (Position(*position), Position(*saved))


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
        elif progress.position.batch < BATCHES and progress.phase.value not in ("running", "left"):
            progress = take(progress)
        position, saved = progress.position, progress.saved
        assert 0 <= position.batch <= min(BATCHES, position.read)
        assert 0 <= position.started <= position.epoch
        assert bool(progress.checkpoint) == bool(saved.read)
        state = State(BUILT, saved, progress.checkpoint)
        assert read_state(state.to_dict(), BUILT, batches=BATCHES) == state


def test_a_state_is_plain_values():
    errors = {7: "no data", 3: "no pixels"}
    position = Position(epoch=1, batch=2, read=5)
    state = State({"batch_size": 4}, position, b"checkpoint", errors, SET, (3,))
    stored = json.loads(json.dumps(state.to_dict()))
    assert stored == state.to_dict()
    assert stored["errors"] == [[3, "no pixels"], [7, "no data"]]
    assert read_state(stored, {"batch_size": 4}, batches=3) == state


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


IN_EPOCH, AT_END = Position(batch=2, read=2), Position(batch=BATCHES, read=BATCHES)
RANK_1, OTHER_SIZE = {"rank": 1}, {"world_size": 1, "batch_size": 8}


@pytest.mark.parametrize(("row", "message"), read_rows(__file__, "on_error and ranks"))
def test_a_state_with_bad_images_fits_the_same_on_error_and_ranks(row, message):
    on_error, bad, position, own = evaluate(row, globals())
    built = {"sampler": "ShuffledSampler()", "rank": 0, "world_size": 2, "batch_size": 4}
    built["on_error"] = on_error
    state = State(built, position, b"checkpoint", dict.fromkeys(bad, "no data")).to_dict()
    if message != "fits":
        with pytest.raises(CallError, match=message):
            read_state(state, {**built, **own}, batches=BATCHES)
        return
    found = read_state(state, {**built, **own}, batches=BATCHES)
    # The checkpoint of DALI is for a loader of the same rank.
    is_other = own.keys() & {"rank", "world_size"}
    assert found.checkpoint == (b"" if is_other else b"checkpoint")


VALID = State(
    {"batch_size": 4, "fields": ["image"], "shuffle": None, "decoder": "cpu"},
    Position(1, 2, 9, 0),
    b"checkpoint",
).to_dict()


class Endless:
    """A value whose comparison and text must not be asked for."""

    __hash__, __eq__ = None, Mock(side_effect=AssertionError)

    def __repr__(self):
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
    is_empty = path == "built" and type(value) is dict and not value
    assert ("fields=None" if is_empty else path.split(".")[-1]) in str(caught.value)
    assert len(str(caught.value)) < 2000


@pytest.mark.parametrize(
    "missing",
    ["version", "built", "position", "checkpoint", "checksum", "errors", "set", "revision",
     *(f"position.{name}" for name in ("epoch", "batch", "read", "started", "skipped"))],
)  # fmt: skip
def test_a_missing_member_is_named(missing):
    first, _, second = missing.partition(".")
    state = {**VALID, first: {**VALID[first]}} if second else {**VALID}
    del (state[first] if second else state)[second or first]
    message = f"^this is not the state of a loader \\({missing} is missing\\)"
    with pytest.raises(CallError, match=message):
        read_state(state, VALID["built"], batches=3)


@pytest.mark.parametrize(("row", "message"), read_rows(__file__, "states that are refused"))
def test_states_that_are_refused(row, message):
    state = evaluate(row, globals())
    with pytest.raises(CallError, match=message):
        read_state(state, VALID["built"], batches=3)


@pytest.mark.parametrize(("row", "expected"), read_rows(__file__, "positions"))
def test_positions_are_within_the_epochs(row, expected):
    position = Position(*evaluate(row))
    state = State(BUILT, position, b"checkpoint").to_dict()
    if expected == "fits":
        assert read_state(state, BUILT, batches=3).position == position
        return
    with pytest.raises(CallError, match="position must be a position in epochs of 3 batches"):
        read_state(state, BUILT, batches=3)
