"""Re-identification datasets that are recognized by their folders: Market-1501, DukeMTMC-reID, VeRi-776.

Identity and camera are the numbers in the file names (cameras count from 1). Labels number the
identities of all splits.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa

from dataprep.sources.base import Source, SourceOptions
from dataprep.sources.filenames import read_filenames, skipped_folders
from dataprep.sources.patterns import INTEGER, Pattern, match_names, parse_pattern
from dataprep.sources.scan import list_images
from manifests.process.text import plural


@dataclass(frozen=True, slots=True)
class ReidLayout:
    """The layout of a published dataset.

    Attributes:
        name: name of the dataset.
        splits: the folder of each split (split -> folder).
        pattern: pattern of the file names.

    """

    name: str
    splits: Mapping[str, str]
    pattern: Pattern


_PEOPLE = {"train": "bounding_box_train", "query": "query", "gallery": "bounding_box_test"}
_VEHICLES = {"train": "image_train", "query": "image_query", "gallery": "image_test"}

#: Market-1501: Zheng et al., ICCV 2015; DukeMTMC-reID: Zheng et al., ICCV 2017; VeRi-776: Liu et
#: al., ECCV 2016.
LAYOUTS = (
    ReidLayout("Market-1501", _PEOPLE, parse_pattern("{identity}_c{camera}s*", INTEGER)),
    ReidLayout("DukeMTMC-reID", _PEOPLE, parse_pattern("{identity}_c{camera}_*", INTEGER)),
    ReidLayout("VeRi-776", _VEHICLES, parse_pattern("{identity}_c{camera}_*", INTEGER)),
)

#: Identity of Market-1501's junk images: detections that overlap a person only partly. The
#: evaluation ignores them, so skipping them does not change any score.
JUNK = "-1"
#: Identity of Market-1501's distractors: detections that show no person. In the gallery, retrieving
#: one is an error.
DISTRACTORS = "0000"


def find_reid_layout(src: str, folders: Sequence[str]) -> ReidLayout | None:
    """Recognize a layout by at least two of its folders, and among layouts with the same folders by an image's name."""
    candidates = [layout for layout in LAYOUTS if len({*layout.splits.values()} & {*folders}) > 1]
    return next(
        (layout for layout in candidates if _names_match(src, folders, layout)),
        candidates[0] if candidates else None,
    )


def _names_match(src: str, folders: Sequence[str], layout: ReidLayout) -> bool:
    listed = (list_images(src, folder) for folder in layout.splits.values() if folder in folders)
    first = next((names[0] for names in listed if names), "")
    return bool(match_names(pa.array([first], pa.large_string()), layout.pattern)[0].is_valid)


def read_reid_folders(
    src: str, folders: Sequence[str], layout: ReidLayout, options: SourceOptions
) -> Source:
    """Read the images of each split, with `identity` and `camera` from their file names.

    Raises:
        SourceError: a file name does not match the layout's pattern.

    """
    splits = {split: folder for split, folder in layout.splits.items() if folder in folders}
    source = read_filenames(src, splits, layout.pattern, options, layout=layout.name, junk=JUNK)
    missing = [split for split in layout.splits if split not in splits]
    notices = [
        f"no split {split}: the folder {layout.splits[split]}/ does not exist" for split in missing
    ]
    notices += skipped_folders(folders, splits)
    notices += [*source.notices, *_distractor_notice(source)]
    # c1 and c01 are the same camera, so these columns are always numbers.
    columns = {name: source.extra[name].cast(pa.int64()) for name in layout.pattern.names}
    return replace(source, extra=pa.table(columns), notices=tuple(notices))


def _distractor_notice(source: Source) -> list[str]:
    if DISTRACTORS not in source.classes or "gallery" not in source.splits:
        return []
    rows = source.label == source.classes.index(DISTRACTORS)
    if (source.split[rows] != source.splits.index("gallery")).any():
        return []
    return [
        f"kept {plural(int(rows.sum()), 'distractor image')} (identity {DISTRACTORS}) in gallery"
    ]
