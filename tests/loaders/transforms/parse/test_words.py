"""Notes and refusals of words; the records of batches say what each word does."""

from __future__ import annotations

import pytest
from helpers.parsing import parse_notes, recipe_error
from helpers.rows import evaluate, read_rows


@pytest.mark.parametrize(("row", "part"), read_rows(__file__, "notes"))
def test_notes_state_differences(row: str, part: str) -> None:
    name, arguments = evaluate(row)
    notes = parse_notes(name, **arguments)
    assert part in notes
    assert bool(part) == bool(notes)


@pytest.mark.parametrize(("text", "message"), read_rows(__file__, "refused"))
def test_words_are_refused_by_name(text: str, message: str) -> None:
    item = evaluate(text)
    error = recipe_error([{"CropImage": {"size": 8}}, item])
    assert error.startswith("transforms[1]: ")
    assert message in error
    assert next(iter(item)) in error
