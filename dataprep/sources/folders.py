"""ImageFolders: CLASS/IMAGE, or SPLIT/CLASS/IMAGE."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa

from dataprep.sources.base import Source, SourceOptions
from dataprep.sources.entries import is_utf8
from dataprep.sources.scan import (
    Scan,
    has_folders,
    hidden_notices,
    list_folders,
    list_images,
    map_splits,
    stray_notices,
)
from manifests.errors import SourceError
from manifests.schema import SPLIT_ALIASES, split_order


def read_image_folders(src: str, folders: Sequence[str], options: SourceOptions) -> Source:
    """Read an ImageFolder, or one for each split if the folders of `src` have the names of splits.

    Raises:
        SourceError: there are no class folders, or the name of a class is not valid.

    """
    splits = _split_folders(src, folders)
    if not splits:
        return _read_one(src, folders, options)
    class_folders: dict[str, list[tuple[str, str]]] = {}
    notices = [
        f"skipped {name}/: it is not train, val or test"
        for name in folders
        if name not in splits.values()
    ]
    for split in split_order(set(splits)):
        classes = list_folders(f"{src}/{splits[split]}")
        if classes:
            class_folders[split] = [(f"{splits[split]}/{name}", name) for name in classes]
        elif split == "test":
            notices.append("skipped test/: it has no class folders, so no labels")
        else:
            raise SourceError(
                "the folder of a split has no class folders",
                file=f"{src}/{splits[split]}",
                hint=(
                    f"sort the images into {splits[split]}/CLASS/, or list them in {split}_list.txt"
                    " as `path label`"
                ),
            )
    stray = [name for split in class_folders for name in list_images(src, splits[split])]
    source = read_class_folders(
        src, class_folders, f"ImageFolder with {' and '.join(class_folders)}", options
    )
    notices += stray_notices([*list_images(src), *stray], "outside of class folders")
    notices += hidden_notices(src, ("", *(splits[split] for split in class_folders)))
    return replace(source, notices=(*notices, *source.notices))


def _read_one(src: str, folders: Sequence[str], options: SourceOptions) -> Source:
    if not folders:
        raise SourceError(
            "the folder has no class folders",
            file=src,
            hint=(
                "sort the images into CLASS/IMAGE; or give the labels in a list file (`path"
                " label`), in a CSV, or in the file names with --pattern; or set --unlabelled"
            ),
        )
    source = read_class_folders(
        src, {"train": [(name, name) for name in folders]}, "ImageFolder", options
    )
    stray = stray_notices(list_images(src), "outside of class folders")
    return replace(source, notices=(*stray, *hidden_notices(src), *source.notices))


def _split_folders(src: str, folders: Sequence[str]) -> dict[str, str]:
    """Return the folder of each split.

    Empty if the folders are classes, as with `train` next to `car` and `bus`.
    """
    named = [name for name in folders if name.lower() in SPLIT_ALIASES]
    if len(named) < len(folders) and not any(
        has_folders(os.path.join(src, name)) for name in named
    ):
        return {}
    return map_splits(src, named, SPLIT_ALIASES)


def read_class_folders(
    root: str, class_folders: dict[str, list[tuple[str, str]]], layout: str, options: SourceOptions
) -> Source:
    """Read the images of class folders.

    Args:
        root: the folder that paths are relative to.
        class_folders: the (folder, class name) pairs of each split.
        layout: value of `Source.layout`.
        options: `classes` applies. By default, the classes are the class folders of all splits in
            sorted order.

    Raises:
        SourceError: a class name is not valid UTF-8, or not in `options.classes`.

    """
    scan = Scan(root)
    counts: list[int] = []
    names: list[str] = []
    split_numbers: list[int] = []
    for number, folders in enumerate(class_folders.values()):
        for folder, name in folders:
            if not is_utf8(name):
                escaped = os.fsencode(folder).decode("utf-8", "backslashreplace")
                raise SourceError(
                    "the name of the class folder is not valid UTF-8",
                    file=escaped,
                    hint="rename it",
                )
            names.append(name)
            split_numbers.append(number)
        counts += scan.add(*(folder for folder, _ in folders))
    classes = options.classes or tuple(sorted(set(names)))
    label_of = {name: label for label, name in enumerate(classes)}
    if unknown := sorted(set(names) - set(classes)):
        raise SourceError(
            f"class folder {unknown[0]!r} is not in --classes ({len(unknown)} in total)",
            file=root,
            hint="add it to the class names",
        )
    return Source(
        root=root,
        layout=layout,
        classes=classes,
        splits=tuple(class_folders),
        path=scan.path,
        label=np.repeat(np.array([label_of[name] for name in names], np.int32), counts),
        split=np.repeat(np.array(split_numbers, np.int8), counts),
        size=scan.size,
        extra=pa.table({}),
        notices=tuple(scan.notices),
        rejected=tuple(scan.rejected),
        scanned=True,
        stamp=scan.stamp,
        folders=frozenset(scan.folders),
    )
