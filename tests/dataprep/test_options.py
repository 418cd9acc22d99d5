"""An option is declared once: without its declaration it is nowhere, and its stored form never changes."""

from __future__ import annotations

import json
from dataclasses import fields

import pytest
from helpers.rows import evaluate, read_rows

from dataprep import options as known
from dataprep.options import Options, options_from_json
from manifests.json_members import Member, MemberError

# --- the stored form ------------------------------------------------------------------------------

PLAIN = {
    "fmt": "tfrecord", "shard_bytes": 256 << 20, "shard_samples": None, "shuffle": True, "seed": 0,
    "val_fraction": 0.0, "split_by": None, "validate": "header", "max_pixels": 178_956_970,
}  # fmt: skip


RAW = {"size": 9, "fit": "crop", "filter": "lanczos"}


@pytest.mark.parametrize(("row", "stored"), read_rows(__file__, "stored"))
def test_the_stored_form(row, stored):
    options, members = (evaluate(text, vars(known), globals()) for text in (row, stored))
    assert options.as_json() == members
    # The fingerprint of a plan depends on the order.
    names = [each.name for each in fields(Options)]
    order = [name for name in options.as_json() if name in names]
    assert order == sorted(order, key=names.index)
    assert options_from_json(Member(json.loads(json.dumps(members)))) == Options(
        **{**vars(options), "shard_bytes": members["shard_bytes"]}
    )


WRONG = [
    {"seed": -1}, {"seed": True}, {"shuffle": 1}, {"val_fraction": 1.0}, {"test_fraction": None},
    {"validate": "all"}, {"hash": True}, {"distance": 3}, {"duplicates": "keep"}, {"other": 1},
    {"downscale": {"shorter": 5}}, {"raw": {**RAW, "more": 1}},
]  # fmt: skip


def test_a_wrong_stored_form_is_refused():
    for change in WRONG:
        with pytest.raises(MemberError):
            options_from_json(Member({**PLAIN, **change}))
