"""Which classes the tables of the page list."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from dataprep.report.facts import ClassFacts
from dataprep.report.findings import flag_share

#: Rows of the table of all classes, and of the tables of the smallest and the largest classes.
_MAX_CLASSES, _FEW_CLASSES, _EXTREME_CLASSES = 2000, 30, 10


@dataclass(frozen=True)
class ClassLists:
    """The lists of classes in ``report.html.j2``, by their names there."""

    classes: Sequence[ClassFacts]

    @cached_property
    def has_flags(self) -> bool:
        """Whether any class has images with problems."""
        return any(each.flagged for each in self.classes)

    @property
    def few_classes(self) -> bool:
        """Whether one table shows all classes."""
        return len(self.classes) <= _FEW_CLASSES

    @cached_property
    def _by_size(self) -> list[ClassFacts]:
        return sorted(self.classes, key=lambda each: (each.total, each.label))

    @property
    def rarest(self) -> list[ClassFacts]:
        """The smallest classes that have images, the smallest first."""
        return [each for each in self._by_size if each.total][:_EXTREME_CLASSES]

    @property
    def commonest(self) -> list[ClassFacts]:
        """The largest classes, the largest first."""
        return self._by_size[: -_EXTREME_CLASSES - 1 : -1]

    @property
    def worst(self) -> list[ClassFacts]:
        """The classes with the largest share of images with problems."""
        flagged = [each for each in self.classes if each.flagged]
        return sorted(flagged, key=lambda each: (-flag_share(each), each.label))[:_EXTREME_CLASSES]

    @cached_property
    def listed(self) -> list[ClassFacts]:
        """The classes in the long table: all, or the smallest and the largest if there are very many."""
        if len(self._by_size) <= _MAX_CLASSES:
            return list(self.classes)
        half = _MAX_CLASSES // 2
        return sorted((*self._by_size[:half], *self._by_size[-half:]), key=lambda each: each.label)

    @property
    def listed_note(self) -> str:
        """The title of the long table."""
        if len(self.listed) == len(self.classes):
            return f"All {len(self.listed):,} classes"
        return (
            f"The {len(self.listed) // 2:,} rarest and commonest of {len(self.classes):,} classes"
        )

    @cached_property
    def _largest_class(self) -> int:
        return max((each.samples[0] for each in self.classes if each.samples), default=1)

    def share(self, each: ClassFacts) -> str:
        """Return the percentage of the images of the largest class, in the first split."""
        return f"{100 * each.samples[0] / max(1, self._largest_class):.1f}"
