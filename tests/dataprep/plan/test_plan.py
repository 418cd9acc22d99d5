"""`make_plan`: every sample appears once, and the seed alone determines its split, shard and position."""

from __future__ import annotations

import os
import re
import tempfile
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest
from helpers.rows import evaluate, read_rows
from hypothesis import given
from hypothesis import strategies as st

from dataprep import storage
from dataprep.formats import FORMATS
from dataprep.labels.kinds import KINDS
from dataprep.plan.assign import MAX_SPLIT_NAME, Options, make_plan
from dataprep.plan.files import has_plan, plan_folder
from dataprep.run.convert import convert_dataset, plan_dataset
from dataprep.sources import UNREADABLE, Source, read_source
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


sizes = st.lists(st.integers(UNREADABLE, 1000), min_size=1, max_size=60)
options = st.builds(
    Options,
    shard_bytes=st.integers(1, 3000),
    shard_samples=st.none() | st.integers(1, 20),
    shuffle=st.booleans(),
    seed=st.integers(0, 1 << 70),
)


FOUR, BY_LABEL = make_source([1] * 4), {"split_by": "label", "val_fraction": 0.5}


@pytest.mark.parametrize(("row", "message"), read_rows(__file__, "refused"))
def test_what_is_refused(row, message):
    source, options = evaluate(row, globals())
    with pytest.raises(CallError, match=re.escape(message)):
        make_plan(source, Options(**options))


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


class Killed(BaseException):
    """Ends a run without the handling of an error."""


@pytest.fixture(params=["folder", "URL"])
def out(request, tmp_path, monkeypatch) -> str:
    (tmp_path / "tmp").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "tmp"))
    return (
        f"memory://bucket/{tmp_path.name}/set" if request.param == "URL" else str(tmp_path / "set")
    )


@pytest.fixture
def kill_before_removal(monkeypatch):
    """Return a function that kills the next run before it removes a file of the plan, counted from 0."""
    remove, left = storage.remove, []

    def counted(path):
        if left and os.path.basename(os.path.dirname(path)) == "plan":
            left[0] -= 1
            if left[0] < 0:
                left.clear()
                raise Killed
        remove(path)

    monkeypatch.setattr(storage, "remove", counted)
    return left.append


@pytest.mark.parametrize("number", [0, 1])
def test_convert_removes_what_a_killed_run_left_of_another_plan(
    number, out, image_folder, kill_before_removal
):
    source = read_source(str(image_folder))
    plan_dataset(source, out, Options(shard_samples=3))
    kill_before_removal(number)
    with pytest.raises(Killed):
        convert_dataset(source, out, Options(shard_samples=4), workers=1, overwrite=True)
    convert_dataset(source, out, Options(shard_samples=4), workers=1, overwrite=True)
    assert not storage.is_folder(plan_folder(out))


def test_plan_removes_the_old_plan_json_first(out, image_folder, kill_before_removal):
    """It must never describe new tables."""
    source, options = read_source(str(image_folder)), Options(shard_samples=3)
    plan_dataset(source, out, options)
    kill_before_removal(1)
    with pytest.raises(Killed):
        plan_dataset(source, out, options)
    assert not has_plan(out)
    plan_dataset(source, out, options)
    assert has_plan(out)
