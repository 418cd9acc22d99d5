"""Notes of words that differ from their library; the records of batches say what each word does."""

from __future__ import annotations

import pytest
from helpers.parsing import parse_notes
from helpers.rows import evaluate, read_rows


@pytest.mark.parametrize(("row", "part"), read_rows(__file__, "notes"))
def test_notes_state_differences(row: str, part: str) -> None:
    name, arguments = evaluate(row)
    notes = parse_notes(name, **arguments)
    assert part in notes
    assert bool(part) == bool(notes)
