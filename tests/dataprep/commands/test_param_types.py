"""Values of options that click has no types for."""

import click
import pytest

from dataprep.commands.base import Count


def test_a_count_fits_into_64_bits():
    assert Count(1).convert(str(2**63 - 1), None, None) == 2**63 - 1
    with pytest.raises(click.BadParameter, match="is more than 9223372036854775807"):
        Count(1).convert(str(2**63), None, None)
