"""`make_plan`: every sample appears once, and the seed alone determines its split, shard and position."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest
from helpers.examples import examples
from hypothesis import given, settings
from hypothesis import strategies as st

from dataprep.formats import FORMATS
from dataprep.labels.kinds import KINDS
from dataprep.plan.assign import MAX_SPLIT_NAME, Options, key_of, make_plan
from dataprep.sources import UNREADABLE, Source
from dataprep.sources.base import sample_table
from manifests import store
from manifests.errors import CallError
from manifests.schema import File, Manifest, Shard, Split


def make_source(sizes, split=None, splits=("train",), **extra):
    count = len(sizes)
    return Source(
        root="/x",
        layout="synthetic",
        table=sample_table(
            pa.array([f"{n}.jpg" for n in range(count)], pa.large_string()),
            label=np.arange(count, dtype=np.int32) % 2,
            split=np.zeros(count, np.int8) if split is None else np.array(split, np.int8),
            size=np.array(sizes, np.int64),
            extra=pa.table(extra),
        ),
        classes=("a", "b"),
        splits=splits,
    )


def rows(plan, split=None):
    shards = [shard for shard in plan.shards if split in (None, shard.split)]
    return [row for shard in shards for row in shard.rows.tolist()]


sizes = st.lists(st.integers(UNREADABLE, 1000), min_size=1, max_size=60)
options = st.builds(
    Options,
    shard_bytes=st.integers(1, 3000),
    shard_samples=st.none() | st.integers(1, 20),
    shuffle=st.booleans(),
    seed=st.integers(0, 1 << 70),
)


@given(st.data(), sizes, options)
def test_each_row_appears_once_and_shards_stay_within_limits(data, sizes, options):
    split = data.draw(st.lists(st.integers(0, 2), min_size=len(sizes), max_size=len(sizes)))
    source = make_source(sizes, split, ("train", "val", "test"))
    plan = make_plan(source, options)
    assert sorted(rows(plan)) == list(range(len(sizes)))
    assert make_plan(source, options).fingerprint == plan.fingerprint
    for number, name in enumerate(source.splits):
        assert options.shuffle or rows(plan, name) == sorted(rows(plan, name))
        shards = [shard for shard in plan.shards if shard.split == name]
        assert [shard.name for shard in shards] == [f"{name}-{n:05d}" for n in range(len(shards))]
        assert sorted(rows(plan, name)) == [row for row, code in enumerate(split) if code == number]
        lengths = [[max(sizes[row], 0) for row in shard.rows.tolist()] for shard in shards]
        for index, shard_lengths in enumerate(lengths):
            last, count = index == len(lengths) - 1, len(shard_lengths)
            if options.shard_samples:
                assert count == options.shard_samples or (
                    last and 0 < count < options.shard_samples
                )
            else:
                assert count == 1 or sum(shard_lengths) <= options.shard_bytes
                # A shard ends only where the next image would exceed the limit.
                assert last or sum(shard_lengths) + lengths[index + 1][0] > options.shard_bytes


GOLDEN_ORDER = [14, 0, 4, 6, 3, 19, 9, 5, 18, 7, 17, 1, 8, 10, 2, 12, 13, 16, 11, 15]
GOLDEN_SPLIT = [[19, 14, 12, 8, 15, 6], [0, 7, 9, 3, 16, 5], [13, 17, 4], [10, 2, 18, 1, 11]]
GOLDEN_GROUPS = [7, 6, 9, 5, 8]


def test_golden_order():
    """A seed gives the same plan with every release of NumPy."""
    source = make_source([10] * 20, group=list("aaaaabbbbbcccccddddd"))
    assert rows(make_plan(source, Options(seed=0))) == GOLDEN_ORDER
    plan = make_plan(source, Options(seed=7, val_fraction=0.25, shard_samples=6))
    assert [shard.rows.tolist() for shard in plan.shards] == GOLDEN_SPLIT
    names = ["train-00000", "train-00001", "train-00002", "val-00000"]
    assert [shard.name for shard in plan.shards] == names
    plan = make_plan(source, Options(seed=7, val_fraction=0.25, split_by="group"))
    assert rows(plan, "val") == GOLDEN_GROUPS


GROUPS = {
    "text": st.sampled_from(["a", "b", "é", "", "c d", "e", "f"]),
    "integer": st.integers(-3, 3),
    "floating": st.sampled_from([0.0, 0.5, 1.5, float("nan")]),
    "boolean": st.booleans(),
}


@settings(max_examples=examples())
@given(st.data(), st.sampled_from(sorted(GROUPS)), st.floats(0.01, 0.9), st.integers(0, 5))
def test_split_by_keeps_groups_in_one_split(data, kind, fraction, seed):
    some = st.lists(st.none() | GROUPS[kind], min_size=2, max_size=40)
    groups = data.draw(some.filter(lambda each: set(each) != {None}))
    source = make_source([1] * len(groups), group=groups)
    try:
        plan = make_plan(source, Options(val_fraction=fraction, split_by="group", seed=seed))
    except CallError as error:
        plan, reason = None, str(error)
    if plan is None:
        assert "cannot divide into two splits" in reason
        return
    names = [repr(group) for group in groups]
    train, val = ({names[row] for row in rows(plan, split)} for split in ("train", "val"))
    assert train
    assert val
    assert not train & val
    assert sorted(rows(plan)) == list(range(len(groups)))
    # Groups are added as long as they fit, so no remaining group fits.
    room = round(fraction * len(groups)) - len(rows(plan, "val"))
    assert 0 <= room < min(Counter(names[row] for row in rows(plan, "train")).values())


FOUR, BY_LABEL = make_source([1] * 4), {"split_by": "label", "val_fraction": 0.5}
NO_COLUMN = "no column of that name. Hint:"
REFUSED = [
    (
        FOUR,
        {"split_by": "x"},
        "--split-by requires --val-fraction or --test-fraction. Hint: set the fraction of train",
    ),
    (
        FOUR,
        {"split_by": "x", "val_fraction": 0.5},
        f"--split-by x: the source has {NO_COLUMN} choose one of: label.",
    ),
    (
        make_source([1] * 4, identity=[1] * 4),
        {"split_by": "identity", "val_fraction": 0.5},
        "--split-by identity makes 1 group, which --val-fraction 0.5 cannot divide into two splits",
    ),
    (
        make_source([1] * 4, nothing=pa.nulls(4)),
        {"split_by": "nothing", "val_fraction": 0.5},
        "cannot divide into two splits",
    ),
    (
        make_source([1] * 4, [0, 0, 1, 1], ("train", "val")),
        {"val_fraction": 0.5},
        "already has a val split. Hint: leave out --val-fraction, or convert train alone with"
        " --where \"split = 'train'\"",
    ),
    (
        replace(FOUR, label_type="none", classes=()),
        BY_LABEL,
        f"{NO_COLUMN} leave out --split-by, or set it to duplicates.",
    ),
    (make_source([1] * 4, splits=("test",)), {"val_fraction": 0.5}, "no train split"),
    (FOUR, {"val_fraction": 0.01}, "--val-fraction"),
    (FOUR, {"val_fraction": 0.99}, "--val-fraction"),
    *(
        # A manifest that someone else wrote may contain them.
        (make_source([1], splits=(name,)), {}, "cannot be part of a file name")
        for name in ("../other/train", "/tmp/train", "..", ".hidden", "a\0b", "\udc80")
    ),
    *(
        # File systems allow 255 bytes for a name, so a longer one can never be written.
        (
            make_source([1], splits=("s" * length,)),
            {},
            f"has a name of {length} bytes, but the limit is 100",
        )
        for length in (101, 300)
    ),
]


@pytest.mark.parametrize(("source", "options", "message"), REFUSED, ids=range(len(REFUSED)))
def test_what_is_refused(source, options, message):
    with pytest.raises(CallError, match=re.escape(message)):
        make_plan(source, Options(**options))


CHANGES = {
    "path": pa.array(["0.jpg", "x.jpg"], pa.large_string()),
    "label": np.array([0, 0], np.int32),
    "split": np.array([0, 1], np.int8),
    "size": np.array([5, 6], np.int64),
    "classes": ("a", "c"),
    "splits": ("train", "test"),
    "extra": pa.table({"camera": [1, 3]}),
}


@pytest.mark.parametrize("column", CHANGES)
def test_fingerprint_covers_samples_classes_and_options(column):
    source = make_source([5, 5], camera=[1, 2], splits=("train", "val"))
    fingerprint = make_plan(source, Options()).fingerprint
    change = {column: CHANGES[column]}
    if column in ("classes", "splits"):
        changed = replace(source, **change)
    else:
        changed = source.with_columns(**change)
    assert make_plan(changed, Options()).fingerprint != fingerprint
    moved = replace(source, root="/another", notices=("x",))
    assert make_plan(moved, Options()).fingerprint == fingerprint
    for option in ({"seed": 1}, {"fmt": "webdataset"}, {"validate": "none"}, {"shard_bytes": 1}):
        assert make_plan(source, Options(**option)).fingerprint != fingerprint


def test_keys_are_unique_without_dots_and_spaces():
    keys = [key_of(row) for row in (0, 7, 99_999_999, 100_000_000, 12_345_678_901)]
    assert keys == ["00000000", "00000007", "99999999", "100000000", "12345678901"]
    assert not any(set(key) & set(". \t\n/") for key in keys)


@given(names=st.lists(st.text(max_size=30), min_size=1, max_size=40, unique=True))
def test_a_manifest_that_would_be_too_long_is_refused_before_any_work(names):
    """The estimate is never less than the length of the manifest."""
    source = replace(make_source([100] * 9), classes=tuple(names))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(store, "MAX_MANIFEST_BYTES", 0)
        message = "the class names and the list of shards take about"
        with pytest.raises(CallError, match=message) as caught:
            make_plan(source, Options(shard_samples=2))
        estimate = int(re.search(r"about ([\d,]+) bytes", str(caught.value))[1].replace(",", ""))
        file = File(f"{'x' * MAX_SPLIT_NAME}-0000000000.tfrecord", 1 << 40, "crc32c:01234567")
        patch.setattr(store, "MAX_MANIFEST_BYTES", estimate)
        make_plan(source, Options(shard_samples=2))
        split = Split("x" * MAX_SPLIT_NAME, (Shard(file, 1 << 40, file, file),) * 5)
        manifest = Manifest(
            "tfrecord", "encoded", FORMATS["tfrecord"].components("encoded", KINDS["class"]), tuple(names), (split,), file,
            Options().as_json(), creator="convert",
        )  # fmt: skip
        assert len(store.manifest_bytes(manifest)) <= estimate
