"""Records behave as frozen data classes do."""

from __future__ import annotations

import copy
import pickle
from dataclasses import FrozenInstanceError, asdict, dataclass, field, fields, replace
from typing import Any

import pytest

from manifests.records import keyword_record, record


@record
class Record:
    size: int
    name: str = "a"
    extra: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Frozen:
    size: int
    name: str = "a"
    extra: dict[str, Any] = field(default_factory=dict)


@record
class Longer(Record):
    tail: int = 0


@keyword_record
class Keyword:
    name: str = "a"
    size: int


def test_a_record_is_a_frozen_data_class():
    made, frozen = Record(3, extra={"b": 1}), Frozen(3, extra={"b": 1})
    assert repr(made) == repr(frozen).replace("Frozen", "Record")
    assert asdict(made) == asdict(frozen)
    assert [each.name for each in fields(made)] == [each.name for each in fields(frozen)]
    assert replace(made, size=4) == Record(4, extra={"b": 1}) != made
    assert pickle.loads(pickle.dumps(made)) == copy.deepcopy(made) == made
    assert made != frozen
    assert Record(3) != Longer(3)
    assert Longer(3, tail=1) == Longer(3, "a", {}, 1)


def test_a_record_cannot_be_changed():
    for made in (Record(3), Longer(3), Keyword(size=3)):
        for change in (lambda made: setattr(made, "size", 4), lambda made: delattr(made, "size")):
            with pytest.raises(
                FrozenInstanceError, match=r"cannot (assign to|delete) field 'size'"
            ):
                change(made)


def test_equal_records_have_one_hash():
    assert len({Keyword(size=3), Keyword(name="a", size=3), Keyword(size=4)}) == 2
    with pytest.raises(TypeError, match="unhashable"):
        hash(Record(3))
    with pytest.raises(TypeError, match="positional"):
        Keyword("a", 3)
