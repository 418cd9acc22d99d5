"""Operations that mix the images of a batch, and so their labels. Records only; it must never know DALI."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal, TypeAlias

from loaders.transforms.base import (
    BatchOperation,
    ImageSpec,
    Range,
    check_bool,
    check_choice,
    check_int,
    check_number,
    check_numbers,
    check_probability,
    check_range,
    check_tuple,
)
from manifests.errors import CallError

#: Which image of the batch is mixed in: that of a random permutation, the one before (the last for the first), or
#: the one as far from the batch's end.
Pairing: TypeAlias = Literal["shuffled", "previous", "reversed"]
PAIRINGS = ("shuffled", "previous", "reversed")


class Mixing(BatchOperation):
    """Mixing each image with another of its batch; float32 comes out.

    A label becomes shares of classes: what stays of the own image and what comes from its partner.
    """

    __slots__ = ()

    #: Of the labels, or none for as many as the dataset has.
    classes: int | None

    @property
    def pairing(self) -> Pairing:
        """Which image is the partner."""
        return "shuffled"

    @property
    def smoothing(self) -> float:
        """How much of every label is spread over all classes."""
        return 0.0

    def output(self, spec: ImageSpec) -> ImageSpec:
        """Images of float32 values."""
        return replace(spec, is_uint8=False)


@dataclass(frozen=True, slots=True)
class Mixup(Mixing):
    """Blend the images of a batch with partners, all in the same proportion.

    Attributes:
        alpha: both parameters of the beta distribution that the proportion is drawn from.
        classes: of the labels, or none for as many as the dataset has.
        pairing: which image is the partner.

    """

    alpha: float = 1.0
    classes: int | None = None
    pairing: Pairing = "shuffled"

    def __post_init__(self) -> None:
        _check_alpha("alpha", self.alpha)
        _check_classes(self.classes)
        check_choice("pairing", self.pairing, PAIRINGS)


@dataclass(frozen=True, slots=True)
class Cutmix(Mixing):
    """Replace a box of every image of a batch by its partner's, the same box for all.

    The box has the shape of the image and lies anywhere, cut where it leaves the image; what it covers is the
    partner's share.

    Attributes:
        alpha: both parameters of the beta distribution that the box's area is drawn from.
        classes: of the labels, or none for as many as the dataset has.
        pairing: which image is the partner.

    """

    alpha: float = 0.2
    classes: int | None = None
    pairing: Pairing = "shuffled"

    def __post_init__(self) -> None:
        _check_alpha("alpha", self.alpha)
        _check_classes(self.classes)
        check_choice("pairing", self.pairing, PAIRINGS)


@dataclass(frozen=True, slots=True)
class Fmix(Mixing):
    """Replace areas of random shape by the partner's, the same for all images of a batch.

    The areas are where a random image of low frequencies is least.

    Attributes:
        alpha: both parameters of the beta distribution that the own share is drawn from.
        decay: power by which an amplitude falls with its frequency; more makes areas larger and smoother.
        softness: share of the image, on either side of an area's edge, over which one goes over into the other.
        own_more: whether the distribution's first parameter is larger by one, so that the own image prevails.
        classes: of the labels, or none for as many as the dataset has.

    """

    alpha: float = 1.0
    decay: float = 3.0
    softness: float = 0.0
    own_more: bool = False
    classes: int | None = None

    def __post_init__(self) -> None:
        _check_alpha("alpha", self.alpha)
        check_number("decay", self.decay, 0, 20)
        check_number("softness", self.softness, 0, 0.5)
        check_bool("own_more", self.own_more)
        _check_classes(self.classes)


@dataclass(frozen=True, slots=True)
class MixOneOf(Mixing):
    """Draw one way of mixing for each batch, or none.

    Attributes:
        operations: to draw from.
        probabilities: of each; what they lack to 1 is that of mixing nothing.
        classes: of the labels, or none for as many as the dataset has.

    """

    operations: tuple[Mixup | Cutmix | Fmix, ...]
    probabilities: tuple[float, ...]
    classes: int | None = None

    def __post_init__(self) -> None:
        check_tuple("operations", self.operations, Mixup, Cutmix, Fmix)
        check_numbers("probabilities", self.probabilities, len(self.operations))
        for probability in self.probabilities:
            check_probability("probabilities", probability)
        total = sum(self.probabilities)
        # A sum of decimal fractions may miss 1 by its rounding.
        if total > 1 + 1e-9:
            raise CallError(f"probabilities must add up to 1 at most, got {total:g}")
        _check_classes(self.classes)


@dataclass(frozen=True, slots=True)
class MixupCutmix(Mixing):
    """Blend or replace a box, drawn for a batch, a pair or an image, with the image as far from the batch's end.

    Attributes:
        mixup_alpha: both parameters of the beta distribution of the blend's proportion; 0 never blends.
        cutmix_alpha: both parameters of the beta distribution of the box's area; 0 never replaces one.
        cutmix_sides: least and greatest side of the box over the image's, each side drawn alone; the box then
            lies wholly inside, and `cutmix_alpha` is not used.
        probability: of mixing at all.
        cutmix_probability: of replacing a box, where both are on.
        each: what draws for itself: the ``batch``, a ``pair`` of partners, or an ``image``.
        correct: whether the label's share is that of the box's area inside the image.
        smoothing: how much of every label is spread over all classes.
        classes: of the labels, or none for as many as the dataset has.

    """

    mixup_alpha: float = 1.0
    cutmix_alpha: float = 0.0
    cutmix_sides: Range | None = None
    probability: float = 1.0
    cutmix_probability: float = 0.5
    each: Literal["batch", "pair", "image"] = "batch"
    correct: bool = True
    smoothing: float = 0.1
    classes: int | None = None

    def __post_init__(self) -> None:
        for name in ("mixup_alpha", "cutmix_alpha"):
            check_number(name, getattr(self, name), 0)
        if self.cutmix_sides is not None:
            check_range("cutmix_sides", self.cutmix_sides, 0, 1)
        for name in ("probability", "cutmix_probability", "smoothing"):
            check_probability(name, getattr(self, name))
        check_choice("each", self.each, ("batch", "pair", "image"))
        check_bool("correct", self.correct)
        _check_classes(self.classes)
        if not self.mixup_alpha and not self.cuts:
            raise CallError(
                "mixup_alpha and cutmix_alpha are both 0, and nothing would be mixed",
                hint="say one of them above 0, or leave the operation out",
            )

    @property
    def cuts(self) -> bool:
        """Whether boxes are ever replaced."""
        return self.cutmix_sides is not None or self.cutmix_alpha > 0

    @property
    def pairing(self) -> Pairing:
        """Which image is the partner."""
        return "reversed"


def single_mixing(operations: Sequence[BatchOperation]) -> Mixing | None:
    """Return the one operation that mixes a batch, or none.

    Raises:
        CallError: there are more.

    """
    if len(operations) > 1:
        names = " and ".join(type(each).__name__ for each in operations)
        raise CallError(
            f"a batch is mixed once, and here it would be by {names}",
            hint="keep one, or draw one for each batch with OpSampler",
        )
    if not operations:
        return None
    if not isinstance(operations[0], Mixing):
        raise TypeError(f"{type(operations[0]).__name__} mixes nothing")
    return operations[0]


def _check_alpha(name: str, value: float) -> None:
    check_number(name, value, 0)
    if value == 0:
        raise CallError(f"{name} must be above 0, got {value!r}")


def _check_classes(value: int | None) -> None:
    if value is not None:
        check_int("classes", value, 1)
