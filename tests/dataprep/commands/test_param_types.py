"""Values of options that click has no types for."""

import click
import pytest

from dataprep.commands.base import Count, Fraction


@pytest.mark.parametrize(
    ("text", "number"),
    [("0.02", 0.02), ("2%", 0.02), (" 2.5 % ", 0.025), ("100%", 1.0), ("0", 0.0)],
)
def test_a_fraction_may_be_a_percentage(text, number):
    assert Fraction(0, 1).convert(text, None, None) == pytest.approx(number)


def test_a_count_fits_into_64_bits():
    assert Count(1).convert(str(2**63 - 1), None, None) == 2**63 - 1
    with pytest.raises(click.BadParameter, match="is more than 9223372036854775807"):
        Count(1).convert(str(2**63), None, None)
