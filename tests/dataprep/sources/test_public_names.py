"""The names that other modules may import from `dataprep.sources`."""

from __future__ import annotations

from dataprep import sources


def test_public_names_are_frozen():
    assert set(sources.__all__) == {"Source", "SourceOptions", "UNREADABLE", "read_source"}
