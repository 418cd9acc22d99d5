"""What all samplers share: duties, columns of any kind, the shuffled sampler; that `check_sampler` finds faults."""

import subprocess
import sys
from dataclasses import dataclass, replace
from itertools import count, pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from loaders.samplers import ClassBalancedSampler, PKSampler, ShuffledSampler, check_sampler
from loaders.samplers.groups import codes_of, group, group_within
from loaders.samplers.permutation import permute, stream
from manifests.errors import CallError

RNG = np.random.default_rng(1)
COLUMNS = {"label": RNG.zipf(1.6, 3000).clip(max=60), "camera": RNG.integers(0, 5, 3000)}

SAMPLERS = {
    "shuffled": lambda size: ShuffledSampler(),
    "alpha": lambda size: ClassBalancedSampler(alpha=0.5),
    "drawn": lambda size: ClassBalancedSampler(replacement=True, samples=777),
    "beta": lambda size: ClassBalancedSampler(beta=0.99),
    "threshold": lambda size: ClassBalancedSampler(threshold=0.05),
    "PK": lambda size: PKSampler(size // 2, 2),
    "PK, across": lambda size: PKSampler(size // 2, 2, across="camera", few="drop"),
    "PK, sample": lambda size: PKSampler(size // 2, 2, weight="sample"),
    "PK, long": lambda size: PKSampler(size // 2, 2, weight="sample", batches=500),
}


def epoch_of(plan, epoch=0, global_batch=8):
    return np.concatenate([plan.batch(epoch, number) for number in range(-(-plan.samples // global_batch))])


@pytest.mark.parametrize("name", SAMPLERS)
@pytest.mark.parametrize("seed", [0, 2**63 - 1])
def test_duties(name, seed):
    check_sampler(SAMPLERS[name], COLUMNS, samples=3000, batch_size=8, seed=seed)
    check_sampler(SAMPLERS[name](6), COLUMNS, samples=3000, batch_size=6, world_sizes=(3, 2), seed=seed)


@pytest.mark.parametrize("name", SAMPLERS)
def test_seeds_and_epochs_differ(name):
    def batch(seed, epoch):
        plan = SAMPLERS[name](8).plan(COLUMNS, samples=3000, batch_size=8, world_size=2, seed=seed)
        return plan.batch(epoch, 1).tobytes()

    assert len({batch(seed, epoch) for seed in (0, 1, 2, 2**32) for epoch in (0, 1, 2, 2**32)}) == 16


@given(st.integers(1, 500), st.integers(1, 40), st.integers(1, 4), st.integers(0, 3))
def test_shuffled_has_each_row_once(samples, batch_size, world_size, epoch):
    plan = ShuffledSampler().plan({}, samples=samples, batch_size=batch_size, world_size=world_size, seed=5)
    assert plan.samples == samples
    assert sorted(epoch_of(plan, epoch, batch_size * world_size).tolist()) == list(range(samples))


@given(st.integers(1, 20_000), st.integers(1, 9_000), st.data())
def test_shuffled_batches_are_pieces_of_one_order(samples, batch_size, data):
    plan = ShuffledSampler().plan({}, samples=samples, batch_size=batch_size, world_size=1, seed=5)
    number = data.draw(st.integers(0, (samples - 1) // batch_size))
    order = permute(np.arange(samples), samples, stream(5, 2))
    batch = plan.batch(2, number)
    np.testing.assert_array_equal(batch, order[number * batch_size :][:batch_size])
    batch[:] = 0  # is the caller's own
    np.testing.assert_array_equal(plan.batch(2, number), order[number * batch_size :][:batch_size])


@pytest.mark.parametrize("number", [-1, 3])
@pytest.mark.parametrize("name", SAMPLERS)
def test_a_batch_outside_of_the_epoch_is_refused(name, number):
    plan = SAMPLERS[name](8).plan(COLUMNS, samples=3000, batch_size=8, world_size=1, seed=0)
    with pytest.raises(IndexError):
        plan.batch(0, number if number < 0 else -(-plan.samples // 8))


@pytest.mark.parametrize("sampler", [ShuffledSampler(), ClassBalancedSampler(), PKSampler(2, 2)])
def test_a_split_without_samples_is_refused(sampler):
    with pytest.raises(CallError, match="no sample to draw from"):
        sampler.plan({"label": np.zeros(0, np.int64)}, samples=0, batch_size=4, world_size=1, seed=0)


VALUES = {
    "integers": [-3, 5, -3, 7, 5, 5],
    "wide integers": [-(2**63), 2**63 - 1, -(2**63), 0, 2**63 - 1, 2**63 - 1],
    "small integers": np.array([-128, 127, -128, 0, 127, 127], np.int8),
    "unsigned": np.array([0, 2**64 - 1, 0, 2**63, 2**64 - 1, 2**64 - 1], np.uint64),
    "high unsigned": np.array([2**64 - 3, 2**64 - 1, 2**64 - 3, 2**64 - 2, 2**64 - 1, 2**64 - 1], np.uint64),
    "booleans and no third": [False, True, False, False, True, True],
    "floats": [0.5, 1.5, 0.5, -2.0, 1.5, 1.5],
    "objects": np.array(["a", "b", "a", "c", "b", "b"], object),
    "text": ["a", "b", "a", "", "b", "b"],
    "mixed": np.array([1, "1", 1, (2, 3), "1", "1"], object),
    "days": np.array(["2020-01-01", "2020-01-02", "2020-01-01", "1950-01-01", "2020-01-02", "2020-01-02"], "M8[D]"),
}


@pytest.mark.parametrize("kind", VALUES)
def test_values_of_any_kind_are_grouped(kind):
    column = np.asarray(VALUES[kind])
    found = group(codes_of({"label": column}, "label", 6))
    groups = {tuple(found.members[a:b].tolist()) for a, b in pairwise(found.starts)}
    expected = {(0, 2, 3), (1, 4, 5)} if "third" in kind else {(0, 2), (1, 4, 5), (3,)}
    assert groups == expected


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 3)), min_size=1, max_size=60))
def test_groups_within_groups(pairs):
    outer, inner = np.array(pairs, np.uint64).T
    found, starts = group_within(outer, inner)
    cells = [tuple(found.members[a:b].tolist()) for a, b in pairwise(starts)]
    expected = sorted(set(pairs))
    assert cells == [tuple(i for i, pair in enumerate(pairs) if pair == each) for each in expected]
    sizes = [sum(pair[0] == value for pair in pairs) for value in sorted({pair[0] for pair in pairs})]
    assert found.sizes.tolist() == sizes
    assert set(found.starts.tolist()) <= set(starts.tolist())


@pytest.mark.parametrize(
    ("column", "message"),
    [
        (np.array([1.0, np.nan, np.nan]), "2 of 3 samples have no value in column 'label'; fill the column"),
        (np.array(["a", None, "b"], object), "1 of 3 samples have no value in column 'label'"),
        (np.array(["a", None, float("nan")], object), "2 of 3 samples have no value in column 'label'"),
        (np.array(["2020-01-01", "NaT", "NaT"], "M8[D]"), "2 of 3 samples have no value in column 'label'"),
        (np.array([1, 2]), r"column 'label' has the shape \(2,\), and the split 3 samples"),
    ],
)
def test_columns_that_cannot_be_used(column, message):
    with pytest.raises(CallError, match=message):
        ClassBalancedSampler().plan({"label": column}, samples=3, batch_size=2, world_size=1, seed=0)


def test_values_that_are_lists_are_refused():
    column = np.empty(2, object)
    column[:] = [[1], [2]]
    with pytest.raises(CallError, match="column 'label' holds lists or the like"):
        PKSampler(1, 1).plan({"label": column}, samples=2, batch_size=1, world_size=1, seed=0)


def test_a_column_that_is_not_there():
    with pytest.raises(CallError, match="no column 'identity'; columns to choose from: 'label', 'camera'"):
        PKSampler(1, 1, by="identity").plan(COLUMNS, samples=3000, batch_size=1, world_size=1, seed=0)


PLANS = count()


@dataclass(frozen=True)
class Broken:
    """A sampler that keeps every duty but one."""

    fault: str

    columns = ("label",)

    def plan(self, columns, *, samples, batch_size, world_size, seed):
        if self.fault == "changes":
            columns["label"][0] += 1
        if self.fault == "refuses" and batch_size > 4:
            raise CallError("not so many")
        return BrokenPlan(self.fault, samples, batch_size, world_size, next(PLANS), [])


@dataclass
class BrokenPlan:
    fault: str
    rows: int
    batch_size: int
    world_size: int
    plan_number: int
    asked: list

    @property
    def samples(self):
        return 0 if self.fault == "empty" else self.rows

    @property
    def lines(self):
        return "one line" if self.fault == "lines" else ("one line",)

    def batch(self, epoch, number):
        size = self.batch_size * self.world_size
        rows = np.arange(number * size, min(number * size + size, self.rows))
        self.asked.append(number)
        if self.fault == "cut":
            return np.roll(rows, self.world_size)
        if self.fault == "state":
            return np.roll(rows, len(self.asked))
        if self.fault == "anew":
            return np.roll(rows, self.plan_number)
        if self.fault == "long" and len(rows) < size:
            return np.arange(size)
        return {"beyond": rows + 1, "below": rows - 1, "int32": rows.astype(np.int32), "list": rows.tolist()}.get(
            self.fault, rows
        )


@pytest.mark.parametrize(
    ("fault", "sentence"),
    [
        ("changes", "plan() must not change the columns"),
        ("empty", "samples must be at least 1, got 0"),
        ("lines", "lines must be a tuple of texts"),
        ("long", "batch 12 of epoch 0 must have the shape (2,), got (8,)"),
        ("beyond", "batch 12 of epoch 0 must hold rows from 0 to 97, got 97 to 98"),
        ("below", "batch 0 of epoch 0 must hold rows from 0 to 97, got -1 to 6"),
        ("int32", "batch 0 of epoch 0 must be an array of int64"),
        ("list", "batch 0 of epoch 0 must be an array of int64"),
        ("state", "must not depend on what was asked before"),
        ("anew", "an equal call of plan() must give an equal plan"),
        ("cut", "a global batch must not depend on its cut: 1 ranks of batch_size 32 and 4 of 8"),
    ],
)
def test_broken_duties_are_found(fault, sentence):
    with pytest.raises(AssertionError) as caught:
        check_sampler(Broken(fault), {"label": np.arange(98)}, samples=98, batch_size=8)
    assert sentence in str(caught.value)


def test_a_sound_sampler_of_ones_own_passes():
    check_sampler(Broken("none"), {"label": np.arange(98)}, samples=98, batch_size=8)
    check_sampler(Broken("refuses"), {"label": np.arange(98)}, samples=98, batch_size=4)


def test_a_function_must_make_samplers_for_all_cuts():
    with pytest.raises(CallError, match="not so many"):
        check_sampler(lambda size: Broken("refuses"), {"label": np.arange(98)}, samples=98, batch_size=4)


def test_a_column_that_is_not_given_is_found():
    with pytest.raises(AssertionError, match="columns names 'label'"):
        check_sampler(Broken("none"), {}, samples=98, batch_size=8)


def test_samplers_are_plain_records():
    for name, make in SAMPLERS.items():
        sampler = make(8)
        assert sampler == replace(sampler), name
        assert hash(sampler) == hash(replace(sampler)), name


def test_importing_samplers_is_light():
    code = "import sys, loaders.samplers; print([m for m in ('torch', 'nvidia.dali', 'pyarrow') if m in sys.modules])"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"
