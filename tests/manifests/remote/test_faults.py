"""Servers that fail, and that no credential is ever part of a message."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from datetime import timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
from helpers.http_files import BusyServer
from helpers.servers import ACCESS_KEY, BUCKET, SECRET_KEY

from manifests.errors import CallError, DatasetError, StorageError
from manifests.remote import connect
from manifests.remote import store as requests
from manifests.remote.store import ObjectInfo, Store, open_store

Answer = Callable[[BaseHTTPRequestHandler, int], None]


@pytest.fixture
def serve(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[Answer], Store]]:
    """`serve(answer)` starts an S3 server that answers every request with a function of request and number."""
    monkeypatch.setattr(connect, "MAX_RETRIES", 2)
    monkeypatch.setitem(connect._BACKOFF, "init_backoff", timedelta(seconds=0.01))
    monkeypatch.setattr(requests, "_FIRST_WAIT", 0.01)
    running: list[ThreadingHTTPServer] = []

    def start(answer: Answer) -> Store:
        numbers = iter(range(1000))

        class Handler(BaseHTTPRequestHandler):
            def log_message(self, *_: object) -> None:
                pass

            def handle_any(self) -> None:
                self.rfile.read(int(self.headers.get("Content-Length", 0)))
                answer(self, next(numbers))

            do_GET = do_PUT = do_HEAD = do_POST = do_DELETE = handle_any  # noqa: N815

        server = BusyServer(("127.0.0.1", 0), Handler)
        running.append(server)
        threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
        monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{server.server_port}")
        connect.close_connections()
        return open_store(f"s3://{BUCKET}/set")

    monkeypatch.setenv("AWS_ACCESS_KEY_ID", ACCESS_KEY)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET_KEY)
    monkeypatch.setenv("AWS_SESSION_TOKEN", "planted-session-token")
    yield start
    connect.close_connections()
    for server in running:
        server.shutdown()
        server.server_close()


def send(
    handler: BaseHTTPRequestHandler,
    status: int,
    body: bytes,
    length: int | None = None,
    **headers: str,
) -> None:
    handler.send_response(status)
    handler.send_header("Content-Length", str(len(body) if length is None else length))
    handler.send_header("ETag", '"etag"')
    handler.send_header("Last-Modified", "Mon, 01 Jan 2024 00:00:00 GMT")
    for name, value in headers.items():
        handler.send_header(name.replace("_", "-"), value)
    handler.end_headers()
    handler.wfile.write(body)


def _echo(status: int) -> Answer:
    """Answer with everything that the request contains, as S3 does for a wrong signature."""

    def answer(handler: BaseHTTPRequestHandler, number: int) -> None:
        headers = "".join(f"{name}: {value}\n" for name, value in handler.headers.items())
        body = f"<Error><Code>SomeCode</Code><StringToSign>{headers}{handler.path}{SECRET_KEY}</StringToSign></Error>"
        send(handler, status, body.encode())

    return answer


@pytest.mark.parametrize("status", [301, 400, 401, 403, 404, 409, 412, 416, 500, 503])
def test_no_credential_in_any_error(serve, status: int) -> None:
    store = serve(_echo(status))
    operations: list[Callable[[], object]] = [
        lambda: store.get("a"),
        lambda: store.stat("a"),
        lambda: store.start_range("a", 0, 5, etag='"x"').result(),
        lambda: list(store.list_objects()),
        lambda: store.start_listing().result(),
        lambda: store.put("a", b"1"),
        lambda: store.create("a", b"1"),
        lambda: store.delete("a"),
    ]
    for operation in operations:
        error = None
        try:
            operation()
        except (DatasetError, FileNotFoundError) as caught:
            error = caught
        text = f"{error} {error!r} {vars(error) if error else ''}"
        for secret in (ACCESS_KEY, SECRET_KEY, "planted", "Signature", "x-amz"):
            assert secret not in text
        assert error is None or error.__suppress_context__


#: What fails once or twice, and how what is read then.
RETRIED: dict[str, tuple[Callable[[int], dict[str, Any]], Callable[[Store], Any]]] = {
    "server errors": (
        lambda number: {"status": 503 if number < 2 else 200, "body": b"content"},
        lambda store: store.get("a"),
    ),
    "an answer that breaks off": (
        lambda number: {"status": 200, "body": b"content"[: 3 if number < 1 else 7], "length": 7},
        lambda store: store.get("a"),
    ),
    "a range that breaks off": (
        lambda number: {
            "status": 206, "body": b"content"[: 3 if number < 1 else 7], "length": 7,
            "Content_Range": "bytes 1-7/9",
        },
        lambda store: store.start_range("a", 1, 8).result(),
    ),
}  # fmt: skip


@pytest.mark.parametrize("fault", RETRIED)
def test_what_fails_is_asked_for_again(serve, fault: str) -> None:
    answer_of, read = RETRIED[fault]

    def answer(handler: BaseHTTPRequestHandler, number: int) -> None:
        send(handler, **answer_of(number))
        handler.close_connection = True

    assert bytes(read(serve(answer))) == b"content"


def test_a_server_that_always_fails_is_an_error(serve) -> None:
    """The client repeats a refused request, so the store does not."""
    seen: list[int] = []

    def answer(handler: BaseHTTPRequestHandler, number: int) -> None:
        seen.append(number)
        _echo(503)(handler, number)

    with pytest.raises(
        StorageError, match=r"cannot be read: the server answered 503 SomeCode, after retries"
    ):
        serve(answer).get("a")
    assert len(seen) == 1 + connect.MAX_RETRIES


def test_a_server_that_does_not_exist(serve, monkeypatch: pytest.MonkeyPatch) -> None:
    store = serve(_echo(200))
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:1")
    connect.close_connections()
    with pytest.raises(StorageError, match="cannot be read: the server cannot be reached"):
        store.get("a")


@pytest.mark.parametrize("scheme", ["s3", "gs"])
@pytest.mark.parametrize(
    "endpoint",
    ["storage", "storage.example:8333", "http://", "https://me:planted@host", "http://h h"],
)
def test_an_endpoint_that_is_no_url(
    serve, monkeypatch: pytest.MonkeyPatch, scheme: str, endpoint: str
) -> None:
    """The client of S3 would panic."""
    name = {"s3": "AWS_ENDPOINT_URL", "gs": "GOOGLE_BASE_URL"}[scheme]
    monkeypatch.setenv(name, endpoint)
    connect.close_connections()
    with pytest.raises(
        CallError, match=f"{name} is not the URL of a server. Hint: write it like https"
    ) as error:
        open_store(f"{scheme}://{BUCKET}/set").get("a")
    assert "planted" not in str(error.value)


@pytest.mark.parametrize(
    ("honored", "ignored"),
    [
        ((), r"create-if-absent \(If-None-Match"),
        (("If-None-Match",), r"replace-if-unchanged \(If-Match\)"),
    ],
)
def test_a_store_that_ignores_a_condition_is_named(
    serve, honored: tuple[str, ...], ignored: str
) -> None:
    def answer(handler: BaseHTTPRequestHandler, number: int) -> None:
        refused = number > 0 and any(name in handler.headers for name in honored)
        send(handler, 412 if refused else 200, b"")

    with pytest.raises(CallError, match=rf"s3://{BUCKET}: this object store ignores {ignored}"):
        serve(answer).check_conditions()


@pytest.mark.parametrize("status", [404, 412])
def test_an_object_that_is_gone_is_not_replaced(serve, status: int) -> None:
    store = serve(
        lambda handler, number: send(handler, status if "If-Match" in handler.headers else 200, b"")
    )
    assert not store.replace("manifest", b"", ObjectInfo("manifest", 0, '"etag"', 0))


def test_the_usual_files_are_read(serve, monkeypatch: pytest.MonkeyPatch, tmp_path) -> None:
    seen: list[str] = []

    def answer(handler: BaseHTTPRequestHandler, number: int) -> None:
        seen.append(handler.headers["Authorization"])
        _echo(403)(handler, number)

    serve(answer)
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN"):
        monkeypatch.delenv(name)
    content = "aws_access_key_id = FILEKEY\naws_secret_access_key = planted-file-secret\n"
    (tmp_path / "credentials").write_text(f"[default]\n[work]\n{content}")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "credentials"))
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    monkeypatch.setenv("AWS_PROFILE", "work")
    (tmp_path / "config").write_text("[profile work]\nregion = eu-north-1\n")
    connect.close_connections()
    with pytest.raises(StorageError, match=r"with profile work in .*credentials") as error:
        open_store(f"s3://{BUCKET}/set").get("a")
    assert "FILEKEY" in seen[0]
    assert "eu-north-1" in seen[0]
    assert "FILEKEY" not in str(error.value)
    assert "planted" not in str(error.value)


def test_without_obstore_the_error_says_how_to_install_it() -> None:
    program = (
        "import sys; sys.modules['obstore'] = None\n"
        "from manifests.remote.store import open_store\n"
        "try: open_store('s3://bucket/x').get('a')\n"
        "except Exception as error: print(type(error).__name__, error)"
    )
    output = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    ).stdout
    assert "CallError URLs need the package obstore, which is not installed" in output
    assert "pip install 'dataprep-loaders[cloud]'" in output
