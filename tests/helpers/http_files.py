"""A web server of a folder that answers requests for ranges, as those of data sets on the web do."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import unquote


class BusyServer(ThreadingHTTPServer):
    """A server with a long queue, so that no client waits a second."""

    request_queue_size = 128


@contextmanager
def serve_folder(folder: Path, *, ranges: bool = True) -> Iterator[str]:
    """Serve a folder; return its URL.

    Without `ranges`, the server sends whole files, as Python's own does.
    """

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True  # the content follows the headers at once

        def log_message(self, *_: object) -> None:
            pass

        def do_GET(self) -> None:
            path = folder / unquote(self.path).lstrip("/")
            if not path.is_file():
                self.send_response(404)
                self.send_header("Content-Length", "0")
                self.end_headers()
                return
            data = path.read_bytes()
            size, status = len(data), 200
            if ranges and (given := self.headers.get("Range")):
                start, _, last = given.removeprefix("bytes=").partition("-")
                end = min(int(last) + 1, size) if last else size
                data, status = data[int(start) : end], 206
            self.send_response(status)
            self.send_header("Content-Length", str(len(data)))
            self.send_header("ETag", f'"{size}"')
            self.send_header("Last-Modified", "Mon, 01 Jan 2024 00:00:00 GMT")
            if status == 206:
                self.send_header("Content-Range", f"bytes {start}-{end - 1}/{size}")
            self.end_headers()
            if self.command == "GET":
                self.wfile.write(data)

        do_HEAD = do_GET  # noqa: N815

    server = BusyServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
