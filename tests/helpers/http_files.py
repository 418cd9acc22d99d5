"""A web server of a folder that answers requests for ranges, as those of data sets on the web do."""

from __future__ import annotations

import socketserver
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import unquote


class BusyServer(ThreadingHTTPServer):
    """A server with a long queue, so that no client waits a second."""

    daemon_threads = True
    request_queue_size = 128


class QuietHandler(BaseHTTPRequestHandler):
    """Keeps connections, sends content at once after the headers, and logs nothing."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def log_message(self, *_: object) -> None:
        pass

    def answer(
        self, status: int, data: bytes, headers: Mapping[str, str], *, short: bool = False
    ) -> None:
        """Send an answer; if it is `short`, half of its content, and close the connection."""
        self.send_response(status)
        for name, value in {"Content-Length": str(len(data)), **headers}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data[: len(data) // 2] if short else data)
        self.close_connection = self.close_connection or short


@contextmanager
def in_thread(server: socketserver.BaseServer) -> Iterator[None]:
    """Run a server in a thread of this process."""
    threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
    try:
        yield
    finally:
        server.shutdown()
        server.server_close()


def range_of(given: str | None, size: int) -> tuple[int, int] | None:
    """Return the start and the end of the bytes that a header `Range` asks for; `None` without one."""
    if not given:
        return None
    first, _, last = given.removeprefix("bytes=").partition("-")
    start = int(first) if first else max(0, size - int(last))
    return start, min(int(last) + 1, size) if first and last else size


@contextmanager
def serve_folder(folder: Path, *, ranges: bool = True) -> Iterator[str]:
    """Serve a folder; return its URL.

    Without `ranges`, the server sends whole files, as Python's own does.
    """

    class Handler(QuietHandler):
        def do_GET(self) -> None:
            path = folder / unquote(self.path).lstrip("/")
            if not path.is_file():
                self.answer(404, b"", {})
                return
            data = path.read_bytes()
            size, status = len(data), 200
            headers = {"ETag": f'"{size}"', "Last-Modified": "Mon, 01 Jan 2024 00:00:00 GMT"}
            if ranges and (part := range_of(self.headers.get("Range"), size)):
                data, status = data[slice(*part)], 206
                headers["Content-Range"] = f"bytes {part[0]}-{part[1] - 1}/{size}"
            self.answer(status, data, headers)

        do_HEAD = do_GET  # noqa: N815

    with in_thread(server := BusyServer(("127.0.0.1", 0), Handler)):
        yield f"http://127.0.0.1:{server.server_port}"
