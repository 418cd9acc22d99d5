"""DALI pipelines as a user writes them who knows DALI, without the packages of this project."""

import importlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch.utils.dlpack import from_dlpack

#: Without the types of DALI, which do not allow for arguments in dicts.
dali: Any = importlib.import_module("nvidia.dali")
fn, types, tfrecord = dali.fn, dali.types, dali.tfrecord
MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
#: Random crops as in "imagenet-train", and the size of the results.
CROP = {"random_aspect_ratio": [3 / 4, 4 / 3], "random_area": [0.08, 1.0], "num_attempts": 10}
SIZE = [224, 224]


def run_graph(
    graph: Callable[[], Any], *, gpu: bool, batch_size: int, num_threads: int, prefetch: int = 2,
    conditionals: bool = False,
) -> Iterator[list[torch.Tensor]]:  # fmt: skip
    """Yield the outputs of each batch of a graph, until its source ends."""
    device = torch.cuda.current_device() if gpu else None
    sizes = {"batch_size": batch_size, "num_threads": num_threads, "device_id": device}
    pipeline = dali.pipeline_def(graph, enable_conditionals=conditionals)(
        **sizes, seed=1, prefetch_queue_depth=prefetch, exec_dynamic=True
    )
    pipeline.build()
    pipeline.schedule_run()
    while True:
        try:
            outputs = pipeline.share_outputs()
        except StopIteration:
            return
        pipeline.release_outputs()
        pipeline.schedule_run()
        yield [from_dlpack(each.as_tensor()) for each in outputs]


def crop_resize(
    image: Any, *, gpu: bool, pixels: Sequence[int] | None = None, **load: float
) -> Any:
    """Decode within a random crop, or take pixels of one shape, and resize."""
    resize = {"size": SIZE, "interp_type": types.INTERP_LINEAR, "antialias": True}
    if pixels:
        decoded = fn.reshape(image, shape=list(pixels), layout="HWC")
        return fn.random_resized_crop(decoded.gpu() if gpu else decoded, **CROP, **resize)
    device, given = ("mixed", load) if gpu else ("cpu", {})
    options = {"device": device, "output_type": types.RGB, **CROP, **given}
    return fn.resize(fn.decoders.image_random_crop(image, **options), **resize)


def normalize(images: Any, *, gpu: bool, layout: str = "CHW", flips: float = 0.5) -> Any:
    """Flip a share of the images, and normalize to float16 on the GPU, else float32."""
    return fn.crop_mirror_normalize(
        images,
        mirror=fn.random.coin_flip(probability=flips),
        mean=[255 * value for value in MEAN],
        std=[255 * value for value in STD],
        dtype=types.FLOAT16 if gpu else types.FLOAT,
        output_layout=layout,
    )
