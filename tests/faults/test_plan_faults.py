"""Bad input for `plan`, `work` and `finish`: one clear sentence, a documented exit status, and nothing lost."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from helpers.rows import evaluate, read_rows

from dataprep import storage
from dataprep.canary import canary
from dataprep.plan.files import read_plan
from dataprep.run import work as shard_tasks
from dataprep.run.work import Share, parse_task
from manifests.errors import CallError, PlanError
from manifests.parquet import BoundedParquet
from manifests.serialization import seal

ONE = ("--workers", "1")

PLAN = Path(".dataprep", "plan", "plan.json")
TABLE = Path(".dataprep", "plan", "source-00000.parquet")


@pytest.fixture(scope="module")
def source(make_photos, tmp_path_factory):
    """The source of the plan. A test that changes it restores it."""
    return make_photos(tmp_path_factory.mktemp("source") / "photos", 24, side=16)


@pytest.fixture(scope="module")
def planned(source, dataprep, tmp_path_factory):
    folder = tmp_path_factory.mktemp("planned") / "out"
    plan = dataprep("plan", "--src", source, "--out", folder, "--samples-per-shard", 6)
    assert plan.returncode == 0, plan.stderr
    assert dataprep("work", folder, "--task", "1/4", *ONE).returncode == 0
    return folder


@pytest.fixture
def out(planned, tmp_path):
    """An output folder with a plan of 4 shards; the second one is finished."""
    return Path(shutil.copytree(planned, tmp_path / "out"))


def refusal(dataprep, status, *arguments) -> str:
    """Run a command that must fail with one line; return it."""
    done = dataprep(*arguments)
    line = done.stderr.splitlines()[-1]
    assert done.returncode == status, done.stderr
    assert "Traceback" not in done.stderr
    assert line.startswith(("dataprep: ", "Error: ")), done.stderr
    assert "Hint: " in line
    return line


def finish(dataprep, out) -> None:
    """Complete the dataset."""
    for command in ("work", "finish"):
        done = dataprep(command, out, *ONE)
        assert done.returncode == 0, done.stderr


def test_a_worker_that_lost_its_source(out, source, dataprep, snapshot):
    source.rename(source.parent / "elsewhere")
    before = snapshot(out)
    line = refusal(dataprep, 3, "work", out, "--task", "0/4", *ONE)
    assert f"{source}: the source of the plan is not on this machine. Hint: mount it" in line
    assert {name: data for name, data in snapshot(out).items() if "tasks-" not in name} == {
        name: data for name, data in before.items() if "tasks-" not in name
    }
    (source.parent / "elsewhere").rename(source)
    finish(dataprep, out)


def stored_tasks(out):
    plan = read_plan(str(out))
    return shard_tasks.stored_tasks(plan.job(str(out)), range(4), 1, plan)


# --- a plan that was edited -----------------------------------------------------------------------


def test_plan_json_edited_by_hand(out, source, dataprep):
    original = (out / PLAN).read_bytes()
    (out / PLAN).write_bytes(original.replace(b'"seed": 0', b'"seed": 1'))
    for command in ("work", "finish"):
        line = refusal(dataprep, 1, command, out, *ONE)
        assert f"{PLAN}: the plan was changed after `dataprep plan` wrote it" in line
        assert "run the same `dataprep plan` again; finished shards are kept" in line
    assert "was changed" in refusal(dataprep, 1, "info", out / PLAN.parent)
    assert dataprep("plan", "--src", source, "--out", out, "--samples-per-shard", 6).returncode == 0
    assert (out / PLAN).read_bytes() == original
    assert "1 shard was done by an earlier run" in dataprep("work", out, *ONE).stdout
    assert dataprep("finish", out, *ONE).returncode == 0


def write_in_groups(path, groups) -> None:
    """Write a table as `plan` does: a row group of six rows for each shard."""
    options = {"compression": "zstd", "write_page_checksum": True}
    with pq.ParquetWriter(path, groups[0].schema, **options) as writer:
        for group in groups:
            writer.write_table(group)


def test_the_source_table_edited_by_hand(out, dataprep):
    """A label is changed with pyarrow, and all row groups stay as they were."""
    file = pq.ParquetFile(out / TABLE)
    groups = [file.read_row_group(number) for number in range(file.num_row_groups)]
    labels = groups[2]["label"].to_pylist()
    groups[2] = groups[2].set_column(2, "label", pa.array(labels[::-1], pa.int32()))
    write_in_groups(out / TABLE, groups)
    line = refusal(dataprep, 1, "work", out, "--task", "2/4", *ONE)
    assert "source-00000.parquet: the file was changed after `dataprep plan` wrote it" in line


def test_every_changed_byte_of_a_plan_is_noticed(out):
    """Each part of both files: a flipped bit is a `PlanError`, whatever it means."""
    tasks = stored_tasks(out)
    assert [len(task.keys) for task in tasks] == [6] * 4
    # Arrow itself checks the first 4 bytes of a table.
    files = ((PLAN, 0, lambda: read_plan(str(out))), (TABLE, 4, lambda: list(tasks)))
    for name, first, read in files:
        path, original = out / name, (out / name).read_bytes()
        changed = [original[:length] for length in (0, 1, 100, len(original) - 1)]
        for at in range(first, len(original), 61):
            changed.append(original[:at] + bytes([original[at] ^ 4]) + original[at + 1 :])
        for data in changed:
            path.write_bytes(data)
            with pytest.raises(PlanError):
                read()
        path.write_bytes(original)
    (out / TABLE).unlink()
    with pytest.raises(PlanError, match="cannot be read"):
        list(tasks)


def with_members(out, **members) -> None:
    """Change members of the plan; its checksum is right."""
    body = {**json.loads((out / PLAN).read_bytes()), **members}
    del body["checksum"]
    (out / PLAN).write_bytes(seal(body))


@pytest.mark.parametrize(
    ("member", "value"),
    [
        ("fingerprint", "x"), ("canary", 3), ("versions", []), ("root", "photos"), ("root", "/a\0b"),
        ("splits", {"../up": {"shards": 4, "images": 24, "bytes": 1}}),
        ("splits", {"train": {"shards": 1 << 40, "images": 24, "bytes": 1}}),
        ("splits", {"train": {"shards": 3, "images": 24, "bytes": 1}}),
        ("tables", [{"name": "../../x", "bytes": 1, "footer": "00000000", "groups": "00000000"}]),
        ("tables", []), ("extra", ["key"]), ("extra", ["x" * 101]), ("containers", 1), ("classes", [1]),
        ("rejected", [{"source": "a"}]), ("options", {}), ("options", {"fmt": "x"}),
    ],
)  # fmt: skip
def test_a_sealed_plan_with_a_wrong_member_is_refused(member, value, out):
    """The checksum is right, so somebody wrote this on purpose."""
    with_members(out, **{member: value})
    message = rf"{PLAN}: the plan was changed .* Hint: "
    with pytest.raises(PlanError, match=message):
        read_plan(str(out))


@pytest.mark.parametrize(
    ("column", "value"),
    [("key", "../../x"), ("label", 99), ("source", "a\0b"), ("size", -7), ("shard", "other")],
)
def test_a_value_of_a_hostile_table(column, value, out):
    """The checksums are right, but a worker would write outside of the folder, or fail."""
    table = pq.read_table(out / TABLE)
    at = table.column_names.index(column)
    values = pa.array([value] * table.num_rows, table.schema.field(column).type)
    table = table.set_column(at, table.schema.field(column), values)
    write_in_groups(out / TABLE, [table.slice(start, 6) for start in range(0, 24, 6)])
    with (out / TABLE).open("rb") as file:
        parquet = BoundedParquet(file, rows_per_byte=2)
        groups = "".join(map(parquet.group_checksum, range(4)))
        entry = {"name": TABLE.name, "bytes": parquet.length, "groups": groups}
        with_members(out, tables=[{**entry, "footer": parquet.footer_checksum()}])
    message = f"column '{column}' of shard train-00001 has a wrong value"
    with pytest.raises(PlanError, match=message):
        stored_tasks(out)[1]


# --- two plans, no plan, other machines -----------------------------------------------------------


def test_two_plans_in_one_folder(out, source, dataprep, snapshot):
    before = snapshot(out)
    call = ("--src", source, "--out", out, "--samples-per-shard")
    difference = "different: --samples-per-shard (6 in the folder, 7 now)"
    for command in ("plan", "convert"):
        line = refusal(dataprep, 2, command, *call, 7)
        assert f"has the plan of another conversion; {difference}" in line
    assert snapshot(out) == before
    again = dataprep("plan", *call, 7, "--overwrite")
    assert again.returncode == 0, again.stderr
    assert not list(out.glob("train-*"))
    finish(dataprep, out)
    replaced = dataprep("convert", *call, 8, "--overwrite", *ONE)
    assert replaced.returncode == 0, replaced.stderr
    assert not (out / PLAN.parent).exists(), "the plan is not that of the dataset any more"


@pytest.mark.parametrize("command", ["work", "finish", "convert", "plan"])
def test_a_plan_of_another_release_or_library(command, out, source, dataprep, snapshot):
    versions = {**canary().versions, "dataprep": "9.9.9", "Pillow": "1.2.3"}
    with_members(out, canary="0" * 32, versions=versions)
    before = snapshot(out)
    inputs = (out, *ONE)
    if command in ("convert", "plan"):
        inputs = ("--src", source, "--out", out, "--samples-per-shard", 6)
    line = refusal(dataprep, 3, command, *inputs)
    made = "the plan was made with dataprep 9.9.9, Pillow 1.2.3, but this machine has dataprep"
    assert made in line
    assert snapshot(out) == before


def test_a_plan_of_a_later_version(out, dataprep):
    with_members(out, plan_version=3)
    line = refusal(dataprep, 1, "work", out, *ONE)
    assert "the plan has plan_version 3, but this release reads 1 to 2. Hint: use the rel" in line


def test_another_run_in_the_folder(out, source, dataprep):
    convert = ("convert", "--src", source, "--out", out, "--samples-per-shard", 6)
    busy = "another run is working in this folder"
    with storage.locked(str(out), shared=True):  # as `work` has it
        assert busy in refusal(dataprep, 3, *convert)
        assert dataprep("work", out, *ONE).returncode == 0
    with storage.locked(str(out)):  # as `convert` has it
        for command in ("work", "finish"):
            assert busy in refusal(dataprep, 3, command, out, *ONE)


def test_a_file_of_another_tool_under_the_name_of_a_shard(out, dataprep):
    (out / "train-00002.tfrecord").write_bytes(b"precious")
    line = refusal(dataprep, 2, "work", out, "--task", "2/4", *ONE)
    assert "train-00002.tfrecord" in line
    assert (out / "train-00002.tfrecord").read_bytes() == b"precious"


def test_a_copied_output_folder_continues(out, dataprep, tmp_path):
    """Nothing in OUT names OUT, so it can be moved between the steps."""
    copy = Path(shutil.copytree(out, tmp_path / "copy"))
    finish(dataprep, copy)
    assert sorted(os.listdir(copy / PLAN.parent)) == [PLAN.name, TABLE.name]


def test_a_plan_is_not_written_to_a_web_server(source, dataprep):
    line = refusal(dataprep, 2, "plan", "--src", source, "--out", "https://host/out")
    assert "--out https://host/out can only be read" in line


# --- the number of the task -----------------------------------------------------------------------

SLURM = {"SLURM_ARRAY_TASK_COUNT": "8", "SLURM_ARRAY_TASK_MIN": "1", "SLURM_ARRAY_TASK_MAX": "8"}
EVERY_FOURTH = {
    "SLURM_ARRAY_TASK_COUNT": "3", "SLURM_ARRAY_TASK_MIN": "10", "SLURM_ARRAY_TASK_MAX": "18",
    "SLURM_ARRAY_TASK_STEP": "4",
}  # fmt: skip


@pytest.mark.parametrize(("values", "share"), read_rows(__file__, "tasks"))
def test_tasks_of_schedulers(values, share):
    assert parse_task(*evaluate(values, globals())) == Share(*evaluate(share))


@pytest.mark.parametrize(("values", "message"), read_rows(__file__, "refused tasks"))
def test_refused_tasks(values, message):
    with pytest.raises(CallError, match=message):
        parse_task(*evaluate(values, globals()))


def test_a_refused_task_is_wrong_usage(out, dataprep):
    assert "--task 4/4: " in refusal(dataprep, 2, "work", out, "--task", "4/4")


@pytest.mark.parametrize("shards", [0, 1, 7, 64])
@pytest.mark.parametrize("tasks", [1, 2, 5, 100])
def test_shares_are_even_and_cover_everything(shards, tasks):
    shares = [Share(task, tasks).numbers(shards) for task in range(tasks)]
    assert sorted(number for share in shares for number in share) == list(range(shards))
    assert max(map(len, shares)) - min(map(len, shares)) <= 1
