"""Re-identification datasets that are known by their folders: Market-1501, DukeMTMC-reID, VeRi-776.

Identity and camera are as the names have them (cameras count from 1); labels number the identities of all splits.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa

from dataprep.sources.columns import Source, SourceOptions
from dataprep.sources.folders import stray_images
from dataprep.sources.named import left_out_folders, read_named
from dataprep.sources.patterns import NUMBER, Pattern, captured, parse_pattern


@dataclass(frozen=True, slots=True)
class Layout:
    """A dataset as it is handed out: the folder of each split (split -> folder), and how images are named."""

    name: str
    splits: Mapping[str, str]
    pattern: Pattern


_PEOPLE = {"train": "bounding_box_train", "query": "query", "gallery": "bounding_box_test"}
_VEHICLES = {"train": "image_train", "query": "image_query", "gallery": "image_test"}

#: Market-1501: Zheng et al., ICCV 2015; DukeMTMC-reID: Zheng et al., ICCV 2017; VeRi-776: Liu et al., ECCV 2016.
LAYOUTS = (
    Layout("Market-1501", _PEOPLE, parse_pattern("{identity}_c{camera}s*", NUMBER)),
    Layout("DukeMTMC-reID", _PEOPLE, parse_pattern("{identity}_c{camera}_*", NUMBER)),
    Layout("VeRi-776", _VEHICLES, parse_pattern("{identity}_c{camera}_*", NUMBER)),
)

#: Detections of Market-1501 that overlap a person too little to be one and too much to be none. Its evaluation
#: counts them neither for nor against a search, so that without them its figures are the same.
JUNK = "-1"
#: Detections of Market-1501 that show nobody: in its gallery, each one found is a mistake.
DISTRACTORS = "0000"


def find_layout(src: str, folders: Sequence[str]) -> Layout | None:
    """Recognise a layout by two of its folders; where two have the same, by the name of an image."""
    found = [layout for layout in LAYOUTS if len({*layout.splits.values()} & {*folders}) > 1]
    return next((layout for layout in found if _names_fit(src, folders, layout)), found[0] if found else None)


def _names_fit(src: str, folders: Sequence[str], layout: Layout) -> bool:
    listed = (stray_images(src, folder) for folder in layout.splits.values() if folder in folders)
    first = next((names[0] for names in listed if names), "")
    return bool(captured(pa.array([first], pa.large_string()), layout.pattern)[0].is_valid)


def read_layout(src: str, folders: Sequence[str], layout: Layout, options: SourceOptions) -> Source:
    """Read the images of each split by their names.

    Raises:
        SourceError: an image is not named as the layout has it.

    """
    splits = {split: folder for split, folder in layout.splits.items() if folder in folders}
    source = read_named(src, splits, layout.pattern, options, layout=f"laid out as {layout.name}", junk=JUNK)
    notices = [f"there is no {layout.splits[split]}/, so no {split}" for split in layout.splits if split not in splits]
    notices += left_out_folders(folders, splits)
    notices += [*source.notices, *_distractor_notice(source)]
    # Numbers whatever their spelling: c1 and c01 are one camera.
    columns = {name: source.extra[name].cast(pa.int64()) for name in layout.pattern.names}
    return replace(source, extra=pa.table(columns), notices=tuple(notices))


def _distractor_notice(source: Source) -> list[str]:
    if DISTRACTORS not in source.classes or "gallery" not in source.splits:
        return []
    rows = source.label == source.classes.index(DISTRACTORS)
    if (source.split[rows] != source.splits.index("gallery")).any():
        return []
    return [f"identity {DISTRACTORS} are distractors and are kept in gallery: {rows.sum():,} images"]
