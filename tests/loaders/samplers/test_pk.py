"""PK batches: the contents of batches and epochs, ranks and rounds."""

from collections import Counter, defaultdict
from dataclasses import dataclass
from itertools import chain

import numpy as np
from helpers.examples import examples
from helpers.sampling import fit
from hypothesis import given, settings
from hypothesis import strategies as st

from loaders.samplers import PKSampler

size_of_identity = st.integers(1, 6) | st.integers(1, 40) | st.sampled_from([100, 333, 2_000])
sizes_of_identities = st.lists(size_of_identity, min_size=1, max_size=40)


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
        given = {"few": self.few, "weight": self.weight, "batches": self.batches}
        across = "camera" if self.cameras else None
        sampler = PKSampler(self.width // ranks, self.wanted, across=across, **given)
        columns = {"label": self.labels, "camera": self.camera}
        batch_size = self.width // ranks * self.wanted
        return fit(sampler, columns, batch_size=batch_size, world_size=ranks, seed=self.seed)

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


@settings(max_examples=examples(60))
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


@settings(deadline=None, max_examples=6)
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


def test_few_error_accepts_identities_with_enough_samples():
    labels = np.repeat([-5, 7], [4, 9])
    plan = fit(PKSampler(2, 4, few="error"), {"label": labels})
    assert set(labels[plan.batch(0, 0)].tolist()) == {-5, 7}


def test_neighbors_are_the_identities_of_a_list():
    """Random identities take the place of unknown and repeated ones."""
    names = np.repeat([*"abcdefgh"], 3).astype(object)
    near = np.fromiter([["z", "a", "b", "c", "d"], None, ["e"]] * 8, object, 24)
    sampler = PKSampler(6, 2, by="name", neighbors="near", anchors=2, batches=40)
    plan = fit(sampler, {"name": names, "near": near}, batch_size=12)
    anchors = Counter()
    for number in range(40):
        rows = plan.batch(0, number).reshape(2, 3, 2)
        drawn = names[rows]
        assert (drawn[..., 0] == drawn[..., 1]).all()
        assert (rows[..., 0] != rows[..., 1]).all()
        assert len({*drawn.flat}) == 6
        taken = {"z", *drawn[:, 0, 0]}
        for group, identities in zip(rows, drawn[:, 1:, 0], strict=True):
            # The first sample of the anchor has the list.
            listed = [each for each in near[group[0, 0]] or () if each not in taken][:2]
            assert identities[: len(listed)].tolist() == listed
            taken.update(listed)
        anchors.update(drawn[:, 0, 0])
    assert set(anchors.values()) == {10}
    assert "2 identities around each anchor." in plan.lines[-1]
