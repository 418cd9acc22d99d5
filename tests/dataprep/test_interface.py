"""The commands as functions."""

from __future__ import annotations

import asyncio
import inspect
import json

import click
import pytest
from helpers.rows import evaluate, read_rows

import dataprep
from dataprep.commands.base import DeclaredOption, main


@pytest.fixture
def source(make_photos, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return make_photos(tmp_path / "photos", 12, classes=2)


def test_public_names_are_frozen():
    errors = ["CallError", "DamagedError", "DataProblemError", "DatasetError"]
    assert dataprep.__all__ == [*errors, "convert", "diff", "index", "info", "join", "verify"]
    assert [name for name in dir(dataprep) if not hasattr(dataprep, name)] == []


@pytest.mark.parametrize("name", ["convert", "diff", "index", "info", "join", "verify"])
def test_help_shows_every_option(name):
    function = getattr(dataprep, name)
    command = main.get_command(click.Context(main), name)
    names = [each.name for each in command.params if isinstance(each, DeclaredOption)]
    missing = {each for each in names if each not in inspect.signature(function).parameters}
    assert missing <= {"json"}
    described = [each for each in names if f"\n    {each}: " in function.__doc__]
    assert {*names} - {*described} <= {"json", "src", "out"}


def test_a_dataset_is_converted_read_and_appended_to(source, make_photos, capfd):
    planned = dataprep.convert(source, val_fraction=0.25, dry_run=True)
    made = asyncio.run(convert_in_a_loop(source))
    assert made["out"] == planned["out"] == "photos-tfrecord"
    assert {name: split["samples"] for name, split in made["splits"].items()} == {
        name: split["samples"] for name, split in planned["splits"].items()
    }
    assert made["messages"] == [f"{source}: ImageFolder, 12 images in 2 classes"]
    assert dataprep.verify(made["out"], decode=True)["samples"] == 12
    assert dataprep.info(made["out"])["samples"] == 12
    more = make_photos(source.with_name("more"), 15, classes=3)
    added = dataprep.convert([source, more], made["out"], append=True, shard_size="1MiB")
    assert (added["revision"], added["new_classes"]) == (1, ["class 2"])
    assert dataprep.diff(made["out"], made["out"])["equal"]
    (source.parent / "a.csv").write_text("key,a\n00000000,1\n")
    joined = dataprep.join(made["out"], "a.csv", on="key", missing="null")
    assert (joined["revision"], joined["columns"], joined["without_row"]) == (2, ["a"], 22)
    json.dumps([planned, made, added])
    assert capfd.readouterr() == ("", "")


async def convert_in_a_loop(source):
    return await asyncio.to_thread(dataprep.convert, source, val_fraction=0.25)


def test_problems_of_the_data_are_errors_with_the_result(source):
    (source / "class 0" / "bad.jpg").write_bytes(b"no image")
    with pytest.raises(dataprep.DataProblemError, match=r"--max-rejected 0\.01") as caught:
        dataprep.convert(source, "out", samples_per_shard=6)
    assert caught.value.result["rejected"] == 1
    made = dataprep.convert(source, "out", max_rejected=0.5, samples_per_shard=6)
    assert (made["rejected"], made["resumed"]) == (1, 3)
    shard = source.parent / "out" / "train-00000.tfrecord"
    shard.write_bytes(shard.read_bytes()[:-3])
    with pytest.raises(
        dataprep.DataProblemError, match=r"in out\. The first one: train-0"
    ) as caught:
        dataprep.verify("out")
    assert caught.value.result["problems"][0]["file"] == "train-00000.tfrecord"
    with pytest.raises(dataprep.DataProblemError, match="1 shard cannot be indexed"):
        dataprep.index("out", overwrite=True)


@pytest.mark.parametrize(("row", "message"), read_rows(__file__, "wrong options are refused"))
def test_wrong_options_are_refused(row, message, source):
    options = evaluate(row)
    source.with_name("file").write_bytes(b"")
    with pytest.raises(dataprep.DatasetError) as caught:
        dataprep.convert(**{"src": source, **options})
    assert message in str(caught.value)
