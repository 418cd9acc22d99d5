"""ImageFolders: ``class/image``, alone or one for each split. Scanned with `os.scandir`; no image is opened."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dataprep.sources.columns import Source, SourceOptions, concat
from manifests.errors import SourceError
from manifests.schema import UNREADABLE, split_order
from manifests.text import printable

#: Files of other names in an ImageFolder are left out, aloud. What an image really is, its content says.
IMAGE_SUFFIXES = frozenset(
    (
        *(".jpg", ".jpeg", ".jpe", ".jfif", ".png", ".webp", ".bmp", ".dib", ".tif", ".tiff", ".gif", ".avif"),
        *(".heic", ".heif", ".jp2", ".j2k", ".jxl", ".ppm", ".pgm"),
    )
)


class Scan:
    """Columns that grow folder by folder."""

    def __init__(self, root: str) -> None:
        self.root = root
        self.paths: list[pa.Array] = []
        self.sizes: list[NDArray[np.int64]] = []
        self.left_out: Counter[str] = Counter()
        self.notices: list[str] = []
        self.rejected: list[dict[str, str]] = []

    def add(self, folder: str) -> int:
        """List all images at and below a folder, in the order of their names; return how many."""
        found: list[tuple[str, int]] = []
        self._walk(folder, [], found)
        found.sort()
        if found:
            self.paths.append(pa.array([path for path, _ in found], pa.large_string()))
            self.sizes.append(np.array([size for _, size in found], np.int64))
        return len(found)

    def _walk(self, folder: str, above: list[tuple[int, int]], found: list[tuple[str, int]]) -> None:
        status = os.stat(os.path.join(self.root, folder))
        here = (status.st_dev, status.st_ino)
        if here in above:
            self.notices.append(f"{printable(folder)} is a link to a folder above it and is left out")
            return
        with os.scandir(os.path.join(self.root, folder)) as entries:
            for entry in entries:
                path = f"{folder}/{entry.name}" if folder else entry.name
                if entry.name.startswith("."):
                    self.left_out["hidden files"] += 1
                elif not is_text(path):
                    self._reject(path, "bad-name", "the name is not valid UTF-8; rename the file")
                elif is_folder(entry):
                    self._walk(path, [*above, here], found)
                elif (suffix := _suffix_of(entry.name)) not in IMAGE_SUFFIXES:
                    self.left_out[suffix or "no extension"] += 1
                else:
                    found.append((path, _size_of(entry)))

    def _reject(self, path: str, reason: str, detail: str) -> None:
        shown = os.fsencode(path).decode("utf-8", "backslashreplace")
        self.rejected.append({"source": shown, "reason": reason, "detail": detail})

    def left_out_notice(self) -> list[str]:
        """Say which files were left out for their names."""
        if not self.left_out:
            return []
        kinds = ", ".join(f"{kind} {count:,}" for kind, count in self.left_out.most_common(8))
        return [f"left out, for their names are no image's: {kinds}"]


def is_folder(entry: os.DirEntry[str]) -> bool:
    """Tell whether an entry is a folder; a link to itself is none."""
    try:
        return entry.is_dir()
    except OSError:
        return False


def is_text(name: str) -> bool:
    """Tell whether a file name is valid UTF-8, and so can be written anywhere."""
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True


def _suffix_of(name: str) -> str:
    # What `os.path.splitext` gives for a name that begins with no dot, at a third of its cost.
    return name[name.rfind(".") :].lower() if "." in name else ""


def _size_of(entry: os.DirEntry[str]) -> int:
    try:
        return entry.stat().st_size
    except OSError:
        return UNREADABLE


def name_splits(src: str, folders: Sequence[str], split_of: Mapping[str, str]) -> dict[str, str]:
    """Give the folder of each split (split -> folder), by what `split_of` calls a folder's name in lower case."""
    splits: dict[str, str] = {}
    for name in folders:
        other = splits.setdefault(split_of[name.lower()], name)
        if other != name:
            raise SourceError(f"holds both {other}/ and {name}/, two names of one split", file=src, hint="rename one")
    return splits


def read_image_folders(src: str, splits: dict[str, str], folders: Sequence[str], options: SourceOptions) -> Source:
    """Read class folders, or splits of them where folders are named so (`splits`: split -> folder)."""
    if not splits:
        if not folders:
            raise SourceError(
                "has no class folders",
                file=src,
                hint="an ImageFolder is CLASS/IMAGE; a list file (`path label`), a CSV, "
                "or the images' own names with --pattern can name labels instead",
            )
        source = labelled_by_folder(src, {"train": [(name, name) for name in folders]}, "ImageFolder", options)
        return replace(source, notices=(*_stray_notice(stray_images(src)), *source.notices))
    scans: dict[str, list[tuple[str, str]]] = {}
    notices = [
        f"{name}/ is none of train, val and test and is left out" for name in folders if name not in splits.values()
    ]
    for split in split_order(set(splits)):
        classes = sorted(
            entry.name for entry in os.scandir(f"{src}/{splits[split]}") if is_folder(entry) and entry.name[0] != "."
        )
        if classes:
            scans[split] = [(f"{splits[split]}/{name}", name) for name in classes]
        elif split == "test":
            notices.append("test/ has no class folders, so no labels, and is left out")
        else:
            raise SourceError(
                "has no class folders",
                file=f"{src}/{splits[split]}",
                hint=f"sort the images into {splits[split]}/CLASS/, or write a {split}_list.txt of `path label`",
            )
    stray = [name for split in scans for name in stray_images(src, splits[split])]
    source = labelled_by_folder(src, scans, f"{' and '.join(scans)} ImageFolders", options)
    return replace(source, notices=(*notices, *_stray_notice([*stray_images(src), *stray]), *source.notices))


def stray_images(root: str, folder: str = "") -> list[str]:
    """List images that lie beside folders, and so in no class or split."""
    with os.scandir(os.path.join(root, folder)) as entries:
        names = [
            os.path.join(folder, entry.name)
            for entry in entries
            if os.path.splitext(entry.name)[1].lower() in IMAGE_SUFFIXES and not is_folder(entry)
        ]
    return sorted(names)


def _stray_notice(names: Sequence[str]) -> list[str]:
    if not names:
        return []
    return [f"left out, for they lie in no class folder: {len(names):,} images, {printable(names[0])} the first"]


def labelled_by_folder(
    root: str, scans: dict[str, list[tuple[str, str]]], layout: str, options: SourceOptions
) -> Source:
    """Scan (folder, class name) pairs of each split; classes are numbered in sorted order over all splits."""
    scan, counts = Scan(root), []
    names: list[str] = []
    codes: list[int] = []
    for code, folders in enumerate(scans.values()):
        for folder, name in folders:
            if not is_text(name):
                shown = os.fsencode(folder).decode("utf-8", "backslashreplace")
                raise SourceError("the class folder's name is not valid UTF-8", file=shown, hint="rename it")
            counts.append(scan.add(folder))
            names.append(name)
            codes.append(code)
    classes = options.classes or tuple(sorted(set(names)))
    number = {name: label for label, name in enumerate(classes)}
    if unknown := sorted(set(names) - set(classes)):
        raise SourceError(
            f"the class folder {unknown[0]!r} is not in --classes ({len(unknown)} such)",
            file=root,
            hint="add it",
        )
    return Source(
        root=root,
        layout=layout,
        classes=classes,
        splits=tuple(scans),
        path=concat(scan.paths),
        label=np.repeat(np.array([number[name] for name in names], np.int32), counts),
        split=np.repeat(np.array(codes, np.int8), counts),
        size=np.concatenate([*scan.sizes, np.empty(0, np.int64)]),
        extra=pa.table({}),
        notices=(*scan.notices, *scan.left_out_notice()),
        rejected=tuple(scan.rejected),
        scanned=True,
    )
