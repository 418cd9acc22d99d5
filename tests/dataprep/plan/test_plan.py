"""`make_plan`: every sample appears once, and the seed alone determines its split, shard and position."""

from __future__ import annotations

import os
import re
import tempfile

import pytest
from helpers.rows import evaluate, read_rows
from helpers.sources import synthetic
from hypothesis import given
from hypothesis import strategies as st

from dataprep import storage
from dataprep.formats import FORMATS
from dataprep.labels.kinds import KINDS
from dataprep.plan.assign import MAX_SPLIT_NAME, Options, make_plan
from dataprep.plan.files import has_plan, plan_folder
from dataprep.run.convert import convert_dataset, plan_dataset
from dataprep.sources import read_source
from manifests import store
from manifests.errors import CallError
from manifests.schema import File, Manifest, Shard, Split

FOUR, BY_LABEL = synthetic(4), {"split_by": "label", "val_fraction": 0.5}


@pytest.mark.parametrize(("row", "message"), read_rows(__file__, "refused"))
def test_what_is_refused(row, message):
    source, options = evaluate(row, globals())
    with pytest.raises(CallError, match=re.escape(message)):
        make_plan(source, Options(**options))


@given(names=st.lists(st.text(max_size=30), min_size=1, max_size=40, unique=True))
def test_a_manifest_that_would_be_too_long_is_refused_before_any_work(names):
    """The estimate is never less than the length of the manifest."""
    source = synthetic(9, classes=names)
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
        components = FORMATS["tfrecord"].components("encoded", KINDS["class"])
        manifest = Manifest(
            "tfrecord", "encoded", components, tuple(names), (split,), file, Options().as_json(),
            creator="convert",
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
def test_a_run_that_is_killed_while_it_removes_another_plan(
    number, out, image_folder, kill_before_removal
):
    """`convert` removes the rest; `plan` removes plan.json first, which must never describe new tables."""
    source, options = read_source(str(image_folder)), Options(shard_samples=3)
    other = Options(shard_samples=4)
    plan_dataset(source, out, options)
    kill_before_removal(number)
    with pytest.raises(Killed):
        convert_dataset(source, out, other, workers=1, overwrite=True)
    convert_dataset(source, out, other, workers=1, overwrite=True)
    assert not storage.is_folder(plan_folder(out))
    plan_dataset(source, f"{out}2", options)
    kill_before_removal(1)
    with pytest.raises(Killed):
        plan_dataset(source, f"{out}2", options)
    assert not has_plan(f"{out}2")
    plan_dataset(source, f"{out}2", options)
    assert has_plan(f"{out}2")
