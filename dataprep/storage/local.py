"""Write files on a local file system: lock the folder, write under a temporary name, flush, rename.

Nothing here depends on the contents of a file. Each `OSError` becomes a `StorageError` with a hint.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress

from manifests.errors import StorageError
from manifests.faults import HINTS, is_machine_fault

#: Prefix of a file's name until the file is complete.
PARTIAL_PREFIX = ".partial-"


@contextmanager
def translate_errors(path: str, message: str) -> Iterator[None]:
    """Raise an `OSError` of the block as a `StorageError` with the path, the message, the reason and a hint."""
    try:
        yield
    except OSError as error:
        if is_machine_fault(error):  # not a fault of this file, so no caller must take it for damage
            raise
        raise StorageError(
            f"{message}: {error.strerror or error}", file=path, hint=HINTS.get(error.errno or 0, "")
        ) from None


# --- one run per folder -------------------------------------------------------------------------


@contextmanager
def locked(folder: str) -> Iterator[None]:
    """Lock a folder for this process. The lock ends with the process, however it ends.

    On a file system without locks, the block runs without one.

    Raises:
        StorageError: another process has the lock.

    """
    with translate_errors(folder, "the folder cannot be opened"):
        handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise StorageError(
                "another run is working in this folder", file=folder, hint="wait until it ends"
            ) from None
        except OSError:
            pass
        yield
    finally:
        os.close(handle)


@contextmanager
def clean_partials(folders: Iterable[str]) -> Iterator[None]:
    """Remove files with temporary names from the folders, before the block and after it, even if it raises."""
    folders = list(folders)
    for folder in folders:
        _remove_partials(folder)
    try:
        yield
    finally:
        for folder in folders:
            _remove_partials(folder)


def _remove_partials(folder: str) -> None:
    with translate_errors(folder, "temporary files in the folder cannot be removed"):
        for name in os.listdir(folder):
            if name.startswith(PARTIAL_PREFIX):
                with suppress(FileNotFoundError):  # a worker of a killed run may remove or rename it first
                    os.unlink(os.path.join(folder, name))


# --- temporary name, flush, rename --------------------------------------------------------------


def partial_path(path: str) -> str:
    """Return the temporary path of a file: in the same folder, and different for each process."""
    return os.path.join(os.path.dirname(path), f"{PARTIAL_PREFIX}{os.getpid()}-{os.path.basename(path)}")


def publish(paths: Sequence[str]) -> None:
    """Rename complete files from their `partial_path` to their final names, in this order."""
    publish_all((partial_path(path), path) for path in paths)


def publish_all(pairs: Iterable[tuple[str, str]]) -> None:
    """Rename complete files from temporary to final paths, in this order, after all of them are flushed to disk."""
    pairs = list(pairs)
    for temporary, _ in pairs:
        with translate_errors(temporary, "the file cannot be written"):
            flush(temporary)
    for temporary, path in pairs:
        with translate_errors(path, "the file cannot be renamed"):
            os.rename(temporary, path)
    for folder in {os.path.dirname(path) for _, path in pairs}:
        with translate_errors(folder, "the folder cannot be written"):
            flush(folder or ".")


def discard(paths: Sequence[str]) -> None:
    """Remove the temporary files of these paths that this process wrote, if they exist."""
    for path in paths:
        with suppress(OSError):
            os.unlink(partial_path(path))


def flush(path: str) -> None:
    """Force a file or a folder to disk (fsync)."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def write_partial(path: str, data: bytes) -> None:
    """Write a small file under its temporary name."""
    with translate_errors(path, "the file cannot be written"):
        try:
            with open(partial_path(path), "wb") as file:
                file.write(data)
        except OSError:
            discard([path])
            raise


def replace_file(path: str, data: bytes) -> None:
    """Write a small file atomically: a reader sees the old content or all of the new."""
    write_partial(path, data)
    publish([path])


def remove(path: str) -> None:
    """Remove a file, if it exists."""
    with translate_errors(path, "the file cannot be removed"), suppress(FileNotFoundError):
        os.unlink(path)


def write_all(handle: int, buffers: Sequence[bytes]) -> int:
    """Write buffers one after the other without joining them first; return their total length in bytes."""
    total = sum(map(len, buffers))
    written = os.writev(handle, buffers)
    if written < total:
        rest = memoryview(b"".join(buffers))
        while written < total:
            written += os.write(handle, rest[written:])
    return total
