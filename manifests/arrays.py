"""Array columns: the same number of numbers for each sample, in a NumPy file for each shard.

The rows of a file are the samples of the shard in stored order, so a program can map it into memory
and read the rows that it needs. NumPy is not imported here: a header is text.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any, Literal, get_args

from manifests.errors import TableError
from manifests.process.text import plural
from manifests.records import record

if TYPE_CHECKING:
    import pyarrow as pa

    from manifests.files import StrPath

#: Type of the values of an array.
ArrayType = Literal["float16", "float32", "float64", "int8", "int16", "int32", "int64", "uint8"]

#: NumPy's code and the bytes of a value of each type.
_CODES: dict[ArrayType, tuple[str, int]] = {
    "float16": ("<f2", 2),
    "float32": ("<f4", 4),
    "float64": ("<f8", 8),
    "int8": ("|i1", 1),
    "int16": ("<i2", 2),
    "int32": ("<i4", 4),
    "int64": ("<i8", 8),
    "uint8": ("|u1", 1),
}

#: Largest number of values of a sample.
MAX_ARRAY_LENGTH = 1 << 20

#: What the name of an array column matches: it is a part of the names of its files.
ARRAY_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_-]{0,63}")

#: NumPy 1.0: a magic text, the version, and the length of a header that ends at a multiple of 64.
_MAGIC, _ALIGNMENT = b"\x93NUMPY\x01\x00", 64
#: NumPy leaves room in the header for this many digits of the number of rows.
_ROW_DIGITS = 21


@record
class ArrayKind:
    """What an array column contains.

    Attributes:
        dtype: type of the values.
        length: number of values of each sample.

    """

    dtype: ArrayType
    length: Annotated[int, 1, MAX_ARRAY_LENGTH]

    @property
    def row_bytes(self) -> int:
        """Bytes of the values of a sample."""
        return _CODES[self.dtype][1] * self.length

    def header(self, rows: int) -> bytes:
        """Return the bytes of a file before the values of this many rows: the only header that is read."""
        shape = f"{{'descr': '{_CODES[self.dtype][0]}', 'fortran_order': False, 'shape': ({rows}, {self.length}), }}"
        text = (shape + " " * (_ROW_DIGITS - len(str(rows)))).encode()
        used = len(_MAGIC) + 2 + len(text) + 1
        text += b" " * (-used % _ALIGNMENT) + b"\n"
        return _MAGIC + len(text).to_bytes(2, "little") + text

    def file_bytes(self, rows: int) -> int:
        """Return the length of a file with this many rows."""
        return len(self.header(rows)) + rows * self.row_bytes

    def __str__(self) -> str:
        return f"{self.length} {self.dtype}"


def array_file_name(shard: str, name: str) -> str:
    """Return the name of the file of an array column, by the name of the shard without extension."""
    return f"{shard}.{name}.npy"


# --- columns of tables ----------------------------------------------------------------------------


def arrays_of(table: pa.Table | None) -> dict[str, ArrayKind]:
    """Return the array columns of a table by name, sorted: its lists of a fixed number of numbers."""
    if table is None:
        return {}
    import pyarrow as pa

    kinds: dict[str, ArrayKind] = {}
    for each in table.schema:
        if pa.types.is_fixed_size_list(each.type):
            dtype = str(each.type.value_type).replace("halffloat", "float16")
            dtype = {"float": "float32", "double": "float64"}.get(dtype, dtype)
            if dtype in get_args(ArrayType):
                kinds[each.name] = ArrayKind(dtype, each.type.list_size)  # type: ignore[arg-type]
    return dict(sorted(kinds.items()))


def show_arrays(kinds: Mapping[str, ArrayKind]) -> str:
    """Return the names and kinds of array columns, for messages."""
    shown = []
    for name, kind in kinds.items():
        shown.append(f"{name} ({kind})")
    return ", ".join(shown) or "none"


# --- read -----------------------------------------------------------------------------------------


def array_in(content: Any, kind: ArrayKind, rows: int, path: StrPath) -> Any:
    """Return the values in the content of an array file, [rows, length], which the content is kept for.

    Raises:
        TableError: the content does not begin with the only header that such a file has, or has
            another length.

    """
    import numpy as np

    header = kind.header(rows)
    if len(content) != kind.file_bytes(rows) or bytes(content[: len(header)]) != header:
        raise TableError(
            f"the file does not contain {plural(rows, 'row')} of {kind}",
            file=path,
            hint="run `dataprep repair` on the dataset with its source, or restore a copy",
        )
    values = np.frombuffer(content, np.dtype(_CODES[kind.dtype][0]), offset=len(header))
    return values.reshape(rows, kind.length)
