"""The content of an annotation file of COCO: images, categories, and boxes or captions."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any, NoReturn

from dataprep.labels.boxes import BoxList
from dataprep.sources.json_stream import read_arrays
from manifests.errors import SourceError
from manifests.json_members import MAX_INTEGER, is_unicode, shorten
from manifests.labels import LabelType
from manifests.schema import MAX_LABEL

EXPORT = "export the annotations again, or correct the file"

_PANOPTIC_HINT = (
    "use instances_*.json for boxes; for masks, write the class of each pixel into gray PNGs:"
    " images/, masks/"
)
_KEYPOINTS_HINT = "--label-type boxes converts the boxes, and leaves the key points out"


def is_coco(file: str) -> bool:
    """Return whether a file begins with an object that has an array of images with file names."""
    try:
        _, _, image = next(iter(read_arrays(file, ["images"])))
    except (StopIteration, SourceError):
        return False
    return isinstance(image, dict) and "file_name" in image and "id" in image


@dataclass
class Annotations:
    """The content of one file.

    Attributes:
        ids: number of each image by its id.
        names: file names of the images.
        sizes: widths and heights of the images, 0 if they are not stated.
        categories: names of the categories by their ids.
        boxes: the boxes; their labels are still ids of categories.
        captions: for each image that has some, its captions.
        crowds: number of boxes around crowds, which are left out.
        keypoints: number of objects with key points, which are left out.

    """

    ids: dict[int, int] = field(default_factory=dict)
    names: list[str] = field(default_factory=list)
    sizes: list[tuple[int, int]] = field(default_factory=list)
    categories: dict[int, str] = field(default_factory=dict)
    boxes: BoxList = field(default_factory=BoxList)
    captions: dict[int, list[str]] = field(default_factory=dict)
    crowds: int = 0
    keypoints: int = 0


class AnnotationReader:
    """Reads one annotation file.

    Images may come after their annotations, so ids are resolved at the end.
    """

    def __init__(self, file: str, label_type: LabelType, *, chosen: bool = False) -> None:
        """Read nothing yet.

        Args:
            file: the file.
            label_type: what to read, ``"boxes"`` or ``"caption"``.
            chosen: whether the user chose it, so that key points may be left out.

        """
        self._file = file
        self._chosen = chosen
        self._label_type = label_type
        self._out = Annotations()

    def read(self) -> Annotations:
        """Read the file.

        Raises:
            SourceError: it is not valid JSON, a member is missing or wrong, or refers to an unknown
                id; or the annotations are of another kind, such as panoptic ones.

        """
        add = {"images": self._image, "annotations": self._annotation, "categories": self._category}
        names = ["images", "annotations", *(["categories"] if self._label_type == "boxes" else [])]
        for name, number, item in read_arrays(self._file, names, names):
            if not isinstance(item, dict):
                self._fail(f"{name}[{number}] must be an object")
            add[name](f"{name}[{number}]", number, item)
        self._resolve()
        return self._out

    def _fail(self, message: str, hint: str = EXPORT) -> NoReturn:
        raise SourceError(message, file=self._file, hint=hint)

    def _integer(self, place: str, item: dict[str, Any], name: str) -> int:
        value = item.get(name)
        if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= MAX_INTEGER:
            self._fail(f"{place}.{name} must be an integer of at least 0, not {shorten(value)}")
        return int(value)

    def _text(self, place: str, item: dict[str, Any], name: str) -> str:
        value = item.get(name)
        if (
            not isinstance(value, str)
            or not value.strip()
            or not is_unicode(value)
            or "\0" in value
        ):
            self._fail(f"{place}.{name} must be text, not {shorten(value)}")
        return str(value)

    def _image(self, place: str, number: int, item: dict[str, Any]) -> None:
        del number
        image_id, name = self._integer(place, item, "id"), self._text(place, item, "file_name")
        if image_id in self._out.ids:
            self._fail(f"{place}.id is {image_id}, the id of another image")
        self._out.ids[image_id] = len(self._out.names)
        self._out.names.append(name)
        self._out.sizes.append(
            (self._side(place, item, "width"), self._side(place, item, "height"))
        )

    def _side(self, place: str, item: dict[str, Any], name: str) -> int:
        return self._integer(place, item, name) if name in item else 0

    def _category(self, place: str, number: int, item: dict[str, Any]) -> None:
        del number
        category, name = self._integer(place, item, "id"), self._text(place, item, "name")
        if category in self._out.categories or category > MAX_LABEL:
            self._fail(
                f"{place}.id is {category}, which is the id of another category or above"
                f" {MAX_LABEL}"
            )
        self._out.categories[category] = name

    def _annotation(self, place: str, number: int, item: dict[str, Any]) -> None:
        image_id = self._integer(place, item, "image_id")
        if self._label_type == "caption":
            self._out.captions.setdefault(image_id, []).append(
                " ".join(self._text(place, item, "caption").split())
            )
            return
        if "segments_info" in item:
            self._fail(
                f"{place} is panoptic: it describes the segments of a PNG, and not an object",
                _PANOPTIC_HINT,
            )
        if item.get("keypoints"):
            self._out.keypoints += 1
            if not self._chosen:
                self._fail(f"{place} has key points, which are not converted", _KEYPOINTS_HINT)
        category = self._integer(place, item, "category_id")
        if item.get("iscrowd"):
            self._out.crowds += 1
            return
        box = item.get("bbox")
        if not (isinstance(box, list) and len(box) == 4 and all(map(_is_number, box))):
            self._fail(
                f"{place}.bbox must be four numbers (x, y, width, height), not {shorten(box)}"
            )
        x, y, width, height = map(float, box)
        self._out.boxes.add(image_id, category, (x, y, x + width, y + height), number)

    def _resolve(self) -> None:
        """Replace the ids of images by their numbers, and check the ids of categories."""
        out = self._out
        for at, (image_id, category) in enumerate(
            zip(out.boxes.image, out.boxes.label, strict=True)
        ):
            place = f"annotations[{out.boxes.place[at]}]"
            if image_id not in out.ids:
                self._fail(f"{place}.image_id is {image_id}, but no image has that id")
            if category not in out.categories:
                self._fail(f"{place}.category_id is {category}, but no category has that id")
            out.boxes.image[at] = out.ids[image_id]
        unknown = next((image_id for image_id in out.captions if image_id not in out.ids), None)
        if unknown is not None:
            self._fail(
                f"annotations: a caption has the image_id {unknown}, but no image has that id"
            )
        out.captions = {out.ids[image_id]: texts for image_id, texts in out.captions.items()}


def _is_number(value: Any) -> bool:
    return (
        isinstance(value, (int, float))
        and not isinstance(value, bool)
        and abs(value) < 1e9
        and math.isfinite(value)
    )
