"""Records of operations that contain other operations: apply with a probability, choose one, apply in random order."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

from loaders.transforms.base import (
    MAX_ORDERED,
    MAX_TRANSFORMS,
    BatchOperation,
    ImageSpec,
    Operation,
    check_number,
    check_numbers,
    check_probability,
    check_tuple,
    check_type,
)
from loaders.transforms.decode_normalize import Decode, Unpack
from manifests.errors import CallError

#: Operations that run one after another. May be empty.
Chain: TypeAlias = tuple[Operation, ...]


@dataclass(frozen=True, slots=True)
class RandomApply(Operation):
    """Run all of several operations with a probability, or none of them.

    Attributes:
        operations: what to run, in order.
        probability: probability of running them.

    """

    operations: Chain
    probability: float = 0.5

    def __post_init__(self) -> None:
        _check_chain("operations", self.operations)
        check_probability("probability", self.probability)
        _check_work(self)

    @property
    def needs_size(self) -> bool:
        """Whether one of the operations does."""
        return any(each.needs_size for each in self.operations)

    @property
    def pointwise(self) -> bool:
        """Whether all of the operations are pointwise."""
        return all(each.pointwise for each in self.operations)

    @property
    def linear(self) -> bool:
        """Whether all operations are linear."""
        return all(each.linear for each in self.operations)

    def output(self, spec: ImageSpec) -> ImageSpec:
        """Return the spec, whose size is known only if the operations keep it."""
        return _common(self, [spec, chain_output(self.operations, spec)])


@dataclass(frozen=True, slots=True)
class RandomChoice(Operation):
    """Run one of several chains of operations.

    Attributes:
        chains: the chains to choose from.
        weights: relative probability of each chain; ``None`` if all are equally likely.

    """

    chains: tuple[Chain, ...]
    weights: tuple[float, ...] | None = None

    def __post_init__(self) -> None:
        _check_chains("chains", self.chains)
        if self.weights is not None:
            check_numbers("weights", self.weights, len(self.chains))
            for weight in self.weights:
                check_number("weights", weight, 0)
            if not any(self.weights):
                raise CallError("weights must not all be 0")
        _check_work(self)

    @property
    def needs_size(self) -> bool:
        """Whether one of the operations does."""
        return any(each.needs_size for chain in self.chains for each in chain)

    @property
    def pointwise(self) -> bool:
        """Whether all operations are pointwise."""
        return all(each.pointwise for chain in self.chains for each in chain)

    @property
    def linear(self) -> bool:
        """Whether all operations are linear."""
        return all(each.linear for chain in self.chains for each in chain)

    def output(self, spec: ImageSpec) -> ImageSpec:
        """Return the spec, whose size is known only if all chains give the same."""
        return _common(self, [chain_output(chain, spec) for chain in self.chains])


@dataclass(frozen=True, slots=True)
class RandomOrder(Operation):
    """Run chains of operations one after another, in an order drawn per image.

    Attributes:
        chains: what to run. Each keeps the type of the images, and their size if it is known.

    """

    chains: tuple[Chain, ...]

    def __post_init__(self) -> None:
        _check_chains("chains", self.chains)
        if len(self.chains) > MAX_ORDERED:
            raise CallError(
                f"chains must contain at most {MAX_ORDERED} values, got {len(self.chains)}"
            )
        _check_work(self)

    @property
    def needs_size(self) -> bool:
        """Whether one of the operations does."""
        return any(each.needs_size for chain in self.chains for each in chain)

    @property
    def pointwise(self) -> bool:
        """Whether all operations are pointwise."""
        return all(each.pointwise for chain in self.chains for each in chain)

    @property
    def linear(self) -> bool:
        """Whether all operations are linear."""
        return all(each.linear for chain in self.chains for each in chain)

    def output(self, spec: ImageSpec) -> ImageSpec:
        """Return the spec, whose size is known only if all chains keep it."""
        return _common(self, [spec, *(chain_output(chain, spec) for chain in self.chains)])


def chain_output(chain: Sequence[Operation], spec: ImageSpec) -> ImageSpec:
    """Return the spec of the images after a chain of operations."""
    for operation in chain:
        spec = operation.output(spec)
    return spec


def _common(operation: Operation, specs: Sequence[ImageSpec]) -> ImageSpec:
    """Return what is known about an image that has one of the specs."""
    # Gray images have three equal channels, so they are also images of the other color space.
    spaces = {each.color_space for each in specs}
    space = (spaces - {"GRAY"} or spaces).pop()
    if spaces <= {"GRAY", "RGB"} or spaces <= {"GRAY", "BGR"}:
        specs = [replace(each, color_space=space) for each in specs]
    first = specs[0]
    if any(replace(each, size=None) != replace(first, size=None) for each in specs):
        raise CallError(
            f"{type(operation).__name__} would give images of different types, because a transform"
            " in it changes the color space, the number of channels, or bytes to floating point",
            hint="move that transform out of the list in it",
        )
    return first if all(each.size == first.size for each in specs) else first.with_size(None)


def _check_chains(name: str, chains: tuple[Chain, ...]) -> None:
    check_tuple(name, chains, tuple)
    for chain in chains:
        _check_chain(name, chain)


def _check_chain(name: str, chain: Chain) -> None:
    check_type(name, chain, tuple)
    for operation in chain:
        check_type(name, operation, Operation)
        if isinstance(operation, (BatchOperation, Decode, Unpack)):
            raise CallError(
                f"{name} cannot contain {type(operation).__name__}",
                hint="move it out of the list, to the place it needs",
            )


def _check_work(operation: Operation) -> None:
    work = count_operations(operation)
    if work > MAX_TRANSFORMS:
        raise CallError(
            f"{type(operation).__name__} would run {work} operations per image, but at most"
            f" {MAX_TRANSFORMS} are supported"
        )


def count_operations(operation: Operation) -> int:
    """Return how many operations the graph computes for an operation, with those that it contains."""
    match operation:
        case RandomApply():
            return sum(map(count_operations, operation.operations))
        case RandomChoice():
            return sum(count_operations(each) for chain in operation.chains for each in chain)
        case RandomOrder():
            return len(operation.chains) * sum(
                count_operations(each) for chain in operation.chains for each in chain
            )
    return 1
