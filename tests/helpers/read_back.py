"""Read a dataset with DALI's own readers, without decoding."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import nvidia.dali

from loaders.dali.readers import read_stored
from loaders.dataset.fields import Fields
from loaders.dataset.split import open_split
from loaders.dataset.tables import SampleTables
from loaders.ranks import Ranks

BATCH = 5


def read_back(
    folder: Path | str, shuffle: bool = False, epochs: int = 1
) -> Iterator[list[tuple[bytes, int]]]:
    """Yield the encoded images and labels of each epoch, in the order of the reader."""
    split = open_split(folder, "train")
    fields = Fields(split, SampleTables(split), ("image", "label"))
    pipeline = nvidia.dali.Pipeline(batch_size=BATCH, num_threads=1, device_id=None, seed=3)
    with pipeline:
        records = read_stored(
            split, Ranks(), shuffle=shuffle, seed=3, shard_seed=3, started=0,
            with_label=fields.stored_label, with_source=fields.source,
        )  # fmt: skip
        pipeline.set_outputs(
            records.encoded, records.label if fields.stored_label else records.source
        )
    for _ in range(epochs):
        read = []
        for _ in range(-(-split.samples // BATCH)):
            images, metadata = pipeline.run()
            array = np.asarray(metadata.as_tensor())
            stored, rows = (array, None) if fields.stored_label else (None, fields.rows(array))
            numbers = fields.values(stored, rows)["label"]
            assert numbers.dtype == np.int64
            read += [(bytes(np.asarray(images[i])), int(numbers[i])) for i in range(BATCH)]
        yield read[: split.samples]
