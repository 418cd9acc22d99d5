"""MosaicML Streaming and LitData, in a Python that has them: what `cache_rivals.py` starts.

    python rivals_epoch.py NAME write IMAGES FOLDER            # store the images as NAME does
    python rivals_epoch.py NAME read ENDPOINT BUCKET DECODER   # read epochs of the bucket's folder NAME

Each line of the standard input of the second, ``CACHE ORDER``, reads an epoch. The answer has its
seconds, those of CPU time, and the number of images. The decoder is ``dali``: the worker processes
read the images, and DALI decodes them in this process, as `loaders` does; or ``pillow``: the worker
processes decode them, as the guides of both libraries do.
"""

from __future__ import annotations

import gc
import importlib
import itertools
import os
import random
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

BATCH = 256
SIZE, AREA, ASPECT = 224, (0.08, 1.0), (3 / 4, 4 / 3)
MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
CHUNK_BYTES = 64 << 20
WORKERS = len(os.sched_getaffinity(0))


# --- the datasets ---------------------------------------------------------------------------------


def images_of(folder: Path) -> list[tuple[Path, int]]:
    """Return the images of class folders with their labels, in the order of `dataprep convert --shuffle`."""
    paths = sorted(path for path in folder.rglob("*.jpg"))
    classes = {
        name: label for label, name in enumerate(sorted({path.parent.name for path in paths}))
    }
    random.Random(0).shuffle(paths)
    return [(path, classes[path.parent.name]) for path in paths]


def read_sample(item: tuple[Path, int]) -> dict[str, Any]:
    path, label = item
    return {"image": path.read_bytes(), "label": label}


def write_mosaicml(images: Path, out: Path) -> None:
    from streaming import MDSWriter

    with MDSWriter(
        out=str(out), columns={"image": "bytes", "label": "int"}, size_limit=CHUNK_BYTES
    ) as writer:
        for item in images_of(images):
            writer.write(read_sample(item))


def write_litdata(images: Path, out: Path) -> None:
    from litdata import optimize

    optimize(
        read_sample, images_of(images), str(out), chunk_bytes=CHUNK_BYTES, num_workers=1, mode="overwrite",
        keep_data_ordered=True, start_method="spawn", verbose=False,
    )  # fmt: skip


def mosaicml(
    url: str, cache: Path, endpoint: str, *, shuffle: bool, collate: Callable[..., Any]
) -> Any:
    from streaming import StreamingDataset
    from streaming.base.util import clean_stale_shared_memory
    from torch.utils.data import DataLoader

    clean_stale_shared_memory()
    os.environ["S3_ENDPOINT_URL"] = endpoint
    data = StreamingDataset(
        remote=url, local=str(cache), shuffle=shuffle, batch_size=BATCH, num_canonical_nodes=1
    )
    return DataLoader(data, BATCH, num_workers=WORKERS, drop_last=True, collate_fn=collate)


def litdata(
    url: str, cache: Path, endpoint: str, *, shuffle: bool, collate: Callable[..., Any]
) -> Any:
    from litdata import StreamingDataLoader, StreamingDataset
    from litdata.streaming import downloader

    downloader._OBSTORE_CLIENT_OPTIONS["allow_http"] = (
        True  # it has no option for servers without TLS
    )
    options = {"endpoint_url": endpoint, "aws_access_key_id": "any", "aws_secret_access_key": "any"}
    data = StreamingDataset(
        url, cache_dir=str(cache), shuffle=shuffle, drop_last=True, storage_options=options
    )
    return StreamingDataLoader(
        data, batch_size=BATCH, num_workers=WORKERS, drop_last=True, collate_fn=collate
    )


WRITERS = {"mosaicml": write_mosaicml, "litdata": write_litdata}
LOADERS = {"mosaicml": mosaicml, "litdata": litdata}


# --- decoding -------------------------------------------------------------------------------------


def encoded_batch(samples: list[dict[str, Any]]) -> tuple[list[bytes], list[int]]:
    return [sample["image"] for sample in samples], [sample["label"] for sample in samples]


def decoded_batch(samples: list[dict[str, Any]]) -> tuple[Any, list[int]]:
    """Crop and decode with Pillow, as torchvision does, into one tensor: float32 [n, 3, 224, 224]."""
    import torch

    images = np.stack([pillow_crop(sample["image"]) for sample in samples])
    return torch.from_numpy(images), [sample["label"] for sample in samples]


def pillow_crop(data: bytes) -> np.ndarray:
    import io

    from PIL import Image

    with Image.open(io.BytesIO(data)) as file:
        image = file.convert("RGB")
    image = image.resize((SIZE, SIZE), Image.Resampling.BILINEAR, box=random_box(*image.size))
    pixels = (np.asarray(image, np.float32) / 255 - np.float32(MEAN)) / np.float32(STD)
    return np.ascontiguousarray(
        (pixels[:, ::-1] if random.random() < 0.5 else pixels).transpose(2, 0, 1)
    )


def random_box(width: int, height: int) -> tuple[int, int, int, int]:
    """Return the crop of torchvision's RandomResizedCrop: left, upper, right, lower."""
    for _ in range(10):
        area = width * height * random.uniform(*AREA)
        aspect = np.exp(random.uniform(*np.log(ASPECT)))
        w, h = round((area * aspect) ** 0.5), round((area / aspect) ** 0.5)
        if 0 < w <= width and 0 < h <= height:
            left, upper = random.randint(0, width - w), random.randint(0, height - h)
            return left, upper, left + w, upper + h
    return 0, 0, width, height


def decode_with_dali(
    batches: Iterator[tuple[list[bytes], list[int]]],
) -> Iterator[tuple[Any, list[int]]]:
    """Decode batches on the CPU with the steps of ``transforms="imagenet-train"``."""
    from nvidia.dali import fn, pipeline_def, types
    from torch.utils.dlpack import from_dlpack

    labels: list[list[int]] = []

    def images() -> Iterator[list[np.ndarray]]:
        for encoded, numbers in batches:
            labels.append(numbers)
            yield [np.frombuffer(data, np.uint8) for data in encoded]

    @pipeline_def(
        batch_size=BATCH, num_threads=WORKERS, device_id=None, seed=1, prefetch_queue_depth=2
    )
    def pipeline() -> Any:
        encoded = fn.external_source(source=images(), dtype=types.UINT8, ndim=1)
        pixels = fn.decoders.image_random_crop(
            encoded, device="cpu", output_type=types.RGB, random_area=list(AREA), random_aspect_ratio=list(ASPECT),
            num_attempts=10,
        )  # fmt: skip
        pixels = fn.resize(
            pixels, size=[SIZE, SIZE], interp_type=types.INTERP_LINEAR, antialias=True
        )
        return fn.crop_mirror_normalize(
            pixels, mirror=fn.random.coin_flip(probability=0.5), mean=[255 * value for value in MEAN],
            std=[255 * value for value in STD], dtype=types.FLOAT, output_layout="CHW",
        )  # fmt: skip

    built = pipeline()
    built.build()
    for number in itertools.count():
        try:
            (output,) = built.run()
        except StopIteration:
            return
        yield from_dlpack(output.as_tensor()), labels[number]


def epoch(make: Callable[..., Any], decoder: str) -> tuple[float, float, int]:
    """Build a loader and read an epoch.

    Return the seconds of both, those of CPU time, and the number of images.
    """
    start, cpu_start = time.perf_counter(), sum(os.times()[:4])
    batches = iter(make(collate=encoded_batch if decoder == "dali" else decoded_batch))
    count = 0
    for images, _ in decode_with_dali(batches) if decoder == "dali" else batches:
        count += len(images)
        last = images
    float(last.ravel()[0])
    seconds = time.perf_counter() - start
    del batches  # ends the worker processes, whose CPU time counts when they are gone
    gc.collect()
    return seconds, sum(os.times()[:4]) - cpu_start, count


def read_epochs(name: str, endpoint: str, bucket: str, decoder: str) -> None:
    """Answer the lines of the standard input."""
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # the libraries print, too
    os.environ |= {
        "AWS_ACCESS_KEY_ID": "any",
        "AWS_SECRET_ACCESS_KEY": "any",
        "AWS_DEFAULT_REGION": "us-east-1",
    }
    package = importlib.import_module({"mosaicml": "streaming"}.get(name, name))
    importlib.import_module("torch.utils.data")
    if decoder == "dali":
        importlib.import_module("nvidia.dali")
    print(f"{name} {package.__version__}", file=answers)
    for line in sys.stdin:
        folder, order = line.split()
        make = partial(
            LOADERS[name],
            f"s3://{bucket}/{name}",
            Path(folder),
            endpoint,
            shuffle=order == "shuffled",
        )
        print(*epoch(make, decoder), file=answers)


def main() -> None:
    name, command, *arguments = sys.argv[1:]
    if command == "write":
        WRITERS[name](*map(Path, arguments))
    else:
        read_epochs(name, *arguments)


if __name__ == "__main__":
    main()
