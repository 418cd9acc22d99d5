"""Columns of the sample tables that are read shard by shard, when a row of the shard is needed for the first time."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray


class LazyColumns:
    """Columns with one value per row of a split. Several threads may use them.

    The memory of a column is reserved at once, but the system provides it only as its shards are
    read.
    """

    def __init__(
        self,
        counts: Sequence[int],
        read: Callable[[int, Sequence[str]], Mapping[str, NDArray[Any]]],
    ) -> None:
        """Prepare to read columns.

        Args:
            counts: number of rows of each shard.
            read: returns the named columns of a shard by its number.

        """
        self._read = read
        self._ends = np.cumsum(counts, dtype=np.int64)
        self._starts = self._ends - counts
        self._arrays: dict[str, NDArray[Any]] = {}
        self._checks: list[Callable[[int, slice], None]] = []
        #: Which shards are to be read for each column, and for any column.
        self._missing: dict[str, NDArray[np.bool_]] = {}
        self._pending = np.zeros(len(counts), np.bool_)
        self._lock = threading.Lock()

    def add(self, dtypes: Mapping[str, np.dtype[Any]]) -> dict[str, NDArray[Any]]:
        """Add columns of these types, and return their arrays [samples].

        A value is valid after `load` was called for its shard.
        """
        with self._lock:
            for name, dtype in dtypes.items():
                if name not in self._arrays:
                    self._arrays[name] = np.zeros(int(self._ends[-1]), dtype)
                    self._missing[name] = np.ones(len(self._ends), np.bool_)
                self._pending |= self._missing[name]
        return {name: self._arrays[name] for name in dtypes}

    def check(self, function: Callable[[int, slice], None]) -> None:
        """Call a function with the number and the rows of each shard: now for those that were read, else after that.

        What it raises, this method or `load` raises.
        """
        with self._lock:
            self._checks.append(function)
            for shard in np.flatnonzero(~self._pending).tolist():
                function(shard, self._rows(shard))

    def load(self, shards: NDArray[np.intp] | None = None) -> None:
        """Read the columns of some shards, or of all, unless they were read before.

        Raises:
            TableError: a table is missing or damaged.

        """
        if not self._pending.any():
            return
        pending = (
            np.flatnonzero(self._pending)
            if shards is None
            else np.unique(shards[self._pending[shards]])
        )
        for shard in pending.tolist():
            self._load(shard)

    def load_rows(self, rows: NDArray[np.int64]) -> None:
        """Do the same for the shards of some rows."""
        if self._pending.any():
            self.load(np.searchsorted(self._ends, rows, side="right"))

    def _load(self, shard: int) -> None:
        with self._lock:
            names = [name for name, missing in self._missing.items() if missing[shard]]
            if not names:
                return
            rows, columns = self._rows(shard), self._read(shard, names)
            for name in names:
                self._arrays[name][rows] = columns[name]
            for check in self._checks:
                check(shard, rows)
            for name in names:
                self._missing[name][shard] = False
            self._pending[shard] = False

    def _rows(self, shard: int) -> slice:
        return slice(int(self._starts[shard]), int(self._ends[shard]))
