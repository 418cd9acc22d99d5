"""Send requests to object stores in threads, and retry interrupted responses."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import lru_cache
from typing import TYPE_CHECKING, Any, TypeVar

from manifests.errors import DatasetError, StorageError
from manifests.remote.connect import connect
from manifests.remote.errors import is_broken_answer, translated
from manifests.remote.ranges import Request
from manifests.remote.url import Url

if TYPE_CHECKING:
    from typing_extensions import Buffer

Result = TypeVar("Result")

#: Connections that one process uses at a time.
CONNECTIONS = 32

#: An interrupted response is requested again this many times. Refused and failed requests are
#: retried by obstore.
_ATTEMPTS = 4
_FIRST_WAIT = 0.2


class BrokenOffError(Exception):
    """An answer was shorter than the server said."""


def range_reader(url: Url, request: Request, etag: str | None) -> Callable[[], Buffer]:
    """Return a function that reads one range of an object, if it still has this `etag`."""

    def read() -> Buffer:
        options: Any = {
            "range": (request.start, request.end),
            **({"if_match": etag} if etag else {}),
        }
        answer = connect(url).get(url.path, options=options)
        if answer.meta["size"] < request.end:
            size = answer.meta["size"]
            raise StorageError(
                f"the object has {size:,} bytes, but bytes up to {request.end:,} are needed",
                file=str(url),
                byte=size,
                hint="it was shortened or replaced; restore it, or make the dataset again",
            )
        data = answer.bytes()
        if len(data) != request.end - request.start:
            raise BrokenOffError
        return data

    return read


def parts_reader(url: Url, ranges: Sequence[tuple[int, int]]) -> Callable[[], Sequence[memoryview]]:
    """Return a function that reads several ranges of an object."""
    starts, ends = ([each[side] for each in ranges] for side in (0, 1))

    def read() -> Sequence[memoryview]:
        parts = [
            memoryview(part)
            for part in connect(url).get_ranges(url.path, starts=starts, ends=ends, coalesce=0)
        ]
        if any(
            len(part) != end - start for part, start, end in zip(parts, starts, ends, strict=True)
        ):
            raise BrokenOffError
        return parts

    return read


def repeat(url: Url, read: Callable[[], Result]) -> Result:
    """Read, and read again if the answer breaks off; translate errors."""
    with translated(url, "read"):
        for attempt in range(_ATTEMPTS):
            try:
                return read()
            except DatasetError:
                raise
            except Exception as error:
                if attempt == _ATTEMPTS - 1 or not (
                    isinstance(error, BrokenOffError) or is_broken_answer(error)
                ):
                    raise
                time.sleep(_FIRST_WAIT * 2**attempt)
    raise AssertionError("unreachable")


@lru_cache(maxsize=1)
def _pool(pid: int) -> ThreadPoolExecutor:
    del pid  # a fork has none of the threads
    return ThreadPoolExecutor(CONNECTIONS, "object store")


def submit(function: Callable[..., Result], *arguments: Any) -> Future[Result]:
    """Call a function in a thread: Python handles no signal while the main thread waits for a server."""
    return _pool(os.getpid()).submit(function, *arguments)
