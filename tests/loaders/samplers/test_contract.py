"""Properties of all samplers: the contract, the epochs in memory, and orders that are the same in every release."""

import hashlib
import pickle
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import numpy as np
import pytest
from helpers.rows import read_named
from helpers.sampling import fit

from loaders import (
    ClassBalancedSampler,
    ClipSampler,
    PKSampler,
    RepeatedSampler,
    ShuffledSampler,
    SubsetSampler,
    WeightedSampler,
)  # fmt: skip
from loaders.checkpoint import State, read_state
from loaders.progress import Position
from loaders.samplers import check_sampler
from loaders.samplers.base import ORDER_VERSION, SHARD, EpochPlan, Fit
from loaders.samplers.order import Batching, PlannedOrder
from manifests.errors import CallError

NUMBERS = np.arange(3000)
FIT = Fit({}, samples=40, batch_size=4, world_size=1, seed=0)
COLUMNS = {
    "label": NUMBERS**2 % 101 % 60,
    "camera": NUMBERS % 5,
    "width": 100 + NUMBERS**2 % 997,
    "height": 100 + NUMBERS % 13,
    "weight": NUMBERS % 7 / 7,
    "clip": NUMBERS // 13,
    "frame": NUMBERS * 5 % 13,
    SHARD: (NUMBERS // 100).astype(np.int32),
    # The nearest labels of a sample: of the sample itself, unknown ones, and none.
    "near": np.fromiter(([n % 7, 99, n % 11, n % 60][: n % 5] for n in NUMBERS), object, 3000),
}

FEW = "label < 40"
SAMPLERS = {
    "shuffled": lambda size: ShuffledSampler(),
    "spread": lambda size: ShuffledSampler(spread=True),
    "window": lambda size: ShuffledSampler(window=3),
    "alpha": lambda size: ClassBalancedSampler(alpha=0.5),
    "replacement": lambda size: ClassBalancedSampler(replacement=True, samples=777),
    "beta": lambda size: ClassBalancedSampler(beta=0.99),
    "threshold": lambda size: ClassBalancedSampler(threshold=0.05),
    "weighted": lambda size: WeightedSampler("weight"),
    "weighted, array": lambda size: WeightedSampler(NUMBERS % 7, replacement=False, samples=2500),
    "repeated": lambda size: RepeatedSampler(3),
    "subset, rows": lambda size: SubsetSampler(NUMBERS[::2][::-1]),
    "subset, where": lambda size: SubsetSampler(where=FEW, sampler=PKSampler(size // 2, 2)),
    "PK": lambda size: PKSampler(size // 2, 2),
    "PK, across": lambda size: PKSampler(size // 2, 2, across="camera", few="drop"),
    "PK, weight sample": lambda size: PKSampler(size // 2, 2, weight="sample"),
    "PK, many batches": lambda size: PKSampler(size // 2, 2, weight="sample", batches=500),
    "PK, neighbors": lambda size: PKSampler(size // 2, 2, neighbors="near", anchors=size // 8 or 1),
    "clips": lambda size: ClipSampler(2, 3),
    "clips, subset": lambda size: SubsetSampler(where=FEW, sampler=ClipSampler(2, 9)),
    "clips, PK": lambda size: PKSampler(size // 2, 1, clip=ClipSampler(2)),
}

#: Of ten batches of epochs 0 and 3 with seed 7. If one of these changes, raise `ORDER_VERSION`.
DIGESTS = read_named(__file__, "digests")


def planned(name, seed=0, world_size=1):
    return fit(SAMPLERS[name](8), COLUMNS, world_size=world_size, seed=seed)


EVERY_SAMPLER = pytest.mark.parametrize("name", SAMPLERS)


@EVERY_SAMPLER
def test_every_sampler_keeps_the_contract(name):
    check_sampler(SAMPLERS[name], COLUMNS, samples=3000, batch_size=8, seed=0)
    given = {"samples": 3000, "batch_size": 6, "world_sizes": (3, 2), "seed": 2**63 - 1}
    check_sampler(SAMPLERS[name](6), COLUMNS, **given)
    sampler = SAMPLERS[name](8)
    assert sampler == replace(sampler) == pickle.loads(pickle.dumps(sampler))
    assert hash(sampler) == hash(replace(sampler))
    plans = [planned(name, seed, world_size=2) for seed in (0, 1, 2, 2**32)]
    orders = {plan.batch(epoch, 1).tobytes() for plan in plans for epoch in (0, 1, 2, 2**32)}
    assert len(orders) == 16
    for number in (-1, -(-plans[0].samples // 16)):
        with pytest.raises(IndexError):
            plans[0].batch(0, number)


@EVERY_SAMPLER
def test_orders_are_the_same_with_every_release(name):
    assert ORDER_VERSION == 2
    plan = planned(name, seed=7)
    rows = np.concatenate([plan.batch(epoch, number) for epoch in (0, 3) for number in range(10)])
    assert hashlib.sha256(rows.astype("<i8").tobytes()).hexdigest()[:16] == DIGESTS[name]


def test_a_checkpoint_of_other_orders_is_rejected():
    order = PlannedOrder(3000, Batching(8, "drop"), planned("shuffled"), text="shuffled")
    built = {"sampler": order.text, "sample_order": order.version}
    state = State(built | {"sample_order": 1}, Position(), b"").to_dict()
    message = r"draw other samples \(sample order 1; this release draws order 2\)\. Hint: resume it"
    with pytest.raises(CallError, match=message):
        read_state(state, built, batches=order.batches)


class Epochs(EpochPlan):
    """Remembers which epochs are drawn and by which threads, and draws epoch 1 when it is told to."""

    def __init__(self, *, failing=False):
        super().__init__(FIT)
        self.computed, self.threads, self.failing = [], [], failing
        self.begun, self.permitted = threading.Event(), threading.Event()
        self.permitted.set()

    def draw_epoch(self, epoch):
        self.computed.append(epoch)
        self.threads.append(threading.current_thread())
        if epoch == 1:
            self.begun.set()
            assert self.permitted.wait(60)
        if epoch and self.failing:
            raise MemoryError(f"epoch {epoch}")
        return np.arange(40, dtype=np.int32) + epoch


def test_two_epochs_stay_in_memory():
    """A loader prefetches from the next epoch while it reads the current one."""
    plan = Epochs()
    for _ in range(3):
        assert plan.batch(0, 9).tolist() == [36, 37, 38, 39]
        assert plan.batch(1, 0).tolist() == [1, 2, 3, 4]
    assert plan.computed == [0, 1]
    plan.batch(2, 0)
    plan.batch(1, 0)
    assert plan.computed == [0, 1, 2]
    plan.batch(0, 0)
    assert plan.computed == [0, 1, 2, 0]


def test_threads_compute_an_epoch_once():
    plan = Epochs()
    with ThreadPoolExecutor(8) as threads:
        list(threads.map(lambda number: plan.batch(5, number % 10), range(200)))
    assert plan.computed[0] == 5
    assert plan.computed in ([5], [5, 6])  # A thread draws the next epoch.


def test_an_interrupt_leaves_no_epoch_that_is_never_drawn():
    """Others would wait for it for ever."""

    class Interrupted(dict):
        def __setitem__(self, epoch, future):
            super().__setitem__(epoch, future)
            self.future = future
            raise KeyboardInterrupt

    plan = Epochs()
    plan._epochs._epochs = interrupted = Interrupted()
    with pytest.raises(KeyboardInterrupt):
        plan.batch(0, 0)
    assert not interrupted
    assert interrupted.future.done()
    plan._epochs._epochs = {}
    assert plan.batch(0, 0).tolist() == [0, 1, 2, 3]


def test_the_next_epoch_is_drawn_while_the_current_one_is_read():
    plan = Epochs()
    plan.permitted.clear()
    for number in range(5):
        plan.batch(0, number)
    assert not plan.begun.is_set()
    plan.batch(0, 5)
    assert plan.begun.wait(60)
    assert [plan.batch(0, number)[0] for number in range(10)] == list(range(0, 40, 4))
    plan.permitted.set()
    assert plan.batch(1, 9).tolist() == [37, 38, 39, 40]
    first, second = plan.threads
    assert first is threading.current_thread() is not second


def test_an_epoch_that_cannot_be_drawn_is_an_error_when_it_is_requested(capfd):
    plan = Epochs(failing=True)
    for number in range(10):
        plan.batch(0, number)
    for _ in range(2):
        with pytest.raises(MemoryError, match="epoch 1"):
            plan.batch(1, 0)
    assert capfd.readouterr().err == ""
