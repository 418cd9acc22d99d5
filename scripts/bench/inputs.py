"""What benchmarks read: photographs repeated up to a count, datasets made of them, and the page cache."""

import io
import itertools
import os
import shutil
import subprocess
from argparse import Namespace
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import harness
from harness import STORES, WrongOptionError
from PIL import Image


def photographs(folder: Path) -> list[Path]:
    found = sorted(file for file in folder.rglob("*") if file.suffix.lower() in (".jpg", ".jpeg"))
    if not found:
        raise SystemExit(f"{folder} has no .jpg or .jpeg files")
    return found


def copy_photographs(photos: Path, work: Path) -> list[Path]:
    """Copy the photographs to where their hard links can be."""
    folder, copies = work / "originals", []
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    for number, file in enumerate(photographs(photos)):
        copies.append(folder / f"{number}.jpg")
        shutil.copyfile(file, copies[-1])
    return copies


def fill_folder(files: Sequence[Path], src: Path, count: int, classes: int = 100) -> None:
    """Make an ImageFolder of `count` images: hard links are many images in the memory of a few."""
    shutil.rmtree(src, ignore_errors=True)
    for number in range(min(classes, count)):
        (src / f"class{number:04d}").mkdir(parents=True)
    for number in range(count):
        place = src / f"class{number % classes:04d}"
        os.link(files[number % len(files)], place / f"{number:08d}.jpg")


def encoded(photo: Image.Image, kind: str, **options: Any) -> bytes:
    out = io.BytesIO()
    photo.save(out, kind, **options)
    return out.getvalue()


def command_line(*arguments: object) -> list[str]:
    return [harness.PYTHON, "-m", "dataprep", *map(str, arguments)]


def run_command(command: Sequence[str], **options: Any) -> str:
    """Run a command, and return what it prints; exit with its errors if it fails."""
    done = subprocess.run(command, capture_output=True, text=True, check=False, **options)
    if done.returncode:
        raise SystemExit(f"{' '.join(command)}\n{done.stderr}")
    return str(done.stdout)


def convert(src: Path | str, out: Path | str, fmt: str, *options: object) -> None:
    run_command(command_line("convert", "--src", src, "--out", out, "--fmt", fmt, *options))


def convert_here(src: Path | str, out: Path | str, **options: Any) -> None:
    """Convert in this process, with options of the command."""
    import dataprep

    dataprep.convert(src, out, **options)


def store_options(store: str) -> list[str]:
    """Return the options of ``dataprep convert`` for a store, one of `STORES`."""
    raw = ["--store", "raw"] * store.startswith("raw")
    if store in ("full", "raw"):
        return raw
    if not store.removeprefix("raw").isdigit():
        raise WrongOptionError(f"--stores {store}: a store is {STORES}")
    return [*raw, "--raw-size" if raw else "--resize-shorter", store.removeprefix("raw")]


def prepare(
    args: Namespace, store: str = "full", *options: object, classes: int = 100
) -> tuple[Path, Path]:
    """Return an ImageFolder of `count` images, hard links to the photographs, and a dataset of it."""
    options = (*store_options(store), *options)
    src = args.work / f"src-{args.count}"
    out: Path = args.work / f"{args.fmt}-{args.count}-{store}"
    if not (out / "manifest.json").exists():
        fill_folder(copy_photographs(args.images, args.work), src, args.count, classes)
        convert(src, out, args.fmt, *options)
    return src, out


def repeat_shards(
    base: Path, out: Path, counts: Mapping[str, int],
    make_table: Callable[[int, Path], int] | None = None, **manifest: Any,
) -> Path:  # fmt: skip
    """Make a dataset whose shards are hard links to the few shards of another dataset, which has one split.

    A complete dataset is kept. `counts` are the shards of each split. `make_table` writes the sample
    table of a shard, given its number in all splits and its path, and returns the rows; without it,
    tables are hard links, too. `manifest` are changes of the manifest.
    """
    from manifests.schema import File, Shard, Split
    from manifests.store import manifest_files, read_manifest

    if (out / "manifest.json").exists():
        return out
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir(parents=True)
    whole, splits = read_manifest(base), []
    following = enumerate(itertools.cycle(whole.splits[0].shards))
    for split, count in counts.items():
        shards = []
        for place, (number, shard) in enumerate(itertools.islice(following, count)):
            samples, files = shard.samples, []
            for file in (shard.file, shard.index, shard.table):
                path = out / f"{split}-{place:05d}{Path(file.name).suffix}"
                if file is shard.table and make_table is not None:
                    samples = make_table(number, path)
                    files.append(File(path.name, path.stat().st_size, None))
                else:
                    os.link(base / file.name, path)
                    files.append(replace(file, name=path.name, bytes=path.stat().st_size))
            shards.append(Shard(files[0], samples, files[1], files[2]))
        splits.append(Split(split, tuple(shards)))
    for name, content in manifest_files(replace(whole, splits=tuple(splits), **manifest)).items():
        (out / name).write_bytes(content)
    return out


def shard_files(folder: Path) -> list[Path]:
    return sorted(file for file in folder.iterdir() if file.suffix in (".tfrecord", ".tar"))


def upload(folder: Path, url: str) -> None:
    from manifests.remote.store import open_store

    store = open_store(url)
    for path in sorted(folder.rglob("*")):
        if path.is_file():
            store.put(str(path.relative_to(folder)), path.read_bytes())


def drop_pages(files: Iterable[Path]) -> None:
    """Drop files from the page cache, so that the next read comes from the disk."""
    for file in files:
        with open(file, "rb") as stream:
            os.fsync(stream.fileno())
            os.posix_fadvise(stream.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def require_disk(folder: Path) -> None:
    """Refuse a folder in memory, whose pages cannot be dropped."""
    existing = next(each for each in (folder.resolve(), *folder.resolve().parents) if each.exists())
    if run_command(["stat", "-f", "-c", "%T", str(existing)]).strip() in ("tmpfs", "ramfs"):
        hint = "Hint: set --work to a folder on a disk."
        raise WrongOptionError(f"--work: {folder} is in memory. {hint}")
