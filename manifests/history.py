"""Read the manifests of older revisions of a dataset, which ``dataprep convert --append`` keeps."""

from __future__ import annotations

import os

from manifests.errors import CallError, ManifestError
from manifests.files import MANIFEST, read_file
from manifests.revisions import manifest_digest, old_manifest_name
from manifests.schema import Manifest
from manifests.store import parse_manifest, read_manifest
from manifests.unexpected_errors import raise_machine_fault


def read_revision(folder: str | os.PathLike[str], revision: int | None) -> Manifest:
    """Read the manifest of a revision; `None` means the newest one.

    Raises:
        CallError: the folder does not exist, or the dataset has no such revision.
        ManifestError: the manifest is missing or damaged.

    """
    newest = read_manifest(folder)
    return (
        newest if revision in (None, newest.revision) else read_older(folder, newest, revision)[0]
    )


def read_older(
    folder: str | os.PathLike[str], newest: Manifest, revision: int
) -> tuple[Manifest, bytes]:
    """Read the manifest of a revision that is not the newest one, parsed and as it is stored.

    Raises:
        CallError: the dataset has no such revision.
        ManifestError: the manifest is missing or damaged.

    """
    if not 0 <= revision < newest.revision:
        hint = (
            f"choose a revision from 0 to {newest.revision}"
            if newest.revision
            else "leave out revision"
        )
        raise CallError(f"{os.fspath(folder)} has no revision {revision}", hint=hint)
    data = read_old_manifest(folder, newest, revision)
    return parse_manifest(data, os.path.join(folder, old_manifest_name(revision))), data


def read_old_manifest(folder: str | os.PathLike[str], newest: Manifest, revision: int) -> bytes:
    """Read the manifest of an older revision without parsing it, and compare it with its digest in the newest one.

    Raises:
        ManifestError: it is missing, or has another digest.

    """
    path = os.path.join(folder, old_manifest_name(revision))
    hint = "restore it from a copy; the newest revision does not need it"
    try:
        data = read_file(path, MANIFEST)
    except OSError as error:
        raise_machine_fault(error)
        message = f"the manifest of revision {revision} cannot be read ({error.strerror})"
        raise ManifestError(message, file=path, hint=hint) from None
    if manifest_digest(data) != newest.revisions[revision].parent:
        message = (
            f"this is not the manifest of revision {revision}: revision {revision + 1} states"
            " another digest"
        )
        raise ManifestError(message, file=path, hint=hint)
    return data
