"""Layouts of folders: the same samples from the folder, from a zip and a tar of it, and from a bucket.

A sixth of the layouts is also read from an S3 server; with ALL_LAYOUTS=1, all are.
"""

from __future__ import annotations

import os
import shutil

import pytest
from helpers import exports, published
from helpers.object_stores import upload
from helpers.sources import read

from manifests.errors import SourceError

LAYOUTS = {**exports.LAYOUTS, **published.LAYOUTS}

#: Columns that are not the same for a folder and an archive.
_PLACES = ("stamp", "location", "group")


def content_of(src):
    """Return everything that a source says about its samples, with paths relative to the source."""
    source = read(src)
    columns = {}
    for name in source.table.column_names:
        if not name.startswith(_PLACES):
            columns[name] = source.table[name].to_pylist()
    for name in columns.keys() & {"path", "extra:mask_source"}:
        whole = [f"{source.root}/{path}" for path in columns[name]]
        columns[name] = [path.removeprefix(f"{src}/") for path in whole]
    return {**columns, "classes": source.classes, "splits": source.splits, "layout": source.layout}


@pytest.mark.parametrize("name", LAYOUTS)
def test_every_layout_is_the_same_everywhere(name, tmp_path):
    folder = tmp_path / "photos"
    LAYOUTS[name](folder)
    expected = content_of(folder)
    for kind in ("zip", "tar"):
        archive = shutil.make_archive(str(tmp_path / kind), kind, folder)
        if (name, kind) == ("class-tars", "tar"):
            assert read(archive).classes == ("n01440764", "n01443537")  # as class folders
        elif name in exports.NOT_IN_ARCHIVES:
            with pytest.raises(SourceError, match=r"no images|an archive for each class"):
                read(archive)
        else:
            assert content_of(archive) == expected, kind
    assert content_of(upload(folder, f"memory://bucket/{tmp_path.name}")) == expected


@pytest.mark.parametrize("name", [*LAYOUTS][:: 1 if "ALL_LAYOUTS" in os.environ else 6])
def test_layouts_are_the_same_on_a_server(name, tmp_path, store):
    folder = tmp_path / "photos"
    LAYOUTS[name](folder)
    assert content_of(upload(folder, store)) == content_of(folder)
