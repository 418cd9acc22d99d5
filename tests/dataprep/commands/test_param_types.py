"""Values of options that click has no types for."""

import pytest

from dataprep.commands.param_types import Fraction


@pytest.mark.parametrize(
    ("text", "number"), [("0.02", 0.02), ("2%", 0.02), (" 2.5 % ", 0.025), ("100%", 1.0), ("0", 0.0)]
)
def test_a_fraction_may_be_a_percentage(text, number):
    assert Fraction(0, 1).convert(text, None, None) == pytest.approx(number)
