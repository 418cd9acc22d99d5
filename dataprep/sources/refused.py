"""Folders that are recognized and not converted: layouts whose folders are no classes, and files that are not read.

Folders of detection, segmentation and captions would become classes such as ``annotations`` and
``train2017``. Arrays of pixels, and boxes in some formats, are not read. `LAYOUTS`, `ARRAYS` and
`BOXES` describe each by patterns of its paths, with a way to convert it.
"""

from __future__ import annotations

import os
import re
from collections.abc import Container, Iterable, Mapping
from itertools import islice
from typing import NamedTuple, NoReturn

from dataprep import storage
from dataprep.labels.kinds import CAPTION, OTHER_LABEL_COLUMNS
from dataprep.options import SourceOptions
from dataprep.sources.base import LABEL_COLUMN_NAMES, Kind, Names, first_names
from dataprep.sources.paired import CONTENTS
from dataprep.sources.scan import has_images_below, list_folders, option, split_of, suffix_of
from dataprep.sources.tables import columns_of, is_json_table, is_table
from manifests.errors import ManifestError, SourceError
from manifests.files import IMAGE_SUFFIXES, SOURCE_ANNOTATIONS, SOURCE_TABLE, open_file
from manifests.schema import SPLIT_ALIASES
from manifests.store import MANIFEST_NAME, read_manifest

# --- layouts whose folders are no classes ---------------------------------------------------------

_LISTS = (
    "give a list of images with their classes instead (`path label` lines, CSV, JSON Lines or"
    " Parquet), or the folder that contains the class folders"
)


class Layout(NamedTuple):
    """A layout that is recognized and not converted.

    Attributes:
        name: what it is.
        paths: regular expressions of paths, each of which must be there; a folder ends with ``/``.
        hint: what to do instead. ``SRC`` stands for the folder, and ``PATH`` for the first path.
        only: regular expression of the names of all folders; `None` if there may be any.

    """

    name: str
    paths: Names
    hint: str = _LISTS
    only: str | None = None


#: Names of folders of images, and of folders of what belongs to them: neither is a class.
_IMAGES = ["png", "pngs", "leftimg8bit"]
_LABELS = ["ann", "anno", "annos", "segmentationobject", "gtfine", "gtcoarse"]
for _name, _content in CONTENTS.items():
    (_IMAGES if _content == "image" else _LABELS).append(_name)
_IMAGE_FOLDER, _LABEL_FOLDER = (f"({'|'.join(names)})" for names in (_IMAGES, _LABELS))

#: Folders of COCO's images, of the years with images; the statistics and images of img2dataset.
_COCO_IMAGES = r"(train|val|test|unlabeled)20(07|12|14|15|17)"
_STATISTICS = r"\d{5,}_stats\.json"
_LAION = rf"\d{{5,}}/\d{{5,}}({'|'.join(map(re.escape, IMAGE_SUFFIXES))})"
_INDEX_HINT = "make them a dataset in place with `dataprep index`"
_ARROW = "export it: `datasets.load_from_disk(...)[split].to_parquet(f'{split}-00000.parquet')`"

#: Layouts that the names of their folders alone show.
_NAMED = (
    Layout("Cityscapes", ("(leftimg8bit|gtfine|gtcoarse)(_trainvaltest)?/",)),
    Layout(
        "images with masks, boxes or other annotations",
        (f"{_IMAGE_FOLDER}/", f"{_LABEL_FOLDER}/"),
        f"{_LISTS}. If PATH/ contains class folders, give that folder",
    ),
)

#: The boxes of objects in VisDrone's files; a score of 0 marks regions to ignore.
_VISDRONE = (
    "make a table of the boxes: `awk -F, 'BEGIN {split(\"pedestrian people bicycle car van truck"
    ' tricycle awning-tricycle bus motor others", c, " "); print "image,x,y,width,height,label"}'
    ' $5 {n = FILENAME; sub(".*/", "", n); sub("txt$", "jpg", n); print n "," $1 "," $2 "," $3 ","'
    ' $4 "," c[$6]}\' SRC/annotations/*.txt > SRC/boxes.csv`, and set --src SRC/boxes.csv --image-root'
    " SRC/images"
)

#: All such layouts, in the order in which they are looked for.
LAYOUTS = (
    Layout("COCO annotations", (r"annotations/(?!panoptic_).*\.json",)),
    Layout(
        "COCO's panoptic annotations",
        (r"annotations/panoptic_.*\.json",),
        "add instances_*.json to convert boxes; for masks, write the class of each pixel into gray"
        " PNGs, and put them into masks/ beside images/",
    ),
    Layout(
        "images of COCO",
        (f"{_COCO_IMAGES}/",),
        "put COCO's annotations into annotations/ beside it, or set --label-type none to convert"
        " the images alone",
        only=_COCO_IMAGES,
    ),
    Layout("Pascal VOC", ("jpegimages/", "(annotations|imagesets|segmentationclass)/")),
    Layout("Pascal VOC", (r"VOC(\d{4}|devkit)/(JPEGImages|VOC2007|VOC2012)/",)),
    Layout("ADE20K", ("ADE(ChallengeData|20K).*/",)),
    Layout("ADE20K", ("images/", "annotations/(training|validation)/")),
    # YOLO has a text file for each image, perhaps in folders of splits.
    Layout("VisDrone", ("images/", r"annotations/\d+_\d+_d_\d+\.txt"), _VISDRONE),
    Layout("VisDrone", (r"VisDrone.*-DET-.*/",), "give one of the splits: --src SRC/PATH"),
    Layout("YOLO boxes", ("images/", r"labels/.*\.txt")),
    Layout("YOLO boxes", ("images/", r"labels/.*/.*\.txt")),
    Layout(
        "WIDER FACE",
        ("wider_face_split/",),
        "give WIDER_train/images for the classes of events; write boxes into a table",
    ),
    Layout(
        "Stanford Online Products",
        (r"Ebay_train\.txt",),
        "make a table of each list: `tr ' ' , < SRC/Ebay_train.txt > SRC/train.csv`; and set --src"
        " SRC/train.csv --label-column class_id",
    ),
    # The validation images of Tiny ImageNet are in one folder, with their labels in a file.
    Layout(
        "the flat val/ of Tiny ImageNet",
        (r".*_annotations\.txt", "images/"),
        "give the folder above it, which has train/ and wnids.txt, too",
        only="images",
    ),
    Layout("the shards of img2dataset (LAION)", (_STATISTICS, r".*\.(tar|tfrecord)"), _INDEX_HINT),
    Layout("the shards of img2dataset (LAION)", (_STATISTICS,), _INDEX_HINT, only=""),
    Layout("the files of img2dataset (LAION)", (_LAION, r"\d{5,}/\d{5,}\.txt")),
    Layout("the files of img2dataset (LAION)", (_LAION, r"\d{5,}/\d{5,}\.json", _STATISTICS)),
    Layout("a dataset that Hugging Face `save_to_disk` wrote", (r"dataset_dict\.json",), _ARROW),
    Layout(
        "a dataset that Hugging Face `save_to_disk` wrote",
        (r"state\.json", r"dataset_info\.json"),
        _ARROW,
    ),
    Layout(
        "shards without a manifest",
        (r".*\.(tar|tfrecords?)",),
        "run `dataprep index` on the folder; then it is a prepared dataset, and can be a source; if"
        " the archives have class folders, give each of them as a --src",
        only="",
    ),
    *_NAMED,
    Layout(
        "one folder of images",
        (f"{_IMAGE_FOLDER}/",),
        "give SRC/PATH if it contains class folders, or a table of its images as --src, with"
        f" --image-root SRC/PATH. Otherwise, {_LISTS}",
        only=_IMAGE_FOLDER,
    ),
)

#: Entries of a folder, and folders of one name, to look at.
_MAX_LISTED, _MAX_FOLDERS = 2000, 10

#: Bytes of a file in which names of images are looked for.
_MAX_READ = 1 << 24


def refuse_other_layouts(src: str, folders: Names) -> None:
    """Check that a folder is not of a layout whose folders are no classes.

    Args:
        src: the folder.
        folders: names of the folders in it. Folders of splits are checked, too.

    Raises:
        SourceError: it is. The message names the layout.

    """
    for place in (src, *(f"{src}/{name}" for name in named_in(folders, SPLIT_ALIASES))):
        for layout in LAYOUTS:
            found = _found(place, layout)
            if not found:
                continue
            if layout.only == "" and storage.is_file(f"{place}/{MANIFEST_NAME}"):
                # The dataset is damaged if it was not recognized as a prepared one.
                try:
                    read_manifest(place)
                except ManifestError as error:
                    raise SourceError(error.message, file=error.file, hint=error.hint) from None
            raise SourceError(
                f"this looks like {layout.name} ({' and '.join(found)}), which is not"
                " converted: its folders are not classes",
                file=place,
                hint=_hint(layout, place, found[0].rstrip("/")),
            )


def _hint(layout: Layout, place: str, path: str) -> str:
    hint = layout.hint.replace("PATH", path).replace("SRC", place)
    tables = with_suffix(files_in(place), ".csv", ".tsv", ".parquet", ".jsonl")
    texts = with_suffix(files_in(place), ".txt")
    tables += [name for name in texts if is_table(os.path.join(place, name))]
    documents = with_suffix(files_in(place), ".json")
    tables += [name for name in documents if is_json_table(os.path.join(place, name))]
    tables.sort(key=lambda name: "train" not in name.lower())
    if layout.only == _IMAGE_FOLDER and tables:
        hint = (
            f"give the table if it has the labels: {table_command(place, tables[0], path)}; {hint}"
        )
    return hint


def table_command(src: str, table: str, folder: str) -> str:
    """Return the options that read a table beside a folder of images, as its paths and columns need them."""
    file = os.path.join(src, table)
    command = option("src", file)
    paths = paths_in(file)[:1]
    if not (paths and storage.is_file(os.path.join(os.path.dirname(file), paths[0]))):
        command += f" {option('image-root', src, folder)}"
    return f"{command} {label_option(columns_of(file) if is_table(file) else ())}".rstrip()


def label_option(columns: Names) -> str:
    """Return the option that finds the labels in columns of a table; empty if none is needed."""
    # A table without a header begins with the path of an image.
    if not columns or with_suffix(columns, *IMAGE_SUFFIXES):
        return ""
    if not {*LABEL_COLUMN_NAMES, *OTHER_LABEL_COLUMNS}.isdisjoint(columns):
        return ""
    if {*CAPTION.column_names}.isdisjoint(columns):
        return f"--label-column with the column of the labels ({first_names(columns)})"
    return "--label-type caption"


def paths_in(table: str) -> list[str]:
    """Return the names of images at the beginning of a text file."""
    return with_suffix(first_words(table), *IMAGE_SUFFIXES)


def first_words(table: str) -> list[str]:
    """Return the words at the beginning of a text file."""
    with open_file(table, SOURCE_TABLE) as file:
        return re.split(r"[\s,;\"']+", file.read(1 << 12).decode("utf-8", "replace").strip())


def has_named_layout(src: str) -> bool:
    """Return whether the names of folders show images with masks or other annotations."""
    return any(_found(src, layout) for layout in _NAMED)


def _found(place: str, layout: Layout) -> list[str]:
    """Return the paths that show that a folder is of a layout; empty if it is not."""
    if layout.only is not None:
        for name in list_folders(place):
            if not re.fullmatch(layout.only, name, re.IGNORECASE):
                return []
    found = [_find(place, path) for path in layout.paths]
    return found if all(found) else []


def _find(place: str, pattern: str) -> str:
    """Return the first path in a folder that matches a pattern, name by name; empty without one."""
    first, slash, below = pattern.partition("/")
    looked = 0
    for name in list_folders(place) if slash else files_in(place):
        if re.fullmatch(first, name, re.IGNORECASE) and looked < _MAX_FOLDERS:
            if not below:
                return f"{name}{slash}"
            looked += 1
            if inside := _find(f"{place}/{name}", below):
                return f"{name}/{inside}"
    return ""


def images_and_labels(folders: Names) -> tuple[list[str], list[str]]:
    """Return the folders with names of folders of images, and with names of masks or other annotations."""
    return named_in(folders, _IMAGES), named_in(folders, _LABELS)


def named_in(folders: Names, names: Container[str]) -> list[str]:
    """Return the folders with one of these names, in lower case."""
    return [name for name in folders if name.lower() in names]


def files_in(*parts: str) -> list[str]:
    """Return the names of some files in a folder; empty if it is not a folder."""
    try:
        with storage.scan_folder(os.path.join(*parts)) as entries:
            return sorted(entry.name for entry in islice(entries, _MAX_LISTED))
    except OSError:
        return []


def with_suffix(names: Iterable[str], *suffixes: str) -> list[str]:
    """Return the names of files with one of these extensions, in lower case."""
    return [name for name in names if os.path.splitext(name)[1].lower() in suffixes]


# --- files of labels beside the images ------------------------------------------------------------

#: Members of JSON files with boxes, classes or captions of an image.
_ANNOTATIONS = re.compile(rb'"(shapes|objects|annotations|bbox|boxes|caption|labels?)"\s*:')


def beside_images(names: Iterable[str], *suffixes: str) -> list[str]:
    """Return the files with one of these extensions that are called like an image."""
    stems = {os.path.splitext(name)[0] for name in with_suffix(names, *IMAGE_SUFFIXES)}
    return [name for name in with_suffix(names, *suffixes) if os.path.splitext(name)[0] in stems]


def refuse_annotations(src: str, folders: Iterable[str]) -> None:
    """Refuse class folders with a file of boxes, classes or captions beside an image, with its name.

    Raises:
        SourceError: there is one.

    """
    for folder in folders:
        for name in beside_images(files_in(src, folder), ".json", ".xml", ".txt"):
            file = os.path.join(src, folder, name)
            if name.endswith(".json"):
                with open_file(file, SOURCE_TABLE) as opened:
                    if not _ANNOTATIONS.search(opened.read(1 << 12)):
                        break  # metadata
            raise SourceError(
                "the images have files of annotations beside them, which are not read in class"
                " folders",
                file=file,
                hint=(
                    "set --class-folders outer if the folders are the classes, and the other files"
                    " may be left out; or write the labels into a table"
                ),
            )


# --- files that are not read: arrays of pixels, and boxes in other formats ------------------------

#: What these files are, and the files that show it.
ARRAYS = {
    "CIFAR for Python": r"data_batch_\d+|batches\.meta|file\.txt~",
    "CIFAR in binary files": r"data_batch_\d+\.bin|fine_label_names\.txt",
    "MNIST": r".*-idx[13]-ubyte(\.gz)?",
    "SVHN": r"(train|test|extra)_32x32\.mat",
    "STL-10": r"(train|test|unlabeled)_[Xy]\.bin",
    "ImageNet in 64x64 pixels and less": r"train_data_batch_\d+|val_data",
    "NumPy, HDF5 or pickled arrays": r".*\.(np[yz]|h5|hdf5|mat|pkl|pickle|pth?)(\.gz)?",
}

ARRAYS_HINT = (
    "write the images into class folders, and give that folder: docs/sources.md has the lines of"
    " Python under Arrays of pixels"
)

#: Exports of tools: the members of their rows, old and new, and what to do instead.
_EXPORTS = {
    "an export of Labelbox": (
        rb'"(DataRow ID|data_row)"\s*:',
        "write a table from it, with a row for each box: image,xmin,ymin,xmax,ymax,label; or with a"
        " row for each image: image,label",
    ),
    "an export of Label Studio": (
        rb'"(annotations|completions)"\s*:\s*\[\s*\{[^}]*"result"\s*:',
        "export the project again: as COCO or YOLO for boxes, as CSV for classes",
    ),
}

#: Files with boxes beside the images, and with which tools they are made.
BOXES = {
    "boxes in a table of Roboflow": r"_annotations\.(csv|txt)",
    "boxes in Create ML's format": r"_annotations\.createml\.json",
    "boxes of KITTI": r"label_2",
    "rotated boxes of DOTA": r"labelTxt.*",
    "boxes of CVAT, not exported as VOC or COCO": r"annotations\.xml",
    "boxes in VGG Image Annotator's format": r"via_(region_data|export_json|project).*\.(json|csv)",
}

_BOXES_HINT = "export them as COCO JSON, Pascal VOC or YOLO; a CSV can be given as --src itself"

#: Suffixes of files beside all images: what they are, and what to do.
_BESIDE = {
    ".txt": (
        "a text for each image",
        "write metadata.jsonl beside the images, with a line"
        ' {"file_name": "1.jpg", "text": "a dog"} for each of them',
    ),
    ".json": ("a JSON file for each image, as LabelMe writes", _BOXES_HINT),
}


def _other_files(src: str, folders: Names) -> list[str]:
    """Return the files in a folder, and in its first folders, that are no images."""
    # MNIST/raw/ of torchvision is one level deeper.
    places = [src]
    for name in folders[:_MAX_FOLDERS]:
        places += [f"{src}/{name}", f"{src}/{name}/raw"]
    others = []
    for place in places:
        for name in files_in(place):
            if suffix_of(name) not in IMAGE_SUFFIXES:
                others.append(os.path.join(place, name))
    return sorted(others)


def _find_export(src: str, folders: Names, _: SourceOptions) -> Layout | None:
    """Return an export of a tool: a file, or one of the first JSON files in a folder."""
    paths = _other_files(src, folders) if storage.is_folder(src) else [src]
    for path in with_suffix(paths, ".json", ".jsonl", ".ndjson")[:_MAX_FOLDERS]:
        with open_file(path, SOURCE_ANNOTATIONS) as file:
            start = file.read(1 << 12)
        for name, (members, hint) in _EXPORTS.items():
            is_beside = os.path.dirname(path) == src
            if re.search(members, start) and not (is_beside and _is_stray(path, folders)):
                return Layout(name, (path,), hint)
    return None


def find_refused(src: str, folders: Names, _: SourceOptions) -> Layout | None:
    """Return which files of a folder are arrays, without images beside them, or boxes in other formats."""
    others = _other_files(src, folders)
    found = _first_match(others, BOXES)
    # Evidence decides beside class folders: a file of boxes can be of other images.
    if found and not _is_stray(found[1][0], folders):
        return Layout(*found, _BOXES_HINT)
    if found := _first_match(others, ARRAYS):
        # Arrays beside images are something else.
        return None if has_images_below(src, [""]) else Layout(*found, ARRAYS_HINT)
    # Files beside images in class folders may be anything.
    for suffix, (what, hint) in _BESIDE.items():
        for name in [] if folders else beside_images(files_in(src), suffix):
            return Layout(what, (os.path.join(src, name),), hint)
    return None


def _is_stray(path: str, folders: Names) -> bool:
    """Return whether a file beside class folders has the name of no image in its first folders."""
    if not folders or any(split_of(name) for name in folders):
        return False
    folder = os.path.dirname(path)
    with open_file(path, SOURCE_ANNOTATIONS) as file:
        text = file.read(_MAX_READ)
    for place in (folder, *(f"{folder}/{name}" for name in folders[:_MAX_FOLDERS])):
        images = [name for name in files_in(place) if suffix_of(name) in IMAGE_SUFFIXES]
        if any(os.fsencode(name) in text for name in images[:_MAX_FOLDERS]):
            return False
    return True


def stray_notices(src: str, folders: Names) -> list[str]:
    """Report files of boxes that are beside class folders, and of other images."""
    paths = [os.path.join(src, name) for name in files_in(src)]
    found = _first_match(paths, BOXES)
    if not found or not _is_stray(found[1][0], folders):
        return []
    what, (path, *_) = found
    return [f"{os.path.basename(path)} has {what}, of other images; it is not read"]


def _first_match(paths: Names, patterns: Mapping[str, str]) -> tuple[str, Names] | None:
    """Return what the first pattern is that the name of a file matches, and the file."""
    for what, pattern in patterns.items():
        for path in paths:
            if re.fullmatch(pattern, os.path.basename(path)):
                return what, (path,)
    return None


def refuse(_: str, found: Layout, __: SourceOptions) -> NoReturn:
    """Refuse files that are not converted.

    Raises:
        SourceError: always.

    """
    raise SourceError(
        f"this looks like {found.name}, which is not converted",
        file=found.paths[0],
        hint=found.hint,
    )


EXPORT = Kind("an export of a tool", _find_export, refuse)

KINDS = (
    EXPORT,
    Kind("a folder of files that are not converted", find_refused, refuse),
)
