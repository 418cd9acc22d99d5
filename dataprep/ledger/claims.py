"""Claims: which of several processes writes a shard.

They only avoid duplicate work; correctness does not depend on them.

A claim is a file that is created exclusively and names its owner. Each owner has one more file, its
beat, and changes its content every few seconds. An observer measures with its own monotonic clock
how long neither of them changes, so clocks need not agree. After three missed beats, the claim
belongs to whoever creates it next. If the old owner was only slow, both write the same bytes.
"""

from __future__ import annotations

import os
import re
import threading
import time
from contextlib import suppress
from typing import Self

from dataprep import storage
from dataprep.storage.partials import is_dead, this_owner
from manifests.errors import DamagedError
from manifests.files import MANIFEST, read_file

#: Seconds between two beats.
BEAT_SECONDS = 5.0

#: A claim is stale after this many beats without a change.
MISSED_BEATS = 3

_BEAT = re.compile(r"[0-9]{20} ([0-9]{1,5}\.[0-9]{3})\n", re.ASCII)


class Claims:
    """The claims of this process in one output folder, and what it has seen of the claims of others.

    Use it as a context manager: the beat runs inside the block, and the claims are released at its
    end.

    Args:
        out: the output folder, whose folder for temporary files exists.
        beat: seconds between two beats.

    Attributes:
        beat: seconds between two beats.
        started_ns: modification time of the first beat, by the clock of the file system.

    """

    def __init__(self, out: str, beat: float = BEAT_SECONDS) -> None:
        self.beat = beat
        self.started_ns = 0
        self._out = out
        self._owner = this_owner()
        self._beats = 0
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._keep_beating, daemon=True)
        self._mine: set[str] = set()
        #: For each claim of another process: its content with the beat of its owner, and when this
        #: was first seen.
        self._seen: dict[str, tuple[tuple[bytes, bytes], float]] = {}

    def __enter__(self) -> Self:
        path = self._beat_path(self._owner)
        with storage.translate_errors(path, "the file cannot be written"):
            self._write_beat()
            self.started_ns = os.stat(path).st_mtime_ns
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()
        for name in tuple(self._mine):
            self.release(name)
        with suppress(OSError):
            os.unlink(self._beat_path(self._owner))

    def claim(self, name: str) -> bool:
        """Claim a shard; return whether this process has it now.

        Raises:
            StorageError: the claim cannot be written.

        """
        path = storage.shared_path(self._out, "claim", name)
        if self._is_stale(name, path):
            with suppress(FileNotFoundError):
                os.unlink(path)
        with storage.translate_errors(path, "the file cannot be written"):
            try:
                with open(path, "xb", buffering=0) as file:
                    file.write(self._owner.encode())
            except FileExistsError:
                return False
        self._seen.pop(name, None)
        self._mine.add(name)
        return True

    def release(self, name: str) -> None:
        """Give a claim back, unless another process has taken it."""
        self._mine.discard(name)
        path = storage.shared_path(self._out, "claim", name)
        if _content(path) == self._owner.encode():
            with suppress(OSError):
                os.unlink(path)

    def _is_stale(self, name: str, path: str) -> bool:
        """Return whether the owner of a claim is gone, as far as this process has seen."""
        content = _content(path)
        if not content and not os.path.lexists(path):
            return False
        owner = content.decode("ascii", "replace")
        if is_dead(owner):
            return True
        beat = _content(self._beat_path(owner)) if "/" not in owner and "\0" not in owner else b""
        now = time.monotonic()
        state, since = self._seen.get(name, (None, now))
        if state != (content, beat):
            since = now
            self._seen[name] = ((content, beat), now)
        match = _BEAT.fullmatch(beat.decode("ascii", "replace"))
        return now - since > MISSED_BEATS * (float(match[1]) if match else self.beat)

    def _beat_path(self, owner: str) -> str:
        return storage.shared_path(self._out, "beat", owner)

    def _write_beat(self) -> None:
        self._beats += 1
        with open(self._beat_path(self._owner), "wb", buffering=0) as file:
            file.write(f"{self._beats:020d} {self.beat:.3f}\n".encode())

    def _keep_beating(self) -> None:
        while not self._stop.wait(self.beat):
            with suppress(OSError):  # without a beat, others take the claims, which costs work only
                self._write_beat()


def _content(path: str) -> bytes:
    """Return the content of a small file; empty if it cannot be read."""
    try:
        return read_file(path, MANIFEST)
    except (OSError, DamagedError):
        return b""
