"""`scripts/soak.py` for some steps of a life in a folder; and it notices a sample that is lost."""

import os

import pytest


@pytest.fixture
def soak(scripts, monkeypatch):
    script = scripts("soak")
    monkeypatch.setattr(script, "find_weed", lambda: None)
    monkeypatch.setattr(os, "environ", os.environ.copy())
    return script


def test_steps(soak, monkeypatch, capsys):
    steps = ("append", "join", "remove", "repair", "revert")
    monkeypatch.setattr(soak, "STEPS", dict.fromkeys(steps, 1))
    assert soak.main(["--seed", "7", "--lives", "1", "--steps", "4"]) == 0
    output = capsys.readouterr().out
    assert "'steps': 4" in output, output


def test_a_lost_sample_is_noticed(soak, monkeypatch, capsys):
    class Lost(soak.Life):
        def convert(self):
            super().convert()
            self.history[-1].popitem()

    monkeypatch.setattr(soak, "Life", Lost)
    assert soak.main(["--first", "2", "--lives", "1"]) == 1
    assert "to repeat it: scripts/soak --seed 0 --first 2" in capsys.readouterr().out
