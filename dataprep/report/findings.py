"""What to look at: conclusions from the facts, each with its consequence and a remedy."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

from dataprep.report.facts import ClassFacts, Finding, Report
from manifests.process.text import agree, cut_middle, plural

#: A class with fewer training samples is named as rare; a split whose classes differ more in size
#: as unbalanced.
_RARE, _UNBALANCED = 10, 10.0

#: A shorter side above this many pixels, for at least half of the images, is more than training at
#: 224 needs.
_LARGE, _SMALL = 640, 64

#: Splits whose median images differ by more than this factor in width or height.
_DIFFERENT = 2.0

#: Names that a sentence lists.
_LISTED = 3


def find(report: Report) -> tuple[Finding, ...]:
    """Return what to look at: problems first, then what may be intended.

    `Report.findings` is not read.
    """
    every = [
        *_damage(report),
        *_copies(report),
        *_classes(report),
        *_worst_class(report),
        *_rejected(report),
        *_sizes(report),
        *_looks(report),
    ]
    return tuple(sorted(every, key=lambda finding: finding.severity != "problem"))


def _damage(report: Report) -> Iterator[Finding]:
    if count := len(report.problems):
        yield Finding(
            "problem",
            f"{plural(count, 'file')} of the dataset {agree(count, 'is', 'are')} damaged or"
            " missing",
            "Their images are not in this report. Run dataprep verify for every detail.",
            "damage",
        )
    if count := len(report.looks.failed):
        yield Finding(
            "problem",
            f"{plural(count, 'image')} of {report.looks.decoded:,} that were decoded cannot be"
            " decoded",
            "Training stops at them. Make the dataset again, or use"
            ' loaders.build(on_error="skip").',
            "undecodable",
        )


def _copies(report: Report) -> Iterator[Finding]:
    copies = report.copies
    for pair, count in copies.leaked.items():
        later, _, earlier = pair.rpartition(" in ")
        yield Finding(
            "problem",
            f"{plural(count, 'image')} of {later} {agree(count, 'is', 'are')} also in {earlier}",
            f"The same bytes are in both splits, so results on {later} are better than they should"
            " be. dataprep convert --duplicates drop takes them out of train.",
            "leaks",
        )
    if copies.conflicting:
        images = agree(
            copies.conflicting, "One image is stored", f"{copies.conflicting:,} images are stored"
        )
        yield Finding(
            "problem",
            f"{images} with several labels",
            "Of different labels of the same bytes, at least one is wrong. Correct the source:"
            " --duplicates drop would keep whichever comes first.",
            "conflicts",
        )
    if copies.surplus:
        # Leaked and conflicting copies were counted above.
        in_all = "In all, " if copies.leaked or copies.conflicting else ""
        are = agree(copies.surplus, "is a copy", "are copies")
        yield Finding(
            "check",
            f"{in_all}{plural(copies.surplus, 'image')} {are} of another image",
            "Copies weigh more in training than other images.",
            "copies",
        )
    yield from _near(report)
    total = sum(split.samples for split in report.splits)
    if copies.compared < total:
        yield Finding(
            "check",
            f"{plural(total - copies.compared, 'image')}"
            f" {agree(total - copies.compared, 'has', 'have')} no checksum",
            "Copies of them are not found. dataprep index --validate header --overwrite adds"
            " checksums.",
            "copies",
        )


def _near(report: Report) -> Iterator[Finding]:
    near = report.copies.near
    for pair, count in near.leaked.items():
        later, _, earlier = pair.rpartition(" in ")
        yield Finding(
            "problem",
            f"{plural(count, 'image')} of {later} {agree(count, 'looks', 'look')} like images of"
            f" {earlier}",
            f"They are copies in another size, quality or orientation, so results on {later} are"
            " better than they should be. Look at the pairs, then convert with --duplicates drop"
            " or same-split.",
            "near",
        )
    if near.conflicting:
        yield Finding(
            "problem",
            f"{plural(near.conflicting, 'pair')} of images that look alike"
            f" {agree(near.conflicting, 'has', 'have')} different labels",
            "If they show the same, at least one label is wrong.",
            "near",
        )
    if near.pairs:
        in_all = "In all, " if near.leaked or near.conflicting else ""
        yield Finding(
            "check",
            f"{in_all}{plural(near.pairs, 'pair')} of images {agree(near.pairs, 'looks', 'look')}"
            " alike",
            "Copies weigh more in training than other images. dataprep duplicates lists all pairs.",
            "near",
        )


def _classes(report: Report) -> Iterator[Finding]:
    names = [split.name for split in report.splits]
    if "train" in names:
        train = names.index("train")
        untrained = [each for each in report.classes if not each.samples[train] and each.total]
        if untrained:
            yield Finding(
                "problem",
                f"{plural(len(untrained), 'class')} {agree(len(untrained), 'has', 'have')} no"
                " training images",
                f"Only other splits contain {_list(untrained)}.",
                "classes",
            )
        rare = [each for each in report.classes if 0 < each.samples[train] < _RARE]
        if rare and len(rare) < len(report.classes):
            rare.sort(key=lambda each: each.samples[train])
            yield Finding(
                "check",
                f"{plural(len(rare), 'class')} {agree(len(rare), 'has', 'have')} fewer than {_RARE}"
                " training images",
                f"The rarest: {_list(rare)}.",
                "classes",
            )
    if report.unused:
        empty = [each for each in report.classes if not each.total]
        yield Finding(
            "check",
            f"{plural(report.unused, 'class')} {agree(report.unused, 'has', 'have')} no images"
            " at all",
            f"{_list(empty)}{'. ' if empty else ''}The model has an output for each of them.",
            "classes",
        )
    for each in report.balance:
        if each.split == names[0] and each.smallest and each.largest / each.smallest > _UNBALANCED:
            yield Finding(
                "check",
                f"The largest class of {each.split} has {each.largest / each.smallest:,.0f} times"
                " the images of the smallest",
                f"{each.smallest:,} to {each.largest:,} images per class."
                " loaders.ClassBalancedSampler draws classes evenly.",
                "classes",
            )


def _worst_class(report: Report) -> Iterator[Finding]:
    """Name the class with the largest share of images that have a problem, if one stands out."""
    flagged = [each for each in report.classes if each.flagged]
    if len(report.classes) < 2 or not flagged:
        return
    worst = max(flagged, key=lambda each: (flag_share(each), -each.label))
    if sum(worst.flagged.values()) < 2:
        return
    counts = ", ".join(
        f"{count:,} {what}" for what, count in worst.flagged.items() if what != "rejected"
    )
    stored = f"Of its {plural(worst.total, 'image')}: {counts}. " if counts else ""
    rejected = worst.flagged.get("rejected", 0)
    refused = (
        f"{plural(rejected, 'source image')} {agree(rejected, 'was', 'were')} rejected."
        if rejected
        else ""
    )
    yield Finding(
        "check",
        f"{_name(worst)} is the class with the largest share of images with problems",
        f"{stored}{refused}".strip(),
        f"class-{worst.label}",
    )


def flag_share(each: ClassFacts) -> float:
    """Return the problems per image of a class. Rejected images count as images."""
    return sum(each.flagged.values()) / max(1, each.total + each.flagged.get("rejected", 0))


def _rejected(report: Report) -> Iterator[Finding]:
    rejected = report.rejected
    if not rejected.total:
        return
    reasons = ", ".join(
        f"{cut_middle(reason, 40)} {count:,}"
        for reason, count in list(rejected.reasons.items())[:_LISTED]
    )
    yield Finding(
        "check",
        f"{plural(rejected.total, 'source image')} {agree(rejected.total, 'was', 'were')} rejected",
        f"By reason: {reasons}.",
        "rejected",
    )


def _sizes(report: Report) -> Iterator[Finding]:
    if report.store == "raw":
        return
    filled = [split for split in report.splits if split.samples]
    large = [
        split for split in filled if min(split.width["median"], split.height["median"]) > _LARGE
    ]
    if large:
        split = large[0]
        yield Finding(
            "check",
            f"Most images of {split.name} are larger than training needs",
            f"The median is {split.width['median']:,} x {split.height['median']:,} pixels. For"
            " training at 224 pixels, dataprep convert --resize-shorter 256 makes loading several"
            " times as fast and needs less GPU memory.",
            "cost",
        )
    if shorter := report.histograms.get("shorter"):
        small = sum(
            count
            for counts in shorter.counts.values()
            for high, count in zip(shorter.edges[1:], counts, strict=True)
            if high <= _SMALL
        )
        if 0 < small < sum(split.samples for split in filled):
            title = (
                f"{plural(small, 'image')} {agree(small, 'has', 'have')} a shorter side below"
                f" {_SMALL} pixels"
            )
            yield Finding(
                "check", title, "They are enlarged for training, and show few details.", "sizes"
            )
    for side in ("width", "height"):
        medians = {split.name: getattr(split, side)["median"] for split in filled}
        if medians and max(medians.values()) > _DIFFERENT * max(1, min(medians.values())):
            low, high = (pick(medians, key=medians.__getitem__) for pick in (min, max))
            title = f"Images of {high} are larger than those of {low}"
            detail = f"Their median {side}s are {medians[high]:,} and {medians[low]:,} pixels."
            yield Finding("check", title, detail, "sizes")
            break


def _looks(report: Report) -> Iterator[Finding]:
    looks = report.looks
    counts = {"almost black": looks.dark, "almost white": looks.bright, "of one color": looks.flat}
    if plain := {what: count for what, count in counts.items() if count}:
        yield Finding(
            "check",
            f"Some images are {' or '.join(plain)}",
            f"Of {looks.sampled:,} images:"
            f" {', '.join(f'{count:,} {what}' for what, count in plain.items())}. They may be"
            " placeholders or failed downloads.",
            "odd",
        )
    others = sum(count for name, count in looks.formats.items() if name not in ("jpeg", "raw"))
    if others and report.store == "encoded":
        share = others / max(1, sum(looks.formats.values()))
        yield Finding(
            "check",
            f"{share:.1%} of the images are not JPEGs",
            "The GPU's hardware decoder decodes JPEGs only; CPU threads or CUDA kernels decode the"
            " others.",
            "formats",
        )


def _name(each: ClassFacts) -> str:
    return (
        f"\N{LEFT DOUBLE QUOTATION MARK}{cut_middle(each.name, 80)}\N{RIGHT DOUBLE QUOTATION MARK}"
    )


def _list(classes: list[ClassFacts]) -> str:
    names = ", ".join(_name(each) for each in classes[:_LISTED])
    return names + (f" and {len(classes) - _LISTED:,} more" if len(classes) > _LISTED else "")


# --- which classes the tables of the page list ------------------------------------------------------


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
