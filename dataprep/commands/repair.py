"""``dataprep verify``, ``repair`` and ``revert``: find damage of a dataset, replace damaged files, undo an append."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import click

from dataprep.commands.base import Command, path_or_url, print_line, takes
from dataprep.commands.console import ProgressBar, console
from dataprep.options import RepairOptions, SourceOptions, VerifyOptions, WorkerOptions
from manifests.errors import CallError, DataProblemError, DatasetError, ExitStatus
from manifests.process.interrupts import cleanup_on_interrupt
from manifests.process.text import agree, plural, printable

if TYPE_CHECKING:
    from dataprep.verification.verify import VerifyResult


def verify_value(dataset: str, *, options: VerifyOptions) -> dict[str, Any]:
    """Check a dataset as the command does; return what was checked, for `dataprep.verify`."""
    result = _verify(dataset, options)
    value = {**asdict(result), "counts": dict(result.counts), "problems": []}
    value["problems"] = list(map(asdict, result.problems))
    if result.problems:
        total = sum(result.counts.values())
        raise DataProblemError(
            f"{plural(total, 'problem')} in {dataset}. The first one: {result.problems[0]}",
            result=value,
        )
    return value


@click.command(cls=Command, compute=verify_value)
@click.argument("dataset", type=path_or_url)
@takes(options=VerifyOptions)
def verify(dataset: str, *, options: VerifyOptions) -> ExitStatus:
    """Check a dataset for damage.

    Reads all files of DATASET, a folder or a URL; with --manifest-only, only the manifest. Prints
    the file, record and byte offset of each problem, and how to fix it. Lists the first problems of
    each file, and counts the others.
    """
    result = _verify(dataset, options)
    # Each file has a limit of listed problems; the result counts the others.
    for problem in result.problems:
        print_line(str(problem))
    listed = Counter(problem.file for problem in result.problems)
    for file, count in listed.items():
        if result.counts[file] > count:
            print_line(f"{file}: {plural(result.counts[file] - count, 'problem')} more")
    if result.without_checksum:
        has = agree(result.without_checksum, "has", "have")
        # --decode checks images without a checksum, except for damage that still decodes.
        effect = " to compare with" if options.decode else ", so their images were not checked"
        print_line(
            f"{plural(result.without_checksum, 'shard')} {has} no checksum{effect}. Hint: `dataprep"
            " index --validate header --overwrite` reads them and adds checksums."
        )
    if result.problems:
        total = sum(result.counts.values())
        rest = f"; the first {listed.total():,} are listed" if total > listed.total() else ""
        print_line(f"{plural(total, 'problem')} in {dataset}{rest}")
        return ExitStatus.DATA_PROBLEM
    samples = f"{plural(result.samples, 'sample')} in {plural(result.shards, 'shard')}"
    if options.manifest_only:
        samples += ", whose contents were not read"
    print_line(f"no problems in {dataset}: {samples}")
    return ExitStatus.SUCCESS


def _verify(dataset: str, options: VerifyOptions) -> VerifyResult:
    from dataprep.verification.verify import verify_dataset, verify_manifest

    decode, workers = options.decode, options.workers
    if options.max_pixels is not None and not decode:
        raise CallError(
            "--max-pixels requires --decode", hint="add --decode, or leave --max-pixels out"
        )
    if options.manifest_only and decode:
        raise CallError(
            "--manifest-only reads no image, so it excludes --decode", hint="leave one of them out"
        )
    with ProgressBar("verifying") as bar:
        if options.manifest_only:
            return verify_manifest(dataset, workers=workers, progress=bar)
        return verify_dataset(
            dataset,
            decode=decode,
            max_pixels=options.max_pixels,
            workers=workers,
            progress=bar,
        )


@click.command(cls=Command)
@click.argument("dataset", type=path_or_url)
@takes(options=RepairOptions, reading=SourceOptions, run=WorkerOptions)
def repair(
    dataset: str, *, options: RepairOptions, reading: SourceOptions, run: WorkerOptions
) -> ExitStatus:
    """Replace damaged and missing files of a dataset.

    Reads all files of DATASET and compares them with the checksums in the manifest. Indexes and
    tables are rebuilt from their shards where a shard determines every byte; with --src, everything
    else is made again from the source, with the options in the manifest. A file is replaced only by
    one with the right checksum; intact files are not changed. Exit status 1: a file could not be
    repaired. If the command is interrupted or killed, run it again.
    """
    from dataprep.repair import repair_dataset

    source = None
    if options.src:
        from dataprep.sources.merge import merge_sources
        from dataprep.sources.recognize import read_sources

        source = merge_sources(read_sources(options.src, reading))
    elif reading != SourceOptions(max_classes=reading.max_classes):
        raise CallError("options that say how to read the source require --src", hint="set --src")
    with ProgressBar("checking") as bar, cleanup_on_interrupt():
        result = repair_dataset(
            dataset, source, dry_run=options.dry_run, workers=run.workers, progress=bar
        )
    # A dry run prints what a run would do.
    will, can = "", ""
    if options.dry_run:
        will, can = "would be ", "can be "
    repaired = 0
    for file in result.files:
        if file.repair:
            repaired += 1
            print_line(f"{file.file}: {file.damage}; {will}{file.repair}")
        else:
            reason = f"{file.damage}; not repaired: {file.reason}"
            print_line(str(DatasetError(reason, file=file.file, hint=file.hint)))
    broken = len(result.files) - repaired
    if not result.files:
        print_line(f"nothing to repair in {dataset}: {plural(result.shards, 'shard')} checked")
    elif repaired:
        print_line(f"{plural(repaired, 'file')} {can}repaired in {dataset}")
    if not broken:
        return ExitStatus.SUCCESS
    console.note(f"{plural(broken, 'file')} in {dataset} cannot be repaired")
    return ExitStatus.DATA_PROBLEM


@click.command(cls=Command)
@click.argument("dataset", type=path_or_url)
def revert(dataset: str) -> ExitStatus:
    """Undo the last append, join or removal.

    Removes what an interrupted `dataprep convert --append` or `dataprep join` wrote to DATASET. If
    none was interrupted, goes back to the revision before the newest one, and removes the shards or
    tables that the newest one added. If the command is interrupted or killed, run it again. Close loaders that read
    the newest revision first.
    """
    from dataprep.run.commit import revert_dataset

    with cleanup_on_interrupt():
        result = revert_dataset(dataset)
    if result.removed:
        samples = plural(result.removed, "sample")
        print_line(f"{samples} {agree(result.removed, 'was', 'were')} removed")
    elif result.joined:
        print_line(f"the join of {', '.join(map(printable, result.joined))} was undone")
    elif result.restored:
        samples = plural(result.restored, "sample")
        print_line(f"{samples} {agree(result.restored, 'is', 'are')} in the dataset again")
    else:
        print_line(
            f"what an interrupted append or join wrote was removed: {plural(result.files, 'file')}"
        )
    print_line(f"{dataset} is at revision {result.manifest.revision}")
    return ExitStatus.SUCCESS
