"""The stages of a pipeline, measured by ending it after each of them, to find the one that takes most of the time."""

from __future__ import annotations

import argparse
import itertools
import statistics
from pathlib import Path

from load_sides import STAGES, build, by_hand, measure, ours
from report import Report

TRANSFER = "torch tensors"


def report_stages(report: Report, dataset: Path, args: argparse.Namespace) -> None:
    """Measure the pipeline by hand up to each of `STAGES`, then `loaders.build`, which adds torch tensors.

    A loader cannot end after a stage. The pipeline by hand does the same work with the same
    options, but always reads in stored order.
    """
    if args.preset != "imagenet-train":
        print("the stages are skipped: the pipeline by hand implements only imagenet-train")
        return
    with build(dataset, args) as loader:
        options = loader.options
    names = ["reading", *(f"+ {stage}" for stage in STAGES[1:]), f"+ {TRANSFER}: loaders.build"]
    sides = [
        *(by_hand(dataset, args, options, until=stage) for stage in STAGES),
        ours(dataset, args),
    ]
    timings = measure(report, "Stages", dict(zip(names, sides, strict=True)), args)
    medians = [statistics.median(timing.seconds) for timing in timings.values()]
    added = [max(0.0, after - before) for before, after in itertools.pairwise([0.0, *medians])]
    shares = {
        stage: seconds / sum(added)
        for stage, seconds in zip((*STAGES, TRANSFER), added, strict=True)
    }
    rows = [
        {"stage": stage, "share of the time": f"{share:.0%}"} for stage, share in shares.items()
    ]
    report.table("Time that each stage adds", rows)
    print(f"bottleneck: {max(shares, key=shares.__getitem__)}")
