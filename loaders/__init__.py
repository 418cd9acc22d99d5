"""Prepared datasets in, training batches out: `build`, the samplers, and nothing else.

Importing this package imports neither torch nor DALI; `build` does.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal

from loaders.samplers import ClassBalancedSampler, PKSampler, Sampler, ShuffledSampler

if TYPE_CHECKING:
    from loaders.loader import Loader

__all__ = ["ClassBalancedSampler", "PKSampler", "ShuffledSampler", "build"]


def build(
    dataset: str | os.PathLike[str],
    *,
    split: str = "train",
    batch_size: int | None = None,
    transforms: str | os.PathLike[str] | Sequence[Any],
    sampler: Sampler | None = None,
    shuffle: bool | None = None,
    device: Literal["auto", "gpu", "cpu"] = "auto",
    device_id: int | None = None,
    rank: int | None = None,
    world_size: int | None = None,
    seed: int = 0,
    num_threads: int | None = None,
    dtype: Literal["float16", "bfloat16", "float32", "uint8"] = "float16",
    layout: Literal["NCHW", "NHWC"] = "NCHW",
    last_batch: Literal["drop", "partial", "pad"] | None = None,
    fields: Sequence[str] = ("image", "label"),
    framework: Literal["torch", "numpy", "jax", "paddle"] = "torch",
    prefetch: int | None = None,
    hw_decoder_load: float | None = None,
    memory_limit: int | str | None = None,
) -> Loader:
    """Open one split of a prepared dataset as an iterable of batches.

    Each epoch (each ``for`` over the result) reads every sample once, over all ranks. A batch is a tuple of
    `fields`: ``image`` a tensor of shape ``[B, C, H, W]`` or ``[B, H, W, C]``; ``label`` an int64 tensor of
    shape ``[B]``, or float32 ``[B, classes]`` where the transforms mix images; ``index`` the sample's int64
    number in the split; any other a column of the sample tables, numbers as a tensor (where no row lacks one
    and all tables have one kind) and anything else as a list. The first three mean the same where a table has
    a column of that name; without ``image`` none is decoded. Tensors are on the device, and good for as long
    as they are held.

    Args:
        dataset: folder that `dataprep convert` or `dataprep index` made.
        split: one of its splits.
        batch_size: B, samples in a batch of this rank; may be left out where a PaddleClas config says it.
        transforms: what becomes of an image. A preset's name: ``imagenet-train``, ``imagenet-eval``,
            ``reid-train``, ``reid-eval``, ``modern-train``. A list, each item a name (``"ToCHWImage"``), a name
            with arguments as PaddleClas' ``transform_ops`` and torchvision have them
            (``{"ResizeImage": {"size": 224}}``), a record of `loaders.transforms`, or, at the end, a function
            of the batch of images. A YAML file with such a list, or a whole PaddleClas training config.
        sampler: which samples each batch holds, read from the same shards wherever they lie: one of
            `ShuffledSampler`, `ClassBalancedSampler`, `PKSampler`, or an object of the same interface
            (`loaders.samplers.Sampler`); none means every sample once an epoch, in the order that `shuffle`
            says, or the sampler of a PaddleClas config; for raw pixels none means a `ShuffledSampler` where
            nothing is said of `shuffle` either, and the split is ``train``: it reads them faster.
        shuffle: whether each epoch has an order of its own: samples are drawn from a buffer of 1024, and
            shards change places between epochs; none means yes for ``train`` and no for other splits. Not
            to be said with a sampler.
        device: ``gpu`` decodes and transforms on the GPU, ``cpu`` on the processor, ``auto`` takes
            the GPU where there is one.
        device_id: number of the GPU, used where one is taken; none means the launcher's local rank, or
            torch's current one.
        rank: number of this process; none (with `world_size`) means torch.distributed's, or the launcher's.
        world_size: how many processes share an epoch.
        seed: 0 or more; the same seed and the same calls give the same batches on the same kind of device.
        num_threads: processor threads that read and decode; none means one for each core
            that this process may use, shared with the other ranks of the machine, and at most 12 with a GPU
            (8 where the transforms compute much on the processor or the images are small, 4 where they are large).
        dtype: of images; ``uint8`` only where the transforms do not normalise.
        layout: of images.
        last_batch: what becomes of the samples that do not fill the last batch: ``drop`` leaves them
            out, ``partial`` gives a shorter batch (on some ranks perhaps an empty one), ``pad`` repeats the last
            sample until it is full; none means ``drop`` for ``train`` and ``partial`` for other splits.
        fields: what a batch holds, in this order.
        framework: whose tensors to give.
        prefetch: batches made ahead of the one in use; none means 2, and 5 of raw pixels on the GPU.
        hw_decoder_load: share of the JPEGs that the GPU's hardware decoder takes, 0 to 1; none means the
            fastest measured for images of this dataset's sizes.
        memory_limit: of a GPU, in bytes or as in ``"4GiB"``: what is foretold to take more is refused.

    Raises:
        CallError: an argument is wrong, or asks for what this dataset or this machine has not.
        DamagedError: a file of the dataset is missing or not what the manifest states. Iterating
            raises it for an image that cannot be decoded or a label that cannot be read.

    """
    from loaders.build import assemble

    return assemble(
        dataset,
        split=split,
        transforms=transforms,
        sampler=sampler,
        rank=rank,
        world_size=world_size,
        batch_size=batch_size,
        shuffle=shuffle,
        device=device,
        device_id=device_id,
        seed=seed,
        num_threads=num_threads,
        dtype=dtype,
        layout=layout,
        last_batch=last_batch,
        fields=fields,
        framework=framework,
        prefetch=prefetch,
        hw_decoder_load=hw_decoder_load,
        memory_limit=memory_limit,
    )
