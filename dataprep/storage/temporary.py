"""Temporary files: each stays in a separate folder next to its final place until it is complete.

A complete file is read back, flushed and renamed. Several processes may write one file, each at
different places.

Anyone may have a file of the same name, so the folder contains a record of its owner. Only files in
a folder with this record are ever removed: all of them by a process that holds the lock of the
folder above it, and files of dead processes of the same machine by any process.

Who removes a temporary file that is never renamed, for example the file of a worker that died::

    the process that wrote it                   `discard`, after an error
    the run that has locked the folder          `partials`, at its end: also the files of its dead workers
    the next run, if that run was killed        `sweep` in `dataprep.run.prepare`, before it writes a shard
    another process of `dataprep work`          `shared_partials`, at its end: files of dead processes of its machine
    `dataprep finish`, if no shard is missing   `partials`, at its end: the files of all machines

An owner is ``HOST.MACHINE.PID.START``. ``MACHINE`` is a digest of what makes process numbers
comparable: the host name, the boot, and the PID namespace, so a container or a rebooted host counts
as another machine. ``START`` is the time at which the process started, because the system uses
process numbers again.
"""

from __future__ import annotations

import fcntl
import os
import re
import stat
import threading
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, nullcontext, suppress
from functools import cache

from dataprep.storage.files import files_of, has_locks
from dataprep.storage.local import checksum_of, translate_errors, write_all
from manifests.errors import CallError, StorageError
from manifests.files import kind_of, read_file
from manifests.process.text import printable
from manifests.remote.url import is_url

#: An owner, as it appears in the name of a file. It contains no hyphen.
OWNER = r"[A-Za-z0-9_]{1,20}\.[0-9a-f]{8}\.[0-9]{1,20}\.[0-9]{1,20}"
_OWNER = re.compile(OWNER)


def this_owner() -> str:
    """Return the owner of the files that this process writes."""
    return _owner(os.getpid())


def is_dead(owner: str) -> bool:
    """Return whether an owner was a process of this machine that has ended.

    False for a process of another machine, which may be alive or not.
    """
    if not _OWNER.fullmatch(owner):
        return False
    host, machine, pid, start = owner.split(".")
    if (host, machine) != _machine():
        return False
    try:
        os.kill(int(pid), 0)
    except (ProcessLookupError, OverflowError):
        return True
    except OSError:  # the process belongs to another user
        pass
    return _start(int(pid)) != start


@cache  # per process: a child has another number
def _owner(pid: int) -> str:
    return ".".join((*_machine(), str(pid), _start(pid)))


@cache
def _machine() -> tuple[str, str]:
    import hashlib
    import socket  # both take time to import, and a worker needs neither

    name = socket.gethostname()
    identity = [name]
    for read, path in (
        (_first_text, "/proc/sys/kernel/random/boot_id"),
        (_first_text, "/etc/machine-id"),
        (os.readlink, "/proc/self/ns/pid"),
    ):
        text = ""
        with suppress(OSError):
            text = read(path)
        identity.append(text)
    host = re.sub(r"[^A-Za-z0-9]", "_", name.partition(".")[0])[:20] or "host"
    return (
        host,
        hashlib.sha256("\0".join(identity).encode("utf-8", "surrogateescape")).hexdigest()[:8],
    )


def _first_text(path: str) -> str:
    with open(path, encoding="ascii", errors="replace") as file:
        return file.read(100)


def _start(pid: int) -> str:
    """Return when a process started, in clock ticks since boot.

    ``0`` if the system does not tell, or it has ended.
    """
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
            state, *fields = file.read().rpartition(")")[2].split()
    except OSError:
        return "0"
    return "0" if state in "ZX" else fields[18]


# --- temporary files ------------------------------------------------------------------------------


#: The folder of bookkeeping in each output folder: the journal, the stamps, the plan, temporary files.
BOOKKEEPING = ".dataprep"

#: The journal in it: what a run that has not ended does. See `dataprep.ledger.state`.
JOURNAL_NAME = f"{BOOKKEEPING}/journal.json"

#: The folder of temporary files in each output folder. It exists only during a run, or after a run
#: was killed.
PARTIALS_NAME = f"{BOOKKEEPING}/partial"

#: The folder in an output folder to which `dataprep plan` writes; see `dataprep.plan.files`.
PLAN_FOLDER = f"{BOOKKEEPING}/plan"

#: An empty file: the owner record in that folder. It is created in one step, so it is never
#: incomplete.
_RECORD_NAME = "made-by-dataprep"

#: Names of temporary files: the owner and the final name, with ``~`` in place of each slash.
_TEMPORARY = re.compile(rf"({OWNER}|[0-9]+)-(?s:.+)")

#: Prefixes of other files that processes that share the folder keep there; see
#: `dataprep.ledger.fence`.
_SHARED = re.compile(r"(claim|beat|tasks)-(?s:.+)")

#: A file of bookkeeping that is written under a temporary name, after the output folder.
_BOOKKEEPING_FILE = re.compile(
    rf"(?s:(.*))/({re.escape(BOOKKEEPING)}/(?:journal\.json|stamps\.json|owner|plan/[^/]+))"
)


def _inside(folder: str) -> str:
    """Return the folder for the temporary files of a folder.

    For an object store, it is on this machine.
    """
    return os.path.join(files_of(folder).local_folder(folder), PARTIALS_NAME)


def shared_path(folder: str, kind: str, name: str) -> str:
    """Return the path of a file that processes share: next to the temporary files, and removed with them.

    Args:
        folder: the output folder.
        kind: ``"claim"``, ``"beat"`` or ``"tasks"``.
        name: its name.

    """
    return os.path.join(_inside(folder), f"{kind}-{name}")


def shared_names(folder: str, kind: str) -> list[str]:
    """Return the names of the files of a kind."""
    names = _temporary_files(_inside(folder), _SHARED)
    return [name.partition("-")[2] for name in names if name.startswith(f"{kind}-")]


def partial_path(path: str) -> str:
    """Return the temporary path of a file, which is different for each process."""
    folder, name = _split(path)
    if is_url(folder) and not has_partials(folder):
        _make_folder(folder)  # only the machine that started the run has made it
    return os.path.join(_inside(folder), f"{this_owner()}-{name.replace('/', '~')}")


def _split(path: str) -> tuple[str, str]:
    """Return the output folder of a file, and the name of the file in it."""
    if match := _BOOKKEEPING_FILE.fullmatch(path):
        return match[1], match[2]
    return os.path.split(path)


def has_partials(folder: str) -> bool:
    """Return whether the folder for temporary files exists: during a run, and after a kill."""
    return os.path.lexists(_inside(folder))


def partials_named(folder: str, name: str) -> list[str]:
    """Return the paths of temporary files, of any process, whose final name is `name`."""
    inside, paths = _inside(folder), []
    for entry in _temporary_files(inside):
        if entry.partition("-")[2] == name:
            paths.append(os.path.join(inside, entry))
    return paths


@contextmanager
def locked(*folders: str, shared: bool = False) -> Iterator[bool]:
    """Lock folders for this process. The locks end with the process, however it ends.

    Args:
        folders: the folders to lock.
        shared: other processes may have shared locks of the same folders, but no exclusive one.

    Their folders for temporary files do not exist then, or were made by this program.

    Yields:
        Whether all folders are locked. On a file system without locks, the block runs without one.

    Raises:
        CallError: a file or a folder of another program has the name of such a folder.
        StorageError: another process has a lock.

    """
    is_locked = True
    seen: set[tuple[int, int]] = set()
    with ExitStack() as stack:
        # A fixed order, so of two processes that want the same folders, one gets all of them.
        for path, folder in sorted((files_of(each).local_folder(each), each) for each in folders):
            with translate_errors(folder, "the folder cannot be opened"):
                handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            stack.callback(os.close, handle)
            status = os.fstat(handle)
            if (status.st_dev, status.st_ino) in seen:  # another path of a folder that is locked
                continue
            seen.add((status.st_dev, status.st_ino))
            try:
                fcntl.flock(handle, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
            except BlockingIOError:
                raise StorageError(
                    "another run is working in this folder", file=folder, hint="wait until it ends"
                ) from None
            except OSError:
                is_locked = False
        for folder in folders:
            check_partials(folder)
        yield is_locked


def check_partials(folder: str) -> None:
    """Check that the folder for temporary files does not exist, or was made by this program.

    Raises:
        CallError: a file or a folder of another program has this name.

    """
    inside = _inside(folder)
    path = os.path.dirname(inside)
    with translate_errors(path, "the folder cannot be read"), suppress(FileNotFoundError):
        is_ours = stat.S_ISDIR(os.lstat(path).st_mode)
        if is_ours:
            path = inside
            # A run that is killed right after it makes the folder, or right before it removes it,
            # leaves it empty.
            is_ours = stat.S_ISDIR(os.lstat(path).st_mode)
            is_ours = is_ours and (not (names := os.listdir(path)) or _RECORD_NAME in names)
        if not is_ours:
            raise CallError(
                f"{printable(path)} was not made by dataprep, which needs this name for temporary"
                " files",
                hint="move it away",
            )


@contextmanager
def partials(*folders: str, is_alone: bool, keeps_proofs: bool = False) -> Iterator[None]:
    """Make the folders for temporary files; at the end, even after an error, remove them.

    They are `locked`, or `check_partials` was called. Files that a killed run left stay until `sweep` or the end of the
    block.

    Args:
        folders: the folders to write to.
        is_alone: whether no other process needs temporary files there: this process holds the
            locks of the folders, or every shard is written. If not, only its own files and the files
            of dead processes are removed, and the folders stay while another process holds the
            locks.
        keeps_proofs: see `sweep`.

    """
    try:
        for folder in folders:
            _make_folder(folder)
        yield
    finally:
        for folder in folders:
            remove_partials(folder, is_alone=is_alone, keeps_proofs=keeps_proofs)


def remove_partials(folder: str, *, is_alone: bool, keeps_proofs: bool = False) -> None:
    """Remove the folder for temporary files, with the files that `sweep` removes, if there is one.

    What cannot be removed now, the next run removes.
    """
    with suppress(OSError, CallError, StorageError):
        # A local folder without one need not be locked, not even for a moment.
        if has_partials(folder) or is_url(folder):
            sweep(folder, is_alone=is_alone, keeps_proofs=keeps_proofs)
            _remove_folder(folder, is_alone=is_alone)


@contextmanager
def shared_partials(folder: str) -> Iterator[None]:
    """Make the folder for temporary files, which other processes use too.

    At the end, remove the files of dead ones.

    It is `locked`. The folder itself stays.
    """
    _make_folder(folder)
    try:
        yield
    finally:
        with suppress(OSError):
            sweep(folder, is_alone=False, keeps_proofs=True)


def _make_folder(folder: str) -> None:
    path = _inside(folder)
    with translate_errors(folder, "the folder cannot be written"):
        for each in (os.path.dirname(path), path):
            with suppress(FileExistsError):
                os.mkdir(each)
        # Without O_NONBLOCK, a named pipe of this name would block the run.
        flags = os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC | os.O_NONBLOCK
        os.close(os.open(os.path.join(path, _RECORD_NAME), flags, 0o666))


def sweep(folder: str, *, is_alone: bool, keeps_proofs: bool = False) -> None:
    """Remove the temporary files in a folder: all, or only the files of this process and of dead ones.

    Args:
        folder: the output folder.
        is_alone: see `partials`. If not, the proofs of dead processes stay.
        keeps_proofs: keep the sample tables of shards that have their final name while the table
            has not: they tell which run wrote the shard.

    """
    inside = _inside(folder)
    names = _temporary_files(inside)
    if is_alone:
        names += _temporary_files(inside, _SHARED)
    has_ended = cache(is_dead)
    for name in names:
        owner = name.partition("-")[0]
        may_remove = is_alone or owner == this_owner()
        keeps = (keeps_proofs or not may_remove) and _is_proof(folder, name)
        if (may_remove or has_ended(owner)) and not keeps:
            remove_partial(folder, os.path.join(inside, name))


def _is_proof(folder: str, name: str) -> bool:
    """Return whether a temporary file is the table of a shard that has its final name, while the table has not.

    A process was stopped between the two renames. Without the table, the shard could be of
    another tool.
    """
    stem, suffix = os.path.splitext(name.partition("-")[2])
    if suffix != ".parquet" or os.path.lexists(os.path.join(folder, stem + suffix)):
        return False
    return any(
        os.path.lexists(os.path.join(folder, stem + other))
        for other in (".tfrecord", ".tar", ".idx")
    )


def remove_partial(folder: str, path: str) -> None:
    """Remove a temporary file of a folder, and abort its upload in parts."""
    if is_url(folder):
        from dataprep.storage.remote import abort_upload

        owner, _, name = os.path.basename(path).partition("-")
        if name.startswith(f"{BOOKKEEPING}~"):
            name = name.replace("~", "/")
        abort_upload(os.path.join(folder, name), path, is_own=owner == this_owner())
    with suppress(FileNotFoundError):  # a worker of a killed run may remove or rename it first
        os.unlink(path)


def _temporary_files(inside: str, pattern: re.Pattern[str] = _TEMPORARY) -> list[str]:
    try:
        names = os.listdir(inside)
    except OSError:
        return []
    return (
        sorted(name for name in names if pattern.fullmatch(name)) if _RECORD_NAME in names else []
    )


def _remove_folder(folder: str, *, is_alone: bool) -> None:
    """Remove the folder for temporary files if it contains none.

    If this process is not alone, keep it while another process holds the lock: that one needs the
    folder between two files too, and for a URL, the folder above is locked, which is also
    removed.

    Raises:
        StorageError: another process holds the lock.

    """
    inside = _inside(folder)
    with nullcontext() if is_alone else locked(folder):
        if has_partials(folder) and {*os.listdir(inside)} <= {
            _RECORD_NAME
        }:  # a kill may leave it without the record
            with suppress(FileNotFoundError):
                os.unlink(os.path.join(inside, _RECORD_NAME))
            os.rmdir(inside)
        with suppress(OSError):  # it has the journal, the stamps or the plan
            os.rmdir(os.path.dirname(inside))
        if is_url(folder):
            os.rmdir(os.path.dirname(os.path.dirname(inside)))


# --- commit: read back, flush, rename -------------------------------------------------------------


def publish(paths: Sequence[str]) -> None:
    """Rename complete files from their `partial_path` to their final names, in this order."""
    files_of(paths[0]).publish_shard([(partial_path(path), path) for path in paths])


def discard(paths: Sequence[str]) -> None:
    """Remove the temporary files of these paths, and abort uploads of this process in parts."""
    for path in paths:
        with suppress(OSError):
            remove_partial(os.path.dirname(path), partial_path(path))


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
    files_of(path).publish([(partial_path(path), path)])


def create_file(path: str, data: bytes) -> bool:
    """Write a small file unless there is one, in a locked folder; return whether it was written.

    In an object store, only one of several processes on any machine succeeds.
    """
    if not has_locks(path):
        from dataprep.storage.remote import REMOTE

        return REMOTE.create(path, data)
    if os.path.lexists(path):
        return False
    replace_file(path, data)
    return True


def replace_unchanged(path: str, data: bytes, old: bytes) -> bool:
    """Replace a small file whose content is `old`, in a locked folder.

    Return whether it has the new content now.

    In an object store, no other process on any machine can have changed it between the comparison
    and the write.
    """
    if not has_locks(path):
        from dataprep.storage.remote import REMOTE

        return REMOTE.replace(path, data, old)
    try:
        content = read_file(path, kind_of(path))
    except FileNotFoundError:
        return False
    if content == old:
        replace_file(path, data)
    return content in (old, data)


# --- one file, several processes ------------------------------------------------------------------


#: The temporary file that this process wrote to last, with its file descriptor. It stays open:
#: closing a file on a network file system flushes it.
_last: dict[str, int] = {}
_lock = threading.Lock()

#: What was written is read back into it.
_read_back = memoryview(bytearray(1 << 18))


def write_to(
    file: str, partial: str, buffers: Sequence[bytes], start: int, *, length: int, crc: int
) -> None:
    """Write buffers to the temporary file of a shard, which exists, and compare what was written.

    Args:
        file: path of the shard, for errors.
        partial: path of its temporary file.
        buffers: written one after the other.
        start: byte of the file from which on they are written.
        length: their total length.
        crc: their CRC-32C.

    Raises:
        StorageError: they cannot be written, or the disk returns other bytes.

    """
    message = "the file cannot be written"
    with _lock:
        try:
            if partial not in _last:
                _close_last()
                _last[partial] = os.open(partial, os.O_RDWR | os.O_CLOEXEC)
            handle = _last[partial]
            write_all(handle, buffers, start)
            message = "the file cannot be read"
            read = checksum_of(handle, start, start + length, _read_back)
        except OSError:
            # Only now: to enter this block takes longer than to call the system.
            with translate_errors(file, message):
                raise
    if read != crc:
        raise not_as_written(file)


def close_file(partial: str) -> None:
    """Close this temporary file, if this process still has it open."""
    with _lock:
        if partial in _last:
            _close_last()


def _close_last() -> None:
    while _last:
        os.close(_last.popitem()[1])


def not_as_written(path: str) -> StorageError:
    """Return the error for a disk that does not return the bytes that were written."""
    return StorageError(
        "the file does not contain the bytes that were written",
        file=path,
        hint="check the disk and the memory of this machine",
    )
