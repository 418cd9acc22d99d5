"""PK batches: the contents of batches and epochs, ranks, rounds, and rejected arguments."""

import math
from collections import Counter, defaultdict
from dataclasses import dataclass
from itertools import chain

import numpy as np
import pytest
from helpers.examples import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from loaders.samplers import PKSampler
from loaders.samplers.draws import group
from loaders.samplers.pk import draw_samples, draw_turns, partly_shuffled
from manifests.errors import CallError

#: A correct implementation fails such a test for about one seed in a million; the seeds are fixed.
FALSE_ALARM = 1e-6
sizes_of_identities = st.lists(
    st.integers(1, 6) | st.integers(1, 40) | st.sampled_from([100, 333, 2_000, 10_000]),
    min_size=1,
    max_size=40,
)


@dataclass
class Case:
    """A random split, the ranks that share it, and the options of the sampler."""

    sizes: list
    wanted: int
    per_rank: int
    ranks: int
    few: str
    weight: str
    cameras: int
    batches: int | None
    seed: int

    @property
    def width(self):
        return self.per_rank * self.ranks

    def __post_init__(self):
        rng = np.random.default_rng(self.seed)
        self.labels = rng.permutation(np.repeat(np.arange(len(self.sizes)), self.sizes))
        self.camera = rng.integers(0, max(1, self.cameras), len(self.labels))
        self.taking = [
            i for i, n in enumerate(self.sizes) if self.few != "drop" or n >= self.wanted
        ]

    def plan(self, ranks=None):
        ranks = ranks or self.ranks
        sampler = PKSampler(
            self.width // ranks,
            self.wanted,
            few=self.few,
            weight=self.weight,
            across="camera" if self.cameras else None,
            batches=self.batches,
        )
        columns = {"label": self.labels, "camera": self.camera}
        batch_size = self.width // ranks * self.wanted
        return sampler.plan(
            columns,
            samples=len(self.labels),
            batch_size=batch_size,
            world_size=ranks,
            seed=self.seed,
        )

    def turns(self, plan, epoch=0):
        """Return the batches of an epoch, each a list of (identity, rows)."""
        found = []
        for number in range(plan.samples // (self.width * self.wanted)):
            rows = plan.batch(epoch, number).reshape(self.width, self.wanted)
            labels = self.labels[rows]
            assert (labels == labels[:, :1]).all()
            found.append(list(zip(labels[:, 0].tolist(), rows.tolist(), strict=True)))
        return found

    def rounds(self):
        """Yield the identities that take part in each round, endlessly."""
        turns = {
            i: max(1, self.sizes[i] // self.wanted) if self.weight == "sample" else 1
            for i in self.taking
        }
        while True:
            number = 0
            while len(part := {i for i in self.taking if turns[i] > number}) >= self.width:
                yield part
                number += 1


@st.composite
def cases(draw, cameras=(0, 0)):
    wanted, few = draw(st.integers(1, 6)), draw(st.sampled_from(["repeat", "drop"]))
    sizes = [*draw(sizes_of_identities), wanted]
    taking = len(sizes) if few == "repeat" else sum(n >= wanted for n in sizes)
    ranks = draw(st.integers(1, min(16, taking)))
    return Case(
        sizes=sizes,
        wanted=wanted,
        per_rank=draw(st.integers(1, min(6, taking // ranks))),
        ranks=ranks,
        few=few,
        weight=draw(st.sampled_from(["identity", "sample"])),
        cameras=draw(st.integers(*cameras)),
        batches=draw(st.none() | st.integers(1, 60)),
        seed=draw(st.integers(0, 2**63 - 1)),
    )


@settings(max_examples=examples())
@given(cases())
def test_epochs_follow_the_rules(case):
    """The rules of an epoch, checked on plain lists."""
    plan = case.plan()
    batches = case.turns(plan)
    assert len(batches) * case.width * case.wanted == plan.samples
    rounds = case.rounds()
    history = defaultdict(list)
    left = 0
    for batch in batches:
        identities = [identity for identity, _ in batch]
        assert len(set(identities)) == case.width
        if left == 0:
            waiting, began = next(rounds), identities
            left, members = -(-len(waiting) // case.width), set(waiting)
        left -= 1
        fresh = [identity for identity in identities if identity in waiting]
        waiting = waiting - set(fresh)
        if left:
            assert len(fresh) == case.width
        else:
            assert not waiting
            # The identities that opened the round fill up its last batch.
            assert identities == fresh + began[: case.width - len(fresh)]
        assert set(identities) <= members
        for identity, rows in batch:
            history[identity].append(rows)
    for identity, groups in history.items():
        n = case.sizes[identity]
        for rows in groups:
            times = Counter(rows)
            assert len(times) == min(n, case.wanted)
            assert max(times.values()) - min(times.values()) <= 1
        per_cycle = max(1, n // case.wanted)
        for start in range(0, len(groups), per_cycle):
            cycle = list(chain(*groups[start : start + per_cycle]))
            assert n < case.wanted or len(set(cycle)) == len(cycle)


@settings(max_examples=examples())
@given(cases(), st.integers(0, 3))
def test_length_of_an_epoch(case, epoch):
    batches = len(case.turns(case.plan(), epoch))
    if case.batches:
        assert batches == case.batches
    elif case.weight == "identity":
        samples = sum(case.sizes[i] for i in case.taking)
        full = samples // (case.width * case.wanted)
        assert batches == max(-(-len(case.taking) // case.width), full)
    else:
        rounds, expected = case.rounds(), 0
        turns = sorted(max(1, case.sizes[i] // case.wanted) for i in case.taking)
        for _ in range(turns[-case.width]):
            expected += -(-len(next(rounds)) // case.width)
        assert batches == expected


@settings(deadline=None, max_examples=12)
@given(cases(cameras=(0, 5)))
def test_batches_do_not_depend_on_ranks_or_on_earlier_calls(case):
    plan, again = case.plan(), case.plan()
    count = plan.samples // (case.width * case.wanted)
    forward = [plan.batch(1, number).tolist() for number in range(count)]
    assert [again.batch(1, number).tolist() for number in reversed(range(count))][::-1] == forward
    for ranks in range(1, case.width + 1):
        if case.width % ranks == 0:
            assert case.plan(ranks).batch(1, count - 1).tolist() == forward[-1]


@settings(deadline=None, max_examples=12)
@given(cases(cameras=(1, 5)))
def test_across_uses_as_many_cameras_as_possible(case):
    stored = defaultdict(Counter)
    for identity, camera in zip(case.labels.tolist(), case.camera.tolist(), strict=True):
        stored[identity][camera] += 1
    for batch in case.turns(case.plan()):
        for identity, rows in batch:
            n = case.sizes[identity]
            times = Counter(rows)
            assert len(times) == min(n, case.wanted)
            assert max(times.values()) - min(times.values()) <= 1
            has = stored[int(identity)]
            taken = Counter(case.camera[list(times)].tolist())
            assert len(taken) == min(case.wanted, len(has))
            for camera, count in has.items():
                # A camera contributes at most one sample more than another that still has some.
                assert taken[camera] == count or max(taken.values()) <= taken[camera] + 1


def test_across_draws_all_cameras_and_samples_equally_often():
    labels = np.repeat([0, 1], [60, 60])
    camera = np.tile(np.repeat(np.arange(6), 10), 2)
    sampler = PKSampler(2, 4, across="camera", batches=3000)
    plan = sampler.plan(
        {"label": labels, "camera": camera}, samples=120, batch_size=8, world_size=1, seed=0
    )
    rows = np.concatenate([plan.batch(0, number) for number in range(3000)])
    # Negatively correlated within a turn, so the counts vary less than independent ones would.
    assert stats.chisquare(np.bincount(rows, minlength=120)).pvalue > FALSE_ALARM
    first = rows.reshape(-1, 4)[:, 0]
    assert stats.chisquare(np.bincount(first, minlength=120)).pvalue > FALSE_ALARM


def test_all_samples_and_identities_are_equally_frequent():
    sizes = [3, 7, 20, 33, 50, 8, 9]
    labels = np.repeat(np.arange(7), sizes)
    plan = PKSampler(3, 4, batches=40).plan(
        {"label": labels}, samples=len(labels), batch_size=12, world_size=1, seed=1
    )
    found = np.array([plan.batch(epoch, number) for epoch in range(50) for number in range(40)])
    turns = np.bincount(labels[found[:, ::4]].ravel(), minlength=7)
    # 40 batches of 3 are 13 rounds of 3 batches, 7 + 2 turns each, and one batch more.
    assert np.ptp(turns) <= 50 * 3
    counts = np.bincount(found.ravel(), minlength=len(labels))
    for identity in range(7):
        own = counts[labels == identity]
        assert stats.chisquare(own).pvalue > FALSE_ALARM


def test_the_order_of_identities_is_uniform():
    labels = np.repeat(np.arange(10), 4)
    plan = PKSampler(4, 1, batches=60).plan(
        {"label": labels}, samples=40, batch_size=4, world_size=1, seed=3
    )
    # 20 rounds of three batches in each of 200 epochs.
    rows = np.array([plan.batch(epoch, number) for epoch in range(200) for number in range(60)])
    turns = labels[rows].reshape(4000, 3, 4)
    for place in range(12):
        assert (
            stats.chisquare(np.bincount(turns.reshape(4000, 12)[:, place], minlength=10)).pvalue
            > FALSE_ALARM
        )
    first = np.array([labels[plan.batch(epoch, 0)] for epoch in range(1000)])
    for place in range(4):
        assert stats.chisquare(np.bincount(first[:, place], minlength=10)).pvalue > FALSE_ALARM
    # All pairs of identities share a batch equally often.
    together = np.zeros((10, 10))
    for batch in turns[:, 1]:
        together[np.ix_(batch, batch)] += 1
    off = together[np.triu_indices(10, 1)]
    assert stats.chisquare(off).pvalue > FALSE_ALARM


def test_a_large_skewed_split():
    rng = np.random.default_rng(5)
    sizes = [10_000, *rng.integers(1, 30, 300).tolist(), *[1] * 40, 2_500]
    case = Case(sizes, 4, 8, 2, "repeat", "identity", 0, None, 7)
    turns = Counter(identity for batch in case.turns(case.plan()) for identity, _ in batch)
    assert len(turns) == len(sizes)
    assert max(turns.values()) - min(turns.values()) <= 2
    case = Case(sizes, 4, 8, 2, "drop", "sample", 0, None, 7)
    turns = Counter(identity for batch in case.turns(case.plan()) for identity, _ in batch)
    rounds = sorted(n // 4 for n in sizes)[-16]
    for identity in case.taking:
        assert turns[identity] >= min(rounds, sizes[identity] // 4)


def test_long_epochs_repeat_the_rounds_in_new_orders():
    case = Case([4, 8, 12, 16, 20, 9], 4, 2, 2, "repeat", "sample", 0, 100, 0)
    batches = case.turns(case.plan())
    # Turns are 1, 2, 3, 4, 5 and 2: rounds of 6 and 5 identities have 2 batches each, and 3 are too
    # few.
    passes = [batches[start : start + 4] for start in range(0, 100, 4)]
    orders = {tuple(identity for batch in each for identity, _ in batch) for each in passes}
    assert len(orders) == len(passes) == 25


def test_the_two_parts_of_a_round_are_shuffled_separately():
    """Eight identities in batches of six: the round's first four come again in its second batch."""
    found = np.array([draw_turns(np.ones(8, np.int64), 6, 2, seed, 0) for seed in range(400)])
    # The order of all identities is random too: name them by the order in which they came first.
    assert (found[:, 8:] == found[:, :4]).all()
    assert all(len(set(each[:8])) == 8 for each in found.tolist())
    for place in range(8):
        assert stats.chisquare(np.bincount(found[:, place], minlength=8)).pvalue > FALSE_ALARM
    ascending = int(np.count_nonzero((found[:, 0] < found[:, 1]) == (found[:, 4] < found[:, 5])))
    assert stats.binomtest(ascending, 400, 1 / 2).pvalue > FALSE_ALARM


def test_the_worked_example_of_the_docstring():
    turns = draw_turns(np.full(3, 3), 2, 6, 0, 0).reshape(3, 2, 2)
    second_turns = []
    for one, other in turns.tolist():
        counts = Counter(one + other)
        assert sorted(counts.values()) == [1, 1, 2]
        (second,) = (identity for identity, count in counts.items() if count == 2)
        assert second == one[0] == other[1]
        second_turns.append(second)
    assert sorted(second_turns) == [0, 1, 2]

    identities = group(np.repeat(np.arange(3, dtype=np.uint64), [4, 4, 2]))
    rows = draw_samples(turns.ravel(), identities, 2, 0, 0).reshape(-1, 2)
    for identity, samples in enumerate([{0, 1, 2, 3}, {4, 5, 6, 7}, {8, 9}]):
        own = rows[turns.ravel() == identity].tolist()
        assert len(own) == 4
        for pair in [0, 2]:
            assert {*own[pair], *own[pair + 1]} == samples


@given(
    st.lists(st.integers(1, 9), min_size=1, max_size=20), st.integers(1, 6), st.integers(0, 2**32)
)
def test_partly_shuffled_places_are_different(sizes, wanted, seed):
    draws = np.random.default_rng(seed).random((len(sizes), wanted))
    for size, found in zip(sizes, partly_shuffled(np.array(sizes), draws).tolist(), strict=True):
        assert all(0 <= place < size for place in found)
        assert len(set(found[:size])) == min(size, wanted)
        assert not any(found[size:])


@pytest.mark.parametrize(("size", "wanted"), [(3, 3), (4, 2), (4, 4), (5, 3)])
def test_all_partly_shuffled_orders_are_equally_likely(size, wanted):
    draws = np.random.default_rng(size).random((60_000, wanted))
    found = partly_shuffled(np.full(60_000, size), draws)
    counts = np.unique((found * size ** np.arange(wanted)).sum(axis=1), return_counts=True)[1]
    assert len(counts) == math.perm(size, wanted)
    assert stats.chisquare(counts).pvalue > FALSE_ALARM


LABELS = np.repeat(np.array(["ann", "bob", "cid", "dee"], object), [1, 3, 4, 8])


def fit(sampler, batch_size=8, world_size=1, labels=LABELS):
    columns = {"label": labels, "camera": np.arange(len(labels)) % 3}
    return sampler.plan(
        columns, samples=len(labels), batch_size=batch_size, world_size=world_size, seed=0
    )


def test_lines_of_explain():
    assert fit(PKSampler(2, 4)).lines == (
        "Column 'label' has 4 identities of 1 to 8 samples, median 4.",
        "2 of 4 identities have fewer than 4 samples; their 4 samples are repeated.",
        (
            "An epoch has 2 batches of 2 identities x 4 samples over all ranks: 1.0 turns per"
            " identity on average."
        ),
        "1 round of 4 identities.",
    )
    assert (
        "2 of 4 identities have fewer than 4 samples; their 4 samples are left out."
        in fit(PKSampler(2, 4, few="drop")).lines[1]
    )
    assert "'camera'" in fit(PKSampler(2, 4, across="camera")).lines[-1]
    assert (
        fit(PKSampler(2, 4, few="drop", weight="sample")).lines[3]
        == "1 round of 2 identities; 1 turn left out, because too few identities remain for a"
        " batch."
    )
    assert fit(PKSampler(3, 1), 3).lines[1::2] == (
        "Every identity has at least 1 sample.",
        "3 rounds of 4 identities, with 6 second turns to fill the last batches of rounds.",
    )


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: fit(PKSampler(2, 4), batch_size=16),
         "batch_size=16, but PKSampler(2, 4) makes batches of 8. Hint: set batch_size=8."),
        (
            lambda: fit(PKSampler(3, 4, few="drop"), 12),
            (
                "a batch needs 3 different identities (classes_per_batch=3), but only 2 of the 4 in"
                " column 'label' have at least 4 samples. Hint: set classes_per_batch=2 and"
                " batch_size=8."
            ),
        ),
        (lambda: fit(PKSampler(2, 4), 8, 3),
         "(classes_per_batch=2 on each of 3 ranks), but column 'label' has 4. Hint: set"),
        (lambda: fit(PKSampler(2, 4), 8, 5), "has 4. Hint: use at most 4 ranks."),
        (
            lambda: fit(PKSampler(2, 4, few="error")),
            (
                "2 identities of column 'label' have fewer than samples_per_class=4 samples, "
                "for example 'ann', which has 1. "
                'Hint: set few="repeat" or few="drop".'
            ),
        ),
        (lambda: PKSampler(0, 4), "classes_per_batch must be an integer of at least 1, got 0"),
        (lambda: PKSampler(4, 2.5), "samples_per_class must be an integer of at least 1, got 2.5"),
        (lambda: PKSampler(4, 4, by=""), "by must be the name of a column"),
        (lambda: PKSampler(4, 4, few="keep"),
         "few must be 'repeat', 'drop' or 'error', got 'keep'"),
        (lambda: PKSampler(4, 4, weight="class"),
         "weight must be 'identity' or 'sample', got 'class'"),
        (lambda: PKSampler(4, 4, across=""), "across must be the name of a column"),
        (
            lambda: PKSampler(4, 4, across="label"),
            (
                "across='label' is the column that already names the identity. Hint: choose another"
                " column."
            ),
        ),
        (lambda: PKSampler(4, 4, batches=0), "batches must be an integer of at least 1, got 0"),
    ],
)  # fmt: skip
def test_wrong_arguments_are_rejected(call, message):
    with pytest.raises(CallError) as caught:
        call()
    assert message in str(caught.value)


def test_few_error_accepts_identities_with_enough_samples():
    labels = np.repeat([-5, 7], [4, 9])
    plan = fit(PKSampler(2, 4, few="error"), labels=labels)
    assert set(labels[plan.batch(0, 0)].tolist()) == {-5, 7}
