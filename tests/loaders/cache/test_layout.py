"""Requests bring each image once, in the order in which they are needed.

Images in order come in whole blocks.
"""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from loaders.cache.layout import REQUEST_BYTES, REQUEST_RANGES, Layout


def make_layout(sizes, shards=3, gap=512):
    """Return a layout of shards with images of these sizes, with headers between them."""
    sizes = np.array(sizes, np.int64)
    ends = np.linspace(0, len(sizes), shards + 1).astype(int)[1:]
    offsets, lengths, first = np.empty(len(sizes), np.int64), [], 0
    for end in ends.tolist():
        stops = np.cumsum(sizes[first:end] + gap)
        offsets[first:end] = stops - sizes[first:end]
        lengths.append(int(stops[-1]) + 1024 if len(stops) else 1024)
        first = end
    return Layout(offsets, sizes, np.zeros(len(sizes), np.int64), ends, lengths)


@given(st.integers(0, 2**32 - 1), st.integers(1, 200))
def test_requests_bring_each_image_once_in_the_order_of_need(seed, count):
    rng = np.random.default_rng(seed)
    layout = make_layout(rng.integers(1, 600_000, 200))
    rows = rng.permutation(200)[:count]
    requests = layout.requests(rows)
    brought = np.concatenate([request.rows for request in requests])
    assert sorted(brought.tolist()) == sorted(rows.tolist())
    place = {row: number for number, row in enumerate(rows.tolist())}
    needed = [min(place[row] for row in request.rows.tolist()) for request in requests]
    assert needed == sorted(needed)
    for request in requests:
        assert (layout.shards_of(request.rows) == request.shard).all()
        assert len(request.ranges) <= REQUEST_RANGES
        assert request.bytes <= REQUEST_BYTES or len(request.rows) == 1
        starts, ends = np.array(request.ranges).T
        assert (starts[1:] > ends[:-1]).all()
        for row in request.rows.tolist():
            begin, end = layout.offsets[row], layout.offsets[row] + layout.sizes[row]
            assert ((starts <= begin) & (end <= ends)).any()


def test_in_order_shards_come_as_a_whole_in_long_requests():
    layout = make_layout([110_000] * 300)
    requests = layout.requests(layout.blocks(np.arange(256)))
    assert all(len(request.ranges) == 1 for request in requests)
    assert len(requests) <= 256 * 110_512 / REQUEST_BYTES + 2 * len(layout.lengths)
