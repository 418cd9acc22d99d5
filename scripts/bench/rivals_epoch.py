"""MosaicML Streaming and LitData, in a Python that has them: what `cache.py` starts.

    python rivals_epoch.py NAME write IMAGES FOLDER                  # store the images as NAME does
    python rivals_epoch.py NAME read ENDPOINT BUCKET BATCH DECODER   # read epochs of s3://BUCKET/NAME

Each line of the standard input of the second, ``ORDER CACHE``, reads an epoch. The answer has its
seconds, its CPU seconds, and the number of images. The decoder is ``dali``: the worker processes
read the images, and DALI decodes them in this process, as `loaders` does; or ``pillow``: the worker
processes decode them, as the guides of both libraries do.
"""

from __future__ import annotations

import gc
import importlib
import io
import os
import random
import sys
import time
from collections.abc import Callable, Iterator
from functools import cache, partial
from pathlib import Path
from typing import Any

import by_hand
import numpy as np

CHUNK_BYTES = 64 << 20
WORKERS = len(os.sched_getaffinity(0))
#: Encoded or decoded images, and labels.
Batch = tuple[Any, list[int]]


# --- the datasets ---------------------------------------------------------------------------------


def images_of(folder: Path) -> list[tuple[Path, int]]:
    """Return the images of class folders with their labels, shuffled."""
    paths = sorted(folder.rglob("*.jpg"))
    names = sorted({path.parent.name for path in paths})
    random.Random(0).shuffle(paths)
    return [(path, names.index(path.parent.name)) for path in paths]


def read_sample(sample: tuple[Path, int]) -> dict[str, Any]:
    return {"image": sample[0].read_bytes(), "label": sample[1]}


def write(name: str, images: Path, out: Path) -> None:
    """Store images as a library does."""
    samples = images_of(images)
    if name == "mosaicml":
        from streaming import MDSWriter

        columns = {"image": "bytes", "label": "int"}
        with MDSWriter(out=str(out), columns=columns, size_limit=CHUNK_BYTES) as writer:
            for sample in samples:
                writer.write(read_sample(sample))
    else:
        from litdata import optimize

        options = {"chunk_bytes": CHUNK_BYTES, "num_workers": 1, "mode": "overwrite"}
        options |= {"keep_data_ordered": True, "start_method": "spawn", "verbose": False}
        optimize(read_sample, samples, str(out), **options)


def mosaicml(url: str, cache: Path, endpoint: str, *, shuffle: bool, batch: int) -> Any:
    from streaming import StreamingDataset
    from streaming.base.util import clean_stale_shared_memory
    from torch.utils.data import DataLoader

    clean_stale_shared_memory()
    os.environ["S3_ENDPOINT_URL"] = endpoint
    options = {"shuffle": shuffle, "batch_size": batch, "num_canonical_nodes": 1}
    return partial(DataLoader, StreamingDataset(remote=url, local=str(cache), **options))


def litdata(url: str, cache: Path, endpoint: str, *, shuffle: bool, batch: int) -> Any:  # noqa: ARG001
    from litdata import StreamingDataLoader, StreamingDataset
    from litdata.streaming import downloader

    # It has no option for servers without TLS.
    downloader._OBSTORE_CLIENT_OPTIONS["allow_http"] = True
    keys = ("aws_access_key_id", "aws_secret_access_key")
    access = {"endpoint_url": endpoint, **{key: os.environ[key.upper()] for key in keys}}
    options = {"shuffle": shuffle, "drop_last": True, "storage_options": access}
    return partial(StreamingDataLoader, StreamingDataset(url, cache_dir=str(cache), **options))


# --- decoding -------------------------------------------------------------------------------------


def encoded_batch(samples: list[dict[str, Any]]) -> Batch:
    return [sample["image"] for sample in samples], [sample["label"] for sample in samples]


@cache
def augmentation() -> Any:
    from torchvision import transforms

    steps = [transforms.RandomResizedCrop(by_hand.SIZE), transforms.RandomHorizontalFlip()]
    normalize = transforms.Normalize(by_hand.MEAN, by_hand.STD)
    return transforms.Compose([*steps, transforms.ToTensor(), normalize])


def decoded_batch(samples: list[dict[str, Any]]) -> Batch:
    """Decode with Pillow and torchvision into one tensor: float32 [n, 3, 224, 224]."""
    import torch
    from PIL import Image

    images = []
    for sample in samples:
        with Image.open(io.BytesIO(sample["image"])) as file:
            images.append(augmentation()(file.convert("RGB")))
    return torch.stack(images), [sample["label"] for sample in samples]


def decode_with_dali(batches: Iterator[Batch], batch: int) -> Iterator[Batch]:
    """Decode batches on the CPU with the steps of ``transforms="imagenet-train"``."""
    labels: list[list[int]] = []

    def images() -> Iterator[list[Any]]:
        for encoded, numbers in batches:
            labels.append(numbers)
            yield [np.frombuffer(data, np.uint8) for data in encoded]

    def graph() -> Any:
        data = by_hand.fn.external_source(source=images(), dtype=by_hand.types.UINT8, ndim=1)
        return by_hand.normalize(by_hand.crop_resize(data, gpu=False), gpu=False)

    made = by_hand.run_graph(graph, gpu=False, batch_size=batch, num_threads=WORKERS)
    for number, (pixels,) in enumerate(made):
        yield pixels, labels[number]


def epoch(make: Callable[..., Any], decoder: str, batch: int) -> tuple[float, float, int]:
    """Build a loader and read an epoch; return seconds, CPU seconds, and the number of images."""
    start, cpu_start = time.perf_counter(), sum(os.times()[:4])
    collate = encoded_batch if decoder == "dali" else decoded_batch
    options = {"num_workers": WORKERS, "drop_last": True, "collate_fn": collate}
    batches: Iterator[Batch] = iter(make()(batch_size=batch, **options))
    count = 0
    for images, _ in decode_with_dali(batches, batch) if decoder == "dali" else batches:
        count += len(images)
        last = images
    float(last.ravel()[0])
    seconds = time.perf_counter() - start
    del batches  # ends the worker processes, whose CPU time counts when they are gone
    gc.collect()
    return seconds, sum(os.times()[:4]) - cpu_start, count


def read_epochs(name: str, endpoint: str, bucket: str, size: str, decoder: str) -> None:
    """Answer the lines of the standard input."""
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # the libraries print, too
    package = importlib.import_module({"mosaicml": "streaming"}.get(name, name))
    importlib.import_module("torch.utils.data")
    if decoder == "dali":
        importlib.import_module("nvidia.dali")
    print(f"{name} {package.__version__}", file=answers)
    library, batch = {"mosaicml": mosaicml, "litdata": litdata}[name], int(size)
    for line in sys.stdin:
        order, folder = line.rstrip("\n").split(" ", 1)
        where = (f"s3://{bucket}/{name}", Path(folder), endpoint)
        make = partial(library, *where, shuffle=order == "shuffled", batch=batch)
        print(*epoch(make, decoder, batch), file=answers)


def main() -> None:
    if len(sys.argv) < 4 or sys.argv[2] not in ("write", "read"):
        raise SystemExit(__doc__)
    name, command, *arguments = sys.argv[1:]
    if command == "write":
        write(name, *map(Path, arguments))
    else:
        read_epochs(name, *arguments)


if __name__ == "__main__":
    main()
