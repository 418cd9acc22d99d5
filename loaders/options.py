"""The arguments of `loaders.build`, which documents them: their types, defaults and checks.

`BuildRequest` declares each argument, and has the arguments of one call. `ResolvedOptions` is what
`loaders.resolve` makes of them. `loaders.build` repeats names, types and defaults for editors and
type checkers; a test compares them.
"""

from __future__ import annotations

import operator
import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, TypeVar, cast, get_args

import numpy as np

from loaders.dataset.captions import CaptionChoice
from loaders.devices import Device
from loaders.metrics import check_metrics
from loaders.ranks import Ranks
from manifests.errors import CallError
from manifests.json_members import MAX_INTEGER
from manifests.labels import LABELS
from manifests.process.text import parse_bytes, plural, shown, suggest

if TYPE_CHECKING:
    import torch

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
DType: TypeAlias = Literal["float16", "bfloat16", "float32", "uint8", "uint16"]
#: Other names of dtypes, which `canonical_dtype` translates.
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
    "torch.uint16",
]
Layout: TypeAlias = Literal["NCHW", "NHWC"]
Shuffle: TypeAlias = Literal["buffer"] | bool
LastBatch: TypeAlias = Literal["drop", "partial", "pad"]
Decoder: TypeAlias = Literal["cpu", "gpu"]
OnError: TypeAlias = Literal["raise", "skip", "replace"]
#: Bytes of one value of the fields that are label images.
LABEL_IMAGE_BYTES: dict[str, int] = {
    labels.name: int(labels.pixels.removeprefix("uint")) // 8
    for labels in LABELS.values()
    if labels.pixels
}
FrameworkName: TypeAlias = Literal["torch", "numpy", "jax", "paddle"]

#: Bytes of one value of an image.
DTYPE_BYTES: dict[DType, int] = {"float16": 2, "bfloat16": 2, "float32": 4, "uint8": 1, "uint16": 2}


#: Largest integer of an argument, if nothing else limits it.
MAX_INT = 2**31 - 1

#: Largest `memory_limit` and `cache_limit`, in bytes.
_MAX_SIZE = 2**60

#: Checks the value of an argument, given its name, and returns the value to use.
Check: TypeAlias = Callable[[str, Any], Any]


class WrongCallError(CallError, TypeError):
    """A function or an operator was called as it cannot be: a `TypeError` in Python."""


#: Other names of dtypes. torch's are compared without ``torch.``.
_DTYPES = {
    "fp16": "float16",
    "half": "float16",
    "bf16": "bfloat16",
    "fp32": "float32",
    "float": "float32",
    "byte": "uint8",
}

#: Arguments of `torch.utils.data.DataLoader` that `build` does not have, and what to do instead.
DATALOADER_HINTS = {
    "num_workers": (
        "remove it: num_threads is the number of CPU threads, and its default suits most machines"
    ),
    "pin_memory": "remove it: batches are made on the GPU",
    "pin_memory_device": "remove it: batches are made on the GPU; device selects which",
    "persistent_workers": "remove it: there are no worker processes",
    "worker_init_fn": (
        "remove it: there are no worker processes; seed makes the augmentation reproducible"
    ),
    "multiprocessing_context": "remove it: there are no worker processes",
    "prefetch_factor": "set prefetch, the number of batches to prepare in advance",
    "collate_fn": (
        "remove it: batches are tensors already; a function at the end of transforms may change the"
        " images"
    ),
    "batch_sampler": "set sampler and batch_size",
    "generator": "set seed",
    "timeout": "remove it",
    "in_order": "remove it: batches always come in order",
}


def canonical_dtype(dtype: Any) -> Any:
    """Return the name of a dtype given as torch's, NumPy's or JAX's, or by a short name.

    Anything else is unchanged.

    >>> canonical_dtype("fp16")
    'float16'
    """
    # Without importing a library that the caller need not have.
    if isinstance(dtype, str):
        name = dtype
    elif type(dtype).__module__.partition(".")[0] in ("torch", "numpy", "jax", "paddle"):
        name = str(dtype)  # torch.float16, paddle.float16, or a numpy.dtype
    elif isinstance(dtype, type):
        name = dtype.__name__  # numpy.float16
    else:
        name = getattr(dtype, "__name__", "")  # jax.numpy.float16
    name = name.rpartition(".")[2]
    return _DTYPES.get(name, name) if name else dtype


def canonical_device(device: Any, device_id: int | None) -> tuple[Any, Any]:
    """Return `device` and `device_id` for a device in torch's notation, such as ``"cuda:1"``.

    >>> canonical_device("cuda:1", None)
    ('gpu', 1)

    Raises:
        CallError: the device and `device_id` name different GPUs.

    """
    if type(device).__module__ == "torch" and type(device).__name__ == "device":
        device = str(device)
    if isinstance(device, bool) or not isinstance(device, (str, int)):
        return device, device_id
    match = re.fullmatch(r"(?:cuda|gpu)(?::(\d{1,4}))?", str(device)) or re.fullmatch(
        r"(\d{1,4})", str(device)
    )
    if match is None:
        return device, device_id
    if match[1] is None:
        return "gpu", device_id
    number = int(match[1])
    if device_id not in (None, number):
        raise CallError(
            f"device={device!r} and device_id={device_id} name different GPUs",
            hint="remove device_id",
        )
    return "gpu", number


# --- integers that callers pass -------------------------------------------------------------------


def require_int(name: str, value: Any, minimum: int, *, maximum: int = MAX_INT) -> int:
    """Return `value` as a Python `int`.

    Args:
        name: name of the argument, for the message.
        value: an integer of Python or NumPy.
        minimum: smallest valid value.
        maximum: largest valid value.

    Raises:
        CallError: `value` is not an integer or is out of range.

    """
    try:
        number = operator.index(value)
    except TypeError:
        number = None
    if number is None or isinstance(value, bool) or number < minimum:
        raise CallError(f"{name} must be an integer of at least {minimum}, got {shown(value)}")
    if number > maximum:
        raise CallError(f"{name} must be at most {maximum}, got {shown(value)}")
    return number


def require_int_field(record: Any, name: str, minimum: int, *, maximum: int = MAX_INT) -> None:
    """Check an integer field of a frozen dataclass, and store it as a Python `int`.

    Raises:
        CallError: see `require_int`.

    """
    object.__setattr__(
        record, name, require_int(name, getattr(record, name), minimum, maximum=maximum)
    )


# --- checks of one argument: each returns the value to use ----------------------------------------


def _integer(minimum: int, maximum: int = MAX_INT) -> Check:
    return lambda name, value: require_int(name, value, minimum, maximum=maximum)


def _one_of(choices: Any) -> Check:
    known = get_args(choices)

    def check(name: str, value: Any) -> Any:
        if not isinstance(value, str) or value not in known:
            raise CallError(f"{name} must be one of {', '.join(map(repr, known))}, got {value!r}")
        return value

    return check


def _path(hint: str) -> Check:
    def check(name: str, value: Any) -> Any:
        if not isinstance(value, (str, os.PathLike)) or not os.fspath(value):
            raise CallError(f"{name} must be a path, got {value!r}", hint=hint)
        return os.fspath(value)

    return check


def _datasets(name: str, value: Any) -> Any:
    check = _path("pass the folder of a prepared dataset")
    if not isinstance(value, (list, tuple)):
        return check(name, value)
    if not value:
        raise CallError("dataset is an empty list", hint="pass the folders of prepared datasets")
    return [check(name, each) for each in value]


def _split(name: str, value: Any) -> Any:
    if not isinstance(value, str):
        raise CallError(
            f"{name} must be the name of a split, got {value!r}",
            hint='pass a name, for example split="train"',
        )
    return value


def _column(name: str, value: Any) -> Any:
    if not isinstance(value, str) or not value:
        raise CallError(f"{name} must be the name of a column, got {value!r}")
    return value


def _dtype(name: str, value: Any) -> Any:
    return _one_of(DType)(name, canonical_dtype(value))


def _flag(*others: str) -> Check:
    """Return a check for true, false, or another value, each as Python writes it."""

    def check(name: str, value: Any) -> Any:
        if not isinstance(value, bool) and value not in others:
            known = ", ".join(["True", "False", *map('"{}"'.format, others)])
            raise CallError(f"{name} must be {known} or None, got {value!r}")
        return value

    return check


def _share(name: str, value: Any) -> Any:
    if not isinstance(value, (int, float)) or isinstance(value, bool) or not 0 <= value <= 1:
        raise CallError(f"{name} must be a number from 0 to 1, got {value!r}")
    return value


def _bytes(name: str, value: Any) -> int:
    """Return a size in bytes, which may be text such as ``"4GiB"``."""
    if isinstance(value, str):
        try:
            value = parse_bytes(value)
        except CallError:
            raise
        except ValueError:
            raise CallError(
                f"{name}={value!r} is not a size in bytes", hint='pass for example "4GiB"'
            ) from None
    return require_int(name, value, 1, maximum=_MAX_SIZE)


def _fields(name: str, value: Any) -> Any:
    hint = 'pass names, for example ("image", "label")'
    if not isinstance(value, (list, tuple)) or not all(isinstance(each, str) for each in value):
        raise CallError(f"{name} must be a list of names, got {value!r}", hint=hint)
    if not value:
        raise CallError(f"{name} is empty, so a batch would contain nothing", hint=hint)
    if len(set(value)) != len(value):
        raise CallError(
            f"{name} contains the same name twice: {value!r}", hint="list each field once"
        )
    return tuple(value)


def _argument(check: Check, **default: Any) -> Any:
    """Declare an argument with a check. If its default is `None`, so may be its value."""
    return field(metadata={"check": check}, **default)


# --- the records ----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class BuildRequest:
    """The arguments of one call of `loaders.build`. `None` means not given.

    Checks everything that needs neither the dataset nor the machine, and translates other spellings
    of devices, dtypes and sizes. The types of the fields are the types after these checks.

    Raises:
        CallError: an argument is wrong. The message names it.

    """

    dataset: str | list[str] = _argument(_datasets)
    mix: Sequence[float] | None = None
    split: str = _argument(_split, default="train")
    batch_size: int | None = _argument(_integer(1), default=None)
    transforms: Any = None
    views: Sequence[Any] | None = None
    # A `Sampler`, which `loaders.samplers.choose` checks.
    sampler: Any = None
    shuffle: Shuffle | None = _argument(_flag("buffer"), default=None)
    device: DeviceChoice = _argument(_one_of(DeviceChoice), default="auto")
    device_id: int | None = _argument(_integer(0, 1024), default=None)
    rank: int | None = None
    world_size: int | None = None
    # The largest seed that a checkpoint can contain.
    seed: int = _argument(_integer(0, MAX_INTEGER), default=0)
    num_threads: int | None = _argument(_integer(1, 1024), default=None)
    dtype: DType = _argument(_dtype, default="float16")
    layout: Layout = _argument(_one_of(Layout), default="NCHW")
    last_batch: LastBatch | None = _argument(_one_of(LastBatch), default=None)
    fields: tuple[str, ...] = _argument(_fields, default=("image", "label"))
    shared: bool = _argument(_flag(), default=True)
    caption: CaptionChoice | None = _argument(_one_of(CaptionChoice), default=None)
    caption_weights: str | None = _argument(_column, default=None)
    framework: FrameworkName = _argument(_one_of(FrameworkName), default="torch")
    prefetch: int | None = _argument(_integer(1, 64), default=None)
    pipelines: int | None = _argument(_integer(1, 8), default=None)
    decoder: Decoder | None = _argument(_one_of(Decoder), default=None)
    hw_decoder_load: float | None = _argument(_share, default=None)
    memory_limit: int | None = _argument(_bytes, default=None)
    mmap: bool | None = _argument(_flag(), default=None)
    cache: str | None = _argument(_path("pass a folder on a local disk"), default=None)
    cache_limit: int | None = _argument(_bytes, default=None)
    tuning: str | None = _argument(_path("pass a file of `loaders tune`"), default=None)
    metrics: Any = _argument(check_metrics, default=None)
    revision: int | Sequence[int | None] | None = None
    on_error: OnError = _argument(_one_of(OnError), default="raise")

    def __post_init__(self) -> None:
        # A device may contain the number of the GPU, so these two are translated together.
        device, device_id = canonical_device(self.device, self.device_id)
        object.__setattr__(self, "device", device)
        object.__setattr__(self, "device_id", device_id)
        for each in fields(self):
            value = getattr(self, each.name)
            if "check" in each.metadata and (value is not None or each.default is not None):
                object.__setattr__(self, each.name, each.metadata["check"](each.name, value))
        # What several arguments say together.
        self._check_revision()
        self._check_mix()
        if self.device == "cpu" and self.device_id is not None:
            raise CallError(
                f'device_id={self.device_id} selects a GPU, but device is "cpu"',
                hint='remove device_id or set device="gpu"',
            )
        if self.decoder == "cpu" and self.hw_decoder_load is not None:
            raise CallError(
                f'hw_decoder_load={self.hw_decoder_load} is for the GPU, but decoder is "cpu"',
                hint='remove hw_decoder_load, or set decoder="gpu"',
            )
        if self.caption_weights is not None and self.final_caption != "random":
            raise CallError(
                f"caption_weights={self.caption_weights!r} weights a random caption, but caption is"
                f' "{self.final_caption}"',
                hint='set caption="random", or leave caption_weights out',
            )
        if self.framework == "numpy" and self.dtype == "bfloat16":
            raise CallError(
                'NumPy has no dtype "bfloat16"', hint='set dtype="float32" or dtype="float16"'
            )

    @property
    def final_caption(self) -> CaptionChoice:
        """Which of several texts of a sample a batch has."""
        return self.caption or ("random" if self.split == "train" else "first")

    @property
    def joins(self) -> bool:
        """Whether `dataset` is a list."""
        return isinstance(self.dataset, list)

    @property
    def datasets(self) -> list[str]:
        """The folders and URLs."""
        return self.dataset if isinstance(self.dataset, list) else [self.dataset]

    @property
    def revisions(self) -> list[int | None]:
        """The revision of each dataset."""
        if isinstance(self.revision, (list, tuple)):
            return [*self.revision]
        return [cast("int | None", self.revision)] * len(self.datasets)

    def _check_revision(self) -> None:
        count = len(self.datasets)
        revisions = self.revisions
        is_list = isinstance(self.revision, (list, tuple))
        if self.revision is not None and (is_list != self.joins or len(revisions) != count):
            raise CallError(
                f"revision must be one number for each of {plural(count, 'dataset')}, got"
                f" {self.revision!r}",
                hint="pass a number for a folder, and a list of numbers for a list of folders",
            )
        for number in revisions:
            if number is not None:
                require_int("revision", number, 0)

    def _check_mix(self) -> None:
        if self.mix is None:
            return
        count = len(self.datasets)
        shares = np.asarray(self.mix)
        if (
            shares.shape != (count,)
            or shares.dtype.kind not in "iuf"
            or not (np.isfinite(shares) & (shares > 0)).all()
        ):
            raise CallError(
                f"mix must be one positive number for each of {plural(count, 'dataset')}, got"
                f" {self.mix!r}",
                hint="pass for example loaders.build([a, b], mix=[0.7, 0.3])",
            )
        if count == 1:
            raise CallError(
                "mix gives the shares of several datasets, but dataset names one", hint="remove mix"
            )
        # A `BucketSampler` without an order of its own can draw by any weights.
        orders = self.sampler is not None and not hasattr(self.sampler, "mixed")
        if orders or self.shuffle is not None:
            raise CallError(
                "mix decides what an epoch contains, so it cannot be combined with sampler or"
                " shuffle",
                hint="remove mix, or remove sampler and shuffle",
            )


def request_of_call(arguments: Mapping[str, Any]) -> BuildRequest:
    """Return the request of a call of `build`, given all of its arguments by name.

    Raises:
        CallError: an argument is wrong.
        WrongCallError: there is an argument that `build` does not have. The hint names the one to
            use.

    """
    given = dict(arguments)
    positional = given.pop("positional")
    other = given.pop("other")
    if positional:
        raise WrongCallError(
            f"build() takes one argument by position, the dataset, but got {1 + len(positional)}",
            hint="name the others: loaders.build(dataset, batch_size=256, transforms=[...])",
        )
    for name in other:
        if name in DATALOADER_HINTS:
            raise WrongCallError(f"build() has no argument {name}", hint=DATALOADER_HINTS[name])
        if name != "drop_last":
            raise WrongCallError(f"build() has no argument {name}", hint=suggest(name, [*given]))
    if "drop_last" in other:
        given["last_batch"] = canonical_last_batch(given["last_batch"], other["drop_last"])
    return BuildRequest(**given)


def canonical_last_batch(last_batch: Any, drop: Any) -> Any:
    """Return `last_batch` for the argument `drop_last` of `DataLoader`."""
    if not isinstance(drop, bool):
        raise CallError(f"drop_last must be True or False, got {drop!r}")
    if last_batch is not None and (last_batch == "drop") != drop:
        raise CallError(
            f"last_batch={last_batch!r} and drop_last={drop} contradict each other",
            hint="remove drop_last",
        )
    return last_batch or ("drop" if drop else "partial")


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
        shared: whether all images of a sample get the same random values.
        caption: which of several texts of a sample the field ``"caption"`` has.
        caption_weights: column with the weights of these texts; empty without one.
        framework: library that the tensors belong to.
        prefetch: batches that each pipeline prepares in advance.
        pipelines: DALI pipelines that compute batches in turn.
        decoder: what decodes the images, if they are encoded.
        hw_decoder_load: share of JPEG images that the GPU's hardware decoder decodes, from 0 to 1.
            Unused if the CPU decodes.
        memory_limit: upper bound for the estimated GPU memory in bytes. `math.inf` means no limit.
        mmap: whether the shards are mapped into memory.
        cache: folder for the shards of an object store; empty for a dataset on disk.
        cache_limit: maximum size of the cache on disk in bytes. `math.inf` means no limit.
        on_error: what happens to an image that cannot be decoded.
        tuning: path of the file of `loaders tune` in use; empty without one.
        metrics: what gets the metrics: a function, ``"prometheus:PORT"`` or a path; empty without one.

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
    shared: bool
    caption: CaptionChoice
    caption_weights: str
    framework: FrameworkName
    prefetch: int
    pipelines: int
    decoder: Decoder
    hw_decoder_load: float
    memory_limit: float
    mmap: bool
    cache: str
    cache_limit: float
    on_error: OnError
    tuning: str
    metrics: Any

    @property
    def pipeline_threads(self) -> int:
        """CPU threads of each pipeline."""
        return max(1, self.num_threads // self.pipelines)

    @property
    def prepared_batches(self) -> int:
        """Batches that all pipelines together prepare in advance."""
        return self.prefetch * self.pipelines


def first_given(*values: T | None) -> T:
    """Return the first value that is not `None`."""
    return next(value for value in values if value is not None)
