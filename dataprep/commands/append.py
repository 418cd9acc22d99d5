"""``--append`` of ``dataprep convert`` and ``dataprep plan``: add images to a dataset."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from dataprep.commands.base import print_line, print_note
from dataprep.commands.conversion_options import Request
from dataprep.commands.progress_bars import ProgressBar
from dataprep.commands.results import print_result
from dataprep.humanize import format_bytes
from manifests.errors import CallError, ExitStatus
from manifests.process.interrupts import cleanup_on_interrupt
from manifests.process.text import agree, plural, printable

append_option = click.option(
    "--append",
    is_flag=True,
    help=(
        "Add the images to the dataset OUT, as its next revision: new shards after the old ones,"
        " new classes at the end. Images that are in OUT are left out. Options that are not given"
        " are taken from OUT. `dataprep revert` undoes it."
    ),
)

if TYPE_CHECKING:
    from dataprep.engines import Engine
    from dataprep.run.append import AppendPlan, AppendResult
    from dataprep.sources import Source


def refuse_with_append(**flags: bool) -> None:
    """Check that no option is set that ``--append`` excludes.

    Raises:
        CallError: one is.

    """
    for name in (name.replace("_", "-") for name, is_set in flags.items() if is_set):
        raise CallError(f"--append excludes --{name}", hint=f"leave out --{name}")


def append_source(
    source: Source, request: Request, engine: Engine, max_rejected: float, *, dry_run: bool
) -> ExitStatus:
    """Append a source to the dataset in the output folder, and print what was added."""
    from dataprep.run.append import append_dataset, plan_append
    from dataprep.run.base import read_base

    options, out, name = request.options, request.out, request.name
    if dry_run:
        planned = plan_append(source, read_base(out), options, name=name, reader=engine)
        print_append_plan(planned, out)
        return ExitStatus.SUCCESS
    with (
        ProgressBar("comparing") as check_bar,
        ProgressBar("converting") as bar,
        cleanup_on_interrupt(),
    ):
        result = append_dataset(
            source, out, options, name=name, engine=engine, progress=bar, check_progress=check_bar
        )
    return print_append(result, out, max_rejected)


def print_append(result: AppendResult, out: str, max_rejected: float) -> ExitStatus:
    """Print what was appended; return status 1 if too many images were rejected."""
    from dataprep.plan.assign import PLAN_FOLDER
    from dataprep.plan.files import ENDED_NAME

    _print_notices(result.notices)
    if result.converted is None:
        _print_nothing(result, out)
        return ExitStatus.SUCCESS
    _print_known(result.known, out)
    is_nothing = not result.converted.manifest.splits
    rejected = f"{PLAN_FOLDER}/{ENDED_NAME}" if is_nothing else None
    status = print_result(result.converted, out, max_rejected, appended=True, rejected=rejected)
    if is_nothing:
        print_line(f"nothing was appended to {out}: every new image was rejected")
        return status
    _print_new(result.new_classes)
    samples = sum(split.samples for split in result.manifest.splits)
    print_line(
        f"{out} is at revision {result.manifest.revision}: {plural(samples, 'sample')} in "
        f"{plural(len(result.manifest.classes), 'class')}"
    )
    return status


def _print_notices(notices: Sequence[str]) -> None:
    for notice in notices:
        print_note(notice)


def _print_known(known: int, out: str) -> None:
    if known:
        print_line(
            f"{plural(known, 'image')} of the source {agree(known, 'is', 'are')} in {out} already"
        )


def _print_new(classes: Sequence[str]) -> None:
    if classes:
        shown = ", ".join(printable(name) for name in classes[:5])
        print_line(
            f"{plural(len(classes), 'new class')}: {shown}{', ...' if len(classes) > 5 else ''}"
        )


def _print_nothing(result: AppendResult, out: str) -> None:
    """Say that there was nothing to append."""
    since = "" if result.revision is None else f" since revision {result.revision}"
    images = plural(result.known, "image")
    rejected = ", or rejected then" if result.manifest.rejected else ""
    print_line(
        f"nothing to append: all {images} of the source {agree(result.known, 'is', 'are')} in"
        f" {out}{since}{rejected}"
    )


def print_append_plan(planned: AppendPlan | AppendResult, out: str) -> None:
    """Print what will be appended."""
    from dataprep.run.append import AppendResult

    _print_notices(planned.notices)
    if isinstance(planned, AppendResult):
        _print_nothing(planned, out)
        return
    _print_notices(planned.plan.notices)
    _print_known(planned.known, out)
    for split in planned.plan.splits:
        shards = [shard for shard in planned.plan.shards if shard.split == split]
        images = sum(len(shard.rows) for shard in shards)
        size = sum(int(planned.source.size[shard.rows].clip(min=0).sum()) for shard in shards)
        totals = f"{plural(images, 'image')}, {format_bytes(size)}"
        print_line(f"{split}: {totals}, {plural(len(shards), 'shard')} to append")
    _print_new(planned.new_classes)
