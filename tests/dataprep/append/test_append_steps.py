"""`plan --append`, `work` and `finish` give the same bytes as `convert --append`, and can be repeated or undone."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from pathlib import Path

import pytest
from helpers.pictures import encode, photo

from dataprep import storage
from dataprep.ledger.state import Journal, journal_bytes
from dataprep.run import commit as complete
from dataprep.run.commit import finish_append, revert_dataset
from dataprep.run.finish import finish
from dataprep.run.inputs import read_base
from dataprep.verification.verify import verify_dataset
from manifests.store import read_manifest
from manifests.tables import read_table


def write(folder: Path, numbers: range, classes: tuple[str, ...]) -> Path:
    for number in numbers:
        path = folder / classes[number % len(classes)] / f"{number:04d}.jpg"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(encode(photo(number, 40, 30)))
    return folder


@pytest.fixture(scope="module")
def sources(tmp_path_factory) -> tuple[Path, Path]:
    """A source, and one with new images in an old and a new class, two known ones, and a shard of broken ones."""
    folder = tmp_path_factory.mktemp("sources")
    first = write(folder / "first", range(20), ("cat", "dog"))
    second = write(folder / "second", range(20, 41), ("ant", "dog"))
    shutil.copy(first / "dog" / "0001.jpg", second / "dog")
    shutil.copy(first / "dog" / "0003.jpg", second / "dog")
    (second / "zoo").mkdir()
    for number in range(9):
        (second / "zoo" / f"{number}.jpg").write_bytes(b"broken")
    return first, second


@pytest.fixture(scope="module")
def before(sources, invoke, snapshot, tmp_path_factory) -> Iterator[Path]:
    """The first source, converted once. Tests change copies."""
    out = tmp_path_factory.mktemp("dataset") / "before"
    invoke("convert", "--src", sources[0], "--out", out, "--samples-per-shard", 4)
    made = [snapshot(folder) for folder in (out, *sources)]
    yield out
    assert [snapshot(folder) for folder in (out, *sources)] == made, "a test has changed it"


@pytest.fixture
def copy(before, tmp_path) -> Callable[[str], Path]:
    """A function that copies this dataset to a folder of a name."""
    return lambda name: Path(shutil.copytree(before, tmp_path / name))


def without_plan(files: dict[str, bytes]) -> dict[str, bytes]:
    return {name: data for name, data in files.items() if not name.startswith(".dataprep/plan/")}


def run_steps(invoke, out: Path, *tasks: str) -> str:
    for task in tasks:
        invoke("work", out, "--task", task, "--workers", 1)
    return invoke("finish", out, "--max-rejected", 1, "--workers", 1).output


CASES = {
    "as it was": [],
    "splits": ["--val-fraction", 0.3, "--seed", 4],
    "in order": ["--no-shuffle", "--samples-per-shard", 3],
}


@pytest.mark.parametrize("case", CASES)
def test_the_same_bytes_as_convert(case, sources, before, copy, invoke, snapshot):
    append = ["--src", sources[1], "--append", *CASES[case]]
    a, b = copy("a"), copy("b")
    expected = invoke("convert", *append, "--out", a, "--max-rejected", 1).output
    output = invoke("plan", *append, "--out", b).output
    assert f"2 images of the source are in {b} already" in output
    assert "2 new classes: ant, zoo" in output
    assert f"{b}/.dataprep/plan is complete" in output
    assert (
        "appends to revision 0; 2 images known before"
        in invoke("info", b / ".dataprep" / "plan").stdout
    )
    output = run_steps(invoke, b, "1/2", "0/2")
    assert without_plan(snapshot(b)) == snapshot(a)
    assert verify_dataset(str(b), decode=True, workers=1).problems == ()
    last = f"is at revision 1: {20 + 21} samples in 4 classes"
    assert last in expected
    assert last in output


def test_every_step_can_be_repeated(sources, copy, invoke, snapshot):
    out = copy("out")
    plan = ("plan", "--src", sources[1], "--append", "--out", out)
    old = snapshot(out)["manifest.json"]
    for _ in range(2):
        invoke(*plan)
    invoke("work", out, "--task", "0/2", "--workers", 1)
    output = invoke("finish", out, status=3).output
    assert "4 shards of 8 are missing" in output
    assert "run task 1 of 2 again" in output
    assert "done by an earlier run" in invoke(*plan).output, "finished shards are kept"
    assert snapshot(out)["manifest.json"] == old, "readers are not disturbed"
    run_steps(invoke, out, "0/2", "1/2")
    complete = without_plan(snapshot(out))
    assert "done by an earlier run" in invoke("work", out, "--workers", 1).output
    assert "shards written" in invoke("work", out, "--claim", "--workers", 1).output
    assert "nothing to append: all 32 images" in invoke("finish", out).output
    assert "since revision 1" in invoke(*plan).output
    assert "plan is complete" in invoke(*plan).output, "a script of all three steps goes through"
    assert "0 shards written" in invoke("work", out, "--task", "3/5").output
    assert "nothing to append: all 32 images" in invoke("finish", out).output
    assert without_plan(snapshot(out)) == complete
    assert "0 shards" in invoke("info", out / ".dataprep" / "plan").stdout
    assert verify_dataset(str(out), workers=1).problems == ()


def test_convert_and_the_steps_continue_each_other(sources, copy, invoke, snapshot, monkeypatch):
    out = copy("out")
    append = ("--src", sources[1], "--append", "--out", out)
    invoke("plan", *append)
    invoke("work", out, "--task", "0/3", "--workers", 1)
    output = invoke("convert", *append, "--max-rejected", 1).output
    assert "done by an earlier run" in output
    assert "nothing to append: all 32 images" in run_steps(invoke, out, "1/3", "2/3")
    once, other = without_plan(snapshot(out)), copy("other")
    with monkeypatch.context() as patch:
        patch.setattr("dataprep.run.convert.finish_append", lambda *_: 1 / 0)
        invoke("convert", "--src", sources[1], "--append", "--out", other, status=3)
    invoke("plan", "--src", sources[1], "--append", "--out", other)
    run_steps(invoke, other, "0/1")
    assert without_plan(snapshot(other)) == once


def test_another_append_waits(sources, copy, invoke, snapshot, tmp_path):
    out = copy("out")
    invoke("plan", "--src", sources[1], "--append", "--out", out)
    planned = snapshot(out)
    third = write(tmp_path / "third", range(50, 53), ("eel",))
    for command in ("plan", "convert"):
        output = invoke(command, "--src", third, "--append", "--out", out, status=2).output
        assert "another append to" in output
        assert f"`dataprep work {out}`" in output
    output = invoke("plan", "--src", sources[0], "--append", "--out", out).output
    assert "nothing to append" in output
    assert snapshot(out) == planned, "the plan that is in progress is kept"
    for command in ("plan", "convert"):
        assert "--out" in invoke(command, "--src", third, "--out", out, status=2).output
    assert snapshot(out) == planned


def test_revert(sources, before, copy, invoke, snapshot):
    old, out = snapshot(before), copy("out")
    plan = ("plan", "--src", sources[1], "--append", "--out", out)
    invoke(*plan)
    invoke("work", out, "--task", "0/2", "--workers", 1)
    plans = {path.name: path.read_bytes() for path in (out / ".dataprep" / "plan").iterdir()}
    problems = {problem.file: problem for problem in verify_dataset(str(out), workers=1).problems}
    problem = problems[".dataprep/journal.json"]
    assert problem.hint.startswith(
        f"run `dataprep work {out}`, then `dataprep finish {out}`; or `dataprep revert"
    )
    assert "what an interrupted append wrote was removed" in invoke("revert", out).output
    assert without_plan(snapshot(out)) == old
    assert not (out / ".dataprep" / "plan").exists()
    assert "contains no plan" in invoke("work", out, status=2).output
    for name, data in plans.items():  # a machine that has not seen the removal
        (out / ".dataprep" / "plan").mkdir(exist_ok=True, parents=True)
        (out / ".dataprep" / "plan" / name).write_bytes(data)
    for command in ("work", "finish"):
        assert "is of an append that was reverted" in invoke(command, out, status=2).output
    assert without_plan(snapshot(out)) == old
    invoke(*plan)
    run_steps(invoke, out, "0/1")
    invoke("revert", out)
    assert without_plan(snapshot(out)) == old


@pytest.fixture
def broken(tmp_path) -> Path:
    """A source of which every image is rejected."""
    (tmp_path / "bad" / "cat").mkdir(parents=True)
    for number in range(6):
        (tmp_path / "bad" / "cat" / f"{number}.jpg").write_bytes(b"broken")
    return tmp_path / "bad"


def check_nothing_appended(out, result):
    assert (
        f"rejected: 6 of 6 images (100.00%), see {out}/.dataprep/plan/rejected.jsonl"
        in result.output
    )
    assert "every new image was rejected" in result.output
    rows = [
        json.loads(line)
        for line in (out / ".dataprep" / "plan" / "rejected.jsonl").read_text().splitlines()
    ]
    assert [row["source"] for row in rows] == [f"cat/{number}.jpg" for number in range(6)]
    assert verify_dataset(str(out), workers=1).problems == ()


def test_only_rejected_images(before, copy, broken, sources, invoke, snapshot):
    """Nothing is appended, the list of the images is kept, and every step can be repeated."""
    old, out = snapshot(before), copy("out")
    invoke("plan", "--src", broken, "--append", "--out", out)
    for _ in range(2):
        invoke("work", out, "--workers", 1)
        check_nothing_appended(out, invoke("finish", out, "--workers", 1, status=1))
        assert without_plan(snapshot(out)) == old
    invoke("finish", out, "--max-rejected", 1)
    invoke("work", out, "--claim", "--workers", 1)
    check_nothing_appended(
        out, invoke("convert", "--src", broken, "--append", "--out", out, status=1)
    )
    invoke("convert", "--src", sources[1], "--append", "--out", out, "--max-rejected", 1)
    assert not (out / ".dataprep" / "plan" / "rejected.jsonl").exists()
    assert "ended without a new image" in invoke("finish", out, status=2).output


def test_only_rejected_images_without_a_plan(before, copy, broken, sources, invoke, snapshot):
    old, out = snapshot(before), copy("out")
    check_nothing_appended(
        out, invoke("convert", "--src", broken, "--append", "--out", out, status=1)
    )
    assert without_plan(snapshot(out)) == old
    invoke("plan", "--src", sources[1], "--append", "--out", out)
    assert not (out / ".dataprep" / "plan" / "rejected.jsonl").exists()
    invoke("work", out, "--workers", 1)
    invoke("finish", out, "--max-rejected", 1, "--workers", 1)
    assert read_manifest(out).revision == 1


def test_a_refused_append_keeps_the_list_of_the_last_one(copy, broken, sources, invoke, snapshot):
    out = copy("out")
    append = ("convert", "--append", "--out", out, "--src")
    check_nothing_appended(out, invoke(*append, broken, status=1))
    ended = snapshot(out)
    foreign = out / "train-00005.tfrecord"
    foreign.write_bytes(b"another tool's")
    assert "which is not in its manifest" in invoke(*append, sources[1], status=2).output
    foreign.unlink()
    assert snapshot(out) == ended


def test_the_list_does_not_outlive_its_dataset(sources, broken, invoke, snapshot, tmp_path):
    """It goes when the dataset is replaced, and stays when the same conversion finds nothing to do."""
    out = tmp_path / "out"
    convert = ("convert", "--src", sources[0], "--out", out)
    invoke("plan", *convert[1:])
    invoke(*convert)
    made = snapshot(out)
    assert ".dataprep/plan/plan.json" in made
    for again in (sources[0], sources[1]):
        check_nothing_appended(
            out, invoke("convert", "--src", broken, "--append", "--out", out, status=1)
        )
        ended = snapshot(out)
        invoke(*convert)
        assert snapshot(out) == ended
        invoke("convert", "--src", again, "--out", out, "--overwrite", "--max-rejected", 1)
        assert not (out / ".dataprep" / "plan" / "rejected.jsonl").exists()
        assert (snapshot(out) == made) == (again == sources[0])


@pytest.mark.parametrize("step", ["write_ended", "remove_empty_shards"])
def test_killed_after_all_were_rejected(step, before, copy, broken, invoke, snapshot, monkeypatch):
    """`finish` was killed before the mark was removed: the next one ends its work."""
    old, out = snapshot(before), copy("out")
    invoke("plan", "--src", broken, "--append", "--out", out)
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
    check_nothing_appended(out, invoke("finish", out, "--workers", 1, status=1))
    assert without_plan(snapshot(out)) == old


@pytest.mark.parametrize("command", ["finish", "convert", "plan", "revert"])
@pytest.mark.parametrize("name", ["manifest.json", "train-00012.parquet", ".dataprep/journal.json"])
def test_finish_killed_before_a_change(
    name, command, sources, before, copy, invoke, snapshot, monkeypatch
):
    """The table of a shard without images stays until the manifest is there, and goes before the mark does.

    A program that is killed does not remove its temporary files either.
    """
    old, out = snapshot(before), copy("out")
    append = ["--src", sources[1], "--append", "--out", out, "--no-shuffle"]
    invoke("plan", *append)
    invoke("work", out, "--workers", 1)
    assert read_table(out / "train-00012.parquet").num_rows == 0
    other = Path(shutil.copytree(out, out.parent / "other"))
    finish(str(other), workers=1)

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
    options = {"finish": [out], "revert": [out]}.get(command, append)
    invoke(command, *options, *(["--max-rejected", 1] if command in ("finish", "convert") else []))
    if command == "plan":
        invoke("finish", out, "--max-rejected", 1)
    assert without_plan(snapshot(out)) == (
        old if command == "revert" else without_plan(snapshot(other))
    )


def test_a_late_worker_of_a_shard_without_images(sources, copy, invoke, snapshot):
    """It writes the table of the shard again after the append has ended.

    The next append needs its name.
    """
    out = copy("out")
    invoke("plan", "--src", sources[1], "--append", "--out", out, "--no-shuffle")
    invoke("work", out, "--workers", 1)
    table = (out / "train-00012.parquet").read_bytes()
    invoke("finish", out, "--max-rejected", 1)
    third = write(out.parent / "third", range(90, 106), ("cat",))
    append = ("convert", "--src", third, "--append", "--out")
    other = Path(shutil.copytree(out, out.parent / "other"))
    invoke(*append, other)
    (out / "train-00012.parquet").write_bytes(table)
    invoke(*append, out)
    assert snapshot(out) == snapshot(other)
    assert verify_dataset(str(out), workers=1).problems == ()


def test_an_append_removes_the_mark_of_a_killed_conversion(sources, copy, invoke):
    """It was killed right after it wrote the manifest, and is refused once something is appended."""
    out = copy("out")
    journal = Journal(action="convert", plan="0" * 32)
    (out / ".dataprep/journal.json").write_bytes(journal_bytes(journal))
    invoke("convert", "--src", sources[1], "--append", "--out", out, "--max-rejected", 1)
    assert not (out / ".dataprep/journal.json").exists()


def test_options_that_exclude_each_other(sources, before, invoke):
    append = ("plan", "--src", sources[1], "--out", before, "--append")
    assert "--append excludes --overwrite" in invoke(*append, "--overwrite", status=2).output
    assert "is not a complete dataset" in invoke(*append[:3], "--append", status=2).output


def test_older_releases_refuse_the_plan(sources, copy, invoke):
    """They would write the first shards of the dataset again."""
    out = copy("out")
    invoke("plan", "--src", sources[1], "--out", out, "--append")
    assert json.loads((out / ".dataprep" / "plan" / "plan.json").read_text())["plan_version"] == 2
    assert read_manifest(out).revision == 0


def test_another_process_finishes_first(sources, copy, invoke, snapshot, monkeypatch):
    out = copy("out")
    invoke("plan", "--src", sources[1], "--append", "--out", out)
    invoke("work", out, "--workers", 1)
    other = Path(shutil.copytree(out, out.parent / "other"))
    invoke("finish", other, "--max-rejected", 1, "--workers", 1)

    def finish_late(*args):
        monkeypatch.undo()
        finish(str(out), workers=1)  # removes the folder of the temporary files
        return finish_append(*args)

    monkeypatch.setattr("dataprep.run.finish.finish_append", finish_late)
    assert finish(str(out), workers=1).manifest == read_manifest(out)
    assert snapshot(out) == snapshot(other)


def test_another_process_finishes_between_two_looks(sources, copy, invoke, monkeypatch):
    out = copy("out")
    invoke("plan", "--src", sources[1], "--append", "--out", out)
    invoke("work", out, "--workers", 1)

    def look_and_wait(*args, **options):
        base = read_base(*args, **options)
        monkeypatch.undo()
        finish(str(out), workers=1)
        return base

    monkeypatch.setattr("dataprep.run.commit.read_base", look_and_wait)
    assert finish(str(out), workers=1).manifest == read_manifest(out)


def test_revert_killed_copy_it_removes_the_folder_of_the_plan(sources, copy, invoke, monkeypatch):
    out = copy("out")
    invoke("plan", "--src", sources[1], "--append", "--out", out)
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
