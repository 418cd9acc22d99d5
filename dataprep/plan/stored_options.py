"""The options in ``plan.json`` and in manifests, read strictly. Pure functions."""

from __future__ import annotations

from typing import get_args

from dataprep.images.base import Validation
from dataprep.options import (
    DEFAULT_DISTANCE,
    MAX_DISTANCE,
    Downscale,
    Filter,
    Fit,
    Options,
    Raw,
    Resolution,
    Subsampling,
)
from manifests.json_members import Member, MemberError, shorten
from manifests.schema import FORMAT_NAMES

_MAX_SEED = 1 << 128


def options_from_json(body: Member) -> Options:
    """Read the options. The members must be those that `Options.as_json` writes, and no others."""
    downscale, raw, test_fraction = (
        body.get("downscale"),
        body.get("raw"),
        body.get("test_fraction"),
    )
    where, duplicates, distance = body.get("where"), body.get("duplicates"), body.get("distance")
    options = Options(
        fmt=body["fmt"].one_of(FORMAT_NAMES),
        shard_bytes=body["shard_bytes"].integer(1),
        shard_samples=_or_none(body["shard_samples"]),
        shuffle=boolean(body["shuffle"]),
        seed=body["seed"].integer(0, _MAX_SEED),
        val_fraction=_fraction(body["val_fraction"]),
        test_fraction=_fraction(test_fraction) if test_fraction else 0.0,
        split_by=None if body["split_by"].value is None else body["split_by"].text(),
        validate=body["validate"].one_of(get_args(Validation)),
        max_pixels=body["max_pixels"].integer(1),
        downscale=_downscale(downscale) if downscale else None,
        raw=_raw(raw) if raw else None,
        where=where.text() if where else None,
        hash=body.get("hash") is not None,  # the value is compared below
        duplicates=duplicates.one_of(get_args(Resolution)) if duplicates else "keep",
        distance=distance.integer(-1, MAX_DISTANCE) if distance else DEFAULT_DISTANCE,
    )
    known, members = (
        {**members, "made_by": None} for members in (options.as_json(), body.mapping())
    )
    if known != members or (downscale and raw):
        wrong = [name for name in {**known, **members} if known.get(name) != members.get(name)]
        raise MemberError(
            f"options has members that this release does not know: {', '.join(map(shorten, wrong))}"
        )
    return options


def _fraction(member: Member) -> float:
    if (
        isinstance(member.value, bool)
        or not isinstance(member.value, (int, float))
        or not 0 <= member.value < 1
    ):
        member.fail("a number from 0 to 1")
    return float(member.value)


def _or_none(member: Member, low: int = 1) -> int | None:
    return None if member.value is None else member.integer(low)


def _downscale(body: Member) -> Downscale:
    return Downscale(
        shorter=_or_none(body["shorter"]),
        longest=_or_none(body["longest"]),
        only_above=_or_none(body["only_above"]),
        quality=body["quality"].integer(1, 100),
        subsampling=body["subsampling"].one_of(get_args(Subsampling)),
        filter=body["filter"].one_of(get_args(Filter)),
    )


def _raw(body: Member) -> Raw:
    return Raw(
        body["size"].integer(1, 4096),
        body["fit"].one_of(get_args(Fit)),
        body["filter"].one_of(get_args(Filter)),
    )


def boolean(member: Member) -> bool:
    """Return a member that must be true or false.

    Raises:
        MemberError: it is neither.

    """
    if not isinstance(member.value, bool):
        member.fail("true or false")
    return member.value
