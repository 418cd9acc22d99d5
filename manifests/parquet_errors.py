"""The error of a damaged Parquet file, and what Arrow raises for one."""

from __future__ import annotations

from typing import Any

from manifests.process.text import printable
from manifests.process.unexpected_errors import is_machine_fault


class ParquetError(ValueError):
    """A Parquet file is damaged, or unpacks to more than `BoundedParquet` allows.

    The message names the column.
    """


class translated_errors:  # noqa: N801  (a context manager, named like a function)
    """Raise what Arrow raises for a damaged file as a `ParquetError`."""

    def __init__(self, place: str = "") -> None:
        self._place = place

    def __enter__(self) -> None:
        pass

    def __exit__(self, error_type: Any, error: BaseException | None, traceback: Any) -> None:
        import pyarrow as pa

        if error is not None and is_machine_fault(
            error
        ):  # pa.ArrowMemoryError is a MemoryError too
            return
        if isinstance(error, (pa.ArrowException, OSError, ValueError, OverflowError)):
            reason = (str(error).splitlines() or [type(error).__name__])[0]
            raise ParquetError(f"{self._place}{printable(reason[:200])}") from None
