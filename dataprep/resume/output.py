"""Check that a run may write to an output folder, before it writes anything."""

from __future__ import annotations

import os
from collections.abc import Iterable

from dataprep import storage
from dataprep.sources import Source
from manifests.errors import CallError, ManifestError
from manifests.process.text import printable
from manifests.remote import is_url, parse_url
from manifests.revisions import old_manifest_name
from manifests.store import read_manifest

#: Longest path of an output folder, in bytes: Linux allows 4,096 for the path of a file in it.
MAX_PATH = 3800


def check_output(source: Source, out: str) -> None:
    """Check that `out` can be an output folder.

    Raises:
        CallError: `out` is a file, is inside a file or a folder that the scan of the source reads,
            or is too long.

    """
    if is_url(out):
        _check_url(source, out)
        return
    existing = _nearest_existing(os.path.realpath(out))
    if len(os.fsencode(out)) > MAX_PATH:
        raise CallError(
            f"--out {printable(out[:80])}... is {len(os.fsencode(out)):,} bytes long, but the limit"
            f" is {MAX_PATH:,}",
            hint="choose a folder with a shorter path",
        )
    if source.scanned and _is_scanned(existing, source):
        raise CallError(
            f"--out {printable(out)} is inside the source {printable(source.root)}, so the next run"
            " would read it as images",
            hint="choose a folder outside the source",
        )
    if not os.path.isdir(existing):
        raise CallError(
            f"--out {printable(out)}: {printable(existing)} is a file, not a folder",
            hint="choose another folder with --out",
        )


def _check_url(source: Source, out: str) -> None:
    if parse_url(out).is_read_only:
        raise CallError(
            f"--out {out} can only be read", hint="use the s3://, gs:// or az:// URL of a bucket"
        )
    if source.scanned and f"{out}/".startswith(f"{source.root}/"):
        raise CallError(
            f"--out {printable(out)} is inside the source {printable(source.root)}, so the next run"
            " would read it as images",
            hint="choose a folder outside the source",
        )


def _is_scanned(path: str, source: Source) -> bool:
    """Return whether a path without links, or a folder above it, is one that the scan read, by whatever path."""
    while True:
        status = os.stat(path)
        if (status.st_dev, status.st_ino) in source.folders:
            return True
        path, below = os.path.dirname(path), path
        if path == below:
            return False


def check_writable(out: str) -> str:
    """Return the nearest existing folder, `out` or one of its parents, after checking that it can be written.

    Raises:
        CallError: this user has no permission to write.
        StorageError: another run is writing to `out`.

    """
    if is_url(out):  # only a write would tell
        return out
    existing = _nearest_existing(os.path.abspath(out))
    if not os.access(existing, os.W_OK | os.X_OK):
        hint = "give this user permission to write there, or choose another folder with --out"
        raise CallError(
            f"--out {printable(out)}: this user cannot write to {printable(existing)}", hint=hint
        )
    if os.path.isdir(out):
        with storage.locked(out):
            pass
    return existing


def refuse_folders(out: str, names: Iterable[str]) -> None:
    """Check that no folder has the name of a file that the run writes or replaces.

    Raises:
        CallError: there is one. Running the same command again would not help, and folders are
            never removed.

    """
    if is_url(out):  # an object store can have a file and a folder of the same name
        return
    for name in names:
        if os.path.isdir(os.path.join(out, name)) and not os.path.islink(os.path.join(out, name)):
            raise CallError(
                f"--out {printable(out)} contains a folder {name!r}, but a file of this name is"
                " needed",
                hint="move it away, or choose another folder",
            )


def refuse_appended(out: str) -> None:
    """Check that nothing was appended to the dataset in a folder since it was made.

    Raises:
        CallError: it has more than one revision, so it is no longer what a conversion made.

    """
    if not storage.is_file(os.path.join(out, old_manifest_name(0))):
        return
    try:
        manifest = read_manifest(out)
    except ManifestError:
        return
    if manifest.revisions:
        raise CallError(
            f"--out {printable(out)} is at revision {manifest.revision}: images were appended"
            " to it",
            hint=(
                "set --append to add the images of another source, choose another folder, or"
                " replace everything with --overwrite"
            ),
        )


def _nearest_existing(path: str) -> str:
    while not os.path.lexists(path):
        path = os.path.dirname(path)
    return path
