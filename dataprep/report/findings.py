"""What to look at: conclusions from the facts, each with its consequence and a remedy."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterator
from typing import Any, NamedTuple

from dataprep.images import jpeg
from dataprep.report.facts import ClassFacts, Finding, Report, Severity
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

#: What a text says of one, and of several.
_AGREEING = re.compile(r"\[([^|]*)\|([^]]*)\]")


class _Text(NamedTuple):
    """The texts of a finding.

    ``{count}`` is a number with its noun, ``{number}`` the same number alone, and ``[is|are]`` a
    word that agrees with it.
    """

    severity: Severity
    noun: str
    title: str
    detail: str
    section: str


_TEXTS = {
    "damaged": _Text(
        "problem",
        "file",
        "{count} of the dataset [is|are] damaged or missing",
        "Their images are not in this report. Run dataprep verify for every detail.",
        "damage",
    ),
    "undecodable": _Text(
        "problem",
        "image",
        "{count} of {decoded:,} that were decoded cannot be decoded",
        'Training stops at them. Make the dataset again, or use loaders.build(on_error="skip").',
        "undecodable",
    ),
    "leak": _Text(
        "problem",
        "image",
        "{count} of {later} [is|are] also in {earlier}",
        "The same bytes are in both splits, so results on {later} are better than they should be."
        " dataprep convert --duplicates drop takes them out of train.",
        "leaks",
    ),
    "conflict": _Text(
        "problem",
        "image",
        "[One image is|{number:,} images are] stored with several labels",
        "Of different labels of the same bytes, at least one is wrong. Correct the source:"
        " --duplicates drop would keep whichever comes first.",
        "conflicts",
    ),
    "copy": _Text(
        "check",
        "image",
        "{prefix}{count} [is a copy|are copies] of another image",
        "Copies weigh more in training than other images.",
        "copies",
    ),
    "near leak": _Text(
        "problem",
        "image",
        "{count} of {later} [looks|look] like images of {earlier}",
        "They are copies in another size, quality or orientation, so results on {later} are better"
        " than they should be. Look at the pairs, then convert with --duplicates drop or"
        " same-split.",
        "near",
    ),
    "near conflict": _Text(
        "problem",
        "pair",
        "{count} of images that look alike [has|have] different labels",
        "If they show the same, at least one label is wrong.",
        "near",
    ),
    "near copy": _Text(
        "check",
        "pair",
        "{prefix}{count} of images [looks|look] alike",
        "Copies weigh more in training than other images. dataprep duplicates lists all pairs.",
        "near",
    ),
    "no checksum": _Text(
        "check",
        "image",
        "{count} [has|have] no checksum",
        "Copies of them are not found. dataprep index --validate header --overwrite adds"
        " checksums.",
        "copies",
    ),
    "untrained": _Text(
        "problem",
        "class",
        "{count} [has|have] no training images",
        "Only other splits contain {names}.",
        "classes",
    ),
    "rare": _Text(
        "check",
        "class",
        "{count} [has|have] fewer than {limit} training images",
        "The rarest: {names}.",
        "classes",
    ),
    "unused": _Text(
        "check",
        "class",
        "{count} [has|have] no images at all",
        "{names}The model has an output for each of them.",
        "classes",
    ),
    "unbalanced": _Text(
        "check",
        "class",
        "The largest class of {split} has {ratio:,.0f} times the images of the smallest",
        "{smallest:,} to {largest:,} images per class. loaders.ClassBalancedSampler draws classes"
        " evenly.",
        "classes",
    ),
    "worst": _Text(
        "check",
        "source image",
        "{name} is the class with the largest share of images with problems",
        "{detail}",
        "class-{label}",
    ),
    "rejected": _Text(
        "check", "source image", "{count} [was|were] rejected", "By reason: {reasons}.", "rejected"
    ),
    "large": _Text(
        "check",
        "image",
        "Most images of {split} are larger than training needs",
        "The median is {width:,} x {height:,} pixels. For training at 224 pixels, dataprep convert"
        " --resize-shorter 256 makes loading several times as fast and needs less GPU memory.",
        "cost",
    ),
    "small": _Text(
        "check",
        "image",
        "{count} [has|have] a shorter side below {limit} pixels",
        "They are enlarged for training, and show few details.",
        "sizes",
    ),
    "unequal": _Text(
        "check",
        "image",
        "Images of {larger} are larger than images of {smaller}",
        "Their median {side}s are {high:,} and {low:,} pixels.",
        "sizes",
    ),
    "plain": _Text(
        "check",
        "image",
        "Some images are {kinds}",
        "Of {sampled:,} images: {counts}. They may be placeholders or failed downloads.",
        "odd",
    ),
    "formats": _Text(
        "check",
        "image",
        "{share:.1%} of the images are not baseline JPEGs",
        "The GPU's hardware decoder decodes baseline JPEGs only; CPU threads or CUDA kernels decode"
        " the others.",
        "formats",
    ),
}

#: The name of a finding, how much of it there is, and the other values in its texts.
_Found = tuple[str, int, dict[str, Any]]


def find(report: Report) -> tuple[Finding, ...]:
    """Return what to look at: problems first, then what may be intended.

    `Report.findings` is not read.
    """
    findings = []
    for part in (_files, _copies, _classes, _worst_class, _rejected, _sizes, _looks):
        for name, number, values in part(report):
            if number:
                text = _TEXTS[name]
                # The words that agree are chosen first: values can contain brackets.
                values |= {"number": number, "count": plural(number, text.noun)}
                one_or_several = r"\1" if number == 1 else r"\2"
                texts = []
                for template in text[2:]:
                    texts.append(_AGREEING.sub(one_or_several, template).format_map(values))
                findings.append(Finding(text.severity, *texts))
    return tuple(sorted(findings, key=lambda finding: finding.severity != "problem"))


def _files(report: Report) -> Iterator[_Found]:
    looks = report.looks
    yield "damaged", len(report.problems), {}
    yield "undecodable", len(looks.failed), {"decoded": looks.decoded}


def _copies(report: Report) -> Iterator[_Found]:
    copies, near = report.copies, report.copies.near
    for prefix, found in (("", copies), ("near ", near)):
        for pair, count in found.leaked.items():
            later, _, earlier = pair.rpartition(" in ")
            yield f"{prefix}leak", count, {"later": later, "earlier": earlier}
        yield f"{prefix}conflict", found.conflicting, {}
        # Leaked and conflicting copies were counted above.
        counted = found.leaked or found.conflicting
        number = copies.surplus if found is copies else near.pairs
        yield f"{prefix}copy", number, {"prefix": "In all, " if counted else ""}
    yield "no checksum", report.samples - copies.compared, {}


def _classes(report: Report) -> Iterator[_Found]:
    names = [split.name for split in report.splits]
    empty = [each for each in report.classes if not each.total]
    if "train" in names:
        train = names.index("train")
        untrained, rare = [], []
        # A class without training images is not rare, but missing.
        for each in report.classes:
            count = each.samples[train]
            if count == 0 < each.total:
                untrained.append(each)
            elif 0 < count < _RARE:
                rare.append(each)
        yield "untrained", len(untrained), {"names": _list(untrained)}
        if len(rare) < len(report.classes):
            rare.sort(key=lambda each: each.samples[train])
            yield "rare", len(rare), {"limit": _RARE, "names": _list(rare)}
    yield "unused", report.unused, {"names": f"{_list(empty)}. " if empty else ""}
    for balance in report.balance[:1]:
        smallest, largest = balance.smallest, balance.largest
        if largest > _UNBALANCED * smallest:
            sizes = {"smallest": smallest, "largest": largest, "ratio": largest / smallest}
            yield "unbalanced", 1, {"split": balance.split, **sizes}


def _worst_class(report: Report) -> Iterator[_Found]:
    """Name the class with the largest share of images that have a problem, if one stands out."""
    worst = min(report.classes, key=by_problems, default=None)
    if worst is None or len(report.classes) < 2 or sum(worst.flagged.values()) < 2:
        return
    # Rejected images are not stored, so they are a sentence of their own.
    flagged, sentences = dict(worst.flagged), []
    rejected = flagged.pop("rejected", 0)
    if flagged:
        counts = ", ".join(f"{count:,} {what}" for what, count in flagged.items())
        sentences.append(f"Of its {plural(worst.total, 'image')}: {counts}.")
    if rejected:
        images, was = plural(rejected, "source image"), agree(rejected, "was", "were")
        sentences.append(f"{images} {was} rejected.")
    texts = {"name": _name(worst), "label": worst.label, "detail": " ".join(sentences)}
    yield "worst", 1, texts


def by_problems(each: ClassFacts) -> tuple[float, int]:
    """Sort classes by their problems per image, the most first. Rejected images count as images."""
    flagged = each.flagged
    images = max(1, each.total + flagged.get("rejected", 0))
    return -sum(flagged.values()) / images, each.label


def _rejected(report: Report) -> Iterator[_Found]:
    reasons = list(report.rejected.reasons.items())[:_LISTED]
    texts = [f"{cut_middle(reason, 40)} {count:,}" for reason, count in reasons]
    yield "rejected", report.rejected.total, {"reasons": ", ".join(texts)}


def _sizes(report: Report) -> Iterator[_Found]:
    filled = [split for split in report.splits if split.samples]
    if report.store == "raw" or not filled:
        return
    for split in filled:
        width, height = split.width["median"], split.height["median"]
        if min(width, height) > _LARGE:
            yield "large", 1, {"split": split.name, "width": width, "height": height}
            break
    # The histogram has a bound at this size.
    shorter = report.histograms["shorter"]
    small = 0
    for counts in shorter.counts.values():
        small += sum(counts[: bisect_right(shorter.edges[1:], _SMALL)])
    if small < report.samples:
        yield "small", small, {"limit": _SMALL}
    # The widths are enough to say it, if both sides differ.
    for side in ("width", "height"):
        medians = [(getattr(split, side)["median"], split.name) for split in filled]
        (low, smaller), (high, larger) = min(medians), max(medians)
        if high > _DIFFERENT * max(1, low):
            names = {"side": side, "smaller": smaller, "larger": larger}
            yield "unequal", 1, {**names, "low": low, "high": high}
            break


def _looks(report: Report) -> Iterator[_Found]:
    looks = report.looks
    counts = {"almost black": looks.dark, "almost white": looks.bright, "of one color": looks.flat}
    kinds, listed = [], []
    for what, count in counts.items():
        if count:
            kinds.append(what)
            listed.append(f"{count:,} {what}")
    texts = {"kinds": " or ".join(kinds), "counts": ", ".join(listed)}
    yield "plain", len(kinds), {**texts, "sampled": looks.sampled}
    if report.store == "encoded":
        others, total = jpeg.count_others(looks.formats), sum(looks.formats.values())
        yield "formats", others, {"share": others / max(1, total)}


def _name(each: ClassFacts) -> str:
    """Return the name of a class in quotation marks."""
    return f"\u201c{cut_middle(each.name, 80)}\u201d"


def _list(classes: list[ClassFacts]) -> str:
    names = ", ".join(map(_name, classes[:_LISTED]))
    more = len(classes) - _LISTED
    return f"{names} and {more:,} more" if more > 0 else names
