"""Which revision of a dataset a command reads: a number, or the one that a model was trained on."""

from __future__ import annotations

import os
from typing import Any

from manifests.errors import CallError
from manifests.json_members import Member, parse_json
from manifests.process.text import cut_middle, printable
from manifests.store import read_revision

#: Longest receipt that is read, in bytes.
_LONGEST = 64 << 20
#: A number of as many digits is no revision.
_DIGITS = 10


def find_revision(dataset: str, given: str | None, flag: str = "--revision") -> int | None:
    """Return the number of a revision; `None` means the newest one.

    Args:
        dataset: folder or URL of the dataset.
        given: a number, or a file that ``loaders receipt --json`` printed.
        flag: name of the option, for errors.

    Raises:
        CallError: the file is no receipt, or the receipt is of other datasets.
        ManifestError: the manifest is missing or damaged.

    """
    if given is None:
        return None
    if given.isascii() and given.isdigit() and len(given) < _DIGITS:
        return int(given)
    what = f"{flag} {cut_middle(printable(given), 200)}"
    if not os.path.isfile(given):
        raise CallError(
            f"{what} is neither a number nor a file",
            hint="give the number of a revision, or a file of `loaders receipt CHECKPOINT --json`",
        )
    try:
        with open(given, "rb") as file:
            whole: Any = parse_json(file.read(_LONGEST)).value
        listed = whole if isinstance(whole, list) else [whole]
        found = []
        for number, each in enumerate(listed):
            found += _datasets(Member(each, f"[{number}]")["dataset"])
    except (OSError, ValueError) as error:  # a MemberError is one
        raise CallError(
            f"{what} is not a receipt ({error})",
            hint="write one: loaders receipt CHECKPOINT --json > receipt.json",
        ) from None
    # A copy of the dataset may be elsewhere, but not under another name, unless there is only one.
    name = _name(dataset)
    folders = {folder for folder, *_ in found}
    own = {each[1:] for each in found if len(folders) == 1 or _name(each[0]) == name}
    if len(own) != 1:
        there = ", ".join(sorted(printable(folder) for folder in folders))
        raise CallError(
            f"{what} does not say one revision of {dataset}: it is of {there}",
            hint="give the number of the revision",
        )
    ((revision, split, samples),) = own
    counts = {each.name: each.samples for each in read_revision(dataset, revision).splits}
    if samples is not None and counts.get(split) != samples:
        raise CallError(
            f"{what} is of a dataset with {samples:,} samples in the split {printable(split)}, but"
            f" {dataset} has {counts.get(split, 0):,} in revision {revision}",
            hint="give the dataset that the model was trained on",
        )
    return revision


def _name(folder: str) -> str:
    return os.path.basename(folder.rstrip("/")) or folder


def _datasets(receipt: Member) -> list[tuple[str, int, str, int | None]]:
    """Return folder, revision and split of each dataset, and the samples of the split, if there is one dataset."""
    folders = receipt["folders"].texts()
    revisions = receipt["revisions"].read(tuple[int, ...])
    if len(folders) != len(revisions):
        receipt["revisions"].fail("as many as folders")
    split, samples = receipt["split"].text(), receipt["samples"].integer()
    known = samples if len(folders) == 1 else None
    return [(folder, at, split, known) for folder, at in zip(folders, revisions, strict=True)]
