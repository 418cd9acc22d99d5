"""Read the images of a converted dataset back, from its files alone."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np

from manifests.schema import Sample
from manifests.store import read_manifest
from manifests.tables import read_table, samples


def stored_samples(dataset: Path) -> Iterator[tuple[Sample, bytes]]:
    """Return every row of the sample tables with the bytes that it points at."""
    manifest = read_manifest(dataset)
    for split in manifest.splits:
        for shard in split.shards:
            data = (dataset / shard.name).read_bytes()
            for row in samples(
                read_table(dataset / shard.table.name, label_type=manifest.label_type)
            ):
                yield row, data[row.offset : row.offset + row.size]


def decode_with_dali(dataset: Path, batch_size: int = 8) -> list[np.ndarray]:
    """Decode every image of a dataset of one shard on the CPU, in stored order.

    Uint8 [H, W, 3] each.
    """
    from nvidia.dali import fn, pipeline_def, types

    manifest = read_manifest(dataset)
    ((shard,),) = [split.shards for split in manifest.splits]
    path, index = str(dataset / shard.name), str(dataset / shard.index.name)

    @pipeline_def(batch_size=batch_size, num_threads=2, device_id=None)
    def pipeline():
        if manifest.format == "tfrecord":
            import nvidia.dali.tfrecord as tfrec

            features = {"image/encoded": tfrec.FixedLenFeature([], tfrec.string, "")}
            image = fn.readers.tfrecord(path=path, index_path=index, features=features)[
                "image/encoded"
            ]
        else:
            extensions = ";".join(manifest.components.image)
            image = fn.readers.webdataset(
                paths=path, index_paths=index, ext=[extensions], missing_component_behavior="error"
            )
        return fn.decoders.image(image, device="cpu", output_type=types.RGB)

    pipe = pipeline()
    pipe.build()
    images: list[np.ndarray] = []
    while len(images) < shard.samples:
        (batch,) = pipe.run()
        images += [np.asarray(batch.at(number)) for number in range(len(batch))]
    return images[: shard.samples]
