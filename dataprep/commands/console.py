"""What a command prints on stderr: text for people, or with ``--log-json`` one JSON object per line for schedulers.

Libraries use `logging` without handlers; `Console.begin` attaches the only one.
"""

from __future__ import annotations

import json
import logging
import sys
import time
from datetime import UTC, datetime
from typing import Any

from manifests.errors import DatasetError
from manifests.process.interrupts import on_interrupt
from manifests.process.text import one_line

#: Loggers of the packages that commands use.
_LOGGERS = ("dataprep", "manifests")


class Console:
    """Prints events, in the way that the common options of all commands choose.

    Attributes:
        quiet: whether to print nothing but results and errors.
        verbose: whether to print what `logging` receives with the level ``INFO``, too.
        is_json: whether events are JSON.
        bar: the progress bar on the terminal, if there is one.

    """

    def __init__(self) -> None:
        self.begin("")

    def begin(self, command: str, *, is_json: bool = False) -> None:
        """Start a command. This process may have run another one before."""
        self.quiet = self.verbose = False
        self.is_json = is_json
        self.bar: Any = None
        self._command = command
        self._started = time.monotonic()
        self._result: dict[str, Any] = {}
        on_interrupt(kept=_KEPT.get(command), render=self._render_interrupt if is_json else None)

    def configure(self, *, quiet: bool, verbose: bool) -> None:
        """Set how much to print, and attach a handler to the loggers of the packages."""
        self.quiet, self.verbose = quiet, verbose
        for name in _LOGGERS:
            logger = logging.getLogger(name)
            for handler in logger.handlers[:]:
                if isinstance(handler, _Handler):
                    logger.removeHandler(handler)
            logger.addHandler(_Handler(self))
            logger.setLevel(
                logging.INFO if verbose else logging.ERROR if quiet else logging.WARNING
            )

    def event(self, kind: str, text: str, **fields: Any) -> None:
        """Print an event: the text, or a JSON object with the fields, in which the text is the default message."""
        line = self._json(kind, {"message": text, **fields}) if self.is_json else one_line(text)
        if self.bar is not None:
            self.bar.clear()
        sys.stderr.write(f"{line}\n")
        sys.stderr.flush()

    def info(self, message: str) -> None:
        """Print what the command has found."""
        if not self.quiet:
            self.event("info", message)

    def note(self, message: str) -> None:
        """Print a notice for the user."""
        if not self.quiet:
            self.event("warning", message if self.is_json else f"note: {message}")

    def error(self, message: str, **fields: Any) -> None:
        """Print an error."""
        self.event("error", message if self.is_json else f"dataprep: {message}", **fields)

    def show_error(self, text: str, error: BaseException) -> None:
        """Print the error that ended the command; `text` is the whole line for people."""
        if not self.is_json:
            self.event("error", text)
        elif isinstance(error, DatasetError):
            self.error(error.message, file=error.file or None, hint=error.hint or None)
        else:
            self.error(text.removeprefix("dataprep: "))

    def add_result(self, **fields: Any) -> None:
        """Add fields to the last event."""
        self._result.update(fields)

    def end(self, status: int) -> None:
        """Print the last event, if events are JSON."""
        if self.is_json:
            sys.stderr.write(f"{self._end(status)}\n")
            sys.stderr.flush()

    def _end(self, status: int) -> str:
        seconds = round(time.monotonic() - self._started, 3)
        return self._json("result", {"status": int(status), "seconds": seconds, **self._result})

    def _render_interrupt(self, message: str, status: int) -> str:
        return f"{self._json('error', {'message': message})}\n{self._end(status)}\n"

    def _json(self, kind: str, fields: dict[str, Any]) -> str:
        now = datetime.now(UTC).isoformat(timespec="milliseconds")
        if kind == "progress":
            del fields["message"]
        return json.dumps(
            {"time": now, "event": kind, "command": self._command, **fields}, default=str
        )


class _Handler(logging.Handler):
    """Prints log records."""

    def __init__(self, console: Console) -> None:
        super().__init__()
        self._console = console

    def emit(self, record: logging.LogRecord) -> None:
        message = one_line(record.getMessage())
        if self._console.is_json:
            kind = (
                "error"
                if record.levelno >= logging.ERROR
                else "warning"
                if record.levelno >= logging.WARNING
                else "log"
            )
            self._console.event(kind, message, logger=record.name)
        else:
            self._console.event("log", f"{record.name}: {message}")


#: What is kept if a command is interrupted before it knows more.
_KEPT = {
    "convert": "finished shards are kept",
    "work": "finished shards are kept",
    "finish": "the shards are kept",
    "plan": "finished shards are kept",
    "index": "the shards are unchanged",
    "verify": "the dataset is unchanged",
    "info": "the dataset is unchanged",
    "repair": "files that were repaired are kept",
    "report": "the dataset is unchanged",
    "duplicates": "the shards are unchanged",
    "diff": "the datasets are unchanged",
}

console = Console()
