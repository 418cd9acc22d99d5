"""A proxy between a program and a server, which can stop serving as a machine that is switched off does."""

from __future__ import annotations

import socket
import threading
import time
from contextlib import suppress


class TcpProxy:
    """Passes bytes on to a port of this machine until `stop` is called.

    Args:
        target: the port.
        most: after this many bytes of a connection, the client waits for ever; `None` for no limit.
        delay: seconds by which each request is delivered late; answers pass at full speed.

    Attributes:
        port: the port to connect to.
        stalled: is set when a client waits.
        requests: HTTP requests so far.
        answered: bytes that the server has sent.

    """

    def __init__(self, target: int, most: int | None = None, delay: float = 0.0) -> None:
        self._target = target
        self._delay = delay
        self._most = most
        self.stalled = threading.Event()
        self.requests = self.answered = 0
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._open: list[socket.socket] = [self._listener]
        self._clients: set[socket.socket] = set()
        self._stopped = False
        self._lock = threading.Lock()
        threading.Thread(target=self._accept, daemon=True).start()

    def stop(self) -> None:
        """Close all connections, and accept no more."""
        with self._lock:
            self._stopped = True
        for each in self._open:
            _close(each)

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client = self._listener.accept()[0]
                server = socket.create_connection(("127.0.0.1", self._target))
                with self._lock:
                    if self._stopped:  # while this connection was made
                        _close(client)
                        _close(server)
                        return
                    self._open += [client, server]
                    self._clients.add(client)
                for each in (client, server):
                    each.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                pumps = ((client, server, self._most, self._delay), (server, client, None, 0.0))
                for arguments in pumps:
                    threading.Thread(target=self._pump, args=arguments, daemon=True).start()

    def _pump(
        self, source: socket.socket, sink: socket.socket, most: int | None, delay: float
    ) -> None:
        passed = 0
        with suppress(OSError):
            while data := source.recv(1 << 18):
                time.sleep(delay)
                passed += len(data)
                with self._lock:
                    if source in self._clients:
                        self.requests += data.count(b" HTTP/1.1\r\n")
                    else:
                        self.answered += len(data)
                if most is not None and passed > most:
                    self.stalled.set()
                    return
                sink.sendall(data)
            sink.shutdown(socket.SHUT_WR)


def _close(each: socket.socket) -> None:
    with suppress(OSError):
        each.shutdown(socket.SHUT_RDWR)
    each.close()
