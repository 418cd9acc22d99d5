"""What `Loader.dataset` says about a dataset. No I/O."""

from __future__ import annotations

from dataclasses import dataclass

from manifests.labels import LabelType


@dataclass(frozen=True, slots=True)
class DatasetInfo:
    """The split that a loader reads.

    Its length is the number of samples, as that of a dataset of torch.

    Attributes:
        folder: folder of the dataset, as the caller wrote it; several folders are joined by a plus
            sign.
        split: name of the split.
        samples: number of samples, over all ranks.
        classes: class names in label order. Empty if the dataset does not name them.
        label_type: what the labels are: ``"class"``, ``"none"``, ``"multi-label"``,
            ``"regression"``, ``"caption"``, ``"boxes"``, ``"mask"`` or ``"depth"``.

    """

    folder: str
    split: str
    samples: int
    classes: tuple[str, ...]
    label_type: LabelType = "class"

    @property
    def class_to_idx(self) -> dict[str, int]:
        """Labels by class name, as in torchvision's ImageFolder."""
        return {name: label for label, name in enumerate(self.classes)}

    def __len__(self) -> int:
        return self.samples
