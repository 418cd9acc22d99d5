"""Images that were not written: their list, and their pictures where the source can still be read.

The paths in ``rejected.jsonl`` come with the dataset, so they are untrusted: nothing outside of the
folder that the user names is opened, and only regular files of a limited size.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator
from typing import NamedTuple

from dataprep.images.base import MAX_BYTES, Rejected
from dataprep.report.facts import RejectedFacts
from dataprep.report.salvage import salvage
from dataprep.report.thumbnails import encode_thumbnail
from dataprep.verify.problems import Problem
from manifests.errors import DamagedError, DatasetError, SourceError
from manifests.files import REJECTED, FileKind, open_file, read_lines
from manifests.json_members import parse_json
from manifests.process.text import cut_middle, printable
from manifests.schema import Manifest

#: Images that are shown, of each reason and in total; folders that are listed.
_PER_REASON, _TOTAL = 12, 60
_FOLDERS = 20

#: Folders that are counted separately while the list is read.
_MAX_COUNTED = 100_000

#: Reasons that are counted separately; a list that another program wrote may have any.
_MAX_REASONS, _OTHER = 100, "(others)"

#: Characters of a file that is not an image.
_EXCERPT = 120

_IMAGE = FileKind("image", MAX_BYTES, SourceError, "check what this file is")


class RejectedImage(NamedTuple):
    """An image that was not written.

    Attributes:
        source: its path in the source.
        reason: a key of `dataprep.images.base.REASONS`.
        detail: what exactly is wrong.
        thumbnail: a JPEG of what can be decoded of it; empty if nothing can.
        note: why there is no picture, or how the file begins.

    """

    source: str
    reason: str
    detail: str
    thumbnail: bytes = b""
    note: str = ""


class RejectedList(NamedTuple):
    """The content of ``rejected.jsonl``.

    Attributes:
        facts: counts.
        names: number of images by the name of the innermost folder, which is the class in most
            sources.
        shown: the first images of each reason.
        problems: what is wrong with the file.

    """

    facts: RejectedFacts
    names: Counter[str]
    shown: tuple[RejectedImage, ...]
    problems: tuple[Problem, ...]


def read_rejected(folder: str, manifest: Manifest) -> RejectedList:
    """Read the list of images that were not written."""
    reasons: Counter[str] = Counter()
    folders: Counter[str] = Counter()
    shown: list[RejectedImage] = []
    problems: list[Problem] = []
    try:
        for read in _lines(folder, manifest):
            is_other = read.reason not in reasons and len(reasons) >= _MAX_REASONS
            image = read._replace(reason=_OTHER) if is_other else read
            reasons[image.reason] += 1
            parent = os.path.dirname(image.source)
            if parent in folders or len(folders) < _MAX_COUNTED:
                folders[parent] += 1
            if reasons[image.reason] <= _PER_REASON and len(shown) < _TOTAL:
                shown.append(image)
    except OSError as error:
        message = f"the list of rejected images cannot be read ({error.strerror})"
        problems.append(Problem(REJECTED_FILE, message, hint=REJECTED.hint))
    except DamagedError as error:
        problems.append(Problem(REJECTED_FILE, error.message, hint=error.hint))
    names: Counter[str] = Counter()
    for parent, count in folders.items():
        names[os.path.basename(parent)] += count
    most = sorted(folders.items(), key=lambda item: (-item[1], item[0]))[:_FOLDERS]
    by_reason = dict(sorted(reasons.items(), key=lambda item: (-item[1], item[0])))
    order = list(by_reason)
    shown.sort(key=lambda image: order.index(image.reason))
    return RejectedList(
        RejectedFacts(reasons.total(), by_reason, dict(most)), names, tuple(shown), tuple(problems)
    )


REJECTED_FILE = "rejected.jsonl"


def _lines(folder: str, manifest: Manifest) -> Iterator[RejectedImage]:
    if manifest.rejected is None:
        return
    for number, line in enumerate(
        read_lines(os.path.join(folder, manifest.rejected.name), REJECTED), 1
    ):
        try:
            row = parse_json(line)
            yield RejectedImage(row["source"].text(), row["reason"].text(), row["detail"].text())
        except ValueError as error:
            raise REJECTED.error(
                f"line {number} is not a rejected image ({error})", hint=REJECTED.hint
            ) from None


class RejectedTask(NamedTuple):
    """Rejected images whose pictures are to be read from a folder; `None` reads none."""

    images: tuple[RejectedImage, ...]
    source: str | None


def show_rejected(task: RejectedTask) -> list[RejectedImage]:
    """Read the rejected images as far as possible."""
    return [_show(image, task.source) for image in task.images]


def _show(image: RejectedImage, source: str | None) -> RejectedImage:
    if source is None:
        return image
    if image.reason == "too-large":
        return image._replace(note="not decoded, because it exceeds the limit")
    try:
        data = _read(image.source, source)
    except OSError as error:
        return image._replace(note=f"cannot be read now: {error.strerror}")
    except DatasetError as error:
        return image._replace(note=f"not read: {error.message}")
    try:
        return image._replace(thumbnail=encode_thumbnail(salvage(data)))
    except Rejected as error:
        return image._replace(note=_excerpt(data) or error.detail)


def _read(path: str, folder: str) -> bytes:
    """Read a file below a folder.

    Raises:
        OSError: it cannot be read.
        SourceError: it is elsewhere, also by a link, or is not a regular file.

    """
    if "\0" in path:
        raise SourceError("the path contains a zero byte")
    root = os.path.realpath(folder)
    actual = os.path.realpath(os.path.join(root, path))
    if os.path.commonpath([root, actual]) != root:
        raise SourceError("the path leads out of the folder that --src names")
    with open_file(actual, _IMAGE) as file:
        return file.read(MAX_BYTES)


def _excerpt(data: bytes) -> str:
    """Return the beginning of a text, or of other bytes in hexadecimal digits."""
    if not data:
        return "the file is empty"
    head = data[:_EXCERPT]
    text = head.decode("utf-8", "replace")
    if (
        sum(not (char.isprintable() or char.isspace()) or char == "\ufffd" for char in text)
        <= len(text) // 20
    ):
        return f"begins with: {cut_middle(printable(' '.join(text.split())), _EXCERPT)}"
    return f"begins with the bytes {head[:16].hex(' ')}"
