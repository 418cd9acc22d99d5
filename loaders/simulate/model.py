"""Nodes that train from an object store, against a clock: what each rank fetches, and when it has it.

Which samples a rank reads is what `loaders.samplers` says; what its cache fetches and evicts is
what `loaders.cache.ahead` decides. Only the time is a model: a request takes the latency and the
rank's share of the bandwidth, a rank sends as many at a time as a real one, and a step begins when
every rank has its batch.
"""

from __future__ import annotations

import heapq
import math
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from loaders.arrays import Ints
from loaders.cache import ahead
from loaders.cache.layout import Layout, Request
from loaders.progress import Upcoming

#: Ranges of a request that the client of the store asks for at a time.
_RANGES_AT_ONCE = 10
#: Batches between the one that is read and the one that the model trains on.
_PREFETCH = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Cluster:
    """The machines of a run.

    Attributes:
        nodes: number of machines.
        gpus: ranks of each, at most 64.
        batch_size: samples in a batch of one rank.
        epochs: number of epochs.
        rate: samples per second that a GPU takes.
        latency: seconds from a request to its first byte.
        node_bandwidth: bytes per second that a node receives.
        store_bandwidth: bytes per second that the store sends to all nodes; `None` for no limit.
        node_disk: bytes of the cache of a node; `None` means that the split fits.

    """

    nodes: int
    gpus: int
    batch_size: int
    epochs: int
    rate: float
    latency: float
    node_bandwidth: float
    store_bandwidth: float | None = None
    node_disk: int | None = None

    @property
    def ranks(self) -> int:
        """Ranks of all nodes."""
        return self.nodes * self.gpus

    @property
    def bandwidth(self) -> float:
        """Bytes per second that a node receives while all of them do."""
        return min(self.node_bandwidth, (self.store_bandwidth or math.inf) / self.nodes)


@dataclass(frozen=True, slots=True, kw_only=True)
class EpochFigures:
    """What was found for an epoch.

    Attributes:
        seconds: its duration.
        waiting: seconds of it in which the GPUs waited for images.
        waiting_alone: the same if a node waited only for its own images, the mean of the nodes.
        cached: share of the samples that a rank did not have to fetch, when it planned to.
        bytes: bytes that each of the simulated nodes fetched.
        requests: requests of each of them, one for each range of bytes.

    """

    seconds: float
    waiting: float
    waiting_alone: float
    cached: float
    bytes: tuple[int, ...]
    requests: tuple[int, ...]


@dataclass(slots=True)
class _Rank:
    """A rank of a node: what it has planned to fetch, and its requests on their way."""

    upcoming: Upcoming
    number: int
    clock: float
    link: float
    planned: int = 0
    #: The rows of batches that were planned together, and the requests for them that are not sent.
    parts: list[Ints] = field(default_factory=list)
    pending: deque[Request] = field(default_factory=deque)
    #: When the last requests end.
    ends: deque[float] = field(default_factory=lambda: deque(maxlen=2 * ahead.CONNECTIONS))
    #: When each batch is on the disk.
    ready: list[float] = field(default_factory=list)


class _Node:
    """A node: its cache, and the ranks that fetch into it."""

    def __init__(
        self, layout: Layout, cluster: Cluster, upcoming: Sequence[Upcoming], start: float
    ) -> None:
        self.ranks = [_Rank(each, number, start, start) for number, each in enumerate(upcoming)]
        self.clock = start
        self.waited = 0.0
        #: When each request ends, its bytes and its ranges.
        self.requests: list[tuple[float, int, int]] = []
        #: Samples that the ranks looked for in an epoch, and the ones that were not there.
        self.looked, self.absent = np.zeros((2, cluster.epochs + 4), np.int64)
        self._layout = layout
        self._cluster = cluster
        self._limit = cluster.node_disk
        self._lookahead = ahead.Lookahead.of(layout, self._limit)
        #: When each row is on the disk, and the ranks that have asked for it, as bits.
        self._arrives = np.full(layout.rows, np.inf)
        self._asked = np.zeros(layout.rows, np.uint64)
        self._used = 0

    def run(self, current: int, step: int, until: float) -> None:
        """Let the ranks plan and send until a time, and until each has the batch of a step."""
        upcoming = self.ranks[0].upcoming
        last = current + self._lookahead.most(upcoming.batch_size, upcoming.batches)
        queue = [(rank.clock, rank.number) for rank in self.ranks]
        heapq.heapify(queue)
        while queue:
            rank = self.ranks[heapq.heappop(queue)[1]]
            # While one rank is late, the others go on.
            late = [each.clock for each in self.ranks if len(each.ready) <= step]
            is_idle = not rank.pending and rank.planned >= last
            if len(rank.ready) > step and (is_idle or rank.clock >= max([until, *late])):
                continue
            if rank.pending:
                self._send(rank, current, rank.pending.popleft())
            else:
                self._plan(rank, current)
            if not rank.pending:
                ends = [float(self._arrives[part].max(initial=0.0)) for part in rank.parts]
                rank.ready += ends
                rank.parts = []
            heapq.heappush(queue, (rank.clock, rank.number))

    def _plan(self, rank: _Rank, current: int) -> None:
        """Do what the planning thread of a rank does once: make the requests of the next batches."""
        in_advance = rank.planned - current
        batches = rank.upcoming.batches
        count = self._lookahead.at_once(in_advance, batches)
        for number in range(rank.planned, rank.planned + count):
            rank.parts.append(self._layout.rows_of(rank.upcoming.of_rank(number)))
        rows = np.concatenate(rank.parts)
        rows = rows[np.sort(np.unique(rows, return_index=True)[1])]
        absent = self._absent(rank, rows)
        epoch = min(rank.planned // batches, len(self.looked) - 1)
        self.looked[epoch] += len(rows)
        self.absent[epoch] += len(absent)
        if self._lookahead.in_blocks and len(absent):
            blocks = self._lookahead.blocks(self._layout, absent, in_advance)
            if blocks is not None:
                absent = self._absent(rank, blocks)
        rank.planned += count
        rank.pending.extend(self._layout.requests(absent))

    def _absent(self, rank: _Rank, rows: Ints) -> Ints:
        """Return the rows that a rank asks for: it does not know what others have asked for."""
        own = (self._asked[rows] >> np.uint64(rank.number)) & np.uint64(1) == 1
        absent: Ints = rows[(self._arrives[rows] > rank.clock) & ~own]
        return absent

    def _send(self, rank: _Rank, current: int, request: Request) -> None:
        """Send a request: the planner waits for a slot, the request for a connection and the link."""
        ends = rank.ends
        cluster = self._cluster
        rows = request.rows
        if len(ends) == 2 * ahead.CONNECTIONS:
            rank.clock = max(rank.clock, ends[0])
        begin = rank.clock
        if len(ends) >= ahead.CONNECTIONS:
            begin = max(begin, ends[-ahead.CONNECTIONS])
        # As the fetcher does: another rank may have been faster.
        if (self._arrives[rows] <= begin).all():
            return
        if self._limit is not None and self._used + request.bytes > self._limit:
            self._evict(rank, current, self._used + request.bytes - self._limit)
        seconds = request.bytes * cluster.gpus / cluster.bandwidth
        rank.link = max(rank.link, begin + cluster.latency) + seconds
        rounds = -(-len(request.ranges) // _RANGES_AT_ONCE)
        end = max(rank.link, begin + rounds * cluster.latency)
        ends.append(end)
        if self._limit is not None:
            self._used += int(self._layout.pages(rows[np.isinf(self._arrives[rows])]).sum())
        self._arrives[rows] = np.minimum(self._arrives[rows], end)
        self._asked[rows] |= np.uint64(1 << rank.number)
        self.requests.append((end, request.bytes, len(request.ranges)))

    def _evict(self, rank: _Rank, current: int, size: int) -> None:
        """Evict what all ranks need last, and if that is not enough what was fetched in advance."""
        upcoming = rank.upcoming
        layout = self._layout
        first = max(0, current - 1)
        batches = []
        for number in range(first, current + 2 * upcoming.batches):
            batches.append(layout.rows_of(upcoming.of_all(number)))
        needed = max(size, int((self._limit or 0) * ahead.AT_ONCE))
        for stop in (rank.planned + 1, current + 2):
            evictable = self._arrives <= rank.clock
            evictable[np.concatenate(batches[: stop - first])] = False
            rows = np.flatnonzero(evictable)
            uses = ahead.next_uses(batches[stop - first :], layout.rows)[rows]
            victims = rows[ahead.choose_victims(uses, layout.pages(rows), needed)]
            freed = int(layout.pages(victims).sum())
            self._arrives[victims], self._asked[victims] = np.inf, 0
            self._used -= freed
            needed -= freed
            if needed <= 0:
                break

    def fetch_again(self, rank: _Rank, step: int) -> None:
        """Fetch the images of a batch that were evicted before they were used."""
        rows = self._layout.rows_of(rank.upcoming.of_rank(step))
        for request in self._layout.requests(np.unique(rows[np.isinf(self._arrives[rows])])):
            self._send(rank, step, request)
        rank.ready[step] = float(self._arrives[rows].max(initial=0.0))


def simulate_epochs(
    layout: Layout, cluster: Cluster, upcoming: Sequence[Sequence[Upcoming]], start: float
) -> tuple[list[EpochFigures], float]:
    """Train on some of the nodes, as if the others were like them.

    Args:
        layout: where the images are.
        cluster: the machines.
        upcoming: the batches of each rank of each node that is simulated.
        start: seconds until the loaders are built.

    Returns:
        What was found for each epoch, and the seconds until the first batch is there.

    """
    nodes = [_Node(layout, cluster, each, start) for each in upcoming]
    batches = upcoming[0][0].batches
    compute = cluster.batch_size / cluster.rate
    found: list[EpochFigures] = []
    time = since = start
    waited = 0.0
    first = -1.0
    for step in range(cluster.epochs * batches):
        begin = time
        # All ranks wait for the last one, as the gradients of a step need all of them.
        for node in nodes:
            node.run(step, step, 0.0)
            # Ranks evict what other ranks fetched in advance, if nothing else is left.
            for rank in node.ranks if cluster.node_disk else ():
                node.fetch_again(rank, step)
            ready = max(rank.ready[step] for rank in node.ranks)
            node.waited += max(0.0, ready - node.clock)
            node.clock = max(node.clock, ready) + compute
            begin = max(begin, ready)
        waited += begin - time
        if first < 0:
            first = begin
        time = begin + compute
        # Ranks whose batch was there before the last one's have looked ahead meanwhile.
        for node in nodes:
            node.run(step, step, begin)
            for rank in node.ranks:
                # What was as far ahead as it may be can continue only now.
                if not rank.pending:
                    rank.clock = max(rank.clock, begin)
            node.run(step + _PREFETCH, step, time)
        if (step + 1) % batches == 0:
            found.append(_figures(nodes, len(found), (since, time), waited))
            since = time
            waited = 0.0
    return found, first


def _figures(
    nodes: Sequence[_Node], epoch: int, span: tuple[float, float], waiting: float
) -> EpochFigures:
    """Sum up what the nodes fetched in an epoch, and begin the next one."""
    fetched, requests, alone, looked, absent = [], [], 0.0, 0, 0
    for node in nodes:
        done = [each for each in node.requests if each[0] <= span[1]]
        node.requests = [each for each in node.requests if each[0] > span[1]]
        fetched.append(sum(each[1] for each in done))
        requests.append(sum(each[2] for each in done))
        alone += node.waited / len(nodes)
        looked += node.looked[epoch]
        absent += node.absent[epoch]
        node.clock = span[1]
        node.waited = 0.0
    return EpochFigures(
        seconds=span[1] - span[0],
        waiting=waiting,
        waiting_alone=alone,
        cached=1 - float(absent / max(1, looked)),
        bytes=tuple(fetched),
        requests=tuple(requests),
    )
