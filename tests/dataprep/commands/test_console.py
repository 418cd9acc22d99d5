"""What commands print on stderr: JSON events, notes, what an interrupted run keeps.

And the completion of shells.
"""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from dataprep.commands.base import Count, main
from dataprep.run import work as work_module


@pytest.fixture
def out(tmp_path):
    return tmp_path / "out"


def events(result):
    return [json.loads(line) for line in result.stderr.splitlines()]


@pytest.mark.parametrize(
    "arguments", [("verify", "missing"), ("verify", "--no-such-option", "missing")]
)
def test_errors_are_events_too(arguments, invoke):
    error, result = events(invoke(*arguments, "--log-json", status=2))
    assert (error["event"], result["event"], result["status"]) == ("error", "result", 2)


def test_quiet_prints_results_only(image_folder, out, invoke):
    result = invoke("convert", "--src", image_folder, "--out", out, "--workers", 1, "--quiet")
    assert result.stderr == ""
    assert result.stdout.splitlines()[-1] == f"{out} is complete"


def test_quiet_and_verbose_exclude_each_other(invoke):
    assert "exclude each other" in invoke("verify", "x", "--quiet", "--verbose", status=2).stderr


def test_verbose_says_what_became_of_each_shard(image_folder, out, invoke):
    call = ["convert", "--src", image_folder, "--out", out, "--samples-per-shard", 7]
    assert "written" not in invoke(*call).stderr
    (out / "train-00000.idx").unlink()
    lines = invoke(*call, "--verbose").stderr.splitlines()
    shards = [line for line in lines if line.startswith("dataprep.run.work: train-")]
    assert ["written" in line for line in sorted(shards)] == [True, False]
    reason = "written again, because its files are missing or damaged"
    assert f"dataprep.run.prepare: train-00000: {reason}" in lines
    lines = invoke("verify", out, "--verbose").stderr.splitlines()
    assert "dataprep.verification.verify: train-00001.tfrecord: 7 samples, 0 problems" in lines


def test_the_log_is_an_event_with_its_logger(image_folder, out, invoke):
    call = ("convert", "--src", image_folder, "--out", out, "--workers", 1, "--log-json")
    assert "log" not in {event["event"] for event in events(invoke(*call))}
    found = events(invoke(*call, "--overwrite", "--verbose"))
    assert "dataprep.run.work" in {event["logger"] for event in found if event["event"] == "log"}


def test_an_interrupted_conversion_says_how_many_shards_are_kept(
    image_folder, out, invoke, monkeypatch
):
    write, written = work_module.write_shard, []

    def interrupted(task, pool=None):
        if len(written) == 2:
            raise KeyboardInterrupt
        written.append(task.name)
        return write(task, pool)

    monkeypatch.setattr(work_module, "write_shard", interrupted)
    call = ["convert", "--src", image_folder, "--out", out, "--samples-per-shard", 4]
    last = invoke(*call, status=130).stderr.splitlines()[-1]
    assert last.endswith(
        ": interrupted. Run the same command again; 2 of 4 shards are finished and kept."
    )
    assert len(list(out.glob("*.parquet"))) == 2


@pytest.mark.parametrize(
    ("name", "word", "completed"), [("dataprep", "ver", "verify"), ("loaders", "ben", "bench")]
)
def test_the_completion_script_completes_commands(name, word, completed):
    """In bash; the scripts for other shells are those of click, too."""
    program = Path(sys.executable).with_name(name)
    environment = {**os.environ, "PATH": f"{program.parent}:{os.environ['PATH']}"}
    source = {**environment, f"_{name.upper()}_COMPLETE": "bash_source"}
    output = {"capture_output": True, "text": True}
    script = subprocess.run([program], check=True, env=source, **output).stdout
    call = f"COMP_WORDS=({name} {word}); COMP_CWORD=1; _{name}_completion {name}"
    whole = f'{script}\n{call}; echo "${{COMPREPLY[@]}}"'
    done = subprocess.run(["bash", "-c", whole], check=True, env=environment, **output)
    assert (done.stdout.split(), done.stderr) == ([completed], "")


def printed(command: str, help_option: str) -> list[str]:
    text = CliRunner().invoke(main, [command, help_option], terminal_width=80).stdout
    return re.findall(r"^  (?:-h, )?(--[a-z-]+)", text, re.MULTILINE)


@pytest.mark.parametrize("command", ["convert", "plan"])
def test_the_help_shows_the_options_that_most_people_need(command):
    shown, everything = printed(command, "--help"), printed(command, "--help-all")
    assert len(shown) <= 30
    assert set(shown) < set(everything)
    rare = "max-classes max-pixels filter subsampling only-above label-separator log-json distance"
    assert {f"--{name}" for name in rare.split()} <= set(everything) - set(shown)


def test_a_count_fits_into_64_bits():
    assert Count(1).convert(str(2**63 - 1), None, None) == 2**63 - 1
    with pytest.raises(click.BadParameter, match="is more than 9223372036854775807"):
        Count(1).convert(str(2**63), None, None)
