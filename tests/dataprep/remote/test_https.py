"""Web servers: lists, tables, images and datasets are read by name.

Nothing is listed or written.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from helpers.http_files import serve_folder

from dataprep.options import Options
from dataprep.run.convert import convert_dataset
from dataprep.sources import read_source
from dataprep.summary.info import summarize
from dataprep.verification.verify import verify_dataset
from manifests.errors import CallError


@pytest.fixture(scope="module")
def folder(make_photos, tmp_path_factory) -> Path:
    root = tmp_path_factory.mktemp("web")
    make_photos(root / "images", 9)
    paths = sorted((root / "images").rglob("*.*"))
    text = "".join(f"{path.relative_to(root)} {number % 3}\n" for number, path in enumerate(paths))
    (root / "list.txt").write_text(text)
    convert_dataset(
        read_source(str(root / "list.txt")), str(root / "set"), Options(shard_samples=4), workers=1
    )
    return root


def test_a_list_with_its_images_gives_the_same_bytes(folder, tmp_path) -> None:
    with serve_folder(folder) as url:
        convert_dataset(
            read_source(f"{url}/list.txt"),
            str(tmp_path / "out"),
            Options(shard_samples=4),
            workers=1,
        )
    for path in (folder / "set").glob("[!.]*"):
        if path.is_file():
            assert (tmp_path / "out" / path.name).read_bytes() == path.read_bytes()


def test_a_dataset_is_verified_and_summarized(folder) -> None:
    with serve_folder(folder) as url:
        assert not verify_dataset(f"{url}/set", workers=1).problems
        assert summarize(f"{url}/set").samples == 9


def test_a_folder_cannot_be_listed(folder) -> None:
    with (
        serve_folder(folder) as url,
        pytest.raises(CallError, match=r"does not exist. Hint: give a list or a table"),
    ):
        read_source(f"{url}/images")
