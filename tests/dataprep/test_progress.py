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
