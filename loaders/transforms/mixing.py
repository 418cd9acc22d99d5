"""Records of operations that mix the images of a batch and their labels."""

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
from loaders.transforms.limits import MAX_CLASSES
from manifests.errors import CallError
from manifests.process.text import shown

#: Which image of the batch is the partner of image i: ``"shuffled"`` takes a random permutation,
#: ``"previous"`` image i - 1 (the last one for the first), ``"reversed"`` image B - 1 - i of a
#: batch of B.
Pairing: TypeAlias = Literal["shuffled", "previous", "reversed"]
PAIRINGS = ("shuffled", "previous", "reversed")


class Mixing(BatchOperation):
    """Base of the operations that mix each image with a partner from its batch.

    The output is float32.

    A label becomes a vector with one share per class. The image's own class and its partner's class
    get the shares of the two images; the other classes get 0.
    """

    __slots__ = ()

    #: Number of classes of the mixed labels; ``None`` takes the number of classes in the dataset.
    classes: int | None

    @property
    def pairing(self) -> Pairing:
        """How partners are chosen."""
        return "shuffled"

    @property
    def smoothing(self) -> float:
        """Label smoothing: the fraction of each label that is spread over all classes."""
        return 0.0

    def output(self, spec: ImageSpec) -> ImageSpec:
        """Return a float32 spec."""
        return replace(spec, is_uint8=False)


@dataclass(frozen=True, slots=True)
class Mixup(Mixing):
    """Blend each image with its partner, with one weight per batch: mixup (https://arxiv.org/abs/1710.09412).

    Attributes:
        alpha: both parameters of the beta distribution of the weight, above 0.
        classes: number of classes; ``None`` takes the number of classes in the dataset.
        pairing: how partners are chosen, see `Pairing`.

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
    """Replace a box of each image with the same box of its partner, one box per batch: CutMix (https://arxiv.org/abs/1905.04899).

    The box has the aspect ratio of the image, a uniformly distributed center, and is clipped at the
    border of the image. The partner's share of the label is the clipped box's fraction of the
    image's area.

    Attributes:
        alpha: both parameters of the beta distribution of the box's area, above 0.
        classes: number of classes; ``None`` takes the number of classes in the dataset.
        pairing: how partners are chosen, see `Pairing`.

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
    """Replace regions of random shape with the partner's, one mask per batch: FMix (https://arxiv.org/abs/2002.12047).

    The mask is a random low-frequency image, thresholded.

    Attributes:
        alpha: both parameters of the beta distribution of the share that the image keeps, above 0.
        decay: power by which amplitudes fall with frequency, from 0 to 20. Larger values make
            larger, smoother regions.
        softness: width of the transition on either side of an edge, as a fraction of the image's
            pixels, from 0 to 0.5.
        own_more: add one to the first parameter of the distribution, so that an image keeps more
            than half of its pixels on average (``reformulate`` in the paper's code).
        classes: number of classes; ``None`` takes the number of classes in the dataset.

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
    """Apply one randomly chosen mixing operation per batch, or none.

    Attributes:
        operations: the operations to draw from.
        probabilities: probability of each. If they add up to less than 1, the other batches are not
            mixed.
        classes: number of classes; ``None`` takes the number of classes in the dataset.

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
        # Decimal fractions such as 0.1 add up to 1 only up to rounding.
        if total > 1 + 1e-9:
            raise CallError(f"probabilities must add up to at most 1, got a sum of {total:g}")
        _check_classes(self.classes)


@dataclass(frozen=True, slots=True)
class MixupCutmix(Mixing):
    """Draw mixup or CutMix per batch, pair or image, as timm's ``Mixup`` does.

    The partner of image i is B - 1 - i.

    Attributes:
        mixup_alpha: both parameters of the beta distribution of the mixup weight; 0 disables mixup.
        cutmix_alpha: both parameters of the beta distribution of the CutMix box's area; 0 disables
            CutMix.
        cutmix_sides: minimum and maximum side of the box as a fraction of the image's, drawn
            separately for height and width. The box then lies completely inside the image, and
            `cutmix_alpha` is not used.
        probability: probability of mixing at all.
        cutmix_probability: probability of CutMix if both are enabled.
        each: draw once per ``"batch"``, ``"pair"`` of partners, or ``"image"``.
        correct: whether the partner's share of the label is the area of the box after clipping
            instead of before.
        smoothing: label smoothing: the fraction of each label that is spread over all classes.
        classes: number of classes; ``None`` takes the number of classes in the dataset.

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
                "mixup_alpha and cutmix_alpha are both 0, so nothing would be mixed",
                hint="set one of them above 0, or remove the operation",
            )

    @property
    def cuts(self) -> bool:
        """Whether CutMix is enabled."""
        return self.cutmix_sides is not None or self.cutmix_alpha > 0

    @property
    def pairing(self) -> Pairing:
        """Always ``"reversed"``, as in PaddleClas and timm."""
        return "reversed"


def single_mixing(operations: Sequence[BatchOperation]) -> Mixing | None:
    """Return the one mixing operation, or ``None`` if there is none.

    Raises:
        CallError: there is more than one.

    """
    if len(operations) > 1:
        names = " and ".join(type(each).__name__ for each in operations)
        raise CallError(
            f"a batch can be mixed only once, but the list contains {names}",
            hint="keep one of them, or let OpSampler draw one per batch",
        )
    if not operations:
        return None
    if not isinstance(operations[0], Mixing):
        raise TypeError(f"{type(operations[0]).__name__} is not a mixing operation")
    return operations[0]


def _check_alpha(name: str, value: float) -> None:
    check_number(name, value, 0)
    if value == 0:
        raise CallError(f"{name} must be above 0, got {shown(value)}")


def _check_classes(value: int | None) -> None:
    if value is not None:
        check_int("classes", value, 1, MAX_CLASSES)
