"""A progress bar of a step that has several parts, each with its own number of images."""

from __future__ import annotations

from dataprep.commands import console as progress_bars
from dataprep.commands.console import ProgressBar


class Display:
    def __init__(self, events, state):
        self.events = events
        events.append(("open", state.total))

    def show(self, state):
        pass

    def close(self, state):
        self.events.append(("close", state.done, state.total))


def test_each_part_is_closed_before_the_next_begins(monkeypatch):
    events = []
    monkeypatch.setattr(progress_bars, "_make_display", lambda step, state: Display(events, state))
    with ProgressBar("comparing") as bar:
        bar.start(10, 1)
        bar.advance("1", 10)
        bar.start(4, 2)
        bar.advance("1", 3)
    assert events == [("open", 10), ("close", 10, 10), ("open", 4), ("close", 3, 4)]
