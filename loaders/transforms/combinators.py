"""Records of operations that contain other operations: apply with a probability, choose one, apply in random order."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from loaders.transforms.base import (
    MAX_ORDERED,
    MAX_TRANSFORMS,
    Chain,
    ImageSpec,
    Operation,
    Probability,
    Scale,
    Targets,
    check_tuple,
    check_type,
    numbers_each,
)
from manifests.errors import CallError


class Combinator(Operation):
    """An operation that contains others, and has the traits that all of them have."""

    __slots__ = ()

    @property
    def inner(self) -> Chain:
        """The operations that it contains."""
        raise NotImplementedError

    def _check(self) -> None:
        if self.work > MAX_TRANSFORMS:
            raise CallError(
                f"{type(self).__name__} would run {self.work} operations per image, but at most"
                f" {MAX_TRANSFORMS} are supported"
            )

    @property
    def linear(self) -> bool:
        """Whether all of the operations are."""
        return all(each.linear for each in self.inner)

    @property
    def pointwise(self) -> bool:
        """Whether all of the operations are."""
        return all(each.pointwise for each in self.inner)

    @property
    def resizes(self) -> bool:
        """Whether one of the operations does."""
        return any(each.resizes for each in self.inner)

    @property
    def needs_size(self) -> bool:
        """Whether one of the operations does."""
        return any(each.needs_size for each in self.inner)

    @property
    def moves_pixels(self) -> bool:
        """Whether one of the operations does."""
        return any(each.moves_pixels for each in self.inner)

    @property
    def operators(self) -> int:
        """The largest number of one of the operations."""
        return max(each.operators for each in self.inner)

    @property
    def work(self) -> int:
        """How many operations it contains."""
        return sum(each.work for each in self.inner)

    def loses(self, targets: Targets) -> str | None:
        """Return why masks or boxes cannot follow one of the operations."""
        return next(filter(None, (each.loses(targets) for each in self.inner)), None)


@dataclass(frozen=True, slots=True)
class RandomApply(Combinator):
    """Run all of several operations with a probability, or none of them.

    Attributes:
        operations: what to run, in order.
        probability: probability of running them.

    """

    operations: Chain
    probability: Probability = 0.5

    def _check(self) -> None:
        _check_chain("operations", self.operations)
        Combinator._check(self)

    @property
    def inner(self) -> Chain:
        """The operations."""
        return self.operations

    def output(self, spec: ImageSpec) -> ImageSpec:
        """Return the spec, whose size is known only if the operations keep it."""
        return _common(self, [spec, chain_output(self.operations, spec)])

    def scaled(self, scale: Scale) -> RandomApply:
        """Scale the operations."""
        return replace(self, operations=_scaled(self.operations, scale))


@dataclass(frozen=True, slots=True)
class Chains(Combinator):
    """Base of the combinators of several chains of operations."""

    chains: tuple[Chain, ...]

    def _check(self) -> None:
        check_tuple("chains", self.chains, tuple)
        for chain in self.chains:
            _check_chain("chains", chain)
        Combinator._check(self)

    @property
    def inner(self) -> Chain:
        """The operations of all chains."""
        return tuple(each for chain in self.chains for each in chain)

    def outputs(self, spec: ImageSpec) -> list[ImageSpec]:
        """Return the spec of the images after each chain."""
        return [chain_output(chain, spec) for chain in self.chains]

    def scaled(self, scale: Scale) -> Chains:
        """Scale the operations."""
        return replace(self, chains=tuple(_scaled(chain, scale) for chain in self.chains))


@dataclass(frozen=True, slots=True)
class RandomChoice(Chains):
    """Run one of several chains of operations.

    Attributes:
        chains: the chains to choose from.
        weights: relative probability of each chain; ``None`` if all are equally likely.

    """

    weights: tuple[float, ...] | None = None

    def _check(self) -> None:
        Chains._check(self)
        if self.weights is not None:
            numbers_each(len(self.chains), 0)("weights", self.weights)
            if not any(self.weights):
                raise CallError("weights must not all be 0")

    def output(self, spec: ImageSpec) -> ImageSpec:
        """Return the spec, whose size is known only if all chains give the same."""
        return _common(self, self.outputs(spec))


@dataclass(frozen=True, slots=True)
class RandomOrder(Chains):
    """Run chains of operations one after another, in an order drawn per image.

    Attributes:
        chains: what to run. Each keeps the type of the images, and their size if it is known.

    """

    def _check(self) -> None:
        Chains._check(self)
        if len(self.chains) > MAX_ORDERED:
            raise CallError(
                f"chains must contain at most {MAX_ORDERED} values, got {len(self.chains)}"
            )

    @property
    def work(self) -> int:
        """How many operations it computes: each chain in each place of the order."""
        return len(self.chains) * sum(each.work for each in self.inner)

    def output(self, spec: ImageSpec) -> ImageSpec:
        """Return the spec, whose size is known only if all chains keep it."""
        return _common(self, [spec, *self.outputs(spec)])


def chain_output(chain: Sequence[Operation], spec: ImageSpec) -> ImageSpec:
    """Return the spec of the images after a chain of operations."""
    for operation in chain:
        spec = operation.output(spec)
    return spec


def _scaled(chain: Chain, scale: Scale) -> Chain:
    return tuple(each.scaled(scale) for each in chain)


def _common(operation: Operation, specs: Sequence[ImageSpec]) -> ImageSpec:
    """Return what is known about an image that has one of the specs."""
    # Gray images have three equal channels, so they are also images of the other color space.
    spaces = {each.color_space for each in specs}
    space = (spaces - {"GRAY"} or spaces).pop()
    if spaces <= {"GRAY", "RGB"} or spaces <= {"GRAY", "BGR"}:
        specs = [replace(each, color_space=space) for each in specs]
    first = specs[0]
    if any(each.with_size(None) != first.with_size(None) for each in specs):
        raise CallError(
            f"{type(operation).__name__} would give images of different types, because a transform"
            " in it changes the color space, the number of channels, or bytes to floating point",
            hint="move that transform out of the list in it",
        )
    return first if all(each == first for each in specs) else first.with_size(None)


def _check_chain(name: str, chain: Chain) -> None:
    check_type(name, chain, tuple)
    for operation in chain:
        check_type(name, operation, Operation)
        if not operation.nests:
            raise CallError(
                f"{name} cannot contain {type(operation).__name__}",
                hint="move it out of the list, to the place it needs",
            )
