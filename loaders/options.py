"""The arguments of `loaders.build`: `BuildRequest` as given, `ResolvedOptions` with every default filled in."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, TypedDict, TypeVar, cast, get_args

import numpy as np

from loaders.devices import Device
from loaders.integers import MAX_INT, require_int, require_int_field
from loaders.ranks import Ranks
from manifests.errors import CallError
from manifests.json_members import MAX_INTEGER
from manifests.labels import LABELS
from manifests.process.text import plural

if TYPE_CHECKING:
    import torch

    from loaders.samplers import Sampler

    #: A batch of the default fields and framework: images and labels.
    Batch: TypeAlias = tuple[torch.Tensor, torch.Tensor]
    #: A device as `loaders.build` takes it: ``"gpu"``, ``"cuda:1"``, the number of a GPU.
    AnyDevice: TypeAlias = str | int | torch.device
    #: A type of image values as `loaders.build` takes it.
    AnyDType: TypeAlias = (
        "DType | DTypeAlias | torch.dtype | type[np.float16 | np.float32 | np.uint8]"
        " | np.dtype[np.float16] | np.dtype[np.float32] | np.dtype[np.uint8]"
    )
else:
    Batch = tuple[Any, Any]  # torch need not be installed.
    AnyDevice = AnyDType = Any

#: Type of the batches of a loader: a tuple with one value per field.
BatchT_co = TypeVar("BatchT_co", bound=tuple[Any, ...], covariant=True)

T = TypeVar("T")

DeviceChoice: TypeAlias = Literal["auto", "gpu", "cpu"]
DType: TypeAlias = Literal["float16", "bfloat16", "float32", "uint8"]
#: Other names of dtypes, which `loaders.arguments.canonical_dtype` translates.
DTypeAlias: TypeAlias = Literal[
    "fp16",
    "half",
    "torch.float16",
    "bf16",
    "torch.bfloat16",
    "fp32",
    "float",
    "torch.float32",
    "byte",
    "torch.uint8",
]
Layout: TypeAlias = Literal["NCHW", "NHWC"]
Shuffle: TypeAlias = Literal["buffer"] | bool
LastBatch: TypeAlias = Literal["drop", "partial", "pad"]
OnError: TypeAlias = Literal["raise", "skip", "replace"]
#: Bytes of one value of the fields that are label images.
LABEL_IMAGE_BYTES: dict[str, int] = {
    labels.name: int(labels.pixels.removeprefix("uint")) // 8
    for labels in LABELS.values()
    if labels.pixels
}
FrameworkName: TypeAlias = Literal["torch", "numpy", "jax", "paddle"]

#: Bytes of one value of an image.
DTYPE_BYTES: dict[DType, int] = {"float16": 2, "bfloat16": 2, "float32": 4, "uint8": 1}


@dataclass(frozen=True, slots=True, kw_only=True)
class BuildRequest:
    """The arguments of one call of `loaders.build`, which documents them. `None` means not given.

    Checks everything that needs neither the dataset nor the machine. NumPy integers become
    Python's.

    Raises:
        CallError: an argument is wrong. The message names it.

    """

    dataset: str | os.PathLike[str] | Sequence[str | os.PathLike[str]]
    mix: Sequence[float] | None
    split: str
    batch_size: int | None
    transforms: str | os.PathLike[str] | Sequence[Any]
    sampler: Sampler | None
    shuffle: Shuffle | None
    device: DeviceChoice
    device_id: int | None
    rank: int | None
    world_size: int | None
    seed: int
    num_threads: int | None
    dtype: DType
    layout: Layout
    last_batch: LastBatch | None
    fields: Sequence[str]
    framework: FrameworkName
    prefetch: int | None
    hw_decoder_load: float | None
    memory_limit: int | str | None
    on_error: OnError
    views: Sequence[Any] | None = None
    mmap: bool | None = None
    cache: str | os.PathLike[str] | None = None
    cache_limit: int | str | None = None
    tuning: str | os.PathLike[str] | None = None
    revision: int | Sequence[int | None] | None = None

    def __post_init__(self) -> None:
        self._check_datasets()
        if not isinstance(self.split, str):
            raise CallError(
                f"split must be the name of a split, got {self.split!r}",
                hint='pass a name, for example split="train"',
            )
        self._check_numbers()
        self._check_choices()
        self._check_fields()
        if self.device == "cpu" and self.device_id is not None:
            raise CallError(
                f'device_id={self.device_id} selects a GPU, but device is "cpu"',
                hint='remove device_id or set device="gpu"',
            )
        if self.framework == "numpy" and self.dtype == "bfloat16":
            raise CallError(
                'NumPy has no dtype "bfloat16"', hint='set dtype="float32" or dtype="float16"'
            )

    def _check_datasets(self) -> None:
        datasets = self.dataset if isinstance(self.dataset, (list, tuple)) else [self.dataset]
        for dataset in datasets:
            if not isinstance(dataset, (str, os.PathLike)) or not os.fspath(dataset):
                raise CallError(
                    f"dataset must be a path, got {dataset!r}",
                    hint="pass the folder of a prepared dataset",
                )
        if not datasets:
            raise CallError(
                "dataset is an empty list", hint="pass the folders of prepared datasets"
            )
        self._check_revision(len(datasets))
        if self.mix is not None:
            self._check_mix(self.mix, len(datasets))

    @property
    def revisions(self) -> list[int | None]:
        """The revision of each dataset."""
        if isinstance(self.revision, (list, tuple)):
            return [*self.revision]
        datasets = len(self.dataset) if isinstance(self.dataset, (list, tuple)) else 1
        return [cast("int | None", self.revision)] * datasets

    def _check_revision(self, datasets: int) -> None:
        if self.revision is None:
            return
        if isinstance(self.revision, (list, tuple)) != isinstance(self.dataset, (list, tuple)) or (
            len(self.revisions) != datasets
        ):
            raise CallError(
                f"revision must be one number for each of {plural(datasets, 'dataset')}, got"
                f" {self.revision!r}",
                hint="pass a number for a folder, and a list of numbers for a list of folders",
            )
        for number in self.revisions:
            if number is not None:
                require_int("revision", number, 0)

    def _check_mix(self, mix: Sequence[float], datasets: int) -> None:
        shares = np.asarray(mix)
        if (
            shares.shape != (datasets,)
            or shares.dtype.kind not in "iuf"
            or not (np.isfinite(shares) & (shares > 0)).all()
        ):
            raise CallError(
                f"mix must be one positive number for each of {plural(datasets, 'dataset')}, got"
                f" {mix!r}",
                hint="pass for example loaders.build([a, b], mix=[0.7, 0.3])",
            )
        if datasets == 1:
            raise CallError(
                "mix gives the shares of several datasets, but dataset names one", hint="remove mix"
            )
        if self.sampler is not None or self.shuffle is not None:
            raise CallError(
                "mix decides what an epoch contains, so it cannot be combined with sampler or"
                " shuffle",
                hint="remove mix, or remove sampler and shuffle",
            )

    def _check_numbers(self) -> None:
        require_int_field(
            self, "seed", 0, maximum=MAX_INTEGER
        )  # the largest that a checkpoint can contain
        optional = {
            "batch_size": (1, MAX_INT),
            "device_id": (0, 1024),
            "num_threads": (1, 1024),
            "prefetch": (1, 64),
        }
        for name, (minimum, maximum) in optional.items():
            if getattr(self, name) is not None:
                require_int_field(self, name, minimum, maximum=maximum)
        load = self.hw_decoder_load
        if load is not None and (
            not isinstance(load, (int, float)) or isinstance(load, bool) or not 0 <= load <= 1
        ):
            raise CallError(f"hw_decoder_load must be a number from 0 to 1, got {load!r}")

    def _check_choices(self) -> None:
        for name, hint in (
            ("cache", "pass a folder on a local disk"),
            ("tuning", "pass a file of `loaders tune`"),
        ):
            path = getattr(self, name)
            if path is not None and (
                not isinstance(path, (str, os.PathLike)) or not os.fspath(path)
            ):
                raise CallError(f"{name} must be a path, got {path!r}", hint=hint)
        if self.mmap is not None and not isinstance(self.mmap, bool):
            raise CallError(f"mmap must be True, False or None, got {self.mmap!r}")
        if not (self.shuffle is None or isinstance(self.shuffle, bool) or self.shuffle == "buffer"):
            raise CallError(f'shuffle must be True, False, "buffer" or None, got {self.shuffle!r}')
        choices = {
            "device": DeviceChoice,
            "dtype": DType,
            "layout": Layout,
            "framework": FrameworkName,
        }
        choices["on_error"] = OnError
        if self.last_batch is not None:
            choices["last_batch"] = LastBatch
        for name, choice in choices.items():
            value, known = getattr(self, name), get_args(choice)
            if not isinstance(value, str) or value not in known:
                raise CallError(
                    f"{name} must be one of {', '.join(map(repr, known))}, got {value!r}"
                )

    def _check_fields(self) -> None:
        fields = self.fields
        if not isinstance(fields, (list, tuple)) or not all(
            isinstance(name, str) for name in fields
        ):
            raise CallError(
                f"fields must be a list of names, got {fields!r}",
                hint='pass names, for example ("image", "label")',
            )
        if not fields:
            raise CallError(
                "fields is empty, so a batch would contain nothing",
                hint='pass names, for example ("image", "label")',
            )
        if len(set(fields)) != len(fields):
            raise CallError(
                f"fields contains the same name twice: {fields!r}", hint="list each field once"
            )


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
    last_batch: LastBatch | None
    prefetch: int | None
    hw_decoder_load: float | None
    memory_limit: int | str | None
    mmap: bool | None
    cache: str | os.PathLike[str] | None
    cache_limit: int | str | None
    tuning: str | os.PathLike[str] | None
    revision: int | Sequence[int | None] | None
    on_error: OnError
    drop_last: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class ResolvedOptions:
    """How a loader makes its batches: every argument of `loaders.build` with its final value.

    `loader.options` is this record.

    Attributes:
        batch_size: samples per batch of this rank. With ``last_batch="partial"`` it is at most the
            number of samples that a rank reads in an epoch, because DALI decodes full batches.
        shuffle: whether each epoch has a new order. ``"buffer"``: DALI's reader shuffles.
        device: the CPU, or a GPU by its number.
        ranks: rank and world size.
        seed: seed of the order and of the augmentation.
        num_threads: CPU threads that read and decode.
        dtype: type of the image values.
        layout: axes of the image batch.
        last_batch: treatment of the samples that do not fill the last batch.
        fields: contents of a batch, in order.
        framework: library that the tensors belong to.
        prefetch: batches prepared in advance.
        hw_decoder_load: share of JPEG images that the GPU's hardware decoder decodes, from 0 to 1.
            Unused on the CPU.
        memory_limit: upper bound for the estimated GPU memory in bytes. `math.inf` means no limit.
        mmap: whether the shards are mapped into memory.
        cache: folder for the shards of an object store; empty for a dataset on disk.
        cache_limit: maximum size of the cache on disk in bytes. `math.inf` means no limit.
        on_error: what happens to an image that cannot be decoded.
        tuning: path of the file of `loaders tune` in use; empty without one.

    """

    batch_size: int
    shuffle: Shuffle
    device: Device
    ranks: Ranks
    seed: int
    num_threads: int
    dtype: DType
    layout: Layout
    last_batch: LastBatch
    fields: tuple[str, ...]
    framework: FrameworkName
    prefetch: int
    hw_decoder_load: float
    memory_limit: float
    mmap: bool
    cache: str
    cache_limit: float
    on_error: OnError
    tuning: str


def first_given(*values: T | None) -> T:
    """Return the first value that is not `None`."""
    return next(value for value in values if value is not None)
