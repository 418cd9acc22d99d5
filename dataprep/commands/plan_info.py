"""What ``dataprep info OUT/plan`` prints."""

from __future__ import annotations

import json
import os

import click

from dataprep.commands.base import print_line
from dataprep.commands.info import labels_line
from dataprep.humanize import format_bytes
from dataprep.plan.files import StoredPlan, plan_folder, plan_to_json, read_plan
from manifests.errors import CallError
from manifests.process.text import plural


def print_plan(folder: str, *, as_json: bool) -> None:
    """Print a plan, as JSON or for people.

    Raises:
        CallError: the folder is not called ``plan``.
        PlanError: the plan is damaged or was changed.

    """
    out = os.path.dirname(os.path.abspath(folder))
    if not os.path.samefile(plan_folder(out), folder):
        raise CallError(
            f"{folder} is not the folder `plan` of an output folder", hint="give OUT/plan"
        )
    plan = read_plan(out)
    if as_json:
        members = {name: value for name, value in plan_to_json(plan).items() if name != "tables"}
        click.echo(json.dumps(members, indent=1, ensure_ascii=False))
    else:
        _print(folder, plan)


def _print(folder: str, plan: StoredPlan) -> None:
    images = sum(split.images for split in plan.splits)
    contents = f"{plural(images, 'image')}{labels_line(plan.label_type, len(plan.classes))}"
    print_line(f"{folder}: plan of {plan.options.fmt}, {contents}, {plural(plan.shards, 'shard')}")
    if plan.append:
        print_line(
            f"appends to revision {plan.append.revision - 1}; {plural(plan.append.known, 'image')}"
            " known before"
        )
    for split in plan.splits:
        totals = (
            f"{plural(split.images, 'image')}, {format_bytes(split.bytes)},"
            f" {plural(split.shards, 'shard')}"
        )
        print_line(f"  {split.name}: {totals}")
    print_line(f"source: {plan.root} ({plan.layout})")
    if plan.extra:
        print_line(f"columns: {', '.join(plan.extra)}")
    if plan.rejected:
        print_line(f"rejected by the scan: {plural(len(plan.rejected), 'image')}")
    for name, value in plan.options.as_json().items():
        if name not in ("fmt", "made_by") and value is not None:
            print_line(f"  {name}: {json.dumps(value)}")
    print_line(
        "made by"
        f" {', '.join(f'{name} {version}' for name, version in plan.canary.versions.items())}"
    )
    print_line(f"fingerprint {plan.fingerprint}, canary {plan.canary.digest}")
