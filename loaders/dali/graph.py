"""Shared by all modules of the graph: DALI's modules, the context, random streams, and `apply`."""

from __future__ import annotations

import zlib
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import singledispatch
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike

from loaders.arrays import Array, Float32s, Ints
from loaders.progress import ONE_LANE, Lane
from loaders.transforms.base import BUCKET, AnySize, ImageSpec, Operation, no_buckets
from manifests.errors import CallError

try:
    import nvidia.dali
    import nvidia.dali.math
except ModuleNotFoundError as error:
    raise CallError(
        f"NVIDIA DALI is not installed ({error})",
        hint="run `pip install nvidia-dali-cuda120`, or nvidia-dali-cuda130 for CUDA 13",
    ) from None

# DALI's type stubs are incomplete.
dali: Any = nvidia.dali
fn, math, types = dali.fn, dali.math, dali.types

#: A node of DALI's graph: a ``DataNode``, which stands for one tensor per sample of the batch.
Node: TypeAlias = Any

#: DALI's ``Pipeline``.
Pipeline: TypeAlias = Any

_DALI_TYPES = {
    "int32": types.INT32,
    "float32": types.FLOAT,
    "uint8": types.UINT8,
    "bool": types.BOOL,
}


class RandomStreams:
    """Random values for the graph: one draw per sample, on the CPU.

    Each draw has its own stream, seeded with the seed of the graph, the `repr` of the operation
    that draws, and the name of the draw. It does not depend on other parts of the graph, so a fused
    and an unfused graph draw the same values. An operation that appears twice gets different values
    the second time.
    """

    def __init__(
        self,
        seed: int,
        batch_size: Callable[[int], int] | None = None,
        firsts: Ints | None = None,
        lane: Lane = ONE_LANE,
    ) -> None:
        """Begin the draws.

        Args:
            seed: seed of the graph.
            batch_size: returns the samples of a batch by its number, counted as in `Upcoming`;
                `None` if all batches have as many as the graph.
            firsts: of each sample of a batch, the number of the sample whose values it gets: the
                first frame of its clip, int64 [B]. `None` if each sample has values of its own.
            lane: the batches that the graph computes. NumPy draws by the number of a batch, and so
                the same in any lane; DALI's operators draw other values in each lane.

        """
        self._seed = seed
        self._batch_size = batch_size
        self._firsts = firsts
        self._lane = lane
        self._uses: Counter[int] = Counter()

    def again(self, seed: int) -> RandomStreams:
        """Return the draws from the beginning, for batches of the same sizes."""
        return RandomStreams(seed, self._batch_size, self._firsts, self._lane)

    def seed(self, owner: Operation, name: str, *, of_lane: bool = True) -> int:
        """Return a seed, 0 to 2**31 - 1, of a draw.

        Args:
            owner: the operation that draws.
            name: name of the draw.
            of_lane: whether it has another seed in each lane, as an operator of DALI needs, which
                does not know the number of the batch.

        """
        key = zlib.crc32(f"{owner!r} {name}".encode())
        self._uses[key] += 1
        numbers = [self._seed, key, self._uses[key]]
        if of_lane and self._lane.index:
            numbers.append(self._lane.index)
        return int(np.random.SeedSequence(numbers).generate_state(1)[0] >> 1)

    def uniform(self, owner: Operation, name: str, low: float, high: float) -> Node:
        """Draw float32 uniformly from [`low`, `high`)."""
        if low == high:
            return types.Constant(float(low))
        draw = fn.random.uniform(range=[float(low), float(high)], seed=self.seed(owner, name))
        return self.of_clips(draw)

    def integers(self, owner: Operation, name: str, count: int) -> Node:
        """Draw int32 uniformly from 0 to `count` - 1."""
        draw = fn.random.choice(count, seed=self.seed(owner, name))
        return self.of_clips(fn.cast(draw, dtype=types.INT32))

    def coin(self, owner: Operation, name: str, probability: float) -> Node:
        """Draw a bool that is true with the given probability."""
        return self.of_clips(
            fn.random.coin_flip(
                probability=probability, dtype=types.BOOL, seed=self.seed(owner, name)
            )
        )

    @property
    def has_clips(self) -> bool:
        """Whether samples get the values of others. An operator must not draw for itself then."""
        return self._firsts is not None

    def of_clips(self, drawn: Node) -> Node:
        """Return what an operator drew, with the values of the first frame for all frames of a clip."""
        if self._firsts is None:
            return drawn
        # The graph draws for the whole batch: never in a branch, where fewer samples are.
        return fn.permute_batch(drawn, indices=self._firsts.tolist())

    def from_numpy(
        self,
        owner: Operation,
        name: str,
        batch_size: int,
        draw: Callable[..., Sequence[Array]],
        ndims: Sequence[int],
        *,
        known: Callable[[int], Sequence[Array]] | None = None,
    ) -> Sequence[Node]:
        """Draw with NumPy, once per batch.

        This is a single operator; the same arithmetic in DALI needs one operator per step. The
        generator is created for each batch from the seed and the batch's number and has no other
        state, so a checkpoint of the pipeline restores the draws.

        Args:
            owner: the operation that uses the values.
            name: name of the draw.
            batch_size: samples in a batch; in the largest one, if they differ.
            draw: takes a generator and the batch size, and the arrays of `known`, and returns one
                array for each output, int32, float32, uint8 or bool. The first axis is the sample.
            ndims: number of dimensions of a sample, for each output.
            known: returns arrays of a batch by its number, counted as in `Upcoming`.

        """
        seed = self.seed(owner, name, of_lane=False)

        def draw_arrays(rng: np.random.Generator, number: int) -> list[Array]:
            count = batch_size
            arrays: Sequence[Array] = ()
            if self._batch_size is not None:
                count = self._batch_size(number)
            if known is not None:
                arrays = known(number)
            return list(map(np.ascontiguousarray, draw(rng, count, *arrays)))

        def draw_batch(batch: Any) -> tuple[Array, ...]:
            number = self._lane.number(batch.iteration)
            rng = np.random.default_rng([seed, batch.epoch_idx, number])
            drawn = draw_arrays(rng, number)
            if self._firsts is not None:
                for position, values in enumerate(drawn):
                    drawn[position] = values[self._firsts]
            return tuple(drawn)

        example = draw_arrays(np.random.default_rng(0), 0)
        nodes: Sequence[Node] = fn.external_source(
            draw_batch,
            num_outputs=len(ndims),
            batch=True,
            batch_info=True,
            dtype=[_DALI_TYPES[array.dtype.name] for array in example],
            ndim=list(ndims),
        )
        return nodes

    # --- what a preview shows of the draws: nothing here, see `loaders.dali.drawn` ---

    @property
    def shown(self) -> int:
        """The number of descriptions so far, for `show_only`."""
        return 0

    def show(self, describe: Callable[..., str], nodes: Callable[[], Sequence[Node]]) -> None:
        """Describe what was drawn for an image.

        Args:
            describe: takes the values of the nodes for one image; returns an empty text if nothing
                was changed.
            nodes: returns nodes on the CPU.

        """

    def show_drawn(self, describe: Callable[[np.random.Generator, int], Sequence[str]]) -> None:
        """Describe what the last `from_numpy` drew: `describe` draws it again, and returns a text for each image."""

    def show_only(self, first: int, node: Node, value: int = 1) -> None:
        """Keep the descriptions from number `first` on only for the images for which a node has a value."""

    def next_view(self) -> None:
        """Begin the draws of a view."""


@dataclass(frozen=True, slots=True)
class GraphContext:
    """Where a graph runs, and its random values.

    Attributes:
        gpu: `True` if decoded images are on the GPU, `False` if the whole graph runs on the CPU.
        batch_size: samples in every batch that the pipeline computes.
        random: the random values.
        mask_fill: value of the pixels that a mask gets from outside, if the nodes are masks and not
            images. Operations then take the nearest pixel instead of a mean, which would be another
            class. `None` for images.
        frames: whether the nodes are frames, which tell where the transforms put boxes
            (`loaders.dali.targets`), and not images.
        gpu_decodes: whether the GPU also decodes; if not, the CPU does, and the pixels are copied.
        hw_decoder_load: share of the images, 0 to 1, that the GPU's hardware JPEG decoder takes.
        smooth: whether the mixed decoder interpolates the chroma of whole images as the decoder on
            the CPU does, so that results do not depend on the device. It takes longer.
        budgets: returns the budgets of the images of a batch for `Patchify`, by the number of the
            run from the start of the pipeline. `None` if nothing is drawn for a batch.
        bucket: height and width of the batch's bucket, float32 [2] for each sample, on the CPU.
            `None` if the sampler gives batches no size.
        known: returns the heights and widths of the encoded images of a batch as decoding returns
            them, and of its bucket, float32 [B, 2], by the number of the batch, counted as in
            `Upcoming`. `None` if only the headers of images tell.
        dtype: dtype of the images, after the normalization has made the batch's. Empty before it.

    """

    gpu: bool
    batch_size: int
    random: RandomStreams
    mask_fill: int | None = None
    frames: bool = False
    gpu_decodes: bool = True
    hw_decoder_load: float = 0.0
    smooth: bool = True
    budgets: Callable[[Any, int], Ints] | None = None
    bucket: Node | None = None
    known: Callable[[int], Sequence[Float32s]] | None = None
    dtype: str = ""

    def sides(self, size: AnySize | None) -> Node:
        """Return a height and a width, float32 [2]: of the batch's bucket, or the same for all.

        Raises:
            CallError: the size is the one of the bucket, but batches have no buckets.

        """
        if size != BUCKET:
            return constant(size or ())
        if self.bucket is None:
            raise no_buckets()
        return self.bucket

    def fill(self, values: Sequence[float]) -> list[float]:
        """Return the value of pixels from outside the image: one per channel, or one for all of them.

        Masks have one value, and images with other channels than three are filled with 0.
        """
        if self.mask_fill is not None:
            return [float(self.mask_fill)]
        return list(values) if any(values) else [0.0]

    def to_device(self, node: Node) -> Node:
        """Move a CPU node to the device of the images, for arithmetic with them."""
        return node.gpu() if self.gpu else node


@singledispatch
def apply(operation: Operation, image: Node, spec: ImageSpec, context: GraphContext) -> Node:
    """Add an operation to the graph.

    Args:
        operation: what to do. Each module of this package registers the operations that it
            implements.
        image: HWC images that match `spec`; for an operation that decodes, uint8 [bytes] on the
            CPU: a JPEG or another encoded image, or raw RGB pixels for `Unpack`.
        spec: size, channels, dtype and color space of `image`.
        context: where the graph runs, and its random values.

    Returns:
        HWC images that match ``operation.output(spec)``.

    Raises:
        TypeError: no module of this package implements the operation.

    """
    raise TypeError(f"{type(operation).__name__} has no DALI implementation")


@singledispatch
def move_frame(operation: Operation, frame: Node, spec: ImageSpec, context: GraphContext) -> Node:
    """Add to the graph what an operation that moves pixels does to the frames of `loaders.dali.targets`.

    Raises:
        TypeError: no module of this package implements it.

    """
    raise TypeError(f"boxes cannot follow {type(operation).__name__}")


def apply_all(
    operations: Sequence[Operation], node: Node, spec: ImageSpec, context: GraphContext
) -> tuple[Node, ImageSpec]:
    """Add operations to the graph, one after another: what they do to images, masks or frames, as `context` says.

    Args:
        operations: what to do.
        node: HWC images that match `spec`; or masks or frames of such images.
        spec: size, channels, dtype and color space of the images.
        context: where the graph runs, its random values, and what `node` is.

    Returns:
        The result, and the spec of the images after the operations.

    """
    for operation in operations:
        node = _apply_one(operation, node, spec, context)
        spec = operation.output(spec)
    return node, spec


def _apply_one(operation: Operation, node: Node, spec: ImageSpec, context: GraphContext) -> Node:
    if (context.mask_fill is not None or context.frames) and not operation.moves_pixels:
        return node
    add = move_frame if context.frames else apply
    return add(operation, node, spec, context)


def constant(values: ArrayLike) -> Node:
    """Return the same float32 array for every sample.

    Do not create it inside the branches of `where` and `select`.
    """
    return types.Constant(np.array(values, np.float32))


def image_sides(image: Node) -> Node:
    """Return the height and width of HWC images: float32 [2], on the CPU."""
    return image.shape(dtype=types.FLOAT)[:2]


def compute(
    function: Callable[..., Sequence[Array]], *nodes: Node, count: int = 1
) -> Sequence[Node]:
    """Compute with NumPy, for the whole batch at once.

    This is a single operator. The same arithmetic in DALI needs one operator per step, and each of
    them wakes all threads of the CPU, which decode meanwhile.

    Args:
        function: takes an array of each node and returns `count` arrays. The first axis is the
            sample.
        nodes: on the CPU, with the same shape for all samples.
        count: number of results.

    Returns:
        The results, on the CPU.

    """

    def compute_batch(*batches: Sequence[Array]) -> Any:
        if not batches[0]:  # a branch that no sample takes
            return ([],) * count if count > 1 else []
        # The rows of numbers are scalars, which DALI does not take.
        results = tuple(list(map(np.asarray, each)) for each in function(*map(np.stack, batches)))
        return results if count > 1 else results[0]

    computed = fn.python_function(
        *nodes, function=compute_batch, num_outputs=count, batch_processing=True
    )
    return computed if count > 1 else (computed,)


@dataclass(frozen=True, slots=True)
class ReaderOutputs:
    """The nodes that a reader adds to the graph, all on the CPU.

    Attributes:
        encoded: encoded images, or raw pixels: uint8 [bytes].
        label: the label as the shard stores it: int64 [1] in TFRecord, uint8 [W] text in
            WebDataset. `None` if only the sample tables contain labels, or if no field needs it.
        source: the file and position of each record: uint8 [W] text. `None` if no field needs it.
        row: each sample's row in the split: an int64 scalar. `None` without a sampler.
        bucket: height and width of the batch's bucket: float32 [2]. `None` without buckets.
        known: see `GraphContext`.
        others: other encoded images of the samples that fields need, by name: uint8 [bytes].
        present: 1 where a sample has an image, by its name, else 0: uint8 scalars. Only for images
            that not all samples have; the bytes of the others are of their first image.

    """

    encoded: Node
    label: Node | None = None
    source: Node | None = None
    row: Node | None = None
    bucket: Node | None = None
    known: Callable[[int], Sequence[Float32s]] | None = None
    others: Mapping[str, Node] = field(default_factory=dict)
    present: Mapping[str, Node] = field(default_factory=dict)

    @property
    def metadata(self) -> list[Node]:
        """All outputs that are no images: label, source and row, unless they are `None`."""
        return [node for node in (self.label, self.source, self.row) if node is not None]
