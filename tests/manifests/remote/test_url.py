"""URLs of object stores: what is accepted, and that nothing secret in a refused URL is repeated."""

from __future__ import annotations

import pytest

from manifests.errors import CallError
from manifests.remote.url import is_url, local_path, parse_url


@pytest.mark.parametrize(
    ("text", "bucket", "path", "normal"),
    [
        ("s3://bucket/a/b", "bucket", "a/b", "s3://bucket/a/b"),
        ("S3://bucket/", "bucket", "", "s3://bucket"),
        ("gs://my_bucket.example/a/", "my_bucket.example", "a", "gs://my_bucket.example/a"),
        ("az://container/ü x", "container", "ü x", "az://container/ü x"),
        ("s3://bucket/a%20b", "bucket", "a%20b", "s3://bucket/a%20b"),
        ("https://host:8443/a%20b/c", "host:8443", "a b/c", "https://host:8443/a b/c"),
        ("http://127.0.0.1:80/x", "127.0.0.1:80", "x", "http://127.0.0.1:80/x"),
    ],
)
def test_urls(text: str, bucket: str, path: str, normal: str) -> None:
    url = parse_url(text)
    assert (url.bucket, url.path, str(url)) == (bucket, path, normal)
    assert is_url(text)
    assert str(url.join("x/y")) == f"{normal}/x/y"
    assert url.join("x").parent == url
    assert url.join("x").name == "x"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("ftp://host/x", "ftp:// URLs are not supported"),
        ("http://example.com/x", "http:// URLs are not supported"),
        ("s3://", "has no valid bucket"),
        ("s3://ab/x", "has no valid bucket"),
        ("s3://bucket/a//b", "an empty part"),
        ("s3://bucket/../x", "an empty part, or a part"),
        ("s3://bucket/a\nb", "a control character"),
        ("https:///x", "has no valid host"),
    ],
)
def test_refused_urls(text: str, message: str) -> None:
    with pytest.raises(CallError, match=message):
        parse_url(text)


SECRETS = (
    *("s3://AKIASECRET:secret@bucket/x", "https://user:secret@host/x", "s3://AKIASECRET:secret"),
    *("https://host/x?X-Amz-Signature=secret", "https://host?sig=secret", "https://host/x#secret"),
    "az://container/x?sv=2021&sig=secret",
)


def test_a_refused_url_with_a_credential_is_not_repeated() -> None:
    for text in SECRETS:
        with pytest.raises(CallError) as error:
            parse_url(text)
        assert "secret" not in str(error.value).lower()


def test_paths_are_not_urls() -> None:
    for text in ("a/b", "C:\\photos", "C:/photos", "a:b", "/s3://x", "", None, 3):
        assert not is_url(text)


def test_file_urls_are_local_paths() -> None:
    assert local_path("file:///a/b%20c") == "/a/b c"
    assert local_path("file://localhost/a") == "/a"
    assert local_path("/a%20b") == "/a%20b"
    assert local_path("s3://bucket/x") == "s3://bucket/x"
    with pytest.raises(CallError, match="names another machine"):
        local_path("file://server/share")
