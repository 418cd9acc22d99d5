"""`plan --append`, `work` and `finish` give the same bytes as `convert --append`, and can be repeated or undone."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from pathlib import Path

import pytest
from helpers.datasets import without_plan, write_images

from dataprep import storage
from dataprep.ledger.state import Journal, journal_bytes
from dataprep.run import commit as complete
from dataprep.run.commit import finish_append, revert_dataset
from dataprep.run.finish import finish
from dataprep.run.inputs import read_base
from dataprep.verification.verify import verify_dataset
from manifests.store import read_manifest
from manifests.tables import read_table


@pytest.fixture(scope="module")
def sources(tmp_path_factory) -> tuple[Path, Path]:
    """A source, and one with new images in an old and a new class, two known ones, and a shard of broken ones."""
    folder = tmp_path_factory.mktemp("sources")
    first = write_images(folder / "first", range(20), ("cat", "dog"))
    second = write_images(folder / "second", range(20, 41), ("ant", "dog"))
    for name in ("dog/0001.jpg", "dog/0003.jpg"):
        shutil.copy(first / name, second / name)
    for path in write_images(second / "zoo", range(9), ("",)).glob("*"):
        path.write_bytes(b"broken")
    return first, second


@pytest.fixture(scope="module")
def folders(sources, invoke, snapshot, tmp_path_factory) -> Iterator[Path]:
    """Datasets made once: `before` the append; `worked`, all shards of its plan; `done`. Tests change copies."""
    root = tmp_path_factory.mktemp("datasets")
    invoke("convert", "--src", sources[0], "--out", root / "before", "--samples-per-shard", 4)
    shutil.copytree(root / "before", root / "worked")
    append = ("--src", sources[1], "--append", "--no-shuffle")
    invoke("plan", *append, "--out", root / "worked")
    invoke("work", root / "worked", "--workers", 1)
    shutil.copytree(root / "worked", root / "done")
    invoke("finish", root / "done", "--max-rejected", 1)
    made = [snapshot(folder) for folder in (root, *sources)]
    yield root
    assert [snapshot(folder) for folder in (root, *sources)] == made, "a test has changed it"


@pytest.fixture
def copy(folders, tmp_path) -> Callable[..., Path]:
    """A function that copies one of these datasets to a folder of a name."""
    return lambda name, kind="before": Path(shutil.copytree(folders / kind, tmp_path / name))


@pytest.fixture
def old(folders, snapshot) -> dict[str, bytes]:
    return snapshot(folders / "before")


@pytest.fixture
def append(sources, invoke) -> Callable[..., str]:
    """A function that runs `plan` or `convert` for an append, and returns its output."""

    def run(command: str, out: Path, *options: object, src: object = None, status: int = 0) -> str:
        call = (command, "--src", src or sources[1], "--append", "--out", out, *options)
        return invoke(*call, status=status).output

    return run


def run_steps(invoke, out: Path, *tasks: str) -> str:
    for task in tasks:
        invoke("work", out, "--task", task, "--workers", 1)
    return invoke("finish", out, "--max-rejected", 1, "--workers", 1).output


def test_every_step_can_be_repeated(copy, append, old, invoke, snapshot):
    out = copy("out")
    for _ in range(2):
        append("plan", out)
    invoke("work", out, "--task", "0/2", "--workers", 1)
    output = invoke("finish", out, status=3).output
    assert "4 shards of 8 are missing" in output
    assert "run task 1 of 2 again" in output
    assert "done by an earlier run" in append("plan", out), "finished shards are kept"
    assert snapshot(out)["manifest.json"] == old["manifest.json"], "readers are not disturbed"
    run_steps(invoke, out, "0/2", "1/2")
    complete = without_plan(snapshot(out))
    assert "done by an earlier run" in invoke("work", out, "--workers", 1).output
    assert "shards written" in invoke("work", out, "--claim", "--workers", 1).output
    assert "nothing to append: all 32 images" in invoke("finish", out).output
    assert "since revision 1" in append("plan", out)
    assert "plan is complete" in append("plan", out), "a script of all three steps goes through"
    assert "0 shards written" in invoke("work", out, "--task", "3/5").output
    assert "nothing to append: all 32 images" in invoke("finish", out).output
    assert without_plan(snapshot(out)) == complete
    assert "0 shards" in invoke("info", out / ".dataprep" / "plan").stdout


def test_another_append_waits(sources, copy, append, invoke, snapshot, tmp_path):
    out = copy("out")
    append("plan", out)
    plan = json.loads((out / ".dataprep" / "plan" / "plan.json").read_text())
    assert plan["plan_version"] == 2, "older releases would write the first shards again"
    assert "label_type" not in plan, "plans of classes do not state it"
    planned = snapshot(out)
    third = write_images(tmp_path / "third", range(50, 53), ("eel",))
    for command in ("plan", "convert"):
        output = append(command, out, src=third, status=2)
        assert "another append to" in output
        assert f"`dataprep work {out}`" in output
        assert "--out" in invoke(command, "--src", third, "--out", out, status=2).output
    assert "nothing to append" in append("plan", out, src=sources[0])
    assert snapshot(out) == planned, "the plan that is in progress is kept"


def test_revert(copy, append, old, invoke, snapshot, monkeypatch):
    out = copy("out")
    append("plan", out)
    invoke("work", out, "--task", "0/2", "--workers", 1)
    folder = out / ".dataprep" / "plan"
    plans = snapshot(folder)
    problems = {problem.file: problem for problem in verify_dataset(str(out), workers=1).problems}
    hint = f"run `dataprep work {out}`, then `dataprep finish {out}`; or `dataprep revert"
    assert problems[".dataprep/journal.json"].hint.startswith(hint)
    assert "what an interrupted append or join wrote was removed" in invoke("revert", out).output
    assert without_plan(snapshot(out)) == old
    assert not folder.exists()
    assert "contains no plan" in invoke("work", out, status=2).output
    folder.mkdir(parents=True)
    for name, data in plans.items():  # a machine that has not seen the removal
        (folder / name).write_bytes(data)
    for command in ("work", "finish"):
        assert "is of an append that was reverted" in invoke(command, out, status=2).output
    assert without_plan(snapshot(out)) == old
    append("plan", out)
    run_steps(invoke, out, "0/1")
    invoke("revert", out)
    assert without_plan(snapshot(out)) == old


def test_revert_is_killed_before_it_removes_the_folder_of_the_plan(copy, append, monkeypatch):
    out = copy("out")
    append("plan", out)
    remove_folder = os.rmdir

    def killed(path, *arguments, **options):
        if os.fspath(path) == str(out / ".dataprep" / "plan"):
            raise ZeroDivisionError
        remove_folder(path, *arguments, **options)

    with monkeypatch.context() as patch:
        patch.setattr(os, "rmdir", killed)
        with pytest.raises(ZeroDivisionError):
            revert_dataset(str(out))
    assert (out / ".dataprep" / "plan").is_dir()
    revert_dataset(str(out))
    assert not (out / ".dataprep" / "plan").exists()


# --- every image is rejected ----------------------------------------------------------------------

REJECTED = ".dataprep/plan/rejected.jsonl"


@pytest.fixture
def broken(tmp_path) -> Path:
    """A source of which every image is rejected."""
    for path in write_images(tmp_path / "bad", range(6), ("cat",)).rglob("*.jpg"):
        path.write_bytes(b"broken")
    return tmp_path / "bad"


def check_nothing_appended(out, output):
    assert f"rejected: 6 of 6 images (100.00%), see {out / REJECTED}" in output
    assert "every new image was rejected" in output
    rows = [json.loads(line) for line in (out / REJECTED).read_text().splitlines()]
    assert [row["source"] for row in rows] == [f"cat/000{number}.jpg" for number in range(6)]
    assert verify_dataset(str(out), workers=1).problems == ()


def test_the_list_does_not_outlive_its_dataset(
    sources, broken, append, convert, invoke, snapshot, tmp_path
):
    """It goes when the dataset is replaced, and stays when the same conversion finds nothing to do."""
    out = tmp_path / "out"
    invoke("plan", "--src", sources[0], "--out", out)
    convert(sources[0], out)
    made = snapshot(out)
    assert ".dataprep/plan/plan.json" in made
    for again in (sources[0], sources[1]):
        check_nothing_appended(out, append("convert", out, src=broken, status=1))
        ended = snapshot(out)
        convert(sources[0], out)
        assert snapshot(out) == ended
        convert(again, out, "--overwrite", "--max-rejected", 1)
        assert not (out / REJECTED).exists()
        assert (snapshot(out) == made) == (again == sources[0])


# --- somebody is killed, or is late ----------------------------------------------------------------


@pytest.mark.parametrize("step", ["write_ended", "remove_empty_shards"])
def test_killed_after_all_were_rejected(
    step, copy, broken, append, old, invoke, snapshot, monkeypatch
):
    """`finish` was killed before the mark was removed: the next one ends its work."""
    out = copy("out")
    append("plan", out, src=broken)
    invoke("work", out, "--workers", 1)
    original = getattr(complete, step)

    def kill(*arguments):
        original(*arguments)
        raise KeyboardInterrupt

    monkeypatch.setattr(complete, step, kill)
    with pytest.raises(KeyboardInterrupt):
        finish(str(out), workers=1)
    monkeypatch.undo()
    assert (out / ".dataprep/journal.json").exists()
    check_nothing_appended(out, invoke("finish", out, "--workers", 1, status=1).output)
    assert without_plan(snapshot(out)) == old


@pytest.mark.parametrize("command", ["finish", "convert", "plan", "revert"])
@pytest.mark.parametrize("name", ["manifest.json", "train-00012.parquet", ".dataprep/journal.json"])
def test_finish_killed_before_a_change(
    name, command, folders, old, copy, append, invoke, snapshot, monkeypatch
):
    """The table of a shard without images goes after the manifest is there, before the mark."""
    out = copy("out", "worked")
    assert read_table(out / "train-00012.parquet").num_rows == 0

    def kill_before(original):
        def changed(path, *data):
            if Path(path) == out / name:
                raise KeyboardInterrupt
            return original(path, *data)

        return changed

    with monkeypatch.context() as patch:
        for each in ("replace_file", "replace_unchanged", "remove"):
            patch.setattr(storage, each, kill_before(getattr(storage, each)))
        patch.setattr("dataprep.storage.files.remove", storage.remove)
        patch.setattr(storage, "partials", lambda *_, **__: nullcontext())
        with pytest.raises(KeyboardInterrupt):
            finish(str(out), workers=1)
    if command in ("plan", "convert"):
        limit = ("--max-rejected", 1) if command == "convert" else ()
        append(command, out, "--no-shuffle", *limit)
    if command in ("plan", "finish"):
        invoke("finish", out, "--max-rejected", 1)
    if command == "revert":
        invoke("revert", out)
    done = old if command == "revert" else without_plan(snapshot(folders / "done"))
    assert without_plan(snapshot(out)) == done


def test_a_late_worker_of_a_shard_without_images(copy, append, snapshot):
    """It writes the table again after the append has ended; the next append needs its name."""
    out, other = copy("out", "done"), copy("other", "done")
    third = write_images(out.parent / "third", range(90, 106), ("cat",))
    append("convert", other, src=third)
    shutil.copy(copy("worked", "worked") / "train-00012.parquet", out)
    append("convert", out, src=third)
    assert snapshot(out) == snapshot(other)
    assert verify_dataset(str(out), workers=1).problems == ()


def test_an_append_removes_the_mark_of_a_killed_conversion(copy, append):
    """It was killed right after it wrote the manifest, and is refused once something is appended."""
    out = copy("out")
    journal = Journal(action="convert", plan="0" * 32)
    (out / ".dataprep/journal.json").write_bytes(journal_bytes(journal))
    append("convert", out, "--max-rejected", 1)
    assert not (out / ".dataprep/journal.json").exists()


@pytest.mark.parametrize("moment", ["finish.finish_append", "commit.read_base"])
def test_another_process_finishes_first(moment, folders, copy, snapshot, monkeypatch):
    """Before this one writes, which removes the folder of its temporary files, or between its two looks."""
    out = copy("out", "worked")
    original = {"finish.finish_append": finish_append, "commit.read_base": read_base}[moment]

    def late(*arguments, **options):
        base = original(*arguments, **options) if moment == "commit.read_base" else None
        monkeypatch.undo()
        finish(str(out), workers=1)
        return base or original(*arguments, **options)

    monkeypatch.setattr(f"dataprep.run.{moment}", late)
    assert finish(str(out), workers=1).manifest == read_manifest(out)
    assert snapshot(out) == snapshot(folders / "done")
