"""The help of a command with many options has a heading for each subject."""

from __future__ import annotations

import re

import pytest
from click.testing import CliRunner

from dataprep.commands.base import main


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


def test_the_list_of_commands_has_whole_sentences():
    text = CliRunner().invoke(main, ["--help"]).stdout
    assert "work" in text
    assert "..." not in text.partition("\nCommands:\n")[2]
