"""An option is declared once: without its declaration it is nowhere, and its stored form never changes."""

from __future__ import annotations

import json
from dataclasses import fields

import pytest

from dataprep.options import (
    Options,
    Raw,
    library_versions,
    options_from_json,
)
from manifests.json_members import Member, MemberError

# --- the stored form ------------------------------------------------------------------------------

PLAIN = {
    "fmt": "tfrecord", "shard_bytes": 256 << 20, "shard_samples": None, "shuffle": True, "seed": 0,
    "val_fraction": 0.0, "split_by": None, "validate": "header", "max_pixels": 178_956_970,
}  # fmt: skip


RAW = {"size": 9, "fit": "crop", "filter": "lanczos"}


@pytest.mark.parametrize(
    ("options", "members"),
    [
        (Options(), PLAIN),
        (Options(shard_bytes=5, shard_samples=3), {**PLAIN, "shard_samples": 3}),
        (Options(val_fraction=0.1), {**PLAIN, "val_fraction": 0.1, "stratified": True}),
        (Options(where="size > 1"), {**PLAIN, "where": "size > 1"}),
        (Options(raw=Raw(9)), {**PLAIN, "raw": RAW, "made_by": library_versions(transcodes=False)}),
        (
            Options(transcode="webp"),
            {**PLAIN, "transcode": "webp", "made_by": library_versions(transcodes=True)},
        ),
        (
            Options(hash=True, duplicates="drop", test_fraction=0.2, split_by="x"),
            {
                **PLAIN, "split_by": "x", "test_fraction": 0.2, "hash": "dct256-1", "duplicates": "drop",
                "distance": 31, "made_by": library_versions(transcodes=False),
            },
        ),
    ],
)  # fmt: skip
def test_the_stored_form(options, members):
    assert options.as_json() == members
    # The fingerprint of a plan depends on the order.
    names = [each.name for each in fields(Options)]
    stored = [name for name in options.as_json() if name in names]
    assert stored == sorted(stored, key=names.index)
    assert options_from_json(Member(json.loads(json.dumps(members)))) == Options(
        **{**vars(options), "shard_bytes": members["shard_bytes"]}
    )


@pytest.mark.parametrize(
    "change",
    [
        {"seed": -1}, {"seed": True}, {"shuffle": 1}, {"val_fraction": 1.0}, {"test_fraction": None},
        {"validate": "all"}, {"hash": True}, {"distance": 3}, {"duplicates": "keep"}, {"other": 1},
        {"downscale": {"shorter": 5}}, {"raw": {**RAW, "more": 1}},
    ],
)  # fmt: skip
def test_a_wrong_stored_form_is_refused(change):
    with pytest.raises(MemberError):
        options_from_json(Member({**PLAIN, **change}))
