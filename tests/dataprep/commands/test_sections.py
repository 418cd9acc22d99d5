"""The help of a command with many options has a heading for each subject."""

from __future__ import annotations

import re

import pytest
from click.testing import CliRunner

from dataprep.cli import main
from dataprep.commands.convert import convert

HEADINGS = [
    "Source and output",
    "Reading the source",
    "Labels",
    "Splits and duplicates",
    "Shards",
    "Images",
    "Options",
]


def printed(command: str, help_option: str) -> list[str]:
    text = CliRunner().invoke(main, [command, help_option], terminal_width=80).stdout
    return re.findall(r"^  (?:-h, )?(--[a-z-]+)", text, re.MULTILINE)


def test_each_option_is_printed_once_under_its_heading():
    text = CliRunner().invoke(main, ["convert", "--help-all"]).stdout
    assert re.findall(r"^([A-Z][a-z ]+):$", text, re.MULTILINE) == HEADINGS
    declared = [option for parameter in convert.params for option in parameter.opts]
    assert sorted(printed("convert", "--help-all")) == sorted([*declared, "--help"])


@pytest.mark.parametrize("command", ["convert", "plan"])
def test_the_help_shows_the_options_that_most_people_need(command):
    shown, everything = printed(command, "--help"), printed(command, "--help-all")
    assert len(shown) <= 30
    assert set(shown) < set(everything)
    rare = "max-classes max-pixels filter subsampling only-above label-separator log-json distance"
    assert {f"--{name}" for name in rare.split()} <= set(everything) - set(shown)


def test_the_help_of_convert_has_three_examples_and_a_short_text_about_sources():
    text = CliRunner().invoke(main, ["convert", "--help"], terminal_width=80).stdout
    assert len(re.findall(r"^  dataprep convert --src \S+ .+$", text, re.MULTILINE)) == 3
    about_sources = text.partition("--src SRC ")[2].partition("--out OUT")[0]
    assert len(about_sources.splitlines()[:-1]) == 3
    assert "docs/sources.md" in about_sources


def test_a_command_without_sections_has_one_heading():
    text = CliRunner().invoke(main, ["verify", "--help"]).stdout
    assert re.findall(r"^([A-Z][a-z ]+):$", text, re.MULTILINE) == ["Options"]
    assert "--help-all" not in text
    assert not re.search(r"^  [A-Z]+$", text, re.MULTILINE)  # OUT is no option


def test_the_list_of_commands_has_whole_sentences():
    text = CliRunner().invoke(main, ["--help"]).stdout
    assert "work" in text
    assert "..." not in text.partition("\nCommands:\n")[2]
