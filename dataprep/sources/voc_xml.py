"""The content of an annotation file of Pascal VOC: the size of the image, and the objects in it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any
from xml.parsers import expat

from manifests.errors import SourceError
from manifests.files import SOURCE_VOC, read_file
from manifests.json_members import shorten

#: Paths of the elements whose text is read. A part of an object, such as a head, has a box too,
#: which is not read.
_SIDES = ("xmin", "ymin", "xmax", "ymax")
_OBJECT = "annotation/object"
_TEXTS = {
    *(f"annotation/{name}" for name in ("size/width", "size/height", "filename")),
    *(
        f"{_OBJECT}/{name}"
        for name in ("name", "difficult", *(f"bndbox/{side}" for side in _SIDES))
    ),
}

_MAX_DEPTH = 16
_MAX_TEXT = 4096
_MAX_OBJECTS = 100_000

_HINT = "export the annotations again, or correct the file"


@dataclass(frozen=True, slots=True)
class VocObject:
    """An object.

    Attributes:
        name: name of its class.
        edges: its edges as the file states them (xmin, ymin, xmax, ymax).
        difficult: whether it is marked as hard to recognize. Evaluations leave it out.

    """

    name: str
    edges: tuple[float, float, float, float]
    difficult: bool = False


@dataclass(slots=True)
class VocFile:
    """The content of a file.

    Attributes:
        width: width of the image, 0 if it is not stated.
        height: height of the image, 0 if it is not stated.
        objects: the objects in the order of the file.

    """

    width: int = 0
    height: int = 0
    objects: list[VocObject] = field(default_factory=list)


def read_voc_xml(file: str) -> VocFile:
    """Read an annotation file.

    Raises:
        SourceError: it is not XML, defines a document type, or a number or a name is missing or
            wrong.

    """
    content = read_file(file, SOURCE_VOC)
    handler = _Handler(file)
    parser = expat.ParserCreate()
    parser.buffer_text = True
    parser.StartElementHandler = handler.start
    parser.EndElementHandler = handler.end
    parser.CharacterDataHandler = handler.text
    # Entities can make a small file large, and read other files. No annotation needs a document
    # type.
    parser.StartDoctypeDeclHandler = handler.doctype
    try:
        parser.Parse(content, True)
    except expat.ExpatError as error:
        message = f"the file is not valid XML ({expat.ErrorString(error.code)})"
        raise SourceError(message, file=file, line=error.lineno, hint=_HINT) from None
    except (LookupError, ValueError) as error:  # an unknown encoding
        raise SourceError(
            f"the file is not valid XML ({error})"[:300], file=file, hint=_HINT
        ) from None
    if not handler.complete:
        raise SourceError("the file has no element <annotation>", file=file, hint=_HINT)
    return handler.out


class _Handler:
    """Collects the content of a file while it is parsed."""

    def __init__(self, file: str) -> None:
        self.out = VocFile()
        self.complete = False
        self._file = file
        self._path: list[str] = []
        self._parts: list[str] = []
        self._object: dict[str, str] = {}

    def doctype(self, *_: Any) -> None:
        message = "the file defines a document type, which is not read"
        raise SourceError(message, file=self._file, hint="remove <!DOCTYPE>")

    def start(self, name: str, _: dict[str, str]) -> None:
        self._path.append(name)
        self._parts.clear()
        if len(self._path) > _MAX_DEPTH:
            raise SourceError("the file is nested too deeply", file=self._file, hint=_HINT)
        if "/".join(self._path) == _OBJECT:
            self._object = {}

    def text(self, text: str) -> None:
        if sum(map(len, self._parts)) < _MAX_TEXT:
            self._parts.append(text)

    def end(self, _: str) -> None:
        path = "/".join(self._path)
        self._path.pop()
        text = "".join(self._parts).strip()
        self._parts.clear()
        self.complete |= path == "annotation"
        if path in ("annotation/size/width", "annotation/size/height"):
            setattr(self.out, path.rpartition("/")[2], self._side(path, text))
        elif path == _OBJECT:
            self._end_object()
        elif path in _TEXTS:
            self._object[path.rpartition("/")[2]] = text

    def _side(self, path: str, text: str) -> int:
        if not text.isdecimal() or len(text) > 9:
            message = f"<{path.rpartition('/')[2]}> of <size> is {shorten(text)}, not an integer"
            raise SourceError(message, file=self._file, hint=_HINT)
        return int(text)

    def _end_object(self) -> None:
        number = len(self.out.objects)
        if number >= _MAX_OBJECTS:
            raise SourceError(
                f"the file has more than {_MAX_OBJECTS:,} objects", file=self._file, hint=_HINT
            )
        name = self._object.get("name", "")
        if not name:
            raise SourceError(f"object {number} has no <name>", file=self._file, hint=_HINT)
        edges = [self._edge(number, side) for side in _SIDES]
        difficult = self._object.get("difficult", "0") not in ("", "0")
        self.out.objects.append(
            VocObject(name, (edges[0], edges[1], edges[2], edges[3]), difficult)
        )

    def _edge(self, number: int, side: str) -> float:
        text = self._object.get(side, "")
        try:
            value = float(text)
        except ValueError:
            value = float("nan")
        if not abs(value) < 1e9:
            message = f"<{side}> of object {number} is {shorten(text)}, not a number"
            raise SourceError(message, file=self._file, hint=_HINT)
        return value
