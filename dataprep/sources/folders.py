"""Folders of images: which folders are the classes, which are the splits, and folders without labels."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from itertools import pairwise, takewhile
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dataprep import storage
from dataprep.labels.columns import named_classes
from dataprep.options import SourceOptions
from dataprep.sources.base import (
    Names,
    Source,
    first_names,
    no_images,
    numbered,
    positions,
)
from dataprep.sources.refused import (
    files_in,
    first_words,
    images_and_labels,
    named_in,
    paths_in,
    refuse_annotations,
    refuse_other_layouts,
    table_command,
    with_suffix,
)
from dataprep.sources.scan import (
    MAX_FOLDER_NOTICES,
    Scan,
    has_folders,
    has_images_below,
    hidden_notices,
    list_folders,
    list_images,
    look_into,
    map_splits,
    option,
    scan_splits,
    skipped_notices,
    split_of,
    stray_notices,
    suffix_of,
)
from manifests.errors import SourceError
from manifests.files import mounted_at
from manifests.json_members import is_unicode
from manifests.process.text import agree, plural
from manifests.schema import SPLIT_ALIASES, split_order

# --- class folders: CLASS/IMAGE, or SPLIT/CLASS/IMAGE ---------------------------------------------


#: What `Source.layout` begins with.
CLASS_FOLDERS = "ImageFolder"


def read_image_folders(src: str, _: Any, options: SourceOptions) -> Source:
    """Read class folders, or class folders of each split if the folders of `src` are splits.

    Raises:
        SourceError: the folder is of another layout, there are no class folders, it is not clear
            which folders are the classes, or the name of a class is not valid.

    """
    folders = list_folders(src)
    refuse_other_layouts(src, folders)
    splits = find_split_folders(src, folders, options)
    notices = _split_notices(splits)
    found = _find_classes(src, splits or {"train": ""}, options)
    notices += _notices_beside(src, [*{*folders} - {*splits.values()}] if splits else [], found)
    if options.class_folders is None:
        # The first class folder of each split shows what is beside the images.
        refuse_annotations(src, [path for each in found.values() for path in each.paths[:1]])
    layout, class_folders = CLASS_FOLDERS, {}
    for split, classes in found.items():
        if classes.paths:
            class_folders[split] = classes.paths
        else:
            # Only test may have no labels.
            notices.append(f"skipped {splits[split]}/: it has no class folders, so no labels")
    if splits:
        layout += f" with {' and '.join(class_folders)}"
    source = read_class_folders(src, class_folders, layout, options)
    if not (options.class_folders or options.classes):
        _refuse_copies(source)
        _refuse_masks(source)
        _refuse_splits(source)
    _refuse_hashed(source, options)
    # Images and hidden folders beside the class folders, and beside the folders of splits.
    above = [""]
    for split in class_folders:
        above.append(found[split].place)
        notices += found[split].notices
    above, stray = [*dict.fromkeys(above)], []
    for folder in above:
        stray += list_images(src, folder)
    tables = []
    for folder in above:
        tables += [os.path.join(folder, name) for name in _tables(files_in(src, folder))]
    no_classes = [name for name in source.classes if _NO_CLASS.search(name)]
    if tables or no_classes or any(each.notices for each in found.values()):
        refuse_one_class(src, source, options, tables)
    notices += _copy_notices(source.path)
    notices += table_notices(src, [*splits.values()] or source.classes)
    notices += stray_notices(stray, "outside of class folders")
    notices += hidden_notices(src, above)
    return replace(source, notices=(*notices, *source.notices))


def _notices_beside(src: str, folders: Names, found: Mapping[str, _Classes]) -> Iterator[str]:
    """Report folders beside the splits, which are not read.

    Raises:
        SourceError: one has class folders with names of the splits' class folders.

    """
    paths = [path for classes in found.values() for path in classes.paths]
    names = {*map(os.path.basename, paths)}
    for name in sorted(folders):
        same = sorted({*list_folders(os.path.join(src, name))} & names)
        if same:
            raise SourceError(
                f"{name}/ has class folders as the splits have, such as"
                f" {same[0]}/, but its name is not train, val or test",
                file=src,
                hint=(
                    "rename it to the name of a split, or move it away; to read it alone, set"
                    f" {option('src', src, name)}"
                ),
            )
        yield f"skipped {name}/: it is not train, val or test"


#: Archives beside class folders, which may have other classes.
_ARCHIVES = (".zip", ".tar", ".gz", ".tgz", ".7z", ".rar", ".zst", ".xz", ".bz2")

#: Files beside class folders that may have other labels, and the names of files that do not.
_TABLES = (".csv", ".tsv", ".txt", ".json", ".jsonl", ".ndjson", ".parquet", ".xml", ".mat")
_TEXTS = re.compile(
    r"(read.?me|licen[cs]e|requirements|notes?|about|url|class(es)?|labels?\.(txt|json)"
    r"|sample.?submission)\b",
    re.I,
)


def _tables(files: Iterable[str]) -> list[str]:
    """Return the files in a folder that may have labels of the images below it."""
    found = [name for name in with_suffix(files, *_TABLES) if not _TEXTS.match(name)]
    return sorted(found, key=lambda name: _TABLES.index(suffix_of(name)))


def table_notices(src: str, folders: Names) -> Iterator[str]:
    """Report archives beside these folders, and text files that name images in them.

    They may have other classes, labels or splits.
    """
    files = files_in(src)
    archives = with_suffix(files, *_ARCHIVES)
    if archives:
        yield f"archives beside the folders are not read: {first_names(archives, 3)}"
    tables = with_suffix(_tables(files), ".csv", ".tsv", ".txt")
    for name in tables[:MAX_FOLDER_NOTICES]:
        file = os.path.join(src, name)
        images, give = paths_in(file), "if it has other labels or splits, give this file as --src"
        if not any(part in folders for image in images for part in image.split("/")[:-1]):
            continue
        split = split_of(os.path.splitext(name)[0])
        # The last word may be cut off.
        has_labels = len(first_words(file)) > len(images) + 1
        if split and not has_labels and not mounted_at(src):
            listed = shlex.quote(os.path.join(src, f"{split}_list.txt"))
            give = (
                'to read it as a split, write the class behind each path: awk -F/ \'{print $0 "\\t"'
                f" $(NF-1)}}' {shlex.quote(file)} > {listed}"
            )
        yield f"{name} names images, too, and is not read; {give}"


#: Names of folders that are no class if there is no other: photos, flickr8k_images, UTKFace.
_NO_CLASS = re.compile(
    r"(?i)(^|[-_ ])(images?|imgs?|photos?|pictures?|pics|jpe?gs?|pngs?|frames|files|folder|samples"
    r"|data|dataset|archive|downloads?|uploads|raw|all|camera|unlabell?ed)$|(?-i:[A-Z]{2}.*[a-z])"
)


def refuse_one_class(src: str, source: Source, options: SourceOptions, tables: Names = ()) -> None:
    """Refuse class folders of which one is left after others were skipped, or a folder was entered.

    `tables` are files beside it that may have the labels.

    Raises:
        SourceError: there is one class, and no option says that this is right.

    """
    if len(source.classes) == 1 and not (options.classes or options.class_folders):
        give = "give the folder that contains all class folders"
        if tables:
            # The folder of the class can be in one that was entered.
            folder = "".join(source.path[0].as_py().partition(source.classes[0])[:2])
            command = table_command(src, tables[0], folder)
            give += f", or the table with the labels: {command}"
        raise SourceError(
            f"{source.classes[0]} would be the only class, because only this folder"
            " contains images",
            file=src,
            hint=(
                f"{give}; set --label-type none if the images have no labels, or --class-folders"
                " outer for one class"
            ),
        )


#: Names of folders that people and programs copy images to.
_COPIES = (
    r"(?i)([^/]*[-_ .])?(thumb(nail)?s|previews?|backups?|bak|cache|temp|tmp|trash|old|copy|copies"
    r"|originals?|duplicates?)([-_ .][^/]*)?"
)

#: Names of folders of what belongs to images: masks, and images of another resolution.
_COUNTERPARTS = r"(?i)(ground[-_ ]?truths?|gts?|segmentations?|[hl]r)"

#: Share of the images of such a folder whose names are in other folders, too.
_COPIED = 0.9


def _refuse_copies(source: Source) -> None:
    """Refuse folders whose names and images look like copies of the images in other folders, or belong to them.

    Raises:
        SourceError: there is one, and it is no class of two, or belongs to the images of the other.

    """
    is_found = pc.match_substring_regex(source.path, f"(^|/)({_COPIES}|{_COUNTERPARTS})/[^/]*$")
    if not pc.any(is_found).as_py():
        return
    stems: dict[str, set[str]] = {}
    for path in source.path.to_pylist():
        folder, name = os.path.split(path)
        stems.setdefault(folder, set()).add(os.path.splitext(name)[0])
    for folder, own in stems.items():
        name = os.path.basename(folder)
        is_class = name in source.classes
        is_copy = re.fullmatch(_COPIES, name) and not (is_class and len(source.classes) <= 2)
        if not (is_copy or re.fullmatch(_COUNTERPARTS, name)):
            continue
        others = set().union(*(stems[other] for other in stems if other != folder))
        copied, what = own & others, "copies"
        if not is_copy:
            what = "masks, or of the same images"
        if len(copied) >= _COPIED * len(own):
            raise SourceError(
                f"{folder}/ looks like a folder of {what}: other folders have"
                f" {len(copied):,} of its {plural(len(own), 'name')}, too",
                file=source.root,
                hint=(
                    "move the folder away; put images with masks into images/ and masks/; or set"
                    " --class-folders outer if its images belong to the classes"
                ),
            )


#: Endings of the names of masks beside an image without the ending.
_MASK = r"(?i)[-_](mask|seg|segmentation|gt|ground_?truth|annotation|label|trimap|depth)s?([-_]?\d+)?(\.\w+)$"


def _refuse_masks(source: Source) -> None:
    """Refuse images that are called like the masks of images beside them.

    Raises:
        SourceError: there are some.

    """
    named = source.path.filter(pc.match_substring_regex(source.path, _MASK))
    if not len(named):
        return
    stems = pc.replace_substring_regex(source.path, r"\.\w+$", "")
    masks = named.filter(pc.is_in(pc.replace_substring_regex(named, _MASK, ""), stems))
    if len(masks):
        raise SourceError(
            f"{plural(len(masks), 'image')} {agree(len(masks), 'is', 'are')} named like masks of the"
            f" images beside them, such as {masks[0]}",
            file=source.root,
            hint="move them away; put images with masks into images/ and masks/; or set"
            " --class-folders outer if they are images of the classes",
        )


def _refuse_splits(source: Source) -> None:
    """Refuse classes called like two splits: train/ and val/ beside folders such as trainannot/.

    Raises:
        SourceError: there are two.

    """
    names = [name for name in source.classes if name.lower() in SPLIT_ALIASES]
    if len({SPLIT_ALIASES[name.lower()] for name in names}) > 1:
        raise SourceError(
            f"{first_names(names)} would be classes, but are called like splits",
            file=source.root,
            hint="sort their images into class folders, such as train/cat/; give a table with the"
            " labels; put images with masks into images/train/ and masks/train/; or set"
            " --class-folders outer if the folders are the classes",
        )


#: Endings of the names of smaller copies, as of WordPress, beside an image without the ending.
_SMALLER = r"(?i)([-_](thumb(nail)?|small|medium|large|preview|scaled|\d+x\d+)|@\dx)(\.\w+)$"


def _copy_notices(paths: pa.Array) -> Iterator[str]:
    """Report images that are called like smaller copies of images beside them."""
    named = paths.filter(pc.match_substring_regex(paths, _SMALLER))
    if not len(named):  # as almost always: the names of all images need not be looked up
        return
    stems = pc.replace_substring_regex(paths, r"\.\w+$", "")
    copies = named.filter(pc.is_in(pc.replace_substring_regex(named, _SMALLER, ""), stems))
    if len(copies):
        yield (
            f"{plural(len(copies), 'image')} named like smaller copies of other images are converted,"
            f" too, such as {copies[0]}; move them away, or see `dataprep duplicates`"
        )


#: Characters of the names of folders that are the beginning of the names in them, and images to look at.
_HASH_PART, _HASHED = 2, 100


def _refuse_hashed(source: Source, options: SourceOptions) -> None:
    """Refuse folders in folders whose names are the beginning of the names of all images: ``0/a/0a1f.jpg``.

    Raises:
        SourceError: they are.

    """
    paths = source.path.slice(0, _HASHED).to_pylist()
    for path in paths:
        *folders, name = path.split("/")
        parts = [*takewhile(lambda part: len(part) <= _HASH_PART, reversed(folders))][::-1]
        starts = ["".join(parts[at:]) for at in range(len(parts) - 1)]
        if not any(map(name.startswith, starts)):
            return
    if paths and options.class_folders != "outer":
        tables = [option("src", source.root, name) for name in _tables(files_in(source.root))]
        raise SourceError(
            f"the folders are the beginning of the names in them, as in {paths[0]}, and no classes",
            file=source.root,
            hint=(
                f"give a table with the labels: {first_names(tables, 1) or '--src TABLE'}; or set"
                " --label-type none, or --class-folders outer if the outer folders are the classes"
            ),
        )


class _Classes(NamedTuple):
    """The class folders of a split.

    Attributes:
        place: the folder that contains them, relative to the source.
        paths: the class folders, relative to the source.
        notices: messages about other folders.

    """

    place: str
    paths: list[str]
    notices: list[str]


def _find_classes(
    src: str, splits: Mapping[str, str], options: SourceOptions
) -> dict[str, _Classes]:
    """Return the class folders of each split, by the folder of each split.

    Raises:
        SourceError: there are none, or it is not clear which folders are the classes.

    """
    found = {}
    for split in split_order({*splits}):
        classes = _class_folders(src, splits[split], options)
        if not classes.paths and split != "test":
            raise _no_class_folders(src, splits[split], split)
        found[split] = classes
    return found if options.class_folders or options.classes else _without_unknown(found, splits)


def _without_unknown(
    found: Mapping[str, _Classes], splits: Mapping[str, str]
) -> dict[str, _Classes]:
    """Take the only folder of a split for images without labels if no other split has a class of its name.

    Keras needs a folder around images without labels: `test/unknown/1.jpg`.

    Raises:
        SourceError: the images are of another split than test.

    """
    names = {split: {*map(os.path.basename, classes.paths)} for split, classes in found.items()}
    known: dict[str, _Classes] = {}
    for split, classes in found.items():
        known[split] = classes
        others = set().union(*(names[other] for other in names if other != split))
        if len(classes.paths) == 1 and len(others) > 1 and not names[split] & others:
            if split != "test":
                raise SourceError(
                    f"{classes.paths[0]}/ is the only folder of images in"
                    f" {splits[split]}/, and no other split has a class of this name",
                    file=splits[split],
                    hint="sort its images into class folders; set --class-folders outer if it is a class",
                )
            known[split] = classes._replace(paths=[])
    return known


def _no_class_folders(src: str, folder: str, split: str) -> SourceError:
    if folder:
        table = f"--src TABLE {option('image-root', src, folder)}"
        # test.csv beside train.csv has no labels of the training images.
        tables = sorted(_tables(files_in(src)), key=lambda name: split not in name.lower())
        for name in tables[:1]:
            table = table_command(src, name, folder)
        return SourceError(
            "the folder of a split has no class folders",
            file=f"{src}/{folder}",
            hint=(
                f"sort the images into {folder}/CLASS/, or list them in {split}_list.txt as"
                f" `path label`; give a table with the labels: {table}; or set --pattern if the"
                " names have labels"
            ),
        )
    if not has_images_below(src, [""]):
        return no_images(src)
    return SourceError(
        "the folder has no class folders",
        file=src,
        hint=(
            "sort the images into CLASS/IMAGE; or give the labels in a list file (`path"
            " label`), in a CSV, or in the file names with --pattern; or set --label-type none"
        ),
    )


#: Folders to enter that contain nothing but one folder.
MAX_ENTERED = 8


def _class_folders(src: str, place: str, options: SourceOptions, entered: int = 0) -> _Classes:
    """Return the class folders in a folder: the folders that contain images.

    Raises:
        SourceError: folders contain images, and folders beside them contain folders of images; or
            no folder contains images, and several contain folders of images.

    """
    names = list_folders(os.path.join(src, place))
    _refuse_numbered(os.path.join(src, place).rstrip("/"), names, options)
    storage.prefetch_folders(os.path.join(src, place, name) for name in names)
    notices: list[str] = []
    with_images, empty, nested = [], [], []
    for name in names:
        path = os.path.join(place, name)
        content = look_into(os.path.join(src, path))
        if content.has_images:
            with_images.append(path)
        elif has_images_below(os.path.join(src, path), content.folders):
            nested.append(path)
        elif content.folders or content.has_files:
            notices.append(f"skipped {path}/: it contains no images")
        else:
            empty.append(path)  # a class without images
    if options.class_folders == "inner":
        for path in nested:
            with_images += _folders_with_images(src, path)
        notices += _joined_notices(src, with_images)
        return _Classes(place, sorted(with_images, key=os.path.basename), notices)
    if not nested or options.class_folders == "outer":
        return _Classes(place, sorted(with_images + empty + nested), notices)
    if len(nested) == 1 and not with_images and entered < MAX_ENTERED:
        notices.append(f"read the class folders in {nested[0]}/")
        below = _class_folders(src, nested[0], options, entered + 1)
        return below._replace(notices=notices + below.notices)
    raise _not_clear(src, place, with_images, nested)


def _joined_notices(src: str, paths: Names) -> Iterator[str]:
    """Report folders of the same name, which are one class, as of domains."""
    twins: dict[str, list[str]] = {}
    for path in paths:
        twins.setdefault(os.path.basename(path), []).append(f"{path}/")
    several = [same for same in twins.values() if len(same) > 1]
    if several:
        yield (
            f"--class-folders inner joins folders of the same name: {plural(len(several), 'class')}"
            f" {agree(len(several), 'is', 'are')} in several folders, such as"
            f" {' and '.join(several[0][:3])}; to read one of them alone, set"
            f" {option('src', src, several[0][0].partition('/')[0])}"
        )


def _not_clear(src: str, place: str, with_images: Names, nested: Names) -> SourceError:
    """Return the error for folders that contain folders of images, and the ways to go on."""
    names = [*map(os.path.basename, nested)]
    if place and not with_images and all(map(split_of, names)):
        return SourceError(
            f"the splits {first_names(names, 3)} are below the folder",
            file=src,
            hint=f"set {option('src', src, place)}",
        )
    classes = {*map(os.path.basename, with_images)}
    for path in nested:
        if {*list_folders(os.path.join(src, path))} <= classes:
            return SourceError(
                f"{path}/ has folders of the same names as the class folders beside it,"
                " so it may be a copy of them",
                file=os.path.join(src, place).rstrip("/"),
                hint=(
                    "move it away, or set --class-folders inner if its images belong to the classes,"
                    " too"
                ),
            )
    inside = list_folders(os.path.join(src, nested[0]))
    if inside and all(map(split_of, inside)):
        return SourceError(
            f"the folders of splits are inside of class folders: {nested[0]}/{inside[0]}/",
            file=os.path.join(src, place).rstrip("/"),
            hint=(
                f"move them above, to {inside[0]}/{names[0]}/; or set --class-folders"
                " outer to convert all images without their splits"
            ),
        )
    inner = [f"{path}/" for path in _folders_with_images(src, nested[0])]
    outer = [f"{path}/" for path in nested]
    contain = agree(len(nested), "contains", "contain")
    why = f"{contain} folders of images, and no images"
    if with_images:
        why += f"; beside them, {with_images[0]}/ contains images"
    return SourceError(
        f"it is not clear which folders are the classes: {first_names(outer, 3)} {why}",
        file=os.path.join(src, place).rstrip("/"),
        hint=(
            f"set --class-folders inner if {first_names(inner, 2)} are classes (folders of the same"
            " name are one class), or --class-folders outer if"
            f" {first_names(outer, 2)} are; to read one of them, set"
            f" {option('src', src, nested[0])}"
        ),
    )


def _folders_with_images(src: str, path: str) -> list[str]:
    """Return the innermost folders below a folder that contain images, and the folder itself if it has any.

    Raises:
        SourceError: a folder contains both images and folders.

    """
    found, pending, seen = [], [path], set()
    while pending:
        folder = pending.pop()
        identity = storage.identify(os.path.join(src, folder))
        # Links may lead to a folder above.
        if identity in seen:
            continue
        seen.add(identity)
        if list_images(src, folder):
            found.append(folder)
        for name in list_folders(os.path.join(src, folder)):
            pending.append(os.path.join(folder, name))
    found.sort()
    for outer, inner in pairwise(found):
        if inner.startswith(f"{outer}/"):
            raise SourceError(
                f"{outer}/ contains images, and {inner}/ in it does, too",
                file=src,
                hint="move the images to one level, or set --class-folders outer",
            )
    return found


# --- folders of splits ----------------------------------------------------------------------------


#: Folders that are numbered parts of a dataset, perhaps after its name; days; folders of cameras.
_NUMBERED = re.compile(
    r"(?P<dataset>.*[-_ .])?(fold|split|part|batch|set|chunk|shard|images?|imgs?|photos?|pictures?"
    r"|data|dataset|archive|subset|volume|disk|version|v|photos from)[-_ .]*\d+"
    r"|(19|20)\d\d[-_. ]?[01]\d[-_. ]?[0-3]\d|(19|20)\d\d[-_. ][01]\d"
    r"|\d{3}(apple|canon|eos.d|gopro|media|msdcf|nikon|olymp|_pana|_fuji|photo)",
    re.IGNORECASE,
)


def find_split_folders(src: str, folders: Names, options: SourceOptions) -> dict[str, str]:
    """Return the folder of each split.

    Empty if the folders are classes, as with `train` next to `car` and `bus`.

    Raises:
        SourceError: two folders are the same split.

    """
    exact = named_in(folders, SPLIT_ALIASES)
    named = []
    for name in folders:
        # A folder with such a word in its name may have other files.
        if split_of(name) and (name in exact or has_images_below(src, [name])):
            named.append(name)
    if not exact:
        return map_splits(src, named, split_of) if _are_splits(src, folders, named, options) else {}
    if len(named) < len(folders) and not any(has_folders(f"{src}/{name}") for name in exact):
        return {}
    # Other names of splits count beside the usual names.
    splits = map_splits(src, exact)
    others = [name for name in named if split_of(name) not in splits]
    return splits | map_splits(src, others, split_of)


def _are_splits(src: str, folders: Names, named: Names, options: SourceOptions) -> bool:
    """Return whether folders whose names contain names of splits are splits.

    A class may be called `steam_train`. Folders of splits contain class folders, or there are no
    other classes, or there are two splits.
    """
    have_folders, has_others = set(), False
    for name in folders if named else ():
        content = look_into(f"{src}/{name}")
        if name not in named:
            has_others |= content.has_images
        elif content.folders:
            have_folders.add(split_of(name))
    if not have_folders and options.class_folders:
        return False
    found = have_folders or {*map(split_of, named)}
    return len(found) >= (2 if has_others else 1)


def _refuse_numbered(src: str, folders: Names, options: SourceOptions) -> None:
    datasets = set()
    for name in folders if len(folders) > 1 else ():
        match = _NUMBERED.fullmatch(name)
        datasets.add(match["dataset"] if match else f"{name} is another folder")
    # The parts of one dataset have the same name before the number.
    if len(datasets) == 1 and match and options.class_folders is None:
        sources = " ".join(option("src", src, name) for name in folders[:2])
        # A table may name images in all parts.
        for name in _tables(files_in(src))[:1]:
            sources += f", or the table with the labels, {option('src', src, name)}"
        raise SourceError(
            f"the folders look like numbered parts of one dataset: {first_names(folders, 3)}",
            file=src,
            hint=(
                f"give the parts to convert, {sources}; or set --class-folders outer if the folders"
                " are the classes"
            ),
        )


def _split_notices(splits: Mapping[str, str]) -> list[str]:
    """Return a message if folders are splits because of a part of their names."""
    read = []
    for split, folder in splits.items():
        if folder.lower() not in SPLIT_ALIASES:
            read.append(f"{folder}/ as {split}")
    return [f"read {' and '.join(read)}"] if read else []


def read_class_folders(
    root: str, class_folders: Mapping[str, Names], layout: str, options: SourceOptions
) -> Source:
    """Read the images of class folders.

    Args:
        root: the folder that paths are relative to.
        class_folders: the class folders of each split.
        layout: value of `Source.layout`.
        options: `classes` applies. By default, the classes are the class folders of all splits in
            sorted order.

    Raises:
        SourceError: a class name is not valid UTF-8, or not in `options.classes`.

    """
    scan = Scan(root, label_folders)  # as in COVID/images/ and COVID/masks/
    names, images, of_splits = [], [], []
    for folders in class_folders.values():
        for folder in folders:
            if not is_unicode(folder):
                raise SourceError(
                    "the name of the class folder is not valid UTF-8",
                    file=os.fsencode(folder).decode("utf-8", "backslashreplace"),
                    hint="rename it",
                )
            names.append(os.path.basename(folder))
        # The number of images of each class folder.
        counts = scan.add(*folders)
        images += counts
        of_splits.append(sum(counts))
    classes = named_classes(options.classes, names)
    unknown = sorted({*names} - {*classes})
    if unknown:
        raise SourceError(
            f"class folder {unknown[0]!r} is not in --classes ({len(unknown)} in total)",
            file=root,
            hint="add it to the class names",
        )
    labels = np.array([*map(positions(classes).__getitem__, names)], np.int32)
    source = scan.source(
        layout, [*class_folders], label=np.repeat(labels, images), split=numbered(of_splits)
    )
    return replace(source, classes=classes)


# --- images without labels ------------------------------------------------------------------------


def read_unlabelled(src: str, _: Any, __: SourceOptions) -> Source:
    """Read all images in a folder and its subfolders. No image has a label.

    If all folders in it have the names of splits, and no image is next to them, each is a split.
    Folders of masks, depth maps or annotations, beside one of images, are left out; then that one
    may contain the splits.

    Raises:
        SourceError: two folders are the same split.

    """
    folders = list_folders(src)
    above, splits = _find_splits(src, folders)
    source = scan_splits(src, splits, "folder of images", label_folders)
    notices = skipped_notices(label_folders(folders)) if above else []
    notices += hidden_notices(src, {"", above})
    return replace(source, notices=(*notices, *source.notices), label_type="none")


def label_folders(folders: Names) -> dict[str, str]:
    """Return which of these folders have masks, depth maps or annotations of the images in another one, and why."""
    images, labels = images_and_labels(folders)
    if not images:
        return {}
    return dict.fromkeys(labels, f"which belongs to the images in {images[0]}/")


def _find_splits(src: str, folders: Names) -> tuple[str, dict[str, str]]:
    """Return the folder that contains the folders of splits, and the folder of each split, relative to `src`."""
    # A folder of images beside folders of their labels only may contain the splits.
    images, labels = images_and_labels(folders)
    above = ""
    if labels and len(images) == 1 and len(labels) == len(folders) - 1:
        above, folders = images[0], list_folders(f"{src}/{images[0]}")
    is_other = len(named_in(folders, SPLIT_ALIASES)) < len(folders)
    if not folders or is_other or any(list_images(src, place) for place in {"", above}):
        return "", {"train": ""}
    splits = map_splits(os.path.join(src, above), folders)
    return above, {split: os.path.join(above, name) for split, name in splits.items()}
