"""MosaicML Streaming and LitData, in a Python that has them: what `cache.py` starts.

    python rivals.py NAME write IMAGES FOLDER    # store the images as NAME does
    python rivals.py NAME read URL CACHE BATCH   # read an epoch in order

Worker processes decode with Pillow, as the guides of both libraries do. An epoch prints its seconds,
its CPU seconds, and the number of images.
"""

import gc
import importlib
import io
import os
import random
import sys
import time
from pathlib import Path
from typing import Any

CHUNK_BYTES = 64 << 20
WORKERS = len(os.sched_getaffinity(0))


def read_sample(sample: tuple[Path, int]) -> dict[str, Any]:
    return {"image": sample[0].read_bytes(), "label": sample[1]}


def write(name: str, images: Path, out: str) -> None:
    """Store images of class folders, shuffled, as a library does."""
    paths = sorted(images.rglob("*.jpg"))
    names = sorted({path.parent.name for path in paths})
    random.Random(0).shuffle(paths)
    samples = [(path, names.index(path.parent.name)) for path in paths]
    if name == "mosaicml":
        from streaming import MDSWriter

        columns = {"image": "bytes", "label": "int"}
        with MDSWriter(out=out, columns=columns, size_limit=CHUNK_BYTES) as writer:
            for sample in samples:
                writer.write(read_sample(sample))
    else:
        from litdata import optimize

        options = {"chunk_bytes": CHUNK_BYTES, "num_workers": 1, "mode": "overwrite"}
        options |= {"keep_data_ordered": True, "start_method": "spawn", "verbose": False}
        optimize(read_sample, samples, out, **options)


def open_mosaicml(url: str, folder: str, *, batch: int, **options: Any) -> Any:
    from streaming import StreamingDataset
    from streaming.base.util import clean_stale_shared_memory
    from torch.utils.data import DataLoader

    clean_stale_shared_memory()
    os.environ["S3_ENDPOINT_URL"] = os.environ["AWS_ENDPOINT_URL"]
    sizes = {"batch_size": batch, "num_canonical_nodes": 1}
    data = StreamingDataset(remote=url, local=folder, shuffle=False, **sizes)
    return DataLoader(data, batch_size=batch, **options)


def open_litdata(url: str, folder: str, *, batch: int, **options: Any) -> Any:
    from litdata import StreamingDataLoader, StreamingDataset
    from litdata.streaming import downloader

    # It has no option for servers without TLS.
    downloader._OBSTORE_CLIENT_OPTIONS["allow_http"] = True
    keys = ("aws_endpoint_url", "aws_access_key_id", "aws_secret_access_key")
    access = {key.replace("aws_e", "e"): os.environ[key.upper()] for key in keys}
    data = StreamingDataset(url, cache_dir=folder, drop_last=True, storage_options=access)
    return StreamingDataLoader(data, batch_size=batch, **options)


PACKAGES = {"mosaicml": "streaming", "litdata": "litdata"}
OPEN = {"mosaicml": open_mosaicml, "litdata": open_litdata}


def decoded_batch(samples: list[dict[str, Any]]) -> tuple[Any, list[int]]:
    """Decode with Pillow and torchvision into one tensor: float32 [n, 3, 224, 224]."""
    import torch
    from PIL import Image
    from torchvision import transforms

    crop = [transforms.RandomResizedCrop(224), transforms.RandomHorizontalFlip()]
    mean, std = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
    normalize = [transforms.ToTensor(), transforms.Normalize(mean, std)]
    augment, images = transforms.Compose([*crop, *normalize]), []
    for sample in samples:
        with Image.open(io.BytesIO(sample["image"])) as file:
            images.append(augment(file.convert("RGB")))
    return torch.stack(images), [sample["label"] for sample in samples]


def read(name: str, url: str, folder: str, batch: str) -> tuple[float, float, int]:
    """Build a loader and read an epoch; return seconds, CPU seconds, and the number of images."""
    for module in (PACKAGES[name], "torch.utils.data", "torchvision.transforms"):
        importlib.import_module(module)
    count = 0
    start, cpu_start = time.perf_counter(), sum(os.times()[:4])
    options: Any = {"num_workers": WORKERS, "drop_last": True, "collate_fn": decoded_batch}
    batches = iter(OPEN[name](url, folder, batch=int(batch), **options))
    for images, _ in batches:
        count += len(images)
        last = images
    float(last.ravel()[0])
    seconds = time.perf_counter() - start
    del batches  # ends the worker processes, whose CPU time counts when they are gone
    gc.collect()
    return seconds, sum(os.times()[:4]) - cpu_start, count


if __name__ == "__main__":
    if sys.argv[2] == "write":
        write(sys.argv[1], Path(sys.argv[3]), sys.argv[4])
    else:
        print(*read(sys.argv[1], *sys.argv[3:]))
