"""Every error that this project raises on purpose. It must never know how one is printed.

DatasetError                 catch this to catch them all
|-- CallError                the call is wrong: an option, a path, an argument
|-- SourceError              the images or lists to prepare cannot be used as they are
|-- StoppedError             the machine stopped the work: run it again to go on
|   |-- SourceVanishedError  an image was there at the scan and is gone or changed now
|   |-- StorageError         full disk, no permission, another run at work
|   `-- WorkerDiedError      a worker process ended without an answer
`-- DamagedError             a file of a prepared dataset is not what it should be
    |-- ManifestError
    |-- ShardError
    |-- IndexFileError
    `-- TableError
"""

from __future__ import annotations

from typing import Any


class DatasetError(Exception):
    """Base of the tree: one sentence on what is wrong, where it is, and what mends it.

    Attributes:
        message: what is wrong, without the place.
        file: the file it is in, as the user named it.
        record: number of the record in that file, from 0.
        line: number of the line in that file, from 1.
        byte: offset in that file, from 0.
        hint: what to do about it.

    """

    def __init__(
        self,
        message: str,
        *,
        file: str | None = None,
        record: int | None = None,
        line: int | None = None,
        byte: int | None = None,
        hint: str = "",
    ) -> None:
        super().__init__(message)
        self.message = message
        self.file = file
        self.record = record
        self.line = line
        self.byte = byte
        self.hint = hint

    def __str__(self) -> str:
        text = f"{self.place}: {self.message}" if self.place else self.message
        if not self.hint:
            return text
        return f"{text.rstrip('.')}. Hint: {self.hint.rstrip('.')}{'' if self.hint.endswith('?') else '.'}"

    @property
    def place(self) -> str:
        """File, line, record and byte, as far as they are known: ``a.tar, record 3, byte 512``."""
        named = (("line", self.line), ("record", self.record), ("byte", self.byte))
        parts = [printable(self.file)] if self.file else []
        parts += [f"{name} {value}" for name, value in named if value is not None]
        return ", ".join(parts)

    def __reduce__(self) -> tuple[Any, ...]:
        # An error crosses from a worker process to this one with all its attributes.
        names = ("message", "file", "record", "line", "byte", "hint")
        return _rebuilt, (type(self), {name: getattr(self, name) for name in names})


def _rebuilt(kind: type[DatasetError], attributes: dict[str, Any]) -> DatasetError:
    return kind(**attributes)


def printable(name: str) -> str:
    """Return a file's name as it can stand in one line of text, control characters escaped."""
    if name.isprintable():
        return name
    return "".join(c if c.isprintable() else c.encode("unicode_escape", "backslashreplace").decode() for c in name)


class CallError(DatasetError):
    """The call is wrong: an option, a path or an argument."""


class SourceError(DatasetError):
    """The images, lists or tables to prepare cannot be used as they are."""


class StoppedError(DatasetError):
    """The machine stopped the work; what was committed stays good, and the same call goes on."""


class SourceVanishedError(StoppedError):
    """An image that was there at the scan is gone, or has another size, when it is read."""


class StorageError(StoppedError):
    """The output cannot be written or read: full disk, no permission, another run at work."""


class WorkerDiedError(StoppedError):
    """A worker process ended without an answer: killed, or out of memory."""


class DamagedError(DatasetError):
    """A file of a prepared dataset is not what it should be."""


class ManifestError(DamagedError):
    """``manifest.json`` is missing, damaged, or of a version that is not known here."""


class ShardError(DamagedError):
    """A shard is truncated or damaged."""


class IndexFileError(DamagedError):
    """A DALI index file does not fit its shard."""


class TableError(DamagedError):
    """A sample table is damaged or does not fit its shard."""
