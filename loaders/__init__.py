"""Prepared datasets in, training batches out: `build`, and nothing else.

Importing this package imports neither torch nor DALI; `build` does.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Literal

from loaders.options import Options, usable_cores
from loaders.shards import open_split
from loaders.transforms import preset
from manifests.errors import CallError

if TYPE_CHECKING:
    from loaders.iterators import Loader

__all__ = ["build"]


def build(
    dataset: str | os.PathLike[str],
    *,
    split: str = "train",
    batch_size: int,
    transforms: str,
    shuffle: bool | None = None,
    device: Literal["auto", "gpu", "cpu"] = "auto",
    device_id: int | None = None,
    seed: int = 0,
    num_threads: int | None = None,
    dtype: Literal["float16", "float32"] = "float16",
    layout: Literal["NCHW", "NHWC"] = "NCHW",
    last_batch: Literal["drop", "partial", "pad"] = "drop",
) -> Loader:
    """Open one split of a prepared dataset as an iterable of batches.

    Each epoch (each ``for`` over the result) reads every sample once. A batch is ``(images, labels)``:
    `images` a torch tensor of shape ``[B, 3, H, W]`` or ``[B, H, W, 3]``, RGB, normalised; `labels` a
    torch.int64 tensor of shape ``[B]``; both on the device, and good for as long as they are held.

    Args:
        dataset: folder that `dataprep convert` or `dataprep index` made.
        split: one of its splits.
        batch_size: B, samples in a batch.
        transforms: a preset: ``imagenet-train`` (random resized crop to 224, flip, normalise) or
            ``imagenet-eval`` (shorter side to 256, centre crop to 224, normalise).
        shuffle: whether each epoch has an order of its own: samples are drawn from a buffer of 1024, and
            shards change places between epochs; none means yes for ``train`` and no for other splits.
        device: ``gpu`` decodes and transforms on the GPU, ``cpu`` on the processor, ``auto`` takes
            the GPU where there is one.
        device_id: number of the GPU, used where one is taken; none means torch's current one.
        seed: 0 or more; the same seed and the same calls give the same batches on the same kind of device.
        num_threads: processor threads that read and decode; none means one a usable core, at most 16.
        dtype: of `images`.
        layout: of `images`.
        last_batch: what becomes of the samples that do not fill the last batch: ``drop`` leaves them
            out, ``partial`` gives a shorter batch, ``pad`` repeats the last sample until it is full.

    Raises:
        CallError: an argument is wrong, or asks for what this dataset or this machine has not.
        DamagedError: a file of the dataset is missing or not what the manifest states. Iterating
            raises it for an image that cannot be decoded or a label that cannot be read.

    """
    options = Options(
        batch_size=batch_size,
        shuffle=split == "train" if shuffle is None else shuffle,
        device=device,
        device_id=device_id,
        seed=seed,
        num_threads=usable_cores() if num_threads is None else num_threads,
        dtype=dtype,
        layout=layout,
        last_batch=last_batch,
    )
    operations = preset(transforms)
    shards = open_split(dataset, split)
    if options.batches(shards.samples) == 0:
        raise CallError(
            f"batch_size={batch_size} is more than the {shards.samples} samples of split {split!r}",
            mend='lower batch_size, or say last_batch="partial" or "pad"',
        )

    from loaders.iterators import Loader

    return Loader(shards, operations, options)
