"""The sample tables of a split. Only this module opens them. Columns are NumPy arrays, one value per row.

Rows are numbered through all shards of the split, in reading order.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from loaders.dataset.split import OpenSplit
from loaders.memory import ImageSizes
from manifests.errors import CallError, TableError
from manifests.tables import TableFile
from manifests.text import plural, suggest

if TYPE_CHECKING:
    import pyarrow as pa

VERIFY = "run `dataprep verify` to find the damage"

#: Stands for a missing CRC-32C. One image in 2**32 has this checksum, and is then not checked.
NO_CHECKSUM = 0


class SampleTables:
    """The sample tables of a split. Opens each file once, reads columns on demand, and caches them.

    `loaders.build` creates one, and drops it when the loader is ready.
    """

    def __init__(self, split: OpenSplit) -> None:
        self._split = split
        self._columns: dict[str, NDArray[Any]] = {}

    @cached_property
    def _files(self) -> list[TableFile]:
        return [TableFile(self._split.path(shard.table)) for shard in self._split.shards]

    @cached_property
    def column_names(self) -> tuple[str, ...]:
        """Names of the columns, as in the first table of each dataset.

        Raises:
            TableError: a table is missing or damaged.

        """
        first, *others = (self._files[number].column_names for number in self._split.first_shards)
        return tuple(name for name in first if all(name in names for names in others))

    def columns(
        self, names: Sequence[str], *, requested_by: str, other_names: Sequence[str] = ()
    ) -> dict[str, NDArray[Any]]:
        """Return columns by name.

        Args:
            names: names of the columns.
            requested_by: what uses the columns, for the message: ``"fields"`` or the name of a sampler.
            other_names: further valid names, to suggest in the message.

        Returns:
            Arrays [samples]: of numbers if no value is missing and all tables have the same kind of number, else of
            objects. Missing values of ``crc32c`` are `NO_CHECKSUM`.

        Raises:
            CallError: a column does not exist.
            TableError: a table is missing or damaged.

        """
        if not names:
            return {}
        for name in names:
            if name not in self.column_names:
                raise CallError(
                    f"{requested_by} uses {name!r}, which is not a column of the sample tables",
                    hint=suggest(name, dict.fromkeys((*other_names, *self.column_names))),
                )
        missing = [name for name in names if name not in self._columns]
        if missing:
            tables = [self._read(number, missing) for number in range(len(self._files))]
            self._columns |= {name: self._joined(name, [table[name] for table in tables]) for name in missing}
        return {name: self._columns[name] for name in names}

    def image_sizes(self) -> ImageSizes | None:
        """Return the image sizes. `None` if a table is damaged."""
        try:
            tables = [self._read(number, ("width", "height")) for number in range(len(self._files))]
        except TableError:
            return None
        widths, heights = (np.concatenate([table[name].to_numpy() for table in tables]) for name in ("width", "height"))
        return ImageSizes(widths, heights)

    def _read(self, number: int, names: Sequence[str]) -> pa.Table:
        shard = self._split.shards[number]
        table = self._files[number]
        if table.rows != shard.samples:
            raise TableError(
                f"the table has {plural(table.rows, 'row')}, but its shard has {plural(shard.samples, 'sample')}",
                file=self._split.path(shard.table),
                hint=VERIFY,
            )
        return table.read(names)

    def _joined(self, name: str, parts: Sequence[pa.ChunkedArray]) -> NDArray[Any]:
        if name == "crc32c":
            parts = [part.fill_null(NO_CHECKSUM) for part in parts]
        arrays = [part.to_numpy() if not part.null_count else _objects(part) for part in parts]
        if name == "label":
            arrays = [self._split.joined_labels(number, labels) for number, labels in enumerate(arrays)]
        # No NumPy type contains every int64 and every float64.
        if len({array.dtype.kind for array in arrays}) > 1 or arrays[0].dtype.kind not in "iufb":
            arrays = [array if array.dtype == object else array.astype(object) for array in arrays]
        return np.concatenate(arrays)


def _objects(part: pa.ChunkedArray) -> NDArray[Any]:
    array = np.empty(len(part), object)
    array[:] = part.to_pylist()
    return array
