"""Layouts of folders: the same samples from the folder, from a zip and a tar of it, and from a bucket."""

from __future__ import annotations

import shutil

import pytest
from helpers import exports, published
from helpers.object_stores import close_connections
from helpers.sources import read

from manifests.errors import SourceError
from manifests.remote.store import open_store

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
    close_connections()
    store = open_store(f"memory://bucket/{tmp_path.name}")
    for path in sorted(folder.rglob("*")):
        if path.is_file():
            store.put(str(path.relative_to(folder)), path.read_bytes())
    assert content_of(store) == expected
