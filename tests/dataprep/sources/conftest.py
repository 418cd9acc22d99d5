"""Fixtures: trees of files."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

import pytest

MakeTree = Callable[..., Path]


@pytest.fixture
def make_tree(tmp_path: Path) -> MakeTree:
    """Write files into a folder: names get one byte of content each, a mapping gives the content."""

    def make(files: Mapping[str, str | bytes] | Iterable[str], **more: str | bytes) -> Path:
        content = dict(files) if isinstance(files, Mapping) else dict.fromkeys(files, b"x")
        root = tmp_path / "source"
        for name, text in {**content, **more}.items():
            path = root / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(text if isinstance(text, bytes) else text.encode())
        return root

    return make
