"""The sampler section of a PaddleClas config: supported samplers, ignored options, and wrong sections."""

import pytest
from helpers.rows import evaluate, read_rows

from loaders.samplers import PKSampler
from loaders.samplers.choose import configured_sampler
from manifests.errors import CallError


@pytest.mark.parametrize(("row", "expected"), read_rows(__file__, "sections"))
def test_sections_become_samplers(row, expected):
    expected = evaluate(expected, {"PKSampler": PKSampler})
    assert configured_sampler(evaluate(row), 12)[0] == expected


@pytest.mark.parametrize(("row", "message"), read_rows(__file__, "wrong sections are rejected"))
def test_wrong_sections_are_rejected(row, message):
    with pytest.raises(CallError) as caught:
        configured_sampler(evaluate(row), 12)
    assert message in str(caught.value)


def test_differences_from_paddleclas_are_noted():
    sampler, notes = configured_sampler({"name": "PKSampler", "sample_per_id": 4, "ratio": [2]}, 12)
    assert sampler == PKSampler(3, 4, weight="sample")
    assert notes == (
        f"the config's sampler PKSampler becomes {sampler!r}, which draws identities in rounds"
        " instead of independently",
        "the config's sampler.id_list and sampler.ratio are ignored: the listed identities are not"
        " drawn more often",
    )
    assert configured_sampler({"name": "WeightedRandomSampler"}, 12) == (
        None,
        (
            "the config's sampler WeightedRandomSampler is not supported and ignored: every sample"
            " is read once per epoch",
        ),
    )
