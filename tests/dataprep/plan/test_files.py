"""The files of a plan are written and removed so that the same command can continue after a kill."""

from __future__ import annotations

import os
import tempfile

import pytest

from dataprep import storage
from dataprep.options import Options
from dataprep.plan.files import has_plan, plan_folder
from dataprep.run.convert import convert_dataset, plan_dataset
from dataprep.sources import read_source


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
