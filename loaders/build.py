"""`loaders.build`. Fast to import: torch, DALI and Arrow are imported when `build` is called."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Literal, TypedDict, overload

from loaders.options import (
    AnyDevice,
    AnyDType,
    Batch,
    Decoder,
    FrameworkName,
    LastBatch,
    Layout,
    OnError,
    Shuffle,
    request_of_call,
)
from loaders.samplers import Sampler

if TYPE_CHECKING:
    from typing import Unpack

    import numpy as np
    from numpy.typing import NDArray

    from loaders.dataset.captions import CaptionChoice
    from loaders.loader import Loader
    from loaders.metrics import Metrics

    FilePath = str | os.PathLike[str]
    DatasetPaths = FilePath | Sequence[FilePath]


class BuildOptions(TypedDict, total=False):
    """The optional arguments of `loaders.build` that do not affect the type of a batch."""

    mix: Sequence[float] | None
    split: str
    batch_size: int | None
    sampler: Sampler | None
    shuffle: Shuffle | None
    device: AnyDevice
    device_id: int | None
    rank: int | None
    world_size: int | None
    seed: int
    num_threads: int | None
    dtype: AnyDType
    layout: Layout
    shared: bool
    caption: CaptionChoice | None
    caption_weights: str | None
    last_batch: LastBatch | None
    prefetch: int | None
    pipelines: int | None
    decoder: Decoder | None
    hw_decoder_load: float | None
    memory_limit: int | str | None
    mmap: bool | None
    cache: str | os.PathLike[str] | None
    cache_limit: int | str | None
    tuning: str | os.PathLike[str] | None
    metrics: Callable[[Metrics], None] | str | os.PathLike[str] | None
    revision: int | Sequence[int | None] | None
    on_error: OnError
    drop_last: bool


@overload
def build(
    dataset: DatasetPaths,
    *,
    transforms: Any,
    framework: Literal["torch"] = ...,
    **options: Unpack[BuildOptions],
) -> Loader[Batch]: ...


@overload
def build(
    dataset: DatasetPaths,
    *,
    transforms: Any,
    framework: Literal["numpy"],
    **options: Unpack[BuildOptions],
) -> Loader[tuple[NDArray[np.generic], NDArray[np.generic]]]: ...


@overload
def build(
    dataset: DatasetPaths,
    *,
    transforms: Any,
    views: Sequence[Any] | None = ...,
    fields: Sequence[str] = ...,
    framework: FrameworkName = ...,
    **options: Unpack[BuildOptions],
) -> Loader[tuple[Any, ...]]: ...


def build(
    dataset: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
    *positional: object,
    mix: Sequence[float] | None = None,
    split: str = "train",
    batch_size: int | None = None,
    transforms: Any = None,
    views: Sequence[Any] | None = None,
    sampler: Sampler | None = None,
    shuffle: Shuffle | None = None,
    device: AnyDevice = "auto",
    device_id: int | None = None,
    rank: int | None = None,
    world_size: int | None = None,
    seed: int = 0,
    num_threads: int | None = None,
    dtype: AnyDType = "float16",
    layout: Layout = "NCHW",
    last_batch: LastBatch | None = None,
    fields: Sequence[str] = ("image", "label"),
    shared: bool = True,
    caption: CaptionChoice | None = None,
    caption_weights: str | None = None,
    framework: FrameworkName = "torch",
    prefetch: int | None = None,
    pipelines: int | None = None,
    decoder: Decoder | None = None,
    hw_decoder_load: float | None = None,
    memory_limit: int | str | None = None,
    mmap: bool | None = None,
    cache: str | os.PathLike[str] | None = None,
    cache_limit: int | str | None = None,
    tuning: str | os.PathLike[str] | None = None,
    metrics: Callable[[Metrics], None] | str | os.PathLike[str] | None = None,
    revision: int | Sequence[int | None] | None = None,
    on_error: OnError = "raise",
    **other: Any,
) -> Loader[Any]:
    """Open one split of a prepared dataset as an iterable of batches.

    >>> train = loaders.build("ILSVRC2012-tfrecord", batch_size=256, transforms="imagenet-train")
    >>> for images, labels in train:  # float16 [256, 3, 224, 224] and int64 [256], both on the GPU
    ...     ...

    Each ``for`` loop over the loader is one epoch. Without a sampler, an epoch contains every
    sample once, divided over all ranks. A batch is a tuple with one value per name in `fields`:

    - ``"image"``: tensor [B, C, H, W], or [B, H, W, C] with ``layout="NHWC"``, of type `dtype`.
      Values are as the transforms return them: 0 to 255 without normalization.
    - ``"image:NAME"``, of samples with several images: the image of this name, which is the first
      one or another one, as ``"image"``. Images that a sample does not have are zeros, and
      ``"valid:NAME"``, a bool tensor [B], is false.
    - ``"label"``: int64 tensor [B], from 0. With transforms that mix images: float32 tensor [B,
      classes].
    - ``"labels"``, of samples with several classes: multi-hot float32 tensor [B, classes].
      ``"values"``, of a regression: float32 tensor [B, numbers]. ``"caption"``: list of strings,
      of samples with several texts the one that `caption` chooses.
      `Loader.dataset.label_type` is the type.
    - ``"index"``: int64 tensor [B], the row of the sample in the split.
    - ``"valid"``: bool tensor [B], false for samples that only fill up a batch: with
      ``last_batch="pad"`` the repeated ones, and with `on_error` the samples that take the place of
      an image that cannot be decoded.
    - ``"grid"``, ``"tokens"``, ``"mask"``, ``"segments"``, with `loaders.transforms.Patchify`, which
      documents them and the shape of ``"image"``: where the patches of the images are.
    - the name of an array column, such as ``"embedding"``: tensor [B, length] of the type that the
      dataset has.
    - any other name: a column of the sample tables, such as ``"key"`` or ``"source"``. A tensor [B]
      if the column is numeric, has no missing value, and has one type in all tables; else a list.
      ``"column:NAME"`` is the source's column of this name, also if the name is one of these.

    Without ``"image"`` in `fields`, no image is decoded. All tensors are on the loader's device. A
    batch stays valid as long as you keep it.

    Args:
        dataset: folder that ``dataprep convert`` or ``dataprep index`` wrote. Or its URL in an
            object store: ``s3://``, ``gs://``, ``az://`` or ``https://``, with `cache` and the
            extra ``[cloud]``. Or a list of folders and URLs, which are read as one dataset: classes
            of the same name are one class, and labels number the classes in the order in which they
            first appear. All must store encoded images, or all raw pixels of one size.
        positional: must be empty: only `dataset` is given by position.
        mix: share of each dataset in an epoch, positive numbers, for example ``[0.7, 0.3]``. If a
            share needs more samples than the dataset has, samples repeat. `None` reads every sample
            once. Of the samplers, only `BucketSampler` can be combined with it.
        split: name of the split.
        batch_size: number of samples per batch on this rank (B). Optional if a PaddleClas config
            gives it.
        transforms: operations on each image, and optionally on the batch:

            - the name of a preset: ``"imagenet-train"``, ``"imagenet-eval"``, ``"modern-train"``,
              ``"bucket-train"``, ``"bucket-eval"``, ``"reid-train"``, ``"reid-eval"``
            - a list. Each item is a name (``"ToCHWImage"``), a name with arguments as in
              PaddleClas' ``transform_ops`` or torchvision (``{"ResizeImage": {"size": 224}}``), or
              a record of `loaders.transforms`, or an object of `torchvision.transforms`. The last
              items may be functions, which take and return the batch of images.
            - a ``Compose`` of `torchvision.transforms`, v1 or v2
            - the path of a YAML file that contains such a list or a PaddleClas training config
        views: several tensors of the same images, for self-supervision: a list of lists of
            transforms, or of ``Compose``, one for each view. `transforms`, a list, runs first, once
            per image; its result is the input of every view. The value of ``"image"`` is then a
            tuple of tensors, one for each view; likewise the values of ``"mask"``, ``"depth"``,
            ``"boxes"``, ``"box_labels"`` and ``"box_counts"``.
        sampler: chooses the samples of each batch: `ShuffledSampler`, `ClassBalancedSampler`,
            `PKSampler`, `BucketSampler`, or any object that follows the protocol
            `loaders.samplers.Sampler`. `None` means the sampler of a PaddleClas config, else every
            sample once per epoch, in the order that `shuffle` gives.
        shuffle: whether each epoch has a new order. With `True`, `ShuffledSampler` gives the order,
            which shuffles the whole split. With ``"buffer"``, DALI's own reader gives it: a rank
            reads a part of the shards, in another order each epoch, and shuffles within a buffer of
            1,024 samples; each epoch starts a new pipeline. With `False`, it reads in stored order.
            `None` means true for the split ``"train"`` and false for others; if the dataset is on a
            network file system, ``"buffer"`` instead of true, because random access is slow there.
            Cannot be combined with `sampler`.
        device: ``"gpu"`` decodes (see `decoder`) and transforms on the GPU, ``"cpu"`` on the CPU.
            ``"auto"`` uses a GPU if there is one. Also in torch's notation: ``"cuda"``,
            ``"cuda:1"`` or a `torch.device`.
        device_id: number of the GPU. `None` means the launcher's local rank, or torch's current
            GPU.
        rank: number of this process, from 0. `None`, for `rank` and `world_size`, means the value
            of `torch.distributed`, Paddle or JAX if initialized, else of the launcher (torchrun,
            Lightning, accelerate, Slurm, Open MPI, MPICH, Intel MPI, Paddle).
        world_size: number of processes that share an epoch.
        seed: 0 or more. The same seed and the same calls return the same batches on the same kind
            of device.
        num_threads: CPU threads that read and decode. `None` means the cores that this process may
            use, divided by the number of ranks on the machine, but with a GPU at most 12. If the GPU
            decodes, at most 8 for images of at most 131,072 pixels on average, and 4 for images of
            more than four million. For raw pixels without masks and depth maps, at most 4 up to 128x128
            pixels.
        dtype: type of the image values, also as a dtype of torch or NumPy. ``"uint8"`` requires
            transforms without normalization.
        layout: order of the axes of an image batch.
        last_batch: what to do with samples that do not fill the last batch. ``"drop"`` omits them.
            ``"partial"`` returns a shorter batch, which the ranks share evenly. If fewer samples
            than ranks are left, training leaves them out; in evaluation some ranks get an empty
            batch, or, if `fields` has ``"valid"``, one sample that is not valid. ``"pad"`` repeats
            the last sample until the batch is full. With `BucketSampler`, this is about the last
            batch of each bucket, and ``"drop"`` carries its samples into the next epoch. `None`
            means ``"drop"`` for the split ``"train"`` and ``"partial"`` for others.
        fields: contents of a batch, in this order.
        shared: whether the random transforms draw the same values for all images of a sample, as
            stereo images need. With `False`, they draw other values for each.
        caption: which text the field ``"caption"`` has of samples with several: ``"random"`` draws
            one by the seed, the epoch and the sample; ``"first"`` is the first one; ``"all"`` is
            the list of all. `None` means ``"random"`` for the split ``"train"`` and ``"first"`` for
            others. A sample without a text has `None`, with ``"all"`` an empty list.
        caption_weights: name of a column with lists of numbers, as long as the lists of texts: the
            relative frequency with which ``"random"`` draws each text. `None` draws all equally often.
        framework: library of the returned tensors.
        prefetch: number of batches that each pipeline prepares in advance. `None` means 2, with
            several pipelines on a GPU 4, and for raw pixels on a GPU 5.
        pipelines: number of DALI pipelines that compute batches in turn, from 1 to 8. DALI runs the
            many small operators of a policy one after the other, so on a GPU two pipelines are up
            to 1.5 times as fast as one for a policy. They share `num_threads`, and each has GPU
            memory of its own. `None` means 2 on a GPU for lists with a policy, such as RandAugment
            and ``modern-train``, and for images of at most 131,072 pixels on average also with
            ColorJitter; 1 otherwise. The samples of a batch and the steps of policies do not depend
            on the number, but the values that DALI draws do, such as crops and flips. So a state
            fits one number only. More than one is an error if DALI's own reader reads the split.
        decoder: ``"gpu"`` decodes on the GPU, an error on a CPU and for other pixels than 8-bit RGB.
            ``"cpu"`` decodes as a loader on the CPU does, and copies the pixels to the GPU. This is
            faster for small images, and no decoder takes GPU memory. `None` means ``"cpu"`` where
            ``"gpu"`` is an error, and for images of at most 128 x 128 pixels on average, unless
            `hw_decoder_load` or `tuning` gives a share; ``"gpu"`` otherwise. A state fits one
            decoder only. No effect on raw pixels.
        hw_decoder_load: share of the JPEG images that the GPU's hardware decoder decodes, from 0 to
            1; an error with ``decoder="cpu"``. `None` means the fastest measured value for these
            images and transforms. If `shuffle` is false, the GPU interpolates the chroma of images
            that are decoded whole, as the CPU does; the hardware decoder is slower then.
        memory_limit: GPU memory in bytes, or as text such as ``"4GiB"``. If the estimates of this
            loader and of the other open loaders of this process exceed it, `build` raises an error
            whose hint says which batch size or image size fits. An error on the CPU.
        mmap: whether to map the shards into memory, which saves a copy. A mapped shard whose file
            system fails, or that is shortened while it is in use, can end the process with SIGBUS;
            with `False`, such a shard is an error that names it. `None` means false on network file
            systems (NFS, SMB, Lustre, GPFS, Ceph, BeeGFS, FUSE), and true on others.
        cache: folder on a local disk for the shards of an object store; required if `dataset` is a
            URL. Training starts as soon as the first batches are there; the images of the coming
            batches are fetched in advance, in the order in which the sampler needs them. What was
            fetched stays for later runs, and processes may share the folder.
        cache_limit: maximum size of the cache on disk in bytes, or text such as ``"200GiB"``. If
            the dataset is larger, the images whose next use is furthest away are evicted. `None`
            means no limit.
        revision: read an older revision of a dataset that ``dataprep convert --append`` has
            changed: a number from 0, for several datasets a list with one for each. `None` reads
            the newest one. A state belongs to one revision.
        tuning: file that ``loaders tune`` wrote. Its `num_threads`, `prefetch` and
            `hw_decoder_load` replace the defaults of these arguments. A file for another machine,
            dataset or transforms is an error that says what differs. If the file has no entry for
            the batch size, the entry of the nearest one is used, with a warning.
        metrics: where a `loaders.Metrics` goes every 10 seconds and at the end of each epoch: to a
            function; with ``"prometheus:9400"`` to an endpoint on that port of 127.0.0.1 (rank r of
            a machine takes port 9400 + r); or as a line of JSON to the file of a path.
        on_error: what to do with an image that cannot be decoded. ``"raise"`` raises a
            `DamagedError` that names shard, record and key. ``"skip"`` leaves the image out: the
            later samples of this rank move up, so every other sample is read as often as without
            it, and only the end of the epoch changes: the last batch is shorter (in training it has
            one repeated sample if nothing is left for it), or with ``last_batch="drop"`` filled up
            with samples that the epoch leaves out, else with repeated ones. ``"replace"`` takes
            another sample of the same class in its place; with `PKSampler`, of the same identity;
            with `BucketSampler`, of the same bucket.
            Neither changes the number of batches or their size; `Loader.errors` lists the images,
            and a warning is logged. Both read through a sampler.
        other: ``drop_last=True`` means ``last_batch="drop"``, and ``drop_last=False`` means
            ``last_batch="partial"``. Any other name raises an error. For an argument of
            `torch.utils.data.DataLoader`, its hint says what to use instead.

    Returns:
        A `Loader`. Close it, or use it as a context manager, to release its memory.
        `Loader.options` has the final value of every argument, and `Loader.explain` describes what
        runs.

    Raises:
        CallError: an argument is wrong, or needs something that the dataset or the machine does not
            have.
        DamagedError: a file of the dataset is missing or differs from what the manifest states.
            Iterating raises it for an image that cannot be decoded and for a label that cannot be
            read.

    Warns:
        UserWarning: the transforms differ from the transforms of their library or waste memory, or
            the sampler cannot use all classes.

    """
    request = request_of_call(locals())
    from loaders.resolve import resolve

    spec = resolve(request)
    for message in spec.warnings:
        warnings.warn(message, stacklevel=2)

    from loaders.loader import Loader

    try:
        return Loader(spec)
    except (
        BaseException
    ):  # such as the first batch: no loader exists that closes what the spec has opened
        spec.close()
        raise
