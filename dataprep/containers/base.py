"""Where the bytes of an image are inside a container: an archive, a table, a shard or a database."""

from __future__ import annotations

from sys import intern
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Protocol

if TYPE_CHECKING:
    import pyarrow as pa
    from typing_extensions import Buffer

#: How a container is read. ``"range"``: bytes of the file. ``"pixels"``: the same, and they are
#: pixels that are not encoded. ``"zip"``: a member of a zip archive. ``"recordio"``: a record of an
#: MXNet RecordIO file. ``"parquet"``: a row of a Parquet file. ``"video"``: a frame of a video.
ReaderName = Literal["range", "pixels", "zip", "recordio", "parquet", "video"]


class Location(NamedTuple):
    """Where an image is inside a container.

    Attributes:
        container: path of the container, relative to the root of the source unless absolute.
        reader: how it is read.
        position: first byte of the image (range, pixels), of the header before it (zip) or of its
            record (recordio), or number of the row (parquet) or of the frame, from 0 (video).
        length: number of bytes stored there; of a record, the length of its data; of a frame, the
            length of the video. -1 if it is not known (parquet).
        key: CRC-32 of the image, 4 bytes, big-endian (zip), path of the column (parquet), or codec,
            width and height (video).
        crc32c: CRC-32C of the image, if the source states it.

    """

    container: str
    reader: ReaderName
    position: int = -1
    length: int = -1
    key: bytes = b""
    crc32c: int | None = None


class SourceImages(NamedTuple):
    """Images of a source. The lists have one element per image.

    Attributes:
        root: folder that relative paths start from.
        paths: paths of the images.
        sizes: sizes in bytes when the source was scanned; `UNREADABLE` or an estimate if a size is
            not known.
        locations: where the images are inside containers; `None` for a file of its own.

    """

    root: str
    paths: list[str]
    sizes: list[int]
    locations: list[Location | None]


class ContainerReader(Protocol):
    """Reads images from one open container.

    Readers are cached, and may be used by several threads at once.
    """

    def read(self, location: Location, size: int, data: Buffer | None = None) -> bytes:
        """Return the bytes of an image.

        Args:
            location: where it is in this container.
            size: its size in bytes when the source was scanned; `UNREADABLE` or an estimate if that
                is not known.
            data: bytes that were read in advance, if any.

        Raises:
            OSError: the container cannot be read.
            Rejected: the image cannot be used.
            SourceVanishedError: the container has changed since the source was scanned.

        """


def location_schema() -> pa.Schema:
    """Return the columns of `Source.location`: the fields of `Location`.

    A null container means a plain file.
    """
    import pyarrow as pa

    text = pa.dictionary(pa.int32(), pa.large_string())
    types = (text, text, pa.int64(), pa.int64(), pa.binary(), pa.uint32())
    return pa.schema(zip(Location._fields, types, strict=True))


def location_table(container: pa.Array, reader: ReaderName | pa.Array, **columns: Any) -> pa.Table:
    """Return a table with `location_schema`.

    Args:
        container: path of the container of each image, text [n].
        reader: how the containers are read.
        columns: arrays of n values for the other columns; a column that is not given has the
            default of `Location`.

    """
    import pyarrow as pa

    given = {**Location._field_defaults, **columns, "container": container, "reader": reader}
    table = {}
    for name in Location._fields:
        table[name] = given[name]
        # A value for all images.
        if isinstance(given[name], (str, bytes, int, type(None))):
            table[name] = pa.repeat(pa.scalar(given[name]), len(container))
    return pa.table(table).cast(location_schema()).combine_chunks()


def locations_of(table: pa.Table | None, rows: Any) -> list[Location | None]:
    """Return the location of the image in each of some rows; `None` for a file of its own."""
    if table is None:
        return [None] * len(rows)
    columns = table.select([*Location._fields]).take(rows).to_pydict().values()
    locations = []
    for container, *values in zip(*columns, strict=True):
        # All images of a container share its path.
        locations.append(None if container is None else Location(intern(container), *values))
    return locations
