"""The rate, the time left and when a log gets a line, on a clock of the tests; parts of a step are one."""

from unittest import mock

import pytest
from helpers.rows import evaluate, read_rows
from hypothesis import given
from hypothesis import strategies as st

from dataprep.commands.console import Cadence, Meter, describe
from dataprep.progress import divide


@pytest.fixture
def clock():
    """A function that returns its attribute `now`."""
    clock = mock.Mock(now=1000.0)
    clock.side_effect = lambda: clock.now
    return clock


def test_the_rate_follows_the_last_thirty_seconds(clock):
    meter = Meter(100_000, 1, clock)
    for _ in range(60):
        clock.now += 1
        meter.add_part("a", 1000)
    assert meter.state.images_per_second == 1000
    for _ in range(40):
        clock.now += 1
        meter.add_part("a", 10)
    assert 10 <= meter.state.images_per_second < 11
    clock.now += 270  # nothing is done any more: the rate decreases, and the time left grows
    assert meter.state.images_per_second <= 1.1


def test_an_unknown_number_of_images_is_estimated_from_finished_shards(clock):
    meter = Meter(None, 4, clock)
    clock.now += 1
    meter.add_part("a", 64)
    assert (meter.state.total, meter.state.seconds_left) == (None, None)
    assert describe(meter.state) == "64 images, 64 images/s"
    meter.add_shard("a", 100, resumed=False)
    assert (meter.state.total, meter.state.total_is_estimate) == (400, True)
    assert describe(meter.state) == "100 of about 400 images (25%), 100 images/s, 3 s left"
    for name in "bcd":
        meter.add_shard(name, 90, resumed=False)
    assert (meter.state.done, meter.state.total, meter.state.total_is_estimate) == (370, 370, False)


#: Images in a second, seconds and all images; the seconds in which a line is due. A tenth comes first.
@pytest.mark.parametrize(("row", "due"), read_rows(__file__, "lines"))
def test_when_a_log_gets_a_line(clock, row, due):
    rate, seconds, total = evaluate(row)
    meter, cadence, found = Meter(total, 1, clock), Cadence(), []
    for second in range(1, seconds + 1):
        clock.now += 1
        meter.add_part("a", rate)
        if cadence.is_due(meter.state):
            found.append(second)
    assert found == evaluate(due)


@given(
    st.lists(
        st.tuples(
            st.integers(0, 50),
            st.lists(
                st.tuples(st.none() | st.integers(0, 30), st.lists(st.integers(0, 20), max_size=5)),
                max_size=3,
            ),
        ),
        min_size=1,
        max_size=5,
    )
)
def test_a_divided_step_advances_to_its_end(parts):
    """Each part starts any number of times, with any number of images, and ends early or late."""
    recorder, done, total = mock.Mock(), [0], sum(share for share, _ in parts)
    recorder.advance = lambda shard, images, resumed=False: done.append(done[-1] + images)
    with divide(recorder, [share for share, _ in parts]) as shares:
        for number, (part, (_, runs)) in enumerate(zip(shares, parts, strict=True)):
            before = sum(share for share, _ in parts[:number])
            for images, advances in runs:
                part.start(images, 1)
                for count in advances:
                    part.advance("a", count)
                assert before <= done[-1] <= before + parts[number][0]
    assert [call.args[0] for call in recorder.start.mock_calls] == [total]
    assert done[-1] == total
    assert done == sorted({*done})
