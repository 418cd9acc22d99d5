"""Count the requests that `dataprep convert` sends to an object store, with and without fencing.

Fencing keeps a run that lost its folder from changing it: looks at the journal before each change,
the record of the owner, and a look at every object before the manifest. The figures are in
docs/object-storage.md::

    python scripts/bench/bucket_requests.py                two runs of 4 and 12 shards
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import simplejpeg

sys.path.insert(0, str(Path(__file__).parents[2] / "tests"))

from helpers.object_stores import environment
from helpers.servers import BUCKET, seaweedfs

from dataprep.options import Options
from dataprep.run.convert import convert_dataset
from dataprep.sources import read_source
from manifests.remote import store

PER_SHARD = 8


class CountedStore:
    """Counts the calls of a store's client, each of which is one request here."""

    def __init__(self, client: Any, counts: Counter[str]) -> None:
        self._client, self._counts = client, counts

    def __getattr__(self, name: str) -> Any:
        call = getattr(self._client, name)

        def counted(*arguments: Any, **options: Any) -> Any:
            self._counts[name.removesuffix("_with_delimiter")] += 1
            return call(*arguments, **options)

        return counted


@contextmanager
def counted_requests() -> Iterator[Counter[str]]:
    """Count requests in this block."""
    counts, connect = Counter[str](), store.connect
    with patch.object(
        store, "connect", lambda *args, **kwargs: CountedStore(connect(*args, **kwargs), counts)
    ):
        yield counts


@contextmanager
def without_fencing() -> Iterator[None]:
    """In this block, no run looks whether it still owns its folder."""
    with (
        patch("dataprep.storage.remote.RemoteFiles._check", lambda *_: None),
        patch("dataprep.ledger.fence.record_owner", lambda *_, **__: None),
        patch("dataprep.run.commit.check_objects", lambda *_: None),
        patch("dataprep.run.prepare.check_owner", lambda *_: None),
    ):
        yield


def count(source: str, url: str) -> Counter[str]:
    """Convert a source into a new folder of a bucket; return its requests by kind."""
    with counted_requests() as counts:
        convert_dataset(read_source(source), url, Options(shard_samples=PER_SHARD), workers=1)
    return counts


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--shards", nargs=2, type=int, default=[4, 12])
    args = parser.parse_args()
    pixels = np.random.default_rng(0).integers(0, 256, (32, 32, 3), np.uint8)
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        for shards in args.shards:
            (root / f"{shards}" / "class").mkdir(parents=True)
            for number in range(shards * PER_SHARD):
                data = simplejpeg.encode_jpeg(np.roll(pixels, number, 0), 90)
                (root / f"{shards}" / "class" / f"{number}.jpg").write_bytes(data)
        with seaweedfs(root / "server") as variables, environment(variables):
            for name in ("with fencing", "without fencing"):
                found = []
                for shards in args.shards:
                    url = f"s3://{BUCKET}/{name.replace(' ', '-')}-{shards}"
                    if name.startswith("without"):
                        with without_fencing():
                            found.append(count(str(root / f"{shards}"), url))
                    else:
                        found.append(count(str(root / f"{shards}"), url))
                few, many = (counts.total() for counts in found)
                low, high = args.shards
                each = (many - few) / (high - low)
                print(
                    f"{name}: {each:g} for each shard, {few - low * each:g} for the run; {dict(found[1])}"
                )


if __name__ == "__main__":
    main()
