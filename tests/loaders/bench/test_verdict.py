"""The sentence of `loaders bench`: it names the stage that is the limit, and a remedy that was measured."""

import pytest
from helpers.bench import make_results, rate
from helpers.rows import evaluate, read_rows
from hypothesis import given
from hypothesis import strategies as st

from loaders.bench.results import ModelRates, Remedy, choose_remedy, sentence

AT_256 = Remedy(
    "with shards at 256 px", "run `dataprep convert --resize-shorter 256`", rate(38_000)
)
AS_RAW = Remedy("with raw pixels at 256 px", "run `dataprep convert --store raw`", rate(95_000))
DECODING = (67_000, 21_900, 21_500, 21_300)


BOTH = [AT_256, AS_RAW]
LOAD_1 = Remedy("with hw_decoder_load=1.0", "pass hw_decoder_load=1.0", rate(4_610))


def resnet50(fed, *remedies):
    return ModelRates("resnet50", rate(4_700), rate(fed), remedies)


@pytest.mark.parametrize(("row", "text"), read_rows(__file__, "sentences"))
def test_sentences(row, text):
    results = evaluate(row, globals(), {"make_results": make_results})
    assert sentence(results) == text


positive = st.floats(1, 1e6)


@given(st.lists(positive, max_size=5), positive, st.none() | positive)
def test_the_remedy_is_faster_and_the_cheapest_that_is_enough(rates, current, needed):
    remedies = [Remedy(f"with {number}", "do it", rate(each)) for number, each in enumerate(rates)]
    found = choose_remedy(rate(current), remedies, needed=None if needed is None else rate(needed))
    faster = [each for each in remedies if each.rate.median > 1.01 * current]
    if found is None:
        assert not faster
        return
    assert found in faster
    enough = [each for each in faster if needed is None or each.rate.median >= needed]
    fastest = max(each.rate.median for each in faster)
    assert found == enough[0] if enough else found.rate.median == fastest
