"""With many shards, a sample table is read when a row of its shard is needed.

Then damage is found and named.
"""

import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import Mock

import numpy as np
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from helpers.damaged import change_column
from helpers.loading import build

from loaders.dataset import tables
from loaders.dataset.split import open_split
from loaders.dataset.tables import LazyColumns
from manifests.errors import TableError

SMALL = [{"Resize": {"size": [8, 8]}}]


@pytest.fixture
def folder(make_dataset, mixed):
    return make_dataset("webdataset", mixed, shards=23)


@pytest.fixture
def lazy(monkeypatch):
    monkeypatch.setattr(tables, "MAX_EAGER_SHARDS", 2)


def count_batches(folder, rows):
    """Read two epochs of the first rows."""
    with build(folder, transforms=SMALL, sampler=first(rows), batch_size=2) as loader:
        return len([*loader, *loader])


def first(count):
    """Return a sampler of the first rows of the split."""
    rows = np.arange(count, dtype=np.int64)
    batch = lambda epoch, number: rows[number * 2 : number * 2 + 2]  # noqa: E731
    plan = SimpleNamespace(samples=count, lines=(), batch=batch)
    return SimpleNamespace(columns=(), plan=lambda columns, **_: plan)


@pytest.mark.usefixtures("lazy")
def test_only_the_tables_of_the_rows_are_read_and_each_once(folder, monkeypatch):
    opened = Mock(wraps=tables.SampleTable)
    monkeypatch.setattr(tables, "SampleTable", opened)
    assert count_batches(folder, 6) == 6
    names = [os.path.basename(call.args[0]) for call in opened.call_args_list]
    assert sorted(names) == [f"train-{number:05d}.parquet" for number in range(6)]


@pytest.mark.usefixtures("lazy")
@pytest.mark.parametrize("damage", ["missing", "cut", "rows", "far outside"])
def test_a_damaged_table_is_found_at_the_first_use_of_its_shard(folder, damage):
    path = folder / "train-00004.parquet"
    table = pq.read_table(path)
    if damage == "missing":
        path.unlink()
    elif damage == "cut":
        path.write_bytes(path.read_bytes()[:-20])
    elif damage == "rows":
        pq.write_table(table.slice(0, 0), path)
    else:
        change_column(path, "offset", pc.add(table["offset"], 2**32))
    assert count_batches(folder, 4) == 4
    with pytest.raises(TableError) as caught:
        count_batches(folder, 6)
    assert caught.value.file == str(path)


@pytest.mark.usefixtures("lazy")
def test_few_tables_give_the_mean_size(folder):
    columns = tables.SampleTables(open_split(str(folder), "train"))
    few, all_sizes = columns.image_sizes(3), columns.all_image_sizes()
    assert (len(few.widths), len(all_sizes.widths)) == (3, 23)
    assert set(few.widths.tolist()) <= set(all_sizes.widths.tolist())


def test_several_threads_read_each_table_once():
    read = []

    def columns(shard, names):
        read.append((shard, tuple(names)))
        return dict.fromkeys(names, np.full(3, shard))

    lazy = LazyColumns([3] * 50, columns)
    values = lazy.add({"a": np.dtype("i8"), "b": np.dtype("i4")})
    with ThreadPoolExecutor(8) as threads:
        list(threads.map(lambda _: lazy.load(np.arange(50)), range(8)))
    assert sorted(read) == [(shard, ("a", "b")) for shard in range(50)]
    assert values["a"].tolist() == np.repeat(np.arange(50), 3).tolist()


def test_shards_that_are_not_read_take_no_memory():
    """Not even if their rows lie beside rows of other shards: systems may provide 2 MB at a time."""

    def resident():
        return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")

    lazy = LazyColumns([1000] * 16_000, lambda shard, _: {"label": np.full(1000, shard)})
    labels = lazy.add({"label": np.dtype("i4")})["label"]  # 64 MB
    before = resident()
    lazy.load(np.arange(0, 16_000, 100))
    assert resident() - before < 16 << 20
    assert (labels.reshape(-1, 1000)[:201:100, ::500] == [[0, 0], [100, 100], [200, 200]]).all()
    assert not labels.reshape(-1, 1000)[1:100].any()
