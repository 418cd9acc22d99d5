"""What words refuse: the message names the argument and the limit."""

from __future__ import annotations

import pytest
from helpers.parsing import recipe_error
from helpers.rows import evaluate, read_rows

CROP = {"CropImage": {"size": 8}}


@pytest.mark.parametrize(("text", "message"), read_rows(__file__, "refused"))
def test_words_are_refused_by_name(text: str, message: str) -> None:
    item = evaluate(text)
    error = recipe_error([CROP, item])
    assert error.startswith("transforms[1]: ")
    assert message in error
    assert next(iter(item)) in error
