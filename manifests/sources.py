"""Datasets before preparation: what lies in a folder, a list or a table, as columns of samples.

No image is opened here: names and sizes come from `os.scandir` and `os.stat`, labels from folders, lists
and tables. A million samples are a few arrays, not a million objects. It must never know what a shard is.
"""

from __future__ import annotations

import csv
import os
import stat
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from manifests.errors import CallError, SourceError, printable
from manifests.schema import SPLIT_ALIASES, TABLE_COLUMNS, split_order

#: Files of other names in an ImageFolder are left out, aloud. What an image really is, its content says.
IMAGE_SUFFIXES = frozenset(
    ".jpg .jpeg .jpe .jfif .png .webp .bmp .dib .tif .tiff .gif .avif .heic .heif .jp2 .j2k .jxl .ppm .pgm".split()
)
TABLE_SUFFIXES = (".csv", ".tsv", ".parquet")
PATH_COLUMNS = ("path", "image", "file", "filename", "filepath", "image_path")
LABEL_COLUMNS = ("label", "class", "target")
#: A larger label is taken for a mistake: the manifest names every class up to it.
MAX_LABEL = 10_000_000

#: A size that `Source.size` has for what could not be looked at.
UNREADABLE = -1


@dataclass(frozen=True)
class SourceOptions:
    """How to read a source where it does not say so itself; names of columns, and paths."""

    image_root: str | None = None
    path_column: str | None = None
    label_column: str | None = None
    split_column: str | None = None
    classes: tuple[str, ...] | None = None


@dataclass(frozen=True)
class Source:
    """Samples to prepare, as columns of one length n, in the order of their names (or of the list's lines).

    Attributes:
        root: folder that paths are relative to.
        layout: in words, how the source was understood.
        classes: names in label order.
        splits: names, in the order that `split` counts them.
        path: Arrow large_string [n], as the source names the image.
        label: int32 [n], 0 to len(classes) - 1.
        split: int8 [n].
        size: int64 [n], bytes of the file, `UNREADABLE` where it cannot be looked at.
        extra: Arrow table of n rows with whatever further columns the source carried.
        notices: what a user should be told, a sentence each.
        rejected: rows for ``rejected.jsonl`` known at the scan.

    """

    root: str
    layout: str
    classes: tuple[str, ...]
    splits: tuple[str, ...]
    path: pa.Array
    label: NDArray[np.int32]
    split: NDArray[np.int8]
    size: NDArray[np.int64]
    extra: pa.Table
    notices: tuple[str, ...] = ()
    rejected: tuple[dict[str, str], ...] = field(default=())

    def __len__(self) -> int:
        return len(self.label)

    @property
    def bytes(self) -> int:
        """Total length of all images that could be looked at."""
        return int(self.size.clip(min=0).sum())


def read_source(src: str, options: SourceOptions | None = None) -> Source:
    """Find out what `src` is, and list its samples without reading an image.

    Raises:
        CallError: there is no such file or folder, or an option does not fit it.
        SourceError: it is no dataset that is known here, or a line, a label or an image in it is wrong.

    """
    options = options or SourceOptions()
    try:
        mode = os.stat(src).st_mode
        source = _read_folder(src, options) if stat.S_ISDIR(mode) else _read_file(src, options)
    except FileNotFoundError as error:
        raise CallError(f"--src {src}: {error.filename or src} does not exist", mend="check the path") from None
    except OSError as error:
        raise SourceError(f"cannot be read ({error.strerror})", file=str(error.filename or src)) from None
    if not len(source):
        raise SourceError("holds no image", file=src, mend="check --src, or --image-root for a list")
    return replace(source, notices=(*source.notices, *_class_notices(source)))


def _read_folder(src: str, options: SourceOptions) -> Source:
    kaggle = _find_kaggle(src)
    if kaggle is not None and not _has_folders(f"{kaggle}/val"):
        return _read_kaggle(kaggle, options)
    src = kaggle or src
    lists = [name for name in ("train_list.txt", "val_list.txt", "test_list.txt") if os.path.isfile(f"{src}/{name}")]
    if lists:
        return _read_lists([os.path.join(src, name) for name in lists], options.image_root or src, options)
    for name in ("image_root", "path_column", "label_column", "split_column"):
        if getattr(options, name) is not None:
            raise CallError(f"--{name.replace('_', '-')} goes with a list or a table, and {src} is a folder")
    folders = sorted(entry.name for entry in os.scandir(src) if entry.is_dir() and not entry.name.startswith("."))
    splits = {SPLIT_ALIASES[name.lower()]: name for name in folders if name.lower() in SPLIT_ALIASES}
    return _read_image_folders(src, splits, folders, options)


def _read_file(src: str, options: SourceOptions) -> Source:
    if src.lower().endswith(TABLE_SUFFIXES):
        return _read_table(src, options)
    return _read_lists([src], options.image_root or os.path.dirname(src) or ".", options)


# --- ImageFolder --------------------------------------------------------------------------------


class _Scan:
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
                elif not _is_text(path):
                    self._reject(path, "bad-name", "the name is not valid UTF-8; rename the file")
                elif entry.is_dir():
                    self._walk(path, [*above, here], found)
                elif (suffix := os.path.splitext(entry.name)[1].lower()) not in IMAGE_SUFFIXES:
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


def _is_text(name: str) -> bool:
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True


def _size_of(entry: os.DirEntry[str]) -> int:
    try:
        return entry.stat().st_size
    except OSError:
        return UNREADABLE


def _read_image_folders(src: str, splits: dict[str, str], folders: Sequence[str], options: SourceOptions) -> Source:
    if not splits:
        if not folders:
            raise SourceError(
                "has no class folders",
                file=src,
                mend="an ImageFolder is CLASS/IMAGE; a list file (`path label`) or a CSV can name labels instead",
            )
        return _labelled_by_folder(src, {"train": [(name, name) for name in folders]}, "ImageFolder", options)
    scans: dict[str, list[tuple[str, str]]] = {}
    notices = [
        f"{name}/ is none of train, val and test and is left out" for name in folders if name not in splits.values()
    ]
    for split in split_order(set(splits)):
        classes = sorted(
            entry.name for entry in os.scandir(f"{src}/{splits[split]}") if entry.is_dir() and entry.name[0] != "."
        )
        if classes:
            scans[split] = [(f"{splits[split]}/{name}", name) for name in classes]
        elif split == "test":
            notices.append("test/ has no class folders, so no labels, and is left out")
        else:
            raise SourceError(
                "has no class folders",
                file=f"{src}/{splits[split]}",
                mend=f"sort the images into {splits[split]}/CLASS/, or give a {split}_list.txt of `path label` beside it",
            )
    source = _labelled_by_folder(src, scans, f"{' and '.join(scans)} ImageFolders", options)
    return replace(source, notices=(*notices, *source.notices))


def _labelled_by_folder(
    root: str, scans: dict[str, list[tuple[str, str]]], layout: str, options: SourceOptions
) -> Source:
    """Scan (folder, class name) pairs of each split; classes are numbered in sorted order over all splits."""
    scan, counts = _Scan(root), []
    names: list[str] = []
    codes: list[int] = []
    for code, folders in enumerate(scans.values()):
        for folder, name in folders:
            if not _is_text(name):
                shown = os.fsencode(folder).decode("utf-8", "backslashreplace")
                raise SourceError("the class folder's name is not valid UTF-8", file=shown, mend="rename it")
            counts.append(scan.add(folder))
            names.append(name)
            codes.append(code)
    classes = options.classes or tuple(sorted(set(names)))
    number = {name: label for label, name in enumerate(classes)}
    if unknown := sorted(set(names) - set(classes)):
        raise SourceError(
            f"the class folder {unknown[0]!r} is not in --classes ({len(unknown)} such)",
            file=root,
            mend="add it",
        )
    return Source(
        root=root,
        layout=layout,
        classes=classes,
        splits=tuple(scans),
        path=_concat(scan.paths),
        label=np.repeat(np.array([number[name] for name in names], np.int32), counts),
        split=np.repeat(np.array(codes, np.int8), counts),
        size=np.concatenate([*scan.sizes, np.empty(0, np.int64)]),
        extra=pa.table({}),
        notices=(*scan.notices, *scan.left_out_notice()),
        rejected=tuple(scan.rejected),
    )


# --- ImageNet as Kaggle packs it ----------------------------------------------------------------


def _has_folders(path: str) -> bool:
    return os.path.isdir(path) and any(entry.is_dir() for entry in os.scandir(path))


def _find_kaggle(src: str) -> str | None:
    """Find the folder CLS-LOC at or below `src`."""
    for folder in (src, os.path.join(src, "Data/CLS-LOC"), os.path.join(src, "ILSVRC/Data/CLS-LOC")):
        if os.path.basename(os.path.abspath(folder)) == "CLS-LOC" and os.path.isdir(f"{folder}/train"):
            return folder
    return None


def _read_kaggle(root: str, options: SourceOptions) -> Source:
    train = sorted(entry.name for entry in os.scandir(f"{root}/train") if entry.is_dir())
    classes = _kaggle_classes(root, train)
    source = _labelled_by_folder(
        root,
        {"train": [(f"train/{name}", name) for name in train]},
        "ImageNet as Kaggle packs it",
        replace(options, classes=options.classes or classes),
    )
    notices = ["test/ has no labels and is left out"] if os.path.isdir(f"{root}/test") else []
    if not os.path.isdir(f"{root}/val"):
        return replace(source, notices=(*source.notices, *notices))
    scan = _Scan(root)
    scan.add("val")
    path = _concat(scan.paths)
    labels = _kaggle_val_labels(root, path, {name: label for label, name in enumerate(source.classes)})
    return replace(
        source,
        splits=("train", "val"),
        path=_concat([source.path, path]),
        label=np.concatenate([source.label, labels]),
        split=np.concatenate([source.split, np.ones(len(labels), np.int8)]),
        size=np.concatenate([source.size, *scan.sizes]),
        notices=(*source.notices, *scan.notices, *scan.left_out_notice(), *notices),
        rejected=(*source.rejected, *scan.rejected),
    )


def _beside(root: str, name: str) -> str | None:
    """Find a file in a folder or in one of the three above it, where Kaggle's archive has it."""
    folder = os.path.abspath(root)
    for _ in range(4):
        if os.path.isfile(os.path.join(folder, name)):
            return os.path.join(folder, name)
        folder = os.path.dirname(folder)
    return None


def _kaggle_classes(root: str, train: Sequence[str]) -> tuple[str, ...]:
    mapping = _beside(root, "LOC_synset_mapping.txt")
    if mapping is None:
        return tuple(train)
    with open(mapping, encoding="utf-8") as lines:
        synsets = sorted({line.split(maxsplit=1)[0] for line in lines if line.strip()})
    if unknown := sorted(set(train) - set(synsets)):
        raise SourceError(f"does not name {unknown[0]!r}, a folder of train/", file=mapping)
    return tuple(synsets)


def _kaggle_val_labels(root: str, path: pa.Array, number: dict[str, int]) -> NDArray[np.int32]:
    solution = _beside(root, "LOC_val_solution.csv")
    if solution is None:
        raise SourceError(
            "is flat, and LOC_val_solution.csv, which has its labels, is not beside it",
            file=f"{root}/val",
            mend="put Kaggle's file beside ILSVRC/, or move val/ away to prepare train/ alone",
        )
    label_of: dict[str, int] = {}
    with open(solution, encoding="utf-8", newline="") as file:
        for line, row in enumerate(csv.reader(file), 1):
            if line == 1 and row[:1] == ["ImageId"]:
                continue
            synset = row[1].split(maxsplit=1)[:1] if len(row) > 1 else []
            if not synset or synset[0] not in number:
                raise SourceError(
                    f"{','.join(row)!r} names no known class",
                    file=solution,
                    line=line,
                    mend="a line is `ImageId,synset x y x y`",
                )
            label_of[row[0]] = number[synset[0]]
    stems = [os.path.splitext(os.path.basename(name))[0] for name in path.to_pylist()]
    if missing := next((stem for stem in stems if stem not in label_of), None):
        raise SourceError(f"has no label for val/{missing}", file=solution)
    if len(label_of) > len(stems):
        gone = sorted(set(label_of) - set(stems))
        raise SourceError(
            f"val/{gone[0]}.JPEG is missing ({len(gone):,} such)", file=solution, mend="unpack val/ again"
        )
    return np.array([label_of[stem] for stem in stems], np.int32)


# --- list files ---------------------------------------------------------------------------------


def _read_lists(files: Sequence[str], root: str, options: SourceOptions) -> Source:
    columns = [_parse_list(file) for file in files]
    splits = [_split_of_list(file) for file in files]
    path = _concat([paths for paths, _, _ in columns])
    counts = [len(lines) for _, _, lines in columns]
    lines = np.concatenate([lines for _, _, lines in columns])

    def where(row: int) -> tuple[str, int]:
        number = int(np.searchsorted(np.cumsum(counts), row, side="right"))
        return files[number], int(lines[row])

    label, classes = _number_labels(_concat([labels for _, labels, _ in columns]), options.classes, where)
    return _checked(
        Source(
            root=root,
            layout="PaddleClas lists" if len(files) > 1 else "list file",
            classes=classes,
            splits=tuple(splits),
            path=path,
            label=label,
            split=np.repeat(np.arange(len(files), dtype=np.int8), counts),
            size=_sizes(root, path),
            extra=pa.table({}),
        ),
        where,
    )


def _split_of_list(file: str) -> str:
    first = os.path.basename(file).split(".")[0].split("_")[0].lower()
    return SPLIT_ALIASES.get(first, "train")


def _parse_list(file: str) -> tuple[pa.Array, pa.Array, NDArray[np.int64]]:
    """Split lines ``path label`` at the last blank; give paths, labels as text, and line numbers."""
    paths: list[pa.Array] = []
    labels: list[pa.Array] = []
    numbers: list[NDArray[np.int64]] = []
    for chunk in _chunks(_list_lines(file), 1 << 16):
        paths.append(pa.array([path for _, path, _ in chunk], pa.large_string()))
        labels.append(pa.array([label for _, _, label in chunk], pa.large_string()))
        numbers.append(np.array([number for number, _, _ in chunk], np.int64))
    return _concat(paths), _concat(labels), np.concatenate([*numbers, np.empty(0, np.int64)])


def _list_lines(file: str) -> Iterator[tuple[int, str, str]]:
    with open(file, "rb") as lines:
        for number, raw in enumerate(lines, 1):
            try:
                line = raw.decode("utf-8-sig" if number == 1 else "utf-8")
            except UnicodeDecodeError as error:
                raise SourceError(
                    f"is not valid UTF-8 ({error.reason} at byte {error.start} of the line)",
                    file=file, line=number, mend="save the list as UTF-8",
                ) from None  # fmt: skip
            parts = line.strip().rsplit(maxsplit=1)
            if len(parts) == 1 or "\0" in line:
                raise SourceError(
                    f"{line.strip()[:80]!r} is not `path label`", file=file, line=number, mend="add the label"
                )
            if parts:
                yield number, os.path.normpath(parts[0].rstrip()), parts[1]


# --- tables -------------------------------------------------------------------------------------


def _read_table(file: str, options: SourceOptions) -> Source:
    table = _load_table(file)
    path_name = _column(table, options.path_column, PATH_COLUMNS, "--path-column", file)
    label_name = _column(table, options.label_column, LABEL_COLUMNS, "--label-column", file)
    split_name = options.split_column or ("split" if "split" in table.column_names else None)
    if split_name is not None:
        _column(table, split_name, (), "--split-column", file)

    def where(row: int) -> tuple[str, int]:
        return file, row + (1 if file.lower().endswith(".parquet") else 2)

    for name in {path_name, label_name, *([split_name] if split_name else [])}:
        if table[name].null_count:
            row = pc.index(pc.is_null(table[name]), True).as_py()
            raise SourceError(f"column {name!r} is empty", file=where(row)[0], line=where(row)[1])
    root = options.image_root or os.path.dirname(file) or "."
    path = _text_column(table, path_name, file)
    path = pa.array([os.path.normpath(name) for name in path.to_pylist()], pa.large_string())
    label, classes = _number_labels(_label_column(table, label_name, file), options.classes, where)
    splits, split = _table_splits(table, split_name, file)
    extra = [name for name in table.column_names if name not in (path_name, label_name, split_name)]
    if taken := [name for name in extra if name in TABLE_COLUMNS or name.startswith("image/")]:
        raise SourceError(
            f"column {taken[0]!r} has a name that sample tables use themselves", file=file, mend="rename it"
        )
    for name in extra:
        if not _is_plain(table[name].type):
            raise SourceError(
                f"column {name!r} has the type {table[name].type}; further columns hold text or numbers",
                file=file,
                mend="leave it out or convert it",
            )
    source = Source(
        root=root,
        layout="table",
        classes=classes,
        splits=splits,
        path=path,
        label=label,
        split=split,
        size=_sizes(root, path),
        extra=table.select(extra).combine_chunks(),
    )
    return _checked(source, where)


def _is_plain(kind: pa.DataType) -> bool:
    types = pa.types
    return bool(
        types.is_integer(kind) or types.is_floating(kind) or types.is_boolean(kind)
        or types.is_string(kind) or types.is_large_string(kind) or types.is_null(kind)
    )  # fmt: skip


def _load_table(file: str) -> pa.Table:
    try:
        if file.lower().endswith(".parquet"):
            import pyarrow.parquet as pq

            return pq.ParquetFile(file).read()
        import pyarrow.csv as pacsv

        delimiter = "\t" if file.lower().endswith(".tsv") else ","
        parse = pacsv.ParseOptions(delimiter=delimiter, newlines_in_values=True)
        return pacsv.read_csv(file, parse_options=parse)
    except (pa.ArrowException, ValueError) as error:
        raise SourceError(str(error).splitlines()[0], file=file, mend="mend that row") from None


def _column(table: pa.Table, given: str | None, known: Sequence[str], option: str, file: str) -> str:
    names = [given] if given else [name for name in known if name in table.column_names]
    if names and names[0] in table.column_names:
        return names[0]
    raise CallError(
        f"{option}: {file} has no column {given or ' or '.join(known)}",
        mend=f"its columns are {', '.join(table.column_names)}",
    )


def _text_column(table: pa.Table, name: str, file: str) -> pa.Array:
    if not (pa.types.is_string(table[name].type) or pa.types.is_large_string(table[name].type)):
        raise SourceError(f"column {name!r} has the type {table[name].type}, not text", file=file)
    return table[name].combine_chunks().cast(pa.large_string())


def _label_column(table: pa.Table, name: str, file: str) -> pa.Array:
    kind = table[name].type
    if not (pa.types.is_integer(kind) or pa.types.is_string(kind) or pa.types.is_large_string(kind)):
        raise SourceError(f"column {name!r} has the type {kind}, and labels are integers or names", file=file)
    return _one_array(table[name].cast(pa.large_string()))


def _table_splits(table: pa.Table, name: str | None, file: str) -> tuple[tuple[str, ...], NDArray[np.int8]]:
    if name is None:
        return ("train",), np.zeros(len(table), np.int8)
    given = _text_column(table, name, file).to_pylist()
    words = {word: SPLIT_ALIASES.get(word.lower(), word) for word in set(given)}
    for word in sorted(words):
        if not word.replace("_", "").replace("-", "").isalnum() or not word.isascii():
            raise SourceError(f"split {word!r} cannot be part of a file name", file=file, mend="use letters and digits")
    splits = split_order(set(words.values()))
    if len(splits) > 127:
        raise SourceError(f"column {name!r} names {len(splits)} splits", file=file, mend="check --split-column")
    number = {word: splits.index(split) for word, split in words.items()}
    return splits, np.array([number[word] for word in given], np.int8)


# --- what they share ----------------------------------------------------------------------------

Where = Callable[[int], tuple[str, int]]


def _number_labels(
    text: pa.Array, classes: tuple[str, ...] | None, where: Where
) -> tuple[NDArray[np.int32], tuple[str, ...]]:
    """Turn labels as text into numbers: all integers stand for themselves, names are numbered in sorted order."""
    integers = bool(pc.all(pc.match_substring_regex(text, r"^[+-]?[0-9]+$"), min_count=0).as_py())
    names_given = classes is not None and bool(pc.all(pc.is_in(text, pa.array(classes, text.type))).as_py())
    if integers and not names_given:
        return _integer_labels(text, classes, where)
    names = classes or tuple(sorted(pc.unique(text).to_pylist()))
    label = pc.index_in(text, pa.array(names, pa.large_string()))
    if label.null_count:
        row = pc.index(pc.is_null(label), True).as_py()
        file, line = where(row)
        raise SourceError(f"label {text[row].as_py()!r} is not in --classes", file=file, line=line, mend="add it there")
    return np.asarray(label).astype(np.int32), names


def _integer_labels(
    text: pa.Array, classes: tuple[str, ...] | None, where: Where
) -> tuple[NDArray[np.int32], tuple[str, ...]]:
    limit = len(classes) if classes is not None else MAX_LABEL + 1
    short = pc.less_equal(pc.utf8_length(text), 9)
    value = np.asarray(pc.if_else(short, text, "-1").cast(pa.int64()))
    wrong = np.flatnonzero((value < 0) | (value >= limit))
    if len(wrong):
        file, line = where(int(wrong[0]))
        bound = f"0 to {limit - 1}" + (", as --classes has it" if classes is not None else "")
        raise SourceError(
            f"label {text[int(wrong[0])].as_py()} is out of the range {bound} ({len(wrong):,} such)",
            file=file,
            line=line,
        )
    names = classes or tuple(str(number) for number in range(int(value.max(initial=-1)) + 1))
    return value.astype(np.int32), names


def _sizes(root: str, path: pa.Array) -> NDArray[np.int64]:
    sizes = np.full(len(path), UNREADABLE, np.int64)
    for row, name in enumerate(_strings(path)):
        try:
            status = os.stat(os.path.join(root, name))
        except (OSError, ValueError):
            continue
        if stat.S_ISREG(status.st_mode):
            sizes[row] = status.st_size
    return sizes


def _strings(column: pa.Array) -> Iterator[str]:
    for at in range(0, len(column), 1 << 16):
        yield from column.slice(at, 1 << 16).to_pylist()


def _checked(source: Source, where: Where) -> Source:
    """Find a missing image or one path twice, before anything is written."""
    missing = np.flatnonzero(source.size == UNREADABLE)
    if len(missing):
        row = int(missing[0])
        file, line = where(row)
        name = source.path[row].as_py()
        raise SourceError(
            f"there is no image {name!r} in {source.root} ({len(missing):,} such)",
            file=file,
            line=line,
            mend=_missing_mend(source.root, name),
        )
    counts = pc.value_counts(source.path)
    if len(counts) < len(source.path):
        twice = counts.filter(pc.greater(counts.field("counts"), 1)).field("values")
        rows = np.flatnonzero(np.asarray(pc.equal(source.path, twice[0])))
        (file, line), (first, first_line) = where(int(rows[1])), where(int(rows[0]))
        raise SourceError(
            f"names {twice[0].as_py()!r} a second time ({len(twice):,} such)",
            file=file,
            line=line,
            mend=f"it stands in {os.path.basename(first)}, line {first_line}, already: remove one",
        )
    return source


def _missing_mend(root: str, name: str) -> str:
    import unicodedata

    for form in ("NFC", "NFD"):
        if os.path.exists(os.path.join(root, unicodedata.normalize(form, name))):  # type: ignore[arg-type]
            return f"a file of that name in the Unicode form {form} is there: write the list in that form"
    return "name the folder that paths are relative to with --image-root, or remove the line"


def _class_notices(source: Source) -> Iterator[str]:
    """Say which classes have no sample at all, or samples in some splits only."""
    counts = np.zeros((len(source.splits), len(source.classes)), np.int64)
    np.add.at(counts, (source.split, source.label), 1)
    empty = np.flatnonzero(counts.sum(0) == 0)
    if len(empty):
        yield f"{len(empty):,} of {len(source.classes):,} classes have no image: {_some(source, empty)}"
    for number, split in enumerate(source.splits):
        if len(source.splits) > 1:
            only = np.flatnonzero((counts[number] > 0) & (counts.sum(0) == counts[number]))
            if len(only):
                yield f"{len(only):,} classes are in {split} only: {_some(source, only)}"


def _some(source: Source, labels: Iterable[int]) -> str:
    shown = [printable(source.classes[label]) for label in list(labels)[:5]]
    return ", ".join(shown) + (", ..." if len(list(labels)) > 5 else "")


def _concat(arrays: Sequence[pa.Array]) -> pa.Array:
    return pa.concat_arrays(arrays) if arrays else pa.array([], pa.large_string())


def _one_array(column: Any) -> pa.Array:
    return column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column


def _chunks(items: Iterator[Any], size: int) -> Iterator[list[Any]]:
    chunk: list[Any] = []
    for item in items:
        chunk.append(item)
        if len(chunk) == size:
            yield chunk
            chunk = []
    if chunk:
        yield chunk
