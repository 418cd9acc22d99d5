"""Read JSON from an untrusted file member by member.

Every error names the member: ``splits.train.shards[3].bytes``.
"""

from __future__ import annotations

import json
import re
import reprlib
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass
from functools import cache
from operator import itemgetter
from types import NoneType
from typing import (
    Annotated,
    Any,
    Literal,
    NoReturn,
    TypeVar,
    cast,
    get_args,
    get_origin,
    get_type_hints,
)

Name = TypeVar("Name", bound=str)
Record = TypeVar("Record")

#: Largest integer that Arrow, NumPy and DALI store.
MAX_INTEGER = (1 << 63) - 1


def shorten(value: object, length: int = 60) -> str:
    """Return a value as Python writes it, with at most about `length` characters of each text in it."""
    short = reprlib.Repr()
    short.maxstring = short.maxother = length
    short.maxlevel = 2
    try:
        return short.repr(value)
    except ValueError:  # an integer of more than 4,300 digits
        return "an integer that is too long to be shown"


class MemberError(ValueError):
    """A member is missing, or has a wrong type or value."""


@dataclass(frozen=True, slots=True)
class Member:
    """A value of JSON, and where it is.

    The methods return the value as one type, or raise a `MemberError` that names it.

    Attributes:
        value: what `parse_json` returned, or a part of it. An object can be any mapping, an array a
            list or a tuple.
        path: names of the members and numbers of the items that lead to it. Empty for the whole.

    """

    value: Any
    path: str = ""

    def fail(self, requirement: str) -> NoReturn:
        """Raise the error that the value must be something else."""
        raise MemberError(
            f"{self.path or 'the content'} must be {requirement}, not {shorten(self.value)}"
        )

    def __getitem__(self, name: str) -> Member:
        """Return a member of an object."""
        found = self.get(name)
        if found is None:
            raise MemberError(f"{self._path_of(name)} is missing")
        return found

    def get(self, name: str) -> Member | None:
        """Return a member of an object, or `None` if it is missing."""
        members = self.mapping()
        if name not in members:
            return None
        return Member(members[name], self._path_of(name))

    def mapping(self) -> Mapping[str, Any]:
        """Return an object, as `json` returns it. All names are text without surrogates."""
        if not isinstance(self.value, Mapping):
            self.fail("an object")
        return self.value

    def members(self) -> dict[str, Member]:
        """Return all members of an object by name."""
        members = {}
        for name, value in self.mapping().items():
            Member(name, f"a name in {self.path or 'the content'}").text()
            members[name] = Member(value, self._path_of(name))
        return members

    def items(self) -> list[Member]:
        """Return the items of an array."""
        if not isinstance(self.value, (list, tuple)):
            self.fail("an array")
        return [Member(value, f"{self.path}[{number}]") for number, value in enumerate(self.value)]

    def texts(self) -> tuple[str, ...]:
        """Return an array of text."""
        if not isinstance(self.value, (list, tuple)):
            self.fail("an array of text")
        # A manifest can have a million classes: only a wrong one needs its path.
        is_text = all(isinstance(value, str) for value in self.value)
        if is_text and is_unicode("".join(self.value)):
            return tuple(self.value)
        return tuple(map(Member.text, self.items()))

    def text(self) -> str:
        """Return text. Halves of surrogate pairs are not text: they cannot be written as UTF-8."""
        if not isinstance(self.value, str) or not is_unicode(self.value):
            self.fail("text")
        return self.value

    def integer(self, low: int = 0, high: int = MAX_INTEGER) -> int:
        """Return an integer from `low` to `high`."""
        if (
            not isinstance(self.value, int)
            or isinstance(self.value, bool)
            or not low <= self.value <= high
        ):
            self.fail(f"an integer from {low} to {high}")
        return self.value

    def one_of(self, known: Sequence[Name]) -> Name:
        """Return one of several texts."""
        if self.value not in known:
            self.fail(f"one of {', '.join(known)}")
        return known[known.index(self.value)]

    def matching(self, pattern: str, requirement: str) -> str:
        """Return text that a regular expression matches as a whole."""
        text = self.text()
        if not re.fullmatch(pattern, text):
            self.fail(requirement)
        return text

    def boolean(self) -> bool:
        """Return true or false."""
        if not isinstance(self.value, bool):
            self.fail("true or false")
        return self.value

    def record(self, kind: type[Record]) -> Record:
        """Return an object as a record: a dataclass, each of whose fields is a member.

        A member may be missing if its field is `None` by default. It must be a value otherwise.
        """
        values = {}
        for name, each, is_optional in _fields(cast(Any, kind)):
            if not is_optional or name in self.mapping():
                member = self[name]
                if is_dataclass(each):
                    values[name] = member.record(cast(Any, each))
                else:
                    values[name] = member.read(each)
        return kind(**values)

    def read(self, kind: Any) -> Any:
        """Return the value as a type of a record's field.

        ``Annotated`` has other arguments of `integer` or `matching`.
        """
        value, arguments = self.value, get_args(kind)
        if NoneType in arguments:
            if value is None:
                return None
            kind, arguments = arguments[0], get_args(arguments[0])
        origin = get_origin(kind)
        if is_dataclass(kind):
            return self.record(cast(Any, kind))
        if origin is Annotated:
            value = _LIMITED[arguments[0]](self, *arguments[1:])
        elif origin is Literal:
            value = self.one_of(arguments)
        elif origin is Mapping:
            value = {name: each.read(arguments[1]) for name, each in self.members().items()}
        elif origin is tuple and arguments == (str, ...):
            value = self.texts()
        elif origin is tuple:
            value = self._tuple(arguments)
        elif kind in _READERS:
            value = _READERS[kind](self)
        return value

    def _tuple(self, kinds: tuple[Any, ...]) -> tuple[Any, ...]:
        items = self.items()
        if kinds[-1] is ...:
            kinds = kinds[:1] * len(items)
        if len(items) != len(kinds):
            self.fail(f"an array of {len(kinds)} items")
        return tuple(map(Member.read, items, kinds))

    def _path_of(self, name: str) -> str:
        if len(name) > 60 or not name.isidentifier():
            name = shorten(name)
        return f"{self.path}.{name}".removeprefix(".")


_READERS: dict[Any, Callable[[Member], Any]] = {
    str: Member.text,
    int: Member.integer,
    bool: Member.boolean,
}
#: Readers of texts and numbers with limits.
_LIMITED: dict[Any, Callable[..., Any]] = {str: Member.matching, int: Member.integer}


@cache
def _fields(record: Any) -> list[tuple[str, Any, bool]]:
    """Return the name and the type of each field of a record, and whether its member is optional."""
    types = get_type_hints(record, include_extras=True)
    found = []
    for each in fields(record):
        kind, is_optional = types[each.name], each.default is None
        if is_optional:
            kind = get_args(kind)[0]
        found.append((each.name, kind, is_optional))
    return found


def parse_json(data: bytes | str, make_object: Callable[[Any], Any] | None = None) -> Member:
    """Parse JSON strictly, as RFC 8259 defines it: NaN and Infinity are refused, and so is deep nesting.

    Args:
        data: the document.
        make_object: returns an object from its names and values; `None` makes a dict.

    Raises:
        ValueError: the data is not JSON.

    """
    try:
        return Member(
            json.loads(data, parse_constant=_refuse_constant, object_pairs_hook=make_object)
        )
    except RecursionError:
        raise ValueError("the JSON is nested too deeply") from None


def parse_members(data: bytes) -> dict[str, Any]:
    """Parse a JSON object as `parse_json` does, and refuse it if a name occurs twice.

    Raises:
        ValueError: the data is not a JSON object, or names a member twice.

    """
    value = parse_json(data, _unique).value
    if not isinstance(value, dict):
        # The content is wrong, not an argument.
        raise ValueError("it is not an object")  # noqa: TRY004
    return value


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) < len(pairs):
        [(name, _)] = Counter(map(itemgetter(0), pairs)).most_common(1)
        raise ValueError(f"the name {shorten(name)} occurs twice")
    return members


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


def is_unicode(text: str) -> bool:
    """Return whether text can be written as UTF-8: whether it has no half of a surrogate pair.

    Python represents bytes of a file name that are not UTF-8 by such halves.
    """
    try:
        return text.isascii() or bool(text.encode() or True)
    except UnicodeEncodeError:
        return False
