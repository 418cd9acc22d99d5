"""Bad input for `plan`, `work` and `finish`: one clear sentence, a documented exit status, and nothing lost."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dataprep.canary import canary
from dataprep.plan.files import read_plan
from dataprep.run import work as shard_tasks
from dataprep.run.work import Share, parse_task
from manifests.errors import CallError, PlanError
from manifests.serialization import seal

ONE = ("--workers", "1")


@pytest.fixture(scope="module")
def source(make_photos, tmp_path_factory):
    """The source of the plan. A test that changes it restores it."""
    return make_photos(tmp_path_factory.mktemp("source") / "photos", 24, side=16)


@pytest.fixture(scope="module")
def planned(source, dataprep, tmp_path_factory):
    folder = tmp_path_factory.mktemp("planned") / "out"
    assert (
        dataprep("plan", "--src", source, "--out", folder, "--samples-per-shard", 6).returncode == 0
    )
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


def test_a_worker_that_lost_its_source(out, source, dataprep, snapshot):
    source.rename(source.parent / "elsewhere")
    before = snapshot(out)
    line = refusal(dataprep, 3, "work", out, "--task", "0/4", *ONE)
    assert f"{source}: the source of the plan is not on this machine. Hint: mount it" in line
    assert {name: data for name, data in snapshot(out).items() if "tasks-" not in name} == {
        name: data for name, data in before.items() if "tasks-" not in name
    }
    (source.parent / "elsewhere").rename(source)
    assert dataprep("work", out, *ONE).returncode == 0
    assert dataprep("finish", out, *ONE).returncode == 0


def stored_tasks(out):
    plan = read_plan(str(out))
    return shard_tasks.stored_tasks(plan.job(str(out)), range(4), 1, plan)


# --- a plan that was edited -----------------------------------------------------------------------


def test_plan_json_edited_by_hand(out, source, dataprep, snapshot):
    path = out / ".dataprep" / "plan" / "plan.json"
    original = path.read_bytes()
    path.write_bytes(original.replace(b'"seed": 0', b'"seed": 1'))
    for command in ("work", "finish"):
        line = refusal(dataprep, 1, command, out, *ONE)
        assert (
            ".dataprep/plan/plan.json: the plan was changed after `dataprep plan` wrote it" in line
        )
        assert "run the same `dataprep plan` again; finished shards are kept" in line
    assert "was changed" in refusal(dataprep, 1, "info", out / ".dataprep" / "plan")
    assert dataprep("plan", "--src", source, "--out", out, "--samples-per-shard", 6).returncode == 0
    assert path.read_bytes() == original
    assert "1 shard was done by an earlier run" in dataprep("work", out, *ONE).stdout
    assert dataprep("finish", out, *ONE).returncode == 0


def test_the_source_table_edited_by_hand(out, dataprep):
    """A label is changed with pyarrow, and all row groups stay as they were."""
    path = out / ".dataprep" / "plan" / "source-00000.parquet"
    file = pq.ParquetFile(path)
    groups = [file.read_row_group(number) for number in range(file.num_row_groups)]
    labels = groups[2]["label"].to_pylist()
    groups[2] = groups[2].set_column(2, "label", pa.array(labels[::-1], pa.int32()))
    with pq.ParquetWriter(
        path, file.schema_arrow, compression="zstd", write_page_checksum=True
    ) as writer:
        for group in groups:
            writer.write_table(group)
    line = refusal(dataprep, 1, "work", out, "--task", "2/4", *ONE)
    assert "source-00000.parquet: the file was changed after `dataprep plan` wrote it" in line


def test_every_changed_byte_of_a_plan_is_noticed(out):
    """Each part of both files: a flipped bit is a `PlanError`, whatever it means."""
    tasks = stored_tasks(out)
    assert [len(task.keys) for task in tasks] == [6] * 4
    json_path, table = (
        out / ".dataprep" / "plan" / "plan.json",
        out / ".dataprep" / "plan" / "source-00000.parquet",
    )
    for path, read in ((json_path, lambda: read_plan(str(out))), (table, lambda: list(tasks))):
        original = path.read_bytes()
        for at in range(
            4 if path == table else 0, len(original), 61
        ):  # Arrow itself checks the first 4 bytes
            path.write_bytes(original[:at] + bytes([original[at] ^ 4]) + original[at + 1 :])
            with pytest.raises(PlanError):
                read()
        for length in (0, 1, 100, len(original) - 1):
            path.write_bytes(original[:length])
            with pytest.raises(PlanError):
                read()
        path.write_bytes(original)
    table.unlink()
    with pytest.raises(PlanError, match="cannot be read"):
        list(tasks)


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
    path = out / ".dataprep" / "plan" / "plan.json"
    body = {**json.loads(path.read_bytes()), member: value}
    del body["checksum"]
    path.write_bytes(seal(body))
    with pytest.raises(
        PlanError, match=r".dataprep/plan/plan\.json: the plan was changed .* Hint: "
    ):
        read_plan(str(out))


def test_labels_keys_and_paths_of_a_hostile_table(out):
    """The checksums are right, but the values would make a worker write outside of the folder, or fail."""
    from manifests.parquet import BoundedParquet

    folder = out / ".dataprep" / "plan"
    path = folder / "source-00000.parquet"
    table = pq.read_table(path)
    for column, value in (
        ("key", "../../x"),
        ("label", 99),
        ("source", "a\0b"),
        ("size", -7),
        ("shard", "other"),
    ):
        at = table.column_names.index(column)
        values = pa.array([value] * table.num_rows, table.schema.field(column).type)
        with pq.ParquetWriter(
            path, table.schema, compression="zstd", write_page_checksum=True
        ) as writer:
            for start in range(0, 24, 6):
                writer.write_table(table.set_column(at, column, values).slice(start, 6))
        with path.open("rb") as file:
            parquet = BoundedParquet(file, rows_per_byte=2)
            groups = "".join(map(parquet.group_checksum, range(4)))
            entry = {
                "name": path.name, "bytes": parquet.length, "footer": parquet.footer_checksum(),
                "groups": groups,
            }  # fmt: skip
        body = {**json.loads((folder / "plan.json").read_bytes()), "tables": [entry]}
        del body["checksum"]
        (folder / "plan.json").write_bytes(seal(body))
        with pytest.raises(
            PlanError, match=f"column '{column}' of shard train-00001 has a wrong value"
        ):
            stored_tasks(out)[1]


# --- two plans, no plan, other machines -----------------------------------------------------------


def test_two_plans_in_one_folder(out, source, dataprep, snapshot):
    before = snapshot(out)
    for command in ("plan", "convert"):
        line = refusal(
            dataprep, 2, command, "--src", source, "--out", out, "--samples-per-shard", 7
        )
        assert (
            "has the plan of another conversion; different: --samples-per-shard (6 in the folder, 7"
            " now)" in line
        )
    assert snapshot(out) == before
    again = dataprep("plan", "--src", source, "--out", out, "--samples-per-shard", 7, "--overwrite")
    assert again.returncode == 0, again.stderr
    assert not list(out.glob("train-*"))
    assert dataprep("work", out, *ONE).returncode == 0
    assert dataprep("finish", out, *ONE).returncode == 0
    replaced = dataprep(
        "convert", "--src", source, "--out", out, "--samples-per-shard", 8, "--overwrite", *ONE
    )
    assert replaced.returncode == 0, replaced.stderr
    assert not (out / ".dataprep" / "plan").exists(), "the plan is not that of the dataset any more"


def test_no_plan(dataprep, tmp_path):
    for command in ("work", "finish"):
        assert "does not exist" in refusal(dataprep, 2, command, tmp_path / "nowhere")
        assert "contains no plan. Hint: run `dataprep plan" in refusal(
            dataprep, 2, command, tmp_path
        )


def with_body(out, **members):
    path = out / ".dataprep" / "plan" / "plan.json"
    body = {**json.loads(path.read_bytes()), **members}
    del body["checksum"]
    path.write_bytes(seal(body))


@pytest.mark.parametrize("command", ["work", "finish", "convert", "plan"])
def test_a_plan_of_another_release_or_library(command, out, source, dataprep, snapshot):
    versions = {**canary().versions, "dataprep": "9.9.9", "Pillow": "1.2.3"}
    with_body(out, canary="0" * 32, versions=versions)
    before = snapshot(out)
    inputs = (
        (out, *ONE)
        if command in ("work", "finish")
        else ("--src", source, "--out", out, "--samples-per-shard", 6)
    )
    line = refusal(dataprep, 3, command, *inputs)
    assert (
        "the plan was made with dataprep 9.9.9, Pillow 1.2.3, but this machine has dataprep" in line
    )
    assert snapshot(out) == before


def test_a_plan_of_a_later_version(out, dataprep):
    with_body(out, plan_version=3)
    line = refusal(dataprep, 1, "work", out, *ONE)
    assert (
        "the plan has plan_version 3, but this release reads 1 to 2. Hint: use the release that"
        " made the plan" in line
    )


def test_another_run_in_the_folder(out, source, dataprep):
    from dataprep import storage

    with storage.locked(str(out), shared=True):  # as `work` has it
        convert = ("convert", "--src", source, "--out", out, "--samples-per-shard", 6)
        assert "another run is working in this folder" in refusal(dataprep, 3, *convert)
        assert dataprep("work", out, *ONE).returncode == 0
    with storage.locked(str(out)):  # as `convert` has it
        assert "another run is working in this folder" in refusal(dataprep, 3, "work", out, *ONE)
        assert "another run is working in this folder" in refusal(dataprep, 3, "finish", out, *ONE)


def test_a_file_of_another_tool_under_the_name_of_a_shard(out, dataprep):
    (out / "train-00002.tfrecord").write_bytes(b"precious")
    line = refusal(dataprep, 2, "work", out, "--task", "2/4", *ONE)
    assert "train-00002.tfrecord" in line
    assert (out / "train-00002.tfrecord").read_bytes() == b"precious"


# --- the number of the task -----------------------------------------------------------------------


@pytest.mark.parametrize(
    "text",
    [
        "4/4", "0/0", "-1/4", "1", "1/", "a/b", "1/4/2", "auto/x", "", "0/99999999",
        "\N{FULLWIDTH DIGIT ONE}/2",
    ],
)  # fmt: skip
def test_wrong_tasks(text, out, dataprep):
    assert "--task" in refusal(dataprep, 2, "work", out, "--task", text)


SLURM = {"SLURM_ARRAY_TASK_COUNT": "8", "SLURM_ARRAY_TASK_MIN": "1", "SLURM_ARRAY_TASK_MAX": "8"}


@pytest.mark.parametrize(
    ("text", "environment", "share"),
    [
        ("0/2", {}, Share(0, 2)),
        ("1/2", {"SLURM_ARRAY_TASK_ID": "7"}, Share(1, 2)),
        ("auto", {**SLURM, "SLURM_ARRAY_TASK_ID": "1"}, Share(0, 8)),
        ("auto", {**SLURM, "SLURM_ARRAY_TASK_ID": "8"}, Share(7, 8)),
        ("auto", {"SLURM_ARRAY_TASK_COUNT": "3", "SLURM_ARRAY_TASK_MIN": "10", "SLURM_ARRAY_TASK_MAX": "18",
                  "SLURM_ARRAY_TASK_STEP": "4", "SLURM_ARRAY_TASK_ID": "14"}, Share(1, 3)),
        ("auto/8", {**SLURM, "SLURM_ARRAY_TASK_ID": "5"}, Share(5, 8)),
        ("auto/8", {"SLURM_ARRAY_TASK_ID": "5"}, Share(5, 8)),
        ("auto/4", {"JOB_COMPLETION_INDEX": "3"}, Share(3, 4)),
    ],
)  # fmt: skip
def test_tasks_of_schedulers(text, environment, share):
    assert parse_task(text, environment) == share


@pytest.mark.parametrize(
    ("text", "environment", "message"),
    [
        ("auto", {}, "neither SLURM_ARRAY_TASK_ID nor JOB_COMPLETION_INDEX is set"),
        (
            "auto",
            {"JOB_COMPLETION_INDEX": "3"},
            r"Hint: write --task auto/N with the number of `completions`",
        ),
        ("auto/3", {"JOB_COMPLETION_INDEX": "3"}, "there is no task 3 of 3"),
        (
            "auto/8",
            {**SLURM, "SLURM_ARRAY_TASK_ID": "8"},
            r"there is no task 8 of 8\. Hint: submit with --array=0-7",
        ),
        (
            "auto",
            {**SLURM, "SLURM_ARRAY_TASK_COUNT": "2", "SLURM_ARRAY_TASK_ID": "1"},
            "are not consecutive",
        ),
        ("auto", {**SLURM, "SLURM_ARRAY_TASK_ID": "x"}, "is not a number"),
        ("auto", {"SLURM_ARRAY_TASK_ID": "1"}, "SLURM_ARRAY_TASK_COUNT='' is not a number"),
    ],
)
def test_what_schedulers_do_not_tell(text, environment, message):
    with pytest.raises(CallError, match=message):
        parse_task(text, environment)


@pytest.mark.parametrize("shards", [0, 1, 7, 64])
@pytest.mark.parametrize("tasks", [1, 2, 5, 100])
def test_shares_are_even_and_cover_everything(shards, tasks):
    shares = [Share(task, tasks).numbers(shards) for task in range(tasks)]
    assert sorted(number for share in shares for number in share) == list(range(shards))
    assert max(map(len, shares)) - min(map(len, shares)) <= 1


def test_a_copied_output_folder_continues(out, source, dataprep, tmp_path):
    """Nothing in OUT names OUT, so it can be moved between the steps."""
    copy = tmp_path / "copy"
    shutil.copytree(out, copy)
    assert dataprep("work", copy, *ONE).returncode == 0
    assert dataprep("finish", copy, *ONE).returncode == 0
    assert sorted(os.listdir(copy / ".dataprep" / "plan")) == ["plan.json", "source-00000.parquet"]


def test_a_plan_is_not_written_to_a_web_server(source, dataprep):
    line = refusal(dataprep, 2, "plan", "--src", source, "--out", "https://host/out")
    assert "--out https://host/out can only be read" in line
