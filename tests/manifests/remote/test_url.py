"""URLs of object stores: what is accepted, and that nothing secret in a refused URL is repeated."""

from __future__ import annotations

import pytest
from helpers.rows import evaluate, read_rows

from manifests.errors import CallError
from manifests.remote.url import is_url, local_path, parse_url


@pytest.mark.parametrize(("row", "parts"), read_rows(__file__, "urls"))
def test_urls(row: str, parts: str) -> None:
    text, (bucket, path, normal) = evaluate(row), evaluate(parts)
    url = parse_url(text)
    assert (url.bucket, url.path, str(url)) == (bucket, path, normal)
    assert is_url(text)
    assert str(url.join("x/y")) == f"{normal}/x/y"
    assert url.join("x").parent == url
    assert url.join("x").name == "x"


@pytest.mark.parametrize(("row", "message"), read_rows(__file__, "refused"))
def test_refused_urls(row: str, message: str) -> None:
    with pytest.raises(CallError, match=message):
        parse_url(evaluate(row))


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


def test_paths_are_not_urls_and_file_urls_are_local_paths() -> None:
    for text in ("a/b", "C:\\photos", "C:/photos", "a:b", "/s3://x", "", None, 3):
        assert not is_url(text)
    for text, path in {
        "file:///a/b%20c": "/a/b c",
        "file://localhost/a": "/a",
        "/a%20b": "/a%20b",
        "s3://bucket/x": "s3://bucket/x",
    }.items():
        assert local_path(text) == path
    with pytest.raises(CallError, match="names another machine"):
        local_path("file://server/share")
