"""The command line: messages and exit statuses. No error prints a traceback."""

from __future__ import annotations

import errno
import re
import subprocess
import sys

import click
import pytest
from click.testing import CliRunner
from helpers.rows import evaluate, read_rows

from dataprep import storage
from dataprep.commands.base import Command, byte_size
from manifests import errors
from manifests.store import read_manifest

COMMANDS = (
    *("convert", "plan", "work", "finish", "index", "verify", "info", "report"),
    *("repair", "revert", "diff", "duplicates", "join", "remove", "sync"),
)


@pytest.fixture
def out(tmp_path):
    return tmp_path / "out put"


def files(folder):
    return {path.name: path.read_bytes() for path in folder.glob("[!.]*")}


# --- help ---------------------------------------------------------------------------------------


#: Calls the help of every command, and prints the modules that were imported.
HELP_OF_ALL = """
import sys
from click.testing import CliRunner
from dataprep.commands.base import main
for call in (["--help"], ["convert"], *([command, "--help"] for command in sys.argv[1:])):
    assert CliRunner().invoke(main, call).output
print(*{name.partition(".")[0] for name in sys.modules})
"""
HEAVY = {"numpy", "pyarrow", "torch", "nvidia", "PIL", "awscrt", "webdataset", "loaders"}


def test_help_imports_nothing_heavy():
    command = [sys.executable, "-c", HELP_OF_ALL, *COMMANDS]
    modules = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()
    assert "dataprep" in modules
    assert not HEAVY & {*modules}


# --- exit statuses ------------------------------------------------------------------------------


@pytest.mark.parametrize(("row", "message"), read_rows(__file__, "results"))
def test_a_command_ends_with_one_line_and_a_status(row, message):
    result, status = evaluate(row, vars(errors))
    hints = {errno.errorcode[number]: hint for number, hint in errors.HINTS.items()}

    @click.command(cls=Command)
    def command():
        if isinstance(result, BaseException):
            raise result
        return result

    done = CliRunner().invoke(command)
    assert (done.exit_code, done.stdout) == (status, "")
    assert done.stderr.strip() == message.format_map(hints).removeprefix("nothing")


def test_a_bug_is_one_line_that_says_what_to_report(monkeypatch):
    @click.command(cls=Command)
    def fail():
        byte_size(None)  # any code of ours

    done = CliRunner().invoke(fail)
    assert (done.exit_code, done.stdout) == (3, "")
    (line,) = done.stderr.splitlines()
    assert line.startswith("dataprep: a bug in dataprep stopped it: TypeError: ")
    assert re.search(
        r"\(manifests/process/text\.py, line \d+\)\. Finished shards are kept\. Hint: please report this"
        r" line",
        line,
    )
    monkeypatch.setenv("DATAPREP_DEBUG", "1")
    assert "Traceback (most recent call last)" in CliRunner().invoke(fail).stderr


# --- convert ------------------------------------------------------------------------------------


@pytest.mark.parametrize("change", [["--seed", 1], ["--fmt", "webdataset"]])
def test_a_dry_run_refuses_what_convert_refuses(image_folder, out, convert, change):
    def refused(*options, status):
        dry = convert(image_folder, out, *options, "--dry-run", status=status)
        assert dry.stdout == ""
        assert dry.stderr == convert(image_folder, out, *options, status=status).stderr
        return dry.stderr

    convert(image_folder, out)
    before = files(out)
    message = "which was not made from this source with these options"
    assert message in refused(*change, status=2)
    replaced = convert(image_folder, out, *change, "--dry-run", "--overwrite")
    assert "to do" not in replaced.stdout
    with storage.locked(str(out)):
        message = "another run is working in this folder. Hint: wait until it ends."
        assert message in refused(status=3)
    convert(image_folder, out, "--dry-run")
    assert files(out) == before


@pytest.mark.parametrize("splits", [("train/", "val/"), ("",)], ids=["of a split", "at all"])
def test_no_valid_images(splits, jpegs, tmp_path, out, convert, invoke):
    source = tmp_path / "source"
    for split, data in zip(splits, (b"broken", jpegs[0]), strict=False):
        path = source / f"{split}class/1.jpg"
        path.parent.mkdir(parents=True)
        path.write_bytes(data)
    convert(source, out, status=1)
    for call in (["info", out], ["info", out, "--json"], ["verify", out]):
        invoke(*call)
    before = files(out)
    convert(source, out, status=1)
    assert files(out) == before


# --- wrong usage --------------------------------------------------------------------------------


@pytest.mark.parametrize("dry", [False, True], ids=["convert", "dry run"])
@pytest.mark.parametrize(("row", "message"), read_rows(__file__, "wrong"))
def test_wrong_usage_of_convert(image_folder, tmp_path, monkeypatch, invoke, row, message, dry):
    arguments = evaluate(row)
    monkeypatch.chdir(tmp_path)
    named = {"src": image_folder, "none": tmp_path / "none", "file": tmp_path / "file.txt"}
    named["file"].write_text("nothing\n")
    if dry and "{file}" in message:
        pytest.skip("only a run that writes reports this")
    arguments = [argument.format(**named) for argument in arguments]
    result = invoke("convert", *arguments, *(["--dry-run"] if dry else []), status=2)
    assert message.format(**named) in result.stderr
    assert result.stdout == ""
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file.txt"]
    other = ("Usage:", "Try ", "note:")
    lines = [line for line in result.stderr.splitlines() if line and not line.startswith(other)]
    assert len(lines) <= 2


def test_classes_from_a_file(image_folder, tmp_path, out, convert):
    names = tmp_path / "names.txt"
    names.write_bytes("\ufeff日本\r\ncat\r\nein Häßlicher Name\r\nmore\r\n".encode())
    result = convert(image_folder, out, "--classes", names)
    assert "1 of 4 classes has no images: more" in result.stderr
    assert read_manifest(out).classes[0] == "日本"
    # The first repeated name is near the end of many: comparing each with all others would take
    # minutes.
    many = "".join(f"{number}\n" for number in range(100_000))
    for content, message in (
        (f"{many}99999\n", "names.txt, line 100001: class '99999' is listed"),
        ("a\nb\udcff\n", "cannot be read: 'utf-8' codec can't decode byte 0xff"),
        ("cat\n", "not in --classes"),
    ):
        names.write_text(content, errors="surrogateescape")
        assert message in convert(image_folder, out, "--classes", names, status=2).stderr
