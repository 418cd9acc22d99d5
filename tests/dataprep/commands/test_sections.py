"""The help of a command with many options has a heading for each subject."""

from __future__ import annotations

import re

from click.testing import CliRunner

from dataprep.cli import main
from dataprep.commands.group import main as group

HEADINGS = [
    "Source and output",
    "Reading the source",
    "Labels",
    "Splits and duplicates",
    "Shards",
    "Images",
    "Options",
]


def test_each_option_is_printed_once_under_its_heading():
    text = CliRunner().invoke(main, ["convert", "--help"]).stdout
    assert re.findall(r"^([A-Z][a-z ]+):$", text, re.MULTILINE) == HEADINGS
    printed = re.findall(r"^  (?:-h, )?(--[a-z-]+)", text, re.MULTILINE)
    declared = [
        option for parameter in group.commands["convert"].params for option in parameter.opts
    ]
    assert sorted(printed) == sorted([*declared, "--help"])


def test_a_command_without_sections_has_one_heading():
    text = CliRunner().invoke(main, ["verify", "--help"]).stdout
    assert re.findall(r"^([A-Z][a-z ]+):$", text, re.MULTILINE) == ["Options"]
    assert not re.search(r"^  [A-Z]+$", text, re.MULTILINE)  # OUT is no option


def test_the_list_of_commands_has_whole_sentences():
    text = CliRunner().invoke(main, ["--help"]).stdout
    assert "work" in text
    assert "..." not in text.partition("\nCommands:\n")[2]
