"""The sentence of `loaders bench`: it names the stage that is the limit, and a remedy that was measured."""

from __future__ import annotations

import pytest
from helpers.bench import make_results, rate
from hypothesis import given
from hypothesis import strategies as st

from loaders.bench.results import (
    ModelRates,
    Remedy,
    added_times,
    choose_remedy,
    limiting_stage,
    sentence,
)

AT_256 = Remedy(
    "with shards at 256 px", "run `dataprep convert --resize-shorter 256`", rate(38_000)
)
AS_RAW = Remedy("with raw pixels at 256 px", "run `dataprep convert --store raw`", rate(95_000))
DECODING = (67_000, 21_900, 21_500, 21_300)


BOTH = [AT_256, AS_RAW]
LOAD_1 = Remedy("with hw_decoder_load=1.0", "pass hw_decoder_load=1.0", rate(4_610))


def resnet50(fed, *remedies):
    return ModelRates("resnet50", rate(4_700), rate(fed), remedies)


@pytest.mark.parametrize(
    ("results", "text"),
    [
        (
            make_results(DECODING, BOTH, resnet50(4_650)),
            "decoding is the limit: 21,300 images/s; 38,000 with shards at 256 px; your model needs"
            " 4,700: nothing to do",
        ),
        (
            make_results(DECODING, BOTH),
            "decoding is the limit: 21,300 images/s; 38,000 with shards at 256 px: "
            "run `dataprep convert --resize-shorter 256`",
        ),
        (
            make_results(DECODING, BOTH, ModelRates("tiny", rate(60_000), rate(20_000))),
            "decoding is the limit: 21,300 images/s; 95,000 with raw pixels at 256 px; your model"
            " could take 60,000 and gets 20,000: run `dataprep convert --store raw`",
        ),
        (
            make_results(DECODING, [AT_256], resnet50(4_340, LOAD_1)),
            "decoding is the limit: 21,300 images/s; 38,000 with shards at 256 px; your model needs"
            " 4,700 and gets 4,340, because the loader works beside it, 4,610 with"
            " hw_decoder_load=1.0: pass hw_decoder_load=1.0",
        ),
        (
            make_results(DECODING, [], resnet50(4_000)),
            "decoding is the limit: 21,300 images/s; your model needs 4,700 and gets 4,000, because"
            " the loader works beside it: run `loaders tune` with --model",
        ),
        (  # the difference of 11 % may be noise
            make_results(DECODING, [], ModelRates("noisy", rate(24_000, 0.2), rate(21_000))),
            "decoding is the limit: 21,300 images/s; your model needs 24,000: nothing to do",
        ),
        (
            make_results((300_000, 90_000, 88_000, 87_000), raw=True),
            "unpacking is the limit: 87,000 images/s: run `loaders tune`",
        ),
        (
            make_results((9_000, 8_800, 1_000, 990)),
            "augmentation is the limit: 990 images/s: run `loaders tune`",
        ),
        (  # the first stage read from the disk, and the others from the page cache
            make_results((2_000, 21_900, 21_500, 21_300), model=resnet50(4_690)),
            "reading is the limit: 2,000 images/s; your model could take 4,700: run `loaders tune`"
            " with --model",
        ),
        (
            make_results(DECODING, other_cores=8.0),
            "decoding is the limit: 21,300 images/s: run `loaders tune`; other programs were busy,"
            " so measure again on an idle machine before you act",
        ),
    ],
)
def test_sentences(results, text):
    assert sentence(results) == text


def test_a_slower_stage_within_the_noise_is_not_the_limit():
    # Delivery adds more time than decoding, but so little that it may be chance.
    noisy = {
        "reading": rate(300),
        "decoding": rate(280, 0.1),
        "augmentation": rate(279, 0.1),
        "delivery": rate(257, 0.1),
    }
    assert limiting_stage(noisy) == "reading"
    quiet = {name: rate(each.median) for name, each in noisy.items()}
    assert added_times(quiet)["delivery"] > added_times(quiet)["decoding"]


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
    assert (
        found == enough[0]
        if enough
        else found.rate.median == max(each.rate.median for each in faster)
    )
