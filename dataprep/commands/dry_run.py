"""Print what ``dataprep convert --dry-run`` shows: the planned shards, and estimates of disk space and time."""

from __future__ import annotations

import math
import shutil
from collections.abc import Sequence
from dataclasses import replace

from dataprep.commands.base import print_line, print_note
from dataprep.humanize import format_bytes, format_duration
from dataprep.options import Downscale, Options, Raw
from dataprep.plan.assign import ShardPlan, make_plan
from dataprep.run.prepare import find_resumable
from dataprep.run.source import Trial, check_writable, run_trial
from dataprep.sources import Source
from manifests.process.text import plural

#: A note is printed if the free space is less than the estimated size of the shards times this
#: factor.
_SPACE_FACTOR = 1.02


def print_plan(
    source: Source, out: str, options: Options, workers: int, *, overwrite: bool
) -> None:
    """Print the plan and write nothing.

    Raises:
        CallError: `out` cannot be written, or contains files of another dataset.
        StorageError: another run is writing to `out`.

    """
    plan = make_plan(source, options)
    for notice in plan.notices:
        print_note(notice)
    writable = check_writable(out)
    finished = find_resumable(source, plan, out, options, overwrite=overwrite).shards
    for split in plan.splits:
        shards = [shard for shard in plan.shards if shard.split == split]
        images = (
            f"{plural(_count_images(shards), 'image')},"
            f" {format_bytes(_source_bytes(source, shards))}"
        )
        print_line(f"{split}: {images}, {plural(len(shards), 'shard')}")
    remaining = [shard for shard in plan.shards if shard.name not in finished]
    if finished:
        print_line(
            f"done by an earlier run: {plural(len(finished), 'shard')}; to do:"
            f" {plural(len(remaining), 'shard')}"
        )
    trial = run_trial(source, remaining, options)
    images_left = _count_images(remaining)
    size = (
        trial.stored * images_left if options.changes_images else _source_bytes(source, remaining)
    )
    free = shutil.disk_usage(writable).free
    about = "about " if options.downscale else ""
    print_line(f"out: {out}, {about}{format_bytes(size)} to write, {format_bytes(free)} free")
    if not remaining:
        return
    print_line(_disk_line(source, remaining, options, trial))
    processes = min(workers, len(remaining))
    print_line(
        f"time: about {format_duration(images_left / trial.rate / processes)} with"
        f" {plural(processes, 'worker')}, at {trial.rate:,.0f} images/s each, measured on"
        f" {plural(trial.measured, 'image')} (without writing)"
    )
    if free < size * _SPACE_FACTOR:
        print_note("the disk does not have enough free space")


def _disk_line(source: Source, shards: Sequence[ShardPlan], options: Options, trial: Trial) -> str:
    """Compare the disk space of the images: as they are, shrunk, and as raw pixels."""
    images = _count_images(shards)
    downscale, raw = options.downscale or Downscale(shorter=256), options.raw or Raw()
    if not options.downscale:
        trial = run_trial(source, shards, replace(options, downscale=downscale, raw=None))
    sides = {"--resize-shorter": downscale.shorter, "--max-side": downscale.longest}
    resize = " ".join(f"{name} {side}" for name, side in sides.items() if side)
    return (
        f"disk: {format_bytes(_source_bytes(source, shards))} for the images as they are; about"
        f" {format_bytes(trial.stored * images)} with {resize}, measured on"
        f" {plural(trial.measured, 'image')}; {format_bytes(math.prod(raw.pixels) * images)} with"
        f" --store raw --raw-size {raw.size}"
    )


def _count_images(shards: Sequence[ShardPlan]) -> int:
    return sum(len(shard.rows) for shard in shards)


def _source_bytes(source: Source, shards: Sequence[ShardPlan]) -> int:
    return sum(int(source.size[shard.rows].clip(min=0).sum()) for shard in shards)
