"""What a model was trained on: `Receipt`, from a loader's state, and how often each sample was seen.

Imports neither torch nor DALI. Checkpoint files of torch are read with its unpickler of plain values
(``weights_only=True``), which runs no code.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, get_args

import numpy as np

from loaders.arrays import Ints
from loaders.checkpoint import Choices, read_revisions
from loaders.dataset.split import OpenSplit, join_splits, open_splits
from loaders.dataset.tables import SampleTables
from loaders.options import LastBatch, OnError
from loaders.progress import Seen
from loaders.ranks import Ranks
from loaders.samplers.choose import planned_order, sampler_columns, stored_order, tolerant_order
from loaders.samplers.named import from_plain
from loaders.samplers.order import Batching, Order
from manifests.errors import CallError
from manifests.json_members import Member, MemberError, parse_json
from manifests.process.text import plural, printable

#: Members of a loader's state, by which it is found in a checkpoint file.
_OF_STATE = {"built", "position", "checkpoint", "seen", "origin"}
#: Nesting of a checkpoint file in which states are looked for.
_DEPTH = 8


@dataclass(frozen=True, slots=True)
class Receipt:
    """What a loader's state says about the samples that were seen.

    Attributes:
        built: the choices of the loader; see `loaders.checkpoint.checkpoint_choices`.
        folders: folder or URL of each dataset, as the script named it.
        revisions: revision of each dataset.
        split: name of the split.
        samples: samples of the split.
        batches: batches in an epoch.
        sampler: what draws the samples; see `loaders.samplers.named`. `None` is the stored order.
        seen: the batches.
        bad: rows of the images that could not be decoded.

    """

    built: Choices
    folders: tuple[str, ...]
    revisions: tuple[int, ...]
    split: str
    samples: int
    batches: int
    sampler: Any
    seen: Seen
    bad: tuple[int, ...] = ()

    @property
    def epochs(self) -> int:
        """Epochs that were read to the end."""
        return sum(run[1:] == (0, self.batches) for run in self.seen.runs)

    def to_dict(self) -> dict[str, Any]:
        """Return plain values; see `loaders.loader.Loader.receipt`."""
        built = dict(self.built)
        dataset = {
            "folders": list(self.folders),
            "revisions": list(self.revisions),
            "split": self.split,
            "samples": self.samples,
            "digest": built.pop("dataset"),
        }
        return {
            "dataset": dataset,
            **built,
            "sampler": self.sampler,
            "batches": self.batches,
            "epochs": self.epochs,
            "samples_seen": self.seen.samples,
            "seen": [list(run) for run in self.seen.runs],
            "bad": list(self.bad),
        }

    def lines(self) -> Iterator[str]:
        """Return what ``loaders receipt`` prints."""
        pairs = zip(self.folders, self.revisions, strict=True)
        named = " + ".join(f"{printable(folder)} (revision {at})" for folder, at in pairs)
        built = self.built
        yield f"dataset      {named}, split {printable(self.split)}, {self.samples:,} samples"
        yield f"digest       {built['dataset']}"
        yield f"transforms   {printable(str(built['transforms']))}"
        yield f"sampler      {printable(str(built['sampler'] or 'stored order'))}"
        yield (
            f"seed         {built['seed']}, batches of {built['batch_size']} on"
            f" {plural(built['world_size'], 'rank')}, last batch: {built['last_batch']}"
        )
        yield (
            f"seen         {plural(self.seen.samples, 'sample')} of all ranks, in"
            f" {plural(self.epochs, 'whole epoch')} of {plural(self.batches, 'batch')}"
        )
        for epoch, first, end in self.seen.runs:
            if (first, end) != (0, self.batches):
                yield f"             and batches {first} to {end - 1} of epoch {epoch}"
        if self.bad:
            yield f"bad images   {len(self.bad)}, which could not be decoded"


def read_receipt(state: Mapping[str, Any]) -> Receipt:
    """Read a loader's state.

    Raises:
        CallError: it is none.

    """
    try:
        whole = Member(state)
        origin = whole["origin"]
        revisions = read_revisions(whole["revision"])
        folders = origin["folders"].texts()
        if len(folders) != len(revisions):
            origin["folders"].fail("as many as revisions")
        return Receipt(
            built=_choices(whole["built"]),
            folders=folders,
            revisions=revisions,
            split=origin["split"].text(),
            samples=origin["samples"].integer(),
            batches=origin["batches"].integer(),
            sampler=origin["sampler"].value,
            seen=whole["seen"].record(Seen),
            bad=tuple(row for row, _ in whole["errors"].read(tuple[tuple[int, str], ...])),
        )
    except MemberError as error:
        raise CallError(f"this is not the state of a loader ({error})") from None


def _choices(built: Member) -> Choices:
    """Return the choices of a loader, of which a receipt needs these."""
    for name in ("dataset", "transforms"):
        built[name].text()
    for name, low in (("seed", 0), ("rank", 0), ("batch_size", 1), ("world_size", 1)):
        built[name].integer(low)
    built["last_batch"].one_of(get_args(LastBatch))
    built["on_error"].one_of(get_args(OnError))
    for name in ("sampler", "sample_order", "shuffle"):
        built[name]  # is there; any value is compared or shown
    return built.mapping()


# --- checkpoint files -----------------------------------------------------------------------------


def find_receipts(path: str) -> list[Receipt]:
    """Read the states of loaders in a checkpoint file: of torch, or JSON.

    Raises:
        CallError: the file cannot be read without running code that it contains, or has no state.

    """
    found = [read_receipt(state) for state in _states(_read_file(path), _DEPTH)]
    if not found:
        raise CallError(
            f"{printable(path)} contains no state of a loader",
            hint="save loader.state_dict() in it, beside the state of the model",
        )
    return found


def _read_file(path: str) -> Any:
    try:
        with open(path, "rb") as file:
            if file.read(1) in b"{[":
                file.seek(0)
                return parse_json(file.read()).value
    except OSError as error:
        hint = "check the path; it is the file of a checkpoint that has loader.state_dict() in it"
        if isinstance(error, IsADirectoryError):
            hint = "name a file in it, or save one with torch.save(loader.state_dict(), FILE)"
        message = f"{printable(path)} cannot be read ({error.strerror})"
        raise CallError(message, hint=hint) from error
    except ValueError as error:  # MemberError is one
        raise CallError(f"{printable(path)} is not JSON ({error})") from None
    try:
        import torch
    except ImportError:
        raise CallError(
            f"{printable(path)} is not JSON, and torch, which reads other checkpoints, is not"
            " installed",
            hint="install torch, or save json.dumps(loader.state_dict())",
        ) from None
    try:
        return torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise CallError(
            f"{printable(path)} is not a checkpoint that torch reads without running code from it"
            f" ({printable(reason)})",
            hint="save the loader's state in a file of its own: torch.save(loader.state_dict(), FILE)",
        ) from None


def _states(value: Any, depth: int) -> Iterator[Mapping[str, Any]]:
    if isinstance(value, Mapping) and value.keys() >= _OF_STATE:
        yield value
    elif depth and isinstance(value, (Mapping, list, tuple)):
        for each in value.values() if isinstance(value, Mapping) else value:
            yield from _states(each, depth - 1)


# --- which samples --------------------------------------------------------------------------------


def seen_keys(
    receipts: Sequence[Receipt],
    dataset: str | None = None,
    announce: Callable[[str], None] = lambda _: None,
) -> Counter[tuple[str, str]]:
    """Return how often each sample was seen, by its key and its source.

    Args:
        receipts: of one training run: one, or with ``on_error`` other than ``"raise"`` the one of
            each rank; of several stages of it, all of them.
        dataset: folder of the dataset, if it is not where the script had it.
        announce: is told what is counted, and at the end an empty text.

    Raises:
        CallError: the order is not known, or the dataset is another one than the model was trained on.
        DamagedError: the manifest or a sample table is damaged.

    """
    counted: Counter[tuple[str, str]] = Counter()
    for receipt in _distinct(receipts):
        split = _open(receipt, dataset)
        tables = SampleTables(split)
        counts = _counts(receipt, split, tables, announce)
        columns = tables.columns(["key", "source"], requested_by="receipt")
        for row in np.flatnonzero(counts).tolist():
            counted[columns["key"][row], columns["source"][row]] += int(counts[row])
    announce("")
    return counted


def _distinct(receipts: Sequence[Receipt]) -> list[Receipt]:
    """Return the receipts to count: one for all ranks of a run, unless each rank has its own order."""
    runs: dict[str, list[Receipt]] = {}
    for receipt in receipts:
        shared = {name: each for name, each in receipt.built.items() if name != "rank"}
        runs.setdefault(json.dumps([shared, receipt.seen.runs], default=str), []).append(receipt)
    counted = []
    for run in runs.values():
        by_rank = {each.built["rank"]: each for each in run}
        first = run[0]
        if first.built["on_error"] == "raise":
            counted.append(first)
            continue
        missing = set(range(first.built["world_size"])) - by_rank.keys()
        if missing:
            raise CallError(
                f"with on_error={first.built['on_error']!r} each rank leaves out its own bad"
                f" images, and the state of rank {min(missing)} is missing",
                hint="name the checkpoints of all ranks",
            )
        counted += by_rank.values()
    return counted


def _open(receipt: Receipt, dataset: str | None) -> OpenSplit:
    folders = receipt.folders
    if dataset is not None:
        if len(folders) > 1:
            raise CallError(
                "--dataset names one dataset, but the model was trained on"
                f" {len(folders)}: {printable(' + '.join(folders))}",
                hint="run the command where these paths exist",
            )
        folders = (dataset,)
    pairs = zip(folders, receipt.revisions, strict=True)
    parts = [open_splits(folder, receipt.split, revision)[0] for folder, revision in pairs]
    split = parts[0] if len(parts) == 1 else join_splits(parts)
    if split.fingerprint != receipt.built["dataset"]:
        raise CallError(
            f"the model was trained on another dataset than {printable(split.folder)}: its content"
            f" is {split.fingerprint}, not {receipt.built['dataset']}",
            hint="name the dataset with --dataset",
        )
    return split


def _counts(
    receipt: Receipt, split: OpenSplit, tables: SampleTables, announce: Callable[[str], None]
) -> Ints:
    """Return how often each row of the split was seen, int64 [samples]."""
    order = _order(receipt, split, tables)
    counts = np.zeros(split.samples, np.int64)
    all_ranks = receipt.built["on_error"] == "raise"
    for epoch, first, end in receipt.seen.runs:
        announce(f"the samples of epoch {epoch}")
        for number in range(first, min(end, order.batches)):
            rows = order.shown_rows(epoch, number, all_ranks=all_ranks)
            if rows is not None:
                np.add.at(counts, rows, 1)
            elif (first, end) == (0, receipt.batches) and order.count(epoch, end) == 0:
                counts += 1  # in an order that is not known
                break
            else:
                raise CallError(
                    f"which samples are in batches {first} to {end - 1} of epoch {epoch} is not"
                    ' known: shuffle="buffer" draws from a buffer of DALI',
                    hint="train with shuffle=True to know it",
                )
    return counts


def _order(receipt: Receipt, split: OpenSplit, tables: SampleTables) -> Order:
    built = receipt.built
    ranks = Ranks(built["rank"], built["world_size"])
    batching = Batching(
        built["batch_size"], built["last_batch"], ranks, built["seed"], training=True
    )
    if receipt.sampler is None:
        return stored_order(split, batching, shuffle=bool(built["shuffle"]))
    sampler = from_plain(receipt.sampler)
    order = planned_order(split, sampler_columns(split, tables, sampler), batching, sampler)
    if built["sample_order"] != order.version:
        raise CallError(
            f"this release draws other samples (order {order.version}) than the one that trained the"
            f" model (order {built['sample_order']})",
            hint="use the release that trained it",
        )
    if built["on_error"] == "raise":
        return order
    tolerant = tolerant_order(order, tables, sampler, mode=built["on_error"])
    return tolerant.without(frozenset(receipt.bad))
