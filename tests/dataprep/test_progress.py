"""Several parts of a step are shown as one, which never goes back and ends where it should."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from dataprep.progress import divide


class Recorder:
    def __init__(self):
        self.totals, self.done = [], [0]

    def start(self, images, shards):
        self.totals.append(images)

    def advance(self, shard, images, *, resumed=False):
        assert images > 0
        self.done.append(self.done[-1] + images)


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
    recorder, total = Recorder(), sum(share for share, _ in parts)
    with divide(recorder, [share for share, _ in parts]) as shares:
        for number, (part, (_, runs)) in enumerate(zip(shares, parts, strict=True)):
            before = sum(share for share, _ in parts[:number])
            for images, advances in runs:
                part.start(images, 1)
                for count in advances:
                    part.advance("a", count)
                assert before <= recorder.done[-1] <= before + parts[number][0]
    assert recorder.totals == [total]
    assert recorder.done[-1] == total


def test_a_part_that_counts_other_images_moves_in_proportion():
    recorder = Recorder()
    with divide(recorder, [10, 100]) as (first, second):
        first.start(1000, 4)
        first.advance("a", 500)
        assert recorder.done[-1] == 5
        second.start(2, 2)  # the first part ended early
        assert recorder.done[-1] == 10
        second.advance("a", 1)
        assert recorder.done[-1] == 60
        second.start(10, 1)  # begins again: the rest of its share is divided
        second.advance("a", 1)
        assert recorder.done[-1] == 65
    assert recorder.done[-1] == 110
