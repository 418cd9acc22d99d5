"""PK batches: the contents of batches and epochs, ranks and rounds."""

from collections import Counter, defaultdict
from itertools import chain
from types import SimpleNamespace

import numpy as np
from helpers.examples import examples
from helpers.sampling import fit
from hypothesis import given, settings
from hypothesis import strategies as st

from loaders.samplers import PKSampler

size_of_identity = st.integers(1, 6) | st.integers(1, 40) | st.sampled_from([100, 333, 2_000])
sizes_of_identities = st.lists(size_of_identity, min_size=1, max_size=40)


def turns_of(case, plan):
    """Return the batches of an epoch, each a list of (identity, rows)."""
    found = []
    for number in range(plan.samples // (case.width * case.wanted)):
        rows = plan.batch(0, number).reshape(case.width, case.wanted)
        labels = case.labels[rows]
        assert (labels == labels[:, :1]).all()
        found.append(list(zip(labels[:, 0].tolist(), rows.tolist(), strict=True)))
    return found


def rounds_of(case):
    """Yield the identities that take part in each round, endlessly."""
    turns = {}
    for identity, size in enumerate(case.sizes):
        if case.few == "repeat" or size >= case.wanted:
            turns[identity] = max(1, size // case.wanted) if case.weight == "sample" else 1
    while True:
        number = 0
        while len(part := {each for each in turns if turns[each] > number}) >= case.width:
            yield part
            number += 1


@st.composite
def cases(draw, cameras=(0, 0)):
    """Draw a split, the ranks that share it, and the options of the sampler; fit it."""
    wanted, few = draw(st.integers(1, 6)), draw(st.sampled_from(["repeat", "drop"]))
    sizes = [*draw(sizes_of_identities), wanted]
    taking = len(sizes) if few == "repeat" else sum(size >= wanted for size in sizes)
    ranks = draw(st.integers(1, min(16, taking)))
    per_rank, cameras = draw(st.integers(1, min(6, taking // ranks))), draw(st.integers(*cameras))
    weight, seed = draw(st.sampled_from(["identity", "sample"])), draw(st.integers(0, 2**63 - 1))
    rng = np.random.default_rng(seed)
    labels = rng.permutation(np.repeat(np.arange(len(sizes)), sizes))
    columns = {"label": labels, "camera": rng.integers(0, max(1, cameras), len(labels))}
    options = {"few": few, "weight": weight, "batches": draw(st.none() | st.integers(1, 60))}
    sampler = PKSampler(per_rank, wanted, across="camera" if cameras else None, **options)
    plan = fit(sampler, columns, batch_size=per_rank * wanted, world_size=ranks, seed=seed)
    width = per_rank * ranks
    case = SimpleNamespace(sizes=sizes, wanted=wanted, few=few, weight=weight, width=width)
    case.labels, case.camera = labels, columns["camera"]
    return case, plan


@settings(max_examples=examples(60))
@given(cases())
def test_epochs_follow_the_rules(drawn):
    """The rules of an epoch, checked on plain lists."""
    case, plan = drawn
    batches = turns_of(case, plan)
    assert len(batches) * case.width * case.wanted == plan.samples
    rounds = rounds_of(case)
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
def test_across_uses_as_many_cameras_as_possible(drawn):
    case, plan = drawn
    stored = defaultdict(Counter)
    for identity, camera in zip(case.labels.tolist(), case.camera.tolist(), strict=True):
        stored[identity][camera] += 1
    for batch in turns_of(case, plan):
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
